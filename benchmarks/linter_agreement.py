"""Does the linter's verdict agree with seven simulated days? Two hundred towns, half of them spoilt in one place.

A line per town and the share at the end. The linter's bounds were set on seeds below 1,100; these are others.

python benchmarks/linter_agreement.py --drawn 100 --each 5 --first 2000 --json benchmarks/linter_agreement.json
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

from townlet.errors import ScenarioError
from townlet.files import write_json
from townlet.studies.agreement import DAMAGES, Judged, judge

BAR = 0.95


def towns(drawn: int, each: int, first: int) -> Iterator[Judged]:
    """Towns as they are drawn, then each damage done to towns that could live."""
    built = 0
    for seed in itertools.count(first):
        if built == drawn:
            break
        try:
            yield judge(seed)
        except ScenarioError as error:
            print(f"seed {seed} cannot be built, left out: {error}")
            continue
        built += 1
    seeds = itertools.count(first)
    for damage in DAMAGES:
        for seed in itertools.islice(seeds, each):
            yield judge(seed, damage)


def line(one: Judged) -> str:
    week = "cannot be built"
    if one.week is not None:
        lived = one.week
        week = f"{lived.exits} of {lived.residents} left, {lived.attendance:.0%} at work, lowest need {lived.lowest:.2f}"
    verdict = f"fails ({', '.join(one.failed)})" if one.failed else "passes"
    return f"{'' if one.agrees else 'DISAGREE: '}seed {one.seed}, {one.damage or 'as drawn'}: linter {verdict}; week: {week}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drawn", type=int, default=100, help="towns as they are drawn")
    parser.add_argument("--each", type=int, default=5, help="towns per damage")
    parser.add_argument("--first", type=int, default=2000, help="first seed")
    parser.add_argument("--json", type=Path, help="file for the result")
    given = parser.parse_args()
    judged: list[Judged] = []
    for one in towns(given.drawn, given.each, given.first):
        judged.append(one)
        print(line(one), flush=True)
    agreed, living = sum(one.agrees for one in judged), sum(one.lives for one in judged)
    print(f"agreement {agreed} of {len(judged)} = {agreed / len(judged):.3f}, bar {BAR}; {living} of them live")
    if given.json is not None:
        counts = {
            damage or "as drawn": {
                "towns": len(part),
                "live": sum(one.lives for one in part),
                "agree": sum(one.agrees for one in part),
            }
            for damage in (None, *DAMAGES)
            if (part := [one for one in judged if one.damage == damage])
        }
        write_json(
            given.json,
            {
                "command": " ".join(["python benchmarks/linter_agreement.py", *sys.argv[1:]]),
                "towns": len(judged),
                "agree": agreed,
                "agreement": agreed / len(judged),
                "live": living,
                "by_damage": counts,
                "disagreements": [line(one).removeprefix("DISAGREE: ") for one in judged if not one.agrees],
            },
        )
    return 0 if agreed >= BAR * len(judged) else 1


if __name__ == "__main__":
    sys.exit(main())
