"""A capture folder while it is filled: samples, then manifest, metrics, events and sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from townlet import files
from townlet.envs.events import event_lines
from townlet.policy.manifest import EVENTS_NAME, MANIFEST_SUFFIX, METRICS_SUFFIX, manifest_bytes
from townlet.policy.sample import ReplaySample, SampleMeta, encode_sample


@dataclass
class CaptureWriter:
    """The samples of one capture folder while it is filled, oldest first; above `most` bytes the oldest are thrown out."""

    folder: Path
    prefix: str
    most: int | None = None
    rows: list[tuple[dict[str, Any], SampleMeta, int]] = field(default_factory=list)  # manifest row, metadata, bytes
    events: list[dict[str, Any]] = field(default_factory=list)
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
        self.rows.append((row, meta, size))
        self.nbytes += size
        while self.most is not None and self.nbytes > self.most and len(self.rows) > 1:
            old, _, size = self.rows.pop(0)
            files.remove(self.folder / old["sample"])
            files.remove(self.folder / old["meta"])
            self.nbytes -= size
            self.dropped += 1

    def close(self) -> None:
        """Manifest, metrics, events of the lives that are kept, then the sums over everything."""
        if not self.rows:
            return
        self.write_manifest()
        metrics = {meta.sample_id: meta.metrics for _, meta, _ in self.rows}
        files.write_json(self.folder / f"{self.prefix}{METRICS_SUFFIX}", metrics, sync=False)
        days = {(meta.capture.town, meta.capture.episode) for _, meta, _ in self.rows}
        kept = (event for event in self.events if (event["town"], event["episode"]) in days)
        files.write_bytes(self.folder / EVENTS_NAME, event_lines(kept), sync=False)
        files.write_sums(self.folder, known=self.hashes(), sync=False)

    def hashes(self, under: str = "") -> dict[str, str]:
        """Hash by name of the sample files."""
        pairs = (("sample", "sha256"), ("meta", "meta_sha256"))
        return {under + row[name]: row[digest] for row, _, _ in self.rows for name, digest in pairs}

    def write_manifest(self) -> None:
        manifest = manifest_bytes((row for row, _, _ in self.rows), about([meta for _, meta, _ in self.rows]))
        files.write_bytes(self.folder / f"{self.prefix}{MANIFEST_SUFFIX}", manifest, sync=False)

    def totals(self) -> dict[str, float]:
        return totals([meta for _, meta, _ in self.rows])


def about(metas: Sequence[SampleMeta]) -> dict[str, Any]:
    first = metas[0]
    return {
        "schema_version": first.schema_version,
        "variant": first.variant,
        "action_catalogue_hash": first.action_catalogue_hash,
        "scenarios": sorted({meta.capture.scenario for meta in metas}),
        "samples": len(metas),
        "transitions": sum(meta.timesteps for meta in metas),
    }


SUMMED = ("reward_sum", "queue_conflict_events", "queue_conflict_intensity_sum", "wait_count", "wait_sum")


def totals(metas: Sequence[SampleMeta]) -> dict[str, float]:
    """Sums over samples of what can be summed, and the highest rivalry."""
    found: dict[str, float] = {"samples": len(metas), "transitions": sum(meta.timesteps for meta in metas)}
    for name in SUMMED:
        found[name] = sum(value for meta in metas if isinstance(value := meta.metrics.get(name), int | float))
    rivalry = [value for meta in metas if isinstance(value := meta.metrics.get("rivalry_max_max"), int | float)]
    found["rivalry_max_max"] = max(rivalry, default=0.0)
    return found
