"""Scripted townspeople: a function of what they observe and nothing else, so that they can be imitated.

They look ahead: before a shift or a night they meet every need that would fall below its line by the end of it, leave a use
once its need is full, keep a meal in hand, set out for work in time, take the calm object, chat when all is well, and go home
when there is nothing to do. Random ones choose evenly among what the mask allows.
"""

from __future__ import annotations

import numpy as np

from townlet.config.models import SimulationConfig
from townlet.world._jit import entry, kernel, leaf
from townlet.world.actions import CHAT, HOME, LEAVE, WAIT, WORK
from townlet.world.state import HALF_DISTANCE, Array

COLUMNS = (
    "need_hunger", "need_hygiene", "need_energy", "meals", "time_sin", "time_cos", "time_to_shift", "shift_left",
    "shift_post_shift", "shift_absent", "in_queue", "work_distance", "at_work", "home_distance", "extroversion", "ambition",
    "using_use_shower", "using_eat_meal", "using_buy_meal", "using_rest_sleep", "using_sit", "waiting_rest_sleep",
)  # fmt: skip
(
    HUNGER, HYGIENE, ENERGY, MEALS, SIN, COS, TO_SHIFT, SHIFT_LEFT, POST_SHIFT, ABSENT, IN_QUEUE, WORK_WAY, AT_WORK, HOME_WAY,
    EXTROVERSION, AMBITION, IN_SHOWER, EATING, BUYING, SLEEPING, SITTING, AWAITS_BED,
) = range(len(COLUMNS))  # fmt: skip
SHOWER, COOK, EAT, BUY, SLEEP, SIT = range(6)
AFFORDANCES = ("use_shower", "cook_meal", "eat_meal", "buy_meal", "rest_sleep", "sit")
HABITS = np.dtype(
    [
        (name, "f8")
        for name in (
            *("hunger", "hygiene", "energy", "decay_hunger", "decay_hygiene", "decay_energy", "leave_above", "meals_in_hand"),
            *("look_ahead", "work_margin", "night_sin", "night_cos", "night_bound", "sleep_below", "chat_above", "calm"),
            *("shift_length", "sleep_gain", "prepare"),
        )
    ]
)
DAY = 1440.0
TIRED = 0.15  # above the line at which it sleeps, a resident sees to what the sleep would leave unmet
MEALS_UNIT = 6.0


def scripted_columns(feature_names: tuple[str, ...]) -> Array:
    """Offsets of the fields the script reads; a field of an affordance this town does not know is -1."""
    offsets = {name: i for i, name in enumerate(feature_names)}
    return np.array([offsets.get(name, -1) for name in COLUMNS], dtype=np.int64)


def scripted_options(action_names: tuple[str, ...]) -> Array:
    """First option (`near`) of each affordance the script knows, or -1."""
    return np.array([action_names.index(f"{a}:near") if f"{a}:near" in action_names else -1 for a in AFFORDANCES], dtype=np.int64)


def habits(config: SimulationConfig, *, calm: bool | None = None) -> Array:
    """The script's numbers as a (1,) HABITS array; `calm` overrides `behavior.avoid_rivals`."""
    behavior, decay = config.behavior, config.world.need_decay
    h = np.zeros(1, dtype=HABITS)
    row = h[0]
    row["hunger"], row["hygiene"], row["energy"] = (
        behavior.act_below.hunger,
        behavior.act_below.hygiene,
        behavior.act_below.energy,
    )
    row["decay_hunger"], row["decay_hygiene"], row["decay_energy"] = decay.hunger, decay.hygiene, decay.energy
    row["leave_above"], row["meals_in_hand"] = behavior.leave_above, behavior.meals_in_hand
    row["look_ahead"], row["work_margin"] = behavior.look_ahead, behavior.work_margin
    night = (DAY - behavior.sleep_from + 360.0) / 2.0  # half of the night, which ends at six
    middle = 2.0 * np.pi * (behavior.sleep_from + night) / DAY
    row["night_sin"], row["night_cos"], row["night_bound"] = np.sin(middle), np.cos(middle), np.cos(2.0 * np.pi * night / DAY)
    row["sleep_below"], row["chat_above"] = behavior.sleep_below, behavior.chat_above
    row["calm"] = behavior.avoid_rivals if calm is None else calm
    made = config.scenario.generate  # a generated town has its shifts there
    row["shift_length"] = max((job.length for job in config.jobs.values()), default=0 if made is None else made.shift_ticks)
    sleep = [spec for spec in config.affordances.specs if spec.id == "rest_sleep"]
    row["sleep_gain"] = sleep[0].effects.energy / sleep[0].ticks if sleep else 0.0025
    row["prepare"] = behavior.wake_before
    return h


@leaf
def steps_of(seen: float) -> float:
    """The walking distance behind a squashed one."""
    return HALF_DISTANCE * seen / (1.0 - seen) if seen < 0.999 else 1000.0


@leaf
def does(x: np.ndarray, c: np.ndarray, field: int) -> bool:
    """A yes-or-no field of an affordance; no where the town does not know it."""
    return bool(c[field] >= 0 and x[c[field]] == 1.0)


@leaf
def option(options: np.ndarray, mask: np.ndarray, a: int, calm: int) -> int:
    """The affordance's option when the mask allows it, or -1."""
    first = options[a]
    if first < 0 or mask[first] == 0:
        return -1
    return int(first + calm)


@kernel
def leave_use(x: np.ndarray, c: np.ndarray, h: np.ndarray) -> bool:
    """While using: is it time to leave?"""
    full = h[0]["leave_above"]
    free = time_before_work(x, c, h)
    soon = free <= 0.0
    if does(x, c, IN_SHOWER):
        return bool(x[c[HYGIENE]] > full or (soon and x[c[HYGIENE]] > 0.6))
    if does(x, c, EATING) or does(x, c, BUYING):
        return bool(x[c[HUNGER]] > full)
    if does(x, c, SLEEPING):
        if x[c[ENERGY]] > full:
            return True
        hungry = min(x[c[HUNGER]] - h[0]["hunger"], x[c[HYGIENE]] - h[0]["hygiene"]) < -0.05
        if hungry and x[c[ENERGY]] > h[0]["energy"]:
            return True
        return bool(free <= h[0]["prepare"] and x[c[ENERGY]] > 0.45)
    if does(x, c, SITTING):
        low = min(x[c[HUNGER]] - h[0]["hunger"], x[c[HYGIENE]] - h[0]["hygiene"])
        return bool(low < 0.0 or soon or x[c[ENERGY]] > full)
    return False


@leaf
def time_before_work(x: np.ndarray, c: np.ndarray, h: np.ndarray) -> float:
    """Ticks until it must set out for work; a whole day without a job or within a shift."""
    if x[c[TO_SHIFT]] >= 1.0 or x[c[SHIFT_LEFT]] > 0.0:
        return DAY
    return float(x[c[TO_SHIFT]] * DAY - steps_of(x[c[WORK_WAY]]) - h[0]["work_margin"] - 5.0 * x[c[AMBITION]])


@leaf
def is_night(x: np.ndarray, c: np.ndarray, h: np.ndarray) -> bool:
    return bool(x[c[SIN]] * h[0]["night_sin"] + x[c[COS]] * h[0]["night_cos"] > h[0]["night_bound"])


@kernel
def fed(x: np.ndarray, mask: np.ndarray, c: np.ndarray, o: np.ndarray, h: np.ndarray, hungry: bool) -> int:
    """Eat what is in hand, else cook; buy when it is urgent or nothing else can be had."""
    calm = int(h[0]["calm"])
    choice = option(o, mask, EAT, calm)
    if choice < 0 and hungry:
        choice = option(o, mask, BUY, calm)
    if choice < 0:
        choice = option(o, mask, COOK, calm)
    if choice < 0:
        choice = option(o, mask, BUY, calm)
    return choice


@kernel
def meet_need(x: np.ndarray, mask: np.ndarray, c: np.ndarray, o: np.ndarray, h: np.ndarray) -> int:
    """The option for the need furthest below its line, where one is and can be met; else -1."""
    calm = int(h[0]["calm"])
    hunger, hygiene, energy = x[c[HUNGER]], x[c[HYGIENE]], x[c[ENERGY]]
    to_shift, free = x[c[TO_SHIFT]] * DAY, time_before_work(x, c, h)
    works_soon = free < h[0]["look_ahead"]
    lack_energy = h[0]["energy"] + TIRED - energy
    if free < 3.0 * h[0]["look_ahead"]:
        lack_energy += h[0]["decay_energy"] * (to_shift + h[0]["shift_length"])
    if is_night(x, c, h):
        lack_energy = max(lack_energy, h[0]["sleep_below"] - energy)
    if free < h[0]["prepare"] + 60.0 and energy > 0.15:
        lack_energy = 0.0  # a nap this short is not worth the way
    ahead = 0.0
    if works_soon:
        ahead = to_shift + h[0]["shift_length"]
    elif lack_energy > 0.0:
        ahead = (1.0 - energy) / h[0]["sleep_gain"] + 20.0
    lack_hunger = h[0]["hunger"] + h[0]["decay_hunger"] * ahead - hunger
    lack_hygiene = h[0]["hygiene"] + h[0]["decay_hygiene"] * ahead - hygiene
    if free < 25.0:  # no time left for less than an emergency
        if hunger > 0.5:
            lack_hunger = 0.0
        if hygiene > 0.5:
            lack_hygiene = 0.0
    if lack_energy > 0.0 and (lack_hunger > 0.0 or lack_hygiene > 0.0):
        if energy > h[0]["energy"] - 0.08 or min(hunger, hygiene) < 0.3:
            lack_energy = 1e-9  # sleep comes after what the sleep would leave unmet …
        else:
            lack_energy = 2.0  # … unless it cannot wait
    for _ in range(3):
        worst = max(lack_hunger, lack_hygiene, lack_energy)
        if worst <= 0.0:
            return -1
        if worst == lack_hunger:
            choice = fed(x, mask, c, o, h, hunger < 0.3)
            lack_hunger = 0.0
        elif worst == lack_hygiene:
            choice = option(o, mask, SHOWER, calm)
            lack_hygiene = 0.0
        else:
            choice = option(o, mask, SLEEP, calm)
            lack_energy = 0.0
        if choice >= 0:
            return choice
    return -1


@kernel
def scripted_choice(x: np.ndarray, mask: np.ndarray, c: np.ndarray, o: np.ndarray, h: np.ndarray) -> int:
    """One resident's choice from its features and mask."""
    calm = int(h[0]["calm"])
    if mask[LEAVE] == 1 and x[c[IN_QUEUE]] == 0.0:  # using
        return LEAVE if leave_use(x, c, h) else WAIT
    free = time_before_work(x, c, h)
    if mask[WORK] == 1 and x[c[HUNGER]] >= 0.15:
        missed = x[c[POST_SHIFT]] == 1.0 or x[c[ABSENT]] == 1.0
        if (x[c[SHIFT_LEFT]] > 0.0 and not missed) or (x[c[SHIFT_LEFT]] == 0.0 and free <= 0.0):
            return WORK
    if x[c[IN_QUEUE]] == 1.0:
        if calm == 1 and does(x, c, AWAITS_BED):
            return LEAVE  # a sleeper takes hours; there is another bed
        return WAIT
    choice = meet_need(x, mask, c, o, h)
    if choice >= 0:
        return choice
    if x[c[MEALS]] * MEALS_UNIT < h[0]["meals_in_hand"] - 0.5 and free > 60.0:
        choice = option(o, mask, COOK, calm)
        if choice >= 0:
            return choice
    well = min(x[c[HUNGER]], x[c[HYGIENE]], x[c[ENERGY]])
    if mask[CHAT] == 1 and well > h[0]["chat_above"] - 0.1 * x[c[EXTROVERSION]]:
        return CHAT
    if mask[HOME] == 1:
        return HOME
    return WAIT


@entry
def choose_scripted(
    features: np.ndarray, masks: np.ndarray, columns: np.ndarray, options: np.ndarray, h: np.ndarray, out: np.ndarray
) -> None:
    """Choices of a batch: ``features (B, F)``, ``masks (B, A)`` → ``out (B,)``."""
    for b in range(features.shape[0]):
        choice = scripted_choice(features[b], masks[b], columns, options, h)
        out[b] = choice if masks[b, choice] == 1 else WAIT


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
