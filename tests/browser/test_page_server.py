"""The page against its server in Chromium: its own policy, branching, runs that grow, scenarios."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from checkpoints import write_run
from page_tools import Served, Visit, short
from places import ROOT
from townlet.config import load_config
from townlet.observer.studio import Studio

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
    observatory = Observatory(studio, library, lambda *_: {}, open={"take": take, "vs": None, "run": None})
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


def test_who_may_only_watch_is_told_so(visit: Open, served: Served) -> None:
    page = visit(served.address + served.observatory.watch_token)
    page.key("b")
    assert "watch only" in page.text("#status")


def test_a_run_that_grows_is_seen_to_grow(page: Visit, served: Served) -> None:
    lines = (ROOT / "docs/samples/ppo_telemetry_v1_3.jsonl").read_text().splitlines()
    run = served.runs / "demo"
    (run / "checkpoints").mkdir(parents=True)
    log = run / "telemetry.ndjson"
    write_run(run, load_config("queue_conflict"), telemetry=log.name)
    log.write_text("\n".join(lines[:2]) + "\n")
    page.key("g")
    page.key("r")
    page.until("document.querySelectorAll('#runs-charts canvas').length > 2")
    count = "[...townlet.views.runs.logs.values()][0].records.length"
    assert page.js(count) == 2
    with log.open("a") as file:
        file.write(lines[2] + "\n")
    page.until(f"{count} === 3")
    log.write_text(lines[0] + "\n")
    page.until(f"{count} === 1")


def test_a_scenario_is_linted_while_one_types(page: Visit) -> None:
    page.js("townlet.openView('scenario')")
    page.until("document.querySelectorAll('#scenario-findings li').length")
    assert "queue_conflict" in page.page.input_value("#scenario-text")
    page.page.fill("#scenario-text", "scenario: {map: 5}")
    page.until("document.querySelector('#scenario-findings .error')")


def test_releases_show_an_empty_ledger(page: Visit) -> None:
    page.js("townlet.openView('releases')")
    page.until("document.getElementById('releases-body').textContent.includes('No release yet')")
