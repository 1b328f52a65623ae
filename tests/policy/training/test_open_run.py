"""The folder and the log of a run stay its own: another run, or somebody who moves things, loses nothing."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkpoints import write_run
from faults import fault_tools as tools
from townlet import files
from townlet.errors import CheckpointError, StorageError, UsageError
from townlet.policy.training import open_run, run_folder
from townlet.policy.training.contexts import RunOptions
from townlet.policy.training.run_folder import RunFolder

pytest.importorskip("torch")


def train(run: Path, epochs: int = 2, *, resume: bool = False, log: Path | None = None, progress: Any = None) -> None:
    orchestrator = tools.orchestrator(tools.tiny())
    if progress is not None:
        orchestrator.progress = progress
    orchestrator.run("rollout", RunOptions(epochs=epochs, run_dir=run, resume=resume, log_path=log))


class Mover:
    """Moves the run's folder when its fourth epoch has ended."""

    def __init__(self, run: Path, target: Path) -> None:
        self.run, self.target, self.epochs = run, target, 0

    def begin(self, what: str, total: int, done: int = 0) -> None:
        pass

    def advance(self, figures: object) -> None:
        self.epochs += 1
        if self.epochs == 4:
            self.run.rename(self.target)

    def say(self, sentence: str) -> None:
        pass


def test_a_run_whose_folder_is_moved_while_it_saves_names_that_and_no_missing_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, moved = tmp_path / "run", tmp_path / "moved"

    def move_in_the_middle(*given: Any, **named: Any) -> Path:
        run.rename(moved)
        raise CheckpointError("checkpoints/latest names '000001', which is not a checkpoint beside it")

    monkeypatch.setattr(run_folder, "publish_checkpoint", move_in_the_middle)
    with pytest.raises(StorageError, match="was moved or removed while the run wrote into it"):
        train(run)


def test_a_run_whose_folder_is_moved_ends_and_goes_on_from_where_the_folder_is(tmp_path: Path) -> None:
    """It made another folder at the old place, from which nothing could be resumed."""
    run, moved = tmp_path / "a" / "run", tmp_path / "b" / "run"
    moved.parent.mkdir()
    with pytest.raises(StorageError, match="was moved or removed while the run wrote into it") as ended:
        train(run, 5, progress=Mover(run, moved))
    assert (ended.value.exit_code, run.exists()) == (74, False)
    train(moved, 5, resume=True)
    train(tmp_path / "whole" / "run", 5)
    assert tools.different(tools.left(tmp_path / "whole"), tools.left(tmp_path / "b")) == []


def test_every_log_that_stood_where_a_new_one_begins_is_kept(tmp_path: Path) -> None:
    """The third run wrote over the log of the first."""
    log = tmp_path / "log.ndjson"
    for number in range(3):
        train(tmp_path / f"run{number}", 1, log=log)
    assert sorted(path.name for path in tmp_path.glob("log.*")) == ["log.ndjson", "log.ndjson.old-1", "log.ndjson.old-2"]


class Second:
    """Starts another run with the same log in the middle of the first."""

    def __init__(self, run: Path, log: Path) -> None:
        self.run, self.log = run, log

    def begin(self, what: str, total: int, done: int = 0) -> None:
        pass

    def advance(self, figures: object) -> None:
        with pytest.raises(UsageError, match="is in use by process"):
            train(self.run, log=self.log)

    def say(self, sentence: str) -> None:
        pass


@pytest.mark.parametrize("where", ["", "first/"])
def test_a_log_that_another_run_is_writing_is_refused(where: str, tmp_path: Path) -> None:
    """The second moved what the first had written aside, and both went on."""
    log = tmp_path / f"{where}log.ndjson"
    train(tmp_path / "first", log=log, progress=Second(tmp_path / "second", log))
    assert sum(1 for _ in log.open()) == 2
    assert not (tmp_path / "second").exists()


def test_a_log_that_is_a_pipe_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="is a device or a pipe"):
        train(tmp_path / "run", log=tmp_path / "pipe")
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_run_that_another_made_meanwhile_is_not_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both saw an empty place; the other was quicker, and has ended when we hold the lock."""
    run, lock = tmp_path / "run", files.FolderLock

    def late(folder: Path) -> files.FolderLock:
        write_run(run, tools.tiny())
        return lock(folder)

    monkeypatch.setattr(open_run.files, "FolderLock", late)
    with pytest.raises(UsageError, match="already holds a run"):
        train(run)


def test_a_run_that_lost_the_name_of_its_latest_checkpoint_goes_on_from_the_newest(tmp_path: Path) -> None:
    """It began anew, and what it had learned was gone."""
    train(run := tmp_path / "a" / "run", 5)
    (run / "checkpoints" / "latest").unlink()
    train(run, 5, resume=True)
    assert not list(run.glob("*.discarded"))
    train(tmp_path / "b" / "run", 5)
    assert tools.different(tools.left(tmp_path / "b"), tools.left(tmp_path / "a")) == []


def test_a_damaged_latest_checkpoint_is_refused_with_the_ones_to_go_on_from(tmp_path: Path) -> None:
    train(run := tmp_path / "a" / "run", 5)
    checkpoints = run / "checkpoints"
    (checkpoints / "000005" / "weights.safetensors").write_bytes(b"damaged")
    with pytest.raises(
        CheckpointError, match=r"weights\.safetensors .*; or write the name of another into .*latest: 000002, 000004"
    ):
        train(run, 5, resume=True)
    (checkpoints / "latest").write_text("000004\n")
    train(run, 5, resume=True)
    train(tmp_path / "b" / "run", 5)
    assert tools.different(tools.left(tmp_path / "b"), tools.left(tmp_path / "a")) == []


def test_a_run_that_has_ended_is_left_as_it_is(tmp_path: Path) -> None:
    """Resumed, it was said to have taken no time."""
    train(run := tmp_path / "run", 2)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != files.LOCK}
    train(run, 2, resume=True)
    assert {path: path.read_bytes() for path in before} == before
    (run / "summary.json").write_text("damaged")
    train(run, 2, resume=True)
    assert RunFolder(run).summary() is not None


def test_a_run_goes_on_with_the_epochs_that_were_asked_for(tmp_path: Path) -> None:
    """Those of a run that a program started stand in its card, not in its config."""
    train(run := tmp_path / "run", 3)
    tools.orchestrator(tools.tiny()).run("rollout", RunOptions(run_dir=run, resume=True))


class Killed(BaseException):
    pass


class Killer:
    """Ends the process, as it were, before the first epoch."""

    def begin(self, what: str, total: int, done: int = 0) -> None:
        raise Killed

    def advance(self, figures: object) -> None:
        pass

    def say(self, sentence: str) -> None:
        pass


def test_a_run_that_began_with_other_weights_goes_on_with_them(tmp_path: Path) -> None:
    """Killed before its first checkpoint and resumed, it began with a new network and said nothing."""
    train(tmp_path / "first", 1)
    train(tmp_path / "second", 2)
    run, begun = tmp_path / "run", RunOptions(epochs=2, run_dir=tmp_path / "run", start_from=tmp_path / "first")
    orchestrator = tools.orchestrator(tools.tiny())
    orchestrator.progress = Killer()
    with pytest.raises(Killed):
        orchestrator.run("rollout", begun)
    with pytest.raises(UsageError, match=r"started with the network of another checkpoint .* again with --start-from"):
        train(run, 2, resume=True)
    orchestrator = tools.orchestrator(tools.tiny())
    with pytest.raises(UsageError, match="has the first weights"):
        orchestrator.run("rollout", replace(begun, resume=True, start_from=tmp_path / "second"))
    orchestrator.run("rollout", replace(begun, resume=True))
    whole = orchestrator.run("rollout", replace(begun, run_dir=tmp_path / "whole"))
    summary = RunFolder(run).summary()
    assert summary is not None
    assert summary.weights_hash == whole.model_dump()["weights_hash"]
    train(run, 2, resume=True)  # it has checkpoints of its own now


def test_a_dry_run_tells_what_the_run_itself_would_be_refused_for(tmp_path: Path) -> None:
    train(run := tmp_path / "run", 1)
    orchestrator = tools.orchestrator(tools.tiny())
    asked = RunOptions(epochs=1, run_dir=run, dry_run=True)
    with pytest.raises(UsageError, match="already holds a run"):
        orchestrator.run("rollout", asked)
    with pytest.raises(StorageError, match="the run needs about"):
        orchestrator.run("rollout", replace(asked, run_dir=tmp_path / "other", epochs=10**12))
    with pytest.raises(UsageError, match="belongs to the run in"):
        orchestrator.run("rollout", replace(asked, run_dir=tmp_path / "other", log_path=run / "run.json"))
