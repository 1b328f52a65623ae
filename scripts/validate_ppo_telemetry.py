#!/usr/bin/env python3
"""Check PPO telemetry logs and their drift: townlet telemetry validate."""

import sys

from townlet.cli.app import main

if __name__ == "__main__":
    main(["telemetry", "validate", *sys.argv[1:]])
