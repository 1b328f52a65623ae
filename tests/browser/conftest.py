"""Chromium for tests of the page: the system's, driven by playwright. Nothing is downloaded and nothing leaves the machine."""

from __future__ import annotations

import copy
import functools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from page_tools import Visit, short
from townlet.observer.standalone import film_parts, write_page
from townlet.observer.studio import Studio

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
NAMES = ("chromium", "chromium-browser", "google-chrome")
LOCAL = ("http://127.0.0.1:", "file://", "data:", "blob:")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


def missing(reason: str) -> None:
    if os.environ.get("TOWNLET_BROWSER") == "require":
        pytest.fail(f"{reason}; TOWNLET_BROWSER=require wants it")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        missing(f"none of {', '.join(NAMES)} is installed")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright is not installed: pip install 'townlet[dev]'")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


def _answer(answer: dict[str, Any], route: Any) -> None:
    route.fulfill(**answer)


@pytest.fixture
def visit(chromium: Any) -> Iterator[Callable[..., Visit]]:
    """Open an address; requests off this machine, errors and violations of the policy fail the test."""
    contexts, visits = [], []

    def opened(
        url: str,
        *,
        width: int = 1280,
        height: int = 800,
        ready: str = "true",
        routes: Any = None,
        script: str = "",
        **options: Any,
    ) -> Visit:
        context = chromium.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.add_init_script(script)
        page.set_default_timeout(60_000)
        found = Visit(page)
        visits.append(found)
        page.on("request", lambda request: found.asked.append(request.url))
        page.on("pageerror", lambda error: found.complaints.append(str(error)))
        page.on("console", lambda message: found.complaints.append(message.text) if message.type == "error" else None)
        context.route("**/*", lambda route: route.continue_() if route.request.url.startswith(LOCAL) else route.abort())
        for pattern, answer in (routes or {}).items():
            context.route(pattern, functools.partial(_answer, answer))
        page.goto(url)
        page.wait_for_selector("body[data-ready]")
        assert page.get_attribute("body", "data-ready") == ready, page.inner_text("#status")
        found.settle()
        return found

    yield opened
    for one in visits:
        assert one.complaints == []
        assert [url for url in one.asked if not url.startswith(LOCAL)] == []
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def studio() -> Studio:
    return Studio()


@pytest.fixture(scope="session")
def carried(studio: Studio) -> dict[str, Any]:
    """Two hours of a morning with conflicts, played by the script and by chance."""
    first = studio.new_take(short("rush_hour", 120), seed=7).take.id
    second = studio.branch(first, [], "random").take.id
    return film_parts(studio, [first, second])


@pytest.fixture
def parts(carried: dict[str, Any]) -> dict[str, Any]:
    """To be changed by a test."""
    return copy.deepcopy(carried)


@pytest.fixture(scope="session")
def town_file(carried: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "town.html"
    write_page(path, carried)
    return path


@pytest.fixture
def town(visit: Callable[..., Visit], town_file: Path) -> Visit:
    """The file, open, with A alone."""
    found = visit(town_file.as_uri())
    found.js("townlet.openB(null)")
    found.js("townlet.a.preload()")
    found.until("townlet.looked")
    found.settle()
    return found
