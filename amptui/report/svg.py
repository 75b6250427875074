"""Plots as inline SVG: no scripts, nothing loaded, every text escaped.

Values that are not finite leave a gap in the line and a red × at the edge; the line is never joined across them. Of
many iterations each column of the picture keeps the lowest and the highest value, so that no spike is lost.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from amptui.report.axes import Axis, axis_for, step_ticks
from amptui.report.plots import Curve, Lines, Plot, Strip, described
from amptui.text import safe_text

_WIDTH, _HEIGHT = 720, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 12, 26, 34
_STRIP = 26
_CROSS = 4


@dataclass(frozen=True)
class _Frame:
    """The plot's area in the picture, with both axes."""

    first: int
    last: int
    y: Axis
    height: int = _HEIGHT

    def across(self, step: float) -> float:
        span = max(1, self.last - self.first)
        return _LEFT + (step - self.first) / span * (_WIDTH - _LEFT - _RIGHT)

    def up(self, value: float) -> float:
        return self.at(self.y.place(value))

    def at(self, place: float) -> float:
        """From 0 at the bottom to 1 at the top."""
        return self.bottom - place * (self.bottom - _TOP)

    @property
    def bottom(self) -> int:
        return self.height - _BOTTOM


def svg(plot: Plot, key: str) -> str:
    """The picture; `key` makes its ids unique within a page."""
    height, drawn = _lines(plot) if isinstance(plot, Lines) else _strips(plot.strips)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-labelledby="{key}-title {key}-desc">'
        f'<title id="{key}-title">{_text(plot.title)}</title>'
        f'<desc id="{key}-desc">{_text(described(plot))}</desc>{"".join(drawn)}</svg>'
    )


# Curves.


def _lines(plot: Lines) -> tuple[int, list[str]]:
    values = [value for curve in plot.curves for value in curve.values]
    steps = [step for curve in plot.curves for step in curve.steps] or [0]
    frame = _Frame(min(steps), max(steps), axis_for(values, plot.scale))
    drawn = [*_grid(frame), *_limit(plot, frame)]
    for curve in sorted(plot.curves, key=lambda curve: not curve.faint):  # what it is held against lies below
        drawn += _curve(curve, frame, stairs=plot.stairs)
    return _HEIGHT, [*drawn, *_legend(plot)]


def _grid(frame: _Frame) -> Iterator[str]:
    for place, label in frame.y.ticks():
        y = frame.at(place)
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_text(label)}</text>'
    yield from _steps_below(frame)


def _steps_below(frame: _Frame, *, columns: bool = False) -> Iterator[str]:
    """The axis of iterations. `columns`: an iteration has a width, and its number stands below the middle of it."""
    y = frame.bottom
    yield f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
    last = frame.last - 1 if columns else frame.last
    for step in step_ticks(frame.first, last):
        x = frame.across(step + 0.5 if columns else step)
        yield f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 4}"/>'
        yield f'<text class="tick" x="{x:.1f}" y="{y + 17}" text-anchor="middle">{step:,}</text>'
    yield f'<text class="tick" x="{_WIDTH - _RIGHT}" y="{y + 31}" text-anchor="end">iteration</text>'


def _limit(plot: Lines, frame: _Frame) -> Iterator[str]:
    if plot.limit is None or not frame.y.holds(plot.limit[1]):
        return
    name, level = plot.limit
    y = frame.up(level)
    yield f'<line class="limit" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    yield f'<text class="tick" x="{_WIDTH - _RIGHT}" y="{y - 4:.1f}" text-anchor="end">{_text(name)}</text>'


def _curve(curve: Curve, frame: _Frame, *, stairs: bool) -> Iterator[str]:
    kind = "faint" if curve.faint else "trial"
    points, bad = _thinned(curve, frame)
    for run in points:
        if len(run) == 1:
            yield f'<circle class="{kind} dot" cx="{run[0][0]:.1f}" cy="{run[0][1]:.1f}" r="2"/>'
            continue
        path = _stairs(run) if stairs else run
        yield f'<polyline class="{kind}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in path)}"/>'
    for x, downwards in bad:
        yield _cross(x, frame.bottom - _CROSS - 2 if downwards else _TOP + _CROSS + 2, kind)


def _stairs(run: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    yield run[0]
    for (_, before), (x, y) in itertools.pairwise(run):
        yield (x, before)
        yield (x, y)


def _cross(x: float, y: float, kind: str) -> str:
    left, right, top, bottom = x - _CROSS, x + _CROSS, y - _CROSS, y + _CROSS
    return (
        f'<path class="bad {kind}" d="M{left:.1f} {top:.1f}L{right:.1f} {bottom:.1f}'
        f'M{left:.1f} {bottom:.1f}L{right:.1f} {top:.1f}"/>'
    )


_Point = tuple[float, float]


def _thinned(curve: Curve, frame: _Frame) -> tuple[list[list[_Point]], list[tuple[float, bool]]]:
    """Runs of points between gaps, and the crosses: their place across, and whether they belong at the lower edge.

    At most the lowest and the highest value of each column of a pixel are kept, in their order.
    """
    runs: list[list[_Point]] = [[]]
    crosses: dict[tuple[int, bool], float] = {}
    column: list[_Point] = []

    def close() -> None:
        if len(column) > 2:
            low, high = max(column, key=lambda point: point[1]), min(column, key=lambda point: point[1])
            kept = sorted({low, high})
        else:
            kept = column
        runs[-1].extend(kept)
        column.clear()

    for step, value in zip(curve.steps, curve.values, strict=True):
        x = frame.across(step)
        if not math.isfinite(value):
            close()
            crosses.setdefault((int(x), value == -math.inf), x)
            if runs[-1]:
                runs.append([])
            continue
        if column and int(column[0][0]) != int(x):
            close()
        column.append((x, frame.up(value)))
    close()
    return [run for run in runs if run], [(x, downwards) for (_, downwards), x in crosses.items()]


def _legend(plot: Lines) -> Iterator[str]:
    x = float(_LEFT)
    for curve in plot.curves:
        kind = "faint" if curve.faint else "trial"
        yield f'<line class="{kind}" x1="{x:.0f}" x2="{x + 22:.0f}" y1="11" y2="11"/>'
        yield f'<text class="legend" x="{x + 28:.0f}" y="15">{_text(curve.label)}</text>'
        x += 28 + 7 * len(curve.label) + 24
    if any(not math.isfinite(value) for curve in plot.curves for value in curve.values):
        yield _cross(x + 6, 11, "trial")
        yield f'<text class="legend" x="{x + 16:.0f}" y="15">not finite</text>'


# Strips.


def _strips(strips: Sequence[Strip]) -> tuple[int, list[str]]:
    """Per update a row of bars: applied low, skipped high and hollow, withheld high and filled."""
    height = _TOP + _STRIP * max(1, len(strips)) + _BOTTOM
    steps = [step for strip in strips for step in strip.steps] or [0]
    frame = _Frame(min(steps), max(steps) + 1, Axis("linear", 0.0, 1.0), height)
    drawn = list(_strip_legend(strips))
    for row, strip in enumerate(strips):
        base = _TOP + _STRIP * (row + 1) - 4
        drawn.append(
            f'<text class="tick" x="{_LEFT - 8}" y="{base}" text-anchor="end">{_text(strip.label[:10])}</text>'
        )
        drawn += _bars(strip, frame, base)
    return height, [*drawn, *_steps_below(frame, columns=True)]


_BAR = {"applied": 8, "no gradient": 3, "skipped": 15, "withheld": 15}


def _bars(strip: Strip, frame: _Frame, base: int) -> Iterator[str]:
    """One bar for each iteration, or for each column of the picture, which then shows what is worst in it."""
    worst: dict[int, str] = {}
    order = list(_BAR)
    columns = min(frame.last - frame.first, (_WIDTH - _LEFT - _RIGHT) // 2)
    for step, taken in zip(strip.steps, strip.taken, strict=True):
        column = (step - frame.first) * columns // max(1, frame.last - frame.first)
        if column not in worst or order.index(taken) > order.index(worst[column]):
            worst[column] = taken
    width = (_WIDTH - _LEFT - _RIGHT) / max(1, columns)
    bar = min(12.0, max(1.0, width - 1.5))
    for column, taken in worst.items():
        yield _bar(taken, _LEFT + column * width + (width - bar) / 2, base, bar)


def _bar(taken: str, x: float, base: int, width: float) -> str:
    height = _BAR[taken]
    kind = taken.replace(" ", "-")
    return f'<rect class="{kind}" x="{x:.1f}" y="{base - height}" width="{width:.1f}" height="{height}"/>'


def _strip_legend(strips: Sequence[Strip]) -> Iterator[str]:
    x = float(_LEFT)
    present = {taken for strip in strips for taken in strip.taken}
    for taken in (kind for kind in ("applied", "skipped", "withheld", "no gradient") if kind in present):
        yield _bar(taken, x, 16, 8)
        yield f'<text class="legend" x="{x + 14:.0f}" y="15">{taken}</text>'
        x += 14 + 7 * len(taken) + 24


def _text(value: str) -> str:
    return escape(safe_text(value, 20_000))
