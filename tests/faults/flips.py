"""Every artefact with one bit flipped, and every text cut at every byte: seen, or without meaning, and never a traceback.

python tests/faults/flips.py [--count 10000] [--prefixes] [--artefacts a,b] --output FILE

With --artefacts only these are tried; what the output holds of the others stays.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SEED = 17
SEEN, SAME, OTHER, UNNAMED, TRACEBACK, SHORTER = (
    "seen", "without meaning", "another meaning", "seen, not named", "traceback", "whole lines only",
)  # fmt: skip
FINE = (SEEN, SAME, SHORTER)


def flips(data: bytes, count: int, draw: random.Random) -> list[bytes]:
    """So many variations of one bit each, no bit twice; all of them where there are fewer."""
    bits = draw.sample(range(len(data) * 8), min(count, len(data) * 8))
    return [data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :] for bit in bits]


def trial(place: Path, artefact: Any, variations: Iterable[bytes], *, cut: bool) -> tuple[Counter[str], list[str]]:
    """What was made of each; examples of what should not have been."""
    from faults import artefacts as store

    path, counts, examples = place / artefact.path, Counter[str](), []
    good = path.read_bytes()
    meant, words = store.answer(artefact, place)
    assert not words, words
    try:
        for number, bad in enumerate(variations):
            path.write_bytes(bad)
            kind, words = _kind(store, place, artefact, meant, cut)
            counts[kind] += 1
            if kind not in FINE and len(examples) < 3:
                examples.append(f"{artefact.path}, variation {number}: {kind}: {words}")
    finally:
        path.write_bytes(good)
    return counts, examples


def _kind(store: Any, place: Path, artefact: Any, meant: Any, cut: bool) -> tuple[str, str]:
    try:
        found, words = store.answer(artefact, place)
    except Exception:  # the finding
        return TRACEBACK, traceback.format_exc(limit=-3)
    if words:
        named = Path(artefact.path).name.partition(".ndjson")[0] in words
        return (SEEN if named else UNNAMED), words
    if found == meant:
        return SAME, ""
    if cut and _shorter(found, meant):
        return SHORTER, ""
    return (SAME if not artefact.sealed else OTHER), ""


def _shorter(found: Any, meant: Any) -> bool:
    """A log cut short is the whole lines before the cut."""
    items = lambda value: list(value.items()) if isinstance(value, dict) else value  # noqa: E731
    return isinstance(meant, list | dict) and items(found) == items(meant)[: len(found)]


def _shares(bits: dict[str, int], count: int) -> dict[str, int]:
    """So many flips of each that they are `count` together: the same of all, and of the short ones every bit."""
    shares = {}
    for left, path in zip(range(len(bits), 0, -1), sorted(bits, key=bits.__getitem__)):
        shares[path] = min(bits[path], -(-(count - sum(shares.values())) // left))
    return shares


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--prefixes", action="store_true")
    parser.add_argument("--artefacts", default="")
    parser.add_argument("--output", type=Path, required=True)
    asked = parser.parse_args()
    sys.path.insert(0, str(HERE.parent))
    from faults import artefacts as store
    from faults.table import note_commit

    rows = {row["artefact"]: row for row in json.loads(asked.output.read_text())} if asked.output.exists() else {}
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        place = Path(folder) / "store"
        store.fill(place)
        listed = [one for one in store.artefacts(place) if not asked.artefacts or one.path in asked.artefacts.split(",")]
        sizes = {one.path: 8 * (place / one.path).stat().st_size for one in listed if one.sealed}
        draw, shares = random.Random(SEED), _shares(sizes, asked.count)
        for one in listed:
            data = (place / one.path).read_bytes()
            flipped, wrong = trial(place, one, flips(data, shares.get(one.path, 0), draw), cut=False)
            prefixes: Counter[str] = Counter()
            if asked.prefixes and one.text:
                prefixes, more = trial(place, one, (data[:size] for size in range(len(data))), cut=True)
                wrong += more
            row = {"artefact": one.path, "bytes": len(data), "flips": dict(flipped), "prefixes": dict(prefixes)}
            before = rows.get(one.path, row)
            rows[one.path] = {key: value or before[key] for key, value in row.items()}
            note_commit(rows[one.path])
            asked.output.write_text(json.dumps(list(rows.values()), indent=1) + "\n")
            print(json.dumps(row), *wrong, sep="\n    ", file=sys.stderr, flush=True)
    return int(any(kind not in FINE for row in rows.values() for kind in (*row["flips"], *row["prefixes"])))


if __name__ == "__main__":
    sys.exit(main())
