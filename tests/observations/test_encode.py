"""Observations: names stand where the encoder writes, groups can be blinded, masks and maps show what is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from townlet.config.loader import load_config
from townlet.config.scenario import PLACE_VERBS
from townlet.envs.vector import VectorTown
from townlet.observations.spec import CONFLICT, MAPS
from townlet.policy.runtime import make_policy
from townlet.testing import tiny_town
from townlet.world.actions import CHAT
from townlet.world.state import ENERGY, HUNGER, HYGIENE, PERTURBATIONS, SHIFT_STATES
from world_tools import Play, people

FEUD = [{"a": "alice", "b": "bob", "rivalry": 0.9}, {"a": "alice", "b": "carol", "trust": 0.5, "familiarity": 0.2}]


def scene(*overrides: str) -> Play:
    """Alice beside the near shower, which Bob uses; Carol far off."""
    residents = people(alice=(8, 2), bob=(6, 2), carol=(2, 6))
    play = Play(tiny_town(*overrides, residents=residents, scenario={"ties": FEUD}))
    return play.go(bob="use_shower").go(1)


def look(play: Play) -> dict[str, float]:
    """What Alice sees, without letting a tick pass: the state is set back after a look."""
    return dict(zip(play.vec.spec.feature_names, play.vec.features[0, 0].tolist()))


def changed(edit: Callable[[Play], Any], play: Play | None = None) -> set[str]:
    """Names of what Alice sees differently one tick later, because of an edit."""
    play = play or scene()
    saved = play.vec.save()
    play.go()
    plain = look(play)
    play.vec.restore(saved)
    edit(play)
    play.go()
    edited = look(play)
    play.vec.restore(saved)
    return {name for name in plain if plain[name] != edited[name]}


def of_alice(field: str, value: Any) -> Callable[[Play], None]:
    def edit(play: Play) -> None:
        play["alice"][field] = value

    return edit


def of_alices_needs(need: int, value: float) -> Callable[[Play], None]:
    def edit(play: Play) -> None:
        play["alice"]["needs"][need] = value

    return edit


def of_town(field: str, index: int, value: int) -> Callable[[Play], None]:
    def edit(play: Play) -> None:
        play.town[field][index] = value

    return edit


def of_tie(slot: int, field: str, value: float) -> Callable[[Play], None]:
    def edit(play: Play) -> None:
        play.vec.state.ties[0, 0, slot][field] = value

    return edit


SHOWER = {
    f"use_shower_{how}_{field}" for how in ("near", "calm") for field in ("dx", "dy", "distance", "queue", "busy", "rivalry")
}
FIELDS: dict[str, tuple[Callable[[Play], Any], set[str]]] = {
    "hunger": (of_alices_needs(HUNGER, 0.3), {"need_hunger"}),
    "hygiene": (of_alices_needs(HYGIENE, 0.3), {"need_hygiene"}),
    "energy": (of_alices_needs(ENERGY, 0.3), {"need_energy"}),
    "wallet": (of_alice("wallet", 20_000), {"wallet"}),
    "late": (of_alice("late_count", 2), {"lateness_counter"}),
    "withheld": (of_alice("withheld", 900), {"wages_withheld"}),
    "notice": (of_alice("notice", 1), {"notice", "exit_near"}),
    "unpaid": (of_alice("unpaid_days", 1), {"rent_unpaid"}),
    "personality": (of_alice("ambition", 0.5), {"ambition"}),
    "extroversion": (of_alice("extroversion", 0.5), {"extroversion"}),
    "forgiveness": (of_alice("forgiveness", 0.5), {"forgiveness"}),
    "shift": (of_alice("shift", SHIFT_STATES.index("late")), {"shift_late", "shift_pre_shift"}),
    "attendance": (lambda play: (of_alice("shifts_done", 1)(play), of_alice("attended", 0.5)(play)), {"attendance_ratio"}),
    "tie trust": (of_tie(1, "trust", 0.7), {"friend_1_trust", "trust_mean"}),
    "tie familiarity": (of_tie(1, "familiarity", 0.7), {"friend_1_familiarity", "familiarity_mean"}),
    "tie rivalry": (
        of_tie(0, "rivalry", 0.6),
        {"rival_1_rivalry", "rivalry_max", "rivalry_mean", "rivalry_avoid_count", "use_shower_near_rivalry"},
    ),
    "price spike": (of_town("active_until", PERTURBATIONS.index("price_spike"), 99), {"town_price_spike"}),
    "arranged meet": (of_town("active_until", PERTURBATIONS.index("arranged_meet"), 99), {"town_arranged_meet"}),
    "outage": (of_town("active_until", PERTURBATIONS.index("outage"), 99), {"town_outage"} | SHOWER),
}


@pytest.mark.parametrize("name", FIELDS)
def test_one_field_of_the_state_moves_the_features_named_after_it_and_no_other(name: str) -> None:
    edit, expected = FIELDS[name]
    moved = changed(edit)
    assert moved, name
    if name == "outage":  # what was 0 stays 0
        assert {"town_outage", "use_shower_near_distance", "use_shower_near_busy"} <= moved <= expected
    else:
        assert moved == expected


def test_meals_move_their_own_feature_and_what_meals_allow() -> None:
    moved = changed(of_alice("meals", 3))
    assert moved == {"meals"}
    gone = changed(of_alice("meals", 0))
    assert "meals" in gone
    assert {name for name in gone if not name.startswith("eat_meal_")} == {"meals"}


def test_values_of_what_is_seen() -> None:
    """Alice at (8, 2): shower_1 is in reach of (7, 1), two steps off, in use by a rival; 2 / (2 + 20) is its distance."""
    play = scene()
    seen = look(play)
    assert seen["wallet"] == pytest.approx(0.5)
    assert seen["meals"] == pytest.approx(1 / 6)
    assert (seen["time_sin"], seen["time_cos"]) == (
        pytest.approx(np.sin(2 * np.pi * 362 / 1440)),
        pytest.approx(np.cos(2 * np.pi * 362 / 1440)),
    )
    assert seen["time_to_shift"] == pytest.approx((540 - 362) / 1440)
    assert seen["shift_left"] == 0.0
    assert seen["embedding_slot_norm"] == 0.0
    assert seen["episode_progress"] == pytest.approx(2 / 1440)
    assert seen["rivalry_max"] == pytest.approx(0.9, abs=2e-4)
    assert seen["use_shower_near_busy"] == 1.0
    assert seen["use_shower_near_rivalry"] == pytest.approx(0.9, abs=2e-4)
    assert seen["use_shower_near_distance"] == pytest.approx(2 / 22)
    assert seen["use_shower_calm_busy"] == 0.0
    assert seen["last_action_wait"] == 1.0
    assert (seen["friend_1_filled"], seen["friend_2_filled"], seen["rival_1_filled"], seen["rival_2_filled"]) == (1, 0, 1, 0)
    assert (seen["friend_1_dx"], seen["friend_1_dy"]) == (pytest.approx(-6 / 11), pytest.approx(4 / 9))
    assert (seen["rival_1_dx"], seen["rival_1_dy"]) == (pytest.approx(-2 / 7), 0.0)
    assert seen["ties_filled"] == pytest.approx(2 / 6)
    assert play.sees("bob", "using_use_shower") == 1.0
    assert play.sees("bob", "reservation_active") == 1.0
    assert play.sees("bob", "ticks_left") == pytest.approx(18 / 20)


def test_a_queue_is_seen_from_within_and_from_without() -> None:
    play = scene().go(alice="use_shower")
    assert (play.sees("alice", "in_queue"), play.sees("alice", "waiting_use_shower")) == (1.0, 1.0)
    assert play.sees("alice", "queue_position") == pytest.approx(1 / 3)
    assert play.sees("alice", "last_action_use_shower:near") == 1.0
    assert play.sees("alice", "last_action_success") == 1.0
    assert play.sees("carol", "use_shower_near_queue") == pytest.approx(1 / 3)


def test_names_are_unique_and_offsets_follow_them() -> None:
    spec = scene().vec.spec
    assert len(set(spec.feature_names)) == len(spec.feature_names)
    assert [spec.offsets[name] for name in spec.feature_names] == list(range(len(spec.feature_names)))
    assert {field.group for field in spec.fields} == {"self", "town", "candidates", "places", "social", CONFLICT}


def test_blindness_zeroes_the_conflict_group_and_makes_calm_near() -> None:
    blind, seeing = scene("observations.blind=[conflict]"), scene()
    columns = list(seeing.vec.spec.columns(CONFLICT))
    assert seeing.vec.features[0][:, columns].any()
    assert not blind.vec.features[0][:, columns].any()
    rest = np.setdiff1d(np.arange(seeing.vec.features.shape[2]), columns)
    near = [c for c in rest if "_calm_" not in seeing.vec.spec.feature_names[c]]
    np.testing.assert_array_equal(blind.vec.features[..., near], seeing.vec.features[..., near])
    for field in ("dx", "dy", "distance"):
        assert blind.sees("alice", f"use_shower_calm_{field}") == blind.sees("alice", f"use_shower_near_{field}")
    reservations = MAPS["hybrid"][0].index("reservations")
    assert seeing.vec.maps is not None
    assert blind.vec.maps is not None
    assert seeing.vec.maps[0, :, reservations].any()
    assert not blind.vec.maps[0, :, reservations].any()
    np.testing.assert_array_equal(blind.vec.masks, seeing.vec.masks)
    for play, thing in ((blind, "shower_1"), (seeing, "shower_2")):
        play.go(alice="use_shower:calm")
        assert play.index(thing) in (play["alice"]["target"], play["alice"]["queued"])


@pytest.mark.parametrize("variant", ["hybrid", "full", "compact", "compact_map"])
def test_maps_show_the_window_around_the_resident(variant: str) -> None:
    """Alice at (8, 2) sees Bob two tiles west, shower_1 on (6, 1) taken, shower_2 on (10, 1) free, the wall at (5, 1)."""
    name, extra = ("compact", ["observations.compact_map=true"]) if variant == "compact_map" else (variant, [])
    play = scene(f"features.systems.observations={name}", *extra)
    channels, window = MAPS[variant]
    if not channels:
        assert play.vec.maps is None
        return
    assert play.vec.maps is not None
    seen = dict(zip(channels, play.vec.maps[0, 0]))
    half = window // 2

    def at(channel: str, x: int, y: int) -> int:
        return int(seen[channel][y - 2 + half, x - 8 + half])

    assert seen["self"].sum() == 1
    assert at("self", 8, 2) == 1
    assert (at("agents", 6, 2), seen["agents"].sum()) == (1, 1)
    assert (at("objects", 6, 1), at("objects", 10, 1), at("objects", 7, 3), at("objects", 8, 2)) == (1, 1, 1, 0)
    assert (at("reservations", 6, 1), at("reservations", 10, 1)) == (1, 0)
    if "rivals" in seen:
        assert (at("rivals", 6, 2), seen["rivals"].sum()) == (1, 1)
    if "walkable" in seen:
        assert (at("walkable", 8, 2), at("walkable", 5, 2), at("walkable", 5, 1), at("walkable", 6, 1)) == (1, 1, 0, 0)
        assert not seen["walkable"][: half - 2].any()  # beyond the map


@pytest.mark.parametrize(
    ("scenario", "level"), [("rush_hour", "option"), *(("town_day", level) for level in ("option", "candidates", "primitive"))]
)
def test_masks_agree_with_what_a_decision_finds_possible(scenario: str, level: str) -> None:
    """Over random states every action is tried: allowed ones are taken up, the others act as `wait` and are marked.

    A chat may become possible within a decision, when the neighbour leaves its use first.
    """
    vec = VectorTown(load_config(scenario, [f"policy.action_level={level}"]), 16, start="random")
    draws = np.random.default_rng(3)
    random = make_policy("random", vec)
    tried = np.zeros(vec.num_actions, int)
    chat = CHAT if level != "primitive" else vec.catalogue.index("chat")
    for _ in range(40):
        vec.step(random.act(vec).actions)
        actions = draws.integers(0, vec.num_actions, vec.active.shape)
        allowed = np.take_along_axis(vec.masks, actions[..., None], axis=2)[..., 0]
        active = vec.active == 1
        vec.step(actions)
        surprised = active & (vec.illegal != 1 - allowed)
        of_places = np.isin(actions, [vec.catalogue.names.index(name) for name in PLACE_VERBS if name in vec.catalogue.names])
        surprised &= ~of_places  # an impossible one does nothing and is not marked
        assert (actions[surprised] == chat).all()
        assert (allowed[surprised] == 0).all()
        assert not vec.illegal[~active].any()
        np.add.at(tried, actions[active & (allowed == 1)], 1)
    if level == "candidates":
        found = {name for name, count in zip(vec.catalogue.names, tried) if count}
        assert {"use_shower:1", "use_shower:2", "eat_meal:1", "reserve", "leave"} <= found
        return
    assert (tried[:7] > 0).all() if level == "primitive" else (tried > 0).sum() >= vec.num_actions - 2


def test_hostile_actions_act_as_wait_and_are_marked() -> None:
    play = scene()
    before = {name: int(play["alice"][name]) for name in ("x", "y", "using", "queued")}
    for action in (-1, -(2**62), 2**62, play.vec.num_actions, 10**6):
        actions = np.zeros((1, 3), np.int64)
        actions[0, 0] = action
        play.vec.step(actions)
        assert play.vec.illegal[0].tolist() == [1, 0, 0]
        assert {name: int(play["alice"][name]) for name in before} == before


def test_an_affordance_names_the_same_thing_in_mask_and_features() -> None:
    """Where an option is allowed to somebody who does not wait, its near candidate is seen at less than the end of the world."""
    vec = VectorTown("town_day", 8, start="random")
    policy = make_policy("random", vec)
    offsets = vec.spec.offsets
    for _ in range(30):
        vec.step(policy.act(vec).actions)
        free = (
            (vec.active == 1)
            & (vec.features[..., offsets["in_queue"]] == 0)
            & (vec.features[..., offsets["reservation_active"]] == 0)
        )
        for name in vec.spec.affordances:
            mask = vec.masks[..., vec.catalogue.index(f"{name}:near")] == 1
            distance = vec.features[..., offsets[f"{name}_near_distance"]]
            np.testing.assert_array_equal(mask[free], distance[free] < 1.0)
