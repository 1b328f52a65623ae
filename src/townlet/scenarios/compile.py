"""A scenario's tables: from a config to the arrays the town runs on. Pure: the same config gives the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from townlet.config.base import nearest_name
from townlet.config.models import SimulationConfig
from townlet.errors import ScenarioError
from townlet.scenarios.generate import generated_plan
from townlet.scenarios.plan import Building, PlacedObject, Plan, floor_of, full_stock, object_kinds, spot, written_plan
from townlet.scenarios.size import check_size
from townlet.types import Array
from townlet.world.layout import UNREACHABLE, nearest_objects, neighbours, step_fields, walkable
from townlet.world.rules import money
from townlet.world.state import (
    BUILDING,
    CANDIDATES,
    EXITS,
    JOB,
    NEAR,
    OBJECT_SPEC,
    PERTURBATIONS,
    SCHEDULED,
    Layout,
    empty_slots,
    no_ties,
)


@dataclass(frozen=True)
class CompiledTown:
    layout: Layout
    object_ids: tuple[str, ...]
    resident_ids: tuple[str, ...]
    building_ids: tuple[str, ...]
    job_ids: tuple[str, ...]
    kinds: tuple[str, ...]  # object kinds, sorted: what `objects["kind"]` indexes
    config: SimulationConfig


@contextmanager
def named(config: SimulationConfig) -> Iterator[None]:
    """An error of a scenario begins with the config it is about."""
    try:
        yield
    except ScenarioError as error:
        raise ScenarioError(f"{config.config_id}: {error}") from None


def read_plan(config: SimulationConfig) -> Plan:
    """What the scenario says, written out or generated."""
    with named(config):
        return written_plan(config) if config.scenario.generate is None else generated_plan(config)


def compile_town(config: SimulationConfig) -> CompiledTown:
    """The tables of one scenario; a scenario that cannot work is refused with the row and column at fault."""
    plan = read_plan(config)
    with named(config):
        return compile_plan(plan, config)


def check_orders(config: SimulationConfig, object_ids: Sequence[str]) -> None:
    """The objects that schedules name are there."""
    for resident in config.scenario.residents:
        for step in resident.schedule:
            if step.object is not None and step.object not in object_ids:
                hint = nearest_name(step.object, object_ids)
                raise ScenarioError(
                    f"the schedule of {resident.id!r} names the object {step.object!r}, which is not there; {hint}"
                )


def compile_plan(plan: Plan, config: SimulationConfig, *, nearest: Array | None = None) -> CompiledTown:
    """The tables of a plan; `nearest`, the slowest of them, where somebody has it of the same map and affordances."""
    if not plan.residents:
        raise ScenarioError("the scenario has 0 residents, expected at least 1; add somebody to scenario.residents")
    check_size(len(plan.residents), len(plan.objects), plan.tiles.shape, len(plan.buildings), config)
    walk = walkable(plan.tiles)
    _check_buildings(plan, walk)
    houses = houses_of(plan)
    private = config.affordances.home_kinds
    order = _order(plan, houses, private)
    reach = [_reach(one, walk) for one in order]
    towards = step_fields(walk, [floor_of(building, walk) for building in plan.buildings])
    _check_ways(plan, walk, towards, order, reach)
    objects, buildings, bed_steps = _place(order, houses, plan, config, walk, reach, private)
    residents, jobs, workers = settle(plan, config, walk, buildings, reach)
    layout = Layout(
        tiles=plan.tiles,
        objects=objects,
        nearest=_nearest(order, config, walk, reach) if nearest is None else nearest,
        towards=towards,
        bed_steps=bed_steps,
        buildings=buildings,
        jobs=jobs,
        workers=workers,
        residents=residents,
        ties=_ties(plan, config),
        scheduled=_scheduled(plan, config),
    )
    return CompiledTown(
        layout,
        object_ids=tuple(one.id for one in order),
        resident_ids=tuple(one.id for one in plan.residents),
        building_ids=tuple(one.id for one in plan.buildings),
        job_ids=tuple(one.id for one in plan.jobs),
        kinds=object_kinds(config),
        config=config,
    )


def _check_buildings(plan: Plan, walk: Array) -> None:
    height, width = walk.shape
    for building in plan.buildings:
        size = f"{building.width} × {building.height}"
        where = f"scenario.buildings.{building.id}: the floor of {size} at {spot(*building.at)}"
        if building.width < 1 or building.height < 1:
            raise ScenarioError(f"{where} is empty; give it at least one column and one row")
        if building.x < 0 or building.y < 0 or building.x + building.width > width or building.y + building.height > height:
            raise ScenarioError(f"{where} leaves the map of {height} rows and {width} columns; move it inside")
        if not floor_of(building, walk):
            raise ScenarioError(f"{where} has no tile to stand on; draw floor inside it")


def houses_of(plan: Plan) -> Array:
    """Building of every tile, -1 outside; where two overlap, the first.  # (H, W) i8"""
    houses = np.full(plan.tiles.shape, -1, dtype=np.int64)
    for b in range(len(plan.buildings) - 1, -1, -1):
        one = plan.buildings[b]
        one.part_of(houses)[...] = b
    return houses


def _order(plan: Plan, houses: Array, private: set[str]) -> list[PlacedObject]:
    """Public objects as they are read, then the private ones building by building, so that a building's beds are consecutive."""
    beds = [one for one in plan.objects if one.kind in private]
    for one in beds:
        if houses[one.y, one.x] < 0:
            raise ScenarioError(
                f"the {one.kind} {one.id!r} at {spot(one.x, one.y)} stands in no building; "
                "add the building around it to scenario.buildings"
            )
    return [one for one in plan.objects if one.kind not in private] + sorted(beds, key=lambda one: int(houses[one.y, one.x]))


def _reach(one: PlacedObject, walk: Array) -> list[int]:
    """Tiles an object is used from."""
    spots = neighbours(walk, one.x, one.y)
    if not spots:
        raise ScenarioError(
            f"the {one.kind} {one.id!r} at {spot(one.x, one.y)} has no free tile beside it, so nobody can use it; "
            "clear one of its four sides"
        )
    return spots


def _check_ways(plan: Plan, walk: Array, towards: Array, order: list[PlacedObject], reach: list[list[int]]) -> None:
    """From the first home one must be able to walk to every other home, every site and every object."""
    names = [building.id for building in plan.buildings]
    lived_in = [names.index(one.home) for one in plan.residents[:1] if one.home is not None]
    if not lived_in:
        return
    way = towards[lived_in[0]].reshape(-1)
    start = names[lived_in[0]]
    for one, spots in zip(order, reach):
        if all(way[tile] == UNREACHABLE for tile in spots):
            raise ScenarioError(
                f"the {one.kind} {one.id!r} at {spot(one.x, one.y)} cannot be reached from {start!r}; "
                "open a door or a way between them"
            )
    for building in plan.buildings:
        lost = [tile for tile in floor_of(building, walk) if way[tile] == UNREACHABLE]
        if lost:
            width = walk.shape[1]
            raise ScenarioError(
                f"{building.id!r} at {spot(lost[0] % width, lost[0] // width)} cannot be reached from {start!r}; "
                "open a door or a way between them"
            )


def _place(
    order: list[PlacedObject],
    houses: Array,
    plan: Plan,
    config: SimulationConfig,
    walk: Array,
    reach: list[list[int]],
    private: set[str],
) -> tuple[Array, Array, Array]:
    """Object and building records, and the beds' own fields.  # (M,) OBJECT_SPEC, (B,) BUILDING, (X,) u2"""
    kinds = object_kinds(config)
    objects = np.zeros(len(order), dtype=OBJECT_SPEC)
    for m, one in enumerate(order):
        full = full_stock(one, config)
        objects[m] = (kinds.index(one.kind), one.x, one.y, houses[one.y, one.x], full, -1, 0, 0, 0, 0, 0)
    buildings = np.zeros(len(plan.buildings), dtype=BUILDING)
    fields: list[Array] = []
    offset = 0
    housed: dict[int, list[int]] = {}
    for m, one in enumerate(order):
        if one.kind in private:
            housed.setdefault(int(houses[one.y, one.x]), []).append(m)
    for b, building in enumerate(plan.buildings):
        beds = housed.get(b, [])
        buildings[b] = (building.x, building.y, building.width, building.height, beds[0] if beds else -1, len(beds))
        if not beds:
            continue
        ways = _bed_fields(building, walk, [order[m] for m in beds], [reach[m] for m in beds])
        doors = [_inside(building, tile, walk) for tile in ways_in(building, walk)]
        for m, way in zip(beds, ways):
            objects[m]["field"] = offset
            objects[m]["x0"], objects[m]["y0"], objects[m]["w"], objects[m]["h"] = (*building.at, building.width, building.height)
            objects[m]["depth"] = min((int(way.flat[door]) // 8 for door in doors), default=0)
            offset += way.size
            fields.append(way.reshape(-1))
    return objects, buildings, np.concatenate(fields) if fields else np.zeros(0, dtype=np.uint16)


def _bed_fields(building: Building, walk: Array, beds: list[PlacedObject], reach: list[list[int]]) -> Array:
    """The way to each bed of a building over the building's box.  # (beds, h, w) u2"""
    width = walk.shape[1]
    inside = building.part_of(walk)
    goals = [[_inside(building, tile, walk) for tile in spots if building.holds(tile % width, tile // width)] for spots in reach]
    ways = step_fields(inside, goals)
    for one, way in zip(beds, ways):
        lost = np.argwhere(inside & (way == UNREACHABLE))
        if lost.size:
            y, x = building.y + int(lost[0][0]), building.x + int(lost[0][1])
            raise ScenarioError(
                f"the {one.kind} {one.id!r} at {spot(one.x, one.y)} cannot be reached from {spot(x, y)} without leaving "
                f"{building.id!r}; take away what is between them or make them two buildings"
            )
    return ways


def ways_in(building: Building, walk: Array) -> list[int]:
    """Floor tiles of a building that have a way out beside them."""
    width = walk.shape[1]
    return [
        tile
        for tile in floor_of(building, walk)
        if any(not building.holds(near % width, near // width) for near in neighbours(walk, tile % width, tile // width))
    ]


def _inside(building: Building, tile: int, walk: Array) -> int:
    """A tile of the map as one of the building's box."""
    y, x = divmod(tile, int(walk.shape[1]))
    return (y - building.y) * building.width + x - building.x


def _nearest(order: list[PlacedObject], config: SimulationConfig, walk: Array, reach: list[list[int]]) -> Array:
    """The K nearest objects by affordance; empty for what is used at home only, which has `bed_steps`.  # (H, W, A, K)"""
    table = np.zeros((*walk.shape, len(config.affordances.specs), CANDIDATES), dtype=NEAR)
    table["object"], table["step"] = -1, -1
    for a, spec in enumerate(config.affordances.specs):
        if not spec.own_home:
            table[:, :, a] = nearest_objects(walk, [(m, reach[m]) for m, one in enumerate(order) if one.kind in spec.objects])
    return table


def _ties(plan: Plan, config: SimulationConfig) -> Array:
    """Feelings at the start.  # (N, MAX_EDGES) TIE"""
    slot = {one.id: n for n, one in enumerate(plan.residents)}
    ties = no_ties(len(plan.residents))
    filled = [0] * len(plan.residents)
    seen: set[tuple[str, str]] = set()
    for tie in plan.ties:
        n = slot[tie.resident]
        if (tie.resident, tie.other) in seen:
            raise ScenarioError(
                f"scenario.ties: {tie.resident!r} has two ties to {tie.other!r}; keep one, or set mutual: false on both"
            )
        seen.add((tie.resident, tie.other))
        most = config.relationships.max_edges
        if filled[n] >= most:
            raise ScenarioError(
                f"scenario.ties: {tie.resident!r} has more than {most} ties (relationships.max_edges); take some away"
            )
        peak = tie.rivalry if tie.rivalry > config.conflict.rivalry.avoid_threshold else 0.0
        ties[n, filled[n]] = (slot[tie.other], tie.trust, tie.familiarity, tie.rivalry, 0, peak)
        filled[n] += 1
    return ties


def _scheduled(plan: Plan, config: SimulationConfig) -> Array:
    """Perturbations, then departures, by day (-1: every day) and minute.  # (S,) SCHEDULED"""
    slot = {one.id: n for n, one in enumerate(plan.residents)}
    rows = [
        (-1 if event.day is None else event.day, event.at, PERTURBATIONS.index(event.kind), event.duration, -1)
        for event in config.perturbations.events
    ]
    rows += [(leave.day, leave.at, EXITS.index("scheduled"), 0, slot[leave.resident]) for leave in config.lifecycle.exits]
    return np.array(rows, dtype=SCHEDULED)


def settle(
    plan: Plan, config: SimulationConfig, walk: Array, buildings: Array, reach: list[list[int]]
) -> tuple[Array, Array, Array]:
    """Residents as an episode begins, jobs, and the workers of each job.  # (N,) RESIDENT, (J,) JOB, (X,) i8"""
    width = walk.shape[1]
    building_of = {building.id: i for i, building in enumerate(plan.buildings)}
    job_of = {job.id: j for j, job in enumerate(plan.jobs)}
    residents = empty_slots(len(plan.residents))
    residents["present"] = 1
    residents["attended"] = 1.0
    lodgers = [0] * len(plan.buildings)
    taken: set[int] = set()
    for n, one in enumerate(plan.residents):
        row = residents[n]
        row["needs"][: len(one.needs)] = one.needs
        row["weights"][: len(one.weights)] = one.weights
        row["wallet"] = money(config.economy.first_wallet) if one.wallet is None else one.wallet
        row["meals"] = one.meals
        row["extroversion"], row["forgiveness"], row["ambition"] = one.personality
        if one.home is None:
            raise ScenarioError(f"the resident {one.id!r} has no home; name one of scenario.buildings that has a bed")
        home = building_of[one.home]
        beds = int(buildings[home]["beds"])
        if lodgers[home] >= beds:
            raise ScenarioError(
                f"{one.home!r} at {spot(*plan.buildings[home].at)} has {beds} {'bed' if beds == 1 else 'beds'}, "
                f"and {one.id!r} finds none free; add a bed or give {one.id!r} another home"
            )
        row["home"], row["bed"] = home, int(buildings[home]["first_bed"]) + lodgers[home]
        lodgers[home] += 1
        row["job"] = -1 if one.job is None else job_of[one.job]
        tile = _first_tile(one.id, one.position, walk, plan.buildings[home], reach[int(row["bed"])], taken)
        row["x"], row["y"] = tile % width, tile // width
        taken.add(tile)
    jobs, workers = _employ(plan, walk, residents, building_of)
    return residents, jobs, workers


def _first_tile(name: str, wish: tuple[int, int] | None, walk: Array, home: Building, bedside: list[int], taken: set[int]) -> int:
    """The wished tile, else a free one beside the bed, else any free one at home."""
    height, width = walk.shape
    if wish is None:
        free = [tile for tile in bedside if tile not in taken] or [tile for tile in floor_of(home, walk) if tile not in taken]
        if not free:
            raise ScenarioError(
                f"the resident {name!r} finds no free tile in {home.id!r} at {spot(*home.at)} to start from; "
                "enlarge the home or give the resident a position"
            )
        return free[0]
    x, y = wish
    if not (0 <= x < width and 0 <= y < height) or not walk[y, x]:
        raise ScenarioError(
            f"the resident {name!r} starts at {spot(x, y)}, which is not a tile to stand on; choose floor, door or road"
        )
    if y * width + x in taken:
        raise ScenarioError(f"the resident {name!r} starts at {spot(x, y)}, where somebody stands already; choose another tile")
    return int(y * width + x)


def _employ(plan: Plan, walk: Array, residents: Array, building_of: dict[str, int]) -> tuple[Array, Array]:
    """Jobs, their workers, and for each worker a floor tile of its own at the site."""
    width = walk.shape[1]
    jobs = np.zeros(len(plan.jobs), dtype=JOB)
    workers: list[int] = []
    seats: dict[int, list[int]] = {}
    for j, job in enumerate(plan.jobs):
        site = building_of[job.site]
        building = plan.buildings[site]
        staff = np.flatnonzero(residents["job"] == j).tolist()
        jobs[j] = (site, job.start, job.length, job.wage, job.penalty, len(workers), len(staff))
        workers += staff
        if site not in seats:
            seats[site] = desks(building, walk)
        free = seats[site]
        if len(staff) > len(free):
            raise ScenarioError(
                f"the site {job.site!r} at {spot(*building.at)} has {len(desks(building, walk))} tiles, "
                f"{len(staff) - len(free)} too few for its workers; enlarge it or give some of them another job"
            )
        for n in staff:
            desk = free.pop(0)
            residents[n]["desk_x"], residents[n]["desk_y"] = desk % width, desk // width
    return jobs, np.asarray(workers, dtype=np.int64)


def desks(building: Building, walk: Array) -> list[int]:
    """Floor tiles of a site, deepest first, so that workers do not block the door."""
    inside = building.part_of(walk)
    floor = floor_of(building, walk)
    local = {tile: _inside(building, tile, walk) for tile in floor}
    doors = [local[tile] for tile in ways_in(building, walk)]
    depth = step_fields(inside, [doors or list(local.values())])[0].reshape(-1) // 8
    return sorted(floor, key=lambda tile: (-int(depth[local[tile]]), tile))
