"""One epoch of PPO: a collection and its update, or a pass over stored data. Both drive the same network and optimiser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from time import perf_counter

import numpy as np

from townlet.errors import UsageError
from townlet.policy.replay import ReplayBatch, ReplayDataset
from townlet.policy.sample_metrics import RIVALRY_FIELDS
from townlet.policy.training.batches import UpdateStats
from townlet.policy.training.collect import Collector
from townlet.policy.training.contexts import TrainingContext
from townlet.policy.training.pool import CollectorPool
from townlet.policy.training.session import Session, make_learner
from townlet.policy.training.sources import replay_batch, rollout_batch, script_batch
from townlet.policy.training.telemetry import EpochData, replay_town, town_record
from townlet.types import Array

LARGE = 100e6  # bytes of a rollout above which its cost is announced
PROBE = 2  # decisions that the cost is measured over


def horizon(context: TrainingContext) -> int:
    """Decisions per resident and collection: `training.rollout_ticks` when set, else `training.horizon`."""
    training, interval = context.config.training, context.config.policy.interval
    return training.horizon if training.rollout_ticks is None else max(1, training.rollout_ticks // interval)


def chunks(context: TrainingContext, collector: Collector | CollectorPool) -> list[int]:
    """Decisions of the parts in which a collection is made and learned from: one, unless `training.rollout_mb` bounds it."""
    whole, bound = horizon(context), context.config.training.rollout_mb
    if bound is None:
        return [whole]
    fits = max(1, int(bound * 1e6 / collector.decision_bytes) - 1)  # a rollout has one more row
    return [len(part) for part in np.array_split(np.arange(whole), -(-whole // fits))]


def announce_epoch_cost(session: Session, context: TrainingContext) -> None:
    """For large towns, say before the start how long an epoch takes and how much memory: a few decisions are collected, a learner
    that is thrown away learns from them, and the towns are set back."""
    if session.collector is None:
        return
    collector, parts = session.towns, chunks(context, session.towns)
    if len(parts) == 1 and collector.decision_bytes * parts[0] < LARGE:
        return
    world, script = collector.world(), {"ask_script": context.plan.bc_weight_at(0.0) > 0}
    collector.collect(session.learner, 1, **script)  # what is compiled or allocated once
    started = perf_counter()
    rollout = collector.collect(session.learner, PROBE, **script)
    make_learner(context).update(rollout_batch(rollout, session.learner.ppo))
    minutes = (perf_counter() - started) * horizon(context) / PROBE / 60
    collector.restore_world(world)
    people, size = rollout.actions[0].size, collector.decision_bytes * (max(parts) + 1) / 1e6
    context.progress.say(
        f"an epoch: {horizon(context)} decisions of {people:,} residents, {len(parts)} chunk(s) of at most {size:,.0f} MB; about "
        f"{minutes:.1f} min each, {minutes * (context.epochs - session.counters.epoch):.0f} min for all that are left"
    )


def scripted_share(context: TrainingContext, progress: float) -> float:
    """The share of the anneal stage. Outside one, with `anneal_enable_policy_blend`: the first of the schedule, falling to 0."""
    training = context.config.training
    if context.plan.cycle >= 0 or not training.anneal_enable_policy_blend:
        return context.plan.scripted_share
    return next((stage.scripted_share for stage in training.anneal_schedule if stage.mode == "ppo"), 0.0) * (1.0 - progress)


def resident_days(decisions: int, interval: int, context: TrainingContext) -> float:
    """Days lived in this many decisions, summed over residents."""
    return decisions * interval / context.config.world.ticks_per_day


def rollout_epoch(session: Session, context: TrainingContext, progress: float) -> EpochData:
    """A collection and its update, chunk by chunk."""
    data = EpochData()
    for decisions in chunks(context, session.towns):
        data.add(_rollout_chunk(session, context, progress, decisions))
    return data


def _rollout_chunk(session: Session, context: TrainingContext, progress: float, decisions: int) -> EpochData:
    collector, learner = session.towns, session.learner
    bc_weight = context.plan.bc_weight_at(progress)
    started = perf_counter()
    for _ in range(1 + context.config.scenario.episode_ticks // (decisions * context.config.policy.interval)):
        rollout = collector.collect(
            learner,
            decisions,
            ask_script=bc_weight > 0,
            scripted_share=scripted_share(context, progress),
            epsilon=context.config.training.bc.epsilon,
        )
        session.counters.cycle += 1
        if rollout.learning.any():
            break
    else:
        raise UsageError(
            "no resident took a decision in a whole episode, so there is nothing to learn from; give the scenario "
            "residents, or use --rollout-auto-seed-agents"
        )
    seconds = perf_counter() - started
    script = script_batch(rollout) if bc_weight > 0 else None
    batch = rollout_batch(rollout, learner.ppo)
    columns = [collector.spec.offsets[name] for name in RIVALRY_FIELDS]
    if context.log_batches:
        batch = replace(batch, watched=batch.features[..., columns])
    update = learner.update(batch, progress=progress, bc_batch=script, bc_weight=bc_weight)
    days = resident_days(rollout.decided, context.config.policy.interval, context)
    learning = rollout.learning
    data = EpochData(
        updates=[update],
        minibatches=learner.minibatches,
        town=town_record(rollout.tally, days),
        resident_days=days,
        earned=float(rollout.rewards.sum(dtype=np.float64, where=learning)),
        earning_days=resident_days(int(learning.sum()), context.config.policy.interval, context),
        returns=rollout.life_returns,
        lengths=rollout.life_lengths,
        ticks=decisions * context.config.policy.interval,
        simulated=rollout.decided,
        sim_seconds=seconds,
    )
    live = rollout.active[:-1]
    data.rivalry.add(*rollout.features[:-1][..., columns][live].T)
    return data


class ReplayTally:
    """What goes into the record of an epoch about the stored data it read; batches are added one by one."""

    def __init__(self, dataset: ReplayDataset, context: TrainingContext) -> None:
        self.dataset, self.context = dataset, context
        self._data = EpochData(baseline=dataset.baseline_metrics())
        self._metrics: list[Mapping[str, object]] = []
        self._exits = 0

    def add(self, batch: ReplayBatch) -> list[Array]:
        """Add a batch; returns the two rivalry features (T, B) of its decisions as they were observed."""
        data, names = self._data, batch.metadata[0].feature_names
        seen = (batch.features[: batch.steps, :, names.index(name)] for name in RIVALRY_FIELDS)
        rivalry = [_as_observed(self.dataset, column, name) for column, name in zip(seen, RIVALRY_FIELDS)]
        data.rivalry.add(*rivalry)
        data.masked = data.masked and batch.masks is not None
        self._exits += int(batch.terminated.sum())
        for meta in batch.metadata:
            found = self.dataset.metrics(meta)
            self._metrics.append(found)
            if found.get("episode_return") is not None:
                data.dataset_returns.append(float(found["episode_return"]))
            data.resident_days += resident_days(meta.timesteps, meta.decision_interval, self.context)
        return rivalry

    def data(self) -> EpochData:
        return replace(self._data, town=replay_town(self._metrics, self._exits, self._data.resident_days))


def replay_epoch(session: Session, context: TrainingContext, progress: float, dataset: ReplayDataset) -> EpochData:
    """One pass; order by seed and epoch, one update per batch of samples."""
    tally, updates, minibatches = ReplayTally(dataset, context), [], []
    dataset.set_epoch(session.counters.epoch)
    for batch in dataset:
        rivalry = tally.add(batch)
        watched = np.stack(rivalry, axis=-1) if context.log_batches else None
        updates.append(_learn(session, batch, watched, progress))
        minibatches += session.learner.minibatches
    return replace(tally.data(), updates=updates, minibatches=minibatches)


def require_updates(data: EpochData, epoch: int, target_kl: float | None) -> None:
    """Refuse an epoch that changed nothing, before its record is written."""
    if not data.updates:
        raise UsageError(
            "no decision was left to learn from: the replay data gave no batch; lower training.replay.batch_size, or do not "
            "drop the last batch"
        )
    if not any(update.updates for update in data.updates):
        raise UsageError(
            f"epoch {epoch} made no update: kl_k3 to the policy that made the data is {data.updates[0].kl_k3_max:.3g} before the "
            f"first step, above ppo.target_kl={target_kl or 0.0:g}; leave ppo.target_kl out, or learn off-policy with "
            "--algorithm awr"
        )


def _learn(session: Session, batch: ReplayBatch, watched: Array | None, progress: float) -> UpdateStats:
    """A function of its own: what is learned from is freed at its end, before the next batch is made."""
    given = replay_batch(batch, session.learner)
    return session.learner.update(given if watched is None else replace(given, watched=watched), progress=progress)


def _as_observed(dataset: ReplayDataset, column: Array, name: str) -> Array:
    """A feature as it was observed, when the dataset hands it out normalised."""
    normalizer = dataset.normalizer
    if normalizer is None or name not in normalizer.names:
        return column
    k = normalizer.names.index(name)
    return np.clip(column * normalizer.std[k] + normalizer.mean[k], 0.0, 1.0)
