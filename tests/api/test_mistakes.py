"""A wrong call is answered with one sentence that names what was found and what was expected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import townlet
import townlet.envs
from townlet.errors import UsageError
from townlet.types import Array

MAKING: dict[str, tuple[Callable[[], Any], str]] = {
    "a seed in words": (lambda: townlet.parallel_env(seed="one"), "seed is 'one', expected a whole number from 0 to"),
    "half a seed": (lambda: townlet.parallel_env(seed=1.5), "seed is 1.5, expected a whole number"),
    "cycles in words": (lambda: townlet.parallel_env(max_cycles="5"), "max_cycles is '5', expected a whole number, 1 or more"),
    "no cycles": (lambda: townlet.parallel_env(max_cycles=0), "max_cycles is 0, expected"),
    "one text": (lambda: townlet.parallel_env(overrides="seed=1"), r"overrides are a list of texts.* found str"),
    "a dict": (lambda: townlet.parallel_env(overrides={"seed": 1}), r"overrides are a list of texts.* found dict"),
    "half a town": (lambda: townlet.make_vec(num_towns=1.5, scenario="town_day"), "num_towns is 1.5, expected"),
    "towns in words": (lambda: townlet.parallel_vec(num_envs="4"), "num_towns is '4', expected"),
    "names of a batch": (lambda: townlet.parallel_vec(names="mine"), "names is 'mine', expected own or numbered"),
    "infos of a batch": (lambda: townlet.parallel_vec(infos="full"), "infos is 'full', expected none or numeric"),
    "a number of neighbours": (lambda: gymnasium.make("Townlet/TownDay-v0", neighbours=5), "neighbours is 5, expected scripted"),
}
MEASURING: dict[str, tuple[Callable[[], Any], str]] = {
    "a list of policies": (lambda: evaluated(["scripted", "random"]), r"the policy is \['scripted', 'random'\].*go by name"),
    "nobody": (lambda: evaluated(None), "the policy is None, expected a name such as scripted"),
    "a function": (lambda: evaluated(lambda town: town.masks.argmax(-1)), "gave ndarray, .*own_policy"),
    "a name as a function": (lambda: townlet.own_policy("scripted"), "own_policy was given 'scripted', expected a function"),
    "beyond the last action": (lambda: evaluated(own(99)), "gave actions from 99 to 99, expected 0 to 16"),
    "below the first": (lambda: evaluated(own(-1)), "gave actions from -1 to -1, expected 0 to 16"),
    "ragged": (lambda: evaluated(townlet.own_policy(lambda town: [[1], [1, 2]])), "gave lists of different lengths"),
    "half a day": (lambda: evaluated("random", days=0.5), "days is 0.5, expected a whole number, 1 or more"),
    "ages": (lambda: evaluated("random", days=10**9), "an episode of 1,440,000,000,000 ticks is asked for"),
    "too many threads": (lambda: evaluated("random", threads=10**6), "threads is 1000000, expected a whole number from 1 to 64"),
    "no towns": (lambda: evaluated("random", towns=0), "towns is 0, expected a whole number, 1 or more"),
    "nowhere": (lambda: townlet.evaluate("random", []), "there is no town to evaluate in"),
    "a baseline apart": (
        lambda: evaluated({"mine": "random", "script": "scripted"}, baseline="scrip"),
        "the baseline 'scrip' is none of the policies; did you mean 'script'",
    ),
    "epochs in words": (lambda: townlet.train(mode="bc", epochs="3"), "epochs is '3', expected a whole number"),
    "progress please": (lambda: townlet.train(mode="rollout", progress=True), "progress is True, expected an object with begin"),
    "ticks in words": (lambda: townlet.capture("town_day", "new", ticks="60"), "ticks is '60', expected a whole number"),
}
BAD_ACTIONS = (1.5, "work", None, [1], np.array([1]), float("nan"), 10**30)


def evaluated(policies: Any, **options: Any) -> townlet.Scores:
    return townlet.evaluate(policies, "two_bathrooms", **({"towns": 2} | options))


def own(action: int) -> Any:
    return townlet.own_policy(lambda town: np.full(town.active.shape, action))


@pytest.mark.parametrize("mistake", [*MAKING, *MEASURING])
def test_a_wrong_call_is_answered_with_one_sentence(mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "epochs" in mistake or "progress" in mistake:
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    call, sentence = (MAKING | MEASURING)[mistake]
    with pytest.raises(UsageError, match=sentence):
        call()
    assert not list(tmp_path.iterdir()), "a refused call leaves nothing behind"


@pytest.mark.parametrize("action", BAD_ACTIONS, ids=repr)
def test_an_action_is_the_index_of_an_action(action: object) -> None:
    env = townlet.parallel_env("queue_conflict", map="none")
    solo: Any = gymnasium.make("Townlet/TwoBathrooms-v0", map="none").unwrapped
    env.reset(seed=2), solo.reset(seed=2)
    for act in (lambda: env.step({"alice": action}), lambda: solo.step(action)):
        with pytest.raises(UsageError, match=r"the action of alice is .*, expected a whole number"):
            act()


def test_actions_of_a_parallel_env_go_by_agent() -> None:
    env = townlet.parallel_env("queue_conflict", map="none")
    env.reset(seed=2)
    for actions in ([0, 0, 0], None):
        with pytest.raises(UsageError, match="expected a dict from agents to whole numbers"):
            env.step(actions)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="there is no agent 'alcie'; those here now are alice, bob, carol"):
        env.step({"alcie": 1})
    assert env.step({"newcomer_1": 1})[1].keys() == {"alice", "bob", "carol"}, "who is not here now may be told to act"


@pytest.mark.parametrize(
    ("actions", "sentence"),
    [
        ({"alice": [0, 0]}, "actions are of alice; expected a dict of alice, bob, carol"),
        ([0, 0, 0], "expected a dict of alice, bob, carol"),
        (
            {key: [0.5, 0.7] for key in ("alice", "bob", "carol")},
            r"the actions of alice are float64\(2,\), expected whole numbers",
        ),
        ({key: [0, 0, 0] for key in ("alice", "bob", "carol")}, r"the actions of alice are int64\(3,\).* of shape \(2,\)"),
    ],
)
def test_actions_of_a_batch_go_by_agent_and_town(actions: Any, sentence: str) -> None:
    many = townlet.parallel_vec("queue_conflict", 2, map="none")
    many.reset(seed=2)
    with pytest.raises(UsageError, match=sentence):
        many.step(actions)


def test_neighbours_decide_for_everybody() -> None:
    def none_of_them(town: townlet.VectorTown) -> Array:
        return np.zeros(3, np.int64)

    env: Any = gymnasium.make("Townlet/TownDay-v0", neighbours=none_of_them, map="none").unwrapped
    env.reset(seed=2)
    with pytest.raises(UsageError, match=r"the neighbours gave int64\(3,\), expected whole numbers of shape \(1, 8\)"):
        env.step(0)


def test_infos_of_a_batch_can_be_left_out() -> None:
    many = townlet.parallel_vec("queue_conflict", 2, map="none", infos="none")
    assert set(map(len, many.reset(seed=2)[1].values())) == {0}


def test_a_folder_and_a_loaded_policy_are_policies() -> None:
    loaded = townlet.load_policy("random")
    assert evaluated({"a": loaded, "b": "random"}).card.cases[0].policy("a").kind == "random"
    with pytest.raises(UsageError, match="there is no policy 'nothing_here'"):
        evaluated(Path("nothing_here"))
