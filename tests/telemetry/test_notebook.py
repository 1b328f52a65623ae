"""The quick-look notebook runs from top to bottom, and the samples it reads are valid logs of their versions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from telemetry_reference import SAMPLE

import townlet
from places import ROOT
from townlet.telemetry.alarm_rules import default_rules
from townlet.telemetry.ndjson import read_records
from townlet.telemetry.schema import CURRENT, project
from townlet.telemetry.summary import summarise
from townlet.telemetry.validate import validate_log
from townlet.telemetry.watch import Seen, Watch, watch_log

DOCS = ROOT / "docs"
NOTEBOOK = DOCS / "notebooks" / "telemetry_quicklook.ipynb"
OLD = DOCS / "samples" / "ppo_telemetry_v1_3.jsonl"  # a real run, as it was written then
SAMPLES = {
    DOCS / "samples" / "ppo_epoch_log.jsonl": 1.0,
    DOCS / "samples" / "ppo_conflict_telemetry.jsonl": 1.1,
    OLD: 1.3,
    DOCS / SAMPLE: CURRENT,
}


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_the_samples_validate_are_summarised_and_set_off_no_alert(path: Path) -> None:
    report = validate_log(path)
    assert report.problems == []
    assert list(report.versions) == [f"{SAMPLES[path]:g}"]
    summary = summarise(path)
    assert summary.records == report.records >= 20
    assert ("conflicts_per_resident_day" in summary.columns) == (SAMPLES[path] >= 1.4)
    events = watch_log(path, Watch(default_rules()), follow=False)
    assert [alarm.message for event in events if isinstance(event, Seen) for alarm in event.alarms] == []
    if SAMPLES[path] < SAMPLES[OLD]:
        assert list(read_records(path)) == [project(record, SAMPLES[path]) for record in read_records(OLD)]


def test_every_cell_of_the_notebook_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a kernel: the code cells, one after the other, in one namespace."""
    pytest.importorskip("IPython")
    monkeypatch.chdir(NOTEBOOK.parent)
    space: dict[str, Any] = {}
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [], "commit the notebook without outputs"
            exec(compile("".join(cell["source"]), NOTEBOOK.name, "exec"), space)
    told = capsys.readouterr().out
    assert "ppo_telemetry_v1_4.jsonl valid {'1.4'" in told
    assert "conflicts per day" in told


@pytest.mark.slow
def test_the_notebook_runs_in_a_kernel() -> None:
    pytest.importorskip("nbmake")
    words = [sys.executable, "-m", "pytest", "--nbmake", "-q", "-p", "no:randomly", str(NOTEBOOK)]
    found = os.pathsep.join(
        [str(Path(townlet.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    )  # the kernel has its own folder
    done = subprocess.run(words, env=os.environ | {"PYTHONPATH": found}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
