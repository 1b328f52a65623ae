"""What a resident sees, written into the caller's buffers by the names of `spec.py`; the action mask beside it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from townlet.observations.spec import CANDIDATE_FIELDS, CHOICE_FIELDS, PLACE_FIELDS, SOCIAL_FIELDS
from townlet.world._jit import kernel, leaf
from townlet.world.actions import FIRST_AFFORDANCE, LEAVE, RESERVE, WAIT, YIELD
from townlet.world.options import (
    bed_of_home,
    candidate,
    crowd,
    held,
    inside,
    legal_option,
    legal_primitive,
    may_reserve,
    may_yield,
    packed_to_building,
    quiet_cost,
    shift_phase,
    taken,
    way_to_candidate,
    worst_rivalry,
)
from townlet.world.state import (
    CANDIDATES,
    FAR,
    HALF_QUEUE,
    HALF_WAIT,
    HALF_WEIGHT,
    MAX_EDGES,
    MAX_MEALS,
    MONEY,
    OBJECT_TILE,
    PERTURBATIONS,
    WALL,
    Tables,
    Town,
)
from townlet.world.systems.affordances import off_cooldown, ready, willing
from townlet.world.systems.employment import attendance
from townlet.world.systems.lifecycle import doomed
from townlet.world.systems.relationships import familiarity_now, rivalry_now, trust_now

DX, DY, DISTANCE, QUEUE, BUSY, RIVALRY = (
    list(CANDIDATE_FIELDS).index(name) for name in ("dx", "dy", "distance", "queue", "busy", "rivalry")
)
CANDIDATE = len(CANDIDATE_FIELDS)
CHOICE, CHOICE_WAIT, CHOICE_MINE = len(CHOICE_FIELDS), *(list(CHOICE_FIELDS).index(name) for name in ("wait", "mine"))
PLACE_AT = list(PLACE_FIELDS).index("at")
TIE_TRUST, TIE_FAMILIARITY, TIE_RIVALRY = (list(SOCIAL_FIELDS).index(name) for name in ("trust", "familiarity", "rivalry"))
TIE_DX, TIE_DY, TIE_FILLED = (list(SOCIAL_FIELDS).index(name) for name in ("dx", "dy", "filled"))
NOWHERE = 8 * (FAR + 1)  # the way to what is not there: no step, distance 1
SMALL_TOWN = 64  # up to here the agents channel is filled from the residents, above it from the tiles in the window


class Feeling(NamedTuple):
    """A tie as it is now."""

    other: int
    trust: float
    familiarity: float
    rivalry: float
    liking: float


@leaf
def squash(x: float, half: float) -> float:
    """[0, ∞) → [0, 1), with `half` at 0.5."""
    return x / (x + half)


@leaf
def write_own(t: Town, i: int, tables: Tables, at: np.void, out: np.ndarray) -> None:
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
    out[at["time_sin"]], out[at["time_cos"]] = tables.circle[clock["minute"], 0], tables.circle[clock["minute"], 1]
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
            out[at["queue_position"]] = squash(float(position), HALF_QUEUE)
        out[at["waiting"] + me["affordance"]] = 1.0
    out[at["exit_near"]] = 1.0 if doomed(t, i) else 0.0
    out[at["notice"]] = me["notice"]
    out[at["rent_unpaid"]] = squash(float(me["unpaid_days"]), 1.0)
    for kind in range(len(PERTURBATIONS)):
        out[at["town"] + kind] = 1.0 if clock["active_until"][kind] > clock["tick"] else 0.0
    out[at["extroversion"]], out[at["forgiveness"]], out[at["ambition"]] = me["extroversion"], me["forgiveness"], me["ambition"]
    if at["conflict_weight"] < out.shape[0]:
        out[at["conflict_weight"]] = squash(rules["told_weight"], HALF_WEIGHT)


@leaf
def write_way(packed: int, tables: Tables, out: np.ndarray, f: int) -> None:
    """Direction of the first step and distance: the first three fields of a candidate and of a place."""
    out[f + DX] = tables.steps[packed & 7, 0]
    out[f + DY] = tables.steps[packed & 7, 1]
    out[f + DISTANCE] = tables.nearness[packed >> 3]


@leaf
def write_candidate(t: Town, thing: int, packed: int, grudge: float, tables: Tables, out: np.ndarray, f: int) -> None:
    write_way(packed, tables, out, f)
    out[f + QUEUE] = squash(float(t.objects[thing]["waiting"]), HALF_QUEUE)
    out[f + BUSY] = 1.0 if held(t, thing) else 0.0
    out[f + RIVALRY] = grudge


@leaf
def write_candidates(t: Town, i: int, tables: Tables, out: np.ndarray, f: int, mask: np.ndarray, options: bool) -> None:
    """Both candidates of every affordance in a row of zeros, and at option level their part of the mask."""
    me = t.residents[i]
    here = t.nearest[me["y"], me["x"]]
    waits_for = me["affordance"] if me["queued"] >= 0 or me["called"] >= 0 else -1
    idle = me["using"] < 0
    for a in range(t.affordances.shape[0]):
        near, near_way, near_grudge = -1, NOWHERE, 0.0
        calm, calm_way, calm_grudge, least, crowded = -1, NOWHERE, 0.0, 0.0, False
        home = t.affordances[a]["own_home"] == 1
        if willing(t, i, a):
            for k in range(CANDIDATES):
                thing = bed_of_home(t, i, k) if home else int(here[a, k]["object"])
                if thing < 0:
                    break
                if not ready(t, thing) or not off_cooldown(t, i, thing):
                    continue
                packed = way_to_candidate(t, i, a, k, thing)
                way = packed >> 3
                if way >= FAR:
                    continue
                if not taken(t, thing):
                    if near < 0 or way < near_way >> 3:
                        near, near_way, near_grudge = thing, packed, 0.0
                    if calm < 0 or way < least:
                        calm, calm_way, calm_grudge, least = thing, packed, 0.0, float(way)
                    if not home:
                        break  # nobody is here, and what follows is farther
                    continue
                crowded = True
                grudge = worst_rivalry(t, i, thing)
                cost = quiet_cost(t, thing, way, grudge)
                if near < 0 or way < near_way >> 3:
                    near, near_way, near_grudge = thing, packed, grudge
                if calm < 0 or cost < least:
                    calm, calm_way, calm_grudge, least = thing, packed, grudge, cost
                if cost == way and not home:
                    break
        if crowded:
            write_candidate(t, near, near_way, near_grudge, tables, out, f)
            write_candidate(t, calm, calm_way, calm_grudge, tables, out, f + CANDIDATE)
        else:  # none, or one that is nearest and calmest at once, and nobody is there
            write_way(near_way, tables, out, f)
            write_way(near_way, tables, out, f + CANDIDATE)
        f += 2 * CANDIDATE
        if options:
            legal = 1 if idle & ((near >= 0) | (waits_for == a)) else 0
            mask[FIRST_AFFORDANCE + 2 * a] = legal
            mask[FIRST_AFFORDANCE + 2 * a + 1] = legal


@kernel
def write_choices(t: Town, i: int, tables: Tables, out: np.ndarray, f: int, mask: np.ndarray) -> None:
    """Every candidate of every affordance as the catalogue `candidates` shows it, in a row of zeros, and its part of the mask."""
    me, action = t.residents[i], FIRST_AFFORDANCE
    free = me["using"] < 0
    own = max(me["queued"], me["called"]) if me["queued"] >= 0 or me["called"] >= 0 else me["target"]
    for a in range(t.affordances.shape[0]):
        wanted = willing(t, i, a)
        for k in range(CANDIDATES):
            thing = candidate(t, i, a, k) if wanted else -1
            packed = way_to_candidate(t, i, a, k, thing) if thing >= 0 else NOWHERE
            mask[action] = 0
            if packed >> 3 < FAR:
                busy = taken(t, thing)
                write_candidate(t, thing, packed, worst_rivalry(t, i, thing), tables, out, f)
                out[f + CHOICE_WAIT] = squash(float(crowd(t, thing)), HALF_WAIT) if busy else 0.0
                out[f + CHOICE_MINE] = 1.0 if thing == own else 0.0
                mask[action] = 1 if free else 0
            else:
                write_way(NOWHERE, tables, out, f)
            f += CHOICE
            action += 1
    mask[action + RESERVE] = 1 if may_reserve(t, i) else 0
    mask[action + YIELD] = 1 if may_yield(t, i) else 0


@leaf
def write_place(t: Town, i: int, building: int, tables: Tables, out: np.ndarray, f: int) -> None:
    if building >= 0:
        write_way(packed_to_building(t, i, building), tables, out, f)
        out[f + PLACE_AT] = 1.0 if inside(t, i, building) else 0.0
    else:
        out[f + DISTANCE] = 1.0


@leaf
def feeling(other: int, trust: float, familiarity: float, rivalry: float) -> Feeling:
    return Feeling(other, trust, familiarity, rivalry, trust + familiarity - rivalry)


@leaf
def write_tie(t: Town, i: int, tie: Feeling, tables: Tables, out: np.ndarray, f: int) -> None:
    if tie.other >= 0:
        me, other, middle = t.residents[i], t.residents[tie.other], tables.offsets.shape[0] // 2
        out[f + TIE_TRUST], out[f + TIE_FAMILIARITY], out[f + TIE_RIVALRY] = tie.trust, tie.familiarity, tie.rivalry
        out[f + TIE_DX] = tables.offsets[middle + other["x"] - me["x"]]
        out[f + TIE_DY] = tables.offsets[middle + other["y"] - me["y"]]
        out[f + TIE_FILLED] = 1.0


@leaf
def write_ties(t: Town, i: int, tables: Tables, at: np.void, out: np.ndarray) -> None:
    """The worst rivalry and how many are avoided; two friends, two rivals, and the averages over all ties."""
    nobody = feeling(-1, 0.0, 0.0, 0.0)
    friend, friend_2, rival, rival_2 = nobody, nobody, nobody, nobody
    filled, avoided, trust_sum, fam_sum, rival_sum = 0, 0, 0.0, 0.0, 0.0
    floor, avoid = t.rules["free_below"], t.rules["avoid_threshold"]
    for s in range(MAX_EDGES):
        other = int(t.ties[i, s]["other"])
        if other < 0:
            continue
        trust, fam, rivalry = trust_now(t, i, s), familiarity_now(t, i, s), rivalry_now(t, i, s)
        if max(abs(trust), abs(fam), rivalry) < floor:
            continue  # faded, and freed when somebody needs the place
        filled += 1
        trust_sum += trust
        fam_sum += fam
        rival_sum += rivalry
        if rivalry > avoid:
            avoided += 1
        tie = feeling(other, trust, fam, rivalry)
        if tie.liking > friend.liking:
            friend_2, friend = friend, tie
        elif tie.liking > friend_2.liking:
            friend_2 = tie
        if rivalry > rival.rivalry:
            rival_2, rival = rival, tie
        elif rivalry > rival_2.rivalry:
            rival_2 = tie
    out[at["rivalry_max"]] = rival.rivalry
    out[at["rivalry_avoid_count"]] = avoided / MAX_EDGES
    write_tie(t, i, friend, tables, out, at["friend_1"])
    write_tie(t, i, friend_2, tables, out, at["friend_2"])
    write_tie(t, i, rival, tables, out, at["rival_1"])
    write_tie(t, i, rival_2, tables, out, at["rival_2"])
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
    return bool((x >= 0) & (x < window) & (y >= 0) & (y < window))


@leaf
def write_map(t: Town, i: int, tables: Tables, out: np.ndarray) -> None:
    """The channels of the variant, one plane after the other."""
    channels, window = tables.channels[0], tables.window[0]
    half, plane = window // 2, window * window
    agents, objects, reservations = channels["agents"] * plane, channels["objects"] * plane, channels["reservations"] * plane
    me, blind = t.residents[i], t.rules["blind_fields"] == 1
    height, width = t.grid.shape
    x0, y0 = int(me["x"]) - half, int(me["y"]) - half
    for cell in range(out.shape[0]):
        out[cell] = 0
    own = channels["self"] * plane + half * window + half
    out[own] = 1
    if t.residents.shape[0] <= SMALL_TOWN:
        for j in range(t.residents.shape[0]):
            other = t.residents[j]
            x, y = other["x"] - x0, other["y"] - y0
            seen = seen_at(x, y, window) & (other["present"] == 1) & (j != i)
            out[agents + y * window + x if seen else own] = 1  # without a branch, which would often be mispredicted
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
        out[reservations + thing["cell"]] = 1 if held(t, thing["object"]) & (not blind) else 0
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
    at, me = tables.columns[0], t.residents[i]
    if me["present"] == 0:
        out[:] = 0.0
        cells[:] = 0
        mask[:] = 0
        mask[0] = 1
        return
    for field in range(out.shape[0]):  # what is zero is not written again below
        out[field] = 0.0
    write_own(t, i, tables, at, out)
    if t.rules["candidates"] == 1:
        write_choices(t, i, tables, out, at["candidates"], mask)
    else:
        write_candidates(t, i, tables, out, at["candidates"], mask, not primitive)
    write_mask(t, i, mask, primitive)
    write_place(t, i, int(t.jobs[me["job"]]["site"]) if me["job"] >= 0 else -1, tables, out, at["work"])
    write_place(t, i, int(me["home"]), tables, out, at["home"])
    write_ties(t, i, tables, at, out)
    if cells.shape[0] > 0:
        write_map(t, i, tables, cells)
    if t.rules["blind_fields"] == 1:
        for c in conflict:
            out[c] = 0.0
