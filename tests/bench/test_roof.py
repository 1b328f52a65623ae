"""`townlet bench roof`: stages against what the machine could do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from townlet.bench.roof import (
    Machine,
    TimedStage,
    draw_roof,
    mask_towns,
    measure_machine,
    roof_rows,
    town_stages,
    training_stages,
)
from townlet.envs.vector import VectorTown
from townlet.policy.runtime import make_policy

MACHINE = Machine(bandwidth=1e9, arithmetic=1e10)


def test_the_roof_is_that_of_memory_or_of_arithmetic_whichever_is_lower() -> None:
    assert TimedStage("memory", 1e-5, 1000.0, 10.0).roof(MACHINE) == pytest.approx(1e6)
    assert TimedStage("arithmetic", 1e-5, 1.0, 1e5).roof(MACHINE) == pytest.approx(1e5)
    rows = {made["name"]: made for made in roof_rows(MACHINE, [TimedStage("memory", 1e-5, 1000.0, 10.0)])}
    assert rows["memory"]["value"] == pytest.approx(1e5)
    assert rows["memory"]["share_of_roof"] == pytest.approx(0.1)


def test_masks_by_themselves_are_those_of_a_step() -> None:
    vec = VectorTown("town_day", 2)
    policy = make_policy("scripted", vec)
    for _ in range(40):
        vec.step(policy.act(vec).actions)
    masks = np.full_like(vec.masks, 7)
    mask_towns(vec.state, vec.tables, masks)
    assert np.array_equal(masks, vec.masks)


def test_every_stage_is_measured_and_drawn(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    machine = measure_machine(1, megabytes=1, summands=1000)
    stages = town_stages(towns=2, decisions=4, repeats=1) + training_stages(steps=4, towns=2, repeats=1)
    assert [stage.name for stage in stages] == ["simulate", "observe", "mask", "infer", "advantage", "update"]
    assert all(stage.bytes > 0 and stage.roof(machine) > 0 for stage in stages)
    draw_roof(machine, stages, tmp_path / "roof.svg")
    drawn = (tmp_path / "roof.svg").read_text(encoding="utf-8")
    assert all(stage.name in drawn for stage in stages)
