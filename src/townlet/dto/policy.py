"""What training returns: frames of a rollout and the results of the strategies. JSON is `.model_dump(mode="json")`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, PlainSerializer

from townlet.dto import Frozen
from townlet.dto.promotion import PromotionDecision

JsonArray = Annotated[NDArray[Any], PlainSerializer(lambda a: np.asarray(a).tolist(), when_used="json")]


class RolloutFrame(Frozen):
    """One decision of one resident: what it saw before, what it did, what came of it."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    agent_id: str
    town: int = 0
    life: int = 0
    tick: int
    features: JsonArray  # (F,) float32, before the action
    map: JsonArray | None = None  # (C, H, W) uint8, before the action
    action_mask: JsonArray  # (A,) bool
    action: int
    log_prob: float
    value: float
    reward: float
    terminated: bool = False
    truncated: bool = False
    expert_action: int | None = None


class TrainingResult(Frozen):
    """What every strategy reports."""

    strategy: str
    duration_sec: float = Field(ge=0)
    run_dir: str | None = None
    checkpoint: str | None = Field(None, description="Folder of the last checkpoint written.")
    dataset_hash: str | None = Field(None, description="Hash of the data given; null: it learned in its own towns only.")


class DryRun(TrainingResult):
    """What a run would do."""

    strategy: str
    mode: str
    epochs: int = Field(description="At most: cloning that no longer improves ends earlier, and so does a time limit.")
    config_id: str
    config_hash: str
    disk_bytes: int


class ReplayBatchSummary(Frozen):
    batch: int
    samples: int
    transitions: int
    rivalry_max_mean: float
    rivalry_max_max: float
    rivalry_avoid_count_mean: float
    rivalry_avoid_count_max: float
    queue_conflict_events: float | None = Field(None, description="null where a sample has no metrics of its capture")
    queue_conflict_intensity_sum: float | None = None
    wait_count: float | None = None
    wait_sum: float | None = None


class ReplaySummary(TrainingResult):
    """A pass over a dataset without training."""

    strategy: str = "replay"
    dataset: str
    samples: int
    transitions: int
    batches: tuple[ReplayBatchSummary, ...]
    baseline: dict[str, float]


class BCTrainingResult(TrainingResult):
    """Held-out accuracy of the imitation, beside the two baselines that prove nothing was learned."""

    strategy: str = "bc"
    dataset: str
    episodes: int
    held_out_episodes: int
    decisions: int
    held_out_decisions: int
    epochs: int
    best_epoch: int
    loss: float = Field(description="Held-out cross-entropy of the kept epoch.")
    accuracy: float
    change_accuracy: float | None = Field(description="Accuracy where the expert changes its choice; null without any change.")
    majority_accuracy: float
    repeat_accuracy: float
    class_balance: dict[str, float]
    accuracy_threshold: float
    change_accuracy_threshold: float
    passed: bool
    weights_hash: str


class MeasureInterval(Frozen):
    value: float
    low: float | None = Field(description="null for a single town")
    high: float | None


class EvaluationPoint(Frozen):
    """A periodic evaluation on held-out seeds, per resident and day of the residents the day began with."""

    epoch: int
    steps: int
    measures: dict[str, MeasureInterval] = Field(description="Measures of the scorecard, mean over towns with its interval.")

    @property
    def episode_return(self) -> float:
        return self.measures["return"].value


class EpochFigures(Frozen):
    """What the guards of anneal stages compare, of one epoch; conflicts are null for replay samples without capture metrics."""

    loss_value: float
    conflicts: float | None
    intensity: float | None
    resident_days: float


class PPOTrainingResult(TrainingResult):
    strategy: str = "ppo"
    data_mode: Literal["replay", "rollout", "mixed"]
    epochs: int
    updates: int
    transitions: int = Field(description="Decisions trained on, over all epochs.")
    steps: int = Field(description="The same, with those of the anneal stages before.")
    loss_policy: float
    loss_value: float
    loss_value_first: float
    loss_entropy: float = Field(description="Mean entropy of the last epoch; the total subtracts entropy_coef times it.")
    loss_total: float
    kl_k3: float
    episode_return_mean: float | None
    return_per_resident_day: float | None = Field(None, description="Of the towns of the last epoch.")
    queue_conflict_events: float | None
    queue_conflict_intensity_sum: float | None
    recent: tuple[EpochFigures, ...] = Field((), description="The last epochs, oldest first.")
    telemetry_log: str | None
    evaluations: tuple[EvaluationPoint, ...] = ()
    best_checkpoint: str | None = None
    weights_hash_start: str
    weights_hash: str


class OfflineTrainingResult(PPOTrainingResult):
    """Learned from stored lives alone. Two returns: that of the data, and the policy's own in towns it never saw."""

    strategy: str = "offline"
    algorithm: Literal["bc", "awr", "cql", "iql"]
    dataset_return: float | None = Field(description="Of the lives in the data that were seen to their end, mean.")
    held_out_return: float | None = Field(
        description="Of the policy itself, on the validation seed; null: training.eval_every=0."
    )


class AnnealStageResult(Frozen):
    cycle: int
    mode: Literal["bc", "ppo"]
    bc_weight: float
    scripted_share: float
    epochs: int
    bc: BCTrainingResult | None = None
    ppo: PPOTrainingResult | None = None
    evaluation: EvaluationPoint | None = None
    guards: tuple[str, ...] = Field((), description="One sentence for each guard that fired.")
    rolled_back_to: str | None = None

    @property
    def passed(self) -> bool:
        return not self.guards

    @property
    def epochs_made(self) -> int:
        """`epochs` were planned: cloning may stop before, and a stage that diverged has no result."""
        result = self.bc or self.ppo
        return 0 if result is None else result.epochs


class AnnealSummary(TrainingResult):
    strategy: str = "anneal"
    status: Literal["PASS", "HOLD", "FAIL"]
    reasons: tuple[str, ...]
    epochs: int = Field(description="Epochs made, over all stages.")
    stages: tuple[AnnealStageResult, ...]
    promotion: PromotionDecision | None = None  # with `training.promote`, of a run that passed
    telemetry_log: str | None = None
    weights_hash: str | None = None

    def told(self) -> tuple[str, ...]:
        """The verdict and its reasons, then what promotion said of it, a sentence each."""
        verdict = (f"anneal {self.status}", *(f"  {reason}" for reason in self.reasons))
        if self.promotion is not None:
            return (*verdict, f"promotion {self.promotion.outcome.value}", *(f"  {reason}" for reason in self.promotion.reasons))
        if self.status != "PASS":
            return (*verdict, "not judged for promotion: only runs that pass are")
        judge = f"`townlet promote evaluate {self.run_dir}` does that; with training.promote=true every run does it at its end"
        return (*verdict, f"not judged for promotion: {judge}")


# Work package 4 calls them both ways.
BCTrainingResultDTO = BCTrainingResult
PPOTrainingResultDTO = PPOTrainingResult
RolloutFrameDTO = RolloutFrame
