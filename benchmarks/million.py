"""A million residents for a day under a trained policy: a hundred towns of ten thousand, and each of them lived again alone.

townlet train demo --run-dir runs/demo
python benchmarks/million.py alone       # each town in a process of its own, two at a time; goes on where it was stopped
python benchmarks/million.py together    # all of them, by two workers, and compare

Both write into one file, benchmarks/sim/million.json unless --output says otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from townlet.files import make_folder, write_json
from townlet.optional import versions
from townlet.policy.checkpoint import load_checkpoint, weights_hash

RUN = ("townlet", "run", "metropolis", "--set", "policy.action_level=candidates")
TOLD = ("towns", "residents", "decisions", "illegal_actions", "events_lost", "per_resident_day", "seconds", "peak_memory_mb")


def run(words: tuple[str, ...]) -> dict[str, Any]:
    """What a command says, by the package that this program uses."""
    said = subprocess.run([sys.executable, "-m", *words, "--json"], stdout=subprocess.PIPE, text=True, check=True).stdout
    found: dict[str, Any] = json.loads(said)
    return found


def live_together(towns: int, workers: int, policy: str) -> dict[str, Any]:
    words = (*RUN, "--towns", str(towns), "--workers", str(workers), "--policy", policy)
    busy = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        digests = Path(folder) / "digests.ndjson"
        many = run((*words, "--digests", str(digests)))
        rows = {str(row["town"]): row["digest"] for row in map(json.loads, digests.read_text().splitlines())}
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "command": " ".join(words),
        **{name: many[name] for name in TOLD},
        "processor_seconds": spent.ru_utime + spent.ru_stime,
        "load_average_before": busy,
        "digests": rows,
        "versions": versions("numpy", "numba"),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("how", choices=("alone", "together"))
    parser.add_argument("--policy", default="runs/demo")
    parser.add_argument("--towns", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2, help="towns at a time")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/sim/million.json"))
    asked = parser.parse_args()
    weights = weights_hash(load_checkpoint(Path(asked.policy)).weights)
    make_folder(asked.output.parent)
    known = json.loads(asked.output.read_text()) if asked.output.exists() else {}
    if known.get("weights") != weights:
        known = {"weights": weights, "alone": {}, "together": None}
    if asked.how == "together":
        known["together"] = live_together(asked.towns, asked.workers, asked.policy)
        write_json(asked.output, known)
    else:
        left = [str(k) for k in range(asked.towns) if str(k) not in known["alone"]]
        with ThreadPoolExecutor(asked.workers) as several:
            for town, said in zip(left, several.map(lambda k: run((*RUN, "--town", k, "--policy", asked.policy)), left)):
                known["alone"][town] = said["digest"]
                write_json(asked.output, known)
    both = known["together"] or {"digests": {}}
    compared = {town: digest == known["alone"][town] for town, digest in both["digests"].items() if town in known["alone"]}
    known["compared"], known["equal"] = len(compared), sum(compared.values())
    write_json(asked.output, known)
    told = {name: value for name, value in both.items() if name != "digests"}
    json.dump(told | {name: known[name] for name in ("compared", "equal")}, sys.stdout, indent=2)
    return 0 if all(compared.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
