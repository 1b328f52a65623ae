"""Drawings made of characters: tables, sparklines, line charts and shaded strips, for the terminal and for Markdown."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from townlet.types import Doubles

BARS = "▁▂▃▄▅▆▇█"
SHADES = " ░▒▓█"
MARKS = "●▲■◆✚✖"  # one per run: told apart without colour
SEVERAL = "∗"  # where runs coincide
MARGIN = 9  # columns left of the axis, so that charts stand in line
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # braille dots by row and column of a cell


def short(value: float) -> str:
    """A number in at most eight characters or so."""
    if math.isnan(value):
        return "–"
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1e9 or size < 1e-4:
        return f"{value:.2e}"
    if size >= 1e4:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: Sequence[int] = (0,)) -> list[str]:
    """Columns as wide as they need be, numbers to the right, the columns named by `left` to the left."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        cells = (cell.ljust(width) if i in left else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths)))
        return "  ".join(cells).rstrip()

    return [line(head), "  ".join("─" * width for width in widths), *(line(row) for row in rows)]


def pipes(head: Sequence[str], rows: Iterable[Sequence[object]], *, right: Collection[int] = ()) -> list[str]:
    """A table in Markdown, the columns named by `right` to the right."""
    rule = ["---:" if i in right else "---" for i in range(len(head))]
    texts = ([str(cell).replace("|", "\\|") for cell in line] for line in (head, rule, *rows))
    return ["|" + "|".join(f" {text} " if text else " " for text in line) + "|" for line in texts]


def thinned(values: ArrayLike, width: int) -> Doubles:
    """At most `width` means of neighbouring values; a stretch without a number stays NaN."""
    array = np.asarray(values, dtype=np.float64)
    array = np.where(np.isfinite(array), array, np.nan)
    if array.size <= width:
        return array
    edges = np.linspace(0, array.size, width + 1).round().astype(int)
    parts = (array[a:b] for a, b in pairwise(edges))
    return np.array([part[np.isfinite(part)].mean() if np.isfinite(part).any() else np.nan for part in parts])


def sparkline(values: ArrayLike, width: int = 30) -> str:
    array = thinned(values, width)
    finite = array[np.isfinite(array)]
    if finite.size == 0:
        return ""
    low, high = float(finite.min()), float(finite.max())
    if not math.isfinite(high - low):  # numbers near the largest there are
        return sparkline(array / 2, width)
    span, top = high - low, len(BARS) - 1
    levels = (3 if not span or math.isnan(value) else round((value - low) / span * top) for value in array.tolist())
    return "".join(" " if math.isnan(value) else BARS[level] for value, level in zip(array, levels))


def strip(rows: Doubles, width: int = 60) -> list[str]:
    """A heat strip: one text line per column of `rows` (T, B), the last bin on top; darker = more."""
    shown = np.stack([thinned(rows[:, b], width) for b in range(rows.shape[1])])  # (B, width)
    shown = shown[:, [i * shown.shape[1] // width for i in range(width)]]  # a short log is stretched
    top = float(np.nanmax(shown)) if np.isfinite(shown).any() else 0.0
    lines = []
    for row in shown[::-1]:
        shares = [0.0 if math.isnan(v) or not 0.0 < top < math.inf else min(1.0, max(0.0, v / top)) for v in row.tolist()]
        levels = [round(share**0.7 * (len(SHADES) - 1)) for share in shares]
        lines.append("".join(SHADES[level] for level in levels))
    return lines


def axis(width: int, margin: int = MARGIN, ends: tuple[str, str] | None = None) -> list[str]:
    """The line below a drawing and, when given, what stands at its two ends."""
    lines = [" " * margin + " └" + "─" * width]
    if ends is not None:
        first, last = ends
        lines.append(" " * margin + "  " + first + last.rjust(width - len(first)))
    return lines


def chart(
    series: Sequence[tuple[str, ArrayLike]],
    *,
    width: int = 60,
    height: int = 8,
    margin: int = 0,
    ends: tuple[str, str] | None = None,
) -> list[str]:
    """Line charts over a common scale: one curve in braille dots, several told apart by their marks."""
    thin = [(label, thinned(values, width * 2 if len(series) == 1 else width)) for label, values in series]
    finite = np.concatenate([values[np.isfinite(values)] for _, values in thin])
    if finite.size == 0:
        return ["(no numbers)"]
    low, high = float(finite.min()), float(finite.max())
    if not math.isfinite(high - low):  # numbers near the largest there are: half of each is drawn
        halves = [(label, values / 2) for label, values in thin]
        return chart(halves, width=width, height=height, margin=margin, ends=ends)
    if high == low:
        low, high = low - (abs(low) * 0.1 or 1.0), high + (abs(high) * 0.1 or 1.0)
    rows = _braille(thin[0][1], low, high, width, height) if len(thin) == 1 else _marked(thin, low, high, width, height)
    labels = [short(high), *[""] * (height - 2), short(low)] if height > 1 else [short(high)]
    margin = max(margin, *(len(label) for label in labels))
    lines = [f"{label:>{margin}} ┤{row}" for label, row in zip(labels, rows)]
    lines += axis(width, margin, ends)
    if len(thin) > 1:
        marks = [f"{MARKS[i % len(MARKS)]} {label}" for i, (label, _) in enumerate(thin)]
        together = [f"{SEVERAL} several"] if any(SEVERAL in row for row in rows) else []
        lines.append(" " * margin + "  " + "   ".join(marks + together))
    return lines


def _spread(count: int, slots: int) -> list[int]:
    """Slots of `count` points over the whole width."""
    return [round(i * (slots - 1) / max(1, count - 1)) for i in range(count)]


def _braille(values: Doubles, low: float, high: float, width: int, height: int) -> list[str]:
    cells = np.zeros((height, width), dtype=int)
    last: tuple[int, int] | None = None
    for x, value in zip(_spread(len(values), width * 2), values):
        if math.isnan(value):
            last = None
            continue
        y = round((high - value) / (high - low) * (height * 4 - 1))
        for dot_x, dot_y in _line(last or (x, y), (x, y)):
            cells[dot_y // 4, dot_x // 2] |= DOTS[dot_y % 4][dot_x % 2]
        last = (x, y)
    return ["".join(chr(0x2800 + int(cell)) for cell in row).rstrip("\u2800") for row in cells]


def _line(a: tuple[int, int], b: tuple[int, int]) -> list[tuple[int, int]]:
    steps = max(abs(b[0] - a[0]), abs(b[1] - a[1]), 1)
    return [(round(a[0] + (b[0] - a[0]) * i / steps), round(a[1] + (b[1] - a[1]) * i / steps)) for i in range(steps + 1)]


def _marked(series: Sequence[tuple[str, Doubles]], low: float, high: float, width: int, height: int) -> list[str]:
    cells = [[" "] * width for _ in range(height)]
    for index, (_, values) in enumerate(series):
        for x, value in zip(_spread(len(values), width), values):
            if not math.isnan(value):
                row = cells[round((high - value) / (high - low) * (height - 1))]
                row[x] = MARKS[index % len(MARKS)] if row[x] == " " else SEVERAL
    return ["".join(row).rstrip() for row in cells]
