"""`townlet observe`: what can be opened, what is printed, how it ends."""

from __future__ import annotations

import base64
import json
import re
import signal
import socket
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from checkpoints import untrained, write_run

pytest.importorskip("starlette")

from townlet.cli.observe import futures, observe, open_observatory
from townlet.config import load_config
from townlet.envs.vector import VectorTown
from townlet.errors import TownletError, UsageError
from townlet.observer.take import write_take
from townlet.policy.runtime import make_policy
from townlet.sim.loop import SimulationLoop
from townlet.sim.snapshot import save_snapshot, take_snapshot


def test_scenarios_takes_and_snapshots_open(tmp_path: Path) -> None:
    first = open_observatory("queue_conflict", tmp_path, seed=3, vs="random")
    take, vs = (first.studio.known(str(first.open[name])) for name in ("take", "vs"))
    assert (take.take.seed, take.take.policy, vs.take.policy, vs.take.seed) == (3, "scripted", "random", 3)
    write_take(tmp_path / "a.take", take.take)
    assert open_observatory(str(tmp_path / "a.take"), tmp_path).open["take"] == take.take.id
    vec = VectorTown("queue_conflict", 1, seed=5)
    SimulationLoop(vec, make_policy("scripted", vec)).run(40)
    save_snapshot(take_snapshot(vec), tmp_path / "s.npz")
    opened = open_observatory(str(tmp_path / "s.npz"), tmp_path)
    header = opened.studio.known(str(opened.open["take"])).header
    assert header["first"] == 40
    assert header["first"] + header["ticks"] == load_config("queue_conflict").scenario.episode_ticks
    assert opened.studio.reel(header["id"], 0)


def test_a_run_opens_with_its_best_checkpoint_beside_the_script(tmp_path: Path) -> None:
    config = load_config("town_day")
    run = tmp_path / "demo"
    untrained(run / "checkpoints" / "000003", VectorTown(config, 1))
    write_run(run, config)
    (run / "checkpoints" / "latest").write_text("000003\n")
    opened = open_observatory(str(run), tmp_path / "elsewhere", vs="scripted")
    take = opened.studio.known(str(opened.open["take"]))
    assert take.title.endswith(", trained demo")
    (row,) = opened.library.runs()
    assert opened.open["run"] == row["id"]
    (point,) = row["checkpoints"]
    assert point["policy"] == take.take.policy
    again = open_observatory("town_day", tmp_path)  # a page that names the weights finds them among the runs
    known = again.studio.branch(str(again.open["take"]), [], policy=point["policy"])
    assert known.take.policy == point["policy"]
    inside = open_observatory(str(run / "checkpoints" / "000003"), tmp_path)
    assert inside.studio.known(str(inside.open["take"])).take.id == take.take.id


@pytest.mark.parametrize("what", ["atlantis", "nothing.take", "nothing.npz", "/nonexistent/run"])
def test_what_cannot_be_opened_is_a_sentence(what: str, tmp_path: Path) -> None:
    with pytest.raises(TownletError):
        open_observatory(what, tmp_path)
    with pytest.raises(TownletError, match="there is no policy 'nobody'"):
        open_observatory("queue_conflict", tmp_path, policy="nobody")


def test_futures_of_a_moment_are_those_of_fork(tmp_path: Path) -> None:
    opened = open_observatory("queue_conflict", tmp_path, seed=3)
    found = futures(opened.studio, str(opened.open["take"]), 25, ["perturb blackout 20"], 2)
    assert (found["tick"], found["futures"], found["edits"]) == (20, 2, ["perturb blackout 20"])
    with pytest.raises(UsageError, match="forced in a take"):
        futures(opened.studio, str(opened.open["take"]), 25, ["force alice home"], 2)
    with pytest.raises(UsageError):
        futures(opened.studio, str(opened.open["take"]), 10**7, [], 2)


def test_a_town_is_saved_as_one_file(tmp_path: Path) -> None:
    file = tmp_path / "town.html"
    words = ["queue_conflict", "--vs", "random", "--save", str(file), "--runs", str(tmp_path), "--no-engine"]
    assert CliRunner().invoke(observe, words).exit_code == 0
    text = file.read_text()
    film = re.search(r'id="film">([A-Za-z0-9+/=]+)<', text)
    assert film is not None
    parts = json.loads(zlib.decompress(base64.b64decode(film[1])))
    first, second = parts["takes"]
    assert parts["open"]["take"] == first["header"]["id"]
    assert parts["open"]["vs"] == second["header"]["id"]
    assert len(first["reels"]) == first["header"]["reels"]
    assert first["divergence"][second["header"]["id"]]["tick"] is not None
    assert first["why"]["0/0"]["sentence"]
    again = CliRunner().invoke(observe, ["queue_conflict", "--save", str(file)])
    assert isinstance(again.exception, UsageError)


def test_a_page_that_no_browser_would_open_is_refused(tmp_path: Path) -> None:
    saved = CliRunner().invoke(observe, ["queue_conflict", "--save", str(tmp_path / "town")])
    assert str(saved.exception) == f"{tmp_path / 'town'} is not a page; name it {tmp_path / 'town.html'}"


def test_the_command_prints_two_addresses_and_ends_with_a_signal(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "townlet", "observe", "queue_conflict", "--no-open", "--runs", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        title, act, watch = (process.stdout.readline().strip() for _ in range(3))
        assert title.startswith("queue_conflict")
        assert act.startswith("open ")
        assert watch.startswith("watch only ")
        assert act.split("token=")[1] != watch.split("token=")[1]
        address = watch.split()[-1]
        port = int(address.split(":")[2].split("/")[0])
        with socket.create_connection(("127.0.0.1", port), timeout=30) as line:
            line.sendall(
                f"GET /?{address.split('?')[1]} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode()
            )
            assert b" 303 " in line.recv(200)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
