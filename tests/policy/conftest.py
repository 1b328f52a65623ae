"""A town small enough to train in within a test."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping

import pytest

from townlet.config import SimulationConfig, load_config

SMALL = (
    "training.towns=2",
    "training.horizon=5",
    "training.eval_every=0",
    "training.eval_towns=2",
    "training.checkpoint_every=2",
    "training.bc.towns=3",
    "training.bc.epochs=2",
    "training.bc.batch_size=256",
    "policy.network.map_encoder=none",
    "policy.network.feature_size=16",
    "policy.network.conflict_size=8",
    "policy.network.trunk_sizes=[16]",
    "ppo.num_epochs=2",
    "ppo.num_mini_batches=2",
)


@pytest.fixture
def small_town() -> Callable[..., SimulationConfig]:
    def make(*overrides: str, name: str = "town_day") -> SimulationConfig:
        return load_config(name, (*SMALL, *overrides))

    return make


class StopAfter:
    """Progress that sends a signal to the process after some epochs, as Ctrl-C or a scheduler would."""

    def __init__(self, epochs: int, number: int = signal.SIGTERM) -> None:
        self.left, self.number = epochs, number
        self.said: list[str] = []

    def begin(self, what: str, total: int, done: int = 0) -> None:
        pass

    def advance(self, figures: Mapping[str, float | None]) -> None:
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(self.number)

    def say(self, sentence: str) -> None:
        self.said.append(sentence)


@pytest.fixture
def stop_after() -> Callable[..., StopAfter]:
    return StopAfter
