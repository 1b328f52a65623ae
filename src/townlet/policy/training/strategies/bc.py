"""Behaviour cloning: imitate the script's choice under the mask, fit the value, stop when held-out episodes say so."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from townlet.config.learning import BCConfig
from townlet.dto.policy import BCTrainingResult
from townlet.errors import DivergedError
from townlet.observations.spec import ObservationSpec
from townlet.optional import check_installed
from townlet.policy.checkpoint import load_checkpoint
from townlet.policy.replay import ReplayDataset
from townlet.policy.training.batches import LearnerState
from townlet.policy.training.bfloat16 import check_precision
from townlet.policy.training.collect import Collector
from townlet.policy.training.contexts import TrainingContext
from townlet.policy.training.demonstrations import Demonstrations, imitation, read_samples, watch_script
from townlet.policy.training.estimates import cosine_schedule
from townlet.policy.training.session import Session, disk_needed, network_spec, open_samples, open_session
from townlet.policy.trajectory import Trajectory

if TYPE_CHECKING:
    from townlet.policy.training.learner import PPOLearner

DEMONSTRATION_TOWNS = 1  # index of the training seed that demonstrations are drawn from


def cloning_rate(bc: BCConfig, epoch: int, epochs: int) -> float:
    """Step size of pass `epoch` of `epochs`."""
    return cosine_schedule(bc.learning_rate, epoch / epochs) if bc.lr_anneal else bc.learning_rate


def fit_observation_statistics(learner: PPOLearner, shown: Trajectory) -> None:
    """A network that normalises what it observes and has seen nothing yet takes its statistics from the demonstrations."""
    if learner.spec.normalize_observations and float(learner.network.observation_count[0]) == 0.0:
        learner.track_observations(shown.features[shown.active])


class BCStrategy:
    name: ClassVar[str] = "bc"
    requires_torch: ClassVar[bool] = True

    def __init__(self) -> None:
        check_installed("torch", "Behaviour cloning")
        self.source: ReplayDataset | Collector
        self._best: LearnerState | None = None

    def prepare(self, context: TrainingContext) -> None:
        """Open and check the manifest, or build the towns in which the script is watched."""
        config, spec = context.config, network_spec(context.config)
        check_precision(config.ppo)
        source = context.dataset or config.training.bc.manifest
        if source is not None:
            given = context.services.replay.dataset_config(source) if isinstance(source, str) else source
            self.source = open_samples(context, spec, given)
        else:
            vec = context.services.capture.towns(config.training.bc.towns, index=DEMONSTRATION_TOWNS)
            self.source = Collector(vec, context.seed, maps=spec.sees_map, state_width=spec.state_width)
        context.disk_needed = disk_needed(context, spec, None)

    def run(self, context: TrainingContext) -> BCTrainingResult:
        started = perf_counter()
        bc, session = context.config.training.bc, open_session(context, None)
        shown = self._demonstrations(context, session)
        train, held = shown.split(bc.validation_fraction, context.seed)
        judged = train if held is None else held
        self._recall_best(context, session)
        epochs, counters = context.epochs, session.counters
        fit_observation_statistics(session.learner, train)
        context.progress.begin("bc", epochs, counters.epoch)
        while counters.epoch < epochs and counters.stale < bc.patience and not counters.finished:
            self._epoch(session, context, train, judged, cloning_rate(bc, counters.epoch, epochs))
            if context.seconds_left < 0:
                break
            if context.stop.asked:
                raise session.interruption(context, f"cloning epoch {counters.epoch}")
        if self._best is not None:
            session.learner.load_state(self._best)
        if not counters.finished:  # the kept weights become the last checkpoint, whichever epoch they are from
            counters.finished = True
            session.save(context, best=True, number=counters.epoch + 1)
        counts = np.bincount(train.experts[train.active], minlength=session.learner.spec.actions)
        stats, choices = session.learner.assess_cloning(judged)
        scores = imitation(judged, choices, int(counts.argmax()))
        training, run = context.config.training, context.run
        passed = scores.accuracy >= training.anneal_accuracy_threshold and (
            scores.change_accuracy is not None and scores.change_accuracy >= training.anneal_change_accuracy_threshold
        )
        names = ObservationSpec.of(context.config).action_names
        return BCTrainingResult(
            duration_sec=perf_counter() - started,
            run_dir=None if run is None else str(run.path),
            checkpoint=None if run is None else str(run.latest()),
            dataset_hash=context.dataset_hash,
            dataset=shown.label,
            episodes=len(np.unique(shown.episodes)),
            held_out_episodes=0 if held is None else shown.held_out(bc.validation_fraction),
            decisions=train.rows,
            held_out_decisions=0 if held is None else held.rows,
            epochs=counters.epoch,
            best_epoch=counters.best_epoch,
            loss=stats.loss,
            accuracy=scores.accuracy,
            change_accuracy=scores.change_accuracy,
            majority_accuracy=scores.majority,
            repeat_accuracy=scores.repeat,
            class_balance={name: float(n) / max(int(counts.sum()), 1) for name, n in zip(names, counts)},
            accuracy_threshold=training.anneal_accuracy_threshold,
            change_accuracy_threshold=training.anneal_change_accuracy_threshold,
            passed=passed,
            weights_hash=session.weights_hash,
        )

    def _demonstrations(self, context: TrainingContext, session: Session) -> Demonstrations:
        spec, ppo, bc = session.learner.spec, context.config.ppo, context.config.training.bc
        if isinstance(self.source, ReplayDataset):
            return read_samples(self.source, spec, gamma=ppo.gamma)
        day = -(-context.config.scenario.episode_ticks // context.config.policy.interval)
        return watch_script(self.source, day, epsilon=bc.epsilon, gamma=ppo.gamma)

    def _recall_best(self, context: TrainingContext, session: Session) -> None:
        """After a resume, the weights of the best epoch come from its checkpoint."""
        best = None if context.run is None or session.counters.epoch == 0 else context.run.best()
        if best is not None:
            found = load_checkpoint(best)
            self._best = LearnerState(found.weights, found.optimizer, found.state["learner"])

    def _epoch(self, session: Session, context: TrainingContext, train: Trajectory, judged: Trajectory, rate: float) -> None:
        bc, counters, learner = context.config.training.bc, session.counters, session.learner
        try:
            made = learner.clone(
                train,
                learning_rate=rate,
                batch_size=bc.batch_size,
                weight_decay=bc.weight_decay,
                value_coef=bc.value_coef,
            )
        except DivergedError as error:
            raise session.divergence(context, "cloning", error) from error
        stats, _ = learner.assess_cloning(judged)
        counters.epoch += 1
        context.stop.begun = True
        counters.updates += made.updates
        counters.steps += made.transitions
        better = counters.best is None or stats.loss < counters.best
        counters.stale = 0 if better else counters.stale + 1
        if better:
            counters.best, counters.best_epoch, self._best = stats.loss, counters.epoch, learner.state()
        if better or counters.epoch % context.config.training.checkpoint_every == 0:
            session.save(context, best=better)
        context.progress.advance({"loss": stats.loss, "accuracy": stats.accuracy, "loss_value": stats.loss_value})
