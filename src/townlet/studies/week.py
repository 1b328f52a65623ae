"""Seven simulated days under scripted residents: what the linter's verdict is held against."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from townlet.config.base import DAY
from townlet.config.models import SimulationConfig
from townlet.envs.vector import VectorTown
from townlet.scenarios.lint import lint
from townlet.world.events import EXIT, SHIFT_ABSENT, SHIFT_LATE, SHIFT_ON_TIME
from townlet.world.townspeople import choose_scripted, habits, scripted_columns, scripted_options

DAYS = 7
ATTENDANCE_ASKED = 0.90


@dataclass(frozen=True)
class Week:
    residents: int
    towns: int
    exits: int
    shifts: int
    absences: int

    @property
    def attendance(self) -> float:
        return 1.0 - self.absences / self.shifts if self.shifts else 1.0

    @property
    def lives(self) -> bool:
        """Nobody leaves, and shifts are attended."""
        return self.exits == 0 and self.attendance >= ATTENDANCE_ASKED


def live_a_week(config: SimulationConfig, *, towns: int = 2) -> Week:
    """Count who leaves and who misses work over seven days of `towns` towns."""
    scenario = config.scenario.model_copy(update={"episode_ticks": DAYS * DAY})
    vec = VectorTown(config.model_copy(update={"scenario": scenario}), num_towns=towns)
    rows = vec.num_towns * vec.num_residents
    columns, options = scripted_columns(vec.spec.feature_names), scripted_options(vec.catalogue.names)
    habit = habits(config)
    choices = np.zeros(rows, dtype=np.int64)
    counts = dict.fromkeys((EXIT, SHIFT_ON_TIME, SHIFT_LATE, SHIFT_ABSENT), 0)
    vec.reset()
    for _ in range(DAYS * DAY // vec.interval):
        choose_scripted(vec.features.reshape(rows, -1), vec.masks.reshape(rows, -1), columns, options, habit, choices)
        vec.step(choices.reshape(vec.num_towns, vec.num_residents))
        kinds = vec.events()["kind"]
        for kind in counts:
            counts[kind] += int((kinds == kind).sum())
    shifts = counts[SHIFT_ON_TIME] + counts[SHIFT_LATE]
    return Week(vec.num_residents, towns, counts[EXIT], shifts, counts[SHIFT_ABSENT])


def agrees(config: SimulationConfig, *, towns: int = 2) -> tuple[bool, bool, Week]:
    """(the linter's verdict over a week, whether the town lived, the week)."""
    week = live_a_week(config, towns=towns)
    return lint(config, days=DAYS).ok, week.lives, week
