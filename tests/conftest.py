"""For all tests: speed is never asserted in seconds, so Hypothesis has no deadline; words on compiling are nobody's errors."""

from __future__ import annotations

import pytest
from hypothesis import settings

from townlet.policy.training import bfloat16
from townlet.world import _cache

settings.register_profile("townlet", deadline=None)
settings.load_profile("townlet")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-bfloat16", action="store_true", help="Let the try of bfloat16 die of an illegal instruction.")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--no-bfloat16"):
        bfloat16.TRY = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"


@pytest.fixture(autouse=True)
def _compile_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests compare what commands say, and the first one of a version compiles."""
    monkeypatch.setattr(_cache, "tell", lambda words, end="\n": None)
