"""A run as its decisions, one byte each. With config and seed they are the whole run: all draws are counter-based."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections import deque

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
            raise TakeError(
                f"the take holds {len(body)} bytes of decisions, which is not a whole number of {residents} residents'"
            )
        count = len(body) // (each * residents)
        actions = np.frombuffer(body, np.uint8, count * residents).reshape(residents, count).T
        targets = None
        if each == 3:
            targets = (
                np.frombuffer(body, "<u2", count * residents, count * residents).reshape(residents, count).T.astype(np.uint16)
            )
        return cls(first, np.ascontiguousarray(actions), targets)


class DecisionRecorder(Probe):
    """Keeps the decisions of one town of a batch, over the episode under way, as bytes: to keep whole arrays costs more."""

    def __init__(self, world: VectorTown, town: int = 0) -> None:
        self.world, self.town = world, town
        most = -(-world.config.scenario.episode_ticks // world.interval)
        self._kept: deque[bytes | tuple[bytes, bytes]] = deque(maxlen=most)  # actions of each decision, and targets if named
        self._alone = world.num_towns == 1

    def before_step(self, world: VectorTown, decision: Decided) -> None:
        chosen, meant = decision.actions if self._alone else decision.actions[self.town], decision.targets
        self._kept.append(chosen.tobytes() if meant is None else (chosen.tobytes(), meant[self.town].tobytes()))

    @property
    def decisions(self) -> Decisions:
        """Of this episode. Decisions for an empty place are among them; they move nobody."""
        residents, interval = self.world.num_residents, self.world.interval
        made = -(-int(self.world.state.towns[self.town]["tick"]) // interval)  # in this episode; it may have been joined late
        kept = list(self._kept)[max(0, len(self._kept) - made) :] if made else []
        actions, targets = np.zeros((len(kept), residents), np.uint8), np.zeros((len(kept), residents), np.uint16)
        for k, one in enumerate(kept):
            chosen, meant = one if isinstance(one, tuple) else (one, None)
            actions[k] = _row(chosen, residents)
            if meant is not None:
                targets[k] = _row(meant, residents) + 1
        return Decisions((made - len(kept)) * interval, actions, targets if targets.any() else None)


def _row(kept: bytes, residents: int) -> Array:
    """(N,), in whichever size of whole numbers a policy decides."""
    return np.frombuffer(kept, f"i{len(kept) // residents}")
