"""How a policy weighs the options of a resident: the distribution its decision was drawn from."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from townlet.envs.vector import VectorTown
from townlet.policy.inference import NumpyPolicy
from townlet.policy.runtime import NetworkPolicy, Policy, RandomPolicy, ScriptedPolicy
from townlet.ports import Decided

Array = NDArray[Any]


def probabilities(policy: Policy, vec: VectorTown, decision: Decided, slot: int, town: int = 0) -> Array:
    """π(a) of every action of the catalogue, 0 where the mask forbids it.  # (A,) f8

    The policy stands where it stood before `act`, the town where it decided. Whoever draws no lots is sure of its decision.
    """
    mask = vec.masks[town, slot].astype(np.float64)
    if isinstance(policy, RandomPolicy):
        return np.asarray(mask / mask.sum())
    if isinstance(policy, NetworkPolicy) and isinstance(policy.network, NumpyPolicy):
        return _softmax(_logits(policy, policy.network, vec)[town * vec.num_residents + slot].astype(np.float64), mask)
    epsilon = policy.epsilon if isinstance(policy, ScriptedPolicy) else 0.0
    meant = decision.actions if decision.expert is None else decision.expert
    chosen = np.zeros_like(mask)
    chosen[int(meant[town, slot])] = 1.0 - epsilon
    return np.asarray(chosen + epsilon * mask / mask.sum())


def _logits(policy: NetworkPolicy, network: NumpyPolicy, vec: VectorTown) -> Array:
    rows = vec.active.size
    maps = None if vec.maps is None else vec.maps.reshape(rows, *vec.maps.shape[2:])
    state = policy.state.reshape(rows, policy.state.shape[2])
    return network.forward(vec.features.reshape(rows, -1), maps, state=state, starts=vec.starts.ravel())[0]


def _softmax(logits: Array, mask: Array) -> Array:
    weights = np.exp(logits - logits[mask > 0].max()) * mask
    return np.asarray(weights / weights.sum())
