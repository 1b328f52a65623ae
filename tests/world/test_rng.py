"""Draws: a known hash, even, uncorrelated, each of one mechanic, and dependent on nothing but their key."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from townlet.envs.vector import VectorTown
from townlet.policy.runtime import PolicyRuntime, ScriptedPolicy
from townlet.sim.loop import SimulationLoop
from townlet.world import rng
from townlet.world.state import TOWN

STREAMS = ("WORLD", "DAILY", "POLICY", "SPAWN")
SOURCES = Path(rng.__file__).parents[1]
DRAWING = {"uniform": 2, "below": 2, "bits": 2, "draws": 0, "fill_uniform": 3}  # where each takes the index
AXES = ("when", "resident", "index", "town", "episode")


def clocks(towns: list[int], episode: int = 0, tick: int = 0, day: int = 0) -> np.ndarray:
    rows = np.zeros(len(towns), TOWN)
    rows["id"], rows["episode"], rows["tick"], rows["day"] = towns, episode, tick, day
    return rows


def draws(seed: int, towns: np.ndarray, stream: int, residents: int, index: int) -> np.ndarray:
    out = np.zeros((len(towns), residents))
    with np.errstate(over="ignore"):
        rng.fill_uniform(np.uint64(seed), towns, stream, index, out)
    return out


# --- the hash ------------------------------------------------------------------------------------------------------------


def test_the_mixer_is_that_of_splitmix64() -> None:
    """The first outputs of splitmix64 from the state 1234567 are known: each is mix(state + k × the golden gamma)."""
    state, golden, mask = 1234567, 0x9E3779B97F4A7C15, (1 << 64) - 1
    known = (6457827717110365317, 3203168211198807973, 9817491932198370423)
    with np.errstate(over="ignore"):
        assert tuple(int(rng.mix(np.uint64((state + (k + 1) * golden) & mask))) for k in range(3)) == known


def test_a_draw_does_not_depend_on_the_batch() -> None:
    alone = np.concatenate([draws(5, clocks([town], tick=77), rng.WORLD, 3, 2) for town in (4, 9, 1)])
    np.testing.assert_array_equal(alone, draws(5, clocks([4, 9, 1], tick=77), rng.WORLD, 3, 2))


def test_seed_town_stream_episode_tick_resident_and_index_all_matter() -> None:
    base = draws(5, clocks([1], 1, 7), rng.WORLD, 2, 0)
    others = [
        draws(6, clocks([1], 1, 7), rng.WORLD, 2, 0),
        draws(5, clocks([2], 1, 7), rng.WORLD, 2, 0),
        draws(5, clocks([1], 1, 7), rng.POLICY, 2, 0),
        draws(5, clocks([1], 2, 7), rng.WORLD, 2, 0),
        draws(5, clocks([1], 1, 8), rng.WORLD, 2, 0),
        draws(5, clocks([1], 1, 7), rng.WORLD, 2, 1),
    ]
    assert all((other != base).all() for other in others)
    assert base[0, 0] != base[0, 1]


def test_the_stream_of_days_is_keyed_by_the_day() -> None:
    """At noon and in the evening of one day the same draw, on the next another; every other stream goes by the tick."""
    noon, evening, next_day = (clocks([1], 2, tick, day) for tick, day in ((360, 0), (720, 0), (1440, 1)))
    assert draws(5, noon, rng.DAILY, 1, rng.STRIKE) == draws(5, evening, rng.DAILY, 1, rng.STRIKE)
    assert draws(5, noon, rng.DAILY, 1, rng.STRIKE) != draws(5, next_day, rng.DAILY, 1, rng.STRIKE)
    for stream in (rng.WORLD, rng.POLICY, rng.SPAWN):
        assert draws(5, noon, stream, 1, 0) != draws(5, evening, stream, 1, 0)


def grid(axis: str, stream: int, long: int, short: int) -> np.ndarray:
    """Draws (long, short): `axis` runs along the first dimension, along the second towns, moments and residents are mixed."""
    column, index = np.arange(short), 3 * stream
    resident = column % 9
    where = clocks((column * 5 % 64).tolist())
    where["episode"], where["tick"] = column * 2 % 50, column * 7 % 1440
    where["day"] = where["tick"]
    if axis == "resident":
        return draws(3, where, stream, long, index).T
    if axis == "index":
        return np.stack([draws(3, where, stream, 9, k)[column, resident] for k in range(long)])
    many = np.tile(where, long)
    for name in {"when": ("tick", "day"), "town": ("id",), "episode": ("episode",)}[axis]:
        many[name] = np.repeat(np.arange(long), short)
    return draws(3, many, stream, 9, index)[np.arange(many.size), np.tile(resident, long)].reshape(long, short)


@pytest.mark.parametrize("axis", AXES)
def test_neighbouring_draws_are_even_and_uncorrelated(axis: str) -> None:
    """10⁶ draws along one axis. χ² over 1,000 bins is 999 ± 45, over the 32 × 32 bins of neighbours 1,023 ± 45: within 5 σ.
    Neighbours, and those two and 1,440 apart, correlate by 0 ± 0.001: within 5 σ. No draw comes twice.
    """
    x = np.concatenate([grid(axis, stream, 5000, 50) for stream in range(4)], axis=1)  # (5000, 200)
    assert x.size == 10**6
    assert x.min() >= 0.0
    assert x.max() < 1.0
    counts = np.bincount((x.ravel() * 1000).astype(np.int64), minlength=1000)
    assert abs(((counts - 1000.0) ** 2 / 1000.0).sum() - 999) < 5 * 45
    bins = (x * 32).astype(np.int64)
    pairs = np.bincount((bins[:-1] * 32 + bins[1:]).ravel(), minlength=1024)
    expected = pairs.sum() / 1024
    assert abs(((pairs - expected) ** 2 / expected).sum() - 1023) < 5 * 45
    for apart in (1, 2, 1440):
        assert abs(np.corrcoef(x[:-apart].ravel(), x[apart:].ravel())[0, 1]) < 0.005, apart
    assert np.unique(x).size == x.size


def test_no_two_moments_share_a_key() -> None:
    """Episodes and ticks that a plain sum, or one shifted beside the other, would confuse."""
    episodes = [*range(40), 1 << 20, 1 << 32]
    ticks = [*range(40), 1439, 1440, 1441, 1 << 20, 1 << 32, 1000003, 2000006]
    with np.errstate(over="ignore"):
        keys = {int(rng.key(np.uint64(9), 1, stream, e, t)) for stream in range(4) for e in episodes for t in ticks}
    assert len(keys) == 4 * len(episodes) * len(ticks)


def test_whole_numbers_stay_below_their_bound() -> None:
    with np.errstate(over="ignore"):
        k = rng.key(np.uint64(3), 0, rng.WORLD, 0, 0)
        seen = [int(rng.below(k, i, 0, 7)) for i in range(500)]
    assert set(seen) == set(range(7))


# --- the table -----------------------------------------------------------------------------------------------------------


def table() -> dict[str, int]:
    """The draws that world/rng.py names, in its order."""
    module = ast.parse(Path(rng.__file__).read_text())
    tables = [node.targets[0] for node in module.body if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)]
    names = [item.id for item in tables[1].elts if isinstance(item, ast.Name)]
    return {name: vars(rng)[name] for name in names}


def uses() -> Iterator[tuple[str, str, str]]:
    """Every draw in the sources: file, function and the text of its index."""
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text()
        if path == Path(rng.__file__) or "rng" not in text:
            continue
        for function in ast.walk(ast.parse(text)):
            if not isinstance(function, ast.FunctionDef):
                continue
            for call in ast.walk(function):
                if not isinstance(call, ast.Call):
                    continue
                name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
                from_numpy = isinstance(call.func, ast.Attribute) and name == "uniform" and ast.unparse(call.func.value) != "rng"
                if name in DRAWING and not from_numpy:
                    yield path.relative_to(SOURCES).as_posix(), function.name, ast.unparse(call.args[DRAWING[name]])


def test_every_draw_has_a_name_and_no_two_mechanics_share_one() -> None:
    """By the sources: a number, a draw that the table lacks, one that nothing makes, or one that two mechanics make fails."""
    named, found = table(), {}
    assert len(set(named.values())) == len(named) == 18
    quarrels = {name for name in named if "QUARREL" in name}
    for path, function, text in uses():
        if (path, function) == ("envs/vector.py", "draws"):  # hands on the index it is given
            assert text == "index"
            continue
        name = text.removeprefix("rng.")
        assert name in named or name == "quarrel_of(reason)", f"{path}, {function}: {text} is not in the table of world/rng.py"
        for covered in quarrels if name == "quarrel_of(reason)" else {name}:
            found.setdefault(covered, set()).add((path, function))
    assert found.keys() == named.keys()
    quarrel_of = getattr(rng.quarrel_of, "py_func", rng.quarrel_of)  # a kernel, or plain without compiling
    by_reason = [quarrel_of(reason) for reason in range(6)]  # also of reasons that are not there yet
    assert by_reason[:3] == [named[name] for name in named if name in quarrels]
    assert len(set(by_reason) | set(named.values())) == len(named) + 3
    for name, where in found.items():
        if name not in ("PICK", "ACT"):  # these belong to policies, of which a resident has one
            assert len(where) == 1, f"{name} is drawn by {sorted(where)}"


def test_nothing_but_the_table_makes_a_key() -> None:
    """No counter of its own: outside world/rng.py a key comes from `now`, and a stream is named."""
    for path in sorted(SOURCES.rglob("*.py")):
        if path == Path(rng.__file__):
            continue
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            name = ast.unparse(call.func)
            assert name != "rng.key", f"{path.name} makes a key of its own: {ast.unparse(call)}"
            if name == "rng.now":
                assert ast.unparse(call.args[1]).removeprefix("rng.") in STREAMS


# --- episodes ------------------------------------------------------------------------------------------------------------


def day(vec: VectorTown, decisions: int) -> bytes:
    """Rewards and features of a town's next decisions under the script, without the clock's own columns."""
    loop, seen = SimulationLoop(vec, PolicyRuntime(vec, ScriptedPolicy())), []
    for _ in range(decisions):
        loop.step()
        seen += [vec.rewards.tobytes(), vec.features.tobytes()]
    return b"".join(seen)


def test_no_two_episodes_of_a_town_are_alike() -> None:
    """100 days of one town under the script: all different. With the episode number set back, the first one again."""
    vec = VectorTown("town_day", 1, seed=4)
    length = vec.config.scenario.episode_ticks // vec.interval
    days = []
    for episode in range(100):
        assert vec.state.towns["episode"][0] == episode
        days.append(day(vec, length))
        assert vec.state.towns["over"][0] == 1
        vec.step(np.zeros((1, vec.num_residents), np.int64))
    assert len(set(days)) == 100
    vec.state.towns["episode"], vec.state.towns["over"] = -1, 1
    vec.step(np.zeros((1, vec.num_residents), np.int64))
    assert day(vec, length) == days[0]


@pytest.mark.parametrize("index", [rng.SLIP, rng.PICK, rng.ACT])
def test_a_policy_draws_by_its_own_seed_or_the_towns(index: int) -> None:
    vec = VectorTown("town_day", 2, seed=4)
    assert (vec.draws(index) == vec.draws(index, seed=4)).all()
    assert (vec.draws(index) != vec.draws(index, seed=5)).all()
