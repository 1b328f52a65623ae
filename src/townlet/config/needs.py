"""Needs: what a resident lacks, each a row of figures. Three come with every town; a scenario may change them or add its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from townlet.config.base import DISPLAY_ONLY, Id, Positive, Section, Share, Ticks

MAX_NEEDS = 6  # room in the town's memory; loops run over the needs there are
# What a precondition may name beside the needs: of the town and the object, and of the resident.
TOWN_NAMES = ("water", "power", "stock", "minute")
OWN_NAMES = ("meals", "wallet")


class NeedConfig(Section):
    """A level in [0, 1]; 1 is satisfied."""

    description: str = Field("", description="What it is, in a sentence.", json_schema_extra=DISPLAY_ONLY)
    decay: float = Field(ge=0, le=0.1, description="Lost per tick.")
    awake_only: bool = Field(False, description="Nothing is lost while asleep.")
    weight: Positive = Field(description="Reward, per tick: minus rewards.needs_scale × this × (1 − level)².")
    act_below: Share = Field(
        0.4,
        description="Scripted residents meet it when it is below this, or would fall below it during a shift or sleep; 0: never.",
    )
    start: Share = Field(0.8, description="Level at the start, unless the resident has its own.")
    at_bottom: Literal["nothing", "collapse"] = Field("nothing", description="What happens when it stays at the bottom.")
    collapse_below: Share = Field(0.03, description="Collapse: at or below this …")
    collapse_ticks: Ticks = Field(30, ge=1, description="… for this many ticks.")


THREE: dict[str, NeedConfig] = {
    "hunger": NeedConfig(description="Met by meals.", decay=0.0010, weight=1.0, at_bottom="collapse"),
    "hygiene": NeedConfig(description="Met by washing.", decay=0.0007, weight=0.6),
    "energy": NeedConfig(
        description="Met by sleep; by default a day begins after a night of it.",
        decay=0.0008,
        awake_only=True,
        weight=0.8,
        start=0.95,
    ),
}


def _with_the_three(given: object) -> object:
    """Needs of a config over those of every town: a key that is not given keeps its figure."""
    if not isinstance(given, Mapping):
        return given
    rows: dict[str, Any] = {name: need.model_dump() for name, need in THREE.items()}
    for name, row in given.items():
        rows[name] = {**rows.get(name, {}), **row} if isinstance(row, Mapping) else row
    return rows


def _checked(needs: dict[str, NeedConfig]) -> dict[str, NeedConfig]:
    if len(needs) > MAX_NEEDS:
        raise ValueError(f"there are {len(needs)} needs ({', '.join(needs)}), at most {MAX_NEEDS} have room; remove some")
    for name in needs:
        if name in TOWN_NAMES + OWN_NAMES:
            raise ValueError(f"a need cannot be called {name!r}: preconditions use the word for something else; choose another")
    return needs


Needs = Annotated[dict[Id, NeedConfig], BeforeValidator(_with_the_three), AfterValidator(_checked)]
