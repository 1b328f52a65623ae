"""The page against its server in Chromium: its own policy, branching, runs that grow, scenarios."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Any

import pytest

from checkpoints import untrained, write_run
from page_tools import FINDINGS, Served, Visit, short
from places import ROOT
from scorecards import checkpoint_folder, duel
from townlet.cli.observe import futures
from townlet.config import load_config
from townlet.dto.studies import ForkResult
from townlet.engine.module import engine_module
from townlet.envs.vector import VectorTown
from townlet.evaluation.compare import save_scorecard
from townlet.observer.studio import Studio
from townlet.world.rng import _UNIT

Open = Callable[..., Visit]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    from townlet.config.loader import default_config
    from townlet.observer.app import Observatory, serve
    from townlet.observer.library import Library

    runs = tmp_path_factory.mktemp("runs")
    library = Library(runs, runs / "ledger.ndjson", default_config().promotion)
    studio = Studio(library.find_policy)
    take = studio.new_take(short("queue_conflict", 120), seed=7).take.id
    observatory = Observatory(studio, library, futures, open={"take": take, "vs": None, "run": None})
    told: list[Any] = []
    there = threading.Event()

    def ready(*found: Any) -> None:
        told.extend(found)
        there.set()

    thread = threading.Thread(target=serve, args=(observatory, "127.0.0.1", 0), kwargs={"ready": ready}, daemon=True)
    thread.start()
    assert there.wait(60)
    port, stop = told
    yield Served(f"http://127.0.0.1:{port}/?token=", observatory, runs)
    stop()
    thread.join(20)


@pytest.fixture
def page(visit: Open, served: Served) -> Visit:
    return visit(served.address + served.observatory.act_token)


def test_the_page_plays_from_its_server_and_tells_why(page: Visit) -> None:
    page.js("townlet.player.setSpeed(5)")
    page.key("Space")
    page.until("townlet.player.t > 70")
    page.key("Space")
    page.key("j")
    page.until("document.querySelector('#inspector-body .lead')")
    assert page.text("#inspector-body .lead").startswith(page.text("#who-name"))
    page.js("townlet.inspector.choose('sees')")
    page.until("document.querySelectorAll('#inspector-body details tr').length > 10")
    assert any("/reels/1" in url for url in page.asked)


def test_a_server_that_is_gone_is_told_of_and_asked_again(visit: Open, served: Served) -> None:
    page = visit(served.address + served.observatory.watch_token)
    page.until("townlet.lives(townlet.a)")
    page.js("townlet.adoptA(townlet.library.films.get(townlet.a.head.id))")  # back to the film, which needs the server
    page.js("(townlet.a.reels.clear(), townlet.a.store.packed.clear(), townlet.a.lastFrame = null)")
    page.page.route("**/reels/*", lambda route: route.abort())
    page.js("townlet.player.setSpeed(5)")
    page.js("townlet.seek(70)")
    page.key("Space")
    page.until("!document.getElementById('status').hidden")
    assert "does not answer" in page.text("#status")
    page.page.wait_for_timeout(300)
    assert len([url for url in page.asked if "/reels/1" in url]) <= 4  # not once a frame
    page.page.unroute("**/reels/*")
    page.until("townlet.player.t > 80 && document.getElementById('status').hidden")
    page.complaints.clear()  # the browser itself notes what did not come


def test_a_branch_is_made_beside_the_original(page: Visit) -> None:
    page.js("townlet.seek(30)")
    page.key("b")
    page.page.fill("#branch-do", "objects -= nothing_like_this")
    page.page.get_by_role("button", name="Run it beside A").click()
    page.until("document.getElementById('branch-error').textContent")
    page.complaints.clear()  # the browser itself notes the refusal
    page.page.fill("#branch-do", "perturb blackout 40")
    page.page.get_by_role("button", name="Run it beside A").click()
    page.until("townlet.b !== null && !document.getElementById('divergence').hidden")
    assert page.js("townlet.b.head.take.changes") == [{"at": 30, "do": "perturb blackout 40"}]
    page.js("Promise.all([townlet.a.preload(), townlet.b.preload()])")
    assert not any(page.js("Array.from(townlet.timeline.differs())")[:30])


def test_one_more_shower_is_a_choice_and_its_futures_are_those_of_fork(page: Visit, served: Served) -> None:
    page.js("townlet.seek(0)")
    page.key("b")
    page.page.select_option("#branch-idea", label="one more shower")
    edit = page.page.input_value("#branch-do")
    assert edit.startswith("objects += shower@")
    page.page.get_by_role("button", name="Run it beside A").click()
    page.until("townlet.b !== null && townlet.b.head.things.filter(one => one.kind === 'shower').length === 2")
    page.page.click("#futures")
    page.until("document.querySelectorAll('#futures-body tr').length === 5")
    shown = page.page.locator("#futures-body tr").evaluate_all(
        "rows => rows.map(row => [row.cells[1].textContent, row.cells[2].textContent])"
    )
    found = futures(served.observatory.studio, page.js("townlet.a.head.id"), 0, [edit], 64)
    effects = ForkResult.model_validate(found, strict=False).effects
    asked = [effects[name] for name in ("return", "conflicts", "quarrels", "wait_mean", "exits")]
    assert shown == [[f"{one.before.mean:.2f}", f"{one.after.mean:.2f}"] for one in asked]
    assert any(before != after for before, after in shown)


def test_the_page_moves_to_the_engine_when_it_ends_as_the_native_town(visit: Open, served: Served) -> None:
    """Then whoever may only watch asks what if, too: it is the viewer's own town."""
    page = visit(served.address + served.observatory.watch_token)
    page.js("townlet.seek(60)")
    filmed = page.js("townlet.a.frame(60).then(frame => Array.from(frame.x))")
    page.until("townlet.lives(townlet.a)")
    studio = served.observatory.studio
    stage = studio.new_stage(studio.known(page.js("townlet.a.head.id")).take)
    while stage.at < stage.decisions:
        stage.shoot()
    assert page.js("townlet.a.store.digest") == stage.vec.digest()
    assert page.text("#digest").startswith("✓")
    assert page.tick == 60
    assert page.js("Array.from(townlet.a.peek(60).x)") == filmed  # there at once: the map is not empty for a moment
    page.key("b")
    page.page.fill("#branch-do", "perturb blackout 40")
    page.page.get_by_role("button", name="Run it beside A").click()
    page.until("townlet.b !== null && townlet.lives(townlet.b)")
    page.js("townlet.select(0)")
    page.key("t")
    page.until("document.querySelectorAll('#seat-options button').length > 1")


def test_an_engine_that_ends_otherwise_is_not_trusted(visit: Open, served: Served) -> None:
    module = engine_module()
    unit = b"\x44" + struct.pack("<d", _UNIT)
    changed = module.replace(unit, b"\x44" + struct.pack("<d", _UNIT / 2))
    assert changed != module
    wrong = {"content_type": "application/wasm", "body": changed}
    page = visit(served.address + served.observatory.watch_token, routes={"**/api/engine.wasm": wrong})
    page.until("townlet.library.refused")
    page.until("!document.getElementById('digest').hidden")
    assert not page.js("townlet.lives(townlet.a)")
    assert "is not the native one" in page.page.get_attribute("#digest", "title")
    page.key("b")
    assert "for watching only" in page.text("#status")


def test_a_page_of_another_port_can_neither_read_nor_act(visit: Open, served: Served, chromium: Any) -> None:
    page = visit(served.address + served.observatory.act_token)  # the browser has the cookie now
    own = served.address.partition("/?")[0]
    other = page.page.context.new_page()
    other.route(
        "http://127.0.0.1:9/", lambda route: route.fulfill(content_type="text/html", body="<!doctype html><title>x</title>")
    )
    other.goto("http://127.0.0.1:9/")
    takes = len(served.observatory.studio.takes)
    asked = """async ([url, how]) => {
      try {
        const answer = await fetch(url, how);
        return [answer.type, answer.status, (await answer.text()).length];
      } catch { return "refused"; }
    }"""
    post = {
        "method": "POST",
        "credentials": "include",
        "headers": {"content-type": "application/json", "x-townlet": "1"},
        "body": '{"town": "town_day", "seed": 99}',
    }
    assert other.evaluate(asked, [f"{own}/api/takes", {"credentials": "include"}]) == "refused"
    assert other.evaluate(asked, [f"{own}/api/takes", {"credentials": "include", "mode": "no-cors"}]) == "refused"
    assert other.evaluate(asked, [f"{own}/api/takes", post]) == "refused"
    assert other.evaluate(asked, [f"{own}/api/takes", {**post, "mode": "no-cors", "headers": {}}]) == "refused"
    assert len(served.observatory.studio.takes) == takes
    other.close()


def test_a_new_take_of_a_run_plays_beside_the_script(page: Visit, served: Served) -> None:
    run = served.runs / "played"
    config = load_config("queue_conflict", ["scenario.episode_ticks=60", "policy.network.map_encoder=none"])
    write_run(run, config)
    untrained(run / "checkpoints" / "000001", VectorTown(config, 1))
    page.js("townlet.openView('runs')")
    page.page.get_by_role("button", name="Play 000001 of played beside the script").click()
    page.until("townlet.b !== null && townlet.a.head.ticks === 60")
    assert page.js("[townlet.a.head.take.policy, townlet.b.head.take.policy]")[1] == "scripted"
    assert page.js("townlet.a.head.take.policy") not in ("scripted", "random")


def test_painting_on_the_map_changes_the_text_and_the_map(page: Visit) -> None:
    page.js("townlet.openView('scenario')")
    page.until("townlet.views.scenario.map.scale > 0")
    page.page.get_by_role("button", name="Paint road").click()
    before = page.page.input_value("#scenario-text")
    scale, x0, y0 = page.js("(({scale, x0, y0}) => [scale, x0, y0])(townlet.views.scenario.map)")
    tiles = page.js("townlet.views.scenario.map.source.head.map.tiles")
    x, y = next((x, y) for y, row in enumerate(tiles) for x, tile in enumerate(row) if tile == "0")
    box = page.page.locator("#scenario-map").bounding_box()
    page.page.mouse.click(box["x"] + (x + 0.5 - x0) * scale, box["y"] + (y + 0.5 - y0) * scale)
    after = page.page.input_value("#scenario-text")
    assert sum(one != two for one, two in zip(before, after)) == 1
    page.until(f"townlet.views.scenario.map.source.head.map.tiles[{y}][{x}] !== '0'")


def test_a_run_that_grows_is_seen_to_grow(page: Visit, served: Served) -> None:
    lines = (ROOT / "docs/samples/ppo_telemetry_v1_3.jsonl").read_text().splitlines()
    run = served.runs / "demo"
    (run / "checkpoints").mkdir(parents=True)
    log = run / "telemetry.ndjson"
    write_run(run, load_config("queue_conflict"), telemetry=log.name)
    log.write_text("\n".join(lines[:2]) + "\n")
    page.js("""() => {
      const ask = fetch, open = new Promise(done => { window.letThrough = done; });
      window.fetch = async (path, ...more) => { if (path.includes("/records")) await open; return ask(path, ...more); };
    }""")
    page.key("g")
    page.key("r")
    page.until("document.querySelectorAll('#runs-list li').length")
    assert page.text("#runs-note") == "Reading the curves …"  # a long log takes its time
    page.js("letThrough()")
    page.until("document.querySelectorAll('#runs-charts canvas').length > 2")
    page.until("document.getElementById('runs-note').textContent === ''")
    count = "[...townlet.views.runs.logs.values()][0].records.length"
    assert page.js(count) == 2
    with log.open("a") as file:
        file.write(lines[2] + "\n")
    page.until(f"{count} === 3")
    page.until("document.querySelector('#runs-list li').textContent.includes('3 records · unfinished')")
    bad = json.loads(lines[2]) | {
        "epoch": 4,
        "cycle_id": 0,
        "log_stream_offset": 4,
        "kl_divergence": 9.0,
        "explained_variance": -5.0,
    }
    with log.open("a") as file:
        file.write(json.dumps({key: value for key, value in bad.items() if key != "seal"}) + "\n")
    page.until("document.querySelectorAll('#runs-alarms li').length")
    assert "epoch 4" in page.text("#runs-alarms")
    page.until("document.getElementById('status').textContent.startsWith('Alarm: demo: ')")
    log.write_text(lines[0] + "\n")
    page.until(f"{count} === 1")


@pytest.mark.parametrize(("width", "scheme"), [(1024, "dark"), (390, "light")])
def test_axe_finds_nothing_serious_in_what_a_server_shows(visit: Open, served: Served, width: int, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python")
    page = visit(served.address + served.observatory.act_token, width=width, color_scheme=scheme, bypass_csp=True)
    page.js((files(axe) / "axe.min.js").read_text(encoding="utf-8"))
    for view, there in (("runs", "#view-runs h2"), ("releases", "#releases-body p"), ("scenario", "#scenario-findings .ok")):
        page.js("view => townlet.openView(view)", view)
        page.page.locator(there).first.wait_for()
        page.settle()
        assert page.js(FINDINGS) == [], view
        tab = page.page.locator(f"#go-{view}").bounding_box()
        assert tab["x"] + tab["width"] <= width + 1, "the view that is open is among those to be seen"
    page.js("townlet.openView('town')")
    page.js("townlet.branch()")
    assert page.js(FINDINGS) == [], "what if"
    page.js("document.getElementById('branch-dialog').close()")
    page.until("townlet.lives(townlet.a)")
    page.js("(townlet.select(0), townlet.seat.begin())")
    page.until("document.querySelectorAll('#seat-options button').length > 1")
    assert page.js(FINDINGS) == [], "take over"


def test_a_scenario_is_linted_while_one_types(page: Visit) -> None:
    page.js("townlet.openView('scenario')")
    page.until("document.querySelector('#scenario-findings .ok')")
    assert "queue_conflict" in page.page.input_value("#scenario-text")
    page.page.fill("#scenario-text", "scenario: {map: 5}")
    page.until("document.querySelector('#scenario-findings .error')")


def test_releases_say_what_was_judged_and_which_gates_passed(page: Visit, served: Served) -> None:
    page.js("townlet.openView('releases')")
    page.until("document.getElementById('releases-body').textContent.includes('Nothing was judged yet')")
    candidate = checkpoint_folder(served.runs / "candidate" / "000001", "one")
    save_scorecard(duel(1, {"return": -20.0}, candidate=candidate), served.runs / "card.json")
    decision = served.observatory.library.releases.evaluate(served.runs / "candidate" / "000001", served.runs / "card.json")
    page.js("townlet.openView('releases')")
    page.until("document.querySelectorAll('#releases-body .entry').length === 1")
    shown, passed = page.text("#releases-body .entry"), sum(gate.verdict == "pass" for gate in decision.gates)
    assert decision.outcome.value == "FAIL"
    assert "refused" in shown
    assert f"{passed} of {len(decision.gates)} gates passed" in shown
    assert decision.reasons[0] in shown
