"""Ten hand-made ways of life, from saint to shirker, in the order a person would give them: what a yardstick must not confuse.

Each is the script with other numbers, or with a part of its options taken away.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from townlet.config.base import DAY
from townlet.config.town import BehaviorConfig
from townlet.envs.vector import VectorTown
from townlet.policy.runtime import Decision, ScriptedPolicy
from townlet.types import Array
from townlet.world.actions import CHAT, WAIT, WORK
from townlet.world.state import HALF_DISTANCE
from townlet.world.townspeople import PLAIN, choose_scripted

LATE = 8  # minutes after the start of a shift at which one who is always late arrives at the earliest


@dataclass(frozen=True)
class Character:
    """What sets a way of life apart from the plain script."""

    behavior: BehaviorConfig | None = field(default_factory=lambda: PLAIN)  # None: the config's, which is tuned
    never: tuple[str, ...] = ()  # actions and affordances it does not touch
    late: bool = False  # sets out so that it arrives after the grace
    treats_from: int | None = None  # from this hour on it buys what can be bought, as long as there is money
    chats: bool = False  # whenever it can
    idle: bool = False  # waits, whatever happens


def numbers(**changes: object) -> BehaviorConfig:
    return PLAIN.model_copy(update=changes)


CHARACTERS: dict[str, Character] = {
    "saint": Character(behavior=None),
    "plain": Character(),
    "slack": Character(numbers(meet_below={"hunger": 0.38, "hygiene": 0.38, "energy": 0.38})),  # sees to itself a little late
    "elbows": Character(numbers(avoid_rivals=False)),  # always the nearest, whoever is there
    "always_late": Character(late=True),
    "spender": Character(numbers(meet_below={"hunger": 0.7}), treats_from=12),
    "never_works": Character(never=("work",)),
    "never_washes": Character(never=("use_shower",)),
    "chat_farmer": Character(never=("work", "use_shower", "cook_meal"), chats=True),
    "shirker": Character(idle=True),
}
MUST_FAIL = ("never_works", "never_washes", "spender", "always_late", "chat_farmer")  # a score below 0.5 over a month


class CharacterPolicy(ScriptedPolicy):
    """Residents who all live as one of CHARACTERS."""

    def __init__(self, name: str) -> None:
        self.own = CHARACTERS[name]
        super().__init__(kind=name, behavior=self.own.behavior)

    def reset(self, vec: VectorTown) -> None:
        super().reset(vec)
        names, own = vec.catalogue.names, self.own
        self._banned = [i for i, name in enumerate(names) if name.partition(":")[0] in own.never]
        spec = vec.config.affordances.specs
        bought = {one.id for one in spec if one.price > 0 and one.effects.get("hunger", 0.0) > 0}
        cooked = {one.id for one in spec if one.takes_meals or one.gives_meals}
        self._buys, self._cooks = (
            [i for i, name in enumerate(names) if name.partition(":")[0] in ids] for ids in (bought, cooked)
        )

    def act(self, vec: VectorTown) -> Decision:
        E, N, A = vec.masks.shape
        masks, out = vec.masks.copy(), np.zeros((E, N), np.int64)
        masks[..., self._banned] = 0
        if self.own.late:
            masks[..., WORK] &= _late(vec)
        if self.own.treats_from is not None and self._buys:
            hour = vec.state.towns["minute"][:, None, None] // 60
            masks[..., self._cooks] &= ~(masks[..., self._buys].any(axis=-1, keepdims=True) & (hour >= self.own.treats_from))
        if not self.own.idle:
            choose_scripted(vec.features.reshape(E * N, -1), masks.reshape(E * N, A), self._script, out.reshape(-1))
        if self.own.chats:
            out = np.where(vec.masks[..., CHAT] == 1, CHAT, out)
        out = np.where(np.take_along_axis(vec.masks, out[..., None], axis=-1)[..., 0] == 1, out, WAIT)
        nothing = np.zeros((E, N), np.float32)
        return Decision(out, nothing, nothing, out)


def _late(vec: VectorTown) -> Array:
    """Who may set out for work now and come late.  # (E, N) bool"""
    towns = vec.state.towns
    start = vec.tables.jobs[towns["layout"][:, None], vec.state.residents["job"]]["start"]  # (E, N)
    seen = vec.features[..., vec.spec.offsets["work_distance"]].astype(np.float64)
    walk = HALF_DISTANCE * seen / np.maximum(1.0 - seen, 1e-3)
    since = (towns["minute"][:, None] - start + DAY // 2) % DAY - DAY // 2  # ticks since the start, below 0 before it
    return np.asarray(since + walk >= LATE)
