"""What a scenario says, once read: tiles, objects, buildings, jobs, residents and ties with every default filled in.

A map is ASCII art, a size with objects, or a `generate` block; all three end in one `Plan`, which `compile` turns into tables.
Rows and columns are counted from 0, as in the config.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from townlet.config.base import nearest_name
from townlet.config.models import SimulationConfig, weights_of
from townlet.config.scenario import ScenarioConfig
from townlet.errors import ScenarioError
from townlet.types import Array
from townlet.world.rules import money
from townlet.world.state import DOOR, FLOOR, OBJECT_TILE, TILES, WALL

TILE_MARKS = {".": "floor", "#": "wall", "+": "door", "=": "road"}
MAX_SIDE = 1024


@dataclass(frozen=True)
class PlacedObject:
    id: str
    kind: str
    x: int
    y: int
    stock: int | None = None  # None: what the economy says for its kind


@dataclass(frozen=True)
class Building:
    """A home or a workplace: the box of its floor, inside its walls."""

    id: str
    x: int
    y: int
    width: int
    height: int

    @property
    def at(self) -> tuple[int, int]:
        return self.x, self.y

    def part_of(self, grid: Array) -> Array:
        """Its floor in a grid of the map; a view."""
        return grid[self.y : self.y + self.height, self.x : self.x + self.width]

    def holds(self, x: int, y: int) -> bool:
        return self.x <= x < self.x + self.width and self.y <= y < self.y + self.height


@dataclass(frozen=True)
class Job:
    id: str
    site: str
    start: int
    length: int
    wage: int  # ten-thousandths per tick
    penalty: int


@dataclass(frozen=True)
class Resident:
    id: str
    home: str | None
    job: str | None
    personality: tuple[float, float, float]
    needs: tuple[float, ...]  # levels at the start
    weights: tuple[float, ...]  # what a lack of each costs
    position: tuple[int, int] | None = None  # (x, y); None: beside the own bed
    wallet: int | None = None  # None: economy.first_wallet
    meals: int = 1


@dataclass(frozen=True)
class Tie:
    """What `resident` feels for `other`."""

    resident: str
    other: str
    trust: float
    familiarity: float
    rivalry: float


@dataclass(frozen=True)
class Plan:
    tiles: Array  # (H, W) u1, index into TILES
    objects: tuple[PlacedObject, ...]
    buildings: tuple[Building, ...]
    jobs: tuple[Job, ...]
    residents: tuple[Resident, ...]
    ties: tuple[Tie, ...] = ()


def spot(x: int, y: int) -> str:
    return f"row {y}, column {x}"


def floor_of(building: Building, walk: Array) -> list[int]:
    """Tiles of a building one can stand on, as flat indices of the map."""
    width = walk.shape[1]
    return [(building.y + int(y)) * width + building.x + int(x) for y, x in np.argwhere(building.part_of(walk))]


def object_kinds(config: SimulationConfig) -> tuple[str, ...]:
    """Sorted kinds of object the affordance file knows."""
    return tuple(sorted({kind for spec in config.affordances.specs for kind in spec.objects}))


def full_stock(one: PlacedObject, config: SimulationConfig) -> int:
    """What an object is filled up to each day: its own stock, else that of its kind; -1 where nobody says."""
    return config.economy.stock.by_kind.get(one.kind, -1) if one.stock is None else one.stock


def written_plan(config: SimulationConfig) -> Plan:
    """The plan of a scenario that is written out: a map or a size, objects, buildings, residents."""
    scenario = config.scenario
    tiles, drawn = _draw(scenario, object_kinds(config)) if scenario.map else _measure(scenario)
    objects = _name_objects(scenario, tiles, drawn, object_kinds(config))
    buildings = tuple(Building(name, *box.at, *box.size) for name, box in scenario.buildings.items())
    jobs = tuple(
        Job(name, job.site, job.start, job.length, money(job.wage), money(job.lateness_penalty))
        for name, job in config.jobs.items()
    )
    residents = []
    for one in scenario.residents:
        own = config.personality(one)
        residents.append(
            Resident(
                one.id,
                one.home,
                one.job,
                own.traits,
                tuple(one.needs.get(name, need.start) for name, need in config.needs.items()),
                weights_of(config.needs, own),
                one.position,
                None if one.wallet is None else money(one.wallet),
                one.meals,
            )
        )
    return Plan(tiles, objects, buildings, jobs, tuple(residents), tuple(_feelings(scenario)))


def _feelings(scenario: ScenarioConfig) -> list[Tie]:
    """Ties in both directions: those between two residents, then what is left of those of circles."""
    ties = []
    for tie in scenario.ties:
        ties.append(Tie(tie.a, tie.b, tie.trust, tie.familiarity, tie.rivalry))
        if tie.mutual:
            ties.append(Tie(tie.b, tie.a, tie.trust, tie.familiarity, tie.rivalry))
    known = {(tie.resident, tie.other) for tie in ties}
    for circle in scenario.circles:
        for a, b in permutations(circle.among, 2):
            if (a, b) not in known:
                known.add((a, b))
                ties.append(Tie(a, b, circle.trust, circle.familiarity, circle.rivalry))
    return ties


def _draw(scenario: ScenarioConfig, kinds: tuple[str, ...]) -> tuple[Array, list[PlacedObject]]:
    """Tiles and objects of the ASCII art; drawn objects have no id yet."""
    rows = scenario.map.rstrip("\n").split("\n")
    width = len(rows[0])
    marks = {**TILE_MARKS, **scenario.legend}
    for mark, named in scenario.legend.items():
        if len(mark) != 1:
            raise ScenarioError(
                f"scenario.legend: {mark!r} is {len(mark)} characters long, expected one; a map has one character per tile"
            )
        if named not in TILES[:4] and named not in kinds:
            raise ScenarioError(
                f"scenario.legend: {mark!r} stands for {named!r}, which is neither a tile nor an object of the affordance file; "
                f"{nearest_name(named, TILES[:4] + kinds)}"
            )
    _check_size(width, len(rows))
    tiles = np.zeros((len(rows), width), dtype=np.uint8)
    drawn = []
    for y, row in enumerate(rows):
        if len(row) != width:
            raise ScenarioError(
                f"scenario.map: row {y} has {len(row)} columns, row 0 has {width}; "
                f"make all rows equally long ({'add' if len(row) < width else 'take away'} {abs(len(row) - width)})"
            )
        for x, mark in enumerate(row):
            meaning = marks.get(mark)
            if meaning is None:
                raise ScenarioError(
                    f"scenario.map: {spot(x, y)} holds {mark!r}, which has no meaning; "
                    f"add it to scenario.legend or use one of {' '.join(marks)}"
                )
            if meaning in TILES[:4]:
                tiles[y, x] = TILES.index(meaning)
            else:
                tiles[y, x] = OBJECT_TILE
                drawn.append(PlacedObject("", meaning, x, y))
    return tiles, drawn


def _measure(scenario: ScenarioConfig) -> tuple[Array, list[PlacedObject]]:
    """Open ground of the given size with boxes of wall round the given floors."""
    if scenario.size is None:
        raise ScenarioError(
            "the scenario has neither a map nor a size; draw scenario.map, or give scenario.size as [columns, rows]"
        )
    width, height = scenario.size
    _check_size(width, height)
    tiles = np.zeros((height, width), dtype=np.uint8)
    for box in scenario.walls:
        (x, y), (w, h) = box.at, box.size
        if x < 0 or y < 0 or w < 1 or h < 1 or x + w > width or y + h > height:
            raise ScenarioError(
                f"scenario.walls: a box of {w} × {h} at {spot(x, y)} leaves the map of {height} rows and {width} columns; "
                "move it inside"
            )
        tiles[y : y + h, x : x + w] = WALL
    for building in scenario.buildings.values():
        (x, y), (w, h) = building.at, building.size
        tiles[max(y, 0) : y + h, max(x, 0) : x + w] = FLOOR
    for x, y in scenario.doors:
        if not (0 <= x < width and 0 <= y < height):
            raise ScenarioError(
                f"scenario.doors: {spot(x, y)} is outside the map of {height} rows and {width} columns; move it inside"
            )
        tiles[y, x] = DOOR
    return tiles, []


def _check_size(width: int, height: int) -> None:
    if not (1 <= width <= MAX_SIDE and 1 <= height <= MAX_SIDE):
        raise ScenarioError(f"the map has {height} rows and {width} columns; expected 1 to {MAX_SIDE} of each")


def _name_objects(
    scenario: ScenarioConfig, tiles: Array, drawn: list[PlacedObject], kinds: tuple[str, ...]
) -> tuple[PlacedObject, ...]:
    """All objects in reading order with ids; the tiles they stand on become furniture."""
    height, width = tiles.shape
    placed = {(one.x, one.y): one for one in drawn}
    for item in scenario.objects:
        x, y = item.at
        if item.kind not in kinds:
            raise ScenarioError(
                f"scenario.objects: the kind {item.kind!r} at {spot(x, y)} is not in the affordance file; "
                f"{nearest_name(item.kind, kinds)}"
            )
        if not (0 <= x < width and 0 <= y < height):
            raise ScenarioError(
                f"scenario.objects: a {item.kind} at {spot(x, y)} is outside the map of {height} rows and {width} columns; "
                "move it inside"
            )
        if (x, y) in placed:
            raise ScenarioError(
                f"scenario.objects: two objects stand on {spot(x, y)}: a {placed[x, y].kind} and a {item.kind}; move one of them"
            )
        placed[x, y] = PlacedObject(item.id or "", item.kind, x, y, item.stock)
        tiles[y, x] = OBJECT_TILE
    ordered = sorted(placed.values(), key=lambda one: (one.y, one.x))
    counts: Counter[str] = Counter()
    taken = {one.id for one in ordered if one.id}
    named = []
    for one in ordered:
        name = one.id
        while not name:
            counts[one.kind] += 1
            name = f"{one.kind}_{counts[one.kind]}" if f"{one.kind}_{counts[one.kind]}" not in taken else ""
        named.append(PlacedObject(name, one.kind, one.x, one.y, one.stock))
    twice = [name for name, times in Counter(one.id for one in named).items() if times > 1]
    if twice:
        raise ScenarioError(f"scenario.objects: two objects are called {twice[0]!r}; ids must differ")
    return tuple(named)
