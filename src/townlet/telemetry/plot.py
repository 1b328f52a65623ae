"""Training curves of one or several logs: a figure (PNG, SVG) with matplotlib, or a drawing in the terminal without it.

The panels come from the schema. Colours are those of Okabe and Ito, which stay apart for colour-blind eyes; runs are told apart
by colour, fields within a run by line style.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from townlet.errors import UsageError
from townlet.files import write_bytes
from townlet.optional import require
from townlet.telemetry.drawing import chart, short, strip, thinned
from townlet.telemetry.schema import FIELDS, PANELS, RIVALRY_BINS, Panel, field
from townlet.telemetry.series import Floats, LogSeries, read_series

OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", ":", "-.")
FORMATS = ("png", "svg")
POINTS = 2000  # per curve; longer logs are thinned to means
FEW = 60  # points up to which each is marked
STRIP = "rivalry_histogram"


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
    output = Path(output)
    write_bytes(output, image(read_runs(paths, labels), _kind(output), title=title))
    return output


def _kind(output: Path) -> str:
    kind = output.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise UsageError(
            f"{output} ends in {output.suffix or 'nothing'}; a plot is written as {' or '.join('.' + f for f in FORMATS)}"
        )
    return kind


def plot_histograms(histograms: Mapping[str, Sequence[int]], output: Path | str, *, title: str = "") -> Path:
    """Counts over equal bins of [0, 1], a panel per name, as PNG or SVG."""
    output = Path(output)
    kind = _kind(output)
    require("matplotlib", "drawing a figure")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(9.0, 2.4 * ((len(histograms) + 1) // 2) + 0.6), layout="constrained")
    FigureCanvasAgg(drawn)
    drawn.suptitle(title)
    for index, (name, counts) in enumerate(histograms.items()):
        axes = drawn.add_subplot((len(histograms) + 1) // 2, 2, index + 1)
        edges = np.arange(len(counts)) / len(counts)
        axes.bar(edges, counts, width=0.9 / len(counts), align="edge", color=OKABE_ITO[index % len(OKABE_ITO)])
        axes.set_title(name, fontsize=10)
        axes.set_xlim(0.0, 1.0)
        axes.set_ylabel("decisions")
        if max(counts, default=0) > 50 * max(1, min((count for count in counts if count), default=1)):
            axes.set_yscale("log")
    write_bytes(output, _encoded(drawn, kind))
    return output


def image(runs: Sequence[LogSeries], kind: str = "png", *, title: str = "") -> bytes:
    """The figure as bytes; the same bytes for the same logs."""
    return _encoded(figure(runs, title=title), kind)


def _encoded(drawn: Any, kind: str) -> bytes:
    matplotlib = require("matplotlib", "drawing a figure")
    data = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "townlet", "svg.fonttype": "none"}):
        drawn.canvas.print_figure(data, format=kind, dpi=120, metadata={"Date": None} if kind == "svg" else {"Software": None})
    return data.getvalue()


def figure(runs: Sequence[LogSeries], *, title: str = "") -> Any:
    """A matplotlib Figure; never pyplot, so nothing is kept and no display is needed."""
    require("matplotlib", "drawing a figure")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = [panel for panel in PANELS if any(run.has(name) for run in runs for name in panel_fields(panel))]
    strips = [run for run in runs if np.isfinite(run.histogram).any()]
    rows = max(1, -(-len(panels) // 2))
    tall = 2.8 * rows + 1.7 * len(strips) + 0.8  # inches
    drawn = Figure(figsize=(12, tall))
    FigureCanvasAgg(drawn)
    heights = [2.8] * rows + [1.7] * len(strips)
    grid = drawn.add_gridspec(
        rows + len(strips),
        2,
        height_ratios=heights,
        left=0.065,
        right=0.945,
        top=1 - 0.75 / tall,
        bottom=0.5 / tall,
        hspace=0.62,
        wspace=0.16,
    )
    for index, panel in enumerate(panels):
        _draw_panel(drawn.add_subplot(grid[index // 2, index % 2]), panel, runs)
    for index, run in enumerate(strips):
        axes = drawn.add_subplot(grid[rows + index, :])
        bar = _draw_strip(axes, run, several=len(runs) > 1)
        scale = drawn.colorbar(bar, ax=axes, pad=0.01, fraction=0.02)
        scale.set_label("share of decisions", fontsize=8)
        scale.ax.tick_params(labelsize=8)
    drawn.suptitle(title or "PPO training: " + ", ".join(run.label for run in runs), fontsize=12, y=1 - 0.15 / tall)
    return drawn


def _x_axis(run: LogSeries) -> Floats:
    return run.column("steps") if run.has("steps") else np.arange(1.0, len(run) + 1)


def _draw_panel(axes: Any, panel: Panel, runs: Sequence[LogSeries]) -> None:
    from matplotlib.ticker import EngFormatter

    names = [name for name in panel_fields(panel) if any(run.has(name) for run in runs)]
    for run_index, run in enumerate(runs):
        x = _x_axis(run)
        for index, name in enumerate(names):
            y = run.column(name)
            there = np.isfinite(y)
            if not there.any():
                continue
            several = len(runs) > 1
            colour = OKABE_ITO[(run_index if several else index) % len(OKABE_ITO)]
            style = STYLES[index % len(STYLES)]
            label = name if not several else run.label if index == 0 else "_"
            axes.plot(
                thinned(x[there], POINTS),
                thinned(y[there], POINTS),
                style,
                color=colour,
                linewidth=1.3,
                marker="." if there.sum() <= FEW else None,
                markersize=4,
                label=label,
            )
    if len(runs) > 1:  # line styles in grey, after the runs in colour
        for index, name in enumerate(names):
            axes.plot([], [], STYLES[index % len(STYLES)], color="0.4", label=name)
    axes.set_title(panel, fontsize=10, loc="left")
    axes.set_ylabel(
        " · ".join(dict.fromkeys(unit for unit in (field(name).unit for name in names) if unit != "1")) or "value", fontsize=8
    )
    axes.set_xlabel("decisions trained on", fontsize=8)
    axes.grid(True, color="0.9", linewidth=0.6)
    axes.tick_params(labelsize=8)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if panel == "throughput":
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))
        axes.yaxis.set_minor_formatter(EngFormatter(sep=""))
        axes.tick_params(which="minor", labelsize=7)
    axes.legend(fontsize=7, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, frameon=False, borderaxespad=0.2)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _draw_strip(axes: Any, run: LogSeries, *, several: bool) -> Any:
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


def terminal(runs: Sequence[LogSeries], *, width: int = 72, height: int = 7, panels: Iterable[Panel] = PANELS) -> str:
    """The same panels, drawn with characters: one chart per field, runs over each other with their own marks."""
    lines: list[str] = []
    for panel in panels:
        for name in panel_fields(panel):
            there = [(run.label, run.column(name)) for run in runs if run.has(name)]
            if not there:
                continue
            unit = field(name).unit
            latest = ", ".join(short(float(values[np.isfinite(values)][-1])) for _, values in there)
            head = f"{panel}: {name}" + (f" [{unit}]" if unit not in ("", "1") else "") + f", latest {latest}"
            lines += [head, *chart(there, width=max(8, width - 12), height=height), ""]
    for run in runs:
        rows = run.histogram[np.isfinite(run.histogram).all(axis=1)]
        if len(rows):
            lines.append("highest rivalry felt" + (f": {run.label}" if len(runs) > 1 else "") + " (darker = more decisions)")
            drawn = strip(rows, max(8, width - 12))
            labels = {0: "1.0", RIVALRY_BINS - 1: "0.0"}
            lines += [f"{labels.get(i, ''):>8} ┤{row}" for i, row in enumerate(drawn)]
            lines += [" " * 9 + "└" + "─" * (max(8, width - 12)), ""]
    return "\n".join(lines)
