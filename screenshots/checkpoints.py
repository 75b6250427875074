"""Pictures of `amptui inspect`, made from small checkpoints that are written here without torch.

python screenshots/checkpoints.py
"""

# ruff: noqa: T201, RUF009 - a script that says what it drew; a look never changes

from __future__ import annotations

import asyncio
import math
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
os.environ["TEXTUAL_COLOR_SYSTEM"] = "256"

from amptui.inspection.process import inspect_in_child  # noqa: E402
from amptui.ui.inspect.app import InspectApp, InspectStart  # noqa: E402
from amptui.ui.inspect.contents import Contents  # noqa: E402
from amptui.ui.inspect.reading import CheckpointReader, Reading  # noqa: E402
from amptui.ui.theme import Look  # noqa: E402
from tests.inspection.frameworks import LAYOUTS  # noqa: E402
from tests.inspection.writer import T, adam, cpu_state, save, scaler, schedule  # noqa: E402


@dataclass(frozen=True)
class Picture:
    """A picture: the checkpoints, the keys pressed then, and the size in cells."""

    name: str
    checkpoints: Sequence[str]
    keys: Sequence[str] = ()
    size: tuple[int, int] = (80, 24)
    look: Look = Look()


PICTURES = (
    Picture("inspect-lightning", ["lightning.ckpt"]),
    Picture("inspect-poisoned", ["step_9000.pt"], ["enter"]),
    Picture("inspect-wide", ["step_9000.pt"], ["n"], size=(120, 40)),
    Picture("inspect-compare", ["step_8000.pt", "step_9000.pt"]),
    Picture("inspect-search", ["step_9000.pt"], ["tab", "tab", "z", "slash", *"bn2 float32", "enter"]),
    Picture("inspect-light", ["step_9000.pt"], ["enter"], look=Look(theme="light")),
    Picture("inspect-ascii", ["step_9000.pt"], ["enter"], look=Look(theme="plain", ascii=True)),
)


def network(*, poisoned: bool) -> dict[str, T]:
    """A small convolutional network, in which two statistics of a BatchNorm may not be finite."""
    weights: dict[str, T] = {}
    for block, (channels, inputs) in enumerate([(16, 3), (32, 16)], start=1):
        weights[f"conv{block}.weight"] = T([0.1, -0.2, 0.3], (channels, inputs, 3, 3))
        weights[f"bn{block}.weight"] = T(1.0, (channels,))
        weights[f"bn{block}.bias"] = T(0.1, (channels,))
        broken = poisoned and block == 2
        weights[f"bn{block}.running_mean"] = T([math.nan if broken else 0.2, *[0.1] * (channels - 1)], (channels,))
        weights[f"bn{block}.running_var"] = T([math.inf if broken else 0.9, *[1.1] * (channels - 1)], (channels,))
    weights["head.weight"] = T([0.1, -0.1], (10, 32))
    weights["head.bias"] = T(0.1, (10,))
    return weights


def write(folder: Path) -> dict[str, Path]:
    """The checkpoints, by name."""
    save(
        folder / "step_8000.pt",
        {
            "model": network(poisoned=False),
            "optimizer": adam(7998),
            "scheduler": schedule(),
            "scaler": scaler(65536.0, tracker=211),
            "rng": {"torch": cpu_state()},
            "step": 8000,
        },
    )
    save(
        folder / "step_9000.pt",
        {
            "model": network(poisoned=True),
            "optimizer": adam(8320),
            "scaler": scaler(512.0, tracker=3),
            "rng": {"torch": cpu_state()},
            "step": 9000,
        },
    )
    lightning, _ = LAYOUTS["lightning"](folder)
    lightning.rename(folder / "lightning.ckpt")
    return {path.name: path for path in folder.iterdir() if path.is_file()}


class Read(CheckpointReader):
    """A checkpoint that has been read, under its name alone."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.name)
        found = inspect_in_child(str(path))
        self.reading = Reading(path=path.name, inspection=found, contents=Contents.of(found))


async def draw(picture: Picture, paths: dict[str, Path]) -> None:
    readers = [Read(paths[name]) for name in picture.checkpoints]
    app = InspectApp(InspectStart(readers=readers, look=picture.look))
    async with app.run_test(size=picture.size) as pilot:
        await pilot.pause(0.4)
        for key in picture.keys:
            await pilot.press("space" if key == " " else key)
            await pilot.pause(0.2)
        svg = app.export_screenshot(title="amptui")
        # Some renderers collapse blanks, also those that do not break.
        (HERE / f"{picture.name}.svg").write_text(
            svg.replace("<text ", '<text xml:space="preserve" '), encoding="utf-8"
        )
    print(f"drew {picture.name}")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = write(Path(folder))
        for picture in PICTURES:
            asyncio.run(draw(picture, paths))


if __name__ == "__main__":
    main()
