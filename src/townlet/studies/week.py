"""Seven simulated days under scripted residents: what the linter's verdict is held against."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from townlet.config.base import DAY
from townlet.config.models import SimulationConfig
from townlet.sim.tally import EventTally
from townlet.studies.play import play
from townlet.world.events import EXIT, SHIFT_ABSENT, SHIFT_LATE, SHIFT_ON_TIME

DAYS = 7
ATTENDANCE_ASKED = 0.90
LEVEL_ASKED = 0.2


@dataclass(frozen=True)
class Week:
    residents: int  # of all towns together
    exits: int
    shifts: int
    absences: int
    lowest: float  # mean level of the need that is met worst

    @property
    def attendance(self) -> float:
        return 1.0 - self.absences / self.shifts if self.shifts else 1.0

    @property
    def lives(self) -> bool:
        """Nobody leaves, shifts are attended, and no need is left unmet."""
        return self.exits == 0 and self.attendance >= ATTENDANCE_ASKED and self.lowest >= LEVEL_ASKED


def live_a_week(config: SimulationConfig, *, towns: int = 2) -> Week:
    """Count who leaves and who misses work over seven days of `towns` towns, and see how needs are met."""
    tally, levels, lives = EventTally(), np.zeros(len(config.needs)), 0
    for vec in play(config, "scripted", towns=towns, ticks=DAYS * DAY):
        tally.add(vec.events())
        present = vec.state.residents["present"] == 1  # (E, N)
        levels += vec.state.residents["needs"][present][:, : len(levels)].sum(axis=0)
        lives += int(present.sum())
    shifts = tally.count(SHIFT_ON_TIME) + tally.count(SHIFT_LATE)
    lowest = float(levels.min()) / max(1, lives)
    return Week(towns * vec.num_residents, tally.count(EXIT), shifts, tally.count(SHIFT_ABSENT), lowest)
