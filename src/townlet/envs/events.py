"""Events in words: rows of the event columns with the ids of residents and objects, as they go into files and infos."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from townlet.envs.vector import VectorTown
from townlet.world.state import CONFLICT_REASONS, EVENTS, EXITS, PERTURBATIONS

EVENT_SCHEMA = 1
_REASONS = {"queue_conflict": CONFLICT_REASONS, "quarrel": CONFLICT_REASONS, "exit": EXITS, "perturbation": PERTURBATIONS}
_CONFLICT_KEYS = ("queue_length", "intensity", "waited", "rivalry_before", "rivalry_after")
_WAITED = ("queue_leave", "use_start")

Names = Callable[[int, int, int], str]  # town id, slot, life -> resident id
Objects = Callable[[int, int], str]  # town id, object -> object id


def event_record(event: Any, episode: int, run_id: str, resident: Names, thing: Objects) -> dict[str, Any]:
    """One row of EVENT in words; a key is there when the type has it."""
    kind, town = EVENTS[event["kind"]], int(event["town"])
    record: dict[str, Any] = {
        "schema_version": EVENT_SCHEMA,
        "run_id": run_id,
        "event_id": f"{town}.{episode}.{int(event['number'])}",
        "tick": int(event["tick"]),
        "type": kind,
        "town": town,
        "episode": episode,
    }
    if event["actor"] >= 0:
        record["actor"] = resident(town, int(event["actor"]), int(event["actor_life"]))
    if event["rival"] >= 0:
        record["rival"] = resident(town, int(event["rival"]), int(event["rival_life"]))
    if event["object"] >= 0:
        record["object_id"] = thing(town, int(event["object"]))
    if kind in _REASONS and 0 <= event["reason"] < len(_REASONS[kind]):
        record["reason"] = _REASONS[kind][event["reason"]]
    if kind == "queue_conflict":
        record |= {key: event[key].item() for key in _CONFLICT_KEYS}
    elif kind in _WAITED:
        record["waited"] = int(event["waited"])
    if kind == "queue_interaction":
        record["variant"] = "handover"
    if event["amount"] != 0.0:
        record["amount"] = float(event["amount"])
    return record


def run_id_of(vec: VectorTown) -> str:
    return f"{vec.config.config_id}-{vec.seed}"


def step_records(vec: VectorTown, run_id: str | None = None) -> Iterator[dict[str, Any]]:
    """The events of the last step, in order."""
    towns = vec.state.towns
    index = {int(name): e for e, name in enumerate(towns["id"])}
    label = run_id or run_id_of(vec)
    for event in vec.events():
        e = index[int(event["town"])]
        yield event_record(
            event,
            int(towns[e]["episode"]),
            label,
            lambda town, slot, life: vec.resident_name(index[town], slot, life),
            lambda town, thing: vec.object_ids(index[town])[thing],
        )
