"""One network for nine weights of conflict, beside the nine networks that were trained for one of them each.

The one lives in towns whose weights are spread from the lowest to the highest and is told its town's; afterwards a user tells it
how much peace is wanted. All have the demo's recipe with half its towns. The one learns nine tasks and is trained as long as
three of the others, a third of what the nine cost together. Each is measured with returns in which a conflict weighs what the
network was told, or trained for. Bar: at no weight worse. Finished seeds are kept as long as the recipe is the same.

    python benchmarks/learning/nine_weights.py [--seeds 10] [--processes 2] [--report-only]
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from runs_of import ONE_THREAD, measured, trained

from townlet.config.loader import load_config
from townlet.config.models import config_hash
from townlet.evaluation.table import COLUMNS
from townlet.files import read_json, write_json
from townlet.statistics import paired_difference
from townlet.types import Array

WEIGHTS = (1.0, 1.5, 2.5, 4.0, 6.0, 9.0, 13.0, 20.0, 30.0)
EPOCHS, LONGER, TOWNS, DAYS = 400, 3, 8, 7
MARGIN = 0.5  # return per resident-day: "not worse" is shown where the whole interval stays above minus this
SHOWN = ("return", "conflicts", "lateness", "attendance", "founders", "self_sufficiency")
RECIPE = (*ONE_THREAD, "training.towns=32", f"training.epochs={EPOCHS}", "training.bc.towns=64")
LONG = (f"training.epochs={LONGER * EPOCHS}",)  # of the one
RUNS = Path("runs/nine_weights")
RESULT = Path(__file__).parent / "results" / "nine_weights.json"


def recipe() -> str:
    """What every network is trained with: results of another recipe are not kept beside those of this one."""
    return config_hash(load_config("demo", [*RECIPE, *LONG]))


def told(weight: float) -> str:
    return f"observations.conflict_weight={weight}"


def row(network: str, seed: int, weight: float, policy: str, *words: str) -> dict[str, Any]:
    """All columns of a policy at one weight, town by town."""
    config = load_config("demo", [f"evaluation.rewards.conflict_weight={weight}", *words])
    found = measured(config, policy, towns=TOWNS, days=DAYS).measures
    values = {name: found[name].values for name in COLUMNS}
    return {"network": network, "seed": seed, "weight": weight, "recipe": recipe(), "measures": values}


def cloned_then_trained(name: str, seed: int, *words: str) -> str:
    """PPO with these settings, from a clone of the script whose critic knows their rewards."""
    config = load_config("demo", [*RECIPE, f"seed={seed}", *words])
    return trained(RUNS / f"{name}_{seed}", config, "rollout", Path(cloned(f"clone_of_{name}", seed, *words)))


def cloned(name: str, seed: int, *words: str) -> str:
    """A network that imitates the script."""
    return trained(RUNS / f"{name}_{seed}", load_config("demo", [*RECIPE, f"seed={seed}", *words]), "bc")


def own_network(weight: float, seed: int) -> str:
    """The network that is trained for one weight."""
    return cloned_then_trained(f"own_{weight:g}", seed, f"rewards.conflict_weight={weight}")


def run_seed(seed: int) -> list[dict[str, Any]]:
    spread = f"training.conflict_weights=[{WEIGHTS[0]}, {WEIGHTS[-1]}]"
    one = cloned_then_trained("one", seed, spread, told(WEIGHTS[4]), *LONG)
    rows = [row("one", seed, weight, one, told(weight)) for weight in WEIGHTS]
    for weight in WEIGHTS:
        rows.append(row("own", seed, weight, own_network(weight, seed)))
        print(f"seed {seed}, weight {weight:g}: done", flush=True)
    return rows


def means(rows: list[dict[str, Any]], network: str, weight: float, name: str) -> list[float]:
    """One mean over the towns per seed."""
    return [
        float(np.mean([value for value in row["measures"][name] if value is not None]))
        for row in rows
        if (row["network"], row["weight"]) == (network, weight)
    ]


def report(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Per weight, and over all weights, the one network minus the one trained for it, paired by seed."""
    table, gaps = [], []
    print("weight: return of the one and of its own; difference (interval over seeds); conflicts; late; founders")
    for weight in WEIGHTS:
        pair = {name: [means(rows, network, weight, name) for network in ("one", "own")] for name in SHOWN}
        gaps.append(np.subtract(*pair["return"]))
        gap = _interval(gaps[-1])
        both = {name: [float(np.mean(values)) for values in each] for name, each in pair.items()}
        table.append({"weight": weight, "difference": gap, **both})
        first, second = both["return"]
        shown = "; ".join("{:.3f}, {:.3f}".format(*both[name]) for name in ("conflicts", "lateness", "founders"))
        print(f"{weight:5g}: {first:.2f}, {second:.2f}; {gap[0]:+.2f} ({gap[1]:+.2f} … {gap[2]:+.2f}); {shown}")
    overall = _interval(np.mean(gaps, axis=0))
    shown, worse = (sum(test(entry["difference"]) for entry in table) for test in (_not_worse, _worse))
    ok = shown == len(table)
    print(
        f"over the nine: {overall[0]:+.2f} ({overall[1]:+.2f} … {overall[2]:+.2f}); not worse shown at {shown}, worse at {worse}"
    )
    return {
        "ok": ok,
        "margin": MARGIN,
        "epochs": [LONGER * EPOCHS, EPOCHS],
        "towns": TOWNS,
        "days": DAYS,
        "over_all": overall,
        "table": table,
    }


def _not_worse(difference: tuple[float, float, float]) -> bool:
    return difference[1] > -MARGIN


def _worse(difference: tuple[float, float, float]) -> bool:
    return difference[2] < 0.0


def _interval(values: Array) -> tuple[float, float, float]:
    """Mean over seeds, and its interval; of one seed the mean alone."""
    found = paired_difference(values, np.zeros(len(values)), method="student")
    return found.value, *((found.low, found.high) if len(values) > 1 else (found.value, found.value))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--processes", type=int, default=2, help="seeds at a time, of one thread each")
    parser.add_argument("--report-only", action="store_true", help="run nothing; report on the seeds that are kept")
    given = parser.parse_args()
    rows = read_json(RESULT)["rows"] if RESULT.exists() else []
    if not given.report_only:
        rows = [kept for kept in rows if kept.get("recipe") == recipe()]
    done = {kept["seed"] for kept in rows}
    todo = [] if given.report_only else [seed for seed in range(given.seeds) if seed not in done]
    with ProcessPoolExecutor(given.processes, mp_context=get_context("spawn")) as pool:
        for finished in as_completed([pool.submit(run_seed, seed) for seed in todo]):
            rows += finished.result()
            write_json(RESULT, report(rows) | {"rows": rows})
    raise SystemExit(0 if report(rows)["ok"] else 1)


if __name__ == "__main__":
    main()
