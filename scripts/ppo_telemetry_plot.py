#!/usr/bin/env python3
"""Draw a PPO telemetry log: townlet telemetry plot."""

import sys

from townlet.cli.app import main

if __name__ == "__main__":
    main(["telemetry", "plot", *sys.argv[1:]])
