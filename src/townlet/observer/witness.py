"""Everything there is to know about one decision: how the options were weighed, what stood against others, what came of it."""

from __future__ import annotations

import base64
from collections.abc import Iterable

import numpy as np

from townlet.config.base import clock
from townlet.envs.scene import doing_of, queue_of
from townlet.envs.vector import VectorTown
from townlet.errors import TakeError
from townlet.observer.stage import Stage
from townlet.observer.words import option_text
from townlet.policy.inference import Acting
from townlet.policy.runtime import NetworkPolicy, Policy, RandomPolicy, ScriptedPolicy, values_of
from townlet.ports import Decided
from townlet.sim.edits import tie_now
from townlet.sim.mask_reasons import why_masked
from townlet.types import Array, Record
from townlet.world.actions import WAYS
from townlet.world.state import HALF_DISTANCE, HALF_QUEUE, MONEY, SHIFT_STATES, TERMS


def probabilities(policy: Policy, vec: VectorTown, decision: Decided) -> Array:
    """π(a) of every resident over the whole catalogue, 0 where the mask forbids it.  # (E, N, A) f8

    The policy stands where it stood before `act`, the towns where it decided. Whoever draws no lots is sure of its decision.
    """
    masks = vec.masks.astype(np.float64)
    uniform = masks / masks.sum(axis=-1, keepdims=True)
    if isinstance(policy, RandomPolicy):
        return np.asarray(uniform)
    if isinstance(policy, NetworkPolicy) and isinstance(policy.network, Acting):
        logits = np.where(masks > 0, _logits(policy, policy.network, vec), -np.inf)
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True))
    epsilon = policy.epsilon if isinstance(policy, ScriptedPolicy) else 0.0
    meant = decision.actions if decision.expert is None else decision.expert
    chosen = np.zeros_like(masks)
    np.put_along_axis(chosen, meant[..., None], 1.0 - epsilon, axis=-1)
    return np.asarray(chosen + epsilon * uniform)


def _logits(policy: NetworkPolicy, network: Acting, vec: VectorTown) -> Array:
    rows = vec.active.size
    maps = None if vec.maps is None else vec.maps.reshape(rows, *vec.maps.shape[2:])
    state = policy.state.reshape(rows, policy.state.shape[2])
    found = network.forward(vec.features.reshape(rows, -1), maps, state=state, starts=vec.starts.ravel())[0]
    return np.asarray(found.reshape(vec.masks.shape), np.float64)


SEEN = ("distance", "queue", "busy", "rivalry")


def witness(stage: Stage, tick: int, slot: int) -> Record:
    """The decision of a slot that is under way at a tick."""
    if not stage.first <= tick < stage.first + stage.ticks or not 0 <= slot < stage.vec.num_residents:
        raise TakeError(
            f"there is no decision of slot {slot} at tick {tick}; the take has ticks {stage.first} to "
            f"{stage.first + stage.ticks - 1} and slots 0 to {stage.vec.num_residents - 1}"
        )
    (found,) = witnesses(stage, stage.under_way(tick), [slot], full=True)
    return {**found, "tick": tick}


def witnesses(stage: Stage, decision: int, slots: Iterable[int], *, full: bool = False) -> list[Record]:
    """Several residents at one decision; `full` with every field and the map that was seen."""
    stage.go(decision)
    vec, policy = stage.vec, stage.policy.policy
    memory = policy.memory()
    decided = policy.act(vec)
    policy.recall(memory)
    weighed = probabilities(policy, vec, decided)[0]
    script = _script(vec)
    forced = stage.policy.forced.get(stage.tick_of(decision), {})
    rows = [_before(vec, slot, weighed[slot], script, full) for slot in slots]
    shot = stage.shoot()
    after = values_of(policy, stage.vec)[0] if policy.has_values and stage.at < stage.decisions else None
    for row in rows:
        if not row["active"]:
            continue
        slot, action = row["slot"], int(shot.actions[row["slot"]])
        row["chosen"] = vec.catalogue.names[action]
        row["probability"] = float(weighed[slot, action])
        row["illegal"] = bool(shot.illegal[slot])
        row["forced"] = row["resident"] in forced
        terms = {name: round(float(value), 6) for name, value in zip(TERMS, shot.terms[slot]) if value}
        row["reward"] = {"total": round(float(shot.terms[slot].sum()), 6), "terms": terms}
        row["value"] = float(shot.values[slot]) if policy.has_values else None
        row["advantage"] = None
        if after is not None:
            row["advantage"] = float(shot.rewards[slot] + vec.config.ppo.gamma * after[slot] - shot.values[slot])
        row["sentence"] = sentence(row)
    return rows


def _script(vec: VectorTown) -> Array | None:
    """What the scripted townspeople would do here, or None where they cannot."""
    if vec.primitive:
        return None
    script = ScriptedPolicy()
    script.reset(vec)
    return np.asarray(script.act(vec).actions[0])


def _before(vec: VectorTown, slot: int, weighed: Array, script: Array | None, full: bool) -> Record:
    now, me = vec.state.towns[0], vec.state.residents[0, slot]
    told: Record = {
        "tick": int(now["tick"]),
        "decided": int(now["tick"]),
        "time": clock(int(now["minute"])),
        "slot": slot,
        "resident": vec.resident_id(0, slot),
        "active": bool(vec.active[0, slot]),
    }
    if not told["active"]:
        return told
    names, order = vec.catalogue.names, np.argsort(-weighed, kind="stable")
    seen = dict(zip(vec.spec.feature_names, (round(value, 4) for value in vec.features[0, slot].tolist())))
    thing = next((int(me[field]) for field in ("using", "called", "queued") if me[field] >= 0), -1)
    reasons: dict[str, list[str]] = {}
    for action, reason in why_masked(vec, slot).items():
        reasons.setdefault(reason, []).append(action)
    told |= {
        "options": [
            {"action": int(a), "name": names[a], "probability": round(float(weighed[a]), 6)}
            for a in order
            if vec.masks[0, slot, a]
        ],
        "masked": [{"reason": reason, "options": options} for reason, options in reasons.items()],
        "sees": {name: candidates(seen, name) for name in vec.catalogue.affordances},
        "script": None if script is None else names[int(script[slot])],
        "needs": {need: round(float(me["needs"][k]), 4) for k, need in enumerate(vec.config.needs)},
        "wallet": int(me["wallet"]) / MONEY,
        "debt": int(me["debt"]) / MONEY,
        "meals": int(me["meals"]),
        "shift": SHIFT_STATES[int(me["shift"])] if me["job"] >= 0 else None,
        "doing": doing_of(vec, 0, me),
        "queue": [vec.resident_id(0, who) for who in queue_of(vec.state.objects[0, thing], vec.state.residents[0])]
        if thing >= 0
        else [],
    }
    if full:
        groups: dict[str, dict[str, float]] = {}
        for field in vec.spec.fields:
            groups.setdefault(field.group, {})[field.name] = seen[field.name]
        told |= {"fields": groups, "window": _window(vec, slot)}
    return told


def candidates(seen: dict[str, float], name: str) -> dict[str, dict[str, float]]:
    """The candidates of an affordance as they were seen; `steps` and `waiting` are distance and queue again as counts."""
    found = {}
    for how in (way for ways in WAYS.values() for way in ways):
        if f"{name}_{how}_distance" in seen:
            row = {field: seen[f"{name}_{how}_{field}"] for field in SEEN}
            row["steps"], row["waiting"] = _count(row["distance"], HALF_DISTANCE), _count(row["queue"], HALF_QUEUE)
            found[how] = row
    return found


def _count(seen: float, half: float) -> int:
    """n of n / (n + half), -1 where there is none."""
    return round(half * seen / (1 - seen)) if seen < 1 else -1


def _window(vec: VectorTown, slot: int) -> Record | None:
    if vec.maps is None:
        return None
    cells = base64.b64encode(np.ascontiguousarray(vec.maps[0, slot]).tobytes()).decode()
    return {"channels": list(vec.spec.map_channels), "side": vec.spec.map_shape[1], "cells": cells}


def sentence(row: Record) -> str:
    """The decision in a sentence."""

    def said(options: list[Record]) -> str:
        return " and ".join(f"“{option_text(one['name'])}” ({one['probability']:.0%})" for one in options[:2])

    chosen = f"“{option_text(row['chosen'])}”"
    others = [one for one in row["options"] if one["name"] != row["chosen"] and one["probability"] >= 0.01]
    likelier = [one for one in others if one["probability"] > row["probability"]]
    words = f"{row['resident']} was told to choose {chosen}"
    if not row["forced"]:
        words = f"{row['resident']} chose {chosen} ({row['probability']:.0%})"
    if likelier:
        words += f", although it leaned to {said(likelier)}"
    elif others:
        words += f"; next came {said(others)}"
    if row["script"] is not None and row["script"] != row["chosen"]:
        words += f"; the script would have chosen “{option_text(row['script'])}”"
    worst = min(row["needs"], key=row["needs"].__getitem__)
    return f"{words}. Lowest need: {worst.replace('_', ' ')}, {row['needs'][worst]:.0%}."


def ties(stage: Stage, tick: int) -> Record:
    """Who feels what for whom at the decision under way at a tick; a feels for b."""
    if not stage.first <= tick < stage.first + stage.ticks:
        raise TakeError(f"there is no tick {tick}; the take has {stage.first} to {stage.first + stage.ticks - 1}")
    stage.go(stage.under_way(tick))
    vec = stage.vec
    rows = []
    for a, s in np.argwhere(vec.state.ties[0]["other"] >= 0).tolist():
        tie = vec.state.ties[0, a, s]
        b = int(tie["other"])
        rows.append(
            {
                "a": a,
                "b": b,
                "a_name": vec.resident_id(0, a),
                "b_name": vec.resident_id(0, b),
                **{name: round(value, 4) for name, value in tie_now(vec, 0, tie).items()},
                "since": int(tie["since"]) if tie["since"] > 0 else None,
            }
        )
    return {"tick": int(vec.state.towns[0]["tick"]), "ties": rows}
