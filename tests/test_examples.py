"""The examples run, and show what they say."""

from __future__ import annotations

import runpy
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from places import ROOT

EXAMPLES = ROOT / "examples"


def main_of(name: str) -> Any:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]


def test_a_custom_scenario_has_more_conflict_when_needs_fall_faster() -> None:
    usual, hungry = main_of("custom_scenario")(towns=4, decisions=144)
    assert hungry > usual > 0


def test_a_custom_reward_term_is_computed_from_events() -> None:
    assert main_of("custom_reward")(towns=4, decisions=72) > 0


def test_one_shower_less_brings_more_conflict() -> None:
    assert main_of("counterfactual")(futures=8, ticks=600) > 0


def test_telemetry_is_read_with_sql() -> None:
    pytest.importorskip("duckdb")
    rows = main_of("telemetry_duckdb")()
    assert len(rows) == 3
    assert rows[0][2] >= rows[-1][2]


def test_maskable_ppo_trains_on_a_resident() -> None:
    pytest.importorskip("sb3_contrib")
    assert main_of("maskable_ppo")(steps=288) > 0


def test_maskable_ppo_trains_on_a_batch_of_towns() -> None:
    pytest.importorskip("sb3_contrib")
    assert main_of("maskable_ppo_vector")(towns=2, steps=1024)[0] > 0


def test_maskable_ppo_trains_through_pettingzoo_and_keeps_to_the_mask() -> None:
    pytest.importorskip("sb3_contrib")
    pytest.importorskip("supersuit")
    assert main_of("maskable_ppo_pettingzoo")(towns=2, steps=512) == 0


@pytest.mark.filterwarnings("ignore")  # of TorchRL itself
def test_torchrl_trains_with_masks_and_fixed_agents() -> None:
    pytest.importorskip("torchrl")
    assert main_of("torchrl_ppo")(steps=18, rounds=range(2))[0] == 0


@pytest.mark.filterwarnings("ignore")  # of BenchMARL itself
def test_benchmarl_trains_with_masks_and_fixed_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("benchmarl")
    monkeypatch.syspath_prepend(str(EXAMPLES))  # it pickles the task, and `main_of("benchmarl_mappo")` gives it no module
    assert import_module("benchmarl_mappo").main(frames=288, batch=144, cycles=18, folder=str(tmp_path))[0] == 0


@pytest.mark.filterwarnings("ignore")  # of RLlib itself
def test_rllib_trains_with_masks_while_residents_come_and_go() -> None:
    pytest.importorskip("ray.rllib")
    assert main_of("rllib_ppo")(rounds=range(1), batch=300, scenario="newcomer")[0] == 0


@pytest.mark.filterwarnings("ignore")  # of AgileRL itself
def test_agilerl_trains_with_masks_while_residents_come_and_go() -> None:
    pytest.importorskip("agilerl")
    assert main_of("agilerl_ippo")(steps=40, rounds=range(2), scenario="newcomer")[0] == 0


@pytest.mark.filterwarnings("ignore")  # of Tianshou itself
def test_tianshou_trains_with_masks() -> None:
    pytest.importorskip("tianshou")
    assert main_of("tianshou_dqn")(rounds=range(2), towns=2)[0] == 0


@pytest.mark.filterwarnings("ignore")  # of d3rlpy itself
def test_d3rlpy_learns_from_a_capture() -> None:
    pytest.importorskip("d3rlpy")
    assert main_of("d3rlpy_offline")(towns=1, rounds=range(1))[0] > 0


def test_examples_of_trainers_are_short() -> None:
    """At most 40 lines that are not empty; the one through SuperSuit is longer, because SuperSuit knows no masks."""
    for name in (
        "maskable_ppo",
        "maskable_ppo_vector",
        "torchrl_ppo",
        "benchmarl_mappo",
        "rllib_ppo",
        "agilerl_ippo",
        "tianshou_dqn",
        "d3rlpy_offline",
    ):
        text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
        assert sum(bool(line.strip()) for line in text.splitlines()) <= 40, name


def test_dagger_learns_to_do_what_the_script_would_do_where_it_goes_itself() -> None:
    pytest.importorskip("torch")
    agreement = main_of("dagger")(rounds=3, towns=2)
    assert len(agreement) == 3
    assert agreement[2] > agreement[0]


def test_every_example_is_run_here_and_named_in_the_docs() -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    pages = "".join(page.read_text(encoding="utf-8") for page in (EXAMPLES.parent / "docs").rglob("*.md"))
    for example in EXAMPLES.glob("*.py"):
        assert f'main_of("{example.stem}")' in here
        assert f"examples/{example.name}" in pages
