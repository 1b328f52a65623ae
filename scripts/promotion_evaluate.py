#!/usr/bin/env python
"""Judge a candidate checkpoint: exit code 0 PROMOTE, 1 HOLD, 2 FAIL, 64 wrong usage. The same as `townlet promote evaluate`."""

from __future__ import annotations

import sys

from townlet.cli.app import run
from townlet.cli.promote import promote

if __name__ == "__main__":
    run(promote, ["evaluate", *sys.argv[1:]], "townlet promote")
