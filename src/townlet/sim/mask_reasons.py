"""Why an action is masked, in words; read from the same arrays the mask was made of."""

from __future__ import annotations

import numpy as np

from townlet.config.base import DAY, clock
from townlet.envs.vector import VectorTown
from townlet.world.actions import FIRST_AFFORDANCE, FIRST_INTERACT
from townlet.world.state import MAX_MEALS, MONEY, PERTURBATIONS

PRICE_SPIKE = PERTURBATIONS.index("price_spike")


def why_masked(vec: VectorTown, slot: int) -> dict[str, str]:
    """Every action the mask forbids a resident of the first town now, with the reason."""
    me = vec.state.residents[0, slot]
    masked = np.flatnonzero(vec.masks[0, slot] == 0)
    if not me["present"]:
        return {vec.catalogue.names[a]: "the place is empty" for a in masked}
    if me["using"] >= 0:
        thing = vec.object_ids(0)[int(me["using"])]
        return {vec.catalogue.names[a]: f"is using {thing} and has to finish or leave it first" for a in masked}
    return {vec.catalogue.names[a]: _reason(vec, me, int(a)) for a in masked}


def _reason(vec: VectorTown, me: np.void, action: int) -> str:
    name = vec.catalogue.names[action]
    if name == "work":
        return _no_work(vec, me)
    if name == "home":
        return "is at home"
    if name == "chat":
        ready = int(me["chat_ready"]) - int(vec.state.towns[0]["tick"])
        return f"talked a while ago, not again for {ready} min" if ready > 0 else "nobody next to them is free to talk"
    if name == "leave":
        return "neither uses nor waits for anything"
    if name.startswith("move_"):
        return "no way there"
    if name == "reserve":
        return "is not on its way to an object that is taken and that nobody waits for"
    if name == "yield":
        return "nobody waits behind it"
    first, each = FIRST_INTERACT if vec.primitive else FIRST_AFFORDANCE, vec.catalogue.per_affordance
    a, way = divmod(action - first, each)
    return _no_use(vec, me, a, way if vec.catalogue.level == "candidates" else None)


def _no_work(vec: VectorTown, me: np.void) -> str:
    if me["job"] < 0:
        return "has no job"
    job = vec.tables.jobs[int(vec.state.towns[0]["layout"]), int(me["job"])]
    start, end = int(job["start"]), int(job["start"] + job["length"])
    return f"the shift is {clock(start)}–{clock(end % DAY)}; it opens {vec.config.employment.work_ahead} min before"


def _no_use(vec: VectorTown, me: np.void, a: int, nearest: int | None) -> str:
    """Of any object of an affordance, or of its k-th `nearest`."""
    spec, now = vec.config.affordances.specs[a], vec.state.towns[0]
    factor = float(vec.tables.rules[0]["price_spike_factor"]) if now["active_until"][PRICE_SPIKE] > now["tick"] else 1.0
    price = int(vec.tables.affordances[a]["price"] * factor + 0.5)
    if me["wallet"] < price:
        return f"costs {price / MONEY:.2f} and the wallet holds {me['wallet'] / MONEY:.2f}"
    if me["meals"] < spec.takes_meals:
        return "has no meal in hand"
    if me["meals"] + spec.gives_meals > MAX_MEALS:
        return f"has {int(me['meals'])} meals in hand, {MAX_MEALS} are the most"
    things = _candidates(vec, me, a)
    if not things:
        return f"has no {' or '.join(spec.objects)} {'at home' if spec.own_home else 'that can be reached'}"
    if nearest is not None:
        if nearest >= len(things):
            return f"there {'is' if len(things) == 1 else 'are'} only {len(things)}"
        things = things[nearest : nearest + 1]
    left = {
        int(o): int(until - now["tick"]) for o, until in zip(me["cooldown_object"], me["cooldown_until"]) if until > now["tick"]
    }
    free = [thing for thing in things if thing not in left]
    if not free:
        return f"used it just now, not again for {min(left[thing] for thing in things)} min"
    if not any(vec.state.checked[0, thing] & 1 for thing in free):  # as the last observation found them
        if spec.hours is not None and (int(now["minute"]) - spec.hours[0]) % DAY >= (spec.hours[1] - spec.hours[0]) % DAY:
            return f"open {clock(spec.hours[0])}–{clock(spec.hours[1])}"
        return f"needs {spec.requires}"
    if vec.primitive:
        return "stands too far away"
    return f"needs {spec.requires}" if spec.requires else "cannot be reached"


def _candidates(vec: VectorTown, me: np.void, a: int) -> list[int]:
    layout = int(vec.state.towns[0]["layout"])
    if vec.config.affordances.specs[a].own_home:
        home = vec.tables.buildings[layout, int(me["home"])]
        return list(range(int(home["first_bed"]), int(home["first_bed"] + home["beds"])))
    nearest = vec.tables.nearest[layout, int(me["y"]), int(me["x"]), a]["object"]
    return [int(thing) for thing in nearest if thing >= 0]
