"""A town seen from above as inline SVG: tiles, objects by kind, residents by name, queues by what they stand for."""

from __future__ import annotations

from html import escape

import numpy as np

from townlet.config.models import SimulationConfig
from townlet.envs.scene import look, marks_of
from townlet.envs.vector import VectorTown
from townlet.evaluation.suites import draw_seed
from townlet.policy.runtime import make_policy
from townlet.world.state import TILES

TILE = 24
NOON = 12 * 60


def town_picture(config: SimulationConfig, *, minute: int = NOON, policy: str = "scripted") -> str:
    """The config's town at a time of day, under scripted residents."""
    vec = VectorTown(config, 1, seed=draw_seed("evaluation", 0))
    chooser = make_policy(policy, vec)
    chooser.reset(vec)
    decisions = min((minute - vec.start_minute) % 1440, config.scenario.episode_ticks - 1) // vec.interval
    for _ in range(decisions):
        decision = chooser.act(vec)
        vec.step(decision.actions, decision.targets)
    return draw_town(vec)


def draw_town(vec: VectorTown, town: int = 0) -> str:
    scene = look(vec, town)
    height, width = scene.tiles.shape
    parts = [_tiles(scene.tiles)]
    parts += [_object(one.x, one.y, one.mark, one.id, " busy" if one.busy else "") for one in scene.things]
    parts += [_resident(one.x, one.y, one.id) for one in scene.residents]
    marks = marks_of(sorted({one.kind for one in scene.things}))
    key = "".join(f"<span><b>{escape(mark)}</b> {escape(kind.replace('_', ' '))}</span>" for kind, mark in marks.items())
    drawing = f'<svg class="map" viewBox="0 0 {width * TILE} {height * TILE}" role="img" aria-label="{escape(scene.title)}">'
    return (
        f"<figure><figcaption>{escape(scene.title)}</figcaption>{drawing}{''.join(parts)}</svg>"
        f'<div class="key">{key}</div></figure>'
    )


def _tiles(tiles: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> str:
    """Runs of equal tiles along a row become one rectangle."""
    parts = []
    for y, row in enumerate(tiles):
        edges = np.flatnonzero(np.diff(row)) + 1
        for start, end in zip((0, *edges), (*edges, len(row))):
            box = f'x="{start * TILE}" y="{y * TILE}" width="{(end - start) * TILE}" height="{TILE}"'
            parts.append(f'<rect class="t-{TILES[row[start]]}" {box}/>')
    return f'<g shape-rendering="crispEdges">{"".join(parts)}</g>'


def _object(x: int, y: int, mark: str, name: str, busy: str) -> str:
    left, top = x * TILE + 2, y * TILE + 2
    box = f'<rect x="{left}" y="{top}" width="{TILE - 4}" height="{TILE - 4}" rx="4"/>'
    return (
        f'<g class="thing{busy}"><title>{escape(name)}</title>{box}'
        f'<text x="{left + TILE / 2 - 2}" y="{top + TILE / 2 + 2}" text-anchor="middle">{escape(mark)}</text></g>'
    )


def _resident(x: int, y: int, name: str) -> str:
    cx, cy = x * TILE + TILE / 2, y * TILE + TILE / 2
    return (
        f'<g class="resident"><title>{escape(name)}</title><circle cx="{cx}" cy="{cy}" r="{TILE * 0.42}"/>'
        f'<text x="{cx}" y="{cy + 4}" text-anchor="middle">{escape(name[:2])}</text></g>'
    )
