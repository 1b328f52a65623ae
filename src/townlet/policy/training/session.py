"""A training run: the learner, its towns and counters, and the checkpoints from which it continues bit for bit."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field, ValidationError

from townlet.config.base import nearest_name
from townlet.config.models import SimulationConfig, config_hash
from townlet.dto.policy import EpochFigures, EvaluationPoint
from townlet.errors import CheckpointError, DivergedError, InterruptedRun, UsageError, first_problem
from townlet.observations.spec import ObservationSpec
from townlet.policy.checkpoint import Checkpoint, load_checkpoint, weights_hash
from townlet.policy.inference import weight_shapes
from townlet.policy.network import NetworkSpec
from townlet.policy.replay import ReplayDataset, ReplayDatasetConfig
from townlet.policy.runtime import NetworkPolicy
from townlet.policy.training.batches import LearnerState
from townlet.policy.training.collect import Collector
from townlet.policy.training.contexts import TrainingContext
from townlet.policy.training.pool import CollectorPool
from townlet.policy.training.run_folder import disk_estimate
from townlet.policy.training.services import RolloutCaptureService, intervals
from townlet.policy.training.sources import check_samples
from townlet.policy.training.strategies import strategy_of
from townlet.policy.workers import learner_threads
from townlet.scenarios.compile import compile_town
from townlet.world.actions import Catalogue

if TYPE_CHECKING:
    from townlet.policy.training.learner import PPOLearner

RECENT = 12  # epochs that the counters remember
LOG_START = {"rotation": 0, "byte": 0, "offset": 0, "epochs": 0, "records_dropped": 0}  # position of a log without records


class RunCounters(BaseModel):
    """How far a run has come: the counters of a checkpoint."""

    epoch: int = 0  # finished
    updates: int = 0  # optimiser steps
    steps: int = 0  # decisions trained on
    cycle: int = -1  # collections
    loss_value_first: float | None = None
    last_return: float | None = None  # of the episodes that ended last
    last: dict[str, object] = Field(default_factory=dict)  # the last record
    recent: list[EpochFigures] = Field(default_factory=list)  # of the last epochs, for the guards of anneal stages
    evaluations: list[EvaluationPoint] = Field(default_factory=list)
    best: float | None = None  # highest return, or lowest held-out loss of cloning
    best_epoch: int = 0
    stale: int = 0  # cloning: epochs since the best
    weights_hash_start: str = ""
    finished: bool = False

    def remember(self, record: Mapping[str, object], resident_days: float) -> None:
        conflicts, intensity = record["queue_conflict_events"], record["queue_conflict_intensity_sum"]
        now = EpochFigures(loss_value=record["loss_value"], conflicts=conflicts, intensity=intensity, resident_days=resident_days)
        self.recent = [*self.recent, now][-RECENT:]


def network_spec(config: SimulationConfig) -> NetworkSpec:
    """The network that a config asks for; a device that is not there is refused here, before anything is written."""
    from townlet.policy.training.autograd import check_device  # imports torch

    check_device(config.training.device)
    town_size = 0
    if config.policy.critic == "central":
        town_size = max(len(compile_town(one).layout.residents) for one in RolloutCaptureService(config).layouts())
    return NetworkSpec.of(ObservationSpec.of(config), config.policy.network, config.ppo, town_size)


def offline_spec(config: SimulationConfig) -> NetworkSpec:
    """The network that learns from stored decisions alone. It normalises what it observes by the data's own statistics; without
    them 64 scripted lives are not enough to learn from."""
    return replace(network_spec(config), normalize_observations=True)


def make_learner(context: TrainingContext) -> PPOLearner:
    from townlet.policy.training.learner import PPOLearner  # imports torch
    from townlet.policy.training.offline import OfflineLearner

    config, training = context.config, context.config.training
    if strategy_of(context.mode, training.algorithm) == "offline":
        settings = (training.algorithm, training.offline)
        return OfflineLearner(offline_spec(config), config.ppo, *settings, seed=context.seed, threads=training.threads)
    return PPOLearner(
        network_spec(config),
        config.ppo,
        seed=context.seed,
        threads=training.threads,
        workers=learner_threads(training),
        shards=training.shards,
        device=training.device,
    )


def raised_logits(config: SimulationConfig) -> dict[int, float]:
    """Number of an action → what its logit is raised by before the first live epoch (`training.first_logits`)."""
    names = ObservationSpec.of(config).action_names
    for name in config.training.first_logits:
        if name not in names:
            raise UsageError(f"training.first_logits: there is no action {name!r}; {nearest_name(name, names)}")
    return {names.index(name): raised for name, raised in config.training.first_logits.items()}


def open_samples(
    context: TrainingContext, spec: NetworkSpec, source: ReplayDatasetConfig | ReplayDataset | None
) -> ReplayDataset:
    """The stored samples that a run learns from; those that the network could not read are refused."""
    if spec.town_size:
        raise UsageError(
            "policy.critic is 'central', which values whole towns, but stored samples are single lives; set it to own"
        )
    data = context.services.replay.build(source)
    check_samples(data, context.config, needs_map=spec.sees_map)
    context.note_data(data.hash, data.config.source)
    return data


@dataclass
class Session:
    learner: PPOLearner
    counters: RunCounters
    collector: Collector | CollectorPool | None = None

    @property
    def towns(self) -> Collector | CollectorPool:
        if self.collector is None:
            raise UsageError("this run learns from stored data alone and has no towns to collect from")
        return self.collector

    @property
    def weights_hash(self) -> str:
        return weights_hash(self.learner.network.arrays())

    def save(
        self, context: TrainingContext, *, best: bool = False, number: int | None = None, scheduled: bool = True
    ) -> Path | None:
        """A checkpoint of everything, in the run folder, numbered by epoch; None when nothing is kept."""
        if context.run is None:
            return None
        state, collector = self.learner.state(), self.collector
        world = {} if collector is None else collector.world()
        seen = ObservationSpec.of(context.config)
        about = {
            "network": self.learner.spec.to_json(),
            "learner": state.meta,
            "standing": self.counters.model_dump(mode="json"),
            "telemetry": context.telemetry.position(),
            "config_hash": config_hash(context.config),
            "dataset_hash": context.dataset_hash,
            "started_from": context.started_from,
            "action_catalogue_hash": Catalogue(context.config.policy.action_level, seen.affordances).hash,
            "observation_hash": seen.hash,
            "run_id": context.run_id,
        }
        checkpoint = Checkpoint(state.weights, about, state.optimizer, world)
        return context.run.save(self.counters.epoch if number is None else number, checkpoint, best=best, scheduled=scheduled)

    def interruption(self, context: TrainingContext, after: str) -> InterruptedRun:
        """Save the state; the error that ends a run which was asked to stop."""
        saved = self.save(context, scheduled=False)
        return context.stop.interruption(f"after {after}" + (f"; the state is saved in {saved}" if saved else ""))

    def divergence(self, context: TrainingContext, what: str, error: DivergedError) -> DivergedError:
        """The error that ends a run whose loss is not a number; its last checkpoint stays intact."""
        latest = None if context.run is None else context.run.latest()
        kept = "no checkpoint had been written yet" if latest is None else f"the last good checkpoint is {latest}"
        return DivergedError(f"{what} diverged in epoch {self.counters.epoch + 1}: {error}; {kept}")

    @property
    def evaluated(self) -> bool:
        """The network as it stands has been scored."""
        return any(point.epoch == self.counters.epoch for point in self.counters.evaluations)

    def evaluate(self, context: TrainingContext) -> EvaluationPoint:
        """Score the network as it stands on the validation seed; the best so far is remembered in `counters`."""
        measures = context.services.evaluation.score(lambda vec: NetworkPolicy(self.learner, vec.seed), context.stop.is_asked)
        point = EvaluationPoint(epoch=self.counters.epoch, steps=self.counters.steps, measures=intervals(measures))
        self.counters.evaluations.append(point)
        return point


class LearnerMeta(BaseModel):
    optimizer: str
    optimizer_steps: int
    updates: int
    gradient_steps: int
    seed: int


class TrainingState(BaseModel):
    """What a training must find in the state of a checkpoint to go on from it."""

    learner: LearnerMeta
    counters: RunCounters = Field(alias="standing")  # its name in the file
    telemetry: dict[str, int | str]


def training_state(found: Checkpoint, place: Path) -> TrainingState:
    try:
        state = TrainingState.model_validate_json(json.dumps(found.state))
    except ValidationError as error:
        raise CheckpointError(f"{place} cannot be continued from ({first_problem(error)}); train again") from None
    if state.telemetry and (
        set(LOG_START) - set(state.telemetry) or any(type(state.telemetry[name]) is not int for name in LOG_START)
    ):
        raise CheckpointError(f"{place} does not say where its log stood; train again")
    return state


def social_stage(context: TrainingContext, epoch: int) -> SimulationConfig:
    """The config with the social rewards that `training.social_reward_schedule` says for this anneal stage, or this epoch."""
    config, cycle = context.config, context.plan.cycle if context.plan.cycle >= 0 else epoch
    reached = [entry.stage for entry in config.training.social_reward_schedule if entry.cycle <= cycle]
    if not reached:
        return config
    stages = config.features.stages.model_copy(update={"social_rewards": reached[-1]})
    return config.model_copy(update={"features": config.features.model_copy(update={"stages": stages})})


def make_collector(context: TrainingContext, spec: NetworkSpec, epoch: int = 0) -> Collector | CollectorPool:
    """The towns of a run: in this process, stepped by its threads, or shared out to the workers of an engine."""
    config = social_stage(context, epoch)
    if config.training.engine != "local":
        return CollectorPool(config, spec)
    vec = context.services.capture.towns(config.training.towns, stagger=True, config=config)
    partners = config.training.partners
    return Collector(vec, context.seed, maps=spec.sees_map, state_width=spec.state_width, partners=partners)


def open_session(context: TrainingContext, collector: Collector | CollectorPool | None) -> Session:
    """A new run, one that starts from a checkpoint, or the one that the run folder's latest checkpoint goes on with."""
    learner, plan = make_learner(context), context.plan
    session = Session(learner, RunCounters(steps=plan.steps, cycle=plan.collections), collector)
    run = context.run
    found = None if run is None else run.recover()
    if run is not None and found is not None:
        told = training_state(found, run.checkpoints)
        _restore(session, found)
        session.counters = told.counters
        context.telemetry.rewind(told.telemetry)
    else:
        context.telemetry.rewind(plan.log_position or LOG_START)
        collections = -1  # that the network has learned from
        if plan.start_from is None and context.started_from is not None:
            raise UsageError(
                f"the run started with the network of another checkpoint (weights {context.started_from[:12]}) and has none of "
                "its own yet; name that checkpoint again with --start-from"
            )
        if plan.start_from is not None:
            start = load_checkpoint(plan.start_from)
            collections = training_state(start, plan.start_from).counters.cycle
            _restore(session, start, with_towns=plan.collections >= 0)
        if collector is not None and collections < 0:
            for action, raised in raised_logits(context.config).items():
                learner.network.policy.bias.data[action] += raised
    if not session.counters.weights_hash_start:
        session.counters.weights_hash_start = session.weights_hash
    return session


def _restore(session: Session, found: Checkpoint, *, with_towns: bool = True) -> None:
    learner, collector = session.learner, session.collector
    expected, stored = learner.spec.to_json(), found.state["network"]
    if stored != expected:
        apart = sorted(name for name in expected if stored.get(name) != expected[name])
        raise CheckpointError(
            f"the checkpoint's network differs from the config's in {', '.join(apart)} "
            f"({stored.get(apart[0])!r} against {expected[apart[0]]!r}); use the config it was trained with"
        )
    learner.load_state(LearnerState(found.weights, found.optimizer, found.state["learner"]))
    if collector is not None and found.world and with_towns:
        collector.restore_world(found.world)


def disk_needed(context: TrainingContext, spec: NetworkSpec, collector: Collector | CollectorPool | None) -> int:
    """Bytes the run folder will hold at most."""
    weights = 4 * sum(math.prod(shape) for shape in weight_shapes(spec).values())
    world = 0 if collector is None else collector.world_bytes()
    return disk_estimate(weights, world, context.config.training.keep_checkpoints, context.epochs)
