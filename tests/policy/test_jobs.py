"""Jobs spread over workers: in order, again after a death, failures in words; many towns, each the one it is alone."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from townlet.cli.app import main
from townlet.config import load_config
from townlet.config.learning import TrainingConfig
from townlet.envs.vector import VectorTown
from townlet.errors import ClusterError, TownletError, UsageError
from townlet.policy import ray_engine
from townlet.policy.jobs import run_jobs
from townlet.policy.many_towns import ManyTowns, Spread, simulate_towns
from townlet.policy.runtime import make_policy
from townlet.policy.workers import LocalEngine, WorkerDied
from townlet.sim.loop import SimulationLoop

HERE, PROCESSES = TrainingConfig(), TrainingConfig(engine="process", workers=2)


def doubled(base: int, number: int) -> int:
    time.sleep(0.2 if number == 0 else 0.0)  # the first is the last to end
    return base + 2 * number


def die_once(mark: str) -> str:
    if not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done again"


def refuse(kind: type[BaseException]) -> None:
    raise kind("in words")


def command(words: list[str]) -> int | str | None:
    with pytest.raises(SystemExit) as found:
        main(words)
    return found.value.code


@pytest.mark.parametrize("where", [HERE, PROCESSES], ids=["here", "processes"])
def test_jobs_come_back_in_order_with_what_they_share(where: TrainingConfig) -> None:
    begun: list[int] = []
    done = list(run_jobs(where, doubled, [(number,) for number in range(5)], shared=(100,), begun=begun.append))
    assert [(one.number, one.get()) for one in done] == [(number, 100 + 2 * number) for number in range(5)]
    assert begun == [0, 1, 2, 3, 4]
    assert list(run_jobs(where, doubled, [])) == []


def test_a_job_whose_worker_died_is_done_again_and_a_failure_is_told_with_its_exit_code(tmp_path: Path) -> None:
    (again,) = run_jobs(PROCESSES, die_once, [(str(tmp_path / "mark"),)])
    assert again.get() == "done again"
    said, broken = run_jobs(PROCESSES, refuse, [(UsageError,), (KeyError,)])
    assert (str(said.error), said.error and said.error.exit_code) == ("in words", 2)
    assert broken.error is not None
    assert "KeyError: 'in words'" in str(broken.error)
    with pytest.raises(TownletError, match="in words"):
        said.get()
    (lost,) = run_jobs(PROCESSES, os.abort, [()])
    assert isinstance(lost.error, WorkerDied)


def test_after_a_stop_no_more_jobs_come() -> None:
    taken: list[int] = []
    for done in run_jobs(HERE, doubled, [(number,) for number in range(9)], shared=(0,), stop=lambda: len(taken) >= 2):
        taken.append(done.number)
    assert taken == [0, 1]


def test_each_of_many_towns_is_the_one_it_is_alone() -> None:
    config = load_config("town_day")
    rows = list(simulate_towns(HERE, config, range(4, 7), policy="scripted", ticks=120))
    for row in rows:
        alone = VectorTown(config, 1, first_town=row["town"])
        SimulationLoop(alone, make_policy("scripted", alone, seed=alone.seed)).run(120)
        assert alone.digest() == row["digest"]
    assert len({row["digest"] for row in rows}) == 3
    sums = ManyTowns()
    for row in rows:
        sums.add(row)
    told = sums.summary(2.0)
    assert (told["towns"], told["residents"], told["resident_ticks_per_second"]) == (3, 24, 120 * 24 / 2.0)
    assert told["per_resident_day"]["uses"]["mean"] == pytest.approx(sum(row["uses"] for row in rows) / 24 * 1440 / 120)


def test_the_command_runs_the_same_town_alone_and_among_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        command(["run", "--scenario", "town_day", "--towns", "2", "--ticks", "60", "--digests", str(tmp_path / "d.ndjson")]) == 0
    )
    assert "2 towns, 16 residents" in capsys.readouterr().out
    assert command(["run", "town_day", "--town", "1", "--ticks", "60", "--json"]) == 0
    digest = capsys.readouterr().out.partition('"digest": "')[2][:64]
    assert f'{{"town": 1, "digest": "{digest}"}}' in (tmp_path / "d.ndjson").read_text()
    assert command(["run", "town_day", "--towns", "2", "--render", str(tmp_path / "x.png")]) == 2
    assert "--render is for one town" in capsys.readouterr().err
    assert command(["run"]) == 2


def test_mean_and_deviation_of_a_stream() -> None:
    """2, 4, 9: mean 5, squares 9 + 1 + 16 = 26, so a deviation of √13."""
    spread = Spread()
    for value in (2.0, 4.0, 9.0):
        spread.add(value)
    assert spread.summary() == pytest.approx({"mean": 5.0, "deviation": 13**0.5, "least": 2.0, "most": 9.0})


def test_without_ray_and_without_a_cluster_one_sentence_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("townlet.optional.find_spec", lambda name: None)
    assert command(["run", "town_day", "--towns", "2", "--engine", "ray"]) == 4
    assert "needs ray, which is not installed; install it with: pip install 'townlet[dist]'" in capsys.readouterr().err
    with pytest.raises(ClusterError, match=r"no Ray cluster answers at 127.0.0.1:1 .*start it, or name another") as found:
        ray_engine._knock("127.0.0.1:1")
    assert found.value.exit_code == 69
    with pytest.raises(ClusterError, match="expected HOST:PORT"):
        ray_engine._knock("somewhere")


def test_a_node_tells_what_it_has_in_other_versions() -> None:
    here = ray_engine._made_with()
    assert ray_engine._Actor().place(here)[2] == ""
    assert ray_engine._Actor().place(here | {"numpy": "0.1"})[2] == f"numpy {here['numpy']} there, 0.1 here"


def test_what_went_wrong_on_a_node_is_told_in_its_last_line() -> None:
    died = "The actor died because of an error, ray::_Actor.__init__() (pid=1)\n  File x\nImportError: no townlet here"
    assert ray_engine._why(OSError(died)) == "ImportError: no townlet here"
    assert ray_engine._why(OSError("The actor died unexpectedly. \n\tclass_name: _Actor")) == "The actor died unexpectedly"


def test_a_node_with_an_edited_tree_of_the_same_version_is_another() -> None:
    """It simulated other towns, without a word."""
    assert "there, edited here" in ray_engine._Actor().place(ray_engine._made_with() | {"sources": "edited"})[2]


@pytest.fixture
def doors() -> Iterator[dict[str, socket.socket]]:
    """Where the head and the node of this process listen."""
    with ExitStack() as opened:
        yield {name: opened.enter_context(socket.create_server(("127.0.0.1", 0))) for name in ("head", "node")}


@pytest.fixture
def watch(doors: dict[str, socket.socket]) -> ray_engine.ClusterWatch:
    head, node = (door.getsockname()[1] for door in doors.values())
    context = SimpleNamespace(gcs_address=f"127.0.0.1:{head}", get_node_id=lambda: "mine")
    nodes = [{"NodeID": name, "NodeManagerAddress": "127.0.0.1", "NodeManagerPort": node} for name in ("mine", "other")]
    return ray_engine.ClusterWatch(SimpleNamespace(get_runtime_context=lambda: context, nodes=lambda: nodes))


def test_a_lost_node_is_told_before_ray_ends_the_process_for_it(
    doors: dict[str, socket.socket], watch: ray_engine.ClusterWatch
) -> None:
    watch.look()
    doors["node"].close()
    with pytest.raises(ClusterError, match=rf"node of this process .*{watch.node}.* has ended; .*--resume") as found:
        watch.look()
    assert found.value.exit_code == 69


def test_a_head_may_be_silent_for_a_while(
    doors: dict[str, socket.socket], watch: ray_engine.ClusterWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = doors["head"].getsockname()
    doors["head"].close()
    watch.look()
    with socket.create_server(address):
        watch.look()
        monkeypatch.setattr(ray_engine, "GIVEN_UP", -1.0)
        watch.look()
    with pytest.raises(ClusterError, match=f"head of the Ray cluster at {watch.head} has not answered for"):
        watch.look()


class LostEngine(LocalEngine):
    """Its workers lose the cluster with their first job."""

    def worker(self, make: object, *args: object) -> Any:
        nothing = dict.fromkeys(("begin", "stop", "close"), lambda *asked: None)
        return SimpleNamespace(**nothing, ready=lambda timeout: True, result=self.lose)

    def lose(self) -> None:
        raise ClusterError("lost")


def test_a_lost_cluster_ends_all_jobs_and_fails_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("townlet.policy.jobs.ENGINES", {"local": LostEngine})
    with pytest.raises(ClusterError, match="lost"):
        next(run_jobs(HERE, doubled, [(0, 1), (0, 2)]))
