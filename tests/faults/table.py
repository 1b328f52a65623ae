"""Put the figures of a sweep into docs/RELIABILITY.md, between its two marks: table.py [faults.json] [page]."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- faults -->", "<!-- /faults -->"
FAULTS = ("kill", "two kills", "full disk", "I/O error", "short write")


def table(rows: list[dict[str, Any]]) -> str:
    """A line per writer: cases, and what was found, per kind of fault."""
    lines = ["| layer | writer | operations | " + " | ".join(FAULTS) + " |", "| --- | --- | ---: |" + " ---: |" * len(FAULTS)]
    for layer, writer in dict.fromkeys((row["layer"], row["writer"]) for row in rows if row["cases"]):
        mine = {row["fault"]: row for row in rows if (row["layer"], row["writer"]) == (layer, writer)}
        cells = [f"{sum(mine[name]['findings'].values())} of {mine[name]['cases']}" if name in mine else "–" for name in FAULTS]
        lines.append(f"| {layer} | {writer} | {next(iter(mine.values()))['operations']} | " + " | ".join(cells) + " |")
    kinds: Counter[str] = Counter()
    for row in rows:
        kinds.update(row["findings"])
    found = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "none"
    return "\n".join([*lines, "", f"Cases: {sum(row['cases'] for row in rows):,}. Findings: {found}."])


def main(words: list[str]) -> None:
    figures = Path(words[0] if words else "docs/samples/faults.json")
    page = Path(words[1] if len(words) > 1 else "docs/RELIABILITY.md")
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{table(json.loads(figures.read_text()))}\n{END}{after}")


if __name__ == "__main__":
    main(sys.argv[1:])
