"""The SQL functions, each a small kernel on Arrow columns.

A function gets its arguments as arrays of equal length. Where Arrow's kernel takes a single value (the pattern of
`replace`), the argument must be a constant. Names are in lower case; `ALIASES` lists other names of the same functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError
from tidelake.expr import decimals
from tidelake.expr.cast import cast_arrow
from tidelake.expr.coerce import INTEGERS, common_type, has_nan, is_bytes, is_moment, is_number, is_text, to_common_type

HALF_UP: Final = "half_towards_infinity"
_NOT_CONSTANT: Final = object()


@dataclass(frozen=True, slots=True, eq=False)
class Arguments:
    """The arguments of one call."""

    arrays: Sequence[pa.Array]
    constants: Sequence[Any]

    def text(self, index: int) -> pa.Array:
        """An argument that must be text."""
        values = self.arrays[index]
        if pa.types.is_null(values.type):
            return values.cast(pa.string())
        return values if is_text(values.type) else _refuse(index, values.type, "text", "cast it to STRING")

    def number(self, index: int) -> pa.Array:
        """An argument that must be a number."""
        values = self.arrays[index]
        if pa.types.is_null(values.type):
            return values.cast(pa.int32())
        return values if is_number(values.type) else _refuse(index, values.type, "a number", "cast it to a number")

    def moment(self, index: int) -> pa.Array:
        """An argument that must be a date or a timestamp."""
        values = self.arrays[index]
        if pa.types.is_null(values.type):
            return values.cast(pa.timestamp("us"))
        hint = "cast it to DATE or TIMESTAMP"
        return values if is_moment(values.type) else _refuse(index, values.type, "a date or timestamp", hint)

    def constant(self, index: int, kind: type, default: Any = None) -> Any:
        """An argument that must be a constant; the default where there is none."""
        if index >= len(self.constants):
            return default
        value = self.constants[index]
        if isinstance(value, kind) and not isinstance(value, bool):
            return value
        raise InvalidInputError(
            "argument of a function is not a constant of the right type",
            argument=index + 1,
            hint=f"write a plain {'text' if kind is str else 'whole number'} there",
        )


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A kernel, and the least and most arguments it takes (None: no upper limit)."""

    least: int
    most: int | None
    run: Callable[[Arguments], pa.Array]


def constant_of(value: Any, known: bool) -> Any:
    """The entry of `Arguments.constants` for an argument: its value, or a marker if it is not a constant."""
    return value if known else _NOT_CONSTANT


def _refuse(index: int, dtype: pa.DataType, wanted: str, hint: str) -> Any:
    raise InvalidInputError(
        "argument of a function has the wrong type", argument=index + 1, type=dtype, wanted=wanted, hint=hint
    )


# ------------------------------------------------------------------------------------------------------------- text


def _text(kernel: Callable[..., Any], **options: Any) -> Callable[[Arguments], pa.Array]:
    return lambda given: kernel(given.text(0), **options)


def _trim(kernel: Callable[..., Any]) -> Callable[[Arguments], pa.Array]:
    """Trim spaces, or the characters in the second argument."""
    return lambda given: kernel(given.text(0), characters=given.constant(1, str, " "))


def _length(given: Arguments) -> pa.Array:
    values = given.arrays[0]
    if is_bytes(values.type):
        return pc.binary_length(values).cast(pa.int32())
    return pc.utf8_length(given.text(0)).cast(pa.int32())


def _substring(given: Arguments) -> pa.Array:
    """The text from a position, counted from 1, or from the end if it is negative."""
    start, length = given.constant(1, int), given.constant(2, int)
    begin = start - 1 if start > 0 else start
    if length is None:
        return pc.utf8_slice_codeunits(given.text(0), start=begin)
    if begin >= 0:
        return pc.utf8_slice_codeunits(given.text(0), start=begin, stop=begin + max(length, 0))
    # Counted from the end of each text. If the start is before the beginning, the length is used up by what is missing.
    text = given.text(0)
    reversed_ = pc.utf8_reverse(text)
    stop = max(-begin - max(length, 0), 0)
    return pc.utf8_reverse(pc.utf8_slice_codeunits(reversed_, start=stop, stop=max(-begin, stop)))


def _take_left(given: Arguments) -> pa.Array:
    return pc.utf8_slice_codeunits(given.text(0), start=0, stop=max(given.constant(1, int), 0))


def _take_right(given: Arguments) -> pa.Array:
    count = max(given.constant(1, int), 0)
    return pc.utf8_reverse(pc.utf8_slice_codeunits(pc.utf8_reverse(given.text(0)), start=0, stop=count))


def _concat(given: Arguments) -> pa.Array:
    """Concatenate texts or bytes, null if one of them is; numbers and dates become text."""
    if all(is_bytes(values.type) for values in given.arrays):
        return pc.binary_join_element_wise(*given.arrays, b"", null_handling="emit_null")
    texts = [cast_arrow(values, pa.string()) for values in given.arrays]
    return pc.binary_join_element_wise(*texts, "", null_handling="emit_null")


def _concat_ws(given: Arguments) -> pa.Array:
    texts = [cast_arrow(values, pa.string()) for values in given.arrays[1:]]
    return pc.binary_join_element_wise(*texts, given.text(0).cast(pa.string()), null_handling="skip")


def _replace(given: Arguments) -> pa.Array:
    pattern, replacement = given.constant(1, str), given.constant(2, str, "")
    # Arrow loops forever on an empty pattern; SQL leaves the text as it is.
    return pc.replace_substring(given.text(0), pattern=pattern, replacement=replacement) if pattern else given.text(0)


def _repeat(given: Arguments) -> pa.Array:
    return pc.binary_repeat(given.text(0), max(given.constant(1, int), 0))


def _pad(kernel: Callable[..., Any]) -> Callable[[Arguments], pa.Array]:
    """Pad or cut to exactly this many characters. Arrow can pad only with a single character."""

    def run(given: Arguments) -> pa.Array:
        width, padding = max(given.constant(1, int), 0), given.constant(2, str, " ")
        if len(padding) != 1:
            raise InvalidInputError(
                "padding is not one character", padding=ascii(padding), hint="pad with one character"
            )
        cut = pc.utf8_slice_codeunits(given.text(0), start=0, stop=width)
        return kernel(cut, width=width, padding=padding)

    return run


# ---------------------------------------------------------------------------------------------------------- numbers


def _abs(given: Arguments) -> pa.Array:
    return pc.abs_checked(given.number(0))


def _sign(given: Arguments) -> pa.Array:
    return pc.sign(given.number(0).cast(pa.float64(), safe=False))


def _floor_ceil(mode: str) -> Callable[[Arguments], pa.Array]:
    kernel = pc.floor if mode == "floor" else pc.ceil

    def run(given: Arguments) -> pa.Array:
        values = given.number(0)
        if pa.types.is_decimal(values.type):
            return decimals.round_whole(values, mode)
        return values.cast(pa.int64()) if values.type in INTEGERS else kernel(values).cast(pa.int64())

    return run


def _round(given: Arguments) -> pa.Array:
    """Round half up to a number of digits after the point (if negative, before it)."""
    values, digits = given.number(0), given.constant(1, int, 0)
    if pa.types.is_floating(values.type):
        return _round_float(values, digits)
    if pa.types.is_decimal(values.type):
        scale = min(max(digits, 0), values.type.scale)
        precision, scale = decimals.limit_precision(values.type.precision - values.type.scale + scale + 1, scale)
        rounded = (
            values if digits >= 0 else pc.round(values, ndigits=max(digits, -decimals.DIGITS_MAX), round_mode=HALF_UP)
        )
        return decimals.round_to(rounded, precision, scale)
    if digits >= 0:
        return values
    as_decimal = decimals.round_to(values, decimals.DIGITS_MAX, 0)
    return pc.round(as_decimal, ndigits=max(digits, -30), round_mode=HALF_UP).cast(values.type)


def _round_float(values: pa.Array, digits: int) -> pa.Array:
    """Round the printed decimal digits half up: 2.675 to 2 digits is 2.68, though the stored value is a little less."""
    numbers = np.asarray(pc.fill_null(values, 0).cast(pa.float64()))
    digits = min(max(digits, -308), 308)
    size = np.abs(numbers)
    unit = float(10**-digits) if digits < 0 else 1.0
    power = float(10**digits) if digits > 0 else 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.floor(size / unit * power)
        # Compare with the floating point value nearest to the tie: values not below it round up.
        up = size >= (steps + 0.5) / power * unit
        rounded = np.copysign((steps + up) / power * unit, numbers)
    # Numbers from 2^52 on have no fraction to round. They stay as they are, like NaN and infinity.
    rounded = np.where(np.isfinite(rounded) & (steps < 2.0**52), rounded, numbers)
    return pa.array(rounded, pa.float64(), mask=np.asarray(values.is_null())).cast(values.type, safe=False)


def _double(kernel: Callable[..., Any]) -> Callable[[Arguments], pa.Array]:
    """A function whose arguments are converted to DOUBLE."""

    def run(given: Arguments) -> pa.Array:
        return kernel(*(given.number(index).cast(pa.float64(), safe=False) for index in range(len(given.arrays))))

    return run


def _ln(values: pa.Array) -> pa.Array:
    return pc.ln(pc.if_else(pc.greater(values, 0.0), values, pa.scalar(None, pa.float64())))


def _greatest(given: Arguments) -> pa.Array:
    """The greatest argument that is not null. NaN is greater than every number, but Arrow's kernel ignores it."""
    arrays = _to_one_type(given)
    found = _pick_extreme(pc.max_element_wise, arrays)
    if not has_nan(found.type):
        return found
    some = reduce(pc.or_, (pc.fill_null(pc.is_nan(values), False) for values in arrays))
    return pc.if_else(some, pa.scalar(math.nan, found.type), found)


def _least(given: Arguments) -> pa.Array:
    """The least of the arguments that are not null."""
    return _pick_extreme(pc.min_element_wise, _to_one_type(given))


def _pick_extreme(kernel: Callable[..., Any], arrays: Sequence[pa.Array]) -> pa.Array:
    dtype = arrays[0].type
    # Arrow's kernels take neither timestamps with a zone nor booleans, so that integers in the same order replace them.
    if pa.types.is_timestamp(dtype) and dtype.tz is not None:
        return kernel(*(values.view(pa.int64()) for values in arrays), skip_nulls=True).view(dtype)
    if pa.types.is_boolean(dtype):
        return kernel(*(values.cast(pa.int8()) for values in arrays), skip_nulls=True).cast(dtype)
    return kernel(*arrays, skip_nulls=True)


def _to_one_type(given: Arguments) -> list[pa.Array]:
    dtype = reduce(_common, (values.type for values in given.arrays))
    return [to_common_type(values, dtype) for values in given.arrays]


def _common(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    dtype = common_type(left, right)
    if dtype is None or pa.types.is_decimal256(dtype):
        raise InvalidInputError("values have no common type", left=left, right=right, hint="cast one of them")
    return dtype


def _isnan(given: Arguments) -> pa.Array:
    return pc.fill_null(pc.is_nan(given.number(0).cast(pa.float64(), safe=False)), False)


# ------------------------------------------------------------------------------------------------------------ dates


def _part(kernel: Callable[..., Any], **options: Any) -> Callable[[Arguments], pa.Array]:
    return lambda given: kernel(given.moment(0), **options).cast(pa.int32())


def _clock(kernel: Callable[..., Any]) -> Callable[[Arguments], pa.Array]:
    """A part of the time of day; a DATE counts as its midnight."""

    def run(given: Arguments) -> pa.Array:
        values = given.moment(0)
        return kernel(values.cast(pa.timestamp("s")) if pa.types.is_date32(values.type) else values).cast(pa.int32())

    return run


def _date_add(sign: int) -> Callable[[Arguments], pa.Array]:
    def run(given: Arguments) -> pa.Array:
        days = given.number(1)
        if days.type not in INTEGERS:
            _refuse(1, days.type, "a whole number", "cast it to INT")
        start = cast_arrow(given.moment(0), pa.date32()).cast(pa.int32()).cast(pa.int64())
        total = pc.add_checked(start, pc.multiply_checked(days.cast(pa.int64()), pa.scalar(sign, pa.int64())))
        return total.cast(pa.int32()).cast(pa.date32())

    return run


def _datediff(given: Arguments) -> pa.Array:
    end, start = (cast_arrow(given.moment(index), pa.date32()).cast(pa.int32()) for index in (0, 1))
    return pc.subtract_checked(end, start)


def _one(run: Callable[[Arguments], pa.Array]) -> Function:
    return Function(1, 1, run)


FUNCTIONS: Final[dict[str, Function]] = {
    "upper": _one(_text(pc.utf8_upper)),
    "lower": _one(_text(pc.utf8_lower)),
    "reverse": _one(_text(pc.utf8_reverse)),
    "trim": Function(1, 2, _trim(pc.utf8_trim)),
    "ltrim": Function(1, 2, _trim(pc.utf8_ltrim)),
    "rtrim": Function(1, 2, _trim(pc.utf8_rtrim)),
    "length": _one(_length),
    "substring": Function(2, 3, _substring),
    "left": Function(2, 2, _take_left),
    "right": Function(2, 2, _take_right),
    "concat": Function(1, None, _concat),
    "concat_ws": Function(2, None, _concat_ws),
    "replace": Function(2, 3, _replace),
    "repeat": Function(2, 2, _repeat),
    "lpad": Function(2, 3, _pad(pc.utf8_lpad)),
    "rpad": Function(2, 3, _pad(pc.utf8_rpad)),
    "abs": _one(_abs),
    "sign": _one(_sign),
    "round": Function(1, 2, _round),
    "floor": _one(_floor_ceil("floor")),
    "ceil": _one(_floor_ceil("ceil")),
    "sqrt": _one(_double(pc.sqrt)),
    "exp": _one(_double(pc.exp)),
    "ln": _one(_double(_ln)),
    "power": Function(2, 2, _double(pc.power)),
    "greatest": Function(2, None, _greatest),
    "least": Function(2, None, _least),
    "isnan": _one(_isnan),
    "year": _one(_part(pc.year)),
    "quarter": _one(_part(pc.quarter)),
    "month": _one(_part(pc.month)),
    "day": _one(_part(pc.day)),
    "dayofyear": _one(_part(pc.day_of_year)),
    "dayofweek": _one(_part(pc.day_of_week, count_from_zero=False, week_start=7)),
    "hour": _one(_clock(pc.hour)),
    "minute": _one(_clock(pc.minute)),
    "second": _one(_clock(pc.second)),
    "date_add": Function(2, 2, _date_add(1)),
    "date_sub": Function(2, 2, _date_add(-1)),
    "datediff": Function(2, 2, _datediff),
}

ALIASES: Final = {
    "ucase": "upper",
    "lcase": "lower",
    "char_length": "length",
    "character_length": "length",
    "len": "length",
    "substr": "substring",
    "ceiling": "ceil",
    "pow": "power",
    "signum": "sign",
    "dayofmonth": "day",
    "dateadd": "date_add",
    "date_diff": "datediff",
}


def find_function(name: str) -> Function | None:
    """A function by its name or alias, in lower case."""
    return FUNCTIONS.get(ALIASES.get(name, name))
