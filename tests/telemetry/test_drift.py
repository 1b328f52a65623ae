"""Drift: hand-checked deltas, baselines of every kind, intervals that cover and alarms that mean something."""

from __future__ import annotations

import json
import math
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from places import ROOT
from townlet.errors import TelemetryError, UsageError
from townlet.telemetry.drift import (
    OF_TRAINING,
    Delta,
    aligned,
    block_bootstrap,
    compare,
    compare_logs,
    log_drift,
    persistence,
    read_baseline,
    read_epochs,
)
from townlet.telemetry.example import example_record
from townlet.telemetry.series import LogSeries, series_of
from townlet.telemetry.summary import summarise


def write(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_deltas_by_hand() -> None:
    delta = Delta("x", 3.0, 2.0)
    assert (delta.absolute, delta.relative) == (1.0, 0.5)
    assert Delta("x", -3.0, -2.0).relative == -0.5
    assert Delta("x", 1.0, 0.0).relative == math.inf
    assert Delta("x", 0.0, 0.0).relative == 0.0


def test_a_baseline_may_be_numbers_a_record_capture_metrics_or_a_log(tmp_path: Path) -> None:
    (tmp_path / "flat.json").write_text('{"queue_conflict_events": 3, "label": "x"}')
    assert read_baseline(tmp_path / "flat.json") == {"queue_conflict_events": 3.0}
    (tmp_path / "record.json").write_text(json.dumps(example_record(1, 1.1)))
    assert read_baseline(tmp_path / "record.json")["queue_conflict_events"] == example_record(1)["queue_conflict_events"]
    (tmp_path / "metrics.json").write_text(
        json.dumps({f"s{i}.npz": {"timesteps": 10 * i, "reward_sum": float(i), "log_prob_mean": -0.5 * i} for i in (1, 3)})
    )
    assert read_baseline(tmp_path / "metrics.json") == {
        "baseline_sample_count": 2.0,
        "baseline_reward_sum": 4.0,
        "baseline_reward_sum_mean": 2.0,
        "baseline_reward_mean": 0.1,
        "baseline_log_prob_mean": -1.25,  # (10 · 0.5 + 30 · 1.5) / 40: every decision counts once
    }
    log = write(tmp_path / "a.jsonl", *(example_record(n, queue_wait_mean=float(n)) for n in (1, 3)))
    assert read_baseline(log)["queue_wait_mean"] == 2.0


@pytest.mark.parametrize(
    ("text", "message"), [("{", "is not JSON"), ("[1]", "holds no JSON object"), ('{"a": "b"}', "no number")]
)
def test_a_baseline_that_is_none_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(TelemetryError, match=message):
        read_baseline(tmp_path / "b.json")


def test_drift_is_told_per_epoch_and_in_total(tmp_path: Path) -> None:
    log = write(tmp_path / "a.jsonl", *(example_record(n, queue_wait_mean=w) for n, w in ((1, 10.0), (2, 12.0), (3, 20.0))))
    found = log_drift([log], {"queue_wait_mean": 10.0}, threshold=0.15, relative=True)
    assert [(epoch, delta.relative) for epoch, delta in found.beyond] == [(2, pytest.approx(0.2)), (3, 1.0)]
    assert found.total == [Delta("queue_wait_mean", 14.0, 10.0)]
    assert found.worst["queue_wait_mean"][0] == 3
    assert not found.ok
    absolute = log_drift([log], {"queue_wait_mean": 10.0}, threshold=5.0)
    assert [epoch for epoch, _ in absolute.beyond] == [3]
    first = log_drift([log], None, threshold=100.0, relative=True)  # without a baseline the first record is the measure
    assert first.ok
    assert Delta("queue_wait_mean", 14.0, 10.0) in first.total
    assert json.dumps(found.as_dict(), allow_nan=False)
    with pytest.raises(UsageError, match="at least 0"):
        log_drift([log], None, threshold=-1.0)


def test_names_without_the_prefix_of_a_baseline_are_found(tmp_path: Path) -> None:
    log = write(tmp_path / "a.jsonl", example_record(1, baseline_reward_mean=0.3))
    assert log_drift([log], {"reward_mean": 0.2}).total == [Delta("baseline_reward_mean", 0.3, 0.2)]


def test_pairs_are_the_common_tail_where_both_have_a_number() -> None:
    a = np.array([1.0, 2.0, np.nan, 4.0, 5.0])
    b = np.array([10.0, 20.0, 30.0, 40.0])
    left, right = aligned(a, b, 0.5)
    assert (list(left), list(right)) == ([4.0], [40.0])


def test_the_interval_covers_the_mean_of_a_series_whose_neighbours_are_alike() -> None:
    """AR(1) with correlation 0.5, 200 epochs: the 95 % interval holds the true mean nearly as often as it says."""
    rng = np.random.default_rng(1)
    held = 0
    for trial in range(200):
        noise = rng.normal(size=220)
        x = np.zeros(220)
        for t in range(1, 220):
            x[t] = 0.5 * x[t - 1] + noise[t]
        low, high = block_bootstrap(x[20:], level=0.95, resamples=500, seed=trial)
        held += low <= 0.0 <= high
    assert held >= 170


def run(seed: int, *, shift: float = 0.0, epochs: int = 60, level: float = 0.03) -> LogSeries:
    """Conflicts that fall, with a seed's own level and noise between neighbours, as in towns under one policy."""
    rng = np.random.default_rng(seed)
    own = 1 + level * rng.normal() * 0.3
    noise, out = 0.0, []
    for n in range(1, epochs + 1):
        noise = 0.4 * noise + rng.normal() * level
        conflicts = (900 - 400 * (1 - math.exp(-n / 20))) * own * (1 + shift) * (1 + noise)
        out.append(
            example_record(
                n, seed=seed, queue_conflict_events=conflicts, queue_conflict_intensity_sum=conflicts * 0.8, **{OF_TRAINING: None}
            )
        )
    return series_of(out)


NAMES = ("queue_conflict_events", "queue_conflict_intensity_sum", "queue_wait_mean", "queue_wait_gini", "batch_entropy_mean")


def test_two_runs_of_the_same_kind_seldom_alarm_and_a_shift_of_a_tenth_does() -> None:
    runs = [run(seed) for seed in range(12)]
    changed = [run(seed, shift=0.10) for seed in range(100, 106)]
    false = [compare(a, b, NAMES).alarms for i, a in enumerate(runs) for b in runs[:i]]
    hit = ["queue_conflict_events" in compare(a, b, NAMES).alarms for a in changed for b in runs[:8]]
    assert sum(map(bool, false)) <= 0.05 * len(false)
    assert sum(hit) >= 0.8 * len(hit)


def test_a_moved_histogram_alarms_and_an_equal_one_does_not() -> None:
    def with_histogram(shares: Any, seed: int) -> LogSeries:
        noise = np.random.default_rng(seed)
        rows = [noise.dirichlet(np.asarray(shares) * 400) for _ in range(40)]
        return series_of(example_record(n, seed=seed, rivalry_histogram=list(row)) for n, row in enumerate(rows, 1))

    calm = np.exp(-np.arange(10) / 2)
    calm /= calm.sum()
    tense = np.roll(calm, 3)
    same = compare(with_histogram(calm, 1), with_histogram(calm, 2), ())
    moved = compare(with_histogram(tense, 3), with_histogram(calm, 4), ())
    assert "rivalry_histogram" not in same.alarms
    assert "rivalry_histogram" in moved.alarms
    assert moved.mixes[0].distance > 0.3


def test_a_histogram_that_only_one_of_the_logs_has_is_not_compared() -> None:
    """Against a log of version 1 it was a row of nan."""
    new, old = (series_of(example_record(n, version) for n in range(1, 9)) for version in (1.4, 1.0))
    assert compare(new, new, ()).mixes[0].name == "rivalry_histogram"
    assert compare(new, old, ()).mixes == compare(old, new, ()).mixes == ()


def test_a_change_point_is_found_where_the_step_is() -> None:
    a = series_of(example_record(n, queue_wait_mean=10.0 + (5.0 if n > 30 else 0.0) + 0.01 * (n % 3)) for n in range(1, 41))
    b = series_of(example_record(n, queue_wait_mean=10.0 + 0.01 * (n % 3)) for n in range(1, 41))
    [row] = compare(a, b, ["queue_wait_mean"]).metrics
    assert row.change is not None
    assert row.change.at == 10  # of the 20 epochs of the window
    assert row.change.p_value < 0.01


def test_logs_are_compared_from_files_and_senseless_windows_refused(tmp_path: Path) -> None:
    one = write(tmp_path / "a.jsonl", *(example_record(n) for n in range(1, 21)))
    two = write(tmp_path / "b.jsonl", *(example_record(n, seed=1) for n in range(1, 21)))
    report = compare_logs(one, two)
    assert json.dumps(report.as_dict(), default=str)
    assert report.current == "a"
    with pytest.raises(UsageError, match="the window is 0"):
        compare_logs(one, two, window=0)
    empty = tmp_path / "c.jsonl"
    empty.touch()
    with pytest.raises(TelemetryError, match="holds no epoch record"):
        compare_logs(one, empty)


# --- the published figures -------------------------------------------------------------------------------------------


def shown_result(study: str, page: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The stored result of a study, which its page shows."""
    pytest.importorskip("torch")
    folder = ROOT / "benchmarks" / "telemetry"
    monkeypatch.syspath_prepend(str(folder))
    result = json.loads((folder / f"{study}_results.json").read_text())
    shown = runpy.run_path(str(folder / f"{study}_study.py"))["page"](result)
    assert shown == (ROOT / "docs" / "telemetry" / page).read_text()
    return result


def test_the_page_of_the_study_is_written_from_its_result_which_keeps_the_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    result = shown_result("drift", "DRIFT.md", monkeypatch)
    assert result["ok"]
    assert set(result["families"]) == {"town", "ppo"}
    usual = {name: next(row for row in found["rows"] if row["min_effect"] == 0.05) for name, found in result["families"].items()}
    assert all(row["false_any"] <= 0.05 for row in usual.values())
    assert all(row["found_any"] >= 0.80 for row in usual.values())
    assert usual["town"]["found_metric"] >= 0.80  # between trainings conflicts alone find less: other fields see the change
    assert all(found["pairs"] == 200 for found in result["families"].values())


def test_the_page_of_alerts_is_written_from_a_result_without_false_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    result = shown_result("watch", "ALERTS.md", monkeypatch)
    assert result["runs"] >= 40
    assert result["false"] == 0
    conflicts = [row["found"] for row in result["rows"].values() if row["field"] == "conflicts_per_resident_day"]
    assert max(conflicts) >= 0.7
    assert all(row["found"] >= 0.95 for row in result["rows"].values() if row["field"] != "conflicts_per_resident_day")


def test_epochs_that_resemble_each_other_widen_the_interval() -> None:
    rng = np.random.default_rng(3)
    white = rng.standard_normal(40)
    slow = np.cumsum(rng.standard_normal(40)) / 3
    assert persistence(white) < 0.3
    assert persistence(slow) > 0.7
    assert persistence(np.ones(10)) == 0.0
    widths = [np.ptp(block_bootstrap(series / series.std(), level=0.95)) for series in (white, slow)]
    assert widths[1] > 1.5 * widths[0]
    assert np.isfinite(widths).all()  # a step of a series that hardly moves is seen even so


def test_a_field_in_which_equal_runs_differ_more_needs_a_larger_difference() -> None:
    def run(entropy: float, conflicts: float) -> LogSeries:
        return series_of(
            example_record(n, batch_entropy_mean=entropy + 1e-4 * (n % 5), queue_conflict_events=conflicts + 1e-4 * (n % 3))
            for n in range(1, 41)
        )

    names = ["batch_entropy_mean", "queue_conflict_events"]
    assert compare(run(1.1, 11.0), run(1.0, 10.0), names).alarms == []
    assert compare(run(1.3, 13.0), run(1.0, 10.0), names).alarms == names
    assert compare(run(math.nan, 11.0), run(math.nan, 10.0), names).alarms == ["queue_conflict_events"]  # nothing learns here


def test_a_log_has_not_drifted_from_itself_in_either_command(tmp_path: Path) -> None:
    """Records of batches beside the epochs change no mean, and an epoch is compared with its like."""
    waits = (0.1, 0.2, 0.7, 0.9)
    records = [example_record(n, queue_wait_mean=wait) for n, wait in enumerate(waits, 1)]
    batch = {"kind": "batch", "telemetry_version": records[0]["telemetry_version"], "loss_value": 1e6}
    log = write(tmp_path / "a.jsonl", *records, batch)
    found = log_drift([log], read_baseline(log), epochs=read_epochs(log), threshold=0.0, relative=True)
    assert found.ok
    assert {delta.absolute for delta in found.total} == {0.0}
    assert {delta.absolute for _, delta in found.worst.values()} == {0.0}
    assert {delta.absolute for delta in summarise(log, baseline=read_baseline(log)).drift} == {0.0}
    assert {row.absolute for row in compare_logs(log, log).metrics} == {0.0}
    stages = [
        example_record(n, epoch=1 + n % 2, anneal_cycle=n // 2, queue_wait_mean=wait) for n, wait in enumerate(waits)
    ]  # every stage counts its epochs anew
    anneal = write(tmp_path / "anneal.jsonl", *stages)
    assert log_drift([anneal], read_baseline(anneal), epochs=read_epochs(anneal), threshold=0.0).ok
    later = write(tmp_path / "b.jsonl", *(example_record(n, queue_wait_mean=2 * wait) for n, wait in enumerate(waits, 1)))
    apart = log_drift([later], read_baseline(log), epochs=read_epochs(log), threshold=0.5, relative=True)
    assert [(epoch, delta.name, delta.relative) for epoch, delta in apart.beyond] == [
        (n, "queue_wait_mean", pytest.approx(1.0)) for n in (1, 2, 3, 4)
    ]
