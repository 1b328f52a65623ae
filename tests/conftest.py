"""For all tests: speed is never asserted in seconds, so Hypothesis has no deadline; words on compiling are nobody's errors."""

from __future__ import annotations

import pytest
from hypothesis import settings

from townlet.world import _cache

settings.register_profile("townlet", deadline=None)
settings.load_profile("townlet")


@pytest.fixture(autouse=True)
def _compile_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests compare what commands say, and the first one of a version compiles."""
    monkeypatch.setattr(_cache, "tell", lambda words, end="\n": None)
