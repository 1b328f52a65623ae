"""Towns built from a few numbers: square blocks with streets around them, homes, workplaces and services well mixed.

Inside a block furniture stands in rows with aisles of three tiles between them and a way of two tiles through the middle, so that
whoever sleeps or queues leaves room to pass; in a home it stands side by side, each piece with a tile of its own. Doors are two
tiles wide.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from townlet.config.base import DAY, nearest_name
from townlet.config.models import SimulationConfig, weights_of
from townlet.config.scenario import PROFILES, GenerateConfig
from townlet.errors import ScenarioError
from townlet.scenarios.plan import Building, Job, PlacedObject, Plan, Resident, Tie, object_kinds
from townlet.scenarios.size import MAX_BUILDINGS, check_size
from townlet.types import Array
from townlet.world.rules import money
from townlet.world.state import DOOR, FLOOR, OBJECT_TILE, ROAD, WALL

HOME, WORK, SERVICE, PARK = range(4)
HOME_KINDS = ("shower", "stove", "fridge", "table")
NAMES = (
    *("alice", "bob", "carol", "dave", "erin", "frank", "grace", "henry", "iris", "jack", "kate", "liam", "mona", "noah", "olga"),
    *("paul", "quinn", "rosa", "sam", "tara", "umar", "vera", "will", "xena", "yuri", "zoe"),
)


@dataclass(frozen=True)
class Block:
    kind: int
    x: int  # of the block's upper left street tile
    y: int
    side: int

    @property
    def inner(self) -> int:
        """Side of the floor inside street and wall."""
        return self.side - 4

    def slots(self) -> list[tuple[int, int]]:
        """Where furniture may stand, row by row: beside an aisle, never in the way through the middle."""
        n = self.inner
        rows = [r for r in range(n) if r % 5 == 4 or (r % 5 == 0 and r + 2 < n)]
        middle = (n // 2 - 1, n // 2)
        return [(self.x + 2 + c, self.y + 2 + r) for r in rows for c in range(n) if c not in middle]


def generated_plan(config: SimulationConfig) -> Plan:
    """The plan of a scenario with a `generate` block."""
    how, size = config.scenario.generate, config.scenario.size
    if how is None or size is None:
        raise ScenarioError("the scenario has no generate block with a size; write scenario.generate and scenario.size")
    width, height = size
    check_size(how.residents, how.residents * 2, (height, width), min(MAX_BUILDINGS, how.residents), config)
    known = object_kinds(config)
    for kind in how.residents_per:
        if kind not in known:
            raise ScenarioError(
                f"scenario.generate.residents_per names {kind!r}, which no affordance uses; {nearest_name(kind, known)}"
            )
    wanted = {kind: _count(how, kind) for kind in how.residents_per}
    at_home = {kind: count for kind, count in wanted.items() if how.services == "at_home" and kind in HOME_KINDS}
    apart = {kind: count for kind, count in wanted.items() if kind not in at_home}
    blocks = _blocks(how, width, height, at_home, sum(apart.values()))
    tiles = np.full((height, width), ROAD, dtype=np.uint8)
    for block in blocks:
        _build(tiles, block, walls=block.kind in (HOME, WORK) or (block.kind == SERVICE and not how.open_services))
    spots = _furnish_homes(how, blocks, at_home) + _furnish_services(blocks, apart)
    objects = _number(spots)
    for one in objects:
        tiles[one.y, one.x] = OBJECT_TILE
    buildings, jobs, residents = _people(how, config, blocks)
    return Plan(tiles, objects, tuple(buildings), tuple(jobs), tuple(residents), tuple(_feelings(how, residents)))


def _part(count: int, i: int, of: int) -> int:
    """Share of the i-th of `of` places in `count` things, spread evenly."""
    return count * (i + 1) // of - count * i // of


def _count(how: GenerateConfig, kind: str) -> int:
    per = how.residents_per[kind]
    return -(-how.residents // max(1, round(per))) if per > 0 else 0


def _blocks(how: GenerateConfig, width: int, height: int, at_home: dict[str, int], services: int) -> list[Block]:
    """Every block of the map with its kind; kinds are mixed so that services and sites are near every home."""
    side = how.block
    columns, rows = width // side, height // side
    room = len(Block(HOME, 0, 0, side).slots())
    floor = (side - 4) ** 2
    homes = -(-how.residents // how.residents_per_home)
    things = sum(-(-count // homes) for count in at_home.values())
    if -(-how.residents // homes) + things > room:
        raise ScenarioError(
            f"scenario.generate: a block of {side} has room for {room} pieces of furniture, not for {how.residents_per_home} "
            f"beds and {things} things shared at home; lower residents_per_home or raise block"
        )
    if how.workers_per_site > floor:
        raise ScenarioError(
            f"scenario.generate: a block of {side} has {floor} tiles, too few for {how.workers_per_site} workers; "
            "lower workers_per_site or raise block"
        )
    need = [homes, -(-how.residents // how.workers_per_site), -(-services // room)]
    total = columns * rows
    if sum(need) > total:
        raise ScenarioError(
            f"scenario.generate: {how.residents:,} residents need {sum(need)} blocks ({need[0]} homes, {need[1]} workplaces, "
            f"{need[2]} of services), a map of {height} rows and {width} columns has {total} blocks of {side}; "
            "enlarge scenario.size"
        )
    if need[0] + need[1] > MAX_BUILDINGS:
        raise ScenarioError(
            f"scenario.generate: {need[0]} homes and {need[1]} workplaces are more than {MAX_BUILDINGS} buildings; "
            "raise residents_per_home or workers_per_site"
        )
    counts = [*need, total - sum(need)]
    placed = [0, 0, 0, 0]
    blocks = []
    for i, (column, row) in enumerate(_path(columns, rows)):
        kind = max(range(4), key=lambda k: (counts[k] * (i + 1) / total - placed[k], -k))
        placed[kind] += 1
        blocks.append(Block(kind, column * side, row * side, side))
    return blocks


def _path(columns: int, rows: int) -> list[tuple[int, int]]:
    """Blocks as (column, row) in bands of two rows, to and fro: what is near on the path is near in the town."""
    path = []
    for band in range(0, rows, 2):
        there = range(columns) if band % 4 == 0 else range(columns - 1, -1, -1)
        path += [(column, row) for column in there for row in range(band, min(band + 2, rows))]
    return path


def _build(tiles: Array, block: Block, walls: bool) -> None:
    first, last = 1, block.side - 2
    x, y = block.x, block.y
    if walls:
        tiles[y + first : y + last + 1, x + first : x + last + 1] = WALL
        middle = x + 2 + block.inner // 2 - 1
        tiles[y + first, middle : middle + 2] = DOOR
        tiles[y + last, middle : middle + 2] = DOOR
    tiles[y + 2 : y + last, x + 2 : x + last] = FLOOR


def _furnish_homes(how: GenerateConfig, blocks: list[Block], at_home: dict[str, int]) -> list[tuple[str, int, int]]:
    """Beds, with what is shared at home evenly between them: everybody's nearest things are then other people's too."""
    homes = [block for block in blocks if block.kind == HOME]
    spots = []
    for i, home in enumerate(homes):
        counts = {"bed": _part(how.residents, i, len(homes))}
        counts |= {kind: _part(count, i, len(homes)) for kind, count in at_home.items()}
        total, placed = sum(counts.values()), dict.fromkeys(counts, 0)
        for k, (x, y) in enumerate(home.slots()[:total]):
            kind = max(counts, key=lambda name: counts[name] * (k + 1) / total - placed[name])
            placed[kind] += 1
            spots.append((kind, x, y))
    return spots


def _furnish_services(blocks: list[Block], apart: dict[str, int]) -> list[tuple[str, int, int]]:
    """Services spread evenly over their blocks, kind by kind, and benches in the parks."""
    service = [block for block in blocks if block.kind == SERVICE]
    spots = []
    for i, block in enumerate(service):
        kinds = [kind for kind, count in apart.items() for _ in range(_part(count, i, len(service)))]
        slots = block.slots()
        step = max(1, len(slots) // max(1, len(kinds)))
        spots += [(kind, x, y) for kind, (x, y) in zip(kinds, slots[::step])]
    for block in blocks:
        if block.kind == PARK:
            spots += [("bench", x, y) for x, y in block.slots()[::6]]
    return spots


def _number(spots: list[tuple[str, int, int]]) -> tuple[PlacedObject, ...]:
    """Objects with ids in reading order."""
    numbers: dict[str, int] = {}
    placed = []
    for kind, x, y in sorted(spots, key=lambda one: (one[2], one[1])):
        numbers[kind] = numbers.get(kind, 0) + 1
        placed.append(PlacedObject(f"{kind}_{numbers[kind]}", kind, x, y))
    return tuple(placed)


def _people(
    how: GenerateConfig, config: SimulationConfig, blocks: list[Block]
) -> tuple[list[Building], list[Job], list[Resident]]:
    """Homes, workplaces with shifts, and residents who work near their home."""
    draw = random.Random(how.seed)
    homes = [block for block in blocks if block.kind == HOME]
    sites = [block for block in blocks if block.kind == WORK]
    buildings = [Building(f"home_{i + 1}", b.x + 2, b.y + 2, b.inner, b.inner) for i, b in enumerate(homes)]
    buildings += [Building(f"site_{i + 1}", b.x + 2, b.y + 2, b.inner, b.inner) for i, b in enumerate(sites)]
    penalty = money(0.05)
    jobs = [
        Job(f"job_{i + 1}_{k + 1}", f"site_{i + 1}", start % DAY, how.shift_ticks, money(how.wage), penalty)
        for i in range(len(sites))
        for k, start in enumerate(how.shifts)
    ]
    profiles = config.profiles()
    levels = tuple(need.start for need in config.needs.values())
    residents: list[Resident] = []
    for i in range(len(homes)):
        for _ in range(_part(how.residents, i, len(homes))):
            n = len(residents)
            site = n * len(sites) // how.residents  # homes and sites follow one way through the town
            own = profiles[PROFILES[int(draw.random() * len(PROFILES))]]
            job = f"job_{site + 1}_{n % len(how.shifts) + 1}"
            residents.append(Resident(_name(n), f"home_{i + 1}", job, own.traits, levels, weights_of(config.needs, own)))
    return buildings, jobs, residents


def _name(n: int) -> str:
    return NAMES[n] if n < len(NAMES) else f"{NAMES[n % len(NAMES)]}_{n // len(NAMES) + 1}"


def _feelings(how: GenerateConfig, residents: list[Resident]) -> list[Tie]:
    """Feuds and friendships between neighbours in one home, at most one of each per resident."""
    draw = random.Random(how.seed + 1)
    ties = []
    for a, b in pairwise(residents):
        if a.home != b.home:
            continue
        chance, amount = draw.random(), draw.random()
        if chance < how.feuds / 2:
            rivalry = round(0.6 + 0.3 * amount, 3)
            ties += [Tie(a.id, b.id, -0.2, 0.0, rivalry), Tie(b.id, a.id, -0.2, 0.0, rivalry)]
        elif chance < how.feuds / 2 + how.friendships / 2:
            trust = round(0.3 + 0.4 * amount, 3)
            ties += [Tie(a.id, b.id, trust, trust, 0.0), Tie(b.id, a.id, trust, trust, 0.0)]
    return ties
