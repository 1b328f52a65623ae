"""Conflict: who got in whose way, what it costs, and the quarrel it may become."""

from __future__ import annotations

from townlet.world import rng
from townlet.world._jit import kernel, leaf
from townlet.world.events import QUARREL, QUEUE_CONFLICT, emit
from townlet.world.state import ENERGY, TERMS, Town
from townlet.world.systems.relationships import change, clamp, rivalry_of

COST = TERMS.index("conflict")


@kernel
def intensity_of(t: Town, reason: int, queue_length: int, rivalry: float) -> float:
    """clamp((base + boost × max(queue − 1, 0)) × (1 + actor's rivalry), min, max)."""
    rules = t.rules
    raw = (rules["reason_base"][reason] + rules["queue_length_boost"] * max(queue_length - 1, 0)) * (1.0 + rivalry)
    return clamp(raw, rules["intensity_min"], rules["intensity_max"])


@kernel
def grudge(t: Town, i: int, other: int, intensity: float) -> float:
    """Rivalry of i towards other after a conflict, scaled by i's ambition."""
    rules = t.rules
    gain = rules["rivalry_increment"] * intensity * max(1.0 + rules["ambition_scale"] * t.residents[i]["ambition"], 0.0)
    return change(t, i, other, 0.0, 0.0, gain)


@kernel
def clash(t: Town, actor: int, rival: int, thing: int, reason: int) -> None:
    """One conflict, one event: rivalry both ways, what each pays, perhaps a quarrel."""
    rules, clock = t.rules, t.clock
    before = rivalry_of(t, actor, rival)
    waiting = t.objects[thing]["waiting"]
    intensity = intensity_of(t, reason, waiting, before)
    me, other = t.residents[actor], t.residents[rival]
    row = emit(t, QUEUE_CONFLICT, actor, rival, thing, reason, 0.0)
    after = grudge(t, actor, rival, intensity)
    grudge(t, rival, actor, intensity)
    if row >= 0:
        event = t.events[row]
        event["intensity"] = intensity
        event["waited"] = clock["tick"] - me["queued_since"] if me["queued"] == thing else 0
        event["rivalry_before"] = before
        event["rivalry_after"] = after
    t.terms[actor, COST] -= rules["conflict_weight"] * rules["reason_actor_pays"][reason] * intensity
    t.terms[rival, COST] -= rules["conflict_weight"] * rules["reason_rival_pays"][reason] * intensity
    if rng.uniform(rng.now(clock, rng.WORLD), actor, rng.quarrel_of(reason)) < before:
        emit(t, QUARREL, actor, rival, thing, reason, intensity)
        me["needs"][ENERGY] = max(me["needs"][ENERGY] - rules["quarrel_energy"], 0.0)
        other["needs"][ENERGY] = max(other["needs"][ENERGY] - rules["quarrel_energy"], 0.0)
        if me["using"] == thing:
            me["stalled_by_quarrel"] = rules["quarrel_ticks"]
        if other["using"] == thing:
            other["stalled_by_quarrel"] = rules["quarrel_ticks"]


@leaf
def conflict(t: Town) -> None:
    """Quarrels run out; until then the use they interrupted stands still."""
    for i in range(t.residents.shape[0]):
        me = t.residents[i]
        if me["stalled_by_quarrel"] > 0:
            me["stalled_by_quarrel"] -= 1
