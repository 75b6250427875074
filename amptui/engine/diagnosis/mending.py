"""Which modules in FP32 mend a failure, proved by replays of it: nothing is suggested that was not seen to help."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from amptui.engine.live import LiveProject
from amptui.engine.regions import RegionError, find_regions, fp32_regions
from amptui.engine.tracing.origin import Origin

#: Faults that a search follows; each costs a replay, and the last one proves.
FAULTS = 5
#: Modules that are tried one by one where nothing leads the search.
TRIED = 4


@dataclass(frozen=True)
class Mend:
    """What a search showed: the regions (empty where none helps) and a sentence about the proof."""

    regions: tuple[str, ...] = ()
    words: str = ""


#: A replay with further FP32 regions: the origins of what is still not finite.
OriginsWith = Callable[[tuple[str, ...]], Sequence[Origin]]


def mend_of(origins: Sequence[Origin], again: OriginsWith, live: LiveProject) -> Mend:
    """The regions that make a failure with these `origins` finite; k faults take k further replays."""
    if not origins or origins[0].is_source:
        return Mend()
    try:
        search = find_regions(
            lambda regions: again(regions) if regions else origins, dict(live.modules), limit=FAULTS + 1
        )
    except RegionError:  # a module that cannot be a region by itself: one around it may
        return first_that_mends(origins[0].module, lambda regions: not again(regions), live, "finite")
    if not search.solved:
        return Mend(words=f"no FP32 region mends it: {search.reason}")
    if any(_is_root(path, live) for path in search.regions):
        return Mend(words="nothing less than the whole model in FP32 mends it")
    return Mend(search.regions, _proved(search.regions, "finite"))


def first_that_mends(module: str, mends: Callable[[tuple[str, ...]], bool], live: LiveProject, outcome: str) -> Mend:
    """The module, or the nearest parent of it, that mends a failure as a region; `mends` repeats the failing run.

    `outcome` says in a word what the mended run is.
    """
    known = live.named_modules()
    for path in list(_outwards(module))[:TRIED]:
        if path in known and not _is_root(path, live):
            mend = proved((path,), mends, outcome)
            if mend.regions:
                return mend
    return Mend()


def proved(regions: tuple[str, ...], mends: Callable[[tuple[str, ...]], bool], outcome: str) -> Mend:
    """These regions, if they mend the failure."""
    with contextlib.suppress(RegionError):
        if mends(regions):
            return Mend(regions, _proved(regions, outcome))
    return Mend()


def proved_together(
    module: str, makers: Sequence[str], mends: Callable[[tuple[str, ...]], bool], live: LiveProject, outcome: str
) -> Mend:
    """The module with the nearest ones before it, as few as mend the failure: half inputs are lost on it alone."""
    known = live.named_modules()
    regions = [module] if module in known and not _is_root(module, live) else []
    for maker in makers[:TRIED]:
        if maker in known and not _is_root(maker, live):
            regions.insert(0, maker)
            mend = proved(tuple(regions), mends, outcome)
            if mend.regions:
                return mend
    return Mend()


@contextmanager
def with_regions(live: LiveProject, regions: Sequence[str]) -> Iterator[None]:
    """These modules in FP32, besides those that are already. Raises `RegionError` where one cannot be."""
    with fp32_regions(live.modules, regions, device=live.device.type) as inside:
        yield
        inside.check()


def _proved(regions: Sequence[str], outcome: str) -> str:
    return f"with {' and '.join(regions)} in FP32 the same replay is {outcome}"


def _outwards(module: str) -> Iterator[str]:
    while module:
        yield module
        module = module.rpartition(".")[0]


def _is_root(path: str, live: LiveProject) -> bool:
    return path in live.modules
