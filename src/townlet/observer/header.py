"""The header of a take: all that does not change from tick to tick, as the page, the file and the questions read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from townlet.config.models import SimulationConfig
from townlet.engine.image import fits_a_page
from townlet.envs.scene import initials, marks_of
from townlet.envs.vector import VectorTown
from townlet.observer.reel import REEL_TICKS, Columns, columns
from townlet.observer.stage import Stage
from townlet.observer.take import Take
from townlet.observer.words import REASON_WORDS, WORDS
from townlet.scenarios.compile import CompiledTown, compile_town
from townlet.sim.edits import ConfigEdit, parse_edit
from townlet.types import Record
from townlet.world.film import DOING, FilmColumn
from townlet.world.state import CONFLICT_REASONS, EVENTS, EXITS, PERTURBATIONS, TILES

REASONS = {"queue_conflict": CONFLICT_REASONS, "quarrel": CONFLICT_REASONS, "exit": EXITS, "perturbation": PERTURBATIONS}


class GroundPlan(TypedDict):
    """A town as its scenario draws it."""

    map: Record  # width, height, tiles (a row is a string of digits), legend
    buildings: list[Record]  # id, kind, x, y, w, h
    things: list[Record]  # id, kind, mark, x, y, from, until (tick from which it is gone)


class TakeHeader(GroundPlan):
    id: str
    take: Record
    title: str
    parent: str | None
    first: int  # tick
    ticks: int
    interval: int  # ticks of a decision
    start_minute: int
    start_day: int
    ticks_per_day: int
    reel_ticks: int
    reels: int
    values: bool  # the policy has a critic
    gamma: float
    lives: bool  # it can go on in a page, without a server
    people: list[Record]  # slot, id, mark, home, job, personality
    needs: list[Record]  # name, line below which the script acts
    actions: list[str]
    doing: list[str]
    events: list[str]
    reasons: dict[str, list[str]]  # by kind of event
    words: Mapping[str, str]
    reason_words: Mapping[str, str]
    perturbations: list[str]
    columns: dict[str, list[Record]]  # of a reel, by group: name, bytes, signed, scale
    avoid_line: float


def header_of(take: Take, title: str, parent: str | None, stage: Stage) -> TakeHeader:
    vec = stage.vec
    town, config = vec.towns[0], vec.config
    table = columns(tuple(config.needs), values=stage.policy.has_values)
    marks = marks_of(sorted({thing.kind for thing in stage.things}))
    letters = initials(list(town.resident_ids))
    return {
        "id": take.id,
        "take": take.model_dump(mode="json"),
        "title": title,
        "parent": parent,
        "first": stage.first,
        "ticks": stage.ticks,
        "interval": stage.interval,
        "start_minute": stage.start_minute,
        "start_day": stage.start_day,
        "ticks_per_day": config.world.ticks_per_day,
        "reel_ticks": REEL_TICKS,
        "reels": -(-stage.ticks // REEL_TICKS),
        "values": stage.policy.has_values,
        "gamma": config.ppo.gamma,
        "lives": fits_a_page(vec) and not any(isinstance(parse_edit(one.do), ConfigEdit) for one in take.changes),
        **_plan(
            town,
            [
                {
                    "id": thing.id,
                    "kind": thing.kind,
                    "mark": marks[thing.kind],
                    "x": thing.x,
                    "y": thing.y,
                    "affordance": thing.affordance,
                    "from": thing.first,
                    "until": thing.last,
                }
                for thing in stage.things
            ],
        ),
        "people": [_person(vec, slot, letters[name]) for slot, name in enumerate(town.resident_ids)],
        "needs": [{"name": name, "line": need.act_below} for name, need in config.needs.items()],
        "actions": list(vec.catalogue.names),
        "doing": list(DOING),
        "events": list(EVENTS),
        "reasons": {kind: list(words) for kind, words in REASONS.items()},
        "words": WORDS,
        "reason_words": REASON_WORDS,
        "perturbations": list(PERTURBATIONS),
        "columns": {group: [_column(one) for one in row] for group, row in table.items()},
        "avoid_line": float(vec.tables.rules[0]["avoid_threshold"]),
    }


def _plan(town: CompiledTown, things: list[Record]) -> GroundPlan:
    tiles, homes = town.layout.tiles, {int(home) for home in town.layout.residents["home"]}
    return {
        "map": {
            "width": int(tiles.shape[1]),
            "height": int(tiles.shape[0]),
            "tiles": ["".join(map(str, row)) for row in tiles.tolist()],
            "legend": list(TILES),
        },
        "buildings": [
            {
                "id": name,
                "kind": "home" if k in homes else "work",
                "x": int(row["x0"]),
                "y": int(row["y0"]),
                "w": int(row["w"]),
                "h": int(row["h"]),
            }
            for k, (name, row) in enumerate(zip(town.building_ids, town.layout.buildings))
        ],
        "things": things,
    }


def plan_of(config: SimulationConfig) -> GroundPlan:
    """The town of a config, before anybody lives in it."""
    town = compile_town(config)
    marks = marks_of(sorted(town.kinds))
    things = [
        {"id": name, "kind": kind, "mark": marks[kind], "x": int(row["x"]), "y": int(row["y"]), "from": 0, "until": None}
        for name, row in zip(town.object_ids, town.layout.objects)
        for kind in [town.kinds[int(row["kind"])]]
    ]
    return _plan(town, things)


def table_of(header: TakeHeader) -> Columns:
    return columns([need["name"] for need in header["needs"]], values=header["values"])


def _column(column: FilmColumn) -> Record:
    told: Record = {"name": column.name, "bytes": column.bytes}
    if column.signed:
        told["signed"] = True
    if column.scale != 1.0:
        told["scale"] = column.scale
    return told


def _person(vec: VectorTown, slot: int, mark: str) -> Record:
    town = vec.towns[0]
    row = town.layout.residents[slot]
    job = None
    if row["job"] >= 0:
        of = town.layout.jobs[row["job"]]
        end = int(of["start"] + of["length"]) % vec.config.world.ticks_per_day
        job = {"id": town.job_ids[row["job"]], "site": town.building_ids[of["site"]], "start": int(of["start"]), "end": end}
    return {
        "slot": slot,
        "id": town.resident_ids[slot],
        "mark": mark,
        "home": town.building_ids[row["home"]] if row["home"] >= 0 else None,
        "job": job,
        "personality": {name: float(row[name]) for name in ("extroversion", "forgiveness", "ambition")},
    }
