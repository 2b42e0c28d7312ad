"""Exact decimal arithmetic on Arrow columns, with Spark's result types and rounding (half up).

Arrow has other result types and raises where Spark gives up digits of the fraction. So decimals are computed here as
their unscaled integers: 64-bit if all digits fit, else Python's unbounded integers in a numpy array of objects. Nothing
passes through floating point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

DIGITS_MAX: Final = 38
_DIGITS_INT64: Final = 18
_SCALE_MIN: Final = 6
_INTEGER_DIGITS: Final = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}


@dataclass(frozen=True, slots=True, eq=False)
class Unscaled:
    """A column of decimals as unscaled integers; where `valid` is false the number is 0."""

    numbers: np.ndarray[Any, Any]
    valid: np.ndarray[Any, Any]
    precision: int
    scale: int

    def wide(self, digits: int) -> np.ndarray[Any, Any]:
        """The numbers in a representation that holds results of this many digits."""
        return self.numbers if digits <= _DIGITS_INT64 else self.numbers.astype(object)


def decimal_type(dtype: pa.DataType) -> pa.DataType:
    """The decimal type that holds every value of an integer or decimal type."""
    digits = _INTEGER_DIGITS.get(dtype)
    return dtype if digits is None else pa.decimal128(digits, 0)


def limit_precision(precision: int, scale: int) -> tuple[int, int]:
    """Precision and scale cut to 38 digits as Spark does it: the scale shrinks, but not below 6."""
    if precision <= DIGITS_MAX:
        return precision, scale
    return DIGITS_MAX, max(DIGITS_MAX - (precision - scale), min(scale, _SCALE_MIN))


def arithmetic(op: str, left: pa.Array, right: pa.Array) -> pa.Array:
    """The result of left op right for decimals or integers, with op one of ``+ - * / % div``.

    Raises:
        OverflowError: a result has too many digits.
        ZeroDivisionError: a divisor is zero.
    """
    a, b = to_unscaled(left), to_unscaled(right)
    valid = a.valid & b.valid
    if op in ("/", "%", "div"):
        if np.any(valid & (b.numbers == 0)):
            raise ZeroDivisionError
        b = Unscaled(np.where(b.numbers == 0, 1, b.numbers), b.valid, b.precision, b.scale)
    scale = max(a.scale, b.scale)
    whole = max(a.precision - a.scale, b.precision - b.scale)
    match op:
        case "*":
            product = a.wide(a.precision + b.precision) * b.wide(a.precision + b.precision)
            exact = Unscaled(product, valid, a.precision + b.precision + 1, a.scale + b.scale)
            return to_array(rescale(exact, *limit_precision(exact.precision, exact.scale)))
        case "/":
            return to_array(_quotient(a, b, valid))
    digits = whole + scale + 1
    x, y = (each.wide(digits) * _power(scale - each.scale) for each in (a, b))
    match op:
        case "+" | "-":
            exact = Unscaled(x + y if op == "+" else x - y, valid, digits, scale)
        case "%":
            narrow = min(a.precision - a.scale, b.precision - b.scale) + scale
            exact = Unscaled(np.sign(x) * (np.abs(x) % np.abs(y)), valid, max(narrow, 1), scale)
        case _:
            return _whole(np.sign(x) * np.sign(y) * (np.abs(x) // np.abs(y)), valid)
    return to_array(rescale(exact, *limit_precision(exact.precision, exact.scale)))


def round_to(array: pa.Array, precision: int, scale: int) -> pa.Array:
    """Decimals or integers as DECIMAL(precision, scale), rounded half up.

    Raises:
        OverflowError: a value has too many digits.
    """
    return to_array(rescale(to_unscaled(array), precision, scale))


def round_whole(array: pa.Array, mode: str) -> pa.Array:
    """Decimals rounded down (`floor`), up (`ceil`) or toward zero (`trunc`) to a decimal without a fraction."""
    source = to_unscaled(array)
    unit = _power(source.scale)
    numbers = source.wide(source.precision + 1)
    match mode:
        case "floor":
            numbers = numbers // unit
        case "ceil":
            numbers = -(-numbers // unit)
        case _:
            numbers = np.sign(numbers) * (np.abs(numbers) // unit)
    # Rounding away from zero may carry into one more digit.
    digits = min(max(source.precision - source.scale, 0) + 1, DIGITS_MAX)
    return to_array(Unscaled(numbers, source.valid, digits, 0))


def to_unscaled(array: pa.Array) -> Unscaled:
    """The unscaled integers of decimals (or integers, which have scale 0)."""
    valid = np.asarray(array.is_valid())
    digits = _INTEGER_DIGITS.get(array.type)
    if digits is not None:
        numbers = np.asarray(pc.fill_null(array.cast(pa.int64()), 0))
        return Unscaled(numbers, valid, digits, 0)
    dtype = array.type
    if not pa.types.is_decimal128(dtype):
        array = array.cast(pa.decimal128(dtype.precision, dtype.scale))
    words = np.frombuffer(array.buffers()[1] or b"", np.int64)[2 * array.offset :][: 2 * len(array)].reshape(-1, 2)
    words = np.where(valid[:, None], words, 0)
    if dtype.precision <= _DIGITS_INT64:
        return Unscaled(words[:, 0], valid, dtype.precision, dtype.scale)
    low, high = words[:, 0].view(np.uint64).astype(object), words[:, 1].astype(object)
    return Unscaled(high * 2**64 + low, valid, dtype.precision, dtype.scale)


def rescale(source: Unscaled, precision: int, scale: int) -> Unscaled:
    """The same decimals with another scale, rounded half up; `to_array` checks the precision."""
    shift = scale - source.scale
    numbers = source.wide(source.precision + max(shift, 0))
    numbers = numbers * _power(shift) if shift >= 0 else _half_up(numbers, _power(-shift))
    return Unscaled(numbers, source.valid, precision, scale)


def to_array(source: Unscaled) -> pa.Array:
    """The decimals as an Arrow array.

    Raises:
        OverflowError: a value has too many digits.
    """
    numbers, bound = np.where(source.valid, source.numbers, 0), _power(source.precision)
    if (numbers.dtype == object or bound < 2**63) and np.any(np.abs(numbers) >= bound):
        raise OverflowError
    words = np.empty((len(numbers), 2), np.int64)
    if numbers.dtype == object:
        words[:, 0] = (numbers & (2**64 - 1)).astype(np.uint64).view(np.int64)
        words[:, 1] = (numbers >> 64).astype(np.int64)
    else:
        words[:, 0], words[:, 1] = numbers, numbers >> 63
    validity = pa.array(source.valid, pa.bool_()).buffers()[1]
    dtype = pa.decimal128(source.precision, source.scale)
    return pa.Array.from_buffers(dtype, len(numbers), [validity, pa.py_buffer(words)])


def _quotient(a: Unscaled, b: Unscaled, valid: np.ndarray[Any, Any]) -> Unscaled:
    scale = max(_SCALE_MIN, a.scale + b.precision + 1)
    precision, scale = limit_precision(a.precision - a.scale + b.scale + scale, scale)
    shift = scale + b.scale - a.scale  # never negative: the limited scale keeps all digits of the dividend
    digits = max(a.precision + shift, b.precision)
    numerator, divisor = a.wide(digits) * _power(shift), b.wide(digits)
    numbers = np.sign(divisor) * _half_up(numerator, np.abs(divisor))
    return Unscaled(numbers, valid, precision, scale)


def _half_up(numbers: np.ndarray[Any, Any], unit: Any) -> np.ndarray[Any, Any]:
    """The quotient numbers / unit (which is positive), rounded to the nearest whole number, ties away from zero."""
    result: np.ndarray[Any, Any] = np.sign(numbers) * ((2 * np.abs(numbers) + unit) // (2 * unit))
    return result


def _whole(numbers: np.ndarray[Any, Any], valid: np.ndarray[Any, Any]) -> pa.Array:
    numbers = np.where(valid, numbers, 0)
    if np.any((numbers < -(2**63)) | (numbers >= 2**63)):
        raise OverflowError
    return pa.array(numbers.astype(np.int64), pa.int64(), mask=~valid)


def _power(exponent: int) -> int:
    return int(10**exponent)
