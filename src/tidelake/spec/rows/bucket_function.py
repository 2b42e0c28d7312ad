"""The bucket of a row: the three bucket functions of the format, for whole columns at a time.

Every reader and writer of a table must compute the same bucket for a row. Invariant: the bucket depends only on the
values and declared types of the bucket key, never on how the rows were batched.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.spec.rows.binary_hash import hash_rows
from tidelake.spec.rows.binary_row_encode import canonical, octets, validity
from tidelake.spec.types.data_types import DataType, DecimalType, Root

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["BucketFunction", "PartitionBucket", "assign_buckets", "bucket_default", "bucket_hive", "bucket_mod"]

PartitionBucket = tuple[bytes, int]
"""A partition, as a binary row, and a bucket of it."""

_Ints = npt.NDArray[np.int32]
_Lane = npt.NDArray[np.uint32]

_COUNT_MAX: Final = 2**31 - 1
_CHUNK_ROWS: Final = 1 << 16
_INTS: Final = {
    Root.BOOLEAN: np.uint8,
    Root.TINYINT: np.int8,
    Root.SMALLINT: np.int16,
    Root.INT: np.int32,
    Root.DATE: np.int32,
    Root.TIME: np.int32,
}
_BYTES: Final = frozenset({Root.CHAR, Root.VARCHAR, Root.BINARY, Root.VARBINARY})
_FLOATS: Final = frozenset({Root.FLOAT, Root.DOUBLE})


class BucketFunction(Enum):
    """How a bucket is computed. The value is that of the option `bucket-function.type`."""

    DEFAULT = "default"
    MOD = "mod"
    HIVE = "hive"


def assign_buckets(
    columns: Sequence[pa.Array | pa.ChunkedArray],
    types: Sequence[DataType],
    *,
    function: BucketFunction,
    count: int,
    executor: Executor | None = None,
) -> _Ints:
    """The bucket of every row, from 0 to `count - 1`.

    Args:
        columns: The columns of the bucket key, in the order of the key.
        types: Their types.
        function: The bucket function of the table.
        count: The number of buckets of the table.
        executor: Runs parts of the work in parallel; None runs them in this thread.

    Raises:
        InvalidInputError: The count is not positive, or the bucket key does not suit the function.
    """
    _check_count(count)
    if not columns:
        raise InvalidInputError("bucket key has no columns", hint="set the option `bucket-key`")
    if len(columns) != len(types):
        raise InvalidInputError("number of columns and number of types differ", columns=len(columns), types=len(types))
    if function is BucketFunction.DEFAULT:
        return bucket_default(hash_rows(columns, types, executor=executor), count)
    if function is BucketFunction.HIVE:
        return bucket_hive(columns, types, count)
    if len(columns) != 1:
        raise InvalidInputError(
            "bucket function `mod` takes exactly one column", columns=len(columns), hint="use the default function"
        )
    return bucket_mod(columns[0], types[0], count)


def bucket_default(hashes: _Ints, count: int) -> _Ints:
    """The bucket of each hash code by the default function: the absolute value of the truncating remainder.

    Raises:
        InvalidInputError: The count is not positive.
    """
    _check_count(count)
    out = np.empty(len(hashes), np.int32)
    divisor = np.uint32(count)
    for first in range(0, len(hashes), _CHUNK_ROWS):
        # The absolute value of -2**31 only fits as an unsigned number. NumPy divides by a constant faster than it does
        # `%`.
        size = np.abs(hashes[first : first + _CHUNK_ROWS]).view(np.uint32)
        np.subtract(size, size // divisor * divisor, out=out[first : first + len(size)].view(np.uint32))
    return out


def bucket_mod(column: pa.Array | pa.ChunkedArray, dtype: DataType, count: int) -> _Ints:
    """The bucket of each value by the function `mod`: the non-negative remainder; 0 for null.

    Raises:
        InvalidInputError: The count is not positive, or the type is neither INT nor BIGINT.
    """
    _check_count(count)
    if dtype.root not in (Root.INT, Root.BIGINT):
        raise InvalidInputError(
            "bucket function `mod` takes INT or BIGINT", type=dtype, hint="use the default bucket function"
        )
    values = canonical(column, dtype).fill_null(0).to_numpy()
    buckets: _Ints = np.mod(values.astype(np.int64, copy=False), count).astype(np.int32)
    return buckets


def bucket_hive(columns: Sequence[pa.Array | pa.ChunkedArray], types: Sequence[DataType], count: int) -> _Ints:
    """The bucket of each row as Hive computes it.

    Raises:
        InvalidInputError: The count is not positive, or Hive does not hash a type.
    """
    _check_count(count)
    for dtype in types:
        if not (dtype.root in _INTS or dtype.root in _BYTES or dtype.root in _FLOATS) and dtype.root not in (
            Root.BIGINT,
            Root.DECIMAL,
        ):
            raise InvalidInputError(
                "bucket function `hive` does not take this type", type=dtype, hint="use the default bucket function"
            )
    total: _Lane = np.zeros(len(columns[0]) if columns else 0, np.uint32)
    for column, dtype in zip(columns, types, strict=True):
        array = canonical(column, dtype)
        hashes = _hive_hash(array, dtype)
        if (nulls := validity(array)) is not None:
            hashes = np.where(nulls, np.uint32(0), hashes)
        total = total * np.uint32(31) + hashes
    return ((total & np.uint32(0x7FFFFFFF)) % np.uint32(count)).astype(np.int32)


def _check_count(count: int) -> None:
    if not 1 <= count <= _COUNT_MAX:
        raise InvalidInputError("number of buckets must be positive", count=count)


# ------------------------------------------------------------------------------------------------ hive


def _hive_hash(array: pa.Array, dtype: DataType) -> _Lane:
    """The hash of each value; for nulls the result is meaningless."""
    if dtype.root in _BYTES:
        return _hash_octets(array)
    if isinstance(dtype, DecimalType):
        return _hash_decimals(array, dtype.scale)
    if dtype.root is Root.BOOLEAN:
        flags: _Lane = array.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint32)
        return flags
    if dtype.root in _FLOATS:
        values = array.fill_null(0.0).to_numpy()
        # Java's `floatToIntBits` gives all NaNs the same bits, and its caller turns -0.0 into 0.0.
        values = np.where(np.isnan(values), values.dtype.type(np.nan), np.where(values == 0, 0, values))
        return _low_xor_high(values.view(np.uint64)) if dtype.root is Root.DOUBLE else values.view(np.uint32)
    if dtype.root is Root.BIGINT:
        return _low_xor_high(array.fill_null(0).to_numpy().view(np.uint64))
    integers = pa.Array.from_buffers(_plain(array), len(array), array.buffers(), offset=array.offset)
    lane: _Lane = integers.fill_null(0).to_numpy().astype(np.int32).view(np.uint32)
    return lane


def _plain(array: pa.Array) -> pa.DataType:
    return {1: pa.int8(), 2: pa.int16(), 4: pa.int32()}[array.type.bit_width // 8]


def _low_xor_high(values: npt.NDArray[np.uint64]) -> _Lane:
    return (values ^ values >> np.uint64(32)).astype(np.uint32)


def _hash_octets(array: pa.Array) -> _Lane:
    """`31 * r + byte` over the signed bytes, as a sum of bytes times powers of 31."""
    out = np.empty(len(array), np.uint32)
    for first in range(0, len(array), _CHUNK_ROWS):
        data, offsets = octets(array.slice(first, _CHUNK_ROWS))
        lengths = np.diff(offsets)
        powers = np.full(int(lengths.max(initial=0)) + 1, 31, np.uint32)
        powers[0] = 1
        np.multiply.accumulate(powers, out=powers)
        signed = data[offsets[0] : offsets[-1]].view(np.int8).astype(np.int32).view(np.uint32)
        exponents = np.repeat(offsets[1:] - offsets[0], lengths) - 1 - np.arange(len(signed))
        sums = np.zeros(len(signed) + 1, np.uint32)
        np.cumsum(signed * powers[exponents], out=sums[1:], dtype=np.uint32)
        bounds = offsets - offsets[0]
        out[first : first + len(lengths)] = sums[bounds[1:]] - sums[bounds[:-1]]
    return out


def _hash_decimals(array: pa.Array, scale: int) -> _Lane:
    """`31 * hash of the unscaled value + scale`, after trailing zeros of the fraction are removed."""
    words = np.frombuffer(array.buffers()[1], np.uint64)[2 * array.offset : 2 * (array.offset + len(array))]
    low, high = words[::2].copy(), words[1::2].copy()
    negative = high >> np.uint64(63) != 0
    low[negative] = ~low[negative] + np.uint64(1)
    high[negative] = ~high[negative] + (low[negative] == 0).astype(np.uint64)
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    limbs = np.stack([high >> half, high & mask, low >> half, low & mask])
    zero = ~limbs.any(axis=0)
    scales = np.full(len(array), scale, np.uint32)
    active = np.flatnonzero(~zero)
    for _ in range(scale):
        quotient, rest = _divide_by_ten(limbs[:, active])
        active, quotient = active[rest == 0], quotient[:, rest == 0]
        limbs[:, active] = quotient
        scales[active] -= np.uint32(1)
    total: _Lane = np.zeros(len(array), np.uint32)
    for limb in limbs:
        total = total * np.uint32(31) + limb.astype(np.uint32)
    total = np.where(negative, np.uint32(0) - total, total)
    return np.where(zero, np.uint32(0), total * np.uint32(31) + scales)


def _divide_by_ten(limbs: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Quotient and remainder of numbers given as four 32-bit limbs, most significant first."""
    quotient = np.empty_like(limbs)
    rest = np.zeros(limbs.shape[1], np.uint64)
    for index, limb in enumerate(limbs):
        current = rest << np.uint64(32) | limb
        quotient[index] = current // np.uint64(10)
        rest = current - quotient[index] * np.uint64(10)
    return quotient, rest
