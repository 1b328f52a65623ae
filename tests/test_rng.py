"""Draws: a known hash, even, and dependent on nothing but their key."""

from __future__ import annotations

import numpy as np
import pytest

from townlet.world import rng

STREAMS = (rng.WORLD, rng.EVENTS, rng.POLICY, rng.SPAWN)


def draws(seed: int, towns: list[int], stream: int, tick: int, residents: int, index: int) -> np.ndarray:
    out = np.zeros((len(towns), residents))
    with np.errstate(over="ignore"):
        rng.fill_uniform(np.uint64(seed), np.array(towns), stream, np.full(len(towns), tick), index, out)
    return out


def test_the_mixer_is_that_of_splitmix64() -> None:
    """The first outputs of splitmix64 from the state 1234567 are known: each is mix(state + k × the golden gamma)."""
    state, golden, mask = 1234567, 0x9E3779B97F4A7C15, (1 << 64) - 1
    known = (6457827717110365317, 3203168211198807973, 9817491932198370423)
    with np.errstate(over="ignore"):
        assert tuple(int(rng.mix(np.uint64((state + (k + 1) * golden) & mask))) for k in range(3)) == known


def test_a_draw_does_not_depend_on_the_batch() -> None:
    alone = np.concatenate([draws(5, [town], rng.WORLD, 77, 3, 2) for town in (4, 9, 1)])
    np.testing.assert_array_equal(alone, draws(5, [4, 9, 1], rng.WORLD, 77, 3, 2))


def test_seed_town_stream_tick_resident_and_index_all_matter() -> None:
    base = draws(5, [1], rng.WORLD, 7, 2, 0)
    others = [
        draws(6, [1], rng.WORLD, 7, 2, 0),
        draws(5, [2], rng.WORLD, 7, 2, 0),
        draws(5, [1], rng.EVENTS, 7, 2, 0),
        draws(5, [1], rng.WORLD, 8, 2, 0),
        draws(5, [1], rng.WORLD, 7, 2, 1),
    ]
    assert all((other != base).all() for other in others)
    assert base[0, 0] != base[0, 1]


@pytest.mark.parametrize("stream", STREAMS)
def test_draws_are_even_and_uncorrelated(stream: int) -> None:
    """40,000 draws: the mean of a uniform is 0.5 ± 0.0014, each of ten bins holds 4,000 ± 60, neighbours do not correlate."""
    x = draws(11, list(range(200)), stream, 3, 200, 0)
    assert x.min() >= 0.0
    assert x.max() < 1.0
    assert abs(x.mean() - 0.5) < 0.006
    assert np.abs(np.histogram(x, bins=10, range=(0, 1))[0] - 4000).max() < 300
    assert abs(np.corrcoef(x[:, :-1].ravel(), x[:, 1:].ravel())[0, 1]) < 0.03
    assert abs(np.corrcoef(x[:-1].ravel(), x[1:].ravel())[0, 1]) < 0.03
    assert np.unique(x).size == x.size


def test_whole_numbers_stay_below_their_bound() -> None:
    with np.errstate(over="ignore"):
        k = rng.key(np.uint64(3), 0, rng.WORLD, 0)
        seen = [int(rng.below(k, i, 0, 7)) for i in range(500)]
    assert set(seen) == set(range(7))
