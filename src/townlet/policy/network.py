"""The description of a policy network: torch builds it, NumPy runs it, the checkpoint stores it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property

import msgspec

from townlet.config.learning import NetworkConfig, PPOConfig
from townlet.errors import CheckpointError, UsageError
from townlet.observations.spec import CONFLICT, ObservationSpec

MAP_ENCODERS = ("none", "linear", "cnn")
CELLS = {"none": 0, "gru": 1, "lstm": 2}  # kind -> vectors of state per resident
OBSERVATION_CLIP = 10.0  # normalised observations stay inside ± this
VARIANCE_FLOOR = 1e-8
CNN_KERNEL = 3
WIDEST = 1 << 16  # of anything: beyond it a description is a mistake or an attack
ACTIVATIONS = ("relu", "tanh")


@dataclass(frozen=True)
class NetworkSpec:
    """Inputs, outputs and sizes. `conflict_columns` feed the conflict encoder alone; the others the feature encoder."""

    features: int
    actions: int
    map_shape: tuple[int, int, int] | None = None  # (C, H, W)
    conflict_columns: tuple[int, ...] = ()
    feature_size: int = 128
    conflict_size: int = 32
    map_encoder: str = "none"
    map_size: int = 64
    map_channels: tuple[int, ...] = (16, 32)
    trunk_sizes: tuple[int, ...] = (128,)
    recurrent: str = "none"
    recurrent_size: int = 128
    activation: str = "relu"
    normalize_observations: bool = False
    town_size: int = 0  # N > 0: the critic also sees the mean over the N slots of the town; 0: its own observation alone

    def __post_init__(self) -> None:
        if self.map_encoder not in MAP_ENCODERS:
            raise UsageError(f"the map encoder is {self.map_encoder!r}; it must be one of {', '.join(MAP_ENCODERS)}")
        if self.recurrent not in CELLS:
            raise UsageError(f"the recurrent cell is {self.recurrent!r}; it must be one of {', '.join(CELLS)}")
        if self.activation not in ACTIVATIONS:
            raise UsageError(f"the activation is {self.activation!r}; it must be one of {', '.join(ACTIVATIONS)}")
        sizes = (
            *self.map_channels,
            *self.trunk_sizes,
            *(self.map_shape or ()),
            self.feature_size,
            self.conflict_size,
            self.map_size,
        )
        widest = max(*sizes, self.features, self.actions, self.recurrent_size, self.town_size, len(sizes))
        if widest > WIDEST:
            raise UsageError(f"a part of the network is {widest} wide; at most {WIDEST} are built")
        if min(sizes) < 0 or min(self.recurrent_size, self.town_size) < 0:
            raise UsageError("a size of the network is below 0")
        if self.features < 1 or self.actions < 1:
            raise UsageError(
                f"the network has {self.features} features and {self.actions} actions; it needs at least one of each"
            )
        if self.sees_map and self.map_shape is None:
            raise UsageError(f"the map encoder is {self.map_encoder!r} but observations have no map; set it to 'none'")
        if len(set(self.conflict_columns)) != len(self.conflict_columns) or any(
            not 0 <= column < self.features for column in self.conflict_columns
        ):
            raise UsageError(f"conflict columns {self.conflict_columns} must be distinct and below {self.features}")
        if len(self.plain_columns) == 0:
            raise UsageError("every feature is a conflict column; at least one must be left for the feature encoder")
        if self.map_encoder == "cnn" and min(self.cnn_sizes[-1]) < 1:
            raise UsageError(
                f"a map of {self.map_shape} is too small for the convolution; use fewer map_channels or map encoder 'linear'"
            )

    @classmethod
    def of(cls, observed: ObservationSpec, network: NetworkConfig, ppo: PPOConfig, town_size: int = 0) -> NetworkSpec:
        """The network that a config asks for over the observations of a town; with `town_size` the critic is central. Every field
        of NetworkConfig is one of the same name here."""
        sees_map = network.map_encoder != "none" and observed.map_shape[0] > 0
        return cls(
            features=len(observed.fields),
            actions=len(observed.action_names),
            map_shape=observed.map_shape if sees_map else None,
            conflict_columns=observed.columns(CONFLICT),
            recurrent=ppo.recurrent,
            normalize_observations=ppo.normalize_observations,
            town_size=town_size,
            **network.model_dump() | ({} if sees_map else {"map_encoder": "none"}),
        )

    @property
    def sees_map(self) -> bool:
        return self.map_encoder != "none"

    @property
    def has_conflict_encoder(self) -> bool:
        return self.conflict_size > 0 and len(self.conflict_columns) > 0

    @cached_property
    def plain_columns(self) -> tuple[int, ...]:
        if not self.has_conflict_encoder:
            return tuple(range(self.features))
        taken = set(self.conflict_columns)
        return tuple(column for column in range(self.features) if column not in taken)

    @cached_property
    def column_order(self) -> tuple[int, ...]:
        """Plain columns first, conflict columns last: the order in which the encoders slice a row."""
        return self.plain_columns + (self.conflict_columns if self.has_conflict_encoder else ())

    @property
    def state_width(self) -> int:
        """Numbers of recurrent state per resident: h for a GRU, h then c for an LSTM."""
        return CELLS[self.recurrent] * self.recurrent_size

    @property
    def cnn_strides(self) -> tuple[int, ...]:
        return (2, *[1] * (len(self.map_channels) - 1))

    @property
    def window(self) -> tuple[int, int, int]:
        """(C, H, W) of the map."""
        if self.map_shape is None:
            raise UsageError("the network does not see the map; choose a map encoder for a config that observes one")
        return self.map_shape

    @cached_property
    def cnn_sizes(self) -> tuple[tuple[int, int], ...]:
        """(H, W) after each convolution."""
        _, height, width = self.window
        sizes = []
        for stride in self.cnn_strides:
            height, width = (height - CNN_KERNEL) // stride + 1, (width - CNN_KERNEL) // stride + 1
            sizes.append((height, width))
        return tuple(sizes)

    @property
    def map_inputs(self) -> int:
        """Inputs of the map's dense layer."""
        if self.map_encoder == "cnn":
            return self.map_channels[-1] * self.cnn_sizes[-1][0] * self.cnn_sizes[-1][1]
        return math.prod(self.window)

    @property
    def encoded_width(self) -> int:
        conflict = self.conflict_size if self.has_conflict_encoder else 0
        return self.feature_size + conflict + (self.map_size if self.sees_map else 0)

    @property
    def hidden_width(self) -> int:
        """What the heads are given."""
        return self.recurrent_size if self.recurrent != "none" else (self.encoded_width, *self.trunk_sizes)[-1]

    @property
    def critic_width(self) -> int:
        return self.hidden_width + (self.feature_size if self.town_size else 0)

    def to_json(self) -> dict[str, object]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> NetworkSpec:
        known = {field.name for field in fields(cls)}
        if set(data) != known:
            raise CheckpointError(
                f"the network of the checkpoint has the fields {sorted(data)}; this version knows {sorted(known)}; "
                "use the version of Townlet that wrote it"
            )
        try:
            return msgspec.convert(dict(data), cls)
        except (msgspec.ValidationError, OverflowError, UsageError) as error:
            raise CheckpointError(f"the network of the checkpoint cannot be built: {error}") from error
