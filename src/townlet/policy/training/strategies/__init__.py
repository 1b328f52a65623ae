"""The registry: name → zero-argument loader. Strategies are imported without torch; one that needs it says so when it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module

from townlet.optional import torch_available
from townlet.policy.training.strategies.base import TrainingStrategy

StrategyLoader = Callable[[], TrainingStrategy]


@dataclass(frozen=True)
class ShippedStrategy:
    """Loads a strategy of this package. All of them train with torch in the end, anneal through its stages."""

    module: str
    cls: str

    def __call__(self) -> TrainingStrategy:
        strategy: TrainingStrategy = vars(import_module(f"{__name__}.{self.module}"))[self.cls]()
        return strategy


STRATEGIES: Mapping[str, StrategyLoader] = {
    "bc": ShippedStrategy("bc", "BCStrategy"),
    "ppo": ShippedStrategy("ppo", "PPOStrategy"),
    "offline": ShippedStrategy("offline", "OfflineStrategy"),
    "anneal": ShippedStrategy("anneal", "AnnealStrategy"),
}

STRATEGY_OF_MODE = {"replay": "ppo", "rollout": "ppo", "mixed": "ppo", "bc": "bc", "anneal": "anneal"}


def strategy_of(mode: str, algorithm: str) -> str:
    """The strategy of a mode, one of its own name where it is not shipped; stored data alone are learned from as
    `training.algorithm` says."""
    return "offline" if mode == "replay" and algorithm != "ppo" else STRATEGY_OF_MODE.get(mode, mode)


def available(strategies: Mapping[str, StrategyLoader]) -> tuple[str, ...]:
    """Names of the strategies that can run here."""
    return tuple(name for name, load in strategies.items() if not isinstance(load, ShippedStrategy) or torch_available())
