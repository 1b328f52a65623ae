"""The demo's own network on one core and on two, in turns, by the clock on the wall: decisions a second, from collection to the
end of the update. `townlet bench train` has the same rows; this needs the extra ml only, and nothing else may run meanwhile.

python benchmarks/cores.py [--rounds 24] [--output benchmarks/learning/results/cores.json]
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, Protocol

import torch

from townlet.bench.rows import calibration, row
from townlet.config.loader import load_config
from townlet.config.models import SimulationConfig
from townlet.files import write_json
from townlet.policy.training.collect import Collector
from townlet.policy.training.learner import PPOLearner
from townlet.policy.training.services import RolloutCaptureService
from townlet.policy.training.session import network_spec
from townlet.policy.training.sources import rollout_batch
from townlet.policy.workers import worker_count
from townlet.threads import own_cores

DEMO = Path(__file__).parent.parent / "configs" / "training" / "demo.yaml"
EVERYBODY = ["lifecycle.newcomers_per_day=0", "needs.hunger.at_bottom=nothing"]  # stays: every row is a decision
DAYS = ["training.episode_days=1", "training.wallets=null"]
ONE_CORE_BAR, TWO_CORES_BAR, GAIN_BAR = 90_000.0, 150_000.0, 1.7
Times = tuple[float, float]  # processor seconds of a collection, of a collection and its update


class Trainer(Protocol):
    decisions: int  # of one iteration

    def iterate(self) -> Times: ...


class Ours:
    def __init__(self, config: SimulationConfig) -> None:
        spec, self.horizon = network_spec(config), config.training.horizon
        self.learner = PPOLearner(spec, config.ppo, workers=worker_count(config.training), shards=config.training.shards)
        vec = RolloutCaptureService(config).towns(config.training.towns, stagger=True)
        self.collector = Collector(vec, 0, maps=spec.sees_map, state_width=spec.state_width)
        self.decisions = 0

    def iterate(self) -> Times:
        begin = process_time()
        rollout = self.collector.collect(self.learner, self.horizon)
        collected = process_time() - begin
        self.learner.update(rollout_batch(rollout, self.learner.ppo))
        self.decisions = rollout.decided
        return collected, process_time() - begin


def cores_rows(rounds: int) -> list[dict[str, Any]]:
    counts = (1, 2) if own_cores() > 1 else (1,)
    trainers = [Ours(load_config(DEMO, [*EVERYBODY, *DAYS, f"training.workers={n}"])) for n in counts]
    spent: list[list[float]] = [[] for _ in counts]
    for turn in range(rounds):
        for times, trainer in zip(spent, trainers):
            begin = perf_counter()
            trainer.iterate()
            if turn > 0:
                times.append((perf_counter() - begin) / trainer.decisions)
    bars, words = (ONE_CORE_BAR, TWO_CORES_BAR), ("one core", "two cores")
    rows = [
        row(f"the demo's network on {word}, collection and update", 1 / median(times), "decisions/s", bar)
        for word, times, bar in zip(words, spent, bars)
    ]
    if len(spent) > 1:
        rows.append(row("two cores over one", median(one / two for one, two in zip(*spent)), "×", GAIN_BAR))
    return [*rows, calibration("calibration beside them")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=24, help="the first warms up")
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    busy, rows = os.getloadavg()[0], cores_rows(asked.rounds)
    for made in rows:
        print(f"{made['name']}: {made['value']:,.2f} {made['unit']}")
    if asked.output:
        write_json(asked.output, {"load_average_before": busy, "rows": rows})


if __name__ == "__main__":
    main()
