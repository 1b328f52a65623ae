"""Who may speak to the observer: every request passes here before it reaches a route.

Right host (no rebinding), no foreign origin, no request another site made the browser send, a token. There are two tokens, to
watch and to act; each comes once as `?token=`, then as a cookie that no script can read. Acting also needs a header of its own.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LARGEST_BODY = 1 << 20
LARGEST_TARGET = 8 << 10  # path and query
OWN_FETCH = (b"same-origin", b"none")  # a page on another port is `same-site`
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "worker-src blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; "
    "trusted-types townlet"
)
HEADERS = (
    (b"content-security-policy", CONTENT_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
)
_COOKIE = re.compile(r"[A-Za-z0-9_-]{1,128}")


class Guard:
    """`hosts` are the values of Host that mean this server; `scope["role"]` of what passes is `watch` or `act`."""

    def __init__(self, app: App, *, hosts: set[str], watch: str, act: str) -> None:
        self.app = app
        self.hosts = {host.encode() for host in hosts}
        self.origins = {f"http://{host}".encode() for host in hosts}
        self.tokens = {"watch": watch, "act": act}
        self.cookie = "townlet_" + next(iter(sorted(hosts))).rpartition(":")[2]  # cookies know no ports

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, _with_headers(send))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope)
        if refusal is not None:
            await _answer(send, *refusal)
            return
        if scope["path"] == "/" and b"token=" in scope["query_string"]:
            await self._enter(scope, send)
            return
        role = self._role(_values(scope, b"cookie"))
        if role is None:
            await _answer(send, 401, "there is no token; open the address that `townlet observe` printed")
            return
        if scope["method"] == "POST":
            refusal = _cannot_act(scope, role)
            if refusal is not None:
                await _answer(send, *refusal)
                return
            receive = _limited(receive)
        scope["role"] = role
        await self.app(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        hosts, origins, fetch = (_values(scope, name) for name in (b"host", b"origin", b"sec-fetch-site"))
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            return 403, "this server goes by another name; open the address that `townlet observe` printed"
        if any(origin not in self.origins for origin in origins) or len(origins) > 1:
            return 403, "a page from elsewhere may not speak to this server"
        if any(site not in OWN_FETCH for site in fetch):
            return 403, "another site made this request; open the address that `townlet observe` printed"
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, f"there is no {scope['method'][:16]} here"
        if len(scope.get("raw_path", b"")) + len(scope["query_string"]) > LARGEST_TARGET:
            return 414, f"the address is longer than {LARGEST_TARGET} bytes"
        return None

    async def _enter(self, scope: Scope, send: Send) -> None:
        """A token in the address becomes a cookie; the address is left without it."""
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])
        role = self._named(given[0]) if len(given) == 1 else None
        if role is None:
            await _answer(send, 401, "this token is not valid; open the address that `townlet observe` printed")
            return
        cookie = f"{self.cookie}={self.tokens[role]}; HttpOnly; SameSite=Strict; Path=/"
        await send(
            {"type": "http.response.start", "status": 303, "headers": [(b"location", b"/"), (b"set-cookie", cookie.encode())]}
        )
        await send({"type": "http.response.body", "body": b""})

    def _role(self, cookies: list[bytes]) -> str | None:
        found = [
            value.strip()
            for line in cookies
            for name, _, value in (part.partition("=") for part in line.decode("latin-1").split(";"))
            if name.strip() == self.cookie
        ]
        return self._named(found[0]) if len(found) == 1 else None

    def _named(self, token: str) -> str | None:
        """The role of a token, in a time that does not tell how much of it was right."""
        if not _COOKIE.fullmatch(token):
            return None
        fits = {role: hmac.compare_digest(token, known) for role, known in self.tokens.items()}
        return "act" if fits["act"] else "watch" if fits["watch"] else None


def _cannot_act(scope: Scope, role: str) -> tuple[int, str] | None:
    if role != "act":
        return 403, "this address is for watching only; open the first one that `townlet observe` printed"
    if _values(scope, b"x-townlet") != [b"1"]:
        return 403, "a request that acts carries the header X-Townlet: 1"
    kinds = _values(scope, b"content-type")
    if len(kinds) != 1 or kinds[0].split(b";")[0].strip().lower() != b"application/json":
        return 415, "a request that acts is JSON"
    lengths = _values(scope, b"content-length")
    if any(not length.isdigit() or len(length) > 9 or int(length) > LARGEST_BODY for length in lengths):
        return 413, f"the request is larger than {LARGEST_BODY} bytes"
    return None


def _values(scope: Scope, name: bytes) -> list[bytes]:
    return [value for key, value in scope["headers"] if key == name]


def _limited(receive: Receive) -> Receive:
    """A body without a length is cut off when it grows too large: the JSON then does not parse."""
    seen = 0

    async def limited() -> Message:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > LARGEST_BODY:
                return {"type": "http.request", "body": b"", "more_body": False}
        return message

    return limited


def _with_headers(send: Send) -> Send:
    async def safe(message: Message) -> None:
        if message["type"] == "http.response.start":
            there = {name for name, _ in message.get("headers", ())}
            message["headers"] = [*message.get("headers", ()), *(pair for pair in HEADERS if pair[0] not in there)]
        await send(message)

    return safe


async def _answer(send: Send, status: int, text: str) -> None:
    body = json.dumps({"error": text}).encode()
    headers = [
        (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), (b"cache-control", b"no-store"),
    ]  # fmt: skip
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
