"""The examples run, and show what they say."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from places import ROOT
from townlet.envs.vector import VectorTown
from townlet.files import read_json

EXAMPLES = ROOT / "examples"


def main_of(name: str) -> Any:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]


@pytest.fixture
def _come_and_go(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """While the test acts, somebody leaves a town, a newcomer moves in, and no action is outside the mask."""
    step, left, illegal, there = VectorTown.step, 0, 0, set[str]()

    def watched(vec: VectorTown, *choices: Any) -> None:
        nonlocal left, illegal
        step(vec, *choices)
        left += int(vec.terminated.sum())
        illegal += int(vec.illegal.sum())
        there.update(vec.resident_id(town, slot) for town, slot in np.argwhere(vec.active).tolist())

    monkeypatch.setattr(VectorTown, "step", watched)
    yield
    assert left
    assert illegal == 0
    assert any(name.startswith("newcomer") for name in there)


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


@pytest.mark.door(library="sb3_contrib")
def test_maskable_ppo_trains_on_a_resident() -> None:
    assert main_of("maskable_ppo")(steps=288) > 0


@pytest.mark.door(library="sb3_contrib")
@pytest.mark.usefixtures("_come_and_go")
def test_maskable_ppo_trains_on_a_batch_of_towns_while_residents_come_and_go() -> None:
    assert main_of("maskable_ppo_vector")(towns=2, steps=1024, scenario="newcomer")[0] > 0


@pytest.mark.door(library="sb3_contrib")
def test_maskable_ppo_trains_through_pettingzoo_and_keeps_to_the_mask() -> None:
    assert main_of("maskable_ppo_pettingzoo")(towns=2, steps=512) == 0


@pytest.mark.door(library="torchrl")
@pytest.mark.filterwarnings("ignore")  # of TorchRL itself
@pytest.mark.usefixtures("_come_and_go")
def test_torchrl_trains_with_masks_while_residents_come_and_go() -> None:
    assert main_of("torchrl_ppo")(steps=48, rounds=range(2), scenario="newcomer")[0] == 0


@pytest.mark.door(library="benchmarl")
@pytest.mark.filterwarnings("ignore")  # of BenchMARL itself
@pytest.mark.usefixtures("_come_and_go")
def test_benchmarl_trains_with_masks_while_residents_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))  # it pickles the task, and `main_of("benchmarl_mappo")` gives it no module
    main = import_module("benchmarl_mappo").main
    assert main(frames=288, batch=144, cycles=48, place=str(tmp_path), scenario="newcomer")[0] == 0


@pytest.mark.door(library="ray.rllib")
@pytest.mark.filterwarnings("ignore")  # of RLlib itself
@pytest.mark.usefixtures("_come_and_go")
def test_rllib_trains_with_masks_while_residents_come_and_go() -> None:
    assert main_of("rllib_ppo")(rounds=range(1), batch=300, scenario="newcomer")[0] == 0


@pytest.mark.door(library="agilerl")
@pytest.mark.filterwarnings("ignore")  # of AgileRL itself
@pytest.mark.usefixtures("_come_and_go")
def test_agilerl_trains_with_masks_while_residents_come_and_go() -> None:
    assert main_of("agilerl_ippo")(steps=40, rounds=range(2), scenario="newcomer")[0] == 0


@pytest.mark.door(library="tianshou")
@pytest.mark.filterwarnings("ignore")  # of Tianshou itself
@pytest.mark.usefixtures("_come_and_go")
def test_tianshou_trains_with_masks_while_residents_come_and_go() -> None:
    assert main_of("tianshou_dqn")(rounds=range(2), towns=2, scenario="newcomer")[0] == 0


@pytest.mark.door(library="d3rlpy")
@pytest.mark.filterwarnings("ignore")  # of d3rlpy itself
@pytest.mark.usefixtures("_come_and_go")
def test_d3rlpy_learns_from_a_capture_in_which_residents_come_and_go() -> None:
    assert main_of("d3rlpy_offline")(towns=1, rounds=range(1), scenario="newcomer")[0] > 0


def test_the_tables_of_trainers_say_what_was_installed_and_measured() -> None:
    pytest.importorskip("torch")
    from trainers import PACKAGES, RESULTS, of_today, table

    results, text = read_json(RESULTS), (ROOT / "docs/TRAINERS.md").read_text(encoding="utf-8")
    assert table(results) in text
    pins = "".join(path.read_text(encoding="utf-8") for path in [ROOT / "constraints.txt", *EXAMPLES.glob("requirements/*.txt")])
    rows = {
        Path(cells[2].strip("`")).stem: cells
        for cells in (line.strip("| ").split(" | ") for line in text.splitlines() if "| `examples/" in line)
    }
    assert rows.keys() == PACKAGES.keys() == results.keys()
    for example, (_, version, _, _, illegal, _, _, mean) in rows.items():
        assert f"{PACKAGES[example][0]}=={version}\n" in pins
        assert illegal.split(",")[0] == str(results[example]["illegal"])
        measured = results[example]["package"].split()[-1]
        figure = f"{results[example]['measures']['1']['return'][0]:.1f}"
        with_version = figure if measured == version else f"{figure} (with {measured})"
        assert mean == with_version + of_today(example, results[example])


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
