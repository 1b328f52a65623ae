"""Needs fall with every tick; some, such as energy, only while awake."""

from __future__ import annotations

from townlet.world._jit import leaf
from townlet.world.state import MAX_NEEDS, Town


@leaf
def needs(t: Town) -> None:
    rules = t.rules
    for i in range(t.residents.shape[0]):
        me = t.residents[i]
        if me["present"] == 0:
            continue
        levels, low = me["needs"], False
        asleep = 1 if me["using"] >= 0 and t.affordances[me["affordance"]]["is_sleep"] == 1 else 0
        for k in range(MAX_NEEDS):
            level = max(levels[k] - rules["need_decay"][asleep, k], 0.0)
            levels[k] = level
            low |= level <= rules["need_sufficient_above"][k]
        if low:
            me["low"] = 1
