"""For all tests: speed is never asserted in seconds, so Hypothesis has no deadline; words on compiling are nobody's errors."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from importlib.machinery import PathFinder

import click
import pytest
from hypothesis import settings

from places import Call
from townlet import signals
from townlet.cli.app import app, run
from townlet.policy.training import bfloat16
from townlet.world import _cache

settings.register_profile("townlet", deadline=None)
settings.load_profile("townlet")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-bfloat16", action="store_true", help="Let the try of bfloat16 die of an illegal instruction.")
    parser.addoption("--no-torch", action="store_true", help="Hide torch: everything else must still be imported and work.")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job passes that on to every process of a test
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--no-bfloat16"):
        bfloat16.TRY = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
    if config.getoption("--no-torch"):
        find = PathFinder.find_spec
        PathFinder.find_spec = lambda name, *more: None if name == "torch" else find(name, *more)  # type: ignore[method-assign]


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("door"):
        pytest.importorskip(mark.kwargs["library"])


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """`townlet WORDS…`, or another command, in this process: its exit code, what it printed, and what it said on stderr."""

    def called(*words: object, command: click.Command = app) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            run(command, [str(word) for word in words], "townlet" if command is app else command.name)
        out, err = capsys.readouterr()
        assert isinstance(left.value.code, int)
        assert "Traceback" not in err or "--debug" in words
        return left.value.code, out, err

    return called


@pytest.fixture(autouse=True)
def _compile_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests compare what commands say, and the first one of a version compiles."""
    monkeypatch.setattr(_cache, "tell", lambda words, end="\n": None)


@pytest.fixture(autouse=True)
def _signals_of_a_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test that calls a command in this process does not leave its answers to signals behind."""
    handlers = {number: signal.getsignal(number) for number in signals.SIGNALS}
    monkeypatch.setattr(signals, "_commanded", False)
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
