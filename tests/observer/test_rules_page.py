"""How a town works: the page says what the config says, and leaves nothing out."""

from __future__ import annotations

import pytest

from places import ROOT
from townlet.config.loader import load_config, shipped_configs
from townlet.dto.evaluation import MEASURES
from townlet.observations.spec import ObservationSpec
from townlet.observer.rules_page import GROUP_MEANS, PICTURES, page_text
from townlet.world.actions import Catalogue
from townlet.world.state import CONFLICT_REASONS, PERTURBATIONS, TERMS


def test_the_page_is_that_of_the_default_town() -> None:
    """Refresh it with `townlet scenarios rules town_day --pictures images > docs/town.md`."""
    assert (ROOT / "docs" / "town.md").read_text(encoding="utf-8") == page_text(load_config("town_day"), pictures="images")
    assert all((ROOT / "docs" / "images" / file).is_file() for file, _ in PICTURES.values())


def test_every_term_and_reason_is_explained() -> None:
    text = page_text(load_config("town_day"))
    assert all(f"| {name} |" in text for name in (*TERMS, *CONFLICT_REASONS))
    assert "|  |" not in text, "something has no sentence"
    assert all(f"| `{kind}` |" in text for kind in PERTURBATIONS)
    assert all(f"### {title}" in text for title in GROUP_MEANS.values())


@pytest.mark.parametrize("name", shipped_configs("scenarios"))
def test_every_shipped_town_has_its_page(name: str) -> None:
    config = load_config(name)
    text = page_text(config)
    assert all(f"| `{field.name}` |" in text for field in ObservationSpec.of(config).fields)
    assert all(f"| {need} |" in text for need in config.needs)
    assert all(f"| {spec.id} |" in text for spec in config.affordances.specs)


def test_the_weight_of_conflict_is_explained_where_it_is_told() -> None:
    text = page_text(load_config("town_day", ("observations.conflict_weight=3",)))
    assert "| `conflict_weight` | weight, half 6 | 0 … 1 |" in text.partition("### About the town")[2].partition("###")[0]


@pytest.mark.parametrize("level", ["option", "candidates", "primitive"])
def test_every_action_of_every_catalogue_is_explained(level: str) -> None:
    config = load_config("town_day", (f"policy.action_level={level}",))
    text = page_text(config)
    names = Catalogue(level, tuple(spec.id for spec in config.affordances.specs)).names
    assert all(f"| `{name}` |" in text for name in names)
    assert all(f"| `{measure}` |" in text for measure in MEASURES)


def test_the_range_of_the_needs_term_is_that_of_empty_needs() -> None:
    config = load_config("town_day")
    worst = -config.rewards.needs_scale * sum(need.weight for need in config.needs.values())
    assert f"| {worst:.3g} … 0 |" in page_text(config)


def test_the_numbers_of_the_fields_are_their_places_in_the_observation() -> None:
    config = load_config("town_day")
    text = page_text(config)
    assert all(f"| {number} | `{field.name}` |" in text for number, field in enumerate(ObservationSpec.of(config).fields))


def test_a_chat_with_somebody_one_distrusts_can_cost_reward() -> None:
    rewards = load_config("town_day").rewards
    least = rewards.chat_base - rewards.chat_trust - rewards.chat_familiarity
    assert least < 0
    assert f"| {least:.3g} … " in page_text(load_config("town_day"))


def test_figures_follow_the_config() -> None:
    assert "20%" in page_text(load_config("town_day", ("perturbations.blackout.probability_per_day=0.2",)))
    assert "Nobody takes the place." in page_text(load_config("town_day", ("lifecycle.newcomers_per_day=0",)))
    assert "The rent is 0.9 coins a day" in page_text(load_config("town_day", ("economy.rent=0.9",)))
