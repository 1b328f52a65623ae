"""The filmed file in Chromium: reels, player, people, why, compare, phone, dark, hostile names."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from page_tools import DECODED, Visit, raw_columns, short
from townlet.observer import answers
from townlet.observer.standalone import film_parts, page_html, write_page
from townlet.observer.story import events, text_of
from townlet.observer.studio import Studio
from townlet.observer.words import UNTOLD

Open = Callable[..., Visit]


@pytest.mark.parametrize(
    ("name", "ticks", "policy"),
    [("queue_conflict", 130, "scripted"), ("newcomer", 90, "random"), ("two_bathrooms", 64, "scripted")],
)
def test_reels_decoded_in_the_page_are_the_columns_of_python(
    visit: Open, studio: Studio, tmp_path: Path, name: str, ticks: int, policy: str
) -> None:
    parts = film_parts(studio, [studio.new_take(short(name, ticks), seed=3, policy=policy).take.id])
    write_page(tmp_path / "town.html", parts)
    found = visit((tmp_path / "town.html").as_uri()).js(DECODED)
    expected = raw_columns(parts["takes"][0])
    assert len(found) == len(expected) == -(-ticks // 64)
    for mine, theirs in zip(found, expected):
        assert mine == theirs


def test_the_page_tells_events_in_the_words_of_the_server(town: Visit, studio: Studio, carried: dict[str, Any]) -> None:
    head, slot = carried["takes"][0]["header"], 0
    town.js("slot => { townlet.select(slot); townlet.seek(119); townlet.inspector.choose('story'); }", slot)
    town.until("document.querySelectorAll('.story li').length")
    shown = town.page.locator(".story li span").all_inner_texts()
    own = [row for row in events(studio, head["id"]) if slot in (row["actor"], row["rival"])]
    expected = [text_of(head, row) for row in own if head["events"][row["kind"]] not in UNTOLD]
    assert shown == expected[::-1]
    assert len(shown) >= 2


def test_the_far_map_is_the_picture_of_the_columns(town: Visit, carried: dict[str, Any]) -> None:
    town.js("townlet.seek(70)")
    town.js("Object.assign(townlet.mapA, { scale: 7, x0: -1.5, y0: -2, fitted: false, pixels: null, twin: null })")
    town.js("townlet.draw()")
    width, height, data = town.js(
        """() => { const c = document.getElementById("map-a"), d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
        return [c.width, c.height, btoa(Array.from(d, b => String.fromCharCode(b)).join(""))]; }"""
    )
    found = np.frombuffer(base64.b64decode(data), np.uint8).reshape(height, width, 4)[:, :, :3]

    def colour(name: str) -> list[int]:
        return rgb(town, name)

    head = carried["takes"][0]["header"]
    tiles = np.array([[int(digit) for digit in row] for row in head["map"]["tiles"]])
    by_tile = np.array([colour("floor" if name == "object" else name) for name in head["map"]["legend"]])
    picture = np.empty((height, width, 3), np.uint8)
    picture[:] = colour("paper")
    ys, xs = np.floor(np.arange(height) / 7 - 2).astype(int), np.floor(np.arange(width) / 7 - 1.5).astype(int)
    rows, columns = (np.flatnonzero((at >= 0) & (at < size)) for at, size in zip((ys, xs), tiles.shape))
    picture[np.ix_(rows, columns)] = by_tile[tiles[np.ix_(ys[rows], xs[columns])]]

    def square(x: float, y: float, name: str) -> None:
        left, top = int(np.floor((x + 1.5) * 7)), int(np.floor((y + 2) * 7))
        picture[top : top + 7, left : left + 7] = colour(name)

    for thing in head["things"]:
        square(thing["x"], thing["y"], "thing")
    reel = raw_columns(carried["takes"][0])[70 // 64]
    n, k = len(head["people"]), 70 % 64
    needs = [need["name"] for need in head["needs"]]
    row = {name: reel[f"residents.{name}"][k * n : (k + 1) * n] for name in ("x", "y", "doing", *needs)}
    for i in range(n):
        worst = min(row[need][i] for need in needs)
        if row["doing"][i] & 127:
            square(row["x"][i], row["y"][i], "bad" if row["doing"][i] & 128 or worst < 64 else "fair" if worst < 128 else "good")
    assert (found == picture).all()


COLOURS_AT = """([slot, radius, turns]) => {
  const map = townlet.mapA, c = map.canvas.getContext("2d"), [x, y] = map.places[slot];
  const at = turn => [Math.round(x + radius * Math.cos(turn)), Math.round(y + radius * Math.sin(turn))];
  return turns.map(turn => [...c.getImageData(...at(turn), 1, 1).data.slice(0, 3)]);
}"""


def test_the_near_map_tells_needs_waits_and_quarrels(town: Visit, carried: dict[str, Any]) -> None:
    """The middle of a disc by what somebody does, its rim by the worst need, a star behind whoever quarrels."""
    size, seen = 40, set()
    radius = size * 0.44
    reels, head = raw_columns(carried["takes"][0]), carried["takes"][0]["header"]
    n, needs = len(head["people"]), [need["name"] for need in head["needs"]]
    for tick in range(0, 120, 4):
        reel, k = reels[tick // 64], tick % 64
        row = {name: reel[f"residents.{name}"][k * n : (k + 1) * n] for name in ("x", "y", "doing", *needs)}
        for i in range(n):
            apart = [abs(row["x"][j] - row["x"][i]) + abs(row["y"][j] - row["y"][i]) for j in range(n) if j != i]
            doing, worst = row["doing"][i], min(row[need][i] for need in needs)
            level = "bad" if worst < 64 else "fair" if worst < 128 else "good"
            kind = (level, doing & 127 in (4, 5), doing >= 128)
            if not doing & 127 or min(apart) < 3 or kind in seen:
                continue
            seen.add(kind)
            town.js("t => townlet.seek(t)", tick)
            town.js(
                "([s, x, y]) => { townlet.mapA.scale = s; townlet.mapA.centre(x, y); townlet.draw(); }",
                [size, row["x"][i], row["y"][i]],
            )
            (middle,) = town.js(COLOURS_AT, [i, radius * 0.62, [-np.pi / 2]])
            assert middle == rgb(town, "wait" if kind[1] else "person")
            rim = town.js(COLOURS_AT, [i, radius - 1.4, [turn * np.pi / 60 for turn in range(120)]])
            share = rim.count(rgb(town, level)) / len(rim)
            assert share > 0.9 if level == "good" else 0.25 < share < 0.9, (kind, share)  # dashes tell it without a colour
            (star,) = town.js(COLOURS_AT, [i, radius * 1.5, [0.0]])
            assert (star == rgb(town, "bad")) == kind[2]
    assert {kind[1] for kind in seen} == {True, False}
    assert len({kind[0] for kind in seen}) >= 2


def test_a_badge_tells_that_others_wait(town: Visit, carried: dict[str, Any]) -> None:
    head, waiting = carried["takes"][0]["header"], raw_columns(carried["takes"][0])[0]["objects.waiting"]
    m = len(head["things"])
    tick, thing = next((k // m, k % m) for k, count in enumerate(waiting) if count)
    at = """([t, s, m]) => {
      townlet.seek(t);
      const map = townlet.mapA, thing = townlet.a.head.things[m];
      map.scale = s;
      map.centre(thing.x, thing.y);
      townlet.draw();
      const c = map.canvas.getContext("2d"), px = (thing.x + 1 - map.x0) * s - 2, py = (thing.y - map.y0) * s + 2;
      return [...c.getImageData(Math.round(px - 7), Math.round(py), 1, 1).data.slice(0, 3)]; }"""
    assert town.js(at, [tick, 40, thing]) == rgb(town, "wait")
    free = next(k for k in range(m) if not waiting[tick * m + k])
    assert town.js(at, [tick, 40, free]) != rgb(town, "wait")


def test_the_day_lists_its_strongest_moments_and_a_tour_goes_from_one_to_the_next(town: Visit, carried: dict[str, Any]) -> None:
    moments = carried["takes"][0]["moments"]
    strongest = max(moments, key=lambda one: (one["strength"], -one["tick"]))
    shown = town.page.locator("#day-moments .plainly").all_inner_texts()
    assert 2 <= len(shown) <= 10
    assert strongest["text"] in shown
    stops = town.js("[...document.querySelectorAll('#day-moments .time')].map(one => one.textContent)")
    assert stops == sorted(stops)
    town.js("townlet.player.setSpeed(5)")
    town.page.click("#tour")
    town.until("document.getElementById('status').textContent.startsWith('Tour 1 of')")
    town.until("document.getElementById('status').textContent.startsWith('Tour 2 of')")
    assert town.js("townlet.player.playing")
    town.key("Space")  # whoever takes the playhead ends the tour
    town.until("document.getElementById('status').hidden")
    stopped = town.tick
    town.page.wait_for_timeout(200)
    assert town.tick == stopped


def test_why_not_is_answered_with_what_stood_against_it(town: Visit, carried: dict[str, Any]) -> None:
    town.js("(townlet.seek(100), townlet.select(0))")
    town.page.wait_for_selector("#why-not")
    why = carried["takes"][0]["why"]["100/0"]
    masked = next(group for group in why["masked"] if group["options"][0] != why["chosen"])
    town.page.select_option("#why-not", masked["options"][0].partition(":")[0])
    assert masked["reason"] in town.text("#why-not-answer")
    assert all(f"{level:.0%}".rstrip("%") in town.text("#why-not-answer") for level in why["needs"].values())


def test_ties_tell_since_when_two_clash(town: Visit, studio: Studio, carried: dict[str, Any]) -> None:
    feuds = {(one["who"], one["whom"]): one["since"] for one in answers.feuds(studio, carried["takes"][0]["header"]["id"], 110)}
    town.js("townlet.seek(110)")
    town.js("townlet.openView('ties')")
    town.page.wait_for_selector("#ties-body tr")
    rows = [row.split("\t") for row in town.page.locator("#ties-body tr").all_inner_texts()]
    shown = {}
    for who, whom, *_, since in rows:
        how, _, other = whom.strip().partition(" ")
        shown[who.strip(), other] = since.strip()
        if how == "and":  # it is mutual
            shown[other, who.strip()] = since.strip()
    known = [pair for pair in feuds if pair in shown]
    assert any(feuds[pair] for pair in known)
    assert {pair: shown[pair] for pair in known} == {pair: feuds[pair] or "before this day" for pair in known}


def test_what_differs_now_stands_beside_two_takes(visit: Open, town_file: Path) -> None:
    page = visit(town_file.as_uri())
    page.js("townlet.seek(60)")
    page.until("document.querySelectorAll('#day-rows tr').length")
    name, a, b = page.page.locator("#day-rows tr").first.inner_text().split("\t")
    slot = page.js("name => townlet.a.head.people.findIndex(one => one.id === name)", name.strip())
    left, right = (page.js(f"slot => (f => [f.doing[slot], f.thing[slot]])(townlet.{take}.peek(60))", slot) for take in "ab")
    assert left != right
    assert a.strip() != b.strip()


def test_keys_move_the_playhead(town: Visit) -> None:
    assert town.tick == 0
    pressed = ["ArrowRight", "ArrowRight", "ArrowLeft", "Shift+ArrowRight", "Shift+ArrowRight", "End", "Shift+ArrowLeft", "Home"]
    for key, tick in zip(pressed, [1, 2, 1, 10, 20, 119, 110, 0], strict=True):
        town.key(key)
        assert town.tick == tick, key
    town.key("Period")
    assert town.js("townlet.player.perSecond") == 30
    town.key("Space")
    town.until("townlet.player.t >= 5")
    town.key("Space")
    stopped = town.tick
    town.page.wait_for_timeout(120)
    assert town.tick == stopped
    assert town.page.get_attribute("#timeline", "aria-valuetext") == town.text("#clock").replace(" ·", ",")


def test_a_film_stops_at_its_end_and_begins_again(town: Visit) -> None:
    town.js("townlet.player.setSpeed(7)")
    town.key("Space")
    town.until("!townlet.player.playing")
    assert town.tick == 119
    town.js("townlet.player.setSpeed(0)")
    town.key("Space")
    town.until("townlet.player.playing")
    assert town.tick < 60


def test_n_and_p_go_from_moment_to_moment(town: Visit, carried: dict[str, Any]) -> None:
    ticks = sorted({moment["tick"] for moment in carried["takes"][0]["moments"]})
    assert len(ticks) >= 3
    first, second = (tick for tick in ticks[1:3]) if ticks[0] == 0 else ticks[:2]
    for key, tick in (("n", first), ("n", second), ("p", first)):
        town.key(key)
        town.settle()
        assert town.tick == tick
    town.key("m")
    town.settle()
    clashes = [moment for moment in carried["takes"][0]["moments"] if moment["kind"] in ("queue_conflict", "quarrel")]
    worst = max(clashes, key=lambda moment: (moment["strength"], -moment["tick"]))
    assert (town.tick, town.js("townlet.who")) == (worst["tick"], worst["slots"][0])


def test_dragging_on_the_time_line_seeks(town: Visit) -> None:
    box = town.page.locator("#timeline").bounding_box()
    town.page.mouse.move(box["x"] + 300, box["y"] + 40)
    town.page.mouse.down()
    assert town.tick == town.js("townlet.timeline.tickAt(300)")
    town.page.mouse.move(box["x"] + 700, box["y"] + 40)
    town.page.mouse.up()
    assert town.tick == town.js("townlet.timeline.tickAt(700)") > 0


def test_the_time_line_says_what_is_under_the_pointer_and_what_is_not_shot_yet(town: Visit) -> None:
    moment = town.js("townlet.moments.find(one => one.kind === 'queue_conflict').tick")
    assert town.js("t => townlet.timeline.tell(30, t)", moment).startswith("conflicts in ten minutes: ")
    assert town.js("townlet.a.shotUntil === townlet.a.last + 1")
    town.js("(townlet.a.shot = 1)")
    first, size = town.js("[townlet.a.first, townlet.a.head.reel_ticks]")
    told = [town.js("t => townlet.timeline.tell(30, t)", first + size + k) for k in (-1, 0)]
    assert ["not simulated yet" in text for text in told] == [False, True]
    town.js("(townlet.a.shot = townlet.a.head.reels)")


def test_the_angriest_is_found_in_people_and_tells_why(town: Visit, carried: dict[str, Any]) -> None:
    town.js("townlet.seek(100)")
    town.key("g")
    town.key("p")
    town.page.get_by_role("button", name="Rivalry").click()
    town.settle()
    shown = [float(text) for text in town.page.locator("#people-body .c-rivalry").all_inner_texts()]
    assert shown == sorted(shown, reverse=True)
    name = town.page.locator("#people-body tr:not(.gap) th").first.inner_text()
    town.page.locator("#people-body tr:not(.gap) .c-doing").first.click()  # anywhere in the row
    town.settle()
    assert town.text("#who-name") == name
    town.key("Escape")
    town.page.get_by_role("button", name=name, exact=True).first.click()
    town.settle()
    assert town.text("#who-name") == name
    slot = next(one["slot"] for one in carried["takes"][0]["header"]["people"] if one["id"] == name)
    why = carried["takes"][0]["why"][f"100/{slot}"]
    town.until("document.querySelector('#inspector-body .lead')")
    assert town.text("#inspector-body .lead") == why["sentence"]
    assert town.page.locator("#inspector-body .row.chosen").count() == 1
    assert sum(option["probability"] for option in why["options"]) == pytest.approx(1, abs=0.02)
    assert town.page.locator(".masked dd").all_text_contents() == [one["reason"] for one in why["masked"]]
    story = town.page.get_by_role("tab", name="Story")
    story.click()
    town.page.locator(".story .time").last.click()
    assert town.tick < 100


def test_a_reload_returns_to_the_moment_the_person_and_the_view(town: Visit) -> None:
    town.js("townlet.seek(47)")
    town.js("townlet.select(1)")
    town.js("townlet.openView('people')")
    town.settle()
    who = town.text("#who-name")
    town.page.reload()
    town.page.wait_for_selector("body[data-ready=true]")
    town.settle()
    assert (town.tick, town.text("#who-name"), town.js("townlet.view")) == (47, who, "people")
    assert town.js("townlet.b") is None


def reload(page: Visit) -> None:
    page.page.reload()
    page.page.wait_for_selector("body[data-ready=true]")
    page.settle()


def test_a_reload_returns_to_both_days_whichever_they_are(town: Visit) -> None:
    """The place was kept under the day shown as A and looked for under the one the page opens with."""
    days = town.js("townlet.library.takes.map(take => take.id)")
    town.js("async days => { await townlet.openA(days[1]); await townlet.openB(days[0]); townlet.seek(31); }", days)
    reload(town)
    assert (town.js("[townlet.a.head.id, townlet.b.head.id]"), town.tick) == (days[::-1], 31)


def test_a_link_that_was_reloaded_keeps_what_was_made_of_it_and_one_that_is_followed_does_not(
    visit: Open, town_file: Path
) -> None:
    page = visit(f"{town_file.as_uri()}#t=31&who=bob")
    page.js("townlet.seek(50)")
    page.js("townlet.openB(null)")
    reload(page)
    assert (page.tick, page.text("#who-name"), page.js("townlet.b")) == (50, "bob", None)
    for words, tick in (("t=7", 7), ("t=31&who=bob", 31)):
        with page.page.expect_event("load"):
            page.js("words => { location.hash = words; }", words)
        page.page.wait_for_selector("body[data-ready=true]")
        assert page.tick == tick
    page.js("townlet.seek(50)")
    page.page.goto("about:blank")
    page.page.goto(f"{town_file.as_uri()}#t=31&who=bob")
    page.page.wait_for_selector("body[data-ready=true]")
    assert page.tick == 31


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1024, 768), (390, 844)])
def test_a_feud_can_be_read_in_the_table_beside_its_graph(
    visit: Callable[..., Visit], town_file: Path, width: int, height: int
) -> None:
    """On 1024 × 768 the graph took the room of the table, and only its head was seen."""
    town = visit(town_file.as_uri(), width=width, height=height)
    town.js("townlet.seek(townlet.a.last)")
    town.js("townlet.openView('ties')")
    town.settle()
    table = town.page.get_by_role("region", name="Feuds").bounding_box()
    first = town.page.locator("#ties-body tr").first.bounding_box()
    assert first["y"] + first["height"] <= table["y"] + table["height"]


def test_people_are_first_sorted_by_how_near_they_are_to_a_line(town: Visit) -> None:
    town.js("townlet.seek(90)")
    town.js("townlet.openView('people')")
    shown = [int(text.rstrip("%").replace("−", "-")) for text in town.page.locator("#people-body .c-margin").all_inner_texts()]
    assert len(shown) > 3
    assert shown == sorted(shown)


def test_a_click_on_the_map_selects_who_stands_there(town: Visit) -> None:
    town.js("townlet.draw()")
    slot = town.js("townlet.mapA.places.findIndex(place => place)")
    x, y = town.js("slot => townlet.mapA.places[slot]", slot)
    box = town.page.locator("#map-a").bounding_box()
    town.page.mouse.click(box["x"] + x, box["y"] + y)
    assert town.js("townlet.who") == slot
    town.key("Escape")
    assert town.js("townlet.who") == -1
    town.key("j")
    assert town.js("townlet.who") == 0


def test_queues_and_ties_are_shown(town: Visit, carried: dict[str, Any]) -> None:
    head = carried["takes"][0]["header"]
    waiting = raw_columns(carried["takes"][0])[0]["objects.waiting"]
    m = len(head["things"])
    tick = next(k for k in range(64) if any(waiting[k * m : (k + 1) * m]))
    town.js("t => townlet.seek(t)", tick)
    town.js("townlet.openView('queues')")
    assert town.page.locator("#queues-body td.line .person").count() == sum(waiting[tick * m : (tick + 1) * m])
    town.js("townlet.openView('ties')")
    town.page.wait_for_selector("#ties-body tr")
    assert town.js("townlet.views.ties.layout.size") == len(head["people"])


def test_search_finds_residents_things_and_times(town: Visit) -> None:
    person, thing = town.js("[townlet.a.head.people[2].id, townlet.a.head.things[0].id]")
    town.key("/")
    town.page.keyboard.type(person)
    town.key("Enter")
    assert town.js("townlet.who") == 2
    town.page.fill("#search", thing)
    assert thing in town.text("#search-list")
    town.page.fill("#search", "nobody of that name")
    assert "07:40" in town.text("#search-list")
    minute = town.js("townlet.a.head.start_minute") + 65
    town.page.fill("#search", f"{minute // 60:02d}:{minute % 60:02d}")
    town.page.press("#search", "Enter")
    assert town.tick == 65


def test_after_a_search_the_keys_are_those_of_the_page_again(town: Visit) -> None:
    """Space was typed into the field, and Escape, which left it, also let go of whoever had been found."""
    person = town.js("townlet.a.head.people[2].id")
    town.key("/")
    town.page.keyboard.type(person)
    town.key("Enter")
    town.key("Space")
    town.until("townlet.player.t > 0")
    town.key("Space")
    for text in (person, "nobody of that name", ""):
        town.key("/")
        town.page.keyboard.type(text)
        town.key("Escape")
        assert (town.js("townlet.who"), town.page.input_value("#search"), town.page.is_visible("#search-list")) == (2, "", False)
    town.key("Escape")
    assert town.js("townlet.who") == -1


def test_compare_names_the_first_divergence(visit: Open, town_file: Path, carried: dict[str, Any]) -> None:
    page = visit(town_file.as_uri())
    first, second = (part["header"]["id"] for part in carried["takes"])
    divergence = carried["takes"][0]["divergence"][second]
    page.page.wait_for_selector("#divergence:not([hidden])")
    assert page.text("#divergence") == divergence["text"]
    page.js("Promise.all([townlet.a.preload(), townlet.b.preload()])")
    differs = page.js("Array.from(townlet.timeline.differs())")
    assert not any(differs[: divergence["tick"]])
    assert any(differs)
    assert page.page.is_visible("#map-b")
    page.key("c")
    page.settle()
    assert not page.page.is_visible("#map-b")
    page.js("id => townlet.openB(id)", first)
    page.page.wait_for_selector("#divergence:not([hidden])")
    page.settle()
    assert "the same to the end" in page.text("#divergence")


def test_a_file_asks_for_nothing_and_hides_what_needs_a_server(visit: Open, town_file: Path) -> None:
    page = visit(town_file.as_uri())
    page.key("Space")
    page.until("townlet.player.t > 3")
    page.key("j")
    page.settle()
    assert [url for url in page.asked if not url.startswith("data:")] == [town_file.as_uri()]
    assert not page.page.is_visible("#go-runs")
    assert not page.page.is_visible("#branch")


def test_a_moment_has_a_link(visit: Open, town_file: Path) -> None:
    page = visit(f"{town_file.as_uri()}#t=31&who=bob&view=people")
    assert page.tick == 31
    assert page.text("#who-name") == "bob"
    assert page.page.is_visible("#people-table")
    link = page.js("townlet.link()")
    assert "t=31" in link
    assert "take=" in link
    assert visit(link).js("townlet.player.t") == 31


@pytest.mark.parametrize("damage", ["base64", "cut", "reel"])
def test_a_damaged_file_says_so(visit: Open, parts: dict[str, Any], tmp_path: Path, damage: str) -> None:
    if damage == "reel":
        raw = bytearray(base64.b64decode(parts["takes"][0]["reels"][0]))
        raw[-20] ^= 255
        parts["takes"][0]["reels"][0] = base64.b64encode(raw).decode()
    text = page_html(parts)
    if damage != "reel":
        found = re.search(r'id="film">([^<]*)<', text)
        assert found is not None
        text = text.replace(found[1], "*" + found[1][1:] if damage == "base64" else found[1][: len(found[1]) // 8 * 4])
    (tmp_path / "town.html").write_text(text)
    page = visit((tmp_path / "town.html").as_uri(), ready="true" if damage == "reel" else "failed")
    page.page.wait_for_selector("#status:not([hidden])")
    assert "damaged" in page.text("#status")


HOSTILE = '<img src=x onerror="window.pwned=1"></script><script>window.pwned=1</script>'


def test_names_full_of_markup_are_shown_as_text(visit: Open, parts: dict[str, Any], tmp_path: Path) -> None:
    part = parts["takes"][0]
    head = part["header"]
    for named in (head["people"][0], head["things"][0], head["buildings"][0]):
        named["id"] = HOSTILE
    head["title"] = head["take"]["town"] = HOSTILE
    head["people"][0]["mark"] = "<b"
    for why in part["why"].values():
        why["sentence"] = HOSTILE
        why["masked"] = [{"reason": HOSTILE, "options": [HOSTILE]}]
    for moment in part["moments"]:
        moment["text"] = HOSTILE
    for ties in part["ties"].values():
        for tie in ties:
            tie["a_name"] = tie["b_name"] = HOSTILE
    write_page(tmp_path / "town.html", parts)
    page = visit((tmp_path / "town.html").as_uri())
    page.js("townlet.select(0)")
    for view in ("people", "queues", "ties", "town"):
        page.js("view => townlet.openView(view)", view)
        page.settle()
    for tab in ("ties", "story", "sees", "why"):
        page.js("tab => townlet.inspector.choose(tab)", tab)
        page.settle()
    page.key("n")
    page.until("document.querySelector('#inspector-body .lead')")
    assert page.text("#who-name") == page.text("#inspector-body .lead") == page.text("#title") == HOSTILE
    assert page.js("window.pwned") is None
    assert page.js("document.images.length") == 0


@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_never_scrolls_sideways(visit: Open, town_file: Path, width: int) -> None:
    page = visit(town_file.as_uri(), width=width, height=740, has_touch=True, is_mobile=True)
    sideways = "document.scrollingElement.scrollWidth - document.documentElement.clientWidth"
    for view in ("town", "people", "queues", "ties"):
        page.page.click(f"#go-{view}")
        page.settle()
        assert page.js(sideways) == 0, view
    page.js("townlet.select(1)")
    for tab in ("why", "ties", "story", "sees"):
        page.page.click(f"#tab-{tab}")
        page.settle()
        assert page.js(sideways) == 0, tab
    assert page.page.locator("#timeline").bounding_box()["height"] == 72
    assert min(page.page.locator(f"#{name}").bounding_box()["height"] for name in ("play", "earlier", "later")) >= 44


def test_text_twice_as_large_hides_nothing(visit: Open, town_file: Path) -> None:
    page = visit(town_file.as_uri(), width=1280, height=900)
    page.js("document.documentElement.style.fontSize = '200%', document.body.style.fontSize = '28px'")
    page.js("townlet.select(1)")
    page.settle()
    assert page.js("document.scrollingElement.scrollWidth - document.documentElement.clientWidth") == 0
    for name in ("play", "search", "tab-why", "go-people"):
        box = page.page.locator(f"#{name}").bounding_box()
        assert box["x"] >= 0, name
        assert box["x"] + box["width"] <= 1280, name


@pytest.mark.parametrize(("width", "height"), [(720, 450), (960, 540), (844, 390)])
def test_a_page_twice_as_large_or_a_phone_on_its_side_still_shows_two_maps(
    visit: Open, town_file: Path, width: int, height: int
) -> None:
    """Screens of 1440 × 900 and 1920 × 1080 at 200 %: the maps were 5 and 72 pixels high; on the phone there was none."""
    page = visit(town_file.as_uri(), width=width, height=height)
    for who in (-1, 1):
        page.js("who => townlet.select(who)", who)
        page.settle()
        for name in ("map-a", "map-b"):
            box = page.page.locator(f"#{name}").bounding_box()
            assert box["height"] >= 150, name
            assert box["width"] >= 150, name
        footer = page.page.locator("#footer").bounding_box()
        assert footer["y"] + footer["height"] == height
    assert page.page.locator("#inspector").bounding_box()["y"] < footer["y"] - 100


def test_everything_is_reached_by_the_tab_key(town: Visit) -> None:
    town.js("townlet.select(0)")
    town.until("document.querySelector('#why-not')")
    wanted = {
        "play",
        "speed",
        "take-a",
        "search",
        "go-people",
        "overlay-needs",
        "zoom-in",
        "follow",
        "tab-why",
        "why-not",
        "timeline",
    }
    reached = set()
    for _ in range(90):
        town.key("Tab")
        reached.add(town.js("document.activeElement.id"))
    assert wanted - reached == set()


def test_the_accessibility_tree_names_what_there_is(town: Visit) -> None:
    tree = town.page.locator("body").aria_snapshot()
    for line in (
        'heading "rush_hour"',
        'group "Play"',
        'navigation "Views"',
        'slider "Time"',
        'heading "The day"',
        'button "Tour"',
        'img "Map of rush_hour',
    ):
        assert line in tree, line


PAIRS = [
    *(("ink", below) for below in ("paper", "card", "hover")),
    *(("soft", below) for below in ("paper", "card", "hover")),
    *((text, "card") for text in ("accent", "bad", "good")),
    *(("oncolour", below) for below in ("person", "wait", "bad")),
]


def rgb(page: Visit, name: str) -> list[int]:
    text = page.js("name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim()", name)
    return [int(text[k : k + 2], 16) for k in (1, 3, 5)]


def contrast(one: list[int], other: list[int]) -> float:
    """As WCAG 2 counts it."""
    shares = np.array([one, other]) / 255
    light = np.where(shares <= 0.03928, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]
    return float((light.max() + 0.05) / (light.min() + 0.05))


def test_dark_is_dark_and_text_stands_out_in_both(visit: Open, town_file: Path) -> None:
    backgrounds = []
    for scheme in ("light", "dark"):
        page = visit(town_file.as_uri(), color_scheme=scheme)
        backgrounds.append(page.js("getComputedStyle(document.body).backgroundColor"))
        assert [pair for pair in PAIRS if contrast(*(rgb(page, name) for name in pair)) < 4.5] == []
    assert backgrounds[0] != backgrounds[1]


def test_with_reduced_motion_residents_stand_on_tiles(visit: Open, town_file: Path) -> None:
    page = visit(town_file.as_uri(), reduced_motion="reduce")
    page.js("townlet.player.setSpeed(0)")
    page.key("Space")
    page.until("townlet.player.at % 1 > 0.3")
    page.js("townlet.draw()")
    assert page.js("townlet.mapA.next") is None


def test_every_control_has_a_name(town: Visit) -> None:
    town.js("townlet.select(0)")
    nameless = """[...document.querySelectorAll("button, select, input, textarea")]
      .filter(e => e.checkVisibility() && !(e.textContent.trim() || e.getAttribute("aria-label") || e.labels?.length))
      .map(e => e.id)"""
    assert town.js(nameless) == []
    assert "residents" in town.page.get_attribute("#map-a", "aria-label")
    assert town.page.get_attribute("#timeline", "role") == "slider"
