"""The same seed gives the same town: alone or in a batch, with threads, through a snapshot, in other processes, uncompiled."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from digest_run import chain
from places import ROOT
from townlet.config.loader import load_config, shipped_configs
from townlet.envs.vector import VectorTown
from townlet.errors import SnapshotError
from townlet.testing import tiny_town
from townlet.world.state import EVENT, OBJECT, RESIDENT, TIE, TOWN

SMALL = [name for name in sorted(shipped_configs("scenarios")) if name not in ("metropolis", "market_square")]
UPSETS = "perturbations.outage={probability_per_day: 1.0, duration: 60}"


@pytest.mark.parametrize("scenario", SMALL)
def test_a_town_is_the_same_alone_in_a_batch_and_on_two_threads(scenario: str) -> None:
    """Town 5 of 64, on one and on two threads, and alone."""
    size = 64 if scenario in ("town_day", "newcomer", "queue_conflict") else 8
    batch = chain(VectorTown(scenario, size, seed=3, start="random"), 40, town=5)
    threaded = chain(VectorTown(scenario, size, seed=3, start="random", threads=2), 40, town=5)
    alone = chain(VectorTown(scenario, 1, seed=3, first_town=5, start="random"), 40)
    assert batch == threaded == alone
    assert alone != chain(VectorTown(scenario, 1, seed=3, first_town=6, start="random"), 40)


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "decisions"), [("market_square", 12), ("metropolis", 2)])
def test_a_large_town_is_the_same_in_a_batch_and_on_two_threads(scenario: str, decisions: int) -> None:
    chains = {chain(VectorTown(scenario, 2, seed=3, threads=threads), decisions, town=1) for threads in (1, 2)}
    assert chains == {chain(VectorTown(scenario, 1, seed=3, first_town=1), decisions)}


def test_another_seed_is_another_town() -> None:
    assert chain(VectorTown("town_day", 1, seed=3), 20) != chain(VectorTown("town_day", 1, seed=4), 20)


@pytest.mark.parametrize("level", ["option", "candidates", "primitive"])
def test_a_snapshot_continues_to_the_last_bit(level: str) -> None:
    """Saved in the middle, restored into a batch that has seen other things, through the end of an episode."""
    config = load_config("newcomer", [f"policy.action_level={level}", "scenario.episode_ticks=240", UPSETS])
    first = VectorTown(config, 3, seed=8)
    chain(first, 9)
    kept = first.save()
    expected = chain(first, 40, town=2)
    other = VectorTown(config, 3, seed=99)
    chain(other, 5)
    other.restore(kept)
    other.step(np.zeros(other.active.shape, int))
    other.restore(kept)
    assert chain(other, 40, town=2) == expected


def test_a_snapshot_of_another_town_is_refused() -> None:
    kept = VectorTown("town_day", 1).save()
    with pytest.raises(SnapshotError, match="made with another config or batch"):
        VectorTown("town_day", 2).restore(kept)
    with pytest.raises(SnapshotError, match="has no 'ties'"):
        VectorTown("town_day", 1).restore({name: array for name, array in kept.items() if name != "ties"})


@pytest.mark.parametrize("record", ["residents", "ties", "objects", "towns", "events"])
def test_any_field_of_any_record_changes_the_digest(record: str) -> None:
    vec = VectorTown(tiny_town(residents=3), 1)
    chain(vec, 12)
    vec.state.towns["events"] = 1
    array = vec.state._asdict()[record]
    dtype = {"residents": RESIDENT, "ties": TIE, "objects": OBJECT, "towns": TOWN, "events": EVENT}[record]
    before = vec.digest()
    row = array.reshape(-1)[:1]
    for name in dtype.names or ():
        if (record, name) == ("towns", "events"):
            continue
        kept = row[name].copy()
        row[name] = kept + 1 if name != "layout" else kept
        if name != "layout":
            assert vec.digest() != before, name
        row[name] = kept
    assert vec.digest() == before


def test_what_a_step_wrote_is_in_the_digest() -> None:
    vec = VectorTown(tiny_town(residents=2), 1)
    before = vec.digest()
    for array in vec.buffers:
        flat = array.reshape(-1)
        kept = flat[0].copy()
        flat[0] = kept + 1
        assert vec.digest() != before
        flat[0] = kept


def run(scenario: str, decisions: int, *overrides: str, **environment: str) -> str:
    command = [sys.executable, str(ROOT / "tests" / "digest_run.py"), scenario, str(decisions), *overrides]
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths, **environment}, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_another_process_and_hash_seed_see_the_same_town() -> None:
    here = chain(VectorTown(load_config("town_day"), 1, seed=3), 60)
    assert run("town_day", 60, PYTHONHASHSEED="1") == run("town_day", 60, PYTHONHASHSEED="4242") == here


@pytest.mark.parametrize(
    ("scenario", "decisions", "overrides"),
    [
        ("newcomer", 45, ("features.stages.social_rewards=C3", UPSETS, "scenario.start='11:00'")),
        ("queue_conflict", 40, ("policy.action_level=candidates",)),
        ("queue_conflict", 120, ("policy.action_level=primitive", "features.systems.observations=full")),
    ],
)
def test_uncompiled_code_gives_the_same_town(scenario: str, decisions: int, overrides: tuple[str, ...]) -> None:
    here = chain(VectorTown(load_config(scenario, overrides), 1, seed=3), decisions)
    assert run(scenario, decisions, *overrides, NUMBA_DISABLE_JIT="1") == here


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "decisions"),
    [(name, 20 if name == "rush_hour" else 200) for name in SMALL] + [("market_square", 2), ("metropolis", 1)],
)
def test_uncompiled_code_gives_the_same_town_in_every_scenario(scenario: str, decisions: int) -> None:
    """2,000 ticks with an observation every tenth, 200 in rush_hour, 20 in market_square; metropolis two."""
    overrides = ("policy.decision_interval=2",) if scenario == "metropolis" else ("policy.decision_interval=10",)
    here = chain(VectorTown(load_config(scenario, overrides), 1, seed=3), decisions)
    assert run(scenario, decisions, *overrides, NUMBA_DISABLE_JIT="1") == here
