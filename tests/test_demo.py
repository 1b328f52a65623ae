"""`make demo` removes what an earlier demo left, and nothing else."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from checkpoints import write_run
from faults import fault_tools as tools
from townlet import files
from townlet.config import load_config
from townlet.errors import StorageError, UsageError

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "demo.py"
RUN = Path("runs/demo")


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    return runpy.run_path(str(SCRIPT))


@pytest.fixture
def remove_earlier(script: dict[str, Any]) -> Callable[[], None]:
    removed: Callable[[], None] = script["remove_earlier"]
    return removed


def test_an_earlier_demo_is_removed(remove_earlier: Callable[[], None]) -> None:
    write_run(RUN, load_config("demo"))
    remove_earlier()
    assert not RUN.exists()
    remove_earlier()  # nothing is there


def test_a_run_of_another_config_is_kept(remove_earlier: Callable[[], None]) -> None:
    write_run(RUN, tools.tiny())
    with pytest.raises(UsageError, match=r"runs/demo holds a run of .*, which the demo would remove; move it"):
        remove_earlier()
    assert (RUN / "run.json").exists()


def test_a_run_in_use_is_kept(remove_earlier: Callable[[], None]) -> None:
    write_run(RUN, load_config("demo"))
    with files.FolderLock(RUN), pytest.raises(UsageError, match="runs/demo is in use by process"):
        remove_earlier()
    assert (RUN / "run.json").exists()


def test_a_second_demo_is_refused(script: dict[str, Any]) -> None:
    demo: click.Command = script["demo"]
    write_run(RUN, load_config("demo"))
    with files.FolderLock(RUN.parent, only=RUN.name), pytest.raises(UsageError, match="runs/demo is in use by process"):
        demo.main([], standalone_mode=False)
    assert (RUN / "run.json").exists()


@pytest.mark.parametrize("link", [True, False])
def test_something_in_the_place_of_the_folder_of_runs_is_told(script: dict[str, Any], link: bool) -> None:
    demo: click.Command = script["demo"]
    Path("runs").symlink_to("nowhere") if link else Path("runs").write_text("")
    with pytest.raises(StorageError, match="runs cannot be written: Not a directory"):
        demo.main([], standalone_mode=False)
