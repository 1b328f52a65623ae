"""A trained policy in NumPy does what the network does in torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from townlet.errors import CheckpointError, UsageError
from townlet.policy.checkpoint import Checkpoint, save_checkpoint
from townlet.policy.inference import NumpyPolicy, choose_actions, weight_shapes
from townlet.policy.network import NetworkSpec

STATES = 10_000
KINDS = [
    pytest.param({}, id="plain"),
    pytest.param({"activation": "tanh", "trunk_sizes": (48, 32)}, id="tanh"),
    pytest.param({"normalize_observations": True}, id="normalised"),
    pytest.param({"conflict_columns": ()}, id="no-conflict"),
    pytest.param({"map_encoder": "linear"}, id="linear-map"),
    pytest.param({"map_encoder": "cnn", "map_channels": (6, 8)}, id="cnn"),
    pytest.param({"recurrent": "gru"}, id="gru"),
    pytest.param({"recurrent": "lstm"}, id="lstm"),
    pytest.param({"town_size": 8, "normalize_observations": True}, id="central-critic"),
    pytest.param({"recurrent": "gru", "map_encoder": "cnn", "map_channels": (4,), "normalize_observations": True}, id="gru-cnn"),
]


def spec_of(kind: dict[str, object]) -> NetworkSpec:
    sizes: dict[str, object] = {
        "feature_size": 40,
        "conflict_size": 12,
        "map_size": 16,
        "trunk_sizes": (32,),
        "recurrent_size": 24,
    }
    base: dict[str, object] = {"features": 30, "actions": 9, "map_shape": (4, 7, 7), "conflict_columns": (2, 11, 29), **sizes}
    return NetworkSpec(**(base | kind))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_numpy_equals_torch_on_ten_thousand_states(kind: dict[str, object], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from townlet.config.learning import PPOConfig
    from townlet.policy.training.learner import PPOLearner

    spec, rng = spec_of(kind), np.random.default_rng(3)
    learner = PPOLearner(spec, PPOConfig(), seed=4)
    noisy = {
        name: array + rng.normal(0, 0.1, array.shape).astype(array.dtype) for name, array in learner.network.arrays().items()
    }
    for name in ("observation_var", "value_var"):
        noisy[name] = np.abs(noisy[name]) + 0.5
    learner.network.load_arrays(noisy)
    saved = learner.state()
    save_checkpoint(tmp_path / "c", Checkpoint(saved.weights, {"network": spec.to_json()}, saved.optimizer))
    policy = NumpyPolicy.load(tmp_path / "c")
    assert policy.spec == spec

    features = rng.normal(0, 2, (STATES, spec.features)).astype(np.float32)
    maps = (rng.random((STATES, 4, 7, 7)) < 0.2).astype(np.uint8) if spec.sees_map else None
    masks = rng.random((STATES, spec.actions)) < 0.5
    masks[:, 0] = True
    state = np.tanh(rng.normal(size=(STATES, spec.state_width))).astype(np.float32)
    starts = rng.random(STATES) < 0.2
    logits, values, carried = policy.forward(features, maps, state=state, starts=starts)
    theirs, their_values, their_carried = learner.forward(features, maps, state=state, starts=starts)
    np.testing.assert_allclose(logits, theirs, atol=1e-5, rtol=0)
    np.testing.assert_allclose(values, their_values, atol=1e-5, rtol=0)
    np.testing.assert_allclose(carried, their_carried, atol=1e-5, rtol=0)
    for draws in (None, rng.random(STATES)):
        ours = policy.act(features, maps, masks, draws=draws, state=state, starts=starts)
        other = learner.act(features, maps, masks, draws=draws, state=state, starts=starts)
        np.testing.assert_array_equal(ours.actions, other.actions)
        np.testing.assert_allclose(ours.log_probs, other.log_probs, atol=1e-5, rtol=0)
        assert masks[np.arange(STATES), ours.actions].all()
        assert len(np.unique(ours.actions)) > 3


def test_draws_reproduce_the_probabilities_and_never_take_a_masked_action() -> None:
    logits = np.log(np.array([[0.1, 0.2, 0.3, 0.4]]))
    masks = np.array([[1, 0, 1, 1]], np.uint8)
    draws = (np.arange(8000) + 0.5) / 8000
    actions, log_probs = choose_actions(np.repeat(logits, 8000, 0), np.repeat(masks, 8000, 0), draws)
    expected = np.array([0.1, 0.0, 0.3, 0.4]) / 0.8
    np.testing.assert_allclose(np.bincount(actions, minlength=4) / 8000, expected, atol=1e-3)
    np.testing.assert_allclose(np.exp(log_probs), expected[actions], atol=1e-6)


@pytest.mark.parametrize("draw", [0.0, 0.5, 1.0 - 2**-53, np.nextafter(1.0, 0.0)])
def test_the_ends_of_the_unit_interval_are_legal_draws(draw: float) -> None:
    rng = np.random.default_rng(0)
    masks = rng.random((5000, 6)) < 0.4
    masks[np.arange(5000), rng.integers(0, 6, 5000)] = True
    actions, log_probs = choose_actions(rng.normal(0, 20, (5000, 6)), masks, np.full(5000, draw))
    assert masks[np.arange(5000), actions].all()
    assert np.isfinite(log_probs).all()


def test_a_choice_depends_on_its_own_row_alone() -> None:
    rng = np.random.default_rng(1)
    logits, draws = rng.normal(size=(64, 9)), rng.random(64)
    masks = np.ones((64, 9), np.uint8)
    whole, _ = choose_actions(logits, masks, draws)
    parts = [choose_actions(logits[i : i + 1], masks[i : i + 1], draws[i : i + 1])[0][0] for i in range(64)]
    assert whole.tolist() == parts


def test_inference_imports_no_torch() -> None:
    code = "import sys, townlet.policy.inference, townlet.policy.checkpoint; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def zero_policy() -> NumpyPolicy:
    spec = spec_of({"map_encoder": "linear"})
    return NumpyPolicy(spec, {name: np.ones(shape, np.float32) for name, shape in weight_shapes(spec).items()})


def test_observations_of_another_town_are_refused_with_both_shapes() -> None:
    policy = zero_policy()
    maps = np.zeros((2, 4, 7, 7), np.uint8)
    with pytest.raises(UsageError, match=r"\(2, 31\).*\(rows, 30\)"):
        policy.forward(np.zeros((2, 31), np.float32), maps)
    with pytest.raises(UsageError, match="no map"):
        policy.forward(np.zeros((2, 30), np.float32))
    with pytest.raises(UsageError, match=r"\(2, 4, 11, 11\)"):
        policy.forward(np.zeros((2, 30), np.float32), np.zeros((2, 4, 11, 11), np.uint8))


def test_weights_that_do_not_fit_are_refused_by_name() -> None:
    policy = zero_policy()
    without = {name: array for name, array in policy.weights.items() if name != "policy.bias"}
    with pytest.raises(CheckpointError, match=r"policy\.bias"):
        NumpyPolicy(policy.spec, without)
    with pytest.raises(CheckpointError, match=r"policy\.bias.*\(3,\).*\(9,\)"):
        NumpyPolicy(policy.spec, without | {"policy.bias": np.zeros(3, np.float32)})
