#!/usr/bin/env python
"""Capture a scenario as replay samples: `capture_rollout.py CONFIG --ticks N --output DIR [flags]`."""

from __future__ import annotations

from townlet.cli.app import run
from townlet.cli.capture import capture

if __name__ == "__main__":
    run(capture, name="capture_rollout.py")
