"""What the compiled passes are made of: matrix products, moves of blocks, exponentials and logarithms.

Products are summed by fused multiply-adds, which IEEE 754 rounds once, over inputs one after the other; exponentials and
logarithms are the polynomials below. So bits hang neither on the processor, nor on how many rows stand beside a row. What must
keep its sums in registers writes LLVM: an `instruction`, with a twin in NumPy that gives the same bits uncompiled.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from llvmlite import binding as llvm
from llvmlite import ir
from numba.core.cgutils import for_range, get_or_insert_function, raw_memcpy
from numba.core.registry import cpu_target

from townlet.types import Array
from townlet.world._jit import entry, instruction, leaf, types


def _wide_registers() -> bool:
    """Whether Numba compiles for AVX-512, with 32 registers of 16 numbers; others have 16 of 8, or 32 of 4. What it makes of one
    addition tells. Processor and features, which decide that, are part of the cache's key."""
    vectors = "define <16 x float> @add(<16 x float> %x) {\n%y = fadd <16 x float> %x, %x\nret <16 x float> %y\n}"
    return "zmm" in cpu_target.target_context.codegen()._tm.emit_assembly(llvm.parse_assembly(vectors))


RELU, TANH = 1, 2
LANES = 16  # segments of columns are padded to it
BLOCK, STRIP = (8, 2 * LANES) if _wide_registers() else (6, LANES)  # rows and columns of a product that are kept in registers
CHAINS = (4, 6, 8, 12, 16)  # sums side by side, of which some suit any processor

ZERO, ONE, TWO, HALF = np.float32(0.0), np.float32(1.0), np.float32(2.0), np.float32(0.5)
MASKED = np.float32(-1e30)  # a logit that nobody may choose
LOG2E, LN2_HIGH, LN2_LOW = np.float32(1.4426950408889634), np.float32(0.693359375), np.float32(-2.12194440e-4)
SHIFT = np.float32(12582912.0)  # 1.5 · 2²³: adding it rounds to a whole number, which then stands in the lowest bits
LN2_HIGH64, LN2_LOW64 = 6.93147180369123816490e-01, 1.90821492927058770002e-10

_f4, _f8, _i4, _i8 = ir.FloatType(), ir.DoubleType(), ir.IntType(32), ir.IntType(64)
_vector = ir.VectorType(_f4, LANES)


# --- matrix products -------------------------------------------------------------------------------------------------
def _product(start: str, end: str, least: int = 2) -> Callable[..., Any]:
    """C ← A B for LANES or STRIP columns, BLOCK rows at a time in registers while the sum runs, `least` where fewer are left:

        c_ij = (bias_j | 0) + Σ_p a_ip b_pj        then: added to what stands there | through the activation | times its slope

    A is read with two strides, so that it may be turned; rows of B and C are contiguous. `other` is the bias, or what the
    activation made, laid out like C. `active` says which it is; tanh itself is left to the caller. Where a product activates, it
    calls up what will be read after it: `pace` numbers of `soon` at every step of the sum, from the ahead-th on.
    """

    def uncompiled(
        C: Array, c: int, c_row: int, A: Array, a: int, a_row: int, a_sum: int, B: Array, b: int, b_row: int, n: int,
        other: Array, o: int, rows: int, columns: int, active: int, soon: Array, ahead: int, pace: int,
    ) -> None:  # fmt: skip
        i, j = np.arange(rows - rows % BLOCK % least)[:, None], np.arange(columns)
        A, B, C, steps = A.reshape(-1), B.reshape(-1), C.reshape(-1), c_row * i + j
        total = other[o + j] if start == "bias" else np.zeros(columns, np.float32)
        for p in range(n):
            total = fused_multiply_add(A[a + a_row * i + a_sum * p], B[b + b_row * p + j], total)
        if end == "add":
            C[c + steps] += total
        elif end == "activate":
            C[c + steps] = np.where(total <= ZERO, ZERO, total) if active == RELU else total
        else:
            reached = other[o + steps]
            C[c + steps] = total * (ONE - reached * reached) if active == TANH else np.where(reached > ZERO, total, ZERO)

    @instruction(twin=uncompiled)
    def product(
        builder: ir.IRBuilder, C: ir.Value, c: ir.Value, c_row: ir.Value, A: ir.Value, a: ir.Value, a_row: ir.Value,
        a_sum: ir.Value, B: ir.Value, b: ir.Value, b_row: ir.Value, n: ir.Value, other: ir.Value, o: ir.Value, rows: ir.Value,
        columns: ir.Value, active: ir.Value, soon: ir.Value, ahead: ir.Value, pace: ir.Value,
    ) -> None:  # fmt: skip
        zero, one = (ir.Constant(_vector, [number] * LANES) for number in (0.0, 1.0))
        relu = builder.icmp_signed("==", active, _whole(RELU))
        tanh = builder.icmp_signed("==", active, _whole(TANH))

        def finished(total: ir.Value, goal: ir.Value, step: ir.Value) -> ir.Value:
            if end == "add":
                return builder.fadd(builder.load(goal, align=4), total)
            if end == "activate":  # a number that is none stays none
                above = builder.select(builder.fcmp_ordered("<=", total, zero), zero, total)
                return builder.select(relu, above, total)
            reached = builder.load(_place(builder, other, o, step), align=4)
            slope = builder.fsub(one, builder.fmul(reached, reached))
            passed = builder.select(builder.fcmp_ordered(">", reached, zero), total, zero)
            return builder.select(tanh, builder.fmul(total, slope), passed)

        def block(size: int, at: ir.Value, width: int) -> None:
            """Rows `at` to at + size of so many columns."""
            strips = [_whole(j) for j in range(0, width, LANES)]
            steps = [builder.mul(c_row, builder.add(at, _whole(i))) for i in range(size)]
            starts = [builder.add(a, builder.mul(a_row, builder.add(at, _whole(i)))) for i in range(size)]
            first = [builder.load(_place(builder, other, o, j), align=4) if start == "bias" else zero for j in strips]
            before, body, after = builder.block, builder.append_basic_block("sum"), builder.append_basic_block("summed")
            builder.branch(body)
            builder.position_at_end(body)
            p = builder.phi(_i8)
            sums = [[builder.phi(_vector) for _ in strips] for _ in range(size)]
            row = [builder.load(_place(builder, B, b, builder.mul(p, b_row), j), align=4) for j in strips]
            column = builder.mul(p, a_sum)
            following = []
            if end == "activate":
                _fetch(builder, builder.gep(soon, [builder.add(ahead, builder.mul(p, pace))]))
            for begin, so_far in zip(starts, sums):
                factor = _spread(builder, builder.load(builder.gep(A, [builder.add(begin, column)])))
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
                    goal = _place(builder, C, c, step, j)
                    builder.store(finished(total, goal, builder.add(step, j)), goal, align=4)

        whole_blocks = builder.sdiv(rows, _whole(BLOCK))
        done = builder.mul(whole_blocks, _whole(BLOCK))
        for width in sorted({LANES, STRIP}):
            with builder.if_then(builder.icmp_signed("==", columns, _whole(width))):
                with for_range(builder, whole_blocks) as loop:
                    block(BLOCK, builder.mul(loop.index, _whole(BLOCK)), width)
                with for_range(builder, builder.sdiv(builder.sub(rows, done), _whole(least))) as loop:
                    block(least, builder.add(done, builder.mul(loop.index, _whole(least))), width)

    return product


outputs_product = _product("bias", "activate")
inputs_product = _product("", "slope")  # gradients of them
weights_product = _product("", "add")
biases_product = _product("", "add", least=1)  # sums of rows: A is one row of ones


@instruction()
def _chains(builder: ir.IRBuilder, sums: ir.Value, n: ir.Value, count: ir.Value) -> None:
    """`count` vectors of `sums`, one of CHAINS, each n times multiplied by itself as it was and added to that."""
    for chains in CHAINS:
        with builder.if_then(builder.icmp_signed("==", count, _whole(chains))):
            places = [_place(builder, sums, _whole(k * LANES)) for k in range(chains)]
            given = [builder.load(place, align=4) for place in places]
            before, body, after = builder.block, builder.append_basic_block("chain"), builder.append_basic_block("chained")
            builder.branch(body)
            builder.position_at_end(body)
            p, totals = builder.phi(_i8), [builder.phi(_vector) for _ in places]
            following = [_fma(builder, so_far, given[0], given[0]) for so_far in totals]
            further = builder.add(p, _whole(1))
            for now, begin, then in zip([p, *totals], [_whole(0), *given], [further, *following]):
                now.add_incoming(begin, before)
                now.add_incoming(then, body)
            builder.cbranch(builder.icmp_signed("<", further, n), body, after)
            builder.position_at_end(after)
            for place, total in zip(places, following):
                builder.store(total, place, align=4)


@entry
def multiply_add(sums: Array, n: int, count: int) -> None:
    """What a core does at its best, where nothing waits for memory: n steps of `count` chains, 2 LANES operations each."""
    _chains(sums, n, count)


def fused_multiply_add(x: Array, y: Array, z: Array) -> Array:
    """x y + z of float32, rounded once. The product is exact in float64; the sum is rounded to odd there, so that rounding it
    again, to float32, rounds as if it were the first time."""
    product = x.astype(np.float64) * y
    total = product + z
    back = total - product
    lost = (product - (total - back)) + (z - back)  # of the sum, exactly
    bits = total.view(np.int64)
    bits += np.where((lost != 0) & (bits & 1 == 0) & np.isfinite(total), np.where((lost > 0) == (total > 0), 1, -1), 0)
    return total.astype(np.float32)


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


# --- moves -----------------------------------------------------------------------------------------------------------
def _turn(to: Array, at: int, to_row: int, source: Array, begin: int, source_row: int) -> None:
    every, along = np.arange(LANES)[:, None], np.arange(LANES)
    to.reshape(-1)[at + along * to_row + every] = source.reshape(-1)[begin + every * source_row + along]


def _mask(logits: Array, at: int, flags: Array, begin: int) -> None:
    logits[at : at + LANES][~flags.reshape(-1)[begin : begin + LANES]] = MASKED


def _copy(to: Array, at: int, source: Array, begin: int, count: int) -> None:
    to.reshape(-1)[at : at + count] = source.reshape(-1)[begin : begin + count]


@instruction(twin=_turn)
def turn(
    builder: ir.IRBuilder, to: ir.Value, at: ir.Value, to_row: ir.Value, source: ir.Value, begin: ir.Value, source_row: ir.Value
) -> None:
    """LANES rows of LANES numbers each, from source[begin:], as columns to to[at:]."""

    def row(base: ir.Value, first: ir.Value, stride: ir.Value, i: int) -> ir.Value:
        return _place(builder, base, builder.add(first, builder.mul(stride, _whole(i))))

    rows = [builder.load(row(source, begin, source_row, i), align=4) for i in range(LANES)]
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
        builder.store(rows[i], row(to, at, to_row, i), align=4)


@instruction(twin=_mask)
def mask(builder: ir.IRBuilder, logits: ir.Value, at: ir.Value, flags: ir.Value, begin: ir.Value) -> None:
    """LANES numbers of logits[at:], MASKED where the flags from the begin-th on are not set."""
    goal, bytes_ = _place(builder, logits, at), ir.VectorType(ir.IntType(8), LANES)
    flag = builder.load(builder.bitcast(builder.gep(flags, [begin]), bytes_.as_pointer()), align=1)
    allowed = builder.icmp_unsigned("!=", flag, ir.Constant(bytes_, [0] * LANES))
    never = ir.Constant(_vector, [float(MASKED)] * LANES)
    builder.store(builder.select(allowed, builder.load(goal, align=4), never), goal, align=4)


@instruction(twin=_copy)
def copy(builder: ir.IRBuilder, to: ir.Value, at: ir.Value, source: ir.Value, begin: ir.Value, count: ir.Value) -> None:
    """`count` numbers of `source` from its begin-th on, to[at:at + count]."""
    raw_memcpy(builder, builder.gep(to, [at]), builder.gep(source, [begin]), count, ir.Constant(_i8, 4))


# --- elementary functions --------------------------------------------------------------------------------------------
@instruction(types.int64, twin=lambda x: np.float64(x).view(np.int64))
def _bits(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return builder.bitcast(x, _i8)


@instruction(types.float64, twin=lambda x: np.int64(x).view(np.float64))
def _of_bits(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return builder.bitcast(x, _f8)


@instruction(types.float32, twin=lambda x, shifted: np.ldexp(x, np.int32(shifted - SHIFT)))
def _scaled(builder: ir.IRBuilder, x: ir.Value, shifted: ir.Value) -> ir.Value:
    """x · 2ⁿ, n being what was rounded into the lowest bits of `shifted`."""
    exponent = builder.shl(builder.bitcast(shifted, _i4), ir.Constant(_i4, 23))
    return builder.bitcast(builder.add(builder.bitcast(x, _i4), exponent), _f4)


@leaf
def exp32(x: np.float32) -> Any:
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
def exp64(x: float) -> Any:
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
def log64(x: float) -> Any:
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
def tanh32(x: np.float32) -> np.float32:
    """To 1e-7 of its value, also near 0."""
    wide = np.float64(x)
    if abs(wide) < 1e-4:
        return np.float32(wide - wide * wide * wide / 3.0)
    e = exp64(-2.0 * abs(wide))
    y = (1.0 - e) / (1.0 + e)
    return np.float32(y if wide > 0.0 else -y) if wide == wide else x
