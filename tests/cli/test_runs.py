"""Logs of real runs: captured, trained on, validated; and the town's figures of a record against sums by hand."""

from __future__ import annotations

import errno
import json
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from places import ROOT
from townlet import files
from townlet.cli.app import main
from townlet.config import load_config
from townlet.observations.spec import ObservationSpec
from townlet.policy.training.telemetry import RivalryTally, town_record
from townlet.sim.tally import EventTally
from townlet.telemetry.ndjson import read_records
from townlet.world.state import CONFLICT_REASONS, EVENT, EVENTS

SCRIPTS = ROOT / "scripts"
TINY = (
    *("--set", "training.towns=2", "--set", "training.horizon=5", "--set", "training.eval_every=0"),
    *("--set", "policy.network.map_encoder=none", "--set", "policy.network.feature_size=16"),
)
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Call a script of the founding documents as a user would, in an empty folder: exit code and what it printed."""
    monkeypatch.chdir(tmp_path)

    def call(name: str, *words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", [name, *words])
        with pytest.raises(SystemExit) as left:
            runpy.run_path(str(SCRIPTS / name), run_name="__main__")
        return int(left.value.code or 0), capsys.readouterr().out

    return call


def test_a_fresh_capture_is_trained_on_and_its_log_validates(script: Run) -> None:
    pytest.importorskip("torch")
    assert script("capture_rollout.py", "queue_conflict", "--ticks", "200", "--output", "cap")[0] == 0
    words = ("--train-ppo", "--capture-dir", "cap", "--epochs", "3", "--ppo-log", "ppo.jsonl", *TINY)
    assert script("run_training.py", "queue_conflict", *words)[0] == 0
    code, told = script("validate_ppo_telemetry.py", "ppo.jsonl", "--baseline", "cap/rollout_sample_metrics.json", "--relative")
    assert code == 0
    assert told.startswith("valid: 3 records (3 of version 1.4)\n")
    assert "baseline_reward_sum: mean" in told
    drift = json.loads(
        script("validate_ppo_telemetry.py", "ppo.jsonl", "--baseline", "cap/rollout_sample_metrics.json", "--json")[1]
    )["drift"]
    assert [
        row["name"] for row in drift["total"] if abs(row["absolute"]) > 1e-5
    ] == []  # the run's baseline is that of the capture
    assert script("telemetry_summary.py", "ppo.jsonl", "--format", "markdown")[0] == 0
    assert script("telemetry_watch.py", "ppo.jsonl", "--queue-events-min", "1000000", "--json")[0] == 1


@pytest.mark.parametrize("mode", ["rollout", "mixed"])
def test_runs_of_other_modes_validate_too(mode: str, script: Run) -> None:
    pytest.importorskip("torch")
    assert script("capture_rollout.py", "town_day", "--ticks", "100", "--output", "cap")[0] == 0
    data = ("--capture-dir", "cap") if mode == "mixed" else ("--ppo-log-batches",)
    with pytest.raises(SystemExit) as left:
        main(["train", "town_day", "--mode", mode, "--epochs", "2", "--ppo-log", "ppo.jsonl", *data, *TINY])
    assert not left.value.code
    code, told = script("validate_ppo_telemetry.py", "ppo.jsonl")
    assert (code, told.splitlines()[-1].split(":")[0]) == (0, "valid")
    records = [record for record in read_records("ppo.jsonl") if record.get("kind") != "batch"]
    assert ("batch records" in told) == (mode == "rollout")
    assert {record["data_mode"] for record in records} <= {"replay", "rollout", "mixed"}
    assert all(record["rollout_ticks"] > 0 for record in records if record["data_mode"] == "rollout")


def test_a_log_on_a_full_disk_stops_aloud_and_the_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    write = files.disk.write

    def full_for_records(handle: int, data: Any) -> int:
        if b'"log_stream_offset"' in bytes(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(handle, data)

    monkeypatch.setattr(files.disk, "write", full_for_records)
    with pytest.raises(SystemExit) as left:
        main(["train", "town_day", "--mode", "rollout", "--epochs", "2", "--run-dir", str(tmp_path / "run"), *TINY])
    assert not left.value.code
    assert [record.message for record in caplog.records if "telemetry stops" in record.message] == [
        f"telemetry stops at record 1: {tmp_path}/run/ppo.ndjson cannot be written: No space left on device; "
        "free some space and run again; training continues"
    ]
    assert "no curves.png" in capsys.readouterr().err
    assert (tmp_path / "run" / "checkpoints" / "000002").is_dir()


def discounted(rewards: Any, values: Any, last: Any, ended: Any, gamma: float, trace: float) -> list[float]:
    """Generalised advantages of one resident, from the sum that defines them: Σ_k (γλ)^k δ_{t+k} up to the end of the life."""
    steps = len(rewards)
    following = [*values[1:], last]
    found = []
    for t in range(steps):
        total, weight = 0.0, 1.0
        for k in range(t, steps):
            total += weight * (rewards[k] + (0.0 if ended[k] else gamma * following[k]) - values[k])
            if ended[k]:
                break
            weight *= gamma * trace
        found.append(total)
    return found


def one_epoch(town: str, place: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[Any, list[Any]]:
    """The rollout that an epoch learned from, in two passes, and its records, those of the mini-batches too."""
    pytest.importorskip("torch")
    from townlet.policy.training import epochs

    seen: list[Any] = []
    build = epochs.rollout_batch
    monkeypatch.setattr(epochs, "rollout_batch", lambda rollout, ppo: (seen.append(rollout), build(rollout, ppo))[1])
    log = place / "ppo.jsonl"
    always = ("--epochs", "1", "--ppo-log", str(log), "--run-dir", str(place / "run"), "--no-plots", "--ppo-num-epochs", "2")
    with pytest.raises(SystemExit) as left:
        main(["train", town, "--mode", "rollout", *always, "--ppo-log-batches", *TINY, *words])
    assert not left.value.code
    (rollout,) = seen
    return rollout, list(read_records(log))


def test_advantages_in_the_log_are_those_of_the_rewards_before_normalisation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """adv_mean and adv_std against sums by hand over the very rollout the run learned from."""
    rollout, records = one_epoch("town_day", tmp_path, monkeypatch, "--ppo-num-mini-batches", "4")
    assert rollout.active.all()
    assert not rollout.truncated.any()
    advantages = np.stack(
        [
            discounted(*(part[:, town, who].astype(float) for part in (rollout.rewards, rollout.values[:-1])),
                       float(rollout.values[-1, town, who]), rollout.terminated[:, town, who], 0.99, 0.95)
            for town in range(2) for who in range(rollout.rewards.shape[2])
        ]
    )  # fmt: skip
    batches = [record for record in records if record.get("kind") == "batch"]
    (epoch,) = [record for record in records if record.get("kind") != "batch"]
    assert len(batches) == 8
    assert epoch["adv_mean"] == pytest.approx(advantages.mean(), abs=1e-5)
    assert epoch["adv_mean"] == pytest.approx(np.mean([record["adv_mean"] for record in batches]), abs=1e-7)
    assert epoch["adv_std"] == pytest.approx(np.mean([record["adv_std"] for record in batches]), abs=1e-7)
    for half in (batches[:4], batches[4:]):  # one pass: within and between its equal mini-batches lies the whole spread
        size = advantages.size // 4
        within = sum((size - 1) * record["adv_std"] ** 2 for record in half)
        between = sum(size * (record["adv_mean"] - advantages.mean()) ** 2 for record in half)
        assert within + between == pytest.approx(((advantages - advantages.mean()) ** 2).sum(), rel=1e-4)


# --- what a record says of the town, by hand -------------------------------------------------------------------------


def event(kind: str, **fields: Any) -> tuple[Any, ...]:
    row = np.zeros((), EVENT)
    row["kind"] = EVENTS.index(kind)
    for name, value in fields.items():
        row[name] = value
    return tuple(row.item())


def test_conflicts_waits_and_chats_are_those_of_the_events() -> None:
    tally = EventTally()
    blocked, overtaken = CONFLICT_REASONS.index("blocked"), CONFLICT_REASONS.index("overtaken")
    first = [
        event("queue_conflict", reason=blocked, intensity=0.4),
        event("queue_conflict", reason=overtaken, intensity=1.25),
        event("use_start", actor=0, waited=10),
        event("use_start", actor=1, waited=0),  # no wait at all: nobody stood in a queue
    ]
    second = [
        event("queue_leave", actor=2, waited=30),
        event("chat_success", amount=0.5),
        event("chat_success", amount=1.0),
        event("chat_failure"),
        event("exit"),
    ]
    tally.add(np.array(first, EVENT))
    tally.add(np.array(second, EVENT))
    tally.add(np.zeros(0, EVENT))
    record = town_record(tally, resident_days=0.5)
    assert record["queue_conflict_events"] == 2
    assert (record["conflicts_per_resident_day"], record["exits_per_resident_day"]) == (4.0, 2.0)
    assert (record["late_share"], record["attendance"]) == (None, None)  # no shift fell due
    assert record["queue_conflict_intensity_sum"] == pytest.approx(1.65)
    assert record["conflict_reasons"] == {"blocked": 1, "overtaken": 1, "ghost_step": 0}
    assert record["queue_wait_mean"] == 20.0
    assert record["queue_wait_gini"] == pytest.approx(0.25)  # of 10 and 30: |10 − 30| · 2 / (2 · 2² · 20)
    assert (record["chat_success_events"], record["chat_failure_events"], record["chat_quality_mean"]) == (2, 1, 0.75)
    assert record["exits"] == 1


def test_shifts_are_counted_once_each() -> None:
    """On time, late, or absent, which may come after either; an absence alone is of a shift that began in the epoch before."""
    tally, other = EventTally(), EventTally()
    first = [
        event("shift_on_time", town=0, actor=0),
        event("shift_late", town=0, actor=1),
        event("shift_absent", town=0, actor=1),  # the same shift: late, then missed
        event("shift_absent", town=1, actor=0),  # one that was on time before these events
        event("shift_on_time", town=1, actor=1, actor_life=3),
    ]
    second = [
        event("shift_absent", town=0, actor=0),  # the first one, missed after all
        event("shift_late", town=0, actor=0),  # the next day
        event("shift_absent", town=1, actor=1, actor_life=4),  # another who took the place
    ]
    tally.add(np.array(first, EVENT))
    tally.add(np.array(second, EVENT))
    assert tally.shifts_due() == 6  # town 0: two of resident 0, one of 1; town 1: one of 0, one of each life of 1
    other.add(np.array([event("shift_on_time", town=2, actor=0)] * 2, EVENT))
    tally.merge(other)
    record = town_record(tally, 1.0)
    assert record["late_share"] == pytest.approx(2 / 8)
    assert record["attendance"] == pytest.approx(1 - 4 / 8)


def test_rates_and_mini_batches_of_a_real_rollout_are_those_of_its_residents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted here a second time: the days lived, ten ticks a decision, and the rivalry that the decisions saw."""
    words = ("--ppo-num-mini-batches", "3", "--set", "training.horizon=100")
    rollout, [*batches, record] = one_epoch("rush_hour", tmp_path, monkeypatch, *words)
    present = rollout.active[:-1] != 0
    for name in ("rivalry_max", "rivalry_avoid_count"):
        column = rollout.features[:-1][present][:, ObservationSpec.of(load_config("rush_hour")).offsets[name]]
        for once in (batches[:3], batches[3:]):  # each pass sees every decision
            total = sum(batch["transitions"] * batch[f"conflict.{name}_mean"] for batch in once)
            assert total == pytest.approx(column.sum(dtype=float), rel=1e-5)
            assert max(batch[f"conflict.{name}_max"] for batch in once) == column.max() > 0.0
    ticks = sum(10 for step in rollout.active[:-1] for town in step for present in town if present)
    assert record["queue_conflict_events"] > 0
    assert record["conflicts_per_resident_day"] == pytest.approx(record["queue_conflict_events"] / (ticks / 1440), rel=1e-12)
    assert record["exits_per_resident_day"] == pytest.approx(record["exits"] / (ticks / 1440), rel=1e-12)
    assert 0.0 <= record["late_share"] <= 1.0
    assert 0.0 <= record["attendance"] <= 1.0
    assert record["dataset_return"] is None


def test_rivalry_is_averaged_over_batches_and_its_histogram_over_decisions() -> None:
    tally = RivalryTally()
    tally.add(np.array([0.05, 0.15]), np.array([0.0, 0.5]))
    tally.add(np.array([1.0, 0.95, 0.0, 0.0]), np.array([1.0, 0.0, 0.0, 0.0]))
    record = tally.record()
    assert record["conflict.rivalry_max_mean_avg"] == pytest.approx((0.1 + 0.4875) / 2)
    assert record["conflict.rivalry_max_max_avg"] == pytest.approx((0.15 + 1.0) / 2)
    assert record["conflict.rivalry_avoid_count_mean_avg"] == pytest.approx(0.25)
    assert record["conflict.rivalry_avoid_count_max_avg"] == pytest.approx(0.75)
    assert record["rivalry_histogram"] == pytest.approx([3 / 6, 1 / 6, 0, 0, 0, 0, 0, 0, 0, 2 / 6])
