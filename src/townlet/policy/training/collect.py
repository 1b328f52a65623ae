"""Collecting rollouts to learn from: a network, and on request the script, decides in the towns; the one loop steps them.

Axes: T decisions, E towns, N resident slots. A town that was truncated shows its last observation in the following row. Nobody
decides in that row (`active` is false); the value at the time limit is read there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from townlet.envs.step import add_rewards
from townlet.envs.vector import VectorTown
from townlet.errors import UsageError
from townlet.observations.spec import ObservationSpec
from townlet.policy.rollout import TrajectoryRecorder
from townlet.policy.runtime import Decision, Network, NetworkPolicy, Policy, ScriptedPolicy, locate, make_policy, mix, values_of
from townlet.policy.trajectory import FIELDS, Trajectory, joined
from townlet.ports import Decided
from townlet.sim.loop import SimulationLoop
from townlet.sim.probes import Probe
from townlet.sim.tally import EventTally
from townlet.types import Array
from townlet.world.rng import DAILY, SHARE
from townlet.world.state import EVENT

EVENT_BYTES = np.dtype((np.void, EVENT.itemsize))
EVENTS_AT_ONCE = 16  # steps whose events are counted together: counting is a dozen calls, however many there are


@dataclass(frozen=True, eq=False, kw_only=True)
class Rollout(Trajectory):
    """A trajectory (T, E, N, …) and what happened in the towns meanwhile."""

    tally: EventTally
    life_returns: list[float]  # of the learners' lives and whole days that ended, as they ended; towns in order
    life_lengths: list[int]
    life_ends: list[int]  # decisions after which they did

    @property
    def decided(self) -> int:
        """Decisions that were made by anybody."""
        return int(self.active[: self.steps].sum())

    @property
    def learning(self) -> Array:
        """Rows whose action the network chose. (T, E, N) bool"""
        own = self.active[: self.steps]
        return own if self.scripted is None else own & ~self.scripted

    def arrays(self) -> dict[str, Array]:
        """All of it as plain arrays, for another process; `side_by_side` makes rollouts of them."""
        lives = {"life_returns": np.array(self.life_returns, np.float64), "life_lengths": np.array(self.life_lengths, np.int64)}
        lives["life_ends"] = np.array(self.life_ends, np.int64)
        state = {} if self.state is None else {"state": self.state}
        return self.columns() | state | lives | {f"tally_{name}": array for name, array in self.tally.arrays().items()}


def side_by_side(parts: Sequence[Mapping[str, Array]]) -> Rollout:
    """Rollouts of different towns (`Rollout.arrays`) as the one that would have been collected of all, towns in order."""
    tally = EventTally()
    for part in parts:
        tally.merge(EventTally.of_arrays({name.removeprefix("tally_"): array for name, array in part.items()}))
    columns = [Trajectory(**{name: array for name, array in part.items() if name in FIELDS or name == "state"}) for part in parts]
    lives = {name: np.concatenate([part[name] for part in parts]) for name in ("life_returns", "life_lengths", "life_ends")}
    order = np.argsort(lives["life_ends"], kind="stable")
    returns, lengths, ends = (array[order].tolist() for array in lives.values())
    return Rollout(**joined(columns), tally=tally, life_returns=returns, life_lengths=lengths, life_ends=ends)


class GuidedPolicy:
    """A network with the script beside it. The script says what it would do, and decides for a share of the residents.

    Who they are is drawn per town and day; at least one resident of a town is left to the network, to learn from.
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


class InPlaceRecorder(TrajectoryRecorder):
    """The towns write straight into the trajectory, so that nothing is copied; `terms` are left out. It must be the last hook:
    the hooks before it still see the moment of the decision. `end` gives the towns their own buffers back."""

    def __init__(self, vec: VectorTown, capacity: int, leave_out: Sequence[str] = ()) -> None:
        super().__init__(vec, capacity, leave_out)
        self._own = vec.buffers
        rows = {name: column[FIELDS[name].after :] for name, column in self._columns.items() if name in self._own._fields}
        views = {name: column.view(np.uint8) if column.dtype == bool else column for name, column in rows.items()}
        self._rows = [self._own._replace(**dict(zip(views, row))) for row in zip(*views.values())]  # T times (E, N, …)

    def before_step(self, world: VectorTown, decision: Decided) -> None:
        super().before_step(world, decision)
        world.set_buffers(self._rows[self.steps])

    def after_step(self, world: VectorTown, decision: Decided) -> None:
        self.steps += 1

    def end(self) -> None:
        last = self.vec.buffers._asdict()
        for name, own in self._own._asdict().items():
            if name in self._columns:
                own[...] = last[name]
        self.vec.set_buffers(self._own)

    def _moment(self, vec: VectorTown) -> dict[str, Array]:
        """After the first step only what is not there already."""
        if self.steps == 0:
            return super()._moment(vec)
        return {"starts": vec.starts} if "starts" in self._columns else {}


def owners(vec: VectorTown, partners: int) -> Array:
    """Whose every resident is: 0 a learner's, k the k-th partner's. (E, N) i8"""
    town, slot = vec.state.towns["id"].astype(np.int64)[:, None], np.arange(vec.num_residents)
    return town % (partners + 1) * ((slot + town // (partners + 1)) % 2)


class PartnersPolicy:
    """Towns take turns: one has no partner policy, the next has the first partner, and so on. A partner decides for every other
    resident of its town, the learners for the rest."""

    kind, has_values = "among partners", True

    def __init__(self, learners: NetworkPolicy | GuidedPolicy, partners: Sequence[Policy]) -> None:
        self.learners, self.partners = learners, partners

    def reset(self, vec: VectorTown) -> None:
        self.learners.reset(vec)

    def act(self, vec: VectorTown) -> Decision:
        own = self.learners.act(vec)
        decided, owner = [own, *(partner.act(vec) for partner in self.partners)], owners(vec, len(self.partners))
        others = (owner > 0) if own.scripted is None else (owner > 0) | own.scripted
        return mix(decided, owner)._replace(values=own.values, expert=own.expert, scripted=others)

    def values(self, vec: VectorTown) -> Array:
        return self.learners.values(vec)


def _make_partner(spec: str, vec: VectorTown, seed: int) -> Policy:
    """A policy of `training.partners`. One with a memory is refused, because checkpoints of the run would not hold it."""
    policy = make_policy(locate(spec), vec, seed=seed)
    if any(array.size for array in policy.memory().values()):
        raise UsageError(f"training.partners: {spec} has a memory, which a run cannot keep; take partners without one")
    return policy


class Collector(Probe):
    """Steps one batch of towns and keeps what happens; `partners` live beside whoever learns."""

    def __init__(self, vec: VectorTown, seed: int, *, maps: bool, state_width: int = 0, partners: Sequence[str] = ()) -> None:
        self.vec, self.seed = vec, seed
        self.partners = [_make_partner(spec, vec, seed) for spec in partners]
        self.maps = maps and vec.maps is not None
        E, N = vec.num_towns, vec.num_residents
        self.state = np.zeros((E, N, state_width), np.float32)  # recurrent state of the network
        self.returns = np.zeros((E, N))  # of the lives under way
        self.lengths = np.zeros((E, N), np.int64)
        self._decision = 0  # of the collection under way
        self._told = np.ones((E, N), dtype=bool)  # whose lives are told: the learners'
        self._leave_out = ("terms", *([] if self.maps else ["maps"]), *([] if state_width else ["starts"]))
        rows = TrajectoryRecorder(vec, 1, self._leave_out).data.columns().values()
        self.decision_bytes = sum(int(array[0].nbytes) for array in rows)  # of one decision of everybody, as a rollout keeps it
        self._recorder: InPlaceRecorder | None = None
        self._out: Rollout | None = None
        self._events: list[Array] = []  # of steps that are not counted yet

    @property
    def spec(self) -> ObservationSpec:
        return self.vec.spec

    def world(self) -> dict[str, Array]:
        """Everything that changes, towns and lives under way: `restore_world` goes on from it bit for bit. The events of the last
        step are told already."""
        towns = {f"town_{name}": array for name, array in self.vec.save().items()}
        towns["town_towns"]["events"] = 0
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
        if self._recorder is None or self._recorder.capacity != horizon:
            self._recorder = self._out = None  # the memory of the one before, first
            self._recorder = InPlaceRecorder(vec, horizon, self._leave_out)
        recorder, before = self._recorder, self.state.copy()
        recorder.steps, self._decision, self._events = 0, 0, []
        acting = None if network is None else NetworkPolicy(network, self.seed)
        script = ScriptedPolicy(epsilon, self.seed)
        policy: Policy = script
        if acting is not None:
            guided = ask_script or scripted_share > 0
            learners = GuidedPolicy(acting, script, scripted_share) if guided else acting
            policy = PartnersPolicy(learners, self.partners) if self.partners else learners
        policy.reset(vec)
        self._told = owners(vec, len(self.partners) if acting is not None else 0) == 0
        if acting is not None:
            acting.state = self.state
        self._out = out = Rollout(
            **recorder.data.columns(), state=before, tally=EventTally(), life_returns=[], life_lengths=[], life_ends=[]
        )
        SimulationLoop(vec, policy, [self, recorder]).run_decisions(horizon)
        vec.require_all_events()
        self._count_events()
        recorder.bootstrap(values_of(policy, vec))
        recorder.end()
        if acting is not None:
            self.state = acting.state
        return out

    def before_step(self, world: VectorTown, decision: Decided) -> None:
        self._live = world.active  # the step writes into the next row of the trajectory
        self._decision += 1

    def after_step(self, world: VectorTown, decision: Decided) -> None:
        out, live = self._out, self._live
        assert out is not None
        self._events.append(world.events())
        if len(self._events) == EVENTS_AT_ONCE:
            self._count_events()
        if add_rewards(live, world.rewards, world.terminated, world.truncated, self.returns, self.lengths):
            ended = (live != 0) & ((world.terminated != 0) | (world.truncated != 0))
            whole = world.state.towns["cut"] == 0  # a day cut short by staggering says nothing of a day
            told = ended & self._told & whole[:, None]
            out.life_returns.extend(self.returns[told].tolist())
            out.life_lengths.extend(self.lengths[told].tolist())
            out.life_ends.extend([self._decision] * int(told.sum()))
            self.returns[ended] = 0.0
            self.lengths[ended] = 0

    def _count_events(self) -> None:
        if self._events:
            assert self._out is not None
            rows = [events.view(EVENT_BYTES) for events in self._events]  # NumPy would compare each of their fields
            self._out.tally.add(np.concatenate(rows).view(EVENT))
            self._events = []
