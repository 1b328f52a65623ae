"""A training and a study on a two-node Ray cluster whose workers and nodes are killed: are they the local ones, byte for byte?

python benchmarks/ray_kills.py --kills 50 --nodes 5 --output benchmarks/cluster/kills.json
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
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

TINY = ("training.towns=6", "training.horizon=12", "training.eval_every=0", "training.checkpoint_every=1000")
DEMO = (
    "training.towns=64",
    "training.horizon=36",
    "training.eval_every=0",
    "training.checkpoint_every=1000",
)  # as large as the demo's
RAY = ("training.engine=ray", "training.workers=2")
VOLATILE = {*volatile_names(), "training_seconds", "processor_seconds"}


class Killer(NoProgress):
    """Kills a worker or a node at some moment of every epoch, until it has killed enough of both. The cluster has a place for
    each of two workers, one to a node: a node never goes alone."""

    def __init__(self, cluster: Cluster, node: Any, kills: int, nodes: int, within: float) -> None:
        self.cluster, self.node, self.spare, self.within = cluster, node, None, within
        self.workers: list[RayWorker] = []
        self.killed: list[int] = []  # processes
        self.removed = 0  # nodes
        self._moments = random.Random(0)
        step = max(1, kills // max(1, nodes))
        self._deeds = [deed for k in range(kills) for deed in (self._kill_worker, *[self._kill_node] * (k % step == 0))]
        self._under_way = threading.Thread()

    def watch(self) -> None:
        made: Callable[..., Any] = RayEngine.worker

        def worker(engine: RayEngine, make: Any, *args: Any) -> Any:
            self.workers.append(made(engine, make, *args))
            return self.workers[-1]

        RayEngine.worker = worker  # type: ignore[method-assign]

    def advance(self, figures: Any = None) -> None:
        self.wait()
        if self._deeds:
            deed = self._deeds.pop(0)
            if deed == self._kill_node:  # whoever is on it finds another
                self.spare = self.cluster.add_node(num_cpus=1)
            self._under_way = threading.Timer(self._moments.uniform(0, self.within), deed)
            self._under_way.start()

    def wait(self) -> None:
        if self._under_way.is_alive():
            self._under_way.join()

    def _kill_worker(self) -> None:
        """Whoever started longest ago; where nobody runs at this moment, it is done in the next epoch."""
        for worker in self.workers:
            process = placed(worker)
            if process is not None and process not in self.killed and runs(process):
                os.kill(process, signal.SIGKILL)
                self.killed.append(process)
                return
        self._deeds.append(self._kill_worker)

    def _kill_node(self) -> None:
        self.cluster.remove_node(self.node, allow_graceful=False)
        self.node = self.spare
        self.removed += 1


def placed(worker: RayWorker) -> int | None:
    """The process of a worker that has started and was not lost before it told."""
    try:
        return ray.get(worker.placed, timeout=0.1)[1]
    except (ray.exceptions.RayError, TimeoutError):
        return None


def runs(process: int) -> bool:
    """Whether it is there and has not ended (a process that nobody has waited for has no command line)."""
    try:
        return bool(Path(f"/proc/{process}/cmdline").read_bytes())
    except FileNotFoundError:
        return False


def outcome(run: Path) -> tuple[Any, ...]:
    last = sorted(path for path in (run / "checkpoints").iterdir() if path.is_dir())[-1]
    rows = [{k: v for k, v in record.items() if k not in VOLATILE} for record in read_records(run / "ppo.ndjson")]
    return *((last / name).read_bytes() for name in ("weights.safetensors", "optimizer.safetensors", "world.npz")), rows


def train(folder: Path, epochs: int, words: tuple[str, ...], progress: NoProgress | None = None) -> float:
    """Seconds of a training, from its start to its end."""
    started = time.perf_counter()
    harness = TrainingHarness(load_config("town_day", words), progress=progress or NoProgress())
    harness.run_ppo(mode="rollout", options=RunOptions(epochs=epochs, run_dir=folder))
    return time.perf_counter() - started


def epoch_seconds(run: Path) -> float:
    """Median over epochs but the first two, which start and compile."""
    return statistics.median(record["epoch_duration_sec"] for record in list(read_records(run / "ppo.ndjson"))[2:])


def overhead(folder: Path, words: tuple[str, ...], epochs: int) -> dict[str, float | bool]:
    """Two workers on Ray against two in processes and against two threads, the same updates."""
    engines = {"local": ("training.workers=2",), "process": ("training.engine=process", "training.workers=2"), "ray": RAY}
    for name, more in engines.items():
        train(folder / name, epochs, (*words, *more))
    found = {f"{name}_seconds": epoch_seconds(folder / name) for name in engines}
    equal = outcome(folder / "local") == outcome(folder / "process") == outcome(folder / "ray")
    return found | {"ray_minus_local_seconds": found["ray_seconds"] - found["local_seconds"], "equal": equal}


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
    parser.add_argument("--arms", type=int, default=8, help="arms of the study, half as many workers of which are killed")
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    os.environ.update(SETTINGS)
    began = time.perf_counter()
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": {"health_check_period_ms": 1000}}  # misses a node sooner
    cluster = Cluster(initialize_head=True, head_node_args=head)
    second = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, logging_level="error", log_to_driver=False)
    epochs = asked.kills + asked.nodes + 10  # some find nobody to kill
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        found: dict[str, Any] = {
            "per_update": {
                "tiny": overhead(folder / "tiny", TINY, 22),
                "as the demo": overhead(folder / "demo", DEMO, 12),
            }
        }
        train(folder / "here", epochs, TINY)
        killer = Killer(cluster, second, asked.kills, asked.nodes, found["per_update"]["tiny"]["ray_seconds"])
        killer.watch()
        seconds = train(folder / "killed", epochs, (*TINY, *RAY), killer)
        killer.wait()
        found["training"] = {
            "epochs": epochs,
            "workers_killed": len(killer.killed),
            "nodes_killed": killer.removed,
            "workers_started": len(killer.workers),
            "seconds": seconds,
            "equal": outcome(folder / "killed") == outcome(folder / "here"),
        }
        spec, strikes = study_spec(asked.arms), Killer(cluster, killer.node, asked.arms // 2, 0, 1.0)
        run_study(spec, results=folder / "r", runs=folder / "runs", where=TrainingConfig(), say=lambda words: None)
        strikes.watch()
        run_study(
            spec,
            results=folder / "s",
            runs=folder / "there",
            where=TrainingConfig(engine="ray", workers=2),
            say=lambda words: strikes.advance(),
        )
        strikes.wait()
        kept = (folder / "s" / "kills.ndjson").read_text().splitlines()
        found["study"] = {
            "arms": asked.arms,
            "workers_killed": len(strikes.killed),
            "equal": results(spec, folder / "r") == results(spec, folder / "s") and len(kept) == asked.arms,
        }
    found |= {"seconds": time.perf_counter() - began, "load_average": os.getloadavg()[0], "versions": versions("numpy", "ray")}
    ray.shutdown()
    cluster.shutdown()
    if asked.output is not None:
        make_folder(asked.output.parent)
        write_json(asked.output, found)
    json.dump(found, sys.stdout, indent=2)
    parts = (found["training"], found["study"], *found["per_update"].values())
    return 0 if all(part["equal"] for part in parts) else 1


if __name__ == "__main__":
    sys.exit(main())
