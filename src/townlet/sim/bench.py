"""How fast the town is: the rows of `townlet bench sim`.

Times are of the processor, not of the clock on the wall, so that a busy machine disturbs them less; a calibration loop of plain
Python in the same run tells how fast the machine was just then.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from time import process_time
from typing import Any

import numpy as np

from townlet.config import load_config
from townlet.envs.vector import VectorTown
from townlet.world.actions import WAIT
from townlet.world.events import QUEUE_CONFLICT, USE_START
from townlet.world.state import Array
from townlet.world.townspeople import choose_scripted, habits, scripted_columns, scripted_options

Row = dict[str, Any]
DAY = 1440
SEEN_BAR, OPTION_BAR = 1_800_000.0, 4_000_000.0
GROWTH_BAR, AGE_BAR = 2.5, 0.9
HELP_BAR, START_BAR, COMPILE_BAR = 0.3, 2.0, 30.0
LOOPS = 300_000


def row(name: str, value: float, unit: str, bar: float | None = None, *, smaller: bool = False, **more: Any) -> Row:
    """One line of a bench; without a bar it is for information."""
    ok = True if bar is None else value <= bar if smaller else value >= bar
    return {"name": name, "value": value, "unit": unit, "bar": bar, "ok": ok, **more}


def calibration() -> float:
    """Additions a second in plain Python: best of five."""
    best = 0.0
    for _ in range(5):
        begin, total = process_time(), 0
        for k in range(LOOPS):
            total += k & 7
        best = max(best, LOOPS / (process_time() - begin))
    return best


class Townsfolk:
    """A batch of towns under the script, with the time spent inside `step`.

    The script is asked every `hold` steps; in between everybody keeps to its choice and its object, and waits once a use
    has ended: so a day with observations every tick is lived like one with decisions every ten.
    """

    def __init__(self, vec: VectorTown, hold: int = 1) -> None:
        self.vec, self.hold, self._steps = vec, hold, 0
        self._using = np.zeros((vec.num_towns, vec.num_residents), np.bool_)
        self._script = scripted_columns(vec.spec.feature_names), scripted_options(vec.catalogue.names), habits(vec.config)
        self._actions = np.zeros((vec.num_towns, vec.num_residents), np.int64)
        self._targets = np.full_like(self._actions, -1)
        self.conflicts = self.uses = 0

    def choose(self) -> Array:
        vec, rows = self.vec, self._actions.size
        using = vec.state.residents["using"] >= 0
        if self._steps % self.hold == 0:
            choose_scripted(vec.features.reshape(rows, -1), vec.masks.reshape(rows, -1), *self._script, self._actions.reshape(-1))
            self._targets[:] = -1
        else:
            self._actions[self._using & ~using] = WAIT
            self._targets[:] = vec.state.residents["target"]
        self._using, self._steps = using, self._steps + 1
        return self._actions

    def run(self, decisions: int) -> float:
        """Seconds of the processor in `decisions` steps."""
        spent = 0.0
        for _ in range(decisions):
            actions = self.choose()
            begin = process_time()
            self.vec.step(actions, self._targets)
            spent += process_time() - begin
            counts = self.vec.state.towns["events"]
            kinds = np.concatenate([self.vec.state.events["kind"][e, :n] for e, n in enumerate(counts)])
            self.conflicts += int((kinds == QUEUE_CONFLICT).sum())
            self.uses += int((kinds == USE_START).sum())
        return spent


def batch(scenario: str, towns: int, overrides: Sequence[str], hold: int = 1) -> Townsfolk:
    return Townsfolk(VectorTown(load_config(scenario, overrides), towns), hold)


def speed_row(name: str, interval: int, bar: float, *, towns: int = 64, ticks: int = DAY, repeats: int = 5) -> Row:
    """Resident-ticks a second over day 2 of town_day, median of five, with what happened on that day."""
    overrides = [f"policy.decision_interval={interval}", f"scenario.episode_ticks={2 * DAY}"]
    folk = batch("town_day", towns, overrides, hold=10 // interval)
    folk.run(DAY // interval)
    morning, spent = folk.vec.save(), []
    for _ in range(repeats):
        folk.vec.restore(morning)
        folk.conflicts = folk.uses = 0
        spent.append(folk.run(ticks // interval))
    residents = towns * folk.vec.num_residents
    days = residents * ticks / DAY
    conflicts, uses = folk.conflicts / days, folk.uses / days
    made = row(name, residents * ticks / median(spent), "resident-ticks/s", bar, conflicts_per_resident_day=conflicts)
    made |= {"uses_per_resident_day": uses, "events_lost": folk.vec.events_lost}
    made["ok"] = bool(made["ok"] and conflicts >= 1 and uses >= 5 and not folk.vec.events_lost)
    return made


def growth_row(small: int = 80, large: int = 8000, *, ticks: int = 120) -> Row:
    """Time per resident and tick in a large town over that in a small one, same minutes of the morning."""
    costs = []
    for residents in (small, large):
        side = 400 if residents > 1000 else 80
        folk = batch("metropolis", 1, [f"scenario.generate.residents={residents}", f"scenario.size=[{side}, {side}]"])
        folk.run(6)
        repeats = max(1, large // residents // 10)
        kept = folk.vec.save()
        spent = 0.0
        for _ in range(repeats):
            folk.vec.restore(kept)
            spent += folk.run(ticks // folk.vec.interval)
        costs.append(spent / (repeats * ticks * residents))
    return row(
        f"cost of a resident-tick, {large} residents over {small}",
        costs[1] / costs[0],
        "×",
        GROWTH_BAR,
        smaller=True,
        nanoseconds=[round(cost * 1e9, 1) for cost in costs],
    )


def age_rows(*, towns: int = 16, repeats: int = 9, decisions: int = 36) -> list[Row]:
    """Day 7 against day 2 at the same minutes, alternated; and the memory of the process."""
    folk = batch("town_day", towns, [f"scenario.episode_ticks={8 * DAY}"])
    day = DAY // folk.vec.interval
    moments, sizes = {}, {}
    for number, days in ((2, 1), (7, 5)):
        folk.run(days * day)
        moments[number], sizes[number] = folk.vec.save(), _memory()
    ratios = []
    for _ in range(repeats):
        spent = {}
        for number, moment in moments.items():
            folk.vec.restore(moment)
            spent[number] = folk.run(decisions)
        ratios.append(spent[2] / spent[7])
    return [
        row("speed on day 7 over day 2", median(ratios), "×", AGE_BAR),
        row("memory on day 7 over day 2", sizes[7] / sizes[2], "×", 1.02, smaller=True),
    ]


def _memory() -> float:
    """Bytes the process holds now."""
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * float(os.sysconf("SC_PAGE_SIZE"))


def child_seconds(words: Sequence[str], environment: Mapping[str, str] | None = None) -> float:
    """Processor seconds of one `townlet` command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "townlet", *words], check=True, capture_output=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def start_rows(*, repeats: int = 5) -> list[Row]:
    """`townlet --help`, and `townlet run` once the kernels stand compiled: medians."""
    helps = median(child_seconds(["--help"]) for _ in range(repeats))
    runs = median(child_seconds(["run", "town_day", "--ticks", "10"]) for _ in range(repeats))
    return [
        row("townlet --help", helps, "s", HELP_BAR, smaller=True),
        row("townlet run town_day, first row, later starts", runs, "s", START_BAR, smaller=True),
    ]


def sim_rows(*, say: Callable[[str], None], short: bool = False) -> list[Row]:
    """All rows of the simulator; `short` for a look: fewer ticks, and no large town."""
    rows = [row("calibration: additions in plain Python", calibration(), "1/s")]
    ticks = 240 if short else DAY
    say("town_day, 64 towns, option level")
    rows.append(speed_row("option level, 8 residents × 64 towns", 10, OPTION_BAR, ticks=ticks))
    say("town_day, 64 towns, observations and masks every tick")
    rows.append(speed_row("hybrid observations and masks every tick", 1, SEEN_BAR, ticks=ticks))
    if not short:
        say("80 and 8,000 residents")
        rows.append(growth_row())
        say("day 2 and day 7")
        rows += age_rows()
        say("starts")
        rows += start_rows()
    rows.append(row("calibration again", calibration(), "1/s"))
    return rows
