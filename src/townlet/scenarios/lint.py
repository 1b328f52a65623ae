"""Can this town work? A verdict per question, each with its figure and its remedy, before a single tick is run.

The static verdicts of world.md are here; the value of sight is measured by `studies.town_checks`, which needs the simulator.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import inf

import numpy as np

from townlet.config.affordances import AffordanceSpec
from townlet.config.base import DAY
from townlet.config.models import SimulationConfig
from townlet.errors import ScenarioError
from townlet.scenarios.compile import CompiledTown, check_orders, compile_plan, houses_of, read_plan, ways_in
from townlet.scenarios.plan import PlacedObject, Plan, floor_of, full_stock
from townlet.scenarios.size import LIMIT, in_words, town_bytes
from townlet.types import Array
from townlet.world.layout import neighbours, walkable
from townlet.world.state import FAR, MONEY


@dataclass(frozen=True)
class Offer:
    """The objects of one affordance that can be used at all."""

    spec: AffordanceSpec
    count: int
    uses: float  # that their stocks allow in a day, together

    @property
    def open(self) -> int:
        """Ticks of a day in which a use may start."""
        hours = self.spec.hours
        return DAY if hours is None else (hours[1] - hours[0]) % DAY or DAY


def uses_of_stock(spec: AffordanceSpec, one: PlacedObject, config: SimulationConfig) -> float:
    """Uses a day that an object's stock allows."""
    return max(0, full_stock(one, config)) // max(spec.gives_meals, 1) if spec.uses_stock else inf


def offers_of(plan: Plan, config: SimulationConfig) -> tuple[Offer, ...]:
    """Affordances that some object of the town gives; one whose stock is too small for a single use gives nothing."""
    offers = []
    for spec in config.affordances.specs:
        uses = [uses_of_stock(spec, one, config) for one in plan.objects if one.kind in spec.objects]
        able = [count for count in uses if count > 0]
        if able:
            offers.append(Offer(spec, len(able), sum(able)))
    return tuple(offers)


def mainstay(offers: tuple[Offer, ...], need: str) -> Offer | None:
    """What a need is met with every day: meals where they can be cooked, else the first of those open longest."""
    cooked = any(one.spec.gives_meals for one in offers)
    raising = [one for one in offers if one.spec.effects.get(need, 0.0) > 0]
    own = [one for one in raising if one.spec.takes_meals and cooked]
    open_longest = sorted((one for one in raising if not one.spec.takes_meals), key=lambda one: -one.open)
    return next(iter([*own, *open_longest]), None)


@dataclass(frozen=True)
class Food:
    """Where meals come from: they are cooked and then eaten; in a town without a kitchen they are bought ready."""

    cooking: Offer | None
    eating: Offer

    @property
    def offers(self) -> tuple[Offer, ...]:
        return (self.eating,) if self.cooking is None else (self.cooking, self.eating)

    @property
    def stock(self) -> float:
        """Meals that can be had in a day."""
        return self.eating.uses if self.cooking is None else self.cooking.uses * self.cooking.spec.gives_meals


def food_of(offers: tuple[Offer, ...]) -> Food | None:
    """A café beside a kitchen does not count: living on it costs too much, and it is closed at night."""
    eating = mainstay(offers, "hunger")
    if eating is None:
        return None
    return Food(next(one for one in offers if one.spec.gives_meals) if eating.spec.takes_meals else None, eating)


@dataclass(frozen=True)
class Day:
    """Uses of a day per affordance, ticks they take, coins they cost, for one resident who meets all its needs at home."""

    uses: dict[str, float]
    ticks: dict[str, float]
    coins: float  # without rent


def day_of(config: SimulationConfig, offers: tuple[Offer, ...]) -> Day:
    """Every need kept level over a day: `decay × 1440 = effect × uses`, meals cooked before they are eaten.

    Sleep s solves `s × rate = decay × (1440 − s) + what the other uses cost`. A need the town has nothing for is left out here;
    the starvation bound and the time budget speak of that.
    """
    specs = [one.spec for one in offers]
    uses: dict[str, float] = {}
    for name, need in config.needs.items():
        using = mainstay(offers, name)
        if name != "energy" and using is not None:
            uses[using.spec.id] = max(uses.get(using.spec.id, 0.0), need.decay * DAY / using.spec.effects[name])
    cooking = next((spec for spec in specs if spec.gives_meals), None)
    eaten = sum(uses[spec.id] * spec.takes_meals for spec in specs if spec.id in uses)
    if cooking is not None and eaten:
        uses[cooking.id] = eaten / cooking.gives_meals
    sleeping = next((spec for spec in specs if spec.asleep), None)
    if sleeping is not None and sleeping.effects.get("energy", 0.0) > 0:
        decay = config.needs["energy"].decay
        spent = sum(-spec.effects["energy"] * uses.get(spec.id, 0.0) for spec in specs if spec.effects.get("energy", 0.0) < 0)
        rate = sleeping.effects["energy"] / sleeping.ticks
        uses[sleeping.id] = (decay * DAY + spent) / (rate + decay) / sleeping.ticks
    ticks = {spec.id: uses[spec.id] * spec.ticks for spec in specs if spec.id in uses}
    return Day(uses, ticks, sum(spec.price * uses.get(spec.id, 0.0) for spec in specs))


TIME_SHARE = 0.92  # of a day that may be spoken for
BUSY_SHARE = 0.80  # of the time between sleep and work that an object may be in use, …
MEAL_SHARE = 0.95  # … and one for meals, which are taken all day long
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
    name = config.town_name
    plan = read_plan(config)
    verdicts = [_tiles(plan, config)]
    try:
        town = compile_plan(plan, config)
        check_orders(config, town.object_ids)
    except ScenarioError as error:
        found, _, remedy = str(error).rpartition("; ")
        verdicts.append(Verdict("reachability", False, found, remedy) if found else Verdict("reachability", False, remedy))
        return LintReport(name, span, (*verdicts, _memory(plan, config)))
    offers = offers_of(plan, config)
    day = day_of(config, offers)
    ways = Ways(town)
    verdicts += [
        Verdict(
            "reachability",
            True,
            f"{len(plan.objects)} objects and {len(plan.buildings)} buildings can be reached from every home",
        ),
        _doors(plan),
        _stock(plan, config),
        _time(plan, config, day, ways, span),
        _money(plan, config, day, ways, span),
        _capacity(plan, config, offers, day, span),
        _starvation(plan, config, offers, ways, span),
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
        a = self.town.config.affordances.ids.index(affordance)
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
    houses = houses_of(plan)
    beds = Counter(int(houses[one.y, one.x]) for one in plan.objects if one.kind in config.affordances.home_kinds)
    lodgers = Counter(one.home for one in plan.residents)
    sites = {job.id: job.site for job in plan.jobs}
    workers = Counter(sites[one.job] for one in plan.residents if one.job is not None)
    short = []
    for b, building in enumerate(plan.buildings):
        if lodgers[building.id] > beds[b]:
            short.append(f"{building.id} has {beds[b]} bed{'s' * (beds[b] != 1)} for {lodgers[building.id]} residents")
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
    staff = Counter(one.job for one in plan.residents)
    lodgers = Counter(one.home for one in plan.residents)
    worst, where = 0.0, "none"
    for building in plan.buildings:
        ways = len(ways_in(building, walk))
        crowds = [lodgers[building.id]]
        crowds += [staff[job.id] for job in plan.jobs if job.site == building.id]  # shifts of one site come one after the other
        people = max(crowds)
        if people and people / max(ways, 1) > worst:
            worst, where = people / max(ways, 1), building.id
    return Verdict("doors", bool(worst <= PER_DOOR), f"at most {worst:.0f} people per door tile ({where})", "make the door wider")


def _stock(plan: Plan, config: SimulationConfig) -> Verdict:
    """Every object of an affordance that uses stock has some."""
    given: list[str] = []
    for spec in config.affordances.specs:
        if spec.uses_stock:
            things = [one for one in plan.objects if one.kind in spec.objects]
            bare = [one for one in things if full_stock(one, config) < 0]
            if bare:
                found = (
                    f"{spec.id} uses stock, and {', '.join(one.id for one in bare[:3])}{' …' if len(bare) > 3 else ''} has none"
                )
                return Verdict("stock", False, found, f"set economy.stock.{bare[0].kind} or a stock in scenario.objects")
            if things:
                given.append(f"{spec.id} {sum(full_stock(one, config) for one in things)}")
    return Verdict("stock", True, f"a day begins with {', '.join(given)}" if given else "nothing here has a stock")


def _late(config: SimulationConfig, commute: Array) -> Array:
    """Ticks after the start of its shift at which each resident arrives, leaving home with the first decision that allows it."""
    ahead = config.employment.work_ahead // config.policy.interval * config.policy.interval
    late: Array = np.maximum(0, commute - ahead)
    return late


def _time(plan: Plan, config: SimulationConfig, day: Day, ways: Ways, span: float) -> Verdict:
    """Uses, shift and walking of the busiest resident against the day; the way to work against when one may set out."""
    lengths = {job.id: job.length for job in plan.jobs}
    errands = [ways.to(name) for name in day.uses if not _own(config, name)]
    near = sum((np.where(way >= FAR, 0, way) for way in errands), np.zeros(len(plan.residents), dtype=np.int64))
    commute = ways.to_work()
    shift = np.array([lengths.get(one.job or "", 0) for one in plan.residents])
    trips = ERRANDS / max(1, len(errands))
    total = sum(day.ticks.values()) + shift + 2 * trips * near + 2 * commute
    slowest, farthest = int(np.argmax(total)), int(np.argmax(commute))
    found = f"{plan.residents[slowest].id} needs {total[slowest]:.0f} of {DAY} ticks a day ({_share(total[slowest] / DAY)})"
    rules = config.employment
    if _late(config, commute)[farthest] > rules.absent_cutoff:
        who = plan.residents[farthest]
        late = (
            f"{who.id} walks {commute[farthest]} ticks to {who.job}, but may set out {rules.work_ahead} before the shift "
            f"and is absent {rules.absent_cutoff} after its start"
        )
        return Verdict("time", False, late, "bring home and site nearer or raise employment.work_ahead")
    ok = bool(total[slowest] <= TIME_SHARE * DAY) or span < 1
    return Verdict("time", ok, found, f"shorten shifts or ways to below {_share(TIME_SHARE)} of a day")


def _money(plan: Plan, config: SimulationConfig, day: Day, ways: Ways, span: float) -> Verdict:
    """What the poorest resident earns and owns against rent, cooking and washing; being late costs wages."""
    jobs = {job.id: job for job in plan.jobs}
    start, due = config.scenario.start, config.economy.rent_at + 1
    rents = int((start + span * DAY - due) // DAY) - int((start - due) // DAY)
    cost = config.economy.rent + day.coins
    worst, found = inf, ""
    for one, late in zip(plan.residents, _late(config, ways.to_work())):
        job, own = jobs.get(one.job or ""), config.economy.first_wallet if one.wallet is None else one.wallet / MONEY
        wage = 0.0 if job is None else max(0, job.length - late) * job.wage / MONEY
        if job is not None and late > config.employment.grace_ticks:
            wage -= job.penalty / MONEY
        left = own + span * wage - rents * config.economy.rent - span * day.coins
        if left < worst:
            worst, found = (
                left,
                f"{one.id} earns {wage:.2f} and spends {cost:.2f} a day, has {left:.2f} left after {span:.1f} days",
            )
    return Verdict("money", bool(worst >= 0), found, "raise wages or first wallets, or lower rent")


def _capacity(plan: Plan, config: SimulationConfig, offers: tuple[Offer, ...], day: Day, span: float) -> Verdict:
    """Ticks of use everybody needs in a day against the time off sleep and work, and meals against stock."""
    people, food = len(plan.residents), food_of(offers)
    asleep = sum(ticks for name, ticks in day.ticks.items() if _own(config, name))
    free = DAY - asleep - max((job.length for job in plan.jobs), default=0)
    loads = []
    for offer in offers:
        name = offer.spec.id
        if name in day.ticks and not offer.spec.own_home:
            share = people * day.ticks[name] / (offer.count * max(min(free, offer.open), 1))
            most = MEAL_SHARE if food is not None and offer in food.offers else BUSY_SHARE
            found = f"{name} is busy {_share(share)} of the time off sleep and work ({offer.count} for {people})"
            loads.append((share / most, found, f"add objects for {name} until they are busy below {_share(most)}"))
    if food is not None and food.stock < inf:
        meals = people * day.uses[food.eating.spec.id] * max(1, food.eating.spec.takes_meals)
        loads.append(
            (meals / food.stock, f"{meals:.0f} of the {food.stock:.0f} meals of a day are needed", "add stoves or stock")
        )
    missing = [name for name in config.needs if mainstay(offers, name) is None and span * DAY > _lasts(plan, config, name)]
    if missing:
        found = f"nothing here raises {' or '.join(missing)}"
        return Verdict("capacity", False, found, "add objects of an affordance that does")
    if not loads:
        return Verdict("capacity", True, "nothing here is shared")
    load, found, remedy = max(loads)
    return Verdict("capacity", bool(load <= 1.0 or span * DAY <= _patience(plan, config)), found, remedy)


def _starvation(plan: Plan, config: SimulationConfig, offers: tuple[Offer, ...], ways: Ways, span: float) -> Verdict:
    """The longest wait for what keeps from a collapse, everybody in want at once, against the ticks from `act_below` to there."""
    mortal = [name for name, need in config.needs.items() if need.at_bottom == "collapse"]
    told = [_starves(plan, config, offers, ways, span, name) for name in mortal]
    failed = [verdict for verdict in told if not verdict.ok]
    if not told:
        return Verdict("starvation", True, "nobody collapses here")
    return failed[0] if failed else Verdict("starvation", True, "; ".join(verdict.found for verdict in told))


def _starves(plan: Plan, config: SimulationConfig, offers: tuple[Offer, ...], ways: Ways, span: float, name: str) -> Verdict:
    """One need that ends in a collapse: hunger is met with meals that somebody cooks, others by what raises them."""
    need, hungry, food, using = config.needs[name], name == "hunger", food_of(offers), mainstay(offers, name)
    if using is None:
        ticks = _patience(plan, config, name) + need.collapse_ticks
        what, remedy = ("there is no food", "add a stove and a table") if hungry else (f"nothing raises {name}", "add what does")
        return Verdict("starvation", bool(span * DAY <= ticks), f"{what}; the first collapse comes after {ticks} ticks", remedy)
    asked = food.offers if hungry and food is not None else (using,)
    wait, queue = 0.0, 0
    for offer in asked:  # who has cooked eats while others cook: the longer of the queues counts
        if not offer.spec.own_home:
            turns = -(-len(plan.residents) // offer.count)
            queue = max(queue, (turns - 1) * offer.spec.ticks)
            wait += DAY - offer.open + offer.spec.ticks + float(np.max(ways.to(offer.spec.id)))
    wait += queue
    room = (need.act_below - need.collapse_below) / need.decay + need.collapse_ticks if need.decay else inf
    words = ("hungry", "eats") if hungry else (f"short of {name}", f"raises its {name}")
    found = f"when all are {words[0]} at once the last {words[1]} within {wait:.0f} ticks; {name} allows {room:.0f}"
    return Verdict(
        "starvation", bool(wait <= room), found, "add stoves or tables" if hungry else f"add objects that raise {name}"
    )


def _memory(plan: Plan, config: SimulationConfig) -> Verdict:
    parts = town_bytes(len(plan.residents), len(plan.objects), plan.tiles.shape, len(plan.buildings), config)
    total = sum(parts.values())
    shares = ", ".join(f"{name} {in_words(count)}" for name, count in parts.items())
    return Verdict("memory", total <= LIMIT, f"{in_words(total)} per town ({shares})", f"stay below {in_words(LIMIT)}")


def _lasts(plan: Plan, config: SimulationConfig, need: str, bottom: float = 0.0) -> float:
    """Ticks until the need of some resident falls to the bottom when nothing raises it."""
    lowest = min(one.needs[list(config.needs).index(need)] for one in plan.residents)
    decay = config.needs[need].decay
    return (lowest - bottom) / decay if decay else inf


def _patience(plan: Plan, config: SimulationConfig, need: str = "hunger") -> int:
    """Ticks the hungriest resident can go without food, or without what another need asks for."""
    return int(min(_lasts(plan, config, need, config.needs[need].collapse_below), 1e9))


def _own(config: SimulationConfig, affordance: str) -> bool:
    return any(spec.id == affordance and spec.own_home for spec in config.affordances.specs)


def _share(part: float) -> str:
    return f"{100 * part:.0f} %"
