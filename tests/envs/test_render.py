"""Pictures: who is where, how they are, who waits and who quarrels can be read off the pixels and the text."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import townlet
from townlet.envs.render import BAD, BUSY, CELL, GOOD, WAITS, ansi, check_picture_name, need_colour, picture, write_picture
from townlet.envs.scene import Scene, initials, look, marks_of
from townlet.envs.vector import VectorTown
from townlet.errors import UsageError
from townlet.policy.runtime import make_policy


@pytest.fixture(scope="module")
def quarrel() -> Scene:
    """A moment of queue_conflict with a use, a queue and a conflict."""
    vec = VectorTown("queue_conflict", 1)
    policy = make_policy("schedule", vec)
    for _ in range(48):
        decision = policy.act(vec)
        vec.step(decision.actions, decision.targets)
        scene = look(vec)
        busy = any(thing.busy for thing in scene.things)
        if busy and scene.queues and scene.clashes and any(one.quarrels for one in scene.residents):
            return scene
    raise AssertionError("no quarrel in a whole run of queue_conflict")


def has(pixels: np.ndarray, colour: tuple[int, int, int]) -> bool:
    return bool((pixels == colour).all(axis=-1).any())


def test_a_scene_tells_what_the_arrays_hold(quarrel: Scene) -> None:
    (shower,) = [thing for thing in quarrel.things if thing.kind == "shower"]
    assert shower.busy
    waiting = {one.id for one in quarrel.residents if one.waiting}
    assert set(shower.queue) == waiting
    assert all(one.at == (shower.x, shower.y) for one in quarrel.residents if one.waiting)
    assert {who for clash in quarrel.clashes for who in clash[:2]} <= {one.id for one in quarrel.residents}


def test_queue_use_and_quarrel_have_their_colours(quarrel: Scene) -> None:
    pixels = picture(quarrel)
    assert pixels.dtype == np.uint8
    rows, columns = quarrel.tiles.shape
    town = pixels[: rows * CELL, : columns * CELL]
    assert has(town, BUSY)
    assert has(town, WAITS)
    assert has(town, BAD)
    calm = replace(
        quarrel,
        clashes=(),
        residents=tuple(replace(one, quarrels=False, needs=dict.fromkeys(one.needs, 1.0)) for one in quarrel.residents),
    )
    town = picture(calm)[: rows * CELL, : columns * CELL]
    assert not has(town, BAD)
    assert has(town, GOOD)


def test_the_bar_of_a_need_is_as_long_as_the_need(quarrel: Scene) -> None:
    one = replace(quarrel.residents[0], needs={"hunger": 0.5, "hygiene": 1.0, "energy": 0.3}, quarrels=False)
    pixels = picture(replace(quarrel, residents=(one,), clashes=()))
    left = quarrel.tiles.shape[1] * CELL + 16 + 92
    row = pixels[83, left : left + 74]
    assert (row == (213, 94, 0)).all(axis=-1).sum() == 33  # half of 66


def test_the_colour_of_a_need() -> None:
    assert len({need_colour(level) for level in (0.9, 0.3, 0.1)}) == 3


def test_text_shows_residents_queues_and_conflicts(quarrel: Scene) -> None:
    text = ansi(quarrel)
    assert f"queue at {quarrel.queues[0].id}: {quarrel.queues[0].queue[0]}" in text
    assert f"conflict: {quarrel.clashes[0][0]} and {quarrel.clashes[0][1]}" in text
    lines = text.splitlines()
    for one in quarrel.residents:
        assert lines[1 + one.y][2 * one.x] == one.mark[0].lower()


def test_a_large_town_is_drawn_small() -> None:
    scene = look(VectorTown("market_square", 1))
    pixels = picture(scene)
    assert pixels.shape[0] <= 1200
    crowd = replace(scene, tiles=np.zeros((400, 400), np.uint8))
    assert picture(crowd).shape[0] == 1200


def test_render_modes_of_the_environments() -> None:
    image = townlet.parallel_env("town_day", render_mode="rgb_array")
    image.reset(seed=1)
    assert image.render().shape[2] == 3
    words = townlet.parallel_env("town_day", render_mode="ansi")
    words.reset(seed=1)
    assert "alice" in words.render()
    assert townlet.parallel_env("town_day").render() is None


def test_png_and_gif_hold_the_frames(quarrel: Scene, tmp_path: Path) -> None:
    frames = [picture(quarrel), picture(replace(quarrel, time="23:59"))]
    write_picture(tmp_path / "a.png", frames)
    write_picture(tmp_path / "a.gif", frames)
    still = np.asarray(Image.open(io.BytesIO((tmp_path / "a.png").read_bytes())).convert("RGB"))
    np.testing.assert_array_equal(still, frames[-1])
    assert Image.open(tmp_path / "a.gif").n_frames == 2
    with pytest.raises(UsageError, match=r"\.png.*\.gif"):
        check_picture_name(tmp_path / "a.jpg")


def test_marks_and_initials_tell_apart() -> None:
    assert marks_of(["bed", "bench"]) == {"bed": "Be", "bench": "Bn"}
    names = initials(["alice", "alan", "al", "newcomer_1", "newcomer_2"])
    assert len(set(names.values())) == 5
    assert names["newcomer_2"] == "n2"


def test_the_name_of_a_building_stands_on_the_wall_above_its_floor(quarrel: Scene) -> None:
    room = quarrel.rooms[0]
    above = np.s_[(room.y - 1) * CELL : room.y * CELL, room.x * CELL : (room.x + room.width) * CELL]
    named, nameless = picture(quarrel)[above], picture(replace(quarrel, rooms=()))[above]
    assert (named != nameless).any()
    long = picture(replace(quarrel, rooms=(replace(room, id="a_very_long_name_of_a_room" * 3),)))
    outside = long.copy()
    outside[above] = nameless
    np.testing.assert_array_equal(outside, picture(replace(quarrel, rooms=())))  # it keeps within its wall
