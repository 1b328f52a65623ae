"""Events in words: rows of a town's event columns as records, and records as NDJSON lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from townlet.envs.vector import VectorTown
from townlet.types import Array, Record
from townlet.world.state import CONFLICT_REASONS, EVENTS, EXITS, PERTURBATIONS

EVENT_SCHEMA = 1
_REASONS = {"queue_conflict": CONFLICT_REASONS, "quarrel": CONFLICT_REASONS, "exit": EXITS, "perturbation": PERTURBATIONS}
_CONFLICT_KEYS = ("queue_length", "intensity", "waited", "rivalry_before", "rivalry_after")
_WAITED = ("queue_leave", "use_start")
_AMOUNT = ("use_end", "chat_success", "perturbation")  # 1 finished and 0 left early; quality; duration


def event_records(vec: VectorTown, rows: Array, episodes: Iterable[int], run_id: str) -> Iterator[Record]:
    """Events (K,) EVENT of a batch in words; `episodes` (K,) says in which episode of its town each happened."""
    first = int(vec.state.towns["id"][0])
    for event, episode in zip(rows, episodes):
        yield _record(vec, event, int(event["town"]) - first, int(episode), run_id)


def _record(vec: VectorTown, event: np.void, e: int, episode: int, run_id: str) -> Record:
    """One event; a key is there when the type has it."""
    kind, town = EVENTS[event["kind"]], int(event["town"])
    record: Record = {
        "schema_version": EVENT_SCHEMA,
        "run_id": run_id,
        "event_id": f"{town}.{episode}.{int(event['number'])}",
        "tick": int(event["tick"]),
        "type": kind,
        "town": town,
        "episode": episode,
    }
    if event["actor"] >= 0:
        record["actor"] = vec.resident_name(e, int(event["actor"]), int(event["actor_life"]))
    if event["rival"] >= 0:
        record["rival"] = vec.resident_name(e, int(event["rival"]), int(event["rival_life"]))
    if event["object"] >= 0:
        record["object_id"] = vec.object_ids(e)[int(event["object"])]
    if kind in _REASONS and 0 <= event["reason"] < len(_REASONS[kind]):
        record["reason"] = _REASONS[kind][event["reason"]]
    if kind == "queue_conflict":
        record |= {key: event[key].item() for key in _CONFLICT_KEYS}
    elif kind in _WAITED:
        record["waited"] = int(event["waited"])
    if kind == "queue_interaction":
        record["variant"] = "handover"
    if kind in _AMOUNT or event["amount"] != 0.0:
        record["amount"] = float(event["amount"])
    return record


def run_id_of(vec: VectorTown) -> str:
    return f"{vec.config.config_id}-{vec.seed}"


def step_records(vec: VectorTown, run_id: str | None = None) -> Iterator[Record]:
    """The events of the last step, in order."""
    rows = vec.events()
    episodes = vec.state.towns["episode"][rows["town"] - vec.state.towns["id"][0]]
    return event_records(vec, rows, episodes, run_id or run_id_of(vec))


def event_lines(records: Iterable[dict[str, object]]) -> bytes:
    encode = msgspec.json.Encoder().encode
    return b"".join(encode(record) + b"\n" for record in records)
