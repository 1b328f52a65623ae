"""Choosing among samples: per resident, per scenario, by length and reward."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from townlet import files
from townlet.errors import ReplayError, UsageError
from townlet.policy.capture import CaptureWriter
from townlet.policy.event_join import read_event_records
from townlet.policy.manifest import EVENTS_NAME, PREFIX
from townlet.policy.replay_report import entries_of
from townlet.policy.sample import SAMPLE_LIMIT, SampleMeta, encode_sample, read_sample


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
    if output.exists() and not overwrite:
        raise UsageError(f"{output} already exists; choose another folder, or --overwrite to move it aside")
    entries = entries_of(path)
    with files.filling(output) as partial:
        writer = CaptureWriter(partial, PREFIX)
        for entry in entries:
            sample = read_sample(entry.sample, entry.meta, sha256=entry.sha256, meta_sha256=entry.meta_sha256)
            if not keep.keeps(sample.meta, float(sample.rewards.sum(dtype=np.float64))):
                continue
            encode_sample(sample)  # refuses what may not be written
            taken = {row["sample"] for row, _, _ in writer.rows}
            if f"{sample.meta.sample_id}.npz" in taken:
                raise ReplayError(f"{path}: holds two samples called {sample.meta.sample_id}; filter by --scenario")
            data = files.read_bytes(entry.sample, limit=SAMPLE_LIMIT, error=ReplayError)
            writer.put_bytes(sample.meta, data, files.read_bytes(entry.meta, limit=SAMPLE_LIMIT, error=ReplayError))
        if not writer.rows:
            raise UsageError(f"none of the {len(entries)} samples of {path} passes the filter; loosen it")
        for folder in sorted({entry.sample.parent for entry in entries}):
            if (folder / EVENTS_NAME).exists():
                writer.events += read_event_records(folder / EVENTS_NAME)
        writer.close()
        files.publish_folder(partial, output, overwrite=overwrite)
    return len(writer.rows), len(entries)
