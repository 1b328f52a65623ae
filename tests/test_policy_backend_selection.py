"""What can run where: with torch, and without it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from places import ROOT
from test_architecture import DOORS
from townlet import optional
from townlet.config import load_config
from townlet.errors import TorchNotAvailableError
from townlet.policy.runner import TrainingHarness
from townlet.policy.training.strategies import STRATEGIES, ShippedStrategy
from townlet.policy.training.strategies.bc import BCStrategy
from townlet.policy.training.strategies.offline import OfflineStrategy
from townlet.policy.training.strategies.ppo import PPOStrategy

SOURCE = ROOT / "src"


def test_all_strategies_are_listed_with_torch() -> None:
    pytest.importorskip("torch")
    assert TrainingHarness(load_config("town_day")).available_strategies() == ("bc", "ppo", "offline", "anneal")


def test_without_torch_nothing_that_needs_it_is_listed_and_the_line_that_installs_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(optional, "installed", lambda name: name != "torch")
    harness = TrainingHarness(load_config("town_day"))
    assert harness.available_strategies() == ()
    for mode in ("rollout", "bc", "anneal"):
        with pytest.raises(TorchNotAvailableError, match=r"pip install 'townlet\[ml\]'") as caught:
            harness.run(mode)
        assert caught.value.exit_code == 4
    assert len(harness.capture_rollout(20)) == 8  # what needs no torch still works


def test_a_strategy_of_ones_own_is_available_wherever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optional, "installed", lambda name: False)
    harness = TrainingHarness(load_config("town_day"), strategies={"mine": lambda: None})  # type: ignore[dict-item, return-value]
    assert harness.available_strategies() == ("mine",)


@pytest.mark.parametrize("strategy", [BCStrategy, PPOStrategy, OfflineStrategy])
def test_a_strategy_made_without_torch_says_how_to_install_it(
    strategy: type[BCStrategy | PPOStrategy | OfflineStrategy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optional, "installed", lambda name: name != "torch")
    with pytest.raises(TorchNotAvailableError, match=r"needs torch, .* pip install 'townlet\[ml\]'"):
        strategy()


WITHOUT_TORCH = """
import importlib, pkgutil, sys
sys.modules["torch"] = None
import townlet
for module in pkgutil.walk_packages(townlet.__path__, "townlet."):
    if module.name == "townlet.__main__":
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        assert error.name == "torch", error
        print(module.name.removeprefix("townlet."))
    except townlet.errors.MissingPackageError:
        pass
"""


def test_every_module_but_the_doors_of_torch_is_imported_without_it() -> None:
    environment = {"PYTHONPATH": str(SOURCE), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], env=environment, check=True, capture_output=True, text=True)
    assert set(done.stdout.split()) == DOORS["torch"] | {"policy.training.fused"}  # which shares the optimiser of numerics


def test_every_shipped_strategy_says_what_it_is() -> None:
    pytest.importorskip("torch")
    for name, load in STRATEGIES.items():
        assert isinstance(load, ShippedStrategy)
        strategy = load()
        assert strategy.name == name
        assert strategy.requires_torch == (name != "anneal")
