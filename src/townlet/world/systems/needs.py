"""Needs fall with every tick; some, such as energy, only while awake."""

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
        levels = me["needs"]
        awake = me["using"] < 0 or t.affordances[me["affordance"]]["is_sleep"] == 0
        for k in range(rules["needs"]):
            if awake or rules["need_awake_only"][k] == 0:
                levels[k] = max(levels[k] - rules["need_decay"][k], 0.0)
            if levels[k] <= rules["need_sufficient_above"][k]:
                me["low"] = 1
