"""A flipped bit in anything that is read back is seen, or means nothing; the file is named."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from faults import artefacts as store
from faults import flips
from scorecards import duel
from townlet.cli.app import app
from townlet.errors import CheckpointError, DamagedFileError, TelemetryError, UsageError
from townlet.evaluation.compare import load_scorecard
from townlet.observer.report import policies_of, read_run, render_report
from townlet.policy.checkpoint import load_checkpoint, resolve
from townlet.policy.training.run_folder import RunFolder
from townlet.sealed import write_sealed
from townlet.telemetry.example import example_record
from townlet.telemetry.ndjson import TelemetryWriter, encode_record, read_records
from townlet.telemetry.validate import validate_log


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    place = tmp_path_factory.mktemp("sealed") / "store"
    store.fill(place)
    return place


def test_a_flipped_bit_in_any_artefact_is_seen_or_means_nothing(kept: Path) -> None:
    """Some bits of each; `python tests/faults/flips.py` flips ten thousand."""
    draw = random.Random(3)
    for artefact in (one for one in store.artefacts(kept) if one.sealed):
        data = (kept / artefact.path).read_bytes()
        counts, wrong = flips.trial(kept, artefact, flips.flips(data, 12, draw), cut=False)
        assert wrong == []
        assert counts.total() > 0, artefact.path


def test_a_text_that_is_cut_short_is_seen_or_holds_its_whole_lines(kept: Path) -> None:
    for artefact in (one for one in store.artefacts(kept) if one.text):
        data = (kept / artefact.path).read_bytes()
        sizes = range(0, len(data), 1 + len(data) // 8)
        _, wrong = flips.trial(kept, artefact, (data[:size] for size in sizes), cut=True)
        assert wrong == []


def test_the_trial_of_flips_finds_what_is_not_sealed(tmp_path: Path) -> None:
    """A file without a seal, one whose reader fails, and one whose reader does not name it."""
    (tmp_path / "plain.json").write_text('{"a": 1}')
    plain = store.Artefact("plain.json", lambda place: json.loads((place / "plain.json").read_bytes()))
    counts, wrong = flips.trial(tmp_path, plain, [b'{"a": 3}', b"\xff"], cut=False)
    assert counts == {flips.OTHER: 1, flips.TRACEBACK: 1}
    assert len(wrong) == 2

    def unnamed(place: Path) -> None:
        if (place / "plain.json").read_bytes() != b'{"a": 1}':
            raise DamagedFileError("something is damaged")

    assert flips.trial(tmp_path, store.Artefact("plain.json", unnamed), [b"{}"], cut=False)[0] == {flips.UNNAMED: 1}


def test_what_was_written_without_seals_is_read_and_said_to_be(tmp_path: Path) -> None:
    log = tmp_path / "old.ndjson"
    log.write_bytes(b"".join(encode_record(example_record(number)) + b"\n" for number in (1, 2)))
    assert validate_log(log).ok
    assert validate_log(log).sealed == 0
    shown = CliRunner().invoke(app, ["telemetry", "validate", str(log)]).output
    assert "2 of them have no seal" in shown
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


def test_a_number_beyond_all_numbers_behind_a_seal_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "card.json").write_text('{"cases": 1e999, "seal": "x"}')
    with pytest.raises(DamagedFileError, match=r"card\.json holds a number that is not finite; "):
        load_scorecard(tmp_path / "card.json")


def test_a_report_over_a_summary_with_a_wrong_stage_says_so_and_shows_the_rest(kept: Path, tmp_path: Path) -> None:
    shutil.copytree(kept / "run", tmp_path / "run")
    summary = json.loads((kept / "run" / "summary.json").read_text())
    del summary["seal"]
    summary["stages"][0]["bc"]["class_balance"] = {"wait": "9" * 400}
    write_sealed(tmp_path / "run" / "summary.json", summary)
    assert "summary.json does not tell what the stages came to (stages.0" in render_report(read_run(tmp_path / "run"))


def test_sums_that_lack_their_last_line_are_not_those_of_a_checkpoint_without_a_world(kept: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(resolve(kept / store.CHECKPOINT), tmp_path / "checkpoint"))
    sums = (folder / "SHA256SUMS").read_text().splitlines(keepends=True)
    (folder / "SHA256SUMS").write_text("".join(line for line in sums if "world.npz" not in line))
    with pytest.raises(CheckpointError, match=r"SHA256SUMS does not list world\.npz"):
        load_checkpoint(folder)


@pytest.mark.parametrize("other", [os.mkfifo, lambda path: os.symlink("nowhere", path), os.mkdir])
def test_a_run_whose_card_is_no_file_is_listed_as_damaged_and_not_begun_anew(
    other: Callable[[Path], None], kept: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(kept / "run", tmp_path / "runs" / "odd"))
    (run / "run.json").unlink()
    other(run / "run.json")
    shown = CliRunner().invoke(app, ["runs", "list", str(run.parent)])
    assert (shown.exit_code, "damaged" in shown.stdout) == (0, True)
    with pytest.raises(CheckpointError, match=r"run\.json is not a regular file|there is no file .*run\.json"):
        RunFolder(run).card()
    with pytest.raises(UsageError, match="already holds a run"):
        RunFolder(run).check_new()


def test_a_report_does_not_leave_out_a_trained_policy_that_cannot_be_found(kept: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(kept / "run", tmp_path / "run"))
    shutil.rmtree(run / "checkpoints")
    assert "trained" not in policies_of(run)  # killed before its first checkpoint
    (run / "checkpoints").symlink_to("checkpoints")
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        policies_of(run)


@pytest.mark.parametrize(
    "words",
    [
        ("report", "{run}", "--output", "{run}/run.json"),
        ("evaluate", "scripted", "--scenario", "town_day", "--output", "{run}/config.json"),
        ("evaluate", "scripted", "--scenario", "town_day", "--html", "{run}/run.json"),
        ("train", "town_day", "--mode", "rollout", "--run-dir", "{run}2", "--ppo-log", "{run}/summary.json"),
    ],
)
def test_no_output_takes_the_place_of_what_a_run_needs(words: tuple[str, ...], kept: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(kept / "run", tmp_path / "run"))
    before = {path: path.read_bytes() for path in run.glob("*.json")}
    done = CliRunner().invoke(app, [word.format(run=run) for word in words])
    assert isinstance(done.exception, UsageError)
    assert "belongs to the run in" in str(done.exception)
    assert {path: path.read_bytes() for path in run.glob("*.json")} == before


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("report", "{run}", "--output", "{run}/checkpoints/latest"), "already exists and does not end in .html"),
        (("evaluate", "scripted", "--html", "{run}/ppo.ndjson"), "already exists and does not end in .html"),
        (("evaluate", "scripted", "--output", "{run}/checkpoints/{first}/state.json"), "is complete"),
        (("evaluate", "scripted", "--png", "{run}/checkpoints/{first}/new.png"), "is complete"),
        (("telemetry", "summary", "{run}/ppo.ndjson", "--output", "{run}/ppo.ndjson"), "does not end in .json or .md or .txt"),
        (("study", "study.yaml", "--output", "{run}/checkpoints/best"), "does not end in .json or .md or .txt"),
    ],
)
def test_an_output_replaces_only_a_file_with_its_own_ending(
    words: tuple[str, ...], told: str, kept: Path, tmp_path: Path
) -> None:
    """A log, a pointer, the weights of a checkpoint, somebody's notes were written over without a word."""
    run = Path(shutil.copytree(kept / "run", tmp_path / "run"))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    first = min(path.name for path in (run / "checkpoints").iterdir() if path.is_dir())
    done = CliRunner().invoke(app, [word.format(run=run, first=first) for word in words])
    assert isinstance(done.exception, UsageError)
    assert told in str(done.exception)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
