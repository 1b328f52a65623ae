"""Can this town work? A verdict per question, each with its figure and its remedy, before a single tick is run.

The static verdicts of world.md are here; the value of sight is measured by `studies.sight`, which needs the simulator.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from townlet.config.affordances import AffordanceSpec
from townlet.config.base import DAY
from townlet.config.models import SimulationConfig
from townlet.errors import ScenarioError
from townlet.scenarios.budget import Day, day_of, offered
from townlet.scenarios.compile import CompiledTown, compile_plan, houses_of, read_plan
from townlet.scenarios.size import LIMIT, in_words, town_bytes
from townlet.scenarios.spec import Plan, floor_of
from townlet.world.layout import neighbours, walkable
from townlet.world.state import FAR, Array

VERDICTS = ("tiles", "reachability", "doors", "time", "money", "capacity", "starvation", "memory")
TIME_SHARE = 0.92  # of a day that may be spoken for
BUSY_SHARE = 0.80  # of the time between sleep and work that an object may be in use
STOCK_SHARE = 1.0  # of the meals of a day that may be needed
SPARE_COINS = 0.03  # of what is spent, to be left at the end
PER_DOOR = 32  # lodgers or workers per tile of a way in
ERRANDS = 4  # trips from home and back in a day, beside the way to work


@dataclass(frozen=True)
class Verdict:
    name: str
    ok: bool
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class LintReport:
    scenario: str
    days: float
    verdicts: tuple[Verdict, ...]

    @property
    def ok(self) -> bool:
        return all(verdict.ok for verdict in self.verdicts)


def lint(config: SimulationConfig, *, days: float | None = None) -> LintReport:
    """All static verdicts over `days` (by default the length of an episode)."""
    span = config.scenario.episode_ticks / DAY if days is None else days
    name = config.scenario.name or config.config_id
    plan = read_plan(config)
    verdicts = [_tiles(plan, config)]
    try:
        town = compile_plan(plan, config)
    except ScenarioError as error:
        verdicts.append(Verdict("reachability", False, str(error), "see the message"))
        return LintReport(name, span, (*verdicts, _memory(plan, config)))
    day = day_of(config, {one.kind for one in plan.objects})
    ways = Ways(town)
    verdicts += [
        Verdict(
            "reachability",
            True,
            f"{len(plan.objects)} objects and {len(plan.buildings)} buildings can be reached from every home",
        ),
        _doors(plan),
        _time(plan, config, day, ways, span),
        _money(plan, config, day, span),
        _capacity(plan, config, day, span),
        _starvation(plan, config, ways, span),
        _memory(plan, config),
    ]
    return LintReport(name, span, tuple(verdicts))


class Ways:
    """Walking distances from where each resident lives.  # (N,)"""

    def __init__(self, town: CompiledTown) -> None:
        layout = town.layout
        self.town = town
        beds = layout.objects[layout.residents["bed"]]
        walk = walkable(layout.tiles)
        width = walk.shape[1]
        start = np.array([neighbours(walk, int(bed["x"]), int(bed["y"]))[0] for bed in beds])
        self.x, self.y = start % width, start // width

    def to(self, affordance: str) -> Array:
        """Steps to the nearest object of an affordance; FAR where there is none."""
        a = [spec.id for spec in self.town.config.affordances.specs].index(affordance)
        row = self.town.layout.nearest[self.y, self.x, a, 0]
        return np.where(row["object"] >= 0, row["distance"].astype(np.int64), FAR)

    def to_work(self) -> Array:
        """Steps to the site; 0 without a job."""
        layout = self.town.layout
        job = layout.residents["job"]
        if not len(layout.jobs):
            return np.zeros(len(job), dtype=np.int64)
        packed = layout.towards[layout.jobs["site"][job], self.y, self.x].astype(np.int64) // 8
        return np.where(job >= 0, packed, 0)


def _tiles(plan: Plan, config: SimulationConfig) -> Verdict:
    """A bed per resident, a tile of the site per worker."""
    walk = walkable(plan.tiles)
    private = {kind for spec in config.affordances.specs if spec.own_home for kind in spec.objects}
    houses = houses_of(plan)
    beds = Counter(int(houses[one.y, one.x]) for one in plan.objects if one.kind in private)
    lodgers = Counter(one.home for one in plan.residents)
    sites = {job.id: job.site for job in plan.jobs}
    workers = Counter(sites[one.job] for one in plan.residents if one.job is not None)
    short = []
    for b, building in enumerate(plan.buildings):
        if lodgers[building.id] > beds[b]:
            short.append(f"{building.id} has {beds[b]} beds for {lodgers[building.id]} residents")
        room = len(floor_of(building, walk))
        if workers[building.id] > room:
            short.append(f"{building.id} has {room} tiles for {workers[building.id]} workers")
    if short:
        return Verdict("tiles", False, "; ".join(short), "add beds, enlarge the site or move residents")
    free = int(walk.sum())
    return Verdict(
        "tiles", free >= 2 * len(plan.residents), f"{free} tiles for {len(plan.residents)} residents", "enlarge the map"
    )


def _doors(plan: Plan) -> Verdict:
    """People per tile of a building's ways in."""
    walk = walkable(plan.tiles)
    width = walk.shape[1]
    staff = Counter(one.job for one in plan.residents)
    lodgers = Counter(one.home for one in plan.residents)
    worst, where = 0.0, "none"
    for building in plan.buildings:
        floor = [(tile % width, tile // width) for tile in floor_of(building, walk)]
        ways = sum(1 for x, y in floor if any(not building.holds(near % width, near // width) for near in neighbours(walk, x, y)))
        crowds = [lodgers[building.id]]
        crowds += [staff[job.id] for job in plan.jobs if job.site == building.id]  # shifts of one site come one after the other
        people = max(crowds)
        if people and people / max(ways, 1) > worst:
            worst, where = people / max(ways, 1), building.id
    return Verdict("doors", worst <= PER_DOOR, f"at most {worst:.0f} people per door tile ({where})", "make the door wider")


def _time(plan: Plan, config: SimulationConfig, day: Day, ways: Ways, span: float) -> Verdict:
    """Uses, shift and walking of the busiest resident against the day; the way to work against `work_ahead`."""
    lengths = {job.id: job.length for job in plan.jobs}
    errands = [ways.to(name) for name in day.uses if not _own(config, name)]
    near = sum((np.where(way >= FAR, 0, way) for way in errands), np.zeros(len(plan.residents), dtype=np.int64))
    commute = ways.to_work()
    shift = np.array([lengths.get(one.job or "", 0) for one in plan.residents])
    trips = ERRANDS / max(1, len(errands))
    total = sum(day.ticks.values()) + shift + 2 * trips * near + 2 * commute
    slowest, farthest = int(np.argmax(total)), int(np.argmax(commute))
    found = f"{plan.residents[slowest].id} needs {total[slowest]:.0f} of {DAY} ticks a day ({_share(total[slowest] / DAY)})"
    if commute[farthest] > config.employment.work_ahead:
        who, site = plan.residents[farthest], plan.residents[farthest].job
        late = (
            f"{who.id} walks {commute[farthest]} ticks to {site}, but may set out {config.employment.work_ahead} before the shift"
        )
        return Verdict("time", False, late, "bring home and site nearer or raise employment.work_ahead")
    ok = bool(total[slowest] <= TIME_SHARE * DAY) or span < 1
    return Verdict("time", ok, found, f"shorten shifts or ways to below {_share(TIME_SHARE)} of a day")


def _money(plan: Plan, config: SimulationConfig, day: Day, span: float) -> Verdict:
    """What the poorest resident earns and owns against rent, cooking and washing."""
    wages = {job.id: job.length * job.wage / 10_000 for job in plan.jobs}
    start = config.scenario.start
    rents = int((start + span * DAY - config.economy.rent_at - 1) // DAY) - int((start - config.economy.rent_at - 1) // DAY)
    worst, who = float("inf"), plan.residents[0].id
    for one in plan.residents:
        own = config.economy.first_wallet if one.wallet is None else one.wallet / 10_000
        left = own + span * wages.get(one.job or "", 0.0) - rents * config.economy.rent - span * day.coins
        if left < worst:
            worst, who = left, one.id
    income = wages.get(next(one.job for one in plan.residents if one.id == who) or "", 0.0)
    cost = config.economy.rent + day.coins
    found = f"{who} earns {income:.2f} and spends {cost:.2f} a day, has {worst:.2f} left after {span:.1f} days"
    spare = SPARE_COINS * span * cost
    return Verdict("money", worst >= spare, found, "raise wages or first wallets, or lower rent")


def _capacity(plan: Plan, config: SimulationConfig, day: Day, span: float) -> Verdict:
    """Ticks of use everybody needs in a day against the time off sleep and work, and meals against stock."""
    people = len(plan.residents)
    asleep = sum(ticks for name, ticks in day.ticks.items() if _own(config, name))
    free = DAY - asleep - max((job.length for job in plan.jobs), default=0)
    loads = []
    for spec in offered(config, {one.kind for one in plan.objects}):
        if spec.id in day.ticks and not spec.own_home:
            count = sum(1 for one in plan.objects if one.kind in spec.objects)
            share = people * day.ticks[spec.id] / (count * max(free, 1))
            loads.append((share, f"{spec.id} is busy {_share(share)} of the time off sleep and work ({count} for {people})"))
    meals = sum(day.uses[spec.id] * spec.takes_meals for spec in config.affordances.specs if spec.id in day.uses) * people
    stock = _meals_a_day(plan, config)
    if meals and stock is not None:
        loads.append((meals / stock * BUSY_SHARE / STOCK_SHARE, f"{meals:.0f} of the {stock:.0f} meals of a day are needed"))
    missing = [name for name in config.needs if not _raised(plan, config, name) and span * DAY > _lasts(plan, config, name)]
    if missing:
        found = f"nothing here raises {' or '.join(missing)}"
        return Verdict("capacity", False, found, "add objects of an affordance that does")
    if not loads:
        return Verdict("capacity", True, "nothing here is shared")
    share, found = max(loads)
    ok = share <= BUSY_SHARE or span * DAY <= _patience(plan, config)
    return Verdict("capacity", ok, found, f"add objects or stock until they are busy below {_share(BUSY_SHARE)}")


def _meals_a_day(plan: Plan, config: SimulationConfig) -> float | None:
    """Meals all stoves can cook in a day; None without a limit."""
    default = config.economy.stock.model_dump()
    total = 0.0
    for spec in config.affordances.specs:
        if spec.gives_meals and spec.uses_stock:
            for one in plan.objects:
                if one.kind in spec.objects:
                    full = default.get(one.kind, -1) if one.stock is None else one.stock
                    if full < 0:
                        return None
                    total += full
    return total or None


def _starvation(plan: Plan, config: SimulationConfig, ways: Ways, span: float) -> Verdict:
    """The longest wait for what keeps from a collapse, everybody in want at once, against the ticks from `act_below` to there."""
    told = [_starves(plan, config, ways, span, name) for name, need in config.needs.items() if need.at_bottom == "collapse"]
    failed = [verdict for verdict in told if not verdict.ok]
    if not told:
        return Verdict("starvation", True, "nobody collapses here")
    return failed[0] if failed else Verdict("starvation", True, "; ".join(verdict.found for verdict in told))


def _starves(plan: Plan, config: SimulationConfig, ways: Ways, span: float, name: str) -> Verdict:
    """One need that ends in a collapse: hunger is met with meals that somebody cooks, others by what raises them."""
    need, food = config.needs[name], name == "hunger"
    specs = _raised(plan, config, name)
    if food:
        here = offered(config, {one.kind for one in plan.objects})
        specs = [spec for spec in here if spec.gives_meals or (spec.takes_meals and spec in specs)]
        met = any(spec.gives_meals for spec in specs) and any(spec.takes_meals for spec in specs)
    else:
        specs = [spec for spec in specs if not spec.own_home][:1]
        met = bool(_raised(plan, config, name))
    if not met:
        ticks = _patience(plan, config, name) + need.collapse_ticks
        what, remedy = ("there is no food", "add a stove and a table") if food else (f"nothing raises {name}", "add what does")
        return Verdict("starvation", span * DAY <= ticks, f"{what}; the first collapse comes after {ticks} ticks", remedy)
    wait = 0.0
    for spec in specs:
        count = sum(1 for one in plan.objects if one.kind in spec.objects)
        wait += -(-len(plan.residents) // count) * spec.ticks + float(np.max(ways.to(spec.id)))
    room = (need.act_below - need.collapse_below) / need.decay + need.collapse_ticks if need.decay else float("inf")
    words = ("hungry", "eats") if food else (f"short of {name}", f"raises its {name}")
    found = f"when all are {words[0]} at once the last {words[1]} within {wait:.0f} ticks; {name} allows {room:.0f}"
    return Verdict("starvation", wait <= room, found, "add stoves or tables" if food else f"add objects that raise {name}")


def _memory(plan: Plan, config: SimulationConfig) -> Verdict:
    parts = town_bytes(len(plan.residents), len(plan.objects), plan.tiles.shape, len(plan.buildings), config)
    total = sum(parts.values())
    shares = ", ".join(f"{name} {in_words(count)}" for name, count in parts.items())
    return Verdict("memory", total <= LIMIT, f"{in_words(total)} per town ({shares})", f"stay below {in_words(LIMIT)}")


def _raised(plan: Plan, config: SimulationConfig, need: str) -> list[AffordanceSpec]:
    """What this town offers for a need."""
    return [spec for spec in offered(config, {one.kind for one in plan.objects}) if spec.effects.get(need, 0.0) > 0]


def _lasts(plan: Plan, config: SimulationConfig, need: str, bottom: float = 0.0) -> float:
    """Ticks until the need of some resident falls to the bottom when nothing raises it."""
    lowest = min(one.needs[list(config.needs).index(need)] for one in plan.residents)
    decay = config.needs[need].decay
    return (lowest - bottom) / decay if decay else float("inf")


def _patience(plan: Plan, config: SimulationConfig, need: str = "hunger") -> int:
    """Ticks the hungriest resident can go without food, or without what another need asks for."""
    return int(min(_lasts(plan, config, need, config.needs[need].collapse_below), 1e9))


def _own(config: SimulationConfig, affordance: str) -> bool:
    return any(spec.id == affordance and spec.own_home for spec in config.affordances.specs)


def _share(part: float) -> str:
    return f"{100 * part:.0f} %"
