"""VectorTown: a batch of towns behind arrays. The caller owns the buffers; a step writes into them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from townlet.config import SimulationConfig, config_hash, load_config
from townlet.config.base import minute_at
from townlet.envs.step import Buffers, gather_events, step_towns
from townlet.envs.threads import Call, run_in_threads
from townlet.errors import SnapshotError, UsageError, whole_number
from townlet.observations.spec import CONFLICT, ObservationSpec
from townlet.scenarios.compile import CompiledTown, compile_town
from townlet.threads import MOST_THREADS
from townlet.types import Array
from townlet.world._jit import JIT
from townlet.world.actions import STEPS, Catalogue
from townlet.world.film import film_bytes
from townlet.world.layout import object_views, walkable
from townlet.world.rng import POLICY, fill_uniform
from townlet.world.rules import make_affordances, make_rules
from townlet.world.state import (
    EVENT,
    FAR,
    GRID,
    HALF_DISTANCE,
    HALF_OFFSET,
    MAX_EDGES,
    OBJECT,
    OBJECT_SPEC,
    RESIDENT,
    SCHEDULED,
    TERMS,
    TIE,
    TOWN,
    WALL,
    Layout,
    State,
    Tables,
    empty_slots,
    no_ties,
)

Scenario = str | Path | SimulationConfig
MOST_SEED = (1 << 63) - 1
GOLDEN_SECTION = (5**0.5 - 1) / 2
FINGERPRINT = ("residents", "ties", "objects", "towns", "grid", "terms")  # state that a digest and a snapshot hold


class VectorTown:
    """E towns × N residents, stepped together. Next-step auto-reset, as in Gymnasium's vector environments.

    `start` is the clock time of an episode's first tick: None (the scenario's), "random" (drawn per town) or "06:30".
    `wallets` are the bounds between which every first wallet is drawn, in coins; None takes the scenario's.
    `conflict_weights` are bounds, too: each town has its own weight of conflict, and tells its residents.
    `stagger` ends the first episode of each town after a drawn number of decisions, so that the towns do not end together.
    """

    def __init__(
        self,
        scenario: Scenario | Sequence[Scenario],
        num_towns: int = 64,
        *,
        seed: int | None = None,
        first_town: int = 0,
        start: str | None = None,
        stagger: bool = False,
        wallets: tuple[float, float] | None = None,
        conflict_weights: tuple[float, float] | None = None,
        threads: int = 1,
    ) -> None:
        whole_number("num_towns", num_towns, 1)
        whole_number("first_town", first_town, 0)
        whole_number("threads", threads, 1, MOST_THREADS)
        named = [scenario] if isinstance(scenario, str | Path | SimulationConfig) else list(scenario)
        configs = [one if isinstance(one, SimulationConfig) else load_config(one) for one in named]
        self.config = configs[0]
        self.towns: tuple[CompiledTown, ...] = tuple(compile_town(config) for config in configs)
        self.num_towns, self.threads = num_towns, threads
        self.seed = self.config.seed if seed is None else whole_number("seed", seed, 0, MOST_SEED)
        self.primitive = self.config.policy.action_level == "primitive"
        self.interval = self.config.policy.interval
        self.catalogue = Catalogue.of(self.config)
        self.spec = ObservationSpec.of(self.config)
        self.tables = _stack(self.towns, self.spec, random_start=start == "random", stagger=stagger, wallets=wallets)
        self._weights = conflict_weights
        if conflict_weights is not None:
            self.tables = self.tables._replace(rules=np.repeat(self.tables.rules, num_towns))
        self.start_minute = self.config.scenario.start if start in (None, "random") else minute_at(start, "random")
        self.num_residents = self.tables.start.shape[1]
        self.num_actions = len(self.catalogue)
        self._conflict = np.array(self.spec.columns(CONFLICT), dtype=np.int64)
        self._shares = list(pairwise(np.linspace(0, num_towns, threads + 1).astype(int).tolist()))  # of the threads
        self.state = _blank_state(self.tables, self.config, num_towns)
        self.state.towns["id"] = first_town + np.arange(num_towns)
        self.sights = True
        self.film: Array = np.zeros((0, 0, 0), np.uint8)
        buffers = self.new_buffers()
        self._shapes = {name: np.broadcast_to(array.dtype.type(0), array.shape) for name, array in buffers._asdict().items()}
        self.set_buffers(buffers)
        self._no_targets: Array = np.full((num_towns, self.num_residents), -1, dtype=np.int64)
        self.reset()

    def __repr__(self) -> str:
        names = ", ".join(town.config.config_id for town in self.towns)
        size = f"{self.num_towns} towns × {self.num_residents} residents, {len(self.spec.feature_names)} features"
        return (
            f"<VectorTown {names}: {size}, {self.num_actions} actions, seed {self.seed}, tick {int(self.state.towns[0]['tick'])}>"
        )

    # --- buffers ----------------------------------------------------------------------------------------------------

    def new_buffers(self) -> Buffers:
        e, n = self.num_towns, self.num_residents
        return Buffers(
            features=np.zeros((e, n, len(self.spec.feature_names)), dtype=np.float32),
            maps=np.zeros((e, n, *self.spec.map_shape), dtype=np.uint8),
            masks=np.zeros((e, n, self.num_actions), dtype=np.uint8),
            active=np.zeros((e, n), dtype=np.uint8),
            rewards=np.zeros((e, n), dtype=np.float32),
            terms=np.zeros((e, n, len(TERMS)), dtype=np.float64),
            terminated=np.zeros((e, n), dtype=np.uint8),
            truncated=np.zeros((e, n), dtype=np.uint8),
            illegal=np.zeros((e, n), dtype=np.uint8),
        )

    def set_buffers(self, buffers: Buffers) -> None:
        """Let the next reset or step write here; shapes and types are those of `new_buffers`."""
        for name, have in buffers._asdict().items():
            want = self._shapes[name]
            if have.shape != want.shape or have.dtype != want.dtype or not have.flags.c_contiguous:
                raise UsageError(
                    f"buffer {name} is {have.dtype}{have.shape}, expected contiguous {want.dtype}{want.shape}; "
                    "VectorTown.new_buffers makes such buffers"
                )
        self.buffers = buffers
        self._written = buffers._replace(maps=buffers.maps.reshape(self.num_towns, self.num_residents, -1))
        self.features, self.masks, self.active = buffers.features, buffers.masks, buffers.active
        self.maps: Array | None = buffers.maps if buffers.maps.shape[2] else None
        self.rewards, self.terms, self.illegal = buffers.rewards, buffers.terms, buffers.illegal
        self.terminated, self.truncated = buffers.terminated, buffers.truncated

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy, or one from a pickle: arrays that were views of its buffers are views of them again."""
        self.__dict__.update(state)
        self.set_buffers(self.buffers)

    # --- running ----------------------------------------------------------------------------------------------------

    def reset(self, seed: int | None = None, *, first_town: int | None = None) -> None:
        """All towns to the first tick of their first episode; other towns, where the number of the first is given."""
        if seed is not None:
            self.seed = whole_number("seed", seed, 0, MOST_SEED)
        if first_town is not None:
            self.state.towns["id"] = first_town + np.arange(self.num_towns)
        self.state.towns["layout"] = self.state.towns["id"] % len(self.towns)
        if self._weights is not None:
            told = spread_weights(self.state.towns["id"], *self._weights)
            self.tables.rules["conflict_weight"] = self.tables.rules["told_weight"] = told
        self.state.towns["seed"] = np.uint64(self.seed)
        self.state.towns["episode"] = -1
        self.state.towns["events_lost"] = 0
        self.state.towns["over"] = 1  # a step of a town that is over begins its next episode: the first one
        self._step(self._no_targets, self._no_targets)

    def step(self, actions: ArrayLike, targets: Array | None = None) -> None:
        """One decision of everybody. `targets (E, N)` names the object of an affordance option where it is not -1."""
        want = (self.num_towns, self.num_residents)
        choices = checked_actions(actions, want, "actions are")
        if targets is not None and (targets.shape != want or targets.dtype != np.int64):
            raise UsageError(f"targets are {targets.dtype}{targets.shape}, expected int64 of shape {want}")
        self._step(choices, self._no_targets if targets is None else targets)

    def step_arguments(self, choices: Array, targets: Array) -> tuple[object, ...]:
        """What `step_towns` is given, but for the towns it is to step."""
        static = (self._conflict, self.primitive, self.sights, self.start_minute, self.film)
        return (self.state, self.tables, self._written, choices, targets, *static)

    def _step(self, choices: Array, targets: Array) -> None:
        args = self.step_arguments(choices, targets)
        with nullcontext() if JIT else np.errstate(over="ignore"):  # hashes wrap around
            run_in_threads(self.threads, [[Call(step_towns, (*args, *share))] for share in self._shares])

    def start_filming(self) -> None:
        """From now on a step leaves what there was to see at each of its ticks in `film (E, interval, bytes) u1`."""
        size = film_bytes(self.num_residents, self.state.objects.shape[1], len(self.config.needs))
        self.film = np.zeros((self.num_towns, self.interval, size), np.uint8)

    def draws(self, index: int, seed: int | None = None, *, stream: int = POLICY) -> Array:
        """One uniform per town and resident of this moment, whatever the batch: a draw that `world.rng` names, by the seed of
        a policy or by the towns' own.  # (E, N) f8"""
        out = np.empty((self.num_towns, self.num_residents))
        with np.errstate(over="ignore"):  # the hash wraps around when it is not compiled
            fill_uniform(np.uint64(self.seed if seed is None else seed), self.state.towns, stream, index, out)
        return out

    # --- looking ----------------------------------------------------------------------------------------------------

    @property
    def starts(self) -> Array:
        """Rows that take the first decision of a life now.  # (E, N) bool"""
        return np.asarray((self.active != 0) & (self.state.residents["born"] == self.state.towns["tick"][:, None]))

    def events(self) -> Array:
        """Events of the last step: EVENT rows by town, then by number."""
        rows = np.empty(int(self.state.towns["events"].sum()), EVENT)
        gather_events(self.state.events, self.state.towns, rows)
        return rows

    @property
    def events_lost(self) -> int:
        return int(self.state.towns["events_lost"].sum())

    def require_all_events(self) -> None:
        """Exits, shifts, conflicts and waits are known from events: whoever counts them must have had them all."""
        if self.events_lost:
            raise UsageError(
                f"{self.events_lost} events of {self.config.config_id} did not fit into world.event_capacity="
                f"{self.config.world.event_capacity}, so nothing can be counted; set it to 0 for a size by residents"
            )

    def town_of(self, town: int) -> CompiledTown:
        return self.towns[int(self.state.towns[town]["layout"])]

    def resident_name(self, town: int, slot: int, life: int) -> str:
        return self.town_of(town).resident_ids[slot] if life == 0 else f"newcomer_{life}"

    def resident_id(self, town: int, slot: int) -> str:
        return self.resident_name(town, slot, int(self.state.residents[town, slot]["life"]))

    def object_ids(self, town: int) -> tuple[str, ...]:
        return self.town_of(town).object_ids

    @cached_property
    def config_hash(self) -> str:
        return config_hash(self.config)

    def digest(self, town: int | None = None) -> str:
        """SHA-256 of state, events, rewards, breakdown, observations and masks, of one town or of all."""
        part = slice(None) if town is None else slice(town, town + 1)
        digest = hashlib.sha256()
        for name in FINGERPRINT:
            digest.update(np.ascontiguousarray(self.state._asdict()[name][part]).tobytes())
        for e in range(self.num_towns)[part]:
            digest.update(self.state.events[e, : self.state.towns[e]["events"]].tobytes())
        for array in self.buffers:
            digest.update(np.ascontiguousarray(array[part]).tobytes())
        return digest.hexdigest()

    # --- snapshots --------------------------------------------------------------------------------------------------

    def save(self) -> dict[str, Array]:
        """Copies of everything that changes; `restore` continues from it bit for bit."""
        kept = {name: self.state._asdict()[name].copy() for name in FINGERPRINT}
        return kept | {f"seen_{name}": array.copy() for name, array in self.buffers._asdict().items()}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        targets = {name: self.state._asdict()[name] for name in FINGERPRINT}
        targets |= {f"seen_{name}": array for name, array in self.buffers._asdict().items()}
        for name, target in targets.items():
            if name not in arrays:
                raise SnapshotError(f"the snapshot has no {name!r}; it holds {', '.join(sorted(arrays))}")
            have = arrays[name]
            if have.shape != target.shape or have.dtype != target.dtype:
                raise SnapshotError(
                    f"{name} of the snapshot is {have.dtype.name}{have.shape}, this town needs "
                    f"{target.dtype.name}{target.shape}; it was made with another config or batch"
                )
        for name, target in targets.items():
            target[...] = arrays[name]
        self.state.towns["events"] = 0
        self.state.checked[...] = -1
        self.seed = int(self.state.towns[0]["seed"])


def make_vec(scenario: Scenario | Sequence[Scenario], num_towns: int = 64, **options: Any) -> VectorTown:
    """A batch of towns; see VectorTown. Without a `seed` it is the scenario's: two such batches are the same towns."""
    return VectorTown(scenario, num_towns, **options)


def spread_weights(town: Array, low: float, high: float) -> Array:
    """A weight for each town by its number, evenly in their ratio: steps of the golden section fill any number of towns."""
    return np.asarray(low * (high / low) ** ((0.5 + town * GOLDEN_SECTION) % 1.0))


def _blank_state(tables: Tables, config: SimulationConfig, towns: int) -> State:
    n, m = tables.start.shape[1], tables.objects.shape[1]
    height, width = tables.grid.shape[1:]
    capacity = config.world.event_capacity or 64 + 2 * n * max(1, min(config.policy.interval, 8) // 2)
    return State(
        residents=np.zeros((towns, n), dtype=RESIDENT),
        ties=np.zeros((towns, n, MAX_EDGES), dtype=TIE),
        objects=np.zeros((towns, m), dtype=OBJECT),
        towns=np.zeros(towns, dtype=TOWN),
        grid=np.zeros((towns, height, width), dtype=GRID),
        events=np.zeros((towns, capacity), dtype=EVENT),
        terms=np.zeros((towns, n, len(TERMS)), dtype=np.float64),
        checked=np.full((towns, m), -1, dtype=np.int64),
    )


def _stack(towns: Sequence[CompiledTown], spec: ObservationSpec, **options: Any) -> Tables:
    """Layouts side by side. Shorter lists are padded with rows that no index points to, smaller maps with walls, and smaller
    towns with slots in which nobody ever lives. `options` of `make_rules`."""
    config, layouts = towns[0].config, [town.layout for town in towns]
    rules = make_rules(config, **options)
    for town in towns[1:]:
        other = make_rules(town.config, **options)
        if other.tobytes() != rules.tobytes() or make_affordances(town.config).tobytes() != make_affordances(config).tobytes():
            raise UsageError(
                f"{town.config.config_id} has other rules than {config.config_id}; "
                "one batch takes layouts that differ in their map, people and ties only"
            )
    views = [object_views(walkable(layout.tiles), layout.objects, spec.map_shape[1]) for layout in layouts]
    steps, side = np.arange(FAR + 1, dtype=np.float64), max(max(layout.tiles.shape) for layout in layouts)
    offsets = np.arange(-side, side + 1, dtype=np.float64)
    angle = 2 * np.pi * np.arange(config.world.ticks_per_day) / config.world.ticks_per_day
    return Tables(
        grid=_pad([_grid(layout) for layout in layouts], np.array([(-1, -1, WALL)], dtype=GRID)),
        objects=_pad([_objects(town, config) for town in towns], _objects(towns[0], config, away=True)),
        nearest=_pad([layout.nearest for layout in layouts]),
        towards=_pad([layout.towards for layout in layouts]),
        bed_steps=_pad([layout.bed_steps for layout in layouts]),
        buildings=_pad([layout.buildings for layout in layouts]),
        jobs=_pad([layout.jobs for layout in layouts]),
        scheduled=_pad([layout.scheduled for layout in layouts], np.array([(-1, -1, 0, 0, -1)], dtype=SCHEDULED)),
        start=_pad([_with_colleagues(layout) for layout in layouts], empty_slots(1)),
        start_ties=_pad([layout.ties for layout in layouts], no_ties(1)[0]),
        affordances=make_affordances(config),
        rules=rules,
        circle=np.stack([np.sin(angle), np.cos(angle)], axis=1).astype(np.float32),
        nearness=np.append(steps / (steps + HALF_DISTANCE), 1.0).astype(np.float32),
        steps=np.array([(0, 0), *STEPS, *3 * [(0, 0)]], dtype=np.float32),
        offsets=(offsets / (np.abs(offsets) + HALF_OFFSET)).astype(np.float32),
        columns=spec.first_columns(),
        channels=spec.planes(),
        window=np.array(spec.map_shape[1:2], dtype=np.int64),
        views=_pad([tile for tile, _ in views]),
        in_view=_pad([rows for _, rows in views]),
    )


def _grid(layout: Layout) -> Array:
    grid = np.zeros(layout.tiles.shape, dtype=GRID)
    grid["occupant"], grid["object"], grid["tile"] = -1, -1, layout.tiles
    grid["object"][layout.objects["y"], layout.objects["x"]] = np.arange(len(layout.objects))
    return grid


def _objects(town: CompiledTown, config: SimulationConfig, *, away: bool = False) -> Array:
    """Objects as an episode begins; `away`: objects outside the map, as padding for a shorter layout."""
    kind_of = {kind: a for a, spec in enumerate(config.affordances.specs) for kind in spec.objects}
    spec = town.layout.objects
    objects = np.zeros(len(spec), dtype=OBJECT)
    for name in OBJECT_SPEC.names or ():
        objects["full" if name == "stock" else name] = spec[name]
    objects["stock"] = spec["stock"]
    objects["affordance"] = [kind_of[town.kinds[kind]] for kind in spec["kind"]]
    for name in ("user", "head", "tail", "holder"):
        objects[name] = -1
    if away:
        objects["x"] = objects["y"] = -(10**6)
    return objects


def _with_colleagues(layout: Layout) -> Array:
    """Residents as an episode begins, those of one job linked in a ring."""
    residents = layout.residents.copy()
    residents["colleague"] = -1
    for job in layout.jobs:
        staff = layout.workers[job["first"] : job["first"] + job["workers"]]
        residents["colleague"][staff] = np.roll(staff, -1)
    return residents


def _pad(arrays: Sequence[Array], filler: Array | None = None) -> Array:
    """Stack along a new first axis; what is missing is zero, or the filler's first row."""
    shape = tuple(max(sizes) for sizes in zip(*(array.shape for array in arrays)))
    out = np.zeros((len(arrays), *shape), dtype=arrays[0].dtype)
    if filler is not None and len(filler):
        out[...] = filler[0]
    for k, array in enumerate(arrays):
        out[k][tuple(slice(0, size) for size in array.shape)] = array
    return out


def checked_actions(actions: ArrayLike, want: tuple[int, ...], who: str) -> Array:
    """Somebody's actions as an array of whole numbers of this shape; one sentence that begins with `who` when they are not."""
    try:
        found = np.asarray(actions)
    except ValueError:  # lists of different lengths
        raise UsageError(f"{who} lists of different lengths, expected whole numbers of shape {want}") from None
    if found.shape != want or found.dtype.kind not in "iu":
        raise UsageError(f"{who} {found.dtype}{found.shape}, expected whole numbers of shape {want}")
    return found.astype(np.int64, copy=False)
