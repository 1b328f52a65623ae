"""The config as a whole: one frozen tree, a sentence per field, unknown keys are errors."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Self

from pydantic import Field, model_validator

from townlet.config.affordances import AffordancesConfig, AffordanceSpec
from townlet.config.base import LONGEST, Fault, Id, Section, nearest_name, problems_at, undeclared
from townlet.config.learning import (
    EvaluationConfig,
    PolicyConfig,
    PPOConfig,
    PromotionConfig,
    SnapshotConfig,
    TelemetryConfig,
    TrainingConfig,
)
from townlet.config.needs import THREE, NeedConfig, Needs
from townlet.config.scenario import OPTION_VERBS, PLACE_VERBS, PersonalityConfig, ResidentConfig, ScenarioConfig
from townlet.config.town import (
    BehaviorConfig,
    ConflictConfig,
    EconomyConfig,
    EmploymentConfig,
    FeaturesConfig,
    JobConfig,
    LifecycleConfig,
    ObservationsConfig,
    PersonalitiesConfig,
    PerturbationsConfig,
    QueueFairnessConfig,
    RelationshipsConfig,
    RewardsConfig,
    StockConfig,
    WorldConfig,
)
from townlet.errors import UsageError
from townlet.files import short_hash
from townlet.names import Name


class SimulationConfig(Section):
    """Everything a run is made from. `load_config` reads it; `config_hash` names it."""

    config_id: Name = Field("townlet", description="Name of the config, written into every file made with it.")
    seed: int = Field(0, ge=0, lt=1 << 63, description="Seed of all draws.")
    features: FeaturesConfig = Field(default_factory=FeaturesConfig, description="Variants and stages.")
    world: WorldConfig = Field(default_factory=WorldConfig, description="Time.")
    needs: Needs = Field(THREE, description="What residents need: hunger, hygiene, energy, and needs of your own.")
    observations: ObservationsConfig = Field(default_factory=ObservationsConfig, description="What residents see.")
    rewards: RewardsConfig = Field(default_factory=RewardsConfig, description="What residents are rewarded for.")
    economy: EconomyConfig = Field(default_factory=EconomyConfig, description="Money, in coins.")
    jobs: dict[Id, JobConfig] = Field(default_factory=dict, description="Jobs by id.")
    employment: EmploymentConfig = Field(default_factory=EmploymentConfig, description="Rules of work.")
    behavior: BehaviorConfig = Field(default_factory=BehaviorConfig, description="Scripted townspeople.")
    policy: PolicyConfig = Field(default_factory=PolicyConfig, description="Acting: actions, interval, network.")
    queue_fairness: QueueFairnessConfig = Field(default_factory=QueueFairnessConfig, description="Queues.")
    conflict: ConflictConfig = Field(default_factory=ConflictConfig, description="Conflict, quarrels, rivalry.")
    relationships: RelationshipsConfig = Field(default_factory=RelationshipsConfig, description="Ties and chats.")
    personalities: PersonalitiesConfig = Field(default_factory=PersonalitiesConfig, description="Personality profiles.")
    perturbations: PerturbationsConfig = Field(
        default_factory=PerturbationsConfig, description="Disturbances; off unless configured."
    )
    lifecycle: LifecycleConfig = Field(default_factory=LifecycleConfig, description="Exits and newcomers.")
    affordances: AffordancesConfig = Field(default_factory=AffordancesConfig, description="What residents can do with objects.")
    scenario: ScenarioConfig = Field(default_factory=ScenarioConfig, description="The town itself.")
    ppo: PPOConfig = Field(default_factory=PPOConfig, description="Hyper-parameters of PPO.")
    training: TrainingConfig = Field(default_factory=TrainingConfig, description="The training run.")
    telemetry: TelemetryConfig = Field(default_factory=TelemetryConfig, description="Training records.")
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig, description="Scorecards.")
    promotion: PromotionConfig = Field(default_factory=PromotionConfig, description="Gates and ledger.")
    snapshot: SnapshotConfig = Field(default_factory=SnapshotConfig, description="Snapshots of the world.")

    @model_validator(mode="after")
    def _references(self) -> Self:
        """Names point at something."""
        residents, buildings = self.scenario.residents, self.scenario.buildings
        affordances = {spec.id for spec in self.affordances.specs} or set(self.queue_fairness.cooldown_ticks)
        kinds = {kind for spec in self.affordances.specs for kind in spec.objects} | set(StockConfig.model_fields)
        names = {one.id for one in residents}
        faults: list[Fault] = []
        for n, one in enumerate(residents):
            if one.job is not None:
                faults += undeclared(("scenario", "residents", n, "job"), one.job, self.jobs, "jobs")
            if one.home is not None:
                faults += undeclared(("scenario", "residents", n, "home"), one.home, buildings, "scenario.buildings")
            for k, step in enumerate(one.schedule):
                order, known = step.do.partition(":")[0], (*OPTION_VERBS, *sorted(affordances))
                if order not in (*known, *PLACE_VERBS):
                    told = f"there is no action {order!r}; {nearest_name(order, known)}"
                    faults.append((("scenario", "residents", n, "schedule", k, "do"), told))
        for name, job in self.jobs.items():
            faults += undeclared(("jobs", name, "site"), job.site, buildings, "scenario.buildings")
        for n, leaving in enumerate(self.lifecycle.exits):
            faults += undeclared(("lifecycle", "exits", n, "resident"), leaving.resident, names, "scenario.residents")
        for name in self.queue_fairness.cooldown_ticks:
            faults += undeclared(("queue_fairness", "cooldown_ticks", name), name, affordances, "the affordance file")
        for name in self.economy.stock.by_kind:
            faults += undeclared(("economy", "stock", name), name, kinds, "the affordance file")
        if self.training.conflict_weights is not None and self.observations.conflict_weight is None:
            told = "residents must be told the weight of their town: set observations.conflict_weight, the one of measurements"
            faults.append((("training", "conflict_weights"), told))
        if faults:
            raise problems_at(faults)
        return self

    @model_validator(mode="after")
    def _needs_are_declared(self) -> Self:
        """A need that is named anywhere is one of `needs`; an error says where it is named."""
        named: list[tuple[tuple[str | int, ...], Iterable[str]]] = []  # where needs are named, and their names
        named.append((("evaluation", "need_weights"), self.evaluation.need_weights))
        named += [(("affordances", "specs", a, "effects"), spec.effects) for a, spec in enumerate(self.affordances.specs)]
        named += [(("scenario", "residents", n, "needs"), one.needs) for n, one in enumerate(self.scenario.residents)]
        named += [(("personalities", name, "needs"), own.needs) for name, own in self.profiles().items()]
        named += [
            (("scenario", "residents", n, "personality", "needs"), one.personality.needs)
            for n, one in enumerate(self.scenario.residents)
            if one.personality is not None
        ]
        wrong = [
            ((*path, name), f"there is no need {name!r}; {nearest_name(name, self.needs)}")
            for path, names in named
            for name in names
            if name not in self.needs
        ]
        if wrong:
            raise problems_at(wrong)
        return self

    @model_validator(mode="after")
    def _living_pays(self) -> Self:
        """A living tick without conflict is never worth less than nothing, whatever the personality."""
        for section, rewards, needs in (
            (("rewards",), self.rewards, self.needs),
            (("evaluation", "rewards"), self.evaluation.rewards, self.measured_needs()),
        ):
            people = [*self.profiles().values(), *(one.personality for one in self.scenario.residents if one.personality)]
            heaviest = max(sum(weights_of(needs, own)) for own in people)
            worst = rewards.worst_tick(heaviest)
            if worst < -1e-12:
                text = (
                    f"a living tick could be worth {worst:.4g}, so that leaving would pay; "
                    f"raise {'.'.join(section)}.survival to at least {rewards.survival - worst:.4g} or lower needs_scale"
                )
                raise problems_at([(section, text)])
        return self

    def __repr__(self) -> str:
        """What it is; `print` shows every key."""
        return f"<SimulationConfig {self.config_id}: episodes of {self.scenario.episode_ticks} ticks, seed {self.seed}>"

    @property
    def town_name(self) -> str:
        """What the town is called in files, tables and pictures."""
        return self.scenario.name or self.config_id

    @property
    def days(self) -> float:
        """Length of an episode."""
        return self.scenario.episode_ticks / self.world.ticks_per_day

    def lasting(self, ticks: int) -> Self:
        """The same town with episodes of this many ticks."""
        if not 1 <= ticks <= LONGEST:
            raise UsageError(f"an episode of {ticks:,} ticks is asked for, expected 1 to {LONGEST:,}")
        return self.model_copy(update={"scenario": self.scenario.model_copy(update={"episode_ticks": ticks})})

    def measured_needs(self) -> dict[str, NeedConfig]:
        """The needs with the weights that scorecards measure with."""
        fixed = self.evaluation.need_weights
        return {name: need.model_copy(update={"weight": fixed.get(name, need.weight)}) for name, need in self.needs.items()}

    def weights_apart(self) -> str:
        """Where the weights of scorecards differ from those that environments pay, in a sentence; empty when nowhere."""
        paid, counted = _weights(self.rewards, self.needs), _weights(self.evaluation.rewards, self.measured_needs())
        apart = [name for name in paid if paid[name] != counted[name]]
        if not apart:
            return ""
        weights = ", ".join(f"{name} {counted[name]:g} instead of {paid[name]:g}" for name in apart)
        return f"Scorecards use other weights than environments and training: {weights} (evaluation.rewards)."

    def cooldown(self, spec: AffordanceSpec) -> int:
        """Ticks before a resident may ask for this affordance again."""
        return self.queue_fairness.cooldown_ticks.get(spec.id, spec.cooldown)

    def profiles(self) -> dict[str, PersonalityConfig]:
        return {name: own for name, own in self.personalities if isinstance(own, PersonalityConfig)}

    def personality(self, resident: ResidentConfig) -> PersonalityConfig:
        return resident.personality or self.profiles()[resident.profile]


def _weights(rewards: RewardsConfig, needs: Mapping[str, NeedConfig]) -> dict[str, float]:
    return rewards.model_dump() | {f"the weight of {name}": need.weight for name, need in needs.items()}


def weights_of(needs: Mapping[str, NeedConfig], own: PersonalityConfig) -> tuple[float, ...]:
    """What a lack of each need costs one of this personality."""
    return tuple(need.weight * own.needs.get(name, 1.0) for name, need in needs.items())


LATER_KEYS = (
    ("observations", "conflict_weight"),
    ("ppo", "team_share"),
    ("training", "conflict_weights"),
    ("training", "partners"),
)


def config_hash(config: SimulationConfig, *, without: Collection[str] = (), stored: bool = False) -> str:
    """Sixteen hex digits that change with any value that can change a result: not with where the work is done, and by how
    many (`training.engine`, `workers`, `cluster`), nor with a later key that is not used, so that kept results stay known.
    `without` leaves out whole sections. Of a config that was `stored` whole, only what its file holds counts: a key that came
    later does not make an older file look changed."""
    found = config.model_dump(mode="json", exclude=set(without), exclude_unset=stored)
    if "training" in found:
        found["training"] |= {"engine": "local", "workers": 1}
        found["training"].pop("cluster", None)
    for section, key in LATER_KEYS:
        if section in found and not found[section].get(key):
            found[section].pop(key, None)
    return short_hash(json.dumps(found, sort_keys=True, separators=(",", ":"), ensure_ascii=True))
