"""The coverage table of the founding documents points at things that exist, run, or are generated."""

from __future__ import annotations

import re

import pytest

from places import ROOT
from test_docs import MADE, blocks, with_steps

PAGE = ROOT / "docs/founding_documents.md"
ROWS = [
    cells
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("|") and len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 3
    if not set(cells[0]) <= {"-", " "} and cells[1] != "where it is"
]
PLACES = sorted({place for row in ROWS for place in re.findall(r"`([^`]+)`", row[1])})


def test_the_table_covers_all_five_documents() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.count("| what the document names |") == 5
    assert len(ROWS) > 75


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_every_row_names_places_and_a_status(row: list[str]) -> None:
    assert re.fullmatch(r"`[^`]+`(, `[^`]+`)*", row[1]), f"{row[1]!r} is not a list of places in backticks"
    assert re.match(r"done|met|generated|deleted|replaced|not handed down|the review itself", row[2]), row[2]


@pytest.mark.parametrize("place", PLACES)
def test_every_place_exists(place: str) -> None:
    path, _, function = place.partition("::")
    assert (ROOT / path).exists(), f"{path} does not exist"
    if function:
        assert f"\ndef {function}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path} has no {function}"


@pytest.mark.parametrize("place", [place for place in PLACES if place.endswith(".md") and not place.startswith("artifacts")])
def test_every_page_named_holds_something_executed_or_generated(place: str) -> None:
    page = ROOT / place
    text = page.read_text(encoding="utf-8")
    followed = page in with_steps(slow=False) or ("telemetry" in page.parts and any(block.runs for block in blocks(page)))
    assert followed or MADE.search(text[:600]), f"{place} holds nothing that is executed or generated"


def test_the_founding_commands_are_run_with_their_flags() -> None:
    """Every script is called on the page, and the cheat sheet's line stands there letter by letter."""
    lines = [line for block in blocks(PAGE) if block.runs for line, _ in block.commands]
    assert (
        "python scripts/run_training.py configs/examples/poc_hybrid.yaml --replay-manifest docs/samples/replay_manifest.json "
        "--train-ppo --epochs 2 --ppo-log docs/samples/ppo_log.jsonl"
    ) in lines
    scripts = {path.name for path in (ROOT / "scripts").glob("*.py")} - {
        "demo.py",
        "dist.py",
        "playground.py",
    }  # called by make and by mkdocs
    text = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md"))
    assert not {name for name in scripts if f"scripts/{name}" not in text}


def test_founding_paths_that_are_gone_are_gone() -> None:
    assert not (ROOT / "src/townlet/policy/training_orchestrator.py").exists()
