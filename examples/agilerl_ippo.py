"""Somebody else's trainer: IPPO of AgileRL, all residents one group with shared weights (pip install agilerl)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from agilerl.algorithms import IPPO

import townlet

FIELDS = ("states", "actions", "log_probs", "rewards", "dones", "values")  # as `learn` wants them, per agent and step


def main(steps: int = 144, rounds: Iterable[int] = range(4), scenario: str = "town_day") -> tuple[int, Any]:
    env = townlet.parallel_env(scenario, agents="fixed", names="numbered", infos="none", map="none")
    agents = env.possible_agents
    seen = [env.observation_space(agent)["observation"] for agent in agents]
    learner = IPPO(seen, [env.action_space(agent) for agent in agents], agent_ids=agents, batch_size=256, lr=3e-4)
    observations, _ = env.reset(seed=2)
    for number in rounds:
        kept: dict[str, dict[str, list[np.ndarray]]] = {field: {agent: [] for agent in agents} for field in FIELDS}
        for _ in range(steps):
            rows = {agent: one["observation"][None] for agent, one in observations.items()}
            masks = {agent: {"action_mask": one["action_mask"].tolist()} for agent, one in observations.items()}
            actions, log_probs, _, values = learner.get_action(rows, masks)
            observations, rewards, ends, cuts, _ = env.step({agent: int(actions[agent][0]) for agent in agents})
            done = {agent: float(ends[agent] or cuts[agent]) for agent in agents}
            made = (rows, actions, log_probs, {a: [rewards[a]] for a in agents}, {a: [done[a]] for a in agents}, values)
            for field, values_of in zip(FIELDS, made):
                for agent in agents:
                    kept[field][agent].append(np.asarray(values_of[agent], np.float32))
            if not env.agents:
                observations, _ = env.reset()
        after = {agent: one["observation"][None] for agent, one in observations.items()}
        learner.learn((*kept.values(), after, {agent: np.array([done[agent]], np.float32) for agent in agents}))
        mean = np.mean([kept["rewards"][agent] for agent in agents])
        print(f"round {number}: reward per decision {mean:.3f}, illegal actions {env.illegal}")
    actor = learner.actors["resident"]
    return env.illegal, lambda rows, masks: actor.head_net.wrapped(actor.extract_features(rows.flatten(0, -2)))


if __name__ == "__main__":
    main()
