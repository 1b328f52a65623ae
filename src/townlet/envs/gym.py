"""The town as a Gymnasium environment: one learning resident among neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from townlet.envs.events import step_records
from townlet.envs.render import rendered
from townlet.envs.spaces import INFOS, Info, Sight, info_of, make_towns, write_action
from townlet.envs.vector import Scenario, VectorTown, checked_actions
from townlet.errors import UsageError
from townlet.types import Array
from townlet.world.rng import PICK
from townlet.world.townspeople import choose_random, choose_scripted, make_script


class ResidentEnv(gymnasium.Env[Array, np.int64]):
    """The life of one founder, `resident` (by default the first), among `neighbours`: "scripted", "random", or a function from
    the town to everybody's actions (1, N), such as `townlet.load_policy("runs/demo")`. `infos` are those of `parallel_env`.

    The observation is the flat row of `Sight`; the mask stands in `info["action_mask"]` and in `action_masks()`, where
    MaskablePPO looks for it. The episode is terminated when the resident leaves, truncated at the end of the scenario, both
    when the resident leaves in the last step.
    """

    metadata = {"render_modes": ["human", "rgb_array", "ansi"], "render_fps": 6}  # noqa: RUF012  (as Gymnasium declares it)

    def __init__(
        self,
        scenario: Scenario = "town_day",
        *,
        resident: str | None = None,
        overrides: Sequence[str] = (),
        start: str | None = None,
        map: str = "flat",
        neighbours: str | Callable[[VectorTown], Array] = "scripted",
        infos: str = "full",
        render_mode: str | None = None,
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UsageError(f"render_mode is {render_mode!r}, expected human, rgb_array, ansi or None")
        if infos not in INFOS:
            raise UsageError(f"infos is {infos!r}, expected {' or '.join(INFOS)}")
        if map == "apart":
            raise UsageError("map is 'apart', but this environment gives one row of numbers; use 'flat' or 'none'")
        self.vec = vec = make_towns(scenario, 1, overrides, start=start)
        if neighbours == "scripted" and vec.primitive:
            raise UsageError(
                f"the neighbours follow the script, which chooses options, but policy.action_level is {vec.catalogue.level!r}; "
                "use 'option', other neighbours, or townlet.parallel_env and act for everybody"
            )
        if neighbours not in ("scripted", "random") and not callable(neighbours):
            raise UsageError(
                f"neighbours is {neighbours!r}, expected scripted, random or a function; townlet.load_policy makes one of a run"
            )
        names = vec.town_of(0).resident_ids
        if resident is not None and resident not in names:
            raise UsageError(f"there is no resident {resident!r}; this town has {', '.join(names[:20])}")
        self.resident = resident or names[0]
        self.render_mode = render_mode
        self.infos = infos
        self._slot = names.index(self.resident)
        self._sight = Sight(vec.spec, map)
        if neighbours == "scripted":
            self._script = make_script(vec.config, vec.spec.feature_names, vec.catalogue.names)
        self._neighbours = neighbours
        self._actions = np.zeros((1, vec.num_residents), np.int64)
        self._over = True
        self.observation_space = self._sight.row
        self.action_space = spaces.Discrete(vec.num_actions)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, Info]:
        """With a seed the first episode of that seed; without one an episode of a seed drawn from the last."""
        super().reset(seed=seed)
        self.vec.reset(seed if seed is not None else 2 * int(self.np_random.integers(1 << 30)))  # even, as training's
        self._over = False
        self._show()
        return self._sight.of(self.vec, self._slot), self._info()

    def step(self, action: np.int64 | int) -> tuple[Array, float, bool, bool, Info]:
        if self._over:
            raise UsageError("the episode is over; call reset first")
        vec = self.vec
        if self._neighbours == "scripted":
            choose_scripted(vec.features[0], vec.masks[0], self._script, self._actions[0])
        elif self._neighbours == "random":
            choose_random(vec.masks[0], vec.draws(PICK)[0], self._actions[0])
        elif not isinstance(self._neighbours, str):
            self._actions[:] = checked_actions(self._neighbours(vec), self._actions.shape, "the neighbours gave")
        write_action(self._actions[0], self._slot, action, self.resident)
        vec.step(self._actions)
        terminated, truncated = bool(vec.terminated[0, self._slot]), bool(vec.truncated[0, self._slot])
        self._over = terminated or truncated
        self._show()
        return self._sight.of(vec, self._slot), float(vec.rewards[0, self._slot]), terminated, truncated, self._info()

    def action_masks(self) -> Array:
        return np.asarray(self.vec.masks[0, self._slot].astype(np.bool_))

    def render(self) -> Array | str | None:
        return rendered(self.vec, self.render_mode)

    def _show(self) -> None:
        if self.render_mode == "human":
            self.render()

    def _info(self) -> Info:
        info = info_of(self.vec, self._slot, self.infos)
        if self.infos == "full":
            told = step_records(self.vec)
            info["events"] = [record for record in told if self.resident in (record.get("actor"), record.get("rival"))]
        return info
