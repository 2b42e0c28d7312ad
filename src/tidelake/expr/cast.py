"""CAST on Arrow columns as Spark does it in ANSI mode, with the session time zone UTC.

A value that does not fit its new type is an error, never a null and never another value; a fraction is cut off toward
zero on the way to an integer and rounded half up on the way to a decimal. (What a *schema change* does to old values
is another matter: that follows the table format, not SQL.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError
from tidelake.expr import decimals
from tidelake.expr.coerce import INTEGERS, is_bytes, is_moment, is_number, is_text
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.data_types import LENGTH_MAX, DataType, LengthType, Root

_TRUE: Final = ("t", "true", "y", "yes", "1")
_FALSE: Final = ("f", "false", "n", "no", "0")
_UNIT_NAMES: Final = {"s": "second", "ms": "millisecond", "us": "microsecond", "ns": "nanosecond"}


def cast(values: pa.Array, target: DataType) -> pa.Array:
    """The values as another type.

    Raises:
        InvalidInputError: values of the source type cannot be cast to the target type.
        OverflowError: a value does not fit.
        pyarrow.ArrowInvalid: a text is not a value of the type, or a value does not fit.
    """
    arrow = to_arrow(target)
    converted = cast_arrow(values, arrow)
    if isinstance(target, LengthType) and is_text(arrow) and target.length < LENGTH_MAX:
        converted = pc.utf8_slice_codeunits(converted, start=0, stop=target.length)
        if target.root is Root.CHAR:
            converted = pc.utf8_rpad(converted, width=target.length)
    return converted


def cast_arrow(values: pa.Array, target: pa.DataType) -> pa.Array:
    """The values as another Arrow type; raises like `cast`."""
    source = values.type
    if source == target:
        return values
    if pa.types.is_null(source):
        return pa.nulls(len(values), target)
    for accepts, convert in _TARGETS:
        if accepts(target):
            converted = convert(values, target)
            if converted is not None:
                return converted
    raise InvalidInputError(
        "values cannot be cast between these types", source=source, target=target, hint="cast through a type in between"
    )


def _to_text(values: pa.Array, target: pa.DataType) -> pa.Array | None:
    source = values.type
    if pa.types.is_timestamp(source):
        text = values.cast(pa.timestamp(source.unit)).cast(pa.string())
        if source.unit != "s":
            text = pc.replace_substring_regex(text, r"\.?0*$", "")
        return text.cast(target)
    if pa.types.is_floating(source):
        number = np.float32 if source == pa.float32() else np.float64
        return _render_each(values, lambda each: _float_text(number(each))).cast(target)
    if pa.types.is_decimal(source):
        return _render_each(values, lambda each: f"{each:f}").cast(target)
    simple = source in INTEGERS or pa.types.is_boolean(source) or pa.types.is_date(source) or pa.types.is_time(source)
    return values.cast(target) if simple or is_text(source) or is_bytes(source) else None


def _render_each(values: pa.Array, render: Callable[[Any], str]) -> pa.Array:
    distinct = values.dictionary_encode()
    return pa.array(map(render, distinct.dictionary.to_pylist()), pa.string()).take(distinct.indices)


def _float_text(value: Any) -> str:
    """The shortest digits that read back as the same value, as the JVM writes them: 1.0, 1.0E10, NaN."""
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return str(np.format_float_positional(value, unique=True, trim="0"))
    mantissa, exponent = np.format_float_scientific(value, unique=True, trim="0").split("e")
    return f"{mantissa}E{int(exponent)}"


def _to_integer(values: pa.Array, target: pa.DataType) -> pa.Array | None:
    source = values.type
    if is_text(source):
        text = _trim(values)
        # Arrow accepts hexadecimal digits and rejects a plus sign; SQL does the opposite.
        _require_all(text, pc.match_substring_regex(text, "^[+-]?[0-9]+$"), "is not a whole number")
        return pc.replace_substring_regex(text, r"^\+", "").cast(target)
    if pa.types.is_floating(source):
        return pc.trunc(values).cast(target)
    if pa.types.is_decimal(source):
        return decimals.round_whole(values, "trunc").cast(target)
    if pa.types.is_timestamp(source):
        return pc.floor_temporal(values, unit="second").cast(pa.timestamp("s", source.tz)).cast(pa.int64()).cast(target)
    return values.cast(target) if source in INTEGERS or pa.types.is_boolean(source) else None


def _to_float(values: pa.Array, target: pa.DataType) -> pa.Array | None:
    if is_text(values.type):
        return _trim(values).cast(target)
    if is_number(values.type) or pa.types.is_boolean(values.type):
        # This cast is meant to round to the nearest floating point value, so Arrow must not refuse the loss.
        return values.cast(pa.int8() if pa.types.is_boolean(values.type) else values.type).cast(target, safe=False)
    return None


def _to_decimal(values: pa.Array, target: pa.DataType) -> pa.Array | None:
    source = values.type
    if pa.types.is_boolean(source):
        source, values = pa.int8(), values.cast(pa.int8())
    if pa.types.is_floating(source):
        source, values = pa.string(), values.cast(pa.string())
    if is_text(source):
        values = _trim(values).cast(pa.decimal256(76, decimals.DIGITS_MAX))
        if pa.types.is_decimal256(target):
            return values
        return _round_to_scale(values, target)
    if source in INTEGERS or pa.types.is_decimal(source):
        return decimals.round_to(values, target.precision, target.scale)
    return None


def _round_to_scale(values: pa.Array, target: pa.DataType) -> pa.Array:
    rounded = pc.round(values, ndigits=target.scale, round_mode="half_towards_infinity")
    return rounded.cast(target)


def _to_boolean(values: pa.Array, _: pa.DataType) -> pa.Array | None:
    if is_text(values.type):
        text = pc.ascii_lower(_trim(values)).cast(pa.string())
        true, false = (pc.is_in(text, value_set=pa.array(words)) for words in (_TRUE, _FALSE))
        _require_all(text, pc.or_(true, false), "is neither true nor false")
        return pc.if_else(pc.is_valid(text), true, pa.scalar(None, pa.bool_()))
    return pc.not_equal(values, pa.scalar(0).cast(values.type)) if is_number(values.type) else None


def _to_date(values: pa.Array, target: pa.DataType) -> pa.Array | None:
    if is_text(values.type):
        return _trim(values).cast(target)
    if pa.types.is_timestamp(values.type):
        return pc.floor_temporal(values, unit="day").cast(pa.timestamp(values.type.unit)).cast(target)
    return None


def _to_timestamp(values: pa.Array, target: pa.DataType) -> pa.Array | None:
    source = values.type
    if is_text(source):
        return _trim(values).cast(pa.timestamp(target.unit)).cast(target)
    if source in INTEGERS:
        return values.cast(pa.int64()).cast(pa.timestamp("s")).cast(target)
    if pa.types.is_timestamp(source) and source.unit != target.unit:
        values = pc.floor_temporal(values, unit=_UNIT_NAMES[target.unit])
    return values.cast(target) if is_moment(source) else None


def _to_bytes(values: pa.Array, target: pa.DataType) -> pa.Array | None:
    return values.cast(target) if is_text(values.type) or is_bytes(values.type) else None


def _require_all(text: pa.Array, good: pa.BooleanArray, what: str) -> None:
    wrong = text.filter(pc.and_(pc.invert(good), pc.is_valid(text)))
    if len(wrong):
        raise pa.ArrowInvalid(f"{wrong[0].as_py()!a} {what}")


def _trim(values: pa.Array) -> pa.Array:
    return pc.utf8_trim_whitespace(values)


_TARGETS: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any, pa.DataType], Any]], ...]] = (
    (is_text, _to_text),
    (lambda dtype: dtype in INTEGERS, _to_integer),
    (pa.types.is_floating, _to_float),
    (pa.types.is_decimal, _to_decimal),
    (pa.types.is_boolean, _to_boolean),
    (pa.types.is_date32, _to_date),
    (pa.types.is_timestamp, _to_timestamp),
    (is_bytes, _to_bytes),
)
