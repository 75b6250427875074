"""What the code to paste has to do, read from the recorded project and a trial's policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amptui.project import Policy, Scaler
from amptui.protocol.events import ProjectOpened
from amptui.protocol.facts import UpdateFacts


@dataclass(frozen=True, kw_only=True)
class Region:
    """An FP32 region: the name of the module it lies in (None for a single model), and its path inside of that."""

    root: str | None
    path: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One training step: where and in which arithmetic it runs, and the updates that take part."""

    #: Device type, such as "cuda".
    device: str
    dtype: str
    autocast: bool
    scaler: Scaler | None
    regions: tuple[Region, ...]
    rollback: bool
    #: Whether the model is a mapping name → module.
    mapping: bool
    updates: tuple[UpdateFacts, ...]
    #: Updates whose loss function returns a mapping with the key `loss`.
    mapped: frozenset[str]
    #: Updates that had iterations without any gradient.
    idle: frozenset[str]

    @property
    def accumulate(self) -> int:
        """Micro-batches in a window; all updates share it."""
        return self.updates[0].accumulate

    @property
    def single(self) -> bool:
        return len(self.updates) == 1

    @property
    def scheduled(self) -> tuple[UpdateFacts, ...]:
        return tuple(update for update in self.updates if update.scheduler is not None)

    @property
    def counts_applied(self) -> bool:
        """Whether a scheduler runs after every n-th applied update, so that these must be counted."""
        return any(update.scheduler_every > 1 for update in self.scheduled)

    @property
    def asks_scaler(self) -> bool:
        """Whether the code must know before `scaler.step` if an update will be skipped.

        A fused optimizer's `step` is entered on a skipped update too, where it sets up state (fused SGD with momentum
        even destroys the weights if that is its first step). Among several updates the scale does not tell which one
        was skipped.
        """
        if self.scaler is None:
            return False
        which = not self.single and bool(self.scheduled or self.rollback)
        return which or any(update.fused for update in self.updates)

    @property
    def watches_scale(self) -> bool:
        """Whether the scale tells what the code must know: it falls exactly where the only update was skipped."""
        return (
            self.scaler is not None and self.single and not self.asks_scaler and bool(self.scheduled or self.rollback)
        )


def plan_of(
    project: ProjectOpened, policy: Policy, *, mapped: Sequence[str] = (), idle: Sequence[str] = ()
) -> Plan | None:
    """The plan for `policy`; None where the project has no updates and so no training step."""
    if not project.updates:
        return None
    paths = [module.path for module in project.modules]
    mapping = "" not in paths
    scaler = policy.effective_scaler
    return Plan(
        device=project.environment.device.partition(":")[0],
        dtype=policy.dtype,
        autocast=policy.autocast,
        scaler=scaler,
        regions=_regions(policy.fp32_regions, paths, mapping) if policy.autocast else (),
        # Without a scaler the plain loop takes every step, and there is nothing to go back from.
        rollback=policy.buffers == "rollback" and scaler is not None,
        mapping=mapping,
        updates=project.updates,
        mapped=frozenset(mapped),
        idle=frozenset(idle),
    )


def literal(text: str) -> str:
    """Foreign text as a string literal of Python: ASCII, on one line, in double quotes where that needs no escape."""
    written = ascii(text)
    return f'"{written[1:-1]}"' if written[0] == "'" and '"' not in written else written


def _regions(regions: Sequence[str], paths: Sequence[str], mapping: bool) -> tuple[Region, ...]:
    """Each region once, without those that lie inside another one."""
    outermost = [
        region
        for region in dict.fromkeys(regions)
        if not any(other != region and (other == "" or region.startswith(other + ".")) for other in regions)
    ]
    if not mapping:
        return tuple(Region(root=None, path=region) for region in outermost)
    return tuple(_in_mapping(region, paths) for region in outermost)


def _in_mapping(region: str, paths: Sequence[str]) -> Region:
    """A mapping's paths start with its key, which may hold dots itself: the shortest recorded path is the key."""
    parts = region.split(".")
    starts = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
    root = next((start for start in starts if start in paths), parts[0])
    return Region(root=root, path=region[len(root) + 1 :])
