"""Releases: one version, papers that are about it, a tour that can be followed, the same checks everywhere."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

import townlet
from places import ROOT
from townlet.config.loader import read_yaml
from townlet.errors import UsageError


@pytest.fixture(scope="module")
def dist() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "dist.py"))


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_version_changelog_and_citation_are_one(dist: dict[str, Any]) -> None:
    dist["check_version"](text("CHANGELOG.md"), text("CITATION.cff"))
    with pytest.raises(UsageError, match=r"CHANGELOG.md is about 0.1.0, the version is"):
        dist["check_version"]("# Changes\n\n## 0.1.0\n", text("CITATION.cff"))
    with pytest.raises(UsageError, match=rf"cites 9.9, the version is {townlet.__version__}; write it with .* --cite"):
        dist["check_version"](text("CHANGELOG.md"), "title: Townlet\nversion: 9.9\n")


def test_the_tour_is_found_in_the_readme(dist: dict[str, Any]) -> None:
    commands = dist["tour"](text("README.md"))
    assert len(commands) >= 8
    assert {words[0] for words in commands} == {"townlet"}
    assert ["townlet", "scenarios", "lint", "town_day"] in commands
    with pytest.raises(UsageError, match="no block of commands"):
        dist["tour"]("# Townlet\n")


@pytest.mark.parametrize(("workflow", "command"), [("ci", ".ci/run"), ("nightly", "make --keep-going test-doors")])
def test_every_service_runs_the_same_checks(workflow: str, command: str) -> None:
    jobs = read_yaml(ROOT / ".github" / "workflows" / f"{workflow}.yml")["jobs"]
    assert [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step] == [command]


def test_every_door_has_an_environment_and_tests() -> None:
    """A new file of requirements is a new door, and a test that is marked with a library without such a file never runs."""
    planned = subprocess.run(["make", "--dry-run", "test-doors"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    doors = {path.stem for path in (ROOT / "examples" / "requirements").glob("*.txt")}
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert set(re.findall(r"door\(library='([\w.]+)'\)", planned)) == doors
    assert set(re.findall(r'mark\.door\(library="([\w.]+)"\)', tests)) == doors
    assert all(f"-c 'import {library}'" in planned for library in doors)


@pytest.mark.slow
def test_wheel_and_source_hold_what_a_town_needs(tmp_path: Path) -> None:
    pytest.importorskip("build")
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(words, check=True, capture_output=True)
    wheel, source = next(tmp_path.glob("*.whl")), next(tmp_path.glob("*.tar.gz"))
    needed = {"townlet/configs/scenarios/town_day.yaml", "townlet/observer/static/index.html", "townlet/py.typed"}
    with zipfile.ZipFile(wheel) as archive:
        assert needed <= set(archive.namelist())
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        assert {f"src/{name}" for name in needed} | {"README.md", "pyproject.toml"} <= names
