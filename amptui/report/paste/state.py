"""What the code to paste saves and restores: an exact resume needs the scaler as much as the optimizer."""

from __future__ import annotations

from collections.abc import Sequence

from amptui.report.paste.plan import Plan

Lines = Sequence[str]


def state_arguments(plan: Plan) -> tuple[str, ...]:
    """The objects that carry state, as the names of parameters."""
    names = ["model", "optimizer" if plan.single else "optimizers"]
    if plan.scheduled:
        names.append("scheduler" if plan.single else "schedulers")
    if plan.scaler is not None:
        names.append("scaler")
    if plan.counts_applied:
        names.append("applied_updates")
    return tuple(names)


def training_state(plan: Plan) -> Lines:
    entries = {name: _entry(plan, name) for name in state_arguments(plan)}
    return [
        f"def training_state({', '.join(entries)}):",
        '    """For `torch.save`. An exact resume also needs the place in the data and the RNG states."""',
        "    return {",
        *(f'        "{name}": {entry},' for name, entry in entries.items()),
        "    }",
    ]


def load_training_state(plan: Plan) -> Lines:
    lines = [
        f"def load_training_state(saved, {', '.join(state_arguments(plan))}):",
        '    """Puts back what `torch.load(path, weights_only=True)` gave."""',
    ]
    for name in state_arguments(plan):
        if name == "applied_updates":
            lines.append('    applied_updates.update(saved["applied_updates"])')
        elif _is_mapping(plan, name):
            lines += [
                f'    for name, state in saved["{name}"].items():',
                f"        {name}[name].load_state_dict(state)",
            ]
        else:
            lines.append(f'    {name}.load_state_dict(saved["{name}"])')
    return lines


def _entry(plan: Plan, name: str) -> str:
    if name == "applied_updates":
        return "dict(applied_updates)"
    if _is_mapping(plan, name):
        return f"{{name: part.state_dict() for name, part in {name}.items()}}"
    return f"{name}.state_dict()"


def _is_mapping(plan: Plan, name: str) -> bool:
    return name in ("optimizers", "schedulers") or (name == "model" and plan.mapping)
