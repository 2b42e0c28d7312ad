"""Small vectorised steps on Arrow arrays and groups of rows that several aggregate functions share.

Nothing here loops over rows. Arguments may be slices; results have offset zero.
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
    "floats_to_integers",
    "from_numbers",
    "integers",
    "integers_to_floats",
    "join_keys",
    "nulls_like",
    "total_ranks",
    "valid",
]

Index = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Numbers = np.ndarray[Any, Any]


def valid(array: pa.Array) -> Bools:
    """Return a mask of the values that are not null."""
    found: Bools = array.is_valid().to_numpy(zero_copy_only=False)
    return found


def nulls_like(array: pa.Array) -> pa.Array:
    """Return as many nulls of the same type."""
    return pa.nulls(len(array), array.type)


def bitmap(mask: Bools) -> pa.Buffer | None:
    """Return the mask as a validity buffer; None if everything is valid."""
    return None if mask.all() else pa.py_buffer(np.packbits(mask, bitorder="little"))


def choose(mask: Bools, yes: pa.Array, no: pa.Array) -> pa.Array:
    """Return `yes` where the mask is true, else `no`; `pc.if_else` for nested types too."""
    if mask.all():
        return yes
    if not mask.any():
        return no
    if pa.types.is_nested(yes.type):
        rows = np.arange(len(mask))
        return pa.concat_arrays([yes, no]).take(pa.array(np.where(mask, rows, rows + len(mask))))
    return pc.if_else(pa.array(mask), yes, no)


def filled_groups(starts: Index) -> tuple[Index, Bools]:
    """Return where the non-empty groups begin, and a mask of these groups."""
    filled = starts[1:] > starts[:-1]
    return starts[:-1][filled], filled


def integers(array: pa.Array) -> Numbers:
    """Return the integers behind a fixed-width type (decimals of 18 digits, dates, timestamps); zero for nulls."""
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
    """Return an array of a fixed-width type from its integers or floats; null where the mask is false."""
    if pa.types.is_decimal128(kind):
        words = np.empty((len(numbers), 2), np.int64)
        words[:, 0], words[:, 1] = numbers, numbers.astype(np.int64) >> 63
        numbers = words
    else:
        numbers = numbers.astype(np.dtype(f"{'f' if pa.types.is_floating(kind) else 'i'}{kind.bit_width // 8}"))
    return pa.Array.from_buffers(kind, len(mask), [bitmap(mask), pa.py_buffer(np.ascontiguousarray(numbers))])


def floats_to_integers(array: pa.Array) -> Numbers:
    """Return floats as integers in their total order, -infinity … -0.0 < 0.0 … infinity < NaN; nulls are 0."""
    floats: Numbers = (array.fill_null(0) if array.null_count else array).to_numpy(zero_copy_only=False)
    whole = np.dtype(f"i{array.type.bit_width // 8}")
    bits = np.where(np.isnan(floats), np.array(np.nan, floats.dtype), floats).view(whole)
    return _fold_sign(bits)


def integers_to_floats(numbers: Numbers) -> Numbers:
    """Return the floats behind integers of `floats_to_integers`."""
    return _fold_sign(numbers).view(np.dtype(f"f{numbers.dtype.itemsize}"))


def _fold_sign(bits: Numbers) -> Numbers:
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def total_ranks(array: pa.Array) -> Index:
    """Return the dense rank of each value of a scalar type; nulls come first, floats in their total order."""
    kind = array.type
    if pa.types.is_floating(kind):
        array = pa.array(floats_to_integers(array), mask=~valid(array))
    elif pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    ranks = pc.rank(array, sort_keys="ascending", tiebreaker="dense").to_numpy()
    found: Index = np.where(valid(array), ranks, 0).astype(np.int64)
    return found


def join_keys(left: Index, right: Index) -> Index:
    """Return one number for each pair of small non-negative numbers."""
    return left * (int(right.max()) + 1 if len(right) else 1) + right
