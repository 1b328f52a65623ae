#!/usr/bin/env python3
"""Do a month and a day rank ten ways of life as a person would, in towns that had no part in choosing them?

The characters of `townlet.testing` and the reward's weights were chosen in `town_day` on the validation window and on the first
evaluation window. Here they live in the towns of another window, in `town_day` and in three towns that nothing was chosen in.

    python benchmarks/ends/characters.py           # measure what is missing, write results and the table of docs/evaluation.md
    python benchmarks/ends/characters.py --table   # only write the table anew, with the scores of today's scale
"""

from __future__ import annotations

import argparse
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from townlet.envs.vector import VectorTown
from townlet.evaluation.scorecard import evaluate, scale_of
from townlet.evaluation.suites import Case
from townlet.files import read_json, write_json, write_text
from townlet.testing import CHARACTERS, CharacterPolicy

RESULTS = Path(__file__).with_name("characters.json")
GUIDE = Path("docs/evaluation.md")
BEGIN, END = "<!-- characters: written by benchmarks/ends/characters.py -->", "<!-- characters end -->"
WINDOW = 4242  # of the evaluation seeds; nothing was chosen there
TOWNS = {"town_day": 4, "two_bathrooms": 2, "rush_hour": 1, "market_square": 1}
DAYS = (1, 28)


def lived(name: str, vec: VectorTown) -> CharacterPolicy:
    return CharacterPolicy(name)


def measured(town: str, days: int) -> dict[str, float]:
    """Return per resident-day of each way of life."""
    policies = {name: partial(lived, name) for name in CHARACTERS}
    card = evaluate(policies, [Case(town, town, towns=TOWNS[town], days=days)], window=WINDOW).cases[0]
    return {name: round(card.policy(name).measures["return"].mean or 0.0, 2) for name in CHARACTERS}


def out_of_order(returns: dict[str, float]) -> list[list[str]]:
    """Neighbours in the order of a person of whom the better earns less; equal lives (no tuned script) are no neighbours."""
    return [[a, b] for a, b in pairwise(CHARACTERS) if returns[a] < returns[b]]


def scores(one: dict[str, Any]) -> dict[str, float | None]:
    case = Case(one["town"], one["town"], days=one["days"])
    scale = scale_of(case.town(), case)
    return {name: None if scale is None else scale.score(earned) for name, earned in one["returns"].items()}


def table(found: list[dict[str, Any]]) -> str:
    head = " | ".join(f"{one['town']}, {one['days']} d" for one in found)
    lines = [f"| way of life | {head} |", "| --- |" + " ---: |" * len(found)]
    scored = [scores(one) for one in found]
    for name in CHARACTERS:
        cells = []
        for one, own in zip(found, scored):
            score = own[name]
            cells.append(f"{one['returns'][name]:.1f}" + ("" if score is None else f" ({score:.2f})"))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Let ten ways of life live where nothing was chosen.")
    parser.add_argument("--table", action="store_true", help="only write the table of docs/evaluation.md")
    chosen = parser.parse_args()
    found = read_json(RESULTS)["found"] if RESULTS.exists() else []
    done = {(one["town"], one["days"]) for one in found}
    for town, days in product(TOWNS, DAYS):
        if (town, days) not in done and not chosen.table:
            returns = measured(town, days)
            found.append({"town": town, "days": days, "returns": returns, "out_of_order": out_of_order(returns)})
            write_json(RESULTS, {"command": "python benchmarks/ends/characters.py", "window": WINDOW, "found": found})
    before, _, rest = GUIDE.read_text().partition(BEGIN)
    write_text(GUIDE, f"{before}{BEGIN}\n\n{table(found)}\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
