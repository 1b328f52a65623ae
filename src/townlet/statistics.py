"""Small-sample statistics over plain arrays: pure functions, seeded where they draw.

A statistic reduces the last axis, so that a bootstrap evaluates all its resamples at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Statistic = Callable[[Any], Any]


class Interval(NamedTuple):
    """An estimate and the interval around it."""

    value: float
    low: float
    high: float

    @property
    def above_zero(self) -> bool:
        return self.low > 0.0

    @property
    def below_zero(self) -> bool:
        return self.high < 0.0


class ChangePoint(NamedTuple):
    """The split of a series at which its mean moves most: ``x[:at]`` before, ``x[at:]`` after."""

    at: int
    before: float
    after: float
    p_value: float  # share of shuffled series with a split at least as strong


def mean(x: ArrayLike) -> Any:
    return np.mean(np.asarray(x, dtype=np.float64), axis=-1)


def iqm(x: ArrayLike) -> Any:
    """Interquartile mean: the mean of the middle half, values on its border counted by the share that lies inside.

    (1, 2, 3, 4, 5): the middle 2.5 values are 0.75 of 2, all of 3, 0.75 of 4.
    """
    values = np.sort(_sample(x), axis=-1)
    n = values.shape[-1]
    edges = np.arange(n + 1, dtype=np.float64)
    inside = np.clip(np.minimum(edges[1:], 0.75 * n) - np.maximum(edges[:-1], 0.25 * n), 0.0, 1.0)  # (n,)
    return values @ inside / (0.5 * n)


def bootstrap_interval(
    x: ArrayLike, stat: Statistic = mean, *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap of a statistic over the values of one sample."""
    values = _sample(x)
    draws = np.random.default_rng(seed).integers(0, values.size, (resamples, values.size))
    return _percentiles(_each(stat, values[draws]), level)


def estimate(x: ArrayLike, stat: Statistic = mean, *, level: float = 0.95, resamples: int = 2000, seed: int = 0) -> Interval:
    values = _sample(x)
    return Interval(float(stat(values)), *bootstrap_interval(values, stat, level=level, resamples=resamples, seed=seed))


def paired_difference(
    a: ArrayLike,
    b: ArrayLike,
    stat: Statistic = mean,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
    method: str = "bootstrap",
) -> Interval:
    """a − b, pair by pair. `method="student"` suits a handful of pairs, for which a bootstrap of the mean is too narrow."""
    first, second = _sample(a), _sample(b)
    if first.shape != second.shape:
        raise ValueError(f"paired samples differ in length: {first.size} and {second.size}; pair them by seed first")
    differences = first - second
    if method == "student":
        return student_interval(differences, level=level)
    return estimate(differences, stat, level=level, resamples=resamples, seed=seed)


def difference(
    a: ArrayLike, b: ArrayLike, stat: Statistic = mean, *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval:
    """stat(a) − stat(b) of two independent samples, each resampled on its own."""
    first, second = _sample(a), _sample(b)
    rng = np.random.default_rng(seed)
    left = _each(stat, first[rng.integers(0, first.size, (resamples, first.size))])
    right = _each(stat, second[rng.integers(0, second.size, (resamples, second.size))])
    return Interval(float(stat(first) - stat(second)), *_percentiles(left - right, level))


def student_interval(x: ArrayLike, *, level: float = 0.95) -> Interval:
    """mean ± t × s / √n."""
    values = _sample(x)
    centre = float(values.mean())
    if values.size < 2:
        return Interval(centre, -np.inf, np.inf)
    half = student_quantile(0.5 + level / 2, values.size - 1) * float(values.std(ddof=1)) / float(np.sqrt(values.size))
    return Interval(centre, centre - half, centre + half)


@cache
def student_quantile(p: float, degrees: int) -> float:
    """Quantile of Student's t for p in [0.5, 1), by bisection on the integral of its density.

    With x = √ν tan θ the distribution is F = 1/2 + ∫₀^θ cos^(ν−1) / ∫_{−π/2}^{π/2} cos^(ν−1).
    """
    grid = np.linspace(0.0, np.pi / 2, 20_001)
    density = np.cos(grid) ** (degrees - 1)
    steps = 0.5 * (density[1:] + density[:-1])
    cumulative = np.concatenate(([0.0], np.cumsum(steps)))
    angle = float(np.interp(p - 0.5, 0.5 * cumulative / cumulative[-1], grid))
    return float(np.sqrt(degrees) * np.tan(angle))


def cohens_d(a: ArrayLike, b: ArrayLike) -> float:
    """(mean a − mean b) / pooled standard deviation; 0 for equal constants, ±inf for different ones."""
    first, second = _sample(a), _sample(b)
    gap = float(first.mean() - second.mean())
    squares = float(((first - first.mean()) ** 2).sum() + ((second - second.mean()) ** 2).sum())
    degrees = first.size + second.size - 2
    pooled = float(np.sqrt(squares / degrees)) if degrees > 0 else 0.0
    if pooled == 0.0:
        return 0.0 if gap == 0.0 else float(np.copysign(np.inf, gap))
    return gap / pooled


def gini(x: ArrayLike) -> float:
    """Mean absolute difference over twice the mean, of values ≥ 0: 0 = all equal (or nothing at all), → 1 = one has it all."""
    values = np.sort(np.asarray(x, dtype=np.float64).ravel())
    total = float(values.sum())
    if total == 0.0:
        return 0.0
    n = values.size
    return float((2.0 * np.arange(1, n + 1) - n - 1) @ values) / (n * total)


def ks_distance(a: ArrayLike, b: ArrayLike) -> float:
    """Kolmogorov–Smirnov: the largest gap between two empirical distributions."""
    first, second = np.sort(_sample(a)), np.sort(_sample(b))
    points = np.concatenate((first, second))
    left = np.searchsorted(first, points, side="right") / first.size
    right = np.searchsorted(second, points, side="right") / second.size
    return float(np.abs(left - right).max())


def total_variation(p: ArrayLike, q: ArrayLike) -> float:
    """Half the sum of |p − q| of two normalised histograms over the same bins; an empty one equals only an empty one."""
    first, second = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    if first.shape != second.shape:
        raise ValueError(f"histograms differ in bins: {first.size} and {second.size}; count both over the same bins")
    masses = float(first.sum()), float(second.sum())
    if 0.0 in masses:
        return 0.0 if masses[0] == masses[1] else 1.0
    return float(0.5 * np.abs(first / masses[0] - second / masses[1]).sum())


def change_point(x: ArrayLike, *, shuffles: int = 500, seed: int = 0, margin: int = 2) -> ChangePoint | None:
    """The strongest single step in the mean, by the largest CUSUM; None for a series shorter than twice the margin."""
    values = _sample(x)
    if values.size < 2 * margin:
        return None
    rng = np.random.default_rng(seed)
    shuffled = rng.permuted(np.broadcast_to(values, (shuffles, values.size)), axis=1)
    scores = _step_scores(values[None], margin)[0]
    index = int(scores.argmax()) + margin
    stronger = int((_step_scores(shuffled, margin).max(axis=1) >= scores.max() * (1 - 1e-12)).sum())
    return ChangePoint(index, float(values[:index].mean()), float(values[index:].mean()), (stronger + 1) / (shuffles + 1))


def _step_scores(x: Floats, margin: int) -> Floats:
    """|Σ of the first k deviations| / √(k (n − k)) for k = margin … n − margin."""
    n = x.shape[1]
    k = np.arange(margin, n - margin + 1)
    sums = np.cumsum(x - x.mean(axis=1, keepdims=True), axis=1)  # (S, n)
    return np.asarray(np.abs(sums[:, k - 1]) / np.sqrt(k * (n - k)), dtype=np.float64)


def _sample(x: ArrayLike) -> Floats:
    values = np.asarray(x, dtype=np.float64)
    if values.size == 0:
        raise ValueError("an empty sample has no statistic; measure at least one value")
    return values


def _each(stat: Statistic, rows: Floats) -> Floats:
    """The statistic of each row; a function that does not reduce the last axis is called row by row."""
    values = np.asarray(stat(rows), dtype=np.float64)
    return values if values.shape == rows.shape[:1] else np.array([float(stat(row)) for row in rows])


def _percentiles(values: Floats, level: float) -> tuple[float, float]:
    low, high = np.quantile(values, ((1 - level) / 2, (1 + level) / 2))
    return float(low), float(high)
