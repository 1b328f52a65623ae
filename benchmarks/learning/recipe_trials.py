"""Trials of the demo's recipe: every setting on several training seeds, measured over a month in 16 validation towns.

Scorecards and studies use other towns, so what is chosen here is judged there. What is changed is said against the demo as it was
then. Most of the stored trials were made with the first weights of torch; those of now differ, so the same command gives other
figures of the same kind.

    python benchmarks/learning/recipe_trials.py [KEY=VALUE …] [--seeds 51 52] [--report-only]
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from time import process_time

import numpy as np
from runs_of import ONE_THREAD, trained

from townlet.config.loader import load_config
from townlet.config.models import config_hash
from townlet.evaluation.scorecard import evaluate
from townlet.evaluation.suites import Case
from townlet.files import read_json, write_json

RESULT = Path(__file__).parent / "results" / "recipe_trials.json"
RUNS = Path("runs/recipe_trials")
WINDOW, TOWNS, DAYS = 1, 16, 28  # the first validation window is that of a run's own evaluations
MORE = 48  # towns of the next window: somebody leaves so seldom that 16 towns do not show it
SHOWN = ("return", "conflicts", "lateness", "attendance", "founders", "overspent", "wallet", "reserved")
LASTING = ("return", "conflicts", "lateness", "attendance", "founders")


def trial(seed: int, changed: list[str]) -> dict[str, object]:
    words = [*ONE_THREAD, *changed, f"seed={seed}"]
    config = load_config("demo", words)
    begun = process_time()
    policy = trained(RUNS / config_hash(config)[:12], config)
    used = process_time() - begun
    case = Case("demo", "demo", towns=TOWNS, days=DAYS, overrides=tuple(changed))
    card = evaluate({"trained": policy}, [case], purpose="validation", window=WINDOW, looks=True).cases[0]
    more = evaluate({"trained": policy}, [replace(case, towns=MORE)], purpose="validation", window=WINDOW + 1).cases[0]
    found = card.policies[0]
    means = {name: measure.mean for name, measure in found.measures.items()}
    means["reserved"] = found.actions["reserve"] / (TOWNS * DAYS * card.residents)
    shuffled = {name: effect.difference for name, effect in (found.looks or {}).items()}
    further = {name: measure.mean for name, measure in more.policies[0].measures.items()}
    about = {"seed": seed, "changed": changed, "processor_seconds": used}
    return {**about, "measures": means, "shuffled": shuffled, "further": further}


def report() -> None:
    trials = defaultdict(list)
    for one in read_json(RESULT):
        trials[" ".join(one["changed"]) or "as shipped"].append(one)
    for words, rows in trials.items():
        cells = [f"{name} {np.mean([row['measures'][name] for row in rows]):.3f}" for name in SHOWN]
        shuffled = [row["shuffled"] for row in rows if row["shuffled"]]
        cells += [f"shuffled {name} {np.mean([one[name] for one in shuffled]):+.2f}" for name in (shuffled or [{}])[0]]
        further = [row["further"] for row in rows if "further" in row]
        cells += [f"further {name} {np.mean([one[name] for one in further]):.4f}" for name in (LASTING if further else ())]
        print(f"{words}\n  {len(rows)} seeds: {', '.join(cells)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("changed", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--seeds", type=int, nargs="+", default=[51, 52, 53])
    parser.add_argument("--report-only", action="store_true", help="print the trials that are there")
    chosen = parser.parse_args()
    for seed in [] if chosen.report_only else chosen.seeds:
        made = trial(seed, chosen.changed)
        write_json(RESULT, [*read_json(RESULT), made])  # read last: another process may have added to it meanwhile
    report()


if __name__ == "__main__":
    main()
