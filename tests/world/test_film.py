"""The film of a step: what the kernel writes is what NumPy reads in the state at every tick; it costs the town nothing."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from townlet.config import load_config
from townlet.envs.vector import VectorTown
from townlet.policy.runtime import make_policy
from townlet.world.events import QUARREL
from townlet.world.film import DOING, QUARRELS, film_bytes
from townlet.world.state import PERTURBATIONS

PROGRAM = """
import hashlib, sys
from townlet.config import load_config
from townlet.envs.vector import VectorTown
from townlet.policy.runtime import make_policy
vec = VectorTown(sys.argv[1], 2, seed=3)
vec.start_filming()
policy, seen = make_policy("random", vec), hashlib.sha256()
for _ in range(int(sys.argv[2])):
    vec.step(policy.act(vec).actions)
    seen.update(vec.film.tobytes())
print(seen.hexdigest(), vec.digest())
"""


def split(vec: VectorTown, row: np.ndarray) -> dict[str, np.ndarray]:
    """A row of film by name, as numbers."""
    n, m = vec.num_residents, vec.state.objects.shape[1]
    planes = 9 + len(vec.config.needs)
    residents = row[: planes * n].reshape(-1, n).astype(int)
    things = row[planes * n : -3].reshape(4, m).astype(int)
    return {
        "x": residents[0] + 256 * residents[1],
        "y": residents[2] + 256 * residents[3],
        "action": residents[4],
        "doing": residents[5],
        "thing": residents[6] + 256 * residents[7] - 1,
        "rivalry": residents[8],
        "needs": residents[9:],
        "user": things[0] + 256 * things[1] - 1,
        "waiting": things[2],
        "stock": things[3],
        "town": row[-3:].astype(int),
    }


def byte(level: np.ndarray) -> np.ndarray:
    return np.floor(np.clip(level, 0, 1) * 255 + 0.5).astype(int)


def twin(vec: VectorTown) -> dict[str, np.ndarray]:
    """The same from the state, in NumPy."""
    me, ties, things, town = vec.state.residents[0], vec.state.ties[0], vec.state.objects[0], vec.state.towns[0]
    there = me["present"] == 1
    names = np.array(vec.catalogue.names)[me["action"]]
    doing = np.select(
        [
            ~there, me["using"] >= 0, me["called"] >= 0, me["queued"] >= 0, me["working"] == 1, names == "work", names == "home",
            names == "chat", names == "leave", (np.char.find(names, ":") > 0) & (me["target"] >= 0),
        ],
        [DOING.index(word) for word in (
            "absent", "uses", "called", "queues", "works", "to_work", "to_home", "to_chat", "leaves", "walks")],
        DOING.index("idle"),
    )  # fmt: skip
    thing = np.select(
        [me[name] >= 0 for name in ("using", "called", "queued")], [me["using"], me["called"], me["queued"]], me["target"]
    )
    fall = vec.tables.rules[0]["rivalry_decay"] * (town["tick"] - ties["since"])
    rivalry = np.where(ties["other"] >= 0, np.maximum(ties["rivalry"] - fall, 0), 0).max(axis=1)
    bits = sum(1 << k for k in range(len(PERTURBATIONS)) if town["active_until"][k] > town["tick"])
    shown = there.astype(int)
    return {
        "x": me["x"] * shown,
        "y": me["y"] * shown,
        "action": me["action"] * shown,
        "doing": doing + QUARRELS * (there & (me["stalled_by_quarrel"] > 0)),
        "thing": np.where(there, thing, -1),
        "rivalry": byte(rivalry) * shown,
        "needs": np.stack([byte(me["needs"][:, k]) * shown for k in range(len(vec.config.needs))]),
        "user": things["user"],
        "waiting": things["waiting"] + (things["holder"] >= 0),
        "stock": np.where(things["full"] < 0, 255, np.minimum(things["stock"], 254)),
        "town": np.array([town["minute"] & 255, town["minute"] >> 8, bits]),
    }


@pytest.mark.parametrize("scenario", ["town_day", "queue_conflict", "rush_hour", "town_day with fun"])
def test_every_tick_of_the_film_is_the_town_at_that_tick(scenario: str) -> None:
    """Ticks within a decision are reached again by deciding the same for fewer ticks. A need of a town's own is a column more."""
    name, _, fun = scenario.partition(" with ")
    vec = VectorTown(load_config(name, [f"needs.{fun}={{decay: 0.001, weight: 0.05}}"] if fun else []), 1, seed=5)
    assert len(vec.config.needs) == (4 if fun else 3)
    vec.start_filming()
    policy, interval, quarrels = make_policy("scripted", vec), vec.interval, 0
    for _ in range(40):
        actions, kept = policy.act(vec).actions, vec.save()
        before = twin(vec)
        vec.step(actions)
        film, events, after = vec.film[0].copy(), vec.events().copy(), vec.save()
        hot = {(int(row["tick"]), int(row[who])) for row in events[events["kind"] == QUARREL] for who in ("actor", "rival")}
        quarrels += len(hot)
        first = split(vec, film[0])
        for name in ("x", "y", "needs", "rivalry", "town"):  # a decision changes none of these
            assert (first[name] == before[name]).all(), name
        try:
            for k in range(1, interval):
                vec.restore(kept)
                vec.tables.rules["interval"] = k
                vec.step(actions)
                seen, want = split(vec, film[k]), twin(vec)
                tick = int(vec.state.towns[0]["tick"])
                for at, who in hot:
                    if at == tick:
                        want["doing"][who] |= QUARRELS
                for name, values in want.items():
                    assert (seen[name] == values).all(), (name, k, seen[name], values)
        finally:
            vec.tables.rules["interval"] = interval
        vec.restore(after)
    assert quarrels > 0 or scenario != "rush_hour"


def test_a_filmed_town_is_the_same_town() -> None:
    plain, filmed = VectorTown("queue_conflict", 3, seed=2), VectorTown("queue_conflict", 3, seed=2)
    filmed.start_filming()
    assert plain.film.size == 0
    assert filmed.film.shape == (3, filmed.interval, film_bytes(filmed.num_residents, filmed.state.objects.shape[1], 3))
    for _ in range(12):
        for vec in (plain, filmed):
            vec.step(make_policy("random", vec).act(vec).actions)
    assert plain.digest() == filmed.digest()
    assert filmed.film.any()


def test_compiled_and_uncompiled_films_are_equal() -> None:
    told = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM, "queue_conflict", "12"],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, **extra},
        ).stdout
        for extra in ({}, {"NUMBA_DISABLE_JIT": "1"})
    ]
    assert told[0] == told[1] != ""
