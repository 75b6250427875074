"""`amptui new FILE`: a small project that runs as it is, to be filled with one's own model and data."""

from __future__ import annotations

import keyword
import os
import sys
from pathlib import Path

from amptui.spec.error import SpecError

_EXAMPLE = "write a name such as train_amp.py"

_STARTER = '''\
"""A small project for amptui: put your own model, data and loss in the places of these.

`python {name}` trains as ever; `amptui check {name}:project` judges FP16 autocast against FP32.
"""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
x = torch.randn(256, 8)
y = x[:, :3].argmax(dim=1)  # the class: which of the first three numbers is the largest
batches = list(zip(x.split(32), y.split(32)))
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)


def loss(model, batch):  # forward and loss only: amptui does backward, clipping and step
    inputs, target = batch
    return F.cross_entropy(model(inputs), target)


def project():
    from amptui import Case, Project, Update  # here, so that training needs no amptui

    return Project(
        model=model,
        updates=[Update(optimizer=optimizer, loss=loss, clip_norm=1.0)],
        batches=batches,  # FP32 and trial run them in this order
        cases=[Case(id=f"case-{{i}}", inputs=x[i : i + 1], target=y[i : i + 1]) for i in range(16)],
        decide=lambda outputs: int(outputs.argmax()),  # the decision that must not change
    )


if __name__ == "__main__":
    for step, batch in enumerate(batches * 5):
        optimizer.zero_grad()
        value = loss(model, batch)
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 8 == 0:
            print(f"step {{step}}: loss {{value.item():.3f}}")
'''


def write_starter(path: Path | str) -> None:
    """Write a commented starter project to `path`; a file that is there already is never touched.

    Raises:
        SpecError: `starter`, where the file exists, cannot be written, or has a name that cannot be imported.
    """
    file = Path(path)
    _require_importable(file)
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)  # 0666 less the umask
    except FileExistsError:
        raise SpecError("starter", f"{file} exists already", "choose another name; nothing was written") from None
    except FileNotFoundError:
        raise SpecError("starter", f"there is no folder {file.parent}", "make it first") from None
    except (OSError, ValueError) as error:
        raise SpecError("starter", f"{file} cannot be written: {_why(error)}") from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as written:
            written.write(_STARTER.format(name=file.name))
    except OSError as error:
        file.unlink(missing_ok=True)  # ours: O_EXCL made it; half a starter helps nobody
        raise SpecError("starter", f"{file} cannot be written: {_why(error)}") from None


def _require_importable(file: Path) -> None:
    if file.suffix != ".py":
        raise SpecError("starter", f"'{file.name}' does not end in .py", _EXAMPLE)
    stem = file.stem
    if not stem.isidentifier() or keyword.iskeyword(stem):
        raise SpecError("starter", f"'{stem}' is no name that Python can import", _EXAMPLE)
    if stem in sys.stdlib_module_names or stem in ("torch", "amptui"):
        raise SpecError("starter", f"'{file.name}' would hide the module '{stem}'", _EXAMPLE)


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
