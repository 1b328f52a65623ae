"""Statistics against cases computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from townlet import statistics as st


def test_iqm_counts_border_values_by_their_share_inside_the_middle_half() -> None:
    assert st.iqm([1, 2, 3, 4, 5, 6, 7, 8]) == pytest.approx(4.5)  # 3, 4, 5, 6
    assert st.iqm([5, 1, 4, 2, 30]) == pytest.approx((0.75 * 2 + 4 + 0.75 * 5) / 2.5)
    assert st.iqm([7.0]) == 7.0


def test_iqm_is_deaf_to_one_outlier_and_reduces_the_last_axis() -> None:
    assert st.iqm([1, 2, 3, 4, 5, 6, 7, 1e9]) == pytest.approx(4.5)
    np.testing.assert_allclose(st.iqm([[1, 2, 3, 4], [10, 20, 30, 40]]), [2.5, 25.0])


def test_bootstrap_interval_matches_the_normal_theory_of_a_large_sample_and_its_seed() -> None:
    x = np.random.default_rng(3).normal(10.0, 2.0, 400)
    low, high = st.bootstrap_interval(x)
    half = 1.96 * x.std(ddof=1) / 20
    assert low == pytest.approx(x.mean() - half, abs=0.03)
    assert high == pytest.approx(x.mean() + half, abs=0.03)
    assert st.bootstrap_interval(x) == (low, high)
    assert st.bootstrap_interval(x, seed=1) != (low, high)
    narrow = st.bootstrap_interval(x, level=0.5)
    assert low < narrow[0] < narrow[1] < high


def test_bootstrap_of_a_constant_has_no_width() -> None:
    assert st.bootstrap_interval([4.0] * 9, st.iqm) == (4.0, 4.0)


def test_bootstrap_takes_a_statistic_that_knows_only_one_row() -> None:
    x = [1.0, 2.0, 4.0, 8.0]
    assert (
        st.bootstrap_interval(x, lambda row: float(np.mean(row))) == st.bootstrap_interval(x, np.mean) == st.bootstrap_interval(x)
    )


def test_paired_difference_removes_what_the_pairs_share() -> None:
    base = np.array([1.0, 50.0, 300.0, 4.0, 90.0])
    effect = st.paired_difference(base + np.array([1.0, 1.1, 0.9, 1.0, 1.0]), base)
    assert effect.value == pytest.approx(1.0)
    assert effect.above_zero
    assert not effect.below_zero
    assert not st.difference(base + 1.0, base).above_zero
    assert st.paired_difference(base, base) == (0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match=r"differ in length: 5 and 4"):
        st.paired_difference(base, base[:4])


@pytest.mark.parametrize(("degrees", "expected"), [(1, 12.7062), (2, 4.30265), (4, 2.77645), (9, 2.26216), (63, 1.99834)])
def test_student_quantiles_are_those_of_the_printed_table(degrees: int, expected: float) -> None:
    assert st.student_quantile(0.975, degrees) == pytest.approx(expected, rel=1e-5)


def test_student_interval_by_hand() -> None:
    # mean 3, s = √2.5, n = 5: half width 2.77645 × √0.5
    interval = st.student_interval([1, 2, 3, 4, 5])
    assert interval.value == 3.0
    assert interval.high == pytest.approx(3 + 2.77645 * np.sqrt(0.5), rel=1e-5)
    assert interval.low == pytest.approx(6 - interval.high)
    assert st.student_interval([2.0]) == (2.0, -np.inf, np.inf)
    assert st.paired_difference([2, 4, 6, 8, 10], [1, 2, 3, 4, 5], method="student") == interval


def test_cohens_d_by_hand() -> None:
    # means 2 and 4, both variances 1, pooled 1
    assert st.cohens_d([1, 2, 3], [3, 4, 5]) == pytest.approx(-2.0)
    assert st.cohens_d([1, 1], [1, 1]) == 0.0
    assert st.cohens_d([2, 2], [1, 1]) == np.inf


def test_gini_by_hand() -> None:
    assert st.gini([1, 1, 1, 1]) == pytest.approx(0.0)
    assert st.gini([0, 0, 0, 1]) == pytest.approx(0.75)
    assert st.gini([3, 1]) == pytest.approx(0.25)  # |3 − 1| / (2 · 2 · 2) × 2 pairs / 2
    assert st.gini([]) == 0.0
    assert st.gini([0.0, 0.0]) == 0.0


def test_distances_by_hand() -> None:
    assert st.ks_distance([1, 2, 3, 4], [3, 4, 5, 6]) == pytest.approx(0.5)
    assert st.ks_distance([1, 2], [1, 2]) == 0.0
    assert st.ks_distance([0], [9]) == 1.0
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
