"""One file, one loop, separate tanh networks of 64 × 64, 4 passes of 4 mini-batches: style and defaults of CleanRL's ppo.py."""

from __future__ import annotations

from time import process_time
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from townlet.policy.models import ConflictAwarePolicyNetwork
from townlet.policy.network import NetworkSpec


class Apart(nn.Module):
    """Actor and critic with nothing in common."""

    def __init__(self, width: int, actions: int) -> None:
        super().__init__()

        def network(out: int) -> nn.Sequential:
            return nn.Sequential(nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, out))

        self.actor, self.critic = network(actions), network(1)

    def forward(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(seen), self.critic(seen).flatten()


class Shared(nn.Module):
    """Our network."""

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.network = ConflictAwarePolicyNetwork(spec)

    def forward(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        return self.network.rows(self.network.ordered(seen), None)


class CleanLoop:
    def __init__(self, env: Any, horizon: int, spec: NetworkSpec | None = None) -> None:
        torch.manual_seed(0)
        self.env, self.horizon = env, horizon
        width, actions = env.observation_space.shape[0], env.action_space.n
        self.network = Apart(width, actions) if spec is None else Shared(spec)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=2.5e-4, eps=1e-5)
        self.seen = torch.as_tensor(env.reset())
        self.done = torch.zeros(env.num_envs)
        self.decisions = env.num_envs * horizon

    def iterate(self) -> tuple[float, float]:
        begin = process_time()
        horizon, n = self.horizon, self.env.num_envs
        obs = torch.zeros((horizon, n, self.seen.shape[1]))
        actions, logs, rewards, dones, values = (torch.zeros((horizon, n)) for _ in range(5))
        for t in range(horizon):
            obs[t], dones[t] = self.seen, self.done
            with torch.no_grad():
                logits, values[t] = self.network(self.seen)
                chosen = torch.distributions.Categorical(logits=logits)
                action = chosen.sample()
                actions[t], logs[t] = action, chosen.log_prob(action)
            seen, reward, done, _ = self.env.step(action.numpy())
            rewards[t] = torch.as_tensor(reward)
            self.seen, self.done = torch.as_tensor(seen), torch.as_tensor(done, dtype=torch.float32)
        collected = process_time() - begin
        with torch.no_grad():
            following = self.network(self.seen)[1]
            advantages, last = torch.zeros_like(rewards), torch.zeros(n)
            for t in reversed(range(horizon)):
                alive = 1.0 - (self.done if t == horizon - 1 else dones[t + 1])
                ahead = following if t == horizon - 1 else values[t + 1]
                last = rewards[t] + 0.99 * ahead * alive - values[t] + 0.99 * 0.95 * alive * last
                advantages[t] = last
        self._update(obs, *(rows.flatten() for rows in (actions, logs, advantages, advantages + values, values)))
        return collected, process_time() - begin

    def _update(self, obs: Any, actions: Any, logs: Any, advantages: Any, returns: Any, values: Any) -> None:
        obs = obs.reshape(-1, obs.shape[-1])
        for _ in range(4):
            for rows in np.array_split(np.random.permutation(len(obs)), 4):
                logits, value = self.network(obs[rows])
                chosen = torch.distributions.Categorical(logits=logits)
                log_ratio = chosen.log_prob(actions[rows]) - logs[rows]
                ratio = log_ratio.exp()
                gain = (advantages[rows] - advantages[rows].mean()) / (advantages[rows].std() + 1e-8)
                policy = torch.max(-gain * ratio, -gain * ratio.clamp(0.8, 1.2)).mean()
                clipped = values[rows] + (value - values[rows]).clamp(-0.2, 0.2)
                loss_value = 0.5 * torch.max((value - returns[rows]) ** 2, (clipped - returns[rows]) ** 2).mean()
                loss = policy - 0.01 * chosen.entropy().mean() + 0.5 * loss_value
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.network.parameters(), 0.5)
                self.optimizer.step()
