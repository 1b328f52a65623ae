"""Why: probabilities, masks with reasons, rewards by term, ties, stories, divergences; equal to what the town itself says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints import untrained
from townlet.config import load_config
from townlet.envs.vector import VectorTown
from townlet.errors import TakeError
from townlet.observer.follow import Follow
from townlet.observer.story import divergence, moments
from townlet.observer.studio import KnownTake, Studio
from townlet.observer.take import Change
from townlet.observer.witness import ties, witness, witnesses
from townlet.policy.checkpoint import weights_hash
from townlet.policy.runtime import NetworkPolicy, load_network, make_policy
from townlet.sim.loop import SimulationLoop
from townlet.world.actions import WAYS


@pytest.fixture(scope="module")
def day() -> tuple[Studio, KnownTake]:
    studio = Studio()
    return studio, studio.new_take(load_config("rush_hour"), seed=7)


@pytest.mark.parametrize(
    ("policy", "level"), [("scripted", "option"), ("random", "option"), ("scripted", "candidates"), ("random", "primitive")]
)
def test_probabilities_masks_and_rewards_hold_together(policy: str, level: str) -> None:
    studio = Studio()
    known = studio.new_take(load_config("rush_hour", [f"policy.action_level={level}"]), seed=7, policy=policy)
    stage = studio.stage(known.take.id)
    for decision in (0, 3, 9):
        for row in witnesses(stage, decision, range(stage.vec.num_residents), full=True):
            if not row["active"]:
                continue
            assert sum(one["probability"] for one in row["options"]) == pytest.approx(1, abs=1e-5)
            masked = [name for group in row["masked"] for name in group["options"]]
            assert sorted(masked + [one["name"] for one in row["options"]]) == sorted(known.header["actions"])
            assert all(group["reason"] for group in row["masked"])
            assert sum(row["reward"]["terms"].values()) == pytest.approx(row["reward"]["total"], abs=1e-5)
            assert row["chosen"] in [one["name"] for one in row["options"]]
            assert row["resident"] in row["sentence"]
            for seen in row["sees"].values():
                assert set(seen) == set(WAYS["candidates" if level == "candidates" else "option"])
                assert all(one["waiting"] >= 0 for one in seen.values())
            if policy == "scripted":
                assert row["probability"] == 1.0
                assert row["script"] == row["chosen"]


def test_a_witness_says_what_follow_says(day: tuple[Studio, KnownTake]) -> None:
    """The same decisions, reasons and rewards, in whatever order the moments are asked for."""
    studio, known = day
    vec = VectorTown("rush_hour", 1, seed=7)
    name = vec.town_of(0).resident_ids[1]
    policy = make_policy("scripted", vec, seed=7)
    follow = Follow(name, vec, policy, lambda text: None)
    SimulationLoop(vec, policy, [follow]).run(150)
    for row in reversed(follow.rows):
        found = witness(studio.stage(known.take.id), row["tick"], 1)
        assert found["chosen"] == row["chosen"]
        assert {option: group["reason"] for group in found["masked"] for option in group["options"]} == row["masked"]
        assert found["reward"]["total"] == pytest.approx(row["reward"], abs=1e-3)
        for how, fields in row["sees"].items():
            seen = found["sees"][row["chosen"].partition(":")[0]][how]
            assert all(seen[field] == pytest.approx(value, abs=1e-3) for field, value in fields.items())


def test_a_forced_decision_is_told_as_one(day: tuple[Studio, KnownTake]) -> None:
    studio, known = day
    who = known.header["people"][2]["id"]
    other = studio.branch(known.take.id, [Change(at=50, do=f"force {who} home")])
    row = witness(studio.stage(other.take.id), 54, 2)
    assert (row["tick"], row["decided"], row["chosen"], row["forced"]) == (54, 50, "home", True)
    assert "told to" in row["sentence"]
    found = divergence(studio, known.take.id, other.take.id)
    assert (found["tick"], found["resident"], found["field"], found["b"]) == (50, who, "action", "home")
    assert divergence(studio, known.take.id, known.take.id)["tick"] is None


def test_ties_are_those_of_the_town(day: tuple[Studio, KnownTake]) -> None:
    studio, known = day
    stage = studio.stage(known.take.id)
    found = ties(stage, 105)
    assert found["tick"] == 100
    assert found["ties"]
    column = stage.vec.spec.offsets["rivalry_max"]
    worst = dict.fromkeys(range(stage.vec.num_residents), 0.0)
    for tie in found["ties"]:
        worst[tie["a"]] = max(worst[tie["a"]], tie["rivalry"])
    assert [worst[slot] for slot in worst] == pytest.approx(stage.vec.features[0, :, column].tolist(), abs=1e-3)


def test_moments_are_sentences(day: tuple[Studio, KnownTake]) -> None:
    studio, known = day
    found = moments(studio, known.take.id)
    assert any(one["kind"] == "queue_conflict" for one in found)
    assert [one["tick"] for one in found] == sorted(one["tick"] for one in found)
    assert all(one["text"] and "{" not in one["text"] for one in found)
    for tick, slot in ((-1, 0), (10**6, 0), (0, -1), (0, 999)):
        with pytest.raises(TakeError):
            witness(studio.stage(known.take.id), tick, slot)


def test_a_trained_policy_is_explained_by_its_own_logits(tmp_path: Path) -> None:
    studio = Studio()
    config = load_config("town_day")
    vec = VectorTown(config, 1, seed=1)
    trained = untrained(tmp_path / "net", vec)
    network = load_network(trained, vec)
    name = studio.add_checkpoint("demo", trained, weights_hash(network.weights))
    known = studio.new_take(config, seed=1, policy=name)
    policy: Any = make_policy(str(trained), vec, seed=1)
    assert isinstance(policy, NetworkPolicy)
    loop = SimulationLoop(vec, policy)
    loop.run_decisions(5)
    decided = loop.decide()
    rows = witnesses(studio.stage(known.take.id), 5, range(vec.num_residents))
    assert known.header["values"]
    for row in rows:
        assert row["chosen"] == vec.catalogue.names[decided.actions[0, row["slot"]]]
        assert np.log(row["probability"]) == pytest.approx(decided.log_probs[0, row["slot"]], abs=1e-4)
        assert row["value"] == pytest.approx(float(decided.values[0, row["slot"]]), abs=1e-5)
        assert row["advantage"] is not None
    sent = studio.self_contained(known.take.id)
    assert sent.policy == "recorded"
    elsewhere = Studio().open(sent)
    assert elsewhere.header["reels"] == known.header["reels"]
