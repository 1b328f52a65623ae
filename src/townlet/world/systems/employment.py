"""Work by time of day: arrival, lateness, absence, pay, and the colleagues who cover."""

from __future__ import annotations

from townlet.world._jit import kernel, leaf
from townlet.world.events import LATE_HELP, NOTICE, SHIFT_ABSENT, SHIFT_LATE, SHIFT_ON_TIME, SHIFT_TAKEOVER, emit
from townlet.world.options import inside, shift_phase
from townlet.world.state import SHIFT_STATES, Town
from townlet.world.systems.economy import charge, pay
from townlet.world.systems.relationships import TIE_LATE_HELP, TIE_SHIFT_TAKEOVER, tie_event

PRE_SHIFT, AWAIT_START, ON_TIME, LATE, ABSENT, POST_SHIFT = range(len(SHIFT_STATES))


@leaf
def stands_in(t: Town, j: int) -> bool:
    """Is there to do another's work: on site in a shift of its own that it has not missed."""
    other = t.residents[j]
    return bool(other["present"] == 1 and other["working"] == 1 and other["shift"] != ABSENT)


@kernel
def colleague(t: Town, i: int) -> int:
    """The present colleague with the lowest slot, or -1."""
    found, j = -1, int(t.residents[i]["colleague"])
    while j != i and j >= 0:
        if stands_in(t, j) and (found < 0 or j < found):
            found = j
        j = int(t.residents[j]["colleague"])
    return found


@leaf
def give_notice(t: Town, i: int) -> None:
    """Notice for too many absences in seven days; `lates_per_absence` late shifts count as one."""
    me, rules, total, lates = t.residents[i], t.rules, 0, 0
    for d in range(7):
        total += me["absences"][d]
        lates += me["lates"][d]
    if rules["lates_per_absence"] > 0:
        total += lates // rules["lates_per_absence"]
    if total >= rules["notice_absences"] and me["notice"] == 0:
        me["notice"] = 1
        emit(t, NOTICE, i, -1, -1, -1, 0.0)


@kernel
def turn_late(t: Town, i: int) -> None:
    me, clock = t.residents[i], t.clock
    me["shift"] = LATE
    me["late_count"] += 1
    me["lates"][clock["day"] % 7] += 1
    penalty = t.jobs[me["job"]]["penalty"]
    charge(t, i, int(penalty))
    me["withheld"] += penalty
    emit(t, SHIFT_LATE, i, -1, -1, -1, 0.0)
    give_notice(t, i)
    j = colleague(t, i)
    if j >= 0 and t.residents[j]["covers"] == 0:
        t.residents[j]["covers"] = 1
        emit(t, LATE_HELP, j, i, -1, -1, 0.0)
        tie_event(t, i, j, TIE_LATE_HELP)


@kernel
def turn_absent(t: Town, i: int) -> None:
    me, clock = t.residents[i], t.clock
    if me["shift"] == LATE:
        me["lates"][clock["day"] % 7] -= 1  # not both
    me["shift"] = ABSENT
    me["absences"][clock["day"] % 7] += 1
    emit(t, SHIFT_ABSENT, i, -1, -1, -1, 0.0)
    give_notice(t, i)
    j = colleague(t, i)
    if j >= 0:
        me["replaced_by"] = j
        emit(t, SHIFT_TAKEOVER, j, i, -1, -1, 0.0)
        tie_event(t, i, j, TIE_SHIFT_TAKEOVER)


@kernel
def start_shift(t: Town, i: int) -> None:
    me = t.residents[i]
    me["shift"] = AWAIT_START
    me["arrived"] = 0
    me["late_ticks"] = 0
    me["away_ticks"] = 0
    me["present_ticks"] = 0
    me["covers"] = 0
    me["replaced_by"] = -1


@kernel
def end_shift(t: Town, i: int, length: int) -> None:
    me = t.residents[i]
    share = 0.0 if me["shift"] == ABSENT else me["present_ticks"] / length
    me["attended"][me["shifts_done"] % 3] = share
    me["shifts_done"] += 1
    me["shift"] = POST_SHIFT
    me["replaced_by"] = -1


@leaf
def attendance(t: Town, i: int) -> float:
    """Mean share of the last three shifts; 1 before the first."""
    me = t.residents[i]
    kept = min(me["shifts_done"], 3)
    if kept == 0:
        return 1.0
    total = 0.0
    for s in range(kept):
        total += me["attended"][s]
    return float(total / kept)


@kernel
def on_shift(t: Town, i: int, phase: int) -> None:
    """One tick of a shift that this resident began."""
    me, rules = t.residents[i], t.rules
    job = t.jobs[me["job"]]
    if me["shift"] == AWAIT_START and phase > rules["grace_ticks"]:
        turn_late(t, i)
    if inside(t, i, int(job["site"])):
        me["working"] = 1
        me["away_ticks"] = 0
        if me["arrived"] == 0:
            me["arrived"] = 1
            if me["shift"] == AWAIT_START:
                me["shift"] = ON_TIME
                emit(t, SHIFT_ON_TIME, i, -1, -1, -1, 0.0)
    else:
        me["away_ticks"] += 1
    if me["arrived"] == 0:
        me["late_ticks"] += 1
    away = me["away_ticks"] > rules["absence_slack"] if me["arrived"] == 1 else phase > rules["absent_cutoff"]
    if me["shift"] != ABSENT and away:
        turn_absent(t, i)
    if me["shift"] == ABSENT:
        me["withheld"] += job["wage"]
        stand_in = int(me["replaced_by"])
        if stand_in >= 0 and stands_in(t, stand_in):
            pay(t, stand_in, job["wage"])
    elif me["working"] == 1:
        me["present_ticks"] += 1
        pay(t, i, job["wage"])
    else:
        me["withheld"] += job["wage"]


@leaf
def employment(t: Town) -> None:
    rules, clock = t.rules, t.clock
    day = rules["ticks_per_day"]
    for i in range(t.residents.shape[0]):
        me = t.residents[i]
        me["working"] = 0
        if me["present"] == 0 or me["job"] < 0:
            continue
        if clock["minute"] == 0:
            me["absences"][clock["day"] % 7] = 0
            me["lates"][clock["day"] % 7] = 0
        phase, length = shift_phase(t, i), t.jobs[me["job"]]["length"]
        if phase == 0:
            start_shift(t, i)
        if phase < length:
            if me["shift"] != POST_SHIFT:  # a town that starts within the shift excuses it
                on_shift(t, i, phase)
        elif phase == length and me["shift"] != POST_SHIFT:
            end_shift(t, i, length)
        elif phase >= day - rules["work_ahead"]:
            me["shift"] = AWAIT_START
        elif clock["minute"] == 0:
            me["shift"] = PRE_SHIFT
