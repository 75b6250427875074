"""The functions that the training step calls: the scaler and its answer, buffers, autocast with FP32 regions."""

from __future__ import annotations

from collections.abc import Sequence

from amptui.project import Scaler
from amptui.report.paste.plan import Plan, Region, literal

Lines = Sequence[str]


def autocast(plan: Plan) -> str:
    return f'torch.autocast("{plan.device}", dtype=torch.{plan.dtype})'


def forward_context(plan: Plan) -> str | None:
    """What the forward pass and the loss run in; None for plain float32."""
    if not plan.autocast:
        return None
    return "mixed_precision(model)" if plan.regions else autocast(plan)


def new_scaler(plan: Plan, scaler: Scaler) -> Lines:
    return [
        "def new_scaler():",
        '    """One scaler for the whole run and for all optimizers; its state is saved with the weights."""',
        "    return torch.amp.GradScaler(",
        f'        "{plan.device}",',
        f"        init_scale={float(scaler.init_scale)!r},",
        f"        growth_factor={float(scaler.growth_factor)!r},",
        f"        backoff_factor={float(scaler.backoff_factor)!r},",
        f"        growth_interval={int(scaler.growth_interval)!r},",
        "    )",
    ]


def found_inf() -> Lines:
    return [
        "def found_inf(scaler, optimizer):",
        '    """Whether `unscale_` met a gradient that is not finite, so that this update has to be skipped."""',
        "    # GradScaler has no public name for it; its scale tells only afterwards that some optimizer was skipped.",
        "    return any(bool(found) for found in scaler._found_inf_per_device(optimizer).values())",
    ]


def buffers_put_back(plan: Plan) -> Lines:
    loop = "for module in model.modules()"
    if plan.mapping:
        loop = "for root in model.values() for module in root.modules()"
    return [
        "def saved_buffers(model):",
        '    """Copies of all buffers, such as running statistics, with their places."""',
        "    return [",
        "        (module, name, buffer, buffer.clone())",
        f"        {loop}",
        "        for name, buffer in module.named_buffers(recurse=False)",
        "    ]",
        "",
        "",
        "@torch.no_grad()",
        "def put_back(buffers):",
        "    for module, name, buffer, saved in buffers:",
        "        buffer.copy_(saved)",
        "        setattr(module, name, buffer)  # a forward may have put another tensor in its place",
    ]


def mixed_precision(plan: Plan) -> Lines:
    regions = [f"        {module_expression(region)}," for region in plan.regions]
    return [
        "def in_float32(value):",
        '    """`value` with every half-precision tensor in it as float32."""',
        "    if isinstance(value, torch.Tensor):",
        "        return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value",
        "    if isinstance(value, dict):",
        "        return {key: in_float32(item) for key, item in value.items()}",
        '    if isinstance(value, tuple) and hasattr(value, "_fields"):',
        "        return type(value)(*map(in_float32, value))",
        "    if isinstance(value, (list, tuple)):",
        "        return type(value)(in_float32(item) for item in value)",
        "    return value",
        "",
        "",
        "def without_autocast(forward):",
        "    @functools.wraps(forward)",
        "    def in_fp32(*args, **kwargs):",
        f'        with torch.autocast("{plan.device}", enabled=False):',
        "            return forward(*in_float32(args), **in_float32(kwargs))",
        "",
        "    return in_fp32",
        "",
        "",
        "@contextmanager",
        "def mixed_precision(model):",
        '    """Autocast, except for the modules that need FP32. Evaluate the model inside of it, too."""',
        "    modules = [",
        *regions,
        "    ]",
        '    before = [module.__dict__.get("forward") for module in modules]',
        "    for module in modules:",
        "        module.forward = without_autocast(module.forward)",
        "    try:",
        f"        with {autocast(plan)}:",
        "            yield",
        "    finally:",
        "        for module, forward in zip(modules, before):",
        "            del module.forward  # the class's own shows again",
        "            if forward is not None:",
        "                module.forward = forward",
    ]


def module_expression(region: Region) -> str:
    """The module of `region` as an expression on `model`; names as ASCII literals."""
    root = "model" if region.root is None else f"model[{literal(region.root)}]"
    return f"{root}.get_submodule({literal(region.path)})" if region.path else root
