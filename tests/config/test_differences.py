"""In what configs differ."""

from __future__ import annotations

from townlet.config.differences import differences
from townlet.config.loader import load_config


def test_configs_are_compared_key_by_key_lists_by_id_and_maps_row_by_row() -> None:
    config = load_config("town_day")
    scenario = config.scenario
    first = scenario.residents[0]
    rows = scenario.map.split("\n")
    other = config.model_copy(
        update={
            "seed": 99,
            "scenario": scenario.model_copy(
                update={
                    "map": "\n".join([rows[0].replace("#", "=", 1), *rows[1:]]),
                    "residents": (first.model_copy(update={"meals": 5}), *scenario.residents[1:]),
                }
            ),
        }
    )
    assert differences([config, config]) == {}
    assert differences([config, other, config]) == {
        "seed": [config.seed, 99, config.seed],
        "scenario.map[0]": [rows[0], rows[0].replace("#", "=", 1), rows[0]],
        f"scenario.residents[{first.id}].meals": [first.meals, 5, first.meals],
    }
