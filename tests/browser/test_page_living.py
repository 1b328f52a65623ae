"""The living file in Chromium: it simulates what the native town does, bit for bit, branches, takes over and looks ahead."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints import untrained
from page_tools import DECODED, Visit, raw_columns, short
from townlet.config import load_config
from townlet.envs.vector import VectorTown
from townlet.observer.living import Carried, file_parts
from townlet.observer.open_take import policy_id
from townlet.observer.standalone import film_parts, write_page
from townlet.observer.studio import Studio
from townlet.observer.take import Change, parse_take
from townlet.observer.witness import witnesses
from townlet.policy.runtime import make_policy
from townlet.world.state import EVENTS

Open = Callable[..., Visit]
TICKS = 150


@pytest.fixture(scope="session")
def morning(studio: Studio) -> tuple[str, str]:
    """Two takes of a morning: by the script and by chance."""
    first = studio.new_take(short("rush_hour", TICKS), seed=7).take.id
    return first, studio.branch(first, [], "random").take.id


@pytest.fixture(scope="session")
def carried_life(studio: Studio, morning: tuple[str, str]) -> Carried:
    found = file_parts(studio, morning)
    assert found.lives
    return found


@pytest.fixture(scope="session")
def living_file(carried_life: Carried, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("living") / "town.html"
    write_page(path, *carried_life)
    return path


@pytest.fixture
def alive(visit: Open, living_file: Path) -> Visit:
    found = visit(living_file.as_uri())
    found.js("townlet.openB(null)")
    return found


def test_the_page_shows_the_native_digest_and_asks_for_nothing(alive: Visit, carried_life: Carried, living_file: Path) -> None:
    digests = carried_life.parts["living"]["digests"]
    for name, native in digests.items():
        assert alive.js("id => townlet.library.open(id).then(source => source.store.digest)", name) == native
    assert len(set(digests.values())) == 2
    assert next(iter(digests.values()))[:8] in alive.text("#digest")
    assert alive.asked == [living_file.as_uri()]


def test_what_is_simulated_in_the_page_is_what_is_filmed_natively(alive: Visit, studio: Studio, morning: tuple[str, str]) -> None:
    for part in film_parts(studio, morning)["takes"]:
        alive.js("id => townlet.openA(id)", part["header"]["id"])
        assert alive.js(DECODED) == raw_columns(part)


def check_reasons(page: Visit, studio: Studio, name: str, decisions: Sequence[int]) -> None:
    keys = ("sentence", "chosen", "script", "options", "masked", "reward", "sees", "fields")
    stage = studio.new_stage(studio.known(name).take)
    page.js("id => townlet.openA(id)", name)
    for decision in decisions:
        slots = range(stage.vec.num_residents)
        expected = witnesses(stage, decision, slots, full=True)
        shown = page.js("([t, n]) => Promise.all([...Array(n).keys()].map(slot => townlet.a.why(t, slot)))",
                        [decision * stage.interval, len(slots)])  # fmt: skip
        for mine, theirs in zip(shown, expected):
            assert mine["active"] == theirs["active"]
            if theirs["active"]:
                assert {key: mine[key] for key in keys} == {key: json.loads(json.dumps(theirs[key])) for key in keys}


def test_the_page_gives_the_reasons_that_python_gives(alive: Visit, studio: Studio, morning: tuple[str, str]) -> None:
    for name in morning:
        check_reasons(alive, studio, name, (1, 6, 11))
    assert len(alive.js("townlet.a.ties(100)")) > 2


def test_so_it_does_where_residents_choose_among_the_nearest(visit: Open, studio: Studio, tmp_path: Path) -> None:
    config = load_config("rush_hour", ["scenario.episode_ticks=60", "policy.action_level=candidates"])
    name = studio.new_take(config, seed=7).take.id
    write_page(tmp_path / "town.html", *file_parts(studio, [name]))
    page = visit((tmp_path / "town.html").as_uri())
    check_reasons(page, studio, name, (1, 4))
    page.js("townlet.select(0)")
    page.until("document.querySelector('.masked dt')")
    for words in page.page.locator(".masked dt").all_text_contents():  # what is barred in all its four ways is named once
        assert all(words.count(kind) < 4 for kind in ("use shower", "cook meal", "eat meal", "buy meal", "sleep"))


CHANGES = (
    ["perturb blackout 40"],
    ["exit alice"],
    ["exit alice", "newcomer"],
    ["tie alice~bob rivalry = 0.9", "tie carol~dave trust = -0.25"],
    ["resident bob.wallet = 3.21", "resident bob.meals = 2", "resident carol.hunger = 0.125"],
    ["force alice home", "force bob home", "force carol home"],
    ["conflict.quarrel_ticks = 20", "needs.hunger.decay = 0.004", "economy.rent = 12.5"],
)


REFUSED = ("objects += shower@5,10", "exit nobody", "resident alice.mood = 1", "conflict.quarrel_ticks = -5")


def end_of(studio: Studio, name: str) -> str:
    """The digest with which a take ends natively."""
    stage = studio.new_stage(studio.known(name).take)
    while stage.at < stage.decisions:
        stage.shoot()
    return stage.vec.digest()


def test_a_change_in_the_page_is_that_change_natively(alive: Visit, studio: Studio, morning: tuple[str, str]) -> None:
    ends = [end_of(studio, morning[0])]
    for words in CHANGES:
        changes = [{"at": 41 + 10 * k, "do": text} for k, text in enumerate(words)]
        native = studio.branch(morning[0], [Change.model_validate(one) for one in changes])
        head = alive.js("([id, changes]) => townlet.library.branch(id, changes, null)", [morning[0], changes])
        assert (head["id"], head["title"]) == (native.take.id, native.title)
        ends.append(end_of(studio, native.take.id))
        assert alive.js("id => townlet.library.open(id).then(source => source.store.digest)", head["id"]) == ends[-1], words
    assert ends[0] not in ends[1:]  # each of them did something


def test_every_idea_of_what_if_is_a_change_the_town_takes(alive: Visit) -> None:
    alive.js("townlet.seek(60)")
    groups = dict(alive.js("townlet.a.why(60, 0).then(why => townlet.ideas(why.options.map(one => one.name)))"))
    assert len(groups.pop("A rule")) > 40
    assert sum(map(len, groups.values())) > 20
    lived = "change => townlet.library.branch(townlet.a.head.id, [{ at: 60, do: change }], null).then(head => head.id)"
    assert all(alive.js(lived, change) for rows in groups.values() for _, change in rows)


def test_a_change_that_cannot_be_is_refused_in_a_sentence(alive: Visit) -> None:
    alive.js("townlet.seek(40)")
    alive.key("b")
    for text in REFUSED:
        alive.page.fill("#branch-do", text)
        alive.page.click("#branch-form button.main")
        alive.until("document.getElementById('branch-error').textContent.length > 10")
        assert alive.js("townlet.b") is None
        alive.js("document.getElementById('branch-error').textContent = ''")


def test_what_if_opens_beside_and_parts_after_the_change(alive: Visit) -> None:
    alive.js("townlet.seek(60)")
    alive.key("b")
    alive.page.click("#branch-form button.main")
    assert alive.text("#branch-error")  # nothing was chosen
    alive.page.select_option("#branch-idea", label="a blackout for an hour")
    assert alive.page.input_value("#branch-do") == "perturb blackout 60"
    alive.page.click("#branch-form button.main")
    alive.until("townlet.b !== null && !document.getElementById('divergence').hidden")
    alive.js("Promise.all([townlet.a.preload(), townlet.b.preload()])")
    assert not any(alive.js("Array.from(townlet.timeline.differs())")[:60])
    assert alive.page.is_visible("#futures")


def test_what_if_offers_what_the_resident_can_do_now_and_says_where_things_are_added(alive: Visit) -> None:
    alive.js("(townlet.select(0), townlet.seek(60))")
    alive.key("b")
    alive.until("document.querySelectorAll('#branch-idea optgroup').length === 4")
    offered = alive.page.locator("#branch-idea option[value^='force']").evaluate_all(
        "all => all.map(one => one.value.split(' ')[2])"
    )
    assert offered == alive.js("townlet.a.why(60, 0).then(why => why.options.map(one => one.name))")
    assert 0 < len(offered) < alive.js("townlet.a.head.actions.length")
    assert "townlet observe" in alive.text("#branch-things")
    alive.page.click("#branch-cancel")


def test_the_help_of_a_file_names_the_views_it_has(alive: Visit) -> None:
    assert alive.js("document.getElementById('keys-list').lastChild.textContent") == "g then t p q i town, people, queues, ties"


def totals(vec: VectorTown, policy: Any) -> dict[str, float]:
    found = dict.fromkeys(("reward", "queue_conflict", "quarrel", "waited", "exit"), 0.0)
    while not vec.state.towns[0]["over"]:
        vec.step(policy.act(vec).actions)
        found["reward"] += float(vec.rewards.astype(np.float64).sum())
        for event in vec.events():
            name = EVENTS[event["kind"]]
            if name in found:
                found[name] += 1
            if name in ("use_start", "queue_leave"):
                found["waited"] += max(0, int(event["waited"]))
    return found


def test_futures_of_the_page_are_the_native_futures(alive: Visit, studio: Studio, morning: tuple[str, str]) -> None:
    changes = [{"at": 60, "do": "resident alice.hunger = 0.1"}]
    alive.js(
        "([id, changes]) => townlet.library.branch(id, changes, null).then(head => townlet.openB(head.id))", [morning[0], changes]
    )
    alive.page.click("#futures")
    alive.until("document.querySelectorAll('#futures-body tr').length === 5")
    shown = alive.page.locator("#futures-body tr").first.locator("td").all_inner_texts()
    expected: list[list[dict[str, float]]] = []
    for name in (morning[0], studio.branch(morning[0], [Change.model_validate(one) for one in changes]).take.id):
        stage = studio.new_stage(studio.known(name).take)
        stage.go(6)
        moment, lived = stage.vec.save(), []
        for k in range(64):
            stage.vec.restore(moment)
            stage.vec.state.towns["id"] += k
            lived.append(totals(stage.vec, make_policy("scripted", stage.vec, seed=7)))
        expected.append(lived)
    means = [float(np.mean([one["reward"] for one in arm])) for arm in expected]
    assert means[0] != means[1]
    assert shown[:2] == [f"{mean:.2f}" for mean in means]
    assert float(shown[2].replace("−", "-")) == pytest.approx(means[1] - means[0], abs=0.006)


def test_a_resident_is_taken_over_and_what_was_played_is_a_take(
    alive: Visit, studio: Studio, morning: tuple[str, str], tmp_path: Path
) -> None:
    alive.js("townlet.seek(30)")
    alive.js("townlet.select(0)")
    alive.key("t")
    alive.until("document.querySelectorAll('#seat-options button').length > 1")
    offered = alive.js("townlet.seat.options.map(one => one.name)")
    masks = studio.new_stage(studio.known(morning[0]).take)
    masks.go(3)
    names = masks.vec.catalogue.names
    assert set(offered) == {names[a] for a in np.flatnonzero(masks.vec.masks[0, 0])}
    alive.key("2")
    alive.until("townlet.seat.decision === 4 && townlet.player.t === 40")
    alive.key("Enter")
    alive.until("townlet.seat.decision === 5")
    alive.key("1")
    alive.until("townlet.seat.decision === 6 && townlet.a.head.take.changes.length === 2")
    alive.key("Backspace")
    alive.until("townlet.seat.decision === 5 && townlet.a.head.take.changes.length === 1")
    alive.page.click("#seat-end")
    alive.until("document.getElementById('seat-said').textContent.includes('the same luck')")
    assert alive.js("townlet.a.head.take.changes") == [{"at": 30, "do": f"force alice {offered[1]}"}]
    with alive.page.expect_download() as saved:
        alive.page.click("#seat-save")
    saved.value.save_as(tmp_path / "alice.take")
    take = parse_take((tmp_path / "alice.take").read_bytes())
    stage = studio.new_stage(take)
    while stage.at < stage.decisions:
        stage.shoot()
    assert stage.vec.digest() == take.digest == alive.js("townlet.a.store.digest")
    earned = sum(float(reward) for reward in alive.js("townlet.a.store.shots.map(shot => shot.rewards[0])"))
    assert f"{abs(earned):.2f}" in alive.text("#seat-said")


def test_a_seat_that_is_over_takes_no_more_decisions(alive: Visit) -> None:
    """Digits and Enter went on choosing behind the end of the day, at which the page failed; Backspace brought nothing back."""
    alive.js("townlet.seek(townlet.a.last)")
    alive.js("townlet.select(0)")
    alive.key("t")
    alive.until("townlet.seat.options.length")
    alive.key("1")
    alive.until("townlet.seat.ended && !townlet.seat.busy")
    played = alive.js("townlet.a.head.take.changes")
    for key in ("2", "Enter"):
        alive.key(key)
    alive.settle()
    assert alive.js("[townlet.a.head.take.changes, townlet.seat.decision]") == [played, TICKS // 10]
    assert alive.js("townlet.mapA.overlay") == "doing"
    alive.key("Backspace")
    alive.until("!townlet.a.head.take.changes?.length && !townlet.seat.busy")
    assert alive.page.is_visible("#seat-options")


def test_a_seat_is_left_by_escape_and_waits_while_somebody_else_is_looked_at(alive: Visit) -> None:
    """The panel showed the name of one and the options of another, and digits decided for whom nobody saw."""
    alive.js("townlet.select(0)")
    alive.key("t")
    alive.until("townlet.seat.options.length")
    alive.key("j")
    alive.settle()
    assert alive.page.is_visible("#tab-why")
    assert not alive.page.is_visible("#seat")
    alive.key("3")
    assert (alive.js("townlet.mapA.overlay"), alive.js("townlet.seat.decision")) == ("queues", 0)
    alive.key("k")
    alive.settle()
    assert alive.page.is_visible("#seat-options")
    alive.key("t")  # which it is already
    alive.key("1")
    alive.until("townlet.seat.decision === 1 && !townlet.seat.busy")
    alive.key("Escape")
    alive.settle()
    assert "the same luck" in alive.text("#seat-said")
    assert alive.js("townlet.who") == 0
    alive.key("Escape")
    alive.settle()
    assert alive.page.is_visible("#take-over")
    assert alive.page.is_visible("#tab-why")
    assert not alive.page.is_visible("#seat")
    alive.key("Escape")
    assert alive.js("townlet.who") == -1


def test_who_plays_by_the_tab_key_stays_among_the_options(alive: Visit) -> None:
    alive.js("townlet.select(0)")
    alive.key("t")
    alive.until("townlet.seat.options.length")
    alive.page.locator("#seat-end").focus()
    alive.key("Tab")
    for decision in (1, 2):
        assert alive.js("document.activeElement.className") == "option"
        alive.key("Enter")
        alive.until(f"townlet.seat.decision === {decision} && !townlet.seat.busy")


def test_an_engine_with_one_constant_changed_is_not_trusted(visit: Open, carried_life: Carried, tmp_path: Path) -> None:
    module = carried_life.blobs["engine"]
    unit = b"\x44" + np.float64(1 / 2**53).tobytes()
    assert unit in module
    changed = module.replace(unit, b"\x44" + np.float64((1 + 2**-50) / 2**53).tobytes())
    write_page(tmp_path / "town.html", carried_life.parts, {**carried_life.blobs, "engine": changed})
    page = visit((tmp_path / "town.html").as_uri(), ready="failed")
    assert "is not the native one" in page.text("#status")


def test_a_trained_policy_decides_in_the_page(visit: Open, studio: Studio, tmp_path: Path) -> None:
    config = load_config("rush_hour", ["scenario.episode_ticks=90", "policy.network.map_encoder=none"])
    name = policy_id(studio, str(untrained(tmp_path / "net", VectorTown(config, 1))))
    take = studio.new_take(config, seed=3, policy=name).take.id
    carried = file_parts(studio, [take, studio.branch(take, [], "scripted").take.id])
    write_page(tmp_path / "town.html", *carried)
    page = visit((tmp_path / "town.html").as_uri())
    assert page.text("#digest").startswith("✓")
    assert set(carried.parts["living"]["image"]["policies"]) == {"random", "scripted", name}
    shown = page.js("townlet.a.why(40, 1)")
    (expected,) = witnesses(studio.new_stage(studio.known(take).take), 4, [1])
    assert {one["name"]: one["probability"] for one in shown["options"]} == pytest.approx(
        {one["name"]: one["probability"] for one in expected["options"]}, abs=1e-4
    )
    assert shown["value"] == pytest.approx(expected["value"], abs=1e-3)
    changes = [{"at": 40, "do": "perturb blackout 30"}]
    head = page.js("([id, changes]) => townlet.library.branch(id, changes, null)", [take, changes])
    assert page.js("id => townlet.library.open(id).then(source => source.store.shots.length)", head["id"]) == 9


def test_a_policy_without_a_kernel_plays_its_recorded_decisions(visit: Open, studio: Studio, tmp_path: Path) -> None:
    take = studio.new_take(short("rush_hour", 60), seed=3, policy="schedule").take.id
    write_page(tmp_path / "town.html", *file_parts(studio, [take]))
    page = visit((tmp_path / "town.html").as_uri())
    assert page.js("typeof townlet.a.head.played") == "object"
    assert page.text("#digest").startswith("✓")


def test_a_large_town_stays_a_film(studio: Studio, morning: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("townlet.observer.living.MOST_IMAGE", 1000)
    assert not file_parts(studio, morning).lives


@pytest.mark.slow
@pytest.mark.parametrize(("name", "most"), [("town_day", 300_000), ("market_square", 900_000)])
def test_a_living_file_is_small_and_opens_soon(visit: Open, studio: Studio, tmp_path: Path, name: str, most: int) -> None:
    carried = file_parts(studio, [studio.new_take(short(name, 1440)).take.id])
    assert carried.lives
    assert write_page(tmp_path / "town.html", *carried) <= most
    page = visit((tmp_path / "town.html").as_uri())
    assert page.js("performance.getEntriesByName('open')[0].duration") <= 1500


def test_one_moment_however_it_is_reached(visit: Open, living_file: Path) -> None:
    """By playing, stepping, seeking, a link and on a branch that has not parted yet: one picture of everybody."""
    columns = "['x', 'y', 'doing', 'thing', 'action']"
    state = f"(t => [t, ...{columns}.map(c => Array.from(townlet.a.peek(t)[c]).join())])(townlet.player.t)"
    page = visit(living_file.as_uri())
    page.js("townlet.openB(null)")
    page.js("(townlet.seek(88), townlet.player.setSpeed(0), townlet.player.play())")
    page.until("townlet.player.t >= 91")
    page.js("(townlet.player.pause(), townlet.player.t > 91 && townlet.player.step(91 - townlet.player.t))")
    found = [page.js(state)]
    page.js("townlet.seek(86)")
    for _ in range(5):
        page.key("ArrowRight")
    found.append(page.js(state))
    page.js("townlet.seek(3)")
    page.js("townlet.seek(91)")
    found.append(page.js(state))
    found.append(visit(page.js("townlet.link()")).js(state))
    head = page.js("townlet.library.branch(townlet.a.head.id, [{at: 120, do: 'perturb blackout 20'}], null)")
    page.js("id => townlet.openA(id)", head["id"])
    found.append(page.js(state))
    assert found[0][0] == 91
    assert all(one == found[0] for one in found)
    page.js("townlet.seek(145)")
    assert page.js(state) != found[0]


def test_a_link_carries_what_somebody_changed(visit: Open, living_file: Path, alive: Visit) -> None:
    alive.js("townlet.seek(40)")
    head = alive.js("townlet.library.branch(townlet.a.head.id, [{at: 40, do: 'perturb blackout 30'}], null)")
    alive.js("id => townlet.openB(id)", head["id"])
    link = alive.js("townlet.link()")
    assert len(link) - len(living_file.as_uri()) < 800
    other = visit(link)
    assert other.js("townlet.b.head.id") == head["id"]
    assert other.js("townlet.b.store.digest") == alive.js("townlet.b.store.digest") != other.js("townlet.a.store.digest")
    broken = visit(re.sub(r"vs=.{9}", "vs=AAAAAAAAA", link))
    assert "cannot be read" in broken.text("#status")


def test_a_reload_returns_to_what_somebody_changed(alive: Visit) -> None:
    alive.js("townlet.seek(40)")
    alive.key("b")
    alive.page.fill("#branch-do", "perturb blackout 30")
    alive.key("Enter")
    alive.until("townlet.b")
    born = alive.js("townlet.b.head.id")
    alive.page.reload()
    alive.page.wait_for_selector("body[data-ready=true]")
    assert (alive.js("townlet.b.head.id"), alive.tick) == (born, 40)
    assert alive.page.input_value("#take-b") == born


def test_surprise_is_what_the_critic_did_not_foresee(visit: Open, studio: Studio, tmp_path: Path) -> None:
    config = load_config("rush_hour", ["scenario.episode_ticks=120", "policy.network.map_encoder=none"])
    name = policy_id(studio, str(untrained(tmp_path / "net", VectorTown(config, 1))))
    take = studio.new_take(config, seed=3, policy=name).take.id
    write_page(tmp_path / "town.html", *file_parts(studio, [take]))
    page = visit((tmp_path / "town.html").as_uri())
    page.js("townlet.a.preload()")
    page.js("townlet.select(2)")
    shown = dict(page.js("[...townlet.timeline.surprise()]"))
    shots = page.js("townlet.a.store.shots.map(shot => [shot.tick, shot.rewards[2], shot.values[2]])")
    expected = {
        tick: abs(reward + config.ppo.gamma * after[2] - value) for (tick, reward, value), after in itertools.pairwise(shots)
    }
    assert len(expected) == 11
    assert shown == pytest.approx(expected, abs=0.02)  # reels keep hundredths


def test_futures_can_be_asked_for_again(alive: Visit) -> None:
    head = alive.js("townlet.library.branch(townlet.a.head.id, [{at: 100, do: 'perturb blackout 30'}], null)")
    alive.js("id => townlet.openB(id)", head["id"])
    for _ in range(2):
        alive.page.click("#futures")
        alive.until("document.querySelectorAll('#futures-body tr').length === 5")
        alive.page.locator("#futures-dialog").get_by_role("button", name="Close").click()
