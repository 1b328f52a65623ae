"""`townlet capture --take`: what a person played is a replay dataset."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from townlet.cli.capture import capture
from townlet.cli.train import train
from townlet.config import load_config
from townlet.observer.studio import Studio
from townlet.observer.take import Change, Take, write_take
from townlet.policy.manifest import find_manifest
from townlet.policy.replay import ReplayDataset, ReplayDatasetConfig

TICKS = 120


def a_played_take(studio: Studio, recorded: bool) -> Take:
    """A morning of queue_conflict in which alice was taken over for three decisions, beside a change of the world."""
    first = studio.new_take(load_config("queue_conflict"), seed=5).take
    changes = [Change(at=20, do="resident bob.hunger = 0.2"), *(Change(at=at, do="force alice wait") for at in (30, 40, 60))]
    take = studio.branch(first.id, changes).take
    take = take.model_copy(update={"ticks": TICKS})
    if recorded:
        name = studio.open(take).take.id
        take = take.model_copy(update={"policy": "recorded", "decisions": studio.decisions(name).text()})
    return take


def test_a_take_is_captured_as_it_was_played(tmp_path: Path) -> None:
    studio = Studio()
    stage = studio.new_stage(a_played_take(studio, recorded=False))
    shots = [stage.shoot() for _ in range(stage.decisions)]
    for recorded in (False, True):
        file, out = tmp_path / f"{recorded}.take", tmp_path / f"out_{recorded}"
        write_take(file, a_played_take(studio, recorded))
        done = CliRunner().invoke(capture, ["--take", str(file), "--output", str(out), "--json"])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["samples"] == 1  # of whom was taken over
        dataset = ReplayDataset(ReplayDatasetConfig.from_manifest(find_manifest(out)))
        (batch,) = list(dataset)
        slot = stage.vec.towns[0].resident_ids.index("alice")
        assert batch.actions[:, 0].tolist() == [int(shot.actions[slot]) for shot in shots]
        np.testing.assert_array_equal(batch.rewards[:, 0], [shot.rewards[slot] for shot in shots])


def test_the_play_of_a_person_can_be_cloned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    write_take(tmp_path / "alice.take", a_played_take(Studio(), recorded=True))
    assert CliRunner().invoke(capture, ["--take", "alice.take", "--output", "mine"]).exit_code == 0
    tiny = ("training.eval_every=0", "training.bc.validation_fraction=0", "policy.network.map_encoder=none")
    sets = [word for one in (*tiny, "policy.network.feature_size=16") for word in ("--set", one)]
    words = ["queue_conflict", "--mode", "bc", "--bc-manifest", str(find_manifest(Path("mine"))), "--epochs", "1", *sets]
    done = CliRunner().invoke(train, [*words, "--run-dir", "run", "--no-plots", "--json"])
    assert done.exit_code == 0, (done.output, done.exception)
    assert json.loads(done.stdout)["epochs"] == 1
