"""Rollouts: towns are stepped by an actor (and, on request, by the script) into arrays that are allocated once.

Axes: T decisions, E towns, N resident slots, F features, A actions. Row t holds the observation *before* action t; row T is
what the last action led to. A town that was truncated shows its last observation in the following row, which takes no
decision (`active` 0) and is where the value at the time limit is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from townlet.envs.vector import VectorTown
from townlet.observations.spec import ObservationSpec
from townlet.policy.inference import Acted
from townlet.policy.runtime import Decision, ScriptedPolicy
from townlet.policy.training.telemetry import TownTally
from townlet.world.rng import ACT, DAILY, SHARE

Array = NDArray[Any]


class Actor(Protocol):
    def initial_state(self, rows: int) -> Array: ...
    def act(
        self, features: Array, maps: Array | None, masks: Array, *, draws: Array | None = None, state: Array | None = None
    ) -> Acted: ...


@dataclass
class Rollout:
    features: Array  # (T+1, E, N, F) f4
    maps: Array | None  # (T+1, E, N, C, H, W) u1; None when the network does not look at them
    masks: Array  # (T+1, E, N, A) u1
    active: Array  # (T+1, E, N) u1
    starts: Array  # (T, E, N) u1: first decision of a life
    actions: Array  # (T, E, N) i8
    log_probs: Array  # (T, E, N) f4
    values: Array  # (T+1, E, N) f4
    rewards: Array  # (T, E, N) f4
    terminated: Array  # (T, E, N) u1
    truncated: Array  # (T, E, N) u1
    expert: Array  # (T, E, N) i8: what the script would do; -1 when it was not asked
    scripted: Array  # (T, E, N) u1: the script controlled this row
    state: Array  # (E, N, S) f4: recurrent state before row 0
    tally: TownTally = field(default_factory=TownTally)
    returns: list[float] = field(default_factory=list)  # of the lives and whole days that ended
    lengths: list[int] = field(default_factory=list)

    @property
    def decisions(self) -> int:
        return int(self.active[:-1].sum())

    @property
    def learning(self) -> Array:
        """Rows whose action the network chose. (T, E, N) bool"""
        return np.asarray((self.active[:-1] != 0) & (self.scripted == 0))


def allocate(vec: VectorTown, horizon: int, *, maps: bool, state_width: int) -> Rollout:
    T, E, N, A = horizon, vec.num_towns, vec.num_residents, vec.num_actions
    grid = np.zeros((T + 1, E, N, *vec.maps.shape[2:]), np.uint8) if maps and vec.maps is not None else None
    return Rollout(
        features=np.zeros((T + 1, E, N, vec.features.shape[2]), np.float32),
        maps=grid,
        masks=np.zeros((T + 1, E, N, A), np.uint8),
        active=np.zeros((T + 1, E, N), np.uint8),
        starts=np.zeros((T, E, N), np.uint8),
        actions=np.zeros((T, E, N), np.int64),
        log_probs=np.zeros((T, E, N), np.float32),
        values=np.zeros((T + 1, E, N), np.float32),
        rewards=np.zeros((T, E, N), np.float32),
        terminated=np.zeros((T, E, N), np.uint8),
        truncated=np.zeros((T, E, N), np.uint8),
        expert=np.full((T, E, N), -1, np.int64),
        scripted=np.zeros((T, E, N), np.uint8),
        state=np.zeros((E, N, state_width), np.float32),
    )


class Collector:
    """Steps one batch of towns."""

    def __init__(self, vec: VectorTown, seed: int, *, maps: bool, state_width: int = 0) -> None:
        self.vec = vec
        self.seed = seed
        self.maps = maps and vec.maps is not None
        E, N = vec.num_towns, vec.num_residents
        self.was_active = np.zeros((E, N), np.uint8)
        self.state = np.zeros((E, N, state_width), np.float32)
        self.returns = np.zeros((E, N))  # of the lives under way
        self.lengths = np.zeros((E, N), np.int64)
        self._rollout: Rollout | None = None

    @property
    def spec(self) -> ObservationSpec:
        return self.vec.spec

    def world(self) -> dict[str, Array]:
        """Everything that changes, towns and lives under way: `restore_world` goes on from it bit for bit."""
        towns = {f"town_{name}": array for name, array in self.vec.save().items()}
        return towns | {f"collector_{name}": array.copy() for name, array in self._own().items()}

    def world_bytes(self) -> int:
        return sum(array.nbytes for array in self.world().values())

    def restore_world(self, arrays: Mapping[str, Array]) -> None:
        self.vec.restore({name.removeprefix("town_"): array for name, array in arrays.items() if name.startswith("town_")})
        for name, own in self._own().items():
            own[...] = arrays[f"collector_{name}"]

    def close(self) -> None:
        """Nothing to release: the towns live in this process."""

    def _own(self) -> dict[str, Array]:
        return {"was_active": self.was_active, "state": self.state, "returns": self.returns, "lengths": self.lengths}

    def collect(
        self,
        actor: Actor | None,
        horizon: int,
        *,
        ask_script: bool = False,
        scripted_share: float = 0.0,
        epsilon: float = 0.0,
        on_step: Callable[[], None] | None = None,
    ) -> Rollout:
        """`horizon` decisions of every town. Without an actor the script decides for all, ε-soft.

        The arrays of the rollout before are written over: a rollout is used up before the next is collected.
        """
        vec = self.vec
        if self._rollout is None or len(self._rollout.actions) != horizon:
            self._rollout = allocate(vec, horizon, maps=self.maps, state_width=self.state.shape[2])
        out = self._rollout
        out.tally, out.returns, out.lengths = TownTally(), [], []
        out.state[...] = self.state
        ask_script = ask_script or scripted_share > 0 or actor is None
        if ask_script:
            self._script = ScriptedPolicy(epsilon, self.seed)
            self._script.reset(vec)
        else:
            out.expert[...] = -1
            out.scripted[...] = 0
        for t in range(horizon):
            self._observe(out, t)
            np.logical_and(vec.active, self.was_active == 0, out=out.starts[t], casting="unsafe")
            self.was_active[...] = vec.active
            if actor is not None:
                self._decide(actor, out, t)
            if ask_script:
                share = 1.0 if actor is None else scripted_share
                self._ask_script(out, t, share)
            vec.step(out.actions[t])
            out.rewards[t], out.terminated[t], out.truncated[t] = vec.rewards, vec.terminated, vec.truncated
            out.tally.add(vec.events())
            self._close_lives(out, t)
            if on_step is not None:
                on_step()
        self._observe(out, horizon)
        if actor is not None:
            out.values[horizon] = self._act(actor, out, horizon, None).values.reshape(out.values.shape[1:])
        return out

    def _observe(self, out: Rollout, t: int) -> None:
        vec = self.vec
        out.features[t], out.masks[t], out.active[t] = vec.features, vec.masks, vec.active
        if out.maps is not None:
            out.maps[t] = vec.maps

    def _act(self, actor: Actor, out: Rollout, t: int, draws: Array | None) -> Acted:
        flat = self.was_active.size
        maps = None if out.maps is None else out.maps[t].reshape(flat, *out.maps.shape[3:])
        return actor.act(
            out.features[t].reshape(flat, -1),
            maps,
            out.masks[t].reshape(flat, -1),
            draws=draws,
            state=self.state.reshape(flat, self.state.shape[2]),
        )

    def _decide(self, actor: Actor, out: Rollout, t: int) -> None:
        self.state[out.starts[t] != 0] = 0.0
        acted = self._act(actor, out, t, self.vec.draws(ACT, self.seed).ravel())
        shape = self.was_active.shape
        out.actions[t], out.log_probs[t] = acted.actions.reshape(shape), acted.log_probs.reshape(shape)
        out.values[t] = acted.values.reshape(shape)
        self.state[...] = acted.state.reshape(self.state.shape)

    def _ask_script(self, out: Rollout, t: int, share: float) -> None:
        """The script's choice for every row, and its taking over of a share of residents, drawn per town and day. Beside a
        network it leaves at least one resident of a town alone, so that there is always something to learn from."""
        said = self._script.act(self.vec)
        out.expert[t] = said.expert
        if share <= 0:
            out.scripted[t] = 0
            return
        draws = self.vec.draws(SHARE, self.seed, stream=DAILY)
        present = out.active[t] != 0
        mine = (draws < share) & present
        if share < 1.0:
            mine[np.arange(len(mine)), np.where(present, draws, -1.0).argmax(axis=1)] = False  # the highest draw: script last
        out.scripted[t] = mine
        out.actions[t][mine], out.log_probs[t][mine] = said.actions[mine], said.log_probs[mine]

    def _close_lives(self, out: Rollout, t: int) -> None:
        live = out.active[t] != 0
        self.returns[live] += out.rewards[t][live]
        self.lengths[live] += 1
        ended = live & ((out.terminated[t] != 0) | (out.truncated[t] != 0))
        if ended.any():
            told = ended & (self.vec.state.towns["cut"] == 0)[:, None]  # a day cut short by staggering says nothing of a day
            out.returns += self.returns[told].tolist()
            out.lengths += self.lengths[told].tolist()
            self.returns[ended] = 0.0
            self.lengths[ended] = 0


class ActorPolicy:
    """An actor as a policy that can be evaluated: draws from its distribution, memory reset at the first decision of a life."""

    kind, has_values, epsilon, hash = "network", True, 0.0, ""

    def __init__(self, actor: Actor, seed: int = 0) -> None:
        self.actor = actor
        self.seed = seed

    def reset(self, vec: VectorTown) -> None:
        self._state = self.actor.initial_state(vec.active.size)
        self._was_active = np.zeros(vec.active.shape, np.uint8)

    def act(self, vec: VectorTown) -> Decision:
        E, N, A = vec.masks.shape
        self._state[((vec.active != 0) & (self._was_active == 0)).ravel()] = 0.0
        self._was_active[...] = vec.active
        maps = None if vec.maps is None else vec.maps.reshape(E * N, *vec.maps.shape[2:])
        acted = self.actor.act(
            vec.features.reshape(E * N, -1),
            maps,
            vec.masks.reshape(E * N, A),
            draws=vec.draws(ACT, self.seed).ravel(),
            state=self._state,
        )
        self._state = acted.state
        return Decision(acted.actions.reshape(E, N), acted.log_probs.reshape(E, N), acted.values.reshape(E, N))
