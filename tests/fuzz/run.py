"""Fuzz for as long as asked:
python tests/fuzz/run.py [--count 200000] [--every 100] [--targets a,b] [--minutes n] [--output FILE]

A line per target: mutations, of which every hundredth is also used as its reader would go on with it; what was found; the
slowest; how much more memory the process took than before. A target goes on where the output says that it stopped.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
WARM = 20  # mutations before time and memory count: what is imported late
KEPT = 1000  # mutations, after which the line is written


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--targets", default="")
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--output", type=Path, required=True)
    asked = parser.parse_args()
    from faults.table import note_commit
    from fuzz import fuzz_tools as tools

    rows, end = _rows(asked.output) if asked.output.exists() else {}, time.monotonic() + asked.minutes * 60
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        tools.store(Path(folder))
        for name in asked.targets.split(",") if asked.targets else tools.TARGETS:
            row = rows.setdefault(name, {"target": name} | dict.fromkeys(COUNTED, 0))
            if row["mutations"] >= asked.count or time.monotonic() > end:
                continue
            note_commit(row)
            for seed in range(WARM):
                tools.tried(tools.TARGETS[name], seed, Path(folder))
            gc.collect()
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            while row["mutations"] < asked.count and time.monotonic() < end:
                for seed in range(row["mutations"], min(asked.count, row["mutations"] + KEPT)):
                    began, use = time.process_time(), seed % asked.every == 0
                    words = tools.tried(tools.TARGETS[name], seed, Path(folder), use=use)
                    row["slowest_seconds"] = max(row["slowest_seconds"], round(time.process_time() - began, 3))
                    row["used"] += use
                    row["findings"] += bool(words)
                    if words:
                        print(f"{name}, seed {seed}: {words}", flush=True)
                row["mutations"] = seed + 1
                more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
                row["more_memory_mb"] = max(row["more_memory_mb"], more)
                asked.output.write_text("".join(json.dumps(row) + "\n" for row in rows.values()))
            print(json.dumps(row), flush=True)
    return 1 if any(row["findings"] for row in rows.values()) else 0


COUNTED = ("mutations", "used", "findings", "slowest_seconds", "more_memory_mb")


def _rows(path: Path) -> dict[str, dict[str, Any]]:
    return {row["target"]: row for row in map(json.loads, path.read_text().splitlines())}


if __name__ == "__main__":
    sys.exit(main())
