"""Charts as inline SVG: nothing is fetched, colours follow the page's light or dark scheme."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 360, 200
LEFT, RIGHT, TOP, BOTTOM = 50, 10, 12, 30
SERIES_CLASSES = 6  # colours declared in the page's style


class Series(NamedTuple):
    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    marker: bool = False  # points instead of a line


class Estimate(NamedTuple):
    """A row of an interval chart."""

    name: str
    value: float
    low: float
    high: float


def line_chart(
    title: str, series: Sequence[Series], *, unit: str = "", x_label: str = "epoch", level: float | None = None
) -> str:
    """Lines over a common x; gaps where a value is missing; `level` draws a dashed reference."""
    drawn = [[(x, y) for x, y in zip(s.x, s.y) if y is not None and math.isfinite(y)] for s in series]
    points = [point for line in drawn for point in line]
    if not points:
        return ""
    ys = [y for _, y in points] + ([level] if level is not None else [])
    xs = [x for x, _ in points]
    ticks = _ticks(min(ys), max(ys))
    to_x, to_y = _scale(min(xs), max(xs), LEFT, WIDTH - RIGHT), _scale(ticks[0], ticks[-1], HEIGHT - BOTTOM, TOP)
    parts = [_grid(ticks, to_y, LEFT, WIDTH - RIGHT), _x_axis(min(xs), max(xs), to_x, x_label)]
    if level is not None:
        parts.append(f'<line class="level" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{to_y(level):.1f}" y2="{to_y(level):.1f}"/>')
    for number, (one, line) in enumerate(zip(series, drawn)):
        colour = f"s{(number + 1) % SERIES_CLASSES}"
        if one.marker or len(line) == 1:
            parts += [f'<circle class="{colour} dot" cx="{to_x(x):.1f}" cy="{to_y(y):.1f}" r="3"/>' for x, y in line]
        elif line:
            path = " ".join(f"{to_x(x):.1f},{to_y(y):.1f}" for x, y in line)
            parts.append(f'<polyline class="{colour} line" points="{path}"/>')
    return _figure(title, unit, "".join(parts), WIDTH, HEIGHT, [s.name for s in series] if len(series) > 1 else [])


def interval_chart(title: str, rows: Sequence[Estimate], *, unit: str = "") -> str:
    """One dot with its interval per row, on one scale."""
    if not rows:
        return ""
    height = TOP + 26 * len(rows) + BOTTOM
    left = 96
    ticks = _ticks(min(row.low for row in rows), max(row.high for row in rows))
    to_x = _scale(ticks[0], ticks[-1], left, WIDTH - RIGHT - 8)
    parts = []
    for tick in ticks:
        x = to_x(tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height - BOTTOM}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{height - BOTTOM + 16}" text-anchor="middle">{_number(tick)}</text>')
    for number, row in enumerate(rows):
        y, colour = TOP + 13 + 26 * number, f"s{number % SERIES_CLASSES}"
        parts.append(f'<text class="name" x="{left - 8}" y="{y + 4}" text-anchor="end">{escape(row.name)}</text>')
        parts.append(f'<line class="{colour} whisker" x1="{to_x(row.low):.1f}" x2="{to_x(row.high):.1f}" y1="{y}" y2="{y}"/>')
        parts.append(f'<circle class="{colour} dot" cx="{to_x(row.value):.1f}" cy="{y}" r="5"/>')
    return _figure(title, unit, "".join(parts), WIDTH, height, [])


def heat_strip(title: str, columns: Sequence[Sequence[float]], *, x: Sequence[float], unit: str = "") -> str:
    """Histograms side by side, one column per epoch, darker = more; the lowest bin is at the bottom."""
    if not columns:
        return ""
    bins = len(columns[0])
    width = (WIDTH - LEFT - RIGHT) / len(columns)
    cell = (HEIGHT - TOP - BOTTOM) / bins
    parts = []
    for number, column in enumerate(columns):
        total = sum(column) or 1.0
        for level, count in enumerate(column):
            share = math.sqrt(count / total)
            if share > 0:
                at_x, at_y = LEFT + number * width, HEIGHT - BOTTOM - (level + 1) * cell
                parts.append(
                    f'<rect class="heat" x="{at_x:.2f}" y="{at_y:.2f}" width="{width + 0.3:.2f}" height="{cell + 0.3:.2f}" '
                    f'fill-opacity="{share:.3f}"/>'
                )
    for value in (0.0, 0.5, 1.0):
        y = HEIGHT - BOTTOM - value * (HEIGHT - TOP - BOTTOM)
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    parts.append(_x_axis(min(x), max(x), _scale(min(x), max(x), LEFT, WIDTH - RIGHT), "epoch"))
    return _figure(title, unit, "".join(parts), WIDTH, HEIGHT, [])


def _figure(title: str, unit: str, body: str, width: int, height: int, names: Sequence[str]) -> str:
    shown = f"{escape(title)} <small>{escape(unit)}</small>" if unit else escape(title)
    key = "".join(f'<span><i class="s{(i + 1) % SERIES_CLASSES}"></i>{escape(name)}</span>' for i, name in enumerate(names))
    legend = f'<div class="key">{key}</div>' if key else ""
    return (
        f'<figure><figcaption>{shown}</figcaption>{legend}<svg viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}">{body}</svg></figure>'
    )


def _grid(ticks: Sequence[float], to_y: Callable[[float], float], left: float, right: float) -> str:
    parts = []
    for tick in ticks:
        y = to_y(tick)
        parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{_number(tick)}</text>')
    return "".join(parts)


def _x_axis(low: float, high: float, to_x: Callable[[float], float], label: str) -> str:
    y = HEIGHT - BOTTOM + 16
    ends = f'<text class="tick" x="{to_x(low):.1f}" y="{y}">{_number(low)}</text>'
    if high > low:
        ends += f'<text class="tick" x="{to_x(high):.1f}" y="{y}" text-anchor="end">{_number(high)}</text>'
    middle = (LEFT + WIDTH - RIGHT) / 2
    return ends + f'<text class="tick" x="{middle}" y="{y}" text-anchor="middle">{escape(label)}</text>'


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    span = high - low
    return lambda value: start + (value - low) / span * (end - start) if span else (start + end) / 2


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers that enclose the data, about four steps."""
    if high - low < 1e-12 * max(abs(low), abs(high), 1e-12):
        low, high = low - (abs(low) or 1.0) * 0.5, high + (abs(high) or 1.0) * 0.5
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(step * k, 12) for k in range(first, last + 1)]


def _number(value: float) -> str:
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if abs(value) >= 1e4 else f"{value:.6g}"
