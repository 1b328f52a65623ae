"""What replay costs: the rows of `townlet bench replay`."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from townlet import files
from townlet.bench.rows import memory_mb, paired, row
from townlet.bench.samples import generated_sample, generated_source, source_of_tables, write_generated
from townlet.config.loader import load_config
from townlet.envs.vector import VectorTown
from townlet.policy.capture_folder import CaptureWriter
from townlet.policy.manifest import PREFIX
from townlet.policy.replay import ReplayBatch, ReplayDataset, ReplayDatasetConfig
from townlet.policy.rollout import RolloutBuffer
from townlet.policy.runtime import make_policy
from townlet.policy.training.contexts import RunOptions
from townlet.policy.training.orchestrator import PolicyTrainingOrchestrator
from townlet.sim.loop import SimulationLoop
from townlet.types import Record

STREAMING_BAR, RECORDING_BAR, WRITING_BAR = 0.8, 2.0, 150.0
SAMPLE_BYTES = 187_000  # of a day of hybrid observations, about
PREFETCH, BATCH_SIZE = 2, 16
SCENARIO = "town_day"
FULL, SHORT = 2_000_000_000, 100_000_000  # bytes of generated samples


def generate(folder: Path, size: int) -> int:
    """Write samples that a network of the scenario can read, about this many bytes; returns how many."""
    vec = VectorTown(SCENARIO, 1)
    return write_generated(folder, max(4, size // SAMPLE_BYTES), source=source_of_tables(vec.catalogue, vec.spec))


def replay_rows(folder: Path, *, towns: int = 256, steps: int = 48, repeats: int = 3) -> list[Record]:
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
        files.disk.sync(str(place))  # what others left to be written is not part of it
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


TRAINING_BATCH = 64


@dataclass(frozen=True)
class Pass:
    """One epoch of PPO over a capture folder, in a process of its own."""

    seconds: float  # from opening the manifest to the last update
    opened_mb: float  # resident memory when one batch had been trained on, the manifest was open and nothing had been read
    peak_mb: float


def _options(batch_size: int) -> dict[str, object]:
    return {"batch_size": batch_size, "shuffle": True, "prefetch": PREFETCH}


def _train(dataset: ReplayDataset | ReplayDatasetConfig) -> None:
    config = load_config(SCENARIO, ("training.epochs=1", "training.eval_every=0", "ppo.num_epochs=1", "training.algorithm=ppo"))
    PolicyTrainingOrchestrator(config).run("replay", RunOptions(dataset=dataset))


def measure(folder: Path, *, streaming: bool, batch_size: int = TRAINING_BATCH) -> Pass:
    whole = ReplayDatasetConfig.from_capture_dir(folder, **_options(batch_size))
    _train(replace(whole, entries=whole.entries[:batch_size]))  # the network and what an update works with
    opened = memory_mb()
    begin = time.perf_counter()
    dataset = ReplayDataset(ReplayDatasetConfig.from_capture_dir(folder, streaming=streaming, **_options(batch_size)))
    if streaming:
        opened = memory_mb()
    _train(dataset)
    return Pass(time.perf_counter() - begin, opened, memory_mb("VmHWM"))


def batches_alive(folder: Path, *, batch_size: int = TRAINING_BATCH) -> int:
    """Most batches at a time while PPO learns from a stream; the form that is learned from shares their memory."""
    dataset = CountedDataset(ReplayDatasetConfig.from_capture_dir(folder, streaming=True, **_options(batch_size)))
    _train(dataset)
    return dataset.most


def child(folder: Path, form: str) -> Pass:
    words = [sys.executable, "-m", "townlet.bench.replay", str(folder), form]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return Pass(**json.loads(done.stdout))


def ppo_rows(folder: Path, repeats: int = 1) -> list[Record]:
    """Training from a stream against training from memory, in turns."""
    pairs = [(child(folder, "memory"), child(folder, "stream")) for _ in range(repeats)]
    ratio = statistics.median(memory.seconds / stream.seconds for memory, stream in pairs)
    most = batches_alive(folder)
    memory, stream = pairs[-1]
    sizes = {"peak_mb": stream.peak_mb, "peak_mb_in_memory": memory.peak_mb, "opened_mb": stream.opened_mb}
    return [
        row("PPO streaming over in-memory", ratio, "×", STREAMING_BAR),
        row(f"batches in memory while PPO streams, prefetch {PREFETCH}", most, "batches", PREFETCH + 1, smaller=True)
        | {name: round(value, 1) for name, value in sizes.items()},
    ]


if __name__ == "__main__":
    print(json.dumps(asdict(measure(Path(sys.argv[1]), streaming=sys.argv[2] == "stream"))))
