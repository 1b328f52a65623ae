"""Among strangers and elsewhere: seen and unseen towns × seen and unseen partners.

The recipe `anywhere`, with networks among its partners: town_day and 39 drawn towns of 24 residents, in which the script,
random residents or one of two networks decide for every other resident. The policy then lives in every other resident of towns
it has met and of others, among partners it has met and among others. It is compared with the tuned script in the same seats; the
neighbours are measured, too. Bars: at most a tenth of the lead over the script is lost among unseen partners; attendance of at
least 0.98 where everybody follows it in two_bathrooms and market_square.

Partners: the script, random residents and two networks that know town_day alone, a clone of the script and one trained for a
conflict weight of 4. Held out: networks of other training seeds (a clone, one for a weight of 1) and one of another recipe, which
learned from nothing. Seeds that are finished are kept in the folder of their run; `--only` makes one, beside another process.

    python benchmarks/learning/strangers.py [--seeds 10] [--only SEED] [--report-only]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from nine_weights import cloned, own_network
from runs_of import ONE_THREAD, measured, trained

from townlet.config.loader import load_config
from townlet.config.models import SimulationConfig
from townlet.evaluation.table import COLUMNS
from townlet.files import make_folder, read_json, write_json, write_text
from townlet.scenarios.random_town import feasible_town, varied_town, written_out
from townlet.statistics import mean_interval

SEEN, UNSEEN = (0, 2, 4), (10_001, 10_003, 10_005, 10_007)  # drawn towns; town_day is seen and two_bathrooms unseen besides
PARTNERS: dict[str, Callable[[], str]] = {
    "scripted": lambda: "scripted",
    "random": lambda: "random",
    "clone": lambda: cloned("clone", 2),
    "network": lambda: own_network(4.0, 2),
}
STRANGERS: dict[str, Callable[[], str]] = {
    "other clone": lambda: cloned("clone", 3),
    "other network": lambda: own_network(1.0, 3),
    "from nothing": lambda: trained(RUNS / "from_nothing", load_config("from_nothing", [*ONE_THREAD, *SHORT])),
}
ELSEWHERE = {"two_bathrooms": (8, 7), "market_square": (1, 7)}  # towns and days
TOWNS, DAYS = 2, 3
SHORT = ("training.towns=32", "training.epochs=80")
MOST_LOST, LEAST_ATTENDANCE = 0.10, 0.98
SHOWN = ("return", "conflicts", "attendance", "lateness", "exits")
RUNS = Path("runs/strangers")
RESULT = Path(__file__).parent / "results" / "strangers.json"


def as_demo(name: str | Path) -> SimulationConfig:
    """A town lived in as the demo's is: its actions and observations."""
    return load_config(str(name), recipe="demo")


def drawn_town(seed: int) -> Path:
    path = make_folder(RUNS) / f"varied_{seed}.yaml"
    if not path.exists():
        write_text(path, written_out(feasible_town(seed, varied_town)))
    return path


def rows_of(label: str, seed: int, policy: str, towns: dict[str, list[str | Path]]) -> list[dict[str, Any]]:
    """The policy among every partner in every town; town by town, itself and its neighbours."""
    partners = {"seen": PARTNERS, "unseen": STRANGERS}
    rows = []
    for met, names in towns.items():
        for name in names:
            config = as_demo(name)
            for known, who, partner in ((known, *one) for known, pool in partners.items() for one in pool.items()):
                card = measured(config, policy, towns=TOWNS, days=DAYS, neighbours=partner())
                about = {"policy": label, "seed": seed, "towns": met, "town": config.config_id, "partners": known, "partner": who}
                own, beside = ({key: each[key].values for key in COLUMNS} for each in (card.measures, card.neighbours or {}))
                rows.append(about | {"measures": own, "neighbours": beside})
            print(f"{label} {seed} in {config.config_id}: done", flush=True)
    return rows


def rows_of_seed(seed: int | None) -> list[dict[str, Any]]:
    """Of one training seed, or of the script; made once."""
    kept = RUNS / f"rows_{'script' if seed is None else seed}.json"
    if kept.exists():
        return list(read_json(kept)["rows"])
    towns: dict[str, list[str | Path]] = {
        "seen": ["town_day", *map(drawn_town, SEEN)],
        "unseen": ["two_bathrooms", *map(drawn_town, UNSEEN)],
    }
    if seed is None:
        rows = rows_of("scripted", 0, "scripted", towns)
    else:
        partners = ", ".join(partner() for partner in PARTNERS.values())
        words = (*ONE_THREAD, f"seed={seed}", f"training.partners=[{partners}]")
        policy = trained(RUNS / f"seed_{seed}", load_config("anywhere", words))
        rows = rows_of("trained", seed, policy, towns)
        for name, (count, days) in ELSEWHERE.items():
            found = measured(as_demo(name), policy, towns=count, days=days).measures
            rows.append(
                {"policy": "trained", "seed": seed, "town": name, "measures": {key: found[key].values for key in COLUMNS}}
            )
    write_json(kept, {"rows": rows})
    return rows


def mean_of(rows: list[dict[str, Any]], whose: str, name: str, **about: object) -> float:
    chosen = (row for row in rows if all(row.get(key) == value for key, value in about.items()))
    return float(np.mean([value for row in chosen for value in row[whose][name] if value is not None]))


def report(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The 2 × 2 table, what is lost of the lead, and attendance elsewhere; intervals over training seeds."""
    seeds = sorted({row["seed"] for row in rows if row["policy"] == "trained"})
    table, leads = [], {}
    for met in ("seen", "unseen"):
        for known in ("seen", "unseen"):
            where = {"towns": met, "partners": known}
            leads[met, known] = np.array([_lead(rows, seed, where) for seed in seeds])
            entry: dict[str, Any] = where | {"lead": mean_interval(leads[met, known])}
            for whose in ("measures", "neighbours"):
                for name in SHOWN:
                    ends = [mean_of(rows, whose, name, policy=policy, **where) for policy in ("trained", "scripted")]
                    entry[f"{name} of {'the measured' if whose == 'measures' else whose}"] = ends
            table.append(entry)
            both = "; ".join("{} {:.2f}, {:.2f}".format(name, *entry[name]) for name in entry if " of " in name)
            print(
                "{} towns, {} partners: lead {:+.2f} ({:+.2f} … {:+.2f}); trained, script: {}".format(
                    met, known, *entry["lead"], both
                )
            )
    lost = {met: 1.0 - float(leads[met, "unseen"].mean() / leads[met, "seen"].mean()) for met in ("seen", "unseen")}
    by_seed = {met: mean_interval(1.0 - leads[met, "unseen"] / leads[met, "seen"]) for met in ("seen", "unseen")}
    there = {
        name: [mean_of(rows, "measures", "attendance", town=name, partners=None, seed=seed) for seed in seeds]
        for name in ELSEWHERE
    }
    attendance = {name: mean_interval(np.array(values)) for name, values in there.items()}
    ok = max(lost.values()) <= MOST_LOST and min(value for value, _, _ in attendance.values()) >= LEAST_ATTENDANCE
    print(f"lead lost among unseen partners: {lost}, by seed {by_seed}")
    print(f"attendance elsewhere: {attendance}, by seed {there}; bar {'met' if ok else 'missed'}")
    about = {"partners": list(PARTNERS), "strangers": list(STRANGERS), "towns": TOWNS, "days": DAYS, "seeds": seeds}
    return {"ok": ok, "table": table, "lost": lost, "lost_by_seed": by_seed, "attendance": attendance} | about


def _lead(rows: list[dict[str, Any]], seed: int, where: dict[str, str]) -> float:
    """Return of the trained over the script's in the same seats, towns and company."""
    own = mean_of(rows, "measures", "return", policy="trained", seed=seed, **where)
    return own - mean_of(rows, "measures", "return", policy="scripted", **where)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", type=int, help="make the rows of this seed and report nothing")
    parser.add_argument("--report-only", action="store_true", help="run nothing; report on what is kept")
    given = parser.parse_args()
    if given.only is not None:
        rows_of_seed(given.only)
        return
    if given.report_only:
        rows = read_json(RESULT)["rows"]
    else:
        rows = [row for seed in (None, *range(given.seeds)) for row in rows_of_seed(seed)]
        write_json(RESULT, report(rows) | {"rows": rows})
    raise SystemExit(0 if report(rows)["ok"] else 1)


if __name__ == "__main__":
    main()
