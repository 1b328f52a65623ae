"""What there is to see in a town at one moment: things, residents, queues and quarrels, in words and places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_lowercase, digits

import numpy as np

from townlet.config.base import clock
from townlet.envs.vector import VectorTown
from townlet.types import Array
from townlet.world.events import QUARREL, QUEUE_CONFLICT
from townlet.world.state import MONEY, PERTURBATIONS, SHIFT_STATES

SHIFTS_TOLD = {"on_time": "at work", "late": "at work, late"}


@dataclass(frozen=True)
class Thing:
    id: str
    kind: str
    mark: str  # two letters
    x: int
    y: int
    user: str | None
    queue: tuple[str, ...]  # in order

    @property
    def busy(self) -> bool:
        return self.user is not None


@dataclass(frozen=True)
class Figure:
    """A resident as one sees it."""

    id: str
    slot: int
    mark: str  # two letters
    x: int
    y: int
    needs: dict[str, float]  # level by name
    wallet: float
    meals: int
    option: str  # decision under way
    doing: str
    at: tuple[int, int] | None  # the object used or waited for
    waiting: bool
    quarrels: bool
    rivalry: float  # the highest, as seen in the last observation


@dataclass(frozen=True)
class Room:
    """The floor of a building."""

    id: str
    x: int
    y: int
    width: int


@dataclass(frozen=True)
class Scene:
    scenario: str
    tick: int
    day: int
    time: str
    tiles: Array  # (H, W) u1
    rooms: tuple[Room, ...]
    things: tuple[Thing, ...]
    residents: tuple[Figure, ...]
    clashes: tuple[tuple[str, str, str], ...]  # actor, rival, object id of the conflicts of the last step
    troubles: tuple[str, ...]  # perturbations in force

    @property
    def title(self) -> str:
        return f"{self.scenario} at {self.time}: {len(self.residents)} residents"

    @property
    def need_names(self) -> tuple[str, ...]:
        return tuple(self.residents[0].needs) if self.residents else ()

    @property
    def queues(self) -> tuple[Thing, ...]:
        return tuple(thing for thing in self.things if thing.queue)


def look(vec: VectorTown, town: int = 0) -> Scene:
    state, compiled = vec.state, vec.town_of(town)
    now = state.towns[town]
    residents, things = state.residents[town], state.objects[town]
    names = [vec.resident_id(town, slot) for slot in range(vec.num_residents)]
    present = [slot for slot in range(vec.num_residents) if residents[slot]["present"]]
    events = vec.events()
    events = events[events["town"] == now["id"]]
    clashes = events[events["kind"] == QUEUE_CONFLICT]
    hot = {int(who) for row in events[events["kind"] == QUARREL] for who in (row["actor"], row["rival"])}
    marks = marks_of(sorted({compiled.kinds[row["kind"]] for row in compiled.layout.objects}))
    letters = initials([names[slot] for slot in present])
    column = vec.spec.offsets["rivalry_max"]
    return Scene(
        scenario=vec.config.town_name,
        tick=int(now["tick"]),
        day=int(now["day"]) + 1,
        time=clock(int(now["minute"])),
        tiles=compiled.layout.tiles,
        rooms=tuple(
            Room(name, int(box["x0"]), int(box["y0"]), int(box["w"]))
            for name, box in zip(compiled.building_ids, compiled.layout.buildings)
        ),
        things=tuple(
            Thing(
                id=compiled.object_ids[m],
                kind=compiled.kinds[row["kind"]],
                mark=marks[compiled.kinds[row["kind"]]],
                x=int(row["x"]),
                y=int(row["y"]),
                user=names[things[m]["user"]] if things[m]["user"] >= 0 else None,
                queue=tuple(names[slot] for slot in queue_of(things[m], residents)),
            )
            for m, row in enumerate(compiled.layout.objects)
        ),
        residents=tuple(
            _figure(vec, town, slot, names[slot], letters[names[slot]], slot in hot, float(vec.features[town, slot, column]))
            for slot in present
        ),
        clashes=tuple((names[row["actor"]], names[row["rival"]], compiled.object_ids[row["object"]]) for row in clashes),
        troubles=tuple(name for k, name in enumerate(PERTURBATIONS) if now["active_until"][k] > now["tick"]),
    )


def queue_of(thing: np.void, residents: Array) -> list[int]:
    """Slots of those who wait for an object, in order: the one who was called, then the queue."""
    waiting = [int(thing["holder"])] if thing["holder"] >= 0 else []
    slot = int(thing["head"])
    while slot >= 0:
        waiting.append(slot)
        slot = int(residents[slot]["behind"])
    return waiting


def _figure(vec: VectorTown, town: int, slot: int, name: str, mark: str, hot: bool, rivalry: float) -> Figure:
    me = vec.state.residents[town, slot]
    compiled = vec.town_of(town)
    wanted = next((int(me[field]) for field in ("using", "called", "queued") if me[field] >= 0), -1)
    place = compiled.layout.objects[wanted] if wanted >= 0 else None
    return Figure(
        id=name,
        slot=slot,
        mark=mark,
        x=int(me["x"]),
        y=int(me["y"]),
        needs={need: float(me["needs"][k]) for k, need in enumerate(vec.config.needs)},
        wallet=int(me["wallet"]) / MONEY,
        meals=int(me["meals"]),
        option=vec.catalogue.names[int(me["action"])],
        doing=doing_of(vec, town, me),
        at=None if place is None else (int(place["x"]), int(place["y"])),
        waiting=bool(me["using"] < 0 and wanted >= 0),
        quarrels=hot or bool(me["stalled_by_quarrel"] > 0),
        rivalry=rivalry,
    )


IDLE_TOLD = {"wait": "waits", "work": "goes to work", "home": "goes home", "chat": "looks for a chat", "leave": "steps back"}


def doing_of(vec: VectorTown, town: int, me: np.void) -> str:
    """What it is doing, in a few words."""
    objects = vec.object_ids(town)
    if me["using"] >= 0:
        return f"at {objects[me['using']]}, {int(me['ticks_left'])} min left"
    if me["called"] >= 0:
        return f"called to {objects[me['called']]}"
    if me["queued"] >= 0:
        return f"waits for {objects[me['queued']]} ({int(vec.state.towns[town]['tick'] - me['queued_since'])} min)"
    if me["working"]:
        return SHIFTS_TOLD.get(SHIFT_STATES[int(me["shift"])], "at work")
    option = vec.catalogue.names[int(me["action"])]
    if me["target"] >= 0:
        return f"goes to {objects[me['target']]}"
    return IDLE_TOLD.get(option, option)


def marks_of(kinds: Sequence[str]) -> dict[str, str]:
    """Two letters per kind that tell it from the others: the first, and the earliest that is not taken yet."""
    marks: dict[str, str] = {}
    for kind in kinds:
        letters = kind.replace("_", "")
        tries = [letters[0].upper() + letter for letter in letters[1:]] or [letters[0].upper()]
        marks[kind] = next((mark for mark in tries if mark not in marks.values()), tries[0])
    return marks


def initials(names: Sequence[str]) -> dict[str, str]:
    """Two characters per resident: its first two letters, or the first and a later one when those are taken."""
    marks: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        stem, _, number = name.rpartition("_")
        tail = (name[0] + number[-1] if stem and number.isdigit() else "") or name[:2]
        tries = [tail, *(name[0] + letter for letter in (*name[1:], *ascii_lowercase, *digits) if letter != "_")]
        marks[name] = next((mark for mark in tries if mark not in taken), tail)
        taken.add(marks[name])
    return marks
