"""Training logs are plain NDJSON: ask them in SQL."""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb

SAMPLE = Path(__file__).resolve().parent.parent / "docs/samples/ppo_telemetry_v1_4.jsonl"


def main(log: Path = SAMPLE) -> list[tuple[int, float, int]]:
    query = "SELECT epoch, loss_value, queue_conflict_events FROM read_json_auto(?) ORDER BY queue_conflict_events DESC LIMIT 3"
    rows = duckdb.execute(query, [str(log)]).fetchall()
    for epoch, loss, events in rows:
        print(f"epoch {epoch}: {events} conflicts, value loss {loss:.4f}")
    return rows


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLE)
