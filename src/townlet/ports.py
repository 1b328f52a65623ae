"""The seams of the pipeline as Protocols: what stands on either side of them can be replaced, in tests and by users.

Arrays have the axes E towns, N resident slots, F features, A actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from townlet.types import Array, Floats, Record


class Decided(Protocol):
    """What a policy chose for every slot at one decision, and what it thought of it. Who watches may keep the arrays: nobody
    writes into them again."""

    @property
    def actions(self) -> NDArray[np.int64]: ...  # (E, N) catalogue index
    @property
    def log_probs(self) -> Floats: ...  # (E, N) of the action taken
    @property
    def values(self) -> Floats: ...  # (E, N) 0 without a critic
    @property
    def expert(self) -> NDArray[np.int64] | None: ...  # (E, N) what the script would do
    @property
    def targets(self) -> NDArray[np.int64] | None: ...  # (E, N) object meant, -1 leaves it to the controller


@runtime_checkable
class WorldRuntime(Protocol):
    """A batch of towns that is stepped decision by decision; the buffers belong to it and are overwritten by each step."""

    @property
    def num_towns(self) -> int: ...  # E
    @property
    def num_residents(self) -> int: ...  # N
    @property
    def num_actions(self) -> int: ...  # A
    @property
    def features(self) -> Floats: ...  # (E, N, F) the observation at the coming decision
    @property
    def maps(self) -> NDArray[np.uint8] | None: ...  # (E, N, C, H, W)
    @property
    def masks(self) -> NDArray[np.uint8]: ...  # (E, N, A)
    @property
    def active(self) -> NDArray[np.uint8]: ...  # (E, N) 1: takes a true decision now
    @property
    def rewards(self) -> Floats: ...  # (E, N) of the step just made
    @property
    def terminated(self) -> NDArray[np.uint8]: ...  # (E, N)
    @property
    def truncated(self) -> NDArray[np.uint8]: ...  # (E, N)

    def reset(self, seed: int | None = None) -> None: ...
    def step(self, actions: Array, targets: Array | None = None) -> None: ...
    def events(self) -> Array: ...  # rows of the last step
    def digest(self) -> str: ...
    def save(self) -> dict[str, Array]: ...
    def restore(self, arrays: Mapping[str, Array]) -> None: ...


World = TypeVar("World", bound=WorldRuntime, contravariant=True)


@runtime_checkable
class PolicyBackend(Protocol[World]):
    """Whoever decides for residents: a script, chance, a trained network."""

    @property
    def kind(self) -> str: ...
    @property
    def has_values(self) -> bool: ...  # it has a critic

    def reset(self, vec: World, /) -> None: ...
    def act(self, vec: World, /) -> Decided: ...


@runtime_checkable
class TelemetrySink(Protocol):
    """Where training records go."""

    def write(self, record: Record) -> None: ...
    def close(self) -> None: ...


@runtime_checkable
class Hook(Protocol[World]):
    """Something that watches a simulation: capture, events, probes, the live page. The loop does not know which."""

    def before_decision(self, world: World) -> None: ...
    def before_step(self, world: World, decision: Decided) -> None: ...
    def after_step(self, world: World, decision: Decided) -> None: ...
    def finish(self, world: World) -> None: ...
