"""The whole sweep: every operation of every writer, once and in pairs, under both layers; one table of figures.

python tests/faults/sweep.py [--layer seam|preload|both] [--writers a,b] [--stride n] [--pairs n] [--minutes n] [--output FILE]

A line of the output is a layer, a writer and a kind of fault, with the stride: how many of how many cases were run, and what was
found. A sweep goes on where the output says that it stopped.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SEED = 17
KEPT = 20  # cases after which the output is written


def library(folder: Path) -> Path | None:
    """The preloaded library, built with the machine's compiler; None where there is none."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    built = folder / "faults.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", built, HERE / "faults.c", "-ldl"], check=True)
    return built


Rows = dict[tuple[str, ...], dict[str, Any]]


def sweep(layer_name: str, names: list[str], stride: int, pairs: int, rows: Rows) -> Iterator[None]:
    """Run what the rows lack, and tell when they have changed."""
    from faults import fault_tools as tools
    from faults.table import note_commit

    layer: tools.Layer = tools.Seam(fork=True) if layer_name == "seam" else tools.Preloaded()
    once = {"kill": tools.KILLS, "full disk": ("full",), "I/O error": ("broken",), "short write": ("half",)}
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        place = Path(folder) / "case"
        for name in names:
            if all(_done(rows.get((layer_name, name, what)), stride, pairs) for what in (*once, "two kills")):
                continue
            draw = random.Random(f"{SEED} {layer_name} {name}")
            whole = tools.uninterrupted(tools.WRITERS[name], place)
            count = tools.operations(layer, tools.WRITERS[name], place)
            chosen = range(1 + draw.randrange(stride), count + 1, stride)
            cases = {what: [tools.Case(name, ((k, way),)) for way in ways for k in chosen] for what, ways in once.items()}
            twice = [[(1 + draw.randrange(count), draw.choice(tools.KILLS)) for _ in range(2)] for _ in range(pairs)]
            cases["two kills"] = [tools.Case(name, tuple(kills)) for kills in twice]
            gc.collect()
            gc.freeze()  # what is forked shares it
            for what, wanted in cases.items():
                key = layer_name, name, what
                if _done(rows.get(key), stride, pairs):
                    continue
                known = rows.get(key, {"stride": 0})
                if known["stride"] != stride or known["operations"] != count:
                    about = {"operations": count, "stride": stride, "cases": 0, "of": 0, "findings": {}}
                    rows[key] = {"layer": layer_name, "writer": name, "fault": what} | about
                rows[key]["of"] = len(wanted)
                note_commit(rows[key])
                yield from _run(tools, layer, wanted, rows[key], whole, place)


def _done(row: dict[str, Any] | None, stride: int, pairs: int) -> bool:
    return row is not None and row["stride"] <= stride and row["cases"] == row["of"] >= (row["fault"] == "two kills") * pairs


def _run(tools: Any, layer: Any, cases: list[Any], row: dict[str, Any], whole: Any, place: Path) -> Iterator[None]:
    """What is left of the cases; the last that was run is run again, because it says what is safe from there on."""
    begin, began, floor = row["cases"], time.perf_counter(), tools.Floor()
    for number in range(max(0, begin - 1), len(cases)):
        for finding in tools.findings(layer, cases[number], whole, place, floor):
            if number >= begin:
                row["findings"][finding.kind] = row["findings"].get(finding.kind, 0) + 1
                print(f"{cases[number]}: {finding.kind}: {finding.words}", file=sys.stderr, flush=True)
        row["cases"] = max(begin, number + 1)
        if number % KEPT == 0 or number + 1 == len(cases):
            yield
    print(json.dumps(row), f"{time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layer", choices=("seam", "preload", "both"), default="both")
    parser.add_argument("--writers", default="")
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which it stops")
    parser.add_argument("--output", type=Path, required=True)
    asked = parser.parse_args()
    if asked.layer == "both":
        _both(asked)
    else:
        sys.path.insert(0, str(HERE.parent))
        from faults import fault_tools as tools

        logging.getLogger("townlet").setLevel(logging.ERROR)  # a log that stops says so
        names = asked.writers.split(",") if asked.writers else list(tools.WRITERS)
        rows = {(row["layer"], row["writer"], row["fault"]): row for row in read_rows(asked.output)}
        end = time.monotonic() + asked.minutes * 60
        for _ in sweep(asked.layer, names, asked.stride, asked.pairs, rows):
            asked.output.write_text("".join(json.dumps(row) + "\n" for row in rows.values()))
            if time.monotonic() > end:
                break
    return 1 if any(row["findings"] for row in read_rows(asked.output)) else 0


def _both(asked: argparse.Namespace) -> None:
    """Each layer in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        for layer in ("seam", "preload"):
            environment = dict(os.environ)
            if layer == "preload":
                built = library(Path(folder))
                if built is None:
                    print("no compiler on this machine: the layer under the process is left out", file=sys.stderr)
                    continue
                environment["LD_PRELOAD"] = str(built)
            words = [sys.executable, __file__, "--layer", layer, "--stride", str(asked.stride), "--pairs", str(asked.pairs)]
            words += ["--minutes", str(asked.minutes)]
            subprocess.run([*words, "--writers", asked.writers, "--output", str(asked.output)], env=environment, check=False)


if __name__ == "__main__":
    sys.exit(main())
