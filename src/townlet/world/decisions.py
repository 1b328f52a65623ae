"""The start of a decision: the policy's choice is checked, queues and uses it gives up are left, its object is picked."""

from __future__ import annotations

from townlet.world._jit import kernel, leaf
from townlet.world.actions import FIRST_AFFORDANCE, FIRST_INTERACT, LEAVE, P_LEAVE, RESERVE
from townlet.world.events import RIVAL_AVOIDED, emit
from townlet.world.options import (
    choose_candidate,
    choose_object,
    legal_option,
    legal_primitive,
    may_reserve,
    may_yield,
    object_in_reach,
)
from townlet.world.state import CANDIDATES, MAX_EDGES, TERMS, Town
from townlet.world.systems.queues import leave_queue, release, reserve, yield_place
from townlet.world.systems.relationships import rivalry_of

SHAPING = TERMS.index("shaping")


@kernel
def reward_avoidance(t: Town, i: int, nearest: int) -> None:
    """Stage C2: a small reward for setting out past an object that a rival holds, once per rival and while."""
    rules, tick, me = t.rules, t.clock["tick"], t.residents[i]
    o = t.objects[nearest]
    rival = int(o["user"]) if o["user"] >= 0 else int(o["holder"])
    if rival < 0 or rivalry_of(t, i, rival) <= rules["avoid_threshold"]:
        return
    slot = 0
    for s in range(MAX_EDGES):
        if me["avoided"][s] == rival and me["avoided_until"][s] > tick:
            return
        if me["avoided_until"][s] < me["avoided_until"][slot]:
            slot = s
    me["avoided"][slot] = rival
    me["avoided_until"][slot] = tick + rules["avoid_window"]
    emit(t, RIVAL_AVOIDED, i, rival, nearest, -1, 0.0)
    if rules["social_stage"] >= 2:
        t.terms[i, SHAPING] += rules["avoid_rival"]


@kernel
def may_aim(t: Town, i: int, a: int, target: int) -> bool:
    """Whether a named object offers this affordance, and is at home where it must be."""
    if target < 0 or target >= t.objects.shape[0] or t.objects[target]["affordance"] != a:
        return False
    return bool(t.affordances[a]["own_home"] == 0 or t.objects[target]["building"] == t.residents[i]["home"])


@kernel
def decide_candidate(t: Town, i: int, action: int, target: int) -> None:
    """Take up an action of the catalogue `candidates` from the first affordance on."""
    me, choice = t.residents[i], action - FIRST_AFFORDANCE
    a = choice // CANDIDATES
    if a >= t.affordances.shape[0]:
        if choice - t.affordances.shape[0] * CANDIDATES == RESERVE:
            if may_reserve(t, i):
                reserve(t, i, int(me["target"]))
        elif may_yield(t, i):
            yield_place(t, i)
        return
    thing = target if may_aim(t, i, a, target) else choose_candidate(t, i, a, choice - a * CANDIDATES)
    if me["queued"] >= 0 or me["called"] >= 0:
        if thing == max(me["queued"], me["called"]):
            return  # it stands there already
        leave_queue(t, i)
    me["target"] = thing
    if t.rules["blind_conflict"] == 0:
        nearest = choose_object(t, i, a, False)
        if nearest >= 0 and nearest != thing:
            reward_avoidance(t, i, nearest)


@leaf
def decide(t: Town, i: int, action: int, target: int, primitive: bool) -> None:
    """Take up a decision; an impossible one acts as `wait` and is marked. `target` overrides the object when it is not -1."""
    me = t.residents[i]
    me["acted"] = 0
    me["illegal"] = 0
    legal = legal_primitive(t, i, action) if primitive else legal_option(t, i, action)
    if not legal:
        action = 0
        me["illegal"] = me["present"]
    if action != me["action"]:
        me["switches"] += 1
    me["action"] = action
    if t.rules["candidates"] == 1 and action >= FIRST_AFFORDANCE:
        decide_candidate(t, i, action, target)
        return
    waits = me["queued"] >= 0 or me["called"] >= 0
    leave = P_LEAVE if primitive else LEAVE
    a = -1
    if primitive and action >= FIRST_INTERACT:
        a = action - FIRST_INTERACT
    elif not primitive and action >= FIRST_AFFORDANCE:
        a = (action - FIRST_AFFORDANCE) // 2
    if action == leave:
        me["acted"] = 1
        if me["using"] >= 0:
            release(t, i, False)
        else:
            leave_queue(t, i)
        return
    if waits and action != 0 and a != me["affordance"]:
        leave_queue(t, i)
        waits = False
    if a >= 0 and not waits:
        me["target"] = target
        if not may_aim(t, i, a, target):
            if primitive:
                me["target"] = object_in_reach(t, i, a)
            else:
                calm = (action - FIRST_AFFORDANCE) % 2 == 1
                me["target"] = choose_object(t, i, a, calm)
                if calm and t.rules["blind_conflict"] == 0:
                    nearest = choose_object(t, i, a, False)
                    if nearest != me["target"]:
                        reward_avoidance(t, i, nearest)
    elif a < 0:
        me["target"] = -1
