"""What a training strategy is."""

from __future__ import annotations

from typing import ClassVar, Protocol

from townlet.policy.training.contexts import TrainingContext, TrainingResult


class TrainingStrategy(Protocol):
    name: ClassVar[str]
    requires_torch: ClassVar[bool]

    def prepare(self, context: TrainingContext) -> None:
        """Check all the inputs; nothing has been written yet."""

    def run(self, context: TrainingContext) -> TrainingResult:
        """Train, or go on where the run folder's latest checkpoint stands."""
