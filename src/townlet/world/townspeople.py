"""Scripted townspeople: a function of what they observe and nothing else, so that they can be imitated.

They choose among all affordances that raise what they lack, also those a scenario adds. They look ahead: before a shift or a
night they meet every need that would fall below its line by the end of it, leave a use once its need is full, keep a meal in
hand, set out for work in time, take the calm object, chat when all is well, and go home when there is nothing to do. Random
ones choose evenly among what the mask allows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from townlet.config.models import SimulationConfig
from townlet.config.town import BehaviorConfig
from townlet.types import Array
from townlet.world._jit import entry, kernel, leaf
from townlet.world.actions import CHAT, HOME, LEAVE, WAIT, WORK
from townlet.world.state import CANDIDATES, ENERGY, HALF_DISTANCE, HALF_WAIT, MAX_MEALS, MAX_NEEDS

COLUMNS = (
    "meals", "time_sin", "time_cos", "time_to_shift", "shift_left", "shift_post_shift", "shift_absent", "in_queue",
    "work_distance", "extroversion", "ambition",
)  # fmt: skip
HABITS = np.dtype(
    [(name, "i8") for name in COLUMNS]  # where the script finds what it sees
    + [(name, "i8") for name in ("candidates", "apart", "wait", "rivalry")]  # 1: it chooses objects itself; columns between two
    + [
        (name, "f8")
        for name in (
            *("worth_it", "leave_above", "meals_in_hand", "look_ahead", "work_margin", "night_sin", "night_cos", "night_bound"),
            *("sleep_below", "chat_above", "calm", "shift_length", "sleep_gain", "prepare", "rivalry_ticks"),
        )
    ]
)
NEED = np.dtype([("column", "i8"), ("act_below", "f8"), ("decay", "f8"), ("collapses", "u1")])
USE = np.dtype(
    [
        *((name, "i8") for name in ("near", "using", "waiting", "near_distance")),  # option and columns of an affordance
        ("gain", "f8", (MAX_NEEDS,)),
        ("ticks", "f8"),
        ("need", "i8"),  # what it raises most, -1 = nothing
        *((name, "u1") for name in ("free", "takes_meals", "gives_meals", "asleep", "spends", "hours")),
    ]
)
DAY = 1440.0
TIRED = 0.15  # above the line at which it sleeps, a resident sees to what the sleep would leave unmet
STARVING = 0.15  # nobody goes to work below this in a need that ends in a collapse
URGENT = 0.3
ENOUGH = 0.6  # leave for work with this


class Script(NamedTuple):
    """What the script knows of a town: its own figures, the needs, and every affordance, whoever declared it."""

    habits: Array  # (1,) HABITS
    needs: Array  # (Q,) NEED
    uses: Array  # (A,) USE


PLAIN = BehaviorConfig()  # the script before anything was tuned


def make_script(
    config: SimulationConfig,
    feature_names: tuple[str, ...],
    action_names: tuple[str, ...],
    *,
    behavior: BehaviorConfig | None = None,
) -> Script:
    """The script of a config over its observation and options; `behavior` instead of the config's."""
    behavior = behavior or config.behavior
    offsets = {name: i for i, name in enumerate(feature_names)}
    needs = np.zeros(len(config.needs), dtype=NEED)
    for k, (name, need) in enumerate(config.needs.items()):
        line = behavior.meet_below.get(name, need.act_below)
        needs[k] = (offsets[f"need_{name}"], line, need.decay, need.at_bottom == "collapse")
    uses = np.zeros(len(config.affordances.specs), dtype=USE)
    for use, spec in zip(uses, config.affordances.specs):
        first = "near" if f"{spec.id}:near" in action_names else "1"
        use["near"] = action_names.index(f"{spec.id}:{first}")
        use["using"], use["waiting"] = offsets[f"using_{spec.id}"], offsets[f"waiting_{spec.id}"]
        use["near_distance"], use["ticks"] = offsets[f"{spec.id}_{first}_distance"], spec.ticks
        gains = [spec.effects.get(name, 0.0) for name in config.needs]
        use["gain"][: len(gains)] = gains
        use["need"] = int(np.argmax(gains)) if max(gains) > 0 else -1
        use["free"], use["takes_meals"], use["gives_meals"] = spec.price == 0, spec.takes_meals > 0, spec.gives_meals > 0
        use["asleep"], use["hours"] = spec.asleep, spec.hours is not None
        use["spends"] = spec.takes_meals > 0 or spec.uses_stock  # a thing is gone with the start, so it is used to the end
    habits = _habits(config, offsets, behavior)
    some = config.affordances.specs[0].id if config.affordances.specs else ""
    if f"{some}_2_distance" in offsets:
        row, at = habits[0], offsets[f"{some}_1_distance"]
        row["candidates"], row["apart"] = 1, offsets[f"{some}_2_distance"] - at
        row["wait"], row["rivalry"] = offsets[f"{some}_1_wait"] - at, offsets[f"{some}_1_rivalry"] - at
        row["rivalry_ticks"] = config.policy.calm_rivalry_ticks
    return Script(habits, needs, uses)


def _habits(config: SimulationConfig, offsets: dict[str, int], behavior: BehaviorConfig) -> Array:
    h = np.zeros(1, dtype=HABITS)
    row = h[0]
    for name in COLUMNS:
        row[name] = offsets[name]
    row["worth_it"], row["leave_above"], row["meals_in_hand"] = behavior.worth_it, behavior.leave_above, behavior.meals_in_hand
    row["look_ahead"], row["work_margin"] = behavior.look_ahead, behavior.work_margin
    night = (DAY - behavior.sleep_from + 360.0) / 2.0  # half of the night, which ends at six
    middle = 2.0 * np.pi * (behavior.sleep_from + night) / DAY
    row["night_sin"], row["night_cos"], row["night_bound"] = np.sin(middle), np.cos(middle), np.cos(2.0 * np.pi * night / DAY)
    row["sleep_below"], row["chat_above"] = behavior.sleep_below, behavior.chat_above
    row["calm"] = behavior.avoid_rivals
    made = config.scenario.generate  # a generated town has its shifts there
    row["shift_length"] = max((job.length for job in config.jobs.values()), default=0 if made is None else made.shift_ticks)
    sleep = [spec.effects.get("energy", 0.0) / spec.ticks for spec in config.affordances.specs if spec.asleep]
    row["sleep_gain"] = sleep[0] if sleep and sleep[0] > 0 else 0.0025
    row["prepare"] = behavior.wake_before
    return h


@leaf
def level(x: np.ndarray, s: Script, k: int) -> float:
    return float(x[s.needs[k]["column"]])


@leaf
def lowest(x: np.ndarray, s: Script) -> float:
    """How far the worst need but energy is above its line."""
    low = 1.0
    for k in range(s.needs.shape[0]):
        if k != ENERGY:
            low = min(low, level(x, s, k) - s.needs[k]["act_below"])
    return low


@leaf
def steps_of(seen: float) -> float:
    """The walking distance behind a squashed one."""
    return HALF_DISTANCE * seen / (1.0 - seen) if seen < 0.999 else 1000.0


@leaf
def serves(s: Script, a: int, k: int) -> bool:
    """A use raises the need by enough to be chosen for it."""
    return bool(s.uses[a]["gain"][k] >= s.habits[0]["worth_it"])


@leaf
def seen_distance(x: np.ndarray, s: Script, a: int) -> float:
    """The way to the nearest object of an affordance as it is seen; 1 when there is none."""
    h, first = s.habits[0], s.uses[a]["near_distance"]
    least = x[first]
    if h["candidates"] == 1:
        for k in range(1, CANDIDATES):
            least = min(least, x[first + k * h["apart"]])
    return float(least)


@kernel
def option_of(x: np.ndarray, mask: np.ndarray, s: Script, a: int) -> int:
    """The allowed action that leads to an affordance by the script's rule (`calm` or `near`), or -1. Where it chooses among
    objects itself the rule is the same: least distance, and for calm also ticks until free and rivalry."""
    h, use = s.habits[0], s.uses[a]
    if h["candidates"] == 0:
        return int(use["near"] + h["calm"]) if mask[use["near"]] == 1 else -1
    choice, least = -1, 0.0
    for k in range(CANDIDATES):
        if mask[use["near"] + k] == 1:
            at = use["near_distance"] + k * h["apart"]
            cost = np.rint(steps_of(x[at]))
            if h["calm"] == 1.0:
                wait = x[at + h["wait"]]
                cost += np.rint(HALF_WAIT * wait / (1.0 - wait)) + h["rivalry_ticks"] * x[at + h["rivalry"]]
            if choice < 0 or cost < least:
                choice, least = int(use["near"] + k), cost
    return choice


@kernel
def open_now(x: np.ndarray, s: Script, k: int) -> bool:
    """Something serves the need at this hour. Distances are read only for what has hours."""
    for a in range(s.uses.shape[0]):
        if serves(s, a, k) and (s.uses[a]["hours"] == 0 or seen_distance(x, s, a) < 1.0):
            return True
    return False


@kernel
def leave_use(x: np.ndarray, s: Script) -> bool:
    """While using: is it time to leave?"""
    h = s.habits[0]
    used = -1
    for a in range(s.uses.shape[0]):
        if x[s.uses[a]["using"]] == 1.0:
            used = a
    if used < 0 or s.uses[used]["need"] < 0:
        return False
    use, free = s.uses[used], time_before_work(x, s)
    soon, now = free <= 0.0, level(x, s, s.uses[used]["need"])
    if now > h["leave_above"]:
        return True
    if use["asleep"] == 1:
        if now > s.needs[use["need"]]["act_below"]:
            for k in range(s.needs.shape[0]):
                if k != ENERGY and level(x, s, k) - s.needs[k]["act_below"] < -0.05 and open_now(x, s, k):
                    return True
        return bool(free <= h["prepare"] and now > 0.45)
    if not serves(s, used, int(use["need"])):  # a pastime
        return bool(lowest(x, s) < 0.0 or soon)
    return bool(use["spends"] == 0 and soon and now > ENOUGH)


@leaf
def time_before_work(x: np.ndarray, s: Script) -> float:
    """Ticks until it must set out for work; a whole day without a job or within a shift."""
    h = s.habits[0]
    if x[h["time_to_shift"]] >= 1.0 or x[h["shift_left"]] > 0.0:
        return DAY
    return float(x[h["time_to_shift"]] * DAY - steps_of(x[h["work_distance"]]) - h["work_margin"] - 5.0 * x[h["ambition"]])


@leaf
def is_night(x: np.ndarray, s: Script) -> bool:
    h = s.habits[0]
    return bool(x[h["time_sin"]] * h["night_sin"] + x[h["time_cos"]] * h["night_cos"] > h["night_bound"])


@kernel
def best_use(x: np.ndarray, mask: np.ndarray, s: Script, k: int, free: int) -> int:
    """The allowed option that raises a need fastest, walk included, among those that cost nothing (`free` 1) or money (0)."""
    choice, best = -1, 0.0
    for a in range(s.uses.shape[0]):
        use = s.uses[a]
        if use["free"] == free and serves(s, a, k):
            option = option_of(x, mask, s, a)
            rate = use["gain"][k] / (use["ticks"] + steps_of(seen_distance(x, s, a)))
            if option >= 0 and rate > best:
                choice, best = option, rate
    return choice


@kernel
def cook(x: np.ndarray, mask: np.ndarray, s: Script) -> int:
    """The first option that gives meals and that the mask allows, or -1."""
    for a in range(s.uses.shape[0]):
        if s.uses[a]["gives_meals"] == 1:
            option = option_of(x, mask, s, a)
            if option >= 0:
                return option
    return -1


@kernel
def raise_need(x: np.ndarray, mask: np.ndarray, s: Script, k: int) -> int:
    """What costs nothing (a meal in hand, a bed), else cook what can be eaten, else what is for sale, first when it is urgent."""
    choice = best_use(x, mask, s, k, 1)
    if choice < 0 and level(x, s, k) < URGENT:
        choice = best_use(x, mask, s, k, 0)
    if choice < 0:
        for a in range(s.uses.shape[0]):
            if s.uses[a]["takes_meals"] == 1 and serves(s, a, k):
                choice = cook(x, mask, s)
                break
    if choice < 0:
        choice = best_use(x, mask, s, k, 0)
    return choice


@kernel
def tiredness(x: np.ndarray, s: Script, free: float) -> float:
    """How far energy is below what a shift to come, or the night, asks for."""
    h, energy = s.habits[0], level(x, s, ENERGY)
    lack = s.needs[ENERGY]["act_below"] + TIRED - energy
    if free < 3.0 * h["look_ahead"]:
        lack += s.needs[ENERGY]["decay"] * (x[h["time_to_shift"]] * DAY + h["shift_length"])
    if is_night(x, s):
        lack = max(lack, h["sleep_below"] - energy)
    if free < h["prepare"] + 60.0 and energy > 0.15:
        lack = 0.0  # a nap this short is not worth the way
    return float(lack)


@leaf
def lack_of(x: np.ndarray, s: Script, k: int, ahead: float, free: float) -> float:
    """How far a need will be below its line in `ahead` ticks."""
    now = level(x, s, k)
    if free < 25.0 and now > 0.5:
        return 0.0  # no time left for less than an emergency
    return float(s.needs[k]["act_below"] + s.needs[k]["decay"] * ahead - now)


@kernel
def meet_need(x: np.ndarray, mask: np.ndarray, s: Script) -> tuple[int, int]:
    """The option for the need furthest below its line, and that need, where one is and can be met; else -1 and -1."""
    h, energy = s.habits[0], level(x, s, ENERGY)
    free = time_before_work(x, s)
    tired = tiredness(x, s, free)
    ahead = 0.0
    if free < h["look_ahead"]:
        ahead = x[h["time_to_shift"]] * DAY + h["shift_length"]
    elif tired > 0.0:
        ahead = (1.0 - energy) / h["sleep_gain"] + 20.0
    unmet, low = False, 1.0
    for k in range(s.needs.shape[0]):
        if k != ENERGY and s.needs[k]["act_below"] > 0.0:
            unmet = unmet or lack_of(x, s, k, ahead, free) > 0.0
            low = min(low, level(x, s, k))
    if tired > 0.0 and unmet:
        if energy > s.needs[ENERGY]["act_below"] - 0.08 or low < URGENT:
            tired = 1e-9  # sleep comes after what the sleep would leave unmet …
        else:
            tired = 2.0  # … unless it cannot wait
    tried = 0  # a bit per need
    for _ in range(s.needs.shape[0]):
        worst, pick = 0.0, -1
        for k in range(s.needs.shape[0]):
            if (tried >> k) & 1 == 0 and s.needs[k]["act_below"] > 0.0:
                lack = tired if k == ENERGY else lack_of(x, s, k, ahead, free)
                if lack > worst:
                    worst, pick = lack, k
        if pick < 0:
            return -1, -1
        choice = raise_need(x, mask, s, pick)
        if choice >= 0:
            return choice, pick
        tried |= 1 << pick
    return -1, -1


@leaf
def awaits_bed(x: np.ndarray, s: Script) -> bool:
    for a in range(s.uses.shape[0]):
        if s.uses[a]["asleep"] == 1 and x[s.uses[a]["waiting"]] == 1.0:
            return True
    return False


# why the script chose what it chose; from MEETS on, MEETS + k is the k-th need
RULES = (
    *("is not done yet", "has had enough, or has to go", "its shift", "waits for its turn", "a sleeper takes hours: another bed"),
    *("keeps a meal in hand", "all is well: a chat", "nothing to do: goes home", "nothing to do", "meets "),
)
GOES_ON, HAS_ENOUGH, SHIFT, TURN, OTHER_BED, STOCKS, CHATS, GOES_HOME, IDLES, MEETS = range(len(RULES))


@kernel
def scripted_choice(x: np.ndarray, mask: np.ndarray, s: Script) -> tuple[int, int]:
    """One resident's choice from its features and mask, and the rule that made it."""
    h = s.habits[0]
    if mask[LEAVE] == 1 and x[h["in_queue"]] == 0.0:  # using
        return (LEAVE, HAS_ENOUGH) if leave_use(x, s) else (WAIT, GOES_ON)
    free = time_before_work(x, s)
    if mask[WORK] == 1:
        fit = True
        for k in range(s.needs.shape[0]):
            fit = fit and (s.needs[k]["collapses"] == 0 or level(x, s, k) >= STARVING)
        missed = x[h["shift_post_shift"]] == 1.0 or x[h["shift_absent"]] == 1.0
        if fit and ((x[h["shift_left"]] > 0.0 and not missed) or (x[h["shift_left"]] == 0.0 and free <= 0.0)):
            return WORK, SHIFT
    if x[h["in_queue"]] == 1.0:
        if h["calm"] == 1.0 and awaits_bed(x, s):
            return LEAVE, OTHER_BED
        return WAIT, TURN
    choice, need = meet_need(x, mask, s)
    if choice >= 0:
        return choice, MEETS + need
    if x[h["meals"]] * float(MAX_MEALS) < h["meals_in_hand"] - 0.5 and free > 60.0:
        choice = cook(x, mask, s)
        if choice >= 0:
            return choice, STOCKS
    well = 1.0
    for k in range(s.needs.shape[0]):
        well = min(well, level(x, s, k))
    if mask[CHAT] == 1 and well > h["chat_above"] - 0.1 * x[h["extroversion"]]:
        return CHAT, CHATS
    if mask[HOME] == 1:
        return HOME, GOES_HOME
    return WAIT, IDLES


@entry
def choose_scripted(features: np.ndarray, masks: np.ndarray, script: Script, out: np.ndarray) -> None:
    """Choices of a batch: ``features (B, F)``, ``masks (B, A)`` → ``out (B,)``."""
    for b in range(features.shape[0]):
        choice, _ = scripted_choice(features[b], masks[b], script)
        out[b] = choice if masks[b, choice] == 1 else WAIT


@entry
def explain_scripted(features: np.ndarray, masks: np.ndarray, script: Script, out: np.ndarray) -> None:
    """The choices of a batch and the rules behind them: ``out (B, 2)``."""
    for b in range(features.shape[0]):
        choice, out[b, 1] = scripted_choice(features[b], masks[b], script)
        out[b, 0] = choice if masks[b, choice] == 1 else WAIT


@entry
def choose_random(masks: np.ndarray, draws: np.ndarray, out: np.ndarray) -> None:
    """An even choice among the allowed: ``masks (B, A)``, ``draws (B,)`` in [0, 1) → ``out (B,)``."""
    for b in range(masks.shape[0]):
        allowed = 0
        for a in range(masks.shape[1]):
            allowed += masks[b, a]
        pick = int(draws[b] * allowed)
        for a in range(masks.shape[1]):
            if masks[b, a] == 1:
                if pick == 0:
                    out[b] = a
                    break
                pick -= 1
