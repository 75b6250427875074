"""What is said of a dead engine follows from what it left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from amptui.session.death import Trace, crash_lines, explain, oom_kills

FAULT = """Fatal Python error: Segmentation fault

Thread 0x00007f (most recent call first):
  File "/users/other.py", line 1 in innocent

Current thread 0x00007e (most recent call first):
  File "/v/lib/python3.11/site-packages/torch/nn/modules/linear.py", line 9 in forward
  File "/users/train.py", line 12 in loss
  File "/amptui/engine/guard.py", line 3 in forward

Extension modules: torch._C (total: 1)
"""


@pytest.mark.parametrize(
    ("trace", "how", "said"),
    [
        (Trace(status=-9), "SIGKILL", "by someone, or by the kernel because memory ran out"),
        (Trace(status=-9, oom_kills=1), "SIGKILL", "probably by the kernel because memory ran out"),
        (Trace(status=-11, fault=FAULT, own_code=["/amptui"]), "SIGSEGV", "at /users/train.py:12 in loss"),
        (Trace(status=-11), "SIGSEGV", "a segmentation fault"),
        (Trace(status=-6), "SIGABRT", "native code gave up"),
        (Trace(status=-35), "signal 35", "signal 35"),
        (Trace(status=0), "exit 0 without goodbye", "counted as a crash"),
        (Trace(status=3), "exit code 3", "os._exit(3)"),
        (Trace(status=70, failure="the disk is full"), "exit code 70", "an error and ended: the disk is full"),
        (Trace(status=None), "gone", "not known"),
        (Trace(status=None, fault=FAULT, own_code=["/amptui"]), "gone", "(Segmentation fault), at /users/train.py:12"),
    ],
)
def test_every_end_has_its_words(trace: Trace, how: str, said: str) -> None:
    told, words = explain(trace)

    assert told == how
    assert said in words


def test_the_crashing_threads_stack_is_the_one_shown() -> None:
    assert crash_lines(FAULT) == (
        "Fatal Python error: Segmentation fault",
        "Current thread 0x00007e (most recent call first):",
        '  File "/v/lib/python3.11/site-packages/torch/nn/modules/linear.py", line 9 in forward',
        '  File "/users/train.py", line 12 in loss',
        '  File "/amptui/engine/guard.py", line 3 in forward',
    )
    assert crash_lines("") == ()


def test_a_stack_of_libraries_only_names_the_innermost_frame() -> None:
    fault = 'Current thread 0x1 (most recent call first):\n  File "/v/site-packages/a.py", line 2 in f\n'

    assert explain(Trace(status=-11, fault=fault))[1].endswith("at /v/site-packages/a.py:2 in f.")


@pytest.mark.parametrize(
    ("membership", "file", "text"),
    [
        ("0::/user/box\n", "user/box/memory.events", "low 0\noom 2\noom_kill 2\noom_group_kill 0\n"),
        ("5:cpu:/a\n4:memory,hugetlb:/b\n", "memory/b/memory.oom_control", "oom_kill_disable 0\noom_kill 2\n"),
    ],
)
def test_the_kernels_kills_are_counted(tmp_path: Path, membership: str, file: str, text: str) -> None:
    (tmp_path / "cgroup").write_text(membership)
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(text)

    assert oom_kills(tmp_path / "cgroup", tmp_path) == 2


@pytest.mark.parametrize("membership", ["", "nonsense\n", "0::/gone\n"])
def test_a_kernel_that_does_not_say_counts_none(tmp_path: Path, membership: str) -> None:
    (tmp_path / "cgroup").write_text(membership)

    assert oom_kills(tmp_path / "cgroup", tmp_path) == 0
    assert oom_kills(tmp_path / "missing", tmp_path) == 0
