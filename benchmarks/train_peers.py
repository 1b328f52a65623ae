"""PPO on the town, ours beside others', one thread, alternated: decisions a second of processor time, from collection to the end
of the update.

townlet bench train [--json]        (needs the extras ml and bench)
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
import supersuit
import torch
from pettingzoo.utils import BaseParallelWrapper
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

import townlet
from townlet.config.loader import load_config
from townlet.envs.sb3 import TownVecEnv
from townlet.envs.vector import VectorTown
from townlet.policy.training.collect import Collector
from townlet.policy.training.learner import PPOLearner
from townlet.policy.training.session import network_spec
from townlet.policy.training.sources import rollout_batch
from townlet.sim.bench import calibration, row

SCENARIO, TOWNS, HORIZON = "town_day", 8, 32
NO_NEWCOMERS = ["lifecycle.newcomers_per_day=0"]  # SuperSuit refuses ids that are absent at reset
Times = tuple[float, float]  # seconds of a collection, of a collection and its update


class Ours:
    name = "ours"

    def __init__(self) -> None:
        config = load_config(SCENARIO, NO_NEWCOMERS)
        spec = network_spec(config)
        self.learner = PPOLearner(spec, config.ppo)
        self.collector = Collector(VectorTown(config, TOWNS), 0, maps=spec.sees_map, state_width=spec.state_width)
        self.decisions = TOWNS * self.collector.vec.num_residents * HORIZON

    def iterate(self) -> Times:
        begin = process_time()
        rollout = self.collector.collect(self.learner, HORIZON)
        collected = process_time() - begin
        self.learner.update(rollout_batch(rollout, self.learner.ppo))
        return collected, process_time() - begin


class Stopwatch(BaseCallback):
    """When the collection of an iteration began and ended."""

    def _on_rollout_start(self) -> None:
        self.began = process_time()

    def _on_rollout_end(self) -> None:
        self.collected = process_time() - self.began

    def _on_step(self) -> bool:
        return True


class StableBaselines:
    def __init__(self, name: str, env: Any, **options: Any) -> None:
        self.name = name
        options = {"n_steps": HORIZON, "device": "cpu"} | options
        self.model = PPO("MlpPolicy", env, **options)
        self.decisions = self.model.n_envs * HORIZON

    def iterate(self) -> Times:
        watch = Stopwatch()
        begin = process_time()
        self.model.learn(self.decisions, callback=watch, reset_num_timesteps=False)
        return watch.collected, process_time() - begin


class Plain(BaseParallelWrapper):
    """Box observations instead of dictionaries: the mask is left out, as plain PPO cannot use it."""

    def observation_space(self, agent: str) -> Any:
        return self.env.observation_space(agent)["observation"]

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        seen, infos = self.env.reset(seed=seed, options=options)
        return {agent: one["observation"] for agent, one in seen.items()}, infos

    def step(self, actions: Any) -> Any:
        seen, *rest = self.env.step(actions)
        return {agent: one["observation"] for agent, one in seen.items()}, *rest


def supersuit_env() -> Any:
    env = supersuit.black_death_v3(Plain(townlet.parallel_env(SCENARIO, overrides=NO_NEWCOMERS)))
    return supersuit.concat_vec_envs_v1(
        supersuit.pettingzoo_env_to_vec_env_v1(env), TOWNS, num_cpus=1, base_class="stable_baselines3"
    )


class SharedTrunk(BaseFeaturesExtractor):
    """About our network: 224 numbers from the observation, a trunk of 128, two heads."""

    def __init__(self, space: Any) -> None:
        super().__init__(space, 128)
        self.layers = nn.Sequential(nn.Linear(space.shape[0], 224), nn.ReLU(), nn.Linear(224, 128), nn.ReLU())

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        return self.layers(seen)  # type: ignore[no-any-return]


class CleanLoop:
    """One file, one loop, separate tanh networks of 64 × 64, 4 × 4 mini-batches: the style and defaults of CleanRL's ppo.py."""

    name = "a CleanRL-style loop on our vector environment"

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.env = TownVecEnv(SCENARIO, TOWNS, overrides=NO_NEWCOMERS)
        width, actions = self.env.observation_space.shape[0], self.env.action_space.n

        def network(out: int) -> nn.Sequential:
            return nn.Sequential(nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, out))

        self.actor, self.critic = network(actions), network(1)
        self.parameters = [*self.actor.parameters(), *self.critic.parameters()]
        self.optimizer = torch.optim.Adam(self.parameters, lr=2.5e-4, eps=1e-5)
        self.seen = torch.as_tensor(self.env.reset())
        self.done = torch.zeros(self.env.num_envs)
        self.decisions = self.env.num_envs * HORIZON

    def iterate(self) -> Times:
        begin = process_time()
        n = self.env.num_envs
        obs = torch.zeros((HORIZON, n, self.seen.shape[1]))
        actions, logs, rewards, dones, values = (torch.zeros((HORIZON, n)) for _ in range(5))
        for t in range(HORIZON):
            obs[t], dones[t] = self.seen, self.done
            with torch.no_grad():
                chosen = torch.distributions.Categorical(logits=self.actor(self.seen))
                action = chosen.sample()
                actions[t], logs[t], values[t] = action, chosen.log_prob(action), self.critic(self.seen).flatten()
            seen, reward, done, _ = self.env.step(action.numpy())
            rewards[t] = torch.as_tensor(reward)
            self.seen, self.done = torch.as_tensor(seen), torch.as_tensor(done, dtype=torch.float32)
        collected = process_time() - begin
        with torch.no_grad():
            following = self.critic(self.seen).flatten()
            advantages, last = torch.zeros_like(rewards), torch.zeros(n)
            for t in reversed(range(HORIZON)):
                alive = 1.0 - (self.done if t == HORIZON - 1 else dones[t + 1])
                ahead = following if t == HORIZON - 1 else values[t + 1]
                last = rewards[t] + 0.99 * ahead * alive - values[t] + 0.99 * 0.95 * alive * last
                advantages[t] = last
        self._update(obs, *(rows.flatten() for rows in (actions, logs, advantages, advantages + values, values)))
        return collected, process_time() - begin

    def _update(self, obs: Any, actions: Any, logs: Any, advantages: Any, returns: Any, values: Any) -> None:
        obs = obs.reshape(-1, obs.shape[-1])
        for _ in range(4):
            for rows in np.array_split(np.random.permutation(len(obs)), 4):
                chosen = torch.distributions.Categorical(logits=self.actor(obs[rows]))
                ratio = (chosen.log_prob(actions[rows]) - logs[rows]).exp()
                gain = (advantages[rows] - advantages[rows].mean()) / (advantages[rows].std() + 1e-8)
                policy = torch.max(-gain * ratio, -gain * ratio.clamp(0.8, 1.2)).mean()
                value = self.critic(obs[rows]).flatten()
                clipped = values[rows] + (value - values[rows]).clamp(-0.2, 0.2)
                loss_value = 0.5 * torch.max((value - returns[rows]) ** 2, (clipped - returns[rows]) ** 2).mean()
                loss = policy - 0.01 * chosen.entropy().mean() + 0.5 * loss_value
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.parameters, 0.5)
                self.optimizer.step()


def train_rows(*, say: Callable[[str], None], seconds: float = 20.0) -> list[dict[str, Any]]:
    """Ratios of decisions a second, ours over each peer's; medians of alternated rounds, five when the time allows."""
    torch.set_num_threads(1)
    vec = {"scenario": SCENARIO, "num_towns": TOWNS, "overrides": NO_NEWCOMERS}
    like_ours = {"n_epochs": 4, "batch_size": TOWNS * 8 * HORIZON // 4}
    like_ours["policy_kwargs"] = {"features_extractor_class": SharedTrunk, "net_arch": []}
    say("building the trainers")
    ours = Ours()
    peers = [
        (StableBaselines("Stable-Baselines3 through SuperSuit", supersuit_env()), 3.0, 2.5),
        (StableBaselines("Stable-Baselines3 on our vector environment", TownVecEnv(**vec)), 1.5, 1.4),
        (CleanLoop(), 2.0, None),
        (StableBaselines("Stable-Baselines3 with our network and batches", TownVecEnv(**vec), **like_ours), 1.0, None),
    ]
    rows = [row("calibration: additions in plain Python", calibration(), "1/s")]
    spent: dict[str, list[Times]] = {}
    began, rounds = perf_counter(), 0
    while rounds < 2 or (rounds < 6 and perf_counter() - began < seconds * len(peers)):
        for trainer in (ours, *(peer for peer, _, _ in peers)):
            say(f"round {rounds}: {trainer.name}")
            spent.setdefault(trainer.name, []).append(trainer.iterate())
        rounds += 1
    later = {name: taken[1:] for name, taken in spent.items()}  # the first round warms up
    speeds = {name: [median(times[k] for times in taken) for k in (0, 1)] for name, taken in later.items()}
    rows.append(row("ours, collection and update", ours.decisions / speeds["ours"][1], "decisions/s"))
    rows.append(row("ours, collection", ours.decisions / speeds["ours"][0], "decisions/s"))
    for peer, bar, collecting in peers:
        scale = ours.decisions / peer.decisions
        whole, collected = (speeds[peer.name][k] * scale / speeds["ours"][k] for k in (1, 0))
        rows.append(row(f"ours over {peer.name}", whole, "×", bar, decisions_per_second=peer.decisions / speeds[peer.name][1]))
        rows.append(row(f"collection, ours over {peer.name}", collected, "×", collecting))
    return rows
