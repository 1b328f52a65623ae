"""The town learns: return and conflicts of the main study's seeds as they train, and the trade-off between the two.

Reads the run folders and results of `townlet study benchmarks/learning/town_day.yaml`; writes results/town_day_curves.json and
docs/images/learning.png. Without run folders the data that are there are drawn again.

    python benchmarks/learning/town_curves.py [--runs runs/studies]
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from townlet import files
from townlet.studies.runner import finished
from townlet.studies.spec import load_spec
from townlet.telemetry.ndjson import read_records

HERE = Path(__file__).parent
RESULTS, PICTURE = HERE / "results", HERE.parents[1] / "docs" / "images" / "learning.png"
LIMIT = 64 << 20
MEASURES = {"return": "return per resident-day", "conflicts": "conflicts per resident-day"}
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#666666"


def curve(run: Path) -> list[dict[str, float]]:
    """Evaluations of one anneal run: decisions and seconds of PPO so far, and the measures."""
    seconds, spent = [(0.0, 0.0)], 0.0
    for record in read_records(run / "ppo.ndjson"):
        spent += record["epoch_duration_sec"]
        seconds.append((record["steps"], spent))
    points = []
    for stage in files.read_json(run / "summary.json", limit=LIMIT)["stages"]:
        seen = [*(stage["ppo"] or {}).get("evaluations", []), stage["evaluation"]] if stage["ppo"] else [stage["evaluation"]]
        for point in seen:
            last = stage["ppo"]["steps"] if stage["ppo"] and point is stage["evaluation"] else point["steps"]
            row = {"steps": last, "seconds": max(s for steps, s in seconds if steps <= last)}
            points.append(row | {name: point["measures"][name]["value"] for name in MEASURES})
    return [points for _, points in sorted({row["steps"]: row for row in points}.items())]


def learning(axes: Axes, data: dict[str, Any], name: str) -> None:
    for i, points in enumerate(data["seeds"].values()):
        minutes = [row["seconds"] / 60 for row in points]
        label = "trained, one line a seed" if i == 0 else None
        axes.plot(minutes, [row[name] for row in points], color=BLUE, alpha=0.7, marker=".", label=label)
    for kind, style in (("scripted", "--"), ("random", ":")):
        axes.axhline(data[kind][name], color=ORANGE if kind == "scripted" else GREY, linestyle=style, label=kind)
    axes.set(xlabel="minutes of PPO, one thread", ylabel=MEASURES[name], title=f"town_day: {name} while training")
    if name == "return":  # one legend for both
        axes.legend(frameon=False, loc="center")


def tradeoff(axes: Axes, data: dict[str, Any]) -> None:
    arms: dict[float, list[tuple[float, float]]] = defaultdict(list)
    for found in finished(load_spec(HERE / "tradeoff.yaml"), RESULTS):
        weight = float(found.arm.removeprefix("w").replace("_", "."))
        arms[weight].append((found.measures["conflicts"].mean, found.measures["return"].mean))
    middle = []
    for i, (weight, points) in enumerate(sorted(arms.items())):
        axes.scatter(*zip(*points, strict=True), color=BLUE, alpha=0.5, s=18)
        x, y = (sum(column) / len(points) for column in zip(*points, strict=True))
        middle.append((x, y))
        axes.annotate(f"weight {weight:g}", (x, y), textcoords="offset points", xytext=(0, 12 if i % 2 else -26), ha="center")
    axes.plot(*zip(*middle, strict=True), color=BLUE, marker="o", label="mean of five seeds")
    axes.scatter([data["scripted"]["conflicts"]], [data["scripted"]["return"]], color=ORANGE, marker="s", label="scripted")
    axes.margins(x=0.12, y=0.12)
    axes.set(xlabel=MEASURES["conflicts"], ylabel=MEASURES["return"], title="what rewards.conflict_weight buys")
    axes.legend(frameon=False, loc="best")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/studies/town_day"))
    given = parser.parse_args()
    path = RESULTS / "town_day_curves.json"
    if given.runs.is_dir():
        seeds = {run.name.split("_")[1]: curve(run) for run in sorted(given.runs.glob("trained_*"))}
        anneal = files.read_json(next(given.runs.glob("trained_*")) / "anneal.json", limit=LIMIT)
        lines = {kind: {name: anneal[kind][name]["value"] for name in MEASURES} for kind in ("scripted", "random")}
        files.write_json(path, {"seeds": seeds, **lines})
    data = files.read_json(path, limit=LIMIT)
    figure = Figure(figsize=(13.5, 3.9), layout="constrained")
    FigureCanvasAgg(figure)
    left, middle, right = figure.subplots(1, 3)
    learning(left, data, "return")
    learning(middle, data, "conflicts")
    tradeoff(right, data)
    figure.savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    main()
