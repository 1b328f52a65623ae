"""A log for other tools: TensorBoard event files, CSV, Parquet, Prometheus; Weights & Biases and MLflow when they are there."""

from __future__ import annotations

import csv
import io
import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from townlet.errors import TelemetryError, UsageError
from townlet.files import check_free, filling, publish_folder, write_bytes
from townlet.optional import require
from townlet.telemetry.ndjson import epoch_records
from townlet.telemetry.schema import FIELDS, RIVALRY_BINS, Field, declared, field
from townlet.telemetry.series import label_of, number
from townlet.types import Record


def tag(name: str) -> str:
    """Where a field is shown: `<panel>/<name>`, fields without a panel under `other`."""
    return f"{(field(name).panel if declared(name) else '') or 'other'}/{name}".replace(" ", "_")


def scalars(record: Mapping[str, object]) -> dict[str, float]:
    """Tag → number for everything a record counts; conflict reasons as `<tag>/<reason>`. The step is not among them."""
    found: dict[str, float] = {}
    for name, value in record.items():
        if isinstance(value, int | float) and name not in ("steps", "telemetry_version"):
            found[tag(name)] = float(value)
        elif isinstance(value, dict):
            found |= {f"{tag(name)}/{part}": float(count) for part, count in value.items()}
    return found


def step_of(record: Record) -> int:
    """Decisions trained on, the x axis everywhere."""
    return int(record.get("steps") or 0)


def epochs(path: Path | str) -> list[Record]:
    found = list(epoch_records(path))
    if not found:
        raise TelemetryError(f"{path} holds no epoch record; give the log of a training run")
    return found


def to_tensorboard(path: Path, output: Path, *, overwrite: bool = False) -> Path:
    """An event folder; the step is the number of decisions trained on, the clock the time since the first epoch.

    The file is put together here: the writer of tensorboardX works in a thread of its own and waits for ever on a full disk.
    """
    require("tensorboardX", "writing TensorBoard event files")
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import HistogramProto, Summary
    from tensorboardX.record_writer import masked_crc32c

    lines: list[bytes] = []

    def write(event: Any) -> None:
        data = event.SerializeToString(deterministic=True)
        size = struct.pack("<Q", len(data))
        lines.extend((size, struct.pack("<I", masked_crc32c(size)), data, struct.pack("<I", masked_crc32c(data))))

    write(Event(wall_time=0.0, file_version="brain.Event:2"))
    clock = 0.0
    for record in epochs(path):
        clock += number(record.get("epoch_duration_sec")) if record.get("epoch_duration_sec") is not None else 0.0
        values = [Summary.Value(tag=name, simple_value=value) for name, value in scalars(record).items()]
        histogram = record.get("rivalry_histogram")
        if isinstance(histogram, list):
            values.append(Summary.Value(tag=tag("rivalry_histogram"), histo=HistogramProto(**_histogram(histogram))))
        write(Event(wall_time=clock, step=step_of(record), summary=Summary(value=values)))
    with filling(output) as partial:
        write_bytes(partial / "events.out.tfevents.0.townlet", b"".join(lines), sync=False)
        publish_folder(partial, output, overwrite=overwrite)
    return output


def _histogram(shares: list[float]) -> Record:
    edges = [(index + 1) / RIVALRY_BINS for index in range(RIVALRY_BINS)]
    middles = [edge - 0.5 / RIVALRY_BINS for edge in edges]
    return {
        "min": 0.0,
        "max": 1.0,
        "num": sum(shares),
        "sum": sum(share * x for share, x in zip(shares, middles)),
        "sum_squares": sum(share * x * x for share, x in zip(shares, middles)),
        "bucket_limit": edges,
        "bucket": shares,
    }


def columns_of(records: list[dict[str, object]]) -> list[str]:
    """Declared fields that occur, in their declared order, then whatever else a record holds."""
    there = {name for record in records for name in record}
    known = [item.name for item in FIELDS if item.name in there]
    return known + sorted(there - set(known))


def to_csv(path: Path, output: Path, **_: object) -> Path:
    """One row per epoch, null as an empty cell, lists and objects as JSON."""
    records = epochs(path)
    text = io.StringIO(newline="")
    names = columns_of(records)
    table = csv.writer(text, lineterminator="\n")
    table.writerow(names)
    for record in records:
        table.writerow([_cell(record.get(name)) for name in names])
    write_bytes(output, text.getvalue().encode())
    return output


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, list | dict) else value


def to_parquet(path: Path, output: Path, **_: object) -> Path:
    """One typed column per field; units and meanings stand in the column metadata."""
    arrow = require("pyarrow", "writing Parquet")
    parquet = require("pyarrow.parquet", "writing Parquet")
    records = epochs(path)
    columns, fields = [], []
    for name in columns_of(records):
        item = field(name) if declared(name) else None
        kind = _arrow_type(arrow, item)
        about = {"unit": item.unit, "meaning": item.meaning} if item else {}
        values = [_typed(record.get(name), item) for record in records]
        columns.append(arrow.array(values, type=kind))
        fields.append(arrow.field(name, kind, metadata=about))
    data = io.BytesIO()
    parquet.write_table(arrow.Table.from_arrays(columns, schema=arrow.schema(fields)), data)
    write_bytes(output, data.getvalue())
    return output


def _arrow_type(arrow: ModuleType, item: Field | None) -> Any:
    if item is None:
        return arrow.string()
    return {
        "whole": arrow.int64(),
        "number": arrow.float64(),
        "flag": arrow.bool_(),
        "histogram": arrow.list_(arrow.float64()),
        "counts": arrow.map_(arrow.string(), arrow.int64()),
        "names": arrow.list_(arrow.string()),
    }.get(item.kind, arrow.string())


def _typed(value: Any, item: Field | None) -> Any:
    if value is None:
        return None
    if item is None:
        return json.dumps(value)
    if item.kind == "whole":
        return int(value)
    if item.kind == "counts":
        return [(part, int(count)) for part, count in value.items()]
    return value


def to_wandb(path: Path, output: Path, **_: object) -> Path:
    """An offline run in the folder `output`; `wandb sync` sends it."""
    wandb = require("wandb", "exporting to wandb")
    run = wandb.init(project="townlet", name=label_of(path), dir=str(output), mode="offline")
    for record in epochs(path):
        run.log(scalars(record), step=step_of(record))
    run.finish()
    return output


def to_mlflow(path: Path, output: Path, **_: object) -> Path:
    """A run in the tracking folder `output`."""
    mlflow = require("mlflow", "exporting to mlflow")
    mlflow.set_tracking_uri(output.resolve().as_uri())
    mlflow.set_experiment("townlet")
    with mlflow.start_run(run_name=label_of(path)):
        for record in epochs(path):
            mlflow.log_metrics(scalars(record), step=step_of(record))
    return output


def to_prometheus(path: Path, output: Path, **_: object) -> Path:
    """The last epoch in Prometheus' text format, for the textfile collector of node_exporter: a gauge per number.

    The file is replaced as a whole; `townlet_epochs` counts the epochs of the log, so that a run that stands still is seen.
    """
    records = epochs(path)
    last = records[-1]
    labels = {"log": label_of(path), "run": str(last.get("run_id", "")), "mode": str(last.get("data_mode", ""))}
    named = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items())
    lines = [
        "# HELP townlet_epochs Epochs in the log.",
        "# TYPE townlet_epochs gauge",
        f"townlet_epochs{{{named}}} {len(records)}",
    ]
    for name, value in last.items():
        metric = "townlet_" + name.replace(".", "_")
        if isinstance(value, int | float):
            lines += [*_about(metric, name), f"{metric}{{{named}}} {float(value)!r}"]
        elif isinstance(value, dict):
            lines += _about(metric, name)
            lines += [f'{metric}{{{named},kind="{_escaped(part)}"}} {float(count)!r}' for part, count in value.items()]
    write_bytes(output, ("\n".join(lines) + "\n").encode())
    return output


def _about(metric: str, name: str) -> list[str]:
    meaning = f"{field(name).meaning} Unit: {field(name).unit}." if declared(name) else name
    return [f"# HELP {metric} {meaning.replace(chr(92), chr(92) * 2)}", f"# TYPE {metric} gauge"]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


EXPORTS: dict[str, Callable[..., Path]] = {
    "tensorboard": to_tensorboard,
    "csv": to_csv,
    "parquet": to_parquet,
    "wandb": to_wandb,
    "mlflow": to_mlflow,
    "prometheus": to_prometheus,
}


def export(path: Path | str, output: Path | str, kind: str, *, overwrite: bool = False) -> Path:
    if kind not in EXPORTS:
        raise UsageError(f"{kind!r} is not an export format; choose one of {', '.join(EXPORTS)}")
    path, output = Path(path), Path(output)
    if kind not in ("wandb", "mlflow", "prometheus"):  # which add to what is there, or are written again and again
        check_free(output, overwrite, "place")
    return EXPORTS[kind](path, output, overwrite=overwrite)
