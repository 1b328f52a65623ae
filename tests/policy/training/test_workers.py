"""Rollout workers: the same bytes here and in processes, a worker that dies is replaced, resume stays exact."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from townlet.cli.app import main
from townlet.config import SimulationConfig
from townlet.errors import InterruptedRun, TownletError, UsageError
from townlet.policy import workers as where
from townlet.policy.runner import TrainingHarness
from townlet.policy.training.contexts import NoProgress, RunOptions
from townlet.policy.training.pool import CollectorPool
from townlet.policy.training.run_folder import RunFolder
from townlet.policy.workers import LocalWorker, ProcessWorker, WorkerDied, simulator_threads, worker_count
from townlet.telemetry.ndjson import read_records
from townlet.threads import MOST_THREADS

pytest.importorskip("torch")

from townlet.policy.training import epochs
from townlet.policy.training.collect import Collector
from townlet.policy.training.learner import PPOLearner
from townlet.policy.training.services import RolloutCaptureService
from townlet.policy.training.session import network_spec

Small = Callable[..., SimulationConfig]


@pytest.mark.parametrize("kind", [LocalWorker, ProcessWorker])
def test_a_worker_keeps_its_object(kind: Any) -> None:
    worker = kind(deque, (5, 7))
    worker.begin(deque.append, 7)
    assert worker.result() is None
    worker.begin(deque.count, 7)
    assert worker.result() == 2
    worker.close()


def test_a_failing_and_a_dying_worker_are_told_apart() -> None:
    worker = ProcessWorker(deque)
    worker.begin(deque.popleft)
    with pytest.raises(TownletError, match="pop from an empty deque"):
        worker.result()
    os.kill(worker.process.pid or 0, signal.SIGKILL)
    with pytest.raises(WorkerDied, match="in the middle"):
        worker.result()
    worker.close()


@pytest.mark.parametrize("words", ["training.workers=0", "training.workers=300", "training.threads=300"])
def test_a_machine_with_more_cores_than_threads_may_share_the_towns_trains(
    small_town: Small, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, "own_cores", lambda: 128)
    config = small_town(words)
    assert simulator_threads(config.training) == MOST_THREADS
    assert RolloutCaptureService(config).towns(2).threads == MOST_THREADS


def learner_for(config: SimulationConfig) -> PPOLearner:
    return PPOLearner(network_spec(config), config.ppo, seed=3)


def test_shares_of_the_towns_are_joined_as_one_collector_would_have_made_them(small_town: Small) -> None:
    """Columns, events, lives in the order they ended, and the world: however the towns are split."""
    config = small_town("training.towns=5", "training.workers=3", "training.episode_days=1")
    actor = learner_for(config)
    alone = Collector(RolloutCaptureService(config).towns(5, stagger=True), config.seed, maps=False)
    shared = CollectorPool(config, actor.spec)
    ended = 0
    for _ in range(2):
        ours, theirs = alone.collect(actor, 150), shared.collect(actor, 150)
        assert ours.columns().keys() == theirs.columns().keys()
        assert all(ours.columns()[name].tobytes() == array.tobytes() for name, array in theirs.columns().items())
        ended += len(ours.life_returns)
        for name in ("life_returns", "life_lengths", "life_ends"):
            assert vars(ours)[name] == vars(theirs)[name]
        assert (ours.tally.intensity, ours.tally.chat_quality) == (theirs.tally.intensity, theirs.tally.chat_quality)
        assert ours.tally.shifts_due() == theirs.tally.shifts_due()
    assert ended > 5
    here, there = alone.world(), shared.world()
    assert here.keys() == there.keys()
    assert all(here[name].tobytes() == there[name].tobytes() for name in here)
    assert shared.decision_bytes == alone.decision_bytes
    alone.collect(actor, 3)
    shared.restore_world(alone.world())
    assert shared.collect(actor, 4).features.tobytes() == alone.collect(actor, 4).features.tobytes()


def test_a_rollout_that_would_be_too_large_is_learned_from_in_chunks(small_town: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what an epoch takes is said before it starts, which changes nothing."""
    sizes: list[int] = []
    collect = Collector.collect

    def noted(self: Collector, network: Any, horizon: int, **options: Any) -> Any:
        sizes.append(horizon)
        return collect(self, network, horizon, **options)

    monkeypatch.setattr(Collector, "collect", noted)
    words = ("training.towns=8", "training.horizon=20", "training.eval_every=0")
    runs = []
    for large in (1e9, 0.0):
        monkeypatch.setattr(epochs, "LARGE", large)
        runs.append(TrainingHarness(small_town(*words)).run_ppo(mode="rollout", options=RunOptions(epochs=1)))
    assert runs[0].weights_hash == runs[1].weights_hash
    assert sizes == [20, 1, 2, 20]
    sizes.clear()
    said = Sayings()
    config = small_town(*words, "training.rollout_mb=1")
    chunked = TrainingHarness(config, progress=said).run_ppo(mode="rollout", options=RunOptions(epochs=1))
    assert sum(sizes[2:]) == 20
    assert max(sizes) < 20
    vec = RolloutCaptureService(config).towns(8)
    assert (max(sizes) + 1) * Collector(vec, 0, maps=False).decision_bytes <= 1e6
    assert chunked.transitions == runs[0].transitions
    assert "20 decisions of 64 residents, 2 chunk(s) of at most 1 MB" in said.sentences[0]


class Sayings(NoProgress):
    def __init__(self) -> None:
        self.sentences: list[str] = []

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)


@pytest.mark.slow
def test_processes_collect_what_one_collector_does_and_a_dead_one_is_made_good(small_town: Small) -> None:
    config = small_town("training.towns=5", "training.workers=2", "training.engine=process")
    actor = learner_for(config)
    towns = RolloutCaptureService(config).towns(5, stagger=True)
    alone, processes = Collector(towns, config.seed, maps=False), CollectorPool(config, actor.spec)
    options: dict[str, Any] = {"ask_script": True, "scripted_share": 0.3, "epsilon": 0.05}
    seen = []
    for turn in range(2):
        ours, theirs = alone.collect(actor, 4, **options), processes.collect(actor, 4, **options)
        assert ours.features.shape[:3] == (5, 5, 8)
        for name in ("features", "masks", "actions", "log_probs", "values", "rewards", "expert", "scripted"):
            assert vars(ours)[name].tobytes() == vars(theirs)[name].tobytes(), name
        assert ours.tally.by_kind() == theirs.tally.by_kind()
        seen.append(ours.features.copy())
        if turn == 0:
            os.kill(processes._workers[0].process.pid, signal.SIGKILL)  # type: ignore[attr-defined]
    assert not np.array_equal(seen[0], seen[1])
    processes.close()


def test_one_two_and_four_workers_train_the_same_weights(small_town: Small) -> None:
    """Collection, update and the periodic evaluation, by as many threads; the number of shards is what changes bits."""
    found = {}
    for workers, shards in ((1, 4), (2, 4), (4, 4), (2, 3)):
        words = (f"training.workers={workers}", f"training.shards={shards}", "training.towns=4", "training.eval_every=1")
        result = TrainingHarness(small_town(*words)).run_ppo(mode="rollout", options=RunOptions(epochs=2))
        found[workers, shards] = result.weights_hash, [point.model_dump() for point in result.evaluations]
    assert found[1, 4] == found[2, 4] == found[4, 4]
    assert found[2, 4][0] != found[2, 3][0]


def test_no_workers_are_all_cores(small_town: Small) -> None:
    assert worker_count(small_town("training.workers=0").training) == len(os.sched_getaffinity(0))
    assert worker_count(small_town("training.workers=3").training) == 3


def test_training_with_workers_resumes_bit_for_bit(small_town: Small, stop_after: Any, tmp_path: Path) -> None:
    config = small_town("training.towns=4", "training.workers=2")
    whole = TrainingHarness(config).run_ppo(mode="rollout", options=RunOptions(epochs=3, run_dir=tmp_path / "whole"))
    with pytest.raises(InterruptedRun):
        TrainingHarness(config, progress=stop_after(2)).run("rollout", RunOptions(epochs=3, run_dir=tmp_path / "parts"))
    parts = TrainingHarness(config).run_ppo(mode="rollout", options=RunOptions(epochs=3, run_dir=tmp_path / "parts", resume=True))
    assert parts.weights_hash == whole.weights_hash
    hashes = [[r["policy_hash"] for r in read_records(tmp_path / name / "ppo.ndjson")] for name in ("whole", "parts")]
    assert hashes[0] == hashes[1]


def test_a_run_may_be_resumed_with_another_engine(small_town: Small, stop_after: Any, tmp_path: Path) -> None:
    config = small_town("training.towns=4", "training.epochs=2")
    whole = TrainingHarness(config).run_ppo(mode="rollout", options=RunOptions(run_dir=tmp_path / "whole"))
    with pytest.raises(InterruptedRun):
        TrainingHarness(config, progress=stop_after(1)).run("rollout", RunOptions(run_dir=tmp_path / "parts"))
    with pytest.raises(SystemExit) as left:
        main(["train", "--resume", str(tmp_path / "parts"), "--engine", "process", "--workers", "2", "--no-plots"])
    assert not left.value.code
    assert RunFolder(tmp_path / "parts").summary().weights_hash == whole.weights_hash  # type: ignore[union-attr]
    with pytest.raises(SystemExit) as refused:
        main(["train", "--resume", str(tmp_path / "parts"), "--ppo-gamma", "0.5"])
    assert refused.value.code == 2


def test_more_workers_than_towns_and_an_engine_that_is_not_there_are_refused(small_town: Small) -> None:
    with pytest.raises(UsageError, match="give each at least one"):
        TrainingHarness(small_town("training.workers=3", "training.engine=process")).run("rollout")
    with pytest.raises(UsageError, match="not one of local, process, ray; did you mean process"):
        TrainingHarness(small_town("training.engine=proces")).run("rollout")
