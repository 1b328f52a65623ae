"""A town as one block of memory: its tables, its state, and the arguments of every entry as the engine reads them.

Everything is taken from the calls that Python itself makes; an array that two of them use is stored once. So the page knows a
new argument, field or table without a line of code.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from townlet.engine.network import KernelWeights, choose_by_network
from townlet.envs.step import Buffers, step_towns
from townlet.envs.threads import Call
from townlet.envs.vector import FINGERPRINT, VectorTown
from townlet.types import Array, Record
from townlet.world.rng import ACT, PICK, POLICY, fill_uniform
from townlet.world.state import SCHEDULED, State
from townlet.world.townspeople import choose_random, choose_scripted, make_script

BASE = 1 << 20  # below it the stack and what the module itself keeps
ALIGN = 16
SCRATCH = 128  # bytes for what an entry returns: Numba's value and exception
ROOM = 64  # perturbations that a page may add
MOST_IMAGE = 4 << 20  # bytes that a page is given; a larger town is filmed
NO_EVENT = (-1, -1, 0, 0, -1)  # a row of `scheduled` that never comes


class Image(NamedTuple):
    header: Record
    data: bytes  # what stands at `header["base"]`


def calls_of(vec: VectorTown, networks: Mapping[str, KernelWeights], seed: int) -> tuple[dict[str, Call], dict[str, list[str]]]:
    """Every call the page makes by name, and for each policy those that decide. The arrays written to are made here."""
    rows, n = vec.num_towns * vec.num_residents, vec.num_residents
    choices, targets = np.zeros((vec.num_towns, n), np.int64), np.full((vec.num_towns, n), -1, np.int64)
    draws = np.zeros((vec.num_towns, n))
    logits, values = np.zeros((rows, vec.num_actions), np.float32), np.zeros(rows, np.float32)
    features, masks, out = vec.features.reshape(rows, -1), vec.masks.reshape(rows, -1), choices.reshape(-1)
    calls = {
        "step": Call(step_towns, (*vec.step_arguments(choices, targets), 0, vec.num_towns)),
        "luck_of_chance": Call(fill_uniform, (np.uint64(seed), vec.state.towns, POLICY, PICK, draws)),
        "luck_of_network": Call(fill_uniform, (np.uint64(seed), vec.state.towns, POLICY, ACT, draws)),
        "random": Call(choose_random, (masks, draws.reshape(-1), out)),
    }
    deciding = {"random": ["luck_of_chance", "random"]}
    if not vec.primitive:
        script = make_script(vec.config, vec.spec.feature_names, vec.catalogue.names)
        calls["scripted"] = Call(choose_scripted, (features, masks, script, out))
        deciding["scripted"] = ["scripted"]
    for name, network in networks.items():
        args = (features, masks, draws.reshape(-1), network, logits, values, out)
        calls[f"network_{name}"] = Call(choose_by_network, args)
        deciding[name] = ["luck_of_network", f"network_{name}"]
    return calls, deciding


def fits_a_page(vec: VectorTown) -> bool:
    """Whether a town's tables and state are small enough; the image holds little else."""
    return sum(array.nbytes for array in (*vec.tables, *vec.state, *vec.buffers)) <= MOST_IMAGE


def town_image(vec: VectorTown, networks: Mapping[str, KernelWeights] | None = None, *, seed: int | None = None) -> Image:
    """The memory of a batch as it is now, with the policies that may decide in it; `seed` is that of their draws."""
    vec.start_filming()
    spare = np.tile(np.array(NO_EVENT, dtype=SCHEDULED), (len(vec.tables.scheduled), ROOM))
    vec.tables = vec.tables._replace(scheduled=np.concatenate([vec.tables.scheduled, spare], axis=1))
    calls, deciding = calls_of(vec, networks or {}, vec.seed if seed is None else seed)
    layout = _Layout(calls)
    header = {
        "base": BASE,
        "size": layout.end - BASE,
        "changes": [layout.changes, layout.end],  # where what a run changes begins and ends
        "arrays": {name: _described(array) | {"at": at} for name, (array, at) in layout.arrays.items()},
        "calls": layout.calls,
        "policies": deciding,
        "digest": [*(f"s.{name}" for name in FINGERPRINT), "s.events", *(f"b.{name}" for name in vec.buffers._fields)],
    }
    return Image(header, bytes(layout.memory()))


class _Layout:
    """Where everything stands: blocks of arguments, then what stays, then what a run changes."""

    def __init__(self, calls: Mapping[str, Call]) -> None:
        self.arrays: dict[str, tuple[Array, int]] = {}
        self.calls: dict[str, Record] = {}
        named = {name: list(_named(call)) for name, call in calls.items()}
        self.end = BASE + SCRATCH
        for name, arguments in named.items():
            self.calls[name] = {"entry": calls[name].name, "at": self.end}
            self.end += 8 * (2 + sum(_slots(value) for _, value, _ in arguments))
        for changes in (False, True):
            if changes:
                self.changes = self._aligned()
            for name, arguments in named.items():
                for argument, value, changing in arguments:
                    if isinstance(value, np.ndarray) and changing == changes and self._found(value) is None:
                        key = argument if argument not in self.arrays else f"{name}.{argument}"
                        self.arrays[key] = value, self._aligned()
                        self.end += value.nbytes
        self.end = self._aligned()
        for name, arguments in named.items():
            self._write_block(name, arguments)

    def _aligned(self) -> int:
        self.end = -(-self.end // ALIGN) * ALIGN
        return self.end

    def _found(self, array: Array) -> int | None:
        """The address of an array, or of the part of one, that has its place."""
        begin = array.__array_interface__["data"][0]
        for own, at in self.arrays.values():
            first = own.__array_interface__["data"][0]
            if first <= begin and begin + array.nbytes <= first + own.nbytes and own.nbytes:
                return int(at + begin - first)
        return BASE if array.nbytes == 0 and any(array is own for own, _ in self.arrays.values()) else None

    def _write_block(self, name: str, arguments: Sequence[tuple[str, Any, bool]]) -> None:
        slots: list[int] = [BASE, BASE + SCRATCH // 2]
        numbers = {}
        for argument, value, _ in arguments:
            if isinstance(value, np.ndarray):
                slots += [0, 0, value.size, value.itemsize, self._found(value) or BASE, *value.shape, *value.strides]
            else:
                numbers[argument] = self.calls[name]["at"] + 8 * len(slots)
                slots.append(int(value))
        self.calls[name] |= {"numbers": numbers, "slots": slots}

    def memory(self) -> bytearray:
        memory = bytearray(self.end - BASE)
        for array, at in self.arrays.values():
            memory[at - BASE : at - BASE + array.nbytes] = array.tobytes()
        for call in self.calls.values():
            block = np.array([slot & (1 << 64) - 1 for slot in call.pop("slots")], dtype="<u8").tobytes()
            memory[call["at"] - BASE : call["at"] - BASE + len(block)] = block
        return memory


def _named(call: Call) -> Iterator[tuple[str, object, bool]]:
    """Arguments by name as Numba flattens them, and whether a run changes them."""
    for name, value in zip(inspect.signature(call.entry.py_func).parameters, call.args, strict=True):
        if isinstance(value, tuple):
            fields = value._fields  # type: ignore[attr-defined]  # the tuples of a kernel are named
            yield from (
                (f"{name}.{field}", one, isinstance(value, State | Buffers)) for field, one in zip(fields, value, strict=True)
            )
        else:
            yield name, value, True


def _slots(value: object) -> int:
    return 5 + 2 * value.ndim if isinstance(value, np.ndarray) else 1


def _described(array: Array) -> dict[str, object]:
    about: dict[str, object] = {"shape": list(array.shape), "item": array.itemsize}
    if array.dtype.fields is None:
        return about | {"kind": array.dtype.str[1:]}
    fields = {
        name: [kind.base.str[1:], offset, int(np.prod(kind.shape, dtype=int))]
        for name, (kind, offset, *_) in array.dtype.fields.items()
    }
    return about | {"fields": fields}
