"""Behaviour cloning: held-out episodes, baselines that prove nothing, early stop, exact resume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from townlet.config import SimulationConfig
from townlet.config.learning import BCConfig
from townlet.errors import InterruptedRun, ReplayError
from townlet.policy.checkpoint import load_checkpoint
from townlet.policy.network import NetworkSpec
from townlet.policy.runner import TrainingHarness
from townlet.policy.training.contexts import RunOptions

pytest.importorskip("torch")

from townlet.policy.training.demonstrations import Demonstrations, imitation, read_samples
from townlet.policy.training.strategies.bc import cloning_rate
from townlet.policy.trajectory import Trajectory

Small = Callable[..., SimulationConfig]


def test_imitation_is_counted_by_hand() -> None:
    """One life of six decisions and one that starts anew at decision 3; the first rows of lives have nothing before them."""
    experts = np.array([[1, 1], [1, 2], [2, 2], [2, 1], [1, 1], [1, 1]])  # (T, B)
    starts = np.zeros((6, 2), bool)
    starts[0] = starts[3, 1] = 1
    active = np.ones((6, 2), bool)
    batch = Trajectory(
        features=np.zeros((6, 2, 3), np.float32),
        masks=np.ones((6, 2, 4), np.uint8),
        active=active,
        starts=starts,
        actions=experts,
        expert=experts,
    )
    choices = experts.copy()
    choices[2, 0] = 1  # a change of the first column that was missed
    choices[5, 1] = 0
    scores = imitation(batch, choices, majority=1)
    assert scores.accuracy == pytest.approx(10 / 12)
    assert scores.change_accuracy == pytest.approx(2 / 3)  # changes: (2,0), (4,0), (1,1); row 3 of column 1 begins a life
    assert scores.majority == pytest.approx(8 / 12)
    assert scores.repeat == pytest.approx(1 - 3 / 9)


def test_the_split_keeps_episodes_whole() -> None:
    episodes = np.repeat(np.arange(10), 4)
    arrays: dict[str, Any] = {
        "features": np.arange(40, dtype=np.float32).reshape(1, 40, 1),
        "masks": np.ones((1, 40, 2), np.uint8),
        "active": np.ones((1, 40), bool),
        "actions": np.zeros((1, 40), np.int64),
        "expert": np.zeros((1, 40), np.int64),
    }
    shown = Demonstrations(Trajectory(**arrays), episodes, "test")
    train, held = shown.split(0.2, seed=3)
    assert held is not None
    kept = {episodes[int(column)] for column in train.features[0, :, 0]}
    out = {episodes[int(column)] for column in held.features[0, :, 0]}
    assert kept.isdisjoint(out)
    assert len(out) == 2
    assert shown.split(0.2, seed=4)[1] is not None
    assert {episodes[int(c)] for c in shown.split(0.2, seed=4)[1].features[0, :, 0]} != out  # type: ignore[union-attr]


def test_cloning_learns_the_script_and_says_what_empty_strategies_reach(small_town: Small, tmp_path: Path) -> None:
    config = small_town("training.bc.epochs=6", "training.bc.learning_rate=0.01", "training.bc.towns=6")
    result = TrainingHarness(config).run_bc_training(options=RunOptions(run_dir=tmp_path / "a"))
    assert result.accuracy > result.majority_accuracy
    assert result.held_out_episodes == 1
    assert result.episodes == 6
    assert sum(result.class_balance.values()) == pytest.approx(1.0)
    assert result.passed == (result.accuracy >= 0.95 and (result.change_accuracy or 0.0) >= 0.60)
    assert result.checkpoint is not None
    found = load_checkpoint(result.checkpoint)
    assert found.state["weights_hash"] == result.weights_hash


def test_the_kept_weights_are_those_of_the_best_epoch(small_town: Small, tmp_path: Path) -> None:
    """A learning rate that overshoots: later epochs are worse, patience ends the run, the best weights are kept."""
    config = small_town("training.bc.epochs=30", "training.bc.learning_rate=0.3", "training.bc.patience=2")
    result = TrainingHarness(config).run_bc_training(options=RunOptions(run_dir=tmp_path / "a"))
    assert result.epochs == result.best_epoch + 2
    best = load_checkpoint(tmp_path / "a" / "checkpoints" / f"{result.best_epoch:06d}")
    assert best.state["weights_hash"] == result.weights_hash


def test_a_stopped_cloning_goes_on_bit_for_bit(small_town: Small, stop_after: Any, tmp_path: Path) -> None:
    config = small_town("training.bc.epochs=5", "training.bc.learning_rate=0.02")
    whole = TrainingHarness(config).run_bc_training(options=RunOptions(run_dir=tmp_path / "whole"))
    with pytest.raises(InterruptedRun, match="after cloning epoch 2"):
        TrainingHarness(config, progress=stop_after(2)).run_bc_training(options=RunOptions(run_dir=tmp_path / "parts"))
    parts = TrainingHarness(config).run_bc_training(options=RunOptions(run_dir=tmp_path / "parts", resume=True))
    ignore = {"duration_sec", "run_dir", "checkpoint"}
    assert parts.model_dump(exclude=ignore) == whole.model_dump(exclude=ignore)
    again = TrainingHarness(config).run_bc_training(options=RunOptions(run_dir=tmp_path / "parts", resume=True))
    assert again.model_dump(exclude=ignore) == whole.model_dump(exclude=ignore)


def test_samples_are_demonstrations_too_and_need_an_expert(small_town: Small) -> None:
    harness = TrainingHarness(small_town())
    captured = harness.capture_rollout(150)
    result = harness.run("bc", RunOptions(dataset=captured.build_dataset(batch_size=3)))
    assert result.model_dump()["decisions"] + result.model_dump()["held_out_decisions"] == 8 * 15
    random = harness.services.capture.capture(60, policy="random", epsilon=0.0).build_dataset()
    with pytest.raises(ReplayError, match="has no expert_action"):
        read_samples(random, NetworkSpec(features=1, actions=17), gamma=0.99)


def test_the_step_of_cloning_falls_along_half_a_cosine_or_stays() -> None:
    falling, steady = BCConfig(learning_rate=0.4), BCConfig(learning_rate=0.4, lr_anneal=False)
    assert [cloning_rate(falling, epoch, 3) for epoch in range(3)] == pytest.approx([0.4, 0.3, 0.1])
    assert [cloning_rate(steady, epoch, 3) for epoch in range(3)] == [0.4, 0.4, 0.4]


def test_a_clone_that_normalises_has_the_statistics_of_its_demonstrations(small_town: Small, tmp_path: Path) -> None:
    config = small_town("ppo.normalize_observations=true")
    result = TrainingHarness(config).run_bc_training(options=RunOptions(run_dir=tmp_path / "a"))
    assert result.checkpoint is not None
    weights = load_checkpoint(result.checkpoint).weights
    assert weights["observation_count"].tolist() == [result.decisions]  # every demonstration once, however many passes
    assert 0.0 < weights["observation_mean"][0] < 1.0  # a need
    assert weights["observation_var"][0] < 1.0
