"""A scenario's tables: from a config to the arrays the town runs on. Pure: the same config gives the same bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from townlet.config.models import SimulationConfig
from townlet.errors import ScenarioError
from townlet.scenarios.spec import Building, PlacedObject, Plan, coins, object_kinds, written_plan
from townlet.world.layout import UNREACHABLE, neighbours, nearest_objects, step_fields, walkable
from townlet.world.state import (
    BUILDING,
    CANDIDATES,
    EXITS,
    JOB,
    MAX_EDGES,
    NEAR,
    NEEDS,
    OBJECT_SPEC,
    PERTURBATIONS,
    RESIDENT,
    SCHEDULED,
    TIE,
    Array,
    Layout,
)

NONE_FIELDS = (  # indices of a resident that point at nothing until something happens
    *("below", "home", "bed", "job", "desk_x", "desk_y", "target", "move", "request", "using", "affordance", "queued", "ahead"),
    *("behind", "called", "blocked_by", "cooldown_object", "meal_companion", "replaced_by", "exit_kind", "exit_at", "arrives_at"),
    *("avoided", "meet_at"),
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


def compile_town(config: SimulationConfig) -> CompiledTown:
    """The tables of one scenario; a scenario that cannot work is refused with the row and column at fault."""
    return compile_plan(written_plan(config), config)


def compile_plan(plan: Plan, config: SimulationConfig) -> CompiledTown:
    if not plan.residents:
        raise ScenarioError("the scenario has 0 residents, expected at least 1; add somebody to scenario.residents")
    private = {kind for spec in config.affordances.specs if spec.own_home for kind in spec.objects}
    homes = {one.home for one in plan.residents}
    order = _order(plan, private)
    walk = walkable(plan.tiles)
    _check_buildings(plan, walk)
    towards = step_fields(walk, [_floor(building, walk) for building in plan.buildings])
    reach = [_reach(one, walk, towards, plan, homes) for one in order]
    objects, buildings, bed_steps = _place(order, plan, config, walk, reach, private)
    nearest = _nearest(order, config, walk, reach)
    residents, jobs, workers = _settle(plan, config, walk, towards, objects, buildings, reach)
    layout = Layout(
        tiles=plan.tiles,
        objects=objects,
        nearest=nearest,
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
        tuple(one.id for one in order),
        tuple(one.id for one in plan.residents),
        tuple(one.id for one in plan.buildings),
        tuple(job.id for job in plan.jobs),
        object_kinds(config),
        config,
    )


def _house(one: PlacedObject, plan: Plan) -> int:
    """Index of the building an object stands in, -1 outside."""
    return next((i for i, building in enumerate(plan.buildings) if building.holds(one.x, one.y)), -1)


def _order(plan: Plan, private: set[str]) -> list[PlacedObject]:
    """Public objects as they are read, then the private ones building by building, so that a building's beds are consecutive."""
    beds = [one for one in plan.objects if one.kind in private]
    rest = [one for one in plan.objects if one.kind not in private]
    return rest + sorted(beds, key=lambda one: _house(one, plan))


def _floor(building: Building, walk: Array) -> list[int]:
    """Walkable tiles of a building as flat indices."""
    width = walk.shape[1]
    box = walk[building.y : building.y + building.height, building.x : building.x + building.width]
    return [(building.y + int(y)) * width + building.x + int(x) for y, x in np.argwhere(box)]


def _check_buildings(plan: Plan, walk: Array) -> None:
    height, width = walk.shape
    for building in plan.buildings:
        where = f"scenario.buildings.{building.id}: the floor of {building.width} × {building.height} at row {building.y}, column {building.x}"
        if building.width < 1 or building.height < 1:
            raise ScenarioError(f"{where} is empty; give it at least one column and one row")
        if building.x < 0 or building.y < 0 or building.x + building.width > width or building.y + building.height > height:
            raise ScenarioError(f"{where} leaves the map of {height} rows and {width} columns; move it inside")
        if not _floor(building, walk):
            raise ScenarioError(f"{where} has no tile to stand on; draw floor inside it")


def _reach(one: PlacedObject, walk: Array, towards: Array, plan: Plan, homes: set[str | None]) -> list[int]:
    """Tiles an object is used from, checked to lie on ground that is connected with every home."""
    width = walk.shape[1]
    spots = neighbours(walk, one.x, one.y)
    if not spots:
        raise ScenarioError(
            f"the {one.kind} {one.id!r} at row {one.y}, column {one.x} has no free tile beside it, so nobody can use it; "
            "clear one of its four sides"
        )
    for b, building in enumerate(plan.buildings):
        if building.id in homes and all(towards[b, spot // width, spot % width] == UNREACHABLE for spot in spots):
            raise ScenarioError(
                f"the {one.kind} {one.id!r} at row {one.y}, column {one.x} cannot be reached from {building.id!r}; "
                "open a door or a way between them"
            )
    return spots


def _place(
    order: list[PlacedObject], plan: Plan, config: SimulationConfig, walk: Array, reach: list[list[int]], private: set[str]
) -> tuple[Array, Array, Array]:
    """Object and building records, and the beds' own fields.  # (M,) OBJECT_SPEC, (B,) BUILDING, (X,) u2"""
    kinds = object_kinds(config)
    stock = config.economy.stock.model_dump()
    objects = np.zeros(len(order), dtype=OBJECT_SPEC)
    buildings = np.zeros(len(plan.buildings), dtype=BUILDING)
    for b, building in enumerate(plan.buildings):
        buildings[b] = (building.x, building.y, building.width, building.height, -1, 0)
    fields: list[Array] = []
    offset = 0
    for m, one in enumerate(order):
        house = _house(one, plan)
        full = stock.get(one.kind, -1) if one.stock is None else one.stock
        objects[m] = (kinds.index(one.kind), one.x, one.y, house, full, -1, 0, 0, 0, 0, 0)
        if one.kind not in private:
            continue
        if house < 0:
            raise ScenarioError(
                f"the {one.kind} {one.id!r} at row {one.y}, column {one.x} stands in no building; add the building around it to "
                "scenario.buildings"
            )
        building = plan.buildings[house]
        field, depth = _bed_field(one, building, walk, reach[m])
        objects[m]["field"], objects[m]["depth"] = offset, depth
        objects[m]["x0"], objects[m]["y0"], objects[m]["w"], objects[m]["h"] = (
            building.x,
            building.y,
            building.width,
            building.height,
        )
        fields.append(field.reshape(-1))
        offset += field.size
        if buildings[house]["beds"] == 0:
            buildings[house]["first_bed"] = m
        buildings[house]["beds"] += 1
    return objects, buildings, np.concatenate(fields) if fields else np.zeros(0, dtype=np.uint16)


def _bed_field(one: PlacedObject, building: Building, walk: Array, spots: list[int]) -> tuple[Array, int]:
    """The way to a bed over the box of its building, and the steps to it from the nearest way in."""
    height, width = walk.shape
    inside = walk[building.y : building.y + building.height, building.x : building.x + building.width]
    goals = [
        (spot // width - building.y) * building.width + spot % width - building.x
        for spot in spots
        if building.holds(spot % width, spot // width)
    ]
    field = step_fields(inside, [goals])[0]
    lost = np.argwhere(inside & (field == UNREACHABLE))
    if not goals or lost.size:
        y, x = (building.y + int(lost[0][0]), building.x + int(lost[0][1])) if lost.size else (one.y, one.x)
        raise ScenarioError(
            f"the {one.kind} {one.id!r} at row {one.y}, column {one.x} cannot be reached from row {y}, column {x} without leaving "
            f"{building.id!r}; take away the wall between them or make them two buildings"
        )
    ways_in = [
        int(field[y - building.y, x - building.x]) // 8
        for y in range(building.y, building.y + building.height)
        for x in range(building.x, building.x + building.width)
        if walk[y, x] and any(not building.holds(spot % width, spot // width) for spot in neighbours(walk, x, y))
    ]
    return field, min(ways_in, default=0)


def _nearest(order: list[PlacedObject], config: SimulationConfig, walk: Array, reach: list[list[int]]) -> Array:
    """The K nearest objects by affordance; what is used in one's own home only has the beds' fields instead.  # (H, W, A, K)"""
    table = np.zeros((*walk.shape, len(config.affordances.specs), CANDIDATES), dtype=NEAR)
    table["object"], table["step"] = -1, -1
    for a, spec in enumerate(config.affordances.specs):
        if not spec.own_home:
            table[:, :, a] = nearest_objects(walk, [(m, reach[m]) for m, one in enumerate(order) if one.kind in spec.objects])
    return table


def _settle(
    plan: Plan, config: SimulationConfig, walk: Array, towards: Array, objects: Array, buildings: Array, reach: list[list[int]]
) -> tuple[Array, Array, Array]:
    """Residents with bed, desk and first tile; jobs and their workers.  # (N,) RESIDENT, (J,) JOB, (X,) i8"""
    width = walk.shape[1]
    building_of = {building.id: i for i, building in enumerate(plan.buildings)}
    job_of = {job.id: j for j, job in enumerate(plan.jobs)}
    residents = np.zeros(len(plan.residents), dtype=RESIDENT)
    for name in NONE_FIELDS:
        residents[name] = -1
    residents["present"] = 1
    lodgers: dict[int, int] = {}
    taken: set[int] = set()
    for n, one in enumerate(plan.residents):
        row = residents[n]
        for need, value in zip(NEEDS, one.needs):
            row[need] = value
        row["wallet"] = coins(config.economy.first_wallet) if one.wallet is None else one.wallet
        row["meals"] = one.meals
        row["extroversion"], row["forgiveness"], row["ambition"] = one.personality
        row["attended"] = 1.0
        if one.home is None:
            raise ScenarioError(f"the resident {one.id!r} has no home; name one of scenario.buildings that has a bed")
        home = building_of[one.home]
        place = lodgers.get(home, 0)
        lodgers[home] = place + 1
        if place >= buildings[home]["beds"]:
            raise ScenarioError(
                f"{one.home!r} at row {buildings[home]['y0']}, column {buildings[home]['x0']} has {buildings[home]['beds']} beds for "
                f"more residents ({one.id!r} finds none); add a bed or give {one.id!r} another home"
            )
        row["home"], row["bed"] = home, buildings[home]["first_bed"] + place
        row["job"] = job_of[one.job] if one.job is not None else -1
        tile = _first_tile(
            one.id, one.position, plan, walk, [*reach[int(row["bed"])], *_floor(plan.buildings[home], walk)], taken
        )
        row["x"], row["y"] = tile % width, tile // width
        taken.add(tile)
    jobs, workers = _employ(plan, walk, towards, residents, building_of)
    return residents, jobs, workers


def _first_tile(name: str, wish: tuple[int, int] | None, plan: Plan, walk: Array, choice: list[int], taken: set[int]) -> int:
    """The wished tile, else the first free one of `choice`."""
    height, width = walk.shape
    if wish is None:
        free = [tile for tile in choice if tile not in taken]
        if not free:
            raise ScenarioError(
                f"the resident {name!r} finds no free tile at home to start from; enlarge the home or give a position"
            )
        return free[0]
    x, y = wish
    if not (0 <= x < width and 0 <= y < height) or not walk[y, x]:
        raise ScenarioError(
            f"the resident {name!r} starts at row {y}, column {x}, which is not a tile to stand on; choose floor, door or road"
        )
    if y * width + x in taken:
        raise ScenarioError(
            f"the resident {name!r} starts at row {y}, column {x}, where somebody stands already; choose another tile"
        )
    return y * width + x


def _employ(plan: Plan, walk: Array, towards: Array, residents: Array, building_of: dict[str, int]) -> tuple[Array, Array]:
    """Jobs, their workers, and for each worker a floor tile of the site, those farthest from the door first."""
    width = walk.shape[1]
    jobs = np.zeros(len(plan.jobs), dtype=JOB)
    workers: list[int] = []
    used: dict[int, int] = {}
    for j, job in enumerate(plan.jobs):
        site = building_of[job.site]
        staff = [n for n in range(len(residents)) if residents[n]["job"] == j]
        jobs[j] = (site, job.start, job.length, job.wage, job.penalty, len(workers), len(staff))
        workers += staff
        desks = _desks(plan.buildings[site], walk)
        first = used.get(site, 0)
        used[site] = first + len(staff)
        if first + len(staff) > len(desks):
            building = plan.buildings[site]
            raise ScenarioError(
                f"the site {job.site!r} at row {building.y}, column {building.x} has {len(desks)} tiles for {first + len(staff)} workers; "
                f"enlarge it or give {first + len(staff) - len(desks)} of them another job"
            )
        for n, desk in zip(staff, desks[first:]):
            residents[n]["desk_x"], residents[n]["desk_y"] = desk % width, desk // width
            home = residents[n]["home"]
            if towards[site, residents[n]["y"], residents[n]["x"]] == UNREACHABLE:
                building = plan.buildings[site]
                raise ScenarioError(
                    f"the site {job.site!r} at row {building.y}, column {building.x} cannot be reached from {plan.buildings[home].id!r}; "
                    "open a door or a way between them"
                )
    return jobs, np.asarray(workers, dtype=np.int64)


def _desks(building: Building, walk: Array) -> list[int]:
    """Floor tiles of a site, deepest first, so that whoever sits does not bar the door."""
    width = walk.shape[1]
    floor = _floor(building, walk)
    doors = [
        tile
        for tile in floor
        if any(not building.holds(s % width, s // width) for s in neighbours(walk, tile % width, tile // width))
    ]
    depth = step_fields(walk, [doors or floor])[0].reshape(-1) // 8
    return sorted(floor, key=lambda tile: (-int(depth[tile]), tile))


def _ties(plan: Plan, config: SimulationConfig) -> Array:
    """Feelings at the start, strongest first where there are more than slots.  # (N, MAX_EDGES) TIE"""
    slot = {one.id: n for n, one in enumerate(plan.residents)}
    ties = np.zeros((len(plan.residents), MAX_EDGES), dtype=TIE)
    ties["other"] = -1
    filled = [0] * len(plan.residents)
    seen: set[tuple[str, str]] = set()
    for tie in plan.ties:
        n = slot[tie.resident]
        if (tie.resident, tie.other) in seen:
            raise ScenarioError(
                f"scenario.ties: {tie.resident!r} has two ties to {tie.other!r}; keep one, or set mutual: false on both"
            )
        seen.add((tie.resident, tie.other))
        if filled[n] >= config.relationships.max_edges:
            raise ScenarioError(
                f"scenario.ties: {tie.resident!r} has more than {config.relationships.max_edges} ties (relationships.max_edges); take some away"
            )
        peak = int(tie.rivalry > config.conflict.rivalry.avoid_threshold)
        ties[n, filled[n]] = (slot[tie.other], tie.trust, tie.familiarity, tie.rivalry, 0, peak)
        filled[n] += 1
    return ties


def _scheduled(plan: Plan, config: SimulationConfig) -> Array:
    """Perturbations and exits by day and clock time; a perturbation without a day comes back every day.  # (S,) SCHEDULED"""
    slot = {one.id: n for n, one in enumerate(plan.residents)}
    rows = [
        (-1 if event.day is None else event.day, event.at, PERTURBATIONS.index(event.kind), event.duration, -1)
        for event in config.perturbations.events
    ]
    rows += [(leave.day, leave.at, EXITS.index("scheduled"), 0, slot[leave.resident]) for leave in config.lifecycle.exits]
    return np.array(rows, dtype=SCHEDULED)
