"""Replay data for other tools: Parquet tables, Minari datasets, and Vaults of flashbax in OG-MARL's form."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.envs.registration import registry

from townlet import files
from townlet.envs import environment_id
from townlet.errors import ReplayError
from townlet.optional import require
from townlet.policy.joint import JointEpisode, joint_episodes, og_marl
from townlet.policy.replay import samples_of
from townlet.policy.sample import ReplaySample
from townlet.types import Array

if TYPE_CHECKING:
    from pyarrow import Table

# --- Parquet -------------------------------------------------------------------------------------------------------------


def export_parquet(path: Path, output: Path, *, overwrite: bool = False) -> dict[str, object]:
    """One row per decision: ids, every feature in a column of its name, mask and map as lists.

    The observation after the last action stands in `last_features` (in the order of the feature columns), `last_mask` and
    `last_map` of a life's last row; they are null elsewhere, and for samples from before 1.2.
    """
    arrow = require("pyarrow", "writing Parquet")
    rows, samples = _write_parquet(_tables(path, arrow), path, output, overwrite)
    return {"format": "parquet", "output": str(output), "samples": samples, "rows": rows}


def export_joint(path: Path, output: Path, *, overwrite: bool = False) -> dict[str, object]:
    """One row per town and decision with all residents: each column a list with an entry per place, "" and 0 where nobody is.

    `features` and `action_mask` hold a list per place; their names stand in the table's metadata. What was seen after the last
    decision is in `last_features` and `last_mask` of an episode's last row. Maps are left out.
    """
    arrow = require("pyarrow", "writing Parquet")
    tables = (_joint_table(episode, arrow) for episode in joint_episodes(path))
    rows, episodes = _write_parquet(tables, path, output, overwrite)
    return {"format": "joint", "output": str(output), "episodes": episodes, "rows": rows}


def _write_parquet(tables: Iterator[Table], path: Path, output: Path, overwrite: bool) -> tuple[int, int]:
    """Rows and tables written."""
    from pyarrow import parquet

    files.check_free(output, overwrite, "place")
    rows = count = 0
    with tempfile.TemporaryDirectory() as place:
        target = Path(place) / "replay.parquet"
        writer = None
        for table in tables:
            writer = writer or parquet.ParquetWriter(target, table.schema, compression="zstd")
            writer.write_table(table)
            rows += table.num_rows
            count += 1
        if writer is None:
            raise ReplayError(f"{path}: holds no samples to export")
        writer.close()
        files.write_bytes(output, target.read_bytes())
    return rows, count


JOINT_NAMES = {"masks": "action_mask", "expert": "expert_actions"}  # of columns that are called otherwise in a table


def _joint_table(episode: JointEpisode, arrow: ModuleType) -> Table:
    meta, steps, seen = episode.meta, episode.steps, episode.decisions()

    def after_the_last(name: str) -> list[Any]:
        return [None] * (steps - 1) + [episode.columns()[name][steps].tolist() if episode.sees_end else None]

    columns: dict[str, Any] = {
        "scenario": arrow.array([meta.capture.scenario] * steps).dictionary_encode(),
        "seed": np.full(steps, meta.capture.seed),
        "town": np.full(steps, meta.capture.town),
        "episode": np.full(steps, meta.capture.episode),
        "tick": episode.ticks,
        "agent_ids": arrow.array(episode.agents.tolist()),
    }
    columns |= {JOINT_NAMES.get(name, name): arrow.array(rows.tolist()) for name, rows in seen.items() if name != "maps"}
    for name, told in (("features", "last_features"), ("masks", "last_mask")):
        if name in seen:
            columns[told] = arrow.array(after_the_last(name), type=columns[JOINT_NAMES.get(name, name)].type)
    names = {"feature_names": meta.feature_names, "action_names": meta.action_names}
    return arrow.table(columns).replace_schema_metadata({key: json.dumps(value) for key, value in names.items()})


def _tables(path: Path, arrow: ModuleType) -> Iterator[Table]:
    names: tuple[str, ...] | None = None
    for sample in samples_of(path):
        if names is not None and sample.meta.feature_names != names:
            raise ReplayError(
                f"{sample.meta.sample_id} of {path} has other features than the samples before it; export them apart"
            )
        names = sample.meta.feature_names
        yield arrow.table(_columns(sample, arrow))


def _columns(sample: ReplaySample, arrow: ModuleType) -> dict[str, Any]:
    meta, steps = sample.meta, sample.steps
    lookup = np.array(meta.action_names or [str(i) for i in range(meta.action_dim)])

    def same(value: object) -> Any:
        return arrow.array([value] * steps).dictionary_encode()

    seen = sample.decisions()
    columns = {
        "sample_id": same(meta.sample_id),
        "agent_id": same(meta.agent_id),
        "scenario": same(meta.capture.scenario),
        "seed": np.full(steps, meta.capture.seed),
        "town": np.full(steps, meta.capture.town),
        "episode": np.full(steps, meta.capture.episode),
        "life": np.full(steps, meta.capture.life),
        "step": np.arange(steps),
        "tick": meta.first_tick + np.arange(steps) * meta.decision_interval,
        "action": sample.actions,
        "action_name": arrow.array(lookup[sample.actions].tolist()).dictionary_encode(),
        "log_prob": sample.log_probs,
        "value": seen["values"],
        "reward": sample.rewards,
        "terminated": sample.terminated,
        "truncated": sample.truncated,
    }
    if sample.expert is not None:
        columns["expert_action"] = sample.expert
    if sample.masks is not None:
        columns["action_mask"] = arrow.array(list(seen["masks"]))
    if sample.maps is not None:
        columns["map"] = arrow.array(list(seen["maps"].reshape(steps, -1)))
    for name, of in (("last_features", sample.features), ("last_mask", sample.masks), ("last_map", sample.maps)):
        if of is not None or name == "last_mask":
            last = of[steps].ravel() if of is not None and sample.sees_end else None
            dtype = np.dtype(np.bool_) if of is None else of.dtype
            columns[name] = arrow.array([None] * (steps - 1) + [last], type=arrow.list_(arrow.from_numpy_dtype(dtype)))
    return columns | {f"feature.{name}": seen["features"][:, i] for i, name in enumerate(meta.feature_names)}


# --- Minari --------------------------------------------------------------------------------------------------------------


def export_minari(path: Path, output: Path, *, overwrite: bool = False) -> dict[str, object]:
    """A folder of Minari datasets `townlet/<scenario>-v0`, one per scenario; each resident's life is an episode.

    Ticks, masks, log-probabilities, values and what the script would do stand in the infos; names of features and actions in
    the dataset's metadata; agent, town, seed and life in the episode's. Read them with
    `MINARI_DATASETS_PATH=<folder>` and `minari.load_dataset("townlet/<scenario>-v0")`.
    """
    require("minari", "writing a Minari dataset")
    files.check_free(output, overwrite, "place")
    groups: dict[str, list[ReplaySample]] = {}
    for sample in samples_of(path):
        groups.setdefault(sample.meta.capture.scenario or "replay", []).append(sample)
    if not groups:
        raise ReplayError(f"{path}: holds no samples to export")
    names = {}
    with files.filling(output) as partial:
        for scenario, samples in sorted(groups.items()):
            name = f"townlet/{scenario.replace('_', '-')}-v0"
            _minari_dataset(name, samples, (partial / name).absolute())  # Minari joins a relative path to itself
            names[name] = len(samples)
        files.publish_folder(partial, output, overwrite=overwrite)
    return {"format": "minari", "output": str(output), "datasets": names}


def _minari_dataset(name: str, samples: list[ReplaySample], folder: Path) -> None:
    import minari
    from gymnasium import spaces
    from minari.data_collector import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage

    first = samples[0]
    seen: dict[str, spaces.Space[Any]] = {"features": spaces.Box(-1.0, 1.0, first.features.shape[1:], np.float32)}
    if first.maps is not None:
        seen["map"] = spaces.Box(0, 255, first.maps.shape[1:], first.maps.dtype.type)
    files.make_folder(folder)
    storage = MinariStorage.new(
        folder / "data",
        observation_space=spaces.Dict(seen),
        action_space=spaces.Discrete(first.meta.action_dim),
        env_spec=registry.get(environment_id(first.meta.capture.scenario)),  # None for a town that is not shipped
        data_format="hdf5",
    )
    storage.update_metadata(
        {
            "dataset_id": name,
            "algorithm_name": first.meta.policy.kind,
            "minari_version": minari.__version__,
            "feature_names": list(first.meta.feature_names),
            "map_channels": list(first.meta.map_channels),
            "action_names": list(first.meta.action_names),
            "decision_interval": first.meta.decision_interval,
        }
    )
    storage.update_episodes([_episode(sample, k, EpisodeBuffer) for k, sample in enumerate(samples)])
    storage.update_episode_metadata([_whose(sample) for sample in samples])


def _whose(sample: ReplaySample) -> dict[str, object]:
    """Whose life an episode is, and where it was lived."""
    noted = sample.meta.capture
    who = {"agent_id": sample.meta.agent_id, "sample_id": sample.meta.sample_id, "config_hash": noted.config_hash}
    return who | {"seed": noted.seed, "town": noted.town, "town_episode": noted.episode, "life": noted.life}


def _whole(rows: Array, steps: int) -> Array:
    """T + 1 rows; where the last is not known the one before it is repeated."""
    return rows if len(rows) > steps else np.concatenate([rows, rows[-1:]])


def _episode(sample: ReplaySample, number: int, buffer: Any) -> Any:
    """Minari wants T + 1 observations. A sample from before 1.2 does not have the last: the one before it is repeated."""
    steps = sample.steps
    observations = {"features": _whole(sample.features, steps)}
    if sample.maps is not None:
        observations["map"] = _whole(sample.maps, steps)
    ticks = sample.meta.first_tick + np.arange(steps + 1) * sample.meta.decision_interval
    infos: dict[str, Array] = {
        "tick": ticks,
        "log_prob": np.append(sample.log_probs, np.float32(0)),
        "value": _whole(sample.values, steps),
    }
    if sample.masks is not None:
        infos["action_mask"] = _whole(sample.masks, steps)
    if sample.expert is not None:
        infos["expert_action"] = _whole(sample.expert, steps)
    truncated = sample.truncated.copy()
    truncated[-1] |= not sample.terminated[-1]  # a life that the capture cut off ends its episode too
    return buffer(
        id=number,
        observations=observations,
        actions=sample.actions,
        rewards=sample.rewards.astype(np.float64),
        terminations=sample.terminated,
        truncations=truncated,
        infos=infos,
    )


# --- Vault ---------------------------------------------------------------------------------------------------------------


def export_vault(path: Path, output: Path, *, overwrite: bool = False) -> dict[str, object]:
    """A folder of Vaults `<scenario>.vlt/<policy>`, one per scenario, as OG-MARL reads them: joint episodes end to end.

    Names of features and actions, and seed, town, episode and rows of each episode, stand in the Vault's metadata. The format
    has no place for what was seen after the last decision: Parquet and Minari hold it.
    """
    require("flashbax", "writing a Vault")
    files.check_free(output, overwrite, "place")
    groups: dict[str, list[JointEpisode]] = {}
    for episode in joint_episodes(path):
        if episode.masks is None:
            raise ReplayError(f"{path}: holds no action masks, which a Vault needs; capture it again")
        groups.setdefault(episode.meta.capture.scenario or "replay", []).append(episode)
    rows = {}
    with files.filling(output) as partial:
        for scenario, episodes in sorted(groups.items()):
            _vault(partial.absolute(), f"{scenario}.vlt", episodes)
            rows[f"{scenario}.vlt"] = sum(episode.steps for episode in episodes)
        files.publish_folder(partial, output, overwrite=overwrite)
    return {"format": "vault", "output": str(output), "rows": rows}


def _vault(folder: Path, name: str, episodes: list[JointEpisode]) -> None:
    import jax
    from flashbax.buffers.trajectory_buffer import TrajectoryBufferState
    from flashbax.vault import Vault

    first, places = episodes[0].meta, max(episode.active.shape[1] for episode in episodes)
    notes = [episode.meta.capture for episode in episodes]
    told = [
        {"rows": episode.steps, "seed": note.seed, "town": note.town, "episode": note.episode, "config_hash": note.config_hash}
        for episode, note in zip(episodes, notes)
    ]
    names = {"feature_names": list(first.feature_names), "action_names": list(first.action_names), "episodes": told}
    vault = None
    with contextlib.redirect_stdout(sys.stderr):  # it prints where it is
        for episode in episodes:
            tree = jax.tree.map(lambda array: array[None], og_marl(episode, places))  # a batch of one, then time
            if vault is None:
                metadata = {key: json.dumps(value) for key, value in names.items()}
                vault = Vault(name, tree, rel_dir=str(folder), vault_uid=first.policy.kind, metadata=metadata)
            state = TrajectoryBufferState(experience=tree, current_index=episode.steps, is_full=False)
            vault.write(state, source_interval=(0, episode.steps))
