"""Towns of different sizes in one batch."""

from __future__ import annotations

import numpy as np

from townlet.config.loader import load_config
from townlet.envs.vector import VectorTown
from townlet.policy.runtime import make_policy
from townlet.scenarios.random_town import varied_town
from townlet.world.invariants import problems

DAY = 144  # decisions


def test_a_small_town_is_lived_in_beside_a_larger_one() -> None:
    small, large = load_config("two_bathrooms"), varied_town(0)
    large = small.model_copy(update={"scenario": large.scenario, "jobs": large.jobs})
    alone, together = VectorTown(small, 2, seed=5), VectorTown([large, small], 2, seed=5)
    people = alone.num_residents
    assert (people, together.num_residents) == (8, 24)
    assert together.state.grid.shape[1] > alone.state.grid.shape[1]
    seen, slot = np.ones(alone.features.shape[-1], dtype=bool), together.spec.offsets["embedding_slot_norm"]
    seen[slot] = False  # the share of the batch's slots
    np.testing.assert_array_equal(together.features[1, :people][:, seen], alone.features[1][:, seen])
    np.testing.assert_array_equal(together.masks[1, :people], alone.masks[1])
    share = VectorTown([large, small], 1, seed=5, first_town=1)  # as a worker holds it
    np.testing.assert_array_equal(share.features[0], together.features[1])
    policy = make_policy("scripted", together, seed=3)
    policy.reset(together)
    for decision in range(2 * DAY):
        together.step(policy.act(together).actions)
        if decision % 36 == 0:
            assert problems(together) == []
        assert not together.active[1, people:].any()
    assert together.state.residents[1, :people]["present"].all()
    assert (together.state.residents[1, :people]["needs"][:, : len(small.needs)] > 0.1).all()
