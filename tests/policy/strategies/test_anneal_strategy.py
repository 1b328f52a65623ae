"""Anneal: the schedule, its guards, the way back, resume; with fake stages, and once with real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
import pytest

from townlet.config import SimulationConfig
from townlet.config.learning import AnnealGuardsConfig, PromotionConfig
from townlet.dto.evaluation import Measure
from townlet.dto.policy import BCTrainingResult, EpochFigures, EvaluationPoint, MeasureInterval, PPOTrainingResult, TrainingResult
from townlet.dto.promotion import Outcome, PromotionDecision
from townlet.errors import ConfigError, DivergedError, InterruptedRun, UsageError
from townlet.policy.checkpoint import Checkpoint, load_checkpoint
from townlet.policy.network import NetworkSpec
from townlet.policy.runner import TrainingHarness
from townlet.policy.training import contexts
from townlet.policy.training.anneal import baselines, epoch_flags, score_guards, update_guards
from townlet.policy.training.contexts import RunOptions, TrainingContext
from townlet.policy.training.services import TrainingServices
from townlet.promotion.ledger import LedgerError
from townlet.promotion.releases import Releases
from townlet.telemetry.ndjson import read_records
from townlet.telemetry.validate import validate_log

Small = Callable[..., SimulationConfig]
SCHEDULE = (
    "training.anneal_schedule=[{cycle: 0, mode: bc, epochs: 2, bc_weight: 1.0, scripted_share: 1.0}, "
    "{cycle: 1, mode: ppo, epochs: 2, bc_weight: 0.5, scripted_share: 0.5}, "
    "{cycle: 2, mode: ppo, epochs: 2, bc_weight: 0.0, scripted_share: 0.0}]"
)


def measure(value: float) -> Measure:
    return Measure(values=(value,), count=1, mean=value, iqm=value, low=value - 0.1, high=value + 0.1)


class Scores:
    """Evaluation that answers from a list: random, scripted, then stage after stage."""

    def __init__(self, returns: list[float]) -> None:
        self.returns = returns
        self.asked: list[str] = []

    def score(self, source: str, stop: object = None) -> dict[str, Measure]:
        self.asked.append(source)
        value = self.returns[len(self.asked) - 1]
        return {"return": measure(value), "conflicts": measure(1.0), "intensity": measure(1.0), "self_sufficiency": measure(0.9)}


class FakeStage:
    """Writes a checkpoint that says where it started from, and remembers the plans it was given."""

    plans: ClassVar[list[Any]] = []
    diverge_in: ClassVar[int | None] = None
    requires_torch: ClassVar[bool] = False

    def prepare(self, context: TrainingContext) -> None:
        pass

    def save(self, context: TrainingContext) -> str:
        assert context.run is not None
        self.plans.append(context.plan)
        if self.diverge_in == context.plan.cycle:
            raise DivergedError("the loss is not a number")
        start = context.plan.start_from
        weight = np.zeros(1) if start is None else load_checkpoint(start).weights["w"]
        spec = NetworkSpec(features=2, actions=2)
        checkpoint = Checkpoint({"w": weight + 1}, {"network": spec.to_json()})
        return str(context.run.save(context.epochs, checkpoint))

    def run(self, context: TrainingContext) -> TrainingResult:
        raise NotImplementedError


class FakeBC(FakeStage):
    name: ClassVar[str] = "bc"

    def run(self, context: TrainingContext) -> BCTrainingResult:
        return BCTrainingResult(
            duration_sec=0.0, checkpoint=self.save(context), dataset="fake", episodes=2, held_out_episodes=1, decisions=1,
            held_out_decisions=1, epochs=1, best_epoch=1, loss=0.1, accuracy=0.97, change_accuracy=0.7, majority_accuracy=0.5,
            repeat_accuracy=0.9, class_balance={}, accuracy_threshold=0.95, change_accuracy_threshold=0.6, passed=True,
            weights_hash="",
        )  # fmt: skip


def ppo_result(**changes: Any) -> PPOTrainingResult:
    values: dict[str, Any] = {
        "duration_sec": 0.0, "data_mode": "rollout", "epochs": 2, "updates": 1, "transitions": 1, "steps": 10, "loss_policy": 0.0,
        "loss_value": 1.0, "loss_value_first": 1.0, "loss_entropy": 1.0, "loss_total": 1.0, "kl_k3": 0.01,
        "episode_return_mean": 1.0, "queue_conflict_events": 5.0, "queue_conflict_intensity_sum": 3.0, "telemetry_log": None,
        "weights_hash_start": "", "weights_hash": "",
    }  # fmt: skip
    return PPOTrainingResult(**(values | changes))


class FakePPO(FakeStage):
    name: ClassVar[str] = "ppo"
    seconds: ClassVar[list[float]] = []  # what each stage was given

    def run(self, context: TrainingContext) -> PPOTrainingResult:
        self.seconds.append(context.seconds_left)
        return ppo_result(checkpoint=self.save(context), steps=context.plan.steps + 10)


def fakes(config: SimulationConfig, returns: list[float]) -> tuple[TrainingHarness, Scores]:
    FakeStage.plans.clear()
    FakePPO.seconds.clear()
    FakeStage.diverge_in = None
    services, scores = TrainingServices.of(config), Scores(returns)
    services.evaluation = scores  # type: ignore[assignment]
    from townlet.policy.training.strategies.anneal import AnnealStrategy

    loaders: Mapping[str, Any] = {"bc": FakeBC, "ppo": FakePPO, "anneal": AnnealStrategy}
    return TrainingHarness(config, services=services, strategies=loaders), scores


class Gates:
    """Promotion that remembers what it was asked and holds it."""

    def __init__(self) -> None:
        self.asked: list[Path] = []
        self.releases = Releases(Path("nowhere"), PromotionConfig())

    def consider(self, candidate: Path, scorecard: Path) -> PromotionDecision:
        self.asked.append(candidate)
        return PromotionDecision(
            outcome=Outcome.HOLD, window="pass", passes=1, required=2, gates=(), reasons=("one window of two",)
        )


@pytest.mark.parametrize(
    ("promote", "returns"), [(True, [10.0, 11.0, 12.0]), (True, [10.0, 3.0, 12.0]), (False, [10.0, 11.0, 12.0])]
)
def test_a_run_that_passes_is_put_before_the_promotion_gates(
    small_town: Small, tmp_path: Path, promote: bool, returns: list[float]
) -> None:
    """Only when it is asked for, and not when a guard has fired."""
    harness, _ = fakes(small_town(SCHEDULE, f"training.promote={str(promote).lower()}"), [0.0, 9.0, *returns])
    harness.services.promotion = gates = Gates()  # type: ignore[assignment]
    summary = harness.run_anneal(RunOptions(run_dir=tmp_path / "a"))
    if promote and summary.status == "PASS":
        assert gates.asked == [Path(str(summary.checkpoint))]
        assert summary.promotion is not None
        assert summary.promotion.outcome is Outcome.HOLD
    else:
        assert not gates.asked
        assert summary.promotion is None
    assert (summary.status == "PASS") == (min(returns) > 5.0)


def test_a_ledger_that_cannot_be_used_is_told_before_anything_is_trained(
    small_town: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = small_town(SCHEDULE, "training.promote=true")
    ledger = tmp_path / config.promotion.ledger
    ledger.parent.mkdir()
    ledger.write_text("damaged\n")
    harness, _ = fakes(config, [])
    with pytest.raises(LedgerError, match="line 1 is not a ledger entry"):
        harness.run_anneal(RunOptions(run_dir=tmp_path / "a"))
    assert not (tmp_path / "a").exists()


def test_a_schedule_that_goes_well_passes(small_town: Small, tmp_path: Path) -> None:
    harness, scores = fakes(small_town(SCHEDULE), [0.0, 9.0, 10.0, 11.0, 12.0])
    summary = harness.run_anneal(RunOptions(run_dir=tmp_path / "a"))
    assert summary.status == "PASS"
    assert summary.reasons == ()
    assert [plan.bc_weight for plan in FakeStage.plans] == [(1.0, 1.0), (1.0, 0.5), (0.5, 0.0)]
    assert [plan.scripted_share for plan in FakeStage.plans] == [1.0, 0.5, 0.0]
    assert [plan.steps for plan in FakeStage.plans] == [0, 0, 10]
    assert scores.asked[:2] == ["random", "scripted"]
    assert summary.checkpoint is not None
    assert load_checkpoint(summary.checkpoint).weights["w"].tolist() == [3.0]  # three stages over one network


def test_ppo_stages_share_the_time_of_the_run_by_their_epochs(small_town: Small, tmp_path: Path) -> None:
    uneven = SCHEDULE.replace("cycle: 1, mode: ppo, epochs: 2", "cycle: 1, mode: ppo, epochs: 6")
    harness, _ = fakes(small_town(uneven, "training.time_limit=10"), [0.0, 9.0, 10.0, 11.0, 12.0])
    assert harness.run_anneal(RunOptions(run_dir=tmp_path / "a")).status == "PASS"
    assert FakePPO.seconds == pytest.approx([450.0, 600.0], abs=30.0)  # the first gave back what it did not need


def test_the_time_limit_ends_the_whole_schedule(small_town: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness, _ = fakes(small_town(SCHEDULE, "training.time_limit=1"), [0.0, 9.0, 10.0, 11.0, 12.0])
    monkeypatch.setattr(contexts, "perf_counter", lambda: perf_counter() + 600.0 * len(FakeStage.plans))  # a stage takes long
    summary = harness.run_anneal(RunOptions(run_dir=tmp_path / "a"))
    assert summary.status == "HOLD"
    assert [stage.mode for stage in summary.stages] == ["bc"]
    assert summary.reasons == ("stage 1: training.time_limit was over before it began",)
    assert summary.checkpoint is not None


@pytest.mark.parametrize("share", [0.8, 0.999])
def test_two_towns_always_leave_somebody_to_learn_from(small_town: Small, tmp_path: Path, share: float) -> None:
    pytest.importorskip("torch")
    stages = f"[{{cycle: 0, mode: ppo, epochs: 12, bc_weight: 0.5, scripted_share: {share}}}]"
    config = small_town(f"training.anneal_schedule={stages}", "training.horizon=2")
    TrainingHarness(config).run_anneal(RunOptions(run_dir=tmp_path / "a"))
    records = list(read_records(tmp_path / "a" / "ppo.ndjson"))
    assert len(records) == 12
    assert all(2 <= record["transitions"] < 2 * 2 * 8 for record in records)  # one of each town at least, never all


def test_a_central_critic_is_cloned_and_then_improved(small_town: Small, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    summary = TrainingHarness(small_town(SCHEDULE, "policy.critic=central")).run_anneal(RunOptions(run_dir=tmp_path / "a"))
    assert [stage.mode for stage in summary.stages][:2] == ["bc", "ppo"]
    assert summary.checkpoint is not None
    assert load_checkpoint(summary.checkpoint).state["network"]["town_size"] == 8


def test_a_stage_in_which_nobody_learns_is_refused(small_town: Small) -> None:
    with pytest.raises(ConfigError, match=r"cycle 1 is a ppo stage with scripted_share 1: nobody is left to learn from"):
        small_town(SCHEDULE.replace("bc_weight: 0.5, scripted_share: 0.5", "bc_weight: 0.5, scripted_share: 1.0"))


def test_a_stage_that_falls_is_rolled_back_and_the_mix_is_frozen(small_town: Small, tmp_path: Path) -> None:
    four = SCHEDULE[:-1] + ", {cycle: 3, mode: ppo, epochs: 1, bc_weight: 0.0, scripted_share: 0.0}]"
    harness, _ = fakes(small_town(four), [0.0, 9.0, 10.0, 11.0, 2.0, 11.5])
    summary = harness.run_anneal(RunOptions(run_dir=tmp_path / "a"))
    assert summary.status == "HOLD"
    assert summary.reasons == ("stage 2: return per resident-day fell from 11.00 to 2.00, below 7.70",)
    assert summary.stages[2].rolled_back_to is not None
    assert "01_ppo" in summary.stages[2].rolled_back_to
    assert (FakeStage.plans[3].bc_weight, FakeStage.plans[3].scripted_share) == ((0.5, 0.5), 0.5)
    assert summary.checkpoint is not None
    assert load_checkpoint(summary.checkpoint).weights["w"].tolist() == [3.0]  # bc, 1, (2 is undone), 3


def test_two_bad_stages_running_end_the_run(small_town: Small, tmp_path: Path) -> None:
    harness, _ = fakes(small_town(SCHEDULE), [0.0, 9.0, 10.0, 1.0, 1.0])
    summary = harness.run_anneal(RunOptions(run_dir=tmp_path / "a"))
    assert summary.status == "FAIL"
    assert summary.checkpoint is not None
    assert load_checkpoint(summary.checkpoint).weights["w"].tolist() == [1.0]


def test_a_stage_that_diverges_is_rolled_back(small_town: Small, tmp_path: Path) -> None:
    harness, _ = fakes(small_town(SCHEDULE), [0.0, 9.0, 10.0, 11.0])
    FakeStage.diverge_in = 1
    summary = harness.run_anneal(RunOptions(run_dir=tmp_path / "a"))
    assert summary.status == "HOLD"
    assert "not a number" in summary.reasons[0]


def test_finished_stages_are_not_made_again(small_town: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness, _ = fakes(small_town(SCHEDULE), [0.0, 9.0, 10.0, 11.0, 12.0])
    whole = harness.run_anneal(RunOptions(run_dir=tmp_path / "whole"))
    harness, scores = fakes(small_town(SCHEDULE), [0.0, 9.0, 10.0, 11.0, 12.0])
    real = FakePPO.run

    class Killed(BaseException):
        pass

    def killed(self: FakePPO, context: TrainingContext) -> PPOTrainingResult:
        if context.plan.cycle == 2:
            raise Killed
        return real(self, context)

    monkeypatch.setattr(FakePPO, "run", killed)
    with pytest.raises(Killed):
        harness.run_anneal(RunOptions(run_dir=tmp_path / "parts"))
    monkeypatch.setattr(FakePPO, "run", real)
    assert len(FakeStage.plans) == 2
    parts = harness.run_anneal(RunOptions(run_dir=tmp_path / "parts", resume=True))
    assert len(FakeStage.plans) == 3
    assert parts.status == whole.status
    assert parts.weights_hash == whole.weights_hash
    assert scores.asked.count("random") == 1


def point(**values: float) -> EvaluationPoint:
    intervals = {name: MeasureInterval(value=value, low=value - 0.5, high=value + 0.5) for name, value in values.items()}
    return EvaluationPoint(epoch=1, steps=1, measures=intervals)


@pytest.mark.parametrize(
    ("now", "fired"),
    [
        (point(**{"return": 10.0, "conflicts": 4.0}), 0),
        (point(**{"return": 10.0, "conflicts": 4.55}), 0),  # 14 % more
        (point(**{"return": 10.0, "conflicts": 4.7}), 1),  # 17.5 % more and outside the interval
        (point(**{"return": 7.1, "conflicts": 4.0}), 0),  # 29 % of the way back to random
        (point(**{"return": 6.9, "conflicts": 4.0}), 1),
        (point(**{"return": 30.0, "conflicts": 1.0}), 0),  # better is never a fault
    ],
)
def test_score_guards_are_one_sided_and_leave_the_interval_alone(now: EvaluationPoint, fired: int) -> None:
    good = point(**{"return": 10.0, "conflicts": 4.0})
    random = {"return": MeasureInterval(value=0.0, low=-1.0, high=1.0)}
    assert len(score_guards(now, good, random, {}, AnnealGuardsConfig())) == fired


def test_a_rise_inside_the_interval_of_the_good_stage_does_not_fire() -> None:
    good, now = point(conflicts=1.0), point(conflicts=1.4)  # 40 % more, but the interval reaches to 1.5
    assert score_guards(now, good, {}, {}, AnnealGuardsConfig()) == ()


def test_no_more_conflicts_than_the_script_is_no_fault() -> None:
    good, now = point(conflicts=1.0), point(conflicts=2.4)
    assert len(score_guards(now, good, {}, {}, AnnealGuardsConfig())) == 1
    scripted = {"conflicts": MeasureInterval(value=2.3, low=2.2, high=2.45)}
    assert score_guards(now, good, {}, scripted, AnnealGuardsConfig()) == ()
    assert len(score_guards(point(conflicts=2.7), good, {}, scripted, AnnealGuardsConfig())) == 1


def test_update_guards_and_flags() -> None:
    bounds = AnnealGuardsConfig()
    assert update_guards(ppo_result(loss_value=1.9), 1.0, bounds) == ()
    assert len(update_guards(ppo_result(loss_value=2.1, kl_k3=0.2), 1.0, bounds)) == 2


def figures(losses: Iterable[float], conflicts: Iterable[float], intensity: float, days: float) -> list[EpochFigures]:
    return [
        EpochFigures(loss_value=loss, conflicts=count, intensity=intensity * count, resident_days=days)
        for loss, count in zip(losses, conflicts)
    ]


def test_the_flags_of_epochs_judge_conflicts_per_resident_day() -> None:
    bounds = AnnealGuardsConfig()
    good = figures([1.0, 1.1, 0.9, 1.0], [90, 110, 95, 105], 0.5, days=100)
    assert epoch_flags(good, (), bounds) == {}  # there was no good stage yet
    larger = figures([2.5, 2.6, 2.4, 2.5], [180, 220, 190, 210], 0.5, days=200)  # as many conflicts in a day as before
    assert epoch_flags(larger, good, bounds) == {
        "anneal_loss_flag": True,
        "anneal_queue_flag": False,
        "anneal_intensity_flag": False,
    }
    harsher = figures([1.0] * 4, [90, 110, 95, 105], 0.9, days=100)
    assert [name for name, flag in epoch_flags(harsher, good, bounds).items() if flag] == ["anneal_intensity_flag"]
    doubled = figures([1.0] * 4, [180, 220, 190, 210], 0.5, days=100)
    assert epoch_flags(doubled, good, bounds)["anneal_queue_flag"]
    assert not any(epoch_flags(doubled[:3], good, bounds).values())  # too few to say anything
    by_the_clock = figures([1.0] * 8, [80, 400, 150, 240] * 2, 0.5, days=100)  # the swing of a day is no rise
    assert not epoch_flags(by_the_clock[2:6], by_the_clock, bounds)["anneal_queue_flag"]
    assert not epoch_flags(by_the_clock[1:5], by_the_clock[:4], bounds)["anneal_queue_flag"]


def test_the_baselines_are_means_over_the_last_epochs_of_the_good_stage() -> None:
    assert baselines(figures([1.0, 3.0], [10, 30], 0.5, days=10)) == {
        "anneal_loss_baseline": 2.0,
        "anneal_queue_baseline": 20.0,
        "anneal_intensity_baseline": 10.0,
    }


def test_real_stages_share_one_network_and_one_log_and_resume_bit_for_bit(
    small_town: Small, stop_after: Any, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    lenient = [f"training.anneal_guards.{guard}" for guard in ("conflict_rise=100", "kl_bound=10", "return_fall=1.0")]
    config = small_town(SCHEDULE, *lenient, "ppo.learning_rate=1e-5")  # what is learned here is little, and must do no harm
    whole = TrainingHarness(config).run_anneal(RunOptions(run_dir=tmp_path / "whole"))
    assert len(whole.stages) == 3
    log = tmp_path / "whole" / "ppo.ndjson"
    assert validate_log([log]).problems == []
    records = list(read_records(log))
    assert [record["anneal_cycle"] for record in records] == [1, 1, 2, 2]
    assert records[0]["anneal_bc_accuracy"] == whole.stages[0].bc.accuracy  # type: ignore[union-attr]
    assert records[2]["anneal_loss_baseline"] == pytest.approx((records[0]["loss_value"] + records[1]["loss_value"]) / 2)
    with pytest.raises(InterruptedRun):  # two cloning epochs, two of stage 1, one of stage 2
        TrainingHarness(config, progress=stop_after(5)).run_anneal(RunOptions(run_dir=tmp_path / "parts"))
    (tmp_path / "parts").rename(tmp_path / "moved")  # a run goes on wherever its folder is
    parts = TrainingHarness(config).run_anneal(RunOptions(run_dir=tmp_path / "moved", resume=True))
    assert parts.weights_hash == whole.weights_hash
    assert parts.status == whole.status
    left, right = (list(read_records(tmp_path / name / "ppo.ndjson")) for name in ("whole", "moved"))
    assert [r["policy_hash"] for r in left] == [r["policy_hash"] for r in right]
    assert [r["log_stream_offset"] for r in right] == [1, 2, 3, 4]


def test_a_sabotaged_stage_is_caught_rolled_back_and_reported(small_town: Small, tmp_path: Path) -> None:
    """The learning rate of stage 2 is multiplied by a hundred; stage 3 goes on from what stage 1 left."""
    pytest.importorskip("torch")
    from townlet.policy.training.strategies.anneal import AnnealStrategy
    from townlet.policy.training.strategies.bc import BCStrategy
    from townlet.policy.training.strategies.ppo import PPOStrategy

    class Sabotaged(PPOStrategy):
        def prepare(self, context: TrainingContext) -> None:
            super().prepare(self._worse(context))

        def run(self, context: TrainingContext) -> PPOTrainingResult:
            return super().run(self._worse(context))

        @staticmethod
        def _worse(context: TrainingContext) -> TrainingContext:
            if context.plan.cycle != 2:
                return context
            ppo = context.config.ppo.model_copy(update={"learning_rate": 100 * context.config.ppo.learning_rate})
            return replace(context, config=context.config.model_copy(update={"ppo": ppo}))

    schedule = SCHEDULE.replace("}]", "}, {cycle: 3, mode: ppo, epochs: 1, bc_weight: 0.0, scripted_share: 0.0}]")
    config = small_town(schedule, "ppo.learning_rate=1e-3", "ppo.target_kl=null")
    services = TrainingServices.of(config)
    services.evaluation = Scores([0.0, 9.0, 10.0, 10.0, 10.0, 10.0])  # type: ignore[assignment]
    loaders: Mapping[str, Any] = {"bc": BCStrategy, "ppo": Sabotaged, "anneal": AnnealStrategy}
    harness = TrainingHarness(config, services=services, strategies=loaders)
    summary = harness.run_anneal(RunOptions(run_dir=tmp_path / "run"))
    before, sabotaged, after = summary.stages[1:]
    assert before.guards == ()
    assert any(sentence.startswith(("kl_k3", "value loss")) for sentence in sabotaged.guards)
    assert before.ppo is not None
    assert after.ppo is not None
    assert sabotaged.rolled_back_to == before.ppo.checkpoint
    assert after.ppo.weights_hash_start == before.ppo.weights_hash
    assert summary.status == "HOLD"
    assert any(reason.startswith("stage 2: ") for reason in summary.reasons)


def test_logits_are_raised_after_the_cloning_and_once(small_town: Small, tmp_path: Path) -> None:
    """Before it, cloning would undo what is raised. A name that is not there is refused before the cloning."""
    raised = ("training.first_logits={home: 30.0}", "ppo.learning_rate=1e-9", "training.anneal_guards.kl_bound=100")
    TrainingHarness(small_town(SCHEDULE, *raised)).run("anneal", RunOptions(run_dir=tmp_path / "run"))
    clone, first, second = (
        load_checkpoint(tmp_path / "run" / "stages" / stage / "checkpoints" / "latest").weights["policy.bias"]
        for stage in ("00_bc", "01_ppo", "02_ppo")
    )
    assert np.abs(clone).max() < 5.0
    assert first[2] - clone[2] == pytest.approx(30.0, abs=1e-3)
    assert second[2] == pytest.approx(first[2], abs=1e-3)
    with pytest.raises(UsageError, match="no action 'rezerve'"):
        TrainingHarness(small_town(SCHEDULE, "training.first_logits={rezerve: 4.0}")).run(
            "anneal", RunOptions(run_dir=tmp_path / "no")
        )
    assert not (tmp_path / "no" / "stages").exists()
