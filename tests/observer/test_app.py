"""The observer's server, spoken to through raw sockets: who gets in, what the routes give, what viewers cost."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from checkpoints import write_run
from scorecards import checkpoint_folder, duel
from townlet.config import load_config
from townlet.config.loader import default_config
from townlet.envs.vector import VectorTown
from townlet.errors import UsageError
from townlet.evaluation.compare import save_scorecard
from townlet.observer.app import Observatory, serve
from townlet.observer.header import table_of
from townlet.observer.library import Library, weights_id
from townlet.observer.news import KEPT, News
from townlet.observer.reel import unpack
from townlet.observer.studio import Studio
from townlet.observer.take import parse_take
from townlet.policy.runtime import make_policy
from townlet.sim.loop import SimulationLoop


@dataclass
class Served:
    port: int
    observatory: Observatory
    take: str
    runs: Path

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cookie(self, role: str) -> str:
        token = self.observatory.act_token if role == "act" else self.observatory.watch_token
        return f"townlet_{self.port}={token}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    runs = tmp_path_factory.mktemp("runs")
    studio = Studio()
    known = studio.new_take(load_config("town_day"), seed=7)
    library = Library(runs, runs / "ledger.ndjson", default_config().promotion)

    def futures(studio: Studio, take: str, at: int, edits: list[str], count: int) -> dict[str, Any]:
        return {"take": take, "at": at, "edits": edits, "futures": count}

    observatory = Observatory(studio, library, futures, open={"take": known.take.id, "vs": None, "run": None})
    told: list[Any] = []
    thread = threading.Thread(
        target=serve, args=(observatory, "127.0.0.1", 0), kwargs={"ready": lambda *found: told.extend(found)}
    )
    thread.start()
    while not told:
        time.sleep(0.01)
    yield Served(told[0], observatory, known.take.id, runs)
    told[1]()
    thread.join(10)
    assert not thread.is_alive()


def ask(
    served: Served, method: str, target: str, headers: dict[str, str] | list[tuple[str, str]], body: bytes = b""
) -> tuple[int, dict[str, str], bytes]:
    """One request, byte by byte as given."""
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    if body or method == "POST":
        pairs = [*pairs, ("Content-Length", str(len(body)))]
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in pairs), "Connection: close", "", ""]
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as line:
        line.sendall("\r\n".join(lines).encode("latin-1") + body)
        data = b""
        while block := line.recv(1 << 16):
            data += block
    head, _, rest = data.partition(b"\r\n\r\n")
    words = head.decode("latin-1").split("\r\n")
    found = {name.lower(): value.strip() for name, _, value in (word.partition(":") for word in words[1:])}
    if found.get("transfer-encoding") == "chunked":
        rest = b"".join(part for part in re.split(rb"[0-9a-f]+\r\n", rest))
    return int(words[0].split()[1]), found, rest


def get(served: Served, target: str, role: str = "watch", **more: str) -> tuple[int, dict[str, str], bytes]:
    return ask(served, "GET", target, {"Host": served.host, "Cookie": served.cookie(role), **more})


def told(served: Served, target: str, role: str = "watch") -> Any:
    status, _, body = get(served, target, role)
    assert status == 200, (target, status, body)
    return json.loads(body)


def post(served: Served, target: str, value: Any, role: str = "act", **more: str) -> tuple[int, Any]:
    headers = {"Host": served.host, "Cookie": served.cookie(role), "X-Townlet": "1", "Content-Type": "application/json", **more}
    status, _, body = ask(served, "POST", target, headers, json.dumps(value).encode())
    return status, json.loads(body)


# --- the guard ---------------------------------------------------------------------------------------------------------------

HOSTS = {"own": True, "localhost": True, "evil.example": False, "own port": False, "none": False}
ORIGINS = {"none": True, "own": True, "foreign": False, "other port": False, "null": False}
TOKENS = ("none", "wrong", "watch", "act")


def header_values(served: Served, host: str, origin: str, token: str) -> list[tuple[str, str]]:
    values: list[tuple[str, str]] = []
    names = {"own": served.host, "localhost": f"localhost:{served.port}", "evil.example": f"evil.example:{served.port}",
             "own port": f"127.0.0.1:{served.port + 1}"}  # fmt: skip
    if host != "none":
        values.append(("Host", names[host]))
    origins = {
        "own": f"http://{served.host}",
        "foreign": "http://evil.example",
        "other port": f"http://127.0.0.1:{served.port + 1}",
        "null": "null",
    }
    if origin != "none":
        values.append(("Origin", origins[origin]))
    if token != "none":
        cookie = f"townlet_{served.port}={'x' * 32}" if token == "wrong" else served.cookie(token)
        values.append(("Cookie", cookie))
    return values


@pytest.mark.parametrize(("host", "origin", "token"), [*product(HOSTS, ORIGINS, TOKENS)])
def test_only_the_right_host_origin_and_token_get_in(served: Served, host: str, origin: str, token: str) -> None:
    """100 cases, each asked to watch and to act."""
    headers = header_values(served, host, origin, token)
    right = HOSTS[host] and ORIGINS[origin]
    status, found, _ = ask(served, "GET", "/api/about", headers)
    want = 400 if host == "none" else 403 if not right else 401 if token in ("none", "wrong") else 200
    assert status == want
    if host != "none":  # without Host the request is no HTTP/1.1, and no application sees it
        assert "default-src 'none'" in found["content-security-policy"]
        assert found["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in found
    acting = [*headers, ("X-Townlet", "1"), ("Content-Type", "application/json")]
    status, _, _ = ask(served, "POST", "/api/lint", acting, b'{"yaml":"extends: town_day"}')
    assert status == (want if want != 200 else 200 if token == "act" else 403)


@pytest.mark.parametrize("site", ["cross-site", "same-site", "same-origin", "none", "nonsense"])
def test_what_another_site_makes_the_browser_send_is_refused(served: Served, site: str) -> None:
    """A page on another port of this machine is `same-site`."""
    status, _, _ = get(served, "/api/about", **{"Sec-Fetch-Site": site})
    assert status == (200 if site in ("same-origin", "none") else 403)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "BREW"])
def test_other_methods_are_refused(served: Served, method: str) -> None:
    status, found, _ = ask(served, method, "/api/about", {"Host": served.host, "Cookie": served.cookie("act")})
    assert status == 405
    assert "access-control-allow-methods" not in found


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403), ({"X-Townlet": "0"}, 403), ({"X-Townlet": "1"}, 415), ({"X-Townlet": "1", "Content-Type": "text/plain"}, 415),
        ({"X-Townlet": "1", "Content-Type": "application/x-www-form-urlencoded"}, 415),
    ],
)  # fmt: skip
def test_a_form_of_another_site_cannot_act(served: Served, headers: dict[str, str], status: int) -> None:
    found, _, _ = ask(served, "POST", "/api/takes", {"Host": served.host, "Cookie": served.cookie("act"), **headers}, b"{}")
    assert found == status


def test_a_token_in_the_address_becomes_a_cookie(served: Served) -> None:
    for role in ("watch", "act"):
        token = served.cookie(role).partition("=")[2]
        status, found, _ = ask(served, "GET", f"/?token={token}", {"Host": served.host})
        assert (status, found["location"]) == (303, "/")
        assert found["set-cookie"] == f"townlet_{served.port}={token}; HttpOnly; SameSite=Strict; Path=/"
        assert told(served, "/api/about", role)["role"] == role
    for wrong in ("", "x", "x" * 5000, f"{served.observatory.act_token}&token=x", "%00", "x" + "&a=1" * 20):
        assert ask(served, "GET", f"/?token={wrong}", {"Host": served.host})[0] == 401
    token = served.observatory.act_token
    assert ask(served, "GET", f"/api/about?token={token}", {"Host": served.host})[0] == 401  # only at the door
    two = [("Host", served.host), ("Cookie", f"{served.cookie('act')}; {served.cookie('watch')}")]
    assert ask(served, "GET", "/api/about", two)[0] == 401
    assert ask(served, "GET", "/api/about", [("Host", served.host), ("Host", "evil.example"), ("Cookie", served.cookie("act"))])[
        0
    ] in (400, 403)


@pytest.mark.parametrize(
    "target",
    [
        "/static/../app.py", "/static/..%2fapp.py", "/static//etc/passwd", "/static/%2e%2e/%2e%2e/errors.py",
        "/api/takes/..%2f..%2fx",
        "/api/runs/..%2f..%2fetc/records", "/api/scenarios/..%2fx", "/api/scenarios/%2fetc%2fpasswd",
        "/api/takes/x%00/reels/0", "/etc/passwd",
        "/api/takes/x/reels/-1", "/api/takes/x/reels/99999999999999999999", "/api/takes/x.take", "/api/jobs/../../x",
        "/api/takes/TAKE/reels/" + "9" * 5000, "/api/takes/TAKE/why/0/" + "9" * 5000, "/api/takes/TAKE/snapshot/" + "9" * 30,
        "/api/takes/TAKE/decisions?after=%C2%B2", "/api/takes/TAKE/decisions?after=%D9%A3",
    ],
)  # fmt: skip
def test_no_request_is_a_path_or_no_number(served: Served, target: str) -> None:
    status, _, body = get(served, target.replace("TAKE", served.take), "act")
    assert status in (400, 404), body
    assert json.loads(body)["error"]
    assert b"root:" not in body


@pytest.mark.parametrize(
    "asked",
    [
        {"town": ["town_day"]}, {"town": {"a": 1}}, {"parent": "TAKE", "changes": [{"at": 1, "do": "\ud800 x"}]},
        {"town": "town_day", "policy": "\ud800"}, {"town": "town_day", "seed": float("nan")}, {"yaml": "\ud800: 1"},
    ],
)  # fmt: skip
def test_what_no_take_can_be_made_of_is_refused(served: Served, asked: dict[str, Any]) -> None:
    status, told = post(served, "/api/takes", json.loads(json.dumps(asked).replace("TAKE", served.take)))
    assert (status, bool(told["error"])) == (400, True)


def test_too_large_requests_end_early(served: Served) -> None:
    assert get(served, "/api/about?" + "x" * 9000)[0] in (400, 414)
    headers = {"Host": served.host, "Cookie": served.cookie("act"), "X-Townlet": "1", "Content-Type": "application/json"}
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as line:
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        line.sendall(f"POST /api/takes HTTP/1.1\r\n{head}Content-Length: {1 << 30}\r\n\r\n".encode())
        assert b" 413 " in line.recv(100)


# --- the routes --------------------------------------------------------------------------------------------------------------


def test_takes_and_reels(served: Served) -> None:
    about = told(served, "/api/about")
    assert about["open"]["take"] == served.take
    assert [row["id"] for row in told(served, "/api/takes")["takes"]][:1] == [served.take]
    header = told(served, f"/api/takes/{served.take}")
    assert header["take"]["town"] == "town_day"
    status, found, body = get(served, f"/api/takes/{served.take}/reels/0")
    assert status == 200
    assert "immutable" in found["cache-control"]
    reel = unpack(body, table_of(header))
    assert (reel.first, reel.ticks) == (0, 64)
    assert get(served, f"/api/takes/{served.take}/reels/0", **{"If-None-Match": found["etag"]})[0] == 304
    assert get(served, f"/api/takes/{served.take}/reels/{header['reels']}")[0] == 404
    assert get(served, "/api/takes/000000000000")[0] == 404
    status, found, body = get(served, f"/api/takes/{served.take}.take")
    assert parse_take(body).id == served.take
    assert "attachment" in found["content-disposition"]
    status, found, body = get(served, f"/api/takes/{served.take}.html")
    assert (status, b'id="film"' in body) == (200, True)
    assert get(served, f"/api/takes/{served.take}.html?vs=000000000000")[0] == 404
    status, found, body = get(served, "/")
    assert (status, b"<!doctype html" in body.lower()) == (200, True)
    assert get(served, "/static/main.js", **{"If-None-Match": get(served, "/static/main.js")[1]["etag"]})[0] == 304


def test_why_ties_moments_snapshot(served: Served) -> None:
    base = f"/api/takes/{served.take}"
    why = told(served, f"{base}/why/431/2")
    assert (why["decided"], why["active"]) == (430, True)
    assert told(served, f"{base}/ties/431")["tick"] == 430
    found = told(served, f"{base}/moments")["moments"]
    assert found
    assert told(served, f"{base}/divergence/{served.take}")["tick"] is None
    assert get(served, f"{base}/snapshot/100")[2][:2] == b"PK"
    assert get(served, f"{base}/decisions?after=x")[0] == 404
    assert get(served, f"{base}/why/99999/0")[0] == 404
    assert len(get(served, f"{base}/decisions?after=140")[2]) == 4 * 8


def test_a_branch_is_made_by_whoever_may_act(served: Served) -> None:
    who = told(served, f"/api/takes/{served.take}")["people"][0]["id"]
    asked = {"parent": served.take, "changes": [{"at": 200, "do": f"exit {who}"}]}
    assert post(served, "/api/takes", asked, role="watch")[0] == 403
    status, header = post(served, "/api/takes", asked)
    assert (status, header["parent"]) == (201, served.take)
    assert told(served, f"/api/takes/{served.take}/divergence/{header['id']}")["tick"] >= 200
    for wrong in (
        {"parent": served.take, "changes": [{"at": 200, "do": "rm"}]}, {"parent": "x", "changes": []}, {"town": "/etc/passwd"},
        {}, [],
        {"parent": served.take, "changes": "x"}, {"parent": served.take, "changes": [{"at": "1", "do": "newcomer"}]},
        {"yaml": "a: ["},
        {"yaml": "extends: /etc/passwd"}, {"yaml": "extends: ../x.yaml"}, {"town": "town_day", "policy": "/etc"},
        {"take": {"v": 1}},
        {"town": "town_day", "seed": -1}, {"town": "town_day", "seed": True},
    ):  # fmt: skip
        status, answer = post(served, "/api/takes", wrong)
        assert status == 400, wrong
        assert answer["error"]
    status, header = post(served, "/api/takes", {"yaml": "extends: queue_conflict\nscenario: {name: my_town}"})
    assert (status, header["take"]["town"]) == (201, "my_town")
    hostile = {"yaml": "extends: queue_conflict\nscenario: {name: '<script>alert(1)</script>'}"}
    status, answer = post(served, "/api/takes", hostile)
    assert (status, answer["error"].count("<script>")) == (400, 1)  # told as text, in JSON


def test_the_linter_and_the_catalogue(served: Served) -> None:
    assert "town_day" in [row["name"] for row in told(served, "/api/scenarios")["scenarios"]]
    text = told(served, "/api/scenarios/town_day")["yaml"]
    assert post(served, "/api/lint", {"yaml": text})[1]["ok"]
    bad = post(served, "/api/lint", {"yaml": "scenario: {map: 3}"})[1]
    assert not bad["ok"]
    assert bad["findings"][0]["text"]


def test_futures_are_a_job(served: Served) -> None:
    status, answer = post(served, "/api/futures", {"take": served.take, "at": 100, "edits": [], "futures": 4})
    assert status == 202
    for _ in range(200):
        job = told(served, f"/api/jobs/{answer['job']}")
        if job["state"] != "running":
            break
        time.sleep(0.02)
    assert job["result"] == {"take": served.take, "at": 100, "edits": [], "futures": 4}
    assert post(served, "/api/futures", {"take": served.take, "at": 100, "edits": [], "futures": 10**6})[0] == 400


# --- runs --------------------------------------------------------------------------------------------------------------------


def make_run(folder: Path) -> Path:
    write_run(folder, load_config("town_day"), telemetry=str(folder / "ppo.ndjson"))
    (folder / "ppo.ndjson").write_text("".join(json.dumps({"epoch": k, "loss_total": 0.5}) + "\n" for k in range(3)))
    return folder / "ppo.ndjson"


def test_records_come_by_cursor_and_a_cut_log_is_noticed(served: Served) -> None:
    log = make_run(served.runs / "one")
    (row,) = told(served, "/api/runs")["runs"]
    assert row["name"] == "one"
    base = f"/api/runs/{row['id']}"
    assert told(served, base)["config"]["config_id"] == "town_day"
    first = told(served, f"{base}/records")
    assert [record["epoch"] for record in first["records"]] == [0, 1, 2]
    assert told(served, f"{base}/records?after={first['next']}")["records"] == []
    with log.open("a") as more:
        more.write(json.dumps({"epoch": 3}) + "\n" + '{"epoch": 4')
    second = told(served, f"{base}/records?after={first['next']}")
    assert [record["epoch"] for record in second["records"]] == [3]
    log.write_text(json.dumps({"epoch": 0}) + "\n")
    third = told(served, f"{base}/records?after={second['next']}")
    assert third["cut"]
    assert [record["epoch"] for record in third["records"]] == [0]
    assert told(served, f"{base}/records?after=nonsense")["cut"]
    assert told(served, f"{base}/scorecard")["scorecards"] == []
    save_scorecard(duel(1, towns=2), log.parent / "a_scorecard.json")
    (log.parent / "b_scorecard.json").write_bytes(
        (log.parent / "a_scorecard.json").read_bytes().replace(b'"towns": 2', b'"towns": 3')
    )
    (log.parent / "c_scorecard.json").write_text("[" * 5000)
    good, *bad = told(served, f"{base}/scorecard")["scorecards"]
    assert good["cases"][0]["towns"] == 2
    assert ["seal is broken" in bad[0]["problem"], "nested too deeply" in bad[1]["problem"]] == [True, True]
    assert told(served, "/api/ledger")["verify"]["ok"]
    assert get(served, "/api/runs/nope/records")[0] == 404


# --- news --------------------------------------------------------------------------------------------------------------------


def listen(served: Served, target: str = "/api/news") -> socket.socket:
    line = socket.create_connection(("127.0.0.1", served.port), timeout=20)
    line.sendall(f"GET {target} HTTP/1.1\r\nHost: {served.host}\r\nCookie: {served.cookie('watch')}\r\n\r\n".encode())
    return line


def read_until(line: socket.socket, words: bytes) -> bytes:
    data = b""
    while words not in data:
        block = line.recv(1 << 16)
        assert block, data[-300:]
        data += block
    return data


def test_news_reach_every_viewer_and_a_stuck_one_costs_nothing(served: Served) -> None:
    lines = [listen(served) for _ in range(12)]
    try:
        for line in lines:
            read_until(line, b"event: hello")
        stuck, reading = lines[:4], lines[4:]
        readers = [threading.Thread(target=read_until, args=(line, b'"last":1')) for line in reading]
        for reader in readers:
            reader.start()
        big = "x" * 20_000
        for k in range(600):
            served.observatory.news.publish("note", {"k": k, "text": big})
        served.observatory.news.publish("note", {"last": 1})
        began = time.monotonic()
        assert told(served, "/api/about")["version"]
        assert time.monotonic() - began < 60
        heard = read_until(stuck[0], b'"last":1')  # it gets what fits, and is told of the rest
        assert b"event: lost" in heard
        assert heard.count(b"event: note") < 600
        for reader in readers:
            reader.join(120)
            assert not reader.is_alive()
    finally:
        for line in lines:
            line.close()
    for _ in range(300):
        if served.observatory.news.viewers == 0:
            break
        time.sleep(0.05)
        served.observatory.news.publish("note", {})
    assert served.observatory.news.viewers == 0


def test_two_hundred_viewers_of_whom_fifty_are_stuck_cost_little_and_disturb_nobody(served: Served) -> None:
    """`benchmarks/page/bars.py viewers` measures memory and cost to a run; here: queues are bounded and all are served."""
    reels = {k: get(served, f"/api/takes/{served.take}/reels/{k}")[2] for k in range(3)}
    vec = VectorTown("queue_conflict", 1, seed=5)
    loop = SimulationLoop(vec, make_policy("scripted", vec))
    loop.run(120)
    lone = vec.digest()
    vec.reset()
    lines = [listen(served) for _ in range(100)]  # of whom the first 25 never read
    for line in lines[25:]:
        read_until(line, b"event: hello")
    try:
        lines += [listen(served, f"/api/takes/{served.take}/reels/{k % 3}") for k in range(25)]
        for k in range(300):
            served.observatory.news.publish("note", {"k": k, "text": "x" * 2_000})
        served.observatory.news.publish("note", {"last": 1})
        with ThreadPoolExecutor(16) as viewers:
            same = viewers.map(lambda k: get(served, f"/api/takes/{served.take}/reels/{k % 3}")[2] == reels[k % 3], range(225))
            heard = viewers.map(lambda line: len(read_until(line, b'"last":1')) > 2_000, lines[25:100])
            loop.run(120)
            assert all(same)
            assert all(heard)
        assert vec.digest() == lone
        assert max(len(viewer.queue) for viewer in served.observatory.news._viewers) <= KEPT
    finally:
        for line in lines:
            line.close()


def test_a_server_that_closes_lets_its_viewers_go() -> None:
    async def heard() -> list[bytes]:
        news = News()
        news.start()
        lines = []
        async for line in news.stream():
            lines.append(line)
            news.close()
        return lines

    with ThreadPoolExecutor(1) as apart:  # from the loop that a browser of another test may have left in this thread
        (line,) = apart.submit(asyncio.run, asyncio.wait_for(heard(), 10)).result()
    assert line.startswith(b"event: hello")


def test_the_film_that_somebody_watches_is_shot_to_its_end(served: Served) -> None:
    status, head = post(served, "/api/takes", {"town": "queue_conflict", "seed": 77})
    assert status == 201
    assert told(served, f"/api/takes/{head['id']}")["shot"] == 0
    line = listen(served)
    try:
        read_until(line, b"event: hello")
        assert get(served, f"/api/takes/{head['id']}/reels/0")[0] == 200
        last = f'"take":"{head["id"]}","reels":{head["reels"]}'.encode()
        read_until(line, last)
    finally:
        line.close()
    assert told(served, f"/api/takes/{head['id']}")["shot"] == head["reels"]
    assert served.observatory.studio.kept_reel(head["id"], head["reels"] - 1) is not None


def test_a_damaged_run_hides_neither_the_news_nor_the_policies_of_the_others(tmp_path: Path) -> None:
    """Nobody was told of any run while one of them was damaged or had just been removed."""
    library = Library(tmp_path, tmp_path / "ledger.ndjson", default_config().promotion)
    for name in ("a", "b", "c"):
        write_run(tmp_path / name, load_config("town_day"))
        checkpoint_folder(tmp_path / name / "checkpoints" / "000001", name)
    assert library.changes() == []
    wanted = weights_id(tmp_path / "c" / "checkpoints" / "000001")
    (tmp_path / "a" / "run.json").write_text("damaged")
    (tmp_path / "a" / "checkpoints" / "000001" / "state.json").write_text("damaged")
    (tmp_path / "b" / "ppo.ndjson").symlink_to("ppo.ndjson")
    (tmp_path / "c" / "ppo.ndjson").write_text("{}\n")
    assert [news for news, _ in library.changes()] == ["record"]
    assert library.find_policy(wanted) == ("c", tmp_path / "c" / "checkpoints" / "000001")


def test_one_viewer_too_many_is_refused_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was answered with 200, and then the server told of an error."""
    monkeypatch.setattr("townlet.observer.news.MOST_VIEWERS", 0)
    with pytest.raises(UsageError, match="0 viewers are here already"):
        News().stream()


def test_a_request_that_is_cut_off_is_no_error_of_the_server(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("uvicorn.error")
    logger.addHandler(caplog.handler)
    try:
        head = f"POST /api/takes HTTP/1.1\r\nHost: {served.host}\r\nCookie: {served.cookie('act')}\r\nX-Townlet: 1\r\n"
        with socket.create_connection(("127.0.0.1", served.port)) as line:
            line.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
            time.sleep(0.2)
        time.sleep(0.5)
        assert told(served, "/api/about")["version"]
        assert caplog.text == ""
    finally:
        logger.removeHandler(caplog.handler)
