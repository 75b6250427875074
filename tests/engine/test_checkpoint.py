"""The checkpoint on disk gives everything back, bit for bit and into a fresh process, or refuses before it touches."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from amptui.engine import checkpoint
from amptui.engine.plain_values import NotPlain
from amptui.engine.snapshot import Snapshot, TrainingState
from amptui.session.errors import CheckpointDamaged, NotEnoughSpace, SessionError
from amptui.session.folder import SessionFolder
from amptui.session.lock import SessionLock
from amptui.session.manifest import CheckpointRecord
from amptui.session.restore import export, verify
from amptui.session.store import Store
from tests.engine.training_scenarios import SCENARIOS, Net, digest, run

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> SessionFolder:
    return SessionFolder.create(tmp_path / "session")


def net_state() -> tuple[TrainingState, Any]:
    torch.manual_seed(0)
    net = Net()
    return TrainingState({"": net}, {"main": torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)}), net


# --- What comes back


def test_every_scenario_goes_on_bit_for_bit_in_a_fresh_process(folder: SessionFolder) -> None:
    expected = {}
    with SessionLock.acquire(folder) as lock, Store.open(folder, lock) as store:
        for name, scenario in SCENARIOS.items():
            state, step = scenario()
            run(step, 3)
            before = digest(state)
            record = checkpoint.write(folder, name.replace(" ", "-"), state, {"batch": 3, "epoch": [1, None]})
            assert digest(state) == before, "writing a checkpoint changes nothing"
            store.add_checkpoint(replace(record, name=name))
            expected[name] = [before, run(step, 3), digest(state), {"batch": 3, "epoch": [1, None]}]
    process = subprocess.run(
        [sys.executable, "-m", "tests.engine.fresh_process", str(folder.path), "3"],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout) == expected


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_checkpoint_taken_before_the_first_step_undoes_all_steps(name: str, folder: SessionFolder) -> None:
    state, step = SCENARIOS[name]()
    before, snapshot = digest(state), Snapshot.take(state)
    record = checkpoint.write(folder, "fp32", state)
    losses = run(step, 2)
    checkpoint.restore(record, state, folder=folder)
    assert snapshot.differences(Snapshot.take(state)) is None
    assert digest(state) == before
    assert run(step, 2) == losses


def test_the_file_is_a_plain_one_that_torch_and_the_project_can_load(folder: SessionFolder, tmp_path: Path) -> None:
    state, step = SCENARIOS["adamw"]()
    run(step, 2)
    record = checkpoint.write(folder, "fp32", state)
    with SessionLock.acquire(folder) as lock, Store.open(folder, lock) as store:
        store.add_checkpoint(record)
    export(folder, tmp_path / "fp32.pt")
    fresh, _ = SCENARIOS["adamw"]()
    with torch.serialization.safe_globals([]):
        assert torch.serialization.get_unsafe_globals_in_checkpoint(str(tmp_path / "fp32.pt")) == []
        content = torch.load(tmp_path / "fp32.pt", weights_only=True)
    net, optimizer = fresh.modules[""], fresh.optimizers["main"]
    history = net.history = torch.zeros_like(content["model"]["history"])
    assert history.shape == state.modules[""].history.shape
    net.load_state_dict(content["model"])
    optimizer.load_state_dict(content["optimizers"]["main"])
    for name, tensor in state.modules[""].state_dict().items():
        assert torch.equal(net.state_dict()[name], tensor)
    assert content["non_persistent_buffers"]["scale"].tolist() == state.modules[""].scale.tolist()
    assert content["flags"]["training"][""] is True


def test_tied_weights_are_stored_once(folder: SessionFolder) -> None:
    state, _ = SCENARIOS["tied weights"]()
    record = checkpoint.write(folder, "fp32", state)
    entries = [entry.tensors for entry in record.entries if "model/embed.weight" in entry.tensors]
    assert entries == [("model/embed.weight", "model/out.weight")]


def test_buffers_follow_the_checkpoint_whatever_became_of_them(folder: SessionFolder) -> None:
    state, net = net_state()
    record, snapshot = checkpoint.write(folder, "fp32", state), Snapshot.take(state)
    net.nothing = torch.ones(2)
    net.scale = None
    net.history = torch.zeros(5, dtype=torch.float64)
    net.register_buffer("late", torch.ones(1))
    del net.seen
    checkpoint.restore(record, state, folder=folder)
    assert snapshot.differences(Snapshot.take(state)) is None
    assert list(net.state_dict()) == list(Net().state_dict())
    assert not hasattr(net, "late")


def test_restored_objects_do_not_depend_on_the_file(folder: SessionFolder) -> None:
    state, step = SCENARIOS["two models and extra state"]()
    run(step, 2)
    record = checkpoint.write(folder, "fp32", state)
    losses = run(step, 2)
    checkpoint.restore(record, state, folder=folder)
    path = folder.path / record.path
    path.write_bytes(b"\xff" * path.stat().st_size)  # the same inode: a mapping would see it
    assert run(step, 2) == losses


def test_generators_that_are_not_here_are_told(folder: SessionFolder) -> None:
    state, _ = net_state()
    record = checkpoint.write(folder, "fp32", state)
    assert checkpoint.restore(record, state, folder=folder).left_out == ()


# --- What is refused, with nothing touched


def mismatches() -> dict[str, tuple[Callable[[], TrainingState], str]]:
    def net_with(change: Callable[[Any], object]) -> Callable[[], TrainingState]:
        def build() -> TrainingState:
            _, net = net_state()
            change(net)
            return TrainingState({"": net}, {"main": torch.optim.SGD(net.parameters(), lr=0.1)})

        return build

    def grouped() -> TrainingState:
        state, net = net_state()
        return TrainingState(state.modules, {"main": torch.optim.SGD([{"params": [p]} for p in net.parameters()])})

    def fused() -> TrainingState:
        state, net = net_state()
        return TrainingState(state.modules, {"main": torch.optim.SGD(net.parameters(), lr=0.1, fused=True)})

    def more(**objects: Any) -> Callable[[], TrainingState]:
        return lambda: replace(net_state()[0], **objects)

    return {
        "other shape": (net_with(lambda net: setattr(net, "head", nn.Linear(3, 5))), r"head.weight is \[5, 3\]"),
        "other dtype": (net_with(lambda net: net.head.to(torch.float64)), r"head.weight is \[4, 3\] float64 here"),
        "no bias": (net_with(lambda net: setattr(net, "head", nn.Linear(3, 4, bias=False))), "head.bias is None here"),
        "other module": (net_with(lambda net: setattr(net, "tail", nn.ReLU())), "module tail is here but"),
        "missing module": (net_with(lambda net: delattr(net, "drop")), "module drop is in the checkpoint but not here"),
        "other groups": (grouped, "optimizer main has parameter groups of"),
        "fused": (fused, "group 0 has fused=True here"),
        "other optimizer": (more(optimizers={"d": torch.optim.SGD([torch.ones(1)])}), "optimizer d is not"),
        "other scheduler": (more(schedulers={"main": torch.Generator()}), "schedulers.main is not in the checkpoint"),
        "other extra": (more(extra={"own": torch.Generator()}), "extra:own is not in the checkpoint"),
    }  # fmt: skip


@pytest.mark.parametrize("case", mismatches())
def test_a_checkpoint_of_other_objects_is_refused_by_name_and_nothing_changes(case: str, folder: SessionFolder) -> None:
    record = checkpoint.write(folder, "fp32", net_state()[0])
    build, message = mismatches()[case]
    state = build()
    before = digest(state)
    with pytest.raises(checkpoint.CheckpointMismatch, match=message):
        checkpoint.restore(record, state, folder=folder)
    assert digest(state) == before


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"path": Path("x")}, r"extra_state/own/path is a pathlib"),
        ({"deep": [{"f": print}]}, r"extra_state/own/deep/0/f is a builtins.builtin_function"),
        ({"key": {object(): 1}}, r"extra_state/own/key has a key of type builtins.object"),
        ({"int": 1 << 3000}, r"extra_state/own/int is an integer of 3001 bits"),
        ({"sub": torch.ones(1).as_subclass(type("Own", (torch.Tensor,), {}))}, r"extra_state/own/sub is a .*Own"),
        ({"meta": torch.ones(1, device="meta")}, r"extra_state/own/meta is a meta tensor"),
    ],
)
def test_what_no_safe_file_can_keep_is_refused_by_path(extra: Any, message: str, folder: SessionFolder) -> None:
    class Own:
        def state_dict(self) -> Any:
            return extra

        def load_state_dict(self, state: Any) -> None:
            raise AssertionError

    with pytest.raises(NotPlain, match=message):
        checkpoint.write(folder, "fp32", TrainingState({}, extra={"own": Own()}))
    assert list(folder.checkpoints.iterdir()) == []


def test_state_that_contains_itself_is_refused(folder: SessionFolder) -> None:
    state, _ = net_state()
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(NotPlain, match="contains itself"):
        checkpoint.write(folder, "fp32", state, {"loop": loop})


# --- Damage


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[SessionFolder, CheckpointRecord, bytes]:
    folder = SessionFolder.create(tmp_path_factory.mktemp("damage") / "session")
    state, step = SCENARIOS["adamw"]()
    run(step, 2)
    record = checkpoint.write(folder, "fp32", state)
    with SessionLock.acquire(folder) as lock, Store.open(folder, lock) as store:
        store.add_checkpoint(record)
    return folder, record, (folder.path / record.path).read_bytes()


@pytest.fixture
def damaged(
    written: tuple[SessionFolder, CheckpointRecord, bytes],
) -> Iterator[Callable[[bytes], tuple[SessionFolder, CheckpointRecord]]]:
    folder, record, intact = written
    path = folder.path / record.path

    def put(content: bytes) -> tuple[SessionFolder, CheckpointRecord]:
        path.write_bytes(content)
        return folder, record

    yield put
    path.write_bytes(intact)


def all_refuse(folder: SessionFolder, record: CheckpointRecord, state: TrainingState, output: Path) -> None:
    with pytest.raises(CheckpointDamaged):
        checkpoint.restore(record, state, folder=folder)
    with pytest.raises(CheckpointDamaged):
        export(folder, output)
    assert not output.exists()
    assert not verify(folder).ok


def test_every_single_flipped_bit_is_refused(damaged: Any, written: Any, tmp_path: Path) -> None:
    intact, choice = written[2], random.Random(0)
    state, _ = SCENARIOS["adamw"]()
    before = digest(state)
    for _ in range(300):
        content = bytearray(intact)
        content[choice.randrange(len(content))] ^= 1 << choice.randrange(8)
        all_refuse(*damaged(bytes(content)), state, tmp_path / "out.pt")
    assert digest(state) == before
    assert list(tmp_path.iterdir()) == []


def test_every_truncation_and_zeroed_page_is_refused(damaged: Any, written: Any, tmp_path: Path) -> None:
    intact, choice = written[2], random.Random(1)
    state, _ = SCENARIOS["adamw"]()
    cuts = [0, 1, len(intact) - 1, *(choice.randrange(len(intact)) for _ in range(97))]
    for cut in cuts:
        all_refuse(*damaged(intact[:cut]), state, tmp_path / "out.pt")
    for page in range(0, len(intact), 4096):
        content = bytearray(intact)
        content[page : page + 4096] = bytes(len(content[page : page + 4096]))
        all_refuse(*damaged(bytes(content)), state, tmp_path / "out.pt")
    all_refuse(*damaged(intact + b"\0"), state, tmp_path / "out.pt")


def test_damage_is_named_by_its_tensor(damaged: Any, written: Any) -> None:
    entry = next(entry for entry in written[1].entries if "model/conv.weight" in entry.tensors)
    content = bytearray(written[2])
    content[entry.offset + 5] ^= 1
    folder, record = damaged(bytes(content))
    with pytest.raises(
        CheckpointDamaged, match=r"model/conv\.weight differs from the recorded SHA-256; it was not loaded"
    ):
        checkpoint.restore(record, SCENARIOS["adamw"]()[0], folder=folder)


def test_a_file_from_another_session_is_refused(damaged: Any, written: Any, tmp_path: Path) -> None:
    other = SessionFolder.create(tmp_path / "other")
    state, step = SCENARIOS["adamw"]()
    run(step, 4)
    swapped = (other.path / checkpoint.write(other, "fp32", state).path).read_bytes()
    all_refuse(*damaged(swapped), state, tmp_path / "out.pt")


def test_a_link_or_a_missing_file_is_refused(written: Any, tmp_path: Path) -> None:
    folder, record, intact = written
    path, state = folder.path / record.path, SCENARIOS["adamw"]()[0]
    (tmp_path / "elsewhere.pt").write_bytes(intact)
    path.unlink()
    try:
        with pytest.raises(SessionError, match="cannot be opened: No such file"):
            checkpoint.restore(record, state, folder=folder)
        path.symlink_to(tmp_path / "elsewhere.pt")
        with pytest.raises(SessionError, match="cannot be opened"):
            checkpoint.restore(record, state, folder=folder)
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(SessionError, match="not a regular file"):
            checkpoint.restore(record, state, folder=folder)
    finally:
        path.unlink()
        path.write_bytes(intact)


# --- Writing


def test_writing_never_overwrites_and_never_follows_a_link(
    folder: SessionFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = tmp_path / "canary"
    canary.write_text("untouched")
    state, _ = net_state()
    monkeypatch.setattr("secrets.token_hex", lambda count: "ab" * count)
    planted = [".fp32-abababab.pt.abababab.tmp", "fp32-abababab.pt", "fp32-abababab.json"]
    for name in planted:
        (folder.checkpoints / name).symlink_to(canary)
        with pytest.raises(SessionError, match="could not be written"):
            checkpoint.write(folder, "fp32", state)
        assert canary.read_text() == "untouched"
        assert (folder.checkpoints / name).is_symlink()
        (folder.checkpoints / name).unlink()
        assert list(folder.checkpoints.iterdir()) == []
    first = checkpoint.write(folder, "fp32", state)
    content = (folder.path / first.path).read_bytes()
    with pytest.raises(SessionError, match=r"File exists|already exists"):
        checkpoint.write(folder, "fp32", state)
    assert (folder.path / first.path).read_bytes() == content


def test_files_are_private(folder: SessionFolder) -> None:
    checkpoint.write(folder, "fp32", net_state()[0])
    modes = {path.suffix: path.stat().st_mode & 0o777 for path in folder.checkpoints.iterdir()}
    assert modes == {".pt": 0o600, ".json": 0o600}


def test_the_manifest_beside_the_file_is_the_record(folder: SessionFolder) -> None:
    record = checkpoint.write(folder, "fp32", net_state()[0])
    beside = (folder.path / record.path).with_suffix(".json").read_text()
    assert CheckpointRecord.from_json(beside) == record


def test_too_little_space_is_told_before_anything_is_written(folder: SessionFolder, monkeypatch: Any) -> None:
    class Full:
        f_bavail, f_frsize = 10, 4096

    monkeypatch.setattr(os, "statvfs", lambda path: Full)
    with pytest.raises(NotEnoughSpace, match="1 MiB free, but 65 MiB are needed"):
        checkpoint.write(folder, "fp32", net_state()[0])
    assert list(folder.checkpoints.iterdir()) == []


@pytest.mark.parametrize("limit", [0, 100, 4096, 10000])
def test_a_disk_that_fills_up_leaves_nothing_behind(limit: int, folder: SessionFolder) -> None:
    state, _ = net_state()
    before = digest(state)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(SessionError, match=r"could not be written .* File too large"):
            checkpoint.write(folder, "fp32", state)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(folder.checkpoints.iterdir()) == []
    assert digest(state) == before


def test_a_failing_fsync_is_final(folder: SessionFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(SessionError, match="Input/output error"):
        checkpoint.write(folder, "fp32", net_state()[0])
    assert list(folder.checkpoints.iterdir()) == []


def test_a_write_that_stores_other_bits_is_found_at_once(
    folder: SessionFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = torch.save

    def flips(content: Any, file: Any) -> None:
        content["model"]["conv.weight"] = content["model"]["conv.weight"] + 1e-7
        save(content, file)
        content["model"]["conv.weight"] = weight

    state, net = net_state()
    weight = net.conv.weight.detach()
    monkeypatch.setattr(checkpoint, "save", flips)
    with pytest.raises(CheckpointDamaged, match=r"model/conv\.weight reads back differently"):
        checkpoint.write(folder, "fp32", state)
    assert list(folder.checkpoints.iterdir()) == []


# --- Killed at any moment


def killed_after(folder: SessionFolder, seconds: float) -> list[str]:
    """Runs the writer, kills it `seconds` after it starts to write, and gives the names that it said exist."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.engine.writing_process", str(folder.path)],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(seconds)
    process.kill()
    said = process.stdout.read().split()
    process.wait()
    return said


def check_after_kill(folder: SessionFolder, acknowledged: list[str]) -> None:
    with Store.read(folder) as store:
        recorded = store.checkpoints()
    names = [record.name for record in recorded]
    assert set(acknowledged) <= set(names)
    report = verify(folder)
    assert [check.problem for check in report.checkpoints] == [""] * len(names)
    state, _ = SCENARIOS["adamw"]()
    for record in recorded[-2:]:
        assert checkpoint.restore(record, state, folder=folder).position == {"name": record.name}
    with SessionLock.acquire(folder) as lock, Store.open(folder, lock) as store:
        store.record(store.last_seq + 1, 0.0, "reopened", "{}", durable=True)


@pytest.mark.parametrize(
    "round_",
    [pytest.param(index, marks=[pytest.mark.long] if index >= 3 else []) for index in range(43)],
)
def test_whenever_the_writer_is_killed_a_recorded_checkpoint_is_whole(round_: int, folder: SessionFolder) -> None:
    acknowledged = killed_after(folder, random.Random(round_).uniform(0.0, 0.4))
    check_after_kill(folder, acknowledged)
