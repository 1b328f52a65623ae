"""Scripted and random townspeople: inside the mask, a function of what they see, and good enough to live on."""

from __future__ import annotations

import numpy as np
import pytest

from townlet.config.loader import load_config, shipped_configs
from townlet.envs.vector import VectorTown
from townlet.policy.runtime import make_policy
from townlet.testing import check_policy
from townlet.world.state import CONFLICT_REASONS, EVENTS
from townlet.world.townspeople import choose_random, choose_scripted, make_script

SMALL = [name for name in sorted(shipped_configs("scenarios")) if name not in ("metropolis", "market_square")]


@pytest.mark.parametrize("scenario", SMALL)
@pytest.mark.parametrize("policy", ["scripted", "random"])
def test_choices_are_inside_the_mask_in_every_scenario(scenario: str, policy: str) -> None:
    vec = VectorTown(scenario, 4, start="random")
    who = make_policy(policy, vec)
    for _ in range(40):
        actions = who.act(vec).actions
        assert np.take_along_axis(vec.masks, actions[..., None], axis=2).all()
        vec.step(actions)
        assert not vec.illegal.any()


def test_the_script_keeps_to_any_mask_whatever_it_sees() -> None:
    """Random features and random masks: nothing in the script goes around the mask."""
    vec = VectorTown("town_day", 1)
    draws = np.random.default_rng(0)
    features = draws.random((4000, vec.features.shape[2])).astype(np.float32)
    masks = (draws.random((4000, vec.num_actions)) < 0.4).astype(np.uint8)
    masks[:, 0] = 1
    out = np.full(4000, -1, np.int64)
    script = make_script(vec.config, vec.spec.feature_names, vec.catalogue.names)
    choose_scripted(features, masks, script, out)
    assert masks[np.arange(4000), out].all()
    again = np.full(4000, -1, np.int64)
    choose_scripted(features[::-1].copy(), masks[::-1].copy(), script, again)
    np.testing.assert_array_equal(out, again[::-1])  # no memory


def test_random_ones_choose_evenly_among_the_allowed() -> None:
    """Three of eight, 30,000 draws: 10,000 ± 82 each."""
    masks = np.zeros((30_000, 8), np.uint8)
    masks[:, [0, 3, 7]] = 1
    out = np.full(30_000, -1, np.int64)
    choose_random(masks, np.random.default_rng(1).random(30_000), out)
    counts = np.bincount(out, minlength=8)
    assert set(np.flatnonzero(counts)) == {0, 3, 7}
    assert np.abs(counts[[0, 3, 7]] - 10_000).max() < 500


@pytest.mark.parametrize("policy", ["scripted", "random", "schedule"])
def test_townspeople_pass_the_shipped_check(policy: str) -> None:
    vec = VectorTown("town_day", 2)
    check_policy(make_policy(policy, vec), "town_day", decisions=12)


class Week:
    """Some towns over some days under one policy, and the figures a town is judged by."""

    def __init__(self, scenario: str, policy: str, towns: int, days: int, seed: int = 5) -> None:
        vec = VectorTown(load_config(scenario, [f"scenario.episode_ticks={days * 1440}"]), towns, seed=seed)
        who = make_policy(policy, vec, seed=seed)
        self.events: dict[str, int] = dict.fromkeys(EVENTS, 0)
        self.reasons = dict.fromkeys(CONFLICT_REASONS, 0)
        low = np.zeros((towns, vec.num_residents), bool)
        lowest, tense, decisions, self.total = [], 0, 0, 0.0
        rivalry = vec.spec.offsets["rivalry_max"]
        needs = [vec.spec.offsets[f"need_{need}"] for need in vec.spec.needs]
        while not vec.state.towns["over"].any():
            active = vec.active == 1
            tense += int((vec.features[..., rivalry][active] > 0.7).sum())
            decisions += int(active.sum())
            vec.step(who.act(vec).actions)
            self.total += float(vec.rewards.sum())
            low |= (vec.features[..., needs] <= 0.3).any(axis=-1)
            if vec.state.towns["minute"][0] == 0 or vec.state.towns["over"].any():
                lowest.append(low)
                low = np.zeros_like(low)
            for row in vec.events():
                self.events[EVENTS[row["kind"]]] += 1
                if EVENTS[row["kind"]] == "queue_conflict":
                    self.reasons[CONFLICT_REASONS[row["reason"]]] += 1
        self.resident_days = towns * vec.num_residents * days
        self.sufficient = 1.0 - np.mean([day.mean() for day in lowest])
        shifts = self.events["shift_on_time"] + self.events["shift_late"]
        self.attendance = 1.0 - self.events["shift_absent"] / max(shifts, 1)
        self.conflicts = self.events["queue_conflict"] / self.resident_days
        self.quarrels = self.events["quarrel"] / max(self.events["queue_conflict"], 1)
        self.tense = tense / decisions
        self.score = self.total / self.resident_days

    def __str__(self) -> str:
        return (
            f"sufficient {self.sufficient:.3f}, attendance {self.attendance:.3f}, conflicts {self.conflicts:.2f} a day, "
            f"quarrels {self.quarrels:.3f}, tense {self.tense:.3f}, score {self.score:.2f}, exits {self.events['exit']}"
        )


def test_scripted_people_live_well_in_town_day_and_random_ones_do_not() -> None:
    """Needs above 0.3 on 90 % of resident-days, 90 % of shifts attended, nobody collapses; random ones lose 15 a day."""
    scripted, random = Week("town_day", "scripted", 16, 3), Week("town_day", "random", 16, 3)
    print(f"scripted: {scripted}\nrandom:   {random}")
    assert scripted.sufficient >= 0.90, str(scripted)
    assert scripted.attendance >= 0.90, str(scripted)
    assert scripted.events["exit"] == 0, str(scripted)
    assert scripted.conflicts >= 1.0, str(scripted)
    assert scripted.score - random.score >= 15.0, f"{scripted}; {random}"


@pytest.mark.parametrize("scenario", ["town_day", "rush_hour", "two_bathrooms"])
def test_tension_is_there_without_being_everywhere(scenario: str) -> None:
    """5 to 60 % of decisions see a rivalry above 0.7, a tenth of the conflicts become quarrels."""
    week = Week(scenario, "scripted", 8 if scenario != "rush_hour" else 3, 2)
    print(f"{scenario}: {week}")
    assert 0.05 <= week.tense <= 0.60, str(week)
    assert week.quarrels >= 0.10, str(week)


@pytest.mark.slow
def test_nobody_collapses_in_a_week_of_town_day() -> None:
    week = Week("town_day", "scripted", 32, 7)
    print(week)
    assert week.events["exit"] == 0, str(week)
    assert week.sufficient >= 0.90, str(week)
    assert week.attendance >= 0.90, str(week)
