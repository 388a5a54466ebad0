"""Many paths side by side in one array, for vector instructions.

The fast flow works on ``LANES`` points at a time, held as rows of one flat float32 array: quantity
q of lane i is ``work[q * LANES + i]``. With one array and constant offsets the compiler sees that
rows never overlap and turns every loop over lanes into vector instructions; ``read`` and ``write``
leave out the check for negative indices, which would hide that from it.

The one thing it cannot turn is the lookup of each lane's affine map, so that is spelled out here:
eight rows of eight numbers are read whole and transposed in registers, several times faster than
the processors' own gather instructions.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

LANES = 64
ROW = 8


def _entry(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Pointer to a quantity of a lane."""
    work = context.make_array(signature.args[0])(context, builder, arguments[0])
    row = builder.mul(arguments[1], ir.Constant(ir.IntType(64), LANES))
    return builder.gep(work.data, [builder.add(row, arguments[2])], inbounds=True)


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
            return context.make_array(signature.args[position])(
                context, builder, arguments[position]
            ).data

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
