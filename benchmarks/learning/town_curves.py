"""The town learns: return, lateness and conflicts of the main study's seeds as they train, beside the tuned script.

Reads the run folders of `townlet study benchmarks/learning/town_day.yaml`; writes results/town_day_curves.json and
docs/images/learning.png. Without run folders the data that are there are drawn again.

    python benchmarks/learning/town_curves.py [--runs runs/studies]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from townlet import files
from townlet.studies.runner import training_folder
from townlet.studies.spec import jobs_of, load_spec

HERE = Path(__file__).parent
RESULTS, PICTURE = HERE / "results", HERE.parents[1] / "docs" / "images" / "learning.png"
LIMIT = 64 << 20
MEASURES = {"return": "return per resident-day", "lateness": "late shifts, share", "conflicts": "conflicts per resident-day"}
BLUE, ORANGE = "#0072B2", "#D55E00"


def curve(run: Path) -> list[dict[str, float]]:
    """Evaluations of one anneal run: decisions of PPO so far, and the measures; the clone is at 0."""
    points: dict[int, dict[str, float]] = {}
    for stage in files.read_json(run / "summary.json", limit=LIMIT)["stages"]:
        steps = stage["ppo"]["steps"] if stage["ppo"] else 0
        for at, point in [*((p["steps"], p) for p in (stage["ppo"] or {}).get("evaluations", [])), (steps, stage["evaluation"])]:
            points[at] = {name: point["measures"][name]["value"] for name in MEASURES}
    return [{"steps": steps, **points[steps]} for steps in sorted(points)]


def draw(axes: Axes, data: dict[str, Any], name: str) -> None:
    for i, points in enumerate(data["seeds"].values()):
        at, values = [row["steps"] / 1e6 for row in points], [row[name] for row in points]
        label = f"trained, {len(data['seeds'])} seeds" if i == 0 else None
        axes.plot(at, values, color=BLUE, alpha=0.6, marker=".", label=label)
    axes.axhline(data["scripted"][name], color=ORANGE, linestyle="--", label="script, tuned")
    axes.set(xlabel="million decisions of PPO", title=MEASURES[name])
    axes.grid(alpha=0.2)
    if name == "return":  # one legend for all
        axes.legend(frameon=False, loc="lower right")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/studies"))
    given = parser.parse_args()
    path = RESULTS / "town_day_curves.json"
    jobs = jobs_of(load_spec(HERE / "town_day.yaml"))
    folders = {str(job.seed): training_folder(job, given.runs) for job in jobs}
    if all(folder.is_dir() for folder in folders.values()):
        script = files.read_json(folders["0"] / "anneal.json", limit=LIMIT)["scripted"]
        scripted = {name: script[name]["value"] for name in MEASURES}
        files.write_json(path, {"seeds": {seed: curve(folder) for seed, folder in folders.items()}, "scripted": scripted})
    data = files.read_json(path, limit=LIMIT)
    figure = Figure(figsize=(13.5, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, name in zip(figure.subplots(1, 3), MEASURES, strict=True):
        draw(axes, data, name)
    figure.savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    main()
