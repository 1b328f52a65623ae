"""Every shipped town for three days, with five seeds, by the script and by a network: native, in Node and in Chromium.

PYTHONPATH=tests python benchmarks/page/digests.py [TOWN …]     goes on where it was stopped; digests.json holds what was found

A digest is the SHA-256 of a town's last state, observations, masks, rewards and events. A row is made anew when the engine or the
rules of its town are others than it was made with. metropolis takes a few minutes a row, all others together half an hour.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from bars import chromium

from engine_tools import digests_in_chromium, digests_in_node, native_digests, runs_of, write_runs
from townlet.config.loader import shipped_configs
from townlet.engine.module import engine_module
from townlet.envs.vector import VectorTown
from townlet.evaluation.score_scale import town_hash
from townlet.files import write_bytes

FOUND = Path(__file__).with_name("digests.json")
TOWNS = sorted(shipped_configs(), key=lambda name: (name == "metropolis", name))  # the largest comes last
SEEDS, DAYS = (1, 2, 3, 4, 5), 3


def digests(browser: Any, run: dict[str, Any]) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        write_runs(Path(folder), engine_module(), [run])
        found = {"native": native_digests([run]), "node": digests_in_node(Path(folder))}
        found["chromium"] = digests_in_chromium(browser, Path(folder))
    return {where: one for where, [one] in found.items()}


def order(row: dict[str, Any]) -> tuple[int, int, str]:
    return TOWNS.index(row["town"]), row["seed"], row["policy"]


def equal(row: dict[str, Any]) -> bool:
    return bool(row["native"] == row["node"] == row["chromium"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("towns", nargs="*", default=TOWNS, metavar="TOWN")
    rows = json.loads(FOUND.read_text())["rows"] if FOUND.exists() else []
    engine = hashlib.sha256(engine_module()).hexdigest()[:12]
    with chromium() as browser:
        for name in parser.parse_args().towns:
            vec = VectorTown(name, 1)
            for run in (run for seed in SEEDS for run in runs_of([name], [seed], DAYS * 1440 // vec.interval)):
                said = {"town": name, "policy": run["policy"], "seed": run["seeds"][0], "decisions": run["decisions"]}
                made_with = {"rules": town_hash(vec.config), "engine": engine}
                if any((said | made_with).items() <= row.items() for row in rows):
                    continue
                row = said | made_with | digests(browser, run)
                rows = sorted([one for one in rows if not said.items() <= one.items()] + [row], key=order)
                lines = ",\n".join(json.dumps(one) for one in rows)
                write_bytes(FOUND, f'{{"days": {DAYS}, "rows": [\n{lines}\n]}}\n'.encode())
                print(
                    name, said["policy"], said["seed"], len({row[where] for where in ("native", "node", "chromium")}), flush=True
                )
    differ = [row for row in rows if not row["native"] == row["node"] == row["chromium"]]
    print(f"{len(rows)} of {len(TOWNS) * len(SEEDS) * 2} rows, {len(differ)} differ")
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main())
