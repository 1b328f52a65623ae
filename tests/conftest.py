"""For all tests: speed is never asserted in seconds, so Hypothesis has no deadline."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("townlet", deadline=None)
settings.load_profile("townlet")
