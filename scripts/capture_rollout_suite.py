#!/usr/bin/env python
"""Capture many scenarios, by default the five founding ones; `--golden` refreshes the committed samples and statistics."""

from __future__ import annotations

from townlet.cli.app import run
from townlet.cli.capture import capture_suite

if __name__ == "__main__":
    run(capture_suite, name="capture_rollout_suite.py")
