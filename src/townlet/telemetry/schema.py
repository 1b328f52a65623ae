"""Every field of the PPO training telemetry, declared once.

Validator, watcher, summary, plots, exports, JSON Schemas and the reference page are derived from `FIELDS` and `BATCH_FIELDS`.
A record is one JSON object on one line. Whole numbers may be written as floats (`3.0`); names with a dot
(`conflict.rivalry_max_mean_avg`) are one flat key.

A *required* field must be there from its first version on; it may be null only from version 1.3 (`STRICT`) on, and only where
`null_when` says so. An *optional* field may be absent or null in any version, and may be present in a record of an
earlier version than its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

VERSIONS = (1.0, 1.1, 1.2, 1.3, 1.4)
CURRENT = 1.4  # what is written
STRICT = 1.3  # from here on undeclared fields are errors, and a required field may be null where it says so
OWN_RETURN = 1.4  # from here on episode_return_mean is null for replay data, whose return is dataset_return
BATCH_VERSIONS = tuple(version for version in VERSIONS if version >= STRICT)  # that have records of mini-batches
DATA_MODES = ("replay", "rollout", "mixed")
RIVALRY_BINS = 10  # equal bins over [0, 1]

Kind = Literal["whole", "number", "flag", "text", "choice", "histogram", "counts", "names"]
Panel = Literal[
    "",
    "return a day",
    "losses",
    "kl and clip",
    "entropy",
    "returns",
    "per resident-day",
    "shifts",
    "conflicts",
    "waits",
    "rivalry",
    "throughput",
]
PANELS: tuple[Panel, ...] = get_args(Panel)[1:]


@dataclass(frozen=True, slots=True)
class Alert:
    """A rule of `townlet telemetry watch`: alert when the value is `above` or `below` the threshold."""

    side: Literal["above", "below"]
    threshold: float | None  # None: watched only when its option is given
    flag: str  # the option of `watch` that sets the threshold


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    kind: Kind
    unit: str
    since: float
    meaning: str
    required: bool = True
    low: float | None = None
    high: float | None = None
    null_when: str = ""  # from version STRICT on; "" = never
    alert: Alert | None = None
    volatile: bool = False  # depends on the clock: left out of comparisons between runs
    panel: Panel = ""
    choices: tuple[str, ...] = ()
    drift: bool = False  # compared with a baseline unless the caller chooses others
    drift_scale: float = 1.0  # multiplies the smallest difference that counts between trainings: equal ones differ so much more

    @property
    def numeric(self) -> bool:
        return self.kind in ("whole", "number")

    def required_in(self, version: float) -> bool:
        return self.required and version >= self.since

    def nullable_in(self, version: float) -> bool:
        return not self.required or (bool(self.null_when) and version >= STRICT)


NO_METRICS = "replay samples without capture metrics"
NO_TOWN = "replay data: no town was stepped"
NO_EPISODE = "no episode ended in this epoch, or replay data (from 1.4 on: its return is dataset_return)"
NO_SHIFT = "no shift fell due in this epoch, or replay data"
NO_DATA = "rollout data, or replay data that does not hold whole episodes"
NO_VARIATION = "rewards or advantages did not vary"
NOT_RECORDED = "replay samples without action masks"
NO_CHAT = "no chat succeeded, or replay samples without capture metrics"

V1, V11, V12, V13, V14 = VERSIONS

# fmt: off
FIELDS: tuple[Field, ...] = (
    # --- version 1 ---------------------------------------------------------------------------------------------------
    Field("epoch", "whole", "count", V1, "Epoch of this stage, from 1; one collection or one pass over the data.", low=0),
    Field("updates", "whole", "count", V1, "Optimiser steps made in this epoch.", low=0),
    Field("transitions", "whole", "count", V1, "Decisions that entered the loss in this epoch, each counted once.", low=0),
    Field("loss_policy", "number", "1", V1, "Clipped surrogate loss, mean over mini-batches.", panel="losses"),
    Field("loss_value", "number", "1", V1, "Value loss before its coefficient, mean over mini-batches.", low=0, panel="losses"),
    Field("loss_entropy", "number", "nats", V1,
          "Mean entropy of the policy under the mask; the total subtracts entropy_coef times this number."),
    Field("loss_total", "number", "1", V1, "What the optimiser minimised, mean over mini-batches.",
          alert=Alert("above", 10.0, "--loss-threshold"), panel="losses"),
    Field("clip_fraction", "number", "share", V1, "Share of decisions whose ratio left the clip range.",
          low=0, high=1, panel="kl and clip", alert=Alert("above", None, "--clip-max")),
    Field("adv_mean", "number", "reward", V1,
          "Mean advantage (GAE) of the decisions learned from, before normalisation: per mini-batch, then the mean over the "
          "mini-batches of all passes."),
    Field("adv_std", "number", "reward", V1,
          "Standard deviation (n − 1) of the same advantages inside a mini-batch, before normalisation: mean over the "
          "mini-batches of all passes.", low=0),
    Field("grad_norm", "number", "1", V1, "Global gradient norm before clipping, mean over mini-batches.",
          low=0, alert=Alert("above", 50.0, "--grad-threshold")),
    Field("kl_divergence", "number", "nats", V1, "Mean of old − new log-prob (k1 estimate); may be negative.",
          alert=Alert("above", 0.2, "--kl-threshold"), panel="kl and clip"),
    Field("telemetry_version", "number", "1", V1, "Version of this record; a JSON number.", low=VERSIONS[0], high=CURRENT),
    Field("lr", "number", "1", V1, "Learning rate of the last update of the epoch.", low=0),
    Field("steps", "whole", "count", V1, "Decisions trained on since the run began; grows with each record.", low=0),
    Field("conflict.rivalry_max_mean_avg", "number", "rivalry", V1,
          "Highest rivalry a resident feels, mean over decisions, averaged over batches.",
          low=0, high=1, panel="rivalry", drift=True),
    Field("conflict.rivalry_max_max_avg", "number", "rivalry", V1,
          "Highest rivalry a resident feels, largest of a batch, averaged over batches.",
          low=0, high=1, panel="rivalry", drift=True),
    Field("conflict.rivalry_avoid_count_mean_avg", "number", "feature", V1,
          "rivalry_avoid_count as the observation holds it, mean over decisions, averaged over batches.", low=0, drift=True,
          drift_scale=2.0),
    Field("conflict.rivalry_avoid_count_max_avg", "number", "feature", V1,
          "rivalry_avoid_count as the observation holds it, largest of a batch, averaged over batches.", low=0, drift=True),
    Field("baseline_sample_count", "whole", "count", V1, "Samples the capture baseline was computed from.",
          required=False, low=0, drift=True),
    Field("baseline_reward_mean", "number", "reward", V1, "Mean reward per step of the captured data.",
          required=False, drift=True),
    Field("baseline_reward_sum", "number", "reward", V1, "Sum of all rewards of the captured data.",
          required=False, drift=True),
    Field("baseline_reward_sum_mean", "number", "reward", V1, "Reward sum per captured sample, mean.",
          required=False, drift=True),
    Field("baseline_log_prob_mean", "number", "nats", V1, "Mean log-prob of the captured actions.", required=False, drift=True),
    # --- version 1.1 -------------------------------------------------------------------------------------------------
    Field("epoch_duration_sec", "number", "s", V11, "Wall time of the epoch, collection and updates.", low=0, volatile=True),
    Field("data_mode", "choice", "", V11, "Where this epoch's data came from.", choices=DATA_MODES),
    Field("cycle_id", "whole", "count", V11, "Collection cycle; −1 before the first collection. Never falls.", low=-1),
    Field("batch_entropy_mean", "number", "nats", V11, "Policy entropy per mini-batch, mean.",
          low=0, alert=Alert("below", 0.01, "--entropy-threshold"), panel="entropy", drift=True, drift_scale=5.0),
    Field("batch_entropy_std", "number", "nats", V11, "Policy entropy per mini-batch, standard deviation.", low=0),
    Field("grad_norm_max", "number", "1", V11, "Largest global gradient norm of a mini-batch, before clipping.", low=0),
    Field("kl_divergence_max", "number", "nats", V11, "Largest mini-batch value of kl_divergence."),
    Field("reward_advantage_corr", "number", "1", V11, "Correlation of rewards and advantages over the epoch's decisions.",
          low=-1, high=1, null_when=NO_VARIATION, alert=Alert("below", -0.5, "--reward-corr-threshold")),
    Field("rollout_ticks", "whole", "ticks", V11, "Ticks simulated per town for this epoch; 0 for pure replay.", low=0),
    Field("log_stream_offset", "whole", "count", V11, "Number of this record in the log, over rotations and resumes.", low=0),
    Field("queue_conflict_events", "number", "count", V11, "Queue conflicts in the epoch's data.",
          low=0, null_when=NO_METRICS, panel="conflicts", drift=True, drift_scale=5.0,
          alert=Alert("below", None, "--queue-events-min")),
    Field("queue_conflict_intensity_sum", "number", "intensity", V11, "Sum of the intensities of those conflicts.",
          low=0, null_when=NO_METRICS, panel="conflicts", drift=True, drift_scale=6.0,
          alert=Alert("below", None, "--queue-intensity-min")),
    Field("shared_meal_events", "number", "count", V11, "Shared meals in the epoch's data.",
          required=False, low=0, alert=Alert("below", None, "--shared-meal-min")),
    Field("late_help_events", "number", "count", V11, "Late colleagues that were covered for.",
          required=False, low=0, alert=Alert("below", None, "--late-help-min")),
    Field("shift_takeover_events", "number", "count", V11, "Shifts taken over from absent colleagues.",
          required=False, low=0, alert=Alert("above", None, "--shift-takeover-max")),
    Field("chat_success_events", "number", "count", V11, "Chats that went well.", required=False, low=0),
    Field("chat_failure_events", "number", "count", V11, "Chats that went badly.", required=False, low=0),
    Field("chat_quality_mean", "number", "share", V11, "Mean quality of the chats that went well.",
          required=False, low=0, high=1, null_when=NO_CHAT, alert=Alert("below", None, "--chat-quality-min")),
    Field("adv_zero_std_batches", "whole", "count", V11, "Mini-batches whose adv_std was below 1e-6.", required=False, low=0),
    Field("adv_min_std", "number", "reward", V11, "Smallest adv_std of a mini-batch.", required=False, low=0),
    Field("clip_fraction_max", "number", "share", V11, "Largest mini-batch clip fraction.", required=False, low=0, high=1),
    Field("clip_triggered_minibatches", "whole", "count", V11, "Mini-batches in which a ratio was clipped.",
          required=False, low=0),
    # --- version 1.2 -------------------------------------------------------------------------------------------------
    Field("anneal_cycle", "whole", "count", V12, "Entry of the anneal schedule this epoch belongs to.", required=False, low=-1),
    Field("anneal_stage", "text", "", V12, "Kind of that entry: bc or ppo.", required=False),
    Field("anneal_dataset", "text", "", V12, "Label of the demonstrations of the stage.", required=False),
    Field("anneal_bc_accuracy", "number", "share", V12, "Held-out accuracy of the last cloning stage.",
          required=False, low=0, high=1, alert=Alert("below", None, "--anneal-bc-min")),
    Field("anneal_bc_threshold", "number", "share", V12, "Accuracy the cloning stage had to reach.",
          required=False, low=0, high=1),
    Field("anneal_bc_passed", "flag", "", V12, "The cloning stage passed its gate.", required=False),
    Field("anneal_loss_baseline", "number", "1", V12, "Value loss in the last epochs of the last good stage, mean.",
          required=False),
    Field("anneal_queue_baseline", "number", "count", V12, "Queue conflicts in those epochs, mean per epoch.",
          required=False, low=0),
    Field("anneal_intensity_baseline", "number", "intensity", V12, "Conflict intensity in those epochs, mean per epoch.",
          required=False, low=0),
    Field("anneal_loss_flag", "flag", "", V12,
          "The value loss of this stage's last epochs is above its bound over the last good stage, clear of their spread.",
          required=False),
    Field("anneal_queue_flag", "flag", "", V12, "The same of queue conflicts, from 1.4 on per resident-day.", required=False),
    Field("anneal_intensity_flag", "flag", "", V12, "The same of conflict intensity, from 1.4 on per resident-day.",
          required=False),
    # --- version 1.3 -------------------------------------------------------------------------------------------------
    Field("run_id", "text", "", V13, "Hash of config, seed and command: the same for a run and its repetition."),
    Field("config_hash", "text", "", V13, "Hash of the config."),
    Field("dataset_hash", "text", "", V13, "Hash of the data the run was given.", null_when="a run that was given none"),
    Field("policy_hash", "text", "", V13, "Hash of the weights after the epoch, as in checkpoints, scorecards and the ledger."),
    Field("kl_k3", "number", "nats", V13, "Mean of (ratio − 1) − log ratio (k3 estimate), never negative; gates use this one.",
          low=0, alert=Alert("above", 0.1, "--kl-k3-threshold"), panel="kl and clip"),
    Field("explained_variance", "number", "1", V13, "1 − variance of the value errors / variance of the returns.",
          high=1, null_when="the returns did not vary", alert=Alert("below", None, "--explained-variance-min")),
    Field("entropy_coef", "number", "1", V13, "Weight of the entropy bonus in this epoch.", low=0),
    Field("steps_per_second", "number", "1/s", V13, "Decisions trained on per second of the epoch.",
          low=0, volatile=True, panel="throughput", alert=Alert("below", None, "--speed-min")),
    Field("sim_steps_per_second", "number", "1/s", V13, "Decisions simulated per second of collection.",
          low=0, null_when=NO_TOWN, volatile=True, panel="throughput"),
    Field("episode_return_mean", "number", "reward", V13, "Return of the residents whose episode ended in this epoch, mean.",
          null_when=NO_EPISODE, panel="returns", drift=True, alert=Alert("below", None, "--return-min")),
    Field("episode_length_mean", "number", "decisions", V13, "Decisions in those episodes, mean.", low=0, null_when=NO_EPISODE),
    Field("queue_wait_mean", "number", "ticks", V13, "Wait of those who joined a queue, mean.",
          low=0, null_when=NO_METRICS, panel="waits", drift=True, drift_scale=3.0),
    Field("queue_wait_gini", "number", "share", V13, "Gini of the waits over residents: 0 = shared evenly.",
          low=0, high=1, null_when=NO_METRICS, drift=True),
    Field("rivalry_histogram", "histogram", "share", V13,
          "Decisions by the highest rivalry the resident feels: ten equal bins over [0, 1], shares that sum to 1.", low=0),
    Field("conflict_reasons", "counts", "count", V13, "Queue conflicts by reason.", low=0, null_when=NO_METRICS),
    Field("mask_fill_mean", "number", "share", V13, "Share of actions the mask allowed, mean.",
          low=0, high=1, null_when=NOT_RECORDED),
    Field("illegal_actions", "whole", "count", V13, "Decisions outside the mask; they acted as `wait`.",
          low=0, null_when=NOT_RECORDED, alert=Alert("above", 0.0, "--illegal-max")),
    Field("exits", "whole", "count", V13, "Residents that collapsed or were evicted in the epoch's data.",
          low=0, null_when=NO_METRICS, drift=True, alert=Alert("above", None, "--exits-max")),
    Field("records_dropped", "whole", "count", V13, "Records that could not be written so far (a full disk).",
          low=0, alert=Alert("above", 0.0, "--dropped-max")),
    Field("kind", "choice", "", V13, "Kind of record; `epoch` when absent.", required=False, choices=("epoch",)),
    Field("nonfinite", "names", "", V13, "Fields that were NaN or infinite and are therefore null: the run diverged.",
          required=False),
    # --- version 1.4 -------------------------------------------------------------------------------------------------
    Field("conflicts_per_resident_day", "number", "1/day", V14,
          "Queue conflicts per day that a resident lived in the epoch's data (decisions × interval / ticks per day).",
          low=0, null_when=NO_METRICS, panel="per resident-day", drift=True, drift_scale=5.0,
          alert=Alert("above", None, "--conflicts-max")),
    Field("exits_per_resident_day", "number", "1/day", V14, "Exits per day that a resident lived in the epoch's data.",
          low=0, null_when=NO_METRICS, panel="per resident-day", alert=Alert("above", None, "--exit-rate-max")),
    Field("late_share", "number", "share", V14,
          "Late shifts among those that fell due; one that reaches into the next epoch counts in both when it is missed there.",
          low=0, high=1, null_when=NO_SHIFT, panel="shifts", alert=Alert("above", None, "--late-max")),
    Field("attendance", "number", "share", V14, "Shifts that were not missed among those that fell due.",
          low=0, high=1, null_when=NO_SHIFT, panel="shifts", alert=Alert("below", None, "--attendance-min")),
    Field("dataset_return", "number", "reward", V14,
          "Return of the lives in the replay data that were seen to their end, mean; not that of the policy in training.",
          null_when=NO_DATA),
    Field("return_per_resident_day", "number", "reward/day", V14,
          "Reward per day that a learning resident lived in the epoch's towns: comparable whatever the length of their episodes.",
          required=False, null_when=NO_TOWN, panel="return a day"),
    Field("seal", "text", "", V14,
          "First 32 hexadecimal digits of the SHA-256 of the line before this last field: a changed record is seen.",
          required=False, volatile=True),
)
# fmt: on

_BY_NAME = {field.name: field for field in FIELDS}


def _shared(*names: str) -> tuple[Field, ...]:
    return tuple(_BY_NAME[name] for name in names)


# fmt: off
BATCH_FIELDS: tuple[Field, ...] = (
    Field("kind", "choice", "", V13, "`batch`: one mini-batch of the coming epoch record.", choices=("batch",)),
    *_shared("telemetry_version", "run_id", "epoch", "cycle_id", "log_stream_offset", "steps", "lr"),
    Field("batch", "whole", "count", V13, "Number of the mini-batch in its epoch, from 0.", low=0),
    Field("transitions", "whole", "count", V13, "Decisions in the mini-batch.", low=0),
    *_shared("loss_policy", "loss_value", "loss_entropy", "loss_total", "clip_fraction", "adv_mean", "adv_std", "grad_norm"),
    *_shared("kl_divergence", "kl_k3", "nonfinite", "seal"),
    Field("conflict.rivalry_max_mean", "number", "rivalry", V14,
          "Highest rivalry a resident feels, mean over the mini-batch.", low=0, high=1),
    Field("conflict.rivalry_max_max", "number", "rivalry", V14,
          "Highest rivalry a resident feels, largest of the mini-batch.", low=0, high=1),
    Field("conflict.rivalry_avoid_count_mean", "number", "feature", V14,
          "rivalry_avoid_count as the observation holds it, mean over the mini-batch.", low=0),
    Field("conflict.rivalry_avoid_count_max", "number", "feature", V14,
          "rivalry_avoid_count as the observation holds it, largest of the mini-batch.", low=0),
)
# fmt: on

# Options of `watch` for records of anneal stages: field, side, and the baseline field the threshold is a share on top of.
ANNEAL_ALERTS: dict[str, tuple[str, Literal["above", "below"], str]] = {
    "--anneal-loss-max": ("loss_total", "above", "anneal_loss_baseline"),
    "--anneal-queue-max": ("queue_conflict_events", "above", "anneal_queue_baseline"),
    "--anneal-intensity-max": ("queue_conflict_intensity_sum", "above", "anneal_intensity_baseline"),
    "--anneal-queue-min": ("queue_conflict_events", "below", ""),
    "--anneal-intensity-min": ("queue_conflict_intensity_sum", "below", ""),
}


# Options of `watch` for fields that are compared with their own past in the log: field, side, usual share of change, what must
# come on top of that share, and a field whose rise excuses it. (Whoever learns to live in a town meets others more often.)
PAST_ALERTS: dict[str, tuple[str, Literal["above", "below"], float, float, str]] = {
    "--conflicts-rise": ("conflicts_per_resident_day", "above", 0.5, 0.2, "episode_return_mean"),
    "--exits-rise": ("exits_per_resident_day", "above", 1.0, 0.02, ""),
    "--return-fall": ("episode_return_mean", "below", 0.5, 0.0, ""),
}


def field(name: str) -> Field:
    return _BY_NAME[name]


def declared(name: str) -> bool:
    return name in _BY_NAME


def volatile_names() -> frozenset[str]:
    return frozenset(item.name for item in FIELDS if item.volatile)


def comparable(record: Mapping[str, object]) -> dict[str, object]:
    """The record without what depends on the clock: equal for a run and its repetition."""
    clock = volatile_names()
    return {name: value for name, value in record.items() if name not in clock}


def project(record: Mapping[str, object], version: float) -> dict[str, object]:
    """A record reduced to the fields of an older version. A null that the older version does not know becomes 0."""
    older: dict[str, object] = {}
    for item in FIELDS:
        if item.since > version or item.name not in record:
            continue
        value = record[item.name]
        if value is None and not item.nullable_in(version):
            value = 0.0
        older[item.name] = value
    older["telemetry_version"] = version
    return older
