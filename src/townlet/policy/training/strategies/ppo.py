"""PPO over live towns, stored samples, or both in turn: one network, one optimiser, one record per epoch."""

from __future__ import annotations

from contextlib import suppress
from time import perf_counter
from typing import ClassVar

from townlet.config.models import config_hash
from townlet.dto.policy import PPOTrainingResult
from townlet.errors import DivergedError, InterruptedRun
from townlet.optional import check_installed
from townlet.policy.replay import ReplayDataset
from townlet.policy.training.anneal import epoch_flags
from townlet.policy.training.bfloat16 import check_precision
from townlet.policy.training.collect import Collector
from townlet.policy.training.contexts import TrainingContext
from townlet.policy.training.epochs import announce_epoch_cost, replay_epoch, require_updates, rollout_epoch
from townlet.policy.training.pool import CollectorPool
from townlet.policy.training.session import (
    Session,
    disk_needed,
    make_collector,
    network_spec,
    open_samples,
    open_session,
    raised_logits,
    social_stage,
)
from townlet.policy.training.telemetry import EpochData, batch_records, diverged_record, epoch_record
from townlet.telemetry.schema import comparable


class PPOStrategy:
    name: ClassVar[str] = "ppo"
    requires_torch: ClassVar[bool] = True
    purpose: ClassVar[str] = "PPO training"

    def __init__(self) -> None:
        check_installed("torch", self.purpose)
        self.data: ReplayDataset | None = None
        self.collector: Collector | CollectorPool | None = None
        self._social: str = ""

    def prepare(self, context: TrainingContext) -> None:
        """Open the data and refuse what the network could not read; build the towns."""
        config, spec = context.config, network_spec(context.config)
        check_precision(config.ppo)
        if context.mode in ("replay", "mixed"):
            self.data = open_samples(context, spec, context.dataset)
        if context.mode in ("rollout", "mixed"):
            raised_logits(config)  # refuses an action that is not there, before a stage of cloning too
            self.collector = make_collector(context, spec)
            self._social = social_stage(context, 0).features.stages.social_rewards
        context.disk_needed = disk_needed(context, spec, self.collector)

    def run(self, context: TrainingContext) -> PPOTrainingResult:
        try:
            return self._run(context)
        finally:
            if self.collector is not None:
                self.collector.close()

    def _run(self, context: TrainingContext) -> PPOTrainingResult:
        started, session = perf_counter(), open_session(context, self.collector)
        counters = session.counters
        announce_epoch_cost(session, context)
        context.progress.begin(f"{self.name} {context.mode}", context.epochs, counters.epoch)
        pending = counters.epoch > 0 and self._evaluation_due(session, context) and not session.evaluated
        while pending or counters.epoch < context.epochs:
            if not pending:
                self._turn_to_social_stage(session, context)
                self._epoch(session, context)
                if counters.epoch == context.epochs:
                    context.telemetry.write_last()
            pending = False
            with suppress(InterruptedRun):  # in the middle of an evaluation, which the resumed run begins with
                self._evaluate_and_save(session, context)
            if context.stop.asked:
                raise session.interruption(context, f"epoch {counters.epoch}")
            if context.seconds_left < 0:
                break
        context.telemetry.write_last()  # of a run whose time is over
        return self._result(session, context, perf_counter() - started)

    def _epoch(self, session: Session, context: TrainingContext) -> None:
        """One epoch and its record. A loss that is not a number is logged and ends the run; its last checkpoint stays intact."""
        counters, started = session.counters, perf_counter()
        progress = counters.epoch / context.epochs
        try:
            data = self._learn(session, context, progress)
        except DivergedError as error:
            context.telemetry.write(diverged_record(counters.last, self._ids(session, context)))
            raise session.divergence(context, "training", error) from error
        require_updates(data, counters.epoch + 1, context.config.ppo.target_kl)
        counters.epoch += 1
        context.stop.begun = True
        counters.updates += sum(update.updates for update in data.updates)
        counters.steps += sum(update.transitions for update in data.updates)
        ids = self._ids(session, context)
        record = epoch_record(data, ids, perf_counter() - started)
        counters.remember(record, data.resident_days)
        record |= epoch_flags(counters.recent, context.plan.good_epochs, context.config.training.anneal_guards)
        if counters.loss_value_first is None:
            counters.loss_value_first = record["loss_value"]
        for row in batch_records(data.minibatches, ids, record["lr"]) if context.log_batches else ():
            context.telemetry.write(row)
        context.telemetry.write(record)
        counters.last = comparable(record)
        if record["episode_return_mean"] is not None:
            counters.last_return = record["episode_return_mean"]
        context.progress.advance(record)

    def _learn(self, session: Session, context: TrainingContext, progress: float) -> EpochData:
        data = EpochData()
        if self.data is not None:
            data.add(replay_epoch(session, context, progress, self.data))
        if self.collector is not None:
            data.add(rollout_epoch(session, context, progress))
        return data

    def _turn_to_social_stage(self, session: Session, context: TrainingContext) -> None:
        """Where the schedule of social rewards moves on, the same towns go on under the new rewards."""
        now, due = self._social, social_stage(context, session.counters.epoch).features.stages.social_rewards
        if session.collector is None or now == due:
            return
        world = session.collector.world()
        session.collector.close()
        self.collector = session.collector = make_collector(context, session.learner.spec, session.counters.epoch)
        session.collector.restore_world(world)
        self._social = due

    def _ids(self, session: Session, context: TrainingContext) -> dict[str, object]:
        counters = session.counters
        return {
            "epoch": counters.epoch,
            "cycle_id": counters.cycle,
            "steps": counters.steps,
            "data_mode": context.mode,
            "run_id": context.run_id,
            "config_hash": config_hash(context.config),
            "dataset_hash": context.dataset_hash,
            "policy_hash": session.weights_hash,
            **context.plan.notes,
        }

    def _evaluate_and_save(self, session: Session, context: TrainingContext) -> None:
        training, counters = context.config.training, session.counters
        last = counters.epoch == context.epochs
        best = False
        if self._evaluation_due(session, context):
            point = session.evaluate(context)
            best = counters.best is None or point.episode_return > counters.best
            counters.best = point.episode_return if best else counters.best
            context.progress.say(f"epoch {counters.epoch}: return {point.episode_return:.2f} per resident-day on held-out seeds")
        if best or last or counters.epoch % training.checkpoint_every == 0:
            session.save(context, best=best)

    def _evaluation_due(self, session: Session, context: TrainingContext) -> bool:
        every, epoch = context.config.training.eval_every, session.counters.epoch
        return bool(every) and (epoch % every == 0 or context.epochs == epoch > every)

    def _result(self, session: Session, context: TrainingContext, seconds: float) -> PPOTrainingResult:
        counters, last, run = session.counters, session.counters.last, context.run
        saved = session.save(context)
        best = None if run is None else run.best()
        return PPOTrainingResult(
            duration_sec=seconds,
            run_dir=None if run is None else str(run.path),
            checkpoint=None if saved is None else str(saved),
            dataset_hash=context.dataset_hash,
            data_mode=context.mode,
            epochs=counters.epoch,
            updates=counters.updates,
            transitions=counters.steps - context.plan.steps,
            steps=counters.steps,
            loss_policy=last["loss_policy"],
            loss_value=last["loss_value"],
            loss_value_first=counters.loss_value_first or 0.0,
            loss_entropy=last["loss_entropy"],
            loss_total=last["loss_total"],
            kl_k3=last["kl_k3"],
            episode_return_mean=counters.last_return,
            return_per_resident_day=last.get("return_per_resident_day"),
            queue_conflict_events=last["queue_conflict_events"],
            queue_conflict_intensity_sum=last["queue_conflict_intensity_sum"],
            recent=tuple(counters.recent),
            telemetry_log=None if context.telemetry.path is None else str(context.telemetry.path),
            evaluations=tuple(counters.evaluations),
            best_checkpoint=None if best is None else str(best),
            weights_hash_start=counters.weights_hash_start,
            weights_hash=session.weights_hash,
        )
