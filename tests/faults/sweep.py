"""The whole sweep: every operation of every writer, once and in pairs, under both layers; one table of figures.

python tests/faults/sweep.py [--layer seam|preload|both] [--writers a,b] [--stride n] [--pairs n] [--output FILE]

A line of the output is a layer, a writer and a kind of fault, with the stride; what stands there of as many operations is not run
again, so that a sweep can be stopped.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SEED = 17


def library(folder: Path) -> Path | None:
    """The preloaded library, built with the machine's compiler; None where there is none."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    built = folder / "faults.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", built, HERE / "faults.c", "-ldl"], check=True)
    return built


def sweep(layer_name: str, names: list[str], stride: int, pairs: int, known: set[tuple[str, ...]]) -> Iterator[dict[str, Any]]:
    from faults import fault_tools as tools

    layer: tools.Layer = tools.Seam(fork=True) if layer_name == "seam" else tools.Preloaded()
    once = {"kill": tools.KILLS, "full disk": ("full",), "I/O error": ("broken",), "short write": ("half",)}
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        place = Path(folder) / "case"
        for name in names:
            todo = [what for what in (*once, "two kills") if (layer_name, name, what) not in known]
            if not todo:
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
            for what in todo:
                yield _run(tools, layer, what, cases[what], whole, place, count) | {"stride": stride}


def _run(tools: Any, layer: Any, what: str, cases: list[Any], whole: Any, place: Path, count: int) -> dict[str, Any]:
    kinds: Counter[str] = Counter()
    examples, began, floor = [], time.perf_counter(), tools.Floor()
    for case in cases:
        for finding in tools.findings(layer, case, whole, place, floor):
            kinds[finding.kind] += 1
            if len(examples) < 3:
                examples.append(f"{case}: {finding.kind}: {finding.words}")
    name = cases[0].writer if cases else ""
    row = {"layer": layer.name, "writer": name, "fault": what, "operations": count, "cases": len(cases), "findings": dict(kinds)}
    print(json.dumps(row), f"{time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    for line in examples:
        print("   ", line, file=sys.stderr, flush=True)
    return row


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _key(row: dict[str, Any]) -> tuple[str, ...]:
    return row["layer"], row["writer"], row["fault"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layer", choices=("seam", "preload", "both"), default="both")
    parser.add_argument("--writers", default="")
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--output", type=Path, required=True)
    asked = parser.parse_args()
    if asked.layer == "both":
        _both(asked)
    else:
        sys.path.insert(0, str(HERE.parent))
        from faults import fault_tools as tools

        logging.getLogger("townlet").setLevel(logging.ERROR)  # a log that stops says so
        names = asked.writers.split(",") if asked.writers else list(tools.WRITERS)
        rows = {_key(row): row for row in read_rows(asked.output)}
        known = {key for key, row in rows.items() if row["stride"] <= asked.stride}
        for row in sweep(asked.layer, names, asked.stride, asked.pairs, known):
            rows[_key(row)] = row
            asked.output.write_text("".join(json.dumps(row) + "\n" for row in rows.values()))
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
            subprocess.run([*words, "--writers", asked.writers, "--output", str(asked.output)], env=environment, check=False)


if __name__ == "__main__":
    sys.exit(main())
