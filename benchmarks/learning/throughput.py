"""How many decisions a second the update learns from: 512 residents × 128 steps of random town-sized data, one thread.

python benchmarks/learning/throughput.py [--map none|linear|cnn] [--recurrent none|gru|lstm] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from townlet import files
from townlet.config.learning import NetworkConfig, PPOConfig
from townlet.config.needs import THREE
from townlet.observations.spec import ObservationSpec
from townlet.policy.network import NetworkSpec
from townlet.policy.training import estimates
from townlet.policy.training.learner import PPOLearner
from townlet.policy.trajectory import Trajectory
from townlet.world.actions import Catalogue

AFFORDANCES = ("use_shower", "cook_meal", "eat_meal", "buy_meal", "rest_sleep", "sit")


def town_spec() -> ObservationSpec:
    return ObservationSpec("hybrid", Catalogue("option", AFFORDANCES).names, AFFORDANCES, tuple(THREE))


def random_batch(learner: PPOLearner, steps: int, residents: int, seed: int = 0) -> Trajectory:
    """Observations at random, actions, log-probabilities and values of the learner itself."""
    spec, rng = learner.spec, np.random.default_rng(seed)
    features = rng.random((steps, residents, spec.features), dtype=np.float32)
    masks = rng.random((steps, residents, spec.actions)) < 0.5
    masks[..., 0] = 1
    maps = (rng.random((steps, residents, *spec.map_shape)) < 0.1).astype(np.uint8) if spec.map_shape and spec.sees_map else None
    state = learner.initial_state(residents)
    rows = []
    for t in range(steps):
        acted = learner.act(features[t], None if maps is None else maps[t], masks[t], draws=rng.random(residents), state=state)
        state = acted.state
        rows.append(acted)
    actions, log_probs, values = (np.stack(column) for column in list(zip(*rows))[:3])
    rewards = rng.normal(size=(steps, residents)).astype(np.float32)
    never = np.zeros((steps, residents), np.uint8)
    advantages, returns = estimates.gae(rewards, values, values[-1], never, never, gamma=0.99, gae_lambda=0.95)
    return Trajectory(
        features=features,
        masks=masks,
        active=np.ones((steps, residents), bool),
        maps=maps,
        actions=actions,
        log_probs=log_probs,
        values=values,
        rewards=rewards,
        advantages=advantages,
        returns=returns,
    )


def measure(network: NetworkConfig, ppo: PPOConfig, steps: int = 128, residents: int = 512, repeats: int = 3) -> dict[str, Any]:
    observed = town_spec()
    learner = PPOLearner(NetworkSpec.of(observed, network, ppo), ppo)
    begin = time.perf_counter()
    batch = random_batch(learner, steps, residents)
    acting = time.perf_counter() - begin
    learner.update(batch)  # warm
    took, busy = [], []
    for _ in range(repeats):
        begin, begin_busy = time.perf_counter(), time.process_time()
        learner.update(batch)
        took.append(time.perf_counter() - begin)
        busy.append(time.process_time() - begin_busy)
    seconds, processor = float(np.median(took)), float(np.median(busy))
    return {
        "features": len(observed.fields),
        "actions": len(observed.action_names),
        "map_encoder": network.map_encoder,
        "recurrent": ppo.recurrent,
        "compile": ppo.compile,
        "bf16": ppo.bf16,
        "epochs": ppo.num_epochs,
        "mini_batches": ppo.num_mini_batches,
        "threads": torch.get_num_threads(),
        "update_seconds": seconds,
        "update_processor_seconds": processor,  # what it would take on a core of its own
        "update_decisions_per_second": steps * residents / seconds,
        "update_decisions_per_processor_second": steps * residents / processor,
        "act_decisions_per_second_with_data": steps * residents / acting,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--map", default="linear", choices=("none", "linear", "cnn"))
    parser.add_argument("--recurrent", default="none", choices=("none", "gru", "lstm"))
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    ppo = PPOConfig(recurrent=given.recurrent, num_epochs=given.epochs, compile=given.compile, bf16=given.bf16)
    row = measure(NetworkConfig(map_encoder=given.map), ppo)
    print(json.dumps(row))
    if given.json:
        files.write_json(given.json, row)


if __name__ == "__main__":
    main()
