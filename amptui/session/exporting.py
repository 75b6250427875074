"""A retained case as a folder: its data, and a short script that shows the failure without amptui."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from amptui.protocol.commands import OpenProject
from amptui.protocol.events import CaseRetained
from amptui.session.errors import SessionError
from amptui.session.folder import SessionFolder
from amptui.text import safe_text

DATA = "case.pt"
SCRIPT = "show_failure.py"

_SCRIPT = '''"""Shows the retained case {id!r}: update {update!r}, step {step}, {outcome}.

Run it with the project's own Python. It needs torch and the project, and nothing of amptui.
"""
import contextlib
import importlib
import importlib.util
import json
import random
import sys
import types
from pathlib import Path

import torch

SPEC = {spec!r}
FOLDERS = {folders!r}
ARGUMENTS = {arguments!r}

# The project file imports the names of amptui only to describe itself; plain records will do here.
try:
    import amptui
except ImportError:
    amptui = types.ModuleType("amptui")
    for name in ("Case", "Criteria", "Policy", "Project", "Scaler", "Update"):
        setattr(amptui, name, types.SimpleNamespace)
    sys.modules["amptui"] = amptui


def load_project():
    head, _, attribute = SPEC.rpartition(":")
    sys.path[:0] = FOLDERS
    if head.endswith(".py"):
        found = importlib.util.spec_from_file_location(Path(head).stem, head)
        module = importlib.util.module_from_spec(found)
        sys.modules[found.name] = module
        found.loader.exec_module(module)
    else:
        module = importlib.import_module(head)
    for name in attribute.split("."):
        module = getattr(module, name)
    return module(**ARGUMENTS) if callable(module) else module


def unpacked(value):
    """NumPy arrays were stored as tensors."""
    if type(value) is dict:
        if "__amptui_numpy_dtype__" in value:
            return value["array"].numpy().astype(value["__amptui_numpy_dtype__"]).reshape(value["shape"])
        return {{key: unpacked(item) for key, item in value.items()}}
    return type(value)(map(unpacked, value)) if type(value) in (list, tuple) else value


def widened(value):
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value
    if isinstance(value, dict):
        return {{key: widened(item) for key, item in value.items()}}
    return type(value)(map(widened, value)) if type(value) in (list, tuple) else value


def run_in_fp32(module, device):
    """Makes `module` an FP32 region: autocast off, float32 inputs."""
    forward = module.forward

    def in_fp32(*args, **kwargs):
        with torch.autocast(device.type, enabled=False):
            return forward(*widened(args), **widened(kwargs))

    module.forward = in_fp32


case = torch.load(Path(__file__).with_name({data!r}), weights_only=True)
policy = json.loads(case["policy"])
project = load_project()
models = project.model if isinstance(project.model, dict) else {{"": project.model}}
updates = project.updates if isinstance(project.updates, (list, tuple)) else [project.updates]
update = next(u for u in updates if getattr(u, "name", "main") == case["update"])
divided_by = getattr(update, "accumulate", 1) if getattr(update, "reduce", "mean") == "mean" else 1
scaled_by = case["scale"]
device = next(parameter for model in models.values() for parameter in model.parameters()).device

saved = {{**case["parameters"], **case["buffers"]}}
names = {{}}
with torch.no_grad():
    for prefix, model in models.items():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            full = f"{{prefix}}.{{name}}" if prefix and name else prefix or name
            names[id(tensor)] = full
            if full in saved:
                tensor.copy_(saved[full])
        for path, module in model.named_modules():
            full = f"{{prefix}}.{{path}}" if prefix and path else prefix or path
            if full in policy["fp32_regions"]:
                run_in_fp32(module, device)

dtype = getattr(torch, policy["dtype"])
for micro, batch in enumerate(unpacked(case["batches"])):
    state = case["rng"].get(str(micro))
    if state is not None:
        torch.set_rng_state(state["torch"])
        version, numbers, gauss = state["python"]
        random.setstate((version, tuple(numbers), gauss))
    with torch.autocast(device.type, dtype=dtype) if policy["autocast"] else contextlib.nullcontext():
        loss = update.loss(project.model, batch)
        loss = loss["loss"] if isinstance(loss, dict) else loss
    print(f"loss of micro-batch {{micro}}: {{float(loss.detach())}}")
    (loss / divided_by * torch.tensor(scaled_by, device=device)).backward()

for parameter in (p for group in update.optimizer.param_groups for p in group["params"]):
    if parameter.grad is not None and not bool(torch.isfinite(parameter.grad).all()):
        print(f"gradient of {{names[id(parameter)]}} is not finite at loss scale {{scaled_by:g}}")
'''


def export_case(folder: SessionFolder, kept: CaseRetained, opened: OpenProject, target: Path) -> Path:
    """Writes the case to the new folder `target` and returns the script. Raises SessionError if that cannot be done."""
    source = (
        folder.path / Path(kept.path).relative_to(folder.path) if Path(kept.path).is_absolute() else Path(kept.path)
    )
    try:
        target.mkdir(mode=0o700, parents=True)
        shutil.copyfile(source, target / DATA)
        script = _SCRIPT.format(
            id=kept.id,
            update=kept.update,
            step=kept.step,
            outcome=kept.outcome,
            spec=opened.spec,
            folders=list(dict.fromkeys(f for f in (opened.app_dir, opened.folder, _folder_of(opened.spec)) if f)),
            arguments=json.loads(json.dumps(dict(opened.arguments))),
            data=DATA,
        )
        (target / SCRIPT).write_text(script, encoding="utf-8")
    except OSError as error:
        raise SessionError(f"{safe_text(target, 4096)} cannot be written: {error.strerror or error}") from error
    return target / SCRIPT


def _folder_of(spec: str) -> str | None:
    head = spec.rpartition(":")[0]
    return str(Path(head).parent) if head.endswith(".py") else None
