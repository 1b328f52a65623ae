"""The script's numbers found anew: repeatable, within their bounds, never worse on the towns they were found in."""

from __future__ import annotations

from townlet.config.town import BehaviorConfig
from townlet.studies.tuning import DIALS, numbers_of, tune, with_numbers
from townlet.testing import tiny_town

TOWN = tiny_town("policy.decision_interval=10", residents=2)


def test_the_same_words_find_the_same_numbers_and_none_that_are_worse() -> None:
    first, again = (tune(TOWN, tries=6, towns=1, days=1) for _ in range(2))
    assert first == again
    assert first.value > first.before  # six tries suffice here
    for name, value in numbers_of(first.behavior, TOWN).items():
        assert DIALS[name].low <= value <= DIALS[name].high, name


def test_nine_numbers_and_nothing_else_are_moved() -> None:
    numbers = numbers_of(BehaviorConfig(), TOWN)
    assert len(numbers) == 9
    assert numbers["meet_below.hunger"] == 0.4
    moved = with_numbers(BehaviorConfig(), numbers | {"meals_in_hand": 2.0, "meet_below.energy": 0.5})
    assert (moved.meals_in_hand, moved.meet_below["energy"]) == (2, 0.5)
    rest = BehaviorConfig().model_dump(exclude={"meals_in_hand", "meet_below"})
    assert moved.model_dump(exclude={"meals_in_hand", "meet_below"}) == rest
