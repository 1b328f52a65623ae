"""The catalogue page is what the shipped scenarios say."""

from __future__ import annotations

import json

from places import ROOT
from scenario_figures import page_text
from townlet.scenarios.shipped import FOUNDING, ordered_names

DOCS = ROOT / "docs"


def test_the_page_is_generated_from_the_scenarios_and_their_figures() -> None:
    """Refresh it with `python benchmarks/scenario_figures.py --page > docs/ROLLOUT_SCENARIOS.md`."""
    figures = json.loads((DOCS / "samples" / "scenario_figures.json").read_text())
    assert (DOCS / "ROLLOUT_SCENARIOS.md").read_text() == page_text(figures)


def test_figures_are_measured_for_known_scenarios_only() -> None:
    figures = json.loads((DOCS / "samples" / "scenario_figures.json").read_text())
    assert set(figures) <= set(ordered_names()) - set(FOUNDING)
    assert {"town_day", "two_bathrooms", "rush_hour"} <= set(figures)
