"""PPO over live towns, stored samples and both: exact resume, divergence, records, refusals."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from townlet.config import SimulationConfig
from townlet.errors import DivergedError, InterruptedRun, ReplayError, UsageError
from townlet.policy.checkpoint import Checkpoint, load_checkpoint, resolve
from townlet.policy.runner import TrainingHarness
from townlet.policy.training.contexts import RunOptions
from townlet.sealed import SEAL, write_sealed
from townlet.telemetry.ndjson import read_records
from townlet.telemetry.schema import comparable
from townlet.telemetry.validate import validate_log

pytest.importorskip("torch")

from townlet.policy.models import ConflictAwarePolicyNetwork
from townlet.policy.network import NetworkSpec
from townlet.policy.training.batches import UpdateStats
from townlet.policy.training.learner import PPOLearner

Small = Callable[..., SimulationConfig]


def equal(a: Checkpoint, b: Checkpoint) -> list[str]:
    """What differs between two checkpoints; the byte position of the log depends on the clock and is left out."""
    apart = []
    for part in ("weights", "optimizer", "world"):
        left, right = vars(a)[part], vars(b)[part]
        apart += sorted(set(left) ^ set(right))
        apart += [f"{part}/{name}" for name in left if name in right and left[name].tobytes() != right[name].tobytes()]
    left, right = (json.loads(json.dumps(c.state)) for c in (a, b))
    for state in (left, right):
        state["telemetry"].pop("byte")
    return apart + [name for name in left if left[name] != right.get(name)]


def log_of(run: Path) -> list[dict[str, Any]]:
    return [comparable(record) for record in read_records(run / "ppo.ndjson")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_goes_on_bit_for_bit(small_town: Small, stop_after: Any, tmp_path: Path, number: int) -> None:
    config = small_town()
    whole = TrainingHarness(config).run("rollout", RunOptions(epochs=5, run_dir=tmp_path / "whole"))
    stopped = TrainingHarness(config, progress=stop_after(3, number))
    with pytest.raises(InterruptedRun, match=r"after epoch 3; the state is saved") as caught:
        stopped.run("rollout", RunOptions(epochs=5, run_dir=tmp_path / "parts"))
    assert caught.value.exit_code == 128 + number
    parts = TrainingHarness(config).run("rollout", RunOptions(epochs=5, run_dir=tmp_path / "parts", resume=True))
    assert whole.checkpoint is not None
    assert parts.checkpoint is not None
    assert equal(load_checkpoint(whole.checkpoint), load_checkpoint(parts.checkpoint)) == []
    assert log_of(tmp_path / "whole") == log_of(tmp_path / "parts")
    assert [record["epoch"] for record in log_of(tmp_path / "parts")] == [1, 2, 3, 4, 5]


def test_what_follows_the_last_checkpoint_is_discarded_and_made_again(small_town: Small, tmp_path: Path) -> None:
    """A killed run leaves records beyond its checkpoint: here the last checkpoint (epoch 2) of a run of three epochs."""
    config = small_town()
    options = RunOptions(epochs=3, run_dir=tmp_path / "a")
    whole = TrainingHarness(config).run("rollout", options)
    run = tmp_path / "a"
    (run / "summary.json").unlink()
    (run / "checkpoints" / "latest").write_text("000002\n")
    again = TrainingHarness(config).run("rollout", RunOptions(epochs=3, run_dir=run, resume=True))
    assert again.model_dump(exclude={"duration_sec"}) == whole.model_dump(exclude={"duration_sec"})
    assert [record["log_stream_offset"] for record in log_of(run)] == [1, 2, 3]
    assert (run / "ppo.ndjson.discarded").read_bytes().count(b"\n") == 1


def test_resume_refuses_another_config_and_another_environment(small_town: Small, tmp_path: Path) -> None:
    run = tmp_path / "a"
    TrainingHarness(small_town()).run("rollout", RunOptions(epochs=1, run_dir=run))
    with pytest.raises(UsageError, match="already holds a run"):
        TrainingHarness(small_town()).run("rollout", RunOptions(epochs=1, run_dir=run))
    with pytest.raises(UsageError, match="config hash"):
        TrainingHarness(small_town("ppo.gamma=0.9")).run("rollout", RunOptions(epochs=1, run_dir=run, resume=True))
    there = json.loads((run / "environment.json").read_text())
    del there[SEAL]
    there["versions"]["numpy"] = "0.1"
    write_sealed(run / "environment.json", there)
    with pytest.raises(UsageError, match="--allow-inexact"):
        TrainingHarness(small_town()).run("rollout", RunOptions(epochs=1, run_dir=run, resume=True))
    result = TrainingHarness(small_town()).run("rollout", RunOptions(epochs=1, run_dir=run, resume=True, allow_inexact=True))
    assert result.checkpoint is not None


def test_records_of_a_live_run_validate_and_say_what_happened(small_town: Small, tmp_path: Path) -> None:
    log = tmp_path / "ppo.jsonl"
    harness = TrainingHarness(small_town("training.horizon=30", "telemetry.batches=true"))
    harness.run_ppo(mode="rollout", options=RunOptions(epochs=2, log_path=log))
    assert validate_log([log]).problems == []
    batches = [record for record in read_records(log) if record.get("kind") == "batch"]
    records = [record for record in read_records(log) if record.get("kind", "epoch") == "epoch"]
    assert [row["batch"] for row in batches] == [0, 1, 2, 3] * 2  # two passes of two mini-batches
    first = [row for row in batches if row["epoch"] == 1]
    assert sum(row["transitions"] for row in first) == 2 * records[0]["transitions"]
    assert sum(row["loss_total"] for row in first) / 4 == pytest.approx(records[0]["loss_total"])
    assert max(row["grad_norm"] for row in first) == pytest.approx(records[0]["grad_norm_max"])
    for record in records:
        assert record["data_mode"] == "rollout"
        assert record["rollout_ticks"] == 300
        assert record["transitions"] <= 2 * 30 * 8
        assert sum(record["rivalry_histogram"]) == pytest.approx(1.0)
        assert sum(record["conflict_reasons"].values()) == record["queue_conflict_events"]
        assert 0 < record["mask_fill_mean"] < 1
        assert record["illegal_actions"] == 0
        assert record["dataset_hash"] is None
    assert records[1]["steps"] == records[0]["transitions"] + records[1]["transitions"]


def test_the_return_of_a_day_does_not_depend_on_the_length_of_an_episode(small_town: Small, tmp_path: Path) -> None:
    log = tmp_path / "ppo.jsonl"
    config = small_town("training.horizon=30", "scenario.episode_ticks=10")  # an episode is a decision
    TrainingHarness(config).run_ppo(mode="rollout", options=RunOptions(epochs=1, log_path=log))
    (record,) = read_records(log)
    assert (record["exits"], record["episode_length_mean"]) == (0, 1)
    day = record["episode_return_mean"] * config.world.ticks_per_day / 10
    assert record["return_per_resident_day"] == pytest.approx(day, rel=1e-5)


def test_the_entropy_has_one_sign_and_the_total_is_the_sum_that_the_schema_says(
    small_town: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L = policy + c_v · value − c_e · entropy: in the figures of the learner, the records of both kinds and the result."""
    made: list[UpdateStats] = []
    real = PPOLearner.update

    def watched(self: PPOLearner, *args: Any, **options: Any) -> UpdateStats:
        made.append(real(self, *args, **options))
        return made[-1]

    monkeypatch.setattr(PPOLearner, "update", watched)
    config = small_town("ppo.entropy_coef=0.3", "ppo.value_loss_coef=0.7", "telemetry.batches=true")
    result = TrainingHarness(config).run_ppo(options=RunOptions(epochs=2, log_path=tmp_path / "log"))
    records = list(read_records(tmp_path / "log"))
    epochs = [record for record in records if record.get("kind") != "batch"]
    assert len(epochs) == len(made) == 2
    for row in (*records, *(asdict(stats) for stats in made), result.model_dump()):
        total = row["loss_policy"] + 0.7 * row["loss_value"] - 0.3 * row["loss_entropy"]
        assert row["loss_entropy"] > 0.5
        assert row["loss_total"] == pytest.approx(total, abs=1e-5)
    assert [record["loss_entropy"] for record in epochs] == pytest.approx([stats.loss_entropy for stats in made])
    assert [record["loss_entropy"] for record in epochs] == [record["batch_entropy_mean"] for record in epochs]


@pytest.mark.parametrize("mode", ["rollout", "replay", "mixed"])
def test_the_transitions_of_a_result_are_those_of_all_epochs(small_town: Small, tmp_path: Path, mode: str) -> None:
    harness = TrainingHarness(small_town())
    data = None if mode == "rollout" else harness.capture_rollout(60).build_dataset()
    result = harness.run_ppo(data, RunOptions(epochs=3, log_path=tmp_path / "log"), mode=mode)
    counted = [record["transitions"] for record in read_records(tmp_path / "log")]
    assert len(counted) == 3
    assert result.transitions == result.steps == sum(counted)


def test_a_loss_that_is_no_number_ends_the_run_with_a_record_and_the_last_checkpoint(
    small_town: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from townlet.policy.training import epochs

    real, calls = epochs.rollout_batch, []

    def poisoned(*args: Any) -> Any:
        batch = real(*args)
        calls.append(1)
        if len(calls) == 3:
            batch.advantages[...] = np.nan
        return batch

    monkeypatch.setattr(epochs, "rollout_batch", poisoned)
    run = tmp_path / "a"
    with pytest.raises(DivergedError, match=r"diverged in epoch 3.*last good checkpoint is .*000002") as caught:
        TrainingHarness(small_town()).run("rollout", RunOptions(epochs=5, run_dir=run))
    assert caught.value.exit_code == 5
    assert resolve(run / "checkpoints").name == "000002"
    last = list(read_records(run / "ppo.ndjson"))[-1]
    assert "loss_total" in last["nonfinite"]
    assert last["loss_total"] is None


def test_replay_data_of_another_town_are_refused_by_name(small_town: Small) -> None:
    captured = TrainingHarness(small_town()).capture_rollout(60)
    data = captured.build_dataset()
    other = TrainingHarness(small_town("policy.action_level=primitive"))
    with pytest.raises(ReplayError, match=r"rollout_sample_\w+ has \d+ features"):
        other.run_ppo(data, RunOptions(epochs=1))


def test_mixed_mode_changes_one_network_by_both_kinds_of_data(small_town: Small, tmp_path: Path) -> None:
    harness = TrainingHarness(small_town())
    data = harness.capture_rollout(100).build_dataset(batch_size=2)
    result = harness.run_ppo(data, RunOptions(epochs=2, log_path=tmp_path / "log"), mode="mixed")
    assert result.weights_hash != result.weights_hash_start
    first, second = read_records(tmp_path / "log")
    assert first["data_mode"] == "mixed"
    assert first["transitions"] == data.transitions + 2 * 5 * 8
    assert second["cycle_id"] == 1
    assert first["dataset_hash"] is not None
    assert first["baseline_sample_count"] == 8


def test_periodic_evaluation_keeps_the_best(small_town: Small, tmp_path: Path) -> None:
    config = small_town("training.eval_every=1")
    result = TrainingHarness(config).run_ppo(mode="rollout", options=RunOptions(epochs=2, run_dir=tmp_path / "a"))
    assert [point.epoch for point in result.evaluations] == [1, 2]
    best = max(result.evaluations, key=lambda point: point.episode_return)
    assert result.best_checkpoint is not None
    assert Path(result.best_checkpoint).name == f"{best.epoch:06d}"


def run_through_and_resumed(config: SimulationConfig, stop_after: Any, tmp_path: Path) -> tuple[Checkpoint, Checkpoint]:
    """The last checkpoint of three epochs in one go, and of the same three stopped after the first."""
    whole = TrainingHarness(config).run("rollout", RunOptions(epochs=3, run_dir=tmp_path / "whole"))
    with pytest.raises(InterruptedRun):
        TrainingHarness(config, progress=stop_after(1)).run("rollout", RunOptions(epochs=3, run_dir=tmp_path / "parts"))
    parts = TrainingHarness(config).run("rollout", RunOptions(epochs=3, run_dir=tmp_path / "parts", resume=True))
    assert whole.checkpoint is not None
    assert parts.checkpoint is not None
    return load_checkpoint(whole.checkpoint), load_checkpoint(parts.checkpoint)


def test_a_network_with_memory_goes_on_bit_for_bit_too(small_town: Small, stop_after: Any, tmp_path: Path) -> None:
    config = small_town("ppo.recurrent=gru", "policy.network.recurrent_size=8", "ppo.normalize_observations=true")
    whole, parts = run_through_and_resumed(config, stop_after, tmp_path)
    assert equal(whole, parts) == []


def test_the_last_epoch_is_logged_also_when_the_time_is_over(small_town: Small, tmp_path: Path) -> None:
    config = small_town("telemetry.frequency=10", "training.time_limit=1e-9", "telemetry.batches=true")
    harness, run = TrainingHarness(config), tmp_path / "run"
    assert harness.run("rollout", RunOptions(epochs=5, run_dir=run)).epochs == 1
    again = harness.run("rollout", RunOptions(epochs=5, run_dir=run, resume=True))
    assert again.epochs == 2
    records = log_of(run)
    assert [record["epoch"] for record in records if record.get("kind") != "batch"] == [1, 2]
    assert {record["epoch"] for record in records if record.get("kind") == "batch"} == {1, 2}
    assert validate_log(run / "ppo.ndjson").ok


def test_mini_batches_of_a_network_with_memory_tell_of_conflict_too(small_town: Small, tmp_path: Path) -> None:
    memory = ("ppo.recurrent=gru", "policy.network.recurrent_size=8", "ppo.num_mini_batches=1", "ppo.num_epochs=1")
    config = small_town(*memory, "telemetry.batches=true", "training.horizon=60", name="rush_hour")
    TrainingHarness(config).run("rollout", RunOptions(epochs=1, run_dir=tmp_path / "run"))
    batch, epoch = log_of(tmp_path / "run")
    for name in ("rivalry_max_mean", "rivalry_max_max", "rivalry_avoid_count_mean", "rivalry_avoid_count_max"):
        assert batch[f"conflict.{name}"] == pytest.approx(epoch[f"conflict.{name}_avg"], abs=1e-6)
    assert batch["conflict.rivalry_max_max"] > 0.0


@pytest.mark.parametrize("cell", ["none", "lstm"])
def test_a_central_critic_trains_and_goes_on_bit_for_bit(small_town: Small, stop_after: Any, tmp_path: Path, cell: str) -> None:
    config = small_town("policy.critic=central", f"ppo.recurrent={cell}", "policy.network.recurrent_size=8")
    found, parts = run_through_and_resumed(config, stop_after, tmp_path)
    assert equal(found, parts) == []
    assert found.state["network"]["town_size"] == 8
    begun = ConflictAwarePolicyNetwork(NetworkSpec.from_json(found.state["network"]), config.seed).arrays()
    assert np.abs(found.weights["town.weight"] - begun["town.weight"]).max() > 1e-5  # the critic learned from its town


def test_workers_share_out_whole_towns_to_a_central_critic(small_town: Small, tmp_path: Path) -> None:
    hashes = set()
    for words in ((), ("training.engine=local", "training.workers=2")):
        result = TrainingHarness(small_town("policy.critic=central", *words)).run_ppo(
            mode="rollout", options=RunOptions(epochs=2)
        )
        hashes.add(tuple(round(value, 4) for value in (result.loss_value, result.loss_policy)))
    assert len(hashes) == 1


def test_a_central_critic_refuses_single_lives(small_town: Small) -> None:
    data = TrainingHarness(small_town()).capture_rollout(60).build_dataset()
    harness = TrainingHarness(small_town("policy.critic=central"))
    with pytest.raises(UsageError, match="values whole towns, but stored samples are single lives; set it to own"):
        harness.run_ppo(data, RunOptions(epochs=1))
    with pytest.raises(UsageError, match="single lives"):
        harness.run("bc", RunOptions(dataset=data))


def test_social_rewards_follow_their_schedule_through_a_resume(small_town: Small, stop_after: Any, tmp_path: Path) -> None:
    config = small_town("training.social_reward_schedule=[{cycle: 0, stage: 'OFF'}, {cycle: 2, stage: C3}]")
    whole = TrainingHarness(config).run("rollout", RunOptions(epochs=4, run_dir=tmp_path / "whole"))
    with pytest.raises(InterruptedRun):
        TrainingHarness(config, progress=stop_after(3)).run("rollout", RunOptions(epochs=4, run_dir=tmp_path / "parts"))
    parts = TrainingHarness(config).run("rollout", RunOptions(epochs=4, run_dir=tmp_path / "parts", resume=True))
    assert whole.model_dump()["weights_hash"] == parts.model_dump()["weights_hash"]
    from townlet.policy.training.contexts import TrainingContext
    from townlet.policy.training.services import TrainingServices
    from townlet.policy.training.session import social_stage

    context = TrainingContext(config, TrainingServices.of(config))
    assert [social_stage(context, epoch).features.stages.social_rewards for epoch in range(4)] == ["OFF", "OFF", "C3", "C3"]


def test_a_blend_leaves_a_falling_share_of_residents_to_the_script(small_town: Small, tmp_path: Path) -> None:
    config = small_town("training.anneal_enable_policy_blend=true", "training.towns=8")
    log = tmp_path / "log"
    TrainingHarness(config).run_ppo(mode="rollout", options=RunOptions(epochs=4, log_path=log))
    learned = [record["transitions"] for record in read_records(log)]
    assert learned[0] < 0.5 * 8 * 5 * 8
    assert learned[3] > learned[0]


def test_what_chance_hardly_finds_is_tried_from_the_start(small_town: Small, tmp_path: Path) -> None:
    """A logit raised by 30 leaves nothing else; the name of an action that is not there is answered with those that are."""
    config = small_town("training.first_logits={wait: 30.0}", "ppo.learning_rate=1e-9", "training.epochs=1")
    TrainingHarness(config).run("rollout", RunOptions(run_dir=tmp_path / "run"))
    plain = load_checkpoint(tmp_path / "run" / "checkpoints" / "latest").weights["policy.bias"]
    assert plain[0] == pytest.approx(30.0, abs=1e-3)
    assert np.abs(plain[1:]).max() < 1e-3
    with pytest.raises(UsageError, match=r"no action 'wrok'; did you mean 'work'\?"):
        TrainingHarness(small_town("training.first_logits={wrok: 4.0}")).run("rollout")


def test_a_clone_is_raised_once_and_a_network_that_has_lived_is_not(small_town: Small, tmp_path: Path) -> None:
    config = small_town("training.first_logits={wait: 30.0}", "ppo.learning_rate=1e-9", "training.epochs=1")
    bias, last = [], None
    for run, mode in (("clone", "bc"), ("first", "rollout"), ("second", "rollout")):
        TrainingHarness(config).run(mode, RunOptions(run_dir=tmp_path / run, start_from=last))
        last = tmp_path / run / "checkpoints" / "latest"
        bias.append(load_checkpoint(last).weights["policy.bias"][0])
    assert np.diff(bias) == pytest.approx([30.0, 0.0], abs=1e-3)
