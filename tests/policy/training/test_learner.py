"""The update: what it learns from, what it leaves out, when it stops, and that it goes on bit for bit."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from townlet.config.learning import PPOConfig  # noqa: E402
from townlet.errors import CheckpointError, DivergedError, UsageError  # noqa: E402
from townlet.policy.checkpoint import Checkpoint, load_checkpoint, save_checkpoint, weights_hash  # noqa: E402
from townlet.policy.network import NetworkSpec  # noqa: E402
from townlet.policy.training import estimates  # noqa: E402
from townlet.policy.training.batches import (  # noqa: E402
    LearnerState,
    permutation,
)
from townlet.policy.training.bfloat16 import bfloat16_fault  # noqa: E402, F401 (a condition below)
from townlet.policy.training.learner import PPOLearner  # noqa: E402
from townlet.policy.trajectory import Trajectory  # noqa: E402

STEPS, WIDTH, FEATURES, ACTIONS = 12, 10, 8, 4
CELLS = ["none", "gru", "lstm"]


def learner_of(cell: str = "none", *, seed: int = 0, spec: dict[str, Any] | None = None, **ppo: Any) -> PPOLearner:
    sizes: dict[str, Any] = {"feature_size": 16, "conflict_size": 4, "trunk_sizes": (16,), "recurrent_size": 12}
    made = NetworkSpec(FEATURES, ACTIONS, conflict_columns=(2, 5), recurrent=cell, **(sizes | (spec or {})))
    return PPOLearner(made, PPOConfig(recurrent=cell, **ppo), seed=seed)


def batch_of(learner: PPOLearner, seed: int = 0, active_share: float = 0.8) -> Trajectory:
    """Random observations, the learner's own decisions; lives begin and residents are absent at random."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(STEPS, WIDTH, FEATURES)).astype(np.float32)
    masks = rng.random((STEPS, WIDTH, ACTIONS)) < 0.6
    masks[..., 0] = 1
    starts = rng.random((STEPS, WIDTH)) < 0.15
    state = first = np.tanh(rng.normal(size=(WIDTH, learner.spec.state_width))).astype(np.float32)
    rows = []
    for t in range(STEPS):
        draws = np.random.default_rng((seed, t)).random(WIDTH)
        rows.append(learner.act(features[t], None, masks[t], draws=draws, state=state, starts=starts[t]))
        state = rows[-1].state
    actions, log_probs, values = (np.stack(column) for column in list(zip(*rows, strict=True))[:3])
    rewards = (features[..., 0] * (actions == 0) + rng.normal(0, 0.1, (STEPS, WIDTH))).astype(np.float32)
    active = rng.random((STEPS, WIDTH)) < active_share
    ends = np.concatenate([starts[1:], np.zeros((1, WIDTH), bool)])
    never = np.zeros_like(ends)
    advantages, returns = estimates.gae(rewards, values, values[-1], ends, never, active, gamma=0.9, gae_lambda=0.9)
    return Trajectory(
        features=features,
        masks=masks,
        active=active,
        starts=starts,
        state=first,
        actions=actions,
        log_probs=log_probs,
        values=values,
        rewards=rewards,
        advantages=advantages,
        returns=returns,
    )


def cloning_of(batch: Trajectory, expert: Any = None) -> Trajectory:
    """Demonstrations over the same observations; by default the expert takes its last allowed action."""
    last_allowed = ACTIONS - 1 - batch.masks[..., ::-1].argmax(-1)
    return dataclasses.replace(batch, expert=last_allowed if expert is None else expert)


def same_weights(one: PPOLearner, other: PPOLearner) -> bool:
    return weights_hash(one.state().weights) == weights_hash(other.state().weights)


# --- the update ------------------------------------------------------------------------------------------------------
def test_one_step_equals_a_step_made_by_hand() -> None:
    """One pass, one mini-batch, plain gradient descent: w − lr · clipped gradient of the loss written out."""
    settings: dict[str, Any] = {"num_epochs": 1, "num_mini_batches": 1, "optimizer": "sgd", "normalize_values": False}
    learner = learner_of(**settings, learning_rate=0.1, value_clip=None, entropy_coef=0.03)
    batch = batch_of(learner)
    twin = learner_of(**settings).network
    rows = batch.active.astype(bool)
    x, masks = torch.from_numpy(batch.features[rows]), torch.from_numpy(batch.masks[rows]).bool()
    plain = [column for column in range(FEATURES) if column not in (2, 5)]
    hidden = torch.cat([torch.relu(twin.feature(x[:, plain])), torch.relu(twin.conflict(x[:, [2, 5]]))], 1)
    hidden = torch.relu(twin.trunk[0](hidden))
    dist = torch.distributions.Categorical(logits=twin.policy(hidden).masked_fill(~masks, -1e8))
    adv = torch.from_numpy(batch.advantages[rows])
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    ratio = (dist.log_prob(torch.from_numpy(batch.actions[rows])) - torch.from_numpy(batch.log_probs[rows])).exp()
    policy = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
    value = ((twin.value(hidden)[:, 0] - torch.from_numpy(batch.returns[rows])) ** 2).mean()
    loss = policy + 0.5 * value - 0.03 * dist.entropy().mean()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(twin.parameters(), 0.5)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter -= 0.1 * parameter.grad

    stats = learner.update(batch)
    for name, array in learner.network.arrays().items():
        np.testing.assert_allclose(array, twin.arrays()[name], atol=1e-5, err_msg=name)
    expected = {
        "loss_total": loss,
        "loss_policy": policy,
        "loss_value": value,
        "loss_entropy": dist.entropy().mean(),
        "grad_norm": norm,
    }
    for name, tensor in expected.items():
        assert vars(stats)[name] == pytest.approx(float(tensor.detach()), abs=1e-5), name
    assert (stats.updates, stats.transitions, stats.illegal_actions) == (1, int(rows.sum()), 0)


@pytest.mark.parametrize("cell", CELLS)
def test_what_stands_in_rows_that_are_not_active_changes_nothing(cell: str) -> None:
    one, other = learner_of(cell), learner_of(cell)
    batch = batch_of(one)
    absent = batch.active == 0
    rng = np.random.default_rng(9)
    changed = {}
    for name in ("log_probs", "values", "rewards", "advantages", "returns"):
        changed[name] = np.where(absent, rng.normal(size=absent.shape).astype(np.float32) * 50, vars(batch)[name])
    if cell == "none":  # with memory, what was seen while absent does pass through the cell until the next start
        changed["features"] = np.where(absent[..., None], np.float32(77), batch.features)
    assert dataclasses.asdict(one.update(batch)) == dataclasses.asdict(other.update(dataclasses.replace(batch, **changed)))
    assert same_weights(one, other)


@pytest.mark.parametrize("cell", CELLS)
def test_the_first_pass_begins_where_the_policy_acted(cell: str) -> None:
    learner = learner_of(cell, num_epochs=1, num_mini_batches=1)
    stats = learner.update(batch_of(learner))
    assert abs(stats.kl_divergence) < 1e-6
    assert stats.clip_fraction == 0.0


def test_accumulated_gradients_are_those_of_one_large_mini_batch() -> None:
    settings: dict[str, Any] = {"optimizer": "sgd", "num_epochs": 1, "advantage_normalization": False, "learning_rate": 0.05}
    whole, parts = learner_of(num_mini_batches=1, **settings), learner_of(num_mini_batches=4, grad_accumulation=4, **settings)
    batch = batch_of(whole)
    assert (whole.update(batch).updates, parts.update(batch).updates) == (1, 1)
    for name, array in whole.network.arrays().items():
        np.testing.assert_allclose(array, parts.network.arrays()[name], atol=1e-6, err_msg=name)


def test_accumulation_that_does_not_divide_the_mini_batches_steps_at_the_end_of_the_pass() -> None:
    learner = learner_of(num_mini_batches=5, grad_accumulation=2, num_epochs=3)
    stats = learner.update(batch_of(learner))
    assert (stats.minibatches, stats.updates, learner.gradient_steps) == (15, 9, 9)


def test_passes_stop_before_the_step_when_the_divergence_passes_its_bound() -> None:
    learner = learner_of(learning_rate=0.05, num_epochs=50, target_kl=0.02, num_mini_batches=1)
    batch = batch_of(learner)
    stats = learner.update(batch)
    assert stats.stopped_early
    assert stats.epochs < 50
    assert stats.kl_k3_max > 0.02
    assert stats.updates == stats.minibatches - 1
    free = learner_of(learning_rate=0.05, num_epochs=stats.updates, num_mini_batches=1)
    assert not free.update(batch).stopped_early
    assert same_weights(learner, free)


def test_mini_batch_size_wins_and_sizes_are_even() -> None:
    learner = learner_of(mini_batch_size=30, num_epochs=1, num_mini_batches=1)
    batch = batch_of(learner)
    assert learner.update(batch).minibatches == -(-batch.rows // 30)


def test_sequences_are_split_over_residents_not_over_time() -> None:
    learner = learner_of("gru", mini_batch_size=3 * STEPS, num_epochs=1)
    assert learner.update(batch_of(learner)).minibatches == -(-WIDTH // 3)
    learner = learner_of("gru", mini_batch_size=1, num_epochs=1)
    assert learner.update(batch_of(learner)).minibatches == WIDTH


def test_illegal_actions_are_counted_and_left_out() -> None:
    one, other = learner_of(), learner_of()
    batch = batch_of(one)
    t, b = np.argwhere((batch.active == 1) & (batch.masks.sum(-1) < ACTIONS))[0]
    actions = batch.actions.copy()
    actions[t, b] = np.flatnonzero(batch.masks[t, b] == 0)[0]
    active = batch.active.copy()
    active[t, b] = 0
    stats = one.update(dataclasses.replace(batch, actions=actions))
    assert (stats.illegal_actions, stats.transitions) == (1, batch.rows - 1)
    other.update(dataclasses.replace(batch, active=active))
    assert same_weights(one, other)


@pytest.mark.parametrize("poison", ["returns", "advantages", "log_probs", "features"])
@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize("normalise", [False, True])
def test_a_number_that_is_none_stops_with_the_last_good_weights(poison: str, number: float, normalise: bool) -> None:
    learner = learner_of(normalize_values=normalise, spec={"normalize_observations": normalise})
    if normalise:
        learner.track_returns(np.arange(9, dtype=np.float32))
    batch = batch_of(learner)
    before = {name: array for name, array in learner.state().weights.items() if not name.startswith("value")}
    damaged = vars(batch)[poison].copy()
    damaged[:] = number
    with pytest.raises(DivergedError, match="update 0 is not a finite number"):
        learner.update(dataclasses.replace(batch, **{poison: damaged}))
    after = learner.state().weights
    assert all(np.array_equal(after[name], before[name]) for name in before)
    assert all(np.isfinite(array).all() for array in after.values())
    assert np.isfinite(learner.update(batch).loss_total)


def test_schedules_move_with_progress() -> None:
    learner = learner_of(lr_anneal=True, clip_anneal=True, entropy_coef=0.02, entropy_final=0.0)
    stats = learner.update(batch_of(learner), progress=0.75)
    assert (stats.lr, stats.clip_param, stats.entropy_coef) == pytest.approx((0.75e-4, 0.05, 0.005))
    fixed = learner_of()
    stats = fixed.update(batch_of(fixed), progress=0.75)
    assert (stats.lr, stats.clip_param, stats.entropy_coef) == pytest.approx((3e-4, 0.2, 0.01))


@pytest.mark.parametrize("cell", CELLS)
def test_updates_raise_the_reward(cell: str) -> None:
    """Reward is the first feature when action 0 is taken: after some updates the learner takes it when that is positive."""
    learner = learner_of(cell, learning_rate=1e-2, num_epochs=4, num_mini_batches=2)
    rewards = [float(batch_of(learner, seed).rewards.mean()) for seed in (100, 101)]
    for seed in range(15):
        learner.update(batch_of(learner, seed))
    after = [float(batch_of(learner, seed).rewards.mean()) for seed in (100, 101)]
    assert np.mean(after) > np.mean(rewards) + 0.1


def test_statistics_describe_the_batch() -> None:
    learner = learner_of(num_mini_batches=1)
    batch = batch_of(learner)
    stats, rows = learner.update(batch), batch.active.astype(bool)
    assert stats.reward_advantage_corr == pytest.approx(np.corrcoef(batch.rewards[rows], batch.advantages[rows])[0, 1], abs=1e-6)
    assert stats.mask_fill_mean == pytest.approx(batch.masks[rows].mean())
    assert stats.adv_mean == pytest.approx(batch.advantages[rows].mean(), abs=1e-5)
    assert stats.adv_std == pytest.approx(batch.advantages[rows].std(ddof=1), abs=1e-5)
    assert stats.kl_k3_max >= stats.kl_k3 >= 0.0
    assert stats.batch_entropy_mean == stats.loss_entropy
    json.dumps(dataclasses.asdict(stats), allow_nan=False)


def test_equal_advantages_are_counted_and_do_no_harm() -> None:
    learner = learner_of(num_epochs=2, num_mini_batches=3)
    batch = batch_of(learner)
    stats = learner.update(dataclasses.replace(batch, advantages=np.ones_like(batch.advantages)))
    assert (stats.adv_zero_std_batches, stats.adv_min_std) == (6, 0.0)


@pytest.mark.skipif("bfloat16_fault() is not None", reason="this machine cannot compute in bfloat16")
def test_bfloat16_is_near_full_precision() -> None:
    exact, short = learner_of(num_epochs=1, num_mini_batches=1), learner_of(num_epochs=1, num_mini_batches=1, bf16=True)
    batch = batch_of(exact)
    one, other = exact.update(batch), short.update(batch)
    assert other.loss_value == pytest.approx(one.loss_value, rel=0.05)
    assert 0 < abs(other.kl_divergence) < 0.01
    assert all(array.dtype != np.float16 for array in short.network.arrays().values())


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("cell", ["none", "gru"])
def test_a_compiled_update_does_the_same(cell: str) -> None:
    plain, compiled = learner_of(cell), learner_of(cell, compile=True)
    for seed in range(3):
        batch = batch_of(plain, seed)
        one, other = plain.update(batch, progress=seed / 3), compiled.update(batch, progress=seed / 3)
        assert other.loss_total == pytest.approx(one.loss_total, abs=1e-4)
    for name, array in plain.network.arrays().items():
        np.testing.assert_allclose(array, compiled.network.arrays()[name], atol=2e-3, err_msg=name)


@pytest.mark.parametrize("cell", ["none", "gru"])
def test_a_central_critic_values_the_town_and_leaves_the_policy_to_the_resident(cell: str) -> None:
    """The return is the mean of a feature over the five of a town: only a critic that sees them all can know it."""
    rng, errors = np.random.default_rng(0), {}
    for town_size in (0, 5):
        learner = learner_of(cell, spec={"town_size": town_size}, learning_rate=3e-3, value_clip=None, num_epochs=2)
        for seed in range(16):
            batch = batch_of(learner, seed)
            mean = batch.features[..., 1].reshape(STEPS, WIDTH // 5, 5).mean(-1, keepdims=True)
            returns = np.broadcast_to(mean, (STEPS, WIDTH // 5, 5)).reshape(STEPS, WIDTH) * 5
            batch = dataclasses.replace(batch, returns=returns.astype(np.float32))
            error = float(np.abs(learner.evaluate(batch)[1] - returns).mean())
            learner.update(batch)
        errors[town_size] = error
    assert errors[5] < 0.8 * errors[0]
    features = rng.normal(size=(10, FEATURES)).astype(np.float32)
    others = features.copy()
    others[1:] += 1.0
    state = learner.initial_state(10)
    logits, values, _ = learner.forward(features, state=state)
    changed_logits, changed_values, _ = learner.forward(others, state=state)
    np.testing.assert_allclose(logits[0], changed_logits[0], atol=1e-6)
    assert abs(values[0] - changed_values[0]) > 1e-3


# --- normalisation ---------------------------------------------------------------------------------------------------
def test_tracking_returns_changes_no_prediction_once_there_are_units() -> None:
    learner, rng = learner_of(), np.random.default_rng(1)
    features = rng.normal(size=(50, FEATURES)).astype(np.float32)
    learner.track_returns(rng.normal(-30, 12, 500).astype(np.float32))
    before = learner.forward(features)[1]
    assert before.mean() == pytest.approx(-30, abs=12)
    learner.track_returns(rng.normal(50, 3, 2000).astype(np.float32))
    assert float(learner.network.value_mean[0]) == pytest.approx(34, abs=2)
    np.testing.assert_allclose(learner.forward(features)[1], before, atol=1e-3)


def test_normalised_values_learn_large_returns_that_plain_ones_do_not() -> None:
    errors = {}
    for normalise in (True, False):
        learner = learner_of(normalize_values=normalise, learning_rate=1e-3, value_clip=None)
        batch = batch_of(learner)
        far = dataclasses.replace(batch, returns=(-300 + 40 * batch.features[..., 1]).astype(np.float32))
        for _ in range(20):
            learner.update(far)
        errors[normalise] = float(np.abs(learner.evaluate(far)[1] - far.returns).mean())
    assert errors[True] < 0.25 * errors[False]


def test_observations_are_tracked_after_the_update_so_that_acting_and_learning_see_the_same() -> None:
    learner = learner_of(spec={"normalize_observations": True}, num_epochs=1, num_mini_batches=1)
    for seed in range(3):
        batch = batch_of(learner, seed)
        stats = learner.update(batch)
        assert abs(stats.kl_divergence) < 1e-6
    assert float(learner.network.observation_count[0]) > 200


# --- behaviour cloning -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("cell", CELLS)
def test_cloning_learns_the_experts_choices_on_unseen_data(cell: str) -> None:
    learner = learner_of(cell)
    held_out = cloning_of(batch_of(learner, 99))
    first, _ = learner.assess_cloning(held_out)
    for seed in range(30):
        stats = learner.clone(cloning_of(batch_of(learner, seed)), learning_rate=1e-2, batch_size=64)
    after, choices = learner.assess_cloning(held_out)
    assert first.accuracy < 0.75
    assert after.accuracy > 0.9
    assert after.loss < first.loss
    assert stats.updates == 2
    assert (choices == held_out.expert)[held_out.active.astype(bool)].mean() == pytest.approx(after.accuracy)


def test_cloning_numbers_are_those_of_the_assessment() -> None:
    learner = learner_of()
    batch = cloning_of(batch_of(learner))
    learner.track_returns(np.asarray(batch.returns)[batch.active.astype(bool)])
    expected, _ = learner.assess_cloning(batch)
    stats = learner.clone(batch, learning_rate=1e-9, batch_size=10_000)
    assert (stats.loss, stats.accuracy) == pytest.approx((expected.loss, expected.accuracy), abs=1e-5)
    assert stats.loss_value == pytest.approx(expected.loss_value, rel=1e-3)


@pytest.mark.parametrize("cell", CELLS)
def test_the_auxiliary_loss_pulls_towards_the_expert(cell: str) -> None:
    settings: dict[str, Any] = {"learning_rate": 1e-2, "num_mini_batches": 2}
    with_help, without = learner_of(cell, **settings), learner_of(cell, **settings)
    for seed in range(4):
        batch = batch_of(with_help, seed)
        stats = with_help.update(batch, bc_batch=cloning_of(batch), bc_weight=1.0)
        without.update(batch_of(without, seed))
    held_out = cloning_of(batch_of(with_help, 99))
    assert stats.bc_loss > 0
    assert with_help.assess_cloning(held_out)[0].loss < without.assess_cloning(held_out)[0].loss - 0.1


def test_a_weight_of_zero_or_no_expert_rows_is_no_auxiliary_loss() -> None:
    plain, zero, empty = learner_of(), learner_of(), learner_of()
    batch = batch_of(plain)
    nobody = dataclasses.replace(cloning_of(batch), active=np.zeros_like(batch.active))
    plain.update(batch)
    zero.update(batch, bc_batch=cloning_of(batch), bc_weight=0.0)
    assert empty.update(batch, bc_batch=nobody, bc_weight=1.0).bc_loss == 0.0
    assert same_weights(plain, zero)
    assert same_weights(plain, empty)


# --- going on bit for bit --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("cell", ["none", "gru"])
def test_a_run_resumed_from_a_checkpoint_equals_the_uninterrupted_one(cell: str, optimizer: str, tmp_path: Path) -> None:
    kind: dict[str, Any] = {"optimizer": optimizer, "spec": {"normalize_observations": True}}
    through = learner_of(cell, seed=3, **kind)

    def go(learner: PPOLearner, update: int) -> None:
        batch = batch_of(learner, update)
        learner.update(batch, progress=update / 6, bc_batch=cloning_of(batch), bc_weight=0.3)
        learner.clone(cloning_of(batch), learning_rate=1e-3, batch_size=40)

    for update in range(3):
        go(through, update)
    saved = through.state()
    state = {"network": through.spec.to_json(), "learner": saved.meta}
    save_checkpoint(tmp_path / "c", Checkpoint(saved.weights, state, saved.optimizer))
    for update in range(3, 6):
        go(through, update)
    loaded = load_checkpoint(tmp_path / "c")
    resumed = learner_of(cell, seed=77, **kind)
    resumed.load_state(LearnerState(loaded.weights, loaded.optimizer, loaded.state["learner"]))
    for update in range(3, 6):
        go(resumed, update)
    end, other = through.state(), resumed.state()
    assert weights_hash(end.weights) == weights_hash(other.weights)
    assert weights_hash(end.optimizer) == weights_hash(other.optimizer)
    assert end.meta == other.meta


def test_weights_alone_can_be_taken_over() -> None:
    trained, fresh = learner_of(), learner_of(seed=5)
    trained.update(batch_of(trained))
    fresh.network.load_arrays(trained.state().weights)
    assert same_weights(trained, fresh)
    assert fresh.updates == 0


def test_the_state_of_another_optimiser_or_network_is_refused() -> None:
    state = learner_of().state()
    learner = learner_of()
    learner.update(batch_of(learner))
    with pytest.raises(CheckpointError, match=r"ppo\.optimizer"):
        learner_of(optimizer="sgd").load_state(learner.state())
    strange = {"first": np.zeros(1, np.float32), "second": np.zeros(1, np.float32)}
    with pytest.raises(CheckpointError, match=r"\(1,\).*use its own checkpoint"):
        learner.load_state(state._replace(optimizer=strange))


def test_permutations_depend_on_their_key_alone() -> None:
    assert permutation(1, 2, 3, 4, 50).tolist() == permutation(1, 2, 3, 4, 50).tolist()
    keys = [(1, 2, 3, 4), (2, 2, 3, 4), (1, 3, 3, 4), (1, 2, 4, 4), (1, 2, 3, 5)]
    assert len({tuple(permutation(*key, 50).tolist()) for key in keys}) == 5
    assert sorted(permutation(1, 2, 3, 4, 50)) == list(range(50))


def test_decisions_do_not_depend_on_who_else_is_in_the_batch() -> None:
    learner, rng = learner_of(), np.random.default_rng(0)
    features, draws = rng.normal(size=(300, FEATURES)).astype(np.float32), rng.random(300)
    masks = np.ones((300, ACTIONS), np.uint8)
    whole = learner.act(features, None, masks, draws=draws).actions
    parts = [learner.act(features[i : i + 7], None, masks[i : i + 7], draws=draws[i : i + 7]).actions for i in range(0, 300, 7)]
    assert whole.tolist() == np.concatenate(parts).tolist()


# --- errors ----------------------------------------------------------------------------------------------------------
def test_data_of_another_town_is_refused_in_a_sentence() -> None:
    learner = learner_of()
    batch = batch_of(learner)
    with pytest.raises(UsageError, match=r"trained on \(rows, 8\)"):
        learner.update(dataclasses.replace(batch, features=batch.features[..., :5]))
    with pytest.raises(UsageError, match="masks have 9 actions"):
        learner.update(dataclasses.replace(batch, masks=np.ones((STEPS, WIDTH, 9), np.uint8)))
    with pytest.raises(UsageError, match=r"rewards has shape \(3, 10\)"):
        learner.update(dataclasses.replace(batch, rewards=batch.rewards[:3]))
    with pytest.raises(UsageError, match="no active row"):
        learner.update(dataclasses.replace(batch, active=np.zeros_like(batch.active)))
    with pytest.raises(UsageError, match="no active row"):
        learner.clone(
            cloning_of(dataclasses.replace(batch, active=np.zeros_like(batch.active))), learning_rate=1e-3, batch_size=8
        )
