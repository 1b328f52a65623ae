"""A small town for tests of scenarios: a tree that works, to be bent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from townlet.config.loader import load_config, to_yaml
from townlet.config.models import SimulationConfig

MAP = """\
############
#bb..#..s..#
#....+.....#
#....#o.t.f#
#######+####
============
####+#######
#..........#
############
"""


def tree() -> dict[str, Any]:
    return {
        "config_id": "bent",
        "seed": 1,
        "jobs": {"clerk": {"site": "office", "start": "09:00", "end": "13:00"}},
        "scenario": {
            "map": MAP,
            "legend": {"b": "bed", "s": "shower", "o": "stove", "t": "table", "f": "fridge"},
            "buildings": {"house": {"at": [1, 1], "size": [4, 3]}, "office": {"at": [1, 7], "size": [10, 1]}},
            "residents": [{"id": "alice", "home": "house", "job": "clerk"}, {"id": "bob", "home": "house", "job": "clerk"}],
        },
    }


def redraw(changes: dict[int, str]) -> str:
    rows = MAP.split("\n")
    for row, text in changes.items():
        rows[row] = text
    return "\n".join(rows)


def load(folder: Path, town: dict[str, Any]) -> SimulationConfig:
    path = folder / "bent.yaml"
    path.write_text(to_yaml(town))
    return load_config(path)
