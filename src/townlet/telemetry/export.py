"""A log for other tools: TensorBoard event files, CSV, Parquet; Weights & Biases and MLflow when they are installed.

TensorBoard writes by itself, into a folder beside its place that is then moved whole.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from townlet.errors import MissingPackageError, UsageError
from townlet.files import partial_folder, publish_folder, write_bytes
from townlet.optional import installed, require
from townlet.telemetry.ndjson import read_records
from townlet.telemetry.schema import FIELDS, RIVALRY_BINS, Field, declared, field
from townlet.telemetry.series import label_of


def tag(name: str) -> str:
    """Where a field is shown: `<panel>/<name>`, fields without a panel under `other`."""
    return f"{(field(name).panel if declared(name) else '') or 'other'}/{name}".replace(" ", "_")


def scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """Tag → number for everything a record counts; conflict reasons as `<tag>/<reason>`. The step is not among them."""
    found: dict[str, float] = {}
    for name, value in record.items():
        if isinstance(value, int | float) and name not in ("steps", "telemetry_version"):
            found[tag(name)] = float(value)
        elif isinstance(value, dict):
            found |= {f"{tag(name)}/{part}": float(count) for part, count in value.items()}
    return found


def step_of(record: Mapping[str, Any]) -> int:
    """Decisions trained on, the x axis everywhere."""
    return int(record.get("steps") or 0)


def epochs(path: Path | str) -> Iterable[dict[str, Any]]:
    return (record for record in read_records(path) if record.get("kind") != "batch")


def to_tensorboard(path: Path, output: Path, *, overwrite: bool = False) -> Path:
    """An event folder; the step is the number of decisions trained on."""
    writer_module = require("tensorboardX", "writing TensorBoard event files")
    partial = partial_folder(output)
    writer = writer_module.SummaryWriter(str(partial), write_to_disk=True)
    try:
        for record in epochs(path):
            step = step_of(record)
            for name, value in scalars(record).items():
                writer.add_scalar(name, value, step)
            histogram = record.get("rivalry_histogram")
            if isinstance(histogram, list):
                _add_histogram(writer, histogram, step)
    finally:
        writer.close()
    publish_folder(partial, output, overwrite=overwrite)
    return output


def _add_histogram(writer: Any, shares: list[float], step: int) -> None:
    edges = [(index + 1) / RIVALRY_BINS for index in range(RIVALRY_BINS)]
    middles = [edge - 0.5 / RIVALRY_BINS for edge in edges]
    total = sum(shares)
    writer.add_histogram_raw(
        tag("rivalry_histogram"),
        min=0.0,
        max=1.0,
        num=total,
        sum=sum(share * x for share, x in zip(shares, middles)),
        sum_squares=sum(share * x * x for share, x in zip(shares, middles)),
        bucket_limits=edges,
        bucket_counts=shares,
        global_step=step,
    )


def columns_of(records: list[dict[str, Any]]) -> list[str]:
    """Declared fields that occur, in their declared order, then whatever else a record holds."""
    there = {name for record in records for name in record}
    known = [item.name for item in FIELDS if item.name in there]
    return known + sorted(there - set(known))


def to_csv(path: Path, output: Path, **_: Any) -> Path:
    """One row per epoch, null as an empty cell, lists and objects as JSON."""
    records = list(epochs(path))
    text = io.StringIO(newline="")
    names = columns_of(records)
    table = csv.writer(text, lineterminator="\n")
    table.writerow(names)
    for record in records:
        table.writerow([_cell(record.get(name)) for name in names])
    write_bytes(output, text.getvalue().encode())
    return output


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, list | dict) else value


def to_parquet(path: Path, output: Path, **_: Any) -> Path:
    """One typed column per field; units and meanings stand in the column metadata."""
    arrow = require("pyarrow", "writing Parquet")
    parquet = require("pyarrow.parquet", "writing Parquet")
    records = list(epochs(path))
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


def _arrow_type(arrow: Any, item: Field | None) -> Any:
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


def to_wandb(path: Path, output: Path, **_: Any) -> Path:
    """An offline run in the folder `output`; `wandb sync` sends it."""
    wandb = tracker("wandb")
    run = wandb.init(project="townlet", name=label_of(path), dir=str(output), mode="offline")
    for record in epochs(path):
        run.log(scalars(record), step=step_of(record))
    run.finish()
    return output


def to_mlflow(path: Path, output: Path, **_: Any) -> Path:
    """A run in the tracking folder `output`."""
    mlflow = tracker("mlflow")
    mlflow.set_tracking_uri(output.resolve().as_uri())
    mlflow.set_experiment("townlet")
    with mlflow.start_run(run_name=label_of(path)):
        for record in epochs(path):
            mlflow.log_metrics(scalars(record), step=step_of(record))
    return output


def tracker(name: str) -> Any:
    """An experiment tracker that no extra installs: it is used when the user has it."""
    if not installed(name):
        raise MissingPackageError(f"exporting to {name} needs the package {name}, which is not installed; pip install {name}")
    return require(name, f"exporting to {name}")


EXPORTS: dict[str, Callable[..., Path]] = {
    "tensorboard": to_tensorboard,
    "csv": to_csv,
    "parquet": to_parquet,
    "wandb": to_wandb,
    "mlflow": to_mlflow,
}


def export(path: Path | str, output: Path | str, kind: str, *, overwrite: bool = False) -> Path:
    if kind not in EXPORTS:
        raise UsageError(f"{kind!r} is no export; choose one of {', '.join(EXPORTS)}")
    path, output = Path(path), Path(output)
    if output.exists() and not overwrite and kind in ("tensorboard", "csv", "parquet"):
        raise UsageError(f"{output} exists; choose another place or give --overwrite")
    return EXPORTS[kind](path, output, overwrite=overwrite)
