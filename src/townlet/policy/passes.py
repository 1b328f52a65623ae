"""A feed-forward network as compiled passes over tiles of rows: forward, losses, backward, descent. Nothing is allocated.

A tile of activations is one flat array of blocks, each of TILE rows: observations, maps, what each layer makes of them, outputs.
Gradients have an array of the same shape. A line of `plan` is a layer (`PlannedLayer`): where its inputs and outputs begin, and
how far it is from one row of theirs to the next.

Every number is a function of its row, and every sum runs in one order: over inputs one after the other, over the rows of a tile
one after the other, then tile after tile. Products are added by fused multiply-adds, which IEEE 754 rounds once; exponentials
and logarithms are the polynomials below. So bits hang neither on the processor, nor on how many rows stand beside a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from llvmlite import binding as llvm
from llvmlite import ir
from numba import extending
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.core.types import Type
from numba.core.typing.templates import Signature
from numba.np import arrayobj

from townlet.types import Array
from townlet.world._jit import entry, kernel, leaf, numba

types: Any = numba.types
intrinsic: Any = extending.intrinsic  # what it makes is called without the context that it is written with
make_array: Any = arrayobj.make_array
get_or_insert_function: Any = cgutils.get_or_insert_function
raw_memcpy: Any = cgutils.raw_memcpy
for_range: Any = cgutils.for_range


def _wide_registers() -> bool:
    """Whether Numba compiles for AVX-512, with 32 registers of 16 numbers; others have 16 of 8, or 32 of 4. What it makes of one
    addition tells. Processor and features, which decide that, are part of the cache's key."""
    vectors = "define <16 x float> @add(<16 x float> %x) {\n%y = fadd <16 x float> %x, %x\nret <16 x float> %y\n}"
    return "zmm" in cpu_target.target_context.codegen()._tm.emit_assembly(llvm.parse_assembly(vectors))


class PlannedLayer(NamedTuple):
    """A line of `plan`: where a layer reads and writes in a tile, and where its parameters stand."""

    input: int  # its first column in the first row
    inputs: int
    inputs_padded: int
    output: int
    outputs: int
    outputs_padded: int
    weights: int  # in `wide`, as the bias
    bias: int
    turned: int  # the weights again, in `turned`
    active: int  # 0, RELU or TANH
    seen: int  # 1: the inputs are observations, nothing is passed on to them
    input_row: int  # from one row of the inputs to the next
    output_row: int


(
    INPUT, INPUTS, INPUTS_PADDED, OUTPUT, OUTPUTS, OUTPUTS_PADDED, WEIGHTS, BIAS, TURNED, ACTIVE, SEEN, INPUT_ROW, OUTPUT_ROW
) = range(len(PlannedLayer._fields))  # fmt: skip
RELU, TANH = 1, 2
LANES = 16  # segments of columns are padded to it
BLOCK, STRIP = (8, 2 * LANES) if _wide_registers() else (6, LANES)  # rows and columns of a product that are kept in registers
CHAINS = (4, 6, 8, 12, 16)  # sums side by side, of which some suit any processor
TILE = 96  # rows: activations, gradients and weights stay in the second cache
TERMS = ("policy", "value", "entropy", "clipped", "kl_k1", "kl_k3")  # sums over rows of `learn_ppo`
CLONING = ("crossed", "error", "hits")  # and of `learn_cloning`
TOPS, TOTALS, SPREADS, GAINS, RETURNS, VALUES, ERRORS = range(0, 7 * TILE, TILE)  # where each begins in `lanes`, by row of a tile

ZERO, ONE, TWO, HALF = np.float32(0.0), np.float32(1.0), np.float32(2.0), np.float32(0.5)
LEAST = np.float32(-87.0)  # exp of it is the smallest that is exact to the last bits
MASKED, ALLOWED = np.float32(-1e30), np.float32(-1e20)  # a logit that nobody may choose, and what every other is above
NEVER = np.float32(-1e9)  # the log-probability of such a choice
LOG2E, LN2_HIGH, LN2_LOW = np.float32(1.4426950408889634), np.float32(0.693359375), np.float32(-2.12194440e-4)
SHIFT = np.float32(12582912.0)  # 1.5 · 2²³: adding it rounds to a whole number, which then stands in the lowest bits
LN2_HIGH64, LN2_LOW64 = 6.93147180369123816490e-01, 1.90821492927058770002e-10

_f4, _f8, _i4, _i8 = ir.FloatType(), ir.DoubleType(), ir.IntType(32), ir.IntType(64)
_vector = ir.VectorType(_f4, LANES)


# --- matrix products -------------------------------------------------------------------------------------------------
def _product(start: str, end: str, least: int = 2) -> Any:
    """C ← A B for LANES or STRIP columns, BLOCK rows at a time in registers while the sum runs, `least` where fewer are left:

        c_ij = (bias_j | 0) + Σ_p a_ip b_pj        then: added to what stands there | through the activation | times its slope

    A is read with two strides, so that it may be turned; rows of B and C are contiguous. `other` is the bias, or what the
    activation made, laid out like C. `active` says which it is; tanh itself is left to `_forward`. Where a product activates, it
    calls up what will be read after it: `pace` numbers of `next_` at every step of the sum, from the ahead-th on.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def product(
        _: Type, C: Type, c: Type, c_row: Type, A: Type, a: Type, a_row: Type, a_sum: Type, B: Type, b: Type, b_row: Type,
        n: Type, other: Type, o: Type, rows: Type, columns: Type, active: Type, next_: Type, ahead: Type, pace: Type,
    ) -> tuple[Signature, Callable[..., ir.Value]]:  # fmt: skip
        whole = types.int64
        signature = types.void(
            C, whole, whole, A, whole, whole, whole, B, whole, whole, whole, other, *[whole] * 4, next_, whole, whole
        )

        def code(context: Any, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]) -> ir.Value:
            _, c, c_row, _, a, a_row, a_sum, _, b, b_row, n, _, o, rows, columns, active, _, ahead, pace = args
            arrays = (make_array(signature.args[k])(context, builder, args[k]).data for k in (0, 3, 7, 11, 16))
            to, left, right, beside, soon = arrays
            zero, one = (ir.Constant(_vector, [number] * LANES) for number in (0.0, 1.0))
            relu = builder.icmp_signed("==", active, _whole(RELU))
            tanh = builder.icmp_signed("==", active, _whole(TANH))

            def finished(total: ir.Value, goal: ir.Value, step: ir.Value) -> ir.Value:
                if end == "add":
                    return builder.fadd(builder.load(goal, align=4), total)
                if end == "activate":  # a number that is none stays none
                    above = builder.select(builder.fcmp_ordered("<=", total, zero), zero, total)
                    return builder.select(relu, above, total)
                reached = builder.load(_place(builder, beside, o, step), align=4)
                slope = builder.fsub(one, builder.fmul(reached, reached))
                passed = builder.select(builder.fcmp_ordered(">", reached, zero), total, zero)
                return builder.select(tanh, builder.fmul(total, slope), passed)

            def block(size: int, at: ir.Value, width: int) -> None:
                """Rows `at` to at + size of so many columns."""
                strips = [_whole(j) for j in range(0, width, LANES)]
                steps = [builder.mul(c_row, builder.add(at, _whole(i))) for i in range(size)]
                starts = [builder.add(a, builder.mul(a_row, builder.add(at, _whole(i)))) for i in range(size)]
                first = [builder.load(_place(builder, beside, o, j), align=4) if start == "bias" else zero for j in strips]
                before, body, after = builder.block, builder.append_basic_block("sum"), builder.append_basic_block("summed")
                builder.branch(body)
                builder.position_at_end(body)
                p = builder.phi(_i8)
                sums = [[builder.phi(_vector) for _ in strips] for _ in range(size)]
                row = [builder.load(_place(builder, right, b, builder.mul(p, b_row), j), align=4) for j in strips]
                column = builder.mul(p, a_sum)
                following = []
                if end == "activate":
                    _fetch(builder, builder.gep(soon, [builder.add(ahead, builder.mul(p, pace))]))
                for begin, so_far in zip(starts, sums):
                    factor = _spread(builder, builder.load(builder.gep(left, [builder.add(begin, column)])))
                    following.append([_fma(builder, factor, part, now) for part, now in zip(row, so_far)])
                further = builder.add(p, _whole(1))
                p.add_incoming(_whole(0), before)
                p.add_incoming(further, body)
                for so_far, then in zip(sums, following):
                    for k, now in enumerate(so_far):
                        now.add_incoming(first[k], before)
                        now.add_incoming(then[k], body)
                builder.cbranch(builder.icmp_signed("<", further, n), body, after)
                builder.position_at_end(after)
                for step, totals in zip(steps, following):
                    for j, total in zip(strips, totals):
                        goal = _place(builder, to, c, step, j)
                        builder.store(finished(total, goal, builder.add(step, j)), goal, align=4)

            whole_blocks = builder.sdiv(rows, _whole(BLOCK))
            done = builder.mul(whole_blocks, _whole(BLOCK))
            for width in sorted({LANES, STRIP}):
                with builder.if_then(builder.icmp_signed("==", columns, _whole(width))):
                    with for_range(builder, whole_blocks) as loop:
                        block(BLOCK, builder.mul(loop.index, _whole(BLOCK)), width)
                    with for_range(builder, builder.sdiv(builder.sub(rows, done), _whole(least))) as loop:
                        block(least, builder.add(done, builder.mul(loop.index, _whole(least))), width)
            return context.get_dummy_value()

        return signature, code

    return product


@intrinsic  # type: ignore[untyped-decorator]
def _chains(_: Type, sums: Type, n: Type, count: Type) -> tuple[Signature, Callable[..., ir.Value]]:
    """`count` vectors of `sums`, one of CHAINS, each n times multiplied by itself as it was and added to that."""
    whole = types.int64

    def code(context: Any, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]) -> ir.Value:
        to, n = make_array(signature.args[0])(context, builder, args[0]).data, args[1]
        for count in CHAINS:
            with builder.if_then(builder.icmp_signed("==", args[2], _whole(count))):
                places = [_place(builder, to, _whole(k * LANES)) for k in range(count)]
                given = [builder.load(place, align=4) for place in places]
                before, body, after = builder.block, builder.append_basic_block("chain"), builder.append_basic_block("chained")
                builder.branch(body)
                builder.position_at_end(body)
                p, sums = builder.phi(_i8), [builder.phi(_vector) for _ in places]
                following = [_fma(builder, so_far, given[0], given[0]) for so_far in sums]
                further = builder.add(p, _whole(1))
                for now, begin, then in zip([p, *sums], [_whole(0), *given], [further, *following]):
                    now.add_incoming(begin, before)
                    now.add_incoming(then, body)
                builder.cbranch(builder.icmp_signed("<", further, n), body, after)
                builder.position_at_end(after)
                for place, total in zip(places, following):
                    builder.store(total, place, align=4)
        return context.get_dummy_value()

    return types.void(sums, whole, whole), code


def _whole(value: int) -> ir.Constant:
    return ir.Constant(_i8, value)


def _place(builder: ir.IRBuilder, base: ir.Value, *index: ir.Value) -> ir.Value:
    """Where LANES numbers of an array begin, at the sum of `index`."""
    return builder.bitcast(builder.gep(base, [reduce(builder.add, index)]), _vector.as_pointer())


def _fma(builder: ir.IRBuilder, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
    """x y + z, rounded once."""
    kind = ir.FunctionType(_vector, [_vector] * 3)
    return builder.call(get_or_insert_function(builder.module, kind, f"llvm.fma.v{LANES}f32"), [x, y, z])


def _fetch(builder: ir.IRBuilder, place: ir.Value) -> None:
    """Let the second cache have the line of this place; nothing waits for it."""
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, _i4, _i4, _i4])
    reading, second, data = (ir.Constant(_i4, number) for number in (0, 2, 1))
    prefetch = get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(prefetch, [builder.bitcast(place, byte), reading, second, data])


def _spread(builder: ir.IRBuilder, scalar: ir.Value) -> ir.Value:
    """One number in all lanes."""
    undefined = ir.Constant(_vector, ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.Constant(_i4, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_i4, LANES), [0] * LANES))


_outputs = _product("bias", "activate")
_inputs = _product("", "slope")  # gradients of them
_weights = _product("", "add")
_biases = _product("", "add", least=1)  # sums of rows: A is one row of ones


@intrinsic  # type: ignore[untyped-decorator]
def _turn(
    _: Type, to: Type, at: Type, to_row: Type, source: Type, begin: Type, source_row: Type,
) -> tuple[Signature, Callable[..., ir.Value]]:  # fmt: skip
    """LANES rows of LANES numbers each, from source[begin:], as columns to to[at:]."""
    whole = types.int64

    def code(context: Any, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]) -> ir.Value:
        goal, given = (make_array(signature.args[k])(context, builder, args[k]).data for k in (0, 3))
        _, at, to_row, _, begin, source_row = args

        def row(base: ir.Value, first: ir.Value, stride: ir.Value, i: int) -> ir.Value:
            return _place(builder, base, builder.add(first, builder.mul(stride, _whole(i))))

        rows = [builder.load(row(given, begin, source_row, i), align=4) for i in range(LANES)]
        apart = 1
        while apart < LANES:  # squares of this size change places with their neighbours
            for i in range(LANES):
                if not i & apart:
                    upper, lower = rows[i], rows[i + apart]
                    kept = [k if not k & apart else LANES + k - apart for k in range(LANES)]
                    moved = [k + apart if not k & apart else LANES + k for k in range(LANES)]
                    order = [ir.Constant(ir.VectorType(_i4, LANES), lanes) for lanes in (kept, moved)]
                    rows[i], rows[i + apart] = (builder.shuffle_vector(upper, lower, lanes) for lanes in order)
            apart *= 2
        for i in range(LANES):
            builder.store(rows[i], row(goal, at, to_row, i), align=4)
        return context.get_dummy_value()

    return types.void(to, whole, whole, source, whole, whole), code


@intrinsic  # type: ignore[untyped-decorator]
def _mask(_: Type, act: Type, at: Type, masks: Type, begin: Type) -> tuple[Signature, Callable[..., ir.Value]]:
    """LANES numbers of act[at:], MASKED where the flags from the begin-th on are not set."""
    whole = types.int64

    def code(context: Any, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]) -> ir.Value:
        logits, flags = (make_array(signature.args[k])(context, builder, args[k]).data for k in (0, 2))
        goal = _place(builder, logits, args[1])
        bytes_ = ir.VectorType(ir.IntType(8), LANES)
        flag = builder.load(builder.bitcast(builder.gep(flags, [args[3]]), bytes_.as_pointer()), align=1)
        allowed = builder.icmp_unsigned("!=", flag, ir.Constant(bytes_, [0] * LANES))
        never = ir.Constant(_vector, [float(MASKED)] * LANES)
        builder.store(builder.select(allowed, builder.load(goal, align=4), never), goal, align=4)
        return context.get_dummy_value()

    return types.void(act, whole, masks, whole), code


@intrinsic  # type: ignore[untyped-decorator]
def _copy(_: Type, to: Type, at: Type, source: Type, begin: Type, count: Type) -> tuple[Signature, Callable[..., ir.Value]]:
    """`count` numbers of `source` from its begin-th on, to[at:at + count]."""
    whole = types.int64

    def code(context: Any, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]) -> ir.Value:
        goal, given = (make_array(signature.args[k])(context, builder, args[k]).data for k in (0, 2))
        raw_memcpy(builder, builder.gep(goal, [args[1]]), builder.gep(given, [args[3]]), args[4], ir.Constant(_i8, 4))
        return context.get_dummy_value()

    return types.void(to, whole, source, whole, whole), code


# --- elementary functions --------------------------------------------------------------------------------------------
@intrinsic  # type: ignore[untyped-decorator]
def _bits(_: Type, x: Type) -> tuple[Signature, Callable[..., ir.Value]]:
    return types.int64(types.float64), lambda context, builder, signature, args: builder.bitcast(args[0], _i8)


@intrinsic  # type: ignore[untyped-decorator]
def _of_bits(_: Type, x: Type) -> tuple[Signature, Callable[..., ir.Value]]:
    return types.float64(types.int64), lambda context, builder, signature, args: builder.bitcast(args[0], _f8)


@intrinsic  # type: ignore[untyped-decorator]
def _scaled(_: Type, x: Type, shifted: Type) -> tuple[Signature, Callable[..., ir.Value]]:
    """x · 2ⁿ, n being what was rounded into the lowest bits of `shifted`."""

    def code(context: Any, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]) -> ir.Value:
        exponent = builder.shl(builder.bitcast(args[1], _i4), ir.Constant(_i4, 23))
        return builder.bitcast(builder.add(builder.bitcast(args[0], _i4), exponent), _f4)

    return types.float32(types.float32, types.float32), code


@leaf
def _exp32(x: np.float32) -> Any:
    """eˣ for −87 ≤ x ≤ 0, to 1e-7: eʳ 2ⁿ with |r| ≤ ln 2 / 2."""
    shifted = x * LOG2E + SHIFT
    n = shifted - SHIFT
    r = x - n * LN2_HIGH - n * LN2_LOW
    y = np.float32(1.9875691500e-4)
    y = y * r + np.float32(1.3981999507e-3)
    y = y * r + np.float32(8.3334519073e-3)
    y = y * r + np.float32(4.1665795894e-2)
    y = y * r + np.float32(1.6666665459e-1)
    y = y * r + HALF
    return _scaled(y * (r * r) + r + ONE, shifted)


@leaf
def _exp64(x: float) -> Any:
    """eˣ to 1e-15; 0 below −700, and x itself times infinity above 700 or where it is no number."""
    z = x if x > -700.0 else -700.0
    z = z if z < 700.0 else 700.0
    n = np.floor(z * 1.4426950408889634 + 0.5)
    r = z - n * LN2_HIGH64 - n * LN2_LOW64
    y = 1.0 / 6227020800.0
    y = y * r + 1.0 / 479001600.0
    y = y * r + 1.0 / 39916800.0
    y = y * r + 1.0 / 3628800.0
    y = y * r + 1.0 / 362880.0
    y = y * r + 1.0 / 40320.0
    y = y * r + 1.0 / 5040.0
    y = y * r + 1.0 / 720.0
    y = y * r + 1.0 / 120.0
    y = y * r + 1.0 / 24.0
    y = y * r + 1.0 / 6.0
    y = y * r + 0.5
    y = (y * (r * r) + r + 1.0) * _of_bits((np.int64(n) + 1023) << 52)
    y = y if x >= -700.0 else 0.0
    return y if x <= 700.0 else x * np.inf


@leaf
def _log64(x: float) -> Any:
    """ln x of a normal number above 0, to 1e-15: ln m + n ln 2, m between √½ and √2, ln m = 2 artanh((m − 1) / (m + 1))."""
    bits = _bits(x)
    m = _of_bits((bits & 0xFFFFFFFFFFFFF) | (1023 << 52))
    large = m > 1.4142135623730951
    m = m * 0.5 if large else m
    n = (bits >> 52) - (1022 if large else 1023)
    f = (m - 1.0) / (m + 1.0)
    s = f * f
    y = 1.0 / 21.0
    y = y * s + 1.0 / 19.0
    y = y * s + 1.0 / 17.0
    y = y * s + 1.0 / 15.0
    y = y * s + 1.0 / 13.0
    y = y * s + 1.0 / 11.0
    y = y * s + 1.0 / 9.0
    y = y * s + 1.0 / 7.0
    y = y * s + 1.0 / 5.0
    y = y * s + 1.0 / 3.0
    return n * LN2_HIGH64 + (2.0 * (y * s * f + f) + n * LN2_LOW64)


@leaf
def _tanh(x: np.float32) -> np.float32:
    """To 1e-7 of its value, also near 0."""
    wide = np.float64(x)
    if abs(wide) < 1e-4:
        return np.float32(wide - wide * wide * wide / 3.0)
    e = _exp64(-2.0 * abs(wide))
    y = (1.0 - e) / (1.0 + e)
    return np.float32(y if wide > 0.0 else -y) if wide == wide else x


# --- a tile ----------------------------------------------------------------------------------------------------------
@leaf
def _arrange(
    features: Array, row: int, place: Array, mean: Array, scale: Array, bound: np.float32, scratch: Array, out: Array, at: int,
) -> None:  # fmt: skip
    """A row of features to out[at + place], normalised where the bound is above 0. scratch (F,) f4"""
    count = place.shape[0]
    if bound > ZERO:
        for j in range(count):
            z = (features[row, j] - mean[j]) / scale[j]
            z = -bound if z < -bound else z
            scratch[j] = bound if z > bound else z
        for j in range(count):
            out[at + place[j]] = scratch[j]
    else:
        for j in range(count):
            out[at + place[j]] = features[row, j]


@leaf
def _load_map(maps: Array, row: int, act: Array, at: int) -> None:
    for j in range(maps.shape[1]):
        act[at + j] = np.float32(maps[row, j])


@kernel
def _load(x: Array, maps: Array, places: tuple[int, int, int], order: Array, begin: int, rows: int, act: Array) -> None:
    """Rows order[begin:begin + rows] of the observations into the tile; `places`: their stride, the first map, its stride."""
    seen = x.shape[1]
    for r in range(rows):
        row = order[begin + r]
        _copy(act, r * places[0], x, row * seen, seen)
        _load_map(maps, row, act, places[1] + r * places[2])


@kernel
def _forward(
    plan: Array, wide: Array, turned: Array, act: Array, rows: int, x: Array, order: Array, ahead: int, last: int
) -> None:
    """Meanwhile rows order[ahead] to order[last] of x, which the next tile will load, are called up from memory, one by each of
    the blocks."""
    rows += rows % 2  # there is room; nobody reads it
    for k in range(plan.shape[0]):
        begin, y, x_row, y_row = plan[k, INPUT], plan[k, OUTPUT], plan[k, INPUT_ROW], plan[k, OUTPUT_ROW]
        inputs, outputs, padded = plan[k, INPUTS], plan[k, OUTPUTS], plan[k, OUTPUTS_PADDED]
        weights, bias, active = plan[k, TURNED], plan[k, BIAS], plan[k, ACTIVE]
        pace = (x.shape[1] + inputs - 1) // inputs
        for j in range(0, padded, STRIP):
            for i in range(0, rows, BLOCK):
                called = order[min(ahead, last)] * x.shape[1]
                ahead += 1
                _outputs(
                    act, i * y_row + y + j, y_row, act, i * x_row + begin, x_row, 1, turned, weights + j, padded, inputs,
                    wide, bias + j, min(BLOCK, rows - i), min(STRIP, padded - j), active, x, called, pace,
                )  # fmt: skip
        if active == TANH:
            for r in range(rows):
                for j in range(outputs):
                    act[r * y_row + y + j] = _tanh(act[r * y_row + y + j])


@kernel
def _backward(plan: Array, wide: Array, act: Array, grad: Array, rows: int, ones: Array, total: Array) -> None:
    """From the gradients of the last segment those of all weights, added to `total`, which is laid out like `wide`."""
    even = rows + rows % 2
    for k in range(plan.shape[0] - 1, -1, -1):
        x, padded, y = plan[k, INPUT], plan[k, INPUTS_PADDED], plan[k, OUTPUT]
        outputs, width = plan[k, OUTPUTS], plan[k, OUTPUTS_PADDED]
        weights, bias, x_row, y_row = plan[k, WEIGHTS], plan[k, BIAS], plan[k, INPUT_ROW], plan[k, OUTPUT_ROW]
        for j in range(0, padded, STRIP):
            _weights(
                total, weights + j, padded, grad, y, 1, y_row, act, x + j, x_row, rows, act, 0, outputs + outputs % 2,
                min(STRIP, padded - j), 0, ones, 0, 0,
            )  # fmt: skip
        for j in range(0, width, STRIP):
            _biases(total, bias + j, 0, ones, 0, 0, 0, grad, y + j, y_row, rows, act, 0, 1, min(STRIP, width - j), 0, ones, 0, 0)
        if plan[k, SEEN]:
            continue
        active = plan[0, ACTIVE]  # of every hidden layer, and the inputs of this one are hidden
        for j in range(0, padded, STRIP):
            _inputs(
                grad, x + j, x_row, grad, y, y_row, 1, wide, weights + j, padded, outputs, act, x + j, even,
                min(STRIP, padded - j), active, ones, 0, 0,
            )  # fmt: skip


@kernel
def _softmax(
    act: Array, last: int, stride: int, actions: int, rows: int, masks: Array, order: Array, begin: int, chances: Array,
    logs: Array, lanes: Array,
) -> None:  # fmt: skip
    """p and log p of what the masks allow (p is 0 elsewhere) and the entropies, then the values as they are: action by action,
    the rows of the tile side by side. A logit that is no number makes none of them one.  # masks (R, A + 1 padded)"""
    width = masks.shape[1]
    for r in range(rows):
        row, at = order[begin + r], r * stride + last
        for j in range(0, width, LANES):
            _mask(act, at + j, masks, row * width + j)
    for r in range(0, rows, LANES):
        for j in range(0, width, LANES):
            _turn(logs, j * TILE + r, TILE, act, r * stride + last + j, stride)
    for r in range(TILE):
        lanes[TOPS + r], lanes[TOTALS + r], lanes[SPREADS + r] = logs[r], ZERO, ZERO
    for j in range(1, actions):
        for r in range(TILE):
            z = logs[j * TILE + r]
            lanes[TOPS + r] = z if z > lanes[TOPS + r] else lanes[TOPS + r]
    for j in range(actions):
        for r in range(TILE):
            z = logs[j * TILE + r] - lanes[TOPS + r]
            e = _exp32(z if z > LEAST else LEAST)
            e = e if z > ALLOWED else ZERO
            logs[j * TILE + r], chances[j * TILE + r] = z, e
            lanes[TOTALS + r] += e + z * ZERO
    for r in range(TILE):
        lanes[TOPS + r] = np.float32(_log64(np.float64(lanes[TOTALS + r]))) + lanes[TOTALS + r] * ZERO
        lanes[TOTALS + r] = ONE / lanes[TOTALS + r]
    for j in range(actions):
        for r in range(TILE):
            log, p = logs[j * TILE + r] - lanes[TOPS + r], chances[j * TILE + r] * lanes[TOTALS + r]
            logs[j * TILE + r], chances[j * TILE + r] = log, p
            lanes[SPREADS + r] -= p * log


@leaf
def _back_to_rows(chances: Array, grad: Array, last: int, stride: int, width: int, rows: int) -> None:
    """Gradients that lie action by action, into the last block of a tile."""
    for r in range(0, rows, LANES):
        for j in range(0, width, LANES):
            _turn(grad, r * stride + last + j, stride, chances, j * TILE + r, TILE)


# --- what Python calls -----------------------------------------------------------------------------------------------
@entry
def arrange(
    features: Array, rows: Array, begin: int, end: int, place: Array, mean: Array, scale: Array, bound: np.float32,
    scratch: Array, out: Array,
) -> None:  # fmt: skip
    """Rows begin to end of features[rows] as `_load` reads them.  # features (·, F), out (R, X) f4"""
    flat, width = out.reshape(-1), out.shape[1]
    for r in range(begin, end):
        _arrange(features, rows[r], place, mean, scale, bound, scratch, flat, r * width)


@entry
def renew(known: Array, vector: Array) -> bool:
    """Whether the vector is another than what is known of it; it is known then."""
    other = False
    for i in range(vector.shape[0]):
        other |= vector[i] != known[i]
    if other:
        _copy(known, 0, vector, 0, vector.shape[0])
    return other


@entry
def spread(vector: Array, plan: Array, runs: Array, wide: Array, turned: Array) -> None:
    """All parameters as one vector into the two layouts that the products read, outputs × inputs and turned.
    # runs (·, 3): begin in the vector, begin in `wide`, length"""
    for k in range(runs.shape[0]):
        _copy(wide, runs[k, 1], vector, runs[k, 0], runs[k, 2])
    for k in range(plan.shape[0]):
        inputs, outputs, weights, at = plan[k, INPUTS_PADDED], plan[k, OUTPUTS_PADDED], plan[k, WEIGHTS], plan[k, TURNED]
        for i in range(0, outputs, LANES):
            for j in range(0, inputs, LANES):
                _turn(turned, at + j * outputs + i, outputs, wide, weights + i * inputs + j, inputs)


@entry
def collect(shards: Array, runs: Array, gradient: Array) -> None:
    """The gradients of all shards (S, ·), one after the other, added to the vector's."""
    for k in range(runs.shape[0]):
        begin, at, count = runs[k, 0], runs[k, 1], runs[k, 2]
        total = gradient[begin : begin + count]
        for s in range(shards.shape[0]):
            added = shards[s, at : at + count]
            for i in range(count):
                total[i] += added[i]


@entry
def answer(
    plan: Array, wide: Array, turned: Array, act: Array, features: Array, place: Array, mean: Array, scale: Array,
    bound: np.float32, scratch: Array, town: Array, town_at: int, maps: Array, places: tuple[int, int, int], begin: int,
    end: int, out: Array,
) -> None:  # fmt: skip
    """Logits and value of rows begin to end, observations arranged on the way.  # town (R, F | 0), out (R, A + 1) f4"""
    last, stride = plan[-1, OUTPUT], plan[-1, OUTPUT_ROW]
    for at in range(begin, end, TILE):
        rows = min(TILE, end - at)
        for r in range(rows):
            _arrange(features, at + r, place, mean, scale, bound, scratch, act, r * places[0])
            for j in range(town.shape[1]):
                act[r * places[0] + town_at + j] = town[at + r, j]
            _load_map(maps, at + r, act, places[1] + r * places[2])
        _forward(plan, wide, turned, act, rows, features, place, 0, 0)
        for r in range(rows):
            for j in range(out.shape[1]):
                out[at + r, j] = act[r * stride + last + j]


@entry
def learn_ppo(
    plan: Array, wide: Array, turned: Array, act: Array, grad: Array, ones: Array, chances: Array, logs: Array, lanes: Array,
    ratios: Array, x: Array, maps: Array, places: tuple[int, int, int], order: Array, edges: Array, first: int, step: int,
    masks: Array, actions: Array, old: Array, advantages: Array, returns: Array, values: Array, numbers: Array,
    gradients: Array, sums: Array,
) -> None:  # fmt: skip
    """Of every step-th shard from the first on, rows order[edges[k]:edges[k + 1]]: gradients of the PPO loss in gradients[k],
    sums of TERMS added to sums[k].

    L = 1/n Σ −min(ρ A, clip(ρ, 1 ± ε) A) + c_v max((V − R)², (V_old + clip(V − V_old, ±c) − R)²) − c_e H

    `numbers`: mean and 1/std of the advantages, ε, c_v, c_e, c (0 for no clip), weight / n. `ratios` (2 TILE,) f8 is scratch.
    """
    mean, inverse, clip, of_value = numbers[0], numbers[1], np.float64(numbers[2]), numbers[3]
    of_spread, held_within, share = numbers[4] * numbers[6], numbers[5], numbers[6]
    last, stride, count = plan[-1, OUTPUT], plan[-1, OUTPUT_ROW], plan[-1, OUTPUTS] - 1
    for k in range(first, gradients.shape[0], step):
        _clear(gradients[k])
        for at in range(edges[k], edges[k + 1], TILE):
            rows = min(TILE, edges[k + 1] - at)
            _load(x, maps, places, order, at, rows, act)
            _forward(plan, wide, turned, act, rows, x, order, at + rows, min(at + rows + TILE, edges[k + 1]) - 1)
            _softmax(act, last, stride, count, rows, masks, order, at, chances, logs, lanes)
            for r in range(rows):
                row = order[at + r]
                ratios[r] = np.float64(logs[actions[row] * TILE + r]) - np.float64(old[row])
                lanes[GAINS + r] = (advantages[row] - mean) * inverse
                lanes[RETURNS + r], lanes[VALUES + r] = returns[row], values[row]
            for r in range(TILE):
                ratio, gain = _exp64(ratios[r]), np.float64(lanes[GAINS + r])
                free, bound = ratio * gain, min(max(ratio, 1.0 - clip), 1.0 + clip) * gain
                inside = (ratio > 1.0 - clip) & (ratio < 1.0 + clip)
                lanes[TOPS + r] = np.float32(-free) * share if (free <= bound) | inside else ZERO
                ratios[TILE + r] = ratio
            for r in range(TILE):
                value, goal, before = logs[count * TILE + r], lanes[RETURNS + r], lanes[VALUES + r]
                error, moved = value - goal, value - before
                held = before + min(max(moved, -held_within), held_within) - goal
                clipped = (held_within > ZERO) & (held * held > error * error)
                of_held = TWO * held if (moved > -held_within) & (moved < held_within) else ZERO
                lanes[ERRORS + r] = held * held if clipped else error * error
                chances[count * TILE + r] = of_value * (of_held if clipped else TWO * error) * share
            _add_terms(lanes, ratios, rows, clip, sums[k])
            for j in range(count):
                for r in range(TILE):
                    p = chances[j * TILE + r]
                    tilt = of_spread * p * (logs[j * TILE + r] + lanes[SPREADS + r])
                    chances[j * TILE + r] = tilt - lanes[TOPS + r] * p
            for r in range(rows):
                chances[actions[order[at + r]] * TILE + r] += lanes[TOPS + r]
            _back_to_rows(chances, grad, last, stride, masks.shape[1], rows)
            _backward(plan, wide, act, grad, rows, ones, gradients[k])


@leaf
def _clear(gradient: Array) -> None:
    """By the thread that adds to it: where another core has cleared it, it must be fetched from there."""
    for i in range(gradient.shape[0]):
        gradient[i] = ZERO


@leaf
def _add_terms(lanes: Array, ratios: Array, rows: int, clip: float, terms: Array) -> None:
    """TERMS of the rows of a tile, one row after the other."""
    policy, value, spread, clipped, k1, k3 = terms[0], terms[1], terms[2], terms[3], terms[4], terms[5]
    for r in range(rows):
        log_ratio, ratio, gain = ratios[r], ratios[TILE + r], np.float64(lanes[GAINS + r])
        policy -= min(ratio * gain, min(max(ratio, 1.0 - clip), 1.0 + clip) * gain)
        value += lanes[ERRORS + r]
        spread += lanes[SPREADS + r]
        clipped += 1.0 if abs(ratio - 1.0) > clip else 0.0
        k1 -= log_ratio
        k3 += ratio - 1.0 - log_ratio
    terms[0], terms[1], terms[2], terms[3], terms[4], terms[5] = policy, value, spread, clipped, k1, k3


@entry
def learn_cloning(
    plan: Array, wide: Array, turned: Array, act: Array, grad: Array, ones: Array, chances: Array, logs: Array, lanes: Array,
    ratios: Array, x: Array, maps: Array, places: tuple[int, int, int], order: Array, edges: Array, first: int, step: int,
    masks: Array, experts: Array, returns: Array, of_value: float, share: float, gradients: Array, sums: Array,
) -> None:  # fmt: skip
    """Gradients of the cloning loss, 1/n Σ −log π(expert) + c_v (V − R)², likewise; the latter where there are returns."""
    last, stride, count = plan[-1, OUTPUT], plan[-1, OUTPUT_ROW], plan[-1, OUTPUTS] - 1
    for k in range(first, gradients.shape[0], step):
        terms = sums[k]
        _clear(gradients[k])
        for at in range(edges[k], edges[k + 1], TILE):
            rows = min(TILE, edges[k + 1] - at)
            _load(x, maps, places, order, at, rows, act)
            _forward(plan, wide, turned, act, rows, x, order, at + rows, min(at + rows + TILE, edges[k + 1]) - 1)
            _softmax(act, last, stride, count, rows, masks, order, at, chances, logs, lanes)
            for r in range(rows):
                row, best = order[at + r], 0
                for j in range(1, count):
                    best = j if logs[j * TILE + r] > logs[best * TILE + r] else best
                terms[0] -= max(logs[experts[row] * TILE + r], NEVER)
                terms[2] += 1.0 if best == experts[row] else 0.0
                chances[count * TILE + r] = ZERO
                if returns.shape[0] > 0:
                    error = logs[count * TILE + r] - returns[row]
                    terms[1] += error * error
                    chances[count * TILE + r] = of_value * TWO * error * share
            for j in range(count):
                for r in range(TILE):
                    chances[j * TILE + r] *= share
            for r in range(rows):
                chances[experts[order[at + r]] * TILE + r] -= share
            _back_to_rows(chances, grad, last, stride, masks.shape[1], rows)
            _backward(plan, wide, act, grad, rows, ones, gradients[k])


@entry
def moments(x: Array, order: Array, begin: int, end: int) -> tuple[float, float]:
    """Mean and standard deviation (n − 1) of x[order[begin:end]]; 1 over fewer than two."""
    n, total = end - begin, 0.0
    for i in range(begin, end):
        total += x[order[i]]
    mean, squares = total / n, 0.0
    for i in range(begin, end):
        gap = x[order[i]] - mean
        squares += gap * gap
    return mean, np.sqrt(squares / (n - 1.0)) if n > 1 else 1.0


@entry
def advance(
    rewards: Array, values: Array, at_limit: Array, dead: Array, cut: Array, live: Array, next_value: Array,
    next_advantage: Array, gamma: float, decay: float, advantages: Array, returns: Array,
) -> None:  # fmt: skip
    """`estimates.gae` of (T, B), f8 and bool; `decay` is γ λ. What comes next (B,) is at first what comes after the last row.
    The two that are written are f4 and zero."""
    for t in range(rewards.shape[0] - 1, -1, -1):
        for b in range(rewards.shape[1]):
            if live[t, b]:
                bootstrap = 0.0 if dead[t, b] else at_limit[t, b] if cut[t, b] else next_value[b]
                carried = 0.0 if dead[t, b] or cut[t, b] else next_advantage[b]
                next_advantage[b] = rewards[t, b] + gamma * bootstrap - values[t, b] + decay * carried
                next_value[b] = values[t, b]
                advantages[t, b], returns[t, b] = next_advantage[b], next_advantage[b] + next_value[b]


@entry
def column_sums(rows: Array, order: Array, about: Array, first: Array, second: Array) -> None:
    """Σ (x − about) and Σ (x − about)² of each column over rows[order], in float64."""
    for i in range(order.shape[0]):
        row = order[i]
        for j in range(about.shape[0]):
            gap = rows[row, j] - about[j]
            first[j] += gap
            second[j] += gap * gap


@entry
def multiply_add(sums: Array, n: int, count: int) -> None:
    """What a core does at its best, where nothing waits for memory: n steps of `count` chains, 2 LANES operations each."""
    _chains(sums, n, count)


@entry
def descend(
    vector: Array, gradient: Array, first: Array, second: Array, bound: float, rate: float, decay: np.float32, decoupled: bool,
    adam: bool, betas: tuple[float, float], epsilon: np.float32, steps_first: float, steps_second: float,
) -> Any:  # fmt: skip
    """One step of `numerics.Optimizer`; `steps_…` are 1 − βᵗ."""
    total = 0.0
    for i in range(gradient.shape[0]):
        total += np.float64(gradient[i]) * np.float64(gradient[i])
    norm = np.sqrt(total)
    if not norm < np.inf:
        return norm
    shrink = np.float32(bound / (norm + 1e-6)) if norm > bound else ONE
    one, other = np.float32(1.0 - betas[0]), np.float32(1.0 - betas[1])
    kept, root, pace = np.float32(betas[1]), np.float32(np.sqrt(steps_second)), np.float32(rate / steps_first)
    for i in range(vector.shape[0]):
        g, w = gradient[i] * shrink, vector[i]
        if decoupled:
            w -= w * decay
        else:
            g += w * decay
        if adam:
            m = first[i] + (g - first[i]) * one
            v = second[i] * kept + g * g * other
            first[i], second[i] = m, v
            w -= pace * m / (np.sqrt(v) / root + epsilon)
        else:
            w -= np.float32(rate) * g
        vector[i] = w
        gradient[i] = ZERO
    return norm


@entry
def choose(
    out: Array, masks: Array, draws: Array, weights: Array, begin: int, end: int, actions: Array, log_probs: Array,
) -> None:  # fmt: skip
    """`inference.choose_actions`: by a draw, or, where that is below 0, the most probable. `weights` is scratch, (A,) f8."""
    count = masks.shape[1]
    for r in range(begin, end):
        top, best, total, chosen = np.float32(-np.inf), 0, 0.0, -1
        for j in range(count):
            if masks[r, j] and out[r, j] > top:
                top, best = out[r, j], j
        for j in range(count):
            weights[j] = _exp64(np.float64(out[r, j]) - np.float64(top)) if masks[r, j] else 0.0
            total += weights[j]
        if draws[r] < 0.0:
            chosen = best
        else:
            reached, goal = 0.0, draws[r] * total
            for j in range(count):
                if masks[r, j] and (chosen < 0 or reached <= goal):
                    reached += weights[j]
                    chosen = j
        actions[r] = max(chosen, 0)
        log_probs[r] = np.float32(np.float64(out[r, actions[r]]) - np.float64(top) - _log64(total))


@entry
def settle(out: Array, masks: Array, log_probs: Array) -> None:
    """log softmax over the allowed actions, (R, A); −10⁹ elsewhere."""
    count = masks.shape[1]
    for r in range(out.shape[0]):
        top, total = np.float32(-np.inf), 0.0
        for j in range(count):
            if masks[r, j] and out[r, j] > top:
                top = out[r, j]
        for j in range(count):
            if masks[r, j]:
                total += _exp64(np.float64(out[r, j]) - np.float64(top))
        log_total = _log64(total) + np.float64(top)
        for j in range(count):
            log_probs[r, j] = np.float32(np.float64(out[r, j]) - log_total) if masks[r, j] else NEVER
