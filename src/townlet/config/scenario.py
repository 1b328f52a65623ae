"""What a scenario says: the map, who lives there, who knows whom, what they are told to do."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, model_validator

from townlet.config.base import (
    DAY,
    DISPLAY_ONLY,
    Clock,
    Coins,
    Day,
    Fault,
    Id,
    Many,
    Positive,
    Section,
    Share,
    Signed,
    Stock,
    Ticks,
    Wage,
    problems_at,
    undeclared,
)
from townlet.names import NameOrNothing

Profile = Literal["balanced", "socialite", "industrious", "stoic"]
PROFILES: tuple[Profile, ...] = get_args(Profile)


class PersonalityConfig(Section):
    extroversion: Signed = Field(0.0, description="Adds to familiarity on a good chat.")
    forgiveness: Signed = Field(0.0, description="Softens (or, below 0, hardens) harmful changes of a tie.")
    ambition: Signed = Field(0.0, description="Multiplies the rivalry a conflict brings.")
    needs: dict[Id, Positive] = Field(default_factory=dict, description="Need → what its weight is multiplied by; by default 1.")

    @property
    def traits(self) -> tuple[float, float, float]:
        return self.extroversion, self.forgiveness, self.ambition


class ObjectConfig(Section):
    kind: Id = Field(description="What it is: an object named by the affordance file, such as shower.")
    at: Annotated[tuple[int, int], Many] = Field(description="Tile as [column, row], counted from 0.")
    id: Id | None = Field(None, description="Name; by default the kind and a number, such as shower_1.")
    stock: Stock | None = Field(None, description="Full stock of meals; by default economy.stock of its kind.")


class BuildingConfig(Section):
    """A home or a workplace: the box of its floor."""

    at: Annotated[tuple[int, int], Many] = Field(description="Upper left tile of the floor as [column, row].")
    size: Annotated[tuple[int, int], Many] = Field(description="Floor as [columns, rows].")


OPTION_VERBS = ("wait", "work", "home", "chat", "leave")  # actions that name no affordance
PLACE_VERBS = ("reserve", "yield")  # what one does about a place in a queue, where candidates are chosen among


class ScheduleStep(Section):
    """One order to a resident: at a clock time, or after the step before has ended."""

    do: str = Field(
        min_length=1, description="An action: wait, work, home, chat, leave, or an affordance (`use_shower`, `use_shower:calm`)."
    )
    at: Clock | None = Field(None, description="Clock time at which it begins.")
    after: Ticks | None = Field(None, description="Ticks after the step before has ended.")
    day: Day | None = Field(None, description="Day of the episode, counted from 0; by default every day.")
    object: Id | None = Field(None, description="The object meant; by default the nearest.")
    until: Clock | None = Field(None, description="Clock time at which it is left; by default when it is done.")

    @model_validator(mode="after")
    def _one_moment(self) -> ScheduleStep:
        if (self.at is None) == (self.after is None):
            raise ValueError("a schedule step has either `at` (a clock time) or `after` (ticks), not both and not neither")
        return self


class ResidentConfig(Section):
    id: Id = Field(description="Name: a lower-case letter, then lower-case letters, digits and underscores, at most 32.")
    home: Id | None = Field(None, description="Home building; its beds are the resident's.")
    job: Id | None = Field(None, description="Job of `jobs`; by default none.")
    profile: Profile = Field("balanced", description="Personality profile of `personalities`.")
    personality: PersonalityConfig | None = Field(None, description="Own personality instead of the profile's.")
    position: Annotated[tuple[int, int], Many] | None = Field(
        None, description="First tile as [column, row]; by default beside the own bed."
    )
    needs: dict[Id, Share] = Field(default_factory=dict, description="Need → level at the start; by default that of `needs`.")
    wallet: Coins | None = Field(None, description="Coins at the start; by default economy.first_wallet.")
    meals: int = Field(1, ge=0, le=6, description="Meals in hand at the start.")
    schedule: Annotated[tuple[ScheduleStep, ...], Many] = Field(
        (), description="Orders; a resident without orders follows the script."
    )


class TieConfig(Section):
    a: Id = Field(description="Resident whose feelings these are.")
    b: Id = Field(description="Resident they are about.")
    trust: Signed = Field(0.0, description="Trust at the start.")
    familiarity: Signed = Field(0.0, description="Familiarity at the start.")
    rivalry: Share = Field(0.0, description="Rivalry at the start.")
    mutual: bool = Field(True, description="b feels the same for a.")


class CircleConfig(Section):
    """What everyone of a group feels for everyone else in it."""

    among: Annotated[tuple[Id, ...], Many] = Field(min_length=2, description="Residents.")
    trust: Signed = Field(0.0, description="Trust at the start.")
    familiarity: Signed = Field(0.0, description="Familiarity at the start.")
    rivalry: Share = Field(0.0, description="Rivalry at the start.")


RESIDENTS_PER = {"shower": 9.0, "stove": 7.0, "fridge": 16.0, "table": 7.0, "cafe_counter": 40.0, "bench": 20.0}


def _with_the_usual(given: object) -> object:
    return {**RESIDENTS_PER, **given} if isinstance(given, dict) else given


class GenerateConfig(Section):
    """A town made of square blocks: homes, workplaces and services, each with a street around it."""

    seed: int = Field(0, ge=0, lt=1 << 63, description="Seed of who feels what for whom and of the personalities.")
    residents: int = Field(ge=1, description="How many live here.")
    block: int = Field(16, ge=10, le=64, description="Tiles per side of a block with its street.")
    residents_per_home: int = Field(40, ge=1, description="Beds of a home.")
    workers_per_site: int = Field(100, ge=1, description="Workers of a workplace.")
    residents_per: Annotated[dict[Id, Positive], BeforeValidator(_with_the_usual)] = Field(
        RESIDENTS_PER,
        description="Object kind → how many residents share one; 0 leaves the kind out. You may add kinds of your own.",
    )
    shifts: Annotated[tuple[Clock, ...], Many] = Field(
        (540,), min_length=1, description="Starts of shifts, taken in turn by the workers of a place."
    )
    shift_ticks: Ticks = Field(240, ge=1, lt=DAY, description="Length of a shift.")
    wage: Wage = Field(0.0035, description="Coins per tick present.")
    services: Literal["at_home", "apart"] = Field(
        "at_home", description="Showers, stoves, fridges and tables stand in the homes, or in blocks of their own."
    )
    open_services: bool = Field(False, description="Services stand in the open instead of behind walls.")
    feuds: Share = Field(0.1, description="Share of residents with a feud (rivalry 0.6 to 0.9) in their own home.")
    friendships: Share = Field(0.3, description="Share of residents with a friend in their own home.")


class ScenarioConfig(Section):
    name: NameOrNothing = Field("", description="Name; by default that of the file.")
    description: str = Field(
        "", description="One or two sentences: what happens here and why it is worth a look.", json_schema_extra=DISPLAY_ONLY
    )
    start: Clock = Field(360, lt=DAY, description="Clock time at which an episode begins.")
    episode_ticks: Ticks = Field(DAY, ge=1, description="Length of an episode in ticks.")
    generate: GenerateConfig | None = Field(
        None, description="A town built from a few numbers on a map of `size`, instead of a map."
    )
    sight_bar: float | None = Field(
        None, description="Least value of sight per resident-day (scripted calm − near) the linter asks for; null: none."
    )
    map: str = Field("", description="ASCII art, a character per tile; meanings in `legend`. Empty: `size` and `objects`.")
    legend: dict[str, str] = Field(
        default_factory=dict,
        description="Character → tile (floor, wall, door, road) or object kind; `.` `#` `+` `=` are floor, wall, door, road.",
    )
    size: Annotated[tuple[int, int], Many] | None = Field(None, description="Map as [columns, rows] when there is no ASCII art.")
    walls: Annotated[tuple[BuildingConfig, ...], Many] = Field(
        (), description="Boxes of wall, drawn before buildings when there is no ASCII art."
    )
    doors: Annotated[tuple[Annotated[tuple[int, int], Many], ...], Many] = Field((), description="Door tiles as [column, row].")
    objects: Annotated[tuple[ObjectConfig, ...], Many] = Field((), description="Objects beside those drawn on the map.")
    buildings: dict[Id, BuildingConfig] = Field(default_factory=dict, description="Homes and workplaces by id.")
    residents: Annotated[tuple[ResidentConfig, ...], Many] = Field((), description="Who lives here, in slot order.")
    ties: Annotated[tuple[TieConfig, ...], Many] = Field((), description="Who feels what for whom at the start.")
    circles: Annotated[tuple[CircleConfig, ...], Many] = Field(
        (), description="Groups and what their members feel for each other at the start; a tie of `ties` takes precedence."
    )

    @model_validator(mode="after")
    def _names(self) -> ScenarioConfig:
        known: set[str] = set()
        faults: list[Fault] = []
        for n, resident in enumerate(self.residents):
            if resident.id in known:
                faults.append((("residents", n, "id"), f"two residents are called {resident.id!r}; ids must differ"))
            if resident.id.startswith("newcomer_"):
                faults.append((("residents", n, "id"), f"{resident.id!r} is reserved for newcomers; choose another"))
            known.add(resident.id)
        for n, tie in enumerate(self.ties):
            for end, name in (("a", tie.a), ("b", tie.b)):
                faults += undeclared(("ties", n, end), name, known, "scenario.residents")
            if tie.a == tie.b:
                faults.append((("ties", n, "b"), f"{tie.b!r} has a tie to itself"))
        for n, circle in enumerate(self.circles):
            for k, name in enumerate(circle.among):
                faults += undeclared(("circles", n, "among", k), name, known, "scenario.residents")
        if faults:
            raise problems_at(faults)
        if self.generate is not None and (self.map or self.objects or self.buildings or self.residents or self.size is None):
            raise ValueError("`generate` needs `size` and makes map, objects, buildings and residents itself; leave those out")
        if self.map and self.size is not None:
            raise ValueError("give either `map` (ASCII art) or `size` and `objects`, not both")
        return self
