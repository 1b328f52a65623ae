"""The founding documents' names in one place: who acts, and what trains."""

from townlet.policy.runtime import PolicyRuntime
from townlet.policy.training.orchestrator import PolicyTrainingOrchestrator

TrainingHarness = PolicyTrainingOrchestrator

__all__ = ["PolicyRuntime", "PolicyTrainingOrchestrator", "TrainingHarness"]
