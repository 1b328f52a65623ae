"""Both ends of the score: the returns of random residents (0) and of the planner (1) in a town.

The ends of shipped scenarios are data (`configs/ends.json`, made by `townlet plan SCENARIO --ends FILE`). They belong to a town,
its rules, its reward weights and a number of days: a town that differs in any of these has no ends until somebody plans it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files as shipped
from pathlib import Path

from pydantic import ValidationError

from townlet.config.models import SimulationConfig
from townlet.dto.evaluation import Ends
from townlet.errors import DamagedFileError
from townlet.files import read_bytes, write_json

SHIPPED = Path(str(shipped("townlet"))) / "configs" / "ends.json"
LIMIT = 4 << 20
TOWN = (  # the sections that make a town what it is, whoever decides in it and however it is seen
    *("features", "world", "needs", "rewards", "economy", "jobs", "employment", "queue_fairness", "conflict"),
    *("relationships", "personalities", "perturbations", "lifecycle", "affordances", "scenario"),
)


def town_hash(config: SimulationConfig) -> str:
    """Sixteen hex digits of everything that decides what can be earned in a town."""
    tree = {name: value for name, value in config.model_dump(mode="json").items() if name in TOWN}
    tree["scenario"] = {name: value for name, value in tree["scenario"].items() if name not in ("name", "description")}
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]


def load_ends(path: Path) -> dict[str, Ends]:
    """Ends by `town_hash`."""
    try:
        rows = json.loads(read_bytes(path, limit=LIMIT))
        return {one.town: one for one in (Ends.model_validate_json(json.dumps(row)) for row in rows)}
    except (ValueError, ValidationError) as error:
        why = str(error).splitlines()[0]
        raise DamagedFileError(f"{path} holds no ends of towns ({why}); make it with `townlet plan --ends`") from error


def save_ends(path: Path, rows: Sequence[Ends]) -> None:
    """Add rows to a file; one of the same town takes the place of the older."""
    kept = load_ends(path) if path.exists() else {}
    kept |= {one.town: one for one in rows}
    listed = sorted(kept.values(), key=lambda one: (one.scenario, one.days))
    write_json(path, [one.model_dump(mode="json") for one in listed])


@cache
def shipped_ends() -> Mapping[str, Ends]:
    return load_ends(SHIPPED)
