"""How much memory a town takes, estimated before anything is allocated."""

from __future__ import annotations

from townlet.config.models import SimulationConfig
from townlet.errors import ScenarioError
from townlet.world.state import CANDIDATES, EVENT, MAX_EDGES, NEAR, OBJECT, OBJECT_SPEC, RESIDENT, TERMS, TIE

LIMIT = 2 * 1024**3
MAX_BUILDINGS = 400
EVENTS_PER_RESIDENT = 8
OBSERVED = 1500  # bytes of features, map window and mask, of the largest variant


def town_bytes(residents: int, objects: int, size: tuple[int, ...], buildings: int, config: SimulationConfig) -> dict[str, int]:
    """Bytes of one town by part: residents with their observations, objects, and the breadth-first tables of the map."""
    person = RESIDENT.itemsize + MAX_EDGES * TIE.itemsize + 16 * len(TERMS) + EVENTS_PER_RESIDENT * EVENT.itemsize + OBSERVED
    tiles = size[0] * size[1]
    return {
        "residents": residents * person,
        "objects": objects * (OBJECT.itemsize + OBJECT_SPEC.itemsize),
        "map": tiles * (len(config.affordances.specs) * CANDIDATES * NEAR.itemsize + 2 * buildings + 5),
    }


def in_words(count: int) -> str:
    """1536 → "1.5 KB"."""
    amount = float(count)
    for unit in ("bytes", "KB", "MB", "GB"):
        if amount < 1024 or unit == "GB":
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GB"


def check_size(residents: int, objects: int, size: tuple[int, ...], buildings: int, config: SimulationConfig) -> None:
    """Refuse a town that would not fit, with the estimate."""
    parts = town_bytes(residents, objects, size, buildings, config)
    total = sum(parts.values())
    if total > LIMIT:
        shares = ", ".join(f"{name} {in_words(count)}" for name, count in parts.items())
        raise ScenarioError(
            f"{residents:,} residents on a map of {size[0]} rows and {size[1]} columns need about {in_words(total)} per town "
            f"({shares}), expected at most {in_words(LIMIT)}; take fewer residents or a smaller map"
        )
    if residents > size[0] * size[1]:
        raise ScenarioError(
            f"{residents:,} residents have no room on a map of {size[0]} rows and {size[1]} columns "
            f"({size[0] * size[1]:,} tiles); take a larger map or fewer residents"
        )
