"""What learners outside Townlet see: observation spaces, masks and infos, and the batch of towns behind them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np
from gymnasium import spaces

from townlet.config import SimulationConfig, load_config
from townlet.envs.vector import Scenario, VectorTown
from townlet.errors import UsageError, whole_number
from townlet.observations.spec import ObservationSpec
from townlet.types import Array
from townlet.world.state import TERMS

MAP_LAYOUTS = ("flat", "apart", "none")
INFOS = ("none", "numeric", "full")
Info = dict[str, Any]  # of an agent: as much as one of INFOS says


class Sight:
    """The layout of an observation outside Townlet.

    `flat` (the default): one float32 row, the named features (`spec.feature_names`, in order) followed by the map, channel
    by channel, row by row, as zeros and ones. `apart`: the features alone, and the map (C, H, W) uint8 under a key of its
    own. `none`: the features alone.
    """

    def __init__(self, spec: ObservationSpec, map_layout: str = "flat") -> None:
        if map_layout not in MAP_LAYOUTS:
            raise UsageError(f"map is {map_layout!r}, expected one of {', '.join(MAP_LAYOUTS)}")
        self.spec = spec
        has_map = bool(spec.map_shape[0])
        self.flattens = map_layout == "flat" and has_map
        self.apart = map_layout == "apart" and has_map
        low = [field.low for field in spec.fields]
        high = [field.high for field in spec.fields]
        cells = int(np.prod(spec.map_shape)) if self.flattens else 0
        self.row = spaces.Box(np.array(low + [0.0] * cells, np.float32), np.array(high + [1.0] * cells, np.float32))
        self.window = spaces.Box(0, 1, spec.map_shape, np.uint8)
        self.mask = spaces.Box(0, 1, (len(spec.action_names),), np.int8)
        self.names: tuple[str, ...] = spec.feature_names + self._cell_names() if self.flattens else spec.feature_names

    def _cell_names(self) -> tuple[str, ...]:
        _, height, width = self.spec.map_shape
        return tuple(f"map_{name}_{y}_{x}" for name in self.spec.map_channels for y in range(height) for x in range(width))

    def space(self) -> spaces.Dict:
        parts: dict[str, spaces.Space[Any]] = {"observation": self.row, "action_mask": self.mask}
        return spaces.Dict(parts | {"map": self.window} if self.apart else parts)

    def rows(self, vec: VectorTown) -> Array:
        """A copy of what everybody sees now.  # (E, N, F [+ C·H·W]) f4"""
        if not self.flattens or vec.maps is None:
            return vec.features.copy()
        return np.concatenate([vec.features, vec.maps.reshape(*vec.active.shape, -1)], axis=2, dtype=np.float32)

    def of(self, vec: VectorTown, slot: int) -> Array:
        """A copy of what one resident of the first town sees now.  # (F [+ C·H·W],) f4"""
        features = vec.features[0, slot]
        if not self.flattens or vec.maps is None:
            return np.asarray(features.copy())
        return np.concatenate([features, vec.maps[0, slot].ravel()], dtype=np.float32)

    def dict_of(self, vec: VectorTown, slot: int) -> dict[str, Array]:
        seen = {"observation": self.of(vec, slot), "action_mask": vec.masks[0, slot].astype(np.int8)}
        if self.apart and vec.maps is not None:
            seen["map"] = vec.maps[0, slot].copy()
        return seen


def make_towns(
    scenario: Scenario,
    num_towns: int,
    overrides: Sequence[str],
    *,
    seed: int | None = None,
    max_cycles: int | None = None,
    start: str | None = None,
    first_town: int = 0,
    threads: int = 1,
) -> VectorTown:
    """A batch from a name, a file or a config, with episodes of `max_cycles` decisions where that is given.

    Without a seed, here or among the overrides, one is drawn by the system, so that no two copies are twins. It is even, as
    those of training are: never one of the evaluation's, which are odd.
    """
    if overrides and isinstance(scenario, SimulationConfig):
        raise UsageError("overrides are for configs that are read from a file; this one is already loaded, change it instead")
    config = scenario if isinstance(scenario, SimulationConfig) else load_config(scenario, overrides)
    if max_cycles is not None:
        config = config.lasting(whole_number("max_cycles", max_cycles, 1) * config.policy.interval)
    if seed is None and not any(override.partition("=")[0].strip() == "seed" for override in overrides):
        seed = 2 * secrets.randbits(40)
    return VectorTown(config, num_towns, seed=seed, start=start, first_town=first_town, threads=threads)


def write_action(actions: Array, slot: int, action: object, agent: str) -> None:
    """One agent's action into those of everybody (N,); a number that is no action stays illegal."""
    try:
        actions[slot] = index(action)  # type: ignore[arg-type]
    except (TypeError, OverflowError):
        raise UsageError(f"the action of {agent} is {action!r:.60}, expected a whole number: the index of an action") from None


def info_of(vec: VectorTown, slot: int, infos: str) -> Info:
    """The info of a resident, without its events; `infos` (of INFOS) says how much of it."""
    if infos == "none":
        return {}
    terms = dict(zip(TERMS, vec.terms[0, slot].tolist()))
    info: Info = {
        "action_mask": vec.masks[0, slot].astype(np.int8),
        "tick": int(vec.state.towns[0]["tick"]),
        "illegal": bool(vec.illegal[0, slot]),
        "active": bool(vec.active[0, slot]),
    }
    if infos == "numeric":
        return info | {f"reward_{name}": value for name, value in terms.items()}
    return info | {"option": vec.catalogue.names[int(vec.state.residents[0, slot]["action"])], "reward_terms": terms}
