"""A million residents for a day under a trained policy: a hundred towns of ten thousand, some of them lived again alone.

townlet train demo --run-dir runs/demo
python benchmarks/million.py --alone 0 37 62 99 --output benchmarks/sim/million.json

Each call adds a part to the file: with --first and --towns a hundred towns are lived in several sittings.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from townlet.files import make_folder, write_json
from townlet.optional import versions

RUN = ("townlet", "run", "metropolis", "--set", "policy.action_level=candidates")
TOLD = ("towns", "residents", "decisions", "illegal_actions", "events_lost", "per_resident_day", "seconds", "peak_memory_mb")


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*RUN, *words, "--json"], stdout=subprocess.PIPE, text=True)


def answer(run: subprocess.Popen[str]) -> dict[str, Any]:
    said = run.communicate()[0]
    if run.returncode:
        raise SystemExit(run.returncode)
    found: dict[str, Any] = json.loads(said)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="runs/demo")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--towns", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--alone", type=int, nargs="*", default=[], help="towns to live again, each in a process of its own")
    parser.add_argument("--output", type=Path, required=True)
    asked = parser.parse_args()
    busy = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        digests = Path(folder) / "digests.ndjson"
        words = ("--town", str(asked.first), "--towns", str(asked.towns), "--workers", str(asked.workers))
        many = answer(start(*words, "--policy", asked.policy, "--digests", str(digests)))
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        rows = {row["town"]: row["digest"] for row in map(json.loads, digests.read_text().splitlines())}
    alone = {town: start("--town", str(town), "--policy", asked.policy) for town in asked.alone}
    again = {town: answer(run)["digest"] for town, run in alone.items()}
    part = {
        "command": " ".join((*RUN, *words, "--policy", "runs/demo")),
        **{name: many[name] for name in TOLD},
        "processor_seconds": spent.ru_utime + spent.ru_stime,
        "load_average_before": busy,
        "alone_equal": {town: digest == rows[town] for town, digest in again.items()},
        "digests": rows,
        "versions": versions("numpy", "numba"),
    }
    make_folder(asked.output.parent)
    parts = json.loads(asked.output.read_text())["parts"] if asked.output.exists() else []
    write_json(asked.output, {"parts": [*parts, part]})
    json.dump({name: value for name, value in part.items() if name != "digests"}, sys.stdout, indent=2)
    return 0 if all(part["alone_equal"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
