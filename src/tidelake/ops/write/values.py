"""Check that the values of an Arrow column fit a column of the table, and convert the column to the table's type.

No value is changed to make it fit. A number may have another width and a timestamp another unit if no digit is lost. A
text is not converted to a number, nor a number to a text, and a member that a ROW does not have is not dropped. A user
who wants a conversion makes it before writing, where it can be seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError
from tidelake.spec.casts.cast_values import cast_array
from tidelake.spec.types.arrow_nested import compact, map_children
from tidelake.spec.types.data_types import (
    LENGTH_MAX,
    STRING,
    DataType,
    ElementType,
    Field,
    LengthType,
    MapType,
    Root,
    RowType,
    TimeType,
    VectorType,
)

__all__ = ["check_exact_cast", "fit_column", "unfit"]

_TEXT: Final = frozenset({Root.CHAR, Root.VARCHAR})
_DIGITS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_DAYS: Final = (-719_528, 2_932_896)
"""0000-01-01 and 9999-12-31, the first and last day of the format, counted from 1970."""
_DAY_SECONDS: Final = 86_400


def fit_column(values: pa.Array | None, column: Field, wanted: pa.DataType, rows: int) -> pa.Array:
    """The values of a column in the Arrow type of the table, with the default instead of nulls.

    Args:
        values: The values in the data; None if the data does not have the column.
        column: The column of the table.
        wanted: Its Arrow type.
        rows: The number of rows.

    Raises:
        InvalidInputError: a value does not fit, or is null in a column without nulls.
    """
    found = pa.nulls(rows, wanted) if values is None else _cast(values, column, wanted)
    if column.default is not None and found.null_count:
        default = cast_array(pa.array([column.default]), STRING, column.type)
        found = pc.fill_null(found, default[0])
    if found.null_count and not column.type.nullable:
        raise InvalidInputError(
            "column must not be null",
            code="null-value",
            column=column.name,
            hint="the data does not have the column"
            if values is None
            else f"give every row a value; rows without one: {found.null_count}",
        )
    _check(found, column.type, column.name)
    return found


def unfit(column: str, dtype: object, cause: str) -> InvalidInputError:
    """The error for a value that does not fit its column."""
    return InvalidInputError(
        "value does not fit its column",
        code="value-type",
        column=column,
        type=dtype,
        cause=cause.splitlines()[0][:200] if cause else "",
        hint="cast the data to the column's type before writing",
    )


# ------------------------------------------------------------------------------------------------ casts


def check_exact_cast(given: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The same values in another Arrow type.

    Raises:
        ValueError: (or an error of Arrow) a value is of another kind, or would lose something.
    """
    given = _plain(given)
    if given.type == wanted:
        return given
    _check_kinds(given.type, wanted, "")
    if pa.types.is_integer(given.type) and pa.types.is_decimal(wanted):
        # Arrow requires room for the widest integer of the type; the second cast checks the values.
        return given.cast(pa.decimal256(76, wanted.scale)).cast(wanted)
    found = given.cast(wanted)
    _check_kept(given, found)
    return found


def _cast(values: pa.Array, column: Field, wanted: pa.DataType) -> pa.Array:
    try:
        return check_exact_cast(values, wanted)
    except (pa.ArrowException, ValueError) as cause:
        raise unfit(column.name, column.type, str(cause)) from cause


def _plain(values: pa.Array) -> pa.Array:
    """The values without Arrow's encodings and extension types."""
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_dictionary(values.type):
        return values.dictionary_decode()
    return pc.run_end_decode(values) if pa.types.is_run_end_encoded(values.type) else values


def _kind(dtype: pa.DataType) -> str:
    kinds = pa.types
    if kinds.is_dictionary(dtype) or kinds.is_run_end_encoded(dtype):
        return _kind(dtype.value_type)
    if kinds.is_integer(dtype) or kinds.is_floating(dtype) or kinds.is_decimal(dtype):
        return "number"
    if kinds.is_string(dtype) or kinds.is_large_string(dtype) or kinds.is_string_view(dtype):
        return "text"
    if kinds.is_binary(dtype) or kinds.is_large_binary(dtype) or kinds.is_fixed_size_binary(dtype):
        return "bytes"
    if dtype == pa.binary_view():
        return "bytes"
    if kinds.is_map(dtype):
        return "map"
    if _is_list(dtype):
        return "array"
    for name, test in (
        ("truth value", kinds.is_boolean),
        ("date", kinds.is_date),
        ("time", kinds.is_time),
        ("moment", kinds.is_timestamp),
        ("row", kinds.is_struct),
    ):
        if test(dtype):
            return name
    return str(dtype)


def _is_list(dtype: pa.DataType) -> bool:
    kinds = pa.types
    return bool(
        kinds.is_list(dtype)
        or kinds.is_large_list(dtype)
        or kinds.is_fixed_size_list(dtype)
        or kinds.is_list_view(dtype)
        or kinds.is_large_list_view(dtype)
    )


_KINDS_THAT_MEET: Final = {("bytes", "text"), ("text", "bytes"), ("date", "moment"), ("moment", "date")}


def _check_kinds(given: pa.DataType, wanted: pa.DataType, place: str) -> None:
    """Refuse types that have nothing in common, from the types alone.

    Raises:
        ValueError: the types have nothing in common.
    """
    if given == wanted or pa.types.is_null(given):
        return
    if isinstance(given, pa.BaseExtensionType):
        given = given.storage_type
    have, want = _kind(given), _kind(wanted)
    where = f" in {place.lstrip('.')}" if place else ""
    # A decimal may come as a text, because that is the only exact way in formats without decimals, such as JSON.
    decimal = have == "text" and pa.types.is_decimal(wanted)
    if have != want and not decimal and (have, want) not in _KINDS_THAT_MEET:
        raise ValueError(f"a {have} is not a {want}{where}")
    if have == want == "moment" and given.tz is not None and wanted.tz is None:
        # The user has to choose the time zone in which the local time is computed.
        raise ValueError(
            f"a moment with a time zone in a TIMESTAMP without one{where}: take the zone off, or use TIMESTAMP_LTZ"
        )
    if want == "row":
        _check_members(given, wanted, place)
    elif want == "array":
        _check_kinds(given.value_type, wanted.value_type, f"{place}.element")
    elif want == "map":
        _check_kinds(given.key_type, wanted.key_type, f"{place}.key")
        _check_kinds(given.item_type, wanted.item_type, f"{place}.value")


def _check_members(given: pa.StructType, wanted: pa.StructType, place: str) -> None:
    known = {field.name: field for field in wanted}
    names = [field.name for field in given]
    for field in given:
        if field.name not in known:
            raise ValueError(f"row has no member {f'{place}.{field.name}'.lstrip('.')}")
        if names.count(field.name) > 1:
            raise ValueError(f"row has the member {f'{place}.{field.name}'.lstrip('.')} twice")
        _check_kinds(field.type, known[field.name].type, f"{place}.{field.name}")


def _check_kept(given: pa.Array, found: pa.Array) -> None:
    """Refuse losses that Arrow does not check: digits of a decimal, hours of a date, numbers too large for a FLOAT.

    Raises:
        ValueError: a value lost something.
    """
    given = _plain(given)
    if given.type == found.type or pa.types.is_null(given.type):
        return
    have, want = given.type, found.type
    if pa.types.is_struct(want):
        # `flatten` makes members null where their row is null, so both sides agree there.
        before, after = given.flatten(), found.flatten()
        for index, field in enumerate(have):
            _check_kept(before[index], after[want.get_field_index(field.name)])
    elif pa.types.is_map(want):
        for before, after in zip(
            map_children(compact(given.drop_null())), map_children(compact(found.drop_null())), strict=True
        ):
            _check_kept(before, after)
    elif _is_list(want):
        _check_kept(given.flatten(), found.flatten())
    elif (pa.types.is_floating(have) and pa.types.is_decimal(want)) or (
        pa.types.is_timestamp(have) and pa.types.is_date(want)
    ):
        if not found.cast(have).equals(given):
            raise ValueError(f"a {have} value has more digits than {want} keeps")
    elif pa.types.is_floating(have) and pa.types.is_floating(want):
        lost = pc.and_(pc.is_inf(found), pc.invert(pc.is_inf(given)))
        if pc.any(lost).as_py():
            raise ValueError(f"a {have} value is too large for {want}")


# ------------------------------------------------------------------------------------------------ values


def _check(values: pa.Array, dtype: DataType, place: str) -> None:
    """Check what the table's type requires beyond its Arrow type, at every depth; nulls of the column itself are fine.

    Raises:
        InvalidInputError: a value does not fit; the error names the member.
    """
    _check_leaf(values, dtype, place)
    for inner, inner_type, inner_place in _members(values, dtype, place):
        if inner.null_count and not inner_type.nullable:
            raise InvalidInputError(
                "column must not be null",
                code="null-value",
                column=inner_place,
                hint=f"{inner.null_count} values are missing",
            )
        _check(inner, inner_type, inner_place)


def _members(values: pa.Array, dtype: DataType, place: str) -> Iterator[tuple[pa.Array, DataType, str]]:
    """The inner values of a nested type, without those of nulls."""
    if isinstance(dtype, RowType):
        for field, inner in zip(dtype.fields, values.drop_null().flatten(), strict=True):
            yield inner, field.type, f"{place}.{field.name}"
    elif isinstance(dtype, MapType):
        keys, items = map_children(compact(values.drop_null()))
        yield keys, dtype.key, f"{place}.key"
        yield items, dtype.value, f"{place}.value"
    elif isinstance(dtype, ElementType | VectorType) and dtype.root is not Root.MULTISET:
        yield values.flatten(), dtype.element, f"{place}.element"


def _check_leaf(values: pa.Array, dtype: DataType, place: str) -> None:
    if isinstance(dtype, LengthType):
        if dtype.root in _TEXT:
            _check_valid(values, dtype, place)
        _check_length(values, dtype, place)
    elif dtype.root is Root.DATE:
        _check_range(values.cast(pa.int32()), _DAYS, values, dtype, place)
    elif isinstance(dtype, TimeType):
        if dtype.root is Root.TIME:
            _check_valid(values, dtype, place)
        _check_moments(values, dtype, place)
    elif isinstance(dtype, MapType):
        _check_keys(values, dtype, place)


def _check_valid(values: pa.Array, dtype: DataType, place: str) -> None:
    """Refuse texts that are not UTF-8 and times outside a day; Arrow checks that only in a full validation."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as cause:
        raise unfit(place, dtype, str(cause)) from cause


def _check_length(values: pa.Array, dtype: LengthType, place: str) -> None:
    if dtype.length == LENGTH_MAX:
        return
    sizes = pc.utf8_length(values) if dtype.root in _TEXT else pc.binary_length(values)
    longest = pc.max(sizes).as_py()
    if longest is not None and longest > dtype.length:
        raise InvalidInputError(
            "value is longer than its column allows",
            code="value-too-long",
            column=place,
            type=dtype,
            length=longest,
            hint="shorten it, or change the column's type",
        )


def _check_moments(values: pa.Array, dtype: TimeType, place: str) -> None:
    digits = _DIGITS[values.type.unit]
    numbers = values.cast(pa.int32() if dtype.root is Root.TIME else pa.int64())
    if dtype.root is not Root.TIME and digits < 9:  # 64 bits of nanoseconds end in 2262
        first, last = (day * _DAY_SECONDS * 10**digits for day in (_DAYS[0], _DAYS[1] + 1))
        _check_range(numbers, (first, last - 1), values, dtype, place)
    if dtype.precision < digits:
        step = 10 ** (digits - dtype.precision)
        rest = pc.subtract(numbers, pc.multiply(pc.divide(numbers, step), step))
        if pc.any(pc.not_equal(rest, 0)).as_py():
            raise unfit(place, dtype, f"a value has more than {dtype.precision} digits after the second")


def _check_range(numbers: pa.Array, bounds: tuple[int, int], values: pa.Array, dtype: DataType, place: str) -> None:
    found = pc.min_max(numbers)
    low, high = found["min"].as_py(), found["max"].as_py()
    if low is not None and (low < bounds[0] or high > bounds[1]):
        unit = "days" if dtype.root is Root.DATE else values.type.unit
        wrong = low if low < bounds[0] else high
        raise unfit(place, dtype, f"{wrong} {unit} since 1970 are outside the years 0000 to 9999")


def _check_keys(values: pa.Array, dtype: MapType, place: str) -> None:
    """Refuse a map that has a key twice: readers that keep only one of the two would return another map."""
    whole = compact(values.drop_null())
    keys, _ = map_children(whole)
    sizes = np.diff(whole.offsets.to_numpy())
    if len(sizes) == 0 or sizes.max() < 2 or pa.types.is_nested(keys.type):
        return
    codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    owners = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)
    if len(np.unique(owners * (len(keys) + 1) + codes)) < len(keys):
        raise unfit(place, dtype, "a map has a key twice")
