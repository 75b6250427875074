"""`amptui check` from the shell to the exit code, and the way back from whatever became of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
import torch

from amptui.project import Criteria
from amptui.protocol.commands import LockCriteria, OpenProject, RunBaseline, RunTrial
from amptui.protocol.events import CriteriaLocked, Refused, StageEnded, VerdictReached
from amptui.session.folder import SessionFolder
from amptui.session.process import EngineProcess
from tests.commands import ROOT, SAMPLES, Amptui, documented, eventually, small_project


@pytest.fixture
def amptui(tmp_path: Path) -> Amptui:
    return Amptui(tmp_path)


def same_bits(one: Any, other: Any) -> bool:
    """Whether two nested states are equal, tensors in every bit."""
    if isinstance(one, torch.Tensor):
        return (
            one.dtype == other.dtype
            and one.shape == other.shape
            and one.contiguous().view(-1).view(torch.uint8).equal(other.contiguous().view(-1).view(torch.uint8))
        )
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_bits(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same_bits, one, other))
    return bool(one == other)


# The sample projects


@pytest.mark.parametrize(("sample", "dtype"), [("digits", "fp16"), ("digits", "bf16"), ("gan", "fp16")])
def test_a_healthy_sample_is_accepted(amptui: Amptui, sample: str, dtype: str) -> None:
    done = amptui.check(SAMPLES / sample / "amptui.yaml", "--dtype", dtype)
    assert done.code == 0, done.said
    assert [finding for finding in done.result["findings"] if finding["severity"] == "fault"] == []
    assert done.result["updates"][0]["applied"] == done.result["updates"][0]["iterations"]
    assert (done.result["scaler"] is not None) == (dtype == "fp16")
    assert "ACCEPT" in done.out


def test_diabetes_is_rejected_in_fp16_with_case_output_stage_and_line(amptui: Amptui) -> None:
    done = amptui.check(SAMPLES / "diabetes" / "amptui.yaml")
    assert done.code == 1, done.said
    lost = [row for row in done.result["rows"] if not row["passed"] and row["case"] == "beyond-fp16"]
    assert {row["criterion"] for row in lost} == {"finite", "difference"}
    assert "prediction" in {row["output"] for row in lost}
    assert "nan" in {row["trial"] for row in lost}
    first = done.result["findings"][0]
    source = (SAMPLES / "diabetes" / "diabetes.py").read_text(encoding="utf-8").splitlines()
    line = next(number for number, text in enumerate(source, 1) if "torch.einsum" in text)
    assert (first["kind"], first["severity"], first["stage"]) == ("overflow", "fault", "forward")
    assert (first["step"], first["update"], first["module"], first["fp32_ok"]) == (0, "main", "normalise", True)
    assert first["line"] == f"{SAMPLES}/diabetes/diabetes.py:{line}"
    assert any(finding["case"] is not None and finding["kind"] == "overflow" for finding in done.result["findings"])
    assert done.result["fp32_regions"] == ["normalise"]
    assert done.result["updates"][0] | {"applied": 0, "skipped": 44, "withheld": 0} == done.result["updates"][0]
    for word in ("prediction", "beyond-fp16", "normalise", "REJECT", "diabetes.py"):
        assert word in done.out


def test_diabetes_is_accepted_in_bf16_and_with_the_region_that_was_suggested(amptui: Amptui) -> None:
    assert amptui.check(SAMPLES / "diabetes" / "amptui.yaml", "--dtype", "bf16").code == 0
    mended = amptui.folder / "amptui.yaml"
    mended.write_text(
        f"entry: {SAMPLES}/diabetes/diabetes.py:project\npolicy:\n  dtype: float16\n  fp32_regions: [normalise]\n"
    )
    done = amptui.check(mended)
    assert done.code == 0, done.said
    assert done.result["policy"]["fp32_regions"] == ["normalise"]


# Without a verdict to trust


def test_an_fp32_loss_that_is_nan_is_inconclusive_and_still_diagnosed(amptui: Amptui) -> None:
    file = small_project(amptui.folder, loss="if number == 2:\n    return (model(x) - 1e3).sum().log()")
    done = amptui.check(f"{file}:project")
    assert done.code == 3, done.said
    assert done.result["baseline"]["finite"] is False
    finding = done.result["findings"][0]
    line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if ".log()" in text)
    assert (finding["kind"], finding["fp32_ok"], finding["step"]) == ("not_precision", False, 2)
    assert (finding["module"], finding["line"]) == ("loss", f"{file}:{line}")
    assert finding["advice"]


COUNTING = """
class Calls:
    def __init__(self): self.seen = []
    def state_dict(self): return {"seen": list(self.seen)}
    def load_state_dict(self, state): self.seen = list(state["seen"])

calls = Calls()
"""


@pytest.mark.parametrize(
    ("top", "loss", "extra"),
    [
        (
            "noise = torch.Generator().manual_seed(5)",
            "x = x + 0.1 * torch.randn(x.shape, generator=noise)",
            'extra_state={"noise": noise},',
        ),
        (
            COUNTING,
            "calls.seen.append(number)\nx = x * (1 + 0.01 * len(calls.seen))",
            'extra_state={"calls": calls},',
        ),
    ],
    ids=["a private generator", "a list that counts"],
)
def test_state_that_no_state_dict_holds_is_found_and_mended_by_extra_state(
    amptui: Amptui, top: str, loss: str, extra: str
) -> None:
    done = amptui.check(f"{small_project(amptui.folder, top=top, loss=loss)}:project")
    assert done.code == 3, done.said
    assert done.result["baseline"]["repeatable"] is False
    assert done.result["baseline"]["repeat"]["difference"]
    assert "extra_state" in done.result["baseline"]["repeat"]["advice"]
    assert "extra_state" in done.said
    mended = amptui.check(f"{small_project(amptui.folder, top=top, loss=loss, project=extra)}:project")
    assert mended.code == 0, mended.said
    assert mended.result["baseline"]["repeatable"] is True


# An engine that dies. `under_policy` is true in a trial; what else runs under autocast sees batch 0 only.

EXIT = "if number == 3 and {when}:\n    print('last words', flush=True)\n    os._exit(7)"
WAIT = "if number == 3 and {when}:\n    told('here')\n    time.sleep(120)"


def assert_restorable(amptui: Amptui, session: object = "last") -> None:
    before = torch.load(amptui.folder / "before.pt", weights_only=True)
    restored = amptui.restored(session)
    assert same_bits(restored["model"], before["model"])
    assert same_bits(restored["optimizers"]["main"], before["optimizer"])
    verified = amptui("restore", session, "--verify")
    assert verified.code == 0, verified.said
    assert "every byte as it was saved" in verified.out


@pytest.mark.parametrize(
    ("stage", "parts"),
    [
        ("baseline", {"loss": EXIT.format(when="not under_policy")}),
        ("trial", {"loss": EXIT.format(when="under_policy")}),
        ("trial", {"decide": "if under_policy:\n    print('last words', flush=True)\n    os._exit(7)"}),
    ],
    ids=["in the loss, baseline", "in the loss, trial", "in decide"],
)
def test_code_that_ends_the_process_is_told_and_the_session_stays_restorable(
    amptui: Amptui, stage: str, parts: dict[str, str]
) -> None:
    done = amptui.check(f"{small_project(amptui.folder, **parts)}:project")
    assert done.code == 2, done.said
    assert done.error["code"] == "engine-died"
    assert "ended with exit code 7" in done.error["message"]
    assert done.error["output"] == ["last words"]
    assert f"The engine ended during {stage}" in done.said
    assert "Traceback" not in done.said
    assert bool(done.result["criteria"]) == (stage == "trial")
    assert_restorable(amptui)


def test_code_that_ends_the_process_on_loading_has_changed_nothing(amptui: Amptui) -> None:
    done = amptui.check(f"{small_project(amptui.folder, load='os._exit(0)')}:project")
    assert done.code == 2, done.said
    assert "counted as a crash" in done.error["message"]
    restored = amptui("restore", "last", "-o", "f.pt")
    assert restored.code == 2
    assert "before its FP32 checkpoint was written" in restored.said
    assert not (amptui.folder / "f.pt").exists()


FRESH = """
import hashlib, sys, torch
sys.path.insert(0, sys.argv[1])
import small
saved = torch.load(sys.argv[2], weights_only=True)
torch.manual_seed(99)
model = small.Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
model.load_state_dict(saved["model"])
optimizer.load_state_dict(saved["optimizers"]["main"] if "optimizers" in saved else saved["optimizer"])
for number, x, y in small.batches():
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
state = [*model.state_dict().values(), *(v for s in optimizer.state.values() for v in s.values())]
print(hashlib.sha256(b"".join(t.detach().numpy().tobytes() for t in state)).hexdigest())
"""


def trained_on(folder: Path, file: Path) -> str:
    """Goes on training from `file` in a fresh process; the digest of weights and optimizer state at the end."""
    command = [sys.executable, "-c", FRESH, str(folder), str(file)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


@pytest.mark.parametrize("when", ["not under_policy", "under_policy"], ids=["baseline", "trial"])
def test_an_engine_killed_from_outside_leaves_a_session_to_train_on_from(amptui: Amptui, when: str) -> None:
    file = small_project(amptui.folder, loss=WAIT.format(when=when))
    process = amptui.start("check", f"{file}:project", "--json", "check.json")
    here = amptui.folder / "here"
    eventually(lambda: here.exists() or process.poll() is not None)
    os.kill(int(here.read_text()), signal.SIGKILL)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 2, out
    assert "SIGKILL" in out
    result = documented((amptui.folder / "check.json").read_text(), 2)
    assert "killed (SIGKILL)" in result["error"]["message"]
    assert_restorable(amptui)
    on_from_restored = trained_on(amptui.folder, amptui.folder / "restored.pt")
    assert on_from_restored == trained_on(amptui.folder, amptui.folder / "before.pt")


def test_a_damaged_checkpoint_is_never_given_back(amptui: Amptui) -> None:
    assert amptui.check(f"{small_project(amptui.folder)}:project").code == 0
    [kept] = amptui.home.glob("*/checkpoints/*.pt")
    data = bytearray(kept.read_bytes())
    data[len(data) // 2] ^= 1
    kept.write_bytes(data)
    for options in (["--verify"], ["-o", "f.pt"]):
        done = amptui("restore", "last", *options)
        assert done.code == 1, done.said
        assert "Traceback" not in done.said
    assert not (amptui.folder / "f.pt").exists()


# Interrupted


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_interrupted_check_exits_130_with_json_and_a_restorable_session(amptui: Amptui, number: int) -> None:
    file = small_project(amptui.folder, loss="if under_policy and number == 3:\n    told('here')\n    time.sleep(2)")
    process = amptui.start("check", f"{file}:project", "--json", "check.json")
    eventually(lambda: (amptui.folder / "here").exists() or process.poll() is not None)
    engine = int((amptui.folder / "here").read_text())
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, out + err
    assert documented((amptui.folder / "check.json").read_text(), 130)["error"]["code"] == "interrupted"
    assert "Traceback" not in out + err
    with pytest.raises(ProcessLookupError):
        os.kill(engine, 0)
    assert_restorable(amptui)


@pytest.mark.long
def test_an_interrupted_check_ends_an_engine_that_does_not_listen(amptui: Amptui) -> None:
    deaf = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\ntold('here')\ntime.sleep(600)"
    file = small_project(amptui.folder, loss="if under_policy and number == 3:\n" + indent(deaf, "    "))
    process = amptui.start("check", f"{file}:project", "--json", "check.json")
    eventually(lambda: (amptui.folder / "here").exists() or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, out + err
    with pytest.raises(ProcessLookupError):
        os.kill(int((amptui.folder / "here").read_text()), 0)
    assert_restorable(amptui)


# What the engine asks of any client


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EngineProcess]:
    with EngineProcess.start(sys.executable, SessionFolder.create(tmp_path / "session")) as started:
        yield started


def answers(engine: EngineProcess, command: Any) -> list[Any]:
    """What the engine tells while it carries out `command`."""
    engine.send(command)
    told: list[Any] = []
    while not told or not isinstance(told[-1], StageEnded):
        told.append(engine.receive(timeout=60))
        assert told[-1] is not None
    return told


def only(kind: Any, events: list[Any]) -> Any:
    [found] = [event for event in events if isinstance(event, kind)]
    return found


def test_criteria_changed_after_a_trial_need_a_reason_and_become_a_new_revision(
    engine: EngineProcess, tmp_path: Path
) -> None:
    answers(engine, OpenProject(spec=f"{small_project(tmp_path)}:project", folder=str(tmp_path)))
    answers(engine, RunBaseline())
    first = only(CriteriaLocked, answers(engine, LockCriteria()))
    assert (first.revision, first.after_trial) == (1, False)
    assert only(VerdictReached, answers(engine, RunTrial())).verdict == "accept"

    strict = Criteria(atol=0.0, rtol=0.0)
    refused = answers(engine, LockCriteria(criteria=strict, reason="  "))
    assert only(Refused, refused).code == "reason"
    assert not refused[-1].completed
    assert only(VerdictReached, answers(engine, RunTrial())).verdict == "accept"  # under revision 1 still

    second = only(CriteriaLocked, answers(engine, LockCriteria(criteria=strict, reason="outputs are checksummed")))
    assert (second.revision, second.after_trial, second.reason) == (2, True, "outputs are checksummed")
    assert second.digest != first.digest
    assert only(VerdictReached, answers(engine, RunTrial())).verdict == "reject"


def test_a_new_engine_of_a_session_goes_on_counting_and_holds_to_what_was_locked(tmp_path: Path) -> None:
    folder = SessionFolder.create(tmp_path / "session")
    opening = OpenProject(spec=f"{small_project(tmp_path)}:project", folder=str(tmp_path))
    with EngineProcess.start(sys.executable, folder) as first:
        for command in (opening, RunBaseline()):
            answers(first, command)
        locked = only(CriteriaLocked, answers(first, LockCriteria()))
        assert only(VerdictReached, answers(first, RunTrial())).trial == 1
    with EngineProcess.start(sys.executable, folder) as second:
        for command in (opening, RunBaseline()):
            answers(second, command)
        wider = replace(locked.criteria, atol=1.0)
        assert only(Refused, answers(second, LockCriteria(criteria=wider))).code == "reason"
        again = only(CriteriaLocked, answers(second, LockCriteria()))  # the same: no reason, no revision
        assert (again.revision, again.digest, again.after_trial) == (1, locked.digest, False)
        assert only(VerdictReached, answers(second, RunTrial())).trial == 2
        changed = only(CriteriaLocked, answers(second, LockCriteria(criteria=wider, reason="logits are ranked only")))
        assert (changed.revision, changed.after_trial) == (2, True)


def test_a_policy_changed_between_trials_marks_the_verdict(engine: EngineProcess, tmp_path: Path) -> None:
    answers(engine, OpenProject(spec=f"{small_project(tmp_path)}:project", folder=str(tmp_path)))
    answers(engine, RunBaseline())
    answers(engine, LockCriteria())
    assert only(VerdictReached, answers(engine, RunTrial())).interventions == 0
    changed = only(VerdictReached, answers(engine, RunTrial(policy={"fp32_regions": ["head"]})))
    assert changed.interventions == 1
