"""Files made to hurt: refused in one sentence, before anything large is read, hashed or built."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from scorecards import checkpoint_folder
from townlet import files
from townlet.cli.app import app
from townlet.config.base import DAY
from townlet.config.loader import config_of_text, load_config
from townlet.envs.vector import VectorTown
from townlet.errors import TownletError
from townlet.evaluation.compare import load_scorecard
from townlet.npz import npz_bytes, read_npz
from townlet.policy.checkpoint import load_checkpoint
from townlet.policy.inference import NumpyPolicy
from townlet.policy.network import NetworkSpec
from townlet.policy.training.anneal import Tracker
from townlet.policy.training.run_folder import RunFolder
from townlet.sim.snapshot import load_snapshot
from townlet.telemetry.alarm_rules import read_rules
from townlet.telemetry.example import example_record
from townlet.telemetry.ndjson import TelemetryWriter, read_records
from townlet.telemetry.summary import summarise
from townlet.telemetry.validate import validate_log
from townlet.telemetry.watch import Watch, watch_log
from townlet.world.rules import money
from townlet.world.state import RESIDENT

HOLES = 3 << 30
DEEP = "[" * 200_000 + "\n"


def holes(path: Path) -> None:
    with open(path, "wb") as stream:
        stream.truncate(HOLES)


def weights_of_holes(root: Path) -> None:
    checkpoint_folder(root / "c", "x")
    holes(root / "c" / "weights.safetensors")
    load_checkpoint(root / "c")


def world_of_holes(root: Path) -> None:
    checkpoint_folder(root / "c", "x")
    holes(root / "c" / "world.npz")
    load_checkpoint(root / "c")


def weights_that_claim_more(root: Path) -> None:
    checkpoint_folder(root / "c", "x")
    header = json.dumps({"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}).encode()
    (root / "c" / "weights.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    files.write_sums(root / "c")
    load_checkpoint(root / "c")


def snapshot_of_holes(root: Path) -> None:
    holes(root / "s.npz")
    load_snapshot(root / "s.npz")


def many_features(root: Path) -> None:
    checkpoint_folder(root / "c", "x")
    state = json.loads((root / "c" / "state.json").read_text())
    state["network"] = NetworkSpec(4, 4).to_json() | {"features": 1 << 31}
    (root / "c" / "state.json").write_text(json.dumps(state))
    files.write_sums(root / "c")
    NumpyPolicy.load(root / "c")


def anchors(root: Path) -> None:
    (root / "a.yaml").write_text("".join(f"k{n}: &a{n} x\n" for n in range(100_000)))
    load_config(root / "a.yaml")


def long_yaml(root: Path) -> None:
    (root / "a.yaml").write_bytes(b"a: " + b"x" * (5 << 20))
    load_config(root / "a.yaml")


def chain_of_extends(root: Path) -> None:
    for n in range(2_000):
        (root / f"c{n}.yaml").write_text(f"extends: c{n + 1}.yaml\n")
    load_config(root / "c0.yaml")


def deep_yaml(root: Path) -> None:
    (root / "a.yaml").write_text("a: " + "[" * 5_000)
    load_config(root / "a.yaml")


def pipe_for_rules(root: Path) -> None:
    os.mkfifo(root / "rules.yaml")
    read_rules(root / "rules.yaml")


def pipe_for_a_log(read: Callable[[Path], Any]) -> Callable[[Path], None]:
    def case(root: Path) -> None:
        os.mkfifo(root / "log.ndjson")
        read(root / "log.ndjson")

    return case


def long_line(read: Callable[[Path], Any]) -> Callable[[Path], None]:
    def case(root: Path) -> None:
        (root / "log.ndjson").write_bytes(b'{"telemetry_version": 1.4, "x": "' + b"x" * (20 << 20))
        read(root / "log.ndjson")

    return case


def long_line_at_resume(root: Path) -> None:
    with open(root / "log.ndjson", "wb") as stream:
        stream.truncate(200 << 20)
    with TelemetryWriter(root / "log.ndjson") as log:
        log.rewind({"rotation": 0, "byte": 100, "offset": 3, "epochs": 3, "records_dropped": 0})


def deep(name: str, read: Callable[[Path], Any]) -> Callable[[Path], None]:
    def case(root: Path) -> None:
        (root / "run.json").write_text("{}")
        (root / name).write_text(DEEP)
        read(root)

    return case


CASES: dict[str, Callable[[Path], Any]] = {
    "weights of holes": weights_of_holes,
    "world of holes": world_of_holes,
    "weights that claim more": weights_that_claim_more,
    "snapshot of holes": snapshot_of_holes,
    "2^31 features": many_features,
    "100,000 anchors": anchors,
    "a long YAML": long_yaml,
    "2,000 extends": chain_of_extends,
    "deep YAML": deep_yaml,
    "pipe for rules": pipe_for_rules,
    "pipe for a log": pipe_for_a_log(lambda path: list(read_records(path))),
    "pipe for a watched log": pipe_for_a_log(lambda path: list(watch_log(path, Watch([]), follow=False))),
    "pipe for a written log": pipe_for_a_log(lambda path: files.AppendLog(path)),
    "long line": long_line(lambda path: summarise(path)),
    "200 MB at resume": long_line_at_resume,
    "deep run.json": deep("run.json", lambda root: RunFolder(root).card()),
    "deep anneal.json": deep("anneal.json", Tracker.read),
    "deep scorecard": deep("card.json", lambda root: load_scorecard(root / "card.json")),
    "deep log": deep("log.ndjson", lambda root: list(read_records(root / "log.ndjson"))),
}


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_file_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    with pytest.raises(TownletError) as refused:
        CASES[name](tmp_path)
    assert 10 < len(str(refused.value)) < 800


def test_a_deep_log_is_a_finding_of_the_validator(tmp_path: Path) -> None:
    (tmp_path / "log.ndjson").write_text(DEEP)
    assert not validate_log(tmp_path / "log.ndjson").ok


def test_an_array_of_holes_between_sound_ends_is_read_no_further_than_its_directory_says(tmp_path: Path) -> None:
    data = npz_bytes({"a": np.zeros(3)})
    with open(tmp_path / "a.npz", "wb") as stream:
        stream.write(data[:-22])
        stream.truncate(1 << 20)
        stream.seek(0, os.SEEK_END)
        stream.write(data[-22:])
    with pytest.raises(TownletError, match="not a sound"):
        read_npz(tmp_path / "a.npz", limit=1 << 30)


def numbers(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where a config has a number, or could have one; of a list, the first entry."""
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value[:1]):
            yield from numbers(part, (*path, key))
    elif value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        yield path


@pytest.mark.parametrize("number", [10**9, 1 << 31, (1 << 63) - 1, 1 << 63, 10**30, 1e39])
def test_a_number_of_any_size_anywhere_in_a_config_is_refused_or_gives_a_town(number: float) -> None:
    tree = load_config("kitchen_breakfast").model_dump(mode="json")
    places, refused = list(numbers(tree)), 0
    for place in places:
        changed = copy.deepcopy(tree)
        part = reduce(lambda part, key: part[key], place[:-1], changed)
        part[place[-1]] = number
        try:
            VectorTown(config_of_text(json.dumps(changed)), 1)
        except TownletError:
            refused += 1
    assert 100 < refused < len(places)


def test_a_wallet_holds_the_highest_wage_of_a_year() -> None:
    highest = load_config("town_day", ["jobs.clerk.wage=0.4"]).jobs["clerk"].wage
    assert money(highest) * 365 * DAY + money(1000) <= np.iinfo(RESIDENT["wallet"]).max
    with pytest.raises(TownletError, match=r"jobs.clerk.wage is 0.41; expected less than or equal to 0.4"):
        load_config("town_day", ["jobs.clerk.wage=0.41"])


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_hostile_file_costs_a_second_and_256_mb_at_most(name: str, tmp_path: Path) -> None:
    code = (
        "import resource, sys, time; sys.path.insert(0, 'tests'); from pathlib import Path; import test_hostile as t\n"
        "before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()\n"
        f"try: t.CASES[{name!r}](Path({str(tmp_path)!r}))\nexcept t.TownletError: pass\n"
        "print(time.process_time() - began, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    seconds, megabytes = map(float, done.stdout.split())
    assert seconds <= 1.0
    assert megabytes <= 256


@pytest.mark.parametrize(
    "words",
    [
        ("config", "show", "{folder}/town.yaml"),
        ("evaluate", "{folder}/loop"),
        ("observe", "{folder}/loop/latest", "--save", "{folder}/page.html"),
        ("telemetry", "export", "{log}", "--format", "csv", "--output", "{folder}/loop"),
        ("train", "town_day", "--mode", "rollout", "--run-dir", "{folder}/run", "--ppo-log", "{folder}/loop/log"),
    ],
)
def test_a_loop_of_links_is_told_in_a_sentence(words: tuple[str, ...], tmp_path: Path) -> None:
    """The library that follows links gave up with an error of its own."""
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "town.yaml").write_text("extends: loop.yaml\n")
    log = tmp_path / "ppo.ndjson"
    log.write_text(json.dumps(example_record(1)) + "\n")
    done = CliRunner().invoke(app, [word.format(folder=tmp_path, log=log) for word in words])
    assert isinstance(done.exception, TownletError), done.exception
