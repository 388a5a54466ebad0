"""Vectorised work on many points, stored in one array.

The fast flow processes ``LANES`` points at a time. Each quantity is a row of one flat float32
array: quantity q of lane i is ``work[q * LANES + i]``. With one array and constant offsets the
compiler can prove that rows do not overlap, and vectorises every loop over lanes. ``read`` and
``write`` omit the check for negative indices, which would prevent vectorisation.

Two operations the compiler can't vectorise are written out here. ``transpose_rows`` looks up each
lane's affine map: it loads eight rows of eight numbers and transposes them in registers, several
times faster than gather instructions. ``sum_rows`` keeps the sum in registers: the compiler would
store and reload it for every row, because it must assume that the arrays overlap.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

LANES = 32
# Float32 numbers in a vector register.
ROW = 8
# Number of θ converted to velocities together: enough to keep the float64 units busy.
FIELDS = 32


def _data(context: Any, builder: Any, signature: Any, arguments: Any, position: int) -> Any:
    """Pointer to the first entry of an array argument, which must be contiguous."""
    array_type = signature.args[position]
    if array_type.layout != "C":
        raise TypingError(f"argument {position} must be a contiguous array, got {array_type}")
    return context.make_array(array_type)(context, builder, arguments[position]).data


def _entry(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Pointer to one quantity of one lane."""
    work = _data(context, builder, signature, arguments, 0)
    row = builder.mul(arguments[1], ir.Constant(ir.IntType(64), LANES))
    return builder.gep(work, [builder.add(row, arguments[2])], inbounds=True)


@intrinsic
def read(typing_context, work, quantity, lane):  # type: ignore[no-untyped-def]
    """``work[quantity * LANES + lane]``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_entry(context, builder, signature, arguments))

    return work.dtype(work, types.int64, types.int64), generate


@intrinsic
def write(typing_context, work, quantity, lane, value):  # type: ignore[no-untyped-def]
    """``work[quantity * LANES + lane] = value``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[3], _entry(context, builder, signature, arguments))
        return context.get_dummy_value()

    return types.void(work, types.int64, types.int64, work.dtype), generate


@intrinsic
def transpose_rows(typing_context, table, rows, lane, work, target):  # type: ignore[no-untyped-def]
    """``work[target + k * LANES + lane + i] = table[rows[lane + i] + k]`` for i, k < 8."""
    signature = types.void(table, rows, lane, work, target)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def data(position: int) -> Any:
            return _data(context, builder, signature, arguments, position)

        int64, vector = ir.IntType(64), ir.VectorType(ir.FloatType(), ROW)

        def shuffle(a: Any, b: Any, order: list[int]) -> Any:
            mask = ir.Constant(ir.VectorType(ir.IntType(32), ROW), order)
            return builder.shuffle_vector(a, b, mask)

        def at(pointer: Any, index: Any) -> Any:
            return builder.bitcast(
                builder.gep(pointer, [index], inbounds=True), vector.as_pointer()
            )

        lines = []
        for i in range(ROW):
            here = builder.add(arguments[2], ir.Constant(int64, i))
            row = builder.load(builder.gep(data(1), [here], inbounds=True))
            lines.append(builder.load(at(data(0), builder.zext(row, int64)), align=4))
        for width in (1, 2, 4):
            low = [k if not k & width else k - width + ROW for k in range(ROW)]
            high = [k + width if not k & width else k + ROW for k in range(ROW)]
            swapped = list(lines)
            for i in range(ROW):
                if not i & width:
                    swapped[i] = shuffle(lines[i], lines[i + width], low)
                    swapped[i + width] = shuffle(lines[i], lines[i + width], high)
            lines = swapped
        for k, line in enumerate(lines):
            offset = ir.Constant(int64, k * LANES)
            target_index = builder.add(builder.add(arguments[4], arguments[2]), offset)
            builder.store(line, at(data(3), target_index), align=4)
        return context.get_dummy_value()

    return signature, generate


def _row_summer(width: int, *, listed: bool) -> Any:
    """Make an intrinsic that sums multiples of rows of ``width`` numbers."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        dtype = signature.args[6].dtype
        vector, align = ir.VectorType(context.get_value_type(dtype), width), dtype.bitwidth // 8

        def entry(position: int, index: Any) -> Any:
            data = _data(context, builder, signature, arguments, position)
            return builder.gep(data, [index], inbounds=True)

        def row(position: int, index: Any) -> Any:
            return builder.bitcast(entry(position, index), vector.as_pointer())

        total = cgutils.alloca_once_value(builder, ir.Constant(vector, [0.0] * width))
        with cgutils.for_range(builder, arguments[5]) as loop:
            factor = builder.load(entry(0, builder.add(arguments[1], loop.index)))
            spread = ir.Constant(vector, [ir.Undefined] * width)
            for i in range(width):
                spread = builder.insert_element(spread, factor, ir.Constant(ir.IntType(32), i))
            number = loop.index
            if listed:
                number = builder.load(entry(8, builder.add(arguments[9], loop.index)))
            here = builder.add(arguments[3], builder.mul(number, arguments[4]))
            values = builder.load(row(2, here), align=align)
            product = builder.fmul(spread, values, flags=("contract",))
            builder.store(builder.fadd(builder.load(total), product, flags=("contract",)), total)
        builder.store(builder.load(total), row(6, arguments[7]), align=align)
        return context.get_dummy_value()

    whole = types.int64

    def sum_rows(typing_context, factors, first, rows, source, pitch, count, sums, target):  # type: ignore[no-untyped-def]
        """``sums[target + i] = Σ_q factors[first + q] rows[source + q pitch + i]``, q < count."""
        return types.void(factors, whole, rows, whole, whole, whole, sums, whole), generate

    def sum_listed(  # type: ignore[no-untyped-def]
        typing_context, factors, first, rows, source, pitch, count, sums, target, numbers, start
    ):
        """As ``sum_rows``, with row ``numbers[start + q]`` (int64) instead of q."""
        listing = types.void(factors, whole, rows, whole, whole, whole, sums, whole, numbers, whole)
        return listing, generate

    return intrinsic(sum_listed if listed else sum_rows)


sum_rows = _row_summer(ROW, listed=False)
sum_fields = _row_summer(FIELDS, listed=False)
sum_listed_fields = _row_summer(FIELDS, listed=True)
