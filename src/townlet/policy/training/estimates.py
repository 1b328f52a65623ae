"""The arithmetic of training over NumPy arrays: advantages and returns, statistics, schedules. It needs no torch.

Shapes: T decisions, B residents (towns × slots, flattened).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from townlet.policy import passes
from townlet.types import Array, Doubles, Floats


# --- advantages and returns ------------------------------------------------------------------------------------------
def team_rewards(rewards: Array, active: Array, share: float) -> Floats:
    """(1 − share) r + share · the mean of r over those of one's town who decided, all (T, E, N)."""
    there = active.astype(bool)
    total = np.where(there, rewards, 0.0).sum(axis=2, keepdims=True, dtype=np.float64)
    mean = total / np.maximum(there.sum(axis=2, keepdims=True), 1)
    return np.asarray((1.0 - share) * rewards + share * mean, np.float32)


def gae(
    rewards: Array,  # (T, B)
    values: Array,  # (T, B)
    last_values: Array,  # (B,) value of the observation after the last step
    terminated: Array,  # (T, B)
    truncated: Array,  # (T, B)
    active: Array | None = None,  # (T, B); all rows when absent
    final_values: Array | None = None,  # (T, B)
    *,
    gamma: float,
    gae_lambda: float,
) -> tuple[Floats, Floats]:
    """Generalised advantages and returns, both (T, B), zero on rows that are not active.

        δ_t = r_t + γ V(s_{t+1}) − V(s_t)        A_t = δ_t + γ λ A_{t+1}        R_t = A_t + V(s_t)

    After a death (terminated) V(s_{t+1}) and A_{t+1} are 0. After a time limit (truncated) A_{t+1} is 0 and V(s_{t+1})
    is the value of the episode's last observation, `final_values[t]`; by default that is `values[t+1]` (`last_values` for
    the last row), because with next-step resets the following row holds that observation and is not active.
    Rows that are not active are skipped as if they were not there: s_{t+1} is the next active row of the column.
    """
    steps, width = rewards.shape
    live = np.ones((steps, width), bool) if active is None else active
    if final_values is None:
        final_values = np.concatenate([values[1:], last_values[None]])
    reward, value, at_limit = (np.require(array, np.float64, ["C", "W"]) for array in (rewards, values, final_values))
    dead, cut, live = (np.require(array, np.bool_, ["C", "W"]) for array in (terminated, truncated, live))
    next_value, next_advantage, decay = last_values.astype(np.float64), np.zeros(width), gamma * gae_lambda
    advantages, returns = np.zeros((steps, width), np.float32), np.zeros((steps, width), np.float32)
    passes.advance(
        reward, value, at_limit, dead, cut, live, next_value, next_advantage, gamma, decay, advantages, returns
    )  # fmt: skip
    return advantages, returns


def discounted_returns(rewards: Array, terminated: Array, truncated: Array, bootstrap: Array, *, gamma: float) -> Floats:
    """R_t = r_t + γ R_{t+1}, (T, B); after a death R is 0, after a time limit or the last row `bootstrap[t]`, (T, B)."""
    out = np.zeros(rewards.shape)
    following = bootstrap[-1].astype(np.float64)
    for t in range(len(rewards) - 1, -1, -1):
        following = np.where(terminated[t].astype(bool), 0.0, np.where(truncated[t].astype(bool), bootstrap[t], following))
        out[t] = following = rewards[t] + gamma * following
    return out.astype(np.float32)


def returns_of_data(rewards: Array, active: Array, terminated: Array, truncated: Array, *, gamma: float) -> Floats:
    """Discounted returns of stored lives, (T, B). After a cut, the mean reward of the active rows is assumed for ever."""
    mean = float(rewards[active != 0].mean(dtype=np.float64)) if np.any(active) else 0.0
    ahead = np.full(rewards.shape, mean / max(1.0 - gamma, 1e-3))
    return discounted_returns(rewards, terminated, truncated, ahead, gamma=gamma)


def explained_variance(values: Array, returns: Array) -> float:
    """1 − Var(R − V) / Var(R); 0 when the returns do not vary."""
    spread = float(np.var(returns, dtype=np.float64)) if returns.size else 0.0
    if spread == 0.0:
        return 0.0
    return 1.0 - float(np.var(returns.astype(np.float64) - values.astype(np.float64))) / spread


def correlation(x: Array, y: Array) -> float:
    """Pearson's r; 0 when either does not vary."""
    if x.size < 2:
        return 0.0
    a, b = x.astype(np.float64) - np.mean(x, dtype=np.float64), y.astype(np.float64) - np.mean(y, dtype=np.float64)
    scale = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / scale if scale > 0.0 else 0.0


# --- schedules -------------------------------------------------------------------------------------------------------
def linear_schedule(start: float, end: float, progress: float) -> float:
    """start + (end − start) · progress, progress clamped to [0, 1]; constant when both ends are equal."""
    return start + (end - start) * min(max(progress, 0.0), 1.0)


def cosine_schedule(start: float, progress: float) -> float:
    """start · (1 + cos(π · progress)) / 2, progress clamped to [0, 1]: from start to 0, slow at both ends."""
    return start * 0.5 * (1.0 + math.cos(math.pi * min(max(progress, 0.0), 1.0)))


# --- running statistics ----------------------------------------------------------------------------------------------
@dataclass
class RunningMeanStd:
    """Mean and variance over everything seen, by the parallel update of Chan et al.:

        δ = m_b − m,  n' = n + n_b,  m' = m + δ n_b / n',  M2' = M2 + M2_b + δ² n n_b / n'

    All in float64, so that saving and loading changes no bit.
    """

    mean: Doubles = field(default_factory=lambda: np.zeros(1))
    var: Doubles = field(default_factory=lambda: np.ones(1))
    count: float = 0.0

    def update(self, rows: Array, limit: float = float("inf")) -> None:
        """Take in rows (n, width); with a limit, all that came before weighs at most as much as that many rows."""
        self.take_in(*self.sums(rows), len(rows), limit)

    def sums(self, rows: Array, chosen: NDArray[np.int64] | None = None) -> tuple[Doubles, Doubles]:
        """Σ (x − mean) and Σ (x − mean)² over rows (n, width), all or those chosen: what there is to take in."""
        first, second = np.zeros(len(self.mean)), np.zeros(len(self.mean))
        chosen = np.arange(len(rows)) if chosen is None else chosen
        passes.column_sums(np.require(rows, requirements=["C", "W"]), chosen, self.mean, first, second)
        return first, second

    def take_in(self, first: Doubles, second: Doubles, added: int, limit: float = float("inf")) -> None:
        if added == 0:
            return
        self.count = min(self.count, limit)
        total, delta = self.count + added, first / added
        var = np.maximum(second / added - delta**2, 0.0)
        squares = self.var * self.count + var * added + delta**2 * (self.count * added / total)
        self.mean = self.mean + delta * (added / total)
        self.var, self.count = squares / total, total

    def arrays(self, prefix: str) -> dict[str, Doubles]:
        return {f"{prefix}_mean": self.mean, f"{prefix}_var": self.var, f"{prefix}_count": np.array([self.count])}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], prefix: str) -> RunningMeanStd:
        mean, var, count = (arrays[f"{prefix}_{part}"] for part in ("mean", "var", "count"))
        return cls(mean.astype(np.float64), var.astype(np.float64), float(count[0]))
