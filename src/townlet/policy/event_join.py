"""Simulation events as NDJSON lines, and their counts per decision of a sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from townlet import files
from townlet.errors import ReplayError
from townlet.policy.sample import Array, SampleMeta
from townlet.world.state import CONFLICT_REASONS, EVENTS, EXITS, PERTURBATIONS

EVENT_SCHEMA = 1
EVENT_TYPES = EVENTS  # the K axis of `ReplayBatch.events`
EVENTS_LIMIT = 1 << 30
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


def event_lines(records: Iterable[dict[str, Any]]) -> bytes:
    encode = msgspec.json.Encoder().encode
    return b"".join(encode(record) + b"\n" for record in records)


class EventTable:
    """Events by resident, each with its tick and type."""

    def __init__(self, records: Iterable[dict[str, Any]], where: str) -> None:
        known = {name: k for k, name in enumerate(EVENT_TYPES)}
        rows: dict[tuple[int, int, str], list[tuple[int, int]]] = {}
        for number, record in enumerate(records, 1):
            kind, tick = record.get("type"), record.get("tick")
            if not isinstance(kind, str) or not isinstance(tick, int):
                raise ReplayError(f"{where}:{number}: has no type and tick; expected the events of a capture")
            if kind not in known:
                continue  # a type of a later version concerns nobody here
            town, episode = record.get("town", 0), record.get("episode", 0)
            if "actor" in record:  # each event once, in the sample of its actor, as in the metrics
                rows.setdefault((town, episode, record["actor"]), []).append((tick, known[kind]))
        self._rows = {key: np.array(value, np.int64) for key, value in rows.items()}

    def counts(self, meta: SampleMeta) -> Array:
        """Events the sample's resident was the actor of, per decision and type. (T, K) i4"""
        out = np.zeros((meta.timesteps, len(EVENT_TYPES)), np.int32)
        rows = self._rows.get((meta.capture.town, meta.capture.episode, meta.agent_id))
        if rows is not None:
            step = (rows[:, 0] - meta.first_tick) // meta.decision_interval
            inside = (step >= 0) & (step < meta.timesteps)
            np.add.at(out, (step[inside], rows[inside, 1]), 1)
        return out


def read_events(path: Path) -> EventTable:
    return EventTable(read_event_records(path), str(path))


def read_event_records(path: Path) -> Iterator[dict[str, Any]]:
    """The events of an NDJSON file; a damaged line is named."""
    decode = msgspec.json.Decoder().decode
    for number, line in enumerate(files.read_bytes(path, limit=EVENTS_LIMIT, error=ReplayError).splitlines(), 1):
        try:
            record = decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise ReplayError(f"{path}:{number}: is not a JSON object; expected one event per line") from None
        if not isinstance(record, dict):
            raise ReplayError(f"{path}:{number}: holds no JSON object; expected one event per line")
        yield record
