"""The row "looks at conflict": a network that reads conflict fields loses by their shuffle, one that does not loses nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from townlet.dto.evaluation import LOOKS
from townlet.envs.vector import VectorTown
from townlet.evaluation.scorecard import ShuffledConflict, evaluate
from townlet.evaluation.suites import Case
from townlet.evaluation.table import scorecard_text
from townlet.observations.spec import CONFLICT
from townlet.observer.scoreboard import scorecard_page
from townlet.policy.inference import Acted
from townlet.policy.runtime import NetworkPolicy
from townlet.world.townspeople import choose_scripted, make_script

TOWN = Case("two_bathrooms", "two_bathrooms", towns=4, days=1)


class ScriptedNetwork:
    """The script as a network, which looks at conflict by itself; `sees` notes what it was shown."""

    def __init__(self, vec: VectorTown, *, blind: bool = False) -> None:
        self.script = make_script(vec.config, vec.spec.feature_names, vec.catalogue.names)
        self.columns = np.array(vec.spec.columns(CONFLICT))
        self.blind = blind
        self.sees: list[Any] = []

    def initial_state(self, rows: int) -> Any:
        return np.zeros((rows, 0), np.float32)

    def act(self, features: Any, maps: Any, masks: Any, **_: Any) -> Acted:
        self.sees.append(features.copy())
        if self.blind:
            features = features.copy()
            features[:, self.columns] = 0.0
        actions = np.zeros(len(features), np.int64)
        choose_scripted(np.ascontiguousarray(features), masks, self.script, actions)
        nothing = np.zeros(len(features), np.float32)
        return Acted(actions, nothing, nothing, self.initial_state(len(features)))


def candidates() -> Case:
    return Case(TOWN.name, TOWN.scenario, towns=4, days=1, overrides=("policy.action_level=candidates",))


def test_the_conflict_fields_of_the_living_are_shuffled_and_nothing_else_is() -> None:
    vec = VectorTown("two_bathrooms", 3)
    network = ScriptedNetwork(vec)
    policy = ShuffledConflict(NetworkPolicy(network))
    policy.reset(vec)
    for _ in range(8):
        before = vec.features
        policy.act(vec)
        assert vec.features is before
        seen, true = network.sees[-1], before.reshape(-1, before.shape[2])
        rest = np.setdiff1d(np.arange(true.shape[1]), network.columns)
        np.testing.assert_array_equal(seen[:, rest], true[:, rest])
        rows = lambda table: sorted(map(tuple, table[:, network.columns]))  # noqa: E731
        assert rows(seen) == rows(true)
        vec.step(np.zeros(vec.active.shape, int))
    assert any((network.sees[k] != network.sees[k + 1]).any() for k in range(7))


def test_a_network_that_looks_loses_by_the_shuffle_and_one_that_does_not_loses_nothing() -> None:
    """The calm script chooses its object by the conflict fields in the catalogue `candidates`; with them hidden by distance."""
    policies = {
        "looks": lambda vec: NetworkPolicy(ScriptedNetwork(vec)),
        "blind": lambda vec: NetworkPolicy(ScriptedNetwork(vec, blind=True)),
        "random": "random",
    }
    card = evaluate(policies, [candidates()], looks=True)
    looks, blind, random = (card.cases[0].policy(name).looks for name in policies)
    assert random is None
    assert blind is not None
    assert looks is not None
    assert [blind[name].difference for name in LOOKS] == [0.0, 0.0]
    assert looks["return"].difference < 0.0 < looks["conflicts"].difference
    text = scorecard_text(card)
    assert "looks: return" in text
    assert "looks: what changes when the conflict fields are shuffled among residents." in text
    assert "looks looks at conflict: return -" in scorecard_page(card)
    again = evaluate(policies, [candidates()], looks=True)
    assert again.cases[0].policy("looks").looks == looks
    assert evaluate({"random": "random"}, [TOWN]).cases[0].policy("random").looks is None
