"""The whole sweep: every operation of every writer, once and in pairs, under both layers; one table of figures.

python tests/faults/sweep.py [--layer seam|preload|both] [--writers a,b] [--stride n] [--pairs n] [--output FILE]
"""

from __future__ import annotations

import argparse
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


def sweep(layer_name: str, names: list[str], stride: int, pairs: int) -> list[dict[str, Any]]:
    from faults import fault_tools as tools

    layer: tools.Layer = tools.Seam(fork=True) if layer_name == "seam" else tools.Preloaded()
    rows = []
    draw = random.Random(SEED)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        place = Path(folder) / "case"
        for name in names:
            writer = tools.WRITERS[name]
            whole = tools.uninterrupted(writer, place)
            count = tools.operations(layer, writer, place)
            once = range(1 + draw.randrange(stride), count + 1, stride)
            for what, ways in (
                ("kill", tools.KILLS),
                ("full disk", ("full",)),
                ("I/O error", ("broken",)),
                ("short write", ("half",)),
            ):
                cases = [tools.Case(name, ((k, way),)) for way in ways for k in once]
                rows.append(_run(tools, layer, what, cases, whole, place, count))
            double = [
                tools.Case(
                    name,
                    (
                        (1 + draw.randrange(count), draw.choice(tools.KILLS)),
                        (1 + draw.randrange(count), draw.choice(tools.KILLS)),
                    ),
                )
                for _ in range(pairs)
            ]
            rows.append(_run(tools, layer, "two kills", double, whole, place, count))
    return rows


def _run(tools: Any, layer: Any, what: str, cases: list[Any], whole: Any, place: Path, count: int) -> dict[str, Any]:
    kinds: Counter[str] = Counter()
    examples, began = [], time.perf_counter()
    for case in cases:
        for finding in tools.findings(layer, case, whole, place):
            kinds[finding.kind] += 1
            if len(examples) < 3:
                examples.append(f"{case}: {finding.kind}: {finding.words}")
    name = cases[0].writer if cases else ""
    row = {"layer": layer.name, "writer": name, "fault": what, "operations": count, "cases": len(cases), "findings": dict(kinds)}
    print(json.dumps(row), f"{time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    for line in examples:
        print("   ", line, file=sys.stderr, flush=True)
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layer", choices=("seam", "preload", "both"), default="both")
    parser.add_argument("--writers", default="")
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    if asked.layer == "both":
        rows = _both(asked)
    else:
        sys.path.insert(0, str(HERE.parent))
        from faults import fault_tools as tools

        logging.getLogger("townlet").setLevel(logging.ERROR)  # a log that stops says so
        rows = sweep(asked.layer, asked.writers.split(",") if asked.writers else list(tools.WRITERS), asked.stride, asked.pairs)
    text = json.dumps(rows, indent=1)
    if asked.output is None:
        print(text)
    else:
        asked.output.write_text(text + "\n")
    return 1 if any(row["findings"] for row in rows) else 0


def _both(asked: argparse.Namespace) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
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
            words += ["--writers", asked.writers, "--output", f"{folder}/{layer}.json"]
            subprocess.run(words, env=environment, check=False)
            rows += json.loads(Path(f"{folder}/{layer}.json").read_text())
    return rows


if __name__ == "__main__":
    sys.exit(main())
