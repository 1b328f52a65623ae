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

from townlet.config import SimulationConfig
from townlet.errors import InterruptedRun, TownletError, UsageError
from townlet.policy.models import ConflictAwarePolicyNetwork
from townlet.policy.runner import TrainingHarness
from townlet.policy.training.contexts import RunOptions
from townlet.policy.training.pool import CollectorPool
from townlet.policy.training.session import network_spec, town_tables
from townlet.policy.workers import LocalWorker, ProcessWorker, WorkerDied
from townlet.telemetry.ndjson import read_records

pytest.importorskip("torch")

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


class Acting:
    def __init__(self, config: SimulationConfig) -> None:
        self.network = ConflictAwarePolicyNetwork(network_spec(config), 3)


def pool_of(config: SimulationConfig) -> CollectorPool:
    return CollectorPool(config, network_spec(config), town_tables(config)[1])


@pytest.mark.slow
def test_processes_and_this_process_collect_the_same_and_a_dead_one_is_made_good(small_town: Small) -> None:
    here = small_town("training.towns=5", "training.workers=2")
    there = small_town("training.towns=5", "training.workers=2", "training.engine=process")
    actor = Acting(here)
    local, processes = pool_of(here), pool_of(there)
    options = {"ask_script": True, "scripted_share": 0.3, "epsilon": 0.05}
    first = [pool.collect(actor, 4, **options) for pool in (local, processes)]
    assert first[0].features.shape[:3] == (5, 5, 8)
    os.kill(processes._workers[0].process.pid, signal.SIGKILL)  # type: ignore[attr-defined]
    second = [pool.collect(actor, 4, **options) for pool in (local, processes)]
    for ours, theirs in (first, second):
        for name in ("features", "masks", "actions", "log_probs", "values", "rewards", "expert", "scripted"):
            assert vars(ours)[name].tobytes() == vars(theirs)[name].tobytes(), name
        assert ours.tally.record() == theirs.tally.record()
    assert {n: a.tobytes() for n, a in local.world().items()} == {n: a.tobytes() for n, a in processes.world().items()}
    assert not np.array_equal(first[0].features, second[0].features)
    local.close()
    processes.close()


def test_training_with_workers_resumes_bit_for_bit(small_town: Small, stop_after: Any, tmp_path: Path) -> None:
    config = small_town("training.towns=4", "training.workers=2")
    whole = TrainingHarness(config).run_ppo(mode="rollout", options=RunOptions(epochs=3, run_dir=tmp_path / "whole"))
    with pytest.raises(InterruptedRun):
        TrainingHarness(config, progress=stop_after(2)).run("rollout", RunOptions(epochs=3, run_dir=tmp_path / "parts"))
    parts = TrainingHarness(config).run_ppo(mode="rollout", options=RunOptions(epochs=3, run_dir=tmp_path / "parts", resume=True))
    assert parts.weights_hash == whole.weights_hash
    hashes = [[r["policy_hash"] for r in read_records(tmp_path / name / "ppo.ndjson")] for name in ("whole", "parts")]
    assert hashes[0] == hashes[1]


def test_more_workers_than_towns_and_an_engine_that_is_not_there_are_refused(small_town: Small) -> None:
    with pytest.raises(UsageError, match="give each at least one"):
        TrainingHarness(small_town("training.workers=3")).run("rollout")
    with pytest.raises(UsageError, match="use local or process"):
        TrainingHarness(small_town("training.engine=ray")).run("rollout")
