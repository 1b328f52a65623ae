"""Townlet in a second virtual environment that has no torch: everything but training works there, and training says why not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from places import ROOT

READY = "TOWNLET_PYTHON_WITHOUT_TORCH"  # an interpreter with the base dependencies, to save the installation
Call = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Call:
    """Calls a Python without torch, in a folder of its own."""
    place = tmp_path_factory.mktemp("bare")
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    python = os.environ.get(READY, "")
    if python:
        environment["PYTHONPATH"] = str(ROOT / "src")
    else:
        venv.create(place / "venv", with_pip=True, system_site_packages=False)
        python = str(place / "venv" / "bin" / "python")
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(ROOT)]
        subprocess.run(install, check=True, env=environment, cwd=place)

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([python, *words], capture_output=True, text=True, env=environment, cwd=place, timeout=600)

    return call


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a network trained with torch, by the Python that runs the tests."""
    pytest.importorskip("torch")
    run = tmp_path_factory.mktemp("trained") / "run"
    small = ("--set", "training.bc.towns=2", "--set", "training.bc.epochs=1", "--set", "training.bc.batch_size=256")
    words = [sys.executable, "-m", "townlet", "train", "town_day", "--mode", "bc", "--run-dir", str(run), *small]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    subprocess.run(words, check=True, capture_output=True, env=environment)
    return run / "checkpoints" / "latest"


def test_there_is_no_torch_and_nothing_asks_for_it(bare: Call) -> None:
    words = (
        "import townlet, townlet.envs, townlet.policy.runner, importlib.util as u; print(townlet.__file__, u.find_spec('torch'))"
    )
    done = bare("-c", words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(" None\n")
    doctor = bare("-m", "townlet", "doctor")
    assert "pip install 'townlet[ml]'" in doctor.stdout


def test_capture_replay_and_validate(bare: Call) -> None:
    assert bare("-m", "townlet", "capture", "town_day", "--ticks", "100", "--output", "cap").returncode == 0
    assert bare("-m", "townlet", "replay", "validate", "cap").returncode == 0
    read = bare(str(ROOT / "scripts" / "run_training.py"), "town_day", "--capture-dir", "cap", "--json")
    assert read.returncode == 0, read.stderr
    assert json.loads(read.stdout)["samples"] == 8
    log = str(ROOT / "docs" / "samples" / "ppo_telemetry_v1_4.jsonl")
    assert bare("-m", "townlet", "telemetry", "validate", log).returncode == 0


def test_a_trained_network_acts_the_same_as_where_it_was_trained(bare: Call, trained: Path, tmp_path: Path) -> None:
    words = ("-m", "townlet", "capture", "town_day", "--ticks", "200", "--policy", str(trained), "--json", "--output")
    done = bare(*words, str(tmp_path / "bare"))
    assert done.returncode == 0, done.stderr
    here = [sys.executable, *words, str(tmp_path / "here")]
    subprocess.run(here, check=True, capture_output=True, env=os.environ | {"PYTHONPATH": str(ROOT / "src")})
    sums = [(tmp_path / place / "SHA256SUMS").read_text() for place in ("bare", "here")]
    assert sums[0] == sums[1]
    shown = bare("-m", "townlet", "run", "town_day", "--policy", str(trained), "--ticks", "50", "--json")
    assert shown.returncode == 0, shown.stderr


@pytest.mark.parametrize("mode", ["rollout", "bc", "anneal"])
def test_training_is_refused_with_the_line_that_installs_torch(bare: Call, mode: str, tmp_path: Path) -> None:
    done = bare("-m", "townlet", "train", "town_day", "--mode", mode, "--run-dir", str(tmp_path / "run"))
    assert done.returncode == 4, done.stderr
    assert "pip install 'townlet[ml]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_ppo_on_replay_data_is_refused_the_same_way(bare: Call) -> None:
    words = ("--train-ppo", "--replay-manifest", str(ROOT / "docs" / "samples" / "replay_manifest.json"))
    done = bare(str(ROOT / "scripts" / "run_training.py"), "town_day", *words)
    assert done.returncode == 4, done.stderr
    assert "pip install 'townlet[ml]'" in done.stderr
