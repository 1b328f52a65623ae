"""How fast the town is: the rows of `townlet bench sim`.

Times are of the processor, not of the clock on the wall, so that a busy machine disturbs them less; a calibration loop of plain
Python in the same run tells how fast the machine was just then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import process_time

import numpy as np

from townlet.bench.rows import calibration, child_seconds, memory_mb, row
from townlet.config import load_config
from townlet.config.base import DAY
from townlet.envs.vector import VectorTown
from townlet.policy.runtime import Decision, ScriptedPolicy
from townlet.ports import Decided
from townlet.sim.loop import SimulationLoop
from townlet.sim.probes import Probe
from townlet.sim.tally import EventTally
from townlet.types import Record
from townlet.world.actions import WAIT
from townlet.world.events import QUEUE_CONFLICT, USE_START

REPEATS = 5  # whose median is told
SEEN_BAR, OPTION_BAR = 2_500_000.0, 10_000_000.0
GROWTH_BAR, AGE_BAR = 2.5, 0.9
NEED_BAR = 1.04
HELP_BAR, START_BAR, COMPILE_BAR = 0.3, 2.0, 25.0


class HeldScript:
    """The script, asked every `hold` decisions; in between everybody keeps to its choice and its object, and waits once a use
    has ended: so a day with observations every tick is lived like one with decisions every ten."""

    kind, has_values = "scripted", False

    def __init__(self, hold: int = 1) -> None:
        self.hold = hold

    def reset(self, vec: VectorTown) -> None:
        self._steps = 0
        self._script = ScriptedPolicy()
        self._script.reset(vec)
        self._using = vec.state.residents["using"] >= 0

    def act(self, vec: VectorTown) -> Decision:
        using = vec.state.residents["using"] >= 0
        if self._steps % self.hold == 0:
            self._held = self._script.act(vec)
        else:
            actions = np.where(self._using & ~using, WAIT, self._held.actions)
            self._held = self._held._replace(actions=actions, targets=vec.state.residents["target"].astype(np.int64))
        self._using, self._steps = using, self._steps + 1
        return self._held


class Stopwatch(Probe):
    """Seconds of the processor inside the step, and what happened meanwhile."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.seconds, self.events = 0.0, EventTally()

    def before_step(self, world: VectorTown, decision: Decided) -> None:
        self._begun = process_time()

    def after_step(self, world: VectorTown, decision: Decided) -> None:
        self.seconds += process_time() - self._begun
        self.events.add(world.events())


class Timed:
    """A batch of towns under the script, timed."""

    def __init__(self, vec: VectorTown, hold: int = 1) -> None:
        self.vec, self.watch, policy = vec, Stopwatch(), HeldScript(hold)
        policy.reset(vec)
        self._loop = SimulationLoop(vec, policy, [self.watch])

    def run(self, decisions: int) -> float:
        """Processor seconds of this many steps."""
        self.watch.clear()
        self._loop.run_decisions(decisions)
        return self.watch.seconds


def batch(scenario: str, towns: int, overrides: Sequence[str], hold: int = 1) -> Timed:
    return Timed(VectorTown(load_config(scenario, overrides), towns), hold)


def speed_row(name: str, interval: int, bar: float, *, ticks: int) -> Record:
    """Resident-ticks a second over day 2 of town_day in 64 towns, median of five, with what happened on that day."""
    towns = 64
    overrides = [f"policy.decision_interval={interval}", f"scenario.episode_ticks={2 * DAY}"]
    folk = batch("town_day", towns, overrides, hold=10 // interval)
    folk.run(DAY // interval)
    morning, spent = folk.vec.save(), []
    for _ in range(REPEATS):
        folk.vec.restore(morning)
        spent.append(folk.run(ticks // interval))
    residents = towns * folk.vec.num_residents
    days = residents * ticks / DAY
    conflicts, uses = folk.watch.events.count(QUEUE_CONFLICT) / days, folk.watch.events.count(USE_START) / days
    made = row(name, residents * ticks / median(spent), "resident-ticks/s", bar, conflicts_per_resident_day=conflicts)
    made |= {"uses_per_resident_day": uses, "events_lost": folk.vec.events_lost}
    made["ok"] = bool(made["ok"] and conflicts >= 1 and uses >= 5 and not folk.vec.events_lost)
    return made


def growth_row() -> Record:
    """Time per resident and tick in a large town over that in a small one, same minutes of the morning."""
    (small, large), ticks, costs = (80, 8000), 120, []
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


def need_row(*, towns: int = 64, decisions: int = 60, repeats: int = 15, further: int = 2) -> Record:
    """Time of a tick with observations in a town of three needs and of some more, alternated: the cost of one more.

    The further needs fall, are seen and cost reward; nobody acts on them, so both towns live the same day.
    """
    folk = []
    for needs in (0, further):
        more = [f"needs.further_{k}={{decay: 0.0005, weight: 0.01, act_below: 0}}" for k in range(needs)]
        folk.append(batch("town_day", towns, ["policy.decision_interval=1", *more], hold=10))
    mornings = [one.vec.save() for one in folk]
    ratios = []
    for _ in range(repeats):
        spent = []
        for one, morning in zip(folk, mornings):
            one.vec.restore(morning)
            spent.append(one.run(decisions))
        ratios.append(spent[1] / spent[0])
    return row("cost of one need more", median(ratios) ** (1 / further), "×", NEED_BAR, smaller=True)


def age_rows() -> list[Record]:
    """Day 7 against day 2 at the same minutes, alternated; and the memory of the process."""
    towns, repeats, decisions = 16, 9, 36
    folk = batch("town_day", towns, [f"scenario.episode_ticks={8 * DAY}"])
    day = DAY // folk.vec.interval
    moments, sizes = {}, {}
    for number, days in ((2, 1), (7, 5)):
        folk.run(days * day)
        moments[number], sizes[number] = folk.vec.save(), memory_mb()
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


def start_rows() -> list[Record]:
    """`townlet --help`, and `townlet run` with compiled kernels: medians."""
    helps = median(child_seconds(["--help"]) for _ in range(REPEATS))
    runs = median(child_seconds(["run", "town_day", "--ticks", "10"]) for _ in range(REPEATS))
    return [
        row("townlet --help", helps, "s", HELP_BAR, smaller=True),
        row("townlet run town_day, first row, later starts", runs, "s", START_BAR, smaller=True),
    ]


def sim_rows(*, say: Callable[[str], None], short: bool = False) -> list[Record]:
    """All rows of the simulator; `short` for a look: fewer ticks, and no large town."""
    rows = [calibration()]
    ticks = 240 if short else DAY
    say("town_day, 64 towns, option level")
    rows.append(speed_row("option level, 8 residents × 64 towns", 10, OPTION_BAR, ticks=ticks))
    say("town_day, 64 towns, observations and masks every tick")
    rows.append(speed_row("hybrid observations and masks every tick", 1, SEEN_BAR, ticks=ticks))
    say("three needs and five")
    rows.append(need_row(repeats=5 if short else 15))
    if not short:
        say("80 and 8,000 residents")
        rows.append(growth_row())
        say("day 2 and day 7")
        rows += age_rows()
        say("starts")
        rows += start_rows()
    rows.append(calibration("calibration again"))
    return rows
