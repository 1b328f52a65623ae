"""The events of a capture, read back and counted per decision of a sample."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import numpy as np

from townlet import files
from townlet.errors import ReplayError
from townlet.policy.sample import SampleMeta
from townlet.types import Array, Record
from townlet.world.state import EVENTS

EVENTS_LIMIT = 1 << 30


class EventTable:
    """Events by resident, each with its tick and type."""

    def __init__(self, records: Iterable[Record], where: str) -> None:
        known = {name: k for k, name in enumerate(EVENTS)}
        rows: dict[tuple[int, int, str], list[tuple[int, int]]] = {}
        for number, record in enumerate(records, 1):
            kind, tick = record.get("type"), record.get("tick")
            if not isinstance(kind, str) or not isinstance(tick, int):
                raise ReplayError(f"{where}:{number}: has no type and tick; expected the events of a capture")
            if kind not in known:
                continue  # a type of a later version
            town, episode = record.get("town", 0), record.get("episode", 0)
            if "actor" in record:  # each event once, in the sample of its actor, as in the metrics
                rows.setdefault((town, episode, record["actor"]), []).append((tick, known[kind]))
        self._rows = {key: np.array(value, np.int64) for key, value in rows.items()}

    def counts(self, meta: SampleMeta) -> Array:
        """Events the sample's resident was the actor of, per decision and type. (T, K) i4"""
        out = np.zeros((meta.timesteps, len(EVENTS)), np.int32)
        rows = self._rows.get((meta.capture.town, meta.capture.episode, meta.agent_id))
        if rows is not None:
            step = (rows[:, 0] - meta.first_tick) // meta.decision_interval
            inside = (step >= 0) & (step < meta.timesteps)
            np.add.at(out, (step[inside], rows[inside, 1]), 1)
        return out


def read_event_records(path: Path) -> Iterator[Record]:
    """The events of an NDJSON file; a damaged line is named."""
    decode = msgspec.json.Decoder().decode
    for number, line in enumerate(files.read_bytes(path, limit=EVENTS_LIMIT, error=ReplayError).splitlines(), 1):
        try:
            record = decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise ReplayError(f"{path}:{number}: is not a JSON object; expected one event per line") from None
        if not isinstance(record, dict):
            raise ReplayError(f"{path}:{number}: holds no JSON object; expected one event per line")
        yield record
