"""One resident followed: its choices, the reasons, and what came of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from checkpoints import untrained
from townlet.envs.vector import VectorTown
from townlet.errors import UsageError
from townlet.observer.follow import Follow, script_rule
from townlet.observer.witness import probabilities
from townlet.policy.runtime import make_policy
from townlet.sim.loop import SimulationLoop


def follow(scenario: str, resident: str, policy: str, ticks: int, *, first: int = 0, epsilon: float = 0.0) -> tuple[Follow, str]:
    told: list[str] = []
    vec = VectorTown(scenario, 1)
    decides = make_policy(policy, vec, epsilon=epsilon, seed=vec.seed)
    hook = Follow(resident, vec, decides, told.append, first=first)
    loop = SimulationLoop(vec, decides, [hook])
    loop.run(ticks)
    loop.finish()
    return hook, "\n".join(told)


def test_a_choice_is_told_with_what_was_seen_and_why_the_rest_could_not_be_chosen() -> None:
    hook, told = follow("queue_conflict", "alice", "schedule", 20)
    first, second = hook.rows
    assert first["chosen"] == "use_shower:near"
    assert first["why"] == "an order of the scenario"
    assert first["sees"]["near"]["busy"] == 0.0
    assert first["masked"]["work"] == "has no job"
    assert first["masked"]["cook_meal:near"] == "has no stove that can be reached"
    assert "use_start" in first["events"]
    assert second["masked"]["home"] == "is using shower_1 and has to finish or leave it first"
    assert told.startswith("06:00 alice chose use_shower:near, an order of the scenario")
    assert "no work: has no job" in told
    with pytest.raises(UsageError, match="alice, bob, carol"):
        follow("queue_conflict", "zoe", "schedule", 10)


def test_the_rule_of_the_script_is_told_and_a_conflict_with_whom_it_was() -> None:
    hook, told = follow("town_day", "alice", "schedule", 60)
    assert hook.rows[0]["why"].startswith("the script: meets hunger (now 0.80")
    assert hook.rows[2]["why"] == "the script: waits for its turn"
    assert "→ alice is blocked by erin at table_1" in told
    assert max(map(len, told.splitlines())) <= 80


def test_repetitions_are_one_line_with_their_reward_in_sum() -> None:
    hook, told = follow("town_day", "alice", "schedule", 60)
    same = [row for row in hook.rows if row["time"] in ("06:30", "06:40", "06:50")]
    assert f"06:30 to 06:50, 3 times: the same, reward {sum(row['reward'] for row in same):+.3f}" in told
    assert "06:40 alice" not in told


def test_following_begins_where_it_is_asked_to() -> None:
    hook, told = follow("town_day", "alice", "schedule", 120, first=60)
    assert [row["tick"] for row in hook.rows] == list(range(60, 120, 10))
    assert told.startswith("07:00 alice")


def test_chance_is_told_as_chance() -> None:
    hook, _ = follow("town_day", "bob", "scripted", 600, epsilon=0.5)
    slips = [row for row in hook.rows if row["why"].startswith("drawn at random (ε 0.5); the script meant ")]
    assert slips
    assert all(row["chosen"] != row["why"].rpartition(" ")[2] for row in slips)
    assert follow("town_day", "bob", "random", 10)[0].rows[0]["why"].startswith("drawn evenly among ")


def test_a_network_tells_its_probabilities(tmp_path: Path) -> None:
    folder = untrained(tmp_path / "net", VectorTown("town_day", 1))
    hook, _ = follow("town_day", "bob", str(folder), 60)
    vec = VectorTown("town_day", 1)
    policy = make_policy(str(folder), vec, seed=vec.seed)
    weighed = probabilities(policy, vec, policy.act(vec))[0, 1]
    row = hook.rows[0]
    assert row["why"].startswith(f"the network, {weighed[vec.catalogue.names.index(row['chosen'])]:.0%}")


def test_the_rule_belongs_to_the_choice() -> None:
    """Over a day of everybody, what the explanation says is chosen is what the script chooses."""
    vec = VectorTown("town_day", 1)
    policy = make_policy("scripted", vec)
    rules = set()
    for _ in range(144):
        decision = policy.act(vec)
        for slot in np.flatnonzero(vec.active[0]):
            rule, choice = script_rule(vec, int(slot), policy)
            assert choice == decision.actions[0, slot]
            rules.add(rule.partition(" (")[0])
        vec.step(decision.actions)
    assert {"its shift", "meets hunger", "meets hygiene", "meets energy", "waits for its turn"} <= rules
