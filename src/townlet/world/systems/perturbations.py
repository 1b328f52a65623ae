"""Price spikes, blackouts, outages and arranged meetings: by chance, or as the scenario schedules them."""

from __future__ import annotations

import numpy as np

from townlet.world import rng
from townlet.world._jit import kernel, leaf
from townlet.world.events import PERTURBATION, emit
from townlet.world.options import distance_to
from townlet.world.state import CANDIDATES, ENERGY, FAR, MAX_EDGES, PERTURBATIONS, Town
from townlet.world.systems.relationships import rivalry_now

KINDS = len(PERTURBATIONS)
ARRANGED_MEET = PERTURBATIONS.index("arranged_meet")


@kernel
def top_rivals(t: Town) -> tuple[int, int]:
    """The pair with the highest rivalry, neither of whom was sent to a meeting lately, or (-1, -1)."""
    best, a, b = t.rules["meet_min_rivalry"], -1, -1
    tick = t.clock["tick"]
    for i in range(t.residents.shape[0]):
        me = t.residents[i]
        if me["present"] == 0 or me["met_until"] > tick:
            continue
        for s in range(MAX_EDGES):
            j = int(t.ties[i, s]["other"])
            if j < 0 or t.residents[j]["present"] == 0 or t.residents[j]["met_until"] > tick:
                continue
            rivalry = rivalry_now(t, i, s)
            if rivalry > best:
                best, a, b = rivalry, i, j
    return a, b


@kernel
def shared_bench(t: Town, i: int, j: int) -> int:
    """The bench nearest to i that j can walk to as well: an object whose use only rests, or -1."""
    me = t.residents[i]
    for a in range(t.affordances.shape[0]):
        what = t.affordances[a]
        if what["gains"][ENERGY] > 0.0 and what["own_home"] == 0:
            for k in range(CANDIDATES):
                thing = int(t.nearest[me["y"], me["x"], a, k]["object"])
                if thing >= 0 and distance_to(t, j, thing) < FAR:
                    return thing
    return -1


@kernel
def strike(t: Town, kind: int, ticks: int) -> None:
    clock = t.clock
    a, b, bench = -1, -1, -1
    if kind == ARRANGED_MEET:
        a, b = top_rivals(t)
        if a < 0:
            return
        bench = shared_bench(t, a, b)
        if bench < 0:
            return
        for who in (a, b):
            t.residents[who]["meet_at"] = bench
            t.residents[who]["met_until"] = clock["tick"] + t.rules["meet_gap"]
    clock["active_until"][kind] = clock["tick"] + 1 + ticks
    clock["cooldown_until"][kind] = clock["tick"] + 1 + ticks + t.rules["perturb_cooldown"][kind]
    emit(t, PERTURBATION, a, b, bench, kind, float(ticks))


@leaf
def perturbations(t: Town, scheduled: np.ndarray) -> None:
    rules, clock = t.rules, t.clock
    tick = clock["tick"]
    for s in range(scheduled.shape[0]):
        event = scheduled[s]
        if event["resident"] < 0 and event["minute"] == clock["minute"] and (event["day"] < 0 or event["day"] == clock["day"]):
            strike(t, int(event["kind"]), int(event["duration"]))
    for kind in range(KINDS):
        chance = rules["perturb_chance"][kind]
        if chance > 0.0 and clock["cooldown_until"][kind] <= tick:
            k = rng.now(clock, rng.DAILY)
            minute = rng.below(k, kind, rng.STRIKE_MINUTE, rules["ticks_per_day"])
            if minute == clock["minute"] and rng.uniform(k, kind, rng.STRIKE) < chance:
                strike(t, kind, int(rules["perturb_ticks"][kind]))
    if clock["active_until"][ARRANGED_MEET] == tick + 1:
        for i in range(t.residents.shape[0]):
            t.residents[i]["meet_at"] = -1
