"""A fault at an operation of a writer, the writer again, and the same files as without it. `make faults` is the whole sweep."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from faults import fault_tools as tools
from faults import load, moments, sweep, table
from townlet import files
from townlet.policy.checkpoint import names

SEAM = tools.Seam(fork=False)
SMALL = ("capture --overwrite", "capture --append", "rotation", "ledger", "promotion", "take", "snapshot")
MOST = 8  # operations of a small writer, each in two ways
TRAININGS = {  # the operations at which the first round's trial found something, and what lies around them
    "rollout": (39, 52, 60, 84, 104),
    "bc": (44, 66, 100),
    "anneal": (101, 180),
}


def check(case: tools.Case, whole: dict[str, object], place: Path) -> None:
    found = tools.findings(SEAM, case, whole, place)
    assert [f"{finding.case}: {finding.kind}: {finding.words}" for finding in found] == []


@pytest.mark.parametrize("name", SMALL)
def test_a_fault_at_an_operation_of_a_small_writer_changes_nothing(name: str, tmp_path: Path) -> None:
    writer = tools.WRITERS[name]
    whole = tools.uninterrupted(writer, tmp_path / "whole")
    count = tools.operations(SEAM, writer, tmp_path / "count")
    assert count > 4  # it does something
    for i, k in enumerate(range(1, count + 1, 1 + count // MOST)):
        for way in (tools.KILLS[i % 3], tools.REFUSALS[i % 3]):
            check(tools.Case(name, ((k, way),)), whole, tmp_path / "case")


@pytest.mark.parametrize("name", TRAININGS)
def test_a_training_that_is_killed_once_or_twice_ends_as_if_it_had_not_been(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    whole = tools.uninterrupted(tools.WRITERS[name], tmp_path / "whole")
    for i, k in enumerate(TRAININGS[name]):
        first = (k, tools.KILLS[i % len(tools.KILLS)])
        second = ((1 + k // 2, "kill after"),) if i % 2 else ()
        check(tools.Case(name, (first, *second)), whole, tmp_path / "case")


def test_a_training_that_cannot_write_its_log_goes_on_and_one_that_cannot_write_a_checkpoint_ends(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    writer = tools.WRITERS["rollout"]
    whole = tools.uninterrupted(writer, tmp_path / "whole")
    ends = set()
    for k in (22, 26, 48, 52):
        made = tools.attempt(SEAM, writer.act, root := tools.fresh(writer, tmp_path / f"case{k}"), k, "full")
        ends.add(made.end)
        if made.end == tools.REFUSED:
            for name in names(root / "run" / "checkpoints"):
                files.check_sums(root / "run" / "checkpoints" / name)
        check(tools.Case("rollout", ((k, "full"),)), whole, tmp_path / "again")
    assert ends == {tools.DONE, tools.REFUSED}


def test_an_interrupted_overwrite_keeps_the_old_folder_aside(tmp_path: Path) -> None:
    """Between the exchange and the rename the old one stands under the name of what is half written."""
    for text in ("old", "new"):
        files.write_text(files.partial_folder(tmp_path / "out") / "note", text, sync=False)
        if text == "old":
            files.publish_folder(tmp_path / "out.partial", tmp_path / "out")
    seam = tools.SeamDisk(5, "kill after")  # mark: open, write; sync; exchange; rename
    files.disk, before = seam.disk, files.disk
    try:
        with pytest.raises(tools.Crash):
            files.publish_folder(tmp_path / "out.partial", tmp_path / "out", overwrite=True)
    finally:
        files.disk = before
    files.partial_folder(tmp_path / "out").rmdir()
    assert {path.name: (path / "note").read_text() for path in tmp_path.iterdir()} == {"out": "new", "out.old-1": "old"}
    assert tools.leftovers(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["seam", "preload"])
def test_sweep_of_every_writer(layer: str, tmp_path: Path) -> None:
    """Every 11th operation; `make faults` takes every one."""
    environment = dict(os.environ)
    if layer == "preload":
        built = sweep.library(tmp_path)
        if built is None:
            pytest.skip("no compiler on this machine")
        environment["LD_PRELOAD"] = str(built)
    words = [
        sys.executable,
        sweep.__file__,
        "--layer",
        layer,
        "--stride",
        "11",
        "--pairs",
        "6",
        "--output",
        str(tmp_path / "rows"),
    ]
    subprocess.run(words, env=environment, check=False)
    rows = sweep.read_rows(tmp_path / "rows")
    assert {row["writer"] for row in rows} == set(tools.WRITERS)
    assert [row for row in rows if row["findings"]] == []


def test_what_was_safe_and_is_gone_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that begins anew ends as it should; what it had made safe was gone meanwhile."""

    def careless(root: Path) -> None:
        files.remove(root / "a.json")
        files.write_json(root / "b.json", {})
        files.write_json(root / "a.json", {})

    writer = tools.Writer("careless", careless, lambda root: files.write_json(root / "a.json", {}))
    monkeypatch.setitem(tools.WRITERS, "careless", writer)
    whole = tools.uninterrupted(writer, tmp_path / "whole")
    found = tools.findings(SEAM, tools.Case("careless", ((1, "kill after"),)), whole, tmp_path / "case")
    assert [(finding.kind, finding.words) for finding in found] == [("lost", "0 of 1 that were safe")]


def test_the_page_shows_the_committed_figures() -> None:
    page = table.PAGE.read_text()
    assert table.filled(page) == page


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes as Linux shows them")
def test_signals_at_some_moments_of_every_command(tmp_path: Path) -> None:
    words = [sys.executable, moments.__file__, "--moments", "5", "--output", str(tmp_path / "rows.json")]
    subprocess.run(words, check=False)
    ends = {kind for row in json.loads((tmp_path / "rows.json").read_text()) for kind in row["ends"]}
    assert ends <= set(moments.FINE)


@pytest.mark.slow
def test_a_minute_of_load(tmp_path: Path) -> None:
    words = [sys.executable, load.__file__, "--minutes", "1", "--each", "2", "--output", str(tmp_path / "load.json")]
    assert subprocess.run(words, check=False).returncode == 0
