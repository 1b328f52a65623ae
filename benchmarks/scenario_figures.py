"""Measure the figures of the scenario catalogue and write docs/samples/scenario_figures.json.

python benchmarks/scenario_figures.py [SCENARIO...]
townlet scenarios list --page > docs/ROLLOUT_SCENARIOS.md
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from townlet.config.base import DAY
from townlet.config.loader import load_config
from townlet.config.models import SimulationConfig
from townlet.files import read_json, write_json
from townlet.scenarios.catalogue import FOUNDING, entry, ordered_names
from townlet.statistics import Interval
from townlet.studies.sight import SIGHT_DAYS, daily_returns, play, value_of_sight
from townlet.world.events import QUARREL, QUEUE_CONFLICT

PATH = Path(__file__).parents[1] / "docs" / "samples" / "scenario_figures.json"
RESIDENT_DAYS = 2_000  # large towns need fewer days for the same precision


@dataclass(frozen=True)
class Figures:
    """Per resident-day unless said otherwise."""

    scripted: float  # return
    random: float  # return
    sight: Interval
    conflicts: float
    quarrels: float  # share of the conflicts
    rivalry: float  # share of decisions that see a rivalry above the avoidance line

    def as_words(self) -> dict[str, str]:
        return {
            "scripted": f"{self.scripted:.1f}",
            "random": f"{self.random:.1f}",
            "sight": f"{self.sight.value:+.2f} ({self.sight.low:+.2f} to {self.sight.high:+.2f})",
            "conflicts": f"{self.conflicts:.1f}",
            "quarrels": f"{100 * self.quarrels:.0f} %",
            "rivalry": f"{100 * self.rivalry:.0f} %",
        }


def figures_of(config: SimulationConfig, *, days: int) -> Figures:
    line = config.conflict.rivalry.avoid_threshold
    conflicts = quarrels = above = decisions = 0
    returns = 0.0
    for vec in play(config, "scripted", towns=days):
        kinds = vec.events()["kind"]
        conflicts += int((kinds == QUEUE_CONFLICT).sum())
        quarrels += int((kinds == QUARREL).sum())
        deciding = vec.active == 1
        above += int((vec.features[..., vec.spec.offsets["rivalry_max"]][deciding] > line).sum())
        decisions += int(deciding.sum())
        returns += float(vec.rewards.mean(dtype=np.float64))
    a_day = DAY / config.scenario.episode_ticks
    return Figures(
        scripted=returns * a_day,
        random=float(daily_returns(config, "random", days=days).mean()),
        sight=value_of_sight(config, days=days),
        conflicts=conflicts * a_day / (days * vec.num_residents),
        quarrels=quarrels / max(conflicts, 1),
        rivalry=above / max(decisions, 1),
    )


def main(names: list[str]) -> None:
    figures = read_json(PATH, limit=1 << 20) if PATH.is_file() else {}
    for name in names or [name for name in ordered_names() if name not in FOUNDING]:
        config = load_config(name)
        days = max(2, min(SIGHT_DAYS, RESIDENT_DAYS // entry(config).residents))
        figures[name] = {**figures_of(config, days=days).as_words(), "days": days}
        print(name, figures[name], flush=True)
        write_json(PATH, {key: figures[key] for key in ordered_names() if key in figures})


if __name__ == "__main__":
    main(sys.argv[1:])
