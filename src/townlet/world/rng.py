"""Counter-based randomness: a draw is a hash of (seed, town, stream, tick, resident, index).

No generator walks through the program, so a draw does not depend on the batch, on threads or on the order of evaluation.
"""

from __future__ import annotations

import numpy as np

from townlet.world._jit import entry

WORLD, EVENTS, POLICY, SPAWN = range(4)

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


@entry
def key(seed: np.uint64, town: int, stream: int, tick: int) -> np.uint64:
    """The hoisted part of a draw: everything but resident and index."""
    h = mix(np.uint64(seed) + _GOLDEN)
    h = mix(h ^ (np.uint64(town) * _ODD + np.uint64(stream)))
    return mix(h ^ (np.uint64(tick) * _GOLDEN))


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
def fill_uniform(seed: np.uint64, towns: np.ndarray, stream: int, ticks: np.ndarray, index: int, out: np.ndarray) -> None:
    """One draw per town and resident: ``out (E, N)`` from ``towns (E,)`` and ``ticks (E,)``."""
    for e in range(out.shape[0]):
        k = key(seed, towns[e], stream, ticks[e])
        for i in range(out.shape[1]):
            out[e, i] = uniform(k, i, index)
