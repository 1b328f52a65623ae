"""Shared by all benchmarks: rows with their bars, the present speed of the machine, timing two things in turns."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from time import process_time

from townlet.types import Record

LOOPS = 300_000


def row(name: str, value: float, unit: str, bar: float | None = None, *, smaller: bool = False, **more: object) -> Record:
    """One line of a bench; without a bar it is for information."""
    ok = True if bar is None else value <= bar if smaller else value >= bar
    return {"name": name, "value": value, "unit": unit, "bar": bar, "ok": ok, **more}


def calibration(name: str = "calibration: additions in plain Python") -> Record:
    """How fast the machine is just now: additions a second, best of five."""
    best = 0.0
    for _ in range(5):
        begin, total = process_time(), 0
        for k in range(LOOPS):
            total += k & 7
        best = max(best, LOOPS / (process_time() - begin))
    return row(name, best, "1/s")


def paired(one: Callable[[], float], other: Callable[[], float], repeats: int) -> float:
    """The median ratio of two things timed in turns."""
    return median(one() / other() for _ in range(repeats))


def memory_mb(key: str = "VmRSS") -> float:
    """MB of this process; `ru_maxrss` would also know the parent it was forked from."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:")) / 1e3


def child_seconds(words: Sequence[str], environment: Mapping[str, str] | None = None) -> float:
    """Processor seconds of one `townlet` command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "townlet", *words], check=True, capture_output=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
