"""The way back needs neither torch nor the project: what comes out is exactly what was saved, or nothing."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from amptui.session.errors import CheckpointDamaged, SessionError
from amptui.session.folder import SessionFolder
from amptui.session.lock import SessionLock
from amptui.session.manifest import CheckpointEntry, CheckpointRecord, gaps, hash_extents, hash_structure
from amptui.session.restore import export, verify
from amptui.session.store import Store

TENSORS = {"archive/data/0": ("model/conv.weight",), "archive/data/1": ("model/embed.weight", "model/out.weight")}


def zip_of(path: Path, seed: int) -> None:
    """A zip of stored members, laid out as `torch.save` does it."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", bytes(range(200)))
        for index, name in enumerate(TENSORS):
            archive.writestr(name, bytes((seed + index + value) % 251 for value in range(3000)))


def record_of(folder: SessionFolder, name: str, seed: int = 0) -> CheckpointRecord:
    path = folder.checkpoints / f"{name}-0.pt"
    zip_of(path, seed)
    with zipfile.ZipFile(path) as archive:
        members = [
            (member.filename, member.header_offset + 30 + len(member.filename), member.file_size)
            for member in archive.infolist()
        ]
    descriptor = os.open(path, os.O_RDONLY)
    digests = hash_extents(descriptor, [(offset, size) for _, offset, size in members])
    entries = tuple(
        CheckpointEntry(member, offset, size, digest, TENSORS.get(member, ()))
        for (member, offset, size), digest in zip(members, digests, strict=True)
    )
    size = path.stat().st_size
    record = CheckpointRecord(
        name, f"checkpoints/{path.name}", size, hash_structure(descriptor, entries, size), entries, 1.0
    )
    os.close(descriptor)
    path.with_suffix(".json").write_text(record.as_json())
    return record


@pytest.fixture
def folder(tmp_path: Path) -> SessionFolder:
    folder = SessionFolder.create(tmp_path / "session")
    with SessionLock.acquire(folder) as lock, Store.open(folder, lock) as store:
        store.add_checkpoint(record_of(folder, "fp32"))
        store.add_checkpoint(record_of(folder, "later", seed=9))
    return folder


def file_of(folder: SessionFolder, name: str = "fp32") -> Path:
    return folder.checkpoints / f"{name}-0.pt"


def test_every_member_is_hashed_as_it_lies_in_the_file(folder: SessionFolder) -> None:
    with Store.read(folder) as store:
        record = store.checkpoint("fp32")
    assert record is not None
    with zipfile.ZipFile(file_of(folder)) as archive:
        for entry in record.entries:
            assert hashlib.sha256(archive.read(entry.entry)).hexdigest() == entry.sha256


def test_an_intact_session_verifies_and_exports_byte_for_byte(folder: SessionFolder, tmp_path: Path) -> None:
    report = verify(folder)
    assert report.ok
    assert [(check.name, check.tensors, check.problem) for check in report.checkpoints] == [
        ("fp32", 3, ""),
        ("later", 3, ""),
    ]
    output = tmp_path / "out" / "fp32.pt"
    output.parent.mkdir()
    done = export(folder, output)
    assert output.read_bytes() == file_of(folder).read_bytes()
    assert done.sha256 == hashlib.sha256(output.read_bytes()).hexdigest()
    assert (done.name, done.bytes, done.tensors, done.path) == ("fp32", output.stat().st_size, 3, output)
    assert [path.name for path in output.parent.iterdir()] == ["fp32.pt"]
    assert export(folder, tmp_path / "later.pt", name="later").sha256 != done.sha256


def test_neither_torch_nor_anything_but_the_standard_library_is_loaded(folder: SessionFolder, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from amptui.session.folder import SessionFolder\n"
        "from amptui.session import restore; folder = SessionFolder.open(Path(sys.argv[1]))\n"
        "assert restore.verify(folder).ok; restore.export(folder, Path(sys.argv[2]))\n"
        "outside = {name.split('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)\n"
        "sys.exit(str(outside - {'amptui'}) if 'torch' in outside or 'numpy' in outside else 0)"
    )
    arguments = [sys.executable, "-c", code, str(folder.path), str(tmp_path / "o.pt")]
    subprocess.run(arguments, check=True, timeout=60)


def test_an_existing_file_is_replaced_only_when_told(folder: SessionFolder, tmp_path: Path) -> None:
    output = tmp_path / "mine.pt"
    output.write_text("precious")
    with pytest.raises(SessionError, match=r"mine.pt already exists; name another file"):
        export(folder, output)
    assert output.read_text() == "precious"
    export(folder, output, overwrite=True)
    assert output.read_bytes() == file_of(folder).read_bytes()


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("folder", "is a folder; name the file to write"),
        ("gone/x.pt", "cannot be written: No such file"),
        ("file/x", "Not a dir"),
    ],
)
def test_an_output_that_cannot_be_is_told(folder: SessionFolder, tmp_path: Path, place: str, message: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(SessionError, match=message):
        export(folder, tmp_path / place)


def test_damage_is_named_by_tensor_and_nothing_is_written(folder: SessionFolder, tmp_path: Path) -> None:
    with Store.read(folder) as store:
        record = store.checkpoint("fp32")
    assert record is not None
    shared = next(entry for entry in record.entries if len(entry.tensors) == 2)
    content = bytearray(file_of(folder).read_bytes())
    content[shared.offset + 7] ^= 4
    file_of(folder).write_bytes(content)
    with pytest.raises(
        CheckpointDamaged, match=r"model/embed.weight, model/out.weight differs .*; nothing was written"
    ):
        export(folder, tmp_path / "out.pt")
    assert not (tmp_path / "out.pt").exists()
    report = verify(folder)
    assert not report.ok
    assert [check.ok for check in report.checkpoints] == [False, True]
    assert "model/embed.weight" in report.checkpoints[0].problem


def test_every_byte_of_the_file_is_covered(folder: SessionFolder, tmp_path: Path) -> None:
    intact = file_of(folder).read_bytes()
    for place in range(0, len(intact), 41):
        file_of(folder).write_bytes(intact[:place] + bytes([intact[place] ^ 0x80]) + intact[place + 1 :])
        assert not verify(folder).ok
        with pytest.raises(CheckpointDamaged):
            export(folder, tmp_path / "out.pt")
    for cut in range(0, len(intact), 211):
        file_of(folder).write_bytes(intact[:cut])
        with pytest.raises(CheckpointDamaged, match="is cut off"):
            export(folder, tmp_path / "out.pt")
    assert not (tmp_path / "out.pt").exists()


def test_swapped_missing_and_linked_files_are_refused(folder: SessionFolder, tmp_path: Path) -> None:
    file_of(folder).write_bytes(file_of(folder, "later").read_bytes())
    with pytest.raises(CheckpointDamaged, match="is not what was saved"):
        export(folder, tmp_path / "out.pt")
    file_of(folder).unlink()
    assert "No such file" in verify(folder).checkpoints[0].problem
    file_of(folder).symlink_to(file_of(folder, "later"))
    with pytest.raises(SessionError, match="cannot be opened"):
        export(folder, tmp_path / "out.pt")


def test_a_session_without_a_checkpoint_says_that_nothing_was_changed(tmp_path: Path, folder: SessionFolder) -> None:
    with pytest.raises(SessionError, match="has no checkpoint 'best'; it has fp32, later"):
        export(folder, tmp_path / "out.pt", name="best")
    early = SessionFolder.create(tmp_path / "early")
    nothing = "ended before its FP32 checkpoint was written: nothing had been changed"
    assert not verify(early).ok
    with pytest.raises(SessionError, match=nothing):
        export(early, tmp_path / "out.pt")
    with SessionLock.acquire(early) as lock:
        Store.open(early, lock).close()
    assert not verify(early).ok
    with pytest.raises(SessionError, match=nothing):
        export(early, tmp_path / "out.pt")
    assert not (tmp_path / "out.pt").exists()


def test_a_file_that_was_never_recorded_does_not_exist(tmp_path: Path) -> None:
    folder = SessionFolder.create(tmp_path / "killed")
    record_of(folder, "fp32")  # the writer was killed between the rename and the record
    with SessionLock.acquire(folder) as lock:
        Store.open(folder, lock).close()
    assert verify(folder).checkpoints == ()


def test_with_a_damaged_store_the_manifests_beside_the_files_are_used_and_this_is_said(
    folder: SessionFolder, tmp_path: Path
) -> None:
    content = bytearray(folder.database.read_bytes())
    content[4096:] = bytes(len(content) - 4096)
    folder.database.write_bytes(content)
    report = verify(folder)
    assert not report.ok
    assert "session.sqlite is damaged" in report.store_problem
    assert [(check.name, check.ok) for check in report.checkpoints] == [("fp32", True), ("later", True)]
    done = export(folder, tmp_path / "out.pt")
    assert "is damaged" in done.store_problem
    assert (tmp_path / "out.pt").read_bytes() == file_of(folder).read_bytes()


def test_a_damaged_manifest_is_no_manifest(folder: SessionFolder) -> None:
    folder.database.write_bytes(b"SQLite format 3\0" + bytes(5000))
    manifest = file_of(folder).with_suffix(".json")
    said = json.loads(manifest.read_text())
    said["entries"][1]["tensors"] = ["model/other"]
    manifest.write_text(json.dumps(said))
    assert [check.name for check in verify(folder).checkpoints] == ["later"] or verify(folder).store_problem


@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd", "session.sqlite", "checkpoints/../session.sqlite"])
def test_a_record_that_points_elsewhere_is_refused(path: str, tmp_path: Path) -> None:
    folder = SessionFolder.create(tmp_path / "session")
    with SessionLock.acquire(folder) as lock, Store.open(folder, lock) as store:
        store.add_checkpoint(replace(record_of(folder, "fp32"), path=path))
    with pytest.raises(CheckpointDamaged, match="points outside the session's folder"):
        export(folder, tmp_path / "out.pt")


def test_a_session_in_use_can_be_verified_and_exported(folder: SessionFolder, tmp_path: Path) -> None:
    with SessionLock.acquire(folder) as lock, Store.open(folder, lock) as store:
        store.record(0, 0.0, "x", "{}", durable=True)
        assert verify(folder).ok
        export(folder, tmp_path / "out.pt")


def test_entries_that_overlap_or_leave_the_file_are_no_manifest() -> None:
    entry = CheckpointEntry("a", 10, 5, "")
    assert gaps([entry], 20) == [(0, 10), (15, 5)]
    for wrong in ([entry, replace(entry, offset=14)], [replace(entry, offset=16)], [replace(entry, bytes=-1)]):
        with pytest.raises(CheckpointDamaged):
            gaps(wrong, 20)


def test_a_control_character_in_a_tensors_name_does_not_reach_the_message() -> None:
    assert CheckpointEntry("a", 0, 1, "", ("\x1b[2Jweight",)).label == r"\x1b[2Jweight"


def test_a_checkpoint_whose_database_was_removed_is_given_back_by_its_manifest(
    tmp_path: Path, folder: SessionFolder
) -> None:
    folder.database.unlink()
    exported = export(folder, tmp_path / "out.pt")
    assert "is missing" in exported.store_problem
    assert (tmp_path / "out.pt").read_bytes() == file_of(folder).read_bytes()
