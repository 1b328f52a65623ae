"""Reels and takes as bytes: what goes in comes out, and what is damaged or hostile is refused with a sentence."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from townlet.errors import TakeError, TownletError
from townlet.observer.reel import Reel, columns, numbers, pack, planes, unpack, whole
from townlet.observer.take import Take, canonical, parse_take
from townlet.sim.recorder import Decisions
from townlet.world.film import FilmColumn

TABLE = columns(("hunger", "hygiene"), values=True)


def some_reel(seed: int = 0, n: int = 5, m: int = 4, events: int = 7, decided: int = 3) -> Reel:
    rng = np.random.default_rng(seed)
    rows = {"residents": (64, n), "objects": (64, m), "town": (64, 1), "events": (events, 1), "decisions": (decided, n),
            "decided": (decided, 1), "lives": (1, n)}  # fmt: skip
    parts = {
        group: rng.integers(0, 4, (sum(one.bytes for one in TABLE[group]), *shape), np.uint8) for group, shape in rows.items()
    }
    return Reel("abc", 128, 64, parts)


@given(st.integers(0, 99), st.integers(1, 9), st.integers(0, 5), st.integers(0, 20), st.integers(0, 7))
@settings(max_examples=30, deadline=None)
def test_a_reel_is_read_as_it_was_packed(seed: int, n: int, m: int, events: int, decided: int) -> None:
    reel = some_reel(seed, n, m, events, decided)
    again = unpack(pack(reel), TABLE)
    assert (again.take, again.first, again.ticks) == (reel.take, reel.first, reel.ticks)
    assert all((again.planes[group] == reel.planes[group]).all() for group in TABLE)


@pytest.mark.parametrize(
    "column", [FilmColumn("a", 1), FilmColumn("a", 2, True), FilmColumn("a", 3, False, 0.01), FilmColumn("a", 4, True, 0.001)]
)
def test_numbers_come_back_within_half_a_step(column: FilmColumn) -> None:
    bits = 8 * column.bytes - column.signed
    values = np.random.default_rng(1).uniform(-(2**bits) if column.signed else 0, 2**bits - 1, (9, 4)) * column.scale
    again = numbers(planes(whole(values, column), column), column)
    assert np.abs(again - values).max() <= column.scale * 0.5000001
    assert (whole(np.array([1e30, -1e30]), column) == whole(np.array([2.0**bits, -(2.0**bits)]) * 9, column)).all()


def test_every_flipped_bit_of_the_contents_is_noticed() -> None:
    data = pack(some_reel())
    body = 8 + int.from_bytes(data[4:8], "little")
    for at in [*range(8), *range(body, len(data), 7)]:
        for bit in (1, 128):
            wrong = bytearray(data)
            wrong[at] ^= bit
            with pytest.raises(TakeError):
                unpack(bytes(wrong), TABLE)
    for cut in (0, 3, 8, 20, body, len(data) - 1):
        with pytest.raises(TakeError):
            unpack(data[:cut], TABLE)
    with pytest.raises(TakeError):
        unpack(data + b"x", TABLE)


@pytest.mark.parametrize(
    "change",
    [
        {"groups": {}}, {"groups": None}, {"v": 2}, {"first": -1}, {"first": 1.5}, {"take": 3}, {"crc": "1"},
        {"groups": {group: [10**9, 10**9, 10**9] for group in TABLE}}, {"groups": {group: [1, True, 1] for group in TABLE}},
    ],
)  # fmt: skip
def test_a_hostile_header_is_refused(change: dict[str, object]) -> None:
    data = pack(some_reel())
    size = int.from_bytes(data[4:8], "little")
    header = json.dumps({**json.loads(data[8 : 8 + size]), **change}).encode()
    with pytest.raises(TakeError):
        unpack(data[:4] + len(header).to_bytes(4, "little") + header + data[8 + size :], TABLE)


TAKE = {
    "v": 1, "town": "town_day", "config": "0123456789abcdef", "seed": 7, "policy": "scripted", "ticks": 1440,
    "changes": [{"at": 10, "do": "exit alice"}],
}  # fmt: skip


def test_a_take_is_told_apart_by_its_id() -> None:
    take = parse_take(TAKE)
    assert parse_take(canonical(take)) == take
    assert take.id != parse_take({**TAKE, "seed": 8}).id
    assert len(take.id) == 12


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2}, {"seed": -1}, {"seed": 2**64}, {"seed": "7"}, {"ticks": 0}, {"ticks": 10**9}, {"extra": 1}, {"town": ""},
        {"town": "x" * 129},
        {"config": "../../etc"}, {"policy": "/etc/passwd"}, {"policy": "recorded"}, {"decisions": "AAAA"}, {"start": "nope"},
        {"changes": [{"at": -1, "do": "exit alice"}]}, {"changes": [{"at": 1, "do": "rm -rf /"}]}, {"changes": [{"at": 1}]},
        {"changes": [{"at": 9, "do": "newcomer"}, {"at": 8, "do": "newcomer"}]}, {"changes": "exit"},
        {"changes": [{"at": 1, "do": "newcomer"}] * 10_001}, {"seed": float("nan")},
    ],
)  # fmt: skip
def test_a_take_from_outside_is_read_strictly(change: dict[str, object]) -> None:
    with pytest.raises(TownletError):
        parse_take({**TAKE, **change})


@given(st.binary(max_size=200))
@settings(max_examples=60, deadline=None)
def test_noise_is_no_take_and_no_reel(noise: bytes) -> None:
    for read in (parse_take, lambda data: unpack(data, TABLE)):
        with pytest.raises(TakeError):
            read(noise)


def test_decisions_that_are_a_bomb_are_refused() -> None:
    import base64
    import zlib

    with pytest.raises(TakeError):
        Decisions.read(base64.urlsafe_b64encode(zlib.compress(bytes(70 << 20))).rstrip(b"=").decode(), 0, 8)


@pytest.mark.parametrize("targets", [False, True])
def test_decisions_are_read_as_they_were_written(targets: bool) -> None:
    rng = np.random.default_rng(2)
    actions = rng.integers(0, 20, (144, 8), np.uint8)
    meant = rng.integers(0, 300, (144, 8)).astype(np.uint16) if targets else None
    again = Decisions.read(Decisions(0, actions, meant).text(), 0, 8)
    assert (again.actions == actions).all()
    assert (again.targets is None) == (meant is None)
    assert meant is None or (again.targets == meant).all()
    with pytest.raises(TakeError):
        Decisions.read(Decisions(0, actions, meant).text(), 0, 7)


def test_a_take_model_has_no_default_that_changes_an_id() -> None:
    assert parse_take({**TAKE, "decisions": None, "start": None}).id == parse_take(TAKE).id
    assert isinstance(parse_take(TAKE), Take)
