"""Rewards: eleven named terms a tick whose float64 sum is the reward, exactly."""

from __future__ import annotations

import numpy as np

from townlet.world._jit import leaf
from townlet.world.state import MAX_NEEDS, TERMS, Town
from townlet.world.systems.employment import ABSENT, ON_TIME
from townlet.world.systems.lifecycle import doomed

SURVIVAL, NEEDS, WAGE, SPENDING, PUNCTUALITY, SOCIAL, CONFLICT, SHAPING, EXIT_GUARD, CLIP, TERMINAL = range(len(TERMS))


@leaf
def total(terms: np.ndarray) -> float:
    """The reward is the sum of its terms, in order.  # (T,) f8"""
    s = 0.0
    for k in range(len(TERMS)):
        s += terms[k]
    return s


@leaf
def rewards(t: Town) -> None:
    rules = t.rules
    for i in range(t.residents.shape[0]):
        me = t.residents[i]
        if me["present"] == 0:
            continue
        terms = t.terms[i]
        levels, weights, lack, lowest = me["needs"], me["weights"], 0.0, 1.0
        for k in range(MAX_NEEDS):
            missing = 1.0 - levels[k]
            lack += weights[k] * missing * missing
            if rules["need_sufficient_above"][k] >= 0.0:
                lowest = min(lowest, levels[k])
        worth = lowest / rules["misery_below"] if lowest < rules["misery_below"] else 1.0  # a life in misery is worth nothing
        terms[SURVIVAL] = rules["survival"] * worth
        terms[NEEDS] = -rules["needs_scale"] * lack * worth
        if me["working"] == 1 and me["shift"] != ABSENT:
            terms[WAGE] = rules["wage_rate"] * worth
            if me["shift"] == ON_TIME:
                terms[PUNCTUALITY] = rules["punctuality"] / t.jobs[me["job"]]["length"] * worth
        for k in (SPENDING, SOCIAL, CONFLICT, SHAPING):
            terms[k] *= worth
        if doomed(t, i):
            gained = 0.0
            for k in range(EXIT_GUARD):
                if terms[k] > 0.0:
                    gained += terms[k]
            terms[EXIT_GUARD] = -gained
        terminal = terms[TERMINAL]
        terms[TERMINAL] = 0.0
        raw = total(terms)
        if raw > rules["reward_clip"]:
            terms[CLIP] = rules["reward_clip"] - raw
        elif raw < -rules["reward_clip"]:
            terms[CLIP] = -rules["reward_clip"] - raw
        terms[TERMINAL] = terminal
