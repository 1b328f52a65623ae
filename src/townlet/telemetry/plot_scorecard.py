"""A scorecard as a figure: one panel per measure, one dot with its interval per policy and case."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from townlet.dto.evaluation import MEASURES, Scorecard
from townlet.errors import UsageError
from townlet.files import write_bytes
from townlet.telemetry.plot import FORMATS, OKABE_ITO, figure

PANELS = ("return", "founders", "conflicts", "self_sufficiency", "attendance", "lateness")


def plot_scorecard(card: Scorecard, output: Path | str) -> Path:
    """Write a PNG or SVG, by the ending of `output`."""
    output = Path(output)
    kind = output.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise UsageError(
            f"{output} ends in {output.suffix or 'nothing'}; a plot is written as {' or '.join('.' + f for f in FORMATS)}"
        )
    data = io.BytesIO()
    dated = {"Date": None} if kind == "svg" else {"Software": None}  # the same bytes for the same card
    scorecard_figure(card).canvas.print_figure(data, format=kind, dpi=120, metadata=dated)
    write_bytes(output, data.getvalue())
    return output


def scorecard_figure(card: Scorecard) -> Any:
    drawn = figure((), title=f"Scorecard: {card.suite}")
    rows = [(case, policy) for case in card.cases for policy in case.policies]
    drawn.set_size_inches(12, 1.6 + 2 * (0.9 + 0.3 * len(rows)))
    grid = drawn.subplots(2, 3, sharey=True)
    several = len(card.cases) > 1
    for axes, name in zip(grid.flat, PANELS):
        for place, (_, policy) in enumerate(rows):
            measure, colour = policy.measures[name], OKABE_ITO[card.policies.index(policy.name) % len(OKABE_ITO)]
            if measure.mean is None:
                continue
            if measure.low is not None and measure.high is not None:
                axes.plot([measure.low, measure.high], [place, place], color=colour, linewidth=2.5, solid_capstyle="round")
            axes.plot([measure.mean], [place], "o", color=colour, markersize=6)
        spec = MEASURES[name]
        arrow = {1: "more is better", -1: "less is better", 0: ""}[spec.better]
        axes.set_title(f"{name.replace('_', ' ')} ({arrow})", fontsize=10, loc="left")
        axes.set_xlabel(spec.unit, fontsize=8)
        axes.grid(True, axis="x", color="0.9", linewidth=0.6)
        axes.tick_params(labelsize=8)
    names = [f"{case.name}: {policy.name}" if several else policy.name for case, policy in rows]
    grid.flat[0].set_yticks(range(len(rows)), names)
    grid.flat[0].set_ylim(len(rows) - 0.5, -0.5)
    return drawn
