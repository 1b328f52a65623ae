"""What a resident sees, written into the caller's buffers by the names of `spec.py`; the action mask beside it."""

from __future__ import annotations

from typing import Any

import numpy as np

from townlet.observations.spec import CANDIDATE_FIELDS, PLACE_FIELDS, SOCIAL_FIELDS
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
from townlet.world.state import (
    CANDIDATES,
    FAR,
    MAX_EDGES,
    MAX_MEALS,
    MONEY,
    OBJECT_TILE,
    PERTURBATIONS,
    WALL,
    Tables,
    Town,
)
from townlet.world.systems.affordances import willing
from townlet.world.systems.employment import attendance
from townlet.world.systems.lifecycle import doomed
from townlet.world.systems.movement import step_x, step_y
from townlet.world.systems.relationships import familiarity_now, rivalry_now, trust_now

DX, DY, DISTANCE, QUEUE, BUSY, RIVALRY = (
    CANDIDATE_FIELDS.index(name) for name in ("dx", "dy", "distance", "queue", "busy", "rivalry")
)
CANDIDATE = len(CANDIDATE_FIELDS)
PLACE_DX, PLACE_DY, PLACE_DISTANCE, PLACE_AT = (PLACE_FIELDS.index(name) for name in ("dx", "dy", "distance", "at"))
TIE_TRUST, TIE_FAMILIARITY, TIE_RIVALRY = (SOCIAL_FIELDS.index(name) for name in ("trust", "familiarity", "rivalry"))
TIE_DX, TIE_DY, TIE_FILLED = (SOCIAL_FIELDS.index(name) for name in ("dx", "dy", "filled"))
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
def write_own(t: Town, i: int, circle: np.ndarray, at: Any, out: np.ndarray) -> None:
    """What a resident knows of itself and the town, in a row of zeros; `at` says in which column each block begins."""
    me, clock, rules = t.residents[i], t.clock, t.rules
    day = rules["ticks_per_day"]
    for k in range(rules["needs"]):
        out[at["needs"] + k] = me["needs"][k]
    out[at["wallet"]] = squash(float(me["wallet"]), float(MONEY))
    out[at["debt"]] = squash(float(me["debt"]), float(MONEY))
    out[at["meals"]] = me["meals"] / MAX_MEALS
    out[at["lateness_counter"]] = squash(float(me["late_count"]), 1.0)
    out[at["wages_withheld"]] = squash(float(me["withheld"]), float(MONEY))
    out[at["on_shift"]] = me["working"]
    out[at["time_sin"]], out[at["time_cos"]] = circle[clock["minute"], 0], circle[clock["minute"], 1]
    phase = shift_phase(t, i)
    out[at["time_to_shift"]] = 1.0
    if phase >= 0:
        length = t.jobs[me["job"]]["length"]
        out[at["time_to_shift"]] = 0.0 if phase < length else (day - phase) / day
        out[at["shift_left"]] = (length - phase) / day if phase < length else 0.0
    out[at["attendance_ratio"]] = attendance(t, i)
    out[at["shift"] + me["shift"]] = 1.0
    out[at["embedding_slot_norm"]] = i / t.residents.shape[0]
    out[at["ctx_reset_flag"]] = 1.0 if me["born"] == clock["tick"] else 0.0
    out[at["episode_progress"]] = min(clock["tick"] / rules["episode_ticks"], 1.0)  # the last decision may run over the end
    out[at["last_action"] + me["action"]] = 1.0
    out[at["last_action_success"]] = me["acted"]
    called, uses = me["called"] >= 0, me["using"] >= 0
    waits = called or me["queued"] >= 0
    out[at["reservation_active"]] = 1.0 if uses or called else 0.0
    out[at["in_queue"]] = 1.0 if waits else 0.0
    if uses:
        out[at["ticks_left"]] = me["ticks_left"] / t.affordances[me["affordance"]]["ticks"]
        out[at["using"] + me["affordance"]] = 1.0
    elif waits:
        if not called:
            position = 1
            ahead = int(me["ahead"])
            while ahead >= 0:
                position += 1
                ahead = int(t.residents[ahead]["ahead"])
            out[at["queue_position"]] = squash(float(position), 2.0)
        out[at["waiting"] + me["affordance"]] = 1.0
    out[at["exit_near"]] = 1.0 if doomed(t, i) else 0.0
    out[at["notice"]] = me["notice"]
    out[at["rent_unpaid"]] = squash(float(me["unpaid_days"]), 1.0)
    for kind in range(len(PERTURBATIONS)):
        out[at["town"] + kind] = 1.0 if clock["active_until"][kind] > clock["tick"] else 0.0
    out[at["extroversion"]], out[at["forgiveness"]], out[at["ambition"]] = me["extroversion"], me["forgiveness"], me["ambition"]


@leaf
def write_candidate(t: Town, thing: int, packed: int, grudge: float, nearness: np.ndarray, out: np.ndarray, f: int) -> None:
    o = t.objects[thing]
    step = (packed & 7) - 1
    out[f + DX], out[f + DY] = step_x(step), step_y(step)
    out[f + DISTANCE] = nearness[packed >> 3]
    if o["waiting"] > 0:
        out[f + QUEUE] = squash(float(o["waiting"]), 2.0)
    out[f + BUSY] = 1.0 if o["user"] >= 0 or o["holder"] >= 0 else 0.0
    out[f + RIVALRY] = grudge


@leaf
def write_candidates(t: Town, i: int, nearness: np.ndarray, out: np.ndarray, f: int, mask: np.ndarray, options: bool) -> None:
    """Both candidates of every affordance, and at option level their part of the mask."""
    me = t.residents[i]
    waits = me["queued"] >= 0 or me["called"] >= 0
    for a in range(t.affordances.shape[0]):
        near, near_way, near_grudge = -1, 0, 0.0
        calm, calm_way, calm_grudge, least = -1, 0, 0.0, 0.0
        if willing(t, i, a):
            for k in range(CANDIDATES):
                thing = candidate(t, i, a, k)
                if thing < 0:
                    continue
                packed = way_to_candidate(t, i, a, k, thing)
                way = packed >> 3
                if way >= FAR:
                    continue
                grudge = worst_rivalry(t, i, thing)
                cost = quiet_cost(t, thing, way, grudge)
                if near < 0 or way < near_way >> 3:
                    near, near_way, near_grudge = thing, packed, grudge
                if calm < 0 or cost < least:
                    calm, calm_way, calm_grudge, least = thing, packed, grudge, cost
                if cost == way and t.affordances[a]["own_home"] == 0:
                    break  # nobody is here, and what follows is farther
        if near >= 0:
            write_candidate(t, near, near_way, near_grudge, nearness, out, f)
            if calm == near:
                for k in range(CANDIDATE):
                    out[f + CANDIDATE + k] = out[f + k]
            else:
                write_candidate(t, calm, calm_way, calm_grudge, nearness, out, f + CANDIDATE)
        else:
            out[f + DISTANCE], out[f + CANDIDATE + DISTANCE] = 1.0, 1.0
        f += 2 * CANDIDATE
        if options:
            legal = me["using"] < 0 and (near >= 0 or (waits and me["affordance"] == a))
            mask[FIRST_AFFORDANCE + 2 * a] = 1 if legal else 0
            mask[FIRST_AFFORDANCE + 2 * a + 1] = 1 if legal else 0


@leaf
def write_place(t: Town, i: int, building: int, nearness: np.ndarray, out: np.ndarray, f: int) -> None:
    out[f + PLACE_DISTANCE] = 1.0
    if building >= 0:
        packed = packed_to_building(t, i, building)
        step = (packed & 7) - 1
        out[f + PLACE_DX], out[f + PLACE_DY] = step_x(step), step_y(step)
        out[f + PLACE_DISTANCE] = nearness[packed >> 3]
        out[f + PLACE_AT] = 1.0 if inside(t, i, building) else 0.0


@leaf
def write_tie(t: Town, i: int, s: int, out: np.ndarray, f: int) -> None:
    if s >= 0:
        me, other = t.residents[i], t.residents[t.ties[i, s]["other"]]
        out[f + TIE_TRUST], out[f + TIE_FAMILIARITY] = trust_now(t, i, s), familiarity_now(t, i, s)
        out[f + TIE_RIVALRY] = rivalry_now(t, i, s)
        out[f + TIE_DX], out[f + TIE_DY] = offset(float(other["x"] - me["x"])), offset(float(other["y"] - me["y"]))
        out[f + TIE_FILLED] = 1.0


@leaf
def write_ties(t: Town, i: int, at: Any, out: np.ndarray) -> None:
    """The worst rivalry and how many are avoided; two friends, two rivals, and the averages over all ties."""
    friend, friend_2, rival, rival_2 = -1, -1, -1, -1
    warm, warm_2, hot, hot_2 = 0.0, 0.0, 0.0, 0.0
    filled, avoided, trust_sum, fam_sum, rival_sum = 0, 0, 0.0, 0.0, 0.0
    for s in range(MAX_EDGES):
        if t.ties[i, s]["other"] < 0:
            continue
        trust, fam, rivalry = trust_now(t, i, s), familiarity_now(t, i, s), rivalry_now(t, i, s)
        if max(abs(trust), abs(fam), rivalry) < t.rules["tie_floor"]:
            continue  # faded, and freed when somebody needs the place
        filled += 1
        trust_sum += trust
        fam_sum += fam
        rival_sum += rivalry
        if rivalry > t.rules["avoid_threshold"]:
            avoided += 1
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
    out[at["rivalry_max"]] = hot
    out[at["rivalry_avoid_count"]] = avoided / MAX_EDGES
    write_tie(t, i, friend, out, at["friend_1"])
    write_tie(t, i, friend_2, out, at["friend_2"])
    write_tie(t, i, rival, out, at["rival_1"])
    write_tie(t, i, rival_2, out, at["rival_2"])
    out[at["ties_filled"]] = filled / MAX_EDGES
    out[at["trust_mean"]] = trust_sum / MAX_EDGES
    out[at["familiarity_mean"]] = fam_sum / MAX_EDGES
    out[at["rivalry_mean"]] = rival_sum / MAX_EDGES


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
def seen_at(x: int, y: int, window: int) -> bool:
    return bool(0 <= x < window and 0 <= y < window)


@leaf
def write_map(t: Town, i: int, tables: Tables, out: np.ndarray) -> None:
    """The channels of the variant, one plane after the other."""
    channels, window = tables.channels[0], tables.window[0]
    half, plane = window // 2, window * window
    agents, objects, reservations = channels["agents"] * plane, channels["objects"] * plane, channels["reservations"] * plane
    me, blind = t.residents[i], t.rules["blind_conflict"] == 1
    height, width = t.grid.shape
    x0, y0 = int(me["x"]) - half, int(me["y"]) - half
    for cell in range(out.shape[0]):
        out[cell] = 0
    out[channels["self"] * plane + half * window + half] = 1
    if t.residents.shape[0] <= SMALL_TOWN:
        for j in range(t.residents.shape[0]):
            other = t.residents[j]
            x, y = other["x"] - x0, other["y"] - y0
            if seen_at(x, y, window) and other["present"] == 1 and j != i:
                out[agents + y * window + x] = 1
    else:
        for y in range(max(0, -y0), min(window, height - y0)):
            for x in range(max(0, -x0), min(window, width - x0)):
                j = t.grid[y0 + y, x0 + x]["occupant"]
                if j >= 0 and (j != i or t.residents[j]["below"] >= 0):
                    out[agents + y * window + x] = 1
    at = t.clock["layout"]
    view = tables.views[at, me["y"], me["x"]]
    for k in range(view["first"], view["first"] + view["count"]):
        thing = tables.in_view[at, k]
        out[objects + thing["cell"]] = 1
        o = t.objects[thing["object"]]
        if (o["user"] >= 0 or o["holder"] >= 0) and not blind:
            out[reservations + thing["cell"]] = 1
    if channels["rivals"] >= 0 and not blind:
        rivals = channels["rivals"] * plane
        for s in range(MAX_EDGES):
            j = int(t.ties[i, s]["other"])
            if j >= 0 and t.residents[j]["present"] == 1 and rivalry_now(t, i, s) > t.rules["avoid_threshold"]:
                x, y = t.residents[j]["x"] - x0, t.residents[j]["y"] - y0
                if seen_at(x, y, window):
                    out[rivals + y * window + x] = 1
    if channels["walkable"] >= 0:
        ground = channels["walkable"] * plane
        for y in range(max(0, -y0), min(window, height - y0)):
            for x in range(max(0, -x0), min(window, width - x0)):
                tile = t.grid[y0 + y, x0 + x]["tile"]
                if tile != WALL and tile != OBJECT_TILE:
                    out[ground + y * window + x] = 1


@leaf
def observe(
    t: Town, i: int, tables: Tables, conflict: np.ndarray, primitive: bool, out: np.ndarray, cells: np.ndarray, mask: np.ndarray
) -> None:
    """One resident's observation and mask; an empty slot sees nothing and may only wait."""
    for field in range(out.shape[0]):
        out[field] = 0.0
    if t.residents[i]["present"] == 0:
        cells[:] = 0
        mask[:] = 0
        mask[0] = 1
        return
    at, me = tables.columns[0], t.residents[i]
    write_own(t, i, tables.circle, at, out)
    write_candidates(t, i, tables.nearness, out, at["candidates"], mask, not primitive)
    write_mask(t, i, mask, primitive)
    write_place(t, i, int(t.jobs[me["job"]]["site"]) if me["job"] >= 0 else -1, tables.nearness, out, at["work"])
    write_place(t, i, int(me["home"]), tables.nearness, out, at["home"])
    write_ties(t, i, at, out)
    if cells.shape[0] > 0:
        write_map(t, i, tables, cells)
    if t.rules["blind_conflict"] == 1:
        for c in conflict:
            out[c] = 0.0
