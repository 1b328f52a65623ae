"""What a scenario is like, in a few figures under scripted and random residents: the measured part of the catalogue."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from townlet.config.base import DAY
from townlet.config.models import SimulationConfig
from townlet.statistics import Interval
from townlet.studies.play import play
from townlet.studies.sight import daily_returns, value_of_sight
from townlet.world.events import QUARREL, QUEUE_CONFLICT


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
