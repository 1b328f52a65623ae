"""Threads that share work: compiled calls that one thread leaves and others make, without Python in between.

A call is packed into the box of a thread, which looks out for it in compiled code. So it begins within a microsecond, and
neither side waits for the interpreter's lock, which kernels let go of. Handing it over in Python would cost thirty times that.

Numba's own threads (`parallel=True`) are not used: on busy cores they were ten times slower, every kernel would have to be
compiled with their passes, and the only layer that needs no other library ends a process in which two threads use it at once.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import cache
from queue import SimpleQueue
from threading import Lock, Thread
from time import sleep
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core.cgutils import gep_inbounds, unpack_tuple
from numba.core.types import Tuple, Type
from numba.core.typing.templates import Signature

from townlet.threads import own_cores
from townlet.types import Array
from townlet.world._jit import JIT, Code, entry, instruction, intrinsic, memory, numba, types

whole, _i8 = types.int64, ir.IntType(64)
MAKE = ir.FunctionType(ir.IntType(32), [_i8.as_pointer()])  # makes a call, given the box in which it lies; Numba's status of it

LEFT, MADE, ASLEEP, FAILED = 0, 16, 32, 48  # counts of a thread, each on a line of the cache of its own: calls that were left and
# that were made, whether it sleeps, and which call (from 1 on) raised an error
SLOTS, WORDS = 8, 1024  # calls that may lie in a box, words of each
PATIENCE = 600_000  # looks before a thread sleeps, about a third of a millisecond: longer than the Python between most calls
PAUSE = 5e-5  # seconds that whoever waits for longer sleeps at a time


# --- boxes -----------------------------------------------------------------------------------------------------------
@instruction(whole)
def _add(builder: ir.IRBuilder, counts: ir.Value, at: ir.Value, added: ir.Value) -> ir.Value:
    """counts[at] += added at one stroke, seen by every thread; what stood there before."""
    return builder.atomic_rmw("add", builder.gep(counts, [at]), added, "seq_cst")


@instruction(whole)
def _look(builder: ir.IRBuilder, counts: ir.Value, at: ir.Value) -> ir.Value:
    """counts[at] as it is now, whoever writes it."""
    return builder.load_atomic(builder.gep(counts, [at]), "seq_cst", 8)


def _mark_of(kind: Type) -> int:
    """A number that stands for the types of a call."""
    return int.from_bytes(hashlib.sha256(str(kind).encode()).digest()[:7], "little")


@intrinsic
def _mark(_: object, args: Type) -> tuple[Signature, Code]:
    return whole(args), lambda context, builder, signature, values: _i8(_mark_of(args))


@intrinsic
def _pack(_: object, box: Type, address: Type, args: Tuple) -> tuple[Signature, Code]:
    """Into the box: a function that makes the call, the address of the entry, and its arguments one by one."""

    def code(context: Any, builder: ir.IRBuilder, _: Signature, values: Sequence[ir.Value]) -> ir.Value:
        given = context.get_arg_packer(args.types).as_arguments(builder, unpack_tuple(builder, values[2]))
        packed = ir.LiteralStructType([_i8, _i8, *(value.type for value in given)])
        if context.get_abi_sizeof(packed) > 8 * WORDS:
            raise TypeError(f"{len(given)} arguments do not fit into {8 * WORDS} bytes; raise WORDS in {__name__}")
        make = ir.Function(builder.module, MAKE, builder.module.get_unique_name("make"))
        make.linkage = "internal"
        inside = ir.IRBuilder(make.append_basic_block())
        place = inside.bitcast(make.args[0], packed.as_pointer())
        _, at, *loaded = (inside.load(gep_inbounds(inside, place, 0, k)) for k in range(2 + len(given)))
        kind = context.call_conv.get_function_type(types.none, args.types)
        told = [inside.alloca(each.pointee) for each in kind.args[:2]]  # what it returns, which is nothing, and what it raises
        inside.ret(inside.call(inside.inttoptr(at, kind.as_pointer()), [*told, *loaded]))
        place = builder.bitcast(memory(context, builder, box, values[0]), packed.as_pointer())
        for k, value in enumerate([builder.ptrtoint(make, _i8), values[1], *given]):
            builder.store(value, gep_inbounds(builder, place, 0, k))
        return context.get_dummy_value()

    return types.void(box, whole, args), code


@instruction(whole)
def _make(builder: ir.IRBuilder, box: ir.Value) -> ir.Value:
    """Make the call that lies in the box; its status, 0 where nothing was raised."""
    return builder.sext(builder.call(builder.inttoptr(builder.load(box), MAKE.as_pointer()), [box]), _i8)


@entry
def leave(box: Array, counts: Array, known: Array, args: tuple[Any, ...]) -> Any:
    """Leave a call for a thread: 1 where that sleeps, −1 where no address is known for such arguments.  # known (·, 2)"""
    mark = _mark(args)
    for k in range(known.shape[0]):
        if known[k, 0] == mark:
            _pack(box[_look(counts, LEFT) % SLOTS], known[k, 1], args)
            _add(counts, LEFT, 1)
            return _look(counts, ASLEEP)
    return -1


@entry
def attend(box: Array, counts: Array, looks: int) -> None:
    """Make the calls that are left, until none has come in this many looks; none after one that failed."""
    _add(counts, ASLEEP, -1)
    looked = 0
    while True:
        made = _look(counts, MADE)
        if _look(counts, LEFT) > made:
            if _look(counts, FAILED) == 0 and _make(box[made % SLOTS]) != 0:
                _add(counts, FAILED, made + 1)
            _add(counts, MADE, 1)
            looked = 0
        elif looked < looks:
            looked += 1
        else:
            _add(counts, ASLEEP, 1)
            if _look(counts, LEFT) == made:  # whoever leaves a call from now on sees that it must wake
                break
            _add(counts, ASLEEP, -1)


@entry
def made(counts: Array, looks: int) -> bool:
    """Whether all calls are made; it looks at most this many times."""
    looked = 0
    while looked < looks and _look(counts, MADE) < _look(counts, LEFT):
        looked += 1
    return looked < looks


# --- threads ---------------------------------------------------------------------------------------------------------
class Call(NamedTuple):
    """An entry that returns nothing, and all it is given."""

    entry: Any
    args: tuple[Any, ...]

    @property
    def name(self) -> str:
        return str(self.entry.__name__)


def run_in_threads(threads: int, jobs: Sequence[Sequence[Call]]) -> None:
    """The first job here, each of the others in a thread; the calls of a job, up to SLOTS, one after the other.

    All who share work in a process share the threads, too: one that looks out must not take the core of one that works. Whoever
    finds them busy does all of its work itself.
    """
    pool = _pool(os.getpid(), threads) if JIT and len(jobs) > 1 else None
    if pool is None or not pool.free.acquire(blocking=False):
        for job in jobs:
            for call in job:
                call.entry(*call.args)
        return
    try:
        for k, job in enumerate(jobs[1:]):
            pool.leave(k, job)
        for call in jobs[0]:
            call.entry(*call.args)
    finally:
        failed = [name for k, job in enumerate(jobs[1:]) for name in pool.wait(k, job)]
        pool.free.release()
    if failed:
        raise RuntimeError(f"{' and '.join(failed)} raised an error in another thread; call it in this one to see which")


class _Pool:
    def __init__(self, count: int) -> None:
        self.free = Lock()
        self._boxes = [np.zeros((SLOTS, WORDS), np.int64) for _ in range(count - 1)]
        self._counts = [np.zeros(4 * MADE, np.int64) for _ in range(count - 1)]
        self._wakes = [SimpleQueue[None]() for _ in range(count - 1)]
        self._looks = PATIENCE if count <= own_cores() else 1  # where each has a core
        for k in range(count - 1):
            self._counts[k][ASLEEP] = 1
            Thread(target=self._work, args=(k,), daemon=True).start()

    def leave(self, k: int, job: Sequence[Call]) -> None:
        if len(job) > SLOTS:
            raise ValueError(f"a job of {len(job)} calls was given to a thread, whose box holds {SLOTS}")
        asleep = 0
        for call in job:
            while (asleep := leave(self._boxes[k], self._counts[k], _known.get(call.entry, UNKNOWN), call.args)) < 0:
                _get_to_know(call)
        if asleep:
            self._wakes[k].put(None)

    def wait(self, k: int, job: Sequence[Call]) -> list[str]:
        """Wait for the end of a job; the name of the call that failed, if one did."""
        counts = self._counts[k]
        while not made(counts, self._looks):
            sleep(PAUSE)
        if not counts[FAILED]:
            return []
        failed = job[counts[FAILED] - 1 - counts[LEFT]]  # the last call that was left is the last of the job
        counts[FAILED] = 0
        return [failed.name]

    def _work(self, k: int) -> None:
        while True:
            attend(self._boxes[k], self._counts[k], self._looks)
            self._wakes[k].get()


@cache
def _pool(process: int, count: int) -> _Pool:
    """The threads of a process: a fork does not have those of its parent."""
    return _Pool(count)


UNKNOWN = np.zeros((0, 2), np.int64)
_known: dict[Any, Array] = {}  # by entry: marks of the arguments it is compiled for, addresses


def _get_to_know(call: Call) -> None:
    """Compile an entry for such arguments, and note where it is."""
    kinds = tuple(numba.typeof(value) for value in call.args)
    call.entry.compile(kinds)
    compiled = call.entry.overloads[kinds]
    if compiled.signature.return_type != types.none:
        raise TypeError(f"{call.name} returns {compiled.signature.return_type}, which nobody would receive")
    address = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    row = np.array([[_mark_of(numba.typeof(call.args)), address]], np.int64)
    _known[call.entry] = np.concatenate([_known.get(call.entry, UNKNOWN), row])
