"""What it costs to train from files: the PPO rows of `townlet bench replay`, each form in a process of its own.

`python -m townlet.bench.replay_training FOLDER stream|memory` trains one epoch and prints a `Pass` as JSON.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from townlet.bench.replay import PREFETCH, SCENARIO, STREAMING_BAR, CountedDataset
from townlet.config.loader import load_config
from townlet.policy.replay import ReplayDataset, ReplayDatasetConfig
from townlet.policy.training.contexts import RunOptions
from townlet.policy.training.orchestrator import PolicyTrainingOrchestrator

BATCH_SIZE = 64


@dataclass(frozen=True)
class Pass:
    """One epoch of PPO over a capture folder, in a process of its own."""

    seconds: float  # from opening the manifest to the last update
    opened_mb: float  # resident memory when one batch had been trained on, the manifest was open and nothing had been read
    peak_mb: float


def _options(batch_size: int) -> dict[str, Any]:
    return {"batch_size": batch_size, "shuffle": True, "prefetch": PREFETCH}


def _train(dataset: ReplayDataset | ReplayDatasetConfig) -> None:
    config = load_config(SCENARIO, ("training.epochs=1", "training.eval_every=0", "ppo.num_epochs=1"))
    PolicyTrainingOrchestrator(config).run("replay", RunOptions(dataset=dataset))


def measure(folder: Path, *, streaming: bool, batch_size: int = BATCH_SIZE) -> Pass:
    whole = ReplayDatasetConfig.from_capture_dir(folder, **_options(batch_size))
    _train(replace(whole, entries=whole.entries[:batch_size]))  # the network and what an update works with
    opened = _memory("VmRSS")
    begin = time.perf_counter()
    dataset = ReplayDataset(ReplayDatasetConfig.from_capture_dir(folder, streaming=streaming, **_options(batch_size)))
    if streaming:
        opened = _memory("VmRSS")
    _train(dataset)
    return Pass(time.perf_counter() - begin, opened, _memory("VmHWM"))


def batches_alive(folder: Path, *, batch_size: int = BATCH_SIZE) -> int:
    """Most batches at a time while PPO learns from a stream; the form that is learned from shares their memory."""
    dataset = CountedDataset(ReplayDatasetConfig.from_capture_dir(folder, streaming=True, **_options(batch_size)))
    _train(dataset)
    return dataset.most


def _memory(key: str) -> float:
    """MB of this process; `ru_maxrss` would also know the parent it was forked from."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:")) / 1e3


def child(folder: Path, form: str) -> Pass:
    words = [sys.executable, "-m", "townlet.bench.replay_training", str(folder), form]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return Pass(**json.loads(done.stdout))


def ppo_rows(folder: Path, repeats: int = 1) -> list[dict[str, Any]]:
    """Training from a stream against training from memory, in turns."""
    pairs = [(child(folder, "memory"), child(folder, "stream")) for _ in range(repeats)]
    ratio = statistics.median(memory.seconds / stream.seconds for memory, stream in pairs)
    most = batches_alive(folder)
    memory, stream = pairs[-1]
    sizes = {
        "peak_mb": stream.peak_mb,
        "peak_mb_in_memory": memory.peak_mb,
        "opened_mb": stream.opened_mb,
    }
    return [
        {"name": "PPO streaming over in-memory", "value": ratio, "unit": "×", "bar": STREAMING_BAR, "ok": ratio >= STREAMING_BAR},
        {
            "name": f"batches in memory while PPO streams, prefetch {PREFETCH}",
            "value": most,
            "unit": "batches",
            "bar": PREFETCH + 1,
            "ok": most <= PREFETCH + 1,
            **{name: round(value, 1) for name, value in sizes.items()},
        },
    ]


if __name__ == "__main__":
    print(json.dumps(asdict(measure(Path(sys.argv[1]), streaming=sys.argv[2] == "stream"))))
