"""The scale of the score in a town: random residents have 0, the planner has 1.

The scales of shipped scenarios are data (`configs/ends.json`, made by `townlet plan SCENARIO --ends FILE`). A scale belongs to a
town, its rules, its reward weights and a number of days: a town that differs in any of these has none until somebody plans it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from townlet.config.loader import SHIPPED
from townlet.config.models import SimulationConfig
from townlet.dto import FrozenStrict
from townlet.dto.evaluation import ScoreScale
from townlet.files import read_bytes, short_hash
from townlet.sealed import parse_sealed, write_sealed

LIMIT = 4 << 20
TOWN = (  # the sections that make a town what it is, whoever decides in it and however it is seen
    *("features", "world", "needs", "rewards", "economy", "jobs", "employment", "queue_fairness", "conflict"),
    *("relationships", "personalities", "perturbations", "lifecycle", "affordances", "scenario"),
)


def town_hash(config: SimulationConfig) -> str:
    """Sixteen hex digits of everything that decides what can be earned in a town."""
    tree = {name: value for name, value in config.model_dump(mode="json").items() if name in TOWN}
    tree["scenario"] = {name: value for name, value in tree["scenario"].items() if name not in ("name", "description")}
    return short_hash(json.dumps(tree, sort_keys=True))


class ScalesFile(FrozenStrict):
    ends: tuple[ScoreScale, ...]


def load_scales(path: Path) -> dict[str, ScoreScale]:
    """Scales by `town_hash`."""
    found = parse_sealed(read_bytes(path, limit=LIMIT), path, ScalesFile, remedy="make it with `townlet plan --ends`")
    return {one.town: one for one in found.ends}


def save_scales(path: Path, rows: Sequence[ScoreScale]) -> None:
    """Add rows to a file; one of the same town takes the place of the older."""
    kept = load_scales(path) if path.exists() else {}
    kept |= {one.town: one for one in rows}
    listed = sorted(kept.values(), key=lambda one: (one.scenario, one.days))
    write_sealed(path, ScalesFile(ends=tuple(listed)).model_dump(mode="json"))


@cache
def shipped_scales() -> Mapping[str, ScoreScale]:
    return load_scales(SHIPPED / "ends.json")
