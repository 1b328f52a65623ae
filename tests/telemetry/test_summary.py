"""Summaries: hand-checked figures, formats, and memory that does not grow with the log."""

from __future__ import annotations

import json
import math
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batch_records import example_batch
from townlet.telemetry.example import example_record
from townlet.telemetry.ndjson import TelemetryWriter
from townlet.telemetry.summary import SKETCH, FieldSummary, Sketch, as_markdown, as_text, summarise_records
from townlet.telemetry.validate import validate_log


def test_latest_extremes_mean_and_trend_by_hand() -> None:
    values = [3.0, 1.0, 2.0, 6.0]
    summary = summarise_records(example_record(n, loss_total=v) for n, v in enumerate(values, 1))
    column = summary.columns["loss_total"]
    assert (column.count, column.first, column.latest) == (4, 3.0, 6.0)
    assert (column.low, column.low_epoch, column.high, column.high_epoch) == (1.0, 2.0, 6.0, 4.0)
    assert column.mean == 3.0
    assert column.std == pytest.approx(math.sqrt(14 / 3))
    assert column.trend == pytest.approx(3.0)  # slope (−1.5·0 + −0.5·−2 + 0.5·−1 + 1.5·3) / 5 = 1 per record, over three steps


def test_chunks_give_what_one_piece_gives() -> None:
    values = np.random.default_rng(0).normal(5, 2, 1000)
    places = np.arange(1000.0)
    whole, parts = FieldSummary("lr"), FieldSummary("lr")
    whole.add(values, places, places)
    for cut in np.array_split(np.arange(1000), 7):
        parts.add(values[cut], places[cut], places[cut])
    for name in ("count", "first", "latest", "low", "low_epoch", "high", "high_epoch"):
        assert getattr(whole, name) == getattr(parts, name)
    for name in ("mean", "std", "trend"):
        assert getattr(parts, name) == pytest.approx(getattr(whole, name))
    assert parts.std == pytest.approx(values.std(ddof=1))
    assert parts.trend == pytest.approx(np.polyfit(places, values, 1)[0] * 999)


def test_a_sketch_keeps_the_shape_of_a_long_curve_in_few_points() -> None:
    sketch = Sketch()
    for chunk in np.array_split(np.arange(10_001.0), 13):
        sketch.add(chunk)
    curve = sketch.curve()
    assert 16 <= len(curve) <= SKETCH + 1
    assert list(curve) == sorted(curve)
    assert curve[0] < 400
    assert curve[-1] > 9_600


def records(count: int, **changes: Any) -> Iterator[dict[str, Any]]:
    return (example_record(n, **changes) for n in range(1, count + 1))


def test_text_and_markdown_tell_the_run_the_conflicts_and_the_anneal_state() -> None:
    anneal = {"anneal_cycle": 1, "anneal_stage": "ppo", "anneal_bc_accuracy": 0.97, "anneal_bc_threshold": 0.95}
    stage = [*records(3, **anneal, anneal_bc_passed=True, anneal_queue_flag=True), example_batch(3, 0)]
    summary = summarise_records(stage, "a.jsonl", baseline={"queue_conflict_events": 500.0, "unknown": 1.0})
    text, page = as_text(summary), as_markdown(summary)
    for told in (
        "a.jsonl",
        "3 and 1 of batches",
        "rollout 3",
        "blocked ",
        "cycle 1: ppo (guard: queue)",
        "accuracy 0.97",
        "drift",
    ):
        assert told in text
    assert "| loss_total |" in page
    assert "## Drift against the baseline" in page
    assert "queue_conflict_events" in page
    assert "the same in every record: updates 16" in text


def test_json_holds_numbers_only_and_is_complete() -> None:
    found = json.loads(json.dumps(summarise_records(records(5), baseline={"lr": 1e-4}).as_dict(), allow_nan=False))
    assert found["metrics"]["loss_total"]["count"] == 5
    assert found["records"] == 5
    assert found["drift"][0]["name"] == "lr"
    assert found["drift"][0]["relative"] == pytest.approx(2.0)


def test_an_old_log_without_most_fields_is_summarised_too() -> None:
    summary = summarise_records(records(3, version=1.0))
    assert "cycle –" in as_text(summary)
    assert json.dumps(summary.as_dict(), allow_nan=False)


def test_a_record_without_a_version_is_counted_as_one_of_unknown_version() -> None:
    first, second = records(2)
    del second["telemetry_version"]
    assert summarise_records([first, second]).versions == {"1.4": 1, "unknown": 1}


def test_memory_does_not_grow_with_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("townlet.telemetry.series.CHUNK", 100)
    made = [example_record(n) for n in range(1, 101)]

    def peak(count: int) -> int:
        tracemalloc.start()
        summarise_records(dict(made[n % 100]) for n in range(count))
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(200)  # warm
    assert peak(3_000) < 1.3 * peak(500)


def test_validation_costs_no_more_than_half_as_much_again_as_reading_the_json(tmp_path: Path) -> None:
    """In one run, so that it holds on any machine: plain `json.loads` of the same lines is the measure."""
    log = tmp_path / "a.jsonl"
    with TelemetryWriter(log) as writer:
        for number in range(1, 3001):
            writer.write(example_record(number))

    def spent(action: Any) -> float:
        times = []
        for _ in range(3):
            begin = time.process_time()
            action()
            times.append(time.process_time() - begin)
        return min(times)

    lines = log.read_bytes().splitlines()
    reading = spent(lambda: [json.loads(line) for line in lines])
    assert spent(lambda: validate_log(log)) < 1.5 * reading


@pytest.mark.slow
def test_a_million_lines_are_validated_and_summarised(tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    made = [example_record(n) for n in range(1, 1001)]
    with TelemetryWriter(log) as writer:
        for number in range(1_000_000):
            writer.write(made[number % 1000] | {"steps": 8192 * (number + 1), "cycle_id": number})
    report = validate_log(log)
    assert report.ok
    assert report.records == 1_000_000
