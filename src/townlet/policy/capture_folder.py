"""The folder of a capture: samples, their metadata, manifest, metrics, events and sums. It is filled, gone on with, filtered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from townlet import files
from townlet.envs.events import event_lines
from townlet.errors import ReplayError, UsageError
from townlet.names import check_name
from townlet.policy.capture_events import read_event_records
from townlet.policy.manifest import (
    EVENTS_NAME,
    MANIFEST_SUFFIX,
    METRICS_SUFFIX,
    PREFIX,
    find_manifest,
    manifest_bytes,
    read_manifest,
)
from townlet.policy.replay import entries_of
from townlet.policy.sample import SAMPLE_LIMIT, ReplaySample, SampleMeta, encode_sample, read_arrays
from townlet.policy.sample_metrics import QUEUE_COUNTS, total
from townlet.types import Record


class WrittenSample(NamedTuple):
    row: Record  # of the manifest
    meta: SampleMeta
    nbytes: int


@dataclass
class CaptureWriter:
    """The samples of one capture folder while it is filled, oldest first; above `most` bytes the oldest are thrown out."""

    folder: Path
    prefix: str
    most: int | None = None
    samples: list[WrittenSample] = field(default_factory=list)
    events: list[Record] = field(default_factory=list)
    dropped: int = 0
    events_lost: int = 0
    nbytes: int = 0

    def put(self, sample: ReplaySample, *, compress: bool = False) -> None:
        data, text = encode_sample(sample, compress=compress)
        self.put_bytes(sample.meta, data, text)

    def put_bytes(self, meta: SampleMeta, data: bytes, text: bytes) -> None:
        stem = meta.sample_id
        files.write_bytes(self.folder / f"{stem}.npz", data, sync=False)
        files.write_bytes(self.folder / f"{stem}.json", text, sync=False)
        row = {
            "sample": f"{stem}.npz",
            "meta": f"{stem}.json",
            "agent_id": meta.agent_id,
            "frame_count": meta.frame_count,
            "sha256": files.sha256_bytes(data),
            "meta_sha256": files.sha256_bytes(text),
        }
        size = len(data) + len(text)
        self.samples.append(WrittenSample(row, meta, size))
        self.nbytes += size
        while self.most is not None and self.nbytes > self.most and len(self.samples) > 1:
            old = self.samples.pop(0)
            files.remove(self.folder / old.row["sample"])
            files.remove(self.folder / old.row["meta"])
            self.nbytes -= old.nbytes
            self.dropped += 1

    @property
    def metas(self) -> list[SampleMeta]:
        return [sample.meta for sample in self.samples]

    def numbers(self) -> dict[str, int]:
        """The next number of each resident id."""
        numbers: dict[str, int] = {}
        for meta in self.metas:
            number = meta.sample_id.rpartition("_")[2]
            if number.isdecimal():  # a sample that got its name elsewhere cannot meet a new one
                numbers[meta.agent_id] = max(numbers.get(meta.agent_id, 0), int(number) + 1)
        return numbers

    def close(self) -> None:
        """Manifest, metrics, events of the lives that are kept, then the sums over everything."""
        if not self.samples:
            return
        self.write_manifest()
        metrics = {meta.sample_id: meta.metrics for meta in self.metas}
        files.write_json(self.folder / f"{self.prefix}{METRICS_SUFFIX}", metrics, sync=False)
        days = {(meta.capture.town, meta.capture.episode) for meta in self.metas}
        kept = (event for event in self.events if (event["town"], event["episode"]) in days)
        files.write_bytes(self.folder / EVENTS_NAME, event_lines(kept), sync=False)
        files.write_sums(self.folder, known=self.hashes())

    def hashes(self, under: str = "") -> dict[str, str]:
        """Hash by name of the sample files."""
        pairs = (("sample", "sha256"), ("meta", "meta_sha256"))
        return {under + sample.row[name]: sample.row[digest] for sample in self.samples for name, digest in pairs}

    def write_manifest(self) -> None:
        manifest = manifest_bytes((sample.row for sample in self.samples), manifest_metadata(self.metas))
        files.write_bytes(self.folder / f"{self.prefix}{MANIFEST_SUFFIX}", manifest, sync=False)


def manifest_metadata(metas: Sequence[SampleMeta]) -> Record:
    first = metas[0]
    return {
        "schema_version": first.schema_version,
        "variant": first.variant,
        "action_catalogue_hash": first.action_catalogue_hash,
        "scenarios": sorted({meta.capture.scenario for meta in metas}),
        "samples": len(metas),
        "transitions": sum(meta.timesteps for meta in metas),
    }


def totals(metas: Sequence[SampleMeta]) -> dict[str, float]:
    """Sums over samples of what can be summed, and the highest rivalry."""
    found: dict[str, float] = {"samples": len(metas), "transitions": sum(meta.timesteps for meta in metas)}
    found |= {name: total((meta.metrics for meta in metas), name) for name in ("reward_sum", *QUEUE_COUNTS)}
    rivalry = [value for meta in metas if isinstance(value := meta.metrics.get("rivalry_max_max"), int | float)]
    found["rivalry_max_max"] = max(rivalry, default=0.0)
    return found


def carry_over(out: Path, writer: CaptureWriter) -> int:
    """Put the samples and events of an existing capture first; returns the first town that is new."""
    manifest = read_manifest(find_manifest(out))
    writer.prefix = check_name(manifest.path.name.removesuffix(MANIFEST_SUFFIX), f"the prefix of {out}", error=ReplayError)
    for entry in manifest.entries:
        read_arrays(entry.sample, entry.sha256)
        writer.put_bytes(entry.read_meta(), entry.sample.read_bytes(), entry.meta.read_bytes())
    writer.events += read_event_records(out / EVENTS_NAME)
    return 1 + max(meta.capture.town for meta in writer.metas)


def gather(partial: Path, writers: Sequence[tuple[str, CaptureWriter]], prefix: str) -> None:
    """One manifest and one table of metrics over the folders of several scenarios."""
    rows, metas, metrics = [], [], {}
    for name, writer in writers:
        for row, meta, _ in writer.samples:
            rows.append(row | {"sample": f"{name}/{row['sample']}", "meta": f"{name}/{row['meta']}"})
            metas.append(meta)
            metrics[f"{name}/{meta.sample_id}"] = meta.metrics
    files.write_bytes(partial / f"{prefix}{MANIFEST_SUFFIX}", manifest_bytes(rows, manifest_metadata(metas)), sync=False)
    files.write_json(partial / f"{prefix}{METRICS_SUFFIX}", metrics, sync=False)
    known = {file: digest for name, writer in writers for file, digest in writer.hashes(f"{name}/").items()}
    files.write_sums(partial, known=known)


@dataclass(frozen=True)
class SampleFilter:
    """Which samples are kept; without conditions all."""

    agents: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    min_length: int = 0
    min_reward: float | None = None

    def keeps(self, meta: SampleMeta, reward_sum: float) -> bool:
        return (
            (not self.agents or meta.agent_id in self.agents)
            and (not self.scenarios or meta.capture.scenario in self.scenarios)
            and meta.timesteps >= self.min_length
            and (self.min_reward is None or reward_sum >= self.min_reward)
        )


def filter_samples(path: Path, output: Path, keep: SampleFilter, *, overwrite: bool = False) -> tuple[int, int]:
    """Write what passes into a capture folder of its own; returns kept and seen. Bytes of samples stay as they are."""
    files.check_free(output, overwrite, "folder")
    entries = entries_of(path)
    with files.filling(output) as partial:
        writer = CaptureWriter(partial, PREFIX)
        for entry in entries:
            sample = entry.read()
            if not keep.keeps(sample.meta, float(sample.rewards.sum(dtype=np.float64))):
                continue
            encode_sample(sample)  # refuses what may not be written
            if sample.meta.sample_id in (meta.sample_id for meta in writer.metas):
                raise ReplayError(f"{path}: holds two samples called {sample.meta.sample_id}; filter by --scenario")
            data = files.read_bytes(entry.sample, limit=SAMPLE_LIMIT, error=ReplayError)
            writer.put_bytes(sample.meta, data, files.read_bytes(entry.meta, limit=SAMPLE_LIMIT, error=ReplayError))
        if not writer.samples:
            raise UsageError(f"none of the {len(entries)} samples of {path} passes the filter; loosen it")
        for folder in sorted({entry.sample.parent for entry in entries}):
            if (folder / EVENTS_NAME).exists():
                writer.events += read_event_records(folder / EVENTS_NAME)
        writer.close()
        files.publish_folder(partial, output, overwrite=overwrite)
    return len(writer.samples), len(entries)
