"""Replay data for the eye: the samples of a dataset in rows, one decision of a sample by name."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from townlet.dto.observations import ObservationBatchDTO, ObservationDTO
from townlet.dto.rewards import RewardBreakdownDTO
from townlet.errors import UsageError
from townlet.policy.replay_report import samples_of
from townlet.policy.sample import FirstGenerationWarning, ReplaySample, read_sample

HEAD = ("sample", "agent", "scenario", "decisions", "reward", "log-prob", "rivalry mean", "rivalry max", "conflicts", "end")


class SampleView(BaseModel):
    """One decision of a sample, and what the sample as a whole says."""

    model_config = ConfigDict(frozen=True)

    sample_id: str
    schema_version: str
    timesteps: int
    step: int
    seen: ObservationBatchDTO
    action: str
    expert_action: str | None
    log_prob: float
    value: float | None
    reward: float
    terminated: bool
    truncated: bool
    reward_terms: RewardBreakdownDTO | None
    metrics: dict[str, Any]


def sample_view(path: Path, step: int) -> SampleView:
    sample = read_sample(path)
    meta = sample.meta
    if step >= sample.steps:
        raise UsageError(f"{path} has {sample.steps} decisions, expected a step of 0 to {sample.steps - 1}, found {step}")
    legal = () if sample.masks is None else sample.masks[step].nonzero()[0].tolist()
    observation = ObservationDTO(
        agent_id=meta.agent_id,
        tick=meta.first_tick + step * meta.decision_interval,
        features=dict(zip(meta.feature_names, sample.features[step].tolist())),
        legal_actions=tuple(_action(sample, index) for index in legal),
        map_shape=() if sample.maps is None else sample.maps.shape[1:],
    )
    terms = meta.metrics.get("reward_terms")
    return SampleView(
        sample_id=meta.sample_id,
        schema_version=meta.schema_version,
        timesteps=sample.steps,
        step=step,
        seen=ObservationBatchDTO(
            variant=meta.variant,
            action_level=meta.action_level,
            decision_interval=meta.decision_interval,
            observations=(observation,),
        ),
        action=_action(sample, int(sample.actions[step])),
        expert_action=None if sample.expert is None else _action(sample, int(sample.expert[step])),
        log_prob=float(sample.log_probs[step]),
        value=None if meta.policy.values == "none" else float(sample.values[step]),
        reward=float(sample.rewards[step]),
        terminated=bool(sample.terminated[step]),
        truncated=bool(sample.truncated[step]),
        reward_terms=RewardBreakdownDTO(**terms) if isinstance(terms, dict) else None,
        metrics=dict(meta.metrics),
    )


def _action(sample: ReplaySample, index: int) -> str:
    return sample.meta.action_names[index] if sample.meta.action_names else str(index)


def view_text(view: SampleView) -> str:
    (seen,) = view.seen.observations
    shown = [f"{name} {value:.3f}" for name, value in seen.features.items() if abs(value) > 5e-4]
    columns = [shown[i : i + 3] for i in range(0, len(shown), 3)]
    lines = [
        f"{view.sample_id}: schema {view.schema_version}, {view.seen.variant}, {view.timesteps} decisions of {seen.agent_id}",
        f"decision {view.step}, tick {seen.tick}: {view.action}"
        + (f" (the script: {view.expert_action})" if view.expert_action not in (None, view.action) else "")
        + f", log-prob {view.log_prob:.4f}, reward {view.reward:+.4f}"
        + (", terminated" if view.terminated else ", truncated" if view.truncated else ""),
        f"legal: {', '.join(seen.legal_actions) or 'unknown'}",
        "seen (what is not zero):",
        *("  " + "".join(f"{cell:<36}" for cell in row).rstrip() for row in columns),
    ]
    if view.reward_terms is not None:
        told = ", ".join(f"{name} {value:+.3f}" for name, value in view.reward_terms.model_dump().items() if value)
        lines.append(f"reward of the life {view.reward_terms.total:+.3f}: {told}")
    return "\n".join(lines)


def dataset_table(path: Path) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Head and rows, one per sample."""
    rows: list[tuple[Any, ...]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FirstGenerationWarning)
        for sample in samples_of(path):
            rivalry = sample.feature("rivalry_max")
            end = "terminated" if sample.terminated[-1] else "truncated" if sample.truncated[-1] else "cut"
            conflicts = sample.meta.metrics.get("queue_conflict_events", "–")
            figures = [sample.rewards.sum(dtype="f8"), sample.log_probs.mean(dtype="f8"), rivalry.mean(dtype="f8")]
            shown = (round(float(figure), 3) for figure in (*figures, rivalry.max()))
            meta = sample.meta
            rows.append((meta.sample_id, meta.agent_id, meta.capture.scenario, sample.steps, *shown, conflicts, end))
    return HEAD, rows
