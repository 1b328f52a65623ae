"""Training curves of one or several logs: a figure (PNG, SVG) with matplotlib, or a drawing in the terminal without it.

The panels come from the schema. Colours are those of Okabe and Ito, which stay apart for colour-blind eyes. Several runs are told
apart by colour and mark, the fields of a panel by line style; a single run's fields by colour and line style.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from townlet.dto.evaluation import MEASURES, Scorecard
from townlet.errors import UsageError
from townlet.files import write_bytes
from townlet.optional import require
from townlet.telemetry.drawing import MARGIN, axis, chart, short, strip, thinned
from townlet.telemetry.schema import FIELDS, PANELS, RIVALRY_BINS, Panel, field
from townlet.telemetry.series import LogSeries, read_series
from townlet.types import Doubles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", ":", "-.")
SYMBOLS = ("o", "^", "s", "D", "v", "P", "X", "*")  # another count than the colours: a pair comes back after 56 runs
FORMATS = ("png", "svg")
POINTS = 2000  # per curve; longer logs are thinned to means
MARKED = 15  # symbols along a curve
APART = 20.0  # fields of a panel that differ by more than this factor share a scale that is linear near 0, logarithmic beyond


def panel_fields(panel: Panel) -> list[str]:
    return [item.name for item in FIELDS if item.panel == panel]


PLOTTED = ("epoch", "steps", *(item.name for item in FIELDS if item.panel))


def read_runs(paths: Sequence[Path | str], labels: Sequence[str] = ()) -> list[LogSeries]:
    """The logs to draw, with labels that differ."""
    if labels and len(labels) != len(paths):
        raise UsageError(f"{len(labels)} labels for {len(paths)} logs; give one --label per log or none")
    runs = [read_series(path, PLOTTED, label=label) for path, label in zip(paths, labels or [""] * len(paths))]
    names = [run.label for run in runs]
    if len(set(names)) < len(names):
        runs = [LogSeries(r.path, str(r.path), r.columns, r.histogram, r.reasons) for r in runs]
    return runs


# --- matplotlib ------------------------------------------------------------------------------------------------------


def plot_logs(paths: Sequence[Path | str], output: Path | str, *, labels: Sequence[str] = (), title: str = "") -> Path:
    """Write a PNG or SVG, by the ending of `output`."""
    return Picture(figure(read_runs(paths, labels), title=title)).save(output)


def image_kind(output: Path) -> str:
    kind = output.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise UsageError(
            f"{output} ends in {output.suffix or 'nothing'}; a plot is written as {' or '.join('.' + f for f in FORMATS)}"
        )
    return kind


def blank_figure(wide: float, tall: float, layout: Literal["constrained"] | None = "constrained") -> Figure:
    """An empty matplotlib Figure of this size in inches; never pyplot, so nothing is kept and no display is needed."""
    require("matplotlib", "drawing a figure")
    from matplotlib.figure import Figure

    return Figure(figsize=(wide, tall), layout=layout)


def plot_histograms(histograms: Mapping[str, Sequence[int]], output: Path | str, *, title: str) -> Path:
    """Counts over equal bins of [0, 1], a panel per name, as PNG or SVG."""
    drawn = blank_figure(9.0, 2.4 * ((len(histograms) + 1) // 2) + 0.6)
    drawn.suptitle(title)
    for index, (name, counts) in enumerate(histograms.items()):
        axes = drawn.add_subplot((len(histograms) + 1) // 2, 2, index + 1)
        edges = np.arange(len(counts)) / len(counts)
        axes.bar(edges, counts, width=0.9 / len(counts), align="edge", color=OKABE_ITO[index % len(OKABE_ITO)])
        axes.set_title(name, fontsize=10)
        axes.set_xlim(0.0, 1.0)
        axes.set_xlabel("value of the feature", fontsize=9)
        wide = max(counts, default=0) > 50 * max(1, min((count for count in counts if count), default=1))
        axes.set_ylabel("decisions, logarithmic" if wide else "decisions", fontsize=9)
        if wide:
            axes.set_yscale("log")
            axes.set_ylim(bottom=0.5)  # a single decision is seen
    return Picture(drawn).save(output)


class Picture:
    """A drawn figure: a notebook shows it, `save` writes it, `figure` is matplotlib's own."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure

    def save(self, output: Path | str) -> Path:
        """Write a PNG or SVG, by the ending of `output`."""
        output = Path(output)
        write_bytes(output, encoded(self.figure, image_kind(output)))
        return output

    def __repr__(self) -> str:
        titles = ", ".join(filter(None, (axes.get_title(loc="left") for axes in self.figure.axes)))
        return f"<Picture: {titles}; save(FILE) writes a PNG or SVG>"

    def _repr_png_(self) -> bytes:
        return encoded(self.figure, "png")


def bars(values: Mapping[str, float], *, title: str, unit: str) -> Figure:
    """A bar per name."""
    drawn, axes = _lines_of(list(values), title, unit)
    axes.barh(range(len(values)), list(values.values()), color=OKABE_ITO[0])
    return drawn


def dots(values: Mapping[str, Sequence[float]], *, title: str, unit: str) -> Figure:
    """A line per name: a dot per value, a stroke at their mean."""
    drawn, axes = _lines_of(list(values), title, unit)
    for place, found in enumerate(values.values()):
        colour = OKABE_ITO[place % len(OKABE_ITO)]
        axes.plot(found, [place] * len(found), "o", color=colour, alpha=0.6)
        if found:
            axes.plot([np.mean(found)], [place], "|", color=colour, markersize=22, markeredgewidth=2)
    return drawn


def _lines_of(names: Sequence[str], title: str, unit: str) -> tuple[Figure, Axes]:
    """An empty figure with a named line for each, the first on top."""
    drawn = blank_figure(9.0, 1.2 + 0.3 * len(names))
    axes = drawn.add_subplot()
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel(unit, fontsize=9)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
    axes.grid(True, axis="x", color="0.9", linewidth=0.6)
    return drawn, axes


def encoded(drawn: Figure, kind: str) -> bytes:
    """The figure as bytes; the same bytes for the same figure."""
    matplotlib = require("matplotlib", "drawing a figure")
    data = io.BytesIO()
    if drawn.get_layout_engine() is not None:  # a constrained layout moves a little with every drawing: settle it once
        drawn.draw_without_rendering()
        drawn.set_layout_engine("none")
    with matplotlib.rc_context({"svg.hashsalt": "townlet", "svg.fonttype": "none"}):
        drawn.canvas.print_figure(data, format=kind, dpi=120, metadata={"Date": None} if kind == "svg" else {"Software": None})
    return data.getvalue()


def figure(runs: Sequence[LogSeries], *, title: str = "") -> Figure:
    """The curves of every panel, and a strip of rivalry for each run."""
    panels = [panel for panel in PANELS if any(run.has(name) for run in runs for name in panel_fields(panel))]
    strips = [run for run in runs if np.isfinite(run.histogram).any()]
    rows = max(1, -(-len(panels) // 2))
    keys = -(-len(runs) // 6) if len(runs) > 1 else 0  # lines of the legend of runs
    tall = 2.8 * rows + 1.7 * len(strips) + 0.8 + 0.25 * keys  # inches
    drawn = blank_figure(12, tall, layout=None)
    heights = [2.8] * rows + [1.7] * len(strips)
    grid = drawn.add_gridspec(
        rows + len(strips),
        2,
        height_ratios=heights,
        left=0.065,
        right=0.945,
        top=1 - (0.75 + 0.25 * keys) / tall,
        bottom=0.5 / tall,
        hspace=0.62,
        wspace=0.16,
    )
    span = _span(runs)
    for index, panel in enumerate(panels):
        _draw_panel(drawn.add_subplot(grid[index // 2, index % 2]), panel, runs, span)
    most = max((float(np.nanmax(run.histogram)) for run in strips), default=1.0)  # one scale for all
    for index, run in enumerate(strips):
        axes = drawn.add_subplot(grid[rows + index, :])
        bar = _draw_strip(axes, run, most, several=len(runs) > 1)
        scale = drawn.colorbar(bar, ax=axes, pad=0.01, fraction=0.02)
        scale.set_label("share of decisions", fontsize=8)
        scale.ax.tick_params(labelsize=8)
    names = ", ".join(run.label for run in runs) if len(runs) <= 4 else f"{len(runs)} runs"
    drawn.suptitle(title or f"PPO training: {names}", fontsize=12, y=1 - 0.15 / tall)
    if keys:
        _name_runs(drawn, runs, tall)
    return drawn


def _look(index: int) -> dict[str, Any]:
    """How the curves of a run look beside those of others."""
    return {"color": OKABE_ITO[index % len(OKABE_ITO)], "marker": SYMBOLS[index % len(SYMBOLS)], "markersize": 4}


def _name_runs(drawn: Figure, runs: Sequence[LogSeries], tall: float) -> None:
    from matplotlib.lines import Line2D

    shown = [Line2D([], [], linewidth=1.3, label=run.label, **_look(index)) for index, run in enumerate(runs)]
    place = (0.5, 1 - 0.35 / tall)
    drawn.legend(handles=shown, ncols=6, fontsize=9, frameon=False, loc="upper center", bbox_to_anchor=place, borderaxespad=0.0)


def _span(runs: Sequence[LogSeries]) -> tuple[float, float]:
    """From 0 to the end of the longest run, with some room: the same for every panel."""
    last = max((float(np.nanmax(_x_axis(run))) for run in runs if len(run)), default=1.0)
    return -0.02 * last, 1.02 * last


def _x_axis(run: LogSeries) -> Doubles:
    return _drawable(run.column("steps")) if run.has("steps") else np.arange(1.0, len(run) + 1)


def _drawable(values: Doubles) -> Doubles:
    """Far enough within what a double holds for an axis to be longer than its largest value."""
    return np.clip(values, -1e300, 1e300)


def _draw_panel(axes: Axes, panel: Panel, runs: Sequence[LogSeries], span: tuple[float, float]) -> None:
    from matplotlib.ticker import EngFormatter, LogLocator

    names = [name for name in panel_fields(panel) if any(run.has(name) for run in runs)]
    for run_index, run in enumerate(runs):
        x = _x_axis(run)
        for index, name in enumerate(names):
            y = _drawable(run.column(name))
            there = np.isfinite(y)
            if not there.any():
                continue
            look = _look(run_index if len(runs) > 1 else index)
            if len(runs) > 1:
                look["label"] = "_" + run.label
            else:
                look |= {"label": name, "marker": "."}
            xs, ys = thinned(x[there], POINTS), thinned(y[there], POINTS)
            axes.plot(xs, ys, STYLES[index % len(STYLES)], linewidth=1.3, markevery=-(-len(xs) // MARKED), **look)
    if len(runs) > 1:  # the runs are named above all panels
        for index, name in enumerate(names):
            axes.plot([], [], STYLES[index % len(STYLES)], color="0.4", label=name)
    axes.set_title(panel, fontsize=10, loc="left")
    units = " · ".join(dict.fromkeys(unit for unit in (field(name).unit for name in names) if unit != "1")) or "value"
    axes.set_xlabel("decisions trained on", fontsize=8)
    axes.set_xlim(*span)
    axes.grid(True, color="0.9", linewidth=0.6)
    axes.tick_params(labelsize=8)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if panel == "throughput":
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))
        axes.yaxis.set_minor_locator(LogLocator(subs=range(2, 10) if high < 4 * low else (2, 5)))  # as many as do not overlap
        axes.yaxis.set_minor_formatter(EngFormatter(sep=""))
        axes.tick_params(which="minor", labelsize=7)
    elif small := _even_part(runs, names):
        axes.set_yscale("symlog", linthresh=small)
        units += f", logarithmic beyond ±{short(small)}"
    axes.set_ylabel(units, fontsize=8)
    axes.legend(fontsize=7, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, frameon=False, borderaxespad=0.2)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _even_part(runs: Sequence[LogSeries], names: Sequence[str]) -> float | None:
    """Where an even scale must end for the smallest field to be seen beside the largest; None when one even scale shows all."""
    largest = [max(float(np.nanmax(np.abs(run.column(name)))) for run in runs if run.has(name)) for name in names]
    if len(largest) < 2 or max(largest) <= APART * min(largest) or min(largest) == 0.0:
        return None
    return float(10.0 ** round(math.log10(min(largest))))


def _draw_strip(axes: Axes, run: LogSeries, most: float, *, several: bool) -> AxesImage:
    """Rivalry over training: one column per stretch of epochs, one row per bin, on a perceptually even scale."""
    from matplotlib.ticker import EngFormatter

    there = np.isfinite(run.histogram).all(axis=1)
    rows = np.stack([thinned(run.histogram[there, b], POINTS) for b in range(RIVALRY_BINS)])  # (B, T)
    x = _x_axis(run)[there]
    drawn = axes.imshow(
        rows,
        aspect="auto",
        origin="lower",
        cmap="cividis",
        vmin=0.0,
        vmax=most,
        interpolation="nearest",
        extent=(float(x[0]), float(x[-1] + 1e-9), 0, 1),
    )
    axes.set_title("highest rivalry felt" + (f": {run.label}" if several else ""), fontsize=10, loc="left")
    axes.set_ylabel("rivalry", fontsize=8)
    axes.set_xlabel("decisions trained on", fontsize=8)
    axes.tick_params(labelsize=8)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    return drawn


# --- characters ------------------------------------------------------------------------------------------------------


def terminal(runs: Sequence[LogSeries], *, width: int = 72) -> str:
    """The same panels, drawn with characters: one chart per field, runs over each other with their own marks."""
    wide = max(8, width - MARGIN - 3)
    lines: list[str] = []
    for panel in PANELS:
        for name in panel_fields(panel):
            there = [(run.label, run.column(name)) for run in runs if run.has(name)]
            if not there:
                continue
            unit = field(name).unit
            latest = ", ".join(short(float(values[np.isfinite(values)][-1])) for _, values in there)
            head = f"{panel}: {name}" + (f" [{unit}]" if unit not in ("", "1") else "") + f", latest {latest}"
            lines += [head, *chart(there, width=wide, height=7, margin=MARGIN, ends=_ends(runs)), ""]
    for run in runs:
        rows = run.histogram[np.isfinite(run.histogram).all(axis=1)]
        if len(rows):
            lines.append("highest rivalry felt" + (f": {run.label}" if len(runs) > 1 else "") + " (darker = more decisions)")
            labels = {0: "1.0", RIVALRY_BINS - 1: "0.0"}
            lines += [f"{labels.get(i, ''):>{MARGIN}} ┤{row}" for i, row in enumerate(strip(rows, wide))]
            lines += [*axis(wide, ends=_ends([run])), ""]
    return "\n".join(lines)


def _ends(runs: Sequence[LogSeries]) -> tuple[str, str]:
    """What stands below a chart: its first and its last epoch, of several runs their longest."""
    longest = max(runs, key=len)
    epochs = longest.column("epoch") if longest.has("epoch") else np.arange(1.0, len(longest) + 1)
    unequal = " (each run over the whole width)" if len({len(run) for run in runs}) > 1 else ""
    return f"epoch {short(float(epochs[0]))}{unequal}", f"epoch {short(float(epochs[-1]))}"


SCORECARD_PANELS = ("return", "founders", "conflicts", "self_sufficiency", "attendance", "lateness")


def plot_scorecard(card: Scorecard, output: Path | str) -> Path:
    """Write a PNG or SVG, by the ending of `output`."""
    return Picture(scorecard_figure(card)).save(output)


def scorecard_figure(card: Scorecard) -> Figure:
    rows = [(case, policy) for case in card.cases for policy in case.policies]
    drawn = blank_figure(12, 1.6 + 2 * (0.9 + 0.3 * len(rows)))
    drawn.suptitle(f"Scorecard: {card.suite}", fontsize=12)
    grid = drawn.subplots(2, 3, sharey=True)
    several = len(card.cases) > 1
    for axes, name in zip(grid.flat, SCORECARD_PANELS):
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
