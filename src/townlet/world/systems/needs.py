"""Needs fall with every tick; energy only while awake."""

from __future__ import annotations

from townlet.world._jit import leaf
from townlet.world.state import Town


@leaf
def needs(t: Town) -> None:
    rules = t.rules
    for i in range(t.residents.shape[0]):
        me = t.residents[i]
        if me["present"] == 0:
            continue
        me["hunger"] = max(me["hunger"] - rules["decay_hunger"], 0.0)
        me["hygiene"] = max(me["hygiene"] - rules["decay_hygiene"], 0.0)
        if me["using"] < 0 or t.affordances[me["affordance"]]["is_sleep"] == 0:
            me["energy"] = max(me["energy"] - rules["decay_energy"], 0.0)
        if min(me["hunger"], me["hygiene"], me["energy"]) <= rules["sufficiency_line"]:
            me["low"] = 1
