"""What no policy can exceed: every resident as if alone, in a town without ways, queues, rivals or conflicts.

The days of a life, averaged, obey the same linear rules as a day: a resident does one thing at a time, needs decay and are raised
by what it does, meals are cooked before they are eaten, work is there in its hours. What a lack costs is convex, so the averaged
day costs no more than the days did, and tangents of the square are below it. The best averaged day is therefore a linear program
whose optimum is never below what a resident earns per day, over any number of days.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from townlet.config.models import SimulationConfig
from townlet.errors import UsageError
from townlet.scenarios.compile import CompiledTown, compile_town
from townlet.world.rules import make_rules
from townlet.world.state import MAX_EDGES

STEP = 10  # ticks of a step of the averaged day; within one, effects come first and decay last, to the resident's favour
TANGENTS = np.linspace(0.0, 1.0, 11)  # levels at which the square of a lack is touched


class Bound(NamedTuple):
    mean: float  # reward per resident-day
    residents: dict[str, float]


def bound(config: SimulationConfig) -> Bound:
    """An upper bound of the return over the episode of a config, with the rewards of the config."""
    day, ticks = config.world.ticks_per_day, config.scenario.episode_ticks
    if ticks > day and ticks % day:
        raise UsageError(f"an episode of {ticks} ticks is no whole number of days; the bound knows whole days, or less than one")
    town = compile_town(config)
    known: dict[tuple[Any, ...], float] = {}
    found = {}
    for name, one in zip(town.resident_ids, town.layout.residents):
        if not one["present"]:
            continue
        key = (one["job"], int(one["meals"]), *one["needs"].tolist(), *one["weights"].tolist())
        if key not in known:
            known[key] = _best_day(config, town, one)
        found[name] = known[key]
    return Bound(float(np.mean(list(found.values()))), found)


def _best_day(config: SimulationConfig, town: CompiledTown, one: np.void) -> float:
    """The optimum of the averaged day of one resident."""
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    rules, rewards = make_rules(config)[0], config.rewards
    day, days = config.world.ticks_per_day, config.scenario.episode_ticks / config.world.ticks_per_day
    span = min(day, config.scenario.episode_ticks)  # an episode shorter than a day is its own day
    steps, needs = -(-span // STEP), list(config.needs.values())
    kinds = {town.kinds[kind] for kind in town.layout.objects["kind"]}
    uses = [spec for spec in config.affordances.specs if kinds & set(spec.objects)]
    Q, A = len(needs), len(uses)
    # variables of a step: share of its ticks in each use, at work, chatting; levels at its start; cost of each lack
    width = A + 2 + 2 * Q
    work, chat, level, lack = A, A + 1, A + 2, A + 2 + Q
    gain = np.zeros(width * steps)  # what is maximised
    upper, lower = np.ones(width * steps), np.zeros(width * steps)
    rows: list[tuple[dict[int, float], float]] = []  # Σ coefficient × variable ≤ right side

    def at(step: int, variable: int) -> int:
        return (step % steps) * width + variable

    job = town.layout.jobs[one["job"]] if one["job"] >= 0 else None
    quality = rewards.chat_base + rewards.chat_trust + rewards.chat_familiarity
    per_chat = quality if config.features.stages.social_rewards != "OFF" else 0.0
    price = {spec.id: rewards.spending * spec.price for spec in uses}
    for step in range(steps):
        minute = (config.scenario.start + step * STEP) % day
        for a, spec in enumerate(uses):
            gain[at(step, a)] = -price[spec.id] * STEP / spec.ticks
        if job is None or not _overlaps(minute, int(job["start"]), int(job["length"]), day):
            upper[at(step, work)] = 0.0
        else:
            gain[at(step, work)] = STEP * (rewards.wage_rate + rewards.punctuality / float(job["length"]))
        gain[at(step, chat)] = STEP * per_chat
        upper[at(step, chat)] = min(1.0, 1.0 / max(1, config.relationships.chat.cooldown))
        rows.append(({at(step, a): 1.0 for a in range(A)} | {at(step, work): 1.0}, 1.0))  # one thing at a time
        rows.append(({at(step, a): 1.0 for a in range(A)} | {at(step, chat): 1.0}, 1.0))
        for k, (name, need) in enumerate(config.needs.items()):
            raised = {at(step, a): STEP * spec.effects.get(name, 0.0) / spec.ticks for a, spec in enumerate(uses)}
            asleep = {at(step, a): STEP * need.decay for a, spec in enumerate(uses) if need.awake_only and spec.asleep}
            if step + 1 < steps:  # the level at the start of the next step is at most …
                row = {at(step + 1, level + k): 1.0, at(step, level + k): -1.0}
                for part in (raised, asleep):
                    for column, value in part.items():
                        row[column] = row.get(column, 0.0) - value
                rows.append((row, -STEP * need.decay))
            gain[at(step, lack + k)] = -STEP * rewards.needs_scale * float(one["weights"][k])
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
        row = {at(0, level + k): 1.0, at(steps - 1, level + k): -1.0}
        for a, spec in enumerate(uses):
            row[at(steps - 1, a)] = -STEP * (
                spec.effects.get(name, 0.0) / spec.ticks + (need.decay if need.awake_only and spec.asleep else 0.0)
            )
        rows.append((row, -STEP * need.decay + first / days))
    meals = {
        at(step, a): STEP / spec.ticks * (spec.takes_meals - spec.gives_meals)
        for step in range(steps)
        for a, spec in enumerate(uses)
    }
    rows.append((meals, int(one["meals"]) / days))
    entries = [(r, column, value) for r, (row, _) in enumerate(rows) for column, value in row.items()]
    at_row, at_column, values = zip(*entries)
    matrix = coo_array((values, (at_row, at_column)), shape=(len(rows), width * steps)).tocsr()
    solved = linprog(
        -gain, A_ub=matrix, b_ub=[right for _, right in rows], bounds=np.stack([lower, upper], axis=1), method="highs"
    )
    if not solved.success:
        raise ArithmeticError(f"the bound of a resident was not found: {solved.message}")
    most = float(-solved.fun) + rewards.survival * span + _shaping(config, float(rules["avoid_cooldown"]), span)
    return most * day / span


def _overlaps(minute: int, start: int, length: int, day: int) -> bool:
    """Some tick of the step from `minute` on is within the shift."""
    return any((minute + tick - start) % day < length for tick in range(STEP))


def _shaping(config: SimulationConfig, cooldown: float, day: int) -> float:
    """The most that avoiding and reconciling can bring in a day: each rival once per window, each tie at every such moment."""
    stage, rewards = config.features.stages.social_rewards, config.rewards
    turns = day / max(cooldown, 1.0) * MAX_EDGES
    avoided = rewards.avoid_rival * turns if stage in ("C2", "C3") else 0.0
    return avoided + (rewards.reconciliation * turns if stage == "C3" else 0.0)
