#!/usr/bin/env python3
"""Summarise a PPO telemetry log: townlet telemetry summary."""

import sys

from townlet.cli.app import main

if __name__ == "__main__":
    main(["telemetry", "summary", *sys.argv[1:]])
