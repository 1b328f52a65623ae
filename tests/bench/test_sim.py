"""Rows of `townlet bench sim` that are about the town itself."""

from __future__ import annotations

import numpy as np

from townlet.bench.sim import batch, need_row


def test_towns_that_are_compared_differ_in_their_needs_only() -> None:
    """So what `need_row` times is the need, not another day."""
    one = batch("town_day", 2, ["policy.decision_interval=1"], hold=10)
    other = batch(
        "town_day", 2, ["policy.decision_interval=1", "needs.further_0={decay: 0.0005, weight: 0.01, act_below: 0}"], hold=10
    )
    for folk in (one, other):
        folk.run(60)
    assert len(other.vec.spec.fields) == len(one.vec.spec.fields) + 1
    assert np.array_equal(one.vec.masks, other.vec.masks)
    assert np.array_equal(one.vec.state.residents["x"], other.vec.state.residents["x"])
    assert np.array_equal(one.vec.state.residents["using"], other.vec.state.residents["using"])
    made = need_row(towns=1, decisions=2, repeats=1)
    assert made["value"] > 0
    assert made["ok"] == (made["value"] <= made["bar"])
