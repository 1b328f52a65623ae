"""The learning curves of `results/*.json` in one picture.

python benchmarks/learning/curves.py [--results DIR]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from townlet import files

PANELS = {  # file -> title, arms (key, label, colour), bars
    "cartpole": ("CartPole-v1", [("seeds", "PPO", "tab:blue")], [475]),
    "masking": (
        "80 actions, 60 invalid",
        [("masked", "masked", "tab:blue"), ("unmasked", "unmasked", "tab:red")],
        [90, 50],
    ),
    "recurrence": ("CartPole-v1 without velocities", [("gru", "GRU", "tab:blue"), ("plain", "no memory", "tab:red")], [400, 200]),
}


def draw(results: Path) -> Figure:
    figure = Figure(figsize=(13, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (name, (title, arms, bars)) in zip(figure.subplots(1, len(PANELS)), PANELS.items(), strict=True):
        data: dict[str, Any] = files.read_json(results / f"{name}.json", limit=64 << 20)
        for key, label, colour in arms:
            for i, row in enumerate(data[key]):
                points = [(point["steps"] / 1000, point["return"]) for point in row["curve"]]
                axes.plot(*zip(*points, strict=True), color=colour, alpha=0.8, label=label if i == 0 else None)
        for bar in bars:
            axes.axhline(bar, color="grey", linestyle=":", linewidth=1)
        axes.set(title=title, xlabel="thousand environment steps", ylabel="return while training")
        axes.legend(loc="best", frameon=False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    given = parser.parse_args()
    draw(given.results).savefig(given.results / "curves.png", dpi=110)


if __name__ == "__main__":
    main()
