"""What the check of the conflict encoder counts, by hand."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

from places import ROOT
from townlet.envs.vector import VectorTown
from townlet.errors import UsageError
from townlet.policy.inference import NumpyPolicy, weight_shapes
from townlet.policy.network import NetworkSpec

SCRIPT = ROOT / "benchmarks" / "learning" / "conflict_encoder.py"


@pytest.fixture(scope="module")
def check() -> Any:
    spec = importlib.util.spec_from_file_location("conflict_encoder", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def town() -> VectorTown:
    return VectorTown("town_day", 1, seed=1_000_001)


def test_a_decision_is_contested_when_what_is_wanted_is_taken_or_one_stands_in_a_queue(check: Any, town: VectorTown) -> None:
    of, actions = town.spec.offsets, town.catalogue
    features = np.zeros((6, len(of)), np.float32)
    features[0, of["cook_meal_near_queue"]] = 0.5  # somebody waits, but for something else
    features[1, of["use_shower_near_queue"]] = 0.5
    features[2, of["use_shower_calm_busy"]] = 1.0  # its neighbour is taken: the same want
    features[3, of["use_shower_near_rivalry"]] = 0.5  # a rival, but nobody is there
    features[4, of["in_queue"]] = 1.0
    features[5, of["cook_meal_near_queue"]] = 0.5
    shower = np.full(6, actions.index("use_shower:near"))
    otherwise = np.array([*shower[:5], actions.index("cook_meal:near")])  # the last would cook without the encoder
    assert check.contested(features, town.spec, shower, otherwise).tolist() == [False, True, True, False, True, True]


def test_only_contested_decisions_are_counted(check: Any) -> None:
    chosen, otherwise = np.array([1, 2, 3, 4]), np.array([1, 0, 3, 0])
    assert check.counts(chosen, otherwise, np.array([True, True, True, False])) == (3, 1)


def network(spec: NetworkSpec, seed: int = 0) -> NumpyPolicy:
    rng = np.random.default_rng(seed)
    return NumpyPolicy(spec, {name: rng.normal(size=shape).astype(np.float32) for name, shape in weight_shapes(spec).items()})


def test_a_policy_that_listens_to_its_conflict_encoder_changes_its_mind(check: Any, town: VectorTown) -> None:
    size = {"features": len(town.spec.fields), "actions": town.num_actions, "feature_size": 8, "conflict_size": 8}
    spec = NetworkSpec(**size, conflict_columns=town.spec.columns("conflict"), trunk_sizes=(8,))
    policy = network(spec)
    policy.weights["value_var"][:] = 1.0
    deaf = NumpyPolicy(spec, policy.weights | {"trunk.0.weight": policy.weights["trunk.0.weight"].copy()})
    deaf.weights["trunk.0.weight"][:, 8:] = 0.0  # nothing of the encoder reaches the trunk
    town.reset()
    listening = check.compare(policy, town)
    town.reset()
    assert check.compare(deaf, town)["changed"] == 0
    assert listening["share_changed"] == listening["changed"] / listening["contested"] > 0
    assert listening["decisions"] > listening["contested"]


def test_a_network_without_the_encoder_is_refused(check: Any) -> None:
    with pytest.raises(UsageError, match="has no conflict encoder"):
        check.without_conflict_encoder(network(NetworkSpec(features=3, actions=2, feature_size=4, trunk_sizes=(4,))))
