"""The coverage table of the founding documents is proved: files are there, names are imported, tests collected, commands run."""

from __future__ import annotations

import pydoc
import re
import subprocess
import sys

import pytest
from master_plan_progress import ABSENT, CLAIMS, PROGRESS, documents, page

from places import ROOT
from test_docs import MADE, blocks, with_steps

PAGE = ROOT / "docs/founding_documents.md"
ROWS = [row for rows in documents().values() for row in rows]
PROOFS = sorted({proof for row in ROWS for proof in re.findall(r"`([^`]+)`", row[1])})
COMMANDS = [proof.removeprefix("$ ") for proof in PROOFS if proof.startswith("$ ")]
NODES = [proof for proof in PROOFS if "::" in proof]
NAMES = [proof for proof in PROOFS if proof.startswith("townlet.")]
FILES = sorted({proof.partition("::")[0] for proof in set(PROOFS) - set(NAMES) if not proof.startswith("$ ")})


def test_the_table_covers_all_five_documents() -> None:
    assert PAGE.read_text(encoding="utf-8").count("| what the document names | proof | status |") == 5
    assert len(documents()) == 5
    assert len(ROWS) > 95


def test_the_progress_is_counted_in_the_table() -> None:
    assert (ROOT / "docs" / PROGRESS).read_text(encoding="utf-8") == page(), "run `python scripts/master_plan_progress.py`"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_every_claim_has_a_proof(row: list[str]) -> None:
    assert row[2].startswith((*CLAIMS, *ABSENT)), row[2]
    if row[2].startswith(CLAIMS):
        assert re.fullmatch(r"`[^`]+`(, `[^`]+`)*", row[1]), f"{row[1]!r} is not a list of proofs in backticks"


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_imported(name: str) -> None:
    assert pydoc.locate(name) is not None


@pytest.mark.parametrize("place", FILES)
def test_every_file_is_there_and_not_empty(place: str) -> None:
    assert (ROOT / place).stat().st_size > 0


def test_every_test_is_collected() -> None:
    pytest.importorskip("torch")  # without it the tests of what it does are not there to collect
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--no-header", "-p", "no:cacheprovider", "-m", "", *NODES]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.parametrize("place", [place for place in FILES if place.endswith(".md") and not place.startswith("artifacts")])
def test_every_page_named_holds_something_executed_or_generated(place: str) -> None:
    page = ROOT / place
    text = page.read_text(encoding="utf-8")
    followed = page in with_steps(slow=False) or ("telemetry" in page.parts and any(block.runs for block in blocks(page)))
    assert followed or MADE.search(text[:600]), f"{place} holds nothing that is executed or generated"


def test_every_command_of_the_table_is_run_by_the_page() -> None:
    """`test_docs` runs its blocks from top to bottom; every founding script is called on some page."""
    lines = [line for block in blocks(PAGE) if block.runs for line, _ in block.commands]
    assert set(COMMANDS) <= set(lines), sorted(set(COMMANDS) - set(lines))
    called_by_make = {"demo.py", "dist.py", "playground.py"}
    scripts = {path.name for path in (ROOT / "scripts").glob("*.py")} - called_by_make
    text = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md"))
    assert not {name for name in scripts if f"scripts/{name}" not in text}


def test_founding_paths_that_are_gone_are_gone() -> None:
    assert not (ROOT / "src/townlet/policy/training_orchestrator.py").exists()
