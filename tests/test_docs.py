"""Documents that cannot rot: every page is followed to the letter, top to bottom, in a folder of its own.

bash      each line is a townlet or python command and runs in this process; `# exits with 1` says which exit code is meant
python    runs in the page's own namespace
any block after `<!-- file: NAME -->` is saved under that name first
text      after `<!-- prints -->` is what the commands before it print, line by line; `…` stands for anything

`<!-- slow -->` before a block leaves it to the long suite, `<!-- needs: PACKAGE -->` to machines that have it,
`<!-- not-run: reason -->` to the reader.
"""

from __future__ import annotations

import io
import json
import os
import pydoc
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import click
import pytest

from learning.tables import BEGIN, END, TABLES
from learning.tables import PAGES as STUDY_PAGES
from places import ROOT
from townlet.cli.app import COMMANDS, app, main
from townlet.config.loader import default_config
from townlet.errors import MissingPackageError
from townlet.evaluation.compare import load_scorecard
from townlet.optional import installed

EVERY_PAGE = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in EVERY_PAGE if "telemetry" not in page.parts]  # those are followed by test_telemetry_cli
MADE = re.compile(r"generated (by|from)|^\*?written by `", re.IGNORECASE | re.MULTILINE)  # pages that a command writes
BLOCK = re.compile(r"(?:<!-- (?P<mark>[^>]*?) -->\s*)?^```(?P<language>\w+)\n(?P<body>.*?)^```", re.DOTALL | re.MULTILINE)
QUICK_TABLES = ("demo", "trials", "nine weights")  # the others measure the script in many more towns
NEEDED = ("docs/samples", "scripts", "examples", "src/townlet/configs", "benchmarks/learning")


class Block(NamedTuple):
    mark: str
    language: str
    body: str

    @property
    def runs(self) -> bool:
        return self.language in ("bash", "python") and not self.mark.startswith("not-run")

    @property
    def commands(self) -> list[tuple[str, int]]:
        """Lines and the exit codes they should leave with; lines that continue are joined."""
        found = []
        for line in re.sub(r"\s*\\\n\s*", " ", self.body).splitlines():
            command, _, remark = line.partition(" #")
            code = re.search(r"exits with (\d+)", remark)
            if command.strip() and command[0] != "#":
                found.append((command.strip(), int(code[1]) if code else 0))
        return found


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(match["mark"] or "", match["language"], match["body"]) for match in BLOCK.finditer(text)]


def steps(page: Path, *, slow: bool) -> list[Block]:
    return [block for block in blocks(page) if (block.mark == "slow") is slow]


def run(line: str, code: int) -> str:
    """What the command prints; it must leave with the code."""
    words, before, left = shlex.split(line), sys.argv, 0
    with redirect_stdout(io.StringIO()) as printed:
        try:
            if words[0] == "townlet":
                main(words[1:])
            assert words[0] == "python", f"{line}: only townlet and python commands are run"
            sys.argv = words[1:]
            runpy.run_path(words[1], run_name="__main__")
        except SystemExit as leaving:
            left = int(leaving.code or 0)
        finally:
            sys.argv = before
    if left == MissingPackageError.exit_code != code and not installed("torch"):
        pytest.skip("followed to where the page trains, which is refused without torch")
    assert left == code, f"{line} left with {left}, the page says {code}\n{printed.getvalue()}"
    return printed.getvalue()


def assert_printed(expected: str, printed: str) -> None:
    """Every line of the page stands in what was printed, in that order."""
    lines = iter(" ".join(line.split()) for line in printed.splitlines())
    for wanted in filter(None, (" ".join(line.split()) for line in expected.splitlines())):
        pattern = re.compile(".*".join(re.escape(part) for part in wanted.split("…")))
        assert any(pattern.fullmatch(line) for line in lines), f"not printed (in this order): {wanted}\nbut:\n{printed}"


def follow(page: Path, *, slow: bool) -> None:
    names: dict[str, object] = {"__name__": "__page__"}
    printed: str | None = ""
    for block in steps(page, slow=slow):
        if block.mark.startswith("file: "):
            Path(block.mark.removeprefix("file: ")).write_text(block.body, encoding="utf-8")
        if block.mark.startswith("needs: ") and not installed(block.mark.removeprefix("needs: ")):
            printed = None
        elif block.mark == "prints":
            if printed is not None:
                assert_printed(block.body, printed)
        elif block.runs and block.language == "bash":
            printed = "".join(run(line, code) for line, code in block.commands)
        elif block.runs:
            with redirect_stdout(io.StringIO()) as caught:
                exec(compile(block.body, str(page), "exec"), names)  # the page is ours
            printed = caught.getvalue()


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in NEEDED:
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "configs").symlink_to("src/townlet/configs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    return tmp_path


def with_steps(*, slow: bool) -> list[Path]:
    return [page for page in PAGES if any(block.runs for block in steps(page, slow=slow))]


@pytest.mark.parametrize("page", with_steps(slow=False), ids=lambda page: page.name)
@pytest.mark.usefixtures("copy")
def test_a_page_can_be_followed_to_the_letter(page: Path) -> None:
    with mock.patch.dict(os.environ):
        follow(page, slow=False)


DOORS = [path.stem for path in sorted((ROOT / "examples" / "requirements").glob("*.txt"))]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.door(library=library), id=f"{page.name} with {library}")
        for page in with_steps(slow=False)
        for library in DOORS
        if any(block.mark == f"needs: {library}" for block in blocks(page))
    ],
)
@pytest.mark.usefixtures("copy")
def test_a_page_can_be_followed_with_the_library_it_names(page: Path) -> None:
    with mock.patch.dict(os.environ):
        follow(page, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("page", with_steps(slow=True), ids=lambda page: page.name)
@pytest.mark.usefixtures("copy")
def test_the_long_blocks_of_a_page_run(page: Path) -> None:
    with mock.patch.dict(os.environ):
        follow(page, slow=True)


def test_pages_with_steps_are_found_and_marks_are_known() -> None:
    assert len(with_steps(slow=False)) >= 10
    for page in PAGES:
        for block in blocks(page):
            known = re.fullmatch(r"|slow|prints|file: [\w./]+|needs: \w+|not-run: .{8,}", block.mark)
            assert known or block.language in ("text", "yaml", "json"), f"{page.name}: {block.mark!r}"


def test_pages_can_be_followed_one_after_the_other_in_one_clone() -> None:
    """No two pages make the same folder or file: the second would be refused."""
    made: dict[str, str] = {}
    for page in with_steps(slow=False):
        for block in blocks(page):
            for line, _ in block.commands if block.runs and block.language == "bash" else []:
                for place in re.findall(r"--(?:output|run-dir|events|digests|render) (\S+)", line):
                    assert made.setdefault(place, page.name) == page.name, f"{page.name} and {made[place]} both make {place}"
    assert len(made) > 20


def test_a_wrong_page_is_noticed(copy: Path) -> None:
    page = copy / "page.md"
    page.write_text("```bash\ntownlet scenarios show nowhere\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="left with 2, the page says 0"):
        follow(page, slow=False)
    page.write_text("```bash\ntownlet --version\n```\n<!-- prints -->\n```text\ntownlet 99\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="not printed"):
        follow(page, slow=False)
    page.write_text("```python\nassert 1 + 1 == 3\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError):
        follow(page, slow=False)


def test_there_are_at_most_a_dozen_guides() -> None:
    written = [page for page in (ROOT / "docs").rglob("*.md") if not MADE.search(page.read_text(encoding="utf-8")[:400])]
    tables = ("index.md", "founding_documents.md", "playground.md")  # of contents, of what was asked for, and of living towns
    fixed = ("ROLLOUT_CAPTURE_GUIDE.md", "ROLLOUT_PPO_CHECKLIST.md")  # at a path that a founding document fixes
    guides = [page for page in written if page.name not in (*tables, *fixed) and "architecture_review" not in page.parts]
    assert len(guides) <= 12, [page.name for page in guides]


def test_every_command_of_the_frame_is_named_in_a_page() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    missing = [name for name in COMMANDS if f"townlet {name}" not in text]
    assert not missing


def help_texts(command: click.Command, path: str) -> list[tuple[str, str]]:
    texts = [(path, command.get_help(click.Context(command, info_name=path)))]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            texts += help_texts(below, f"{path} {name}")
    return texts


def test_the_examples_in_help_texts_are_commands_that_can_be_typed() -> None:
    """Commands, options and values are read as the command line would read them; nothing is run."""
    seen = 0
    for path, text in help_texts(app, "townlet"):
        found = re.findall(r"^\s*(?:Example: )?(townlet [a-z].*)$", text, re.MULTILINE)
        assert found, f"{path} --help shows no example"
        for line in found:
            words = shlex.split(line.split(" > ")[0].split("   ")[0])[1:]
            command: click.Command = app
            context = click.Context(app, info_name="townlet")
            while isinstance(command, click.Group):
                _, found, words = command.resolve_command(context, words)
                assert found is not None, f"{path}: {line}"
                command = found
            try:
                command.make_context(command.name, words)
            except click.BadParameter as error:  # the file of an example need not be here
                if "does not exist" not in str(error):
                    raise
            seen += 1
    assert seen > 30


def test_the_walk_of_a_transition_names_what_is_there() -> None:
    pytest.importorskip("torch")
    page = (ROOT / "docs" / "ARCHITECTURE_INTERFACES.md").read_text(encoding="utf-8")
    walk = page.partition("## The walk of a transition")[2].partition("## Layers")[0]
    named = set(re.findall(r"`([a-z_]+(?:\.\w+)+)`", walk))
    assert len(named) >= 10
    assert [name for name in named if pydoc.locate(f"townlet.{name}") is None] == []


def test_every_exit_code_is_in_the_handbook() -> None:
    from townlet.errors import TownletError

    def codes(kind: type[TownletError]) -> set[int]:
        return {kind.exit_code}.union(*(codes(below) for below in kind.__subclasses__()))

    handbook = (ROOT / "docs/OPS_HANDBOOK.md").read_text(encoding="utf-8")
    assert codes(TownletError) <= {int(code) for code in re.findall(r"^\| `?(\d+)`? \|", handbook, re.MULTILINE)}


def test_every_alert_of_the_watcher_is_in_the_handbook() -> None:
    from townlet.telemetry.schema import ANNEAL_ALERTS, FIELDS

    handbook = (ROOT / "docs/OPS_HANDBOOK.md").read_text(encoding="utf-8")
    flags = {field.alert.flag for field in FIELDS if field.alert is not None} | set(ANNEAL_ALERTS)
    assert not {flag for flag in flags if flag not in handbook}


def test_defaults_in_the_training_guide_are_those_of_the_config() -> None:
    rows = re.findall(r"^\| `(\w+\.[\w.]+)` \| (\S+) \|", (ROOT / "docs/training.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) >= 15
    for key, written in rows:
        value: object = default_config()
        for part in key.split("."):
            value = vars(value)[part]
        assert written == json.dumps(value).strip('"'), f"{key} is {value}, the guide says {written}"


def headings(page: Path) -> set[str]:
    """Anchors of a page, as MkDocs and GitHub make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip()) for title in titles}


@pytest.mark.parametrize("page", EVERY_PAGE, ids=lambda page: page.name)
def test_links_and_anchors_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    plain = re.findall(r"\]\(([^)<#\s]*)(?:#([^)\s]*))?\)", text) + re.findall(r"\]\(<([^>#]*)(?:#([^>]*))?>\)", text)
    for target, anchor in plain:
        if re.match(r"[a-z]+:", target):
            continue
        where = page.parent / target if target else page
        assert where.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in headings(where), f"{page.name} links to {target}#{anchor}, which has {headings(where)}"


def test_the_site_builds_without_warnings_and_holds_every_page(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in EVERY_PAGE[2:]}
    assert {page for page in pages if page not in listed} == set()
    assert len(list((tmp_path / "site").rglob("*.html"))) >= len(pages)
    linked = re.findall(r'href="(playground/\w+\.html)"', (ROOT / "docs/playground.md").read_text(encoding="utf-8"))
    assert len(linked) >= 3
    for town in linked:
        assert 'id="engine"' in (tmp_path / "site" / town).read_text(encoding="utf-8")  # it lives


def test_the_guide_shows_what_the_trained_bakery_was_measured_at() -> None:
    page = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8")
    case = load_scorecard(ROOT / "docs" / "samples" / "bakery_scorecard.json").cases[0]
    for key in ("return", "conflicts"):
        for name in ("scripted", "trained"):
            one = case.policy(name).measures[key]
            assert f"{one.mean:.2f} ({one.low:.2f} … {one.high:.2f})" in page, (key, name)


@pytest.mark.parametrize("name", [one if one in QUICK_TABLES else pytest.param(one, marks=pytest.mark.slow) for one in TABLES])
def test_a_table_of_a_study_says_what_its_results_say(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python benchmarks/learning/tables.py` writes it."""
    monkeypatch.chdir(ROOT)
    shown = f"{BEGIN.format(name)}\n\n{TABLES[name]()}\n\n{END}"
    assert any(shown in page.read_text(encoding="utf-8") for page in STUDY_PAGES)


def test_every_committed_figure_of_a_benchmark_has_its_command() -> None:
    """It is named by a script, is the result of a study, or stands in the table of the README; all names there exist."""
    folder = ROOT / "benchmarks"
    table = (folder / "README.md").read_text(encoding="utf-8")
    told = "\n".join([table, *(path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))])
    studies = {path.stem for path in folder.rglob("*.yaml")}
    results = [
        path for path in folder.rglob("*") if path.suffix in (".json", ".ndjson", ".md", ".png") and path.name != "README.md"
    ]
    assert results
    assert [path.name for path in results if path.name not in told and path.stem not in studies] == []
    known = {path.name for path in (*folder.rglob("*"), *(ROOT / "docs").rglob("*"))}
    named = {name for name in re.findall(r"(\w+\.(?:py|json|png|md|yaml))\b", table) if not name.startswith("NAME")}
    assert named - known == set()
