"""Does a town of ten thousand learn? The recipe `large` goes on from the demo's network, then four towns that it has not seen, a
day each, beside the script.

townlet train demo --run-dir runs/demo
python benchmarks/metropolis.py          # minutes on an idle machine; a training that is done is not repeated
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from townlet.files import make_folder, write_json

TRAIN = "townlet train metropolis --recipe large --start-from runs/demo/checkpoints/best --run-dir runs/metropolis"
EVALUATE = (
    "townlet evaluate scripted trained=runs/metropolis --scenario metropolis --days 1 --seeds 4 --no-looks --baseline scripted"
)


def run(command: str, *more: str) -> str:
    """What a command prints, by the package that this program uses."""
    words = [sys.executable, "-m", *command.split(), *more]
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout


def summary(card: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a scorecard: both policies, and their differences with intervals."""
    (case,) = card["cases"]
    script, trained = case["policies"]
    kept = {
        policy["name"]: {name: found["mean"] for name, found in policy["measures"].items() if found}
        for policy in (script, trained)
    }
    return {
        "policies": kept,
        "trained_minus_scripted": trained["effects"],
        "weights": trained["policy_hash"],
        "versions": card["versions"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/sim/metropolis.json"))
    asked = parser.parse_args()
    if not Path("runs/metropolis/summary.json").exists():
        run(TRAIN)
    found = summary(json.loads(run(EVALUATE, "--json")))
    make_folder(asked.output.parent)
    write_json(asked.output, {"command": EVALUATE, "trained_by": TRAIN, **found})
    gained, exits = (found["trained_minus_scripted"][name] for name in ("return", "exits"))
    print(f"return {gained['difference']:+.2f} ({gained['low']:+.2f} … {gained['high']:+.2f}), exits {exits['difference']:+.5f}")
    return 0 if gained["low"] > 0 and exits["difference"] <= 0 else 1


if __name__ == "__main__":
    sys.exit(main())
