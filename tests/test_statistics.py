"""Statistics against cases computed by hand, SciPy, and simulated coverage."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import ttest_1samp

from townlet import statistics as st


def test_iqm_is_rliables() -> None:
    """rliable: `scipy.stats.trim_mean(x, 0.25)`, also where a quarter of n is no whole number."""
    assert st.iqm([1, 2, 3, 4, 5, 6, 7, 8]) == 4.5  # 3, 4, 5, 6
    assert st.iqm([5, 1, 4, 2, 30]) == pytest.approx((2 + 4 + 5) / 3)
    assert st.iqm([1, 2, 3, 4, 5, 6, 7, 1e9]) == 4.5
    assert st.iqm([7.0]) == 7.0
    for n in range(1, 30):
        x = np.random.default_rng(n).normal(size=n)
        assert st.iqm(x) == pytest.approx(np.sort(x)[n // 4 : n - n // 4].mean())


POPULATIONS: dict[str, tuple[Callable[[np.random.Generator, int], NDArray[np.float64]], float]] = {  # draws of n, true mean
    "normal": (lambda rng, n: rng.normal(size=n), 0.0),
    "skewed by 1": (lambda rng, n: rng.gamma(4.0, size=n), 4.0),
    "skewed by 2": (lambda rng, n: rng.exponential(size=n), 1.0),
    "rare counts": (lambda rng, n: rng.poisson(0.8, n) / 8, 0.1),
    "rare harm": (
        lambda rng, n: rng.normal(77.0, 0.15, n) - (rng.random(n) < 1 / 16) * rng.uniform(5.0, 20.0, n),
        77.0 - 12.5 / 16,
    ),
}


def coverage(population: str, n: int, trials: int = 1500) -> float:
    """Share of samples whose interval holds the true mean."""
    draw, truth = POPULATIONS[population]
    rng = np.random.default_rng(n)
    found = (st.mean_interval(draw(rng, n), resamples=400, seed=k) for k in range(trials))
    return float(np.mean([interval.low <= truth <= interval.high for interval in found]))


@pytest.mark.parametrize("n", [3, 5, 10, 30])
@pytest.mark.parametrize("population", ["normal", "skewed by 1"])
def test_intervals_cover_what_they_claim(population: str, n: int) -> None:
    """A percentile bootstrap covers 76, 84, 90 and 94 % of normal samples of these sizes."""
    assert 0.92 <= coverage(population, n) <= 0.98


@pytest.mark.parametrize("n", [10, 30])
@pytest.mark.parametrize("population", ["skewed by 2", "rare counts"])
def test_from_ten_values_on_they_do_so_under_strong_skew(population: str, n: int) -> None:
    assert 0.92 <= coverage(population, n) <= 0.98


def test_under_strong_skew_few_values_cover_less_as_the_guide_says() -> None:
    """docs/evaluation.md: 88 % of exponential samples of five; no method does better without being told the shape."""
    assert 0.86 <= coverage("skewed by 2", 5) <= 0.91


def test_where_one_town_in_sixteen_goes_wrong_sixteen_cover_less_as_the_guide_says() -> None:
    """A third of such samples hold no wrong one, and then no method knows."""
    assert 0.6 <= coverage("rare harm", 16) <= 0.7


def test_an_interval_stays_within_what_was_seen() -> None:
    """Resamples without the three towns that lost somebody vary so little that the bare bootstrap put the lower end at 46."""
    returns = [66.0, 69.6, 72.8, *np.linspace(76.8, 77.2, 13)]
    found = st.mean_interval(returns)
    assert found.low == 66.0
    assert found.value < found.high < 77.2
    many = np.random.default_rng(0).normal(size=16)
    assert min(many) < st.mean_interval(many).low


def test_a_mean_interval_is_students_for_few_values_and_hears_skew_from_ten_on() -> None:
    few, many = [1.0, 2.0, 3.0, 4.0, 50.0], [1.0, 1.1, 1.2, 1.0, 1.3, 1.1, 1.0, 1.2, 1.1, 2.0]
    assert st.mean_interval(few) == st.student_interval(few)
    found, plain = st.mean_interval(many), st.student_interval(many)
    assert found.value == plain.value
    assert found.high - found.value > 2 * (found.value - found.low)  # a long tail to the right: the mean may lie far up
    assert st.mean_interval(many) == found != st.mean_interval(many, seed=1)
    assert st.mean_interval(many, level=0.5).high < found.high
    assert st.mean_interval(many, resamples=50) != found


def test_a_constant_has_no_width_and_a_lone_exception_falls_back_on_the_table() -> None:
    assert st.mean_interval([4.0] * 20) == (4.0, 4.0, 4.0)
    rare = [0.1] * 31 + [5.0]  # more than a third of all resamples are constants
    assert st.mean_interval(rare) == st.student_interval(rare)


def test_a_large_normal_sample_has_the_interval_of_normal_theory() -> None:
    x = np.random.default_rng(3).normal(10.0, 2.0, 400)
    _, low, high = st.mean_interval(x)
    half = 1.96 * x.std(ddof=1) / 20
    assert low == pytest.approx(x.mean() - half, abs=0.03)
    assert high == pytest.approx(x.mean() + half, abs=0.03)


def test_paired_difference_removes_what_the_pairs_share() -> None:
    base = np.array([1.0, 50.0, 300.0, 4.0, 90.0])
    effect = st.paired_difference(base + np.array([1.0, 1.1, 0.9, 1.0, 1.0]), base)
    assert effect.value == pytest.approx(1.0)
    assert effect.low > 0.0
    assert st.paired_difference(base, base) == (0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match=r"differ in length: 5 and 4"):
        st.paired_difference(base, base[:4])


@pytest.mark.parametrize(("degrees", "expected"), [(1, 12.7062), (2, 4.30265), (4, 2.77645), (9, 2.26216), (63, 1.99834)])
def test_student_quantiles_are_those_of_the_printed_table(degrees: int, expected: float) -> None:
    assert st.student_quantile(0.975, degrees) == pytest.approx(expected, rel=1e-5)


def test_student_interval_is_that_of_scipys_t_test() -> None:
    x = np.random.default_rng(0).gamma(2.0, size=12)
    for level in (0.5, 0.9, 0.95, 0.99):
        expected = ttest_1samp(x, 0.0).confidence_interval(level)
        assert st.student_interval(x, level=level)[1:] == pytest.approx((expected.low, expected.high))


def test_student_interval_by_hand() -> None:
    # mean 3, s = √2.5, n = 5: half width 2.77645 × √0.5
    interval = st.student_interval([1, 2, 3, 4, 5])
    assert interval.value == 3.0
    assert interval.high == pytest.approx(3 + 2.77645 * np.sqrt(0.5), rel=1e-5)
    assert interval.low == pytest.approx(6 - interval.high)
    assert st.student_interval([2.0]) == (2.0, -np.inf, np.inf)
    assert st.paired_difference([2, 4, 6, 8, 10], [1, 2, 3, 4, 5], method="student") == interval


def test_student_p_is_that_of_scipys_t_test() -> None:
    values = [0.4, 1.1, -0.2, 0.9, 0.5]
    assert st.student_p(values) == pytest.approx(ttest_1samp(values, 0.0).pvalue, rel=1e-12)
    assert st.student_p([2.0, 2.0]) == 0.0
    assert st.student_p([0.0, 0.0]) == 1.0
    assert math.isnan(st.student_p([1.0]))


def test_holm_by_hand() -> None:
    """Sorted 0.01 × 3, 0.02 × 2, 0.04 × 1, never falling; what is no test does not count."""
    assert st.holm([0.04, 0.01, float("nan"), 0.02]) == pytest.approx([0.04, 0.03, float("nan"), 0.04], nan_ok=True)
    assert st.holm([0.6, 0.7]) == [1.0, 1.0]


def test_cohens_d_by_hand() -> None:
    # means 2 and 4, both variances 1, pooled 1
    assert st.cohens_d([1, 2, 3], [3, 4, 5]) == pytest.approx(-2.0)
    assert st.cohens_d([1, 1], [1, 1]) == 0.0
    assert st.cohens_d([2, 2], [1, 1]) == np.inf


def test_cohens_d_against_a_constant_is_measured_in_the_samples_own_spread() -> None:
    """Mean 2, standard deviation 1, two away from 4: -2, not -2 √2 as with a pooled variance of (1 + 0) / 2."""
    assert st.cohens_d([1, 2, 3], 4.0) == pytest.approx(-2.0)
    assert st.cohens_d([1, 2, 3], [4, 4, 4]) == pytest.approx(-2.0)
    assert st.cohens_d([4, 4], [1, 2, 3]) == pytest.approx(2.0)


def test_gini_by_hand() -> None:
    assert st.gini([1, 1, 1, 1]) == pytest.approx(0.0)
    assert st.gini([0, 0, 0, 1]) == pytest.approx(0.75)
    assert st.gini([3, 1]) == pytest.approx(0.25)  # |3 − 1| / (2 · 2 · 2) × 2 pairs / 2
    assert st.gini([]) == 0.0
    assert st.gini([0.0, 0.0]) == 0.0


def test_total_variation_by_hand() -> None:
    assert st.total_variation([2, 2, 0], [0, 1, 1]) == pytest.approx(0.5)
    assert st.total_variation([3, 1], [30, 10]) == 0.0
    assert st.total_variation([0, 0], [1, 0]) == 1.0
    assert st.total_variation([0, 0], [0, 0]) == 0.0
    with pytest.raises(ValueError, match="differ in bins: 2 and 3"):
        st.total_variation([1, 1], [1, 1, 1])


def test_change_point_finds_a_step_and_doubts_noise() -> None:
    noise = np.random.default_rng(0).normal(0, 1, 40)
    step = noise + np.where(np.arange(40) >= 25, 4.0, 0.0)
    found = st.change_point(step)
    assert found is not None
    assert found.at == 25
    assert found.after - found.before == pytest.approx(4.0, abs=0.7)
    assert found.p_value < 0.01
    quiet = st.change_point(noise)
    assert quiet is not None
    assert quiet.p_value > 0.05
    assert st.change_point([1.0, 2.0, 3.0]) is None


def test_an_empty_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="empty sample"):
        st.iqm([])
