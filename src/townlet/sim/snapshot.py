"""Snapshots: a world saved to one file and loaded again, bit for bit.

The file is an .npz whose member `header` is JSON; it carries its config, so that it can be loaded without the scenario's file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from townlet import __version__, files
from townlet.config import SimulationConfig, config_hash
from townlet.config.base import minute_at
from townlet.dto.snapshot import SNAPSHOT_SCHEMA, SnapshotHeader
from townlet.envs.vector import VectorTown
from townlet.errors import SnapshotError, UsageError, first_problem
from townlet.npz import check_npz, npz_bytes, read_npz
from townlet.types import Array

LIMIT = 8 << 30
HEADER, EVENTS, MEMORY = "header", "last_events", "memory_"


@dataclass(frozen=True)
class Snapshot:
    """A moment of a batch of towns. `memory` is what a policy remembers besides the world."""

    header: SnapshotHeader
    arrays: Mapping[str, Array]
    memory: Mapping[str, Array]

    @property
    def config(self) -> SimulationConfig:
        return SimulationConfig.model_validate_json(json.dumps(self.header.config))


def take_snapshot(
    vec: VectorTown, *, policy: str = "", memory: Mapping[str, Array] | None = None, start: str | None = None
) -> Snapshot:
    header = SnapshotHeader(
        schema_version=SNAPSHOT_SCHEMA,
        townlet=__version__,
        config_id=vec.config.config_id,
        config_hash=vec.config_hash,
        action_catalogue_hash=vec.catalogue.hash,
        config=vec.config.model_dump(mode="json"),
        seed=vec.seed,
        num_towns=vec.num_towns,
        start=start,
        tick=int(vec.state.towns[0]["tick"]),
        digest=vec.digest(),
        policy=policy,
    )
    return Snapshot(header, vec.save() | {EVENTS: vec.events()}, dict(memory or {}))


def save_snapshot(snapshot: Snapshot, path: str | Path, *, compress: bool = False) -> None:
    files.write_bytes(path, npz_bytes(_members(snapshot, compress), compress=compress))


def snapshot_bytes(snapshot: Snapshot) -> bytes:
    """What `save_snapshot` would write."""
    return npz_bytes(_members(snapshot, False))


def _members(snapshot: Snapshot, compress: bool) -> dict[str, Array]:
    told = snapshot.header.model_copy(update={"compressed": compress})
    header = np.frombuffer(told.model_dump_json().encode(), np.uint8)
    memory = {f"{MEMORY}{name}": array for name, array in snapshot.memory.items()}
    return {HEADER: header, **snapshot.arrays, **memory}


def load_snapshot(path: str | Path, config: SimulationConfig | None = None) -> Snapshot:
    """Read a snapshot; with a config, only one of that very config."""
    check_npz(path, error=SnapshotError)
    raw = files.read_bytes(path, limit=LIMIT, error=SnapshotError)
    arrays = read_npz(raw, limit=LIMIT, error=SnapshotError, name=str(path))
    header = _header(arrays.get(HEADER), str(path))
    if not header.compressed and npz_bytes(arrays) != raw:  # also what no checksum of the archive covers
        raise SnapshotError(f"{path} is not byte for byte what was written; it is damaged, make it again")
    del arrays[HEADER]
    memory = {name.removeprefix(MEMORY): arrays.pop(name) for name in list(arrays) if name.startswith(MEMORY)}
    snapshot = Snapshot(header, arrays, memory)
    if config is not None and config_hash(config) != header.config_hash:
        raise SnapshotError(
            f"{path} was made with {header.config_id} (config {header.config_hash[:12]}), expected {config.config_id} "
            f"({config_hash(config)[:12]}); load it without naming a config to continue under its own"
        )
    return snapshot


def _header(data: Array | None, path: str) -> SnapshotHeader:
    if data is None or data.dtype != np.uint8 or data.ndim != 1:
        raise SnapshotError(f"{path} has no header; expected a snapshot written by `townlet snapshot save`")
    found = files.parse_json(data.tobytes(), f"the header of {path}", error=SnapshotError)
    version = found.get("schema_version") if isinstance(found, dict) else None
    if version != SNAPSHOT_SCHEMA:
        raise SnapshotError(f"{path} is a snapshot of version {version!r}, this Townlet reads {SNAPSHOT_SCHEMA}; make it again")
    try:
        header = SnapshotHeader.model_validate(found)
        config = SimulationConfig.model_validate_json(json.dumps(header.config))
        if header.start not in (None, "random"):
            minute_at(header.start, "random")
    except ValidationError as reason:
        raise SnapshotError(f"the header of {path} cannot be used: {first_problem(reason)}; make the snapshot again") from None
    except UsageError as reason:
        raise SnapshotError(f"the header of {path} cannot be used: start: {reason}; make the snapshot again") from None
    if config_hash(config, stored=True) != header.config_hash:
        raise SnapshotError(f"the config in {path} does not match its hash; the file is damaged, make it again")
    return header


def open_town(snapshot: Snapshot) -> VectorTown:
    """The towns of a snapshot, standing where they stood."""
    header, towns = snapshot.header, snapshot.arrays.get("towns")
    if towns is None or towns.ndim != 1 or len(towns) != header.num_towns:
        raise SnapshotError(
            f"the snapshot does not hold the {header.num_towns} towns of its header; it is damaged, make it again"
        )
    vec = VectorTown(snapshot.config, header.num_towns, seed=header.seed, start=header.start)
    restore(vec, snapshot)
    return vec


def restore(vec: VectorTown, snapshot: Snapshot) -> None:
    """Put a batch of the same config and size where the snapshot stood, the events of its last step included."""
    header, events = snapshot.header, snapshot.arrays.get(EVENTS)
    if vec.config_hash != header.config_hash or vec.catalogue.hash != header.action_catalogue_hash:
        raise SnapshotError(
            f"the snapshot is of {header.config_id} (config {header.config_hash[:12]}), this town is {vec.config.config_id} "
            f"({vec.config_hash[:12]}); use the config it was made with"
        )
    if vec.num_towns != header.num_towns:
        raise SnapshotError(f"the snapshot holds {header.num_towns} towns, this batch has {vec.num_towns}; make it as large")
    if events is None or events.dtype != vec.state.events.dtype or events.ndim != 1:
        raise SnapshotError("the snapshot lacks the events of its last step; it is damaged, make it again")
    counts = snapshot.arrays["towns"]["events"] if "towns" in snapshot.arrays else np.zeros(0, np.int64)
    if counts.sum() != events.size or (counts < 0).any() or counts.max(initial=0) > vec.state.events.shape[1]:
        raise SnapshotError(
            f"the snapshot should hold {counts.sum()} events and holds {events.size}; it is damaged, make it again"
        )
    vec.restore(snapshot.arrays)
    first = 0
    for e, count in enumerate(counts.tolist()):
        vec.state.events[e, :count] = events[first : first + count]
        first += count
    vec.state.towns["events"] = counts
    if vec.digest() != header.digest:
        raise SnapshotError("the snapshot's contents do not have the digest of its header; it is damaged, make it again")
