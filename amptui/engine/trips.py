"""What happened when the guard held an update back: counted, kept, replayed, located, told."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from amptui.engine.baseline import Baseline
from amptui.engine.bench import Bench
from amptui.engine.diagnosis.locator import Locator
from amptui.engine.failures import UserCodeError
from amptui.engine.gradients import FirstGradients
from amptui.engine.iteration import GuardedRun
from amptui.engine.live import LiveUpdate
from amptui.engine.replay import fitting_scale, replay
from amptui.engine.retained import Retention
from amptui.findings.evidence import TripEvidence
from amptui.findings.words import scale_text, trip_words
from amptui.project import Policy
from amptui.protocol.events import Diagnosed, GuardTripped
from amptui.protocol.facts import UpdateRecord


@dataclass(eq=False)
class Trips:
    """The trips of one trial. The first of each kind is examined while the weights are still those of that moment."""

    bench: Bench
    baseline: Baseline
    policy: Policy
    locator: Locator
    #: Gets the gradients of an iteration 0 that only the scale spoiled.
    first: FirstGradients
    #: By update, outcome, and whether a lower loss scale mends it.
    found: dict[tuple[str, str, bool], TripEvidence] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.retention = Retention(self.bench.folder, self.bench.emit)

    @property
    def evidence(self) -> tuple[TripEvidence, ...]:
        return tuple(self.found.values())

    def note(self, run: GuardedRun, record: UpdateRecord) -> bool:
        """Keeps and explains the first failure of each kind, counts the others; whether the scale alone was wrong."""
        update = self.bench.live.update(record.update)
        scale_alone = self._scale_alone(run, update, record)
        kind = (record.update, record.outcome, scale_alone)
        known = self.found.get(kind)
        if known is not None:
            self.found[kind] = replace(known, count=known.count + 1, last_step=record.step)
            self.bench.emit(GuardTripped(record=record, words=self._words(record), retained=None))
            return scale_alone
        retained = self.retention.keep(run, record)
        self.bench.emit(GuardTripped(record=record, words=self._words(record), retained=retained))
        self.found[kind] = self._examined(run, update, record, retained, scale_alone=scale_alone)
        return scale_alone

    def _scale_alone(self, run: GuardedRun, update: LiveUpdate, record: UpdateRecord) -> bool:
        """Whether the same window is finite at scale 1: then only the loss scale was too high."""
        if record.outcome != "bad_gradient" or run.scaler is None or record.scale <= 1.0:
            return False
        try:
            return replay(run, update, record.step, scale=1.0).finite
        except UserCodeError:
            return False

    def _examined(
        self, run: GuardedRun, update: LiveUpdate, record: UpdateRecord, retained: str | None, *, scale_alone: bool
    ) -> TripEvidence:
        """What replays of the failing iteration show: where it began, and whether true FP32 is finite there."""
        fp32_finite = _finite_in_fp32(run, update, record)
        fits = self._fitting_scale(run, update, record) if scale_alone else None
        self._diagnose_trip(run, update, record, retained, fp32_finite=fp32_finite, fits=fits)
        return TripEvidence(
            step=record.step,
            update=record.update,
            outcome=record.outcome,
            loss=record.loss,
            scale=record.scale,
            found_inf=record.found_inf,
            bad=record.bad,
            fp32_finite=fp32_finite,
            fitting_scale=fits,
            count=1,
            last_step=record.step,
            baseline_step=self.baseline.evidence.first_bad.get(record.update),
            buffers=tuple(name for name in record.bad if name in run.guard.buffers),
            retained=retained,
            loss_at=update.facts.loss_at,
        )

    def _diagnose_trip(
        self,
        run: GuardedRun,
        update: LiveUpdate,
        record: UpdateRecord,
        retained: str | None,
        *,
        fp32_finite: bool,
        fits: float | None,
    ) -> None:
        """Traces the failing window and tells what was found, with the table of replays."""
        before = len(self.locator.found)
        self.locator.iteration(run, update, record, fp32_finite=fp32_finite)
        variations = [
            (f"as it ran: {self.policy.dtype}, scale {scale_text(record.scale)}", "not finite"),
            ("true FP32, no scaling", "finite" if fp32_finite else "not finite"),
        ]
        if fits is not None:
            variations.append((f"{self.policy.dtype} at scale {scale_text(fits)}", "finite: the largest that fits"))
        self.bench.emit(
            Diagnosed(
                step=record.step,
                update=update.name,
                case=None,
                retained=retained,
                findings=tuple(self.locator.found[before:]),
                variations=tuple(variations),
            )
        )

    def _fitting_scale(self, run: GuardedRun, update: LiveUpdate, record: UpdateRecord) -> float | None:
        """The scale that fits; where iteration 0 fails at its first scale alone, it is compared at this one."""
        try:
            fits = fitting_scale(run, update, record.step)
            if fits is not None and record.step == 0:
                self._take_first_gradients(run, record, fits)
        except UserCodeError:
            return None
        return fits

    def _take_first_gradients(self, run: GuardedRun, record: UpdateRecord, scale: float) -> None:
        fitted = replay(run, self.bench.live.update(record.update), record.step, scale=scale)
        self.first.scales[record.update] = scale
        self.first.gradients[record.update] = tuple(
            None if g is None else g.detach().to("cpu", copy=True) for g in fitted.gradients
        )

    def _words(self, record: UpdateRecord) -> str:
        return trip_words(
            record.outcome,
            record.bad,
            scale=record.scale,
            layers=len(record.norms),
            scaler=self.policy.effective_scaler is not None,
        )


def _finite_in_fp32(run: GuardedRun, update: LiveUpdate, record: UpdateRecord) -> bool:
    """Whether true FP32 gets through the same window; it does not where the project raises there."""
    try:
        return replay(run, update, record.step, fp32=True).finite
    except UserCodeError:
        return False
