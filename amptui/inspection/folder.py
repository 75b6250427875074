"""Which files of a folder make up a checkpoint, and what is wrong with the set of them. Looks at names only."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from amptui.findings.finding import Finding
from amptui.findings.words import counted
from amptui.inspection.containers.source import UnreadableError
from amptui.inspection.notes import fault, notice

MAX_NAMES = 20_000
#: Files of one kind (ranks, shards) that are read; what holds for these is taken to hold for the rest.
MAX_ALIKE = 16
_CHECKPOINT_ENDINGS = (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".pkl", ".tar", ".distcp")
_DEEPSPEED_RANKS = r"(bf16_)?(mp_rank_\d+|zero_pp_rank_\d+_mp_rank_\d+)(_\w+)?_(model|optim)_states\.pt"
_MAX_DEPTH = 2
_UNFINISHED = "Resume from an earlier save; this one was interrupted before it was whole."
_COPY_ALL = "Copy the whole folder again, or resume from an earlier save."


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to read of a folder: files by name relative to `base`, and what their set already tells."""

    kind: str
    base: Path
    files: tuple[str, ...] = ()
    #: Subfolders that are distributed checkpoints of their own.
    distributed: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    complete: bool = True


@dataclass(frozen=True)
class _Names:
    base: Path
    files: tuple[str, ...]
    folders: tuple[str, ...]
    depth: int = 0

    def like(self, pattern: str) -> list[str]:
        """File names that match `pattern` wholly, in the order of the numbers in them."""
        return sorted((name for name in self.files if re.fullmatch(pattern, name)), key=_by_number)


def _by_number(name: str) -> tuple[list[int], str]:
    return [int(digits[:18]) for digits in re.findall(r"\d+", name)], name


def plan(path: Path, depth: int = 0) -> Plan:
    """What to read of the folder at `path`; UnreadableError where it holds no checkpoint.

    `depth` counts the folders that pointers and series have led through: symbolic links may go round in circles.
    """
    if depth > _MAX_DEPTH:
        raise UnreadableError("its folders lead round in a circle")
    names = _names(path, depth)
    for recogniser in _RECOGNISERS:
        found = recogniser(names)
        if found is not None:
            return found
    raise UnreadableError("the folder holds no checkpoint that amptui knows")


def _names(path: Path, depth: int = 0) -> _Names:
    files: list[str] = []
    folders: list[str] = []
    try:
        with os.scandir(path) as entries:
            for count, entry in enumerate(entries):
                if count >= MAX_NAMES:
                    break
                (folders if entry.is_dir() else files).append(entry.name)
    except OSError as error:
        raise UnreadableError(error.strerror or "the folder cannot be read") from None
    return _Names(path, tuple(sorted(files)), tuple(sorted(folders, key=_by_number)), depth)


def _distributed(names: _Names) -> Plan | None:
    """torch.distributed.checkpoint; with `common.pt` Megatron's, with `meta.pt` Lightning's."""
    shards = names.like(r".*\.distcp")
    if ".metadata" not in names.files:
        if not shards:
            return None
        what = f"{counted(len(shards), 'shard')}, but no .metadata, which is written last: the save was never finished"
        finding = fault("unfinished", what, advice=_UNFINISHED)
        return Plan(kind="dcp", base=names.base, findings=(finding,), complete=False)
    beside = tuple(name for name in ("common.pt", "meta.pt", "metadata.json") if name in names.files)
    kind = "megatron_dist" if "common.pt" in beside else "lightning_fsdp" if "meta.pt" in beside else "dcp"
    return Plan(kind=kind, base=names.base, files=beside, distributed=(".",))


def _deepspeed(names: _Names) -> Plan | None:
    """deepspeed/runtime/engine.py: `latest` names the folder of the newest save."""
    if names.like(_DEEPSPEED_RANKS):
        return _deepspeed_tag(names)
    if "latest" not in names.files or "trainer_state.json" in names.files:
        return None
    tag = _pointer(names.base / "latest")
    if tag is None or tag not in names.folders:
        what = f"`latest` names {tag!r}, which is not there" if tag else "`latest` does not name a folder"
        raise UnreadableError(what)
    return _deepspeed_tag(_names(names.base / tag))


def _deepspeed_tag(names: _Names) -> Plan:
    models = names.like(r"(zero_pp_rank_\d+_)?mp_rank_\d+_model_states\.pt")
    optimizers = names.like(r"(bf16_)?zero_pp_rank_\d+_mp_rank_\d+_optim_states\.pt")
    findings = [*_gaps("rank", models), *_gaps("rank", optimizers)]
    if not models:
        findings.append(fault("missing-shard", "no model states (mp_rank_NN_model_states.pt)", advice=_COPY_ALL))
    chosen = (*models[:MAX_ALIKE], *optimizers[:MAX_ALIKE])
    kind = "deepspeed_zero" if optimizers or any(name.startswith("zero") for name in models) else "deepspeed"
    complete = not any(finding.severity == "fault" for finding in findings)
    findings.extend(_unread(len(names.like(_DEEPSPEED_RANKS)) - len(chosen)))
    return Plan(kind=kind, base=names.base, files=chosen, findings=tuple(findings), complete=complete)


def _megatron(names: _Names) -> Plan | None:
    """megatron/training/checkpointing.py: a pointer file, iter_NNNNNNN/mp_rank_TT[_PPP]/model_optim_rng.pt"""
    pointer = "latest_checkpointed_iteration.txt"
    if pointer in names.files:
        tag = _pointer(names.base / pointer)
        folder = f"iter_{int(tag):07d}" if tag and tag.isdigit() else tag or ""
        if folder not in names.folders:
            raise UnreadableError(f"{pointer} names {folder!r}, which is not there")
        return plan(names.base / folder, names.depth + 1)
    ranks = [name for name in names.folders if re.fullmatch(r"mp_rank_\d+(_\d+)*", name)]
    if not ranks:
        return None
    files, findings = [], []
    for rank in ranks[:MAX_ALIKE]:
        inside = _names(names.base / rank).files
        found = [f"{rank}/{name}" for name in ("model_optim_rng.pt", "distrib_optim.pt") if name in inside]
        files.extend(found)
        if not found:
            findings.append(fault("missing-shard", f"{rank} has no model_optim_rng.pt", advice=_COPY_ALL, path=rank))
    findings.extend(_unread(len(ranks) - min(len(ranks), MAX_ALIKE)))
    return Plan(kind="megatron", base=names.base, files=tuple(files), findings=tuple(findings), complete=not findings)


def _hf_trainer(names: _Names) -> Plan | None:
    """transformers/trainer.py `_save_checkpoint`: trainer_state.json is written last."""
    own = ("trainer_state.json", "training_args.bin", "optimizer.pt", "scheduler.pt", "scaler.pt")
    present = [name for name in own if name in names.files]
    generators = names.like(r"rng_state(_\d+)?\.pth")
    if not ({"trainer_state.json", "training_args.bin"} & set(present) or len(present) > 1 or (present and generators)):
        return None
    findings = _gaps("rank", [name for name in generators if name != "rng_state.pth"])
    weights, lost = _weights(names)
    findings.extend(lost)
    training = {"optimizer.pt", "scheduler.pt"} & set(present) or generators
    unfinished = "trainer_state.json" not in present and bool(training)
    if unfinished:
        what = "trainer_state.json, which is written last, is not there: the save was never finished"
        findings.append(fault("unfinished", what, advice=_UNFINISHED))
    distributed = tuple(name for name in names.folders if (names.base / name / ".metadata").is_file())
    if not weights and not distributed and training:
        findings.append(fault("missing-shard", "there are no model weights", advice=_COPY_ALL))
    files = [*present, *generators[:MAX_ALIKE], *weights]
    engine = _pointer(names.base / "latest") if "latest" in names.files else None
    if engine is not None and engine in names.folders:  # DeepSpeed keeps optimizer and scaler in its own folder
        inside = _deepspeed_tag(_names(names.base / engine))
        files.extend(f"{engine}/{name}" for name in inside.files)
        findings.extend(inside.findings)
        weights = weights or list(inside.files)
    files.extend(name for name in names.files if name.endswith(".index.json") or name == "config.json")
    complete = not any(finding.severity == "fault" for finding in findings)
    return Plan(
        kind="hf_trainer",
        base=names.base,
        files=tuple(files),
        distributed=distributed,
        findings=tuple(findings),
        complete=complete,
    )


def _accelerate(names: _Names) -> Plan | None:
    """accelerate/checkpointing.py `save_accelerator_state`: random_states_N.pkl are written last."""
    states = names.like(r"random_states_\d+\.pkl")
    parts = names.like(r"(optimizer|scheduler|sampler|dl_state_dict)(_\d+)?\.bin|scaler\.pt|custom_checkpoint_\d+\.pkl")
    if not (states or any(name.startswith(("optimizer", "scheduler")) for name in parts)):
        return None
    findings = _gaps("rank", states)
    if not states:
        what = "random_states_0.pkl, which is written last, is not there: the save was never finished"
        findings.append(fault("unfinished", what, advice=_UNFINISHED))
    weights, lost = _weights(names)
    findings.extend(lost)
    distributed = tuple(name for name in names.folders if (names.base / name / ".metadata").is_file())
    if not weights and not distributed:
        findings.append(fault("missing-shard", "there are no model weights", advice=_COPY_ALL))
    complete = not any(finding.severity == "fault" for finding in findings)
    return Plan(
        kind="accelerate",
        base=names.base,
        files=(*parts, *states[:MAX_ALIKE], *weights),
        distributed=distributed,
        findings=tuple(findings),
        complete=complete,
    )


def _series(names: _Names) -> Plan | None:
    """A run's folder with a save for every so many steps: the newest finished one is shown."""
    saves = [
        name
        for name in names.folders
        if re.fullmatch(r"(checkpoint|step|epoch|global_step|iter|save|ckpt)[-_]?\d+", name)
    ]
    skipped: list[Finding] = []
    for name in reversed(saves[-20:]):
        try:
            found = plan(names.base / name, names.depth + 1)
        except UnreadableError:
            continue
        if found.complete or name == saves[0]:
            what = f"the folder holds {len(saves)} saves; {name} is shown"
            chosen = notice("several-saves", what, path=name) if len(saves) > 1 else None
            findings = (*skipped, *found.findings, *([chosen] if chosen else []))
            return Plan(
                kind=found.kind,
                base=found.base,
                files=found.files,
                distributed=found.distributed,
                findings=findings,
                complete=found.complete,
            )
        what = f"the newer save {name} is not finished"
        skipped.append(fault("unfinished", what, advice="Delete it, or resume from the one shown.", path=name))
    return None


def _pointed(names: _Names) -> Plan | None:
    """A text file that names the newest checkpoint (Detectron2, MMEngine)."""
    for pointer in ("last_checkpoint", "latest_checkpoint"):
        if pointer in names.files:
            named = (_pointer(names.base / pointer) or "").rpartition("/")[2]
            if named in names.files:
                return Plan(kind="", base=names.base, files=(named,))
    return None


def _loose(names: _Names) -> Plan | None:
    """Any checkpoint files side by side."""
    unfinished = [name for name in names.files if re.search(r"\.(tmp|part|incomplete)(-?\w*)?$|^\.?tmp", name)]
    files = [name for name in names.files if name.endswith(_CHECKPOINT_ENDINGS) and name not in unfinished]
    weights, lost = _weights(names)
    findings = list(lost)
    for name in unfinished[:5]:
        findings.append(notice("unfinished", f"{name} looks like what an interrupted save left behind", path=name))
    if not files and not weights:
        if unfinished:
            raise UnreadableError("the folder holds only what an interrupted save left behind")
        return None
    chosen = list(dict.fromkeys([*files, *weights]))
    findings.extend(_unread(len(chosen) - min(len(chosen), 2 * MAX_ALIKE)))
    return Plan(
        kind="weights" if lost or any(name.endswith(".index.json") for name in names.files) else "",
        base=names.base,
        files=tuple(chosen[: 2 * MAX_ALIKE]),
        findings=tuple(findings),
        complete=not lost,
    )


_RECOGNISERS: tuple[Callable[[_Names], Plan | None], ...] = (
    _distributed,
    _deepspeed,
    _megatron,
    _hf_trainer,
    _accelerate,
    _series,
    _pointed,
    _loose,
)


def _weights(names: _Names) -> tuple[list[str], list[Finding]]:
    """The weight files of Hugging Face's libraries, and shards that should be there and are not."""
    sharded = names.like(r"(model|pytorch_model|diffusion_pytorch_model)-\d+-of-\d+\.(safetensors|bin)")
    whole = names.like(r"(model|pytorch_model|adapter_model|diffusion_pytorch_model)(_\d+)?\.(safetensors|bin)")
    findings = []
    groups: dict[tuple[str, str, str], set[int]] = {}
    for name in sharded:
        match = re.fullmatch(r"(.+)-(\d+)-of-(\d+)\.(\w+)", name)
        if match:
            groups.setdefault((match[1], match[3], match[4]), set()).add(int(match[2]))
    for (stem, total, ending), there in groups.items():
        lost = [number for number in range(1, min(int(total), MAX_NAMES) + 1) if number not in there]
        if lost:
            shown = f"{stem}-{lost[0]:0{len(total)}d}-of-{total}.{ending}"
            what = f"{len(lost)} of {int(total)} weight shards are missing, {shown} first"
            findings.append(fault("missing-shard", what, advice=_COPY_ALL, path=shown))
    return [*whole, *sharded[:MAX_ALIKE]], findings


def _gaps(what: str, names: Sequence[str]) -> list[Finding]:
    """Numbers missing between 0 and the highest in file names of one kind."""
    numbers = {int(match.group()) for name in names if (match := re.search(r"\d+", name)) and len(match.group()) < 6}
    lost = [number for number in range(max(numbers, default=-1) + 1) if number not in numbers]
    if not lost:
        return []
    kind = re.sub(r"\d+", "N", names[0], count=1)
    shown = ", ".join(str(number) for number in lost[:5])
    return [fault("missing-shard", f"{kind}: {what} {shown} of {max(numbers) + 1} is missing", advice=_COPY_ALL)]


def _unread(count: int) -> Iterable[Finding]:
    return [notice("not-all-read", f"{count} more files of the same kinds were not read")] if count > 0 else []


def _pointer(path: Path) -> str | None:
    """The single name in a small text file; None where it is not a plain name."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            raw = os.read(descriptor, 4096)
        finally:
            os.close(descriptor)
        name = raw.decode("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return name if name and "\0" not in name and ".." not in name.split("/") else None
