"""Fuzz for as long as asked: python tests/fuzz/run.py [--count 200000] [--every 10] [--targets a,b] [--seed 0] [--output FILE]

A line per target: mutations, of which every tenth is also used as its reader would go on with it; what was found; the slowest;
how much more memory the process took than before. What stands in the output with as many mutations is not run again.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
WARM = 20  # mutations before time and memory count: what is imported late


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--targets", default="")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=2)
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    from fuzz import fuzz_tools as tools

    rows = {} if asked.output is None or not asked.output.exists() else {row["target"]: row for row in _rows(asked.output)}
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        tools.store(Path(folder))
        for name in asked.targets.split(",") if asked.targets else tools.TARGETS:
            if rows.get(name, {"mutations": 0})["mutations"] >= asked.count:
                continue
            found, slowest, before = {}, 0.0, 0
            for number in range(asked.count):
                began = time.process_time()
                words = tools.tried(tools.TARGETS[name], asked.seed + number, Path(folder), use=number % asked.every == 0)
                if number == WARM:
                    gc.collect()
                    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                elif number > WARM:
                    slowest = max(slowest, time.process_time() - began)
                if words:
                    found[asked.seed + number] = words
            more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
            row = {"target": name, "mutations": asked.count, "used": -(-asked.count // asked.every), "findings": len(found)}
            rows[name] = row | {"slowest_seconds": round(slowest, 3), "more_memory_mb": more}
            print(json.dumps(rows[name]), flush=True)
            if asked.output is not None:
                asked.output.write_text("".join(json.dumps(row) + "\n" for row in rows.values()))
            shown: dict[str, str] = {}
            for seed, words in found.items():
                shown.setdefault(words.splitlines()[-1][:60], f"  seed {seed}: {words}")
            print("\n".join(list(shown.values())[: asked.show]), end="", flush=True)
    return 1 if any(row["findings"] for row in rows.values()) else 0


def _rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


if __name__ == "__main__":
    sys.exit(main())
