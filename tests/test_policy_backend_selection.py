"""What can run where: with torch, and without it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from places import ROOT
from townlet import optional
from townlet.config import load_config
from townlet.errors import TorchNotAvailableError
from townlet.policy.runner import TrainingHarness
from townlet.policy.training.strategies import STRATEGIES, ShippedStrategy

SOURCE = ROOT / "src"


def test_all_strategies_are_listed_with_torch() -> None:
    pytest.importorskip("torch")
    assert TrainingHarness(load_config("town_day")).available_strategies() == ("bc", "ppo", "offline", "anneal")


def test_without_torch_nothing_that_needs_it_is_listed_and_the_line_that_installs_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(optional, "installed", lambda name: name != "torch")
    monkeypatch.setattr("townlet.policy.training.strategies.installed", lambda name: name != "torch")
    harness = TrainingHarness(load_config("town_day"))
    assert harness.available_strategies() == ()
    for mode in ("rollout", "bc", "anneal"):
        with pytest.raises(TorchNotAvailableError, match=r"pip install 'townlet\[ml\]'") as caught:
            harness.run(mode)
        assert caught.value.exit_code == 4
    assert len(harness.capture_rollout(20)) == 8  # what needs no torch still works


def test_a_strategy_of_ones_own_is_available_wherever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("townlet.policy.training.strategies.installed", lambda name: False)
    harness = TrainingHarness(load_config("town_day"), strategies={"mine": lambda: None})  # type: ignore[dict-item, return-value]
    assert harness.available_strategies() == ("mine",)


def test_importing_training_does_not_import_torch() -> None:
    code = (
        "import sys, townlet.policy.runner, townlet.policy.training.strategies.anneal, townlet.cli.train, townlet.cli.runs; "
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(SOURCE), "PATH": ""}, check=False)
    assert done.returncode == 0


def test_every_shipped_strategy_says_what_it_is() -> None:
    pytest.importorskip("torch")
    for name, load in STRATEGIES.items():
        assert isinstance(load, ShippedStrategy)
        strategy = load()
        assert strategy.name == name
        assert strategy.requires_torch == (name != "anneal")
