"""Policies to try beside the project's own: which make sense here, and how the engine is asked for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields

from amptui.findings.policies import policy_name
from amptui.findings.words import scale_text
from amptui.project import Policy, Scaler
from amptui.session.state import SessionState
from amptui.spec.error import SpecError
from amptui.spec.policies import coarsest as coarsest_dtype
from amptui.spec.policies import parse_policies
from amptui.spec.run_settings import policy_over

#: Fields of a policy; those that are left out are the project's own.
Given = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One answer to the question which policies to try, in the order in which they are run."""

    key: str
    label: str
    policies: tuple[Given, ...]


def given_for(wanted: Policy, own: Policy) -> dict[str, object]:
    """The fields that make `wanted` of the project's `own`, as `RunTrial` takes them."""
    given = {f.name: getattr(wanted, f.name) for f in fields(Policy)}
    changed = {name: value for name, value in given.items() if value != getattr(own, name)}
    if "dtype" in changed:  # which would bring a scaler of its own
        changed["scaler"] = wanted.scaler
    if isinstance(changed.get("scaler"), Scaler):
        changed["scaler"] = asdict(changed["scaler"])
    return changed


def again(state: SessionState) -> dict[str, object]:
    """What differs from the project's policy in the last trial since it was opened: what a further run is under."""
    if state.project is None or state.policy is None:
        return {}
    return given_for(state.policy, state.project.policy)


def choices(state: SessionState) -> tuple[Choice, ...]:
    """The dtypes that run on this device, float16 also with the scale that the forecast says fits."""
    found: list[tuple[str, Given]] = []
    if _runs(state, "float16"):
        found.append(("f", {"dtype": "float16"}))
        scale = _fitting_scale(state)
        if scale is not None:
            found.append(("s", {"dtype": "float16", "scaler": {"init_scale": scale}}))
    if _runs(state, "bfloat16"):
        found.append(("b", {"dtype": "bfloat16"}))
    listed = [Choice(key=key, label=_label(state, given), policies=(given,)) for key, given in found]
    dtypes: tuple[Given, ...] = tuple(given for _, given in found if "scaler" not in given)
    if len(dtypes) > 1 and not state.trials:
        listed.append(Choice(key="e", label="each dtype, one after the other", policies=dtypes))
    return tuple(listed)


def coarsest(policies: Sequence[Given]) -> str:
    """The dtype for which criteria must be proposed that all are held to."""
    return coarsest_dtype(policies) or "float16"


def read(text: str) -> tuple[Given, ...]:
    """Policies as one writes them: ``fp16@1024,bf16``. Raises ValueError that says what to write."""
    try:
        return parse_policies(text)
    except SpecError as error:
        said = error.message.removeprefix("--policies").lstrip(": ")
        raise ValueError(f"{said}; {error.hint}") from error


def _runs(state: SessionState, dtype: str) -> bool:
    """Whether the probe ran the project's operators in `dtype`; yes, where none was made."""
    return next((probe.supported for probe in state.probes if probe.dtype == dtype), True)


def _fitting_scale(state: SessionState) -> float | None:
    """The first loss scale that the forecast proposes, where the project's own policy has another one."""
    dtypes = state.forecast.dtypes if state.forecast is not None else ()
    scale = next((forecast.initial_scale for forecast in dtypes if forecast.dtype == "float16"), None)
    own = _over(state, {"dtype": "float16"}).effective_scaler
    return scale if own is not None and scale != own.init_scale else None


def _over(state: SessionState, given: Given) -> Policy:
    return policy_over(state.project.policy if state.project is not None else None, given)


def _label(state: SessionState, given: Given) -> str:
    policy = _over(state, given)
    scaler = policy.effective_scaler
    words = policy.dtype
    if scaler is not None:
        fits = ", which the forecast says fits" if "scaler" in given else ""
        words += f", first loss scale {scale_text(scaler.init_scale)}{fits}"
    tried = [trial for trial in state.trials[state.earlier_trials :] if trial.started.policy == policy]
    verdict = tried[-1].verdict if tried else None
    return f"{words} ({verdict.verdict})" if verdict is not None else words


def names(state: SessionState, policies: Sequence[Given]) -> str:
    """`float16, bfloat16`."""
    return ", ".join(policy_name(_over(state, given)) for given in policies)
