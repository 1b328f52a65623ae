"""Seven simulated days under scripted residents: what the linter's verdict is held against."""

from __future__ import annotations

from dataclasses import dataclass

from townlet.config.base import DAY
from townlet.config.models import SimulationConfig
from townlet.sim.tally import EventTally
from townlet.studies.play import play
from townlet.world.events import EXIT, SHIFT_ABSENT, SHIFT_LATE, SHIFT_ON_TIME

DAYS = 7
ATTENDANCE_ASKED = 0.90


@dataclass(frozen=True)
class Week:
    residents: int
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
    tally, residents = EventTally(), 0
    for vec in play(config, "scripted", towns=towns, ticks=DAYS * DAY):
        residents = vec.num_residents
        tally.add(vec.events())
    shifts = tally.count(SHIFT_ON_TIME) + tally.count(SHIFT_LATE)
    return Week(residents, tally.count(EXIT), shifts, tally.count(SHIFT_ABSENT))
