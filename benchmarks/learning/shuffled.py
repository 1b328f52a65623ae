"""Does the demo's policy look at conflict? What ten training seeds lose when the conflict fields are shuffled among residents.

Reads the run folders of `townlet study benchmarks/learning/town_day.yaml` and measures each policy over a month in the held-out
towns, as it is and shuffled; returns as scorecards count them. Finished seeds are kept; without run folders the figures that are
there are printed.

    python benchmarks/learning/shuffled.py [--runs runs/studies]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from townlet.config.models import SimulationConfig
from townlet.evaluation.scorecard import evaluate, policy_hash
from townlet.evaluation.suites import Case
from townlet.files import read_json, write_json
from townlet.policy.training.run_folder import RunFolder
from townlet.statistics import paired_difference
from townlet.studies.runner import training_folder
from townlet.studies.spec import jobs_of, load_spec

HERE = Path(__file__).parent
RESULT = HERE / "results" / "shuffled.json"
TOWNS, DAYS = 8, 28


def measured(policy: str, config: SimulationConfig) -> dict[str, float]:
    """What a policy loses in return and conflicts, and how often a day a resident reserves a place."""
    case = evaluate({"trained": policy}, [Case("demo", "demo", towns=TOWNS, days=DAYS, config=config)], looks=True).cases[0]
    card = case.policies[0]
    reserved = card.actions["reserve"] / (TOWNS * DAYS * case.residents)
    return {"reserved": reserved, **{name: effect.difference for name, effect in (card.looks or {}).items()}}


def measure_all(runs: Path) -> list[dict[str, Any]]:
    """A row per seed; those of policies that are there no more are left out."""
    kept = {row["policy_hash"]: row for row in (read_json(RESULT) if RESULT.exists() else [])}
    rows = []
    for job in jobs_of(load_spec(HERE / "town_day.yaml")):
        run = RunFolder(training_folder(job, runs))
        best = run.best() if run.exists else None
        if best is not None:
            known = policy_hash(str(best))
            rows.append(kept.get(known) or {"seed": job.seed, "policy_hash": known, **measured(str(best), job.config)})
            write_json(RESULT, [*kept.values(), *(row for row in rows if row["policy_hash"] not in kept)])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/studies"))
    rows = measure_all(parser.parse_args().runs)
    if rows:
        write_json(RESULT, rows)
    rows = rows or read_json(RESULT)
    for name in ("return", "conflicts", "reserved"):
        values = np.array([row[name] for row in rows])
        found = paired_difference(values, np.zeros(len(values)), method="student")
        print(f"{name}: {found.value:+.3f} ({found.low:+.3f} … {found.high:+.3f}), {len(values)} seeds: {np.round(values, 2)}")


if __name__ == "__main__":
    main()
