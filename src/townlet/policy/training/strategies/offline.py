"""Learning from stored lives alone: all side by side, a pass an epoch; the policy's own return is measured in held-out towns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from townlet.dto.policy import OfflineTrainingResult
from townlet.errors import UsageError
from townlet.observations.spec import ObservationSpec
from townlet.policy.replay import ReplayDataset
from townlet.policy.sample_metrics import RIVALRY_FIELDS
from townlet.policy.training.contexts import TrainingContext
from townlet.policy.training.epochs import ReplayTally
from townlet.policy.training.session import Session, disk_needed, offline_spec, open_samples
from townlet.policy.training.sources import Lives, lives_of, observed, refuse_memory
from townlet.policy.training.strategies.ppo import PPOStrategy
from townlet.policy.training.telemetry import EpochData

if TYPE_CHECKING:
    from townlet.policy.training.offline import OfflineLearner

CRITIC_SIZE = {"iql": 3, "cql": 3}  # a checkpoint with critic, its slow copy and its moments, in checkpoints without


class OfflineStrategy(PPOStrategy):
    name: ClassVar[str] = "offline"
    purpose: ClassVar[str] = "Learning from stored data"

    def __init__(self) -> None:
        super().__init__()
        self._lives: Lives | None = None
        self._seen = EpochData()  # what every epoch tells of the data

    def prepare(self, context: TrainingContext) -> None:
        """Open the data and refuse what the network could not read."""
        config = context.config
        spec = offline_spec(config)
        refuse_memory(spec, config.training.algorithm)
        self.data = open_samples(context, spec, context.dataset)
        if self.data.config.streaming:
            raise UsageError(
                f"training.replay.streaming is on, but {config.training.algorithm} learns from all lives at once; leave it out, "
                "or take training.algorithm=ppo"
            )
        context.disk_needed = disk_needed(context, spec, None) * CRITIC_SIZE.get(config.training.algorithm, 1)

    def _learn(self, session: Session, context: TrainingContext, progress: float) -> EpochData:
        from townlet.policy.training.offline import OfflineLearner  # imports torch

        learner = session.learner
        assert isinstance(learner, OfflineLearner)
        assert self.data is not None
        if self._lives is None:
            self._lives, self._seen = read_lives(self.data, context, learner)
        columns = tuple(ObservationSpec.of(context.config).offsets[name] for name in RIVALRY_FIELDS)
        update = learner.learn(self._lives, progress=progress, watched=columns if context.log_batches else ())
        return replace(self._seen, updates=[update], minibatches=learner.minibatches)

    def _evaluation_due(self, session: Session, context: TrainingContext) -> bool:
        """Also after the last epoch: what the data returned says nothing of the policy."""
        last = session.counters.epoch == context.epochs
        return super()._evaluation_due(session, context) or (last and context.config.training.eval_every > 0)

    def _result(self, session: Session, context: TrainingContext, seconds: float) -> OfflineTrainingResult:
        made = super()._result(session, context, seconds).model_dump()
        last = session.counters.evaluations[-1:]
        return OfflineTrainingResult(
            **made
            | {
                "strategy": self.name,
                "algorithm": context.config.training.algorithm,
                "dataset_return": session.counters.last["dataset_return"],
                "held_out_return": last[0].episode_return if last else None,
            }
        )


def read_lives(data: ReplayDataset, context: TrainingContext, learner: OfflineLearner) -> tuple[Lives, EpochData]:
    """Everything stored, once: to learn from, and what a record tells of it."""
    tally, batches = ReplayTally(data, context), []
    data.set_epoch(0)
    for batch in data:
        tally.add(batch)
        batches.append(observed(batch, learner.spec))
    return lives_of(iter(batches)), tally.data()
