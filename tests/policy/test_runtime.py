"""Who decides: log-probabilities are true, draws do not depend on the batch, schedules are followed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from checkpoints import untrained
from townlet.config.loader import load_config
from townlet.config.models import SimulationConfig
from townlet.config.scenario import ScheduleStep
from townlet.envs.vector import VectorTown
from townlet.errors import CheckpointError, ScenarioError, UsageError
from townlet.evaluation.scorecard import evaluate, policy_hash
from townlet.evaluation.suites import Case
from townlet.policy.checkpoint import weights_hash
from townlet.policy.inference import NumpyPolicy
from townlet.policy.runtime import CarriedPolicy, PolicyRuntime, fitted, make_policy, soften
from townlet.sim.loop import SimulationLoop


def test_soften_has_the_probabilities_of_the_mixture() -> None:
    """Four legal actions, ε = 0.2: the choice has 0.8 + 0.05, each other 0.05; log 0.85 = −0.16252, log 0.05 = −2.99573."""
    masks = np.zeros((1, 40_000, 6), np.uint8)
    masks[..., [0, 2, 3, 5]] = 1
    choice = np.full((1, 40_000), 3)
    rng = np.random.default_rng(0)
    actions, log_probs = soften(choice, masks, 0.2, rng.random(choice.shape), rng.random(choice.shape))
    share = np.bincount(actions.ravel(), minlength=6) / actions.size
    np.testing.assert_allclose(share, [0.05, 0, 0.05, 0.85, 0, 0.05], atol=0.006)
    assert log_probs[actions == 3] == pytest.approx(-0.16252, abs=1e-5)
    assert log_probs[actions != 3] == pytest.approx(-2.99573, abs=1e-5)


def test_without_epsilon_the_choice_is_certain() -> None:
    masks = np.ones((2, 3, 4), np.uint8)
    actions, log_probs = soften(np.full((2, 3), 2), masks, 0.0, np.zeros((2, 3)), np.zeros((2, 3)))
    assert (actions == 2).all()
    assert not log_probs.any()


@pytest.mark.parametrize("spec", ["scripted", "random", "schedule"])
def test_policies_stay_inside_the_mask_and_have_no_critic(spec: str) -> None:
    vec = VectorTown("town_day", 4)
    policy = make_policy(spec, vec, epsilon=0.3 if spec != "random" else 0.0, seed=5)
    assert policy.kind == spec
    assert not policy.has_values
    for _ in range(12):
        decision = policy.act(vec)
        assert np.take_along_axis(vec.masks, decision.actions[..., None], axis=2).all()
        assert (decision.log_probs <= 0).all()
        assert not decision.values.any()
        vec.step(decision.actions, decision.targets)


def test_random_log_probs_are_those_of_the_mask() -> None:
    vec = VectorTown("town_day", 2)
    decision = make_policy("random", vec).act(vec)
    np.testing.assert_allclose(np.exp(-decision.log_probs), vec.masks.sum(axis=2), rtol=1e-5)


@pytest.mark.parametrize("spec", ["scripted", "random"])
def test_decisions_of_a_town_do_not_depend_on_the_batch(spec: str) -> None:
    many, one = VectorTown("town_day", 5, seed=3), VectorTown("town_day", 1, seed=3, first_town=4)
    policies = [make_policy(spec, vec, epsilon=0.5 if spec == "scripted" else 0.0, seed=9) for vec in (many, one)]
    for _ in range(8):
        all_, alone = policies[0].act(many), policies[1].act(one)
        np.testing.assert_array_equal(all_.actions[4], alone.actions[0])
        np.testing.assert_array_equal(all_.log_probs[4], alone.log_probs[0])
        many.step(all_.actions)
        one.step(alone.actions)


def test_draws_differ_from_episode_to_episode() -> None:
    vec = VectorTown("observation_baseline", 8)
    policy = make_policy("random", vec)
    days = []
    for step in range(50):  # 24 decisions a day and one step to begin anew
        decision = policy.act(vec)
        if step in (0, 25):
            assert vec.active.all()
            days.append((decision.actions.copy(), vec.masks.copy()))
        vec.step(decision.actions)
    np.testing.assert_array_equal(days[0][1], days[1][1])  # the same morning
    assert (days[0][0] != days[1][0]).any()


def test_unknown_policies_are_refused_with_what_there_is(tmp_path: Path) -> None:
    vec = VectorTown("town_day", 1)
    with pytest.raises(UsageError, match=r"no policy 'scriptd'; did you mean scripted\?"):
        make_policy("scriptd", vec)
    with pytest.raises(UsageError, match="no policy 'nobody'; expected scripted, scripted_plain, random, schedule"):
        make_policy("nobody", vec)
    with pytest.raises(CheckpointError, match="no checkpoint folder"):
        make_policy(str(tmp_path / "gone"), vec)
    with pytest.raises(UsageError, match="only scripted, scripted_plain, schedule make random choices"):
        make_policy("random", vec, epsilon=0.1)
    with pytest.raises(UsageError, match=r"epsilon is 1\.5, expected 0 to 1"):
        make_policy("scripted", vec, epsilon=1.5)


def test_a_policy_of_several_residents_decides_once_and_so_remembers_each_moment_once(monkeypatch: pytest.MonkeyPatch) -> None:
    vec = VectorTown("newcomer", 2)
    scripted, random = make_policy("scripted", vec), make_policy("random", vec, seed=1)
    runtime = PolicyRuntime(vec, {"alice": random, "newcomer_*": random, "*": scripted})
    asked = Mock(wraps=random.act)
    monkeypatch.setattr(random, "act", asked)
    runtime.act(vec)
    asked.assert_called_once_with(vec)


def test_policies_mix_by_resident_id_and_follow_newcomers() -> None:
    vec = VectorTown("newcomer", 2)
    scripted, random = make_policy("scripted", vec), make_policy("random", vec, seed=1)
    runtime = PolicyRuntime(vec, {"*": scripted, "alice": random, "newcomer_1": random})
    loop = SimulationLoop(vec, runtime)
    ids = [[vec.resident_id(e, n) for n in range(vec.num_residents)] for e in range(2)]
    alice = ids[0].index("alice")
    seen = Counter[str]()
    for _ in range(100):
        expected = scripted.act(vec), random.act(vec)
        decision = loop.decide()
        for e in range(2):
            for n in range(vec.num_residents):
                name = vec.resident_id(e, n)
                seen[name] += 1
                chosen = expected[1] if n == alice or name == "newcomer_1" else expected[0]
                assert decision.actions[e, n] == chosen.actions[e, n]
                assert decision.log_probs[e, n] == chosen.log_probs[e, n]
        loop.step()
    assert seen["newcomer_1"] > 0
    with pytest.raises(UsageError, match=r"nobody decides for the residents other than alice; add '\*=scripted'"):
        PolicyRuntime(vec, {"alice": random})


def test_a_checkpoint_acts_with_true_log_probs_and_values(tmp_path: Path) -> None:
    vec = VectorTown("town_day", 3)
    folder = untrained(tmp_path / "net", vec)
    policy = make_policy(str(folder), vec, seed=2)
    assert policy.kind == "checkpoint"
    assert policy.has_values
    decision = policy.act(vec)
    rows = vec.num_towns * vec.num_residents
    logits, values, _ = NumpyPolicy.load(folder).forward(vec.features.reshape(rows, -1), vec.maps.reshape(rows, 4, 11, 11))
    scores = np.where(vec.masks.reshape(rows, -1) != 0, logits.astype(np.float64), -np.inf)
    log_probs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    flat = decision.actions.ravel()
    np.testing.assert_allclose(decision.log_probs.ravel(), log_probs[np.arange(rows), flat], atol=1e-5)
    np.testing.assert_allclose(decision.values.ravel(), values, atol=1e-5)
    assert len(set(flat.tolist())) > 1  # drawn, not the most likely
    runtime = PolicyRuntime(vec, policy)
    assert runtime.hash == policy_hash(str(folder)) == weights_hash(NumpyPolicy.load(folder).weights)
    mix = {"*": str(folder), "alice": "scripted"}
    assert PolicyRuntime(vec, {who: make_policy(spec, vec) for who, spec in mix.items()}).hash == policy_hash(mix)
    assert PolicyRuntime(vec, make_policy("scripted", vec)).hash == ""
    with pytest.raises(CheckpointError, match=r"trained on .* features and 5 actions, this town has"):
        make_policy(str(untrained(tmp_path / "other", vec, actions=5)), vec)
    chooser = VectorTown(load_config("town_day", ["policy.action_level=candidates"]), 1)
    wide = untrained(tmp_path / "wide", chooser, action_catalogue_hash=chooser.catalogue.hash)
    with pytest.raises(CheckpointError, match=r"; use --set policy\.action_level=candidates$"):
        make_policy(str(wide), vec)


@pytest.mark.parametrize("what", ["action_catalogue_hash", "observation_hash"])
def test_a_checkpoint_of_other_actions_or_fields_is_refused_whatever_their_number(tmp_path: Path, what: str) -> None:
    vec = VectorTown("town_day", 1)
    make_policy(
        str(untrained(tmp_path / "own", vec, action_catalogue_hash=vec.catalogue.hash, observation_hash=vec.spec.hash)), vec
    )
    with pytest.raises(CheckpointError, match=f"was trained with {what} 0123, this town has .*; use the affordances"):
        make_policy(str(untrained(tmp_path / "other", vec, **{what: "0123"})), vec)


def test_a_checkpoint_brings_its_actions_and_observations_to_a_town_that_has_others(tmp_path: Path) -> None:
    """Who trained with a recipe that chooses among candidates need not say so again wherever the policy is used."""
    plain = load_config("two_bathrooms")
    other = load_config("two_bathrooms", ["policy.action_level=candidates", "features.systems.observations=full"])
    vec = VectorTown(other, 1)
    hashes = {"action_catalogue_hash": vec.catalogue.hash, "observation_hash": vec.spec.hash}
    folder = str(untrained(tmp_path / "net", vec, **hashes))
    for named in (folder, f"greedy:{folder}", {"alice": "scripted", "*": folder}, CarriedPolicy(folder)):
        made = fitted(plain, named)
        assert (made.policy.action_level, made.features.systems.observations) == ("candidates", "full")
    make_policy(folder, VectorTown(fitted(plain, folder), 1))
    for left in ("scripted", None, str(tmp_path / "nothing"), str(untrained(tmp_path / "own", VectorTown(plain, 1)))):
        assert fitted(plain, left) is plain
    card = evaluate({"mine": folder, "scripted": "scripted"}, [Case("town", "two_bathrooms", towns=1, days=1)])
    assert len(card.cases[0].policy("mine").actions) == vec.num_actions


# --- schedules -----------------------------------------------------------------------------------------------------------


def chosen(config: SimulationConfig, slot: int, steps: int) -> list[tuple[str, str]]:
    """Clock and option of each decision of one resident under its schedule."""
    vec = VectorTown(config, 1)
    policy = make_policy("schedule", vec)
    told = []
    for _ in range(steps):
        decision = policy.act(vec)
        minute = int(vec.state.towns["minute"][0])
        told.append((f"{minute // 60:02d}:{minute % 60:02d}", vec.catalogue.names[decision.actions[0, slot]]))
        vec.step(decision.actions, decision.targets)
    return told


def test_kitchen_breakfast_is_cooked_and_eaten_at_its_times() -> None:
    """Alice cooks at 06:30 (25 ticks: she has done by the decision of 07:00), eats at 07:10 and goes home at 07:40."""
    told = [entry for entry in chosen(load_config("kitchen_breakfast"), 0, 18) if entry[1] != "wait"]
    assert told == [("06:30", "cook_meal:near"), ("07:10", "eat_meal:near"), ("07:40", "home")]


def with_schedule(*steps: dict[str, object]) -> SimulationConfig:
    config = load_config("observation_baseline")
    first = config.scenario.residents[0]
    orders = tuple(ScheduleStep.model_validate(step) for step in steps)
    residents = (first.model_copy(update={"schedule": orders}), *config.scenario.residents[1:])
    return config.model_copy(update={"scenario": config.scenario.model_copy(update={"residents": residents})})


def test_a_step_ends_at_its_until_and_the_use_is_left() -> None:
    """A shower takes 20 ticks and some walking from 06:00 on; at 06:20 it is under way and left. `after: 20` comes at 06:40."""
    config = with_schedule({"do": "use_shower", "at": "06:00", "until": "06:20"}, {"do": "home", "after": 20})
    told = chosen(config, 0, 8)
    assert told[0] == ("06:00", "use_shower:near")
    assert told[2] == ("06:20", "leave")
    assert [name for _, name in told[3:4]] == ["wait"]
    assert told[4] == ("06:40", "home")


def test_a_clock_time_begins_its_step_though_the_one_before_goes_on() -> None:
    config = with_schedule({"do": "rest_sleep", "at": "06:00"}, {"do": "use_shower", "at": "07:00"})
    told = dict(chosen(config, 0, 12))
    assert told["06:00"] == "rest_sleep:near"
    assert told["06:50"] == "wait"  # asleep
    assert told["07:00"] == "leave"
    assert told["07:10"] == "use_shower:near"


def test_an_unknown_order_or_object_is_named() -> None:
    with pytest.raises(ScenarioError, match="says do: 'fly'; expected one of wait, work"):
        chosen(with_schedule({"do": "fly", "at": "06:00"}), 0, 1)
    with pytest.raises(ScenarioError, match="names the object 'shower_9', which is not there; did you mean 'shower_1'"):
        chosen(with_schedule({"do": "use_shower", "at": "06:00", "object": "shower_9"}), 0, 1)


def test_schedules_begin_anew_with_every_episode() -> None:
    vec = VectorTown("kitchen_breakfast", 1)
    policy = make_policy("schedule", vec)
    cooked = []
    for step in range(45):  # episodes of 18 decisions and one step to begin anew
        decision = policy.act(vec)
        if vec.catalogue.names[decision.actions[0, 0]] == "cook_meal:near" and vec.active[0, 0]:
            cooked.append(step)
        vec.step(decision.actions, decision.targets)
    assert cooked == [3, 22, 41]


def test_residents_without_orders_follow_the_script() -> None:
    vec = VectorTown("town_day", 2)
    both = [make_policy(spec, vec).act(vec).actions for spec in ("schedule", "scripted")]
    np.testing.assert_array_equal(*both)
