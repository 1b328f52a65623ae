"""Does the linter's verdict agree with seven simulated days? Two hundred towns, half of them spoilt in one place.

A line per town and the share at the end. The linter's bounds were set on seeds below 1,100; these are others.

python benchmarks/linter_agreement.py --drawn 100 --each 5 --first 2000 --json benchmarks/linter_agreement.json
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from townlet.config.base import DAY, clock, minutes
from townlet.config.loader import default_config, load_config, read_yaml, to_yaml
from townlet.config.models import SimulationConfig
from townlet.errors import ScenarioError
from townlet.files import write_json, write_text
from townlet.scenarios.lint import lint
from townlet.scenarios.random_town import MARKS, drawn_town, feasible_town, written_out
from townlet.sim.tally import EventTally
from townlet.studies.town_checks import play
from townlet.world.events import EXIT, SHIFT_ABSENT, SHIFT_LATE, SHIFT_ON_TIME

DAYS = 7
ATTENDANCE_ASKED = 0.90
LEVEL_ASKED = 0.2


@dataclass(frozen=True)
class Week:
    residents: int  # of all towns together
    exits: int
    shifts: int
    absences: int
    lowest: float  # mean level of the need that is met worst

    @property
    def attendance(self) -> float:
        return 1.0 - self.absences / self.shifts if self.shifts else 1.0

    @property
    def lives(self) -> bool:
        """Nobody leaves, shifts are attended, and no need is left unmet."""
        return self.exits == 0 and self.attendance >= ATTENDANCE_ASKED and self.lowest >= LEVEL_ASKED


def live_a_week(config: SimulationConfig, *, towns: int = 2) -> Week:
    """Count who leaves and who misses work over seven days of `towns` towns, and see how needs are met."""
    tally, levels, lives = EventTally(), np.zeros(len(config.needs)), 0
    for vec in play(config, "scripted", towns=towns, ticks=DAYS * DAY):
        tally.add(vec.events())
        present = vec.state.residents["present"] == 1  # (E, N)
        levels += vec.state.residents["needs"][present][:, : len(levels)].sum(axis=0)
        lives += int(present.sum())
    shifts = tally.count(SHIFT_ON_TIME) + tally.count(SHIFT_LATE)
    lowest = float(levels.min()) / max(1, lives)
    return Week(towns * vec.num_residents, tally.count(EXIT), shifts, tally.count(SHIFT_ABSENT), lowest)


Tree = dict[str, Any]
Spoil = Callable[[Tree, random.Random], None]
GAP = 110  # columns of road in a town that is torn apart


@dataclass(frozen=True)
class Judged:
    """One town: what was spoilt (nothing in a drawn one), what the linter says, how its week went."""

    seed: int
    damage: str | None
    failed: tuple[str, ...]  # verdicts
    week: Week | None  # None: it cannot even be built

    @property
    def lives(self) -> bool:
        return self.week is not None and self.week.lives

    @property
    def agrees(self) -> bool:
        return self.lives == (not self.failed)


def judge(seed: int, damage: str | None = None) -> Judged:
    """The town drawn by a seed; or, with a damage, the first town of the seed that passes the linter, spoilt."""
    config = drawn_town(seed) if damage is None else spoilt_town(seed, damage)
    failed = tuple(one.name for one in lint(config, days=DAYS).verdicts if not one.ok)
    try:
        week = live_a_week(config)
    except ScenarioError:
        week = None
    return Judged(seed, damage, failed, week)


def spoilt_town(seed: int, damage: str) -> SimulationConfig:
    """A town that could live, written out, with one thing spoilt."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "town.yaml"
        write_text(path, written_out(feasible_town(seed)))
        tree = read_yaml(path)
        DAMAGES[damage](tree, random.Random(f"{damage}/{seed}"))
        write_text(path, to_yaml(tree))
        return load_config(path)


# --- what can be spoilt -----------------------------------------------------------------------------------------------


def _rows(tree: Tree) -> list[list[str]]:
    return [list(row) for row in tree["scenario"]["map"].rstrip("\n").split("\n")]


def _draw(tree: Tree, rows: list[list[str]]) -> None:
    tree["scenario"]["map"] = "\n".join("".join(row) for row in rows) + "\n"


def _spots(rows: list[list[str]], kinds: tuple[str, ...]) -> list[tuple[int, int]]:
    marks = {MARKS[kind] for kind in kinds}
    return [(x, y) for y, row in enumerate(rows) for x, mark in enumerate(row) if mark in marks]


def _take_away(*kinds: str, left: int) -> Spoil:
    """All objects of these kinds but some."""

    def spoil(tree: Tree, draw: random.Random) -> None:
        rows = _rows(tree)
        spots = _spots(rows, kinds)
        for x, y in draw.sample(spots, max(0, len(spots) - left)):
            rows[y][x] = "."
        _draw(tree, rows)

    return spoil


def _take_one(kind: str) -> Spoil:
    def spoil(tree: Tree, draw: random.Random) -> None:
        rows = _rows(tree)
        x, y = draw.choice(_spots(rows, (kind,)))
        rows[y][x] = "."
        _draw(tree, rows)

    return spoil


def _wall_in(tree: Tree, draw: random.Random) -> None:
    """Walls on all sides of one object."""
    rows = _rows(tree)
    x, y = draw.choice(_spots(rows, ("shower", "stove", "table")))
    for nx, ny in ((x, y - 1), (x - 1, y), (x + 1, y), (x, y + 1)):
        if rows[ny][nx] in ".+=":
            rows[ny][nx] = "#"
    _draw(tree, rows)


def _shut(tree: Tree, draw: random.Random) -> None:
    """No door in one building."""
    rows = _rows(tree)
    (x, y), (width, height) = draw.choice([(box["at"], box["size"]) for box in tree["scenario"]["buildings"].values()])
    for nx in range(x - 1, x + width + 1):
        for ny in (y - 1, y + height):
            rows[ny][nx] = "#" if rows[ny][nx] == "+" else rows[ny][nx]
    _draw(tree, rows)


def _tear_apart(tree: Tree, draw: random.Random) -> None:
    """A long road between two columns of blocks: some homes are far from some sites and services."""
    rows = _rows(tree)
    at = 12 * draw.choice(range(1, len(rows[0]) // 12))
    _draw(tree, [[*row[:at], *"=" * GAP, *row[at:]] for row in rows])
    for box in tree["scenario"]["buildings"].values():
        if box["at"][0] >= at:
            box["at"][0] += GAP


def _jobs(**change: Callable[[float], object]) -> Spoil:
    def spoil(tree: Tree, _: random.Random) -> None:
        for job in tree["jobs"].values():
            for key, changed in change.items():
                job[key] = changed(job[key])

    return spoil


def _longer_shifts(hours: int) -> Spoil:
    def spoil(tree: Tree, _: random.Random) -> None:
        for job in tree["jobs"].values():
            job["end"] = clock((minutes(job["start"]) + 60 * hours) % DAY)

    return spoil


def _affordances(change: Callable[[Tree], None]) -> Spoil:
    """A change of every entry of the affordance file."""

    def spoil(tree: Tree, _: random.Random) -> None:
        specs = default_config().affordances.model_dump(mode="json")["specs"]
        for spec in specs:
            change(spec)
        tree["affordances"] = {"specs": specs}

    return spoil


def _dearer(spec: Tree) -> None:
    spec["price"] *= 5.0


def _smaller_meals(spec: Tree) -> None:
    spec["effects"] = {need: gain / 4.0 if need == "hunger" else gain for need, gain in spec["effects"].items()}


def _new_stoves(tree: Tree, draw: random.Random) -> None:
    """Stoves of a kind that nobody gave a stock."""
    _affordances(lambda spec: spec.update(objects=["oven" if kind == "stove" else kind for kind in spec["objects"]]))(tree, draw)
    tree["scenario"]["legend"][MARKS["stove"]] = "oven"


def _section(name: str, **values: object) -> Spoil:
    def spoil(tree: Tree, _: random.Random) -> None:
        tree[name] = {**tree.get(name, {}), **values}

    return spoil


DAMAGES: dict[str, Spoil] = {
    "no stoves": _take_away("stove", left=0),
    "one stove": _take_away("stove", left=1),
    "nowhere to eat": _take_away("table", "fridge", left=0),
    "one table": _take_away("table", "fridge", left=1),
    "no showers": _take_away("shower", left=0),
    "one shower": _take_away("shower", left=1),
    "a bed short": _take_one("bed"),
    "an object walled in": _wall_in,
    "a building shut": _shut,
    "torn apart": _tear_apart,
    "stoves without stock": _section("economy", stock={"stove": 0}),
    "little stock": _section("economy", stock={"stove": 4}),
    "stoves of a new kind": _new_stoves,
    "no wages": _jobs(wage=lambda wage: 0.0),
    "half the wages": _jobs(wage=lambda wage: round(wage / 2, 5)),
    "shifts of twelve hours": _longer_shifts(12),
    "shifts of sixteen hours": _longer_shifts(16),
    "rent tripled": _section("economy", rent=1.2),
    "everything dearer": _affordances(_dearer),
    "small meals": _affordances(_smaller_meals),
}


# --- the study -----------------------------------------------------------------------------------------------------------

BAR = 0.95


def towns(drawn: int, each: int, first: int) -> Iterator[Judged]:
    """Towns as they are drawn, then each damage done to towns that could live."""
    built = 0
    for seed in itertools.count(first):
        if built == drawn:
            break
        try:
            yield judge(seed)
        except ScenarioError as error:
            print(f"seed {seed} cannot be built, left out: {error}")
            continue
        built += 1
    seeds = itertools.count(first)
    for damage in DAMAGES:
        for seed in itertools.islice(seeds, each):
            yield judge(seed, damage)


def line(one: Judged) -> str:
    week = "cannot be built"
    if one.week is not None:
        lived = one.week
        week = f"{lived.exits} of {lived.residents} left, {lived.attendance:.0%} at work, lowest need {lived.lowest:.2f}"
    verdict = f"fails ({', '.join(one.failed)})" if one.failed else "passes"
    return f"{'' if one.agrees else 'DISAGREE: '}seed {one.seed}, {one.damage or 'as drawn'}: linter {verdict}; week: {week}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drawn", type=int, default=100, help="towns as they are drawn")
    parser.add_argument("--each", type=int, default=5, help="towns per damage")
    parser.add_argument("--first", type=int, default=2000, help="first seed")
    parser.add_argument("--json", type=Path, help="file for the result")
    given = parser.parse_args()
    judged: list[Judged] = []
    for one in towns(given.drawn, given.each, given.first):
        judged.append(one)
        print(line(one), flush=True)
    agreed, living = sum(one.agrees for one in judged), sum(one.lives for one in judged)
    print(f"agreement {agreed} of {len(judged)} = {agreed / len(judged):.3f}, bar {BAR}; {living} of them live")
    if given.json is not None:
        counts = {
            damage or "as drawn": {
                "towns": len(part),
                "live": sum(one.lives for one in part),
                "agree": sum(one.agrees for one in part),
            }
            for damage in (None, *DAMAGES)
            if (part := [one for one in judged if one.damage == damage])
        }
        write_json(
            given.json,
            {
                "command": " ".join(["python benchmarks/linter_agreement.py", *sys.argv[1:]]),
                "towns": len(judged),
                "agree": agreed,
                "agreement": agreed / len(judged),
                "live": living,
                "by_damage": counts,
                "disagreements": [line(one).removeprefix("DISAGREE: ") for one in judged if not one.agrees],
            },
        )
    return 0 if agreed >= BAR * len(judged) else 1


if __name__ == "__main__":
    sys.exit(main())
