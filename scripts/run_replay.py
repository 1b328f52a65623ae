#!/usr/bin/env python
"""Show or check a replay sample, a manifest or a capture folder: `run_replay.py SAMPLE [--validate]`."""

from __future__ import annotations

from townlet.cli.app import run
from townlet.cli.replay import run_replay

if __name__ == "__main__":
    run(run_replay, name="run_replay.py")
