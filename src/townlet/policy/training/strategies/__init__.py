"""The registry: name → zero-argument loader. Torch is imported when a strategy that needs it is loaded, not before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module

from townlet.optional import installed, require
from townlet.policy.training.strategies.base import TrainingStrategy

StrategyLoader = Callable[[], TrainingStrategy]


@dataclass(frozen=True)
class ShippedStrategy:
    """Loads a strategy of this package, or says which package it needs and how to install it."""

    module: str
    cls: str
    why: str
    packages: tuple[str, ...] = ("torch",)

    @property
    def available(self) -> bool:
        return all(installed(package) for package in self.packages)

    def __call__(self) -> TrainingStrategy:
        for package in self.packages:
            require(package, self.why)
        strategy: TrainingStrategy = vars(import_module(f"{__name__}.{self.module}"))[self.cls]()
        return strategy


STRATEGIES: Mapping[str, StrategyLoader] = {
    "bc": ShippedStrategy("bc", "BCStrategy", "Behaviour cloning"),
    "ppo": ShippedStrategy("ppo", "PPOStrategy", "PPO training"),
    "offline": ShippedStrategy("offline", "OfflineStrategy", "Learning from stored data"),
    "anneal": ShippedStrategy("anneal", "AnnealStrategy", "Anneal training"),
}

STRATEGY_OF_MODE = {"replay": "ppo", "rollout": "ppo", "mixed": "ppo", "bc": "bc", "anneal": "anneal"}


def strategy_of(mode: str, algorithm: str) -> str:
    """The strategy of a mode, one of its own name where it is not shipped; stored data alone are learned from as
    `training.algorithm` says."""
    return "offline" if mode == "replay" and algorithm != "ppo" else STRATEGY_OF_MODE.get(mode, mode)


def available(strategies: Mapping[str, StrategyLoader]) -> tuple[str, ...]:
    """Names of the strategies whose packages are installed here."""
    return tuple(name for name, load in strategies.items() if not isinstance(load, ShippedStrategy) or load.available)
