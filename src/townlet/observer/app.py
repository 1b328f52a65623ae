"""The observer's routes: pulling, but for the few that act. One worker shoots; kernels release the interpreter while it does."""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import uvicorn
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from townlet import __version__, files
from townlet.config.loader import config_of_text, load_config, shipped_configs
from townlet.engine.module import engine_module
from townlet.envs.vector import VectorTown
from townlet.errors import TakeError, TownletError, UsageError, first_problem
from townlet.observer.changeable import rules_to_change
from townlet.observer.guard import Guard
from townlet.observer.header import plan_of
from townlet.observer.library import Library
from townlet.observer.living import beside, file_parts, living_parts, packed
from townlet.observer.news import News
from townlet.observer.standalone import page_html
from townlet.observer.story import divergence, moments
from townlet.observer.studio import MOST_TAKES, KnownTake, Studio
from townlet.observer.take import MOST_CHANGES, Change, parse_take, take_bytes
from townlet.observer.witness import ties, witness
from townlet.scenarios.lint import lint
from townlet.sim.snapshot import snapshot_bytes, take_snapshot
from townlet.types import Record

T = TypeVar("T")
STATIC = Path(__file__).parent / "static"
LOOPBACK = ("127.0.0.1", "localhost", "::1")  # hosts that only this machine reaches
KINDS = {
    ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml", ".json": "application/json", ".wasm": "application/wasm", ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}  # fmt: skip
MOST_WAITING = 64  # requests for the one worker
MOST_JOBS = 16
MOST_IMAGES = 4  # towns whose images are kept
MOST_FUTURES = 256
FOREVER = {"Cache-Control": "private, max-age=31536000, immutable"}
FRESH = {"Cache-Control": "no-store"}
WATCH_EVERY = 0.5  # seconds between looks at the logs of runs, while somebody is here
REST = 0.2  # seconds in which nobody wants the worker before it shoots ahead

Handler = Callable[[Request], Awaitable[Response]]
Futures = Callable[[Studio, str, int, list[str], int], Record]  # take, tick, edits, futures


@dataclass
class Observatory:
    """What one server shows, and what it knows of its viewers."""

    studio: Studio
    library: Library
    futures: Futures
    open: Mapping[str, str | None] = field(default_factory=dict)  # take, vs, run
    news: News = field(default_factory=News)
    watch_token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    act_token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    jobs: dict[str, Record] = field(default_factory=dict)
    waiting: int = 0
    worker: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "studio"))

    async def shoot(self, work: Callable[..., T], *args: object) -> T:
        """Let the worker do something; too many who wait are sent away."""
        if self.waiting >= MOST_WAITING:
            raise _Busy
        self.waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self.worker, work, *args)
        finally:
            self.waiting -= 1


class _Busy(Exception):
    """The worker has enough to do."""


class _Whole(IntegerConvertor):
    """A number in an address; Python refuses to read one of thousands of digits."""

    regex = "[0-9]{1,30}"


register_url_convertor("whole", _Whole())


async def _nothing_here(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": "there is nothing at this address"}, 404, FRESH)


def build(observatory: Observatory, hosts: set[str]) -> Guard:
    """The application behind its guard."""
    here = _Routes(observatory)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        observatory.news.start()
        beside = [asyncio.create_task(here.watch_runs()), asyncio.create_task(here.shoot_ahead())]
        try:
            yield
        finally:
            for task in beside:
                task.cancel()
            observatory.studio.close()
            observatory.worker.shutdown(wait=False, cancel_futures=True)

    get = {
        "/": here.page,
        "/static/{name:path}": here.static,
        "/api/about": here.about,
        "/api/takes": here.takes,
        "/api/takes/{take}.take": here.recipe,
        "/api/takes/{take}.html": here.html,
        "/api/takes/{take}": here.take,
        "/api/takes/{take}/reels/{reel:whole}": here.reel,
        "/api/takes/{take}/decisions": here.decisions,
        "/api/takes/{take}/why/{tick:whole}/{slot:whole}": here.why,
        "/api/takes/{take}/ties/{tick:whole}": here.ties,
        "/api/takes/{take}/moments": here.moments,
        "/api/takes/{take}/divergence/{other}": here.divergence,
        "/api/takes/{take}/snapshot/{tick:whole}": here.snapshot,
        "/api/takes/{take}/image": here.image,
        "/api/engine.wasm": here.engine,
        "/api/runs": here.runs,
        "/api/runs/{run}": here.run,
        "/api/runs/{run}/records": here.records,
        "/api/runs/{run}/scorecard": here.scorecard,
        "/api/ledger": here.ledger,
        "/api/scenarios": here.scenarios,
        "/api/scenarios/{name}": here.scenario,
        "/api/jobs/{job}": here.job,
        "/api/news": here.stream,
    }
    post = {"/api/takes": here.new_take, "/api/futures": here.new_futures, "/api/lint": here.lint}
    routes = [Route(path, _safely(handler), methods=["GET"]) for path, handler in get.items()]
    routes += [Route(path, _safely(handler), methods=["POST"]) for path, handler in post.items()]
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _nothing_here})
    return Guard(app, hosts=hosts, watch=observatory.watch_token, act=observatory.act_token)


class _Server(uvicorn.Server):
    """Tells its viewers that it closes, instead of waiting for them to go."""

    def __init__(self, config: uvicorn.Config, news: News) -> None:
        super().__init__(config)
        self._news = news

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._news.close()
        await super().shutdown(sockets)


def serve(observatory: Observatory, host: str, port: int, *, ready: Callable[[int, Callable[[], None]], None]) -> None:
    """Serve until stopped; `ready` is called with the port and a function that stops."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise UsageError(f"port {port} of {host} cannot be used: {error.strerror}; choose another with --port") from None
        listener.listen(128)
        bound = int(listener.getsockname()[1])
        app = build(observatory, hosts_of(host, bound))
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, date_header=False, http="h11",
            h11_max_incomplete_event_size=32 << 10, timeout_keep_alive=30,
            timeout_graceful_shutdown=2, ws="none", proxy_headers=False,
        )  # fmt: skip
        server = _Server(config, observatory.news)

        def stop() -> None:
            server.should_exit = True

        ready(bound, stop)
        server.run(sockets=[listener])


def hosts_of(host: str, port: int) -> set[str]:
    """Values of Host that mean this server."""
    return {f"{in_address(name)}:{port}" for name in (LOOPBACK if host in LOOPBACK else (host,))}


def in_address(host: str) -> str:
    """A host as an address has it: one of IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def _safely(handler: Handler) -> Handler:
    async def safe(request: Request) -> Response:
        try:
            return await handler(request)
        except _Busy:
            return JSONResponse({"error": "the studio is busy; ask again in a moment"}, 503, {"Retry-After": "1", **FRESH})
        except TownletError as error:
            return JSONResponse({"error": str(error)}, 400 if request.method == "POST" else 404, FRESH)
        except OSError as error:  # removed or shut while it was read
            return JSONResponse({"error": f"{error.filename}: {error.strerror}"}, 404, FRESH)
        except ClientDisconnect:  # in the middle of what it sent: nobody hears the answer
            return Response(status_code=400)
        except asyncio.CancelledError:  # the server did not want to wait any longer
            return JSONResponse({"error": "the server is closing"}, 503, FRESH)

    return safe


def _json(value: object, status: int = 200) -> Response:
    body = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    return Response(body, status, FRESH, "application/json")


def _file(data: bytes, name: str, kind: str) -> Response:
    return Response(data, 200, {"Content-Disposition": f'attachment; filename="{name}"', **FRESH}, kind)


async def _body(request: Request) -> Record:
    found = files.parse_json(await request.body(), "the request", error=UsageError)
    if not isinstance(found, dict):
        raise UsageError("the request is not a JSON object")
    return found


def _after(request: Request) -> int:
    """The number that `?after=` gives, 0 without it."""
    text = request.query_params.get("after", "0")
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise UsageError(f"after is {text[:20]!r}, expected a whole number")
    return int(text)


def _revalidated(request: Request, data: bytes, kind: str, tag: str) -> Response:
    """What may change with another version: a viewer that has it already is told so."""
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(data, 200, headers, kind)


def _tag(data: bytes) -> str:
    return f'"{files.sha256_bytes(data)[:16]}"'


class _Routes:
    def __init__(self, observatory: Observatory) -> None:
        self.here, self.studio, self.library = observatory, observatory.studio, observatory.library
        self._static = _read_static()
        self._images: dict[tuple[str, ...], bytes] = {}
        self._rules: dict[str, list[Record]] = {}  # by config
        self._watched = ""  # the take that somebody asked for last

    # --- the page -----------------------------------------------------------------------------------------------------

    async def page(self, request: Request) -> Response:
        return self._served("index.html", request)

    async def static(self, request: Request) -> Response:
        return self._served(request.path_params["name"], request)

    def _served(self, name: str, request: Request) -> Response:
        if name not in self._static:
            raise TakeError("there is no such file")
        return _revalidated(request, *self._static[name])

    async def about(self, request: Request) -> Response:
        return _json(
            {
                "version": __version__,
                "role": request.scope["role"],
                "open": dict(self.here.open),
                "policies": self.studio.policies,
                "limits": {"takes": MOST_TAKES, "changes": MOST_CHANGES, "futures": MOST_FUTURES},
                "towns": list(shipped_configs()),
            }
        )

    # --- takes --------------------------------------------------------------------------------------------------------

    async def takes(self, request: Request) -> Response:
        return _json({"takes": [self.studio.row(name) for name in list(self.studio.takes)]})

    async def take(self, request: Request) -> Response:
        name = request.path_params["take"]
        return _json({**self.studio.known(name).header, "shot": self.studio.shot(name)})

    async def recipe(self, request: Request) -> Response:
        name = request.path_params["take"]
        self.studio.known(name)
        take = await self.here.shoot(self.studio.self_contained, name)
        return _file(take_bytes(take), f"{name}.take", "application/json")

    async def html(self, request: Request) -> Response:
        """The take, beside another one where `vs` names it, as a file that needs no server."""
        name, vs = request.path_params["take"], request.query_params.get("vs")
        takes = [name] if vs is None or vs == name else [name, vs]
        for one in takes:
            self.studio.known(one)
        text = await self.here.shoot(lambda: page_html(*file_parts(self.studio, takes)))
        return _file(text.encode(), f"{name}.html", "text/html; charset=utf-8")

    async def reel(self, request: Request) -> Response:
        name, number = request.path_params["take"], request.path_params["reel"]
        tag = f'"{name}-{number}"'
        self.studio.known(name)
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag, **FOREVER})
        self._watched = name
        data = self.studio.kept_reel(name, number) or await self.here.shoot(self.studio.reel, name, number)
        return Response(data, 200, {"ETag": tag, **FOREVER}, "application/octet-stream")

    async def decisions(self, request: Request) -> Response:
        name, after = request.path_params["take"], _after(request)
        self.studio.known(name)
        rows = (await self.here.shoot(self.studio.decisions, name)).actions[after:]
        return Response(rows.tobytes(), 200, {"X-Decisions": f"{after}-{after + len(rows)}", **FRESH}, "application/octet-stream")

    async def why(self, request: Request) -> Response:
        at = request.path_params
        return _json(await self.here.shoot(lambda: witness(self.studio.stage(at["take"]), at["tick"], at["slot"])))

    async def ties(self, request: Request) -> Response:
        at = request.path_params
        return _json(await self.here.shoot(lambda: ties(self.studio.stage(at["take"]), at["tick"])))

    async def moments(self, request: Request) -> Response:
        return _json({"moments": await self.here.shoot(moments, self.studio, request.path_params["take"])})

    async def divergence(self, request: Request) -> Response:
        at = request.path_params
        return _json(await self.here.shoot(divergence, self.studio, at["take"], at["other"]))

    async def snapshot(self, request: Request) -> Response:
        name, tick = request.path_params["take"], request.path_params["tick"]

        def saved() -> bytes:
            stage, take = self.studio.stage(name), self.studio.known(name).take
            stage.go(stage.under_way(tick))
            return snapshot_bytes(take_snapshot(stage.vec, policy=take.policy, memory=stage.policy.memory()))

        return _file(await self.here.shoot(saved), f"{name}-{tick}.npz", "application/octet-stream")

    async def engine(self, request: Request) -> Response:
        """The town as WebAssembly; where it is not built yet, that takes some seconds, in which the page plays films."""
        module = await asyncio.to_thread(engine_module)
        return _revalidated(request, module, KINDS[".wasm"], _tag(module))

    async def image(self, request: Request) -> Response:
        """What a page needs to simulate the town of a take, and the digest that every take of the town must end with."""
        name = request.path_params["take"]
        known = self.studio.known(name)
        take = known.take
        if not known.header["lives"]:
            raise TakeError("the town is too large for a page, or another from some minute on; it is shown as a film")
        if take.config not in self._rules:  # beside the worker: it takes seconds in which others want to see reels
            config = self.studio.config_of(take)
            self._rules[take.config] = await asyncio.to_thread(lambda: rules_to_change(config, VectorTown(config, 1)))
        data = await self.here.shoot(self._image, name, self._rules[take.config])
        return Response(data, 200, FRESH, "application/octet-stream")

    def _image(self, name: str, rules: list[Record]) -> bytes:
        takes = beside(self.studio, name)
        key = tuple(takes)
        if key not in self._images:
            carried = living_parts(self.studio, takes, rules)
            if carried is None:
                raise TakeError("the town is too large for a page; it is shown as a film")
            while len(self._images) >= MOST_IMAGES:
                del self._images[next(iter(self._images))]
            self._images[key] = packed(carried)
        return self._images[key]

    async def new_take(self, request: Request) -> Response:
        asked = await _body(request)
        known = await self.here.shoot(self._make_take, asked)
        self.here.news.publish("take", self.studio.row(known.take.id))
        return _json(known.header, 201)

    def _make_take(self, asked: Record) -> KnownTake:
        policy, seed = asked.get("policy"), asked.get("seed")
        if not isinstance(policy, str | None) or not (seed is None or (type(seed) is int and seed >= 0)):
            raise UsageError("`policy` is a name and `seed` a whole number")
        if isinstance(asked.get("take"), dict):
            return self.studio.open(parse_take(asked["take"]))
        if isinstance(asked.get("parent"), str):
            return self.studio.branch(asked["parent"], _changes(asked.get("changes", [])), policy)
        if isinstance(asked.get("run"), str):
            config = self.library.find(asked["run"]).resolved_config()
            return self.studio.new_take(config, seed=seed, policy=policy or "scripted")
        if isinstance(asked.get("yaml"), str):
            return self.studio.new_take(config_of_text(asked["yaml"]), seed=seed, policy=policy or "scripted")
        if isinstance(asked.get("town"), str) and asked["town"] in shipped_configs():
            return self.studio.new_take(load_config(asked["town"]), seed=seed, policy=policy or "scripted")
        raise UsageError("a take is asked for by `parent`, `take`, `run`, `yaml` or the `town` of a shipped scenario")

    # --- futures, lint ------------------------------------------------------------------------------------------------

    async def new_futures(self, request: Request) -> Response:
        asked = await _body(request)
        take, at, edits, futures = (asked.get(name) for name in ("take", "at", "edits", "futures"))
        if (
            not isinstance(take, str) or type(at) is not int or not isinstance(edits, list) or len(edits) > 100
            or not all(isinstance(edit, str) for edit in edits) or type(futures) is not int or not 1 <= futures <= MOST_FUTURES
        ):  # fmt: skip
            raise UsageError(f"futures need a `take`, the tick `at`, a list of `edits` and 1 to {MOST_FUTURES} `futures`")
        self.studio.known(take)
        running = [name for name, job in self.here.jobs.items() if job["state"] == "running"]
        if len(running) >= 2:
            raise _Busy
        name = secrets.token_hex(6)
        while len(self.here.jobs) >= MOST_JOBS:
            del self.here.jobs[next(job for job in self.here.jobs if job not in running)]
        self.here.jobs[name] = {"id": name, "state": "running"}

        async def work() -> None:
            try:
                result = await self.here.shoot(self.here.futures, self.studio, take, at, edits, futures)
                self.here.jobs[name] = {"id": name, "state": "done", "result": result}
            except (TownletError, _Busy) as error:
                self.here.jobs[name] = {"id": name, "state": "failed", "error": str(error) or "the studio is busy"}
            self.here.news.publish("job", {"id": name, "state": self.here.jobs[name]["state"]})

        self._task = asyncio.create_task(work())
        return _json({"job": name}, 202)

    async def job(self, request: Request) -> Response:
        name = request.path_params["job"]
        if name not in self.here.jobs:
            raise TakeError(f"there is no job {name[:20]!r}")
        return _json(self.here.jobs[name])

    async def lint(self, request: Request) -> Response:
        text = (await _body(request)).get("yaml")
        if not isinstance(text, str):
            raise UsageError("the linter needs `yaml`")
        try:
            config = config_of_text(text)
            report, plan = await self.here.shoot(lambda: (lint(config), plan_of(config)))
        except TownletError as error:
            return _json({"ok": False, "findings": [{"level": "error", "name": "config", "text": str(error), "remedy": ""}]})
        rows = [
            {"level": "ok" if one.ok else "error", "name": one.name, "text": one.found, "remedy": one.remedy}
            for one in report.verdicts
        ]
        return _json({"ok": report.ok, "findings": rows, "town": plan})

    # --- runs and releases --------------------------------------------------------------------------------------------

    async def runs(self, request: Request) -> Response:
        return _json({"runs": await asyncio.to_thread(self.library.runs)})

    async def run(self, request: Request) -> Response:
        return _json(await asyncio.to_thread(self.library.run, request.path_params["run"]))

    async def records(self, request: Request) -> Response:
        cursor = request.query_params.get("after", "")[:64]
        return _json(await asyncio.to_thread(self.library.records, request.path_params["run"], cursor))

    async def scorecard(self, request: Request) -> Response:
        return _json({"scorecards": await asyncio.to_thread(self.library.scorecards, request.path_params["run"])})

    async def ledger(self, request: Request) -> Response:
        return _json(await asyncio.to_thread(self.library.ledger))

    async def scenarios(self, request: Request) -> Response:
        return _json({"scenarios": await asyncio.to_thread(self.library.scenarios)})

    async def scenario(self, request: Request) -> Response:
        name = request.path_params["name"]
        return _json({"name": name, "yaml": self.library.yaml(name)})

    async def stream(self, request: Request) -> Response:
        return StreamingResponse(self.here.news.stream(), 200, FRESH, "text/event-stream")

    async def shoot_ahead(self) -> None:
        """The rest of the film that is being watched, while nobody else wants the worker: then no jump has to wait for it."""
        while True:
            name = self._watched
            number = self.studio.next_to_shoot(name) if self.here.news.viewers else None
            if number is None or self.here.waiting:
                await asyncio.sleep(REST)
                continue
            try:
                await self.here.shoot(self.studio.reel, name, number)
            except (TownletError, _Busy):  # whoever asks for that moment is told why
                self._watched = ""
            else:
                self.here.news.publish("shot", {"take": name, "reels": self.studio.shot(name)})

    async def watch_runs(self) -> None:
        """Tell viewers of records and checkpoints as they come."""
        while True:
            await asyncio.sleep(WATCH_EVERY)
            if not self.here.news.viewers:
                continue
            with suppress(OSError):  # the folder of runs itself cannot be read
                for kind, data in await asyncio.to_thread(self.library.changes):
                    self.here.news.publish(kind, data)


def _changes(asked: object) -> list[Change]:
    if not isinstance(asked, list) or len(asked) > MOST_CHANGES:
        raise UsageError(f"`changes` is a list of at most {MOST_CHANGES}")
    try:
        return [Change.model_validate(one) for one in asked]
    except ValidationError as error:
        raise UsageError(f'a change is {{"at": tick, "do": "…"}}; found {first_problem(error)}') from None


def _read_static() -> dict[str, tuple[bytes, str, str]]:
    """The page's files, by name: bytes, kind, tag."""
    found = {}
    for path in sorted(STATIC.rglob("*")) if STATIC.is_dir() else ():
        if path.is_file() and path.suffix in KINDS:
            data = files.read_bytes(path, limit=16 << 20)
            name = path.relative_to(STATIC).as_posix()
            found[name] = data, KINDS[path.suffix], _tag(data)
    return found
