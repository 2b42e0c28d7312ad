"""`sum` and `product` of numbers.

Integer overflow is an error, never a wrapped number. Floats are computed in their own width, one after the other, so a
result has the bits of a left fold. Decimals that do not fit their precision become null. (Paimon does not check sums of
at most 18 digits until it writes them, and then stores a null or a wrong number.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError
from tidelake.expr.decimals import Unscaled, to_array, to_unscaled
from tidelake.lsm.aggregate.arrays import (
    Bools,
    Index,
    Numbers,
    filled_groups,
    from_numbers,
    integers,
    valid,
)
from tidelake.lsm.aggregate.base import Function
from tidelake.spec.types.data_types import DecimalType

__all__ = ["Product", "Sum"]

_DIGITS_INT64: Final = 18
_LONG_GROUP: Final = 64
_FLOAT_SAFE: Final = 2.0**52
"""A product whose magnitude, computed in floating point, is below this has at most 53 bits, so it did not overflow."""

_Arithmetic = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class _Arithmetical(Function):
    """What sums and products share: if one side is null, the result is the other side."""

    def _compute_checked(self, operation: _Arithmetic, sign: str, left: pa.Array, right: pa.Array) -> pa.Array:
        try:
            return operation(left, right)
        except pa.ArrowInvalid as cause:
            raise self._overflow(sign, left, right, cause) from cause

    def _overflow(self, sign: str, left: pa.Array, right: pa.Array, cause: Exception) -> InvalidInputError:
        a, b = (np.asarray(each.to_numpy(zero_copy_only=False)).astype(object) for each in (left, right))
        if sign == "/" and np.any(b == 0):
            return self.value_error("product cannot retract zero", hint="retract only values that were added")
        limits = np.iinfo(left.type.to_pandas_dtype())
        exact = a + b if sign == "+" else a - b if sign == "-" else a * b if sign == "*" else -a
        row = int(np.argmax((exact < int(limits.min)) | (exact > int(limits.max))))
        return self.value_error(
            "aggregate overflows the type of its column",
            code="aggregate-overflow",
            left=a[row],
            operation=sign,
            right=b[row],
            cause=type(cause).__name__,
            hint="change the column to a wider type",
        )

    def _float_fold(self, values: pa.Array, starts: Index, operation: np.ufunc) -> pa.Array:
        """Return the left fold of every group, step by step over all groups at once; long groups one by one."""
        mask = valid(values)
        numbers: Numbers = values.to_numpy(zero_copy_only=False)[mask]
        starts = np.concatenate([[0], np.cumsum(mask)])[starts]
        begin, filled = filled_groups(starts)
        length = (starts[1:] - starts[:-1])[filled]
        state = numbers[begin]
        with np.errstate(all="ignore"):
            for step in range(1, min(int(length.max(initial=0)), _LONG_GROUP)):
                rows = np.flatnonzero(length > step)
                state[rows] = operation(state[rows], numbers[begin[rows] + step])
            for row in np.flatnonzero(length > _LONG_GROUP):
                rest = numbers[begin[row] + _LONG_GROUP : begin[row] + length[row]]
                state[row] = operation.accumulate(np.concatenate([state[row : row + 1], rest]))[-1]
        result = np.zeros(len(filled), numbers.dtype)
        result[filled] = state
        return from_numbers(result, filled, values.type)


@dataclass(frozen=True, slots=True)
class Sum(_Arithmetical):
    """Adds; a retract row subtracts, also if nothing was added yet."""

    def merge(self, older: pa.Array, newer: pa.Array) -> pa.Array:
        """See `Aggregate.merge`."""
        if isinstance(self.dtype, DecimalType):
            return self._decimals(older, newer, np.add, pc.add)
        if pa.types.is_floating(older.type):
            return pc.coalesce(pc.add(older, newer), older, newer)
        total = self._compute_checked(pc.add_checked, "+", older.fill_null(0), newer.fill_null(0))
        return _null_where(older, newer, total)

    def retract(self, state: pa.Array, value: pa.Array) -> pa.Array:
        """See `Aggregate.retract`."""
        if isinstance(self.dtype, DecimalType):
            return self._decimals(state, value, np.subtract, pc.subtract)
        if pa.types.is_floating(state.type):
            return pc.coalesce(pc.subtract(state, value), state, pc.negate(value))
        total = self._compute_checked(pc.subtract_checked, "-", state.fill_null(0), value.fill_null(0))
        return _null_where(state, value, total)

    def _decimals(self, left: pa.Array, right: pa.Array, narrow: _Arithmetic, wide: _Arithmetic) -> pa.Array:
        kind = left.type
        both = valid(left), valid(right)
        if kind.precision <= _DIGITS_INT64:
            total = narrow(integers(left), integers(right))
            fits = (np.abs(total) < 10**kind.precision) & (both[0] | both[1])
            return from_numbers(np.where(fits, total, 0), fits, kind)
        room = pa.decimal256(kind.precision, kind.scale)
        zero = pa.scalar(0, pa.decimal256(1, 0)).cast(room)
        total = wide(left.cast(room).fill_null(zero), right.cast(room).fill_null(zero))
        bound = pa.scalar(Decimal(10) ** (kind.precision - kind.scale), pa.decimal256(40, 0)).cast(total.type)
        fits = pc.less(pc.abs(total), bound)
        fits = fits.to_numpy(zero_copy_only=False) & (both[0] | both[1])
        return pc.if_else(pa.array(fits), total, pa.scalar(None, total.type)).cast(kind)

    def reduce(self, values: pa.Array, starts: Index) -> pa.Array | None:
        """See `Aggregate.reduce`."""
        if pa.types.is_floating(values.type):
            return self._float_fold(values, starts, np.add)
        decimal = pa.types.is_decimal128(values.type)
        if decimal and values.type.precision > _DIGITS_INT64:
            return None
        begin, filled = filled_groups(starts)
        numbers = integers(values)
        longest = int((starts[1:] - starts[:-1]).max(initial=0))
        size = max(abs(int(numbers.max(initial=0))), abs(int(numbers.min(initial=0))))
        limit = 10**values.type.precision - 1 if decimal else np.iinfo(numbers.dtype).max
        if size * longest > limit:
            return None  # an intermediate sum might overflow, which only the fold detects
        return _reduce_groups(numbers, valid(values), begin, filled, np.add, values.type)


@dataclass(frozen=True, slots=True)
class Product(_Arithmetical):
    """Multiplies; a retract row divides."""

    def merge(self, older: pa.Array, newer: pa.Array) -> pa.Array:
        """See `Aggregate.merge`."""
        if isinstance(self.dtype, DecimalType):
            return self._on_both(older, newer, pc.coalesce(older, newer), self._decimal_product)
        if pa.types.is_floating(older.type):
            return pc.coalesce(pc.multiply(older, newer), older, newer)
        total = self._compute_checked(pc.multiply_checked, "*", older.fill_null(1), newer.fill_null(1))
        return _null_where(older, newer, total)

    def retract(self, state: pa.Array, value: pa.Array) -> pa.Array:
        """See `Aggregate.retract`."""
        if isinstance(self.dtype, DecimalType):
            return self._on_both(state, value, state, self._decimal_quotient)
        if pa.types.is_floating(state.type):
            with np.errstate(all="ignore"):
                numbers = np.divide(*(each.to_numpy(zero_copy_only=False) for each in (state, value)))
            quotient = from_numbers(numbers, valid(state) & valid(value), state.type)
            return pc.coalesce(quotient, state)
        divisor = pc.if_else(state.is_valid(), value, pa.scalar(1, value.type)).fill_null(1)
        quotient = self._compute_checked(pc.divide_checked, "/", state.fill_null(0), divisor)
        return _null_where(state, state, quotient)

    def _on_both(self, left: pa.Array, right: pa.Array, alone: pa.Array, operation: _Arithmetic) -> pa.Array:
        """Return the result of the operation where both sides have a value, else `alone`."""
        both = valid(left) & valid(right)
        rows = pa.array(np.flatnonzero(both))
        done = operation(left.take(rows), right.take(rows))
        place = np.arange(len(left))
        place[both] = len(left) + np.arange(len(rows))
        return pa.concat_arrays([alone, done]).take(pa.array(place))

    def _decimal_product(self, left: pa.Array, right: pa.Array) -> pa.Array:
        a, b = to_unscaled(left), to_unscaled(right)
        return _round_half_up(a.numbers.astype(object) * b.numbers.astype(object), 10**a.scale, left.type)

    def _decimal_quotient(self, left: pa.Array, right: pa.Array) -> pa.Array:
        a, b = (to_unscaled(each).numbers.astype(object) for each in (left, right))
        if np.any(b == 0):
            raise self.value_error("product cannot retract zero", hint="retract only values that were added")
        a, b = np.where(b < 0, -a, a), np.abs(b)
        # As in Paimon, a quotient without a finite decimal expansion is an error, not a rounded number.
        rest = b // np.gcd(np.abs(a), b)
        for prime, most in ((2, 128), (5, 56)):
            rest = rest // np.gcd(rest, prime**most)
        if np.any(rest != 1):
            row = int(np.argmax(rest != 1))
            raise self.value_error(
                "quotient of decimals has no finite expansion",
                code="aggregate-overflow",
                left=left[row].as_py(),
                right=right[row].as_py(),
                hint="retract only values that were added, or use a floating point column",
            )
        return _round_half_up(a * 10**left.type.scale, b, left.type)

    def reduce(self, values: pa.Array, starts: Index) -> pa.Array | None:
        """See `Aggregate.reduce`."""
        if pa.types.is_floating(values.type):
            return self._float_fold(values, starts, np.multiply)
        if pa.types.is_decimal(values.type):
            return None
        begin, filled = filled_groups(starts)
        mask = valid(values)
        numbers = np.where(mask, integers(values).astype(np.int64), 1)
        if len(begin):
            # Replace zeros by ones: a zero would hide that the product overflowed before it.
            size = np.maximum(np.abs(numbers.astype(np.float64)), 1.0)
            with np.errstate(over="ignore"):
                largest = float(np.multiply.reduceat(size, begin).max())
            if largest > min(_FLOAT_SAFE, float(np.iinfo(values.type.to_pandas_dtype()).max)):
                return None
        return _reduce_groups(numbers, mask, begin, filled, np.multiply, values.type)


def _null_where(left: pa.Array, right: pa.Array, total: pa.Array) -> pa.Array:
    """Return the total, null where both sides are null."""
    if not left.null_count or not right.null_count:
        return total
    return pc.if_else(pc.or_(left.is_valid(), right.is_valid()), total, pa.scalar(None, total.type))


def _round_half_up(numerator: Numbers, denominator: Any, kind: pa.DataType) -> pa.Array:
    """Return quotients (denominators positive) as decimals, rounded half up; null where they do not fit."""
    numbers = np.sign(numerator) * ((2 * np.abs(numerator) + denominator) // (2 * denominator))
    fits: Bools = (np.abs(numbers) < 10**kind.precision).astype(bool)
    numbers = np.where(fits, numbers, 0)
    if kind.precision <= _DIGITS_INT64:
        numbers = numbers.astype(np.int64)
    return to_array(Unscaled(numbers, fits, kind.precision, kind.scale))


def _reduce_groups(
    numbers: Numbers, mask: Bools, begin: Index, filled: Bools, operation: np.ufunc, kind: pa.DataType
) -> pa.Array:
    """Apply the operation to each group; null for a group without a value."""
    result, known = np.zeros(len(filled), np.int64), np.zeros(len(filled), bool)
    if len(begin):
        result[filled] = operation.reduceat(numbers, begin, dtype=np.int64)
        known[filled] = np.logical_or.reduceat(mask, begin)
    return from_numbers(result, known, kind)
