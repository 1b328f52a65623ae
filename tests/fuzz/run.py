"""Fuzz for as long as asked: python tests/fuzz/run.py [--count 200000] [--targets a,b] [--seed 0]; one line per target."""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--targets", default="")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=2)
    asked = parser.parse_args()
    from fuzz import fuzz_tools as tools

    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        tools.store(Path(folder))
        for name in asked.targets.split(",") if asked.targets else tools.TARGETS:
            found, slowest = [], 0.0
            for seed in range(asked.seed, asked.seed + asked.count):
                began = time.perf_counter()
                words = tools.tried(tools.TARGETS[name], seed, Path(folder))
                slowest = max(slowest, time.perf_counter() - began)
                if words:
                    found.append((seed, words))
            bad += len(found)
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(f"{name}: {asked.count} mutations, {len(found)} findings, slowest {slowest:.2f} s, {memory:.0f} MB", flush=True)
            shown: dict[str, tuple[int, str]] = {}
            for seed, words in found:
                shown.setdefault(words.splitlines()[-1][:60], (seed, words))
            for seed, words in list(shown.values())[: asked.show]:
                print(f"  seed {seed}: {words}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
