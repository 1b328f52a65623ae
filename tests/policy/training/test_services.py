"""The services strategies are handed: which data are read, what a capture gives, how runs are kept."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from scorecards import checkpoint_folder, duel
from townlet.config import SimulationConfig, load_config
from townlet.config.learning import AnnealGuardsConfig
from townlet.dto.evaluation import Scorecard
from townlet.dto.policy import EvaluationPoint
from townlet.envs.vector import VectorTown
from townlet.errors import ConfigError, ReplayError, StorageError, UsageError
from townlet.evaluation.scorecard import evaluate
from townlet.evaluation.suites import Case, draw_seed
from townlet.policy.capture import CaptureOptions, capture
from townlet.policy.runtime import Policy, make_policy
from townlet.policy.training.anneal import score_guards
from townlet.policy.training.collect import Collector
from townlet.policy.training.run_folder import RunFolder, check_disk, disk_estimate
from townlet.policy.training.services import (
    EvaluationService,
    PromotionServiceAdapter,
    ReplayDatasetService,
    RolloutCaptureService,
    TrainingServices,
    intervals,
)
from townlet.policy.training.session import network_spec
from townlet.policy.training.sources import rollout_batch
from townlet.sim.loop import SimulationLoop
from townlet.world.state import TERMS

Small = Callable[..., SimulationConfig]


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("capture") / "town"
    capture([load_config("town_day")], folder, CaptureOptions(ticks=60))
    return folder


def test_services_need_no_torch(small_town: Small) -> None:
    services = TrainingServices.of(small_town())
    assert services.replay.config.config_id == "town_day"


def test_the_manifest_given_wins_over_the_config(small_town: Small, captured: Path) -> None:
    manifest = captured / "rollout_sample_manifest.json"
    service = ReplayDatasetService(small_town(f"training.capture_dir={captured}"))
    assert service.resolve() == captured
    assert service.resolve(manifest) == manifest
    both = ReplayDatasetService(small_town(f"training.capture_dir={captured}", f"training.replay_manifest={manifest}"))
    assert both.resolve() == manifest


def test_no_data_and_missing_data_are_told_apart(small_town: Small, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--replay-manifest"):
        ReplayDatasetService(small_town()).resolve()
    with pytest.raises(ReplayError, match=r"nothing\.json does not exist"):
        ReplayDatasetService(small_town()).resolve(tmp_path / "nothing.json")


def test_a_capture_folder_brings_its_metrics_and_a_manifest_does_not(small_town: Small, captured: Path) -> None:
    service = ReplayDatasetService(small_town("training.replay.batch_size=4"))
    from_folder = service.build(service.dataset_config(captured))
    from_manifest = service.build(service.dataset_config(captured / "rollout_sample_manifest.json"))
    assert len(from_folder.config.metrics_map) == 8
    assert from_manifest.config.metrics_map == {}
    assert from_folder.baseline_metrics() == pytest.approx(from_manifest.baseline_metrics())
    assert from_folder.hash == from_manifest.hash
    rows = service.summary(from_folder).batches
    assert [row.samples for row in rows] == [4, 4]
    assert sum(row.transitions for row in rows) == 8 * 6


def test_a_capture_without_residents_warns_and_is_empty(small_town: Small, caplog: pytest.LogCaptureFixture) -> None:
    config = small_town("scenario.residents=[]", "scenario.ties=[]", "scenario.circles=[]")
    with caplog.at_level(logging.WARNING, logger="townlet.training"):
        result = RolloutCaptureService(config).capture(60)
    assert len(result) == 0
    assert list(result.frames()) == []
    assert "nothing was captured in town_day: it has no residents" in caplog.text
    assert len(RolloutCaptureService(config).capture(60, auto_seed_agents=True)) > 0


@pytest.mark.parametrize("saved", [False, True])
def test_captures_are_made_by_the_loop(small_town: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved: bool) -> None:
    steps = []
    step = SimulationLoop.step
    monkeypatch.setattr(SimulationLoop, "step", lambda loop: (steps.append(1), step(loop))[1])
    RolloutCaptureService(small_town()).capture(60, output_dir=tmp_path / "cap" if saved else None)
    assert len(steps) == 6


def test_a_capture_shorter_than_a_decision_warns_and_is_empty(small_town: Small, caplog: pytest.LogCaptureFixture) -> None:
    result = RolloutCaptureService(small_town()).capture(9)
    assert len(result) == 0
    assert "9 ticks are less than one decision (10)" in caplog.text


def test_frames_of_a_capture_are_typed(small_town: Small) -> None:
    result = RolloutCaptureService(small_town()).capture(30)
    frames = list(result.frames())
    assert len(frames) == 8 * 3
    assert frames[1].tick - frames[0].tick == 10
    assert frames[0].action_mask[frames[0].action]
    assert isinstance(frames[0].model_dump(mode="json")["features"], list)


def test_training_towns_start_apart_and_never_on_an_evaluation_seed(small_town: Small) -> None:
    config = small_town("training.towns=16")
    vec = RolloutCaptureService(config).towns(16)
    assert len(np.unique(vec.state.towns["minute"])) > 4
    assert vec.seed % 2 == 0
    assert draw_seed("evaluation", 0) % 2 == 1
    assert RolloutCaptureService(config).towns(2, index=1).seed != vec.seed


def test_periodic_evaluation_is_on_the_validation_seed_and_so_is_its_policy(small_town: Small) -> None:
    config = small_town("training.eval_towns=2", "scenario.episode_ticks=60", "evaluation.first_seed=3000001")
    seen = []

    def source(vec: VectorTown) -> Policy:
        seen.append(vec.seed)
        return make_policy("random", vec, seed=vec.seed)

    service = EvaluationService(config)
    made, named = service.score(source), service.score("random")
    assert seen == [draw_seed("validation", 0)]
    assert made == named == EvaluationService(config).score("random")
    card = evaluate({"random": "random"}, [Case("own", "own", towns=2, days=1, config=config)])
    assert card.cases[0].seed == 3_000_001
    assert card.cases[0].policies[0].measures["return"].values != made["return"].values


def test_a_single_town_has_no_interval_and_fires_no_guard(small_town: Small) -> None:
    found = intervals(EvaluationService(small_town("training.eval_towns=1")).score("random"))
    assert (found["return"].low, found["return"].high) == (None, None)
    point = EvaluationPoint(epoch=1, steps=1, measures=found)
    worse = {name: one.model_copy(update={"value": one.value - 100}) for name, one in found.items()}
    now = EvaluationPoint(epoch=2, steps=2, measures=worse)
    assert score_guards(now, point, found, found, AnnealGuardsConfig()) == ()


def test_a_promotion_window_is_on_a_seed_of_its_own(small_town: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def measured(policies: Any, cases: Any, **options: Any) -> Scorecard:
        asked.update(options)
        return duel(0)

    monkeypatch.setattr("townlet.promotion.window.evaluate", measured)
    monkeypatch.setattr("townlet.promotion.releases.Releases.next_window", lambda self: 3)
    monkeypatch.chdir(tmp_path)
    config = small_town("evaluation.level=0.8")
    PromotionServiceAdapter(config).consider(tmp_path / "nobody", tmp_path / "card.json")
    assert (asked["purpose"], asked["window"], asked["evaluation"]) == ("promotion", 3, config.evaluation)
    assert PromotionServiceAdapter(config).releases.level == 0.8


def test_a_run_that_is_resumed_after_it_was_judged_has_no_second_window(
    small_town: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every resume of an anneal run added a window, until there were enough of them."""
    monkeypatch.chdir(tmp_path)
    gates, weights = PromotionServiceAdapter(small_town()), checkpoint_folder(tmp_path / "candidate", "candidate")
    card = duel(0, {"return": 5.0}, candidate=weights)
    monkeypatch.setattr("townlet.promotion.window.evaluate", lambda policies, cases, **options: card)
    first = gates.consider(tmp_path / "candidate", tmp_path / "card.json")
    assert gates.consider(tmp_path / "candidate", tmp_path / "card.json") == first
    assert [entry.decision for entry in gates.releases.entries()] == [first]


def test_a_run_that_would_not_fit_on_the_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_disk(tmp_path / "new" / "run", disk_estimate(1000, 1000, 5, 100))
    with pytest.raises(StorageError, match=r"needs about .* MB .* are free"):
        check_disk(tmp_path / "new" / "run", 1 << 60)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=300_000))
    with pytest.raises(StorageError, match=r"needs about 0\.5 MB in .*, 0\.3 MB are free"):
        check_disk(tmp_path / "new" / "run", 500_000)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a run folder"):
        RunFolder(tmp_path).card()


def test_towns_are_spread_over_the_weights_of_conflict_and_tell_theirs(small_town: Small) -> None:
    words = ("observations.conflict_weight=4", "training.conflict_weights=[1, 16]")
    service = RolloutCaptureService(small_town(*words))
    vec = service.towns(32)
    weights = vec.tables.rules["conflict_weight"]
    assert (weights.min() < 1.2, weights.max() > 13) == (True, True)
    assert np.median(weights) == pytest.approx(4.0, rel=0.15)  # as many below as above, by their ratio
    told = vec.features[..., vec.spec.offsets["conflict_weight"]]
    np.testing.assert_allclose(told, np.repeat(weights / (weights + 6.0), vec.num_residents).reshape(told.shape), rtol=1e-6)
    part = service.towns(8, first_town=8)  # as another worker has them
    np.testing.assert_array_equal(part.tables.rules["conflict_weight"], weights[8:16])
    with pytest.raises(ConfigError, match="must be told the weight"):
        small_town("training.conflict_weights=[1, 16]")


def test_a_conflict_costs_what_it_weighs_in_its_town(small_town: Small) -> None:
    """The same towns with another weight each: nobody sees to it, so that all but the price of conflicts is the same."""
    config = small_town("observations.conflict_weight=1", "rewards.clip=1000", "rewards.conflict_weight=1")
    one, spread = VectorTown(config, 8), VectorTown(config, 8, conflict_weights=(1.0, 16.0))
    paid = [np.zeros(8), np.zeros(8)]
    for sums, vec in zip(paid, (one, spread)):
        loop = SimulationLoop(vec, make_policy("random", vec))
        for _ in range(100):
            loop.step()
            sums += vec.terms[..., TERMS.index("conflict")].sum(axis=1)
    assert (paid[0] < 0).any()
    np.testing.assert_allclose(paid[1], paid[0] * spread.tables.rules["conflict_weight"])


def test_partners_decide_for_every_other_resident_of_their_towns(small_town: Small) -> None:
    pytest.importorskip("torch")
    from townlet.policy.training import learner

    config = small_town("training.towns=6")
    vec = RolloutCaptureService(config).towns(6)
    collector = Collector(vec, 0, maps=False, partners=("scripted", "random"))
    network = learner.PPOLearner(network_spec(config), config.ppo)
    rollout = collector.collect(network, 2)
    others = rollout.scripted[0]
    assert not others[[0, 3]].any()  # towns without a partner
    np.testing.assert_array_equal(others[1], others[2])
    np.testing.assert_array_equal(others[1], ~others[4])
    script = make_policy("scripted", vec)
    vec.reset()
    np.testing.assert_array_equal(rollout.actions[0, 1][others[1]], script.act(vec).actions[1][others[1]])
    np.testing.assert_array_equal(rollout.learning, rollout.active[:-1] & ~rollout.scripted)
    with pytest.raises(UsageError, match=r"schedule has a memory"):
        Collector(VectorTown("kitchen_breakfast", 1), 0, maps=False, partners=("schedule",))


def test_the_recipe_for_anywhere_trains_ones_own_town_among_drawn_ones_of_other_sizes() -> None:
    config = load_config("two_bathrooms", ["training.drawn_towns=2"], recipe="anywhere")
    assert config.training.partners == ("scripted", "random")
    vec = RolloutCaptureService(config).towns(3)
    assert [len(town.resident_ids) for town in vec.towns] == [8, 24, 24]
    assert (vec.active != 0).sum(axis=1).tolist() == [8, 24, 24]
    assert vec.towns[1].config.policy == config.policy


def test_the_returns_of_a_log_are_the_learners_alone(small_town: Small) -> None:
    pytest.importorskip("torch")
    from townlet.policy.training import learner

    config = small_town("training.towns=2")
    vec = RolloutCaptureService(config).towns(2)
    collector = Collector(vec, 0, maps=False, partners=("random",))
    decisions = config.scenario.episode_ticks // config.policy.interval
    rollout = collector.collect(learner.PPOLearner(network_spec(config), config.ppo), decisions)
    ended = (rollout.terminated | rollout.truncated)[:decisions]
    own = ended & rollout.learning
    assert (ended & rollout.scripted).any()
    assert len(rollout.life_returns) == own.sum() > 0
    told = np.logical_or.accumulate(own[::-1])[::-1] & rollout.learning  # decisions of lives that have ended
    np.testing.assert_allclose(sum(rollout.life_returns), rollout.rewards[:decisions][told].sum(), rtol=1e-4)


def test_with_a_team_share_of_one_all_of_a_town_are_paid_alike(small_town: Small) -> None:
    pytest.importorskip("torch")
    from townlet.policy.training import learner

    config = small_town("training.towns=3", "ppo.team_share=1.0")
    rollout = Collector(RolloutCaptureService(config).towns(3), 0, maps=False).collect(
        learner.PPOLearner(network_spec(config), config.ppo), 4
    )
    shared = rollout_batch(rollout, config.ppo).rewards.reshape(rollout.rewards.shape)
    assert rollout.active[:-1].all()
    np.testing.assert_allclose(shared, np.repeat(rollout.rewards.mean(axis=2, keepdims=True), shared.shape[2], axis=2), rtol=1e-5)
    own = rollout_batch(rollout, config.ppo.model_copy(update={"team_share": 0.0})).rewards
    np.testing.assert_array_equal(own.reshape(rollout.rewards.shape), rollout.rewards)


def test_a_training_in_which_events_are_lost_is_refused() -> None:
    """Its conflicts, exits and shifts would be counted too low, in silence."""
    vec = VectorTown(load_config("queue_conflict", ["world.event_capacity=1"]), 1)
    with pytest.raises(UsageError, match=r"events of queue_conflict did not fit into world.event_capacity=1, .*; set it to 0"):
        Collector(vec, 0, maps=False).collect(None, 40)
