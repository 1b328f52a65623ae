"""The one door to Numba: `_compiler.py` behind it says how it compiles, `_cache.py` where that is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from llvmlite import ir

from townlet.errors import UsageError

try:
    import numba as _numba
except ValueError as error:
    raise UsageError(f"Numba does not start: {error} Check the variables NUMBA_* of the environment") from None

from numba import extending
from numba.core.types import Type
from numba.core.typing.templates import Signature
from numba.np import arrayobj

from townlet.world._cache import keep
from townlet.world._compiler import EntryCompiler, KernelCompiler

P = ParamSpec("P")
R = TypeVar("R")

Code = Callable[[Any, ir.IRBuilder, Signature, Sequence[ir.Value]], ir.Value]

numba: Any = _numba  # its stubs know neither the config nor the options used here
types: Any = numba.types

JIT = not numba.config.DISABLE_JIT


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that other kernels call: GIL released, plain IEEE arithmetic, and nothing allocated.

    Three things keep the first start short. Constants and all widths of integers are passed as int64, where Numba would
    compile a function anew for each. Without its runtime (`_nrt=False`) no reference is counted. And machine code, a wrapper
    to call it from Python and a place in the cache are for an `entry` only.
    """
    return _kernel(function, inlined=False)


def leaf(function: Callable[P, R]) -> Callable[P, R]:
    """A kernel so small and so often called that it is always inlined: passing a Town would cost more than its work."""
    return _kernel(function, inlined=True)


def entry(function: Callable[P, R]) -> Callable[P, R]:
    """A kernel that Python calls: cached."""
    compiled = _compile(function, pipeline_class=EntryCompiler)
    if JIT:
        keep(compiled)
    return compiled


def portable(compiled: Any, args: Sequence[object]) -> bytes:
    """LLVM bitcode of an entry for arguments of these types, before it is fitted to a processor: for `townlet.engine`."""
    signature = tuple(numba.typeof(value) for value in args)
    compiled.compile(signature)
    bitcode: bytes = compiled._cache.portable(signature, compiled.overloads[signature])
    return bitcode


def instruction(
    returns: Type = types.void, twin: Callable[..., Any] | None = None
) -> Callable[[Callable[..., ir.Value | None]], Callable[..., Any]]:
    """A function that writes LLVM where a kernel calls it, given the builder, where arrays begin, and all else as values.
    Uncompiled, its twin is called instead."""

    def decorate(write: Callable[..., ir.Value | None]) -> Callable[..., Any]:
        if not JIT and twin is not None:
            return twin

        @wraps(write)
        def typed(_: object, *given: Type) -> tuple[Signature, Code]:
            kinds = [_plain(kind) for kind in given]

            def code(context: Any, builder: ir.IRBuilder, _: Signature, values: Sequence[ir.Value]) -> ir.Value:
                arguments = [
                    memory(context, builder, kind, value) if isinstance(kind, types.Array) else value
                    for kind, value in zip(kinds, values)
                ]
                result = write(builder, *arguments)
                return context.get_dummy_value() if result is None else result

            return returns(*kinds), code

        return intrinsic(typed)

    return decorate


def intrinsic(typed: Callable[..., tuple[Signature, Code]]) -> Callable[..., Any]:
    """An instruction that has to see the types of its arguments: for them, its signature and what writes it."""
    return extending.intrinsic(typed)


def memory(context: Any, builder: ir.IRBuilder, kind: Type, array: ir.Value) -> ir.Value:
    """Where the numbers of an array begin."""
    return arrayobj.make_array(kind)(context, builder, array).data


def _kernel(function: Callable[P, R], inlined: bool) -> Callable[P, R]:
    compiled: Any = _compile(
        function, pipeline_class=KernelCompiler, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=inlined
    )
    if JIT:
        compiled.add_overload = lambda result: compiled.overloads.update({tuple(result.signature.args): result})
    return compiled  # type: ignore[no-any-return]


def _compile(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    compiled = numba.njit(nogil=True, fastmath=False, error_model="numpy", _nrt=False, **options)(function)
    if JIT:
        resolve = compiled.get_call_template

        def resolve_plain(args: Any, kws: Any) -> Any:
            return resolve(tuple(_plain(kind) for kind in args), {name: _plain(kind) for name, kind in dict(kws).items()})

        compiled.get_call_template = resolve_plain
    return compiled  # type: ignore[no-any-return]


def _plain(kind: Any) -> Any:
    """The type an argument is compiled for: no constants, and every whole number but a hash is an int64."""
    kind = numba.types.unliteral(kind)
    whole = isinstance(kind, numba.types.Integer) and kind != numba.types.uint64
    return numba.types.int64 if whole else kind
