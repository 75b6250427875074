"""FP32 regions: modules whose forward runs with autocast off on float32 inputs, and the search for those that help."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from amptui.engine.nested import map_tensors
from amptui.engine.tracing.modules import ModulePaths
from amptui.spec.near import closest, listed

_HALF = (torch.float16, torch.bfloat16)
#: So many modules inside of a larger one are preferred to all of it.
_FEW = 2


class RegionError(ValueError):
    """A region that cannot be, with what to choose instead."""


@dataclass
class Fp32Regions:
    """Regions that are in force, and how often each was called."""

    calls: dict[str, int] = field(default_factory=dict)

    def never_called(self) -> tuple[str, ...]:
        """Regions without effect: modules used for their weights only, such as `MultiheadAttention.out_proj`."""
        return tuple(path for path, count in self.calls.items() if count == 0)

    def check(self) -> None:
        """Raise `RegionError` if a region was never called, once something has run."""
        unused = self.never_called()
        if unused:
            parents = sorted({path.rpartition(".")[0] for path in unused})
            raise RegionError(
                f"FP32 region {', '.join(unused)}: the module was never called, so nothing ran in FP32 "
                f"(its owner uses the weights directly). Choose the owner instead: {', '.join(map(repr, parents))}."
            )


@contextmanager
def fp32_regions(
    modules: nn.Module | Mapping[str, nn.Module], paths: Sequence[str], *, device: str = "cpu", cast_back: bool = False
) -> Iterator[Fp32Regions]:
    """Run these modules in FP32 inside the context.

    `module.forward` is replaced on the instance, which leaves names, state_dict and hooks as they are, and put back at
    the end. Half inputs, also inside dicts and lists, become float32; outputs stay float32 (the next autocast op
    casts), or are cast to the autocast dtype with `cast_back`, which can overflow again at the edge. Raises
    `RegionError` for unknown paths and for modules with half parameters.
    """
    chosen = region_modules(modules, paths)
    regions = Fp32Regions(dict.fromkeys(chosen, 0))
    replaced: list[tuple[nn.Module, Any]] = []
    try:
        for path, module in chosen.items():
            replaced.append((module, module.__dict__.get("forward")))
            module.forward = _in_fp32(module.forward, regions, path, device, cast_back)
        yield regions
    finally:
        for module, own_forward in reversed(replaced):
            del module.forward
            if own_forward is not None:
                module.forward = own_forward


def region_modules(modules: nn.Module | Mapping[str, nn.Module], paths: Sequence[str]) -> dict[str, nn.Module]:
    """The modules at `paths` that can be FP32 regions, without those that lie inside another one.

    Raises `RegionError` for unknown paths, with what was probably meant, and for modules with half parameters.
    """
    by_path = ModulePaths(modules).by_path()
    for path in paths:
        if path not in by_path:
            raise RegionError(f"FP32 region {path!r}: the model has no such module{_meant(path, by_path)}")
        _refuse_half_parameters(path, by_path[path])
    return {path: by_path[path] for path in outermost(paths)}


def outermost(paths: Sequence[str]) -> tuple[str, ...]:
    """The paths without those that lie inside another one."""
    return tuple(p for p in dict.fromkeys(paths) if not any(q != p and is_inside(p, q) for q in paths))


def is_inside(path: str, region: str) -> bool:
    """Whether a module path is the region or lies in it."""
    return region in ("", path) or path.startswith(region + ".")


def _in_fp32(
    forward: Callable[..., Any], regions: Fp32Regions, path: str, device: str, cast_back: bool
) -> Callable[..., Any]:
    def widen(tensor: Tensor) -> Tensor:
        return tensor.float() if tensor.dtype in _HALF else tensor

    @functools.wraps(forward)
    def in_fp32(*args: Any, **kwargs: Any) -> Any:
        regions.calls[path] += 1
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        args, kwargs = map_tensors((args, kwargs), widen)
        with torch.autocast(device, enabled=False):
            out = forward(*args, **kwargs)
        if not cast_back or dtype is None:
            return out
        return map_tensors(out, lambda t: t.to(dtype) if t.dtype == torch.float32 else t)

    return in_fp32


def _refuse_half_parameters(path: str, module: nn.Module) -> None:
    for name, parameter in module.named_parameters():
        if parameter.dtype in _HALF:
            raise RegionError(
                f"FP32 region {path!r}: its parameter {name} is {str(parameter.dtype).removeprefix('torch.')}. "
                "Keep parameters in float32 (remove `.half()`); autocast casts them as needed."
            )


def _meant(path: str, by_path: Mapping[str, nn.Module]) -> str:
    """What was probably meant: a slip in one name, a path begun too late or too early; else what there is."""
    parts = path.split(".")
    depth = max(n for n in range(len(parts)) if n == 0 or ".".join(parts[:n]) in by_path)
    parent, wrong, rest = ".".join(parts[:depth]), parts[depth], parts[depth + 1 :]
    children = {known.rpartition(".")[2]: known for known in by_path if known and known.rpartition(".")[0] == parent}
    slip = closest(wrong, children)
    candidates = [known for known in by_path if known.endswith(f".{path}") or (known and path.endswith(f".{known}"))]
    if slip is not None:
        candidates = [".".join([children[slip], *rest]), *candidates]
    meant = next((known for known in candidates if known in by_path), None)
    if meant is not None:
        return f"; did you mean {meant!r}?"
    inside = f"inside {parent!r} there are" if parent else "it has"
    return f"; {inside} {listed(children.values())}" if children else ""


# The search


class Culprit(Protocol):
    """What the search reads of an origin (`tracing.Origin`)."""

    @property
    def module(self) -> str:
        """Dotted path, or the name of a user function."""

    @property
    def makers(self) -> tuple[str, ...]:
        """The modules that made the half values at the place."""

    @property
    def is_source(self) -> bool:
        """Whether the value was there before anything ran."""


@dataclass(frozen=True, kw_only=True)
class RegionSearch:
    """What a search found."""

    regions: tuple[str, ...]
    #: Whether the failure is gone with these regions.
    solved: bool
    #: Replays used, the last of which is the proof.
    replays: int
    #: Why not, where it is not solved.
    reason: str = ""


def find_regions(
    replay: Callable[[tuple[str, ...]], Sequence[Culprit]],
    modules: nn.Module | Mapping[str, nn.Module],
    *,
    limit: int = 12,
) -> RegionSearch:
    """The regions that make a failing iteration finite, led by its origins: k faults take k + 1 replays.

    `replay(regions)` repeats the iteration with these regions in FP32, at a loss scale that fits, and returns its
    origins, earliest first; none means that it was finite. Each round the module of the first origin becomes a
    region, or, for a fault in the loss function or in the code of a large module, the modules that made its values
    half. Where a region itself still fails, its parent takes its place. Values that were bad from the start no region
    can mend.
    """
    known = ModulePaths(modules).by_path()
    regions: tuple[str, ...] = ()
    for replays in range(1, limit + 1):
        origins = replay(regions)
        if not origins:
            return RegionSearch(regions=regions, solved=True, replays=replays)
        try:
            regions = _with(origins[0], regions, known)
        except RegionError as reason:
            return RegionSearch(regions=regions, solved=False, replays=replays, reason=str(reason))
    return RegionSearch(regions=regions, solved=False, replays=limit, reason=f"not finite after {limit} replays")


def _with(culprit: Culprit, regions: tuple[str, ...], known: Mapping[str, nn.Module]) -> tuple[str, ...]:
    """The regions and what mends this culprit."""
    if culprit.is_source:
        raise RegionError("a value was bad before any op ran")
    makers = [path for path in culprit.makers if not any(is_inside(path, region) for region in regions)]
    if culprit.module not in known:
        if not makers:
            raise RegionError(
                f"the fault is in the code of {culprit.module!r}, outside of all modules: cast there with `.float()`"
            )
        return outermost((*regions, *makers))
    module = _widened(culprit.module, regions)
    inside = [path for path in makers if is_inside(path, module) and path != module]
    if module == culprit.module and makers == inside and 0 < len(makers) <= _FEW:
        return outermost((*regions, *makers))
    return outermost((*regions, module))


def _widened(module: str, regions: tuple[str, ...]) -> str:
    """The module, or the parent of the region that it already lies in."""
    inside = next((region for region in regions if is_inside(module, region)), None)
    if inside is None:
        return module
    if inside == "":
        raise RegionError("the whole model in FP32 fails as well")
    return inside.rpartition(".")[0]
