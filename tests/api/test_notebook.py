"""The notebook from a scenario to a trained policy and its page runs from top to bottom."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "notebooks" / "from_scenario_to_policy.ipynb"


def test_every_cell_of_the_notebook_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a kernel: the code cells, one after the other, in one namespace."""
    for package in ("torch", "matplotlib", "pandas"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {}
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [], "commit the notebook without outputs"
            exec(compile("".join(cell["source"]), NOTEBOOK.name, "exec"), space)
    told = capsys.readouterr().out
    assert "<Run runs/notebook/run: rollout in small_house, finished>" in told
    assert "4 towns × 4 residents" in told
    assert len(space["run"].records()) == space["EPOCHS"]
    assert space["page"].read_text(encoding="utf-8").startswith("<!doctype html>")
