"""On a Ray cluster of two nodes: what comes out is what comes out here, to the byte, whoever is killed on the way.

`make test-dist` runs these where Ray is installed; `benchmarks/ray_kills.py` kills far more often.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from townlet.config import SimulationConfig, load_config
from townlet.config.learning import TrainingConfig
from townlet.errors import ClusterError, TownletError

pytest.importorskip("torch")
pytest.importorskip("ray")

import ray
from ray.cluster_utils import Cluster

from townlet.evaluation.scorecard import evaluate
from townlet.evaluation.suites import Case
from townlet.policy import ray_engine
from townlet.policy.capture import CaptureOptions, capture
from townlet.policy.jobs import run_jobs
from townlet.policy.many_towns import simulate_towns
from townlet.policy.ray_engine import SETTINGS, RayEngine, RayWorker
from townlet.policy.runner import TrainingHarness
from townlet.policy.training.contexts import NoProgress, RunOptions
from townlet.policy.workers import WorkerDied
from townlet.studies.acceptance import OVERRIDES, accept
from townlet.studies.runner import finished, run_study
from townlet.studies.spec import StudySpec
from townlet.telemetry.ndjson import read_records
from townlet.telemetry.schema import volatile_names

pytestmark = [pytest.mark.dist, pytest.mark.filterwarnings("ignore"), pytest.mark.xdist_group("ray")]
Small = Callable[..., SimulationConfig]
WHERE = TrainingConfig(engine="ray", workers=2)
MOST = 300  # seconds per test, on a very busy machine
SECONDS = {"seconds", "training_seconds", "processor_seconds", "duration_sec"}
TOLD_APART = {*volatile_names(), *SECONDS, "steps_per_second", "memory_mb"}


@pytest.fixture(autouse=True)
def _bounded() -> Iterator[None]:
    """A cluster that answers nobody fails a test, and keeps nobody waiting."""

    def late(number: int, frame: object) -> None:
        raise TimeoutError(f"not done within {MOST} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(MOST)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    os.environ.update(SETTINGS)
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    found.add_node(num_cpus=2)
    ray.init(address=found.address, logging_level="error", log_to_driver=False)
    yield found
    ray.shutdown()
    found.shutdown()


def same(value: Any) -> Any:
    """Without what a clock or a place tells."""
    if isinstance(value, dict):
        return {name: same(part) for name, part in value.items() if name not in TOLD_APART}
    return [same(part) for part in value] if isinstance(value, list | tuple) else value


def outcome(run: Path) -> tuple[Any, ...]:
    """Weights, optimiser and world of the last checkpoint, byte for byte, and the log."""
    last = sorted(path for path in (run / "checkpoints").iterdir() if path.is_dir())[-1]
    names = ("weights.safetensors", "optimizer.safetensors", "world.npz")
    return *((last / name).read_bytes() for name in names), [same(record) for record in read_records(run / "ppo.ndjson")]


class Killer(NoProgress):
    """Progress that does something to the cluster after each epoch."""

    def __init__(self, *deeds: Callable[[], None]) -> None:
        self.deeds = list(deeds)

    def advance(self, figures: Any) -> None:
        if self.deeds:
            self.deeds.pop(0)()


@pytest.fixture
def pids(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Processes of the workers that were started, in order."""
    found: list[int] = []
    made = RayEngine.worker

    def worker(self: RayEngine, make: Any, *args: Any) -> RayWorker:
        new = made(self, make, *args)
        assert isinstance(new, RayWorker)
        with suppress(ray.exceptions.RayError):  # on a node that was just lost: whoever uses it finds out, and takes another
            found.append(ray.get(new.placed)[1])
        return new

    monkeypatch.setattr(RayEngine, "worker", worker)
    return found


def test_an_engine_in_a_running_cluster_leaves_the_environment_to_whoever_started_it(cluster: Cluster) -> None:
    """A node that is added later would otherwise ask for a token that nobody in the cluster has, and be asked for ever."""
    before = dict(os.environ)
    RayEngine(WHERE)
    assert dict(os.environ) == before


def test_a_training_is_the_local_one_though_workers_and_a_node_are_killed(
    small_town: Small, cluster: Cluster, pids: list[int], tmp_path: Path
) -> None:
    words = ("training.towns=6", "training.shards=4", "training.eval_every=2", "training.checkpoint_every=2")
    here = TrainingHarness(small_town(*words)).run_ppo(mode="rollout", options=RunOptions(epochs=5, run_dir=tmp_path / "here"))
    lost = cluster.add_node(num_cpus=1)
    killer = Killer(
        lambda: os.kill(pids[0], signal.SIGKILL),
        lambda: None,
        lambda: cluster.remove_node(lost, allow_graceful=False),
        lambda: os.kill(pids[-1], signal.SIGKILL),
    )
    config = small_town(*words, "training.engine=ray", "training.workers=3")
    there = TrainingHarness(config, progress=killer).run_ppo(
        mode="rollout", options=RunOptions(epochs=5, run_dir=tmp_path / "there")
    )
    assert not killer.deeds
    assert len(pids) >= 5  # three, and at least two that took the place of killed ones
    assert there.weights_hash == here.weights_hash
    assert outcome(tmp_path / "there") == outcome(tmp_path / "here")


def study(**changes: Any) -> StudySpec:
    tiny = ("training.towns=4", "training.horizon=6", "training.epochs=1", "training.eval_every=0", "training.checkpoint_every=1")
    arms = {"plain": (), "fast": ("ppo.learning_rate=0.01",)}
    fields = {"name": "tiny", "config": "queue_conflict", "mode": "rollout", "seeds": 2, "towns": 2, "days": None, "arms": arms}
    return StudySpec.model_validate({**fields, "overrides": tiny, **changes})


def test_a_study_with_a_killed_job_gives_the_results_of_a_local_one(cluster: Cluster, pids: list[int], tmp_path: Path) -> None:
    said: list[str] = []

    def say(words: str) -> None:
        said.append(words)
        if len(said) == 3:  # two jobs are under way
            os.kill(pids[0], signal.SIGKILL)

    run_study(study(), results=tmp_path / "r", runs=tmp_path / "runs", where=TrainingConfig(), say=str)
    run_study(study(), results=tmp_path / "s", runs=tmp_path / "others", where=WHERE, say=say)
    assert len(pids) >= 3
    here, there = ([same(json.loads(one.model_dump_json())) for one in finished(study(), tmp_path / name)] for name in ("r", "s"))
    assert len(there) == 4
    assert here == there
    assert len((tmp_path / "s" / "tiny.ndjson").read_text().splitlines()) == 4  # nothing twice


def test_a_capture_is_the_local_one(cluster: Cluster, tmp_path: Path) -> None:
    options = CaptureOptions(ticks=200, towns=5, policy="scripted", epsilon=0.05)
    here = capture([load_config("queue_conflict")], tmp_path / "here", options)
    there = capture([load_config("queue_conflict")], tmp_path / "there", options, where=WHERE)
    assert asdict(here) | {"folder": ""} == asdict(there) | {"folder": ""}
    names = sorted(path.name for path in (tmp_path / "here").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "there").iterdir())
    assert all((tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes() for name in names)


def test_a_scorecard_and_many_towns_are_the_local_ones(small_town: Small, cluster: Cluster, tmp_path: Path) -> None:
    trained = TrainingHarness(small_town("training.eval_every=0")).run_ppo(
        mode="rollout", options=RunOptions(epochs=1, run_dir=tmp_path / "run")
    )
    policies = {"script": "scripted", "trained": str(trained.checkpoint)}
    cases = [Case("day", "town_day", towns=2, days=1), Case("queue", "queue_conflict", towns=2, days=1)]
    here, there = (evaluate(policies, cases, looks=True, where=where).model_dump(mode="json") for where in (None, WHERE))
    assert same(here) == same(there)
    rows = [
        [
            (row["town"], row["digest"])
            for row in simulate_towns(where, load_config("town_day"), range(3, 6), policy="scripted", ticks=60)
        ]
        for where in (TrainingConfig(), WHERE)
    ]
    assert rows[0] == rows[1]


def test_acceptance_soaks_on_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    found = {}
    for name, where in (("here", None), ("there", WHERE)):
        result = accept(
            ["rivalry_decay"],
            cycles=1,
            artifacts=tmp_path / name,
            docs=tmp_path / f"docs_{name}",
            overrides=(*OVERRIDES, "training.towns=2", "training.horizon=6"),
            where=where,
            say=str,
        )
        found[name] = [[cycle.weights_after for cycle in soak.cycles] for soak in result.soaks]
        assert (tmp_path / name / "rivalry_decay" / "ppo_rivalry_decay.jsonl").is_file()
    assert found["here"] == found["there"]


def fail(kind: str) -> None:
    if kind == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    raise ClusterError("in words")


def test_a_job_that_fails_is_told_in_its_own_words_and_one_that_kills_its_worker_ends(cluster: Cluster) -> None:
    failed, died = run_jobs(WHERE, fail, [("speak",), ("die",)])
    assert isinstance(failed.error, TownletError)
    assert (str(failed.error), failed.error.exit_code) == ("in words", 69)
    assert isinstance(died.error, WorkerDied)


def test_a_stopped_training_saves_its_state(tmp_path: Path) -> None:
    """In a cluster of its own, started for the run: SIGTERM after an epoch, exit code 143, a checkpoint."""
    words = ["train", "town_day", "--mode", "rollout", "--engine", "ray", "--workers", "1", "--epochs", "100000"]
    words += ["--run-dir", str(tmp_path / "run"), "--set", "training.towns=2", "--set", "training.eval_every=0"]
    command = [sys.executable, "-m", "townlet", *words, "--ppo-log-frequency", "1"]
    run = subprocess.Popen(command, env=without_cluster(), stderr=subprocess.PIPE, text=True)
    log = tmp_path / "run" / "ppo.ndjson"
    try:
        while not (log.exists() and log.stat().st_size) and run.poll() is None:
            time.sleep(0.2)
        run.send_signal(signal.SIGTERM)
        said = run.communicate()[1]
    finally:
        run.kill()
    assert run.returncode == 143, said
    assert "the state is saved in" in said
    assert (tmp_path / "run" / "checkpoints" / "latest").is_file()


def test_a_node_with_other_versions_is_refused_and_ends_all_jobs(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    edited = ray_engine._made_with() | {"sources": "edited"}
    monkeypatch.setattr(ray_engine, "_made_with", lambda: edited)
    with pytest.raises(
        ClusterError, match=r"the node .* has other versions \(sources \w+ there, edited here\); install the same"
    ):
        list(run_jobs(WHERE, fail, [("speak",), ("speak",)]))


BEGUN = """
from townlet.cli.app import main
from townlet.policy import ray_engine

ray_engine.GIVEN_UP, ray_engine.SAY_AFTER, begin = 3.0, 1.0, ray_engine.RayWorker.begin
ray_engine.RayWorker.begin = lambda self, *asked: (begin(self, *asked), print("begun", flush=True))
main()
"""


def kin(process: int, *names: str) -> list[int]:
    """Processes of these names that a process has started, or those that it has started."""
    rows = [row.split() for row in subprocess.check_output(["ps", "-eo", "pid=,ppid=,comm="], text=True).splitlines()]
    found, known = [], {process}
    for pid, parent, *name in sorted(rows, key=lambda row: int(row[0])):
        if int(parent) in known:
            known.add(int(pid))
            found += [int(pid)] if " ".join(name).startswith(names) else []
    return found


def without_cluster() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        (("raylet",), "the node of this process"),
        (("gcs_server",), "the head of the Ray cluster"),
        (("gcs_server", "ray::_Actor"), "the head of the Ray cluster"),  # nobody can say where another worker could stand
    ],
)
def test_a_command_that_loses_its_cluster_says_so(lost: tuple[str, ...], words: str) -> None:
    """Ray itself would end it with exit code 1, without a word."""
    command = [sys.executable, "-c", BEGUN, "run", "town_day", "--towns", "100000", "--engine", "ray", "--workers", "1"]
    run = subprocess.Popen(command, env=without_cluster(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert run.stdout is not None
    try:
        assert run.stdout.readline() == "begun\n"
        while len(found := kin(run.pid, *lost)) < len(lost) and run.poll() is None:
            time.sleep(0.1)
        for process in found:
            os.kill(process, signal.SIGKILL)
        said = run.communicate()[1]
    finally:
        run.kill()
    assert run.returncode == 69, said
    assert f"townlet: {words}" in said
    assert "start it and run the command again" in said


LOSING = """
from townlet.cli.app import main
from townlet.policy import ray_engine
from townlet.policy.training.learner import PPOLearner

ray_engine.GIVEN_UP, update, updates = 0.0, PPOLearner.update, []

def losing(self, *given, **named):
    updates.append(0)
    if len(updates) == 4:
        print("now", flush=True)
        input()
    return update(self, *given, **named)

PPOLearner.update = losing
main()
"""


@pytest.mark.parametrize("lost", [("raylet",), ("gcs_server",), ("raylet", "gcs_server")])
def test_a_training_that_lost_its_cluster_in_an_update_goes_on_to_the_same_bytes(lost: tuple[str, ...], tmp_path: Path) -> None:
    """An update works on copies: Ray would end whoever frees what lies in the store of a lost node, with 1 and without a word."""
    words = ["training.towns=16", "training.eval_every=2", "training.eval_towns=2", "training.checkpoint_every=2"]
    settings = [part for word in words for part in ("--set", word)]
    common = ["train", "town_day", "--mode", "rollout", "--epochs", "6", "--no-plots", *settings, "--run-dir"]
    here, there = str(tmp_path / "here"), str(tmp_path / "there")
    subprocess.run([sys.executable, "-m", "townlet", *common, here], check=True, capture_output=True)
    command = [sys.executable, "-c", LOSING, *common, there, "--engine", "ray", "--workers", "2"]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    run = subprocess.Popen(command, env=without_cluster(), text=True, **pipes)
    assert run.stdout is not None
    try:
        assert run.stdout.readline() == "now\n"
        for process in kin(run.pid, *lost):
            os.kill(process, signal.SIGKILL)
        time.sleep(1.0)
        said = run.communicate("\n")[1]
    finally:
        run.kill()
    assert run.returncode == 69, said
    assert len(said.splitlines()[-1].split("townlet: ")) == 2
    assert "Traceback" not in said
    again = [sys.executable, "-m", "townlet", "train", "--resume", there, "--no-plots"]
    subprocess.run(again, check=True, capture_output=True, env=without_cluster())
    assert outcome(tmp_path / "there") == outcome(tmp_path / "here")
