"""From a decision to one primitive a tick: candidates, distances, and the controllers that walk, ask, leave and talk."""

from __future__ import annotations

from townlet.world._jit import kernel, leaf
from townlet.world.actions import (
    CHAT,
    FIRST_AFFORDANCE,
    FIRST_INTERACT,
    HOME,
    LEAVE,
    MOVE_NORTH,
    P_CHAT,
    P_LEAVE,
    WORK,
    YIELD,
)
from townlet.world.state import CANDIDATES, FAR, Town
from townlet.world.systems.affordances import off_cooldown, ready, willing
from townlet.world.systems.movement import step_x, step_y, walkable
from townlet.world.systems.relationships import chat_partner, rivalry_of

NO_STEP = -1


@leaf
def inside(t: Town, i: int, building: int) -> bool:
    me, b = t.residents[i], t.buildings[building]
    return bool(b["x0"] <= me["x"] < b["x0"] + b["w"] and b["y0"] <= me["y"] < b["y0"] + b["h"])


@leaf
def packed_to_building(t: Town, i: int, building: int) -> int:
    me = t.residents[i]
    return int(t.towards[building, me["y"], me["x"]])


@leaf
def packed_to_bed(t: Town, i: int, bed: int) -> int:
    """Way to a bed of one's home: by the building's field from outside, by the bed's own field inside."""
    me, spec = t.residents[i], t.objects[bed]
    x, y = me["x"] - spec["x0"], me["y"] - spec["y0"]
    if 0 <= x < spec["w"] and 0 <= y < spec["h"]:
        return int(t.bed_steps[spec["field"] + y * spec["w"] + x])
    packed = packed_to_building(t, i, int(spec["building"]))
    if packed >= FAR * 8:
        return packed
    return packed + int(spec["depth"]) * 8


@leaf
def way_to(t: Town, i: int, thing: int) -> int:
    """Packed distance and first step from a resident to an object (`distance * 8 + step + 1`)."""
    if t.objects[thing]["w"] > 0:
        return packed_to_bed(t, i, thing)
    me = t.residents[i]
    row = t.nearest[me["y"], me["x"], t.objects[thing]["affordance"]]
    for k in range(CANDIDATES):
        if row[k]["object"] == thing:
            return int(row[k]["distance"]) * 8 + int(row[k]["step"]) + 1
    return FAR * 8


@leaf
def distance_to(t: Town, i: int, thing: int) -> int:
    return way_to(t, i, thing) >> 3


@leaf
def bed_of_home(t: Town, i: int, k: int) -> int:
    """One's own bed first, then the others of the home in turn; -1 after the last."""
    me = t.residents[i]
    home = t.buildings[me["home"]]
    if k >= home["beds"]:
        return -1
    thing = int(me["bed"] + k)
    return thing - int(home["beds"]) if thing >= home["first_bed"] + home["beds"] else thing


@leaf
def candidate(t: Town, i: int, a: int, k: int) -> int:
    """The k-th nearest object of an affordance that its preconditions and cooldowns allow, or -1."""
    me = t.residents[i]
    home = t.affordances[a]["own_home"] == 1
    thing = bed_of_home(t, i, k) if home else int(t.nearest[me["y"], me["x"], a, k]["object"])
    if thing < 0 or not ready(t, thing) or not off_cooldown(t, i, thing):
        return -1
    return thing


@leaf
def worst_rivalry(t: Town, i: int, thing: int) -> float:
    """Highest rivalry of i towards the user, the one called and the queue of an object."""
    o = t.objects[thing]
    worst = 0.0
    if o["user"] >= 0 and o["user"] != i:
        worst = rivalry_of(t, i, int(o["user"]))
    if o["holder"] >= 0 and o["holder"] != i:
        worst = max(worst, rivalry_of(t, i, int(o["holder"])))
    waiter = int(o["head"])
    while waiter >= 0:
        if waiter != i:
            worst = max(worst, rivalry_of(t, i, waiter))
        waiter = int(t.residents[waiter]["behind"])
    return worst


@leaf
def crowd(t: Town, thing: int) -> int:
    """Ticks until an object would be free for a newcomer to its queue."""
    o = t.objects[thing]
    ticks = t.affordances[o["affordance"]]["ticks"]
    ahead = o["waiting"] * ticks
    if o["user"] >= 0:
        ahead += t.residents[o["user"]]["ticks_left"]
    if o["holder"] >= 0:
        ahead += ticks
    return int(ahead)


@leaf
def way_to_candidate(t: Town, i: int, a: int, k: int, thing: int) -> int:
    """`way_to` the k-th candidate, whose row is known."""
    if t.affordances[a]["own_home"] == 1:
        return packed_to_bed(t, i, thing)
    row = t.nearest[t.residents[i]["y"], t.residents[i]["x"], a, k]
    return int(row["distance"]) * 8 + int(row["step"]) + 1


@leaf
def held(t: Town, thing: int) -> bool:
    """Somebody uses the object or is called to it."""
    o = t.objects[thing]
    return bool((o["user"] & o["holder"]) >= 0)  # both are -1 otherwise


@leaf
def taken(t: Town, thing: int) -> bool:
    """Somebody uses the object, is called to it or waits for it."""
    o = t.objects[thing]
    return bool((o["user"] & o["holder"] & o["head"]) >= 0)


@leaf
def quiet_cost(t: Town, thing: int, distance: int, grudge: float) -> float:
    """What `calm` weighs: distance + ticks until free + 40 × highest rivalry; distance alone for the conflict-blind."""
    cost = float(distance)
    if t.rules["blind_conflict"] == 0 and taken(t, thing):
        cost += crowd(t, thing) + t.rules["calm_rivalry_ticks"] * grudge
    return cost


@kernel
def choose_object(t: Town, i: int, a: int, calm: bool) -> int:
    """The object an affordance option leads to now, or -1."""
    if not willing(t, i, a):
        return -1
    best, best_cost = -1, 0.0
    for k in range(CANDIDATES):
        thing = candidate(t, i, a, k)
        if thing < 0:
            continue
        distance = way_to_candidate(t, i, a, k, thing) >> 3
        if distance >= FAR:
            continue
        cost = quiet_cost(t, thing, distance, worst_rivalry(t, i, thing)) if calm else float(distance)
        if best < 0 or cost < best_cost:
            best, best_cost = thing, cost
        if cost == distance and t.affordances[a]["own_home"] == 0:
            break  # nobody is here, and what follows is farther
    return best


@kernel
def choose_candidate(t: Town, i: int, a: int, k: int) -> int:
    """The k-th nearest object of an affordance, when it can be had and reached; else -1."""
    if not willing(t, i, a):
        return -1
    thing = candidate(t, i, a, k)
    if thing >= 0 and way_to_candidate(t, i, a, k, thing) >> 3 >= FAR:
        return -1
    return thing


@kernel
def may_reserve(t: Town, i: int) -> bool:
    """The object it walks to is taken and nobody waits for it: the next turn can be reserved."""
    me = t.residents[i]
    thing = int(me["target"])
    if thing < 0 or me["using"] >= 0 or me["queued"] >= 0 or me["called"] >= 0:
        return False
    o = t.objects[thing]
    if o["head"] >= 0 or (o["user"] < 0 and o["holder"] < 0) or distance_to(t, i, thing) >= FAR:
        return False
    return bool(ready(t, thing) and willing(t, i, int(o["affordance"])) and off_cooldown(t, i, thing))


@leaf
def may_yield(t: Town, i: int) -> bool:
    """Somebody waits behind it, or waits while it was called."""
    me = t.residents[i]
    if me["called"] >= 0:
        return bool(t.objects[me["called"]]["head"] >= 0)
    return bool(me["queued"] >= 0 and me["behind"] >= 0)


@kernel
def legal_candidate(t: Town, i: int, action: int) -> bool:
    """The catalogue `candidates` from the first affordance on, for a resident that uses nothing. `reserve` and `yield` are always
    legal: when an earlier decision of this step has taken the place that the mask showed, they do nothing."""
    choice = action - FIRST_AFFORDANCE
    a = choice // CANDIDATES
    if a < t.affordances.shape[0]:
        return choose_candidate(t, i, a, choice - a * CANDIDATES) >= 0
    return bool(choice - t.affordances.shape[0] * CANDIDATES <= YIELD)


@leaf
def shift_phase(t: Town, i: int) -> int:
    """Minutes since the start of the resident's shift, 0..1439; -1 without a job."""
    job = t.residents[i]["job"]
    if job < 0:
        return -1
    phase = int(t.clock["minute"] - t.jobs[job]["start"])
    return phase if phase >= 0 else phase + int(t.rules["ticks_per_day"])


@leaf
def may_work(t: Town, i: int) -> bool:
    phase = shift_phase(t, i)
    if phase < 0:
        return False
    rules = t.rules
    return bool(phase < t.jobs[t.residents[i]["job"]]["length"] or phase >= rules["ticks_per_day"] - rules["work_ahead"])


@leaf
def legal_option(t: Town, i: int, action: int) -> bool:
    """The mask of the option level, one action at a time."""
    me = t.residents[i]
    if action == 0:
        return True
    if me["present"] == 0 or action < 0:
        return False
    if me["using"] >= 0:
        return action == LEAVE
    if action == WORK:
        return may_work(t, i)
    if action == HOME:
        return not inside(t, i, int(me["home"])) or me["meet_at"] >= 0
    if action == CHAT:
        return chat_partner(t, i) >= 0
    if action == LEAVE:
        return bool(me["queued"] >= 0 or me["called"] >= 0)
    if t.rules["candidates"] == 1:
        return legal_candidate(t, i, action)
    a = (action - FIRST_AFFORDANCE) // 2
    if a >= t.affordances.shape[0]:
        return False
    if (me["queued"] >= 0 or me["called"] >= 0) and me["affordance"] == a:
        return True
    return choose_object(t, i, a, False) >= 0


@kernel
def object_in_reach(t: Town, i: int, a: int) -> int:
    """The nearest object of an affordance that can be asked for from here, or -1."""
    thing = choose_object(t, i, a, False)
    if thing >= 0 and distance_to(t, i, thing) <= t.rules["queue_reach"]:
        return thing
    return -1


@kernel
def legal_primitive(t: Town, i: int, action: int) -> bool:
    """The mask of the primitive level."""
    me = t.residents[i]
    if action == 0:
        return True
    if me["present"] == 0 or action < 0:
        return False
    if me["using"] >= 0:
        return action == P_LEAVE
    if action < P_LEAVE:
        step = action - MOVE_NORTH
        return walkable(t, me["x"] + step_x(step), me["y"] + step_y(step))
    if action == P_LEAVE:
        return bool(me["queued"] >= 0 or me["called"] >= 0)
    if action == P_CHAT:
        return chat_partner(t, i) >= 0
    a = action - FIRST_INTERACT
    if a >= t.affordances.shape[0]:
        return False
    if (me["queued"] >= 0 or me["called"] >= 0) and me["affordance"] == a:
        return True
    return object_in_reach(t, i, a) >= 0


@leaf
def walk(t: Town, i: int, packed: int) -> None:
    t.residents[i]["move"] = (packed & 7) - 1 if packed < FAR * 8 else NO_STEP


@leaf
def to_desk(t: Town, i: int) -> None:
    """Inside the site: walk on to the own desk, out of the way of others."""
    me = t.residents[i]
    dx, dy = me["desk_x"] - me["x"], me["desk_y"] - me["y"]
    for attempt in range(2):
        step = NO_STEP
        if (abs(dx) >= abs(dy)) == (attempt == 0):
            if dx != 0:
                step = 1 if dx > 0 else 3
        elif dy != 0:
            step = 2 if dy > 0 else 0
        if step >= 0:
            x, y = me["x"] + step_x(step), me["y"] + step_y(step)
            if walkable(t, x, y) and t.grid[y, x]["occupant"] < 0:
                me["move"] = step
                return


@leaf
def control(t: Town, i: int, primitive: bool) -> None:
    """What a resident tries in this tick of its decision."""
    me = t.residents[i]
    me["move"] = NO_STEP
    me["request"] = -1
    me["talks"] = 0
    if me["present"] == 0 or me["using"] >= 0:
        return
    if me["called"] >= 0:
        me["request"] = me["called"]
        walk(t, i, way_to(t, i, int(me["called"])))
    elif me["queued"] >= 0:
        me["request"] = me["queued"]
        if t.rules["candidates"] == 1:  # a place that was reserved from afar
            packed = way_to(t, i, int(me["queued"]))
            if packed >> 3 > t.rules["queue_reach"]:
                walk(t, i, packed)
    elif primitive:
        control_primitive(t, i)
    else:
        control_option(t, i)


@leaf
def control_option(t: Town, i: int) -> None:
    me = t.residents[i]
    action = me["action"]
    if action == WORK and me["job"] >= 0:
        site = int(t.jobs[me["job"]]["site"])
        if inside(t, i, site):
            to_desk(t, i)
            me["acted"] = 1
        else:
            walk(t, i, packed_to_building(t, i, site))
    elif action == HOME:
        if me["meet_at"] >= 0 and distance_to(t, i, int(me["meet_at"])) < FAR:
            walk(t, i, way_to(t, i, int(me["meet_at"])))
        elif inside(t, i, int(me["home"])):
            me["acted"] = 1
        else:
            walk(t, i, packed_to_building(t, i, int(me["home"])))
    elif action == CHAT:
        me["talks"] = 1
    elif action >= FIRST_AFFORDANCE and me["target"] >= 0:
        packed = way_to(t, i, int(me["target"]))
        if packed >> 3 <= t.rules["queue_reach"]:
            o = t.objects[me["target"]]
            if packed >> 3 == 0 or o["user"] >= 0 or o["holder"] >= 0 or o["head"] >= 0:
                me["request"] = me["target"]
        walk(t, i, packed)


@kernel
def control_primitive(t: Town, i: int) -> None:
    me = t.residents[i]
    action = me["action"]
    if 0 < action < P_LEAVE:
        me["move"] = action - MOVE_NORTH
    elif action == P_CHAT:
        me["talks"] = 1
    elif action >= FIRST_INTERACT:
        me["request"] = me["target"]
        if me["target"] >= 0:
            walk(t, i, way_to(t, i, int(me["target"])))
