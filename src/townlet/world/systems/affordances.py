"""Uses of objects: preconditions, prices, effects in equal parts, what changes hands at the end, cooldowns.

What a use costs (money, a meal, a portion of the café's stock) is taken when it begins; what it gives is given when it ends,
so leaving early never pays.
"""

from __future__ import annotations

from townlet.config.needs import OWN_NAMES, TOWN_NAMES
from townlet.world._jit import kernel, leaf
from townlet.world.events import USE_END, USE_START, emit
from townlet.world.state import COOLDOWNS, MAX_EDGES, MAX_NEEDS, MONEY, PERTURBATIONS, TERMS, Town

# The operations a precondition compiles to (`preconditions.py`).
OP_AND, OP_OR, OP_NOT, OP_LT, OP_LE, OP_GT, OP_GE, OP_EQ, OP_NE = range(9)
WATER, POWER, STOCK, MINUTE = range(len(TOWN_NAMES))
MEALS, WALLET = range(len(TOWN_NAMES), len(TOWN_NAMES + OWN_NAMES))
FIRST_NEED = len(TOWN_NAMES + OWN_NAMES)
SPENDING = TERMS.index("spending")
PRICE_SPIKE, BLACKOUT, OUTAGE = (PERTURBATIONS.index(kind) for kind in ("price_spike", "blackout", "outage"))


@leaf
def value_of(t: Town, i: int, thing: int, name: int) -> float:
    clock = t.clock
    if name == WATER:
        return 1.0 if clock["active_until"][OUTAGE] <= clock["tick"] else 0.0
    if name == POWER:
        return 1.0 if clock["active_until"][BLACKOUT] <= clock["tick"] else 0.0
    if name == STOCK:
        return float(t.objects[thing]["stock"])
    if name == MINUTE:
        return float(clock["minute"])
    me = t.residents[i]
    if name == MEALS:
        return float(me["meals"])
    if name == WALLET:
        return float(me["wallet"]) / MONEY
    return float(me["needs"][name - FIRST_NEED])


@leaf
def operand(t: Town, i: int, thing: int, name: int, number: float) -> float:
    return value_of(t, i, thing, name) if name >= 0 else number


@kernel
def holds(t: Town, i: int, thing: int, a: int, part: int) -> bool:
    """Run a compiled precondition on a stack of bits; part 0 is the town's, 1 the resident's. An empty one holds."""
    what = t.affordances[a]
    rows, numbers, stack = what["rows"], what["numbers"], 1
    for r in range(what["length"][part]):
        op = rows[part, r, 0]
        if op == OP_NOT:
            stack ^= 1
        elif op in (OP_AND, OP_OR):
            top, below = stack & 1, (stack >> 1) & 1
            stack = ((stack >> 2) << 1) | (top & below if op == OP_AND else top | below)
        else:
            left = operand(t, i, thing, rows[part, r, 1], numbers[part, r, 0])
            right = operand(t, i, thing, rows[part, r, 2], numbers[part, r, 1])
            truth = False
            if op == OP_LT:
                truth = left < right
            elif op == OP_LE:
                truth = left <= right
            elif op == OP_GT:
                truth = left > right
            elif op == OP_GE:
                truth = left >= right
            elif op == OP_EQ:
                truth = left == right
            elif op == OP_NE:
                truth = left != right
            stack = (stack << 1) | (1 if truth else 0)
    return (stack & 1) == 1


@leaf
def ready(t: Town, thing: int) -> bool:
    """The town's part of the preconditions of an object and what it needs of its stock, worked out at most once a tick."""
    now = 2 * t.clock["tick"]
    if t.checked[thing] | 1 != now + 1:
        o = t.objects[thing]
        stocked = o["stock"] < 0 or o["stock"] >= t.affordances[o["affordance"]]["stock_taken"]
        t.checked[thing] = now + 1 if stocked and holds(t, 0, thing, o["affordance"], 0) else now
    return bool(t.checked[thing] == now + 1)


@leaf
def price_now(t: Town, a: int) -> int:
    price = t.affordances[a]["price"]
    if t.clock["active_until"][PRICE_SPIKE] > t.clock["tick"]:
        return int(price * t.rules["price_spike_factor"] + 0.5)
    return int(price)


@leaf
def willing(t: Town, i: int, a: int) -> bool:
    """The resident's part of the preconditions, and the price is there."""
    me, what = t.residents[i], t.affordances[a]
    if me["wallet"] < price_now(t, a) or me["meals"] < what["meals"][0] or me["meals"] > what["meals"][1]:
        return False
    return bool(what["length"][1] == 0 or holds(t, i, 0, a, 1))


@leaf
def off_cooldown(t: Town, i: int, thing: int) -> bool:
    me, tick = t.residents[i], t.clock["tick"]
    if me["cooling_until"] <= tick:
        return True
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
    me["cooldown_until"][oldest] = t.clock["tick"] + ticks
    me["cooling_until"] = max(me["cooling_until"], t.clock["tick"] + ticks)


@kernel
def begin(t: Town, i: int, thing: int, waited: int) -> None:
    me, o, clock = t.residents[i], t.objects[thing], t.clock
    a = o["affordance"]
    what = t.affordances[a]
    price = price_now(t, a)
    me["wallet"] -= price
    clock["purse"] += price
    t.terms[i, SPENDING] -= t.rules["spending"] * price / MONEY
    me["meals"] -= what["meals_taken"]
    if o["stock"] >= 0 and what["meals_given"] == 0:
        o["stock"] -= what["stock_taken"]
        t.checked[thing] = -1
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
            t.checked[thing] = -1
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


@leaf
def gain(t: Town, i: int) -> None:
    """One tick's part of the effects."""
    me = t.residents[i]
    what = t.affordances[me["affordance"]]
    levels, gains = me["needs"], what["gains"]
    for k in range(MAX_NEEDS):
        levels[k] = min(max(levels[k] + gains[k], 0.0), 1.0)
    me["ticks_left"] -= 1
