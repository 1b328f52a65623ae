"""How a policy weighs the options: the distribution a decision was drawn from."""

from __future__ import annotations

import numpy as np

from townlet.envs.vector import VectorTown
from townlet.policy.inference import NumpyPolicy
from townlet.policy.runtime import NetworkPolicy, Policy, RandomPolicy, ScriptedPolicy
from townlet.ports import Decided
from townlet.types import Array


def probabilities(policy: Policy, vec: VectorTown, decision: Decided) -> Array:
    """π(a) of every resident over the whole catalogue, 0 where the mask forbids it.  # (E, N, A) f8

    The policy stands where it stood before `act`, the towns where it decided. Whoever draws no lots is sure of its decision.
    """
    masks = vec.masks.astype(np.float64)
    uniform = masks / masks.sum(axis=-1, keepdims=True)
    if isinstance(policy, RandomPolicy):
        return np.asarray(uniform)
    if isinstance(policy, NetworkPolicy) and isinstance(policy.network, NumpyPolicy):
        logits = np.where(masks > 0, _logits(policy, policy.network, vec), -np.inf)
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True))
    epsilon = policy.epsilon if isinstance(policy, ScriptedPolicy) else 0.0
    meant = decision.actions if decision.expert is None else decision.expert
    chosen = np.zeros_like(masks)
    np.put_along_axis(chosen, meant[..., None], 1.0 - epsilon, axis=-1)
    return np.asarray(chosen + epsilon * uniform)


def _logits(policy: NetworkPolicy, network: NumpyPolicy, vec: VectorTown) -> Array:
    rows = vec.active.size
    maps = None if vec.maps is None else vec.maps.reshape(rows, *vec.maps.shape[2:])
    state = policy.state.reshape(rows, policy.state.shape[2])
    found = network.forward(vec.features.reshape(rows, -1), maps, state=state, starts=vec.starts.ravel())[0]
    return np.asarray(found.reshape(vec.masks.shape), np.float64)
