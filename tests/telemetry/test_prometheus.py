"""The last epoch as a text file that node_exporter reads."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from townlet.errors import TelemetryError
from townlet.telemetry.example import example_record
from townlet.telemetry.export import export

LINE = re.compile(r'[a-zA-Z_:][a-zA-Z0-9_:]*\{(?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)+\} \S+')


def test_the_last_epoch_is_a_gauge_per_number(tmp_path: Path) -> None:
    log, out = tmp_path / "ppo.ndjson", tmp_path / "townlet.prom"
    records = [example_record(1), example_record(2, queue_conflict_events=5, conflict_reasons={"slow": 2, 'od"d': 3})]
    log.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    export(log, out, "prometheus")
    lines = out.read_text(encoding="utf-8").splitlines()
    assert out.read_bytes().endswith(b"\n")
    values = [line for line in lines if not line.startswith("#")]
    assert all(LINE.fullmatch(line) for line in values)
    labels = f'log="{values[0].split(chr(34))[1]}",run="{records[1]["run_id"]}",mode="{records[1]["data_mode"]}"'
    assert f"townlet_epochs{{{labels}}} 2" in values
    assert f"townlet_queue_conflict_events{{{labels}}} 5.0" in values
    assert f'townlet_conflict_reasons{{{labels},kind="slow"}} 2.0' in values
    assert f'townlet_conflict_reasons{{{labels},kind="od\\"d"}} 3.0' in values
    assert "# TYPE townlet_queue_conflict_events gauge" in lines
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
    export(log, out, "prometheus")  # an operator's timer writes it again and again
    log.write_text("", encoding="utf-8")
    with pytest.raises(TelemetryError, match="holds no epoch record"):
        export(log, out, "prometheus")
