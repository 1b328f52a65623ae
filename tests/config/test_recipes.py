"""Recipes and lists of files to extend: settings are taken from one place, the town from another."""

from __future__ import annotations

from pathlib import Path

import pytest

from townlet.config.loader import config_of_text, load_config, shipped_configs
from townlet.errors import ConfigError


def test_a_recipe_is_how_the_demo_trains_and_not_where(tmp_path: Path) -> None:
    """Somebody's own town with the settings of the demo; overrides come last."""
    (tmp_path / "bakery.yaml").write_text("extends: two_bathrooms\nppo: {learning_rate: 1e-2}\n", encoding="utf-8")
    demo, town = load_config("demo"), load_config("two_bathrooms")
    found = load_config(tmp_path / "bakery.yaml", ["training.towns=3"], recipe="demo")
    assert found.config_id == "bakery"
    assert found.scenario == town.scenario
    assert (found.ppo, found.policy.network) == (demo.ppo, demo.policy.network)
    assert found.training == demo.training.model_copy(update={"towns": 3})
    assert load_config("town_day", recipe="demo") == demo.model_copy(update={"config_id": "town_day"})


def test_a_recipe_that_extends_another_brings_its_settings_too() -> None:
    nothing, found = load_config("from_nothing"), load_config("two_bathrooms", recipe="from_nothing")
    assert (found.ppo, found.training, found.policy) == (nothing.ppo, nothing.training, nothing.policy)
    assert found.scenario == load_config("two_bathrooms").scenario
    assert nothing.training.source == "rollout"  # no script anywhere


def test_an_unknown_recipe_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"there is no recipe called 'dmo'.*demo"):
        load_config("town_day", recipe="dmo")


def test_of_several_files_each_is_laid_upon_the_one_before(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text("seed: 4\nppo: {gamma: 0.5, entropy_coef: 0.3}\n", encoding="utf-8")
    (tmp_path / "more.yaml").write_text("ppo: {gamma: 0.7}\n", encoding="utf-8")
    (tmp_path / "town.yaml").write_text("extends: [queue_conflict, rules.yaml, more.yaml]\n", encoding="utf-8")
    found = load_config(tmp_path / "town.yaml")
    assert (found.config_id, found.seed, found.ppo.gamma, found.ppo.entropy_coef) == ("town", 4, 0.7, 0.3)
    assert found.scenario == load_config("queue_conflict").scenario
    assert (
        config_of_text("extends: [queue_conflict, town_day]\n").scenario.residents == load_config("town_day").scenario.residents
    )


def test_files_that_extend_each_other_again_and_again_are_refused(tmp_path: Path) -> None:
    """Two files each, eight deep: 256 readings of one file."""
    for depth in range(8):
        (tmp_path / f"d{depth}.yaml").write_text(f"extends: [d{depth + 1}.yaml, d{depth + 1}.yaml]\n", encoding="utf-8")
    (tmp_path / "d8.yaml").write_text("seed: 1\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="more than 64 files that extend each other"):
        load_config(tmp_path / "d0.yaml")


@pytest.mark.parametrize("name", shipped_configs())
def test_the_text_of_every_shipped_town_is_that_town(name: str) -> None:
    """The page shows it under Scenario and reads it from there; two of them name their file as `town_day.yaml`."""
    assert config_of_text(shipped_configs()[name].read_text(encoding="utf-8")) == load_config(name)
