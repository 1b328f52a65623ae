"""From the config to the numbers the kernel reads: one RULES record, AFFORDANCE rows and their preconditions."""

from __future__ import annotations

from math import ceil, floor, isfinite

import numpy as np

from townlet.config.models import SimulationConfig, weights_of
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
    r = rules[0]
    rewards = config.rewards
    _fill_needs(r, config)
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
    _fill_queues_and_conflict(r, config)
    _fill_ties(r, config)
    _fill_work_and_money(r, config)
    r["survival"], r["misery_below"], r["needs_weight"] = rewards.survival, rewards.misery_below, rewards.needs_scale
    r["wage_rate"], r["spending"] = rewards.wage_rate, rewards.spending
    r["punctuality"], r["conflict_weight"], r["reward_clip"] = rewards.punctuality, rewards.conflict_weight, rewards.clip
    r["chat_reward"], r["chat_reward_trust"] = rewards.chat_base, rewards.chat_trust
    r["chat_reward_familiarity"] = rewards.chat_familiarity
    r["avoid_bonus"], r["avoid_cooldown"] = rewards.avoid_rival, rewards.avoid_window
    r["reconcile_bonus"] = rewards.reconciliation
    r["terminal_collapse"], r["terminal_eviction"] = rewards.collapse, rewards.eviction
    r["social_stage"] = ("OFF", "C1", "C2", "C3").index(config.features.stages.social_rewards)
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


def _fill_queues_and_conflict(r: np.void, config: SimulationConfig) -> None:
    fair, conflict = config.queue_fairness, config.conflict
    r["max_overtakes"], r["index_cost"] = fair.max_overtakes, fair.handover_index_cost
    r["age_priority_weight"], r["ghost_step_after"] = fair.age_priority_weight, fair.ghost_step_after
    r["quarrel_ticks"], r["quarrel_energy"] = conflict.quarrel_ticks, conflict.quarrel_energy
    r["queue_length_boost"] = conflict.queue_length_boost
    r["intensity_min"], r["intensity_max"] = conflict.intensity_min, conflict.intensity_max
    for k, (_, reason) in enumerate(conflict.reasons):
        r["reason_base"][k] = reason.base
        r["reason_actor_pays"][k], r["reason_rival_pays"][k] = reason.actor_pays, reason.rival_pays
    r["rivalry_increment"], r["rivalry_decay"] = conflict.rivalry.increment_per_conflict, conflict.rivalry.decay_per_tick
    r["avoid_threshold"] = conflict.rivalry.avoid_threshold


def _fill_ties(r: np.void, config: SimulationConfig) -> None:
    ties = config.relationships
    r["max_edges"], r["tie_floor"] = ties.max_edges, ties.free_below
    r["trust_decay"], r["familiarity_decay"] = ties.trust_decay, ties.familiarity_decay
    r["forgiveness_scale"], r["ambition_scale"] = ties.forgiveness_scale, ties.ambition_scale
    r["chat_extroversion"] = ties.extroversion_bonus
    r["chat_base"], r["chat_trust"], r["chat_familiarity"] = ties.chat.success, ties.chat.trust_gain, ties.chat.familiarity_gain
    r["chat_cooldown"], r["quality_floor"] = ties.chat.cooldown, ties.chat.quality_floor
    for k, (_, delta) in enumerate(ties.events):
        r["tie_trust"][k], r["tie_familiarity"][k], r["tie_rivalry"][k] = delta.trust, delta.familiarity, delta.rivalry
    r["newcomer_profiles"] = len(config.personalities.newcomers)
    for k, name in enumerate(config.personalities.newcomers):
        one = config.profiles()[name]
        r["profiles"][k] = one.traits
        r["profile_weights"][k, : len(config.needs)] = weights_of(config.needs, one)


def _fill_work_and_money(r: np.void, config: SimulationConfig) -> None:
    work, economy, life, upsets = config.employment, config.economy, config.lifecycle, config.perturbations
    r["grace_ticks"], r["absent_cutoff"], r["absence_slack"] = work.grace_ticks, work.absent_cutoff, work.absence_slack
    r["await_ticks"], r["notice_absences"] = work.work_ahead, work.notice_absences
    r["lates_per_absence"] = work.lates_per_absence
    r["rent"], r["rent_minute"], r["restock_minute"] = money(economy.rent), economy.rent_at, economy.refill_at
    r["first_wallet"] = money(economy.first_wallet)
    r["exit_notice"] = life.exit_warning
    r["unpaid_limit"], r["evictions_per_day"], r["eviction_gap"] = life.unpaid_days, life.evictions_per_day, life.eviction_gap
    r["newcomers_per_day"], r["newcomer_delay"] = life.newcomers_per_day, life.newcomer_delay_min
    r["newcomer_spread"] = life.newcomer_delay_max - life.newcomer_delay_min
    r["newcomer_need"], r["newcomer_meals"] = NEWCOMER_NEED, 1
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
