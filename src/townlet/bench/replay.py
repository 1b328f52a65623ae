"""What replay costs: the rows of `townlet bench replay`."""

from __future__ import annotations

import statistics
import time
import weakref
from collections.abc import Sequence
from pathlib import Path

from townlet import files
from townlet.bench.rows import Row, paired, row
from townlet.bench.samples import generated_sample, generated_source, source_of_tables, write_generated
from townlet.envs.vector import VectorTown
from townlet.policy.capture_writer import CaptureWriter
from townlet.policy.manifest import PREFIX
from townlet.policy.replay import ReplayBatch, ReplayDataset, ReplayDatasetConfig
from townlet.policy.rollout import RolloutBuffer
from townlet.policy.runtime import make_policy
from townlet.sim.loop import SimulationLoop

STREAMING_BAR, RECORDING_BAR, WRITING_BAR = 0.8, 2.0, 150.0
SAMPLE_BYTES = 187_000  # of a day of hybrid observations, about
PREFETCH, BATCH_SIZE = 2, 16
SCENARIO = "town_day"
FULL, SHORT = 2_000_000_000, 100_000_000  # bytes of generated samples


def generate(folder: Path, size: int) -> int:
    """About so many bytes of samples that a network of the scenario can read; returns how many."""
    vec = VectorTown(SCENARIO, 1)
    return write_generated(folder, max(4, size // SAMPLE_BYTES), source=source_of_tables(vec.catalogue, vec.spec))


def replay_rows(folder: Path, *, towns: int = 256, steps: int = 48, repeats: int = 3) -> list[Row]:
    """Rows of {name, value, unit, bar, ok} over a capture folder of generated samples."""
    ratio, most = streaming_ratio(folder, repeats)
    speed = writing_speed(folder.parent, repeats)
    recording = recording_ratio(towns, steps, repeats)
    return [
        row("streaming over in-memory, from opening to the last batch", ratio, "×", STREAMING_BAR),
        row(f"batches in memory while streaming, prefetch {PREFETCH}", most, "batches", PREFETCH + 1, smaller=True),
        row("writing samples, synced and published", speed, "MB/s", WRITING_BAR),
        row(f"recording over simulation, {towns} towns", recording, "×", RECORDING_BAR, smaller=True),
    ]


def streaming_ratio(folder: Path, repeats: int) -> tuple[float, int]:
    """Time in memory over time streamed, each from opening the manifest to the last batch with all checks; and batches alive."""
    most = 0

    def read(streaming: bool) -> float:
        nonlocal most
        begin = time.perf_counter()
        options = {"batch_size": BATCH_SIZE, "shuffle": True, "prefetch": PREFETCH, "streaming": streaming}
        dataset = CountedDataset(ReplayDatasetConfig.from_capture_dir(folder, **options))
        for _ in dataset:
            pass
        most = max(most, dataset.most if streaming else 0)
        return time.perf_counter() - begin

    return paired(lambda: read(False), lambda: read(True), repeats), most


class CountedDataset(ReplayDataset):
    """Knows how many of its batches ever existed at a time."""

    def __init__(self, config: ReplayDatasetConfig) -> None:
        super().__init__(config)
        self.alive: weakref.WeakSet[ReplayBatch] = weakref.WeakSet()
        self.most = 0

    def _batch(self, rows: Sequence[int]) -> ReplayBatch:
        batch = super()._batch(rows)
        self.alive.add(batch)
        self.most = max(self.most, len(list(self.alive)))  # its length may still count one that is just going
        return batch


def writing_speed(place: Path, repeats: int, count: int = 400) -> float:
    """MB/s of samples into a published folder: encoding, hashing, writing, manifest, sums, one sync, the rename."""
    source = generated_source()
    samples = [generated_sample(source, seed) for seed in range(count)]
    speeds = []
    for _ in range(repeats):
        files.disk.sync()  # what others left to be written is not part of it
        begin = time.perf_counter()
        partial = files.partial_folder(place / "written")
        writer = CaptureWriter(partial, PREFIX)
        for sample in samples:
            writer.put(sample)
        writer.close()
        files.publish_folder(partial, place / "written")
        speeds.append(writer.nbytes / 1e6 / (time.perf_counter() - begin))
        files.remove(place / "written")
    return statistics.median(speeds)


def recording_ratio(towns: int, steps: int, repeats: int) -> float:
    """Time with every frame kept in memory over time without, same towns, policy and observations, from the same tick."""
    vec = VectorTown(SCENARIO, towns)
    policy, buffer = make_policy("scripted", vec, epsilon=0.05), RolloutBuffer(vec, steps)

    def run(record: bool) -> float:
        vec.reset()
        buffer.clear()
        loop = SimulationLoop(vec, policy, [buffer] if record else [])
        begin = time.perf_counter()
        loop.run_decisions(steps)
        return time.perf_counter() - begin

    run(True)  # touch the memory once
    return paired(lambda: run(True), lambda: run(False), repeats)
