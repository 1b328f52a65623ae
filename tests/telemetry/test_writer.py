"""The log of a run: whole lines, rotation, offsets that never break, sampling, full disks, and going back to a checkpoint."""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batch_records import example_batch
from townlet import files
from townlet.errors import TelemetryError, UsageError
from townlet.telemetry.example import example_record
from townlet.telemetry.ndjson import LogReader, TelemetryWriter, encode_record, log_parts, read_records
from townlet.telemetry.validate import validate_log


def epochs(path: Path) -> list[tuple[int, int]]:
    return [(record["epoch"], record["log_stream_offset"]) for record in read_records(path)]


def fill(writer: TelemetryWriter, first: int, last: int) -> None:
    for number in range(first, last + 1):
        writer.write(example_record(number))


def test_what_is_written_validates_and_is_on_disk_after_each_record(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "ppo.jsonl"
    with TelemetryWriter(path) as writer:
        for number in range(1, 6):
            assert writer.write(example_record(number))
            assert epochs(path)[-1] == (number, number)
    assert validate_log(path).ok


def test_the_writer_sets_offset_and_dropped_count_itself(tmp_path: Path) -> None:
    with TelemetryWriter(tmp_path / "a.jsonl", start_offset=41) as writer:
        writer.write({"telemetry_version": 1.3, "log_stream_offset": 7, "records_dropped": 9})
    assert next(read_records(tmp_path / "a.jsonl")) == {"telemetry_version": 1.3, "log_stream_offset": 42, "records_dropped": 0}


@pytest.mark.parametrize("version", ["", ', "telemetry_version": null'])
def test_a_log_of_another_program_is_refused_by_name(version: str, tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text(f'{{"loss": 0.3, "iter": 1{version}}}\n')
    with pytest.raises(TelemetryError, match=r"other\.jsonl:1: has no telemetry_version; give the log of a training run"):
        next(read_records(path))


def test_rotation_numbers_the_parts_from_the_oldest_and_the_offset_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with TelemetryWriter(path, max_entries=3) as writer:
        fill(writer, 1, 8)
    assert [part.name for part in log_parts(path)] == ["a.jsonl.1", "a.jsonl.2", "a.jsonl"]
    assert [len(list(LogReader(part))) for part in log_parts(path)] == [3, 3, 2]
    assert epochs(path) == [(n, n) for n in range(1, 9)]
    with TelemetryWriter(path, max_entries=3) as again:  # another process goes on
        fill(again, 9, 10)
    assert epochs(path) == [(n, n) for n in range(1, 11)]
    assert validate_log(path).ok


@pytest.mark.parametrize(("frequency", "written"), [(1, [1, 2, 3, 4, 5, 6, 7]), (3, [1, 4, 7]), (10, [1])])
def test_frequency_writes_every_nth_epoch_and_the_batches_that_belong_to_it(
    frequency: int, written: list[int], tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    with TelemetryWriter(path, frequency=frequency) as writer:
        for number in range(1, 8):
            writer.write(example_batch(number, 0))
            writer.write(example_record(number))
    records = list(read_records(path))
    assert [r["epoch"] for r in records if r.get("kind") == "batch"] == written
    assert [r["epoch"] for r in records if "kind" not in r] == written
    assert [r["log_stream_offset"] for r in records] == list(range(1, 2 * len(written) + 1))


@pytest.mark.parametrize(("frequency", "written"), [(1, [1, 2, 3, 4, 5]), (3, [1, 4, 5]), (4, [1, 5]), (10, [1, 5])])
def test_the_last_epoch_is_written_whatever_the_frequency(frequency: int, written: list[int], tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with TelemetryWriter(path, frequency=frequency) as writer:
        for number in range(1, 6):
            writer.write(example_batch(number, 0))
            writer.write(example_batch(number, 1))
            writer.write(example_record(number))
        writer.write_last()
        writer.write_last()  # once is enough
    records = list(read_records(path))
    assert [r["epoch"] for r in records if r.get("kind") == "batch"] == [number for number in written for _ in range(2)]
    assert [r["epoch"] for r in records if "kind" not in r] == written
    assert validate_log(path).ok


def test_going_back_forgets_the_epoch_that_was_left_out(tmp_path: Path) -> None:
    with TelemetryWriter(tmp_path / "a.jsonl", frequency=2) as writer:
        writer.write(example_record(1))
        position = writer.position()
        writer.write(example_record(2))
        writer.rewind(position)
        writer.write_last()
    assert epochs(tmp_path / "a.jsonl") == [(1, 1)]


def test_a_writer_without_a_path_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    writer = TelemetryWriter(None)
    assert not writer.write(example_record(1))
    assert writer.position() == {}
    assert writer.rewind({}) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [{"frequency": 0}, {"max_entries": 0}])
def test_senseless_settings_are_refused(options: dict[str, int], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must be at least 1"):
        TelemetryWriter(tmp_path / "a.jsonl", **options)


def test_numpy_values_are_written_as_numbers_and_what_is_not_finite_is_named() -> None:
    line = json.loads(
        encode_record(
            {
                "a": np.float32(0.5),
                "b": np.float64(0.25),
                "c": np.int64(3),
                "d": np.ones(2),
                "e": math.nan,
                "f": np.float32(np.inf),
            }
        )
    )
    assert line == {"a": 0.5, "b": 0.25, "c": 3, "d": [1.0, 1.0], "e": None, "f": None, "nonfinite": ["e", "f"]}
    with pytest.raises(TelemetryError, match="type object cannot be written as JSON"):
        encode_record({"a": object()})


def test_a_diverged_record_is_written_whatever_the_frequency_and_does_not_validate(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with TelemetryWriter(path, frequency=10) as writer:
        fill(writer, 1, 1)
        assert writer.write(example_record(2, loss_total=math.nan))
    assert [problem.field for problem in validate_log(path).problems] == ["loss_total", "nonfinite"]


def test_half_a_line_of_a_killed_writer_is_cut_off_aloud(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.jsonl"
    with TelemetryWriter(path) as writer:
        fill(writer, 1, 2)
    with open(path, "ab") as file:
        file.write(b'{"epoch": 3, "upd')
    with caplog.at_level(logging.WARNING), TelemetryWriter(path) as writer:
        fill(writer, 3, 3)
    assert "ended in half a line (17 bytes)" in caplog.text
    assert epochs(path) == [(1, 1), (2, 2), (3, 3)]


def full_disk(*_: Any) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_stops_the_log_with_one_warning_and_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.jsonl"
    writer = TelemetryWriter(path)
    fill(writer, 1, 2)
    position = writer.position()
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(files.disk, "write", full_disk)
        assert [writer.write(example_record(n)) for n in (3, 4)] == [False, False]
    assert not writer.write(example_record(5))  # it stays off, also when there is room again
    assert writer.records_dropped == 3
    assert len(caplog.records) == 1
    assert "telemetry stops at record 3" in caplog.text
    assert epochs(path) == [(1, 1), (2, 2)]
    resumed = TelemetryWriter(path)
    resumed.rewind(position | {"records_dropped": writer.records_dropped})
    fill(resumed, 3, 3)
    assert list(read_records(path))[-1]["records_dropped"] == 3


def test_a_disk_that_fails_when_the_position_is_kept_stops_the_log_not_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    writer = TelemetryWriter(tmp_path / "a.jsonl")
    fill(writer, 1, 2)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(files.disk, "fsync", full_disk)
        position = writer.position()
    assert (position["offset"], position["byte"]) == (2, (tmp_path / "a.jsonl").stat().st_size)
    assert not writer.write(example_record(3))
    assert writer.records_dropped == 1
    assert len(caplog.records) == 1


def test_a_short_write_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    writer = TelemetryWriter(path)
    fill(writer, 1, 1)
    whole = os.write
    monkeypatch.setattr(files.disk, "write", lambda fd, data: whole(fd, data[:100]))
    assert not writer.write(example_record(2))
    assert epochs(path) == [(1, 1)]
    assert path.read_bytes().endswith(b"\n")


@pytest.mark.parametrize("kept", range(11))
@pytest.mark.parametrize("max_entries", [None, 3])
def test_rewind_takes_back_exactly_what_followed(kept: int, max_entries: int | None, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    writer = TelemetryWriter(path, max_entries=max_entries)
    fill(writer, 1, kept)
    position = json.loads(json.dumps(writer.position()))
    fill(writer, kept + 1, 11)
    writer.close()
    resumed = TelemetryWriter(path, max_entries=max_entries)
    resumed.rewind(position)
    fill(resumed, kept + 1, 11)
    resumed.close()
    assert epochs(path) == [(n, n) for n in range(1, 12)]
    assert [r["epoch"] for r in read_records(tmp_path / "a.jsonl.discarded")] == list(range(kept + 1, 12))


def test_a_resumed_log_has_the_bytes_of_one_that_ran_through(tmp_path: Path) -> None:
    def parts(path: Path) -> list[bytes]:
        return [part.read_bytes() for part in log_parts(path)]

    with TelemetryWriter(tmp_path / "through.jsonl", max_entries=4, frequency=2) as writer:
        fill(writer, 1, 21)
    writer = TelemetryWriter(tmp_path / "stopped.jsonl", max_entries=4, frequency=2)
    fill(writer, 1, 10)
    position = writer.position()
    fill(writer, 11, 19)
    with TelemetryWriter(tmp_path / "stopped.jsonl", max_entries=4, frequency=2) as resumed:
        resumed.rewind(position)
        fill(resumed, 11, 21)
    assert parts(tmp_path / "stopped.jsonl") == parts(tmp_path / "through.jsonl")


def test_a_position_that_the_log_does_not_hold_is_refused_and_nothing_is_moved(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    writer = TelemetryWriter(path)
    fill(writer, 1, 3)
    position = writer.position()
    writer.close()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0])
    with pytest.raises(TelemetryError, match="where the checkpoint was taken"):
        TelemetryWriter(path).rewind(position)
    path.write_bytes(b"".join(lines[:3])[: position["byte"] - 1] + b"x" + b"more\n")
    with pytest.raises(TelemetryError, match="does not hold record 3"):
        TelemetryWriter(path).rewind(position)
    assert not (tmp_path / "a.jsonl.discarded").exists()


def test_rewind_can_be_repeated_after_a_crash_at_every_file_operation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash during rewind, at any operation, then a second try: nothing lost, and the log is where the checkpoint was."""
    operation, crashed = 0, True
    while crashed:
        path = tmp_path / str(operation) / "a.jsonl"
        writer = TelemetryWriter(path, max_entries=2)
        fill(writer, 1, 3)
        position = writer.position()
        fill(writer, 4, 9)
        writer.close()
        with monkeypatch.context() as patch:
            crashed = crash_at(operation, patch, lambda path=path, position=position: TelemetryWriter(path).rewind(position))
        with TelemetryWriter(path, max_entries=2) as again:
            again.rewind(position)
            fill(again, 4, 5)
        assert epochs(path) == [(n, n) for n in range(1, 6)]
        assert {r["epoch"] for r in read_records(path.with_name("a.jsonl.discarded"))} == set(range(4, 10))
        operation += 1
    assert operation > 10


class Crash(BaseException):
    pass


def crash_at(operation: int, patch: pytest.MonkeyPatch, action: Any) -> bool:
    """Run an action; the process 'dies' at the given file operation. True when it came that far."""
    count = 0

    def dying(real: Any) -> Any:
        def call(*arguments: Any) -> Any:
            nonlocal count
            if count == operation:
                raise Crash
            count += 1
            return real(*arguments)

        return call

    for name in ("write", "fsync", "truncate", "replace", "rename", "unlink"):
        patch.setattr(files.disk, name, dying(getattr(files.disk, name)))
    try:
        action()
    except Crash:
        return True
    return False


def test_every_kill_leaves_whole_lines_and_at_most_one_torn_tail(tmp_path: Path) -> None:
    """A process that writes and rotates as fast as it can is killed; its log goes on where it stopped."""
    script = textwrap.dedent(
        """
        import sys
        from townlet.telemetry.example import example_record
        from townlet.telemetry.ndjson import TelemetryWriter
        writer = TelemetryWriter(sys.argv[1], max_entries=5)
        print("ready", flush=True)
        number = writer.offset
        while True:
            number += 1
            writer.write({"telemetry_version": 1.3, "epoch": number, "steps": number})
        """
    )
    path = tmp_path / "a.jsonl"
    before = 0
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        while sum(1 for _ in tmp_path.iterdir()) < before + 12:
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        offsets = [record["log_stream_offset"] for record in read_records(path)]
        assert offsets == list(range(1, len(offsets) + 1))
        before = sum(1 for _ in tmp_path.iterdir())
