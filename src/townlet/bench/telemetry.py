"""What telemetry costs: the rows of `townlet bench telemetry`."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from townlet.bench.rows import row
from townlet.telemetry.example import example_record
from townlet.telemetry.ndjson import TelemetryWriter, read_records
from townlet.telemetry.series import number
from townlet.telemetry.validate import validate_log
from townlet.types import Record

WRITE_BAR_MS = 0.1
VALIDATE_BAR = 50_000.0
SHARE_BAR = 0.01


def telemetry_rows(*, records: int = 20_000, repeats: int = 3, log: Path | None = None) -> list[Record]:
    """Rows of {name, value, unit, bar, ok}: the best of `repeats`, on made-up records of the current version.

    Writing is timed by the clock on the wall, validation, which only computes, by that of the processor.
    With the log of a real run a third row tells which share of that run's time its own records would take.
    """
    made = [example_record(index + 1) for index in range(min(records, 2000))]
    write, check = [], []
    with tempfile.TemporaryDirectory() as folder:
        for attempt in range(repeats):
            path = Path(folder) / f"bench_{attempt}.jsonl"
            with TelemetryWriter(path) as writer:
                begin = time.perf_counter()
                for index in range(records):
                    record = made[index % len(made)]
                    record["epoch"] = index + 1
                    record["steps"] = 8192 * (index + 1)
                    record["cycle_id"] = index
                    writer.write(record)
                write.append((time.perf_counter() - begin) / records)
            begin = time.process_time()
            report = validate_log(path)
            check.append(records / (time.process_time() - begin))
            if not report.ok:
                raise AssertionError(f"the bench wrote a log that does not validate: {report.problems[0]}")
    rows = [
        row("record written", min(write) * 1e3, "ms", WRITE_BAR_MS, smaller=True),
        row("records validated", max(check), "1/s", VALIDATE_BAR),
    ]
    if log is not None:
        rows.append(row("share of training time", share_of_training(log, min(write)), "share", SHARE_BAR, smaller=True))
    return rows


def share_of_training(log: Path, seconds_per_record: float) -> float:
    """Time to write the records of a log, over the time its epochs took."""
    count, seconds = 0, 0.0
    for record in read_records(log):
        count += 1
        spent = number(record.get("epoch_duration_sec"))
        seconds += spent if spent > 0 else 0.0
    return count * seconds_per_record / seconds if seconds else float("nan")
