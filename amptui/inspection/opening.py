"""Opens what a path names, file or folder, and reads every file of it into inert trees."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from amptui.findings.finding import Finding
from amptui.findings.words import counted
from amptui.inspection.containers.dcp import read_dcp
from amptui.inspection.containers.detect import read_file
from amptui.inspection.containers.loaded import Loaded
from amptui.inspection.containers.source import DamagedError, Source, UnreadableError, opened
from amptui.inspection.folder import Plan, plan
from amptui.inspection.layouts import Layout, file_layout, folder_layout
from amptui.inspection.nodes import mapping_of
from amptui.inspection.notes import fault, notice

_MAX_SHARDS = 256


class LimitError(Exception):
    """The processor time for reading the structure is spent."""


@dataclass(frozen=True)
class Opened:
    """A checkpoint's files by name ("" for a single file), their layout, and what is wrong with the set of them."""

    files: Mapping[str, Loaded]
    layout: Layout
    container: str
    findings: tuple[Finding, ...] = ()
    complete: bool = True
    #: What stopped the reading early, "" if nothing did.
    stopped: str = ""


@dataclass
class _Reading:
    files: dict[str, Loaded] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    stopped: str = ""


@contextmanager
def open_checkpoint(path: Path) -> Iterator[Opened]:
    """Read the checkpoint at `path`; its files stay open until the block ends. UnreadableError where there is none."""
    try:
        status = path.stat()
    except OSError as error:
        raise UnreadableError(error.strerror or "it cannot be found") from None
    except ValueError:
        raise UnreadableError("the name holds a NUL character") from None
    with ExitStack() as sources:
        if stat.S_ISDIR(status.st_mode):
            yield _folder(plan(path), sources)
        else:
            yield _single(path, sources)


def _open(path: Path, sources: ExitStack) -> Source:
    source = opened(path)
    sources.callback(source.close)
    return source


def _single(path: Path, sources: ExitStack) -> Opened:
    source = _open(path, sources)
    reading = _Reading()
    _read(reading, "", source)
    loaded = reading.files.get("")
    if loaded is None:
        return Opened({}, Layout(name="unknown", title="unread"), "", (), False, reading.stopped)
    layout = file_layout(loaded.root, loaded.container)
    if any(finding.facts.get("code") == "torchscript" for finding in loaded.findings):
        layout = Layout(name="torchscript", title="TorchScript program")
    if not loaded.readable:
        layout = Layout(name="unknown", title="not a readable checkpoint")
    return Opened(reading.files, layout, loaded.container, tuple(loaded.findings), loaded.complete, reading.stopped)


def _read(reading: _Reading, name: str, source: Source) -> None:
    """Read one file into `reading`; whatever goes wrong becomes part of it."""
    try:
        reading.files[name] = read_file(source)
    except DamagedError as error:
        finding = fault("damaged", f"the file is damaged: {error}", advice="Fetch it again from where it was written.")
        reading.files[name] = Loaded("unknown", source.size, findings=(finding,), readable=False, complete=False)
    except MemoryError:
        reading.stopped = "its structure needs more memory than the 512 MB that reading it may use"
    except LimitError as error:
        reading.stopped = str(error)


def _folder(found: Plan, sources: ExitStack) -> Opened:
    reading = _Reading(findings=list(found.findings))
    complete = found.complete
    for folder in found.distributed:
        if not reading.stopped:
            _distributed(reading, found.base / folder, "" if folder == "." else folder, sources)
    for name in found.files:
        if reading.stopped:
            break
        try:
            source = _open(found.base / name, sources)
        except UnreadableError as error:
            what = f"{name}: {error}"
            reading.findings.append(fault("unreadable", what, advice="Copy the folder again.", path=name))
            complete = False
            continue
        _read(reading, name, source)
    for name, loaded in reading.files.items():
        loose = not found.kind and not loaded.readable
        reading.findings.extend(_named(name, finding, softened=loose) for finding in loaded.findings)
        complete = complete and (loaded.complete or loose)
        reading.findings.extend(_index(found.base, name, loaded))
    layout = folder_layout(found.kind, reading.files)
    return Opened(reading.files, layout, "folder", tuple(reading.findings), complete, reading.stopped)


def _distributed(reading: _Reading, base: Path, name: str, sources: ExitStack) -> None:
    try:
        metadata = _open(base / ".metadata", sources)
        shards = {shard.name: _open(shard, sources) for shard in sorted(base.glob("*.distcp"))[:_MAX_SHARDS]}
        reading.files[name] = read_dcp(metadata, shards)
    except (UnreadableError, DamagedError, OSError) as error:
        what = f"{name or '.metadata'}: {error}"
        reading.findings.append(fault("unreadable", what, advice="Copy the folder again.", path=name))
    except MemoryError:
        reading.stopped = "its structure needs more memory than the 512 MB that reading it may use"
    except LimitError as error:
        reading.stopped = str(error)


def _named(name: str, finding: Finding, *, softened: bool) -> Finding:
    """A file's finding as one of its folder's: the file's name goes before what was found."""
    first, *rest = finding.evidence
    severity = "notice" if softened and finding.facts.get("code") == "not-a-checkpoint" else finding.severity
    evidence = (f"{name}: {first}" if name else first, *rest)
    facts = {**finding.facts, "path": finding.facts.get("path") or name}
    return replace(finding, evidence=evidence, facts=facts, severity=severity)


def _index(base: Path, name: str, loaded: Loaded) -> list[Finding]:
    """What a weight index (`*.index.json`) names that is not there, or lies outside the folder."""
    weights = (mapping_of(loaded.root) or {}).get("weight_map") if name.endswith(".index.json") else None
    if not isinstance(weights, dict):
        return []
    names = {value for value in weights.values() if isinstance(value, str)}
    outside = sorted(value for value in names if "/" in value or "\\" in value or ".." in value or "\0" in value)
    lost = sorted(value for value in names.difference(outside) if len(value) < 256 and not (base / value).is_file())
    found = []
    if outside:
        what = f"{name} names a file outside its folder: {outside[0]!r}"
        found.append(fault("odd-archive", what, advice="No writer does this: treat it as tampered with.", path=name))
    if lost:
        what = f"{name} names {counted(len(lost), 'shard that is', 'shards that are')} not there, {lost[0]} first"
        found.append(fault("missing-shard", what, advice="Copy the whole folder again.", path=lost[0]))
    if not names:
        found.append(notice("empty-index", f"{name} names no shards"))
    return found
