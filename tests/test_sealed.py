"""A flipped bit in anything that is read back is seen, or means nothing; the file is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from faults import fault_tools as tools
from scorecards import duel
from townlet.cli.app import app
from townlet.errors import DamagedFileError, TelemetryError, TownletError
from townlet.evaluation.compare import load_scorecard, save_scorecard
from townlet.observer.report import read_run, render_report
from townlet.policy.checkpoint import resolve
from townlet.policy.training.run_folder import RunFolder
from townlet.policy.training.tracker import Tracker
from townlet.sealed import write_sealed
from townlet.telemetry.example import example_record
from townlet.telemetry.ndjson import TelemetryWriter, encode_record, read_records
from townlet.telemetry.validate import validate_log


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    place = tmp_path_factory.mktemp("sealed")
    tools.train("anneal")(place)
    save_scorecard(duel(1, towns=2), place / "scorecard.json")
    return place


def read_log(place: Path) -> Any:
    return list(read_records(place / "run" / "ppo.ndjson"))


READERS: dict[str, Callable[[Path], Any]] = {
    "run/run.json": lambda place: RunFolder(place / "run").card(),
    "run/environment.json": lambda place: RunFolder(place / "run").environment(),
    "run/summary.json": lambda place: RunFolder(place / "run").summary(),
    "run/config.json": lambda place: RunFolder(place / "run").resolved_config(),
    "run/anneal.json": lambda place: Tracker.read(place / "run"),
    "scorecard.json": lambda place: load_scorecard(place / "scorecard.json"),
    "run/ppo.ndjson": read_log,
    "run/ppo.ndjson.1": read_log,
}


def flips(path: Path, count: int) -> list[tuple[int, bytes]]:
    good = path.read_bytes()

    def flipped(bit: int) -> bytes:
        return good[: bit // 8] + bytes([good[bit // 8] ^ 1 << bit % 8]) + good[bit // 8 + 1 :]

    return [(bit, flipped(bit)) for bit in range(0, len(good) * 8, max(1, len(good) * 8 // count) | 1)]


def answer(read: Callable[[Path], Any], place: Path) -> tuple[Any, str]:
    """What is read, or the sentence that refuses it."""
    try:
        return read(place), ""
    except TownletError as error:
        return None, str(error)


@pytest.mark.parametrize("name", READERS)
def test_a_flipped_bit_is_seen_or_means_nothing(name: str, kept: Path) -> None:
    path, read = kept / name, READERS[name]
    meant, good = read(kept), path.read_bytes()
    try:
        for bit, bad in flips(path, 120):
            path.write_bytes(bad)
            found, words = answer(read, kept)
            assert words or found == meant, f"bit {bit} of {name} changed what is read"
            assert not words or path.name.removesuffix(".1") in words, f"bit {bit}: the file is not named: {words}"
    finally:
        path.write_bytes(good)


@pytest.mark.parametrize("name", READERS)
def test_what_is_cut_short_is_seen(name: str, kept: Path) -> None:
    path, read = kept / name, READERS[name]
    meant, good = read(kept), path.read_bytes()
    try:
        for size in range(0, len(good), max(1, len(good) // 40)):
            path.write_bytes(good[:size])
            found, words = answer(read, kept)
            whole_lines = ".ndjson" in name and not words and all(record in meant for record in found)
            assert words or found == meant or whole_lines, f"{name} cut to {size} bytes is read as something else"
    finally:
        path.write_bytes(good)


def test_what_was_written_without_seals_is_read_and_said_to_be(tmp_path: Path) -> None:
    log = tmp_path / "old.ndjson"
    log.write_bytes(b"".join(encode_record(example_record(number)) + b"\n" for number in (1, 2)))
    assert validate_log(log).ok
    assert validate_log(log).sealed == 0
    shown = CliRunner().invoke(app, ["telemetry", "validate", str(log)]).output
    assert "2 of them carry no seal" in shown
    (tmp_path / "card.json").write_text(duel(1, towns=2).model_dump_json())
    assert load_scorecard(tmp_path / "card.json") == duel(1, towns=2)


def test_a_changed_number_in_a_log_is_named_with_its_line(tmp_path: Path) -> None:
    with TelemetryWriter(tmp_path / "log.ndjson") as log:
        for number in (1, 2, 3):
            log.write(example_record(number))
    text = (tmp_path / "log.ndjson").read_text().splitlines()
    text[1] = text[1].replace('"epoch":2', '"epoch":3', 1)
    (tmp_path / "log.ndjson").write_text("\n".join(text) + "\n")
    with pytest.raises(TelemetryError, match=r"log\.ndjson:2: is not what was written \(its seal is broken\)"):
        list(read_records(tmp_path / "log.ndjson"))
    assert [str(problem) for problem in validate_log(tmp_path / "log.ndjson").problems] == [
        f"{tmp_path / 'log.ndjson'}:2: is not what was written (its seal is broken)"
    ]


def test_a_list_and_a_report_over_damaged_runs_show_the_rest_and_name_the_damaged(kept: Path, tmp_path: Path) -> None:
    for name in ("good", "bad", "odd"):
        shutil.copytree(kept / "run", tmp_path / name)
    card = json.loads((tmp_path / "bad" / "run.json").read_text())
    (tmp_path / "bad" / "run.json").write_text(json.dumps(card | {"seed": 99}))
    checkpoints = tmp_path / "odd" / "checkpoints"
    latest = resolve(checkpoints).name
    shutil.copytree(checkpoints / latest, checkpoints / "final")
    (checkpoints / "latest").write_text("final\n")
    shown = CliRunner().invoke(app, ["runs", "list", str(tmp_path), "--json"])
    rows = {Path(row["run"]).name: row for row in json.loads(shown.stdout)}
    assert (rows["good"]["state"], rows["bad"]["state"], rows["odd"]["epochs"]) == ("HOLD", "damaged", rows["good"]["epochs"])
    assert "run.json is not what was written" in rows["bad"]["problem"]
    assert f"{tmp_path / 'bad'} is damaged" in shown.stderr
    summary = json.loads((tmp_path / "good" / "summary.json").read_text())
    write_sealed(tmp_path / "good" / "summary.json", {"strategy": 7})
    record = read_run(tmp_path / "good")
    assert len(record.damaged) == 1
    assert "summary.json cannot be used (strategy" in record.damaged[0]
    assert record.records
    assert "Damaged: " in render_report(record)
    assert summary["strategy"] == "anneal"
    with pytest.raises(DamagedFileError):
        RunFolder(tmp_path / "bad").card()
