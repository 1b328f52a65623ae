"""What must always hold between two steps of a batch of towns, whatever was done to it.

`problems` looks at a batch and tells every breach in a sentence; an empty list is a sound town.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from townlet.types import Array
from townlet.world.state import EVENTS, MAX_MEALS, MAX_NEEDS, OBJECT_TILE, SHIFT_STATES, TERMS, WALL, State, Tables

CAST = 1e-6  # what a bound of a feature may be missed by, as float32


class Bounds(Protocol):
    """A named feature, as the observation spec has it."""

    @property
    def name(self) -> str: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


class Spec(Protocol):
    @property
    def fields(self) -> Sequence[Bounds]: ...
    @property
    def needs(self) -> Sequence[str]: ...


class TownBatch(Protocol):
    """The part of `VectorTown` that is looked at."""

    state: State
    tables: Tables
    features: Array
    maps: Array | None
    masks: Array
    active: Array
    rewards: Array
    terms: Array
    terminated: Array
    truncated: Array

    @property
    def spec(self) -> Spec: ...


class _Town(NamedTuple):
    residents: Array  # (N,) RESIDENT
    ties: Array  # (N, MAX_EDGES) TIE
    objects: Array  # (M,) OBJECT
    clock: np.void  # TOWN record
    grid: Array  # (H, W) GRID
    events: Array  # (C,) EVENT
    affordances: Array  # (A,) AFFORDANCE
    rules: np.void  # RULES record
    needs: Sequence[str]  # their names


def problems(vec: TownBatch) -> list[str]:
    """Every breach of an invariant, as `town 3, tick 120: …`; nothing when all is well."""
    found = []
    s = vec.state
    for e in range(len(s.towns)):
        t = _Town(
            s.residents[e], s.ties[e], s.objects[e], s.towns[e], s.grid[e], s.events[e],
            vec.tables.affordances, vec.tables.rules[e % len(vec.tables.rules)], vec.spec.needs,
        )  # fmt: skip
        where = f"town {t.clock['id']}, tick {t.clock['tick']}"
        for check in (_money, _bodies, _clock, _uses, _queues, _calls, _tiles, _ties, _cooldowns, _empty_slots, _events):
            found += [f"{where}: {sentence}" for sentence in check(t)]
        found += [f"{where}: {sentence}" for check in (_rewards, _sights, _roles) for sentence in check(vec, e)]
    return found


# --- the town -----------------------------------------------------------------------------------------------------------


def _money(t: _Town) -> Iterator[str]:
    wealth, purse = int(t.residents["wallet"].sum()), int(t.clock["purse"])
    if wealth + purse != 0:
        yield f"wallets hold {wealth} and the purse {purse} units; they must add up to 0"
    for i in np.flatnonzero(t.residents["wallet"] < 0):
        yield f"the wallet of resident {i} is {t.residents['wallet'][i]}, below 0"
    for i in np.flatnonzero(t.residents["debt"] < 0):
        yield f"resident {i} owes {t.residents['debt'][i]}, below 0"


def _bodies(t: _Town) -> Iterator[str]:
    for k in range(MAX_NEEDS):
        level = t.residents["needs"][:, k]
        if k >= len(t.needs):
            for i in np.flatnonzero(level != 0.0):
                yield f"need {k} of resident {i} is {level[i]}, but there are {len(t.needs)} needs"
            continue
        for i in np.flatnonzero(~((level >= 0.0) & (level <= 1.0))):
            yield f"{t.needs[k]} of resident {i} is {level[i]}, outside [0, 1]"
    for i in np.flatnonzero((t.residents["meals"] < 0) | (t.residents["meals"] > MAX_MEALS)):
        yield f"resident {i} has {t.residents['meals'][i]} meals, expected 0 to {MAX_MEALS}"
    for i in np.flatnonzero(t.residents["shift"] >= len(SHIFT_STATES)):
        yield f"the shift state of resident {i} is {t.residents['shift'][i]}, expected 0 to {len(SHIFT_STATES) - 1}"
    attended = t.residents["attended"]
    for i in np.flatnonzero(~((attended >= 0.0) & (attended <= 1.0)).all(axis=1)):
        yield f"the attendance of resident {i} is {attended[i].tolist()}, outside [0, 1]"
    full, stock = t.objects["full"], t.objects["stock"]
    for m in np.flatnonzero((full >= 0) & ((stock < 0) | (stock > full))):
        yield f"the stock of object {m} is {stock[m]}, expected 0 to {full[m]}"


def _clock(t: _Town) -> Iterator[str]:
    clock, rules = t.clock, t.rules
    if not 0 <= clock["minute"] < rules["ticks_per_day"]:
        yield f"the minute is {clock['minute']}, expected 0 to {rules['ticks_per_day'] - 1}"
    if clock["evictions_today"] > rules["evictions_per_day"]:
        yield f"{clock['evictions_today']} evictions today, at most {rules['evictions_per_day']} are allowed"
    if clock["newcomers_today"] > rules["newcomers_per_day"]:
        yield f"{clock['newcomers_today']} newcomers today, at most {rules['newcomers_per_day']} are allowed"
    if clock["departures"] != 0 or t.residents["leaving"].any():
        yield f"{clock['departures']} departures are left over and {int(t.residents['leaving'].sum())} residents still leave"


def _uses(t: _Town) -> Iterator[str]:
    """One user per object, and both sides say so."""
    for m in np.flatnonzero(t.objects["user"] >= 0):
        user = int(t.objects["user"][m])
        if user >= len(t.residents) or t.residents["using"][user] != m:
            yield f"object {m} is used by resident {user}, who does not use it"
    for i in np.flatnonzero(t.residents["using"] >= 0):
        me, thing = t.residents[i], int(t.residents["using"][i])
        if thing >= len(t.objects) or t.objects["user"][thing] != i:
            yield f"resident {i} uses object {thing}, whose user is another"
            continue
        o = t.objects[thing]
        if me["affordance"] != o["affordance"]:
            yield f"resident {i} uses object {thing} for affordance {me['affordance']}, which offers {o['affordance']}"
        elif not 0 < me["ticks_left"] <= t.affordances["ticks"][o["affordance"]]:
            most = t.affordances["ticks"][o["affordance"]]
            yield f"the use of resident {i} has {me['ticks_left']} ticks left, expected 1 to {most}"
        if t.affordances["own_home"][o["affordance"]] and o["building"] != me["home"]:
            yield f"resident {i} uses object {thing} of another home"
        if abs(me["x"] - o["x"]) + abs(me["y"] - o["y"]) > 1:
            yield f"resident {i} uses object {thing} from ({me['x']}, {me['y']}), which is not beside it"


def _queues(t: _Town) -> Iterator[str]:
    """Links, counts and members of every queue agree; nobody waits at a free object."""
    seen: set[int] = set()
    for m in np.flatnonzero((t.objects["head"] >= 0) | (t.objects["tail"] >= 0) | (t.objects["waiting"] != 0)):
        o = t.objects[m]
        waiter, before, length = int(o["head"]), -1, 0
        while waiter >= 0 and waiter not in seen and waiter < len(t.residents):
            me = t.residents[waiter]
            seen.add(waiter)
            length += 1
            if me["queued"] != m or me["affordance"] != o["affordance"]:
                yield f"resident {waiter} stands in the queue of object {m} but says {me['queued']}"
            if me["ahead"] != before:
                yield f"resident {waiter} in the queue of object {m} follows {me['ahead']}, expected {before}"
            if me["overtakes"] > t.rules["max_overtakes"]:
                yield f"resident {waiter} was overtaken {me['overtakes']} times, at most {t.rules['max_overtakes']} are allowed"
            waiter, before = int(me["behind"]), waiter
        if waiter >= 0:
            yield f"the queue of object {m} runs into resident {waiter}, who stands in a queue already or does not exist"
        elif o["waiting"] != length:
            yield f"object {m} counts {o['waiting']} waiting, its queue has {length}"
        elif o["tail"] != before:
            yield f"the queue of object {m} ends with resident {before}, its tail says {o['tail']}"
        if o["head"] >= 0 and o["user"] < 0 and o["holder"] < 0:
            yield f"object {m} is free and nobody was called from its queue"
    for i in np.flatnonzero(t.residents["queued"] >= 0):
        if int(i) not in seen:
            yield f"resident {i} waits for object {t.residents['queued'][i]}, in whose queue it does not stand"


def _calls(t: _Town) -> Iterator[str]:
    """A resident that was called to an object holds it; nobody is at two objects at once."""
    for m in np.flatnonzero(t.objects["holder"] >= 0):
        holder = int(t.objects["holder"][m])
        if holder >= len(t.residents) or t.residents["called"][holder] != m:
            yield f"object {m} is held for resident {holder}, who was not called to it"
        if t.objects["user"][m] >= 0:
            yield f"object {m} is held for resident {holder} while resident {t.objects['user'][m]} uses it"
    for i in np.flatnonzero(t.residents["called"] >= 0):
        thing = int(t.residents["called"][i])
        if thing >= len(t.objects) or t.objects["holder"][thing] != i:
            yield f"resident {i} was called to object {thing}, which is not held for it"
    places = sum((t.residents[name] >= 0).astype(int) for name in ("using", "queued", "called"))
    for i in np.flatnonzero(np.asarray(places) > 1):
        me = t.residents[i]
        yield f"resident {i} is at more than one object: uses {me['using']}, waits for {me['queued']}, called to {me['called']}"


def _tiles(t: _Town) -> Iterator[str]:
    """Who stands where: positions and the lists of the tiles agree; tiles are shared only after a bump."""
    listed: dict[int, tuple[int, int]] = {}
    for y, x in np.argwhere(t.grid["occupant"] >= 0):
        i = int(t.grid["occupant"][y, x])
        while 0 <= i < len(t.residents) and i not in listed:
            listed[i] = (int(x), int(y))
            i = int(t.residents["below"][i])
        if i >= 0:
            yield f"the list of tile ({x}, {y}) runs into resident {i}, who is listed already or does not exist"
    height, width = t.grid.shape
    shared: dict[tuple[int, int], int] = {}
    for i in np.flatnonzero(t.residents["present"] == 1).tolist():
        at = int(t.residents["x"][i]), int(t.residents["y"][i])
        if listed.pop(int(i), None) != at:
            yield f"resident {i} stands on {at}, where no list has it"
        if not (0 <= at[0] < width and 0 <= at[1] < height) or t.grid["tile"][at[1], at[0]] in (WALL, OBJECT_TILE):
            yield f"resident {i} stands on {at}, which is no ground"
        elif at in shared and t.clock["bumps"] == 0:
            yield f"residents {shared[at]} and {i} share tile {at} without a bump"
        shared[at] = int(i)
    for i, at in listed.items():
        yield f"tile {at} lists resident {i}, who is not in town"


def _ties(t: _Town) -> Iterator[str]:
    others = t.ties["other"]  # (N, MAX_EDGES)
    most = int(t.rules["max_edges"])
    for i, s in np.argwhere(others >= 0):
        tie = t.ties[i, s]
        name = f"tie {s} of resident {i}"
        if s >= most:
            yield f"{name} is beyond the {most} allowed"
        if tie["other"] >= len(t.residents) or not t.residents["present"][tie["other"]]:
            yield f"{name} is to resident {tie['other']}, who is not in town"
        if tie["other"] == i:
            yield f"{name} is to itself"
        if (others[i, :s] == tie["other"]).any():
            yield f"{name} is a second one to resident {tie['other']}"
        if not (-1.0 <= tie["trust"] <= 1.0 and -1.0 <= tie["familiarity"] <= 1.0 and 0.0 <= tie["rivalry"] <= 1.0):
            yield f"{name} is out of range: trust {tie['trust']}, familiarity {tie['familiarity']}, rivalry {tie['rivalry']}"
        if not 0 <= tie["since"] <= t.clock["tick"]:
            yield f"{name} dates from tick {tie['since']}, which has not come"
    for i, s in np.argwhere((others < 0) & ((t.ties["trust"] != 0) | (t.ties["familiarity"] != 0) | (t.ties["rivalry"] != 0))):
        yield f"tie {s} of resident {i} is to nobody but not empty"


def _cooldowns(t: _Town) -> Iterator[str]:
    tick, longest = int(t.clock["tick"]), int(t.affordances["cooldown"].max(initial=0))
    things = t.residents["cooldown_object"]  # (N, COOLDOWNS)
    for i, s in np.argwhere(things >= 0):
        if things[i, s] >= len(t.objects) or (things[i, :s] == things[i, s]).any():
            yield f"cooldown {s} of resident {i} is for object {things[i, s]}, which is listed twice or does not exist"
        if t.residents["cooldown_until"][i, s] > tick + longest:
            until = t.residents["cooldown_until"][i, s]
            yield f"cooldown {s} of resident {i} lasts until {until}, at most {longest} ticks are given"
    for i in np.flatnonzero(t.residents["chat_ready"] > tick + t.rules["chat_cooldown"]):
        until = t.residents["chat_ready"][i]
        yield f"resident {i} may not chat until {until}, at most {t.rules['chat_cooldown']} ticks are given"


def _empty_slots(t: _Town) -> Iterator[str]:
    for i in np.flatnonzero(t.residents["present"] == 0):
        me = t.residents[i]
        busy = max(me["using"], me["queued"], me["called"]) >= 0
        if me["wallet"] != 0 or me["debt"] != 0 or busy or (t.ties["other"][i] >= 0).any():
            yield f"the empty slot {i} still has a wallet, a debt, an object, a queue or a tie"


def _events(t: _Town) -> Iterator[str]:
    count, total = int(t.clock["events"]), int(t.clock["events_total"])
    if not 0 <= count <= min(total, len(t.events)):
        yield f"{count} events are kept, {total} were told and {len(t.events)} find room"
        return
    rows = t.events[:count]
    if count and ((np.diff(rows["number"]) < 1).any() or rows["number"][0] < 0 or rows["number"][-1] >= total):
        yield f"events are numbered {rows['number'].tolist()}, expected a rising run below {total}"
    people = len(t.residents)
    odd = (rows["kind"] < 0) | (rows["kind"] >= len(EVENTS)) | (rows["town"] != t.clock["id"]) | (rows["tick"] > t.clock["tick"])
    odd |= (rows["actor"] >= people) | (rows["rival"] >= people) | (rows["object"] >= len(t.objects))
    for row in rows[odd]:
        yield f"event {row['number']} names what is not there: {dict(zip(rows.dtype.names or (), row.tolist()))}"


# --- what a step wrote --------------------------------------------------------------------------------------------------


def _rewards(vec: TownBatch, e: int) -> Iterator[str]:
    sums = np.add.accumulate(vec.terms[e], axis=-1)[:, -1]  # (N,) in the order of TERMS, as the reward is summed
    for i in np.flatnonzero(sums.astype(np.float32) != vec.rewards[e]):
        yield f"the terms of resident {i} add up to {sums[i]}, its reward is {vec.rewards[e, i]}"
    idle = (vec.state.residents["present"][e] == 0) & (vec.terminated[e] == 0)
    for i in np.flatnonzero(idle & vec.terms[e].any(axis=-1)):
        yield f"the empty slot {i} was rewarded: {dict(zip(TERMS, vec.terms[e, i].tolist()))}"


def _sights(vec: TownBatch, e: int) -> Iterator[str]:
    """Features are finite and bounded, maps and masks hold bits; an empty slot may only wait, a user wait or leave."""
    low = np.array([field.low for field in vec.spec.fields]) - CAST
    high = np.array([field.high for field in vec.spec.fields]) + CAST
    seen = vec.features[e]  # (N, F)
    for i, f in np.argwhere(~((seen >= low) & (seen <= high))):
        field = vec.spec.fields[int(f)]
        yield f"{field.name} of resident {i} is {seen[i, f]}, expected {field.low} to {field.high}"
    if vec.maps is not None and (vec.maps[e] > 1).any():
        yield "a map holds something else than 0 and 1"
    masks, residents = vec.masks[e], vec.state.residents[e]  # (N, A)
    for i in np.flatnonzero((masks > 1).any(axis=-1) | (masks[:, 0] != 1)):
        yield f"the mask of resident {i} does not allow `wait`, or holds something else than 0 and 1"
    allowed = masks.sum(axis=-1)
    for i in np.flatnonzero((residents["present"] == 0) & (allowed != 1)):
        yield f"the empty slot {i} may do {allowed[i]} things, expected only `wait`"
    for i in np.flatnonzero((residents["present"] == 1) & (residents["using"] >= 0) & (allowed > 2)):
        yield f"resident {i} uses an object and may do {allowed[i]} things, expected `wait` and `leave`"


def _roles(vec: TownBatch, e: int) -> Iterator[str]:
    present, over = vec.state.residents["present"][e], int(vec.state.towns["over"][e])
    for i in np.flatnonzero(vec.active[e] != (present if over == 0 else 0)):
        yield f"slot {i} is {'active' if vec.active[e, i] else 'not active'}: present {present[i]}, over {over}"
    for i in np.flatnonzero(vec.truncated[e] != over):
        yield f"slot {i} is {'truncated' if vec.truncated[e, i] else 'not truncated'}: over {over}"
