"""How policies act, learn, are logged, measured and promoted."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from townlet.config.base import DAY, Clock, Coins, Id, Many, Positive, Section, Share, Ticks
from townlet.config.needs import THREE
from townlet.config.town import RewardsConfig, SocialStage
from townlet.files import leads_inside
from townlet.names import Name

Size = Annotated[int, Field(ge=1, le=8192)]


class NetworkConfig(Section):
    map_encoder: Literal["linear", "cnn", "none"] = Field("linear", description="How the map is read.")
    map_size: int = Field(64, ge=1, le=8192, description="Width of the map encoder.")
    map_channels: Annotated[tuple[Size, ...], Many] = Field(
        (16, 32), description="Channels of the convolutions when map_encoder is cnn."
    )
    feature_size: int = Field(128, ge=1, le=8192, description="Width of the feature encoder.")
    conflict_size: int = Field(32, ge=1, le=8192, description="Width of the encoder of the rivalry and queue fields.")
    trunk_sizes: Annotated[tuple[Size, ...], Many] = Field((128,), min_length=1, description="Widths of the shared trunk.")
    recurrent_size: int = Field(128, ge=1, le=8192, description="Width of the recurrent layer when ppo.recurrent is gru or lstm.")
    activation: Literal["relu", "tanh"] = Field("relu", description="Activation of all layers.")


class PolicyConfig(Section):
    action_level: Literal["option", "candidates", "primitive"] = Field(
        "option",
        description="What is chosen: options by rule (near, calm), one of the nearest objects, both every decision_interval "
        "ticks, or single moves (every tick).",
    )
    decision_interval: int = Field(
        10, ge=1, le=DAY, description="Ticks per decision of options and candidates; the primitive level decides every tick."
    )
    calm_rivalry_ticks: Positive = Field(
        40.0, description="What a rivalry of 1 at an object costs in the ranking of `calm`, in ticks."
    )
    critic: Literal["own", "central"] = Field(
        "own",
        description="What the critic sees: the resident's own observation, or also the mean over its town (live towns only).",
    )
    network: NetworkConfig = Field(default_factory=NetworkConfig, description="Sizes of the network.")

    @property
    def interval(self) -> int:
        """Ticks per decision."""
        return 1 if self.action_level == "primitive" else self.decision_interval


class PPOConfig(Section):
    learning_rate: float = Field(3e-4, gt=0, le=1, description="Step size of the optimiser.")
    clip_param: float = Field(0.2, gt=0, le=1, description="Clip range of the ratio.")
    value_loss_coef: float = Field(0.5, ge=0, le=100, description="Weight of the value loss.")
    entropy_coef: float = Field(0.01, ge=0, le=10, description="Weight of the entropy bonus.")
    num_epochs: int = Field(4, ge=1, le=1000, description="Optimisation passes over the data of an epoch.")
    mini_batch_size: int | None = Field(None, ge=1, description="Transitions per mini-batch; wins over num_mini_batches.")
    num_mini_batches: int = Field(4, ge=1, le=65536, description="Mini-batches per pass when mini_batch_size is not set.")
    gae_lambda: Share = Field(0.95, description="λ of the advantage estimate, per decision.")
    gamma: Share = Field(0.99, description="Discount per decision.")
    team_share: Share = Field(0.0, description="Share of a reward that is the mean over the residents of one's town (rollouts).")
    max_grad_norm: float = Field(0.5, gt=0, le=1e6, description="Bound of the global gradient norm.")
    value_clip: float | None = Field(0.2, gt=0, le=1e6, description="Clip range of the value; null for none.")
    advantage_normalization: bool = Field(True, description="Normalise advantages in each mini-batch.")
    target_kl: float | None = Field(
        None, gt=0, le=100, description="Stop the passes of an epoch when kl_k3 is above this; null for never."
    )
    lr_anneal: bool = Field(False, description="Let the learning rate fall to 0 over the run.")
    clip_anneal: bool = Field(False, description="Let the clip range fall to 0 over the run.")
    entropy_final: float | None = Field(
        None, ge=0, le=10, description="Entropy weight at the end of the run, reached in a straight line; null keeps it."
    )
    normalize_observations: bool = Field(False, description="Normalise features by running statistics.")
    normalize_values: bool = Field(True, description="Normalise value targets by running statistics.")
    optimizer: Literal["adam", "adamw", "sgd"] = Field("adam", description="Optimiser.")
    adam_epsilon: float = Field(1e-5, gt=0, le=1, description="ε of Adam.")
    recurrent: Literal["none", "gru", "lstm"] = Field("none", description="Recurrent layer after the trunk.")
    grad_accumulation: int = Field(1, ge=1, le=1024, description="Mini-batches per optimiser step.")
    update: Literal["fused", "torch"] = Field(
        "fused",
        description="How updates are computed: by compiled passes, which convolutions, recurrent layers, compile, bf16 and other "
        "devices leave to torch, or by torch, the reference.",
    )
    compile: bool = Field(False, description="Compile the update with torch.compile (slow to start).")
    bf16: bool = Field(False, description="Compute the update in bfloat16; refused where a test in a child process fails.")


class BCConfig(Section):
    manifest: str | None = Field(None, description="Manifest of the demonstrations; null captures scripted ones.")
    learning_rate: float = Field(1e-3, gt=0, le=1, description="Step size of the optimiser.")
    lr_anneal: bool = Field(True, description="Let the step size fall to 0 over the passes, along half a cosine.")
    batch_size: int = Field(64, ge=1, description="Decisions per mini-batch.")
    epochs: int = Field(10, ge=1, description="Passes over the demonstrations.")
    weight_decay: float = Field(0.0, ge=0, le=1, description="Weight decay.")
    validation_fraction: float = Field(0.1, ge=0, lt=1, description="Share of episodes held out.")
    value_coef: float = Field(0.5, ge=0, le=100, description="λ: weight of the value regression.")
    patience: int = Field(3, ge=1, description="Stop after this many epochs without a better held-out loss.")
    epsilon: Share = Field(0.05, description="Share of random choices in captured demonstrations.")
    towns: int = Field(16, ge=1, le=65536, description="Towns captured when no manifest is given.")


class OfflineConfig(Section):
    learning_rate: float = Field(1e-3, gt=0, le=1, description="Step size of the optimisers.")
    lr_anneal: bool = Field(True, description="Let the step size fall to 0 over the passes, along half a cosine.")
    batch_size: int = Field(256, ge=1, description="Decisions per mini-batch.")
    weight_decay: float = Field(0.0, ge=0, le=1, description="Weight decay.")
    value_coef: float = Field(0.5, ge=0, le=100, description="Weight of the value regression.")
    behaviour: float = Field(
        5.0, ge=0, le=100, description="Weight of imitating the data's expert, on decisions for which one was noted."
    )
    temperature: float = Field(
        1.0, gt=0, le=100, description="β: advantages, in their own deviations, are divided by it; lower trusts them more."
    )
    weight_bound: float = Field(20.0, ge=1, le=1e6, description="Largest weight exp(A/β) of a decision (awr, iql).")
    expectile: float = Field(0.7, ge=0.5, lt=1, description="τ of iql: 0.5 values the data's policy, above it the better part.")
    conservatism: float = Field(1.0, ge=0, le=100, description="α of cql: weight of the penalty on actions the data do not show.")
    warm_share: Share = Field(
        0.3, description="Share of the passes in which Q learns the data's own returns, before it backs up values (iql, cql)."
    )
    target_rate: float = Field(0.05, gt=0, le=1, description="Share by which the slow copy of Q moves at each step (iql, cql).")


class ReplayConfig(Section):
    batch_size: int = Field(1, ge=1, description="Samples per batch.")
    shuffle: bool = Field(False, description="Shuffle by seed and epoch.")
    seed: int | None = Field(None, ge=0, description="Seed of the shuffle; by default that of the config.")
    drop_last: bool = Field(False, description="Leave out a last, smaller batch.")
    streaming: bool = Field(False, description="Read samples while training instead of all at once.")
    prefetch: int = Field(2, ge=1, le=1024, description="Batches read ahead when streaming.")


class AnnealStage(Section):
    cycle: int = Field(ge=0, description="Number of the stage; grows.")
    mode: Literal["bc", "ppo"] = Field(description="What is done in it.")
    epochs: int = Field(1, ge=1, description="Epochs of the stage.")
    bc_weight: Share = Field(0.0, description="Weight of the BC auxiliary loss at its end; it moves there in a straight line.")
    scripted_share: Share = Field(
        0.0,
        description="Share of residents the script controls; below 1 in a ppo stage, which leaves at least one in every town.",
    )

    @model_validator(mode="after")
    def _somebody_learns(self) -> Self:
        if self.mode == "ppo" and self.scripted_share >= 1.0:
            raise ValueError(
                f"cycle {self.cycle} is a ppo stage with scripted_share 1: nobody is left to learn from; "
                "lower the share, or make it a bc stage"
            )
        return self


class SocialRewardStage(Section):
    cycle: int = Field(ge=0, description="From this stage or epoch on …")
    stage: SocialStage = Field(description="… social rewards are these.")


class AnnealGuardsConfig(Section):
    conflict_rise: Positive = Field(0.15, description="Largest rise of conflict events and intensity per resident-day.")
    return_fall: Share = Field(0.30, description="Largest fall of return or self-sufficiency, as a share of (trained − random).")
    value_loss_factor: float = Field(2.0, gt=0, description="Largest value loss, as a multiple of its baseline.")
    kl_bound: float = Field(0.1, gt=0, description="Greatest kl_k3.")


_SCHEDULE = (
    AnnealStage(cycle=0, mode="bc", epochs=10, bc_weight=1.0, scripted_share=1.0),
    AnnealStage(cycle=1, mode="ppo", epochs=20, bc_weight=0.6, scripted_share=0.8),
    AnnealStage(cycle=2, mode="ppo", epochs=20, bc_weight=0.3, scripted_share=0.4),
    AnnealStage(cycle=3, mode="ppo", epochs=40, bc_weight=0.0, scripted_share=0.0),
)


class ClusterConfig(Section):
    address: str | None = Field(
        None,
        min_length=1,
        description="HOST:PORT of a running Ray cluster, or auto; null: RAY_ADDRESS, else one on this machine.",
    )
    cpus: float = Field(1.0, gt=0, le=1024, description="Cores that a worker reserves.")
    memory_mb: int | None = Field(None, ge=1, description="Memory that a worker reserves, in MiB; null: none.")
    resources: dict[Id, float] = Field({}, description="Custom resources of the cluster that a worker reserves, by name.")
    placement: Literal["pack", "spread"] = Field("spread", description="Fill a node before the next, or spread over all.")
    logs: bool = Field(True, description="Show what workers print, with their node and process.")


class TrainingConfig(Section):
    source: Literal["replay", "rollout", "mixed", "bc", "anneal"] = Field(
        "rollout", description="Where the data comes from, and which strategy learns."
    )
    epochs: int = Field(100, ge=1, description="Collections (or passes over the data) of the run.")
    towns: int = Field(64, ge=1, le=65536, description="Towns simulated side by side.")
    horizon: int = Field(36, ge=1, le=65536, description="Decisions per resident and collection.")
    rollout_ticks: Ticks | None = Field(None, ge=1, description="Ticks per collection; wins over horizon when set.")
    rollout_mb: int | None = Field(
        None, ge=1, description="MB that a rollout may take; a longer one is collected and learned from in chunks of decisions."
    )
    start: Literal["random", "scenario"] | Clock = Field(
        "random", description="Clock time at which towns start: random, that of the scenario, or one time for all."
    )
    episode_days: int | None = Field(
        None, ge=1, le=365, description="Days per training episode; null: the scenario's. Ends are staggered over them."
    )
    wallets: Annotated[tuple[Coins, Coins] | None, Many] = Field(
        None, description="Coins between which first wallets are drawn in training; null: the scenario's."
    )
    conflict_weights: Annotated[tuple[Positive, Positive] | None, Many] = Field(
        None,
        description="Weights of conflict over which training towns are spread, each with its own, which its residents are told; "
        "null: all have rewards.conflict_weight.",
    )
    first_logits: dict[str, float] = Field(
        default_factory=dict,
        description="Action → what its logit is raised by before the first live epoch, after any cloning: what chance hardly "
        "finds (`work`) or the teacher hardly does (`chat`) is tried. 0: not raised, where an extended config raises it.",
    )
    scenarios: Annotated[tuple[str, ...], Many] = Field(
        (), description="Further scenarios to train on: their maps, people and jobs, under this config's rules."
    )
    drawn_towns: int = Field(
        0,
        ge=0,
        le=1000,
        description="Further towns to train on, drawn: of 24 residents, in houses, ways and shifts of many kinds.",
    )
    partners: Annotated[tuple[str, ...], Many] = Field(
        (),
        description="Policies to learn among (scripted, scripted_plain, random, checkpoint folders): a town has one of them, or "
        "none, in turn, for every other resident.",
    )
    rollout_auto_seed_agents: bool = Field(False, description="Place residents when the scenario has none.")
    replay_manifest: str | None = Field(None, description="Manifest of replay data.")
    capture_dir: str | None = Field(None, description="Capture folder of replay data.")
    algorithm: Literal["ppo", "bc", "awr", "cql", "iql"] = Field(
        "awr", description="What learns from replay data alone: off-policy (bc, awr, cql, iql), or PPO on stored ratios."
    )
    offline: OfflineConfig = Field(
        default_factory=OfflineConfig, description="Settings for learning from replay data without PPO."
    )
    replay: ReplayConfig = Field(default_factory=ReplayConfig, description="How replay data are read.")
    normalize_conflict_features: bool = Field(False, description="Normalise the conflict features of replay data.")
    checkpoint_every: int = Field(10, ge=1, description="Epochs between two checkpoints.")
    keep_checkpoints: int = Field(5, ge=1, le=10000, description="Checkpoints kept beside `best`.")
    eval_every: int = Field(20, ge=0, description="Epochs between two evaluations; 0 for none.")
    eval_towns: int = Field(16, ge=1, le=65536, description="Towns of a periodic evaluation.")
    eval_days: int = Field(7, ge=1, le=365, description="Days of a periodic evaluation, and of the one behind guards.")
    promote: bool = Field(False, description="Judge the checkpoint of an anneal run that passes by the promotion gates.")
    time_limit: float | None = Field(
        None, gt=0, description="Minutes after which the whole run ends by itself; PPO stages of an anneal run share them."
    )
    threads: int = Field(1, ge=1, le=1024, description="Threads of torch; changes bits, so it is kept in the checkpoint.")
    device: str = Field("cpu", description="Device of torch: cpu, cuda or cuda:N. Runs resume bit for bit on the cpu only.")
    engine: Name = Field(
        "local", description="Where rollouts are made: local, process (a process per worker) or ray (actors in a cluster)."
    )
    workers: int = Field(
        1, ge=0, le=4096, description="Cores that collect and update, or rollout workers; changes no bit. 0: all there are."
    )
    cluster: ClusterConfig = Field(default_factory=ClusterConfig, description="The Ray cluster of the engine ray.")
    shards: int = Field(4, ge=1, le=4096, description="Parts of a mini-batch whose gradients are added in order; changes bits.")
    bc: BCConfig = Field(default_factory=BCConfig, description="Behaviour cloning.")
    anneal_schedule: Annotated[tuple[AnnealStage, ...], Many] = Field(_SCHEDULE, description="Stages of an anneal run, in order.")
    anneal_accuracy_threshold: Share = Field(0.95, description="Held-out accuracy BC must reach.")
    anneal_change_accuracy_threshold: Share = Field(0.6, description="… and on decisions in which the expert changes its choice.")
    anneal_enable_policy_blend: bool = Field(
        False, description="Let the script control a share of the residents also outside anneal runs."
    )
    anneal_guards: AnnealGuardsConfig = Field(default_factory=AnnealGuardsConfig, description="Bounds a stage must keep.")
    social_reward_schedule: Annotated[tuple[SocialRewardStage, ...], Many] = Field((), description="Social rewards by stage.")

    @field_validator("first_logits")
    @classmethod
    def _raised(cls, first_logits: dict[str, float]) -> dict[str, float]:
        return {action: raised for action, raised in first_logits.items() if raised}

    @model_validator(mode="after")
    def _stages_in_order(self) -> Self:
        for name, cycles in (
            ("anneal_schedule", [stage.cycle for stage in self.anneal_schedule]),
            ("social_reward_schedule", [stage.cycle for stage in self.social_reward_schedule]),
        ):
            for before, after in pairwise(cycles):
                if after <= before:
                    raise ValueError(f"{name}: cycle {after} follows {before}; cycles must grow")
        for name, bounds in (("wallets", self.wallets), ("conflict_weights", self.conflict_weights)):
            if bounds is not None and bounds[0] > bounds[1]:
                raise ValueError(f"{name} {bounds[0]:g} to {bounds[1]:g} are in the wrong order; write the lower one first")
        if self.conflict_weights is not None and self.conflict_weights[0] == 0:
            raise ValueError("conflict_weights begin at 0; they are spread by their ratio, so begin above it")
        return self

    def with_epochs(self, epochs: int) -> str:
        """The override that gives a run this many epochs (an anneal run: each of its PPO stages)."""
        if self.source == "anneal":
            stages = [stage.model_dump() | ({"epochs": epochs} if stage.mode == "ppo" else {}) for stage in self.anneal_schedule]
            return f"training.anneal_schedule={json.dumps(stages)}"
        return f"training.{'bc.' if self.source == 'bc' else ''}epochs={epochs}"


class TelemetryConfig(Section):
    enabled: bool = Field(True, description="Write training records.")
    file: Name = Field("ppo.ndjson", description="Name of the log in the run folder; it ends in .ndjson or .jsonl.")
    frequency: int = Field(1, ge=1, description="Write every n-th epoch, and the last.")
    batches: bool = Field(False, description="Also write a record per mini-batch.")
    max_entries: int | None = Field(None, ge=1, description="Records per file before it is rotated; null for no rotation.")

    @field_validator("file")
    @classmethod
    def _a_log(cls, file: str) -> str:
        """Not `run.json` or another file that a run folder has."""
        if not file.endswith((".ndjson", ".jsonl")):
            raise ValueError(f"{file!r} is not a name for a log; let it end in .ndjson or .jsonl")
        return file


class SuiteConfig(Section):
    scenarios: Annotated[tuple[str, ...], Many] = Field(("town_day",), min_length=1, description="Scenarios of the suite.")
    seeds: int = Field(16, ge=1, le=10000, description="Towns per scenario.")
    days: int = Field(28, ge=1, le=365, description="Days per town.")
    neighbours: Literal["same", "scripted", "random"] = Field(
        "same", description="Who lives beside the resident that is measured."
    )


_SUITES = {
    "standard": SuiteConfig(scenarios=("town_day", "rush_hour", "two_bathrooms")),
    "short": SuiteConfig(scenarios=("town_day", "rush_hour", "two_bathrooms"), seeds=8, days=7),
    "social": SuiteConfig(scenarios=("newcomer", "two_bathrooms"), neighbours="scripted"),
    "stress": SuiteConfig(scenarios=("blackout_evening", "rush_hour")),
}


class EvaluationConfig(Section):
    rewards: RewardsConfig = Field(
        RewardsConfig(conflict_weight=1.0),
        description="Fixed weights for measuring returns, whatever the training uses.",
    )
    need_weights: dict[Id, Positive] = Field(
        {name: need.weight for name, need in THREE.items()},
        description="Need → fixed weight for measuring returns; a need that is not named here keeps its own.",
    )
    first_seed: int = Field(
        1_000_001,
        ge=1_000_001,
        lt=1 << 62,
        description="First seed of scorecards, odd and above 10⁶; promotion windows begin a million above it.",
    )
    suites: dict[Id, SuiteConfig] = Field(default_factory=lambda: dict(_SUITES), description="Suites by name.")
    baseline: str = Field("scripted", description="Policy that effects are measured against.")
    self_sufficient_above: Share = Field(
        0.3, description="A resident is self-sufficient on a day when every need it acts on stayed above this."
    )
    level: float = Field(0.95, gt=0, lt=1, description="Level of the intervals, and of those that gates decide by.")
    resamples: int = Field(
        2000,
        ge=10,
        le=1_000_000,
        description="Bootstrap resamples for an interval of ten or more values; fewer values use Student's t.",
    )

    @model_validator(mode="after")
    def _odd(self) -> Self:
        if self.first_seed % 2 == 0:
            raise ValueError(
                f"first_seed {self.first_seed} is even; evaluation seeds are odd so that no training seed is among them"
            )
        return self


class GateConfig(Section):
    metric: str = Field(min_length=1, description="Measure of the scorecard, such as return or conflicts.")
    rule: Literal["better", "not_worse", "at_least", "at_most", "drift"] = Field(
        description="better: the interval of the difference to the champion clears 0; not_worse: it stays within bound; "
        "at_least, at_most: the measure itself; drift: its relative change is within bound."
    )
    bound: float = Field(0.0, description="Bound or margin of the rule.")


_GATES = (  # better in return, worse in no other column of a scoreboard, but for three: docs/evaluation.md says why
    GateConfig(metric="return", rule="better"),
    GateConfig(metric="founders", rule="not_worse", bound=0.05),
    GateConfig(metric="self_sufficiency", rule="not_worse", bound=0.05),
    GateConfig(metric="attendance", rule="not_worse", bound=0.05),
    GateConfig(metric="lateness", rule="not_worse", bound=0.02),
    GateConfig(metric="late_minutes", rule="not_worse", bound=1.0),
    GateConfig(metric="conflicts", rule="not_worse", bound=0.5),
    GateConfig(metric="quarrels", rule="not_worse", bound=0.2),
    GateConfig(metric="wait_mean", rule="not_worse", bound=5.0),
    GateConfig(metric="wait_most", rule="not_worse", bound=5.0),
    GateConfig(metric="overspent", rule="not_worse", bound=0.1),
    GateConfig(metric="debt", rule="not_worse", bound=0.05),
)


class PromotionConfig(Section):
    required_passes: int = Field(2, ge=1, le=100, description="Consecutive windows a candidate must pass.")
    gates: Annotated[tuple[GateConfig, ...], Many] = Field(
        _GATES, min_length=1, description="Conditions, all of which must hold."
    )
    suite: Id = Field("standard", description="Suite a candidate is measured on.")
    ledger: str = Field(
        "promotion/ledger.ndjson", description="File of the ledger below the current folder; `--ledger` may name any other."
    )

    @field_validator("ledger")
    @classmethod
    def _below(cls, ledger: str) -> str:
        """A config may come from a stranger, and writing a ledger makes folders and files."""
        if not leads_inside(ledger):
            raise ValueError(f"{ledger!r:.60} leads out of the current folder; name a file below it, or use --ledger FILE")
        return ledger


class SnapshotConfig(Section):
    every_ticks: Ticks | None = Field(None, ge=1, description="Ticks between two snapshots of a run; null for none.")
    compress: bool = Field(False, description="Compress the arrays.")
