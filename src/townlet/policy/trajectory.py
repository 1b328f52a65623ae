# ruff: noqa: RUF009  (a column declares itself where it stands)
"""One trajectory: what residents saw, did and got. A column is declared once: buffers, files, batches and exports follow.

The first axis is time, T decisions. What comes next is the batch: `(T, E, N, …)` towns and slots in a rollout, `(T, B, …)` lives
side by side, `(T, …)` one life. Row t holds the observation *before* action t and what came of it. Columns with one more
row (`after`) show in it what the last action led to; samples from before 1.2 lack that row of the observation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np

from townlet.errors import UsageError
from townlet.types import Array


class Column(NamedTuple):
    """What is known of a column of a trajectory."""

    axes: str  # after time and batch: F features, A actions, C H W the map, R reward terms, K figures
    dtype: str
    origin: str  # who knows it: the `moment` of a decision, the `decision`, the `step` it led to; "" for what is worked out later
    meaning: str
    after: bool = False  # it may have one more row
    disk: str = ""  # its name in a sample file; "" where it is not stored
    since: str = ""  # version of the sample file that brought it
    also: tuple[str, ...] = ()  # dtypes that a file may have instead of its own
    optional: bool = False  # a file may lack it
    last: str = ""  # name in a sample file of that one more row; without a name it is part of the array


def column(axes: str, dtype: str, origin: str, meaning: str, **more: Any) -> Any:
    return field(default=None, metadata={"column": Column(axes, dtype, origin, meaning, **more)})


@dataclass(frozen=True, eq=False, kw_only=True)
class Trajectory:
    """Columns that were not recorded are None."""

    maps: Array | None = column(
        "CHW", "u1", "moment", "the map window around the resident",
        after=True, disk="map", since="1.0", also=("float32",), optional=True, last="last_map",
    )  # fmt: skip
    features: Array = column(
        "F", "f4", "moment", "what the resident sees, by name",
        after=True, disk="features", since="1.0", last="last_features",
    )  # fmt: skip
    actions: Array = column("", "i8", "decision", "what was done", disk="actions", since="1.0")
    log_probs: Array = column(
        "", "f4", "decision", "of that action under the policy that acted", disk="old_log_probs", since="1.0"
    )
    values: Array = column(
        "", "f4", "decision", "what the critic expected; the last row bootstraps what was cut off",
        after=True, disk="value_preds", since="1.0",
    )  # fmt: skip
    rewards: Array = column("", "f4", "step", "what it brought", disk="rewards", since="1.0")
    terminated: Array = column("", "?", "step", "the life ended: an exit", disk="dones", since="1.0")
    truncated: Array = column("", "?", "step", "the episode ended", disk="truncated", since="1.1")
    masks: Array | None = column(
        "A", "?", "moment", "what the resident may do",
        after=True, disk="action_mask", since="1.1", last="last_mask",
    )  # fmt: skip
    expert: Array | None = column(
        "", "i8", "decision", "what the script would do; -1 where it was not asked",
        disk="expert_action", since="1.1", optional=True,
    )  # fmt: skip
    active: Array = column("", "?", "moment", "the row takes a true decision", after=True)
    starts: Array | None = column("", "?", "moment", "the first decision of a life")
    scripted: Array | None = column(
        "", "?", "decision", "somebody else decided in place of the network: the script, or a partner"
    )
    terms: Array | None = column("R", "f4", "step", "the reward by term")
    advantages: Array | None = column("", "f4", "", "how much better than expected (`estimates.gae`)")
    returns: Array | None = column("", "f4", "", "discounted rewards to come")
    watched: Array | None = column("K", "f4", "", "figures whose mean and largest each mini-batch tells")
    state: Array | None = None  # (batch, S) f4: recurrent state before the first decision

    @property
    def experts(self) -> Array:
        """What the script would have done, in data that tells."""
        if self.expert is None:
            raise UsageError("the data has no expert_action to learn from; capture it again with the script beside the policy")
        return self.expert

    @property
    def steps(self) -> int:
        return len(self.actions)

    @property
    def transitions(self) -> int:
        return int(self.actions.size)

    @property
    def rows(self) -> int:
        """Decisions that count."""
        return int(np.count_nonzero(self.active[: self.steps]))

    @property
    def sees_end(self) -> bool:
        """The observation after the last action is there."""
        return len(self.features) > self.steps

    def columns(self) -> dict[str, Array]:
        """The columns that are there, in the order of the table."""
        return {name: array for name in FIELDS if (array := self.__dict__[name]) is not None}

    def decisions(self) -> dict[str, Array]:
        """The columns that are there, over the T decisions alone; views."""
        return {name: array[: self.steps] for name, array in self.columns().items()}

    def _map(self, of_column: Callable[[Array], Array], of_state: Callable[[Array], Array]) -> Trajectory:
        state = None if self.state is None else of_state(self.state)
        return Trajectory(**{name: of_column(array) for name, array in self.columns().items()}, state=state)

    def flat(self) -> Trajectory:
        """Towns and slots (T, E, N, …) as lives side by side (T, E·N, …); views."""
        return self._map(
            lambda array: array.reshape(len(array), array.shape[1] * array.shape[2], *array.shape[3:]),
            lambda state: state.reshape(state.shape[0] * state.shape[1], state.shape[2]),
        )

    def lives(self, keep: Array) -> Trajectory:
        """Some of the lives of (T, B, …), by index or mask; copies."""
        return self._map(lambda array: array[:, keep], lambda state: state[keep])


FIELDS: dict[str, Column] = {item.name: item.metadata["column"] for item in fields(Trajectory) if "column" in item.metadata}


def allocate(steps: int, batch: tuple[int, ...], sizes: Mapping[str, int], names: Sequence[str]) -> Trajectory:
    """Empty columns of a trajectory; `sizes` gives the length of every axis letter."""
    arrays = {}
    for name in names:
        about = FIELDS[name]
        shape = (steps + about.after, *batch, *(sizes[axis] for axis in about.axes))
        arrays[name] = np.zeros(shape, about.dtype)
    return Trajectory(**arrays)


def joined(parts: Sequence[Trajectory]) -> dict[str, Array]:
    """Columns and state of trajectories of one length, side by side along the first axis of the batch."""
    arrays = {name: np.concatenate([part.__dict__[name] for part in parts], axis=1) for name in parts[0].columns()}
    if parts[0].state is not None:
        arrays["state"] = np.concatenate([part.__dict__["state"] for part in parts], axis=0)
    return arrays


def padded(array: Array, steps: int) -> Array:
    """A column over fewer decisions, filled up with rows that do not count."""
    if len(array) >= steps:
        return array
    return np.concatenate([array, np.zeros((steps - len(array), *array.shape[1:]), array.dtype)])


# --- as it lies in a file ------------------------------------------------------------------------------------------------


class Stored(NamedTuple):
    """An array of a sample file: its axes, V being T or T + 1, the dtypes it may have, and the version that brought it."""

    axes: str
    dtypes: tuple[str, ...]
    since: str
    optional: bool

    def required_in(self, version: str) -> bool:
        return not self.optional and self.since <= version


def _stored(about: Column, time: str, since: str) -> Stored:
    return Stored(time + about.axes, (*about.also, np.dtype(about.dtype).name), since, about.optional)


LAST_SINCE = "1.2"  # the version that brought the observation after the last action
STORED: dict[str, Stored] = {
    about.disk: _stored(about, "V" if about.after and not about.last else "T", about.since)
    for about in FIELDS.values()
    if about.disk
} | {about.last: _stored(about, "", LAST_SINCE) for about in FIELDS.values() if about.last}


def to_disk(life: Trajectory) -> dict[str, Array]:
    """The arrays of one life under their names in a file; views."""
    arrays, steps = {}, life.steps
    for name, array in life.columns().items():
        about = FIELDS[name]
        if about.disk:
            arrays[about.disk] = array[:steps] if about.last else array
            if about.last and len(array) > steps:
                arrays[about.last] = array[steps]
    return {name: arrays[name] for name in STORED if name in arrays}


def from_disk(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Columns of one life from the arrays of a file."""
    columns = {name: arrays[about.disk] for name, about in FIELDS.items() if about.disk in arrays}
    for name in columns:
        if (last := FIELDS[name].last) in arrays:
            columns[name] = np.concatenate([columns[name], arrays[last][None]])
    return columns
