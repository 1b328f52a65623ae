"""The rules of the town as numbers: time, needs, queues, conflict, ties, work, money, exits, disturbances, rewards."""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from pydantic import ConfigDict, Field, model_validator

from townlet.config.base import (
    DAY,
    Clock,
    Coins,
    Day,
    Id,
    Many,
    Positive,
    Section,
    Share,
    Signed,
    Stock,
    Ticks,
    Wage,
    nearest_name,
    problems_at,
)
from townlet.config.scenario import PROFILES, PersonalityConfig, Profile

SocialStage = Literal["OFF", "C1", "C2", "C3"]
SOCIAL_STAGES: tuple[SocialStage, ...] = get_args(SocialStage)  # each rewards what the one before it does, and more


class SystemsConfig(Section):
    observations: Literal["hybrid", "full", "compact"] = Field(
        "hybrid", description="What residents see: hybrid (features and a 4×11×11 map), full (6×11×11), compact (features)."
    )


class StagesConfig(Section):
    social_rewards: SocialStage = Field(
        "C1", description="Social rewards: none, C1 good chats, C2 also avoiding rivals, C3 also reconciliation."
    )


class FeaturesConfig(Section):
    systems: SystemsConfig = Field(default_factory=SystemsConfig, description="Variants of systems.")
    stages: StagesConfig = Field(default_factory=StagesConfig, description="Stages of mechanics that can be switched on.")


class WorldConfig(Section):
    ticks_per_day: Literal[1440] = Field(1440, description="Ticks of a day; a tick is one minute.")
    event_capacity: int = Field(
        0,
        ge=0,
        le=1 << 20,
        description="Event rows per town between two readings; 0 takes a size by residents. "
        "Trainings and scorecards in which some are lost are refused.",
    )


class ObservationsConfig(Section):
    blind: Annotated[tuple[Literal["conflict", "conflict_fields"], ...], Many] = Field(
        (), description="`conflict_fields` shows the conflict fields as zero; `conflict` also ranks `calm` by distance alone."
    )
    compact_map: bool = Field(False, description="Give the compact variant a 5×7×7 map.")
    conflict_weight: float | None = Field(
        None,
        gt=0,
        le=100,
        description="Weight of conflict that residents are told, where the network was trained over `training.conflict_weights`: "
        "more of it keeps more peace; null: they see no such field.",
    )


class RewardsConfig(Section):
    survival: float = Field(0.05, ge=0, le=1, description="Per living tick.")
    misery_below: Share = Field(
        0.2, description="When the lowest need is below this, a tick is worth less; at 0 it is worth nothing."
    )
    needs_scale: float = Field(0.02, ge=0, le=1, description="Per tick: minus this × Σ weight of the need × (1 − need)².")
    wage_rate: float = Field(0.04, ge=0, le=1, description="Reward for every tick at work during a shift.")
    spending: float = Field(5.0, ge=0, le=100, description="Minus this per coin of a price, when it is paid.")
    punctuality: float = Field(2.0, ge=0, le=10, description="For an on-time shift, spread over it.")
    chat_base: Positive = Field(0.01, description="C1: a good chat, to each, times its quality.")
    chat_trust: Positive = Field(0.03, description="C1: added per unit of trust.")
    chat_familiarity: Positive = Field(0.02, description="C1: added per unit of familiarity.")
    avoid_rival: Positive = Field(0.005, description="C2: going to another object when a rival is at the nearest.")
    avoid_window: Ticks = Field(60, description="C2: once per rival and this many ticks.")
    reconciliation: Positive = Field(
        0.05, description="C3: × the fall of rivalry when a pair above the threshold ends below half of it."
    )
    conflict_weight: float = Field(
        3.0,
        ge=0,
        le=100,
        description="Multiplies what both sides of a conflict pay (conflict.reasons).",
    )
    clip: float = Field(5.0, gt=0, le=1000, description="Limit of the reward of a tick, before terminal penalties.")
    collapse: float = Field(-1.0, le=0, description="Terminal penalty of a collapse.")
    eviction: float = Field(-2.0, le=0, description="Terminal penalty of an eviction.")

    def worst_tick(self, weight: float) -> float:
        """The reward of a living tick with every need at zero and nothing else happening; `weight` is the sum of the weights."""
        return self.survival - self.needs_scale * weight


class StockConfig(Section):
    """Any kind of object whose affordance uses stock may be named here, beside those of the core file."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Stock]

    stove: Stock = Field(24, description="Meals a stove can cook in a day.")
    cafe_counter: Stock = Field(40, description="Meals a café counter can sell in a day.")

    @property
    def by_kind(self) -> dict[str, int]:
        return self.model_dump()


class EconomyConfig(Section):
    rent: Coins = Field(0.40, description="Coins a day; what a wallet cannot pay is owed and taken from the next income.")
    rent_at: Clock = Field(0, lt=DAY, description="Clock time at which rent is due.")
    first_wallet: Coins = Field(1.0, description="Coins of a resident at the start.")
    stock: StockConfig = Field(default_factory=StockConfig, description="Full stock by object kind.")
    refill_at: Clock = Field(300, lt=DAY, description="Clock time at which stocks are filled.")


class JobConfig(Section):
    site: Id = Field(description="Building of the workplace; it needs as many tiles as workers.")
    start: Clock = Field(description="Clock time at which the shift begins.")
    end: Clock = Field(description="Clock time at which it ends; before `start` means the next day.")
    wage: Wage = Field(0.0035, description="Coins per tick present.")
    lateness_penalty: Coins = Field(0.05, description="Coins once per late shift.")

    @model_validator(mode="after")
    def _some_length(self) -> Self:
        if (self.end - self.start) % DAY == 0:
            raise ValueError("a shift begins and ends at the same time; it must last between one minute and a day")
        return self

    @property
    def length(self) -> int:
        """Ticks of a shift."""
        return (self.end - self.start) % DAY


class EmploymentConfig(Section):
    grace_ticks: Ticks = Field(5, description="Arriving at most this late is on time.")
    absent_cutoff: Ticks = Field(30, description="Away longer than this after the start is absent.")
    absence_slack: Ticks = Field(20, description="Away longer than this in the middle of a shift is absent.")
    work_ahead: Ticks = Field(60, description="`work` may be chosen this many ticks before the shift.")
    notice_absences: int = Field(3, ge=1, le=7, description="Absences in seven days that put a resident on notice.")
    lates_per_absence: int = Field(2, ge=0, le=7, description="This many late shifts count as one absence; 0 for never.")


class BehaviorConfig(Section):
    """The script's numbers. `townlet tune` finds better ones for a town; the defaults are those of `scripted_plain`."""

    meet_below: dict[Id, Share] = Field(
        default_factory=dict, description="Need → the line below which it is met, instead of the need's own `act_below`."
    )
    worth_it: Share = Field(0.1, description="A use is chosen for a need that it raises by at least this.")
    leave_above: Share = Field(0.98, description="A use is left once its need is above this.")
    meals_in_hand: int = Field(1, ge=0, le=6, description="Cook when fewer meals are in hand.")
    look_ahead: Ticks = Field(150, description="Before a shift that begins within this many ticks, needs are met for its end.")
    work_margin: Ticks = Field(10, description="Set out for work this many ticks earlier than the walk takes.")
    wake_before: Ticks = Field(75, description="Get up at least this long before it is time to set out for work.")
    sleep_from: Clock = Field(
        1290, description="Clock time from which a resident goes to bed when it is not above `sleep_below`."
    )
    sleep_below: Share = Field(0.75, description="Energy below which a resident goes to bed at night.")
    chat_above: Share = Field(0.5, description="Chat only while every need is above this.")
    avoid_rivals: bool = Field(
        True, description="Take the calm object instead of the near one when a rival above the threshold is there."
    )


class QueueFairnessConfig(Section):
    max_overtakes: int = Field(2, ge=0, le=100, description="How often a resident may be passed over in one wait, at most.")
    handover_index_cost: Positive = Field(0.05, description="What each place further back costs in a hand-over.")
    age_priority_weight: float = Field(0.0, ge=0, le=10, description="Adds urgency of the need to the order of a queue.")
    ghost_step_after: int = Field(
        3,
        ge=1,
        le=1000,
        description="Ticks after which a blocked mover may step onto an occupied tile, and a stalled holder may be pushed aside.",
    )
    cooldown_ticks: dict[Id, Ticks] = Field(
        default_factory=dict, description="Cooldown by affordance instead of that of the affordance file."
    )


class ReasonConfig(Section):
    base: float = Field(ge=0, le=100, description="Base intensity.")
    actor_pays: Positive = Field(description="What the actor pays, × intensity.")
    rival_pays: Positive = Field(description="What the rival pays, × intensity.")


class ReasonsConfig(Section):
    """A row per reason. Actor and rival: asker and user (blocked), passed over and favoured (overtaken), pusher and holder
    (ghost_step). The names, in this order, are what an event's `reason` and the kernel's arrays index. `{…}` in a sentence is a
    key of `queue_fairness`."""

    blocked: ReasonConfig = Field(
        ReasonConfig(base=0.4, actor_pays=0.3, rival_pays=0.1), description="You ask for something that somebody is using."
    )
    overtaken: ReasonConfig = Field(
        ReasonConfig(base=1.0, actor_pays=0.1, rival_pays=0.3), description="Somebody behind you is let in before you."
    )
    ghost_step: ReasonConfig = Field(
        ReasonConfig(base=1.5, actor_pays=0.1, rival_pays=0.3),
        description="You push aside somebody who was called {ghost_step_after} minutes ago and is still not there.",
    )


class RivalryConfig(Section):
    increment_per_conflict: float = Field(0.3, ge=0, le=1, description="Rivalry gained per unit of intensity, both ways.")
    decay_per_tick: float = Field(0.00005, ge=0, le=1, description="Rivalry lost per tick.")
    avoid_threshold: Share = Field(0.7, description="A rival above this is avoided.")


class ConflictConfig(Section):
    queue_length_boost: Positive = Field(0.25, description="Intensity added per waiter beyond the first.")
    intensity_min: Positive = Field(0.1, description="Lowest intensity.")
    intensity_max: float = Field(5.0, gt=0, le=100, description="Highest intensity.")
    quarrel_ticks: Ticks = Field(5, description="Ticks for which a quarrel stops a use.")
    quarrel_energy: Share = Field(0.02, description="Energy both lose in a quarrel.")
    reasons: ReasonsConfig = Field(default_factory=ReasonsConfig, description="Intensity and cost by reason.")
    rivalry: RivalryConfig = Field(default_factory=RivalryConfig, description="How rivalry grows and fades.")


class TieDeltaConfig(Section):
    trust: Signed = Field(0.0, description="Change of trust.")
    familiarity: Signed = Field(0.0, description="Change of familiarity.")
    rivalry: Signed = Field(0.0, description="Change of rivalry.")


def _delta(trust: float = 0.0, familiarity: float = 0.0, rivalry: float = 0.0) -> TieDeltaConfig:
    return TieDeltaConfig(trust=trust, familiarity=familiarity, rivalry=rivalry)


class TieEventsConfig(Section):
    """A row per event; the names, in this order, are what the kernel's arrays index. `{…}` in a sentence is a key of `chat`."""

    chat_success: TieDeltaConfig = Field(_delta(0.05, 0.10), description="A good chat (× its quality, {quality_floor} to 1).")
    chat_failure: TieDeltaConfig = Field(_delta(0.0, -0.05, 0.05), description="A chat that goes wrong.")
    handover: TieDeltaConfig = Field(_delta(0.05, 0.05, -0.05), description="Somebody lets the other in first.")
    shared_meal: TieDeltaConfig = Field(_delta(0.10, 0.25), description="They eat side by side.")
    late_help: TieDeltaConfig = Field(_delta(0.20, 0.10, -0.10), description="One covers for the other, who is late for work.")
    shift_takeover: TieDeltaConfig = Field(
        _delta(-0.10, 0.0, 0.30), description="One takes over the other's missed shift and is paid for it."
    )


class ChatConfig(Section):
    cooldown: Ticks = Field(30, description="Ticks between two chats of a resident.")
    success: Share = Field(0.7, description="Chance of a good chat between strangers.")
    trust_gain: Positive = Field(0.3, description="The chance is multiplied by 1 + this × trust …")
    familiarity_gain: Positive = Field(0.2, description="… and by 1 + this × familiarity.")
    quality_floor: Share = Field(0.5, description="Lowest quality of a good chat; the quality is drawn between this and 1.")


class RelationshipsConfig(Section):
    max_edges: int = Field(6, ge=1, le=6, description="How many ties a resident can have.")
    trust_decay: float = Field(0.00005, ge=0, le=1, description="Trust lost per tick, towards 0.")
    familiarity_decay: float = Field(0.0001, ge=0, le=1, description="Familiarity lost per tick, towards 0.")
    free_below: Share = Field(0.02, description="A tie weaker than this is forgotten.")
    events: TieEventsConfig = Field(default_factory=TieEventsConfig, description="What each event changes.")
    chat: ChatConfig = Field(default_factory=ChatConfig, description="How chats go.")
    forgiveness_scale: Share = Field(0.5, description="Harmful changes × 1 − this × forgiveness.")
    ambition_scale: Share = Field(0.3, description="Conflict rivalry × 1 + this × ambition, not below 0.")
    extroversion_bonus: Share = Field(0.02, description="Familiarity added per unit of extroversion on a good chat.")


def _profile(extroversion: float, forgiveness: float, ambition: float) -> PersonalityConfig:
    return PersonalityConfig(extroversion=extroversion, forgiveness=forgiveness, ambition=ambition)


class PersonalitiesConfig(Section):
    balanced: PersonalityConfig = Field(_profile(0.0, 0.0, 0.0), description="Average in everything.")
    socialite: PersonalityConfig = Field(_profile(0.8, 0.4, -0.2), description="Likes company.")
    industrious: PersonalityConfig = Field(_profile(-0.2, -0.1, 0.8), description="Ambitious and works hard.")
    stoic: PersonalityConfig = Field(_profile(-0.6, 0.7, -0.3), description="Calm, forgives easily.")
    newcomers: Annotated[tuple[Profile, ...], Many] = Field(
        PROFILES, min_length=1, max_length=len(PROFILES), description="Profiles newcomers are drawn from, evenly."
    )


class PerturbationKindConfig(Section):
    probability_per_day: Share = Field(0.0, description="Chance that it begins on a day.")
    duration: Ticks = Field(120, ge=1, description="Length in ticks.")
    cooldown: Ticks = Field(720, description="Ticks after its end before it may begin again.")


class PriceSpikeConfig(PerturbationKindConfig):
    factor: float = Field(2.0, ge=1, le=100, description="Prices are multiplied by this.")


class ArrangedMeetConfig(PerturbationKindConfig):
    resident_cooldown: Ticks = Field(DAY, description="Ticks before the same resident is chosen again.")
    min_rivalry: Share = Field(0.0, description="Only pairs above this rivalry are chosen.")


class ScheduledPerturbation(Section):
    at: Clock = Field(lt=DAY, description="Clock time.")
    kind: Id = Field(description="What happens: one of the kinds of `perturbations`.")
    duration: Ticks = Field(120, ge=1, description="Length in ticks.")
    day: Day | None = Field(None, description="Day of the episode, counted from 0; by default every day.")


class PerturbationsConfig(Section):
    """A row per kind; the names, in this order, are what the kernel's arrays index."""

    price_spike: PriceSpikeConfig = Field(default_factory=PriceSpikeConfig, description="Everything costs more.")
    blackout: PerturbationKindConfig = Field(
        default_factory=PerturbationKindConfig, description="No power: stoves cannot be started."
    )
    outage: PerturbationKindConfig = Field(
        default_factory=PerturbationKindConfig, description="No water: showers cannot be started."
    )
    arranged_meet: ArrangedMeetConfig = Field(
        default_factory=ArrangedMeetConfig, description="The two worst rivals are sent to one bench."
    )
    events: Annotated[tuple[ScheduledPerturbation, ...], Many] = Field((), description="Scheduled ones.")

    @model_validator(mode="after")
    def _known(self) -> Self:
        known = self.kinds()
        wrong = [
            (("events", number, "kind"), f"there is no perturbation {event.kind!r}; {nearest_name(event.kind, known)}")
            for number, event in enumerate(self.events)
            if event.kind not in known
        ]
        if wrong:
            raise problems_at(wrong)
        return self

    def kinds(self) -> dict[str, PerturbationKindConfig]:
        return {name: kind for name, kind in self if isinstance(kind, PerturbationKindConfig)}


class ScheduledExit(Section):
    at: Clock = Field(lt=DAY, description="Clock time.")
    resident: Id = Field(description="Who leaves.")
    day: Day = Field(0, description="Day of the episode, counted from 0.")


class LifecycleConfig(Section):
    exit_warning: Ticks = Field(10, description="Ticks an exit is known ahead; positive rewards are zeroed from then.")
    unpaid_days: int = Field(2, ge=1, le=100, description="Days of unpaid rent that end in eviction.")
    evictions_per_day: int = Field(2, ge=0, le=1000, description="Most evictions in a day.")
    eviction_gap: Ticks = Field(120, description="Shortest time between two evictions, in ticks.")
    newcomers_per_day: int = Field(2, ge=0, le=1000, description="Most newcomers in a day; 0 leaves slots empty.")
    newcomer_delay_min: Ticks = Field(10, description="Shortest time that a slot stays empty, in ticks.")
    newcomer_delay_max: Ticks = Field(20, description="Longest time that a slot stays empty, in ticks, up to the next decision.")
    exits: Annotated[tuple[ScheduledExit, ...], Many] = Field((), description="Scheduled departures.")

    @model_validator(mode="after")
    def _delays(self) -> Self:
        if self.newcomer_delay_min > self.newcomer_delay_max:
            raise ValueError(
                f"newcomer_delay_min {self.newcomer_delay_min} is above newcomer_delay_max {self.newcomer_delay_max}"
            )
        return self


CONFLICT_REASONS = tuple(ReasonsConfig.model_fields)
TIE_EVENTS = tuple(TieEventsConfig.model_fields)
PERTURBATIONS = tuple(PerturbationsConfig().kinds())
