"""Rules that fire: every kind of event, reason, state, disturbance, tie event and action happens in the shipped scenarios."""

from __future__ import annotations

from collections import Counter

import numpy as np

from townlet.config.loader import load_config
from townlet.envs.vector import VectorTown
from townlet.policy.runtime import PolicyRuntime, make_policy
from townlet.sim.loop import SimulationLoop
from townlet.world.state import CONFLICT_REASONS, EVENTS, EXITS, PERTURBATIONS, SHIFT_STATES, TIE_EVENTS

LEAST = 20
OFTEN = "{probability_per_day: 1.0, duration: 120, cooldown: 0}"
UPSETS = tuple(f"perturbations.{kind}={OFTEN}" for kind in PERTURBATIONS)
WEEK = "scenario.episode_ticks=10080"
C3 = "features.stages.social_rewards=C3"
HOT = "conflict.rivalry.decay_per_tick=0.0005"  # grudges that pass within a day: people make up
RUNS: list[tuple[str, str, int, int, tuple[str, ...]]] = [  # scenario, policy, towns, decisions, overrides
    ("town_day", "scripted", 32, 1008, (WEEK, C3, HOT, *UPSETS)),
    ("town_day", "random", 64, 500, (WEEK, C3, *UPSETS, "economy.first_wallet=50")),
    ("town_day", "mixed", 32, 432, (WEEK, "employment.notice_absences=1")),
    ("rush_hour", "scripted", 32, 144, (C3,)),
    ("market_square", "scripted", 2, 216, ()),
    ("two_bathrooms", "scripted", 4, 288, (WEEK, C3, HOT)),
    ("queue_conflict", "schedule", 4, 48, ()),
    ("employment_punctuality", "schedule", 4, 144, ()),
    ("newcomer", "scripted", 16, 144, ()),
    ("blackout_evening", "scripted", 8, 144, ()),
    ("town_day", "random", 8, 1440, ("policy.action_level=primitive",)),
]
TIE_EVENT_OF = {
    "chat_success": "chat_success",
    "chat_failure": "chat_failure",
    "handover": "queue_interaction",
    "shared_meal": "shared_meal",
    "late_help": "late_help",
    "shift_takeover": "shift_takeover",
}


REASONS = (
    ("conflict reason", "queue_conflict", CONFLICT_REASONS),
    ("perturbation", "perturbation", PERTURBATIONS),
    ("exit", "exit", EXITS),
)


def _who(policy: str, vec: VectorTown) -> PolicyRuntime:
    """Everybody alike; or `mixed`: the script, with a few who do as they like and so leave their colleagues alone."""
    if policy != "mixed":
        return PolicyRuntime(vec, make_policy(policy, vec))
    random = make_policy("random", vec)
    return PolicyRuntime(vec, {"*": make_policy("scripted", vec), "bob": random, "erin": random, "henry": random})


def count() -> tuple[Counter[tuple[str, str]], list[tuple[str, str]]]:
    """How often each thing happened, and everything that ought to happen."""
    seen: Counter[tuple[str, str]] = Counter()
    wanted = [("event", name) for name in EVENTS]
    wanted += [("conflict reason", name) for name in CONFLICT_REASONS]
    wanted += [("employment state", name) for name in SHIFT_STATES]
    wanted += [("perturbation", name) for name in PERTURBATIONS]
    wanted += [("exit", name) for name in EXITS]
    wanted += [("tie event", name) for name in TIE_EVENTS]
    for scenario, policy, towns, decisions, overrides in RUNS:
        vec = VectorTown(load_config(scenario, overrides), towns, seed=1)
        loop = SimulationLoop(vec, _who(policy, vec))
        names = np.array(vec.catalogue.names)
        wanted += [(f"action ({vec.catalogue.level})", name) for name in names]
        for _ in range(decisions):
            active = vec.active == 1
            taken = loop.decide().actions[active]
            loop.step()
            for action, number in zip(*np.unique(taken, return_counts=True)):
                seen[f"action ({vec.catalogue.level})", str(names[action])] += int(number)
            for state, number in zip(*np.unique(vec.state.residents["shift"][vec.active == 1], return_counts=True)):
                seen["employment state", SHIFT_STATES[state]] += int(number)
            told = vec.events()
            for kind, number in zip(*np.unique(told["kind"], return_counts=True)):
                seen["event", EVENTS[kind]] += int(number)
            for part, kind, reasons in REASONS:
                for reason, number in zip(*np.unique(told["reason"][told["kind"] == EVENTS.index(kind)], return_counts=True)):
                    seen[part, reasons[reason]] += int(number)
        assert vec.events_lost == 0, scenario
    for name, kind in TIE_EVENT_OF.items():
        seen["tie event", name] = seen["event", kind]
    return seen, list(dict.fromkeys(wanted))


def test_everything_happens_at_least_twenty_times() -> None:
    seen, wanted = count()
    for part, name in wanted:
        print(f"{part:<20} {name:<24} {seen[part, name]:>9}")
    rare = {f"{part} {name}": seen[part, name] for part, name in wanted if seen[part, name] < LEAST}
    assert not rare, f"fewer than {LEAST} times: {rare}"
