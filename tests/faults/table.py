"""Put the committed figures of the trials into docs/RELIABILITY.md, each between its two marks: python tests/faults/table.py"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE, SAMPLES = ROOT / "docs" / "RELIABILITY.md", ROOT / "docs" / "samples"
FAULTS = ("kill", "two kills", "full disk", "I/O error", "short write")


def note_commit(row: dict[str, Any]) -> None:
    """The code that a figure is of; one that is gone on with later is of several."""
    told = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    row["commits"] = list(dict.fromkeys([*row.get("commits", ()), told.stdout.strip() or "unknown"]))


def _commits(*rows: dict[str, Any]) -> str:
    return ", ".join(dict.fromkeys(name for row in rows for name in row["commits"]))


def faults(rows: list[dict[str, Any]]) -> str:
    """A line per writer: cases, and what was found, per kind of fault."""
    lines = _head("layer", "writer", "operations", *FAULTS, "commit", left=2)
    for layer, writer in dict.fromkeys((row["layer"], row["writer"]) for row in rows if row["cases"]):
        mine = {row["fault"]: row for row in rows if (row["layer"], row["writer"]) == (layer, writer)}
        one = next(iter(mine.values()))
        cells = [*(_cell(mine.get(name)) for name in FAULTS), _commits(*mine.values())]
        lines.append(f"| {layer} | {writer} | {one['operations']} | " + " | ".join(cells) + " |")
    kinds: Counter[str] = Counter()
    for row in rows:
        kinds.update(row["findings"])
    found = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "none"
    pairs = sum(row["cases"] for row in rows if row["fault"] == "two kills")
    return "\n".join([*lines, "", f"Cases: {sum(row['cases'] for row in rows):,}, of them {pairs:,} pairs. Findings: {found}."])


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return "–"
    left, stride = row["of"] - row["cases"], 1 if row["fault"] == "two kills" else row["stride"]
    told = f"{sum(row['findings'].values())} of {row['cases']}" + (f", {left} not run" if left else "")
    return told + (f", every {stride}th" if stride > 1 else "")


def flips(rows: list[dict[str, Any]]) -> str:
    lines = _head(
        "", "artefacts", "variations", "seen", "without meaning", "whole lines before the cut", "anything else", "commit", left=1
    )
    for what in ("flips", "prefixes"):
        counts: Counter[str] = Counter()
        for row in rows:
            counts.update(row[what])
        tried = sum(bool(row[what]) for row in rows)
        fine = [counts[kind] for kind in ("seen", "without meaning", "whole lines only")]
        cells = [tried, counts.total(), *fine, counts.total() - sum(fine)]
        lines.append(f"| {what} | " + " | ".join(f"{cell:,}" for cell in cells) + f" | {_commits(*rows)} |")
    return "\n".join(lines)


def fuzz(rows: list[dict[str, Any]]) -> str:
    lines = _head("reader", "mutations", "also used", "findings", "slowest, s", "more memory, MB", "commit", left=1)
    for row in rows:
        cells = [f"{row[name]:,}" for name in ("mutations", "used", "findings", "slowest_seconds", "more_memory_mb")]
        lines.append(f"| {row['target']} | " + " | ".join([*cells, _commits(row)]) + " |")
    return "\n".join(lines)


def signals(rows: list[dict[str, Any]]) -> str:
    lines = _head(
        "command", "moments", "stopped", "had ended its work", "anything else", "slowest, s", "computed, s", "commit", left=1
    )
    for row in rows:
        ends = Counter(row["ends"])
        other = ends.total() - ends["stopped"] - ends["had ended its work"]
        cells = [row["moments"], ends["stopped"], ends["had ended its work"], other]
        cells += [row["slowest_seconds"], row["computed_seconds"], _commits(row)]
        lines.append(f"| {row['command']} | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def load(found: dict[str, Any]) -> str:
    lines = _head("what", "figure", left=1)
    for name, value in found.items():
        told = ", ".join(f"{key} {part}" for key, part in value.items()) if isinstance(value, dict) else value
        told = ", ".join(map(str, told)) if isinstance(told, list) else told
        lines.append(f"| {name} | {told} |")
    return "\n".join(lines)


def _head(*words: str, left: int) -> list[str]:
    marks = ["---"] * left + ["---:"] * (len(words) - left)
    return ["| " + " | ".join(words) + " |", "| " + " | ".join(marks) + " |"]


TABLES: dict[str, Callable[[Any], str]] = {
    "faults.ndjson": faults,
    "flips.json": flips,
    "fuzz.ndjson": fuzz,
    "signals.json": signals,
    "load.json": load,
}


def filled(page: str, samples: Path = SAMPLES) -> str:
    """The page with the figures that are there."""
    for name, table in TABLES.items():
        text = (samples / name).read_text()
        figures = [json.loads(line) for line in text.splitlines()] if name.endswith(".ndjson") else json.loads(text)
        begin, end = (f"<!-- {mark}{Path(name).stem} -->" for mark in ("", "/"))
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = f"{before}{begin}\n{table(figures)}\n{end}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
