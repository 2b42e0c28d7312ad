"""The common type of two values, and the conversion of Arrow columns to it.

The rules are those of Spark in ANSI mode that surprise no one: two integers use the wider type, an integer or a decimal
with floating point uses DOUBLE, an integer with a decimal uses a decimal that holds both, a DATE with a TIMESTAMP
becomes its midnight, and a TIMESTAMP with one that has a time zone is read as UTC. Text has a common type only with
text; a comparison first reads a text as the other operand's type (`type_of_text_beside`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.expr import decimals

INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_UNITS: Final = ("s", "ms", "us", "ns")


def is_text(dtype: pa.DataType) -> bool:
    """Whether it is STRING in one of its Arrow forms."""
    return bool(pa.types.is_string(dtype) or pa.types.is_large_string(dtype))


def is_bytes(dtype: pa.DataType) -> bool:
    """Whether it is BYTES in one of its Arrow forms."""
    return bool(pa.types.is_binary(dtype) or pa.types.is_large_binary(dtype))


def is_number(dtype: pa.DataType) -> bool:
    """Whether it is an integer, floating point or decimal type."""
    return dtype in INTEGERS or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype)


def is_moment(dtype: pa.DataType) -> bool:
    """Whether it is DATE or one of the two TIMESTAMP types."""
    return bool(pa.types.is_date32(dtype) or pa.types.is_timestamp(dtype))


def to_plain_array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in the form that the kernels here take: one chunk, no dictionary, no view."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_string_view(values.type):
        return values.cast(pa.large_string())
    if pa.types.is_binary_view(values.type) or pa.types.is_fixed_size_binary(values.type):
        return values.cast(pa.large_binary())
    return values


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type that both values convert to, or None. Decimals may need up to 76 digits."""
    if left == right or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    if left in INTEGERS and right in INTEGERS:
        return max(left, right, key=INTEGERS.index)
    if is_number(left) and is_number(right):
        if pa.types.is_floating(left) or pa.types.is_floating(right):
            return pa.float64()
        return _common_decimal(decimals.decimal_type(left), decimals.decimal_type(right))
    if is_moment(left) and is_moment(right):
        return _common_moment(left, right)
    if is_text(left) and is_text(right):
        return pa.large_string()
    if is_bytes(left) and is_bytes(right):
        return pa.large_binary()
    return None


def type_of_text_beside(other: pa.DataType) -> pa.DataType:
    """The type a text is read as when it is compared with a value of another type."""
    if other in INTEGERS:
        return pa.int64()
    if pa.types.is_decimal(other):
        return pa.decimal256(76, decimals.DIGITS_MAX)
    return pa.float64() if pa.types.is_floating(other) else other


def to_common_type(values: Any, dtype: pa.DataType) -> Any:
    """An array or a scalar in the common type; exact, except that large integers round to the nearest DOUBLE."""
    if values.type == dtype:
        return values
    if pa.types.is_decimal(dtype) and values.type in INTEGERS:
        # Arrow refuses a decimal that is too small for the largest integer of the type, even if no such value is there.
        values = values.cast(decimals.decimal_type(values.type))
    return pc.cast(values, dtype, safe=not pa.types.is_floating(dtype))


def keeps_order(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether converting to the common type keeps the order of values, so that converted bounds are still bounds."""
    kinds = (is_number, is_moment, is_text, is_bytes)
    return left == right or any(kind(left) and kind(right) for kind in kinds)


def has_nan(dtype: pa.DataType) -> bool:
    """Whether NaN is a value of the type."""
    return bool(pa.types.is_floating(dtype))


def _equal(left: Any, right: Any) -> Any:
    found = pc.equal(left, right)
    if not has_nan(left.type) or _is_number(left) or _is_number(right):
        return found
    return pc.or_(found, pc.and_(pc.is_nan(left), pc.is_nan(right)))


def _less(left: Any, right: Any) -> Any:
    found = pc.less(left, right)
    if not has_nan(left.type) or _is_number(right):
        return found
    return pc.or_(found, pc.and_not(pc.is_nan(right), pc.is_nan(left)))


def _less_equal(left: Any, right: Any) -> Any:
    # Against a constant number Arrow is right and fast. Otherwise NaN matters: use NOT (right < left), which knows it.
    if not has_nan(left.type) or _is_number(right):
        return pc.less_equal(left, right)
    return pc.invert(_less(right, left))


def _is_number(value: Any) -> bool:
    """Whether it is a constant other than NaN, for which Arrow's `=` and `<` already give the answer of SQL."""
    return isinstance(value, pa.Scalar) and value.is_valid and not math.isnan(value.as_py())


def _same(left: Any, right: Any) -> Any:
    both = pc.and_(pc.is_valid(left), pc.is_valid(right))
    neither = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.or_(pc.and_(both, pc.fill_null(_equal(left, right), False)), neither)


COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": _equal,
    "!=": lambda left, right: pc.invert(_equal(left, right)),
    "<": _less,
    "<=": _less_equal,
    ">": lambda left, right: pc.invert(_less_equal(left, right)),
    ">=": lambda left, right: pc.invert(_less(left, right)),
    "<=>": _same,
}
"""Comparisons of values of one type, null where one of them is. NaN equals itself and is greater than every number, as
Spark and Paimon have it; the two zeros are equal."""


def _common_decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    scale = max(left.scale, right.scale)
    precision = max(left.precision - left.scale, right.precision - right.scale) + scale
    return pa.decimal128(precision, scale) if precision <= decimals.DIGITS_MAX else pa.decimal256(precision, scale)


def _common_moment(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    stamps = [each for each in (left, right) if pa.types.is_timestamp(each)]
    unit = max((each.unit for each in stamps), key=_UNITS.index)
    return pa.timestamp(unit, tz="UTC" if any(each.tz is not None for each in stamps) else None)
