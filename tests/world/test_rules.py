"""From the config to the numbers the kernel reads."""

from __future__ import annotations

import pytest

from townlet.world.preconditions import parse
from townlet.world.rules import _meals
from townlet.world.state import MAX_MEALS


@pytest.mark.parametrize(
    "text", ["meals >= 1", "meals > 1.5 and meals < 4", "meals <= 4.5 and meals >= 2", "meals < 3", "meals > 2", "meals >= 1e400"]
)
def test_what_is_asked_of_meals_becomes_bounds(text: str) -> None:
    rest, (fewest, most) = _meals(parse(text, ())[1], 0, MAX_MEALS)
    within = [meals for meals in range(MAX_MEALS + 1) if fewest <= meals <= most]
    if "e400" in text:
        assert len(rest) == 1, "a number without end has no bound; it is compared as before"
    else:
        assert rest == []
        assert within == [meals for meals in range(MAX_MEALS + 1) if eval(text, {"meals": meals})]


@pytest.mark.parametrize("text", ["meals >= 1 or wallet > 2", "not meals > 2", "wallet > 1 and wallet < 5", "meals == 2"])
def test_the_rest_of_a_precondition_stays_as_it_was(text: str) -> None:
    own = parse(text, ())[1]
    assert _meals(own, 1, 5) == (own, (1, 5))


def test_bounds_leave_what_is_joined_to_them() -> None:
    assert _meals(parse("meals >= 2 and wallet > 1 and meals <= 4", ())[1], 0, MAX_MEALS) == (parse("wallet > 1", ())[1], (2, 4))
