"""Learning from stored decisions alone: cloning, AWR, IQL and CQL as one learner.

The actor is the network of every other run: its policy head acts, its value head expects what the data's own policy got. IQL and
CQL have a second network of the same make beside it, the critic, whose policy head holds Q(s, ·) and whose value head holds V(s),
and a slow copy of it. Every algorithm stays near the data: it weighs what was done (AWR, IQL) or is pessimistic about all else
(CQL), and imitates (`behaviour`) the expert where the data noted one. Values are in the units of the returns' mean μ and
deviation σ, taken once: v = (V − μ) / σ. Advantages are in their own deviations, so that one temperature β suits every town.
CQL holds softmax(Q / β) to the data with Q in deviations of the data's advantages, and that is its policy: in coarser units the
penalty would learn by heart what chance did, and a policy in finer ones would take that for advice.

Axes: T decisions, B lives, R rows (decisions that count), F features, A actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from townlet.config.learning import OfflineConfig, PPOConfig
from townlet.errors import CheckpointError, UsageError
from townlet.policy.inference import MASKED_LOGIT
from townlet.policy.models import ConflictAwarePolicyNetwork
from townlet.policy.network import NetworkSpec
from townlet.policy.training import estimates, numerics
from townlet.policy.training.batches import (
    PPO_TERMS,
    LearnerState,
    UpdateStats,
    legal_rows,
    permutation,
    summary,
    watched_figures,
)
from townlet.policy.training.learner import PPOLearner
from townlet.policy.training.numerics import Tensors, masked_log_softmax, taken
from townlet.policy.training.sources import Lives, refuse_memory
from townlet.policy.trajectory import Trajectory
from townlet.types import Array

OFFLINE_STREAM = 5
CRITIC, TARGET = "critic.", "target."  # names of their arrays in a checkpoint begin so
CRITIC_MOMENTS = "critic_optimizer."


# --- arithmetic ------------------------------------------------------------------------------------------------------
def advantage_weights(advantages: Tensor, temperature: float, bound: float) -> Tensor:
    """w = min(exp(A / β), bound), (R,)."""
    return (advantages / temperature).exp().clamp_max(bound)


def weighted_cloning(log_probs: Tensor, weights: Tensor) -> Tensor:
    """−Σ w log π(a) / Σ w: whatever the temperature, as strong as cloning, and beside it (`behaviour`) neither drowns."""
    return -(weights * log_probs).sum() / weights.sum()


def expectile_loss(gap: Tensor, expectile: float) -> Tensor:
    """mean |τ − [gap < 0]| gap²: its minimum is the τ-expectile of the gaps."""
    return ((expectile - (gap < 0).to(gap.dtype)).abs() * gap**2).mean()


def best_allowed(q: Tensor, masks: Tensor) -> Tensor:
    """argmax over the allowed actions, (R,)."""
    return q.masked_fill(~masks, MASKED_LOGIT).argmax(-1)


def mean_allowed(q: Tensor, masks: Tensor) -> Tensor:
    """Mean over the allowed actions, (R, 1)."""
    return (q * masks).sum(-1, keepdim=True) / masks.sum(-1, keepdim=True)


def conservative_penalty(q: Tensor, actions: Tensor, masks: Tensor) -> Tensor:
    """mean(log Σ_allowed exp Q(s, a) − Q(s, a_data)): what CQL takes off actions that the data do not show."""
    return (torch.logsumexp(q.masked_fill(~masks, MASKED_LOGIT), dim=-1) - taken(q, actions)).mean()


def backup(rewards: Tensor, following: Tensor, terminated: Tensor, gamma: float, mean: float, scale: float) -> Tensor:
    """(r + γ (1 − done) (μ + σ v') − μ) / σ: the one-step target in the units of the returns, (R,)."""
    ahead = torch.where(terminated, torch.zeros_like(following), following * scale + mean)
    return (rewards + gamma * ahead - mean) / scale


def iql_losses(
    q: Tensor,  # (R, A)
    v: Tensor,  # (R,)
    target_q: Tensor,  # (R, A) of the slow copy
    next_v: Tensor,  # (R,)
    part: Tensors,
    settings: OfflineConfig,
    units: tuple[float, float, float],  # γ, μ, σ
) -> tuple[Tensor, Tensor]:
    """L_V = expectile(Q̄(s, a) − V(s)), L_Q = mean (r + γ V(s') − Q(s, a))²; the targets pass no gradient."""
    value = expectile_loss(taken(target_q, part["actions"]).detach() - v, settings.expectile)
    target = backup(part["rewards"], next_v.detach(), part["terminated"], *units)
    return value, known_mean((target - taken(q, part["actions"])) ** 2, part["known"])


def cql_loss(
    q: Tensor,  # (R, A)
    next_q: Tensor,  # (R, A)
    next_target_q: Tensor,  # (R, A) of the slow copy
    part: Tensors,
    units: tuple[float, float, float],
) -> Tensor:
    """L_Q = mean (r + γ Q̄(s', argmax_allowed Q(s', ·)) − Q(s, a))²; the conservative penalty comes on top."""
    following = taken(next_target_q, best_allowed(next_q, part["next_masks"])).detach()
    target = backup(part["rewards"], following, part["terminated"], *units)
    return known_mean((target - taken(q, part["actions"])) ** 2, part["known"])


def known_mean(x: Tensor, known: Tensor) -> Tensor:
    """Mean over rows whose next observation (or end) is known; 0 over none."""
    return numerics.masked_mean(x, known)


def distillation_loss(log_probs: Tensor, q: Tensor, masks: Tensor, temperature: float) -> Tensor:
    """−mean Σ_a p(a) log π(a), p = softmax over the allowed of Q / β."""
    wanted = masked_log_softmax(q.detach() / temperature, masks).exp()
    return -(wanted * log_probs.clamp_min(numerics.LEAST_LOG_PROB)).sum(-1).mean()


# --- the learner -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Batch:
    """What one pass draws its mini-batches from: tables over all rows (T + 1) · B, and which of them count."""

    tables: Tensors  # features, masks and maps, over (T + 1) · B
    columns: Tensors  # what was done and came of it, over R
    rows: NDArray[np.int64]  # (R,) row of a decision in the tables; the one after it is B further on
    width: int  # B

    def part(self, chosen: NDArray[np.int64]) -> Tensors:
        """A mini-batch: some of the R decisions, with what they saw and what they led to."""
        index = torch.from_numpy(chosen)
        now, after = torch.from_numpy(self.rows[chosen]), torch.from_numpy(self.rows[chosen] + self.width)
        part = {name: table[now] for name, table in self.tables.items()}
        part |= {f"next_{name}": table[after] for name, table in self.tables.items()}
        return part | {name: column[index] for name, column in self.columns.items()}


class OfflineLearner(PPOLearner):
    """`update` is one pass over all that is stored."""

    def __init__(
        self, spec: NetworkSpec, ppo: PPOConfig, algorithm: str, settings: OfflineConfig, *, seed: int = 0, threads: int = 1
    ) -> None:
        refuse_memory(spec, algorithm)
        super().__init__(spec, ppo.model_copy(update={"update": "torch"}), seed=seed, threads=threads)  # its losses are torch's
        self.algorithm, self.settings = algorithm, settings
        self.critic = self.target = None
        self.spread = 1.0  # of the data's advantages, in the units of the values
        if algorithm in ("iql", "cql"):
            self.critic = ConflictAwarePolicyNetwork(spec, seed + 1)
            self.target = ConflictAwarePolicyNetwork(spec, seed + 1)
            self.critic_optimizer = numerics.Optimizer(list(self.critic.parameters()), ppo.optimizer, ppo.adam_epsilon)

    def learn(self, lives: Lives, *, progress: float = 0.0, watched: tuple[int, ...] = ()) -> UpdateStats:
        """One pass over the decisions of all lives; `watched` are features whose mean and largest each mini-batch tells."""
        seen, settings = lives.seen, self.settings
        if seen.masks is None:
            raise UsageError("the data have no masks; without them the network would learn what nobody may do")
        legal, illegal = legal_rows(seen.active, seen.masks[: seen.steps], seen.actions)
        if not legal.any():
            raise UsageError("the data have no active row with a legal action; nothing can be learned from them")
        self._fit_units(seen, legal)
        values = self.evaluate(seen)[1]  # (T + 1, B)
        gamma = self.ppo.gamma
        rows = (seen.rewards, values[:-1], values[-1], seen.terminated, seen.truncated, seen.active)
        advantages, returns = estimates.gae(*rows, gamma=gamma, gae_lambda=self.ppo.gae_lambda)
        self.spread = float(advantages[legal].std(dtype=np.float64)) / self._value_scale()[1] or 1.0
        batch = self._batch(lives, legal, advantages, returns)
        rate = estimates.cosine_schedule(settings.learning_rate, progress) if settings.lr_anneal else settings.learning_rate
        table: list[list[float]] = []
        grads: list[float] = []
        self.minibatches = []
        order = permutation(self.seed, OFFLINE_STREAM, self.updates, 0, len(batch.rows))
        for chosen in np.array_split(order, -(-len(order) // settings.batch_size)):
            part = batch.part(chosen)
            if self.critic is not None:
                self._learn_critic(part, rate, warm=progress < settings.warm_share)
            loss, numbers = self._actor_terms(part)
            self._require_finite(numbers, "the loss")
            loss.backward()  # type: ignore[no-untyped-call]
            grads.append(self._step(1.0, rate, settings.weight_decay))
            table.append(numbers)
            row: dict[str, Any] = dict(zip((*PPO_TERMS, "loss_total"), numbers)) | {
                "transitions": len(chosen),
                "grad_norm": grads[-1],
            }
            if watched:
                row |= watched_figures(seen.features.reshape(-1, seen.features.shape[2])[batch.rows[chosen]][:, watched])
            self.minibatches.append(row)
        self.updates += 1
        return UpdateStats(
            updates=len(grads),
            minibatches=len(table),
            epochs=1,
            transitions=int(legal.sum()),
            stopped_early=False,
            explained_variance=estimates.explained_variance(values[:-1][legal], returns[legal]),
            reward_advantage_corr=estimates.correlation(seen.rewards[legal], advantages[legal]),
            mask_fill_mean=float(seen.masks[: seen.steps][legal].mean(dtype=np.float64)),
            illegal_actions=illegal,
            lr=rate,
            clip_param=settings.weight_bound,
            entropy_coef=0.0,
            bc_weight=1.0 if self.algorithm == "bc" else settings.behaviour,
            **summary(np.array(table), np.array(grads)),
        )

    # --- one mini-batch ---------------------------------------------------------------------------------------------
    def _actor_terms(self, part: Tensors) -> tuple[Tensor, list[float]]:
        """L = L_algorithm + behaviour · cross-entropy with the expert + value_coef · (V − R)², and its numbers."""
        settings = self.settings
        logits, values = self.network.outputs(part)
        log_probs = masked_log_softmax(logits, part["masks"])
        of_actions = taken(log_probs, part["actions"])
        advantages = part["advantages"]
        weights = torch.ones_like(advantages)
        imitated = numerics.cloning_loss(log_probs, part["expert"])
        policy, behaviour = imitated, numerics.cloning_loss(log_probs, part["expert"], part["noted"])
        if self.algorithm == "cql":
            q = self._outputs_of(self.critic, part)[0] / self.spread
            policy = distillation_loss(log_probs, q, part["masks"], settings.temperature)
            advantages = taken(q - mean_allowed(q, part["masks"]), part["actions"])
        elif self.algorithm != "bc":
            if self.algorithm == "iql":
                v = self._outputs_of(self.critic, part)[1]
                advantages = numerics.normalized(taken(self._outputs_of(self.target, part)[0], part["actions"]) - v)
            weights = advantage_weights(advantages, settings.temperature, settings.weight_bound)
            policy = weighted_cloning(of_actions, weights)
        value = numerics.value_loss(values, part["returns"])
        loss = policy + settings.value_coef * value
        if self.algorithm != "bc":
            loss = loss + settings.behaviour * behaviour
        with torch.no_grad():
            log_ratio = of_actions - part["log_probs"]
            hits = (log_probs.argmax(-1) == part["expert"]).float().mean()
            cut = (weights >= settings.weight_bound).float().mean()
            adv_mean, adv_std = numerics.masked_moments(advantages, None)
            stats = torch.stack(
                [
                    policy, value, numerics.entropy(log_probs).mean(), cut, numerics.kl_k1(log_ratio), numerics.kl_k3(log_ratio),
                    adv_mean, adv_std, loss, imitated, hits,
                ]
            )  # fmt: skip
        return loss, stats.tolist()

    def _learn_critic(self, part: Tensors, rate: float, *, warm: bool) -> None:
        """One step of Q (and V), then the slow copy moves by `target_rate` towards them. While it is `warm`, Q learns what came
        of the data's own decisions: backups of one step would need a thousand steps to tell it of the evening."""
        assert self.critic is not None
        assert self.target is not None
        units = (self.ppo.gamma, *self._value_scale())
        after = {name.removeprefix("next_"): tensor for name, tensor in part.items() if name.startswith("next_")}
        q, v = self.critic.outputs(part)
        with torch.no_grad():
            next_q, next_v = self.critic.outputs(after)
            if self.algorithm == "cql":
                next_target_q = self.target.outputs(after)[0]
            else:
                target_q = self.target.outputs(part)[0]
        told = ((part["returns"] - taken(q, part["actions"])) ** 2).mean()
        if self.algorithm == "cql":
            error = told if warm else cql_loss(q, next_q, next_target_q, part, units)
            soft = self.settings.temperature * self.spread  # as in the policy, softmax(Q / soft)
            penalty = conservative_penalty(q / soft, part["actions"], part["masks"])
            loss = 0.5 * error / soft**2 + self.settings.conservatism * penalty
        else:
            value, error = iql_losses(q, v, target_q, next_v, part, self.settings, units)
            loss = value + (told if warm else error)
        self._require_finite([float(loss.detach())], "the critic's loss")
        loss.backward()  # type: ignore[no-untyped-call]
        norm = self.critic_optimizer.step(rate, self.ppo.max_grad_norm, self.settings.weight_decay)
        self._require_finite([norm], "the critic's gradient")
        with torch.no_grad():
            for slow, now in zip(self.target.parameters(), self.critic.parameters()):
                slow.lerp_(now, self.settings.target_rate)

    @torch.no_grad()
    def _outputs_of(self, network: ConflictAwarePolicyNetwork | None, part: Tensors) -> tuple[Tensor, Tensor]:
        assert network is not None
        return network.outputs(part)

    # --- data -------------------------------------------------------------------------------------------------------
    def _fit_units(self, seen: Trajectory, legal: NDArray[np.bool_]) -> None:
        """Observations and returns get their units from the data, once; a network that has its own keeps them."""
        steps = seen.steps
        if self.spec.normalize_observations and float(self.network.observation_count[0]) == 0.0:
            self.track_observations(seen.features[:steps][legal])
        if float(self.network.value_count[0]) == 0.0:
            returns = estimates.returns_of_data(seen.rewards, legal, seen.terminated, seen.truncated, gamma=self.ppo.gamma)
            self.track_returns(returns[legal])
        for network in (self.critic, self.target):
            if network is not None:
                for name, buffer in self.network.named_buffers():
                    network.get_buffer(name).copy_(buffer)

    def _batch(self, lives: Lives, legal: NDArray[np.bool_], advantages: Array, returns: Array) -> Batch:
        seen, width = lives.seen, legal.shape[1]
        tables = self.passes.data(seen, None, {})
        assert seen.expert is not None
        columns = {
            "actions": seen.actions[legal],
            "log_probs": seen.log_probs[legal],
            "rewards": seen.rewards[legal],
            "terminated": seen.terminated[legal].astype(bool),
            "known": lives.known[legal],
            "noted": (seen.expert >= 0)[legal],
            "expert": np.where(seen.expert >= 0, seen.expert, seen.actions)[legal],
            "returns": self._normalised(returns)[legal],
        }
        tensors = {name: torch.from_numpy(array) for name, array in columns.items()}
        tensors["advantages"] = numerics.normalized(torch.from_numpy(advantages[legal]))
        return Batch(tables, tensors, np.flatnonzero(legal), width)

    # --- saving -----------------------------------------------------------------------------------------------------
    def state(self) -> LearnerState:
        weights, moments, meta = super().state()
        if self.critic is not None and self.target is not None:
            for prefix, network in ((CRITIC, self.critic), (TARGET, self.target)):
                moments |= {f"{prefix}{name}": array for name, array in network.arrays().items()}
            kept = self.critic_optimizer.moments()
            moments |= {f"{CRITIC_MOMENTS}{name}": tensor.numpy().copy() for name, tensor in kept.items()}
            meta |= {"critic_steps": self.critic_optimizer.steps}
        return LearnerState(weights, moments, meta)

    def load_state(self, state: LearnerState) -> None:
        """Weights, optimiser and critic; a run that starts from a checkpoint without a critic begins with a new one."""
        super().load_state(state)
        if self.critic is None or self.target is None or "critic_steps" not in state.meta:
            return
        for prefix, network in ((CRITIC, self.critic), (TARGET, self.target)):
            network.load_arrays(_below(prefix, state.optimizer))
        kept = self.critic_optimizer.moments()
        found = _below(CRITIC_MOMENTS, state.optimizer)
        if {name: array.shape for name, array in found.items()} != {name: tuple(tensor.shape) for name, tensor in kept.items()}:
            raise CheckpointError("the critic's optimiser state does not fit this critic; use the run's own checkpoint")
        for name, tensor in kept.items():
            tensor.copy_(torch.from_numpy(np.array(found[name])))
        self.critic_optimizer.steps = int(state.meta["critic_steps"])


def _below(prefix: str, arrays: dict[str, Array]) -> dict[str, Array]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
