"""Uses of objects: preconditions, prices, effects in equal parts, what changes hands at the end, cooldowns.

What a use costs (money, a meal, a portion of the café's stock) is taken when it begins; what it gives is given when it ends,
so leaving early never pays.
"""

from __future__ import annotations

from townlet.world._jit import kernel
from townlet.world.events import USE_END, USE_START, emit
from townlet.world.state import COOLDOWNS, MAX_EDGES, MAX_MEALS, MONEY, Town

# The names a precondition may use, and the operations it compiles to (`preconditions.py`).
TOWN_NAMES = ("water", "power", "stock", "minute")
OWN_NAMES = ("meals", "wallet", "hunger", "hygiene", "energy")
OP_CONSTANT, OP_NAME, OP_AND, OP_OR, OP_NOT, OP_LT, OP_LE, OP_GT, OP_GE, OP_EQ, OP_NE = range(11)
STACK = 16
PRICE_SPIKE, BLACKOUT, OUTAGE, ARRANGED_MEET = range(4)


@kernel
def value_of(t: Town, i: int, thing: int, name: int) -> float:
    clock = t.clock[0]
    if name == 0:
        return 1.0 if clock["active_until"][OUTAGE] <= clock["tick"] else 0.0
    if name == 1:
        return 1.0 if clock["active_until"][BLACKOUT] <= clock["tick"] else 0.0
    if name == 2:
        return float(t.objects[thing]["stock"])
    if name == 3:
        return float(clock["minute"])
    me = t.residents[i]
    if name == 4:
        return float(me["meals"])
    if name == 5:
        return float(me["wallet"]) / MONEY
    if name == 6:
        return float(me["hunger"])
    if name == 7:
        return float(me["hygiene"])
    return float(me["energy"])


@kernel
def holds(t: Town, i: int, thing: int, first: int, length: int) -> bool:
    """Run a compiled precondition; an empty one holds."""
    if length == 0:
        return True
    stack = t.scratch
    top = 0
    for row in range(first, first + length):
        op, arg = t.program[row]["op"], t.program[row]["arg"]
        if op == OP_CONSTANT:
            stack[top] = arg
            top += 1
        elif op == OP_NAME:
            stack[top] = value_of(t, i, thing, int(arg))
            top += 1
        elif op == OP_NOT:
            stack[top - 1] = 1.0 if stack[top - 1] == 0.0 else 0.0
        else:
            a, b = stack[top - 2], stack[top - 1]
            top -= 1
            truth = False
            if op == OP_AND:
                truth = a != 0.0 and b != 0.0
            elif op == OP_OR:
                truth = a != 0.0 or b != 0.0
            elif op == OP_LT:
                truth = a < b
            elif op == OP_LE:
                truth = a <= b
            elif op == OP_GT:
                truth = a > b
            elif op == OP_GE:
                truth = a >= b
            elif op == OP_EQ:
                truth = a == b
            elif op == OP_NE:
                truth = a != b
            stack[top - 1] = 1.0 if truth else 0.0
    return bool(stack[0] != 0.0)


@kernel
def ready(t: Town, thing: int) -> bool:
    """The town's part of the preconditions of an object, worked out at most once a tick."""
    o = t.objects[thing]
    if o["checked"] != t.clock[0]["tick"]:
        a = t.affordances[t.affordance_of[thing]]
        o["checked"] = t.clock[0]["tick"]
        o["ready"] = 1 if holds(t, 0, thing, a["town_first"], a["town_length"]) else 0
    return bool(o["ready"] == 1)


@kernel
def price_now(t: Town, a: int) -> int:
    price = t.affordances[a]["price"]
    if t.clock[0]["active_until"][PRICE_SPIKE] > t.clock[0]["tick"]:
        return int(price * t.rules[0]["price_spike_factor"])
    return int(price)


@kernel
def willing(t: Town, i: int, a: int) -> bool:
    """The resident's part of the preconditions, and the price is there."""
    me, what = t.residents[i], t.affordances[a]
    if me["wallet"] < price_now(t, a) or me["meals"] < what["meals_taken"] or me["meals"] + what["meals_given"] > MAX_MEALS:
        return False
    return holds(t, i, 0, what["own_first"], what["own_length"])


@kernel
def off_cooldown(t: Town, i: int, thing: int) -> bool:
    me, tick = t.residents[i], t.clock[0]["tick"]
    for s in range(COOLDOWNS):
        if me["cooldown_object"][s] == thing and me["cooldown_until"][s] > tick:
            return False
    return True


@kernel
def start_cooldown(t: Town, i: int, thing: int, ticks: int) -> None:
    """Kept as the last few (object, until) pairs; the one that ends first gives way."""
    me = t.residents[i]
    oldest = 0
    for s in range(COOLDOWNS):
        if me["cooldown_object"][s] == thing:
            oldest = s
            break
        if me["cooldown_until"][s] < me["cooldown_until"][oldest]:
            oldest = s
    me["cooldown_object"][oldest] = thing
    me["cooldown_until"][oldest] = t.clock[0]["tick"] + ticks


@kernel
def begin(t: Town, i: int, thing: int, waited: int) -> None:
    me, o, clock = t.residents[i], t.objects[thing], t.clock[0]
    a = t.affordance_of[thing]
    what = t.affordances[a]
    price = price_now(t, a)
    me["wallet"] -= price
    clock["purse"] += price
    me["meals"] -= what["meals_taken"]
    if o["stock"] >= 0 and what["meals_given"] == 0:
        o["stock"] -= what["stock_taken"]
        o["checked"] = -1
    me["using"] = thing
    me["affordance"] = a
    me["ticks_left"] = what["ticks"]
    me["stalled_by_quarrel"] = 0
    me["called"] = -1
    me["acted"] = 1
    o["user"] = i
    o["holder"] = -1
    if what["is_meal"] == 1:
        for s in range(MAX_EDGES):
            me["meal_companion"][s] = -1
    row = emit(t, USE_START, i, -1, thing, -1, 0.0)
    if row >= 0:
        t.events[row]["waited"] = waited


@kernel
def end_use(t: Town, i: int, finished: bool) -> int:
    """Free the object; returns it. The caller calls the next in its queue."""
    me = t.residents[i]
    thing = int(me["using"])
    what, o = t.affordances[me["affordance"]], t.objects[thing]
    if finished and what["meals_given"] > 0:
        me["meals"] += what["meals_given"]
        if o["stock"] >= 0:
            o["stock"] -= what["stock_taken"]
            o["checked"] = -1
    if what["cooldown"] > 0:
        start_cooldown(t, i, thing, what["cooldown"])
    emit(t, USE_END, i, -1, thing, -1, 1.0 if finished else 0.0)
    me["using"] = -1
    me["affordance"] = -1
    me["target"] = -1  # when the use ends inside an interval, the option waits
    me["ticks_left"] = 0
    me["stalled_by_quarrel"] = 0
    me["blocked_by"] = -1
    o["user"] = -1
    return thing


@kernel
def share(t: Town, i: int) -> None:
    """One tick's part of the effects."""
    me = t.residents[i]
    what = t.affordances[me["affordance"]]
    ticks = what["ticks"]
    me["hunger"] = min(max(me["hunger"] + what["hunger"] / ticks, 0.0), 1.0)
    me["hygiene"] = min(max(me["hygiene"] + what["hygiene"] / ticks, 0.0), 1.0)
    me["energy"] = min(max(me["energy"] + what["energy"] / ticks, 0.0), 1.0)
    me["ticks_left"] -= 1
