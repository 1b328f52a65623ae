"""From the frames of a life to its sample: what all samples of a rollout share, and the sample's own part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from townlet.observations.spec import ObservationSpec
from townlet.policy.frames import Frames
from townlet.policy.manifest import PREFIX
from townlet.policy.sample import ARRAYS, SCHEMA_VERSION, Array, CaptureNote, PolicyNote, ReplaySample, SampleMeta
from townlet.policy.sample_metrics import sample_metrics
from townlet.world.actions import Catalogue


@dataclass(frozen=True)
class Source:
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


def frames_to_replay_sample(frames: Frames, source: Source, sample_id: str, events: Array) -> ReplaySample:
    """A validated sample from the frames of one life and the events its resident was the actor of (K,) EVENT."""
    arrays = {
        "features": frames.features,
        "actions": frames.actions,
        "old_log_probs": frames.log_probs,
        "value_preds": frames.values if source.policy.values == "critic" else np.zeros_like(frames.values),
        "rewards": frames.rewards,
        "dones": frames.terminated,
        "truncated": frames.truncated,
        "action_mask": frames.masks,
        "last_features": frames.last_features,
        "last_mask": frames.last_mask,
    }
    optional = {"map": frames.maps, "expert_action": frames.expert, "last_map": frames.last_map}
    arrays |= {name: array for name, array in optional.items() if array is not None}
    steps = len(frames.actions)
    meta = SampleMeta(
        **source.template,
        training_arrays=tuple(name for name in ARRAYS if name in arrays),
        timesteps=steps,
        value_pred_steps=len(frames.values),
        agent_id=frames.agent_id,
        sample_id=sample_id,
        frame_count=steps,
        first_tick=frames.first_tick,
        policy=source.policy,
        capture=source.capture.model_copy(update={"town": frames.town, "episode": frames.episode, "life": frames.life}),
        metrics=sample_metrics(arrays, source.template["feature_names"], source.template["action_names"], frames.terms, events),
    )
    return ReplaySample.of(arrays, meta)
