"""A run in its decisions: one byte each. With config and seed they are the whole run: a town draws its luck by counters."""

from __future__ import annotations

import base64
import binascii
import zlib

import numpy as np

from townlet.envs.vector import VectorTown
from townlet.errors import TakeError
from townlet.ports import Decided
from townlet.sim.probes import Probe
from townlet.types import Array

NOBODY = 255  # no decision: the slot is empty or the town over
LARGEST = 64 << 20  # bytes of decisions, unpacked


class Decisions:
    """Decisions of everybody from one tick on. `targets` are the objects meant, + 1, where a policy names any."""

    def __init__(self, first: int, actions: Array, targets: Array | None = None) -> None:
        self.first, self.actions, self.targets = first, actions, targets  # (D, N) u1, (D, N) u2

    def text(self) -> str:
        """Slot by slot, bytes of actions, then of targets, then 1 or 3 (bytes of a decision); deflated, base64url."""
        parts = [self.actions.T.tobytes()]
        if self.targets is not None:
            parts.append(self.targets.T.astype("<u2").tobytes())
        parts.append(b"\x01" if self.targets is None else b"\x03")
        return base64.urlsafe_b64encode(zlib.compress(b"".join(parts), 9)).rstrip(b"=").decode()

    @classmethod
    def read(cls, text: str, first: int, residents: int) -> Decisions:
        try:
            packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            inflate = zlib.decompressobj()
            raw = inflate.decompress(packed, LARGEST)
        except (binascii.Error, zlib.error, ValueError) as error:
            raise TakeError(f"the decisions of the take are damaged ({error}); record it again") from None
        if not inflate.eof or inflate.unused_data:
            raise TakeError(f"the decisions of the take are cut, or more than {LARGEST} bytes; record it again")
        return cls._split(raw, first, residents)

    @classmethod
    def _split(cls, raw: bytes, first: int, residents: int) -> Decisions:
        """One byte a decision, or three where objects are named: the last byte tells."""
        flag, body = raw[-1:], raw[:-1]
        each = {b"\x01": 1, b"\x03": 3}.get(flag, 0)
        if not each or len(body) % (each * residents):
            raise TakeError(f"the take holds {len(body)} bytes of decisions, which is no whole number of {residents} residents'")
        count = len(body) // (each * residents)
        actions = np.frombuffer(body, np.uint8, count * residents).reshape(residents, count).T
        targets = None
        if each == 3:
            targets = (
                np.frombuffer(body, "<u2", count * residents, count * residents).reshape(residents, count).T.astype(np.uint16)
            )
        return cls(first, np.ascontiguousarray(actions), targets)


class DecisionRecorder(Probe):
    """Keeps the decisions of one town of a batch, over the episode under way; the next episode is recorded anew."""

    def __init__(self, town: int = 0) -> None:
        self.town = town
        self.first = 0  # tick of the first decision
        self._actions: list[bytes] = []  # of each decision; bytes, because a small town decides in 20 µs and an array costs one
        self._active: list[bytes] = []
        self._targets: list[Array | None] = []  # (N,) i8
        self._kinds = np.dtype(np.int64), np.dtype(np.uint8)  # of actions and of who was active

    def before_step(self, world: VectorTown, decision: Decided) -> None:
        town, meant = self.town, decision.targets
        if world.truncated[town, 0]:  # the episode is over: this step begins the next
            self._actions, self._active, self._targets = [], [], []
            return
        if not self._actions:
            self.first = int(world.state.towns[town]["tick"])
            self._kinds = decision.actions.dtype, world.active.dtype
        self._actions.append(decision.actions[town].tobytes())
        self._active.append(world.active[town].tobytes())
        self._targets.append(None if meant is None else meant[town].copy())

    @property
    def decisions(self) -> Decisions:
        count, (kind, flag) = len(self._actions), self._kinds
        actions = np.frombuffer(b"".join(self._actions), kind).reshape(count, -1 if count else 0)
        active = np.frombuffer(b"".join(self._active), flag).reshape(actions.shape)
        meant = [np.zeros(actions.shape[1]) if one is None else one + 1 for one in self._targets]
        targets = np.array(meant, np.uint16).reshape(actions.shape)
        return Decisions(self.first, np.where(active, actions, NOBODY).astype(np.uint8), targets if targets.any() else None)
