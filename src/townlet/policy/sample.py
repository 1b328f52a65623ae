"""One resident's life as data: the arrays of a replay sample, what they must satisfy, and their two files.

Axes: T decisions, F features, A actions, C map channels, H and W the map window.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import msgspec
import numpy as np
from pydantic import Field, ValidationError

from townlet import files
from townlet.dto import FrozenStrict
from townlet.errors import ReplayError
from townlet.names import Name, NameOrNothing, name_from
from townlet.npz import npz_bytes, read_npz
from townlet.policy.sample_metrics import RIVALRY_FIELDS, array_metrics, differing
from townlet.policy.trajectory import STORED, Trajectory, from_disk, to_disk
from townlet.types import Array
from townlet.world.actions import LEVELS, Catalogue, affordances_of

FIRST_GENERATION = "1.0"  # what a sample without a schema_version counts as
SCHEMA_VERSION = "1.2"  # what is written
VERSIONS = (FIRST_GENERATION, "1.1", SCHEMA_VERSION)  # what is read
FIRST_GENERATION_WIDTHS = (36, 81)
SAMPLE_LIMIT = 256 << 20  # bytes of one sample's arrays
META_LIMIT = 4 << 20


class PolicyNote(FrozenStrict):
    """Which policy acted. `values` is `none` when it has no critic: value_preds are zero then and mean nothing."""

    kind: str
    version: str = "1"
    hash: str = ""
    values: Literal["critic", "none"] = "none"
    epsilon: float = Field(0.0, ge=0.0, le=1.0)


class CaptureNote(FrozenStrict):
    """Where the sample comes from; with `first_tick` it leads back to the simulator's tick."""

    config_id: Name
    config_hash: str = ""
    scenario: NameOrNothing = ""
    seed: int = 0
    ticks: int = Field(0, ge=0)
    town: int = Field(0, ge=0)
    episode: int = Field(0, ge=0)
    life: int = Field(0, ge=0)


Metric = int | float | None | list[int] | dict[str, float]


class SampleMeta(FrozenStrict):
    """The JSON beside a sample's arrays. No clock in it: the same capture gives the same bytes."""

    schema_version: str
    variant: str
    map_shape: tuple[int, ...] = Field(strict=False)
    map_channels: tuple[str, ...] = Field(strict=False)
    feature_names: tuple[str, ...] = Field(strict=False)
    action_names: tuple[str, ...] = Field(strict=False)
    action_catalogue_hash: str
    action_dim: int = Field(ge=0)
    training_arrays: tuple[str, ...] = Field(strict=False)
    timesteps: int = Field(ge=1)
    value_pred_steps: int = Field(ge=1)
    agent_id: Name
    sample_id: Name
    frame_count: int = Field(ge=1)
    first_tick: int = Field(ge=0)
    action_level: str
    decision_interval: int = Field(ge=1)
    policy: PolicyNote
    capture: CaptureNote
    metrics: dict[str, Metric] = Field(default_factory=dict)

    @property
    def has_expert(self) -> bool:
        return "expert_action" in self.training_arrays

    @property
    def sees_end(self) -> bool:
        """The observation after the last action is stored."""
        return "last_features" in self.training_arrays

    @property
    def generation(self) -> int:
        return 1 if self.schema_version == FIRST_GENERATION else 2


@dataclass(frozen=True, eq=False, kw_only=True)
class ReplaySample(Trajectory):
    """One resident and life, made by `of`: validated and read-only. Those of the first generation cannot be written again."""

    meta: SampleMeta

    @classmethod
    def of(cls, arrays: Mapping[str, Array], meta: SampleMeta) -> Self:
        """From the arrays of a file, under their names there."""
        found = problems(arrays, meta)
        if found:
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            raise ReplayError(f"sample {meta.sample_id}: {found[0]}{more}")
        columns = from_disk(arrays)
        for array in columns.values():
            array.flags.writeable = False
        return cls(**columns, meta=meta)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.columns().values())

    def feature(self, name: str) -> Array:
        """One feature at every decision of the life, by name. (T,)"""
        return self.features[: self.steps, self.meta.feature_names.index(name)]


def problems(arrays: Mapping[str, Array], meta: SampleMeta) -> list[str]:
    """Everything that is wrong with a sample, one sentence each; empty when it can be used."""
    found = _array_problems(arrays, meta)
    if not found:  # contents are only looked at once the shapes agree
        found += _content_problems(arrays, meta)
    found = _meta_problems(arrays, meta) + found
    if not found and meta.metrics:  # figures only of what is sound
        true = array_metrics(arrays, meta.feature_names, meta.action_names)
        found += [
            f"the metric {name} is {told} in the metadata, but the arrays give {value}; capture it again"
            for name, told, value in differing(meta.metrics, true)
        ]
    return found


def _meta_problems(arrays: Mapping[str, Array], meta: SampleMeta) -> list[str]:
    found = []
    if meta.schema_version not in VERSIONS:
        found.append(
            f"schema_version is {meta.schema_version!r}, this version reads {', '.join(VERSIONS)}; "
            "capture it again or update townlet"
        )
    missing = [name for name in RIVALRY_FIELDS if name not in meta.feature_names]
    if missing:
        found.append(
            f"the features lack {' and '.join(missing)}, which every replay sample must have; "
            "capture it again with an observation variant of this version"
        )
    if len(set(meta.feature_names)) != len(meta.feature_names):
        twice = next(name for i, name in enumerate(meta.feature_names) if name in meta.feature_names[:i])
        found.append(f"feature_names has {twice!r} twice; every feature needs a name of its own")
    if meta.action_names and len(meta.action_names) != meta.action_dim:
        found.append(f"action_dim is {meta.action_dim} but there are {len(meta.action_names)} action_names")
    if meta.map_channels and meta.map_shape and len(meta.map_channels) != meta.map_shape[0]:
        found.append(f"map_shape says {meta.map_shape[0]} channels but map_channels names {len(meta.map_channels)}")
    if meta.frame_count != meta.timesteps:
        found.append(f"frame_count is {meta.frame_count} but timesteps is {meta.timesteps}; both count the decisions")
    if meta.generation == 2 and meta.action_level not in LEVELS:
        found.append(f"action_level is {meta.action_level!r:.60}, expected {', '.join(LEVELS)}")
    elif meta.generation == 2:
        expected = Catalogue(meta.action_level, affordances_of(meta.action_level, meta.action_names)).hash
        if expected != meta.action_catalogue_hash:
            found.append(f"action_catalogue_hash is {meta.action_catalogue_hash!r} but the action_names give {expected!r}")
        if set(meta.training_arrays) != set(arrays):
            found.append(f"training_arrays names {sorted(meta.training_arrays)} but the file holds {sorted(arrays)}")
    return found


def _array_problems(arrays: Mapping[str, Array], meta: SampleMeta) -> list[str]:
    found = [f"array {name!r} is not part of the format; expected {', '.join(STORED)}" for name in arrays if name not in STORED]
    sizes = {"T": meta.timesteps, "F": len(meta.feature_names), "A": meta.action_dim, "V": meta.value_pred_steps}
    sizes |= dict(zip("CHW", meta.map_shape))
    for name, stored in STORED.items():
        array = arrays.get(name)
        if array is None:
            if stored.required_in(meta.schema_version):
                found.append(f"array {name!r} is missing")
            continue
        if array.dtype.name not in stored.dtypes:
            found.append(f"{name} has dtype {array.dtype.name}, expected {' or '.join(stored.dtypes)}")
        expected = tuple(sizes.get(axis, -1) for axis in stored.axes)
        if array.shape != expected:
            found.append(f"{name} has shape {array.shape}, expected {expected} as ({', '.join(stored.axes)}) of the metadata")
    if meta.value_pred_steps not in (meta.timesteps, meta.timesteps + 1):
        found.append(f"value_pred_steps is {meta.value_pred_steps}, expected {meta.timesteps} or {meta.timesteps + 1}")
    if "map" not in arrays and meta.map_shape and min(meta.map_shape) > 0:
        found.append(f"map_shape is {meta.map_shape} but the file holds no map")
    if "last_features" in arrays and ("map" in arrays) != ("last_map" in arrays):
        found.append(f"the file holds {'map' if 'map' in arrays else 'last_map'} alone, expected map and last_map, or neither")
    return found


def _content_problems(arrays: Mapping[str, Array], meta: SampleMeta) -> list[str]:
    found = []
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            at = f" at step {int(np.argwhere(~np.isfinite(array))[0][0])}" if STORED[name].axes[0] in "TV" else ""
            found.append(f"{name} holds a value that is not finite{at}")
    mask = arrays.get("action_mask")
    if mask is not None and not mask.any(axis=1).all():
        found.append(f"action_mask allows nothing at step {int(np.argmin(mask.any(axis=1)))}")
    if "last_mask" in arrays and not arrays["last_mask"].any():
        found.append("last_mask allows nothing; waiting is always possible")
    for name in ("actions", "expert_action"):
        choice = arrays.get(name)
        if choice is None:
            continue
        outside = (choice < 0) | (choice >= meta.action_dim)
        if outside.any():
            step = int(np.argmax(outside))
            found.append(f"{name} is {int(choice[step])} at step {step}, expected 0 to {meta.action_dim - 1}")
        elif mask is not None and not (legal := mask[np.arange(len(choice)), choice]).all():
            step = int(np.argmin(legal))
            found.append(f"{name} is {int(choice[step])} at step {step}, which the mask forbids")
    positive = arrays["old_log_probs"] > 1e-4
    if positive.any():
        found.append(f"old_log_probs is above 0 at step {int(np.argmax(positive))}; a log-probability never is")
    if meta.generation == 2 and meta.policy.values == "none" and arrays["value_preds"].any():
        found.append("the policy has no critic (policy.values is 'none') but value_preds are not zero")
    return found


# --- files ---------------------------------------------------------------------------------------------------------------


def encode_sample(sample: ReplaySample, *, compress: bool = False) -> tuple[bytes, bytes]:
    """The bytes of the `.npz` and the `.json` of a sample: equal samples give equal bytes."""
    if sample.meta.generation == 1:
        raise ReplayError(
            f"sample {sample.meta.sample_id} is of the first generation, which is read-only; capture it again to write it"
        )
    return npz_bytes(to_disk(sample), compress=compress), meta_bytes(sample.meta)


def read_sample(
    path: Path, meta_path: Path | None = None, *, sha256: str | None = None, meta_sha256: str | None = None
) -> ReplaySample:
    """A sample from `<stem>.npz` and the `.json` beside it, hashes checked first when given."""
    meta_path = meta_path or path.with_suffix(".json")
    arrays = read_arrays(path, sha256)
    return assemble(arrays, interpret(read_meta(meta_path, meta_sha256), arrays, meta_path), path)


def read_arrays(path: Path, sha256: str | None = None) -> dict[str, Array]:
    data = files.read_bytes(path, limit=SAMPLE_LIMIT, error=ReplayError)
    check_hash(path, data, sha256)
    arrays = read_npz(data, limit=SAMPLE_LIMIT, error=ReplayError, name=str(path))
    for name, axes in (("features", 1), ("map", 3)):  # a single observation is read as one decision
        if name in arrays and arrays[name].ndim == axes:
            arrays[name] = arrays[name][None]
    return arrays


def check_hash(path: Path, data: bytes, sha256: str | None) -> None:
    if sha256 is not None and (found := files.sha256_bytes(data)) != sha256:
        raise ReplayError(
            f"{path}: its SHA-256 is {found[:12]}… but {sha256[:12]}… was recorded; it was changed or damaged, capture it again"
        )


def meta_bytes(meta: SampleMeta) -> bytes:
    return msgspec.json.format(msgspec.json.encode(meta.model_dump(mode="json")), indent=1) + b"\n"


def read_meta(path: Path, sha256: str | None = None) -> dict[str, object]:
    """The JSON object beside a sample; `interpret` gives it its meaning, which for the first generation needs the arrays."""
    data = files.read_bytes(path, limit=META_LIMIT, error=ReplayError)
    check_hash(path, data, sha256)
    found = files.parse_json(data, str(path), error=ReplayError)
    if not isinstance(found, dict):
        raise ReplayError(f"{path}: holds {_kind(found)}, expected the object of a replay sample's metadata")
    return found


def parse_meta(found: dict[str, object], path: Path) -> SampleMeta:
    """Metadata that states its schema_version, with every wrong key in the message."""
    try:
        return SampleMeta.model_validate(found)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg'].lower()}" for e in error.errors()[:5])
        raise ReplayError(f"{path}: is not the metadata of a replay sample ({wrong}); capture it again") from None


def interpret(found: dict[str, object], arrays: Mapping[str, Array], path: Path) -> SampleMeta:
    """The metadata of a sample of either generation; only the first needs its arrays to be understood."""
    return parse_meta(found, path) if "schema_version" in found else _first_generation(arrays, found, path)


def assemble(arrays: dict[str, Array], meta: SampleMeta, path: Path) -> ReplaySample:
    """A validated sample from what its two files held; one sentence with the path otherwise."""
    absent = [name for name, stored in STORED.items() if name not in arrays and stored.required_in(meta.schema_version)]
    if absent or not set(arrays) <= set(STORED):
        raise ReplayError(f"{path}: {problems(arrays, meta)[0]}")
    arrays.setdefault("truncated", np.zeros(arrays["actions"].shape, np.bool_))
    try:
        sample = ReplaySample.of(arrays, meta)
    except ReplayError as error:
        raise ReplayError(f"{path}: {error}") from None
    if meta.generation == 1:
        warnings.warn(
            f"{path.name}: a sample of the first generation ({len(meta.feature_names)} features, no mask) is read-only "
            "and does not mix with newer ones; capture it again to train on it",
            FirstGenerationWarning,
            stacklevel=2,
        )
    return sample


class FirstGenerationWarning(UserWarning):
    """A sample from before schema versions was read."""


def _first_generation(arrays: Mapping[str, Array], found: dict[str, object], path: Path) -> SampleMeta:
    """What a sample without a schema_version says about itself, in today's words."""
    names = found.get("feature_names")
    features, actions = arrays.get("features"), arrays.get("actions")
    if features is None or actions is None or actions.ndim != 1 or features.ndim != 2:
        raise ReplayError(f"{path}: has no schema_version and no features and actions; expected a replay sample")
    if not isinstance(names, list) or len(names) not in FIRST_GENERATION_WIDTHS or not all(isinstance(n, str) for n in names):
        count = len(names) if isinstance(names, list) else "no"
        raise ReplayError(
            f"{path}: has no schema_version and {count} feature_names; samples of the first generation have "
            f"{' or '.join(map(str, FIRST_GENERATION_WIDTHS))}, newer ones state their schema_version"
        )
    shape = list(arrays["map"].shape[1:]) if "map" in arrays else []
    dim = found.get("action_dim", int(actions.max(initial=0)) + 1)
    stem = name_from(path.stem)
    return parse_meta(
        {
            "schema_version": FIRST_GENERATION,
            "variant": found.get("variant", "hybrid"),
            "map_shape": found.get("map_shape", shape),
            "map_channels": found.get("map_channels", []),
            "feature_names": names,
            "action_names": [],
            "action_catalogue_hash": "",
            "action_dim": dim,
            "training_arrays": sorted(arrays),
            "timesteps": found.get("timesteps", len(actions)),
            "value_pred_steps": found.get("value_pred_steps", int(arrays["value_preds"].size) if "value_preds" in arrays else 1),
            "agent_id": found.get("agent_id", stem),
            "sample_id": found.get("sample_id", stem),
            "frame_count": found.get("timesteps", len(actions)),
            "first_tick": 0,
            "action_level": "unknown",
            "decision_interval": 1,
            "policy": {"kind": "unknown"},
            "capture": {"config_id": "unknown"},
        },
        path,
    )


def _kind(value: object) -> str:
    return {list: "a list", str: "a text", type(None): "nothing"}.get(type(value), f"a {type(value).__name__}")
