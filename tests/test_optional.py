"""Which optional packages are there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from places import ROOT
from townlet.optional import installed
from townlet.telemetry.example import example_record


def test_a_folder_that_is_called_as_a_package_is_not_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "package_of_nobody").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not installed("package_of_nobody")
    (tmp_path / "package_of_nobody" / "__init__.py").touch()
    assert installed("package_of_nobody")


HIDDEN = """
import sys
from importlib.machinery import PathFinder
from townlet.optional import EXTRA_OF
find, hidden = PathFinder.find_spec, {*EXTRA_OF, "wandb", "mlflow"}
PathFinder.find_spec = lambda name, *more: None if name.partition(".")[0] in hidden else find(name, *more)
from townlet.cli.app import main
main()
"""
LOG = str(ROOT / "docs" / "samples" / "ppo_telemetry_v1_4.jsonl")
SAMPLES = str(ROOT / "docs" / "samples" / "replay_manifest.json")


def bare(*words: str, place: Path) -> subprocess.CompletedProcess[str]:
    """A command where no optional package is installed."""
    return subprocess.run([sys.executable, "-c", HIDDEN, *words], capture_output=True, text=True, cwd=place, timeout=600)


@pytest.mark.parametrize(
    "words",
    [
        "run queue_conflict --ticks 20 --render a.png",
        "observe queue_conflict --set scenario.episode_ticks=60 --no-engine --save town.html",
        f"replay stats {SAMPLES}",
        f"telemetry plot {LOG}",
        f"telemetry export {LOG} --format csv --output a.csv",
        f"telemetry export {LOG} --format prometheus --output a.prom",
    ],
)
def test_without_any_optional_package_this_works(words: str, tmp_path: Path) -> None:
    done = bare(*words.split(), place=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "package"),
    [
        ("train town_day", "townlet[ml]"),
        ("ablate town_day --blind conflict --seeds 1", "townlet[ml]"),
        ("observe town_day --no-open", "townlet[observer]"),
        (f"telemetry plot {LOG} --output a.png", "townlet[plot]"),
        (f"telemetry export {LOG} --format tensorboard --output a", "townlet[data]"),
        (f"telemetry export {LOG} --format wandb --output a", "wandb"),
        (f"replay export {SAMPLES} --format parquet --output a.parquet", "townlet[data]"),
        (f"replay export {SAMPLES} --format minari --output a", "townlet[data]"),
        (f"replay export {SAMPLES} --format vault --output a", "townlet[vault]"),
        ("run queue_conflict --towns 2 --engine ray", "townlet[dist]"),
    ],
)
def test_without_its_package_a_command_is_refused_in_one_sentence_with_the_line_that_installs_it(
    words: str, package: str, tmp_path: Path
) -> None:
    done = bare(*words.split(), place=tmp_path)
    assert done.returncode == 4, done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("townlet: ")]
    assert len(told) == 1
    assert re.search(rf"install it with: pip install '?{re.escape(package)}'?$", told[0])


def test_every_test_can_be_collected_without_torch() -> None:
    """`pytest --no-torch` runs the whole suite without it; here only that no file of tests imports it where it need not."""
    words = [sys.executable, "-m", "pytest", "--no-torch", "--collect-only", "-qq", "-p", "no:cacheprovider", "-p", "no:randomly"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.parametrize(
    ("variable", "words", "code", "told"),
    [
        ("NUMBA_NUM_THREADS=0", ("run", "town_day", "--ticks", "1"), 2, "Check the variables NUMBA_* of the environment"),
        ("MPLBACKEND=nonsense", ("telemetry", "plot", "log.ndjson", "-o", "x.png"), 4, "check its variables in the environment"),
    ],
)
def test_a_variable_that_a_library_refuses_is_told_in_a_sentence(
    variable: str, words: tuple[str, ...], code: int, told: str, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "log.ndjson").write_text(json.dumps(example_record(1)) + "\n")
    name, _, value = variable.partition("=")
    command = [sys.executable, "-m", "townlet", *words]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | {name: value}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
    assert told in done.stderr
