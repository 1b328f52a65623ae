"""A feed-forward network over `passes`: where its layers stand in a tile, its weights as the products read them, acting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from townlet.envs.threads import Call, run_in_threads
from townlet.policy import passes
from townlet.policy.arithmetic import LANES, RELU, TANH
from townlet.policy.inference import Acted, Acting, NumpyPolicy, check_inputs, town_means, weight_shapes
from townlet.policy.network import OBSERVATION_CLIP, VARIANCE_FLOOR, NetworkSpec
from townlet.types import Array, Doubles, Floats

ROWS_PER_THREAD = 192  # fewer are answered sooner by one thread
LARGE_PAGE, ASKS = 2**21 // 4, 2**22 // 4  # in numbers of four bytes


def can_fuse(spec: NetworkSpec) -> bool:
    """The passes know dense layers; convolutions and cells are torch's and NumPy's."""
    return spec.recurrent == "none" and spec.map_encoder != "cnn"


def as_it_acts(policy: NumpyPolicy) -> Acting:
    """The network of a checkpoint by the passes, where they know it: as it acted in training, on every processor."""
    return FusedNetwork.of_arrays(policy.spec, policy.weights) if can_fuse(policy.spec) else policy


class Segment(NamedTuple):
    """Columns of a block of a tile."""

    at: int  # of its first column in the first row
    size: int
    row: int  # from one row to the next

    @property
    def padded(self) -> int:
        return _padded(self.size)

    @property
    def columns(self) -> Array:
        return np.arange(self.at, self.at + self.size)


class WeightLayout:
    """Blocks of a tile, the plan of layers, and where each number, or run of them, of the parameter vector stands in `wide`."""

    def __init__(self, spec: NetworkSpec, names: Sequence[str]) -> None:
        self.spec, self.tile = spec, 0
        shapes = weight_shapes(spec)
        conflict, town = len(spec.conflict_columns) if spec.has_conflict_encoder else 0, spec.features if spec.town_size else 0
        self.plain, self.conflict, self.town = self._block(len(spec.plain_columns), conflict, town)
        self.observed = self.plain.padded + self.conflict.padded + self.town.padded  # columns of an observation without its map
        (self.map,) = self._block(spec.map_inputs if spec.sees_map else 0)
        inputs = {"feature": self.plain, "conflict": self.conflict, "map": self.map}
        seen = {name: segment for name, segment in inputs.items() if segment.size}
        beside = [spec.feature_size] if spec.town_size else []  # what the critic sees of the town, beside the last hidden layer
        sizes = [shapes[f"{name}.weight"][0] for name in seen]
        reached = self._block(*sizes, *([] if spec.trunk_sizes else beside))
        layers = [(x, y, True) for x, y in zip(seen.values(), reached)]
        owners: list[list[tuple[str, Array, Array]]] = [
            [(name, np.arange(y.size), np.arange(x.size))] for name, (x, y, _) in zip(seen, layers)
        ]  # per layer: parameter, its rows and its columns within the layer
        hidden, columns = _together(reached[: len(seen)])
        for k, size in enumerate(spec.trunk_sizes):
            reached = self._block(size, *(beside if k == len(spec.trunk_sizes) - 1 else []))
            layers.append((hidden, reached[0], False))
            owners.append([(f"trunk.{k}", np.arange(size), columns)])
            hidden, columns = _together(reached[:1])
        critic = columns
        if spec.town_size:
            layers.append((self.town, reached[-1], True))
            owners.append([("town", np.arange(spec.feature_size), np.arange(self.town.size))])
            hidden, critic = _together(reached)
        (self.out,) = self._block(spec.actions + 1)
        layers.append((hidden, self.out, False))
        owners.append([("policy", np.arange(spec.actions), columns), ("value", np.array([spec.actions]), critic)])
        self.places = (self.plain.row, self.map.at, self.map.row)
        self._place(layers, owners, {name: shapes[name] for name in names})

    def _block(self, *sizes: int) -> list[Segment]:
        """Segments side by side. The rows of a block are an odd number of lines of the cache apart: they do not share their
        places in it."""
        edges = np.cumsum([0, *map(_padded, sizes)]).tolist()
        row = (edges[-1] // LANES | 1) * LANES
        made = [Segment(self.tile + at, size, row) for at, size in zip(edges, sizes)]
        self.tile += row * passes.TILE
        return made

    def _place(
        self,
        layers: Sequence[tuple[Segment, Segment, bool]],
        owners: Sequence[Sequence[tuple[str, Array, Array]]],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> None:
        active = {"relu": RELU, "tanh": TANH}[self.spec.activation]
        lines, wide, turned = [], 0, 0
        place: dict[str, Array] = {}
        for (x, y, seen), parts in zip(layers, owners, strict=True):
            weights, bias = wide, wide + y.padded * x.padded
            for name, rows, columns in parts:
                place[f"{name}.weight"] = weights + rows[:, None] * x.padded + columns[None, :]
                place[f"{name}.bias"] = bias + rows
            lines.append(
                passes.PlannedLayer(
                    *(x.at, x.size, x.padded, y.at, y.size, y.padded),
                    weights=weights, bias=bias, turned=turned, active=0 if y is self.out else active, seen=int(seen),
                    input_row=x.row, output_row=y.row,
                )
            )  # fmt: skip
            wide, turned = bias + y.padded, turned + x.padded * y.padded
        self.plan = np.array(lines, passes.PLAN)  # (layers,)
        self.wide, self.turned = wide, turned
        self.place = np.concatenate([place[name].ravel() for name in shapes])
        begins = np.flatnonzero(np.diff(self.place, prepend=-2) != 1)  # of what lies side by side in both
        self.runs = np.stack([begins, self.place[begins], np.diff(begins, append=len(self.place))], axis=1)


class Observations(NamedTuple):
    """What the passes read of R rows."""

    x: Floats  # (R, X) arranged
    maps: Array  # (R, cells) u1 or f4


class Workspace:
    """What one thread writes into, and weights of its own: another core would take them away whenever it writes them."""

    def __init__(self, layout: WeightLayout) -> None:
        tile, by_action, loaded = layout.tile, layout.out.padded * passes.TILE, (layout.wide, layout.turned)
        self.act, self.grad, self.wide, self.turned, self.chances, self.logs, self.lanes = zeros_together(
            tile, tile, *loaded, by_action, by_action, passes.ERRORS + passes.TILE
        )
        self.loads = 0  # of the weights, which of them is here
        self.ones, self.ratios = np.ones(1, np.float32), np.zeros(2 * passes.TILE)
        self.row, self.weights = np.empty(layout.spec.features, np.float32), np.empty(layout.spec.actions)

    @property
    def learning(self) -> tuple[Array, ...]:
        """What `learn_ppo` and `learn_cloning` need beside a tile and its gradients."""
        return self.ones, self.chances, self.logs, self.lanes, self.ratios


class FusedNetwork(Acting):
    """Rows are shared out to threads, which changes no bit."""

    def __init__(self, spec: NetworkSpec, names: Sequence[str], threads: int = 1) -> None:
        self.spec, self.threads = spec, threads
        self.layout = WeightLayout(spec, names)
        self.names = tuple(names)
        self.spaces = [Workspace(self.layout) for _ in range(threads)]
        self._vector = np.full(len(self.layout.place), np.nan, np.float32)
        self._goal = np.concatenate([self.layout.plain.columns, self.layout.conflict.columns])
        self._place = np.empty(spec.features, np.int64)  # of each feature in an arranged row
        self._place[list(spec.column_order)] = self._goal
        self._loads = 0
        self.statistics: Mapping[str, Array] = {}
        self._rooms: dict[str, Floats] = {}

    @classmethod
    def of_arrays(cls, spec: NetworkSpec, arrays: Mapping[str, Array], threads: int = 1) -> FusedNetwork:
        names = [name for name in arrays if not name.endswith(("_mean", "_var", "_count"))]
        network = cls(spec, names, threads)
        network.load(np.concatenate([np.asarray(arrays[name], np.float32).ravel() for name in names]), arrays)
        return network

    def load(self, vector: Floats, statistics: Mapping[str, Array]) -> None:
        """Take over parameters as one vector, and the running statistics by name (which are read when they are needed)."""
        self.statistics = statistics
        self._loads += bool(passes.renew(self._vector, vector))

    def run(self, calls: Callable[[Workspace, int], list[Call]], shares: int) -> None:
        """What calls(workspace, k) names, for every k below `shares`, each in a thread; there may be as many as `threads`."""
        run_in_threads(self.threads, [self._loaded(space) + calls(space, k) for k, space in enumerate(self.spaces[:shares])])

    def _loaded(self, space: Workspace) -> list[Call]:
        """The call that gives a thread the weights as they are now."""
        if space.loads == self._loads:
            return []
        space.loads = self._loads
        return [Call(passes.spread, (self._vector, self.layout.plan, self.layout.runs, space.wide, space.turned))]

    def share(self, calls: Callable[[Workspace, int, int], list[Call]], rows: int) -> None:
        """What calls(workspace, begin, end) names, over all rows."""
        shares = max(1, min(self.threads, rows // ROWS_PER_THREAD))
        edges = [rows * k // shares for k in range(shares + 1)]
        self.run(lambda space, k: calls(space, edges[k], edges[k + 1]), shares)

    # --- observations -----------------------------------------------------------------------------------------------
    def observed(self, features: Floats, maps: Array | None, rows: Array | None = None, *, room: str) -> Observations:
        """Rows of features (…, B, F) and maps (…, B, C, H, W), all by default. Whoever asks for the same room writes over it."""
        flat = np.require(features.reshape(-1, features.shape[-1]), np.float32, ["C", "W"])
        rows = np.arange(len(flat)) if rows is None else rows
        x = self._arrange(flat, rows, room)
        if self.spec.town_size:
            x[:, self.layout.town.columns] = self._town(features)[rows]
        cells = self._cells(maps, len(flat))
        return Observations(x, cells if len(rows) == len(cells) else cells[rows])

    def _arrange(self, features: Floats, rows: Array, room: str) -> Floats:
        """In a room that is kept, because fresh memory costs more than filling it; padding stays zero."""
        kept, normaliser = self._rooms.get(room), self._normaliser()
        if kept is None or len(kept) < len(rows):
            kept = self._rooms[room] = np.zeros((len(rows), self.layout.observed), np.float32)
        x = kept[: len(rows)]
        self.share(
            lambda space, begin, end: [
                Call(passes.arrange, (features, rows, begin, end, self._place, *normaliser, space.row, x))
            ],
            len(rows),
        )
        return x

    def _town(self, features: Floats) -> Floats:
        """What the critic sees of a resident's town, for every row of features (…, B, F).  # (R, F), or (R, 0)"""
        flat = np.require(features.reshape(-1, features.shape[-1]), np.float32, ["C", "W"])
        if not self.spec.town_size:
            return np.zeros((len(flat), 0), np.float32)
        whole = self._arrange(flat, np.arange(len(flat)), "whole")
        return town_means(whole[:, self._goal].reshape(features.shape), self.spec.town_size).reshape(flat.shape)

    def _cells(self, maps: Array | None, rows: int) -> Array:
        """The maps of all rows, flat.  # (R, cells) u1 or f4: a sample may have either"""
        if not self.spec.sees_map:
            return np.zeros((rows, 0), np.uint8)
        assert maps is not None
        flat = maps.reshape(-1, self.layout.map.size)
        return np.require(flat, np.uint8 if flat.dtype == np.uint8 else np.float32, ["C", "W"])

    def _normaliser(self) -> tuple[Floats, Floats, np.float32]:
        if not self.spec.normalize_observations:
            nothing = np.zeros(0, np.float32)
            return nothing, nothing, np.float32(0)
        mean, var = self.statistics["observation_mean"], self.statistics["observation_var"]
        return mean.astype(np.float32), np.sqrt(var + VARIANCE_FLOOR).astype(np.float32), np.float32(OBSERVATION_CLIP)

    # --- acting -----------------------------------------------------------------------------------------------------
    def outputs(
        self, features: Floats, maps: Array | None, then: Callable[[Workspace, int, int, Floats], list[Call]] | None = None
    ) -> Floats:
        """Logits, then the value in units of the running statistics, of rows (…, B).  # (R, A + 1)"""
        layout, town, normaliser = self.layout, self._town(features), self._normaliser()
        flat = np.require(features.reshape(-1, features.shape[-1]), np.float32, ["C", "W"])
        cells, out = self._cells(maps, len(flat)), np.empty((len(flat), self.spec.actions + 1), np.float32)

        def calls(space: Workspace, begin: int, end: int) -> list[Call]:
            given = (
                layout.plan, space.wide, space.turned, space.act, flat, self._place, *normaliser, space.row, town, layout.town.at,
                cells, layout.places, begin, end, out,
            )  # fmt: skip
            return [Call(passes.answer, given), *([] if then is None else then(space, begin, end, out))]

        self.share(calls, len(flat))
        return out

    def answer(self, features: Floats, maps: Array | None, state: Floats) -> tuple[Floats, Floats, Floats]:
        out = self.outputs(features, maps)
        return out[:, :-1], self.in_units_of_return(out[:, -1]), state

    def act(
        self,
        features: Floats,  # (B, F)
        maps: Array | None,  # (B, C, H, W)
        masks: Array,  # (B, A)
        *,
        draws: Doubles | None = None,  # (B,) uniform in [0, 1); None chooses greedily
        state: Floats | None = None,
        starts: Array | None = None,
    ) -> Acted:
        check_inputs(self.spec, features, maps)
        rows = len(features)
        actions, log_probs = np.empty(rows, np.int64), np.empty(rows, np.float32)
        allowed = np.require(masks, np.bool_, ["C", "W"])
        given = np.full(rows, -1.0) if draws is None else np.require(draws, np.float64, ["C", "W"])

        def choose(space: Workspace, begin: int, end: int, out: Floats) -> list[Call]:
            return [Call(passes.choose, (out, allowed, given, space.weights, begin, end, actions, log_probs))]

        out = self.outputs(features, maps, choose)
        return Acted(actions, log_probs, self.in_units_of_return(out[:, -1]), self.initial_state(rows))

    def in_units_of_return(self, values: Floats) -> Floats:
        mean, var = self.statistics["value_mean"][0], self.statistics["value_var"][0]
        return np.asarray(values * np.sqrt(var + VARIANCE_FLOOR) + mean, np.float32)


def _padded(size: int) -> int:
    return -(-size // LANES) * LANES


def _together(segments: Sequence[Segment]) -> tuple[Segment, Array]:
    """Neighbours of a block as one segment, and which of its columns are not padding."""
    first, last = segments[0], segments[-1]
    columns = np.concatenate([segment.columns for segment in segments]) - first.at
    return Segment(first.at, last.at + last.size - first.at, first.row), columns


def zeros_together(*sizes: int) -> list[Floats]:
    """Zeros that each begin at a line of the cache, side by side from the beginning of a large page, where the system has them:
    NumPy asks for such pages from ASKS on. A tile lies on sixty small ones, whose places a core would look up again and again."""
    edges = np.cumsum([0, *map(_padded, sizes)]).tolist()
    spare = np.zeros(max(edges[-1] + LARGE_PAGE, ASKS), np.float32)
    skip = -spare.ctypes.data // 4 % LARGE_PAGE
    return [spare[skip + at : skip + at + size] for at, size in zip(edges, sizes)]
