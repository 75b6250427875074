"""Runs `amptui` as a user does: a real process, its exit code, what it printed and the JSON that it wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "sample_projects"

#: The documented keys of `check --json`, of each of its parts.
RESULT = {"verdict", "interventions", "rows", "updates", "scaler", "fp32_regions", "findings"}
ROW = {"criterion", "passed", "baseline", "trial", "limit", "case"}
UPDATE = {"name", "iterations", "applied", "skipped", "withheld", "changed"}
SCALER = {"initial", "final", "lowest"}
FINDING = {
    *("kind", "severity", "stage", "step", "case", "update", "module", "op", "line", "fp32_ok", "evidence", "advice")
}
CRITERIA = {"finite", "difference", "decision", "quality", "updates", "progress"}
KINDS = {
    *("overflow", "underflow", "rounding", "decision", "dtype", "autocast_state", "not_precision", "randomness"),
    *("scaler", "state_damage", "loop_order", "checkpoint"),
}
STAGES = {
    *("input", "forward", "loss", "backward", "gradient", "scaler", "update", "scheduler", "buffer", "weights"),
    *("output", "decision", "checkpoint", "loop", "error"),
}


@dataclass(frozen=True)
class Done:
    """One command that has ended. `result` is the JSON that it wrote, if it was asked for any."""

    code: int
    out: str
    err: str
    result: dict[str, Any]

    @property
    def said(self) -> str:
        """Everything it printed, in words one space apart: how lines were wrapped does not matter."""
        return " ".join((self.out + " " + self.err).split())

    @property
    def error(self) -> dict[str, Any]:
        return self.result["error"]


class Amptui:
    """The command, with sessions and files in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "sessions"

    def __call__(self, *arguments: object, timeout: float = 120.0, **environment: str) -> Done:
        """Runs it to its end."""
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=timeout)
        return Done(process.returncode, out, err, {})

    def check(self, *arguments: object, **environment: str) -> Done:
        """`amptui check … --json`, the JSON read and held to what is documented."""
        file = self.folder / "check.json"
        file.unlink(missing_ok=True)
        done = self("check", *arguments, "--json", file, **environment)
        return Done(done.code, done.out, done.err, documented(file.read_text(encoding="utf-8"), done.code))

    def start(self, *arguments: object, **environment: str) -> subprocess.Popen[str]:
        """Starts it and returns at once."""
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment(**environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )

    @staticmethod
    def command(*arguments: object) -> list[str]:
        return [sys.executable, "-m", "amptui", *map(str, arguments)]

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
        # Its own folder is the working directory, so the package is found as it is when installed.
        return {**kept, "AMPTUI_HOME": str(self.home), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}

    def restored(self, session: object = "last") -> Any:
        """What `amptui restore` gives back, loaded as a user loads it."""
        import torch

        file = self.folder / "restored.pt"
        file.unlink(missing_ok=True)
        done = self("restore", session, "-o", file)
        assert done.code == 0, done.said
        return torch.load(file, weights_only=True)


def documented(text: str, code: int) -> dict[str, Any]:
    """The JSON object in `text`, if it is strict JSON with every documented key and agrees with the exit code."""

    def no_constant(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON: it must be written as a string")

    result: dict[str, Any] = json.loads(text, parse_constant=no_constant)
    assert result.keys() >= RESULT
    assert result["verdict"] == {0: "accept", 1: "reject", 3: "inconclusive"}.get(code)
    assert (result["error"] is None) == (result["verdict"] is not None)
    assert isinstance(result["interventions"], int)
    assert result["scaler"] is None or result["scaler"].keys() >= SCALER
    for row in result["rows"]:
        assert row.keys() >= ROW
        assert row["criterion"] in CRITERIA
        assert row["passed"] in (True, False) or (row["passed"] is None and row["criterion"] == "progress")
    for update in result["updates"]:
        assert update.keys() >= UPDATE
    for finding in result["findings"]:
        assert finding.keys() >= FINDING
        assert finding["kind"] in KINDS
        assert finding["stage"] in STAGES
        assert finding["severity"] in ("fault", "notice")
        assert finding["evidence"]
    if code == 0:
        assert not any(row["passed"] is False for row in result["rows"])
        assert not any(finding["severity"] == "fault" for finding in result["findings"])
    return result


def eventually(holds: Callable[[], object], timeout: float = 60.0) -> None:
    """Waits until `holds()` is true; fails if it never is."""
    deadline = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


_SMALL = '''\
import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
HERE = Path(__file__).parent
{top}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.body(x))))


def loss(model, batch):
    number, x, y = batch
    under_policy = torch.is_autocast_enabled("cpu")
    {loss}
    return F.cross_entropy(model(x), y)


def decide(scores):
    under_policy = scores.dtype != torch.float32
    {decide}
    return int(scores.argmax())


def told(file):
    """Lets the test know who runs, and that it has come this far."""
    (HERE / "partial").write_text(str(os.getpid()))
    (HERE / "partial").rename(HERE / file)


def parts():
    """The model and its optimizer, which has taken two steps."""
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for batch in batches()[:2]:
        optimizer.zero_grad()
        F.cross_entropy(model(batch[1]), batch[2]).backward()
        optimizer.step()
    return model, optimizer


def batches():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(6, 16, 4, generator=generator)
    return [(number, rows, rows[:, :3].argmax(dim=1)) for number, rows in enumerate(x)]


def project():
    from amptui import Case, Criteria, Policy, Project, Update

    model, optimizer = parts()
    torch.save(dict(model=model.state_dict(), optimizer=optimizer.state_dict()), HERE / "before.pt")
    {load}
    return Project(
        model=model,
        updates=[Update(optimizer=optimizer, loss=loss, clip_norm=1.0)],
        batches=batches(),
        cases=[Case(id=f"case-{{n}}", inputs=batches()[n][1][:1], target=n) for n in range(3)],
        decide=decide,
        {project}
    )
'''


def small_project(folder: Path, **parts: str) -> Path:
    """Writes `small.py`, a project that accepts in moments; `parts` are lines of code for the places named in it.

    Beside it, `before.pt` holds the weights and optimizer state as they were before amptui saw them.
    """
    places = {"top": "", "loss": "pass", "decide": "pass", "load": "pass", "project": ""} | parts
    lines = {
        "top": places["top"],
        "loss": places["loss"].replace("\n", "\n    "),
        "decide": places["decide"].replace("\n", "\n    "),
        "load": places["load"].replace("\n", "\n    "),
        "project": places["project"].replace("\n", "\n        "),
    }
    file = folder / "small.py"
    file.write_text(_SMALL.format(**lines), encoding="utf-8")
    return file
