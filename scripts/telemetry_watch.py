#!/usr/bin/env python3
"""Check a PPO telemetry log against thresholds, or follow it with --follow: townlet telemetry watch."""

import sys

from townlet.cli.app import main

if __name__ == "__main__":
    main(["telemetry", "watch", "--no-follow", *sys.argv[1:]])
