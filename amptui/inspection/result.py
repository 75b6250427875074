"""What an inspection tells: plain frozen data, the same for the printed page, the screen and the JSON file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from amptui.findings.finding import Finding
from amptui.inspection.notes import fault


@dataclass(frozen=True, kw_only=True)
class ScalerState:
    """One loss scaler's saved state. What is not a number is None; `stored` says what the scale is instead."""

    #: Place in the checkpoint: `file: key.key`, or keys alone in a single file, "" for the whole file.
    path: str
    #: Whose state it is: GradScaler, GradScaler object, DeepSpeed, Megatron, apex, fairseq, "not a state".
    kind: str
    scale: int | float | None = None
    stored: str = ""
    #: Clean updates since the scale last changed.
    growth_tracker: int | float | None = None
    #: Clean updates after which the scale grows.
    growth_interval: int | float | None = None
    growth_factor: int | float | None = None
    backoff_factor: int | float | None = None
    #: The scale below which the scaler does not go, where it has such a floor.
    lowest_scale: int | float | None = None
    #: A state without entries: what a disabled scaler saves.
    empty: bool = False
    #: Entries that a load needs and that are not there.
    absent: tuple[str, ...] = ()
    #: Entries other than the scale that are not numbers, in words.
    wrong: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Counters. `loop` counts the loop's optimizer calls, `optimizer` the updates that an optimizer itself counted."""

    loop: int | None = None
    loop_path: str = ""
    #: The highest count over all parameters of all optimizers, and per optimizer.
    optimizer: int | None = None
    optimizers: Mapping[str, int] = field(default_factory=dict)
    skipped: int | None = None
    epoch: int | float | None = None


@dataclass(frozen=True, kw_only=True)
class TensorFact:
    """One tensor. `nonfinite` and `zero` are None where its values were not read."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    #: parameters, ema, master_copies, optimizer_state, optimizer_step, rng or other.
    role: str
    nonfinite: int | None = None
    #: Of the non-finite values, those that are minus infinity.
    minus_infinite: int = 0
    zero: bool | None = None
    elements: int = 0


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the tree of contents, in order; `depth` 0 is a file or a top key."""

    depth: int
    name: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """A checkpoint, looked into."""

    path: str
    #: Short name of the layout (`lightning`, `hf_trainer`, `plain`, …) and its name in words with the version.
    format: str = "unknown"
    title: str = "not a checkpoint"
    #: zip, legacy, pickle, safetensors, dcp, json or folder.
    container: str = ""
    files: tuple[str, ...] = ()
    size: int = 0
    readable: bool = True
    complete: bool = True
    scalers: tuple[ScalerState, ...] = ()
    steps: Steps = Steps()
    #: Tensors by role and dtype: {"parameters": {"float32": 148}, "buffers": …}; buffers as far as their names tell.
    dtypes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: Whether tensor values were read (small files, or asked for).
    values_read: bool = False
    nonfinite: tuple[str, ...] = ()
    zero: tuple[str, ...] = ()
    #: Parts of an exact resume that are there (with their paths) and that are not.
    present: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    learning_rates: tuple[float, ...] = ()
    #: Globals that a real load would import beyond torch's own safe list; of these, the dangerous ones.
    needs_code: tuple[str, ...] = ()
    dangerous: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    tensors: tuple[TensorFact, ...] = ()
    contents: tuple[Row, ...] = ()

    @property
    def has_fault(self) -> bool:
        return any(finding.severity == "fault" for finding in self.findings)


def unread(path: str, code: str, problem: str, advice: str) -> Inspection:
    """The inspection of what could not be read at all."""
    return Inspection(path=path, readable=False, complete=False, findings=(fault(code, problem, advice=advice),))
