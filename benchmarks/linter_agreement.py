"""Does the linter's verdict agree with seven simulated days? Fifty drawn towns, one line each, and the share at the end.

python benchmarks/linter_agreement.py [COUNT [FIRST_SEED]]
"""

from __future__ import annotations

import itertools
import sys

from townlet.errors import ScenarioError
from townlet.scenarios.invent import drawn_town
from townlet.scenarios.lint import lint
from townlet.studies.week import DAYS, live_a_week

BAR = 0.95


def main(count: int = 50, first: int = 0) -> int:
    agreed = built = 0
    for seed in itertools.count(first):
        if built == count:
            break
        config = drawn_town(seed)
        try:
            report = lint(config, days=DAYS)
        except ScenarioError as error:
            print(f"seed {seed:>3}  cannot be built, left out: {error}")
            continue
        week, built = live_a_week(config), built + 1
        same = report.ok == week.lives
        agreed += same
        failed = ",".join(verdict.name for verdict in report.verdicts if not verdict.ok) or "-"
        print(
            f"seed {seed:>3}  {week.residents:>2} residents  linter {'passes' if report.ok else 'fails '} ({failed})  "
            f"week: {week.exits} exits, attendance {week.attendance:.2f}  {'agree' if same else 'DISAGREE'}"
        )
    print(f"agreement {agreed}/{count} = {agreed / count:.2f}, bar {BAR}")
    return 0 if agreed >= BAR * count else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
