"""The studio: any moment, in any order, is the very town; changes branch it; recorded decisions are it again."""

from __future__ import annotations

import numpy as np
import pytest

from townlet.config import load_config
from townlet.envs.vector import VectorTown
from townlet.errors import InterruptedRun, TakeError, TownletError, UsageError
from townlet.observer import studio as studio_module
from townlet.observer.header import table_of
from townlet.observer.reel import NO_DECISION
from townlet.observer.stage import RecordedDecisions
from townlet.observer.studio import KnownTake, Studio
from townlet.observer.take import Change, Take, parse_take
from townlet.policy.runtime import POLICIES, make_policy
from townlet.ports import Decided
from townlet.sim.loop import SimulationLoop
from townlet.sim.probes import Probe
from townlet.sim.recorder import DecisionRecorder
from townlet.world.state import EVENTS

PERTURBATION, EXIT = EVENTS.index("perturbation"), EVENTS.index("exit")


def whole_day(studio: Studio, known: KnownTake, group: str, name: str) -> np.ndarray:
    table = table_of(known.header)
    return np.concatenate([reel.column(table, group, name) for reel in studio.reels(known.take.id)])


@pytest.fixture(scope="module")
def open_day() -> tuple[Studio, KnownTake]:
    studio = Studio()
    return studio, studio.new_take(load_config("town_day"), seed=7)


@pytest.mark.parametrize(
    ("scenario", "policy"), [("town_day", "scripted"), ("newcomer", "random"), ("queue_conflict", "schedule")]
)
def test_the_reels_of_a_day_are_that_day(scenario: str, policy: str) -> None:
    """Every frame, event, decision, reward and life, against a town that is stepped beside it."""
    studio = Studio()
    known = studio.new_take(load_config(scenario), seed=3, policy=policy)
    vec = VectorTown(scenario, 1, seed=3)
    vec.start_filming()
    loop = SimulationLoop(vec, make_policy(policy, vec, seed=3))
    films, events, actions, rewards = [], [], [], []
    while not vec.state.towns[0]["over"]:
        active = vec.active[0] != 0
        actions.append(np.where(active, loop.decide().actions[0], NO_DECISION))
        loop.step()
        films.append(vec.film[0].copy())
        events.append(vec.events())
        rewards.append(vec.rewards[0].copy())
    film, rows, n = np.concatenate(films), np.concatenate(events), vec.num_residents
    rows = rows[rows["tick"] < known.header["ticks"]]
    x = film[:, :n].astype(int) + 256 * film[:, n : 2 * n].astype(int)
    assert (whole_day(studio, known, "residents", "x") == x[: known.header["ticks"]]).all()
    assert (whole_day(studio, known, "residents", "doing") == film[: known.header["ticks"], 5 * n : 6 * n]).all()
    for name in ("tick", "kind", "actor", "rival", "object", "actor_life", "waited"):
        assert (whole_day(studio, known, "events", name)[:, 0] == rows[name]).all(), name
    assert (whole_day(studio, known, "decisions", "action") == np.array(actions)).all()
    assert np.abs(whole_day(studio, known, "decisions", "reward") - np.array(rewards)).max() <= 0.00051
    assert known.header["ticks"] == len(whole_day(studio, known, "town", "minute"))
    lives = whole_day(studio, known, "lives", "life")
    assert lives.shape == (known.header["reels"], n)
    if scenario == "newcomer":
        assert (lives[-1] > 0).any()


def test_a_studio_that_closes_ends_what_it_shoots_at_the_next_decision() -> None:
    studio = Studio()
    known = studio.new_take(load_config("queue_conflict"))
    stage = studio.new_stage(known.take)
    stage.shoot()
    studio.close()
    with pytest.raises(InterruptedRun):
        stage.shoot()
    with pytest.raises(InterruptedRun):
        studio.reel(known.take.id, 0)


def test_any_order_gives_the_same_reels(open_day: tuple[Studio, KnownTake]) -> None:
    studio, known = open_day
    inorder = [studio.reel(known.take.id, k) for k in range(known.header["reels"])]
    other = Studio()
    other.open(known.take)
    order = np.random.default_rng(0).permutation(known.header["reels"])
    assert all(other.reel(known.take.id, int(k)) == inorder[k] for k in order)
    with pytest.raises(TakeError, match="there is no reel"):
        studio.reel(known.take.id, known.header["reels"])


def test_a_change_branches_and_leaves_the_past_alone(open_day: tuple[Studio, KnownTake]) -> None:
    studio, known = open_day
    who = [person["id"] for person in known.header["people"]]
    other = studio.branch(
        known.take.id,
        [
            Change(at=303, do="perturb blackout 60"),
            Change(at=310, do=f"exit {who[0]}"),
            Change(at=320, do="objects -= shower_1"),
            Change(at=330, do=f"force {who[1]} home"),
        ],
    )
    assert other.parent == known.take.id
    a, b = (whole_day(studio, one, "residents", "doing") for one in (known, other))
    assert (a[:303] == b[:303]).all()
    assert (a != b).any()
    kinds, ticks = (whole_day(studio, other, "events", name)[:, 0] for name in ("kind", "tick"))
    assert ticks[kinds == PERTURBATION].tolist() == [303]
    assert 310 in ticks[kinds == EXIT]
    actions = whole_day(studio, other, "decisions", "action")
    assert other.header["actions"][actions[33, 1]] == "home"
    gone = [thing for thing in other.header["things"] if thing["until"] is not None]
    assert [(thing["id"], thing["from"], thing["until"]) for thing in gone] == [("shower_1", 0, 320)]
    used = whole_day(studio, other, "objects", "user")[:, [t["id"] for t in other.header["things"]].index("shower_1")]
    assert used[:320].any()
    assert not used[320:].any()
    at = whole_day(studio, other, "residents", "thing")
    uses = (b & 127) == other.header["doing"].index("uses")
    for tick in (100, 200, 400, 500):  # objects keep their index although one is gone
        for slot in np.flatnonzero(uses[tick]):
            assert whole_day(studio, other, "objects", "user")[tick, at[tick, slot] - 1] == slot + 1


@pytest.mark.parametrize(
    "do",
    ["exit nobody", "force alice fly", "objects -= throne_1", "resident alice.wallet = -2", "policy.interval = 5", "newcomer"],
)
def test_a_change_the_town_refuses_makes_no_take(open_day: tuple[Studio, KnownTake], do: str) -> None:
    studio, known = open_day
    before = list(studio.takes)
    with pytest.raises(TownletError):
        studio.branch(known.take.id, [Change(at=300, do=do.replace("alice", known.header["people"][0]["id"]))])
    with pytest.raises(UsageError, match="outside the take"):
        studio.branch(known.take.id, [Change(at=90_000, do="perturb blackout 10")])
    assert list(studio.takes) == before


@pytest.mark.parametrize(("scenario", "policy"), [("town_day", "random"), ("queue_conflict", "schedule")])
def test_recorded_decisions_are_the_run_again(scenario: str, policy: str) -> None:
    vec = VectorTown(scenario, 1, seed=5)
    recorder = DecisionRecorder(vec)
    SimulationLoop(vec, make_policy(policy, vec, seed=5), [recorder]).run(vec.config.scenario.episode_ticks)
    again = VectorTown(scenario, 1, seed=5)
    played = RecordedDecisions(recorder.decisions)
    played.reset(again)
    SimulationLoop(again, played).run(again.config.scenario.episode_ticks)
    assert again.digest() == vec.digest()
    studio = Studio()
    direct = studio.new_take(load_config(scenario), seed=5, policy=policy)
    recipe = direct.take.model_dump(mode="json") | {"policy": "recorded", "decisions": studio.decisions(direct.take.id).text()}
    told = studio.open(parse_take(recipe))
    for group, name in (("residents", "x"), ("residents", "doing"), ("objects", "user")):
        assert (whole_day(studio, direct, group, name) == whole_day(studio, told, group, name)).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_what_was_decided_is_never_written_again(policy: str) -> None:
    """A recorder of a lone town keeps the arrays themselves."""
    vec, copies = VectorTown("queue_conflict", 1, seed=5), []
    kept: list[Decided] = []

    class Copying(Probe):
        def before_step(self, world: VectorTown, decision: Decided) -> None:
            kept.append(decision)
            copies.append((decision.actions.copy(), None if decision.targets is None else decision.targets.copy()))

    SimulationLoop(vec, make_policy(policy, vec, seed=5), [Copying()]).run_decisions(30)
    for decision, (actions, targets) in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(decision.actions, actions)
        assert (decision.targets is None) == (targets is None)
        assert targets is None or (decision.targets == targets).all()


@pytest.mark.parametrize("decisions", [7, 24, 25, 31])
def test_the_recorder_holds_the_episode_under_way(decisions: int) -> None:
    vec = VectorTown(load_config("queue_conflict", ["scenario.episode_ticks=240"]), 3, seed=5)
    policy, recorder, seen = make_policy("random", vec, seed=5), DecisionRecorder(vec, town=2), []

    class Naive(Probe):
        def before_step(self, world: VectorTown, decision: Decided) -> None:
            seen.append(decision.actions[2].copy())
            if world.truncated[2, 0]:
                seen.clear()

    loop = SimulationLoop(vec, policy, [recorder, Naive()])
    loop.run_decisions(decisions)
    assert recorder.decisions.first == 0
    assert recorder.decisions.actions.tolist() == [row.tolist() for row in seen]
    late = DecisionRecorder(vec)
    loop.add_hook(late)
    loop.run_decisions(2)
    assert late.decisions.first == max(0, int(vec.state.towns[0]["tick"]) - 20)


def test_a_take_that_cannot_be_shot_here_says_what_is_missing(open_day: tuple[Studio, KnownTake]) -> None:
    studio, known = open_day
    recipe = known.take.model_dump(mode="json")
    for change, words in (
        ({"config": "0" * 16}, "not known here"),
        ({"town": "atlantis", "config": "0" * 16}, "not known here"),
        ({"policy": "0123456789abcdef"}, "not known here"),
        ({"start": "0" * 12}, "snapshot"),
    ):
        with pytest.raises(TakeError, match=words):
            studio.open(Take.model_validate_json(parse_take(recipe | change).model_dump_json()))


def test_what_the_studio_keeps_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studio_module, "MOST_TAKES", 3)
    monkeypatch.setattr(studio_module, "REEL_BYTES", 4000)
    studio, config = Studio(), load_config("queue_conflict")
    for seed in range(6):
        known = studio.new_take(config, seed=seed)
        for k in range(min(4, known.header["reels"])):
            studio.reel(known.take.id, k)
    assert len(studio.takes) == 3
    assert len(studio._stages) <= studio_module.MOST_STAGES
    assert studio._reel_bytes == sum(map(len, studio._reels.values())) <= 4000
