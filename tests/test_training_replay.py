"""Training on stored data: the captures of all founding scenarios, telemetry of conflict, streaming, normalisation."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from townlet.bench.samples import generated_sample, generated_source
from townlet.config import SimulationConfig, load_config
from townlet.config.learning import PPOConfig
from townlet.errors import ReplayError
from townlet.policy.capture import CaptureOptions, capture
from townlet.policy.network import NetworkSpec
from townlet.policy.replay import ReplayDataset, ReplayDatasetConfig
from townlet.policy.runner import TrainingHarness
from townlet.policy.training.contexts import RunOptions
from townlet.policy.trajectory import Trajectory
from townlet.telemetry.ndjson import read_records
from townlet.telemetry.schema import FIELDS
from townlet.telemetry.validate import validate_log

SCENARIOS = ("kitchen_breakfast", "queue_conflict", "employment_punctuality", "rivalry_decay", "observation_baseline")
SMALL = ("policy.network.map_encoder=none", "policy.network.feature_size=32", "training.eval_every=0")


def captured(name: str, folder: Path, ticks: int = 300, *overrides: str) -> tuple[SimulationConfig, Path]:
    config = load_config(name, (*SMALL, *overrides))
    capture([config], folder / name, CaptureOptions(ticks=ticks, epsilon=0.05))
    return config, folder / name


def epochs_of(log: Path) -> list[dict[str, Any]]:
    return [record for record in read_records(log) if record.get("kind", "epoch") == "epoch"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_training_harness_run_ppo_on_capture(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    config, folder = captured(name, tmp_path)
    log = tmp_path / "ppo.jsonl"
    data = ReplayDatasetConfig.from_capture_dir(folder, batch_size=2, shuffle=True, seed=3)
    result = TrainingHarness(config).run_ppo(data, RunOptions(epochs=2, log_path=log))
    assert result.data_mode == "replay"
    assert validate_log([log]).problems == []
    for record in epochs_of(log):
        numbers = [value for value in record.values() if isinstance(value, float)]
        assert all(math.isfinite(number) for number in numbers)
        missing = [item.name for item in FIELDS if item.required and item.name not in record]
        assert missing == []
        assert record["baseline_sample_count"] == len(list(folder.glob("*.npz")))
    if name == "queue_conflict":
        assert epochs_of(log)[0]["queue_conflict_events"] > 0
    if name == "observation_baseline":
        assert epochs_of(log)[0]["queue_conflict_events"] == 0


def test_training_harness_ppo_conflict_telemetry(tmp_path: Path) -> None:
    """The conflict fields of a replay record are those of the data, computed here a second time from the files."""
    pytest.importorskip("torch")
    config, folder = captured("queue_conflict", tmp_path)
    log = tmp_path / "ppo.jsonl"
    data = ReplayDatasetConfig.from_capture_dir(folder, batch_size=1)
    TrainingHarness(config).run_ppo(data, RunOptions(epochs=1, log_path=log))
    (record,) = epochs_of(log)
    columns, metrics = [], json.loads((folder / "rollout_sample_metrics.json").read_text())
    for path in sorted(folder.glob("*.npz")):
        names = json.loads(path.with_suffix(".json").read_text())["feature_names"]
        with np.load(path) as arrays:
            columns.append([arrays["features"][:, names.index(n)] for n in ("rivalry_max", "rivalry_avoid_count")])
    rivalry = [column[0] for column in columns]
    avoid = [column[1] for column in columns]
    assert record["conflict.rivalry_max_mean_avg"] == pytest.approx(np.mean([x.mean() for x in rivalry]), abs=1e-6)
    assert record["conflict.rivalry_max_max_avg"] == pytest.approx(np.mean([x.max() for x in rivalry]), abs=1e-6)
    assert record["conflict.rivalry_avoid_count_mean_avg"] == pytest.approx(np.mean([x.mean() for x in avoid]), abs=1e-6)
    assert record["conflict.rivalry_avoid_count_max_avg"] == pytest.approx(np.mean([x.max() for x in avoid]), abs=1e-6)
    counts, _ = np.histogram(np.concatenate(rivalry), bins=10, range=(0, 1))
    assert record["rivalry_histogram"] == pytest.approx((counts / counts.sum()).tolist())
    events = [json.loads(line) for line in (folder / "events.ndjson").read_text().splitlines()]
    conflicts = [event for event in events if event["type"] == "queue_conflict"]
    assert record["queue_conflict_events"] == len(conflicts) == sum(m["queue_conflict_events"] for m in metrics.values())
    assert record["queue_conflict_intensity_sum"] == pytest.approx(sum(event["intensity"] for event in conflicts))
    for reason, count in record["conflict_reasons"].items():
        assert count == sum(event["reason"] == reason for event in conflicts)


@pytest.mark.parametrize("cell", ["none", "gru"])
def test_a_time_limit_is_bootstrapped_from_the_observation_after_the_last_action(cell: str) -> None:
    """δ of the last decision is r + γ V(after) − V(before), V being the learner's own where nobody had a critic."""
    pytest.importorskip("torch")
    from townlet.policy.training.learner import PPOLearner
    from townlet.policy.training.sources import replay_batch

    source = generated_source("compact", values=False)
    samples = [generated_sample(source, seed, 7) for seed in range(4)]
    (batch,) = ReplayDataset(ReplayDatasetConfig(batch_size=4), samples)
    spec = NetworkSpec(batch.features.shape[2], batch.masks.shape[2], recurrent=cell)  # type: ignore[union-attr]
    learner = PPOLearner(spec, PPOConfig(recurrent=cell), seed=1)
    made = replay_batch(batch, learner)
    assert made.actions.shape == made.active.shape == (7, 4)
    seen = {"features": np.stack([s.features for s in samples], axis=1), "masks": np.stack([s.masks for s in samples], axis=1)}
    values = learner.evaluate(Trajectory(**seen))[1]
    assert values.shape == (8, 4)
    delta = batch.rewards[-1] + learner.ppo.gamma * values[7] - values[6]
    np.testing.assert_allclose(made.advantages[-1], delta, rtol=1e-5)


def test_the_return_of_the_data_is_never_shown_as_that_of_the_run(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    config, folder = captured("queue_conflict", tmp_path, 1440)
    metrics = json.loads((folder / "rollout_sample_metrics.json").read_text()).values()
    log = tmp_path / "ppo.jsonl"
    result = TrainingHarness(config).run_ppo(ReplayDatasetConfig.from_capture_dir(folder), RunOptions(epochs=2, log_path=log))
    returns = [sample["episode_return"] for sample in metrics if sample["episode_return"] is not None]
    assert returns
    assert result.episode_return_mean is None
    for record in epochs_of(log):
        assert record["dataset_return"] == pytest.approx(np.mean(returns))
        assert (record["episode_return_mean"], record["episode_length_mean"]) == (None, None)
        days = sum(sample["timesteps"] for sample in metrics) * config.policy.interval / config.world.ticks_per_day
        assert record["conflicts_per_resident_day"] == pytest.approx(record["queue_conflict_events"] / days)
        assert record["exits_per_resident_day"] == pytest.approx(record["exits"] / days)
        assert (record["late_share"], record["attendance"]) == (None, None)  # samples do not tell of shifts


def test_a_mixed_run_tells_the_return_of_its_towns_from_that_of_its_data(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    config, folder = captured("queue_conflict", tmp_path, 1440, "training.towns=2", "training.horizon=144")
    log = tmp_path / "ppo.jsonl"
    data = ReplayDatasetConfig.from_capture_dir(folder)
    TrainingHarness(config).run("mixed", RunOptions(epochs=1, dataset=data, log_path=log))
    (record,) = epochs_of(log)
    assert record["episode_return_mean"] != record["dataset_return"]
    assert None not in (record["episode_return_mean"], record["dataset_return"])
    assert validate_log([log]).problems == []


@pytest.mark.parametrize("normalize", [False, True])
def test_records_of_mini_batches_carry_the_conflict_of_their_data_as_it_was_observed(normalize: bool, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    config, folder = captured("queue_conflict", tmp_path, 300, "telemetry.batches=true", "ppo.num_mini_batches=1")
    log = tmp_path / "ppo.jsonl"
    data = ReplayDatasetConfig.from_capture_dir(folder, batch_size=64, normalize_conflict_features=normalize)
    TrainingHarness(config).run_ppo(data, RunOptions(epochs=1, log_path=log))
    assert validate_log([log]).problems == []
    *batches, epoch = read_records(log)
    assert len(batches) == config.ppo.num_epochs
    for batch in batches:
        for name in ("rivalry_max_mean", "rivalry_max_max", "rivalry_avoid_count_mean", "rivalry_avoid_count_max"):
            assert batch[f"conflict.{name}"] == pytest.approx(epoch[f"conflict.{name}_avg"], abs=1e-5)
        assert batch["conflict.rivalry_max_max"] > 0.0


def test_streaming_and_memory_train_the_same_network(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    config, folder = captured("queue_conflict", tmp_path)
    results = [
        TrainingHarness(config).run_ppo(
            ReplayDatasetConfig.from_capture_dir(folder, batch_size=1, shuffle=True, seed=5, streaming=streaming),
            RunOptions(epochs=2),
        )
        for streaming in (False, True)
    ]
    assert results[0].weights_hash == results[1].weights_hash


def test_the_order_of_samples_is_that_of_the_epoch_after_a_resume_too(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    config, folder = captured("queue_conflict", tmp_path, 300, "training.checkpoint_every=1")
    data = ReplayDatasetConfig.from_capture_dir(folder, batch_size=1, shuffle=True, seed=5)
    run = tmp_path / "run"
    whole = TrainingHarness(config).run_ppo(data, RunOptions(epochs=3, run_dir=run))
    (run / "checkpoints" / "latest").write_text("000001\n")
    again = TrainingHarness(config).run_ppo(data, RunOptions(epochs=3, run_dir=run, resume=True))
    assert again.weights_hash == whole.weights_hash
    (sample := sorted(folder.glob("*.npz"))[0]).write_bytes(sample.read_bytes()[:-1])
    with pytest.raises(ReplayError, match=r"SHA-256|damaged"):
        TrainingHarness(config).run_ppo(data, RunOptions(epochs=3, run_dir=run, resume=True))


def test_normalised_conflict_features_are_logged_as_they_were_observed(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    config, folder = captured("queue_conflict", tmp_path)
    logs = []
    for normalize in (False, True):
        data = ReplayDatasetConfig.from_capture_dir(folder, normalize_conflict_features=normalize)
        logs.append(tmp_path / f"{normalize}.jsonl")
        TrainingHarness(config).run_ppo(data, RunOptions(epochs=1, log_path=logs[-1]))
    (plain,), (normal,) = (epochs_of(log) for log in logs)
    assert normal["rivalry_histogram"] == pytest.approx(plain["rivalry_histogram"], abs=0.05)
    assert normal["conflict.rivalry_max_mean_avg"] == pytest.approx(plain["conflict.rivalry_max_mean_avg"], abs=1e-4)
    assert normal["policy_hash"] != plain["policy_hash"]


def test_the_value_loss_falls_to_less_than_half_in_twenty_epochs(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    config, folder = captured("queue_conflict", tmp_path)
    data = ReplayDatasetConfig.from_capture_dir(folder, batch_size=3)
    result = TrainingHarness(config).run_ppo(data, RunOptions(epochs=20))
    assert result.loss_value < 0.5 * result.loss_value_first
