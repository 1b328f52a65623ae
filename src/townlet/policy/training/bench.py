"""What it costs to train from files: the PPO rows of `townlet bench replay`, each form in a process of its own.

`python -m townlet.policy.training.bench FOLDER stream|memory` trains one epoch and prints a `Pass` as JSON.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
import weakref
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from townlet.config.loader import load_config
from townlet.policy.bench import PREFETCH, SCENARIO, STREAMING_BAR, CountedDataset
from townlet.policy.replay import ReplayBatch, ReplayDatasetConfig
from townlet.policy.training.batches import PPOBatch
from townlet.policy.training.contexts import RunOptions
from townlet.policy.training.orchestrator import PolicyTrainingOrchestrator
from townlet.policy.training.sources import replay_batch

BATCH_SIZE = 64


@dataclass(frozen=True)
class Pass:
    """One epoch of PPO over a capture folder, in a process of its own."""

    seconds: float  # from opening the manifest to the last update
    batches: int  # most that were alive at a time: as they were stored, and in the form that is learned from
    batch_mb: float
    opened_mb: float  # resident memory when one batch had been trained on, the manifest was open and nothing had been read
    peak_mb: float


def measure(folder: Path, *, streaming: bool, batch_size: int = BATCH_SIZE) -> Pass:
    config = load_config(SCENARIO, ("training.epochs=1", "training.eval_every=0", "ppo.num_epochs=1"))
    options = {"batch_size": batch_size, "shuffle": True, "prefetch": PREFETCH}
    whole = ReplayDatasetConfig.from_capture_dir(folder, **options)
    one_batch = replace(whole, entries=whole.entries[:batch_size])
    PolicyTrainingOrchestrator(config).run("replay", RunOptions(dataset=one_batch))  # the network and what an update works with
    learned: weakref.WeakValueDictionary[int, PPOBatch] = weakref.WeakValueDictionary()
    converted, size = 0, 0.0

    def counted(batch: ReplayBatch, learner: Any) -> PPOBatch:
        nonlocal converted, size
        made = replay_batch(batch, learner)
        learned[id(made)] = made
        converted = max(converted, len(learned))
        size = max(size, sum(array.nbytes for array in vars(batch).values() if hasattr(array, "nbytes")) / 1e6)
        return made

    opened = _memory("VmRSS")
    begin = time.perf_counter()
    dataset = CountedDataset(ReplayDatasetConfig.from_capture_dir(folder, streaming=streaming, **options))
    if streaming:
        opened = _memory("VmRSS")
    with patch("townlet.policy.training.epochs.replay_batch", counted):
        PolicyTrainingOrchestrator(config).run("replay", RunOptions(dataset=dataset))
    seconds = time.perf_counter() - begin
    return Pass(seconds, dataset.most + converted, size, opened, _memory("VmHWM"))


def _memory(key: str) -> float:
    """MB of this process; `ru_maxrss` would also know the parent it was forked from."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:")) / 1e3


def child(folder: Path, form: str) -> Pass:
    words = [sys.executable, "-m", "townlet.policy.training.bench", str(folder), form]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return Pass(**json.loads(done.stdout))


def ppo_rows(folder: Path, repeats: int = 1) -> list[dict[str, Any]]:
    """Training from a stream against training from memory, in turns."""
    pairs = [(child(folder, "memory"), child(folder, "stream")) for _ in range(repeats)]
    ratio = statistics.median(memory.seconds / stream.seconds for memory, stream in pairs)
    most = max(stream.batches for _, stream in pairs)
    memory, stream = pairs[-1]
    sizes = {
        "peak_mb": stream.peak_mb,
        "peak_mb_in_memory": memory.peak_mb,
        "opened_mb": stream.opened_mb,
        "batch_mb": stream.batch_mb,
    }
    return [
        {"name": "PPO streaming over in-memory", "value": ratio, "unit": "×", "bar": STREAMING_BAR, "ok": ratio >= STREAMING_BAR},
        {
            "name": f"batches in memory while PPO streams, prefetch {PREFETCH}",
            "value": most,
            "unit": "batches",
            "bar": PREFETCH + 2,
            "ok": most <= PREFETCH + 2,
            **{name: round(value, 1) for name, value in sizes.items()},
        },
    ]


if __name__ == "__main__":
    print(json.dumps(asdict(measure(Path(sys.argv[1]), streaming=sys.argv[2] == "stream"))))
