"""What a run was asked to do, apart from the project itself: from the command line, an amptui.yaml, or both.

Plain values, so that they travel from the client to the engine. What is not given is None or absent, and leaves the
Project's own value standing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

from amptui.project import Criteria, Policy, ProjectError, Scaler
from amptui.spec.reference import Reference

_Kind = TypeVar("_Kind", Policy, Scaler, Criteria)


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Everything that the command line and an amptui.yaml can say. Paths are absolute.

    `policy` and `criteria` hold fields of `Policy` and `Criteria` by name, and only those that were given; a value of
    None in them is a value (no scaler, amptui's own tolerance). `policy["scaler"]` is "auto", None, or the fields of a
    `Scaler`.

    Raises:
        ProjectError: on construction, for a value that `Policy`, `Scaler` or `Criteria` refuses.
    """

    entry: Reference | None = None
    #: Arguments by name for the function that `entry` names.
    args: Mapping[str, object] | None = None
    #: Folder that goes to the front of the engine's `sys.path`.
    app_dir: str | None = None
    #: The project's interpreter.
    python: str | None = None
    device: str | None = None
    iterations: int | None = None
    #: Session folder.
    session: str | None = None
    policy: Mapping[str, object] = field(default_factory=dict)
    criteria: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.iterations is not None and (type(self.iterations) is not int or self.iterations < 1):
            raise ProjectError(f"iterations is {self.iterations!r}: write a whole number from 1, such as 50")
        object.__setattr__(self, "policy", _plain_policy(self.policy))
        criteria_over(None, self.criteria)

    @property
    def title(self) -> str:
        """What a session of this project is called."""
        assert self.entry is not None, "the command line or amptui.yaml names an entry"
        return self.entry.title

    def overridden_by(self, other: RunSettings) -> RunSettings:
        """These settings with everything that `other` gives; policy and criteria field by field."""
        given = {f.name: getattr(other, f.name) for f in fields(other) if getattr(other, f.name) is not None}
        given["policy"] = {**self.policy, **other.policy}
        given["criteria"] = {**self.criteria, **other.criteria}
        return replace(self, **given)


def policy_over(base: Policy | None, given: Mapping[str, object]) -> Policy:
    """The Project's policy (or the default one) with the `given` fields.

    A given dtype that is not the Project's brings its own scaler ("auto"): one written for the other dtype, or its
    absence, says nothing about this one.
    """
    changes: dict[str, Any] = dict(given)
    scaler = changes.get("scaler")
    if isinstance(scaler, Mapping):
        changes["scaler"] = _made(Scaler, scaler)
    other = base is not None and "dtype" in changes and _made(Policy, {"dtype": changes["dtype"]}).dtype != base.dtype
    if other and "scaler" not in changes:
        changes["scaler"] = "auto"
    return _made(Policy, changes, base)


def criteria_over(base: Criteria | None, given: Mapping[str, object]) -> Criteria | None:
    """The Project's criteria with the `given` fields, or None where neither has any."""
    if base is None and not given:
        return None
    return _made(Criteria, given, base)


def _plain_policy(given: Mapping[str, object]) -> dict[str, object]:
    whole = policy_over(None, given)
    plain = {name: getattr(whole, name) for name in given}
    if isinstance(plain.get("scaler"), Scaler):
        plain["scaler"] = asdict(plain["scaler"])
    return plain


def _made(kind: type[_Kind], given: Mapping[str, Any], base: _Kind | None = None) -> _Kind:
    known = [f.name for f in fields(kind)]
    for name in given:
        if name not in known:
            raise ProjectError(f"{kind.__name__} has no field {name!r}: write one of {', '.join(known)}")
    return kind(**given) if base is None else replace(base, **given)
