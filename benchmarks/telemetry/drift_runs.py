#!/usr/bin/env python3
"""The runs behind the drift study: short PPO trainings of `town_day` from one cloned network, each with its own seed.

Every finished run is a telemetry log in the work folder and is not made again, so the study goes on where it was stopped.

    python benchmarks/telemetry/drift_runs.py --arm alike --runs 40
"""

from __future__ import annotations

import argparse
from pathlib import Path

from townlet.config.loader import load_config
from townlet.files import make_folder, move, remove
from townlet.policy.training.contexts import RunOptions
from townlet.policy.training.orchestrator import PolicyTrainingOrchestrator

WORK = Path("runs/drift_study")
RUN = ("training.epochs=24", "training.towns=16", "training.horizon=144", "training.eval_every=0", "ppo.num_epochs=1")
CLONING = ("seed=1", "training.bc.epochs=6", "training.bc.towns=8")
# arm -> overrides, first seed; training seeds are even
ARMS: dict[str, tuple[tuple[str, ...], int]] = {
    "alike": ((), 0),
    "changed": (("rewards.conflict_weight=1.3",), 1_000),
}


def start_of(work: Path) -> Path:
    """The network every run starts from, cloned from scripted townspeople once."""
    folder = work / "cloned"
    if not (folder / "checkpoints" / "latest").exists():
        remove(folder)
        PolicyTrainingOrchestrator(load_config("town_day", CLONING)).run_bc_training(options=RunOptions(run_dir=folder))
    return folder / "checkpoints" / "latest"


def logs_of(arm: str, runs: int, work: Path = WORK) -> list[Path]:
    """The telemetry logs of an arm, made when they are not there yet."""
    overrides, first = ARMS[arm]
    logs = [work / arm / f"{number:02d}.ndjson" for number in range(runs)]
    for number, log in enumerate(logs):
        if log.exists():
            continue
        make_folder(log.parent)
        growing = log.with_suffix(".growing")
        remove(growing)
        config = load_config("town_day", (f"seed={first + 2 * number}", *RUN, *overrides))
        PolicyTrainingOrchestrator(config).run("rollout", RunOptions(log_path=growing, start_from=start_of(work)))
        move(growing, log)
        print(f"{log} made", flush=True)
    return logs


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the runs of the drift study.")
    parser.add_argument("--arm", choices=sorted(ARMS), required=True)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--work", type=Path, default=WORK)
    chosen = parser.parse_args()
    logs_of(chosen.arm, chosen.runs, chosen.work)


if __name__ == "__main__":
    main()
