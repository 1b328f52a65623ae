"""Work and money: shifts, lateness, absence, wages, rent, prices, stock; all in whole ten-thousandths of a coin.

The shift of tiny town is 09:00 to 13:00 in the office at (7, 7) to (10, 7); a decision is a tick.
"""

from __future__ import annotations

from typing import Any

import pytest

from townlet.envs.vector import VectorTown
from townlet.testing import tiny_town
from townlet.world.invariants import problems
from townlet.world.state import HUNGER, SHIFT_STATES
from world_tools import Play, people

OUTSIDE, DESK = (2, 6), (8, 7)


def office(*overrides: str, start: str = "08:58", **where: tuple[int, int]) -> Play:
    return Play(tiny_town(*overrides, residents=people(**where), scenario={"start": start}))


def state(play: Play, name: str) -> str:
    return SHIFT_STATES[play[name]["shift"]]


def to_phase(play: Play, phase: int) -> None:
    """Wait until that many ticks of the shift are over."""
    while play.town["minute"] < 540 + phase:
        play.go()


def test_a_whole_shift_pays_240_wages_and_its_rewards() -> None:
    """240 × 0.0035 = 0.84 coins; wage term 240 × 0.04 = 9.6, punctuality 2; attendance 1.

    Bob is absent after 31 ticks, and Alice has his wage for the other 209: 0.7315.
    """
    play = office(alice=DESK, bob=OUTSIDE)
    assert state(play, "alice") == "await_start"
    wage = punctuality = 0.0
    seen = set()
    for _ in range(245):
        play.go(alice="work")
        wage += play.term("alice", "wage")
        punctuality += play.term("alice", "punctuality")
        seen.add(state(play, "alice"))
    assert play["alice"]["wallet"] == 10_000 + 8_400 + 7_315
    assert wage == pytest.approx(9.6)
    assert punctuality == pytest.approx(2.0)
    assert seen == {"await_start", "on_time", "post_shift"}
    assert play["alice"]["attended"].tolist() == [1.0, 1.0, 1.0]
    assert play["alice"]["shifts_done"] == 1
    assert play.town["purse"] == -play.vec.state.residents["wallet"].sum()


@pytest.mark.parametrize(
    ("phase", "expected", "wallet"), [(0, "on_time", 35), (5, "on_time", 35), (6, "late", -465), (30, "late", -465)]
)
def test_arrival_within_five_ticks_is_on_time(phase: int, expected: str, wallet: int) -> None:
    """Late costs 0.05 once; the tick of arrival is paid 0.0035."""
    play = office(alice=OUTSIDE)
    to_phase(play, phase)
    play.put("alice", *DESK)
    play.go(alice="work")
    assert state(play, "alice") == expected
    assert play["alice"]["wallet"] == 10_000 + wallet
    kind = "shift_on_time" if expected == "on_time" else "shift_late"
    assert len(play.told(kind)) == 1
    play.go(5, alice="work")
    assert play["alice"]["wallet"] == 10_000 + wallet + 5 * 35
    assert play["alice"]["late_count"] == (expected == "late")


def test_absent_from_the_thirty_first_tick_and_unpaid_even_when_there() -> None:
    play = office(alice=OUTSIDE)
    to_phase(play, 31)
    assert state(play, "alice") == "late"
    play.go()
    assert state(play, "alice") == "absent"
    wallet = play["alice"]["wallet"]
    assert wallet == 10_000 - 500
    play.put("alice", *DESK)
    play.go(3, alice="work")
    assert play["alice"]["wallet"] == wallet
    assert play["alice"]["withheld"] == 500 + (32 + 3) * 35
    assert play.term("alice", "wage") == 0.0


def test_away_for_more_than_twenty_ticks_within_a_shift_is_absent() -> None:
    play = office(alice=DESK)
    to_phase(play, 10)
    play.put("alice", *OUTSIDE)
    play.go(20)
    assert state(play, "alice") == "on_time"
    play.go()
    assert state(play, "alice") == "absent"
    assert play["alice"]["wallet"] == 10_000 + 10 * 35


def test_a_colleague_helps_the_late_and_stands_in_for_the_absent() -> None:
    """Late help at 09:06: trust + 0.2, familiarity + 0.1. Takeover at 09:31: trust − 0.1, rivalry + 0.3, double pay."""
    play = office(
        "relationships.trust_decay=0",
        "relationships.familiarity_decay=0",
        "conflict.rivalry.decay_per_tick=0",
        alice=OUTSIDE,
        bob=DESK,
    )
    to_phase(play, 7)
    (help_,) = play.told("late_help")
    assert (help_["actor"], help_["rival"], help_["tick"]) == (1, 0, 8)
    assert play.tie("alice", "bob")["trust"] == pytest.approx(0.2)
    assert play.tie("bob", "alice")["familiarity"] == pytest.approx(0.1)
    to_phase(play, 31)
    before = play["bob"]["wallet"]
    assert before == 10_000 + 31 * 35
    play.go()
    (takeover,) = play.told("shift_takeover")
    assert (takeover["actor"], takeover["rival"]) == (1, 0)
    assert play.tie("alice", "bob")["trust"] == pytest.approx(0.1)
    assert play.tie("alice", "bob")["rivalry"] == pytest.approx(0.3)
    assert play["bob"]["wallet"] == before + 70
    play.go(10)
    assert play["bob"]["wallet"] == before + 11 * 70


def test_the_third_absence_in_a_week_is_notice_and_ends_in_eviction_ten_ticks_later() -> None:
    """Known ten ticks ahead: from then on what is gained is zeroed; the exit itself costs 2."""
    play = office(alice=OUTSIDE, bob=(3, 6))
    play["alice"]["absences"][3] = 2
    notice = play.until("notice")
    assert notice["tick"] == 2 + 31
    assert play["alice"]["notice"] == 1
    assert play.term("alice", "exit_guard") == pytest.approx(-0.05)
    assert play.reward("alice") == pytest.approx(play.term("alice", "needs"))
    left = play.until("exit")
    assert left["tick"] == notice["tick"] + 10
    assert left["reason"] == 1
    assert play.term("alice", "terminal") == -2.0
    assert play.vec.terminated[0].tolist() == [1, 0]
    assert play["bob"]["notice"] == 0


def test_absences_of_a_week_ago_are_forgotten() -> None:
    """The ring has a place per weekday; a new day clears its own."""
    play = office(start="23:58", alice=OUTSIDE)
    play["alice"]["absences"][1] = 1
    play["alice"]["absences"][2] = 1
    play.go(4)
    assert play.town["day"] == 1
    assert play["alice"]["absences"].tolist() == [0, 0, 1, 0, 0, 0, 0]


def test_rent_is_taken_at_midnight_and_what_is_missing_is_owed() -> None:
    """0.40 of 1.00; Bob has 0.39 and owes 0.01, and the day counts as unpaid."""
    residents: list[dict[str, Any]] = [{"id": "alice"}, {"id": "bob", "wallet": 0.39}]
    play = Play(tiny_town(residents=residents, scenario={"start": "23:59"}))
    play.go()
    assert play["alice"]["wallet"] == 10_000
    play.go()
    assert (play["alice"]["wallet"], play["bob"]["wallet"]) == (6_000, 0)
    assert (play["alice"]["debt"], play["bob"]["debt"]) == (0, 100)
    assert play.town["purse"] == -6_000
    assert play.sees("bob", "debt") == pytest.approx(0.01 / 1.01)
    assert (play["alice"]["unpaid_days"], play["bob"]["unpaid_days"]) == (0, 1)
    assert len(play.told("rent_paid")) == len(play.told("rent_unpaid")) == 1
    play.go(5)
    assert play["alice"]["wallet"] == 6_000


def test_a_debt_is_paid_first_from_the_next_income() -> None:
    """0.01 owed: two ticks at 0.0035 go into it, of the third 0.0030, and the rest is Alice's. Money is only moved."""
    play = office(start="09:00", alice=DESK)
    play["alice"]["debt"] = 100
    play["alice"]["wallet"], play.town["purse"] = 0, 0
    told = []
    for _ in range(4):
        play.go(alice="work")
        told.append((int(play["alice"]["debt"]), int(play["alice"]["wallet"])))
        assert play.town["purse"] == -play["alice"]["wallet"]
    assert told == [(65, 0), (30, 0), (0, 5), (0, 40)]


def test_a_penalty_that_cannot_be_paid_is_owed() -> None:
    play = office(start="09:00", alice=OUTSIDE)
    play["alice"]["wallet"], play.town["purse"] = 200, -200
    to_phase(play, 7)
    assert (play["alice"]["wallet"], play["alice"]["debt"]) == (0, 300)
    assert problems(play.vec) == []


@pytest.mark.parametrize(("lates", "absences", "noticed"), [(5, 0, True), (4, 0, False), (1, 2, True), (0, 2, False)])
def test_two_late_shifts_count_as_an_absence(lates: int, absences: int, noticed: bool) -> None:
    """One more late shift, at 09:06: with five before it makes three absences, with one and two absences as well."""
    play = office(start="09:00", alice=OUTSIDE)
    play["alice"]["lates"][3], play["alice"]["absences"][4] = lates, absences
    to_phase(play, 7)
    assert play["alice"]["notice"] == noticed
    if not noticed:
        to_phase(play, 32)
        assert (play["alice"]["lates"].sum(), play["alice"]["absences"].sum()) == (lates, absences + 1)  # no longer late


def test_first_wallets_may_be_drawn() -> None:
    """Between 0 and 1.5 coins, each resident and episode its own; all money is still accounted for."""
    vec = VectorTown(tiny_town(residents=4), 64, wallets=(0.0, 1.5))
    wallets = vec.state.residents["wallet"] / 10_000
    assert (wallets.min() < 0.05, wallets.max() > 1.45) == (True, True)
    assert wallets.mean() == pytest.approx(0.75, abs=0.1)
    assert problems(vec) == []


def test_two_unpaid_days_end_in_eviction_and_a_paid_one_clears_the_count() -> None:
    residents: list[dict[str, Any]] = [{"id": "alice", "wallet": 0.0}, {"id": "bob"}]
    play = Play(tiny_town(residents=residents, scenario={"start": "23:59"}))
    play["alice"]["unpaid_days"] = play["bob"]["unpaid_days"] = 1
    left = play.until("exit", 20)
    assert (left["actor"], left["reason"], left["tick"]) == (0, 1, 11)
    assert play["bob"]["unpaid_days"] == 0


def test_evictions_are_apart_and_an_empty_slot_does_not_hold_up_the_next() -> None:
    """Two a day, 120 ticks apart, also when nobody takes over the first slot."""
    residents: list[dict[str, Any]] = [{"id": name, "wallet": 0.0} for name in ("alice", "bob", "carol")]
    config = tiny_town("lifecycle.newcomers_per_day=0", residents=residents)
    play = Play(config)
    for name in ("alice", "bob", "carol"):
        play[name]["unpaid_days"] = 2
    play.go(400)
    told = [(row["actor"], row["tick"]) for row in play.told("exit")]
    assert told == [(0, 10), (1, 10 + 120 + 10)]
    assert play.town["evictions_today"] == 2


@pytest.mark.parametrize(
    ("action", "spot", "price"), [("use_shower", (6, 2), 500), ("cook_meal", (6, 2), 1500), ("buy_meal", (5, 5), 4000)]
)
def test_prices_are_taken_once_at_the_start_and_a_price_spike_doubles_them(
    action: str, spot: tuple[int, int], price: int
) -> None:
    for factor, events in ((1, "[]"), (2, "[{at: '08:00', kind: price_spike, duration: 60}]")):
        play = office(f"perturbations.events={events}", start="08:00", alice=spot, bob=(2, 2))
        play.go().go(5, alice=action)
        assert play["alice"]["using"] >= 0
        assert play["alice"]["wallet"] == 10_000 - factor * price
        assert play.town["purse"] == -20_000 + factor * price
        play["bob"]["wallet"] = factor * price - 1
        play.go()
        assert not play.may("bob", f"{action}:near")


def test_two_meals_come_from_cooking_and_one_goes_with_eating() -> None:
    """Stove: 24 in stock, 2 for a cook, given at the end. A meal in hand is gone when the eating begins; hunger + 0.5."""
    play = office(start="08:00", alice=(6, 2))
    play["alice"]["meals"], play["alice"]["needs"][HUNGER] = 0, 0.3
    play.go(24, alice="cook_meal")
    assert (play["alice"]["meals"], play.thing("stove_1")["stock"]) == (0, 24)
    play.go(alice="cook_meal")
    assert (play["alice"]["meals"], play.thing("stove_1")["stock"]) == (2, 22)
    hunger = play["alice"]["needs"][HUNGER]
    play.put("alice", 7, 2)
    play.go(20, alice="eat_meal")
    assert play["alice"]["meals"] == 1
    assert play["alice"]["needs"][HUNGER] == pytest.approx(hunger + 0.5 - 20 * 0.001)


def test_the_cafe_is_open_from_seven_to_nine_in_the_evening_and_restocked_at_five() -> None:
    play = office(start="06:58", alice=(5, 5))
    seen = []
    for _ in range(4):
        seen.append(play.may("alice", "buy_meal:near"))
        play.go()
    assert seen == [False, False, True, True]
    play.thing("cafe_counter_1")["stock"] = 0
    play.go()
    assert not play.may("alice", "buy_meal:near")
    evening = office(start="20:58", alice=(5, 5))
    seen = []
    for _ in range(4):
        seen.append(evening.may("alice", "buy_meal:near"))
        evening.go()
    assert seen == [True, True, False, False]
    dawn = office(start="04:59", alice=(5, 5))
    dawn.thing("stove_1")["stock"] = 1
    assert dawn.go().thing("stove_1")["stock"] == 1
    assert dawn.go().thing("stove_1")["stock"] == 24


def test_work_may_be_chosen_from_an_hour_before_the_shift_to_its_end() -> None:
    play = office(start="07:58", alice=OUTSIDE)
    seen = []
    for _ in range(4):
        seen.append(play.may("alice", "work"))
        play.go()
    assert seen == [False, False, True, True]
    end = office(start="12:58", alice=OUTSIDE)
    seen = []
    for _ in range(4):
        seen.append(end.may("alice", "work"))
        end.go()
    assert seen == [True, True, False, False]
