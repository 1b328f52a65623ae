"""Somebody else's trainer: PPO of TorchRL, all residents one group with shared weights (pip install torchrl)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from tensordict.nn import TensorDictModule
from torchrl.envs.libs.pettingzoo import PettingZooWrapper
from torchrl.modules import MaskedCategorical, MultiAgentMLP, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss, ValueEstimators

import townlet

GROUP = "resident"  # TorchRL groups agents by what stands before the last underscore of their names


def main(steps: int = 144, rounds: Iterable[int] = range(4), scenario: str = "town_day") -> tuple[int, Any]:
    town = townlet.parallel_env(scenario, agents="fixed", names="numbered", infos="none", map="none")
    env = PettingZooWrapper(env=town, categorical_actions=True, done_on_any=False)
    sizes = {"n_agents": len(town.possible_agents), "centralized": False, "share_params": True, "depth": 2, "num_cells": 64}
    seen = (GROUP, "observation", "observation")
    trunk = MultiAgentMLP(n_agent_inputs=town.sight.row.shape[0], n_agent_outputs=town.vec.num_actions, **sizes)
    trunk.params["4", "bias"].data[town.vec.catalogue.names.index("work")] += 4  # chance hardly finds that work pays
    actor = ProbabilisticActor(
        TensorDictModule(trunk, [seen], [(GROUP, "logits")]), {"logits": (GROUP, "logits"), "mask": (GROUP, "action_mask")},
        [(GROUP, "action")], distribution_class=MaskedCategorical, return_log_prob=True, log_prob_key=(GROUP, "log_prob"),
    )  # fmt: skip
    value = MultiAgentMLP(n_agent_inputs=town.sight.row.shape[0], n_agent_outputs=1, **sizes)
    critic = ValueOperator(value, [seen], [(GROUP, "state_value")])
    loss = ClipPPOLoss(actor, critic, entropy_coeff=0.01)
    keys = {"reward": "reward", "action": "action", "value": "state_value", "done": "done", "terminated": "terminated"}
    loss.set_keys(sample_log_prob=(GROUP, "log_prob"), **{name: (GROUP, key) for name, key in keys.items()})
    loss.make_value_estimator(ValueEstimators.GAE, gamma=0.99, lmbda=0.95)
    optimiser = torch.optim.Adam(loss.parameters(), 3e-4)
    for number in rounds:
        with torch.no_grad():
            data = loss.value_estimator(env.rollout(steps, actor, break_when_any_done=False))
        for quarter in data.split(36) * 4:  # four passes in mini-batches of six hours
            parts = loss(quarter)
            sum(value for name, value in parts.items() if name.startswith("loss")).backward()
            optimiser.step(), optimiser.zero_grad()
        print(f"round {number}: reward per decision {data['next', GROUP, 'reward'].mean():.3f}, illegal actions {town.illegal}")
    return town.illegal, lambda rows, masks: trunk(rows)


if __name__ == "__main__":
    main()
