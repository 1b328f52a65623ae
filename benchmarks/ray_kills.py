"""A training and a study on a two-node Ray cluster whose workers and nodes are killed: are they the local ones, byte for byte?

python benchmarks/ray_kills.py --kills 50 --nodes 5 --output benchmarks/ray/kills.json
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from townlet.config import load_config
from townlet.config.learning import TrainingConfig
from townlet.files import make_folder, write_json
from townlet.optional import versions
from townlet.policy.ray_engine import SETTINGS, RayEngine, RayWorker
from townlet.policy.runner import TrainingHarness
from townlet.policy.training.contexts import NoProgress, RunOptions
from townlet.studies.runner import finished, run_study
from townlet.studies.spec import StudySpec
from townlet.telemetry.ndjson import read_records
from townlet.telemetry.schema import volatile_names

WORDS = ("training.towns=6", "training.horizon=12", "training.eval_every=0", "training.checkpoint_every=1000")
VOLATILE = {*volatile_names(), "training_seconds"}


class Killer(NoProgress):
    """Kills a worker after each epoch until it has killed enough, and every so often a node."""

    def __init__(self, cluster: Cluster, kills: int, nodes: int) -> None:
        self.cluster, self.kills, self.nodes = cluster, kills, nodes
        self.workers: list[RayWorker] = []
        self.killed = self.removed = 0
        self._every = max(1, kills // max(1, nodes))
        self._node: Any = None

    def watch(self) -> None:
        made: Callable[..., Any] = RayEngine.worker

        def worker(engine: RayEngine, make: Any, *args: Any) -> Any:
            self.workers.append(made(engine, make, *args))
            return self.workers[-1]

        RayEngine.worker = worker  # type: ignore[method-assign]

    def advance(self, figures: Any = None) -> None:
        if self.killed % self._every == 0 and self.removed < self.nodes:
            self._swap_node()
        if self.killed < self.kills:
            for worker in reversed(self.workers):
                try:
                    os.kill(ray.get(worker.actor.place.remote(), timeout=60)[1], signal.SIGKILL)
                except (ray.exceptions.RayError, ProcessLookupError):
                    continue  # it is gone already
                self.killed += 1
                return

    def _swap_node(self) -> None:
        """The node that was added last goes, with whoever is on it; another comes."""
        if self._node is not None:
            self.cluster.remove_node(self._node, allow_graceful=False)
            self.removed += 1
        self._node = self.cluster.add_node(num_cpus=1)


def outcome(run: Path) -> tuple[Any, ...]:
    last = sorted(path for path in (run / "checkpoints").iterdir() if path.is_dir())[-1]
    rows = [{k: v for k, v in record.items() if k not in VOLATILE} for record in read_records(run / "ppo.ndjson")]
    return *((last / name).read_bytes() for name in ("weights.safetensors", "optimizer.safetensors", "world.npz")), rows


def train(folder: Path, epochs: int, progress: NoProgress | None = None, *words: str) -> float:
    started = time.perf_counter()
    harness = TrainingHarness(load_config("town_day", (*WORDS, *words)), progress=progress or NoProgress())
    harness.run_ppo(mode="rollout", options=RunOptions(epochs=epochs, run_dir=folder))
    return time.perf_counter() - started


def epoch_seconds(run: Path) -> float:
    """Median over epochs but the first, which compiles and starts."""
    return statistics.median(record["epoch_duration_sec"] for record in list(read_records(run / "ppo.ndjson"))[1:])


def study_spec(arms: int) -> StudySpec:
    tiny = ("training.towns=4", "training.horizon=6", "training.epochs=2", "training.eval_every=0", "training.checkpoint_every=1")
    rates = {f"arm_{k}": (f"ppo.learning_rate={1e-4 * (k + 1):g}",) for k in range(arms)}
    fields = {"name": "kills", "config": "queue_conflict", "mode": "rollout", "seeds": 1, "towns": 2, "days": 1, "arms": rates}
    return StudySpec.model_validate(fields | {"overrides": tiny})


def results(spec: StudySpec, folder: Path) -> list[Any]:
    rows = [json.loads(one.model_dump_json()) for one in finished(spec, folder)]
    return [{key: value for key, value in row.items() if key not in VOLATILE} for row in rows]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="workers killed in the training")
    parser.add_argument("--nodes", type=int, default=5, help="nodes killed in the training")
    parser.add_argument("--arms", type=int, default=8, help="arms of the study, in which two workers are killed")
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    os.environ.update(SETTINGS)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, logging_level="error", log_to_driver=False)
    killer, epochs = Killer(cluster, asked.kills, asked.nodes), asked.kills + 2
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        train(folder / "here", epochs)
        train(folder / "calm", epochs, None, "training.engine=ray", "training.workers=2")
        killer.watch()
        seconds = train(folder / "killed", epochs, killer, "training.engine=ray", "training.workers=2")
        here, calm, killed = (outcome(folder / name) for name in ("here", "calm", "killed"))
        spec, local, there = study_spec(asked.arms), TrainingConfig(), TrainingConfig(engine="ray", workers=2)
        strikes = Killer(cluster, 2, 0)
        run_study(spec, results=folder / "r", runs=folder / "runs", where=local, say=lambda words: None)
        strikes.workers = killer.workers = []

        def say(words: str) -> None:
            if words.endswith("finished"):
                strikes.advance()

        run_study(spec, results=folder / "s", runs=folder / "there", where=there, say=say)
        kept = (folder / "s" / "kills.ndjson").read_text().splitlines()
        found = {
            "workers_killed": killer.killed,
            "nodes_killed": killer.removed,
            "epochs": epochs,
            "equal_without_kills": calm == here,
            "equal_with_kills": killed == here,
            "seconds_with_kills": seconds,
            "epoch_seconds": {"local": epoch_seconds(folder / "here"), "ray": epoch_seconds(folder / "calm")},
            "overhead_per_update_seconds": epoch_seconds(folder / "calm") - epoch_seconds(folder / "here"),
            "study_arms": asked.arms,
            "study_workers_killed": strikes.killed,
            "study_equal": results(spec, folder / "r") == results(spec, folder / "s") and len(kept) == asked.arms,
            "load_average": os.getloadavg()[0],
            "versions": versions("numpy", "ray"),
        }
    ray.shutdown()
    cluster.shutdown()
    if asked.output is not None:
        make_folder(asked.output.parent)
        write_json(asked.output, found)
    json.dump(found, sys.stdout, indent=2)
    return 0 if found["equal_with_kills"] and found["equal_without_kills"] and found["study_equal"] else 1


if __name__ == "__main__":
    sys.exit(main())
