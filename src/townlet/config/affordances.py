"""What one can do with an object: read from a file of its own, checked, hashed with the config."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from townlet.config.base import DAY, Clock, Coins, Id, Many, Section, Signed, Ticks


class AffordanceSpec(Section):
    id: Id = Field(description="Name of the affordance.")
    objects: Annotated[tuple[Id, ...], Many] = Field(min_length=1, description="Kinds of object that offer it.")
    ticks: int = Field(ge=1, le=DAY, description="Length of a whole use.")
    effects: dict[Id, Signed] = Field(
        default_factory=dict, description="Need → what a whole use gives or takes, in equal parts over its ticks."
    )
    price: Coins = Field(0.0, description="Coins taken once, at the start, if they are there.")
    gives_meals: int = Field(
        0, ge=0, le=6, description="Meals given at the end; they come out of the object's stock if it has one."
    )
    takes_meals: int = Field(0, ge=0, le=6, description="Meals in hand taken when the use begins.")
    uses_stock: bool = Field(False, description="The object's stock falls by the meals given, at least one.")
    own_home: bool = Field(False, description="Only in the resident's own home.")
    asleep: bool = Field(False, description="The user sleeps: no chat, and needs that are `awake_only` do not fall.")
    requires: str = Field(
        "", description="Precondition: comparisons, and / or / not, names and numbers, such as `power and stock >= 2`."
    )
    hours: Annotated[tuple[Clock, Clock], Many] | None = Field(None, description="Clock times between which a use may start.")
    cooldown: Ticks = Field(0, description="Ticks before the same resident may ask again.")


class AffordancesConfig(Section):
    file: str = Field("core.yaml", description="File of the affordances: a shipped name, or a path beside the config.")
    add: Annotated[tuple[AffordanceSpec, ...], Many] = Field((), description="Affordances beside those of the file.")
    specs: Annotated[tuple[AffordanceSpec, ...], Many] = Field(
        (), description="The affordances themselves, filled in from `file` and `add`."
    )

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(spec.id for spec in self.specs)

    @property
    def home_kinds(self) -> set[str]:
        """Kinds of object that only those who live there may use."""
        return {kind for spec in self.specs if spec.own_home for kind in spec.objects}

    @model_validator(mode="after")
    def _names(self) -> Self:
        for name in self.ids:
            if self.ids.count(name) > 1:
                raise ValueError(f"two affordances are called {name!r}; ids must differ")
        kinds = [(kind, spec.id) for spec in self.specs for kind in spec.objects]
        for kind, name in kinds:
            first = next(other for known, other in kinds if known == kind)
            if first != name:
                raise ValueError(f"both {first!r} and {name!r} use the object {kind!r}; an object offers one thing to do")
        return self
