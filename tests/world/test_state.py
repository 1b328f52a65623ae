"""Tables of the town's memory: the numbers by which the code knows a row are those of the table."""

from __future__ import annotations

from types import ModuleType

import pytest

from townlet.config.needs import THREE
from townlet.world import events, state
from townlet.world.state import EVENTS, EXITS, SHIFT_STATES, TERMS, TIE_EVENTS, TILES
from townlet.world.systems import employment, lifecycle, relationships, rewards

NUMBERED = [
    (state, tuple(THREE), "{}"),
    (state, TILES[:-1], "{}"),
    (events, EVENTS, "{}"),
    (employment, SHIFT_STATES, "{}"),
    (lifecycle, EXITS[:-1], "{}"),
    (relationships, TIE_EVENTS, "TIE_{}"),
    (rewards, TERMS, "{}"),
]


@pytest.mark.parametrize(("module", "table", "form"), NUMBERED)
def test_the_number_of_a_row_has_the_name_of_the_row(module: ModuleType, table: tuple[str, ...], form: str) -> None:
    assert {name: vars(module)[form.format(name.upper())] for name in table} == {name: row for row, name in enumerate(table)}
