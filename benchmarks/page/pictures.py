"""Pictures: in docs/observe.md each view at 1440, 1024 and 390 px, light above dark, in one file; in docs/town.md one view each.

python benchmarks/page/pictures.py [RUN] [--views scenario …]       the demo's run by default, beside the script
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import Any

from bars import DEMO, chromium, served
from PIL import Image

IMAGES = Path("docs/images")
SIZES = ((1440, 900), (1024, 768), (390, 844))
SCALE = 0.5
GAP = 12
WORST = "(townlet.openView('town'), townlet.jumpToWorst())"
ANGRIER = "townlet.select(townlet.moments.find(one => one.tick === townlet.player.t).slots[0])"
# view → what is done to see it, one after the other
STEPS = {
    "town": ["townlet.openB(null)", WORST, ANGRIER],
    "lanes": ["document.getElementById('lanes-people').click()", "townlet.openSheet(false)", "townlet.inspector.choose('story')"],
    "day": ["townlet.select(-1)", "townlet.openSheet(innerWidth <= 760)", "document.getElementById('lanes-things').click()"],
    "people": ["townlet.openView('people')"],
    "queues": ["townlet.openView('queues')"],
    "ties": ["townlet.openView('ties')"],
    "compare": ["townlet.openView('town')", "townlet.toggleCompare()", "townlet.openSheet(false)", "townlet.mapA.fit()"],
    "whatif": ["townlet.branch()"],
    "futures": ["document.getElementById('branch-dialog').close()", "document.getElementById('futures').click()"],
    "seat": ["document.getElementById('futures-dialog').close()", "townlet.select(0)", "townlet.seat.begin()"],
    "runs": ["townlet.seat.leave()", "townlet.select(-1)", "townlet.openView('runs')"],
    "releases": ["townlet.openView('releases')"],
    "scenario": ["townlet.openView('scenario')"],
}
GUIDE = {view: [f"townlet.openView('{view}')", "townlet.seek(45)"] for view in ("people", "queues", "ties")}  # of docs/town.md
FILE = {"file": [WORST]}  # what the demo leaves, from file://
# what a view waits for
THERE = {
    "runs": "#runs-details table",
    "scenario": "#scenario-findings .ok",
    "ties": "#ties-body tr",
    "futures": "#futures-body tr",
}


def shots(
    browser: Any, address: str, views: dict[str, list[str]], wanted: list[str], size: tuple[int, int], scheme: str
) -> dict[str, Image.Image]:
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    page = context.new_page()
    page.set_default_timeout(300_000)
    page.goto(address)
    page.wait_for_selector('body[data-ready="true"]')
    while not page.evaluate("townlet.lives(townlet.a) && townlet.moments.length > 0"):
        page.wait_for_timeout(300)
    found = {}
    for view, steps in views.items():
        for step in steps:
            page.evaluate(f"async () => {{ await {step}; }}")
            page.wait_for_timeout(400)
        if view not in wanted:
            continue
        if view in THERE:
            page.locator(THERE[view]).first.wait_for()
        page.wait_for_timeout(900)
        found[view] = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    context.close()
    return found


def sheet(rows: list[list[Image.Image]]) -> Image.Image:
    """Pictures beside and below each other, smaller, in few colours."""
    small = [
        [one.resize((round(one.width * SCALE), round(one.height * SCALE)), Image.Resampling.LANCZOS) for one in row]
        for row in rows
    ]
    width, heights = sum(one.width + GAP for one in small[0]) - GAP, [max(one.height for one in row) for row in small]
    whole = Image.new("RGB", (width, sum(heights) + GAP * (len(rows) - 1)), "#888888")
    for k, row in enumerate(small):
        x = 0
        for one in row:
            whole.paste(one, (x, sum(heights[:k]) + GAP * k))
            x += one.width + GAP
    return whole.quantize(256, dither=Image.Dither.NONE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", default=str(DEMO))
    parser.add_argument("--views", nargs="+", default=[*STEPS, *FILE], choices=[*STEPS, *FILE])
    parser.add_argument("--guide", action="store_true", help="only the pictures of docs/town.md: the scripted town at 06:45")
    parser.add_argument("--whole", type=Path, metavar="FOLDER", help="also every picture by itself, as large as it was")
    asked = parser.parse_args()
    if asked.guide:
        with served("town_day") as (_, address), chromium() as browser:
            for view, picture in shots(browser, address, GUIDE, [*GUIDE], (1200, 800), "light").items():
                picture.quantize(256, dither=Image.Dither.NONE).save(IMAGES / f"town_{view}.png", optimize=True)
        return
    rows: list[list[dict[str, Image.Image]]] = []
    with served(asked.run, "--vs", "scripted") as (_, address), chromium() as browser:
        file = (Path(asked.run) / "town.html").resolve().as_uri()
        for scheme in ("light", "dark"):
            rows.append([])
            for size in SIZES:
                rows[-1].append({})
                for where, views in ((address, STEPS), (file, FILE)):
                    if any(view in views for view in asked.views):
                        rows[-1][-1] |= shots(browser, where, views, asked.views, size, scheme)
    for view in asked.views:
        sheet([[one[view] for one in row] for row in rows]).save(IMAGES / f"page_{view}.png", optimize=True)
        print(f"→ {IMAGES / f'page_{view}.png'} ({(IMAGES / f'page_{view}.png').stat().st_size / 1000:,.0f} kB)")
    if "town" in asked.views:
        rows[0][0]["town"].quantize(256, dither=Image.Dither.NONE).save(IMAGES / "page.png", optimize=True)
    if asked.whole:
        asked.whole.mkdir(parents=True, exist_ok=True)
        for row, scheme in zip(rows, ("light", "dark")):
            for one, (width, _) in zip(row, SIZES):
                for view, picture in one.items():
                    picture.save(asked.whole / f"{view}_{width}_{scheme}.png")


if __name__ == "__main__":
    main()
