#!/usr/bin/env python3
"""The runs behind the drift study, each with its own seed. Every finished run is a log in the work folder and is not made again,
so the study goes on where it was stopped.

* `town`: `town_day` under scripted, ε-soft residents, its figures written epoch by epoch as a training record holds them; in the
  changed runs ε is another.
* `ppo`: short PPO trainings of `town_day` from one cloned network that lives as the script does; in the changed runs a conflict
  costs eight times as much.

    python benchmarks/telemetry/drift_runs.py town-alike --runs 40
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

from townlet.config.loader import load_config
from townlet.envs.vector import VectorTown
from townlet.files import make_folder, move, remove, write_bytes
from townlet.policy.runtime import ScriptedPolicy
from townlet.policy.training.contexts import RunOptions
from townlet.policy.training.orchestrator import PolicyTrainingOrchestrator
from townlet.policy.training.telemetry import RivalryTally, town_record
from townlet.sim.tally import EventTally

WORK = Path("runs/drift_study")
TOWNS, EPOCHS, DECISIONS = 48, 32, 72  # of a town run
EPSILON, CHANGED_EPSILON = 0.05, 0.1
WEIGHT, EIGHTFOLD = 1.0, 8.0  # of a conflict
TRAINED_TOWNS, TRAINED_EPOCHS, HORIZON = 64, 48, 36  # of a training
NETWORK = ("policy.network.map_encoder=none", "ppo.normalize_observations=true")
TRAINING = (
    *(f"training.epochs={TRAINED_EPOCHS}", f"training.towns={TRAINED_TOWNS}", f"training.horizon={HORIZON}"),
    *("training.eval_every=0", "ppo.num_epochs=1", "ppo.learning_rate=1e-3", "ppo.entropy_coef=0.003", *NETWORK),
)
CLONING = (
    *("seed=1", "training.bc.epochs=12", "training.bc.towns=96", "training.bc.learning_rate=4e-3"),
    *("training.bc.batch_size=512", *NETWORK),
)


def town_records(epsilon: float, seed: int) -> Iterator[dict[str, Any]]:
    """Conflict, waiting, rivalry and reward figures of a town under its script, epoch by epoch."""
    vec = VectorTown("town_day", TOWNS, seed=seed, start="random")
    policy = ScriptedPolicy(epsilon, seed)
    policy.reset(vec)
    columns = [vec.spec.feature_names.index(name) for name in ("rivalry_max", "rivalry_avoid_count")]
    for epoch in range(1, EPOCHS + 1):
        town, rivalry, reward, count = EventTally(), RivalryTally(), 0.0, 0
        for _ in range(DECISIONS):
            there = vec.active.astype(bool)
            rivalry.add(*(vec.features[..., column][there] for column in columns))
            vec.step(policy.act(vec).actions)
            town.add(vec.events())
            reward += float(vec.rewards[there].sum())
            count += int(there.sum())
        days = count * vec.interval / vec.config.world.ticks_per_day
        yield {"epoch": epoch, **town_record(town, days), **rivalry.record(), "episode_return_mean": reward / days}


def make_town_run(epsilon: float) -> Callable[[Path, int, Path], None]:
    def make(log: Path, seed: int, work: Path) -> None:
        write_bytes(log, b"".join(json.dumps(record).encode() + b"\n" for record in town_records(epsilon, seed)))

    return make


def make_training(weight: float) -> Callable[[Path, int, Path], None]:
    def make(log: Path, seed: int, work: Path) -> None:
        config = load_config("town_day", (f"seed={seed}", *TRAINING, f"rewards.conflict_weight={weight}"))
        PolicyTrainingOrchestrator(config).run("rollout", RunOptions(log_path=log, start_from=cloned(work)))

    return make


def cloned(work: Path) -> Path:
    """The network every training starts from, cloned from scripted townspeople once."""
    folder = work / "cloned"
    if not (folder / "checkpoints" / "latest").exists():
        remove(folder)
        PolicyTrainingOrchestrator(load_config("town_day", CLONING)).run_bc_training(options=RunOptions(run_dir=folder))
    return folder / "checkpoints" / "latest"


# arm -> how a run is made, the seed of its first; training seeds are even. The rules of `drift` and the size of the runs were
# settled on towns of the seeds 0 to 78 and 1000 to 1038, the factors for trainings on those of the seeds 70000 to 70046: none
# of these is measured here.
ARMS: dict[str, tuple[Callable[[Path, int, Path], None], int]] = {
    "town-alike": (make_town_run(EPSILON), 10_000),
    "town-changed": (make_town_run(CHANGED_EPSILON), 20_000),
    "ppo-alike": (make_training(WEIGHT), 90_000),
    "ppo-eightfold": (make_training(EIGHTFOLD), 50_000),
}


def logs_of(arm: str, runs: int, work: Path = WORK) -> list[Path]:
    """The logs of an arm, made when they are not there yet."""
    make, first = ARMS[arm]
    logs = [work / arm / f"{number:02d}.ndjson" for number in range(runs)]
    for number, log in enumerate(logs):
        if log.exists():
            continue
        make_folder(log.parent)
        growing = log.with_suffix(".growing")
        remove(growing)
        begin = process_time()
        make(growing, first + 2 * number, work)
        move(growing, log)
        print(f"{log}: {process_time() - begin:.1f} s", flush=True)
    return logs


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the runs of one arm of the drift study.")
    parser.add_argument("arm", choices=sorted(ARMS))
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--work", type=Path, default=WORK)
    chosen = parser.parse_args()
    logs_of(chosen.arm, chosen.runs, chosen.work)


if __name__ == "__main__":
    main()
