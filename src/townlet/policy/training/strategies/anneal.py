"""Anneal: a schedule of cloning and PPO stages over one network, guarded, with a way back to the last good stage."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import ClassVar, Literal

from townlet.config.learning import AnnealStage
from townlet.dto.policy import AnnealSummary, EvaluationPoint, MeasureInterval
from townlet.errors import DivergedError, InterruptedRun, UsageError
from townlet.policy.checkpoint import load_checkpoint
from townlet.policy.training.anneal import Tracker, cloning_gate, stage_guards
from townlet.policy.training.contexts import StagePlan, TrainingContext, TrainingResult
from townlet.policy.training.run_folder import RunFolder
from townlet.policy.training.services import intervals
from townlet.policy.training.strategies.base import TrainingStrategy

STRIKES = 2  # guards that fire in this many PPO stages in a row end the run


class AnnealStrategy:
    name: ClassVar[str] = "anneal"
    requires_torch: ClassVar[bool] = False  # its stages need it, and say so when they are loaded

    def __init__(self) -> None:
        self._ready: dict[str, TrainingStrategy] = {}  # prepared, for the first stage of their kind

    def prepare(self, context: TrainingContext) -> None:
        """Let every kind of stage check its inputs; a ledger that cannot be used is told now, not when all is trained."""
        if context.config.training.promote:
            context.services.promotion.releases.entries()
        modes = [stage.mode for stage in context.config.training.anneal_schedule]
        for mode in sorted(set(modes)):
            probe = context.stage("probe", mode=_data_mode(mode), epochs=context.epochs, plan=StagePlan())
            self._ready[mode] = context.strategy(mode)
            self._ready[mode].prepare(probe)
            context.disk_needed += modes.count(mode) * probe.disk_needed
            context.note_data(probe.dataset_hash, probe.dataset_source)

    def run(self, context: TrainingContext) -> AnnealSummary:
        started = perf_counter()
        if context.run is None:
            raise UsageError("an anneal run keeps its stages in a run folder; name one with --run-dir")
        context.run.recover()
        schedule = context.config.training.anneal_schedule
        tracker = Tracker.read(context.run.path)
        if not tracker.random:
            tracker.random = intervals(context.services.evaluation.score("random"))
            tracker.scripted = intervals(context.services.evaluation.score("scripted"))
        for stage in schedule[len(tracker.done) :]:
            if tracker.strikes >= STRIKES or context.seconds_left < 0:
                break
            before = tracker.done[-1].bc_weight if tracker.done else stage.bc_weight
            self._stage(context, tracker, stage, before)
            tracker.write(context.run.path)
            if context.stop.asked:
                raise context.stop.interruption(f"after stage {stage.cycle}; the state is saved in {context.run.path}")
        return self._summary(context, context.run, tracker, perf_counter() - started)

    def _stage(self, context: TrainingContext, tracker: Tracker, stage: AnnealStage, before: float) -> None:
        weight, share = stage.bc_weight, stage.scripted_share
        if tracker.frozen and tracker.mix is not None and stage.mode == "ppo":
            weight, share = tracker.mix
        plan = StagePlan(
            cycle=stage.cycle,
            bc_weight=(weight if tracker.frozen else before, weight),
            scripted_share=share,
            start_from=context.plan.start_from if tracker.good is None else Path(tracker.good),
            notes=tracker.notes | {"anneal_cycle": stage.cycle, "anneal_stage": stage.mode},
            good_epochs=tracker.good_epochs,
            steps=tracker.steps,
            collections=tracker.cycle,
            log_position=tracker.log or None,
        )
        name, share_of_time = f"{stage.cycle:02d}_{stage.mode}", self._share_of_time(context, stage)
        inner = context.stage(name, mode=_data_mode(stage.mode), epochs=stage.epochs, plan=plan, share=share_of_time)
        words = ["clone the script" if stage.mode == "bc" else "PPO"]
        if stage.mode == "ppo" and any(plan.bc_weight):
            words.append(f"cloning loss × {plan.bc_weight[0]:g} → {weight:g}")
        if stage.mode == "ppo" and share:
            words.append(f"the script decides for {share:.0%} of the residents")
        context.progress.say(f"stage {stage.cycle}: {', '.join(words)}")
        strategy = self._ready.pop(stage.mode, None)
        if strategy is None:
            strategy = context.strategy(stage.mode)
            strategy.prepare(inner)
        guards: tuple[str, ...] = ()
        result: TrainingResult | None = None
        point: EvaluationPoint | None = None
        try:
            result = strategy.run(inner)
        except DivergedError as error:
            guards = (str(error),)
        if result is not None and result.checkpoint is not None:
            scores = self._scores(context, stage, result.checkpoint)
            point = EvaluationPoint(epoch=stage.epochs, steps=tracker.steps, measures=scores)
            guards = stage_guards(result, point, tracker, context.config.training.anneal_guards)
        if tracker.mix is None and stage.mode == "ppo":
            tracker.mix = (before, share)
        tracker.add_stage(stage, (weight, share), result, point, guards)
        tracker.log = dict(context.telemetry.position())
        for sentence in guards:
            context.progress.say(f"stage {stage.cycle}: {sentence}; back to {tracker.good}")

    @staticmethod
    def _scores(context: TrainingContext, stage: AnnealStage, checkpoint: str) -> dict[str, MeasureInterval]:
        """Of a stage that has ended; a resume after a stop in the middle comes here again."""
        try:
            return intervals(context.services.evaluation.score(checkpoint, context.stop.is_asked))
        except InterruptedRun:
            where = None if context.run is None else context.run.path
            raise context.stop.interruption(f"after stage {stage.cycle}; the state is saved in {where}") from None

    @staticmethod
    def _share_of_time(context: TrainingContext, stage: AnnealStage) -> float:
        """Of the time left: cloning may take all it needs, PPO stages share the rest by their epochs."""
        ahead = [s.epochs for s in context.config.training.anneal_schedule if s.mode == "ppo" and s.cycle >= stage.cycle]
        return stage.epochs / sum(ahead) if stage.mode == "ppo" else 1.0

    def _summary(self, context: TrainingContext, run: RunFolder, tracker: Tracker, seconds: float) -> AnnealSummary:
        reasons = [f"stage {stage.cycle}: {guard}" for stage in tracker.done for guard in stage.guards]
        reasons += [
            f"stage {stage.cycle}: {cloning_gate(stage.bc)}" for stage in tracker.done if stage.bc and not stage.bc.passed
        ]
        left = context.config.training.anneal_schedule[len(tracker.done) :]
        if left and tracker.strikes < STRIKES:
            reasons.append(f"stage {left[0].cycle}: training.time_limit was over before it began")
        status: Literal["PASS", "HOLD", "FAIL"] = "HOLD" if reasons else "PASS"
        if tracker.strikes >= STRIKES or (tracker.done and tracker.done[-1].guards and tracker.good is None):
            status = "FAIL"
        kept = None if tracker.good is None else run.save(len(tracker.done), load_checkpoint(tracker.good), best=True)
        judged = None
        if kept is not None and status == "PASS" and context.config.training.promote:
            judged = context.services.promotion.consider(kept, run.path / "promotion_scorecard.json")
        return AnnealSummary(
            duration_sec=seconds,
            run_dir=str(run.path),
            checkpoint=None if kept is None else str(kept),
            dataset_hash=context.dataset_hash,
            status=status,
            reasons=tuple(reasons),
            epochs=sum(stage.epochs_made for stage in tracker.done),
            stages=tuple(tracker.done),
            promotion=judged,
            telemetry_log=None if context.telemetry.path is None else str(context.telemetry.path),
            weights_hash=None if kept is None else str(load_checkpoint(kept).state["weights_hash"]),
        )


def _data_mode(mode: str) -> str:
    return "rollout" if mode == "ppo" else mode
