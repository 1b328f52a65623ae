"""From the frames of a life to its sample: what all samples of a rollout share, and the sample's own part."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from townlet.observations.spec import ObservationSpec
from townlet.policy.manifest import PREFIX
from townlet.policy.sample import SCHEMA_VERSION, CaptureNote, PolicyNote, ReplaySample, SampleMeta
from townlet.policy.sample_metrics import sample_metrics
from townlet.policy.trajectory import Array, Trajectory, to_disk
from townlet.world.actions import Catalogue
from townlet.world.state import TERMS


@dataclass(frozen=True)
class SampleSource:
    """What all samples of a rollout have in common, and how many each resident id has had so far."""

    template: dict[str, Any]
    policy: PolicyNote
    capture: CaptureNote
    prefix: str
    numbers: dict[str, int]

    @classmethod
    def describe(
        cls,
        spec: ObservationSpec,
        catalogue: Catalogue,
        interval: int,
        policy: PolicyNote,
        capture: CaptureNote,
        prefix: str = PREFIX,
    ) -> Self:
        template = {
            "schema_version": SCHEMA_VERSION,
            "variant": spec.variant,
            "map_shape": spec.map_shape if spec.map_shape[0] else (),
            "map_channels": spec.map_channels,
            "feature_names": spec.feature_names,
            "action_names": catalogue.names,
            "action_catalogue_hash": catalogue.hash,
            "action_dim": len(catalogue),
            "action_level": catalogue.level,
            "decision_interval": interval,
        }
        return cls(template, policy, capture, prefix, {})


class Life(NamedTuple):
    """Whose trajectory it is, and where it began."""

    agent_id: str
    town: int
    episode: int
    life: int  # 0 for a founder, k for newcomer_k
    first_tick: int


def frames_to_replay_sample(frames: Trajectory, who: Life, source: SampleSource, sample_id: str, events: Array) -> ReplaySample:
    """A validated sample from the trajectory of one life and the events its resident was the actor of (K,) EVENT."""
    if source.policy.values != "critic":
        frames = replace(frames, values=np.zeros_like(frames.values))
    arrays, template = to_disk(frames), source.template
    terms = np.zeros(len(TERMS)) if frames.terms is None else frames.terms.sum(axis=0, dtype=np.float64)
    meta = SampleMeta(
        **template,
        training_arrays=tuple(arrays),
        timesteps=frames.steps,
        value_pred_steps=len(frames.values),
        agent_id=who.agent_id,
        sample_id=sample_id,
        frame_count=frames.steps,
        first_tick=who.first_tick,
        policy=source.policy,
        capture=source.capture.model_copy(update={"town": who.town, "episode": who.episode, "life": who.life}),
        metrics=sample_metrics(arrays, template["feature_names"], template["action_names"], terms, events),
    )
    return ReplaySample.of(arrays, meta)
