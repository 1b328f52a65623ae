"""Measure the figures of the scenario catalogue and write docs/samples/scenario_figures.json.

python benchmarks/scenario_figures.py [SCENARIO...]
townlet scenarios list --page > docs/ROLLOUT_SCENARIOS.md
"""

from __future__ import annotations

import sys
from pathlib import Path

from townlet.config.loader import load_config
from townlet.files import read_json, write_json
from townlet.scenarios.catalogue import FOUNDING, entry, ordered_names
from townlet.studies.figures import SIGHT_DAYS, figures_of

PATH = Path(__file__).parents[1] / "docs" / "samples" / "scenario_figures.json"
RESIDENT_DAYS = 2_000  # large towns need fewer days for the same precision


def main(names: list[str]) -> None:
    figures = read_json(PATH, limit=1 << 20) if PATH.is_file() else {}
    for name in names or [name for name in ordered_names() if name not in FOUNDING]:
        config = load_config(name)
        days = max(2, min(SIGHT_DAYS, RESIDENT_DAYS // entry(config).residents))
        figures[name] = {**figures_of(config, days=days).as_words(), "days": days}
        print(name, figures[name], flush=True)
        write_json(PATH, {key: figures[key] for key in ordered_names() if key in figures})


if __name__ == "__main__":
    main(sys.argv[1:])
