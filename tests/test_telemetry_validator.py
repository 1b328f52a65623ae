"""The validator: every version, every kind of problem by line and key, and the rules from record to record."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_records import example_batch
from townlet.errors import TelemetryError
from townlet.telemetry.example import example_record
from townlet.telemetry.ndjson import LogReader, TelemetryWriter, read_records
from townlet.telemetry.schema import FIELDS, VERSIONS, field
from townlet.telemetry.validate import check_record, shape, validate_log


def write(path: Path, *records: dict[str, Any] | str) -> Path:
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    path.write_text("".join(line + "\n" for line in lines))
    return path


def found(path: Path) -> list[str]:
    return [str(problem).removeprefix(f"{path}:") for problem in validate_log(path).problems]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_log_of_every_version_is_valid(version: float, tmp_path: Path) -> None:
    report = validate_log(write(tmp_path / "a.jsonl", *(example_record(n, version) for n in range(1, 6))))
    assert report.ok
    assert report.records == 5
    assert report.versions == {f"{version:g}": 5}
    assert not report.notes


@pytest.mark.parametrize("version", VERSIONS)
def test_optional_fields_may_be_absent_and_whole_numbers_may_be_floats(version: float, tmp_path: Path) -> None:
    bare = {name: value for name, value in example_record(1, version).items() if field(name).required}
    as_floats = {name: float(v) if isinstance(v, int) and not isinstance(v, bool) else v for name, v in bare.items()}
    assert found(write(tmp_path / "a.jsonl", as_floats)) == []


def test_a_record_as_the_first_generation_wrote_it_is_valid(tmp_path: Path) -> None:
    first = {
        "epoch": 1.0, "updates": 4.0, "transitions": 20.0, "loss_policy": 1.2e-07, "loss_value": 1.29, "loss_entropy": 0.0,
        "loss_total": 0.645, "clip_fraction": 0.0, "adv_mean": -1.2e-07, "adv_std": 0.89, "grad_norm": 1.18,
        "kl_divergence": -0.002, "telemetry_version": 1.0, "lr": 0.0003, "steps": 20.0, "conflict.rivalry_max_mean_avg": 0.83,
        "conflict.rivalry_max_max_avg": 0.99, "conflict.rivalry_avoid_count_mean_avg": 1.08,
        "conflict.rivalry_avoid_count_max_avg": 1.5,
    }  # fmt: skip
    second = first | {
        "telemetry_version": 1.1, "epoch": 2.0, "steps": 40.0, "epoch_duration_sec": 0.02, "data_mode": "replay",
        "cycle_id": -1.0, "batch_entropy_mean": 1.38, "batch_entropy_std": 7e-05, "grad_norm_max": 2.7, "kl_divergence_max": 0.05,
        "reward_advantage_corr": 0.0, "rollout_ticks": 0.0, "log_stream_offset": 1.0, "queue_conflict_events": 32.0,
        "queue_conflict_intensity_sum": 52.75, "utility_outage_events": 0.0,
    }  # fmt: skip
    third = second | {
        "telemetry_version": 1.2,
        "epoch": 3,
        "steps": 60,
        "log_stream_offset": 2,
        "anneal_loss_baseline": None,
        "anneal_stage": "bc",
    }
    report = validate_log(write(tmp_path / "a.jsonl", first, second, third))
    assert report.problems == []
    assert [str(note) for note in report.notes] == [
        f"{tmp_path}/a.jsonl:2: utility_outage_events: is not a declared field of version 1.1; it is left alone"
    ]


@pytest.mark.parametrize("item", FIELDS, ids=lambda item: item.name)
def test_each_required_field_is_missed_by_name(item: Any, tmp_path: Path) -> None:
    for version in VERSIONS:
        record = example_record(1, version)
        record.pop(item.name, None)
        problems = found(write(tmp_path / "a.jsonl", record))
        if item.name == "telemetry_version":
            assert problems == ["1: telemetry_version: missing, expected one of the numbers 1, 1.1, 1.2, 1.3, 1.4"]
        elif item.required_in(version):
            assert problems == [f"1: {item.name}: is missing; required from version {item.since:g} on"]
        else:
            assert problems == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"lr": "0.1"}, 'lr: is "0.1", expected a number'),
        ({"lr": True}, "lr: is true, expected a number"),
        ({"epoch": 1.5}, "epoch: is 1.5, expected a whole number"),
        ({"loss_total": math.nan}, "loss_total: is NaN, expected a finite number"),
        ({"loss_total": -math.inf}, "loss_total: is -Infinity, expected a finite number"),
        ({"lr": 10**400}, f"lr: is {'1' + '0' * 56}…, expected a finite number"),
        ({"telemetry_version": 10**400},
         f"telemetry_version: is {'1' + '0' * 56}…, expected one of the numbers 1, 1.1, 1.2, 1.3, 1.4"),
        ({"loss_total": None}, "loss_total: is null, expected a number"),
        ({"clip_fraction": 1.2}, "clip_fraction: is 1.2, expected at most 1"),
        ({"kl_k3": -0.1}, "kl_k3: is -0.1, expected at least 0"),
        ({"data_mode": "live"}, 'data_mode: is "live", expected one of replay, rollout, mixed'),
        ({"anneal_loss_flag": 1}, "anneal_loss_flag: is 1, expected true or false"),
        ({"run_id": ""}, 'run_id: is "", expected a text'),
        ({"rivalry_histogram": [0.5, 0.5]}, "rivalry_histogram: is [0.5, 0.5], expected 10 numbers"),
        ({"rivalry_histogram": [1, -1, 1] + [0] * 7}, "rivalry_histogram: has a bin that is -1, expected at least 0"),
        ({"rivalry_histogram": [1.0] * 10}, "rivalry_histogram: sums to 10, expected shares that sum to 1"),
        ({"conflict_reasons": [1]}, "conflict_reasons: is [1], expected an object of counts"),
        ({"conflict_reasons": {"blocked": 0.5}}, "conflict_reasons: ['blocked'] is 0.5, expected a whole number"),
        ({"conflict_reasons": {"blocked": 1}, "queue_conflict_events": 3},
         "conflict_reasons: count 1 conflicts, queue_conflict_events is 3"),
        ({"conflicts": 1}, "conflicts: is not a declared field of version 1.4"),
        ({"telemetry_version": "1.3"}, 'telemetry_version: is "1.3", expected one of the numbers 1, 1.1, 1.2, 1.3, 1.4'),
        ({"telemetry_version": 2},
         "telemetry_version: is 2, expected one of the numbers 1, 1.1, 1.2, 1.3, 1.4; a newer Townlet wrote it, use that one"),
        ({"loss_policy": None, "nonfinite": ["loss_policy"]},
         "loss_policy: was not a finite number when it was written: the run diverged"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_with_line_and_key(change: dict[str, Any], problem: str, tmp_path: Path) -> None:
    log = write(tmp_path / "a.jsonl", example_record(1), example_record(2, **change), example_record(3))
    assert f"2: {problem}" in found(log)


def test_null_is_refused_before_1_3_and_allowed_where_the_schema_says_so(tmp_path: Path) -> None:
    unknown = {"queue_conflict_events": None, "queue_conflict_intensity_sum": None}
    assert found(write(tmp_path / "old.jsonl", example_record(1, 1.1, **unknown))) == [
        f"1: {name}: is null, expected a number (null is allowed from 1.3 on for replay samples without capture metrics)"
        for name in unknown
    ]
    assert found(write(tmp_path / "new.jsonl", example_record(1, conflict_reasons=None, **unknown))) == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"epoch": 1', "is not JSON"),
        ("[1, 2]", "is a JSON array, expected one object per line"),
        ("null", "is a JSON null, expected one object per line"),
        ("nan", "is not JSON"),
        ("[" * 100_000, "is nested too deeply for a telemetry record"),
        ('{"epoch": ' + "9" * 5000 + "}", "is not JSON"),
        ("{}", "telemetry_version: missing"),
    ],
    ids=["cut", "array", "null", "word", "deep", "huge", "empty"],
)
def test_a_line_that_is_no_record_is_a_finding_not_a_crash(line: str, problem: str, tmp_path: Path) -> None:
    report = validate_log(write(tmp_path / "a.jsonl", example_record(1), line, example_record(2)))
    assert [(p.line, problem in str(p)) for p in report.problems] == [(2, True)]
    assert report.records == 2


def test_bytes_that_are_no_text_and_endless_lines_are_findings(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"\xff\xfe{}\n")
    assert "is not JSON" in str(validate_log(tmp_path / "a.jsonl").problems[0])
    (tmp_path / "b.jsonl").write_bytes(json.dumps(example_record(1)).encode() + b"\n" + b"x" * 5_000_000)
    report = validate_log(tmp_path / "b.jsonl")
    assert report.records == 1
    assert [(p.line, p.message) for p in report.problems] == [
        (2, "a line is longer than 1048576 bytes; this is not a telemetry log")
    ]


def test_a_key_that_comes_twice_is_noticed(tmp_path: Path) -> None:
    line = json.dumps(example_record(1), separators=(",", ":"))
    assert found(write(tmp_path / "a.jsonl", line[:-1] + ',"epoch":1}')) == ["1: epoch: appears twice in one record"]


def test_records_are_compared_with_the_one_before(tmp_path: Path) -> None:
    log = write(
        tmp_path / "a.jsonl",
        example_record(1),
        example_record(2, log_stream_offset=1),
        example_record(3, steps=8192),
        example_record(4, cycle_id=0),
        example_record(6),
        example_record(7, 1.2),
    )
    report = validate_log(log)
    assert [f"{p.line}: {p.field}: {p.message}" for p in report.problems] == [
        "2: log_stream_offset: is 1 after 1; it must grow (do two programs write this log?)",
        "3: steps: is 8192 after 16384; it must grow",
        "4: cycle_id: falls from 2 to 0",
        "6: telemetry_version: falls from 1.4 to 1.2",
    ]
    assert [f"{n.line}: {n.field}: {n.message}" for n in report.notes] == [
        "3: log_stream_offset: jumps from 1 to 3: 1 records are missing",
        "5: log_stream_offset: jumps from 4 to 6: 1 records are missing",
    ]


def test_another_run_in_the_same_log_starts_its_counts_anew(tmp_path: Path) -> None:
    log = write(tmp_path / "a.jsonl", example_record(1), example_record(2), example_record(1, seed=1, log_stream_offset=3))
    report = validate_log(log)
    assert report.ok
    assert [note.field for note in report.notes] == ["run_id"]


def test_batch_records_stand_between_epochs(tmp_path: Path) -> None:
    log = write(
        tmp_path / "a.jsonl",
        example_batch(1, 0, log_stream_offset=1),
        json.dumps(example_batch(1, 1, log_stream_offset=2), separators=(",", ":")),
        example_record(1, log_stream_offset=3),
        example_batch(2, 0, log_stream_offset=3, kl_k3=-1),
    )
    report = validate_log(log)
    assert (report.batches, report.records) == (2, 1)
    assert [str(p).removeprefix(f"{log}:") for p in report.problems] == ["4: kl_k3: is -1, expected at least 0"]


def test_rotated_parts_are_read_in_order_once(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl.1", example_record(1), example_record(2))
    write(tmp_path / "a.jsonl.2", example_record(3))
    write(tmp_path / "a.jsonl", example_record(4))
    report = validate_log([tmp_path / "a.jsonl", tmp_path / "a.jsonl.1", tmp_path / "a.jsonl.2"])
    assert report.ok
    assert report.records == 4
    assert [path.name for path in report.files] == ["a.jsonl.1", "a.jsonl.2", "a.jsonl"]


def test_a_log_whose_suffixed_parts_are_the_newer_ones_is_put_right_by_its_offsets(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", example_record(1, 1.1))
    write(tmp_path / "a.jsonl.1", example_record(2, 1.1))
    write(tmp_path / "a.jsonl.2", example_record(3, 1.1))
    assert validate_log(tmp_path / "a.jsonl").ok


def test_a_log_cut_at_any_byte_gives_its_whole_lines_and_one_torn_tail(tmp_path: Path) -> None:
    whole = b'{"epoch": 1, "lr": 3e-4}\n{"epoch": 2, "data_mode": "r\\u00e9play"}\n'
    first = whole.index(b"\n") + 1
    log = tmp_path / "a.jsonl"
    for cut in range(first, len(whole) + 1):
        log.write_bytes(whole[:cut])
        reader = LogReader(log)
        assert len(list(reader)) == (2 if cut >= len(whole) - 1 else 1)
        assert (reader.torn is None) == (cut in (first, len(whole) - 1, len(whole)))
    log.write_bytes(b"".join(json.dumps(example_record(n)).encode() + b"\n" for n in (1, 2))[:-10])
    report = validate_log(log)
    assert report.ok
    assert [(note.line, "torn" in note.message) for note in report.notes] == [(2, True)]


def test_problems_are_all_counted_and_the_first_are_kept(tmp_path: Path) -> None:
    log = write(tmp_path / "a.jsonl", *(example_record(n, lr=-1, epoch=-1) for n in range(1, 51)))
    report = validate_log(log, limit=10)
    assert (report.problem_count, len(report.problems), report.bad_lines) == (100, 10, 50)


def test_an_empty_log_is_not_valid_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    assert found(tmp_path / "a.jsonl") == ["1: the log holds no record"]
    with pytest.raises(TelemetryError, match="does not exist; give the path of a telemetry log"):
        validate_log(tmp_path / "b.jsonl")


values = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**18), 10**18), st.floats(), st.text(max_size=5),
    st.just([0.1] * 10), st.just({"blocked": 1}),
    st.sampled_from(["replay", "epoch", "batch", 0, 1, 1.0, 1.1, 1.2, 1.3, 1.4, -1]),
)  # fmt: skip


@settings(max_examples=400)
@given(
    st.sampled_from(VERSIONS), st.dictionaries(st.sampled_from([item.name for item in FIELDS] + ["other"]), values, max_size=3)
)
def test_the_compiled_check_and_the_check_in_words_agree(version: float, changes: dict[str, Any]) -> None:
    """The quick check may pass a record only when the complete one finds nothing, and the other way round."""
    record = example_record(1, version) | {"telemetry_version": version} | changes
    if (
        record.get("telemetry_version") != version
        or record.get("kind") == "batch"
        or isinstance(record["telemetry_version"], bool)
    ):
        return
    in_words = [
        problem for problem in check_record(record) if "conflicts, queue" not in problem[1] and "sums to" not in problem[1]
    ]
    assert passes(shape(version).decoder, json.dumps(record).encode()) == (not in_words), (in_words, changes)


def passes(decoder: Any, raw: bytes) -> bool:
    try:
        decoder.decode(raw)
    except msgspec.MsgspecError:
        return False
    return True


@settings(max_examples=300)
@given(st.integers(0, 10**6), st.integers(0, 3), st.binary(min_size=0, max_size=12))
def test_damaged_bytes_anywhere_are_findings_or_harmless_never_a_crash(place: int, cut: int, patch: bytes) -> None:
    """Some bytes of a log are replaced, removed or added; the other records are still read."""
    whole = b"".join(json.dumps(example_record(n), separators=(",", ":")).encode() + b"\n" for n in (1, 2, 3))
    place %= len(whole)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "a.jsonl"
        log.write_bytes(whole[:place] + patch + whole[place + cut :])
        report = validate_log(log)
    assert report.records + report.bad_lines + report.note_count >= 1
    assert report.records >= 1 or report.problem_count


def test_epochs_grow_within_a_run_and_a_stage(tmp_path: Path) -> None:
    log = write(tmp_path / "a.jsonl", *(example_record(n, epoch=epoch) for n, epoch in ((1, 1), (2, 2), (3, 2))))
    assert found(log) == ["3: epoch: is 2 after 2; it must grow"]
    stages = [example_record(n, epoch=epoch, anneal_cycle=stage) for n, epoch, stage in ((1, 1, 0), (2, 2, 0), (3, 1, 1))]
    assert found(write(tmp_path / "b.jsonl", *stages)) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_epochs_that_fall_are_wrong_in_every_version(tmp_path: Path, version: float) -> None:
    log = write(tmp_path / "a.jsonl", *(example_record(n, version, epoch=epoch) for n, epoch in ((1, 2), (2, 1))))
    assert found(log) == ["2: epoch: is 1 after 2; it must grow"]


def test_a_replay_run_has_no_return_of_its_own(tmp_path: Path) -> None:
    told = example_record(1, data_mode="replay", episode_return_mean=30.0)
    assert [line.split(":")[1].strip() for line in found(write(tmp_path / "a.jsonl", told))] == ["episode_return_mean"]
    before = write(tmp_path / "b.jsonl", example_record(1, 1.3, data_mode="replay", episode_return_mean=30.0))
    assert found(before) == []
    (record,) = read_records(before)
    assert (record["episode_return_mean"], record["dataset_return"]) == (None, 30.0)


def test_no_maximum_lies_below_its_mean(tmp_path: Path) -> None:
    low = {"grad_norm": 2.0, "grad_norm_max": 1.5}
    rivalry = {"conflict.rivalry_max_mean_avg": 0.4, "conflict.rivalry_max_max_avg": 0.3}
    log = write(tmp_path / "a.jsonl", example_record(1, **low), example_record(2, **rivalry))
    assert found(log) == [
        "1: grad_norm_max: is 1.5, below the mean grad_norm, 2",
        "2: conflict.rivalry_max_max_avg: is 0.3, below the mean conflict.rivalry_max_mean_avg, 0.4",
    ]


def test_an_empty_log_is_wrong_also_beside_a_full_one(tmp_path: Path) -> None:
    empty, full = write(tmp_path / "empty.jsonl"), write(tmp_path / "full.jsonl", example_record(1))
    assert [str(problem) for problem in validate_log([full, empty]).problems] == [f"{empty}:1: the log holds no record"]


def test_a_rotated_part_without_a_record_is_told(tmp_path: Path) -> None:
    with TelemetryWriter(tmp_path / "log.ndjson", max_entries=2) as log:
        for number in range(1, 4):
            log.write(example_record(number))
    (tmp_path / "log.ndjson.1").write_bytes(b"")
    report = validate_log(tmp_path / "log.ndjson")
    assert [note.message for note in report.notes] == ["is a rotated part without a record; those it held are missing"]


def test_a_record_whose_version_is_null_is_read_as_one_of_today(tmp_path: Path) -> None:
    records = example_record(1), example_record(2) | {"telemetry_version": None}  # the first one tells what file it is
    (tmp_path / "log.ndjson").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert len(list(read_records(tmp_path / "log.ndjson"))) == 2
    assert not validate_log(tmp_path / "log.ndjson").ok
