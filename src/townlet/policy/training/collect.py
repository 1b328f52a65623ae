"""Rollouts: a hook of the loop keeps what a network (and, on request, the script) does in arrays that are allocated once.

Axes: T decisions, E towns, N resident slots, F features, A actions. Row t holds the observation *before* action t; row T is
what the last action led to. A town that was truncated shows its last observation in the following row, which takes no
decision (`active` 0) and is where the value at the time limit is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from townlet.envs.vector import VectorTown
from townlet.observations.spec import ObservationSpec
from townlet.policy.runtime import Decision, Network, NetworkPolicy, Policy, ScriptedPolicy, mix, values_of
from townlet.policy.training.telemetry import TownTally
from townlet.ports import Decided
from townlet.sim.loop import SimulationLoop
from townlet.sim.probes import Probe
from townlet.world.rng import DAILY, SHARE

Array = NDArray[Any]


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


class GuidedPolicy:
    """A network beside the script, which says what it would do and decides in place of the network for a share of residents.

    The share is drawn per town and day, and leaves at least one resident of a town to the network, so that there is always
    something to learn from.
    """

    kind, has_values = "guided", True

    def __init__(self, network: NetworkPolicy, script: ScriptedPolicy, share: float) -> None:
        self.network, self.script, self.share = network, script, share

    def reset(self, vec: VectorTown) -> None:
        self.network.reset(vec)
        self.script.reset(vec)

    def act(self, vec: VectorTown) -> Decision:
        own, said = self.network.act(vec), self.script.act(vec)
        if self.share <= 0:
            return own._replace(expert=said.expert)
        present = vec.active != 0
        draws = vec.draws(SHARE, self.script.seed, stream=DAILY)
        scripted = (draws < self.share) & present
        if self.share < 1.0:
            scripted[np.arange(len(scripted)), np.where(present, draws, -1.0).argmax(axis=1)] = False  # script last
        return mix([own, said], scripted.astype(np.int64))._replace(values=own.values, expert=said.expert, scripted=scripted)

    def values(self, vec: VectorTown) -> Array:
        return self.network.values(vec)


class Collector(Probe):
    """Steps one batch of towns and keeps what happens."""

    def __init__(self, vec: VectorTown, seed: int, *, maps: bool, state_width: int = 0) -> None:
        self.vec, self.seed = vec, seed
        self.maps = maps and vec.maps is not None
        E, N = vec.num_towns, vec.num_residents
        self.state = np.zeros((E, N, state_width), np.float32)  # recurrent state of the network
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
        return {"state": self.state, "returns": self.returns, "lengths": self.lengths}

    def collect(
        self,
        network: Network | None,
        horizon: int,
        *,
        ask_script: bool = False,
        scripted_share: float = 0.0,
        epsilon: float = 0.0,
    ) -> Rollout:
        """`horizon` decisions of every town. Without a network the script decides for all, ε-soft.

        The arrays of the rollout before are written over: a rollout is used up before the next is collected.
        """
        vec = self.vec
        if self._rollout is None or len(self._rollout.actions) != horizon:
            self._rollout = allocate(vec, horizon, maps=self.maps, state_width=self.state.shape[2])
        out = self._rollout
        out.tally, out.returns, out.lengths = TownTally(), [], []
        out.state[...] = self.state
        acting = None if network is None else NetworkPolicy(network, self.seed)
        script = ScriptedPolicy(epsilon, self.seed)
        policy: Policy
        if acting is None:
            policy = script
        elif ask_script or scripted_share > 0:
            policy = GuidedPolicy(acting, script, scripted_share)
        else:
            policy = acting
        policy.reset(vec)
        if acting is not None:
            acting.state = self.state
        self._step = 0
        SimulationLoop(vec, policy, [self]).run_decisions(horizon)
        self._observe(out, horizon)
        out.values[horizon] = values_of(policy, vec)
        if acting is not None:
            self.state = acting.state
        return out

    def before_step(self, world: VectorTown, decision: Decided) -> None:
        assert self._rollout is not None
        assert isinstance(decision, Decision)
        out, t = self._rollout, self._step
        self._observe(out, t)
        out.starts[t] = world.starts
        out.actions[t], out.log_probs[t], out.values[t] = decision.actions, decision.log_probs, decision.values
        out.expert[t] = -1 if decision.expert is None else decision.expert
        out.scripted[t] = 0 if decision.scripted is None else decision.scripted

    def after_step(self, world: VectorTown, decision: Decided) -> None:
        assert self._rollout is not None
        out, t = self._rollout, self._step
        out.rewards[t], out.terminated[t], out.truncated[t] = world.rewards, world.terminated, world.truncated
        out.tally.add(world.events())
        self._close_lives(out, t)
        self._step += 1

    def _observe(self, out: Rollout, t: int) -> None:
        vec = self.vec
        out.features[t], out.masks[t], out.active[t] = vec.features, vec.masks, vec.active
        if out.maps is not None:
            out.maps[t] = vec.maps

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
