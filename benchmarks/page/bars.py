"""The bars of the page, each measured by a command; what is found is written into results.json beside this file.

python benchmarks/page/bars.py files            size of living files, how soon they open from file://, what they ask for
python benchmarks/page/bars.py frames           10,000 residents: script a frame, frames a second, seeking; seeking of 24 and 200
python benchmarks/page/bars.py viewers          200 viewers of 10,000 residents, 50 of them stuck: cost to the server and to a run
python benchmarks/page/bars.py recorder         what keeping every decision costs a run
python benchmarks/page/bars.py newcomer         from the demo's page to a quarrel and why; the questions people ask, in actions

Chromium is the system's, driven by playwright. Every result carries the load of the machine before and after:
a figure taken under load is an upper bound.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, median
from typing import Any

RESULTS = Path(__file__).with_name("results.json")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu"]
LARGE = "metropolis"
DEMO = Path("runs/demo")  # what `make demo` leaves
FRAMES = """seconds => new Promise(done => {
  const cost = [], apart = [], begun = performance.now();
  let before = 0;
  townlet.player.play();
  const look = now => {
    if (before) apart.push(now - before);
    before = now;
    if (townlet.cost !== undefined) cost.push(townlet.cost);
    if (now - begun < seconds * 1000) requestAnimationFrame(look);
    else { townlet.player.pause(); done({ cost, apart }); }
  };
  requestAnimationFrame(look);
})"""
SEEK = """async tick => {
  const begun = performance.now();
  townlet.seek(tick);
  await townlet.a.frame(tick);
  townlet.draw();
  return performance.now() - begun;
}"""


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def served(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server of its own, and the address to act."""
    command = [sys.executable, "-m", "townlet", "observe", *words, "--no-open"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        for line in child.stdout:
            if line.startswith("open "):
                yield child, line.split()[1]
                break
    finally:
        child.terminate()
        child.wait()


class Clock:
    """Processor time of a page's main thread: what others do on the machine is not in it."""

    def __init__(self, page: Any) -> None:
        self._wire = page.context.new_cdp_session(page)
        self._wire.send("Performance.enable", {"timeDomain": "threadTicks"})

    def read(self, name: str) -> float:
        """`ScriptDuration` or `TaskDuration` so far, ms."""
        found = {one["name"]: one["value"] for one in self._wire.send("Performance.getMetrics")["metrics"]}
        return 1000 * float(found[name])


def opened(browser: Any, address: str, asked: list[str] | None = None, clocks: list[Clock] | None = None) -> Any:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    if clocks is not None:
        clocks.append(Clock(page))
    page.set_default_timeout(300_000)
    if asked is not None:
        page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    page.wait_for_selector('body[data-ready="true"]')
    return page


def files() -> dict[str, Any]:
    from townlet.config import load_config
    from townlet.observer.living import file_parts
    from townlet.observer.standalone import write_page
    from townlet.observer.studio import Studio

    found = {}
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        for town in ("town_day", "market_square"):
            studio, path = Studio(), Path(folder) / f"{town}.html"
            size = write_page(path, *file_parts(studio, [studio.new_take(load_config(town)).take.id]))
            times, busy, asked = [], [], []
            for _ in range(5):
                clocks: list[Clock] = []
                page = opened(browser, path.as_uri(), asked, clocks)
                times.append(page.evaluate("performance.getEntriesByName('open')[0].duration"))
                busy.append(clocks[0].read("TaskDuration"))
                page.close()
            others = [url for url in asked if url != path.as_uri() and not url.startswith("data:")]
            found[town] = {
                "bytes": size,
                "open_ms": sorted(round(t) for t in times),
                "main_thread_cpu_ms": sorted(round(t) for t in busy),
                "requests": len(others),
            }
    return found


def frames(seconds: float = 5.0) -> dict[str, Any]:
    """Playing and seeking; times on the clock, and by processor time of the page's main thread and of the server."""
    found: dict[str, Any] = {"seek": {}, "day_shot_after_s": {}}
    with chromium() as browser:
        for town in (LARGE, "market_square", "rush_hour"):
            with served(town) as (child, address):
                begun = time.monotonic()
                clocks: list[Clock] = []
                page = opened(browser, address, clocks=clocks)
                page.evaluate("Promise.all([0, 1, 2].map(k => townlet.a.load(k)))")
                if town == LARGE:
                    before = clocks[0].read("ScriptDuration")
                    played = page.evaluate(FRAMES, seconds)
                    count = len(played["apart"])
                    found["playing"] = {
                        "script_cpu_ms_a_frame": round((clocks[0].read("ScriptDuration") - before) / count, 2),
                        "drawing_ms_a_frame_on_the_clock": round(median(played["cost"]), 2),
                        "frames_a_second": round(1000 * count / sum(played["apart"]), 1),
                    }
                while page.evaluate("townlet.a.shotUntil <= townlet.a.last"):  # the server shoots on; the time line says how far
                    page.wait_for_timeout(200)
                found["day_shot_after_s"][town] = round(time.monotonic() - begun, 1)
                rows = []
                for tick in (1340, 130, 720, 1439, 1010, 400):
                    page.evaluate("(townlet.a.reels.clear(), townlet.a.store.packed?.clear())")
                    cpu, busy = usage(child.pid)[0], clocks[0].read("TaskDuration")
                    row = {"tick": tick, "ms": round(page.evaluate(SEEK, tick))}
                    row["server_cpu_ms"] = round(1000 * (usage(child.pid)[0] - cpu))
                    row["page_cpu_ms"] = round(clocks[0].read("TaskDuration") - busy)
                    rows.append(row)
                found["seek"][town] = rows
                page.close()
    return found


def get(address: tuple[str, int], path: str, cookie: str) -> socket.socket:
    """A request on a connection of its own; whoever calls reads the answer, or does not."""
    wire = socket.create_connection(address)
    wire.sendall(
        f"GET {path} HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n".encode()
    )
    return wire


def body(wire: socket.socket) -> bytes:
    whole = b"".join(iter(lambda: wire.recv(1 << 16), b""))
    wire.close()
    return whole


def usage(pid: int) -> tuple[float, float]:
    """Processor seconds and resident megabytes of a process."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK"), pages * resource.getpagesize() / 1e6


RUN_BESIDE = """
import time
from townlet.envs.vector import VectorTown
from townlet.policy.runtime import make_policy
from townlet.sim.loop import SimulationLoop
vec = VectorTown("town_day", 16, seed=3)
loop = SimulationLoop(vec, make_policy("scripted", vec))
while True:
    begun = time.monotonic()
    loop.run(1440)
    print(begun, time.monotonic(), flush=True)
"""


class Crowd:
    """150 viewers who play at 10 ticks a second, each a reel every 6.4 s, and 50 who hold a connection and read nothing."""

    def __init__(self, place: tuple[str, int], cookie: str, take: str) -> None:
        self.received, self._here, self._gone = 0, (place, cookie, take), threading.Event()
        self._stuck = [self._get(f"/api/takes/{take}/reels/{k % 3}" if k % 2 else "/api/news") for k in range(50)]
        self._threads = [threading.Thread(target=self._watch, args=(k,)) for k in range(150)]
        for thread in self._threads:
            thread.start()

    def _get(self, path: str) -> socket.socket:
        place, cookie, _ = self._here
        return get(place, path, cookie)

    def _watch(self, number: int) -> None:
        news = self._get("/api/news")
        wait, begun = number * 6.4 / 150, time.monotonic()
        while not self._gone.wait(wait):
            reel, wait = int((time.monotonic() - begun) / 6.4) % 3, 6.4
            self.received += len(body(self._get(f"/api/takes/{self._here[2]}/reels/{reel}")))
        news.close()

    def leave(self) -> None:
        self._gone.set()
        for thread in self._threads:
            thread.join()
        for wire in self._stuck:
            wire.close()


def viewers(rounds: int = 7, seconds: float = 8.0) -> dict[str, Any]:
    """What 200 viewers of 10,000 residents cost the server, and a run that has to share its core with the server.

    Server and run are bound to one core and the viewers to the others; the viewers come and go, round by round.
    """
    cores = sorted(os.sched_getaffinity(0))
    beside = subprocess.Popen([sys.executable, "-c", RUN_BESIDE], stdout=subprocess.PIPE, text=True)
    days: list[tuple[float, float]] = []
    assert beside.stdout is not None
    reader = threading.Thread(target=lambda: [days.append(tuple(map(float, line.split()))) for line in beside.stdout or ()])
    reader.start()
    try:
        with served(LARGE, "--set", "scenario.episode_ticks=192") as (child, address):
            host, port = re.findall(r"http://([\d.]+):(\d+)", address)[0]
            place = (host, int(port))
            wire = get(place, "/" + address.split("/", 3)[3], "")
            cookie = re.findall(rb"set-cookie: ([^;]+)", body(wire), re.IGNORECASE)[0].decode()
            take = json.loads(body(get(place, "/api/takes", cookie)).partition(b"\r\n\r\n")[2])["takes"][0]["id"]
            for k in range(3):  # somebody has watched this before: the reels are there, as with any film that many watch
                body(get(place, f"/api/takes/{take}/reels/{k}", cookie))
            for pid in (beside.pid, child.pid):
                for thread in os.listdir(f"/proc/{pid}/task"):
                    os.sched_setaffinity(int(thread), cores[-1:])
            os.sched_setaffinity(0, cores[:-1] or cores)
            memory, used, passed, received, most, phases = usage(child.pid)[1], 0.0, 0.0, 0, 0.0, []
            for _ in range(rounds):
                begun = time.monotonic()
                time.sleep(seconds)
                crowded = time.monotonic()
                cpu, crowd = usage(child.pid)[0], Crowd(place, cookie, take)
                time.sleep(seconds)
                ended = time.monotonic()
                most = max(most, usage(child.pid)[1])
                used, passed, received = used + usage(child.pid)[0] - cpu, passed + ended - crowded, received + crowd.received
                crowd.leave()
                phases.append((begun, crowded, ended))
    finally:
        os.sched_setaffinity(0, cores)
        beside.terminate()
        reader.join()

    def day(begin: float, end: float) -> float:
        return mean(b - a for a, b in days if begin <= a and b <= end)

    pairs = [(day(a, b), day(b, c)) for a, b, c in phases]
    return {
        "viewers": 200,
        "stuck": 50,
        "seconds": round(passed, 1),
        "share_of_a_core": round(used / passed, 4),
        "megabytes_more": round(most - memory, 1),
        "megabytes_a_second": round(received / passed / 1e6, 2),
        "a_run_beside_it_slower": slower(pairs),
        "pairs": len(pairs),
    }


def recorder(seconds: float = 15.0) -> dict[str, Any]:
    """Days of town_day with and without the recorder, in turns, by processor time: the median of the pairs and its interval.

    A scripted day of one small town is the worst case; the demo's trained one is what people watch."""
    from townlet.envs.vector import VectorTown
    from townlet.policy.checkpoint import resolve
    from townlet.policy.runtime import make_policy
    from townlet.sim.loop import SimulationLoop
    from townlet.sim.recorder import DecisionRecorder

    found = {}
    for towns, decides in ((1, "scripted"), (16, "scripted"), (64, "scripted"), (1, "trained")):
        vec = VectorTown("demo" if decides == "trained" else "town_day", towns, seed=3)
        policy = make_policy(str(resolve(str(DEMO))) if decides == "trained" else decides, vec)

        def day(recorded: bool, vec: VectorTown = vec, policy: Any = policy) -> float:
            vec.reset()
            loop = SimulationLoop(vec, policy, [DecisionRecorder(vec)] if recorded else [])
            begun = time.process_time()
            loop.run(1440)
            return time.process_time() - begun

        pairs, until = [], time.process_time() + seconds
        while time.process_time() < until:
            first = len(pairs) % 2 == 0  # whoever goes first finds another cache
            times = {recorded: day(recorded) for recorded in (first, not first)}
            pairs.append((times[False], times[True]))
        found[f"{towns} towns, {decides}"] = {
            "ms_a_day": round(1000 * median(plain for plain, _ in pairs), 2),
            "slower": slower(pairs),
            "pairs": len(pairs),
        }
    return found


def slower(pairs: list[tuple[float, float]]) -> list[float]:
    """How much longer the second of a pair takes, as a share: the median, and its 95 % interval by order statistics."""
    ratios = sorted(second / first - 1 for first, second in pairs)
    reach = 0.98 * len(ratios) ** 0.5
    low, high = (ratios[min(len(ratios) - 1, max(0, round(len(ratios) / 2 + sign * reach)))] for sign in (-1, 1))
    return [round(value, 4) for value in (median(ratios), low, high)]


def newcomer(path: Path = DEMO / "town.html") -> dict[str, Any]:
    """What a newcomer does with the page that the demo leaves, by clicks and keys alone; a person reads more slowly."""
    found: dict[str, Any] = {}
    with chromium() as browser:
        begun = time.monotonic()
        page = opened(browser, path.resolve().as_uri())
        page.locator("#day-moments .plainly").first.wait_for()
        quarrel = page.locator("#day-moments .sharp .plainly").first
        told = quarrel.inner_text()
        quarrel.click()
        page.locator("#inspector-body .lead").wait_for()
        found["a_quarrel_and_why"] = {
            "actions": 1,
            "seconds": round(time.monotonic() - begun, 2),
            "moment": told,
            "now": page.inner_text("#who-now"),
            "why": page.inner_text("#inspector-body .lead"),
        }

        def ask(name: str, *steps: Callable[[], Any], read: Callable[[], str]) -> None:
            for step in steps:
                step()
            page.wait_for_timeout(300)
            found[name] = {"actions": len(steps), "answer": read()[:300]}

        key = page.keyboard.press
        ask(
            "who hates whom and since when",
            lambda: page.click("#go-ties"),
            read=lambda: page.locator("#ties-body tr").first.inner_text(),
        )
        key("Escape")
        ask(
            "the worst conflict",
            lambda: page.click("#go-town"),
            lambda: key("m"),
            read=lambda: page.locator("#caption .sharp").first.inner_text(),
        )
        ask(
            "why did alice not shower",
            lambda: (page.fill("#search", "alice"), page.press("#search", "Enter")),
            lambda: page.select_option("#why-not", "use_shower"),
            read=lambda: page.inner_text("#why-not-answer"),
        )
        ask(
            "why is this policy late",
            lambda: key("Escape"),
            read=lambda: page.inner_text("#day-late-count") + " " + page.inner_text("#day-late"),
        )
        ask(
            "what differs at seven",
            lambda: (page.fill("#search", "07:00"), page.press("#search", "Enter")),
            read=lambda: page.inner_text("#day-differs"),
        )
    return found


MEASURES: dict[str, Callable[[], dict[str, Any]]] = {
    "files": files,
    "frames": frames,
    "viewers": viewers,
    "recorder": recorder,
    "newcomer": newcomer,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", choices=[*MEASURES, "all"])
    what = parser.parse_args().what
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in MEASURES if what == ["all"] else what:
        before = os.getloadavg()[0]
        found = MEASURES[name]()
        results[name] = found | {"load": [round(before, 1), round(os.getloadavg()[0], 1)]}
        RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        print(json.dumps({name: results[name]}, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
