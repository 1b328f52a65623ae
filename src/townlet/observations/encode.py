"""What a resident sees, written into the caller's buffers in the order of `spec.py`; the action mask beside it."""

from __future__ import annotations

import numpy as np

from townlet.world._jit import leaf
from townlet.world.actions import FIRST_AFFORDANCE, LEAVE, WAIT
from townlet.world.options import (
    candidate,
    inside,
    legal_option,
    legal_primitive,
    packed_to_building,
    quiet_cost,
    shift_phase,
    way_to_candidate,
    worst_rivalry,
)
from townlet.world.state import CANDIDATES, FAR, MAX_EDGES, MAX_MEALS, MONEY, PERTURBATIONS, SHIFT_STATES, Tables, Town
from townlet.world.systems.affordances import willing
from townlet.world.systems.employment import attendance
from townlet.world.systems.lifecycle import doomed
from townlet.world.systems.movement import step_x, step_y
from townlet.world.systems.relationships import familiarity_now, rivalry_now, trust_now

SMALL_TOWN = 64  # up to here the agents channel is filled from the residents, above it from the tiles in the window


@leaf
def squash(x: float, half: float) -> float:
    """[0, ∞) → [0, 1), with `half` at 0.5."""
    return x / (x + half)


@leaf
def offset(d: float) -> float:
    """A signed distance in tiles → (-1, 1)."""
    return d / (abs(d) + 5.0)


@leaf
def write_own(t: Town, i: int, circle: np.ndarray, out: np.ndarray, actions: int) -> int:
    """Fields up to the candidates; returns the next offset."""
    me, clock, rules = t.residents[i], t.clock, t.rules
    day = rules["ticks_per_day"]
    out[0], out[1], out[2] = me["hunger"], me["hygiene"], me["energy"]
    out[3] = squash(float(me["wallet"]), float(MONEY))
    out[4] = me["meals"] / MAX_MEALS
    out[5] = squash(float(me["late_count"]), 1.0)
    out[6] = squash(float(me["withheld"]), float(MONEY))
    out[7] = me["working"]
    out[8], out[9] = circle[clock["minute"], 0], circle[clock["minute"], 1]
    phase = shift_phase(t, i)
    out[10], out[11] = 1.0, 0.0
    if phase >= 0:
        length = t.jobs[me["job"]]["length"]
        if phase < length:
            out[10] = 0.0
            out[11] = (length - phase) / day
        else:
            out[10] = (day - phase) / day
    out[12] = attendance(t, i)
    f = 13
    for s in range(len(SHIFT_STATES)):
        out[f] = 1.0 if me["shift"] == s else 0.0
        f += 1
    out[f] = i / t.residents.shape[0]
    out[f + 1] = 1.0 if me["born"] == clock["tick"] else 0.0
    out[f + 2] = min(clock["tick"] / rules["episode_ticks"], 1.0)  # the last decision may run over the end
    highest, avoided = 0.0, 0
    for s in range(MAX_EDGES):
        if t.ties[i, s]["other"] >= 0:
            rivalry = rivalry_now(t, i, s)
            highest = max(highest, rivalry)
            if rivalry > rules["avoid_threshold"]:
                avoided += 1
    out[f + 3] = highest
    out[f + 4] = avoided / MAX_EDGES
    f += 5
    for a in range(actions):
        out[f] = 1.0 if me["action"] == a else 0.0
        f += 1
    out[f] = me["acted"]
    out[f + 1] = 1.0 if me["using"] >= 0 or me["called"] >= 0 else 0.0
    waits = me["queued"] >= 0 or me["called"] >= 0
    out[f + 2] = 1.0 if waits else 0.0
    position = 0
    ahead = int(me["ahead"]) if me["queued"] >= 0 else -1
    while ahead >= 0:
        position += 1
        ahead = int(t.residents[ahead]["ahead"])
    out[f + 3] = squash(float(position + 1), 2.0) if me["queued"] >= 0 else 0.0
    out[f + 4] = me["ticks_left"] / t.affordances[me["affordance"]]["ticks"] if me["using"] >= 0 else 0.0
    f += 5
    kinds = t.affordances.shape[0]
    for a in range(kinds):
        out[f + a] = 1.0 if me["using"] >= 0 and me["affordance"] == a else 0.0
        out[f + kinds + a] = 1.0 if waits and me["affordance"] == a else 0.0
    f += 2 * kinds
    out[f] = 1.0 if doomed(t, i) else 0.0
    out[f + 1] = me["notice"]
    out[f + 2] = squash(float(me["unpaid_days"]), 1.0)
    f += 3
    for kind in range(len(PERTURBATIONS)):
        out[f] = 1.0 if clock["active_until"][kind] > clock["tick"] else 0.0
        f += 1
    return int(f)


@leaf
def write_candidate(t: Town, i: int, thing: int, packed: int, nearness: np.ndarray, out: np.ndarray, f: int) -> None:
    if thing < 0:
        out[f], out[f + 1], out[f + 2], out[f + 3], out[f + 4], out[f + 5] = 0.0, 0.0, 1.0, 0.0, 0.0, 0.0
        return
    o = t.objects[thing]
    step = (packed & 7) - 1
    out[f], out[f + 1] = step_x(step), step_y(step)
    out[f + 2] = nearness[packed >> 3]
    out[f + 3] = squash(float(o["waiting"]), 2.0) if o["waiting"] > 0 else 0.0
    busy = o["user"] >= 0 or o["holder"] >= 0
    out[f + 4] = 1.0 if busy else 0.0
    out[f + 5] = worst_rivalry(t, i, thing) if busy or o["head"] >= 0 else 0.0


@leaf
def write_candidates(t: Town, i: int, nearness: np.ndarray, out: np.ndarray, f: int, mask: np.ndarray, options: bool) -> int:
    """Both candidates of every affordance, and at option level their part of the mask."""
    me = t.residents[i]
    waits = me["queued"] >= 0 or me["called"] >= 0
    for a in range(t.affordances.shape[0]):
        near, calm, near_way, calm_way, least = -1, -1, 0, 0, 0.0
        if willing(t, i, a):
            for k in range(CANDIDATES):
                thing = candidate(t, i, a, k)
                if thing < 0:
                    continue
                packed = way_to_candidate(t, i, a, k, thing)
                if packed >= FAR * 8:
                    continue
                cost = quiet_cost(t, i, thing, packed >> 3)
                if near < 0 or packed >> 3 < near_way >> 3:
                    near, near_way = thing, packed
                if calm < 0 or cost < least:
                    calm, calm_way, least = thing, packed, cost
                if cost == packed >> 3 and t.affordances[a]["own_home"] == 0:
                    break  # nobody is here, and what follows is farther
        write_candidate(t, i, near, near_way, nearness, out, f)
        if calm == near:
            for k in range(6):
                out[f + 6 + k] = out[f + k]
        else:
            write_candidate(t, i, calm, calm_way, nearness, out, f + 6)
        f += 12
        if options:
            legal = me["using"] < 0 and (near >= 0 or (waits and me["affordance"] == a))
            mask[FIRST_AFFORDANCE + 2 * a] = 1 if legal else 0
            mask[FIRST_AFFORDANCE + 2 * a + 1] = 1 if legal else 0
    return f


@leaf
def write_place(t: Town, i: int, building: int, nearness: np.ndarray, out: np.ndarray, f: int) -> int:
    out[f], out[f + 1], out[f + 2], out[f + 3] = 0.0, 0.0, 1.0, 0.0
    if building >= 0:
        packed = packed_to_building(t, i, building)
        step = (packed & 7) - 1
        out[f], out[f + 1] = step_x(step), step_y(step)
        out[f + 2] = nearness[packed >> 3]
        out[f + 3] = 1.0 if inside(t, i, building) else 0.0
    return f + 4


@leaf
def write_tie(t: Town, i: int, s: int, out: np.ndarray, f: int) -> None:
    if s < 0:
        for k in range(6):
            out[f + k] = 0.0
        return
    me, other = t.residents[i], t.residents[t.ties[i, s]["other"]]
    out[f], out[f + 1], out[f + 2] = trust_now(t, i, s), familiarity_now(t, i, s), rivalry_now(t, i, s)
    out[f + 3], out[f + 4] = offset(float(other["x"] - me["x"])), offset(float(other["y"] - me["y"]))
    out[f + 5] = 1.0


@leaf
def write_ties(t: Town, i: int, out: np.ndarray, f: int) -> int:
    """Two friends, two rivals, and the averages over all ties."""
    friend, friend_2, rival, rival_2 = -1, -1, -1, -1
    warm, warm_2, hot, hot_2 = 0.0, 0.0, 0.0, 0.0
    filled, trust_sum, fam_sum, rival_sum = 0, 0.0, 0.0, 0.0
    for s in range(MAX_EDGES):
        if t.ties[i, s]["other"] < 0:
            continue
        trust, fam, rivalry = trust_now(t, i, s), familiarity_now(t, i, s), rivalry_now(t, i, s)
        filled += 1
        trust_sum += trust
        fam_sum += fam
        rival_sum += rivalry
        liking = trust + fam - rivalry
        if liking > warm:
            friend_2, warm_2 = friend, warm
            friend, warm = s, liking
        elif liking > warm_2:
            friend_2, warm_2 = s, liking
        if rivalry > hot:
            rival_2, hot_2 = rival, hot
            rival, hot = s, rivalry
        elif rivalry > hot_2:
            rival_2, hot_2 = s, rivalry
    write_tie(t, i, friend, out, f)
    write_tie(t, i, friend_2, out, f + 6)
    write_tie(t, i, rival, out, f + 12)
    write_tie(t, i, rival_2, out, f + 18)
    f += 24
    out[f] = filled / MAX_EDGES
    out[f + 1] = trust_sum / MAX_EDGES
    out[f + 2] = fam_sum / MAX_EDGES
    out[f + 3] = rival_sum / MAX_EDGES
    return f + 4


@leaf
def write_mask(t: Town, i: int, mask: np.ndarray, primitive: bool) -> None:
    """The part of the mask that is not about candidates; at primitive level all of it."""
    if primitive:
        for a in range(mask.shape[0]):
            mask[a] = 1 if legal_primitive(t, i, a) else 0
    else:
        busy = t.residents[i]["using"] >= 0
        for a in range(FIRST_AFFORDANCE):
            mask[a] = 1 if (a in (WAIT, LEAVE) if busy else legal_option(t, i, a)) else 0


@leaf
def write_map(t: Town, i: int, out: np.ndarray) -> None:
    """Channels self, agents, objects, reservations (4), + rivals, walkable (6) or + walkable (5)."""
    channels, window = out.shape[0], out.shape[1]
    half = window // 2
    me = t.residents[i]
    height, width = t.grid.shape
    x0, y0 = int(me["x"]) - half, int(me["y"]) - half
    blind = t.rules["blind_conflict"] == 1
    out[:] = 0
    out[0, half, half] = 1
    if t.residents.shape[0] <= SMALL_TOWN:
        for j in range(t.residents.shape[0]):
            other = t.residents[j]
            x, y = other["x"] - x0, other["y"] - y0
            if j != i and other["present"] == 1 and 0 <= x < window and 0 <= y < window:
                out[1, y, x] = 1
    else:
        for y in range(max(0, -y0), min(window, height - y0)):
            for x in range(max(0, -x0), min(window, width - x0)):
                j = t.grid[y0 + y, x0 + x]["occupant"]
                if j >= 0 and (j != i or t.residents[j]["below"] >= 0):
                    out[1, y, x] = 1
    if t.objects.shape[0] <= SMALL_TOWN:
        for m in range(t.objects.shape[0]):
            x, y = t.objects[m]["x"] - x0, t.objects[m]["y"] - y0
            if 0 <= x < window and 0 <= y < window:
                out[2, y, x] = 1
                if not blind and (t.objects[m]["user"] >= 0 or t.objects[m]["holder"] >= 0):
                    out[3, y, x] = 1
    else:
        for y in range(max(0, -y0), min(window, height - y0)):
            for x in range(max(0, -x0), min(window, width - x0)):
                m = t.grid[y0 + y, x0 + x]["object"]
                if m >= 0:
                    out[2, y, x] = 1
                    if not blind and (t.objects[m]["user"] >= 0 or t.objects[m]["holder"] >= 0):
                        out[3, y, x] = 1
    if channels == 6 and not blind:
        for s in range(MAX_EDGES):
            j = int(t.ties[i, s]["other"])
            if j >= 0 and t.residents[j]["present"] == 1 and rivalry_now(t, i, s) > t.rules["avoid_threshold"]:
                x, y = t.residents[j]["x"] - x0, t.residents[j]["y"] - y0
                if 0 <= x < window and 0 <= y < window:
                    out[4, y, x] = 1
    if channels > 4:
        for y in range(max(0, -y0), min(window, height - y0)):
            for x in range(max(0, -x0), min(window, width - x0)):
                tile = t.grid[y0 + y, x0 + x]["tile"]
                if tile != 1 and tile != 4:
                    out[channels - 1, y, x] = 1


@leaf
def observe(
    t: Town, i: int, tables: Tables, conflict: np.ndarray, primitive: bool, out: np.ndarray, window: np.ndarray, mask: np.ndarray
) -> None:
    """One resident's observation and mask; an empty slot sees nothing and may only wait."""
    if t.residents[i]["present"] == 0:
        out[:] = 0.0
        window[:] = 0
        mask[:] = 0
        mask[0] = 1
        return
    f = write_own(t, i, tables.circle, out, mask.shape[0])
    f = write_candidates(t, i, tables.nearness, out, f, mask, not primitive)
    write_mask(t, i, mask, primitive)
    me = t.residents[i]
    f = write_place(t, i, int(t.jobs[me["job"]]["site"]) if me["job"] >= 0 else -1, tables.nearness, out, f)
    f = write_place(t, i, int(me["home"]), tables.nearness, out, f)
    out[f], out[f + 1], out[f + 2] = me["extroversion"], me["forgiveness"], me["ambition"]
    write_ties(t, i, out, f + 3)
    if window.shape[0] > 0:
        write_map(t, i, window)
    if t.rules["blind_conflict"] == 1:
        for c in conflict:
            out[c] = 0.0
