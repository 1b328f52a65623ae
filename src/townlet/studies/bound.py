"""An upper bound that no policy can exceed: every resident as if alone, in a town without walks, queues, rivals or conflicts.

The days of a life, averaged, obey the same linear rules as one day: a resident does one thing at a time, needs decay and are
raised by what it does, meals are cooked before they are eaten, work is possible in its hours. The cost of a lack is convex, so
the averaged day costs no more than the days did, and tangents of the square lie below it. The best averaged day is therefore a
linear program. Its optimum is never below what a resident earns per day, over any number of days.

A use is paid for in full when it begins, and between two uses that raise a need, the need falls from 1 at best. So a number of
uses a day leaves at least a certain lack, smallest when they are evenly spaced: a convex function, whose tangents are rows too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from townlet.config.affordances import AffordanceSpec
from townlet.config.models import SimulationConfig
from townlet.errors import UsageError
from townlet.scenarios.compile import CompiledTown, compile_town
from townlet.types import Array
from townlet.world.rules import make_rules
from townlet.world.state import MAX_EDGES

STEP = 10  # ticks of a step of the averaged day; within one, effects come first and decay last, to the resident's favour
TANGENTS = np.linspace(0.0, 1.0, 11)  # levels at which the square of a lack is touched
USES_A_DAY = np.arange(0.25, 16.0, 0.25)  # at which the lack that they leave is touched


class Bound(NamedTuple):
    mean: float  # reward per resident-day
    residents: dict[str, float]


def bound(config: SimulationConfig) -> Bound:
    """An upper bound of the return over the episode of a config, with the rewards of the config."""
    day, ticks = config.world.ticks_per_day, config.scenario.episode_ticks
    if ticks > day and ticks % day:
        raise UsageError(
            f"an episode of {ticks} ticks is not a whole number of days; the bound needs whole days, or less than one"
        )
    town = compile_town(config)
    known: dict[tuple[object, ...], float] = {}
    found = {}
    for name, one in zip(town.resident_ids, town.layout.residents):
        if not one["present"]:
            continue
        shift = town.layout.jobs[one["job"]][["start", "length"]].item() if one["job"] >= 0 else None
        key = (shift, int(one["meals"]), *one["needs"].tolist(), *one["weights"].tolist())
        if key not in known:
            known[key] = _best_day(config, town, one)
        found[name] = known[key]
    return Bound(float(np.mean(list(found.values()))), found)


def _best_day(config: SimulationConfig, town: CompiledTown, one: np.void) -> float:
    """The optimum of the averaged day of one resident."""
    rules, rewards = make_rules(config)[0], config.rewards
    day, days = config.world.ticks_per_day, config.days
    span = min(day, config.scenario.episode_ticks)  # an episode shorter than a day is its own day
    steps, needs = -(-span // STEP), list(config.needs.values())
    kinds = {town.kinds[kind] for kind in town.layout.objects["kind"]}
    uses = [spec for spec in config.affordances.specs if kinds & set(spec.objects)]
    Q, A = len(needs), len(uses)
    # variables of a step: share of its ticks in each use, at work, chatting; levels at its start; cost of each lack
    width = A + 2 + 2 * Q
    work, chat, level, lack = A, A + 1, A + 2, A + 2 + Q
    begun = width * steps  # behind all steps: how often a day each use is begun
    gain = np.zeros(begun + A)  # what is maximised
    upper, lower = np.ones(begun + A), np.zeros(begun + A)
    upper[begun:] = day
    rows: list[tuple[dict[int, float], float]] = []  # Σ coefficient × variable ≤ right side

    def at(step: int, variable: int) -> int:
        return (step % steps) * width + variable

    job = town.layout.jobs[one["job"]] if one["job"] >= 0 else None
    quality = rewards.chat_base + rewards.chat_trust + rewards.chat_familiarity
    per_chat = quality if config.features.stages.social_rewards != "OFF" else 0.0
    worth = _worth(config, uses, rules["need_sufficient_above"] >= 0.0, one, steps)
    for a, spec in enumerate(uses):
        gain[begun + a] = -rewards.spending * spec.price * worth.min()
        rows.append(({at(step, a): STEP / spec.ticks for step in range(steps)} | {begun + a: -1.0}, 0.0))
    for k, (name, need) in enumerate(config.needs.items()):
        raising = [a for a, spec in enumerate(uses) if spec.effects.get(name, 0.0) > 0]
        longest = max((uses[a].ticks for a in raising), default=0)
        if not need.awake_only:
            for often in USES_A_DAY:  # lack of a day ≥ value + slope × (uses − often)
                value, slope = _least_lack(float(often), need.decay, longest, config.scenario.episode_ticks, max(days, 1.0))
                row = {at(step, lack + k): -float(STEP) for step in range(steps)} | {begun + a: slope for a in raising}
                rows.append((row, slope * float(often) - value))
    for step in range(steps):
        minute = (config.scenario.start + step * STEP) % day
        if job is None or not _overlaps(minute, int(job["start"]), int(job["length"]), day):
            upper[at(step, work)] = 0.0
        else:
            gain[at(step, work)] = worth[step] * STEP * (rewards.wage_rate + rewards.punctuality / float(job["length"]))
        gain[at(step, chat)] = worth[step] * STEP * per_chat
        upper[at(step, chat)] = min(1.0, 1.0 / max(1, config.relationships.chat.cooldown))
        rows.append(({at(step, a): 1.0 for a in range(A)} | {at(step, work): 1.0}, 1.0))  # one thing at a time
        rows.append(({at(step, a): 1.0 for a in range(A)} | {at(step, chat): 1.0}, 1.0))
        for k, (name, need) in enumerate(config.needs.items()):
            raised = {at(step, a): STEP * spec.effects.get(name, 0.0) / spec.ticks for a, spec in enumerate(uses)}
            asleep = {at(step, a): STEP * need.decay for a, spec in enumerate(uses) if need.awake_only and spec.asleep}
            if step + 1 < steps:  # the level at the start of the next step is at most …; at 0 (lack 1) it falls no more
                row = {at(step + 1, level + k): 1.0, at(step, level + k): -1.0, at(step, lack + k): -STEP * need.decay}
                for part in (raised, asleep):
                    for column, value in part.items():
                        row[column] = row.get(column, 0.0) - value
                rows.append((row, -STEP * need.decay))
            gain[at(step, lack + k)] = -worth[step] * STEP * rewards.needs_scale * float(one["weights"][k])
            upper[at(step, lack + k)] = 1.0
            for touched in TANGENTS:  # lack ≥ (1 − t)² − 2 (1 − t) (level + raised − t)
                slope = 2.0 * (1.0 - touched)
                row = {at(step, lack + k): -1.0, at(step, level + k): -slope}
                for column, value in raised.items():
                    row[column] = row.get(column, 0.0) - slope * max(value, 0.0)
                rows.append((row, -((1.0 - touched) ** 2) - slope * touched))
    for k, (name, need) in enumerate(config.needs.items()):  # from the end of the averaged day to its start
        first = float(one["needs"][k])
        if days <= 1.0:
            lower[at(0, level + k)] = upper[at(0, level + k)] = first
            continue
        row = {at(0, level + k): 1.0, at(steps - 1, level + k): -1.0, at(steps - 1, lack + k): -STEP * need.decay}
        for a, spec in enumerate(uses):
            row[at(steps - 1, a)] = -STEP * (
                spec.effects.get(name, 0.0) / spec.ticks + (need.decay if need.awake_only and spec.asleep else 0.0)
            )
        rows.append((row, -STEP * need.decay + first / days))
    meals = {begun + a: float(spec.takes_meals) for a, spec in enumerate(uses)}
    meals |= {at(step, a): -STEP / spec.ticks * spec.gives_meals for step in range(steps) for a, spec in enumerate(uses)}
    rows.append((meals, int(one["meals"]) / days))
    alive = rewards.survival * float(worth.mean()) * span
    most = _optimum(gain, rows, np.stack([lower, upper], axis=1)) + alive + _shaping(config, float(rules["avoid_window"]), span)
    return most * day / span


def _optimum(gain: Array, rows: list[tuple[dict[int, float], float]], bounds: Array) -> float:
    """The largest gain · x with Σ coefficient × x ≤ right side in every row, each x within its bounds (X, 2)."""
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    entries = [(r, column, value) for r, (row, _) in enumerate(rows) for column, value in row.items()]
    at_row, at_column, values = zip(*entries)
    matrix = coo_array((values, (at_row, at_column)), shape=(len(rows), len(gain))).tocsr()
    solved = linprog(-gain, A_ub=matrix, b_ub=[right for _, right in rows], bounds=bounds, method="highs")
    if not solved.success:
        raise ArithmeticError(f"the bound of a resident was not found: {solved.message}")
    return float(-solved.fun)


def _worth(config: SimulationConfig, uses: list[AffordanceSpec], judged: Array, one: np.void, steps: int) -> Array:
    """What a tick of each step is worth at most, over one day: less than 1 where a need that nothing here raises leads to misery.
    # (T,)"""
    worth, misery = np.ones(steps), config.rewards.misery_below
    if config.scenario.episode_ticks > config.world.ticks_per_day:
        return worth
    for k, (name, need) in enumerate(config.needs.items()):
        raised = any(spec.effects.get(name, 0.0) > 0 for spec in uses)
        if judged[k] and not raised and not need.awake_only:
            levels = float(one["needs"][k]) - need.decay * STEP * np.arange(steps)
            worth = np.minimum(worth, np.clip(levels / max(misery, 1e-9), 0.0, 1.0))
    return worth


def _least_lack(often: float, decay: float, longest: int, ticks: int, days: float) -> tuple[float, float]:
    """The least lack of a need per day, squared and summed over its ticks, with `often` uses a day; and its slope in `often`.

    N uses leave N + 1 gaps. One of τ ticks costs at least g(τ − 1) = ∫₀ min(1, decay × t)² dt; that is convex, so equal gaps cost
    least.
    """
    gaps, free = often * days + 1.0, ticks - often * days * (longest + 1.0) - 1.0
    gap = free / gaps
    if gap <= 0.0:
        return 0.0, 0.0
    fallen = min(1.0, decay * gap)
    cost = fallen**3 / (3.0 * decay) + max(0.0, gap - 1.0 / decay)
    return gaps * cost / days, cost - fallen**2 * (longest + 1.0 + gap)


def _overlaps(minute: int, start: int, length: int, day: int) -> bool:
    """Some tick of the step from `minute` on is within the shift."""
    return any((minute + tick - start) % day < length for tick in range(STEP))


def _shaping(config: SimulationConfig, cooldown: float, day: int) -> float:
    """The most that avoiding and reconciling can bring in a day: each rival once per window, each tie at every such moment."""
    stage, rewards = config.features.stages.social_rewards, config.rewards
    turns = day / max(cooldown, 1.0) * MAX_EDGES
    avoided = rewards.avoid_rival * turns if stage in ("C2", "C3") else 0.0
    return avoided + (rewards.reconciliation * turns if stage == "C3" else 0.0)
