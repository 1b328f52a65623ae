"""Events in fixed-capacity columns: written inside the tick, drained after a step; an overflow is counted, never silent."""

from __future__ import annotations

from townlet.world._jit import kernel
from townlet.world.state import EVENTS, Town

(
    QUEUE_CONFLICT, QUEUE_INTERACTION, QUARREL, BUMP, QUEUE_JOIN, QUEUE_LEAVE, USE_START, USE_END, CHAT_SUCCESS, CHAT_FAILURE,
    SHARED_MEAL, LATE_HELP, SHIFT_TAKEOVER, SHIFT_ON_TIME, SHIFT_LATE, SHIFT_ABSENT, RENT_PAID, RENT_UNPAID, NOTICE, EXIT,
    NEWCOMER, PERTURBATION, RIVAL_AVOIDED, RECONCILIATION,
) = range(len(EVENTS))  # fmt: skip


@kernel
def emit(t: Town, kind: int, actor: int, rival: int, thing: int, reason: int, amount: float) -> int:
    """Append an event; returns its row, or -1 when the columns are full."""
    clock = t.clock
    clock["events_total"] += 1
    row = clock["events"]
    if row >= t.events.shape[0]:
        clock["events_lost"] += 1
        return -1
    clock["events"] = row + 1
    event = t.events[row]
    event["number"] = clock["events_total"] - 1
    event["town"] = clock["id"]
    event["tick"] = clock["tick"]
    event["kind"] = kind
    event["object"] = thing
    event["actor"] = actor
    event["actor_life"] = t.residents[actor]["life"] if actor >= 0 else 0
    event["rival"] = rival
    event["rival_life"] = t.residents[rival]["life"] if rival >= 0 else 0
    event["reason"] = reason
    event["queue_length"] = t.objects[thing]["waiting"] if thing >= 0 else 0
    event["waited"] = 0
    event["intensity"] = 0.0
    event["rivalry_before"] = 0.0
    event["rivalry_after"] = 0.0
    event["amount"] = amount
    return int(row)
