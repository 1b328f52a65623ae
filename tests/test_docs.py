"""Documents that cannot rot: every command in a bash block of README and guides is run, page by page, in a folder of its own.

A comment before a block says otherwise: `<!-- slow -->` sends it to the long suite, `<!-- not-run: reason -->` leaves it out.
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from townlet.cli.app import COMMANDS, app

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted(page for page in (ROOT / "docs").rglob("*.md") if "telemetry" not in page.parts)]
BLOCK = re.compile(r"(?:<!-- (?P<mark>[^>]*?) -->\s*)?```bash\n(?P<body>.*?)```", re.DOTALL)
NEEDED = ("docs/samples", "scripts", "src/townlet/configs")


def blocks(page: Path) -> list[tuple[str, list[str]]]:
    """Marks and commands of a page's bash blocks; lines that continue are joined."""
    found = []
    for match in BLOCK.finditer(page.read_text(encoding="utf-8")):
        lines = match["body"].replace("\\\n", " ").splitlines()
        found.append((match["mark"] or "", [line.split(" #")[0].strip() for line in lines if line.strip() and line[0] != "#"]))
    return found


def commands(page: Path, *, slow: bool) -> list[str]:
    wanted = [body for mark, body in blocks(page) if (mark == "slow") is slow and not mark.startswith("not-run")]
    return [line for body in wanted for line in body]


def run(line: str) -> None:
    words = shlex.split(line)
    if words[0] == "townlet":
        result = CliRunner().invoke(app, words[1:], catch_exceptions=False)
        assert result.exit_code == 0, f"{line}\n{result.output}"
        return
    assert words[0] == "python", f"{line}: only townlet and python commands are run"
    before = sys.argv
    sys.argv = words[1:]
    try:
        with pytest.raises(SystemExit) as leaving:
            runpy.run_path(words[1], run_name="__main__")
    finally:
        sys.argv = before
    assert not leaving.value.code, f"{line} left with {leaving.value.code}"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in NEEDED:
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "configs").symlink_to("src/townlet/configs")
    return tmp_path


def with_commands(*, slow: bool) -> list[Path]:
    return [page for page in PAGES if commands(page, slow=slow)]


@pytest.mark.parametrize("page", with_commands(slow=False), ids=lambda page: page.name)
def test_the_commands_of_a_page_run(page: Path, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(copy)
    monkeypatch.setenv("NO_COLOR", "1")
    for line in commands(page, slow=False):
        run(line)


def test_pages_with_commands_are_found_and_exclusions_say_why() -> None:
    assert len(with_commands(slow=False)) >= 6
    for page in PAGES:
        for mark, _ in blocks(page):
            assert mark in ("", "slow") or re.fullmatch(r"not-run: .{8,}", mark), f"{page.name}: {mark!r}"


def test_every_command_of_the_frame_is_named_in_a_page() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    missing = [name for name in COMMANDS if f"townlet {name}" not in text]
    assert not missing


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert os.path.exists(page.parent / target), f"{page.name} links to {target}"
