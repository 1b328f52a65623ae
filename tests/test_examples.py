"""The examples run, and show what they say."""

from __future__ import annotations

import runpy
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
    assert main_of("maskable_ppo_vector")(towns=2, steps=1024) > 0


def test_maskable_ppo_trains_through_pettingzoo_and_keeps_to_the_mask() -> None:
    pytest.importorskip("sb3_contrib")
    pytest.importorskip("supersuit")
    assert main_of("maskable_ppo_pettingzoo")(towns=2, steps=512) == 0


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
