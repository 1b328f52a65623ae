"""Joint episodes: the lives of one town and episode side by side, a row per decision with all residents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from townlet.errors import ReplayError
from townlet.policy.manifest import ReplayEntry
from townlet.policy.replay import entries_of
from townlet.policy.sample import ReplaySample, SampleMeta
from townlet.policy.trajectory import FIELDS, Trajectory
from townlet.types import Array


@dataclass(frozen=True, eq=False, kw_only=True)
class JointEpisode(Trajectory):
    """Columns are (T, N, …), where N counts places: a newcomer takes the first place that somebody has left. Row T of the
    observation shows what the last decision led to. In an empty place `active` is false and the rest is zero."""

    meta: SampleMeta  # of its first life: names of features and actions, where it was captured
    agents: Array  # (T, N) names, "" where nobody is
    ticks: Array  # (T,) i8


def joint_episodes(path: Path) -> Iterator[JointEpisode]:
    """Every town and episode of a capture, in order; one is read at a time."""
    groups: dict[tuple[object, ...], list[tuple[SampleMeta, ReplayEntry]]] = {}
    for entry in entries_of(path):
        meta = entry.read_meta()
        note = meta.capture
        groups.setdefault((note.scenario, note.config_hash, note.seed, note.town, note.episode), []).append((meta, entry))
    if not groups:
        raise ReplayError(f"{path}: holds no samples to export")
    for key in sorted(groups, key=str):
        lives = sorted(groups[key], key=lambda life: life[0].first_tick)
        yield _side_by_side([one.read() for _, one in lives], path)


def _side_by_side(lives: Sequence[ReplaySample], path: Path) -> JointEpisode:
    first, interval = lives[0].meta, lives[0].meta.decision_interval
    for life in lives:
        if (life.meta.feature_names, life.meta.action_names, life.meta.decision_interval) != (
            first.feature_names,
            first.action_names,
            interval,
        ):
            raise ReplayError(f"{life.meta.sample_id} of {path} has other features or actions than {first.sample_id} beside it")
    begins = [(life.meta.first_tick - first.first_tick) // interval for life in lives]
    places = _places(begins, [life.steps for life in lives])
    steps, width = max(b + life.steps for b, life in zip(begins, lives)), max(places) + 1
    shared = set.intersection(*(set(life.columns()) for life in lives))
    columns: dict[str, Array] = {}
    for name in shared:
        like = lives[0].columns()[name]
        columns[name] = np.zeros((steps + FIELDS[name].after, width, *like.shape[1:]), like.dtype)
    columns["active"] = np.zeros((steps + 1, width), np.bool_)
    agents = np.full((steps, width), "", dtype=f"<U{max(len(life.meta.agent_id) for life in lives)}")
    for begin, place, life in zip(begins, places, lives):
        at_the_end = begin + life.steps == steps  # else what it saw last stands in no row: the place is empty, or a newcomer's
        for name in shared:
            rows = life.columns()[name][: None if at_the_end else life.steps]
            columns[name][begin : begin + len(rows), place] = rows
        columns["active"][begin : begin + life.steps, place] = True
        columns["active"][begin + life.steps, place] = False
        agents[begin : begin + life.steps, place] = life.meta.agent_id
    return JointEpisode(
        **columns, meta=first, agents=agents, ticks=first.first_tick + np.arange(steps, dtype=np.int64) * interval
    )


def _places(begins: Sequence[int], steps: Sequence[int]) -> list[int]:
    """A place for each life, in order of their beginnings: the first one that is empty by then."""
    ends: list[int] = []
    found = []
    for begin, length in zip(begins, steps):
        place = next((k for k, end in enumerate(ends) if end <= begin), len(ends))
        ends[place : place + 1] = [begin + length]
        found.append(place)
    return found


def og_marl(episode: JointEpisode, places: int) -> dict[str, Any]:
    """An episode as a Vault of OG-MARL holds it: (T, N, …) of observations, actions, rewards and ends; in the infos what may be
    done, the state of all together, who is there and the tick. An empty place sees zeros and may only wait."""
    seen, steps = episode.decisions(), episode.steps
    free = places - seen["active"].shape[1]

    def wide(array: Array) -> Array:
        return np.pad(array, ((0, 0), (0, free), *((0, 0) for _ in array.shape[2:])))

    legals = wide(seen["masks"])
    active = wide(seen["active"])
    legals[~active, 0] = True
    features = wide(seen["features"])
    over = np.arange(steps) == steps - 1
    return {
        "observations": features,
        "actions": wide(seen["actions"]).astype(np.int32),
        "rewards": wide(seen["rewards"]),
        "terminals": wide(seen["terminated"]),
        "truncations": wide(seen["truncated"]) | over[:, None],  # the episode, or the capture, ends here
        "infos": {
            "legals": legals,
            "state": features.reshape(steps, -1),
            "active": active,
            "tick": episode.ticks.astype(np.int32),
        },
    }
