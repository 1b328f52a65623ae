"""Random towns: a few numbers drawn by a seed, and any plan written out as a scenario a designer can edit."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import lru_cache

from townlet.config.base import DAY, clock
from townlet.config.loader import default_config
from townlet.config.models import SimulationConfig
from townlet.config.scenario import RESIDENTS_PER, GenerateConfig, ScenarioConfig
from townlet.config.town import EconomyConfig
from townlet.errors import ScenarioError
from townlet.scenarios.compile import read_plan
from townlet.scenarios.lint import lint
from townlet.scenarios.plan import TILE_MARKS, Plan
from townlet.world.state import MONEY, TILES

MARKS = {"bed": "b", "bench": "n", "cafe_counter": "c", "fridge": "f", "shower": "s", "stove": "o", "table": "t"}
TRIES = 200
FOOD = ("stove", "fridge")


def drawn_town(seed: int, attempt: int = 0) -> SimulationConfig:
    """A town of 4 to 18 residents whose numbers are drawn: some are too few showers, stoves or coins to live on."""
    draw = random.Random(f"{seed}/{attempt}")
    residents = 4 + int(15 * draw.random())
    shift = 60 * int(7 + 4 * draw.random())
    length = 180 + 20 * int(7 * draw.random())

    def shared(low: float, high: float) -> float:
        """Residents per object, more often few than many."""
        return round(low * math.pow(high / low, draw.random()), 1)

    how = GenerateConfig(
        seed=seed,
        residents=residents,
        block=12,
        residents_per_home=5 + int(4 * draw.random()),
        workers_per_site=18,
        residents_per={
            "shower": shared(2.0, 24.0),
            "stove": shared(2.0, 16.0),
            "fridge": shared(4.0, 16.0),
            "table": shared(2.0, 12.0),
            "cafe_counter": shared(4.0, 40.0),
            "bench": shared(3.0, 12.0),
        },
        shifts=(shift, shift + 120),
        shift_ticks=length,
        wage=round(0.0026 + 0.0020 * draw.random(), 4),
        services="at_home" if draw.random() < 0.5 else "apart",
        open_services=draw.random() < 0.5,
        feuds=round(0.4 * draw.random(), 2),
        friendships=round(0.6 * draw.random(), 2),
    )
    scenario = ScenarioConfig(
        name=f"town_{seed}",
        description=f"A town drawn by seed {seed}: {residents} residents, shifts of {length} minutes.",
        size=(36, 24 if draw.random() < 0.5 else 36),
        generate=how,
    )
    economy = EconomyConfig(rent=round(0.30 + 0.20 * draw.random(), 2))
    return default_config().model_copy(
        update={"config_id": scenario.name, "seed": seed, "scenario": scenario, "economy": economy}
    )


def varied_town(seed: int, attempt: int = 0) -> SimulationConfig:
    """A town of 24 residents in which everything else is drawn: the size of blocks and so the length of ways, how many live in a
    house and work at a site, in two to four shifts, what they share, and who likes whom. What is trained in a series of these
    (`training.drawn_towns`) meets crowds in small houses and large ones."""
    draw = random.Random(f"sizes/{seed}/{attempt}")
    first, block = 60 * draw.randint(7, 11), draw.choice([12, 16, 21, 32])
    how = GenerateConfig(
        seed=seed,
        residents=24,
        block=block,
        residents_per_home=draw.choice([8, 12, 24]),
        workers_per_site=draw.choice([8, 12, 24]),
        residents_per={
            "shower": draw.choice([3.0, 4.0, 6.0, 8.0]),
            "stove": draw.choice([3.0, 4.0, 6.0, 8.0]),
            "fridge": 8.0,
            "table": draw.choice([2.0, 3.0, 4.0, 6.0]),
            "cafe_counter": draw.choice([4.0, 8.0]),
            "bench": draw.choice([3.0, 4.0]),
        },
        shifts=tuple(first + 60 * later for later in sorted(draw.sample(range(7), draw.choice([2, 3, 4])))),
        services=draw.choice(["at_home", "apart"]),
        open_services=draw.random() < 0.5,
        feuds=round(0.5 * draw.random(), 2),
        friendships=round(0.5 * draw.random(), 2),
    )
    side = 64 // block * block
    scenario = ScenarioConfig(name=f"varied_{seed}", size=(side, side), generate=how)
    return default_config().model_copy(update={"config_id": scenario.name, "seed": seed, "scenario": scenario})


@lru_cache(maxsize=2)
def varied_towns(count: int) -> tuple[SimulationConfig, ...]:
    """The first of the towns that are trained in; those of odd seeds are for measuring."""
    return tuple(feasible_town(2 * k, varied_town) for k in range(count))


def sized_town(name: str, seed: int, residents: int, crowding: float, feuds: float) -> SimulationConfig:
    """A town of this many residents in which `crowding` times as many as usual share a shower, table, café or bench, and a
    share of them has a feud; on the smallest square map with room for it. Stoves and fridges stay: there is enough to eat."""
    how = GenerateConfig(
        seed=seed,
        residents=residents,
        block=12,
        residents_per_home=8,
        workers_per_site=18,
        residents_per={kind: usual if kind in FOOD else round(usual * crowding, 1) for kind, usual in RESIDENTS_PER.items()},
        shifts=(540, 660),
        feuds=feuds,
    )
    about = f"{residents} residents, {crowding:g} times as many as usual to a shower, feuds for {feuds:.0%} of them."
    most = 2 + math.isqrt(residents)  # blocks per side: never more than one for each resident
    for side in range(2, most + 1):
        scenario = ScenarioConfig(name=name, description=about, size=(side * how.block, side * how.block), generate=how)
        config = default_config().model_copy(update={"config_id": name, "seed": seed, "scenario": scenario})
        try:
            read_plan(config)
            return config
        except ScenarioError as error:
            why = error
    raise ScenarioError(f"no town of {residents} residents and crowding {crowding:g} could be drawn: {why}")


def feasible_town(seed: int, draw: Callable[[int, int], SimulationConfig] = drawn_town) -> SimulationConfig:
    """The first town that `draw(seed, attempt)` makes and the linter passes over a week."""
    for attempt in range(TRIES):
        config = draw(seed, attempt)
        try:
            if lint(config, days=7).ok:
                return config
        except ScenarioError:
            continue
    raise ScenarioError(f"none of {TRIES} towns drawn by seed {seed} passes the linter; try another seed")


def picture(plan: Plan) -> str:
    """The map as ASCII art."""
    drawn = {name: mark for mark, name in TILE_MARKS.items()}
    rows = [[drawn.get(TILES[tile], "?") for tile in row] for row in plan.tiles]
    for one in plan.objects:
        rows[one.y][one.x] = MARKS.get(one.kind, "?")
    return "\n".join("".join(row) for row in rows)


def written_out(config: SimulationConfig) -> str:
    """A generated scenario as YAML with its map drawn, so that it can be edited by hand."""
    plan, scenario = read_plan(config), config.scenario
    kinds = sorted({one.kind for one in plan.objects})
    profiles = {own.traits: name for name, own in config.profiles().items()}
    lines = [
        f"# {scenario.description}",
        f'config_id: "{config.config_id}"',
        f"seed: {config.seed}",
        f"economy: {{rent: {config.economy.rent}}}",
        "jobs:",
    ]
    for job in plan.jobs:
        end = clock((job.start + job.length) % DAY)
        lines.append(f'  {job.id}: {{site: {job.site}, start: "{clock(job.start)}", end: "{end}", wage: {job.wage / MONEY}}}')
    lines += [
        "scenario:",
        f'  name: "{scenario.name}"',
        f"  description: >-\n    {scenario.description}",
        f'  start: "{clock(scenario.start)}"',
        f"  episode_ticks: {scenario.episode_ticks}",
        "  map: |",
        *(f"    {row}" for row in picture(plan).split("\n")),
        f"  legend: {{{', '.join(f'{MARKS[kind]}: {kind}' for kind in kinds)}}}",
        "  buildings:",
    ]
    lines += [f"    {one.id}: {{at: [{one.x}, {one.y}], size: [{one.width}, {one.height}]}}" for one in plan.buildings]
    lines.append("  residents:")
    for person in plan.residents:
        profile = profiles[person.personality]
        lines.append(f"    - {{id: {person.id}, home: {person.home}, job: {person.job}, profile: {profile}}}")
    if plan.ties:
        lines.append("  ties:")
    for tie in plan.ties:
        feelings = f"trust: {tie.trust}, familiarity: {tie.familiarity}, rivalry: {tie.rivalry}"
        lines.append(f"    - {{a: {tie.resident}, b: {tie.other}, {feelings}, mutual: false}}")
    return "\n".join(lines) + "\n"


TEMPLATE = """\
# A small town to start from: draw the map, name homes and workplaces, say who lives there.
config_id: "{name}"
seed: 1
jobs:
  clerk: {{site: office, start: "09:00", end: "13:00"}}
scenario:
  name: "{name}"
  description: >-
    What happens here, and why it is worth a look.
  start: "06:00"
  map: |
    ############
    #bb..#..s..#
    #....+.....#
    #....#o.t.f#
    #######+####
    ============
    ####+#######
    #..........#
    ############
  legend: {{b: bed, s: shower, o: stove, t: table, f: fridge}}
  buildings:
    house: {{at: [1, 1], size: [4, 3]}}
    office: {{at: [1, 7], size: [10, 1]}}
  residents:
    - {{id: alice, home: house, job: clerk, profile: industrious}}
    - {{id: bob, home: house, job: clerk, profile: socialite}}
  ties:
    - {{a: alice, b: bob, rivalry: 0.6}}
"""


def template(name: str) -> str:
    """A small scenario that works, to be edited."""
    return TEMPLATE.format(name=name)
