"""The coverage table of the founding documents points at things that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROWS = [
    cells
    for line in (ROOT / "docs/founding_documents.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("|") and len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 3
    if not set(cells[0]) <= {"-", " "} and cells[1] != "where it is"
]


def test_the_table_covers_all_five_documents() -> None:
    text = (ROOT / "docs/founding_documents.md").read_text(encoding="utf-8")
    assert text.count("\n## ") == 5
    assert len(ROWS) > 30


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1].strip("`"))
def test_every_row_names_a_path_that_exists_and_a_status(row: list[str]) -> None:
    match = re.fullmatch(r"`([^`]+)`", row[1])
    assert match is not None, f"{row[1]!r} is not a path in backticks"
    assert (ROOT / match[1]).exists(), f"{match[1]} does not exist"
    assert row[2]
