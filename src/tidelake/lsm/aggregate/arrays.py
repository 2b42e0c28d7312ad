"""Small vectorised steps on Arrow arrays and groups of rows that several functions take.

Nothing here loops over rows. Arguments may be slices; results are arrays of their own with offset zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "Bools",
    "Index",
    "Numbers",
    "bitmap",
    "choose",
    "filled_groups",
    "from_numbers",
    "integers",
    "join_keys",
    "nulls_like",
    "ordered",
    "total_ranks",
    "unordered",
    "valid",
]

Index = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Numbers = np.ndarray[Any, Any]


def valid(array: pa.Array) -> Bools:
    """Which values are not null."""
    found: Bools = array.is_valid().to_numpy(zero_copy_only=False)
    return found


def nulls_like(array: pa.Array) -> pa.Array:
    """As many nulls of the same type."""
    return pa.nulls(len(array), array.type)


def bitmap(mask: Bools) -> pa.Buffer | None:
    """The mask as a validity buffer; None when everything is valid."""
    return None if mask.all() else pa.py_buffer(np.packbits(mask, bitorder="little"))


def choose(mask: Bools, yes: pa.Array, no: pa.Array) -> pa.Array:
    """Row by row `yes` where the mask holds, else `no`; of any type."""
    if mask.all():
        return yes
    if not mask.any():
        return no
    if pa.types.is_nested(yes.type):
        rows = np.arange(len(mask))
        return pa.concat_arrays([yes, no]).take(pa.array(np.where(mask, rows, rows + len(mask))))
    return pc.if_else(pa.array(mask), yes, no)


def filled_groups(starts: Index) -> tuple[Index, Bools]:
    """Where the groups that have rows begin, and which groups these are."""
    filled = starts[1:] > starts[:-1]
    return starts[:-1][filled], filled


def integers(array: pa.Array) -> Numbers:
    """The numbers behind a fixed-width type, zero for nulls: integers, dates, times, moments, decimals of 18 digits."""
    kind = array.type
    if pa.types.is_decimal128(kind):
        buffer = array.buffers()[1] or b""
        words: Numbers = np.frombuffer(buffer, np.int64)[2 * array.offset : 2 * (array.offset + len(array)) : 2]
        return np.where(valid(array), words, 0) if array.null_count else words
    if not pa.types.is_integer(kind):
        array = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    numbers: Numbers = (array.fill_null(0) if array.null_count else array).to_numpy(zero_copy_only=False)
    return numbers


def from_numbers(numbers: Numbers, mask: Bools, kind: pa.DataType) -> pa.Array:
    """An array of a fixed-width type from what lies behind it; null where the mask is false."""
    if pa.types.is_decimal128(kind):
        words = np.empty((len(numbers), 2), np.int64)
        words[:, 0], words[:, 1] = numbers, numbers.astype(np.int64) >> 63
        numbers = words
    else:
        numbers = numbers.astype(np.dtype(f"{'f' if pa.types.is_floating(kind) else 'i'}{kind.bit_width // 8}"))
    return pa.Array.from_buffers(kind, len(mask), [bitmap(mask), pa.py_buffer(np.ascontiguousarray(numbers))])


def ordered(array: pa.Array) -> Numbers:
    """Floating point numbers as integers in the total order -infinity … -0.0 < 0.0 … infinity < NaN; nulls are 0."""
    floats: Numbers = (array.fill_null(0) if array.null_count else array).to_numpy(zero_copy_only=False)
    whole = np.dtype(f"i{array.type.bit_width // 8}")
    bits = np.where(np.isnan(floats), np.array(np.nan, floats.dtype), floats).view(whole)
    return _fold_sign(bits)


def unordered(numbers: Numbers) -> Numbers:
    """The floating point numbers behind `ordered`."""
    return _fold_sign(numbers).view(np.dtype(f"f{numbers.dtype.itemsize}"))


def _fold_sign(bits: Numbers) -> Numbers:
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def total_ranks(array: pa.Array) -> Index:
    """The rank of each value of a scalar type, equal values alike; nulls come first, floats in their total order."""
    kind = array.type
    if pa.types.is_floating(kind):
        array = pa.array(ordered(array), mask=~valid(array))
    elif pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    ranks = pc.rank(array, sort_keys="ascending", tiebreaker="dense").to_numpy()
    found: Index = np.where(valid(array), ranks, 0).astype(np.int64)
    return found


def join_keys(left: Index, right: Index) -> Index:
    """Pairs of small numbers, none negative, as one number each."""
    return left * (int(right.max()) + 1 if len(right) else 1) + right
