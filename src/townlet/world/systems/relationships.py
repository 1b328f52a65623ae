"""Ties between residents: trust, familiarity, rivalry; chats and shared meals.

A tie keeps its numbers with the tick at which they were true. Decay is linear, so it is worked out on reading and nothing
is touched between two events: `now` reads, `change` writes.
"""

from __future__ import annotations

from townlet.world import rng
from townlet.world._jit import kernel, leaf
from townlet.world.events import CHAT_FAILURE, CHAT_SUCCESS, RECONCILIATION, SHARED_MEAL, emit
from townlet.world.state import MAX_EDGES, TERMS, TIE_EVENTS, Town
from townlet.world.systems.movement import step_x, step_y

TIE_CHAT_SUCCESS, TIE_CHAT_FAILURE, TIE_HANDOVER, TIE_SHARED_MEAL, TIE_LATE_HELP, TIE_SHIFT_TAKEOVER = range(len(TIE_EVENTS))
SOCIAL, SHAPING = TERMS.index("social"), TERMS.index("shaping")


@leaf
def towards_zero(value: float, fall: float) -> float:
    return max(value - fall, 0.0) + min(value + fall, 0.0)


@leaf
def find(t: Town, i: int, other: int) -> int:
    """Slot of the tie from i to other, or -1. All slots are compared without a branch, which would often be mispredicted."""
    found = -1
    for s in range(MAX_EDGES):
        found = s if t.ties[i, s]["other"] == other else found
    return found


@leaf
def trust_now(t: Town, i: int, s: int) -> float:
    tie = t.ties[i, s]
    return towards_zero(tie["trust"], t.rules["trust_decay"] * (t.clock["tick"] - tie["since"]))


@leaf
def familiarity_now(t: Town, i: int, s: int) -> float:
    tie = t.ties[i, s]
    return towards_zero(tie["familiarity"], t.rules["familiarity_decay"] * (t.clock["tick"] - tie["since"]))


@leaf
def rivalry_now(t: Town, i: int, s: int) -> float:
    tie = t.ties[i, s]
    return towards_zero(tie["rivalry"], t.rules["rivalry_decay"] * (t.clock["tick"] - tie["since"]))


@leaf
def rivalry_of(t: Town, i: int, other: int) -> float:
    s = find(t, i, other)
    return rivalry_now(t, i, s) if s >= 0 else 0.0


@kernel
def strength(t: Town, i: int, s: int) -> float:
    return max(abs(trust_now(t, i, s)), abs(familiarity_now(t, i, s)), rivalry_now(t, i, s))


@kernel
def forget(t: Town, i: int, s: int) -> None:
    tie = t.ties[i, s]
    tie["other"] = -1
    tie["trust"] = 0.0
    tie["familiarity"] = 0.0
    tie["rivalry"] = 0.0
    tie["since"] = 0
    tie["peak"] = 0.0


@leaf
def clamp(x: float, low: float, high: float) -> float:
    return min(max(x, low), high)


@kernel
def change(t: Town, i: int, other: int, trust: float, familiarity: float, rivalry: float) -> float:
    """Change the tie from i to other, harm scaled by i's forgiveness; returns the rivalry afterwards.

    A pair that was above the avoidance line reconciles when a harmless event finds it below half of that line. A full table
    admits a tie that is stronger than its weakest; a tie below the floor is freed.
    """
    rules = t.rules
    f, friendly = t.residents[i]["forgiveness"], rivalry <= 0.0
    harm = 1.0 - rules["forgiveness_scale"] * f  # 1 - 0.5 f for f >= 0, 1 + 0.5 |f| below
    if trust < 0.0:
        trust *= harm
    if familiarity < 0.0:
        familiarity *= harm
    if rivalry > 0.0:
        rivalry *= harm
    s = find(t, i, other)
    if s < 0:
        trust, familiarity, rivalry = clamp(trust, -1.0, 1.0), clamp(familiarity, -1.0, 1.0), clamp(rivalry, 0.0, 1.0)
        weight = max(abs(trust), abs(familiarity), rivalry)
        if weight < rules["free_below"]:
            return 0.0
        weakest = weight
        for k in range(rules["max_edges"]):
            standing = strength(t, i, k) if t.ties[i, k]["other"] >= 0 else 0.0
            if standing < rules["free_below"]:
                standing = 0.0
            if standing < weakest:
                weakest = standing
                s = k
        if s < 0:
            return 0.0
        forget(t, i, s)
        t.ties[i, s]["other"] = other
    else:
        trust = clamp(trust_now(t, i, s) + trust, -1.0, 1.0)
        familiarity = clamp(familiarity_now(t, i, s) + familiarity, -1.0, 1.0)
        rivalry = clamp(rivalry_now(t, i, s) + rivalry, 0.0, 1.0)
    tie = t.ties[i, s]
    tie["trust"] = trust
    tie["familiarity"] = familiarity
    tie["rivalry"] = rivalry
    tie["since"] = t.clock["tick"]
    if rivalry > rules["avoid_threshold"]:
        tie["peak"] = max(tie["peak"], rivalry)
    elif friendly and tie["peak"] > 0.0 and rivalry < 0.5 * rules["avoid_threshold"]:
        fall = tie["peak"] - rivalry
        tie["peak"] = 0.0
        emit(t, RECONCILIATION, i, other, -1, -1, fall)
        if rules["social_stage"] >= 3:
            t.terms[i, SHAPING] += rules["reconciliation"] * fall
    if strength(t, i, s) < rules["free_below"]:
        forget(t, i, s)
    return float(rivalry)


@kernel
def tie_event(t: Town, i: int, j: int, kind: int) -> None:
    """What an event changes between two residents, both ways."""
    rules = t.rules
    trust, familiarity, rivalry = rules["tie_trust"][kind], rules["tie_familiarity"][kind], rules["tie_rivalry"][kind]
    change(t, i, j, trust, familiarity, rivalry)
    change(t, j, i, trust, familiarity, rivalry)


@leaf
def chat_partner(t: Town, i: int) -> int:
    """The free resident beside i it could chat with now, or -1."""
    me = t.residents[i]
    tick = t.clock["tick"]
    if me["chat_ready"] > tick or me["using"] >= 0:
        return -1
    height, width = t.grid.shape
    for step in range(5):  # the four neighbours, then its own tile
        x, y = me["x"] + step_x(step), me["y"] + step_y(step)
        if x < 0 or y < 0 or x >= width or y >= height:
            continue
        j = int(t.grid[y, x]["occupant"])
        while j >= 0:
            other = t.residents[j]
            if j != i and other["chat_ready"] <= tick and other["using"] < 0:
                return j
            j = int(other["below"])
    return -1


@kernel
def chat(t: Town, i: int, j: int) -> None:
    rules, tick, k = t.rules, t.clock["tick"], rng.now(t.clock, rng.WORLD)
    a, b = find(t, i, j), find(t, j, i)
    trust_i, fam_i = (trust_now(t, i, a), familiarity_now(t, i, a)) if a >= 0 else (0.0, 0.0)
    trust_j, fam_j = (trust_now(t, j, b), familiarity_now(t, j, b)) if b >= 0 else (0.0, 0.0)
    p = rules["chat_success"] * (1.0 + rules["trust_gain"] * trust_i) * (1.0 + rules["familiarity_gain"] * fam_i)
    t.residents[i]["chat_ready"] = tick + rules["chat_cooldown"]
    t.residents[j]["chat_ready"] = tick + rules["chat_cooldown"]
    t.residents[i]["acted"] = 1
    if rng.uniform(k, i, rng.CHAT) < clamp(p, 0.0, 1.0):
        q = rules["quality_floor"] + (1.0 - rules["quality_floor"]) * rng.uniform(k, i, rng.CHAT_QUALITY)
        emit(t, CHAT_SUCCESS, i, j, -1, -1, q)
        base, by_trust, by_fam = rules["chat_base"], rules["chat_trust"], rules["chat_familiarity"]
        if rules["social_stage"] >= 1:
            t.terms[i, SOCIAL] += (base + by_trust * trust_i + by_fam * fam_i) * q
            t.terms[j, SOCIAL] += (base + by_trust * trust_j + by_fam * fam_j) * q
        warmth_i = rules["extroversion_bonus"] * t.residents[i]["extroversion"]
        warmth_j = rules["extroversion_bonus"] * t.residents[j]["extroversion"]
        trust, familiarity = rules["tie_trust"][TIE_CHAT_SUCCESS], rules["tie_familiarity"][TIE_CHAT_SUCCESS]
        rivalry = rules["tie_rivalry"][TIE_CHAT_SUCCESS]
        change(t, i, j, trust * q, familiarity * q + warmth_i, rivalry * q)
        change(t, j, i, trust * q, familiarity * q + warmth_j, rivalry * q)
    else:
        emit(t, CHAT_FAILURE, i, j, -1, -1, 0.0)
        tie_event(t, i, j, TIE_CHAT_FAILURE)


@leaf
def eats(t: Town, i: int) -> bool:
    me = t.residents[i]
    return bool(me["using"] >= 0 and t.affordances[me["affordance"]]["is_meal"] == 1)


@kernel
def share_meal(t: Town, i: int, j: int) -> None:
    """Once per pair and meal, remembered by both."""
    me, other = t.residents[i], t.residents[j]
    free_me, free_other = -1, -1
    for s in range(MAX_EDGES):
        if me["meal_companion"][s] == j:
            return
        if me["meal_companion"][s] < 0 and free_me < 0:
            free_me = s
        if other["meal_companion"][s] == i:
            return
        if other["meal_companion"][s] < 0 and free_other < 0:
            free_other = s
    if free_me < 0 or free_other < 0:
        return
    me["meal_companion"][free_me] = j
    other["meal_companion"][free_other] = i
    emit(t, SHARED_MEAL, i, j, -1, -1, 0.0)
    tie_event(t, i, j, TIE_SHARED_MEAL)


@leaf
def relationships(t: Town) -> None:
    """Chats of those who tried, meals of those who sit side by side."""
    height, width = t.grid.shape
    for i in range(t.residents.shape[0]):
        me = t.residents[i]
        if me["talks"] == 1:
            j = chat_partner(t, i)
            if j >= 0:
                chat(t, i, j)
        if me["using"] >= 0 and eats(t, i):
            for d in range(2):  # east and south: each pair is met once
                x, y = (me["x"] + 1, me["y"]) if d == 0 else (me["x"], me["y"] + 1)
                if x < width and y < height:
                    j = int(t.grid[y, x]["occupant"])
                    while j >= 0:
                        if eats(t, j):
                            share_meal(t, i, j)
                        j = int(t.residents[j]["below"])
