"""`townlet doctor` and shell completion: what a newcomer meets first."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from places import ROOT
from townlet.cli.doctor import BASE, DISTRIBUTION, TOOLS, describe, examine
from townlet.config.loader import read_yaml
from townlet.optional import EXTRA_OF

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def names(requirements: list[str]) -> set[str]:
    return {line.split(">=")[0].split("[")[0].lower() for line in requirements}


def test_the_doctor_knows_every_package_of_the_project() -> None:
    assert {name.lower() for name in BASE} == names(PROJECT["dependencies"])
    for package, extra in EXTRA_OF.items():
        assert DISTRIBUTION.get(package, package).lower() in names(PROJECT["optional-dependencies"][extra])
    for extra, (_, packages) in TOOLS.items():
        assert {name.lower() for name in packages} <= names(PROJECT["optional-dependencies"][extra])


def test_one_line_installs_all_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("townlet.cli.doctor.installed", lambda name: name not in ("torch", "minari"))
    monkeypatch.setattr("townlet.cli.doctor._version", lambda name: None if name == "ruff" else "1.0")
    report = examine()
    assert report["install"] == "pip install 'townlet[ml,data,dev]'"
    assert report["ok"]
    text = describe(report)
    assert "  missing ruff\n" in text
    assert text.endswith("for all that is missing: pip install 'townlet[ml,data,dev]'")


def test_a_complete_machine_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("townlet.cli.doctor.installed", lambda name: True)
    monkeypatch.setattr("townlet.cli.doctor._version", lambda name: "1.0")
    assert describe(examine()).endswith("nothing is missing")


def test_what_makes_a_town_slow_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    monkeypatch.setattr("townlet.cli.doctor._cache", lambda: {"folder": "/cache", "writable": False, "megabytes": 0.0})
    text = describe(examine())
    assert "NUMBA_DISABLE_JIT is set" in text
    assert "set XDG_CACHE_HOME" in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_its_completion(shell: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "_TOWNLET_COMPLETE": f"{shell}_source"}
    result = subprocess.run([sys.executable, "-m", "townlet"], capture_output=True, text=True, env=environment)
    assert "_TOWNLET_COMPLETE" in result.stdout
    assert result.returncode == 0


def test_bash_completes_commands_subcommands_and_options(tmp_path: Path) -> None:
    """The line of the README, in a real bash, with `townlet` on the path."""
    command = tmp_path / "townlet"
    code = "import sys; from townlet.cli.app import main; main()"
    command.write_text(f"#!/bin/sh\nPYTHONPATH={ROOT / 'src'} exec {sys.executable} -c '{code}' \"$@\"\n", encoding="utf-8")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    script = """
    eval "$(_TOWNLET_COMPLETE=bash_source townlet)"
    ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _townlet_completion townlet; echo "${COMPREPLY[@]}"; }
    ask townlet scen
    ask townlet telemetry va
    ask townlet run --rend
    """
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=path)
    assert result.stdout.split() == ["scenarios", "validate", "--render"], result.stderr


def test_hooks_before_a_commit_are_the_checks_of_make() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    body = makefile.split("\ncheck: setup\n")[1].split("\n\n")[0]
    lines = [line.strip().replace("$(BIN)", ".venv/bin") for line in body.splitlines()]
    hooks = read_yaml(ROOT / ".pre-commit-config.yaml")["repos"][0]["hooks"]
    assert [hook["entry"] for hook in hooks] == lines
    assert {hook["language"] for hook in hooks} == {"system"}
