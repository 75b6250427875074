"""What a user gives to amptui: a model, the updates that train it, fixed batches and fixed evaluation cases.

Standard library only, so that a project file can import these names wherever its own torch lives. Values are checked
here as far as that needs no torch; what needs the live objects (parameters in two optimizers, a loss that is no scalar)
is refused by the engine before anything runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

Dtype = Literal["float16", "bfloat16"]
Tag = Literal["ordinary", "edge", "boundary"]
TAGS: tuple[Tag, ...] = ("ordinary", "edge", "boundary")

DTYPE_NAMES: Mapping[str, Dtype] = MappingProxyType(
    {
        "float16": "float16",
        "fp16": "float16",
        "half": "float16",
        "torch.float16": "float16",
        "bfloat16": "bfloat16",
        "bf16": "bfloat16",
        "torch.bfloat16": "bfloat16",
    }
)


class ProjectError(ValueError):
    """A project, policy or criterion that cannot be used, said in one sentence with its mend.

    `loop` says that the way in which the updates work together is what is wrong.
    """

    def __init__(self, message: str, *, loop: bool = False) -> None:
        super().__init__(message)
        self.loop = loop


@dataclass(frozen=True, kw_only=True)
class Scaler:
    """Settings of the one `torch.amp.GradScaler` that the engine builds; the defaults are torch's own."""

    init_scale: float = 65536.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000

    def __post_init__(self) -> None:
        # torch checks only growth_factor > 1 and backoff_factor < 1 and accepts nonsense elsewhere.
        if not (0.0 < self.init_scale < math.inf):
            raise ProjectError(
                f"Scaler(init_scale={self.init_scale!r}): write a finite number above 0, such as 65536.0"
            )
        if not (1.0 < self.growth_factor < math.inf):
            raise ProjectError(
                f"Scaler(growth_factor={self.growth_factor!r}): write a finite number above 1, such as 2.0"
            )
        if not (0.0 < self.backoff_factor < 1.0):
            raise ProjectError(
                f"Scaler(backoff_factor={self.backoff_factor!r}): write a number between 0 and 1, such as 0.5"
            )
        if (
            isinstance(self.growth_interval, bool)
            or not isinstance(self.growth_interval, int)
            or self.growth_interval < 1
        ):
            raise ProjectError(
                f"Scaler(growth_interval={self.growth_interval!r}): write a whole number from 1, such as 2000"
            )


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How the trial runs: dtype, autocast, loss scaling, and the modules kept in FP32.

    `scaler` is "auto" (on for float16, none otherwise), a `Scaler`, or None. `fp32_regions` are dotted module paths
    whose forward runs with autocast off on float32 inputs. `buffers` says what a skipped update does to buffers that
    its forward has already changed: "keep" them as the plain loop would, or "rollback".
    """

    dtype: str = "float16"
    autocast: bool = True
    scaler: Scaler | Literal["auto"] | None = "auto"
    fp32_regions: Sequence[str] = ()
    buffers: Literal["keep", "rollback"] = "keep"

    def __post_init__(self) -> None:
        name = str(self.dtype)
        if name not in DTYPE_NAMES:
            raise ProjectError(f"Policy(dtype={self.dtype!r}): write 'float16' or 'bfloat16'")
        object.__setattr__(self, "dtype", DTYPE_NAMES[name])
        if self.scaler is not None and self.scaler != "auto" and not isinstance(self.scaler, Scaler):
            raise ProjectError(f"Policy(scaler={self.scaler!r}): write 'auto', None or Scaler(init_scale=…)")
        if isinstance(self.fp32_regions, str):
            raise ProjectError(
                f"Policy(fp32_regions={self.fp32_regions!r}): write a list, such as ['{self.fp32_regions}']"
            )
        object.__setattr__(self, "fp32_regions", tuple(self.fp32_regions))
        if self.buffers not in ("keep", "rollback"):
            raise ProjectError(f"Policy(buffers={self.buffers!r}): write 'keep' or 'rollback'")

    @property
    def effective_scaler(self) -> Scaler | None:
        """The scaler that will run, with "auto" resolved."""
        if self.scaler == "auto":
            return Scaler() if self.dtype == "float16" else None
        return self.scaler


@dataclass(frozen=True, kw_only=True)
class Criteria:
    """What the trial must hold, written down and locked before it runs.

    `atol` and `rtol` bound every output (|trial − baseline| ≤ atol + rtol · |baseline|); None takes amptui's proposal.
    `outputs` overrides them by output name: a number is an `atol`, a mapping may hold `atol` and `rtol`; the names
    `loss` and `gradient` bound iteration 0. `decision_changes` is how many cases may change their decision;
    `tie` says whether the baseline's choice must stand among tied candidates ("same") or any of them will do ("any").
    `quality_drop` is how far quality may fall, `applied_share` the lowest share of applied updates, and `progress` how
    far (relatively) the mean loss of the last quarter may lie above the baseline's, or None for a notice only.
    """

    atol: float | None = None
    rtol: float | None = None
    outputs: Mapping[str, float | Mapping[str, float]] = field(default_factory=dict)
    decision_changes: int = 0
    tie: Literal["same", "any"] = "same"
    quality_drop: float = 0.0
    applied_share: float = 0.9
    progress: float | None = None

    def __post_init__(self) -> None:
        for name in ("atol", "rtol", "quality_drop", "progress"):
            _not_negative(f"Criteria({name}=…)", getattr(self, name))
        for name, bound in self.outputs.items():
            parts: Mapping[str, float] = bound if isinstance(bound, Mapping) else {"atol": bound}
            for key, value in parts.items():
                if key not in ("atol", "rtol"):
                    raise ProjectError(f"Criteria(outputs[{name!r}]): unknown key {key!r}; write 'atol' or 'rtol'")
                _not_negative(f"Criteria(outputs[{name!r}][{key!r}])", value)
        object.__setattr__(self, "outputs", dict(self.outputs))
        if (
            isinstance(self.decision_changes, bool)
            or not isinstance(self.decision_changes, int)
            or self.decision_changes < 0
        ):
            raise ProjectError(f"Criteria(decision_changes={self.decision_changes!r}): write a whole number from 0")
        if self.tie not in ("same", "any"):
            raise ProjectError(f"Criteria(tie={self.tie!r}): write 'same' or 'any'")
        if not (0.0 <= self.applied_share <= 1.0):
            raise ProjectError(
                f"Criteria(applied_share={self.applied_share!r}): write a share from 0 to 1, such as 0.9"
            )


def _not_negative(where: str, value: float | None) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not (0.0 <= value < math.inf):
        raise ProjectError(f"{where} is {value!r}: write a finite number from 0")


@dataclass(frozen=True, kw_only=True, eq=False)
class Update:
    """One optimizer with the loss that drives it. `loss(model, batch)` holds forward and loss only.

    The loss is a scalar tensor, or a mapping whose key `loss` drives backward and whose other entries are shown. It is
    returned undivided: amptui owns autocast, scaling, the division by `accumulate` (not with `reduce="sum"`), backward,
    clipping, step and update. `every` lets the update take part in every n-th iteration only (0, n, 2n, …);
    `scheduler_every` counts applied updates.
    """

    optimizer: Optimizer
    loss: Callable[[Any, Any], Tensor | Mapping[str, Tensor]]
    scheduler: Any = None
    scheduler_every: int = 1
    every: int = 1
    accumulate: int = 1
    reduce: Literal["mean", "sum"] = "mean"
    clip_norm: float | None = None
    clip_value: float | None = None
    name: str = "main"

    def __post_init__(self) -> None:
        who = f"Update(name={self.name!r})"
        if not isinstance(self.name, str) or not self.name:
            raise ProjectError(f"{who}: write a name, such as 'main'")
        if not callable(self.loss):
            raise ProjectError(f"{who}: loss is {type(self.loss).__name__}; write a function loss(model, batch)")
        for key in ("every", "accumulate", "scheduler_every"):
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ProjectError(f"{who}: {key} is {value!r}; write a whole number from 1")
        if self.reduce not in ("mean", "sum"):
            raise ProjectError(f"{who}: reduce is {self.reduce!r}; write 'mean' or 'sum'")
        for key in ("clip_norm", "clip_value"):
            value = getattr(self, key)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
                raise ProjectError(f"{who}: {key} is {value!r}; write a number above 0, or None")
        if self.clip_norm is not None and self.clip_value is not None:
            raise ProjectError(
                f"{who}: clip_norm and clip_value exclude each other; keep the one your loop uses", loop=True
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One fixed evaluation input: what it is called, what the model gets, and what should come out."""

    id: str
    inputs: Any
    target: Any = None
    tag: Tag = "ordinary"

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id:
            raise ProjectError(f"Case(id={self.id!r}): write a text that names the case, such as 'val-3'")
        if self.tag not in TAGS:
            raise ProjectError(f"Case(id={self.id!r}): tag is {self.tag!r}; write one of {', '.join(TAGS)}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Project:
    """A training project as amptui judges it.

    `model` is an `nn.Module` or a mapping name → module. `batches` and `cases` are a list, any iterable, or a callable
    that makes a fresh one. `outputs(model, inputs)` gives a tensor or a mapping of tensors (default: the model is
    called; a dict becomes keywords, a tuple positions). `decide(outputs)` may return `(decision, margin)`.
    `quality(rows)` gets rows with `id`, `outputs`, `decision`, `target`, `tag`. `extra_state` maps a name to an object
    with `state_dict`/`load_state_dict` or `get_state`/`set_state`.
    """

    model: nn.Module | Mapping[str, nn.Module]
    updates: Sequence[Update] = ()
    batches: Iterable[Any] | Callable[[], Iterable[Any]] = ()
    cases: Iterable[Case] | Callable[[], Iterable[Case]] = ()
    iterations: int | None = None
    outputs: Callable[[Any, Any], Tensor | Mapping[str, Tensor]] | None = None
    decide: Callable[[Any], Any] | None = None
    quality: Callable[[Sequence[Any]], float] | None = None
    quality_better: Literal["higher", "lower"] = "higher"
    policy: Policy | None = None
    criteria: Criteria | None = None
    extra_state: Mapping[str, Any] | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        updates = _updates_of(self.updates)
        names = [update.name for update in updates]
        for name in names:
            if names.count(name) > 1:
                raise ProjectError(f"two updates are called {name!r}: give each Update its own name=")
        if len({update.accumulate for update in updates}) > 1:
            said = ", ".join(f"{update.name}: {update.accumulate}" for update in updates)
            raise ProjectError(
                f"updates with different accumulate ({said}): they share one window; give all the same", loop=True
            )
        object.__setattr__(self, "updates", updates)
        if self.iterations is not None and (
            isinstance(self.iterations, bool) or not isinstance(self.iterations, int) or self.iterations < 1
        ):
            raise ProjectError(f"Project(iterations={self.iterations!r}): write a whole number from 1, or None")
        if self.quality_better not in ("higher", "lower"):
            raise ProjectError(f"Project(quality_better={self.quality_better!r}): write 'higher' or 'lower'")
        for key in ("outputs", "decide", "quality"):
            if getattr(self, key) is not None and not callable(getattr(self, key)):
                raise ProjectError(f"Project({key}=…) is {type(getattr(self, key)).__name__}; write a function")
        for key, wanted in (("policy", Policy), ("criteria", Criteria)):
            value = getattr(self, key)
            if value is not None and not isinstance(value, wanted):
                raise ProjectError(f"Project({key}=…) is {type(value).__name__}; write {wanted.__name__}(…)")
        if not isinstance(self.extra_state, Mapping | None):
            raise ProjectError(
                f"Project(extra_state=…) is {type(self.extra_state).__name__}; write a mapping of names to objects "
                "with state_dict and load_state_dict, such as {'ema': ema}"
            )
        object.__setattr__(self, "extra_state", dict(self.extra_state or {}))

    def __repr__(self) -> str:
        given = ", ".join(f.name for f in fields(self) if getattr(self, f.name) not in (None, (), {}))
        return f"Project({self.name or 'unnamed'}: {given})"


def _updates_of(given: object) -> tuple[Update, ...]:
    if not isinstance(given, Update | Iterable):
        raise ProjectError(f"Project(updates=…) is {type(given).__name__}; write a list of Update(…)")
    updates = (given,) if isinstance(given, Update) else tuple(given)
    for update in updates:
        if not isinstance(update, Update):
            raise ProjectError(f"Project(updates=…) holds {type(update).__name__}; write a list of Update(…)")
    return updates
