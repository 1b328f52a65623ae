"""Acceptance: what is judged, what is written, and one short soak for real."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scorecards import FEW, town_days
from townlet.config.loader import load_config
from townlet.dto.studies import SoakCycle, SoakResult
from townlet.errors import UsageError
from townlet.evaluation.compare import summarise
from townlet.files import FolderLock
from townlet.studies.acceptance import OVERRIDES, accept, judge
from townlet.studies.soak import run_soak
from townlet.telemetry.ndjson import read_records


def soak(scenario: str = "queue_conflict", cycles: int = 10, **changes: object) -> SoakResult:
    rows = town_days(0, 4)
    done = tuple(
        SoakCycle(
            cycle=k + 1,
            samples=3,
            captured=100,
            capture_hash="c",
            weights_before=f"w{k}",
            weights_after=f"w{k + 1}",
            transitions=200,
            loss_value=1.0 / (k + 1),
            kl_k3=0.01,
            conflict_events=5.0,
            conflict_intensity=3.0,
            memory_mb=300.0,
        )
        for k in range(cycles)
    )
    result = SoakResult(
        scenario=scenario,
        config_hash="f00d",
        cycles=done,
        residents=3,
        records=cycles,
        positions=tuple((k + 1, k, k + 1) for k in range(cycles)),
        runs=1,
        problems=(),
        alerts=(),
        baseline={name: summarise(values, FEW) for name, values in rows.items()},
        files={"summary.md": "0" * 64},
        seconds=1.0,
    )
    return result.model_copy(update=changes)


def test_a_second_soak_leaves_the_work_of_the_first_alone(tmp_path: Path) -> None:
    with FolderLock(tmp_path, only="work"):
        (tmp_path / "work.partial").mkdir()
        with pytest.raises(UsageError, match="work is in use by process"):
            run_soak(load_config("queue_conflict", OVERRIDES), tmp_path, cycles=1, say=str)
        assert (tmp_path / "work.partial").is_dir()


def test_a_good_soak_meets_every_criterion() -> None:
    assert [criterion.met for criterion in judge([soak()])] == [True] * 7


@pytest.mark.parametrize(
    ("changed", "index"),
    [
        (soak(cycles=9), 0),
        (soak(residents=0), 1),
        (soak(problems=("line 3: loss_value is missing",)), 2),
        (soak(records=2), 2),
        (soak(runs=2), 3),
        (soak(positions=((1, 0, 1), (1, 1, 2))), 3),  # the epochs begin anew
        (soak(positions=((1, 0, 1), (2, 0, 2))), 3),  # no collection in between
        (soak(positions=((1, 0, 1), (2, 1, 1))), 3),  # another log
        (soak(positions=()), 3),
        (soak(cycles=10).model_copy(update={"cycles": soak().cycles[:4] + soak().cycles[5:] + soak().cycles[:1]}), 4),
        (
            soak().model_copy(
                update={"cycles": (*soak().cycles[:-1], soak().cycles[-1].model_copy(update={"memory_mb": 400.0}))}
            ),
            5,
        ),
    ],
)
def test_each_fault_opens_its_criterion(changed: SoakResult, index: int) -> None:
    assert [number for number, criterion in enumerate(judge([changed])) if not criterion.met] == [index]


def test_a_quiet_queue_and_a_loud_baseline_are_noticed() -> None:
    quiet = {**soak().baseline, "conflicts": summarise([0.0] * 4, FEW)}
    last = judge([soak(baseline=quiet), soak("observation_baseline")])[-2:]
    assert [criterion.met for criterion in last] == [False, False]
    assert judge([])
    assert not any(criterion.met for criterion in judge([]))


def test_a_short_acceptance_writes_logs_and_documents_and_withholds_its_certificate(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    small = (*OVERRIDES, "training.towns=2", "training.horizon=6")
    result = accept(
        ["queue_conflict"], cycles=2, soak_cycles=0, artifacts=tmp_path / "a", docs=tmp_path / "d", overrides=small, say=str
    )
    assert not result.accepted  # two cycles are not ten
    assert [criterion.met for criterion in result.criteria] == [False, True, True, True, True, True, True]
    folder = tmp_path / "a" / "queue_conflict"
    assert {path.name for path in folder.iterdir()} == {"ppo_queue_conflict.jsonl", "watch.jsonl", "summary.md"}
    assert all(
        json.loads(line)["log"] == "ppo_queue_conflict.jsonl" for line in (folder / "watch.jsonl").read_text().splitlines()
    )
    records = list(read_records(folder / "ppo_queue_conflict.jsonl"))
    assert [(r["epoch"], r["cycle_id"], r["log_stream_offset"], r["data_mode"]) for r in records] == [
        (1, 0, 1, "mixed"),
        (2, 1, 2, "mixed"),
    ]
    assert records[0]["dataset_hash"] != records[1]["dataset_hash"]  # every cycle replays a capture of its own
    first, second = result.soaks[0].cycles
    assert first.weights_after == second.weights_before
    assert "**Withheld.**" in (tmp_path / "d" / "COMPLETION_CERTIFICATE_PPO_PHASE2_4.md").read_text()
    assert "**Not accepted.**" in (tmp_path / "d" / "ROLLOUT_PHASE4_ACCEPTANCE.md").read_text()
    assert "| queue_conflict |" in (tmp_path / "d" / "ops" / "queue_conflict_baselines.md").read_text()


@pytest.mark.slow
def test_memory_stands_still_over_ten_cycles(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    result = run_soak(load_config("queue_conflict", OVERRIDES), tmp_path, cycles=10, say=str)
    assert all(criterion.met for criterion in judge([result]))
