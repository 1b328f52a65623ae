"""Queues at objects: asking, waiting, being called, handing over, pushing a stalled holder aside.

A queue is a list linked through the residents in it (`ahead`, `behind`), so that joining and leaving cost the same in a town
of eight and of ten thousand. A resident that is called leaves the queue and holds the object until its use begins.
"""

from __future__ import annotations

from townlet.world._jit import kernel, leaf
from townlet.world.events import QUEUE_INTERACTION, QUEUE_JOIN, QUEUE_LEAVE, emit
from townlet.world.options import distance_to
from townlet.world.state import CONFLICT_REASONS, Town
from townlet.world.systems.affordances import begin, end_use, gain, off_cooldown, ready, willing
from townlet.world.systems.conflict import clash
from townlet.world.systems.relationships import TIE_HANDOVER, familiarity_now, find, rivalry_now, tie_event, trust_now

BLOCKED, OVERTAKEN, GHOST_STEP = (CONFLICT_REASONS.index(reason) for reason in ("blocked", "overtaken", "ghost_step"))


@kernel
def append(t: Town, i: int, thing: int) -> None:
    me, o = t.residents[i], t.objects[thing]
    me["queued"] = thing
    me["affordance"] = o["affordance"]
    me["queued_since"] = t.clock["tick"]
    me["overtakes"] = 0
    me["behind"] = -1
    me["ahead"] = o["tail"]
    if o["tail"] >= 0:
        t.residents[o["tail"]]["behind"] = i
    else:
        o["head"] = i
    o["tail"] = i
    o["waiting"] += 1


@kernel
def join(t: Town, i: int, thing: int) -> None:
    append(t, i, thing)
    t.residents[i]["acted"] = 1
    emit(t, QUEUE_JOIN, i, -1, thing, -1, 0.0)


@kernel
def unlink(t: Town, i: int) -> None:
    me = t.residents[i]
    o = t.objects[me["queued"]]
    if me["ahead"] >= 0:
        t.residents[me["ahead"]]["behind"] = me["behind"]
    else:
        o["head"] = me["behind"]
    if me["behind"] >= 0:
        t.residents[me["behind"]]["ahead"] = me["ahead"]
    else:
        o["tail"] = me["ahead"]
    me["ahead"] = -1
    me["behind"] = -1
    me["queued"] = -1
    o["waiting"] -= 1


@kernel
def leave_queue(t: Town, i: int) -> None:
    """Give up waiting, or give up an object one was called to."""
    me, tick = t.residents[i], t.clock["tick"]
    thing = int(me["queued"]) if me["queued"] >= 0 else int(me["called"])
    if thing < 0:
        return
    row = emit(t, QUEUE_LEAVE, i, -1, thing, -1, 0.0)
    if row >= 0:
        t.events[row]["waited"] = tick - me["queued_since"]
    if me["queued"] >= 0:
        unlink(t, i)
    else:
        me["called"] = -1
        t.objects[thing]["holder"] = -1
        call_next(t, thing, -1)
    me["affordance"] = -1
    me["blocked_by"] = -1


@kernel
def call(t: Town, i: int, thing: int) -> None:
    """Hold an object for somebody who has left its queue."""
    me = t.residents[i]
    me["called"] = thing
    me["called_since"] = t.clock["tick"]
    t.objects[thing]["holder"] = i


@kernel
def favour(t: Town, leaver: int, waiter: int, index: int) -> float:
    """How gladly the one who leaves hands over: trust + familiarity − rivalry − index cost (+ urgency when weighted)."""
    score = -t.rules["handover_index_cost"] * index
    s = find(t, leaver, waiter)
    if s >= 0:
        score += trust_now(t, leaver, s) + familiarity_now(t, leaver, s) - rivalry_now(t, leaver, s)
    weight = t.rules["age_priority_weight"]
    if weight > 0.0:
        other = t.residents[waiter]
        need = t.affordances[other["affordance"]]["need"]
        level = other["needs"][need] if need >= 0 else 1.0
        score += weight * (1.0 - level)
    return float(score)


@kernel
def call_next(t: Town, thing: int, leaver: int) -> None:
    """Call a waiter to a free object: the first, unless the one who leaves favours another within the fairness bound."""
    o, rules = t.objects[thing], t.rules
    first = int(o["head"])
    if first < 0:
        return
    chosen, passed = first, 0
    if leaver >= 0:
        best, favoured = 0.0, -1
        waiter, index = first, 0
        while waiter >= 0:
            score = favour(t, leaver, waiter, index)
            if score > best:
                best, favoured, passed = score, waiter, index
            if t.residents[waiter]["overtakes"] >= rules["max_overtakes"]:
                break  # nobody behind this one may be favoured
            waiter = int(t.residents[waiter]["behind"])
            index += 1
        if favoured >= 0:
            chosen = favoured
            emit(t, QUEUE_INTERACTION, leaver, chosen, thing, -1, best)
            tie_event(t, leaver, chosen, TIE_HANDOVER)
            waiter = first
            for _ in range(passed):
                t.residents[waiter]["overtakes"] += 1
                clash(t, waiter, chosen, thing, OVERTAKEN)
                waiter = int(t.residents[waiter]["behind"])
    unlink(t, chosen)
    call(t, chosen, thing)


@kernel
def reserve(t: Town, i: int, thing: int) -> None:
    """Take the next turn at an object from afar; this is no conflict."""
    join(t, i, thing)
    t.residents[i]["blocked_by"] = thing


@kernel
def yield_place(t: Town, i: int) -> None:
    """Let the next one go first: a hand-over between the two. A resident that was called becomes the first in the queue."""
    me = t.residents[i]
    called = me["called"] >= 0
    thing = int(me["called"]) if called else int(me["queued"])
    o = t.objects[thing]
    other = int(o["head"]) if called else int(me["behind"])
    if called:
        unlink(t, other)
        call(t, other, thing)
        me["called"], me["queued"], me["overtakes"] = -1, thing, 0
        me["ahead"], me["behind"] = -1, o["head"]
        if o["head"] >= 0:
            t.residents[o["head"]]["ahead"] = i
        else:
            o["tail"] = i
        o["head"] = i
        o["waiting"] += 1
    else:
        them = t.residents[other]
        before, after = int(me["ahead"]), int(them["behind"])
        if before >= 0:
            t.residents[before]["behind"] = other
        else:
            o["head"] = other
        if after >= 0:
            t.residents[after]["ahead"] = i
        else:
            o["tail"] = i
        them["ahead"], them["behind"] = before, i
        me["ahead"], me["behind"] = other, after
    me["acted"] = 1
    emit(t, QUEUE_INTERACTION, i, other, thing, -1, 0.0)
    tie_event(t, i, other, TIE_HANDOVER)


@kernel
def push_aside(t: Town, i: int, thing: int) -> None:
    """A stalled holder goes to the tail and waits anew; the pusher holds the object."""
    o = t.objects[thing]
    holder = int(o["holder"])
    clash(t, i, holder, thing, GHOST_STEP)
    t.residents[holder]["called"] = -1
    o["holder"] = -1
    if t.residents[i]["queued"] >= 0:
        unlink(t, i)
    else:
        t.residents[i]["queued_since"] = t.clock["tick"]
    append(t, holder, thing)
    call(t, i, thing)


@kernel
def ask(t: Town, i: int, thing: int) -> None:
    """One request for an object, from within reach of its queue. The first in it, when nearer, pushes a stalled holder aside."""
    me, o, rules, tick = t.residents[i], t.objects[thing], t.rules, t.clock["tick"]
    distance = distance_to(t, i, thing)
    if distance > rules["queue_reach"]:
        return
    if not ready(t, thing) or not willing(t, i, int(o["affordance"])) or not off_cooldown(t, i, thing):
        if me["queued"] == thing or me["called"] == thing:
            leave_queue(t, i)
        return
    if o["user"] >= 0:
        if me["blocked_by"] != thing:
            me["blocked_by"] = thing
            clash(t, i, int(o["user"]), thing, BLOCKED)
        if me["queued"] < 0:
            join(t, i, thing)
        return
    if o["holder"] >= 0 and o["holder"] != i:
        stalled = tick - t.residents[o["holder"]]["called_since"] >= rules["ghost_step_after"]
        first = o["head"] < 0 or o["head"] == i
        if stalled and first and (distance == 0 or distance < distance_to(t, int(o["holder"]), thing)):
            push_aside(t, i, thing)
        elif me["queued"] < 0:
            join(t, i, thing)
            return
    if o["holder"] == i or (o["holder"] < 0 and o["head"] < 0):
        if distance == 0:
            begin(t, i, thing, tick - me["queued_since"] if me["called"] == thing else 0)
    elif o["holder"] < 0 and me["queued"] < 0:
        append(t, i, thing)
        emit(t, QUEUE_JOIN, i, -1, thing, -1, 0.0)


@kernel
def release(t: Town, i: int, finished: bool) -> None:
    """End a use and call the next."""
    call_next(t, end_use(t, i, finished), i)


@leaf
def queues(t: Town) -> None:
    """Requests of this tick, in the order of the tick."""
    n = t.residents.shape[0]
    first = t.clock["first"]
    for turn in range(n):
        i = first + turn
        if i >= n:
            i -= n
        if t.residents[i]["request"] >= 0:
            ask(t, i, int(t.residents[i]["request"]))


@leaf
def affordances(t: Town) -> None:
    """Uses go on by a tick; those that are through end, and the next is called."""
    for i in range(t.residents.shape[0]):
        me = t.residents[i]
        if me["using"] >= 0 and me["stalled_by_quarrel"] == 0:
            gain(t, i)
            if me["ticks_left"] <= 0:
                release(t, i, True)
