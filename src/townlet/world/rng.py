"""Counter-based randomness: a draw is a hash of (seed, town, stream, moment, resident, index).

No generator walks through the program, so a draw does not depend on the batch, on threads or on the order of evaluation.
A moment is an episode and a tick of it, in the stream of days an episode and a day: no two episodes of a town share their luck.
"""

from __future__ import annotations

import numpy as np

from townlet.world._jit import entry, leaf

WORLD, DAILY, POLICY, SPAWN = range(4)  # streams; POLICY is drawn with the seed of whoever decides

# Every draw there is: each has an index of its own, whatever its stream. It is made per resident unless something else is named.
(
    TURN,  # WORLD: who acts first in a tick; one for the town
    CHAT,  # WORLD: whether a chat succeeds
    CHAT_QUALITY,  # WORLD
    QUARREL,  # WORLD: whether a conflict becomes a quarrel; one for each of the first CONFLICT_REASONS, in their order
    _QUARREL_2,
    _QUARREL_3,
    STRIKE,  # DAILY: whether a perturbation strikes today; per kind
    STRIKE_MINUTE,  # DAILY: and when; per kind
    SHARE,  # DAILY: whom the script controls today
    SLIP,  # POLICY: whether ε strikes
    PICK,  # POLICY: one of the legal actions
    ACT,  # POLICY: the draw of a network
    START_MINUTE,  # SPAWN: clock time of an episode's first tick; one for the town
    FIRST_DECISIONS,  # SPAWN: length of a staggered town's first episode; one for the town
    FIRST_WALLET,  # SPAWN: wallet at the start of an episode, where it is drawn
    NEWCOMER_DELAY,  # SPAWN
    NEWCOMER_PROFILE,  # SPAWN
    SHUFFLE,  # POLICY: whose conflict fields a network is shown, where it is asked whether it looks at them
) = range(18)
LATER_QUARRELS = 18  # and up: WORLD, those of the reasons after the third

_A = np.uint64(0xBF58476D1CE4E5B9)
_B = np.uint64(0x94D049BB133111EB)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ODD = np.uint64(0xD1342543DE82EF95)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_UNIT = 1.0 / 9007199254740992.0


@entry
def mix(x: np.uint64) -> np.uint64:
    """The finaliser of splitmix64."""
    x = (x ^ (x >> _S30)) * _A
    x = (x ^ (x >> _S27)) * _B
    return x ^ (x >> _S31)


@leaf
def quarrel_of(reason: int) -> int:
    """The draw by which a conflict of that reason becomes a quarrel."""
    return QUARREL + reason if reason < 3 else LATER_QUARRELS + reason - 3


@entry
def key(seed: np.uint64, town: int, stream: int, episode: int, when: int) -> np.uint64:
    """The hoisted part of a draw: everything but resident and index. `when` is the tick, in DAILY the day."""
    h = mix(np.uint64(seed) + _GOLDEN)
    h = mix(h ^ (np.uint64(town) * _ODD + np.uint64(stream)))
    h = mix(h ^ (np.uint64(episode) * _GOLDEN))  # mixed before the tick comes in: no sum of the two can be met twice
    return mix(h ^ (np.uint64(when) * _GOLDEN))


@leaf
def when(clock: np.void, stream: int) -> int:
    """The part of the moment that runs within an episode."""
    return int(clock["day"] if stream == DAILY else clock["tick"])


@leaf
def now(clock: np.void, stream: int) -> np.uint64:
    """The key of a town's draws at this moment; `clock` is its TOWN record."""
    return key(clock["seed"], clock["id"], stream, clock["episode"], when(clock, stream))


@entry
def bits(k: np.uint64, resident: int, index: int) -> np.uint64:
    return mix(k ^ (np.uint64(resident) * _ODD + np.uint64(index) * _GOLDEN))


@entry
def uniform(k: np.uint64, resident: int, index: int) -> float:
    """A float64 in [0, 1)."""
    return float(bits(k, resident, index) >> _S11) * _UNIT


@entry
def below(k: np.uint64, resident: int, index: int, bound: int) -> int:
    """A whole number in [0, bound)."""
    return int(uniform(k, resident, index) * bound)


@entry
def fill_uniform(seed: np.uint64, towns: np.ndarray, stream: int, index: int, out: np.ndarray) -> None:
    """One draw per town and resident at this moment; the seed need not be the town's. ``out (E, N)``, ``towns (E,)`` TOWN."""
    for e in range(out.shape[0]):
        clock = towns[e]
        k = key(seed, clock["id"], stream, clock["episode"], when(clock, stream))
        for i in range(out.shape[1]):
            out[e, i] = uniform(k, i, index)
