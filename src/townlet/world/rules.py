"""From the config to the numbers the kernel reads: one RULES record, AFFORDANCE rows and their preconditions."""

from __future__ import annotations

from math import ceil, floor, isfinite

import numpy as np

from townlet.config.models import SimulationConfig, weights_of
from townlet.config.town import SOCIAL_STAGES
from townlet.types import Array
from townlet.world.preconditions import NUMBER, Program, Row, both, check_length, names_of, parse
from townlet.world.state import AFFORDANCE, HUNGER, MAX_MEALS, MONEY, RULES
from townlet.world.systems.affordances import MEALS, OP_AND, OP_EQ, OP_GE, OP_GT, OP_LT, OP_NE, OP_NOT, OP_OR

QUEUE_REACH = 3  # steps from an object within which its queue can be joined
NEWCOMER_NEED = 0.7


def money(coins: float) -> int:
    """Coins as whole ten-thousandths."""
    return round(coins * MONEY)


def make_rules(
    config: SimulationConfig, *, random_start: bool = False, stagger: bool = False, wallets: tuple[float, float] | None = None
) -> Array:
    """The (1,) RULES array of a config; first wallets are the scenario's, or drawn evenly between `wallets`."""
    rules = np.zeros(1, dtype=RULES)
    r, ties, rewards = rules[0], config.relationships, config.rewards
    same = (rewards, config.queue_fairness, config.conflict, config.conflict.rivalry, ties, ties.chat, config.employment)
    for section in (*same, config.lifecycle):  # a key whose name is that of a rule is that rule
        for name, value in section:
            if name in RULES.fields:  # type: ignore[operator]
                r[name] = value
    r["ticks_per_day"] = config.world.ticks_per_day
    r["interval"] = config.policy.interval
    r["episode_ticks"] = config.scenario.episode_ticks
    r["random_start"], r["stagger"] = random_start, stagger
    r["candidates"] = config.policy.action_level == "candidates"
    low, high = (-1, -1) if wallets is None else (money(wallets[0]), money(wallets[1]))
    r["wallet_low"], r["wallet_spread"] = low, high - low
    r["blind_conflict"] = "conflict" in config.observations.blind
    r["blind_fields"] = len(config.observations.blind) > 0
    r["told_weight"] = config.observations.conflict_weight or 0.0
    r["calm_rivalry_ticks"] = config.policy.calm_rivalry_ticks
    r["queue_reach"] = QUEUE_REACH
    r["rivalry_increment"] = config.conflict.rivalry.increment_per_conflict
    r["rivalry_decay"] = config.conflict.rivalry.decay_per_tick
    r["chat_success"], r["chat_cooldown"] = ties.chat.success, ties.chat.cooldown
    r["reward_clip"], r["terminal_collapse"], r["terminal_eviction"] = rewards.clip, rewards.collapse, rewards.eviction
    r["social_stage"] = SOCIAL_STAGES.index(config.features.stages.social_rewards)
    r["rent"], r["first_wallet"] = money(config.economy.rent), money(config.economy.first_wallet)
    r["rent_at"], r["refill_at"] = config.economy.rent_at, config.economy.refill_at
    _fill_needs(r, config)
    _fill_reasons_and_ties(r, config)
    _fill_newcomers(r, config)
    _fill_perturbations(r, config)
    return rules


def _fill_needs(r: np.void, config: SimulationConfig) -> None:
    r["needs"] = len(config.needs)
    r["need_sufficient_above"] = -1.0  # nobody is judged by a need that is not there or not acted on
    for k, need in enumerate(config.needs.values()):
        r["need_decay"][0, k], r["need_decay"][1, k] = need.decay, 0.0 if need.awake_only else need.decay
        if need.act_below > 0:
            r["need_sufficient_above"][k] = config.evaluation.self_sufficient_above
        if need.at_bottom == "collapse":
            row = int(r["deadly"])
            r["deadly_need"][row], r["deadly_below"][row], r["deadly_ticks"][row] = k, need.collapse_below, need.collapse_ticks
            r["deadly"] += 1


def _fill_reasons_and_ties(r: np.void, config: SimulationConfig) -> None:
    for k, (_, reason) in enumerate(config.conflict.reasons):
        r["reason_base"][k] = reason.base
        r["reason_actor_pays"][k], r["reason_rival_pays"][k] = reason.actor_pays, reason.rival_pays
    for k, (_, delta) in enumerate(config.relationships.events):
        r["tie_trust"][k], r["tie_familiarity"][k], r["tie_rivalry"][k] = delta.trust, delta.familiarity, delta.rivalry


def _fill_newcomers(r: np.void, config: SimulationConfig) -> None:
    life = config.lifecycle
    r["newcomer_spread"] = life.newcomer_delay_max - life.newcomer_delay_min
    r["newcomer_need"], r["newcomer_meals"] = NEWCOMER_NEED, 1
    r["newcomer_profiles"] = len(config.personalities.newcomers)
    for k, name in enumerate(config.personalities.newcomers):
        one = config.profiles()[name]
        r["profiles"][k] = one.traits
        r["profile_weights"][k, : len(config.needs)] = weights_of(config.needs, one)


def _fill_perturbations(r: np.void, config: SimulationConfig) -> None:
    upsets = config.perturbations
    for k, kind in enumerate(upsets.kinds().values()):
        r["perturb_chance"][k], r["perturb_ticks"][k] = kind.probability_per_day, kind.duration
        r["perturb_cooldown"][k] = kind.cooldown
    r["price_spike_factor"] = upsets.price_spike.factor
    r["meet_gap"], r["meet_min_rivalry"] = upsets.arranged_meet.resident_cooldown, upsets.arranged_meet.min_rivalry


def make_affordances(config: SimulationConfig) -> Array:
    """(A,) AFFORDANCE rows, with their preconditions compiled."""
    specs = config.affordances.specs
    table = np.zeros(len(specs), dtype=AFFORDANCE)
    for a, spec in enumerate(specs):
        row = table[a]
        row["ticks"], row["price"] = spec.ticks, money(spec.price)
        gains = [spec.effects.get(need, 0.0) for need in config.needs]
        row["gains"][: len(gains)] = np.array(gains) / spec.ticks
        row["meals_given"], row["meals_taken"] = spec.gives_meals, spec.takes_meals
        row["stock_taken"] = max(spec.gives_meals, 1) if spec.uses_stock else 0
        row["own_home"], row["is_sleep"] = spec.own_home, spec.asleep
        row["is_meal"] = gains[HUNGER] > 0
        row["cooldown"] = config.cooldown(spec)
        row["need"] = int(np.argmax(gains)) if max(gains) > 0 else (HUNGER if spec.gives_meals else -1)
        town, own = parse(spec.requires, tuple(config.needs))
        own, row["meals"] = _meals(own, spec.takes_meals, MAX_MEALS - spec.gives_meals)
        if spec.hours is not None:
            both(town, _within(*spec.hours))
            check_length(town, spec.requires)
        for part, program in enumerate((town, own)):
            row["length"][part] = len(program)
            for r, step in enumerate(program):
                row["rows"][part, r] = (step.op, step.left, step.right)
                row["numbers"][part, r] = (step.left_number, step.right_number)
    return table


def _meals(own: Program, fewest: int, most: int) -> tuple[Program, tuple[int, int]]:
    """What a resident's part asks of its meals as bounds, which are read at once, and the rest of it."""
    if any(row.op in (OP_OR, OP_NOT) for row in own):
        return own, (fewest, most)
    rest: Program = []
    for row in own:
        if row.op == OP_AND:
            continue
        if row.left != MEALS or row.right != NUMBER or row.op in (OP_EQ, OP_NE) or not isfinite(row.right_number):
            both(rest, [row])
        elif row.op in (OP_GE, OP_GT):
            fewest = max(fewest, floor(row.right_number) + 1 if row.op == OP_GT else ceil(row.right_number))
        else:
            most = min(most, ceil(row.right_number) - 1 if row.op == OP_LT else floor(row.right_number))
    return rest, (fewest, most)


def _within(first: int, last: int) -> Program:
    """Opening hours as a precondition; hours that run over midnight are open on both sides of it."""
    minute = names_of(()).index("minute")
    after, before = Row(OP_GE, minute, NUMBER, 0.0, float(first)), Row(OP_LT, minute, NUMBER, 0.0, float(last))
    return [after, before, Row(OP_AND if first <= last else OP_OR)]
