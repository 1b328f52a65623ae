"""Captures: every stored transition is what the simulator did, folders appear whole or not at all, twice gives the same bytes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints import untrained
from places import ROOT
from townlet import files
from townlet.cli.app import main
from townlet.config.loader import load_config
from townlet.envs.vector import VectorTown
from townlet.errors import StorageError, UsageError
from townlet.policy import capture as capture_module
from townlet.policy.capture import CaptureOptions, CaptureResult, capture, seed_residents
from townlet.policy.capture_events import read_event_records
from townlet.policy.capture_folder import SampleFilter, filter_samples
from townlet.policy.golden import FOUNDING, compare_goldens, differences
from townlet.policy.replay import ReplayDataset, ReplayDatasetConfig, ReplaySample, samples_of
from townlet.policy.replay_report import stats, validate
from townlet.policy.rollout import RolloutBuffer, collect, source_of
from townlet.policy.runtime import Decision, PolicyRuntime, make_policy
from townlet.world.state import EVENTS

SAMPLES = ROOT / "docs" / "samples"


def taken(folder: Path, *names: str, **options: Any) -> CaptureResult:
    return capture([load_config(name) for name in names], folder, CaptureOptions(**options))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def reconstruct(samples: list[ReplaySample], vec: VectorTown, steps: int) -> int:
    """Step a fresh simulator with the stored actions and compare everything; returns the transitions compared."""
    index = {int(town): e for e, town in enumerate(vec.state.towns["id"])}
    rows = {}
    for sample in samples:
        for t in range(sample.steps):
            note = sample.meta.capture
            rows[index[note.town], note.episode, sample.meta.agent_id, sample.meta.first_tick + t * vec.interval] = sample, t
    compared = 0
    for _ in range(steps):
        actions = np.zeros(vec.active.shape, np.int64)
        now = {}
        for e in range(vec.num_towns):
            for n in np.flatnonzero(vec.active[e]):
                key = e, int(vec.state.towns["episode"][e]), vec.resident_id(e, n), int(vec.state.towns["tick"][e])
                sample, t = now[e, n] = rows.pop(key)
                np.testing.assert_array_equal(sample.features[t], vec.features[e, n])
                np.testing.assert_array_equal(sample.maps[t], vec.maps[e, n])  # type: ignore[index]
                np.testing.assert_array_equal(sample.masks[t], vec.masks[e, n])  # type: ignore[index]
                actions[e, n] = sample.actions[t]
        vec.step(actions)
        for (e, n), (sample, t) in now.items():
            assert sample.rewards[t] == vec.rewards[e, n]
            assert sample.terminated[t] == vec.terminated[e, n]
            assert sample.truncated[t] == vec.truncated[e, n]
            if t + 1 == sample.steps:
                np.testing.assert_array_equal(sample.features[t + 1], vec.features[e, n])
                np.testing.assert_array_equal(sample.maps[t + 1], vec.maps[e, n])  # type: ignore[index]
                np.testing.assert_array_equal(sample.masks[t + 1], vec.masks[e, n])  # type: ignore[index]
            compared += 1
    assert not rows  # nothing was stored that did not happen
    return compared


@pytest.mark.parametrize("scenario", ["town_day", "newcomer"])
def test_every_stored_transition_is_what_the_simulator_did(scenario: str) -> None:
    vec = VectorTown(scenario, 2, seed=21)
    runtime = PolicyRuntime(vec, make_policy("scripted", vec, epsilon=0.1, seed=3))
    buffer = RolloutBuffer(vec, 160)  # past the end of the day
    collect(runtime, buffer)
    samples = list(buffer.samples(source_of(vec, runtime, ticks=1600)))
    compared = reconstruct(samples, VectorTown(scenario, 2, seed=21), 160)
    assert compared == sum(sample.steps for sample in samples) > 2000
    ends = {(bool(s.terminated[-1]), bool(s.truncated[-1])) for s in samples}
    expected = {(False, True), (False, False)} | ({(True, False)} if scenario == "newcomer" else set())
    assert ends == expected
    lives = {(s.meta.agent_id, s.meta.capture.town, s.meta.capture.episode) for s in samples}
    assert len(lives) == len(samples)


def test_a_capture_of_three_episodes_holds_three_different_days(tmp_path: Path) -> None:
    """4,320 ticks of one town: the same people in each episode, no two of them alike."""
    taken(tmp_path / "days", "town_day", ticks=4320)
    days: dict[int, dict[str, tuple[bytes, bytes]]] = {}
    for sample in samples_of(tmp_path / "days"):
        meta, rows = sample.meta, slice(0, 142)  # two decisions of the third day were spent on beginning the second and third
        days.setdefault(meta.capture.episode, {})[meta.agent_id] = sample.features[rows].tobytes(), sample.rewards[rows].tobytes()
    assert sorted(days) == [0, 1, 2]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        shared = days[one].keys() & days[other].keys()
        assert len(shared) == 8
        assert all(days[one][name] != days[other][name] for name in shared)


def test_values_are_those_before_the_action_and_the_bootstrap_is_that_after_the_last() -> None:
    class Critic:
        """Waits, and values an observation by its hunger."""

        kind, has_values = "critic", True

        def reset(self, vec: VectorTown) -> None:
            pass

        def act(self, vec: VectorTown) -> Decision:
            zeros = np.zeros(vec.active.shape)
            return Decision(zeros.astype(np.int64), zeros.astype(np.float32), self.values(vec))

        def values(self, vec: VectorTown) -> Any:
            return vec.features[..., 0].copy()

    vec = VectorTown("newcomer", 1)
    runtime = PolicyRuntime(vec, Critic())
    buffer = RolloutBuffer(vec, 143)
    collect(runtime, buffer)
    last = vec.features[0, :, 0].copy()
    seen = set()
    for sample in buffer.samples(source_of(vec, runtime, ticks=1430)):
        T = sample.steps
        assert sample.meta.policy.values == "critic"
        np.testing.assert_array_equal(sample.values[:T], sample.features[:T, 0])
        if sample.terminated[-1]:
            assert sample.values[T] == 0.0
        else:
            slot = [n for n in range(vec.num_residents) if vec.resident_id(0, n) == sample.meta.agent_id]
            assert sample.values[T] == last[slot[0]]
        seen.add(bool(sample.terminated[-1]))
    assert seen == {False, True}


def test_a_buffer_feeds_training_without_files_and_can_be_used_again() -> None:
    vec = VectorTown("queue_conflict", 3)
    runtime = PolicyRuntime(vec, make_policy("schedule", vec))
    buffer = RolloutBuffer(vec, 20)
    for _ in range(2):
        assert collect(runtime, buffer) == 20
        assert buffer.full
        dataset = buffer.build_dataset(runtime, batch_size=4)
        assert len(dataset.metas) >= 9
        assert sum(batch.transitions for batch in dataset) == dataset.transitions == int(buffer.data.active[:20].sum())
        buffer.clear()


def test_conflicts_of_the_samples_are_those_of_the_events(tmp_path: Path) -> None:
    taken(tmp_path / "c", "queue_conflict", towns=2)
    events = [record for record in read_event_records(tmp_path / "c" / "events.ndjson") if record["type"] == "queue_conflict"]
    samples = list(samples_of(tmp_path / "c"))
    metrics = [sample.meta.metrics for sample in samples]
    assert sum(m["queue_conflict_events"] for m in metrics) == len(events) > 20  # type: ignore[misc]
    assert sum(m["queue_conflict_intensity_sum"] for m in metrics) == pytest.approx(sum(e["intensity"] for e in events))  # type: ignore[misc]
    for reason in ("blocked", "overtaken", "ghost_step"):
        assert sum(m[f"conflict_{reason}_count"] for m in metrics) == sum(e["reason"] == reason for e in events)  # type: ignore[misc]
    config = ReplayDatasetConfig.from_capture_dir(tmp_path / "c", events=tmp_path / "c" / "events.ndjson")
    counted = sum(int(b.events[..., EVENTS.index("queue_conflict")].sum()) for b in ReplayDataset(config))  # type: ignore[index]
    assert counted == len(events)


def test_the_queue_counts_of_the_batches_are_those_of_the_events(tmp_path: Path) -> None:
    taken(tmp_path / "c", "queue_conflict", towns=2)
    events = list(read_event_records(tmp_path / "c" / "events.ndjson"))
    conflicts = [event["intensity"] for event in events if event["type"] == "queue_conflict"]
    dataset = ReplayDataset(ReplayDatasetConfig.from_capture_dir(tmp_path / "c", batch_size=2))
    counted = [batch.conflict_stats for batch in dataset]
    assert sum(stats["queue_conflict_events"] for stats in counted) == len(conflicts) > 0
    assert sum(stats["queue_conflict_intensity_sum"] for stats in counted) == pytest.approx(sum(conflicts), abs=1e-4)


def test_metrics_agree_with_the_arrays(tmp_path: Path) -> None:
    taken(tmp_path / "c", "town_day", epsilon=0.05)
    table = json.loads((tmp_path / "c" / "rollout_sample_metrics.json").read_text())
    for sample in samples_of(tmp_path / "c"):
        m = sample.meta.metrics
        assert table[sample.meta.sample_id] == m
        rewards = sample.rewards.astype(np.float64)
        assert m["reward_sum"] == pytest.approx(rewards.sum())
        assert sum(m["reward_terms"].values()) == pytest.approx(rewards.sum(), abs=1e-2)  # type: ignore[union-attr]
        assert m["episode_return"] == m["reward_sum"]
        assert m["log_prob_mean"] == pytest.approx(sample.log_probs.mean(), rel=1e-5)
        assert m["rivalry_max_max"] == sample.feature("rivalry_max").max()
        assert sum(m["rivalry_histogram"]) == m["action_total"] == m["timesteps"] == sample.steps  # type: ignore[arg-type]
        counts = np.array([m[f"action_{name}_count"] for name in sample.meta.action_names], float)
        assert counts.sum() == sample.steps
        share = counts[counts > 0] / counts.sum()
        assert m["action_entropy"] == pytest.approx(-(share * np.log(share)).sum())
        assert sum(m["wait_histogram"]) == m["wait_count"]  # type: ignore[arg-type]


# --- folders -------------------------------------------------------------------------------------------------------------


def test_capturing_twice_gives_identical_bytes_however_the_towns_are_grouped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"towns": 3, "ticks": 200, "epsilon": 0.2, "seed": 4}
    taken(tmp_path / "one", "town_day", **options)
    monkeypatch.setattr(capture_module, "BUFFER_BYTES", 1)
    taken(tmp_path / "two", "town_day", **options)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    names = set(contents(tmp_path / "one"))
    assert {"rollout_sample_manifest.json", "rollout_sample_metrics.json", "events.ndjson", "SHA256SUMS"} < names
    assert {f"rollout_sample_alice_{k:03d}.npz" for k in range(3)} < names
    files.check_sums(tmp_path / "one")


def test_a_group_of_towns_is_small_enough_to_be_written_when_a_signal_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_module, "GROUP_LIVES", 4)
    options, partial = CaptureOptions(towns=100, ticks=10), tmp_path / "c.partial"
    made = capture([load_config("kitchen_breakfast")], tmp_path / "c", options, stop=lambda: any(partial.glob("*.npz")))
    assert made.interrupted
    assert made.samples <= 4


def test_an_existing_folder_is_refused_or_moved_aside(tmp_path: Path) -> None:
    taken(tmp_path / "c", "observation_baseline")
    before = contents(tmp_path / "c")
    with pytest.raises(UsageError, match="already exists; choose another folder, or --overwrite"):
        taken(tmp_path / "c", "observation_baseline", ticks=100)
    assert contents(tmp_path / "c") == before
    taken(tmp_path / "c", "observation_baseline", ticks=100, overwrite=True)
    assert contents(tmp_path / "c.old-1") == before
    assert next(samples_of(tmp_path / "c")).steps == 10
    assert not (tmp_path / "c.partial").exists()


def test_a_full_disk_leaves_the_old_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken(tmp_path / "c", "observation_baseline")
    before = contents(tmp_path / "c")
    write = files.disk.write
    room = [60_000]

    def short(handle: int, data: Any) -> int:
        room[0] -= len(data)
        if room[0] < 0:
            raise OSError(28, "No space left on device")
        return write(handle, data)

    monkeypatch.setattr(files.disk, "write", short)
    with pytest.raises(StorageError, match="free some space"):
        taken(tmp_path / "c", "observation_baseline", overwrite=True, towns=4)
    assert contents(tmp_path / "c") == before
    assert not (tmp_path / "c.partial").exists()  # what was written so far does not go on filling the disk


def test_filters_keep_what_passes(tmp_path: Path) -> None:
    everything = taken(tmp_path / "all", "town_day", ticks=300)
    one = taken(tmp_path / "one", "town_day", ticks=300, keep=SampleFilter(agents=("alice", "bob")))
    assert (one.samples, one.dropped) == (2, everything.samples - 2)
    rewards = {s.meta.agent_id: float(s.rewards.sum(dtype="f8")) for s in samples_of(tmp_path / "all")}
    line = sorted(rewards.values())[3]
    kept, seen = filter_samples(tmp_path / "all", tmp_path / "best", SampleFilter(min_reward=line))
    assert (kept, seen) == (5, 8)
    assert {s.meta.agent_id for s in samples_of(tmp_path / "best")} == {name for name, r in rewards.items() if r >= line}
    assert validate(tmp_path / "best").ok
    for name, data in contents(tmp_path / "best").items():
        if name.endswith(".npz"):
            assert data == (tmp_path / "all" / name).read_bytes()
    for nothing in (SampleFilter(agents=("nobody",)), SampleFilter(scenarios=("x",)), SampleFilter(min_length=31)):
        with pytest.raises(UsageError, match="none of the 8 samples"):
            filter_samples(tmp_path / "all", tmp_path / "none", nothing)
    assert not (tmp_path / "none").exists()
    with pytest.raises(UsageError, match="no life passes the filters"):
        taken(tmp_path / "none", "town_day", ticks=100, keep=SampleFilter(agents=("nobody",)))


def test_appending_adds_new_towns_and_rotates_the_oldest_out(tmp_path: Path) -> None:
    first = taken(tmp_path / "c", "observation_baseline")
    taken(tmp_path / "c", "observation_baseline", append=True)
    ids = [s.meta.sample_id for s in samples_of(tmp_path / "c")]
    assert ids == [f"rollout_sample_{name}_{k:03d}" for k in (0, 1) for name in ("alice", "bob")]
    assert [s.meta.capture.town for s in samples_of(tmp_path / "c")] == [0, 0, 1, 1]
    result = taken(tmp_path / "c", "observation_baseline", append=True, max_bytes=first.bytes * 2)
    assert result.bytes <= first.bytes * 2
    assert result.dropped == 2
    assert [s.meta.capture.town for s in samples_of(tmp_path / "c")] == [1, 1, 2, 2]
    assert validate(tmp_path / "c").ok
    assert [path.name for path in tmp_path.iterdir()] == ["c"]  # what it had before is not kept twice
    assert stats(tmp_path / "c").bytes == result.bytes


def test_several_scenarios_share_one_manifest(tmp_path: Path) -> None:
    result = taken(tmp_path / "suite", *FOUNDING, ticks=60)
    assert set(result.scenarios) == set(FOUNDING)
    assert validate(tmp_path / "suite").ok
    assert all(validate(tmp_path / "suite" / name).ok for name in FOUNDING)
    drawn = stats(tmp_path / "suite")
    assert {sum(counts) for counts in drawn.histograms.values()} == {drawn.transitions}  # every decision, once
    dataset = ReplayDataset(ReplayDatasetConfig.from_capture_dir(tmp_path / "suite", streaming=True))
    assert len(dataset.metas) == result.samples == 11
    assert {meta.capture.scenario for meta in dataset.metas} == set(FOUNDING)
    with pytest.raises(UsageError, match="is named twice"):
        taken(tmp_path / "x", "town_day", "town_day")


def test_a_default_capture_holds_true_log_probabilities(tmp_path: Path) -> None:
    """The script's choice has 1 − ε + ε/n, every other of the n possible actions ε/n."""
    capture([load_config("town_day")], tmp_path / "c", CaptureOptions(ticks=400))
    for sample in samples_of(tmp_path / "c"):
        assert sample.meta.policy.epsilon == 0.05
        possible = sample.masks[: sample.steps].sum(axis=1)
        followed = sample.actions == sample.expert
        true = np.log(0.05 / possible + np.where(followed, 0.95, 0.0))
        assert np.allclose(sample.log_probs, true, atol=1e-6)
        assert (sample.log_probs[possible > 1] < 0.0).all()


def test_a_capture_by_a_network_holds_its_values(tmp_path: Path) -> None:
    config = load_config("town_day")
    network = untrained(tmp_path / "network", VectorTown(config, 1))
    capture([config], tmp_path / "c", CaptureOptions(ticks=100, policy=str(network)))
    for sample in samples_of(tmp_path / "c"):
        assert sample.meta.policy.values == "critic"
        assert (sample.values != 0.0).all()
        assert (sample.log_probs < 0.0).all()


def test_a_scenario_without_residents_gets_some_on_request(tmp_path: Path) -> None:
    config = load_config("observation_baseline")
    empty = config.model_copy(update={"scenario": config.scenario.model_copy(update={"residents": ()})})
    result = capture([empty], tmp_path / "c", CaptureOptions(ticks=50, auto_seed_agents=True))
    assert result.samples == 2
    assert seed_residents(config) is config


def test_a_capture_whose_writer_was_killed_before_the_old_one_was_gone_is_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has taken its place and carries the mark that says what is to be done with the one before."""
    out = tmp_path / "c"
    taken(out, "queue_conflict", ticks=50)
    monkeypatch.setattr(files, "_settle", lambda final: None)
    taken(out, "queue_conflict", ticks=50, append=True)
    assert (out / files.PUBLISHING).exists()
    assert validate(out).problems == []


def test_a_stop_leaves_a_valid_smaller_capture(tmp_path: Path) -> None:
    steps = [0]

    def progress(done: int, total: int) -> None:
        steps[0] = done

    stop: Callable[[], bool] = lambda: steps[0] >= 300  # noqa: E731
    result = capture([load_config("town_day")], tmp_path / "c", CaptureOptions(), progress=progress, stop=stop)
    assert result.interrupted
    assert result.ticks == 300
    assert validate(tmp_path / "c").ok
    assert {s.steps for s in samples_of(tmp_path / "c")} == {30}
    metrics = [s.meta.metrics["episode_return"] for s in samples_of(tmp_path / "c")]
    assert metrics == [None] * 8  # no life was seen to its end


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_with_its_code_and_a_whole_folder(
    tmp_path: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    act, made = PolicyRuntime.act, [0]

    def signalled(self: PolicyRuntime, vec: VectorTown) -> Decision:
        made[0] += 1
        if made[0] == 25:
            os.kill(os.getpid(), number)
        return act(self, vec)

    monkeypatch.setattr(PolicyRuntime, "act", signalled)
    with pytest.raises(SystemExit) as exit_:
        main(["capture", "town_day", "--output", str(tmp_path / "c"), "--json"])
    assert exit_.value.code == 128 + number
    told = capsys.readouterr()
    assert json.loads(told.out)["ticks"] == 250
    name = "Ctrl-C" if number == signal.SIGINT else number.name
    assert told.err.startswith(f"townlet: stopped by {name} after 250 of 1440 town-ticks")
    assert validate(tmp_path / "c").ok


def start(folder: Path) -> subprocess.Popen[str]:
    flags = ["--towns", "30", "--ticks", "200", "--overwrite", "--output", str(folder)]
    return subprocess.Popen([sys.executable, "-m", "townlet", "capture", "town_day", *flags], stdout=subprocess.PIPE, text=True)


def wait_for_a_sample(process: subprocess.Popen[str], folder: Path) -> None:
    while process.poll() is None and not any(folder.parent.glob("*.partial/*.npz")):
        time.sleep(0.005)


def kill_and_check(folder: Path, delays: list[float]) -> int:
    """Kill a capture over an existing one so long after its first sample; returns how often the new one had been published."""
    published = 0
    for delay in delays:
        before, aside = contents(folder), len(list(folder.parent.glob("*.old-*")))
        process = start(folder)
        wait_for_a_sample(process, folder)
        time.sleep(delay)
        process.kill()
        process.communicate()
        after = contents(folder)
        assert validate(folder).ok
        assert after == before or len(list(samples_of(folder))) == 240
        published += len(list(folder.parent.glob("*.old-*"))) > aside  # the same capture twice has the same bytes
    return published


def test_killed_at_any_moment_it_leaves_the_old_folder_or_a_whole_new_one(tmp_path: Path) -> None:
    taken(tmp_path / "c", "town_day", ticks=50)
    kill_and_check(tmp_path / "c", [0.05])
    process = start(tmp_path / "c")
    process.communicate()
    assert process.returncode == 0
    assert len(list(samples_of(tmp_path / "c"))) == 240
    assert not (tmp_path / "c.partial").exists()
    assert len(list(samples_of(tmp_path / "c.old-1"))) == 8


@pytest.mark.slow
def test_killed_at_forty_moments(tmp_path: Path) -> None:
    taken(tmp_path / "c", "town_day", ticks=50)
    process = start(tmp_path / "timed" / "c")
    wait_for_a_sample(process, tmp_path / "timed" / "c")
    begin = time.monotonic()
    process.communicate()
    whole = time.monotonic() - begin  # from the first sample to the end, on this machine as busy as it is
    published = kill_and_check(tmp_path / "c", np.linspace(0.0, 1.5 * whole, 40).tolist())
    assert 0 < published < 40


# --- goldens -------------------------------------------------------------------------------------------------------------


def test_the_founding_scenarios_agree_with_their_goldens() -> None:
    assert compare_goldens(SAMPLES) == []


def test_goldens_say_what_the_scenarios_promise() -> None:
    found = json.loads((SAMPLES / "rollout_scenario_stats.json").read_text())["scenarios"]
    assert set(found) == set(FOUNDING)
    assert all(entry["totals"]["samples"] >= 2 for entry in found.values())
    assert found["queue_conflict"]["totals"]["queue_conflict_events"] > 0
    assert found["queue_conflict"]["totals"]["rivalry_max_max"] > 0.7
    assert found["observation_baseline"]["totals"]["queue_conflict_events"] == 0
    assert found["kitchen_breakfast"]["totals"]["queue_conflict_events"] == 0


def test_a_difference_from_a_golden_is_readable() -> None:
    wanted = {"queue_conflict": {"samples": {"ana": {"reward_sum": 10.0, "wait_count": 3}}, "ticks": 480}}
    found = {"queue_conflict": {"samples": {"ana": {"reward_sum": 10.5, "wait_count": 3}, "bob": {}}, "ticks": 480}}
    assert differences(wanted, found) == [
        "queue_conflict / samples / bob: is new",
        "queue_conflict / samples / ana / reward_sum: was 10.0, is 10.5 (allowed ±0.001)",
    ]
    named = {"rivalry_decay": {"totals": {"wait_sum": 1.0}}}
    assert differences(named, {"rivalry_decay": {"totals": {"wait_sum": 1.00001}}}) == [
        "rivalry_decay / totals / wait_sum: was 1.0, is 1.00001"
    ]
    close = {"queue_conflict": {"samples": {"ana": {"reward_sum": 10.001, "wait_count": 4}}, "ticks": 480}}
    assert differences(wanted, close) == ["queue_conflict / samples / ana / wait_count: was 3, is 4"]


def test_the_shipped_samples_are_sound_and_differ_in_rivalry() -> None:
    assert validate(SAMPLES / "replay_manifest.json").ok
    (batch,) = ReplayDataset(ReplayDatasetConfig.from_manifest(SAMPLES / "replay_manifest.json"))
    names = [meta.sample_id.removeprefix("observation_hybrid_sample_") for meta in batch.metadata]
    assert sorted(names) == ["base", "conflict_high", "conflict_low"]
    column = batch.metadata[0].feature_names.index("rivalry_max")
    rivalry = dict(zip(names, batch.features[: batch.steps, :, column].mean(axis=0).tolist()))
    assert rivalry["conflict_low"] < rivalry["base"] < rivalry["conflict_high"]
    assert rivalry["conflict_high"] > 0.7
    assert (batch.log_probs < 0).any()


def test_the_shipped_conflict_events_have_intensity_reason_and_queue_length() -> None:
    events = list(read_event_records(SAMPLES / "queue_conflict_events.ndjson"))
    assert len(events) >= 10
    for event in events:
        assert event["type"] == "queue_conflict"
        assert event["reason"] in ("blocked", "overtaken", "ghost_step")
        assert 0.1 <= event["intensity"] <= 5.0
        assert event["queue_length"] >= 0
        assert event["actor"] != event["rival"]
        assert 0.0 <= event["rivalry_before"] <= event["rivalry_after"] <= 1.0
