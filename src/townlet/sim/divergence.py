"""How two worlds differ, value by value, and where two runs part: the first tick, resident and field."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from townlet.dto.snapshot import Divergence
from townlet.envs.vector import FINGERPRINT, VectorTown
from townlet.errors import UsageError
from townlet.ports import Decided, PolicyBackend
from townlet.sim.loop import AsTold, SimulationLoop
from townlet.types import Array

SAME_ANYWAY = ("seed",)  # what a run is given says nothing about where it goes


def first_divergence(
    a: VectorTown, b: VectorTown, policy_a: PolicyBackend[VectorTown], policy_b: PolicyBackend[VectorTown], ticks: int
) -> tuple[Divergence | None, int]:
    """The first value in which two runs differ, and the ticks that were compared. Both policies are at the same moment."""
    if a.num_towns != 1 or b.num_towns != 1 or a.num_residents != b.num_residents or a.catalogue != b.catalogue:
        raise UsageError("the two runs are of different towns (residents or actions differ); compare runs of one scenario")
    if a.interval != b.interval:
        raise UsageError(f"one run decides every {a.interval} ticks, the other every {b.interval}; compare runs of one interval")
    found = _differing(a, b)
    if found is not None:
        return found, 0
    done, one, two = 0, SimulationLoop(a, policy_a), SimulationLoop(b, policy_b)
    while done < ticks:
        first, second = one.decide(), two.decide()
        other = _decision(a, first.actions, second.actions)
        if other is not None:
            return other, done
        kept = a.save(), b.save()
        made = one.step()
        two.step()
        if _differing(a, b) is not None:
            a.restore(kept[0])
            b.restore(kept[1])
            return _within(a, b, first, second), done
        done += made
    return None, done


def _differing(a: VectorTown, b: VectorTown) -> Divergence | None:
    tables = [(a.state._asdict()[name], b.state._asdict()[name]) for name in FINGERPRINT]
    if all(one.shape == two.shape and one.tobytes() == two.tobytes() for one, two in tables):
        return None
    return next((found for found in differences(a, b) if not (found.table == "towns" and found.field in SAME_ANYWAY)), None)


def _within(a: VectorTown, b: VectorTown, first: Decided, second: Decided) -> Divergence | None:
    """The interval again, a tick longer each time, until the worlds differ."""
    kept, interval = (a.save(), b.save()), a.interval
    try:
        for ticks in range(1, interval + 1):
            a.restore(kept[0])
            b.restore(kept[1])
            a.tables.rules["interval"] = b.tables.rules["interval"] = ticks
            SimulationLoop(a, AsTold(first)).step()
            SimulationLoop(b, AsTold(second)).step()
            found = _differing(a, b)
            if found is not None:
                return found
    finally:
        a.tables.rules["interval"] = b.tables.rules["interval"] = interval
    return None


def _decision(vec: VectorTown, first: Array, second: Array) -> Divergence | None:
    """The first resident whose decisions differ, while the worlds are still the same."""
    for slot in np.flatnonzero((first != second)[0] & (vec.active[0] != 0)):
        names = vec.catalogue.names
        return Divergence(
            town=0,
            tick=int(vec.state.towns[0]["tick"]),
            table="decision",
            resident=vec.resident_id(0, int(slot)),
            field="action",
            a=names[int(first[0, slot])],
            b=names[int(second[0, slot])],
        )
    return None


def differences(a: VectorTown, b: VectorTown) -> Iterator[Divergence]:
    """Every value in which two worlds of one shape differ: by town, residents first, in the order of their fields."""
    for town in range(a.num_towns):
        tick = int(a.state.towns[town]["tick"])
        for table in FINGERPRINT:
            left, right = a.state._asdict()[table][town], b.state._asdict()[table][town]
            if left.shape != right.shape:
                yield Divergence(town=town, tick=tick, table=table, field="shape", a=list(left.shape), b=list(right.shape))
            elif left.tobytes() != right.tobytes():
                yield from _unequal(a, town, tick, table, left, right)


def _unequal(vec: VectorTown, town: int, tick: int, table: str, left: Array, right: Array) -> Iterator[Divergence]:
    for index in np.ndindex(left.shape):
        names = left.dtype.names or ("",)
        for name in names:
            one, two = (array[index][name] if name else array[index] for array in (left, right))
            if np.asarray(one).tobytes() != np.asarray(two).tobytes():
                owner = index[0] if table in ("residents", "ties") else None
                yield Divergence(
                    town=town,
                    tick=tick,
                    table=table,
                    resident=None if owner is None else vec.resident_id(town, owner),
                    object_id=vec.object_ids(town)[index[0]] if table == "objects" else None,
                    field=_field(table, name, index),
                    a=np.asarray(one).tolist(),
                    b=np.asarray(two).tolist(),
                )


def _field(table: str, name: str, index: tuple[int, ...]) -> str:
    if table == "ties":
        return f"ties[{index[1]}].{name}"
    if table == "grid":
        return f"{name} of column {index[1]}, row {index[0]}"
    return name
