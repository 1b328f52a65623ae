"""Who lives where and works where: residents with bed, desk and first tile, jobs with their workers."""

from __future__ import annotations

import numpy as np

from townlet.config.models import SimulationConfig
from townlet.errors import ScenarioError
from townlet.scenarios.spec import Building, Plan, coins, floor_of, spot
from townlet.world.layout import neighbours, step_fields
from townlet.world.state import JOB, RESIDENT, Array

NONE_FIELDS = (  # indices of a resident that point at nothing until something happens
    *("below", "home", "bed", "job", "desk_x", "desk_y", "target", "move", "request", "using", "affordance", "queued", "ahead"),
    *("behind", "called", "blocked_by", "cooldown_object", "meal_companion", "replaced_by", "exit_kind", "exit_at", "arrives_at"),
    *("avoided", "meet_at"),
)


def settle(
    plan: Plan, config: SimulationConfig, walk: Array, buildings: Array, reach: list[list[int]]
) -> tuple[Array, Array, Array]:
    """Residents as an episode begins, jobs, and the workers of each job.  # (N,) RESIDENT, (J,) JOB, (X,) i8"""
    width = walk.shape[1]
    building_of = {building.id: i for i, building in enumerate(plan.buildings)}
    job_of = {job.id: j for j, job in enumerate(plan.jobs)}
    residents = np.zeros(len(plan.residents), dtype=RESIDENT)
    for name in NONE_FIELDS:
        residents[name] = -1
    residents["present"] = 1
    residents["attended"] = 1.0
    lodgers = [0] * len(plan.buildings)
    taken: set[int] = set()
    for n, one in enumerate(plan.residents):
        row = residents[n]
        row["needs"][: len(one.needs)] = one.needs
        row["weights"][: len(one.weights)] = one.weights
        row["wallet"] = coins(config.economy.first_wallet) if one.wallet is None else one.wallet
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
    """Floor tiles of a site, deepest first, so that whoever sits does not bar the door."""
    width = walk.shape[1]
    inside = walk[building.y : building.y + building.height, building.x : building.x + building.width]
    floor = floor_of(building, walk)
    local = {tile: (tile // width - building.y) * building.width + tile % width - building.x for tile in floor}
    doors = [
        local[tile]
        for tile in floor
        if any(not building.holds(near % width, near // width) for near in neighbours(walk, tile % width, tile // width))
    ]
    depth = step_fields(inside, [doors or list(local.values())])[0].reshape(-1) // 8
    return sorted(floor, key=lambda tile: (-int(depth[local[tile]]), tile))
