"""Convert values of an older column type to the current one, as Java does when it reads old files.

After a column's type was changed, older files still contain values of the older type, and readers convert them. The
rules are those of the Java reader with all its oddities, so that both return the same rows: integers wrap around,
floats are cut and saturate, decimals round half up and become null if they do not fit, and a timestamp before 1970 is
cut towards 1970 when it becomes a DATE, a number of seconds or a coarser TIMESTAMP. `casts` decides which type changes
are allowed; `cast_text` parses texts.

Invariant: nulls stay null, and a value that cannot be converted raises (`cast-value`); it is never dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.spec.casts import cast_text
from tidelake.spec.casts.casts import CastRule, cast_rule
from tidelake.spec.types.arrow_nested import compact, list_child, map_children, rebuild_list, struct_children
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.data_types import (
    STRING,
    DataType,
    DecimalType,
    ElementType,
    LengthType,
    MapType,
    Root,
    RowType,
    TimeType,
    with_nullable,
)

__all__ = ["cast_array"]

_INTEGERS: Final = {Root.TINYINT: np.int8, Root.SMALLINT: np.int16, Root.INT: np.int32, Root.BIGINT: np.int64}
_FLOATS: Final = {Root.FLOAT: np.float32, Root.DOUBLE: np.float64}
_NUMBERS: Final = _INTEGERS.keys() | _FLOATS.keys() | {Root.DECIMAL, Root.BOOLEAN}
_TEXTS: Final = frozenset({Root.CHAR, Root.VARCHAR})
_BINARIES: Final = frozenset({Root.BINARY, Root.VARBINARY})
_MOMENTS: Final = frozenset({Root.TIMESTAMP, Root.TIMESTAMP_LTZ})
_NESTED: Final = frozenset({Root.ARRAY, Root.MAP, Root.ROW})
_WIDE: Final = 76
_MILLIS_OF_DAY: Final = 86_400_000
_NANOS_OF_MILLI: Final = 1_000_000


def cast_array(array: pa.Array, source: DataType, target: DataType, zone: str = "UTC") -> pa.Array:
    """An array of the canonical Arrow type of `source` as one of `target`.

    Args:
        array: The values.
        source: Their type.
        target: The type to convert to. A ROW, ARRAY or MAP can only become text here; its members are not converted.
        zone: The time zone between wall clocks (DATE, TIMESTAMP, text) and instants (TIMESTAMP WITH LOCAL TIME ZONE).

    Raises:
        InvalidInputError: (`cast-value`) a value cannot be converted; (`invalid-input`) the zone is not known.
        UnsupportedError: values cannot be cast between the types.
    """
    if with_nullable(source, True) == with_nullable(target, True):
        return array
    if cast_rule(source, target) is CastRule.REFUSED:
        raise UnsupportedError("values cannot be cast between these types", code="cast", source=source, target=target)
    if source.root in _TEXTS:
        return _from_text(array, target, zone)
    if target.root in _TEXTS:
        return _to_text(array, source, target, zone)
    if source.root in _BINARIES:
        assert isinstance(target, LengthType)
        return _fit_bytes(array, target)
    if source.root in _NUMBERS and target.root in _NUMBERS:
        return _number(array, source, target)
    return _time(array, source, target, zone)


def _nulls(array: pa.Array) -> np.ndarray | None:
    return array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None


def _rebuild(values: np.ndarray, like: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    """Numbers as an array of a type of the same width; null where `like` is null."""
    built = pa.array(values, mask=_nulls(like))
    return built if built.type == arrow_type else built.view(arrow_type)


def _integers(array: pa.Array) -> np.ndarray:
    """The stored integers, zero for null."""
    width = array.type.bit_width
    plain = array.view(pa.int32() if width == 32 else pa.int64()) if not pa.types.is_integer(array.type) else array
    values: np.ndarray = (plain.fill_null(0) if plain.null_count else plain).to_numpy(zero_copy_only=False)
    return values


# ---------------------------------------------------------------------------------------------------------------------
# Numbers
# ---------------------------------------------------------------------------------------------------------------------


def _number(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    if isinstance(target, DecimalType):
        return _to_decimal(array, source, target)
    if isinstance(source, DecimalType):
        return _from_decimal(array, source, target)
    if target.root is Root.BOOLEAN:
        return pc.not_equal(array, pa.scalar(0, array.type))
    filled = array.fill_null(False if source.root is Root.BOOLEAN else 0) if array.null_count else array
    values = filled.to_numpy(zero_copy_only=False)
    if source.root in _FLOATS and target.root in _INTEGERS:
        return _rebuild(_truncate_floats(values, target.root), array, to_arrow(target))
    kind = _INTEGERS.get(target.root) or _FLOATS[target.root]
    with np.errstate(over="ignore"):
        return _rebuild(values.astype(kind), array, to_arrow(target))


def _truncate_floats(values: np.ndarray, root: Root) -> np.ndarray:
    """Floats as integers as Java casts them: cut, saturated at 32 or 64 bits, then wrapped; NaN becomes zero."""
    wide = np.int64 if root is Root.BIGINT else np.int32
    info = np.iinfo(wide)
    doubles = np.trunc(np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
    high, low = doubles >= float(info.max), doubles <= float(info.min)
    inside = np.where(high | low, 0.0, doubles).astype(wide)
    whole = np.where(high, info.max, np.where(low, info.min, inside)).astype(wide)
    result: np.ndarray = whole.astype(_INTEGERS[root])
    return result


def _to_decimal(array: pa.Array, source: DataType, target: DecimalType) -> pa.Array:
    if source.root in _FLOATS:
        return _by_value(array, lambda value: _float_to_decimal(value, target), to_arrow(target))
    if source.root is Root.BOOLEAN:
        array = array.cast(pa.int8())
    if isinstance(source, DecimalType):
        wide = array.cast(pa.decimal256(_WIDE, source.scale))
        if source.scale > target.scale:
            wide = pc.round(wide, ndigits=target.scale, round_mode="half_towards_infinity")
    else:
        wide = array.cast(pa.decimal256(_WIDE, 0))
    wide = wide.cast(pa.decimal256(_WIDE, target.scale))
    bound = pa.scalar(Decimal(10) ** (target.precision - target.scale), pa.decimal256(_WIDE, target.scale))
    fits = pc.less(pc.abs(wide), bound)
    return pc.if_else(fits, wide, pa.scalar(None, wide.type)).cast(to_arrow(target))


def _float_to_decimal(value: float, target: DecimalType) -> Decimal | None:
    if value != value or value in (float("inf"), float("-inf")):
        raise cast_text.bad_value(value, target)
    return cast_text.fit_decimal(Decimal(repr(value)), target)


def _from_decimal(array: pa.Array, source: DecimalType, target: DataType) -> pa.Array:
    if target.root in _FLOATS:
        # By way of text, which Arrow parses exactly. Its direct conversion divides, and the last digit may be wrong.
        return array.cast(pa.string()).cast(pa.float64()).cast(to_arrow(target), safe=False)
    whole = pc.trunc(array.cast(pa.decimal128(38, source.scale))).cast(pa.decimal128(38, 0))
    whole = compact(whole.fill_null(0) if whole.null_count else whole)
    # The lowest 64 bits of the two's complement: Java keeps these and drops the others.
    low = np.frombuffer(whole.buffers()[1], np.int64, 2 * len(whole), whole.offset * 16)[::2]
    return _rebuild(low.astype(_INTEGERS[target.root]), array, to_arrow(target))


# ---------------------------------------------------------------------------------------------------------------------
# Text and bytes
# ---------------------------------------------------------------------------------------------------------------------


def _by_value(array: pa.Array, convert: Callable[[Any], Any], arrow_type: pa.DataType) -> pa.Array:
    """Convert each distinct value once in Python, for conversions to and from text."""
    if array.null_count == len(array):
        return pa.nulls(len(array), arrow_type)
    encoded = array.dictionary_encode()
    values = [None if value is None else convert(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(values, arrow_type).take(encoded.indices)


def _from_text(array: pa.Array, target: DataType, zone: str) -> pa.Array:
    root = target.root
    if root in _TEXTS:
        assert isinstance(target, LengthType)
        return _fit_text(array, target)
    if root in _BINARIES:
        assert isinstance(target, LengthType)
        return _fit_bytes(array.cast(pa.binary()), target)
    if root in _MOMENTS:
        assert isinstance(target, TimeType)
        encoded = array.dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        pairs = [cast_text.parse_moment(text, target) for text in texts]
        millis = np.array([pair[0] for pair in pairs], np.int64)
        nanos = np.array([pair[1] for pair in pairs], np.int64)
        moments = _moments(millis, nanos, encoded.dictionary, target)
        if root is Root.TIMESTAMP_LTZ:
            moments = _to_instants(moments.cast(pa.timestamp(moments.type.unit)), zone)
        return moments.take(encoded.indices)
    return _by_value(array, lambda text: cast_text.parse_value(text, target), to_arrow(target))


def _to_text(array: pa.Array, source: DataType, target: DataType, zone: str) -> pa.Array:
    assert isinstance(target, LengthType)
    if source.root in _NESTED:
        return nested_text(array, source, zone)
    if source.root in _BINARIES:
        return cast_text.decode(array)
    text = _atom_text(array, source, zone)
    return text if source.root in _MOMENTS | {Root.DATE, Root.TIME} else _fit_text(text, target)


def _atom_text(array: pa.Array, source: DataType, zone: str) -> pa.Array:
    if source.root in _INTEGERS or source.root is Root.BOOLEAN:
        return array.cast(pa.string())
    if source.root in _FLOATS:
        # Encoded by their bits: 0.0 and -0.0 are equal in a dictionary, but have different texts.
        bits = array.view(pa.int32() if source.root is Root.FLOAT else pa.int64())
        encoded = bits.dictionary_encode()
        values = encoded.dictionary.view(array.type).to_pylist()
    else:
        encoded = array.dictionary_encode()
        values = _internal(encoded.dictionary, source)
    return pa.array(cast_text.texts(values, source, zone), pa.string()).take(encoded.indices)


def _internal(array: pa.Array, dtype: DataType) -> list[Any]:
    if dtype.root in _MOMENTS:
        millis, nanos = _pairs(array)
        return list(zip(millis.tolist(), nanos.tolist(), strict=True))
    values: list[Any] = _integers(array).tolist() if dtype.root in (Root.DATE, Root.TIME) else array.to_pylist()
    return values


def _fit_text(array: pa.Array, target: LengthType) -> pa.Array:
    lengths = pc.utf8_length(array)
    longest = pc.max(lengths).as_py() or 0
    if longest > target.length:
        array = pc.utf8_slice_codeunits(array, 0, target.length)
    if target.root is Root.CHAR and (pc.min(lengths).as_py() or 0) < target.length:
        array = pc.utf8_rpad(array, width=target.length, padding=" ")
    return array


def _fit_bytes(array: pa.Array, target: LengthType) -> pa.Array:
    lengths = pc.binary_length(array)
    longest, shortest = pc.max(lengths).as_py() or 0, pc.min(lengths).as_py() or 0
    if longest > target.length:
        array = pc.binary_slice(array, 0, target.length)
    if target.root is Root.BINARY and shortest < target.length:
        missing = pc.subtract(pa.scalar(target.length, pa.int32()), pc.binary_length(array))
        zeros = pc.binary_repeat(pa.scalar(b"\0"), missing)
        array = pc.binary_join_element_wise(array, zeros, b"")
    return array


def nested_text(array: pa.Array, source: DataType, zone: str = "UTC") -> pa.Array:
    """The text of lists, maps and rows: `[1, null]`, `{k -> v}`, `{a, b}`.

    Raises:
        UnsupportedError: a member has no text.
    """
    match source:
        case ElementType(root=Root.ARRAY, element=element):
            array = compact(array)
            items = rebuild_list(array, _member_text(list_child(array), element, zone), pa.list_(pa.string()))
            return _between("[", pc.binary_join(items, ", "), "]")
        case MapType(key=key, value=value):
            array = compact(array)
            keys, values = map_children(array)
            entries = pc.binary_join_element_wise(
                _member_text(keys, key, zone), _member_text(values, value, zone), " -> "
            )
            return _between("{", pc.binary_join(rebuild_list(array, entries, pa.list_(pa.string())), ", "), "}")
        case RowType(fields=fields):
            members = [
                _member_text(child, field.type, zone)
                for child, field in zip(struct_children(array), fields, strict=True)
            ]
            if not members:
                return pc.if_else(array.is_valid(), pa.scalar("{}"), pa.scalar(None, pa.string()))
            joined = _between("{", pc.binary_join_element_wise(*members, ", "), "}")
            return pc.if_else(array.is_valid(), joined, pa.scalar(None, pa.string()))
    return cast_array(array, source, STRING, zone)


def _member_text(array: pa.Array, dtype: DataType, zone: str) -> pa.Array:
    return pc.fill_null(nested_text(array, dtype, zone), "null")


def _between(opening: str, text: pa.Array, closing: str) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar(opening), text, pa.scalar(closing), "")


# ---------------------------------------------------------------------------------------------------------------------
# Dates, times and moments
# ---------------------------------------------------------------------------------------------------------------------


def _time(array: pa.Array, source: DataType, target: DataType, zone: str) -> pa.Array:
    if isinstance(target, TimeType) and target.root in _MOMENTS:
        return _to_moment(array, source, target, zone)
    if target.root in _INTEGERS:
        millis, _ = _pairs(array)
        return _rebuild(_towards_zero(millis, 1_000).astype(_INTEGERS[target.root]), array, to_arrow(target))
    local = _to_local(array, zone) if source.root is Root.TIMESTAMP_LTZ else array
    millis, _ = _pairs(local)
    if target.root is Root.TIME:
        return _rebuild(np.mod(millis, _MILLIS_OF_DAY).astype(np.int32), array, to_arrow(target))
    # Java cuts a TIMESTAMP towards 1970, but rounds a TIMESTAMP WITH LOCAL TIME ZONE down.
    days = millis // _MILLIS_OF_DAY if source.root is Root.TIMESTAMP_LTZ else _towards_zero(millis, _MILLIS_OF_DAY)
    return _rebuild(days.astype(np.int32), array, to_arrow(target))


def _to_moment(array: pa.Array, source: DataType, target: TimeType, zone: str) -> pa.Array:
    instant = target.root is Root.TIMESTAMP_LTZ
    if source.root is Root.DATE:
        millis = _integers(array).astype(np.int64) * _MILLIS_OF_DAY
        local = _moments(millis, np.zeros_like(millis), array, target)
        return _to_instants(_naive(local), zone) if instant else local
    if source.root is Root.TIME:
        millis = _integers(array).astype(np.int64)
        return _moments(millis, np.zeros_like(millis), array, target)
    if source.root in _INTEGERS:
        # The integer is in seconds; its milliseconds wrap at 64 bits. Java also shifts an instant by the zone here.
        millis = _integers(array).astype(np.int64) * np.int64(1_000)
        moments = _moments(millis, np.zeros_like(millis), array, target)
        return _to_local(moments, zone).cast(moments.type) if instant else moments
    if source.root is Root.TIMESTAMP and instant:
        array = _to_instants(array, zone)
    elif source.root is Root.TIMESTAMP_LTZ and not instant:
        array = _to_local(array, zone)
    millis, nanos = _pairs(array)
    if target.precision < 3:
        unit = 10 ** (3 - target.precision)
        millis, nanos = _towards_zero(millis, unit) * unit, np.zeros_like(nanos)
    elif target.precision < 9:
        unit = 10 ** (9 - target.precision)
        nanos = nanos // unit * unit
    return _moments(millis, nanos, array, target)


def _towards_zero(values: np.ndarray, divisor: int) -> np.ndarray:
    quotient: np.ndarray = np.where(values < 0, -(-values // divisor), values // divisor)
    return quotient


def _pairs(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Milliseconds, rounded down, and the nanoseconds beyond them."""
    counts = _integers(array)
    per_milli = {"s": 0, "ms": 1, "us": 1_000, "ns": _NANOS_OF_MILLI}[array.type.unit]
    millis, rest = np.divmod(counts, per_milli)
    return millis, rest * (_NANOS_OF_MILLI // per_milli)


def _moments(millis: np.ndarray, nanos: np.ndarray, like: pa.Array, target: TimeType) -> pa.Array:
    arrow_type = to_arrow(target)
    per_milli = {"ms": 1, "us": 1_000, "ns": _NANOS_OF_MILLI}[arrow_type.unit]
    limit = (2**63 - 1) // per_milli
    outside = (millis >= limit) | (millis <= -limit)
    if per_milli > 1 and np.any(outside):
        first = int(millis[np.flatnonzero(outside)[0]])
        raise cast_text.bad_value(f"{first} ms since 1970", target)
    counts = millis * per_milli + nanos // (_NANOS_OF_MILLI // per_milli)
    return _rebuild(counts, like, arrow_type)


def _naive(array: pa.Array) -> pa.Array:
    return array.view(pa.int64()).view(pa.timestamp(array.type.unit))


def _to_local(array: pa.Array, zone: str) -> pa.Array:
    """The local times of instants in the zone."""
    if zone == "UTC":
        return _naive(array)
    try:
        return pc.local_timestamp(_naive(array).view(pa.timestamp(array.type.unit, zone)))
    except pa.ArrowException as error:
        raise _bad_zone(zone) from error


def _to_instants(array: pa.Array, zone: str) -> pa.Array:
    """The instants of local times in the zone; the earlier one of a local time that occurs twice.

    A local time that was skipped is moved by the length of the gap, as Java does it.
    """
    target = pa.timestamp(array.type.unit, "UTC")
    if zone == "UTC":
        return array.view(pa.int64()).view(target)
    try:
        zoned = pc.assume_timezone(array, zone, ambiguous="earliest", nonexistent="earliest")
        shown = pc.local_timestamp(zoned)
    except pa.ArrowException as error:
        raise _bad_zone(zone) from error
    offset = pc.subtract(shown.view(pa.int64()), zoned.view(pa.int64()))
    exact = pc.equal(shown, array)
    if pc.all(exact).as_py() is not False:
        return zoned.view(pa.int64()).view(target)
    # Arrow returns the last instant before the gap, at which the old offset is still valid: apply that offset.
    skipped = pc.subtract(array.view(pa.int64()), offset)
    return pc.if_else(exact, zoned.view(pa.int64()), skipped).view(target)


def _bad_zone(zone: str) -> InvalidInputError:
    return InvalidInputError("time zone is not known", zone=zone, hint="use a name such as UTC or Asia/Shanghai")
