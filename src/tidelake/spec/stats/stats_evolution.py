"""Convert statistics of files with an older schema to the schema of a read.

Columns are matched by field id, as in reads. Invariant: all values that a reader would see are within the bounds. A
column that the file does not have reads as null. A column whose type changed keeps its bounds only if the cast of every
value is exact and keeps the order; otherwise its bounds are unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from tidelake.errors import FormatError, InvalidInputError
from tidelake.spec.stats.column_stats import Bounds, decode_bounds, is_comparable, unknown_bounds
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.data_types import LENGTH_MAX, DataType, DecimalType, Field, LengthType, Root, with_nullable

__all__ = ["bounds_under", "widens"]

_DIGITS: Final = {Root.TINYINT: 3, Root.SMALLINT: 5, Root.INT: 10, Root.BIGINT: 19}
_WIDER: Final = {
    Root.TINYINT: frozenset({Root.SMALLINT, Root.INT, Root.BIGINT, Root.FLOAT, Root.DOUBLE}),
    Root.SMALLINT: frozenset({Root.INT, Root.BIGINT, Root.FLOAT, Root.DOUBLE}),
    Root.INT: frozenset({Root.BIGINT, Root.DOUBLE}),
    Root.FLOAT: frozenset({Root.DOUBLE}),
}


def widens(source: DataType, target: DataType) -> bool:
    """Whether every value of `source` has an equal value of `target`, in the same order. Ignores nullability."""
    if with_nullable(source, True) == with_nullable(target, True):
        return True
    match source, target:
        case DecimalType(), DecimalType():
            return target.scale >= source.scale and _whole_digits(target) >= _whole_digits(source)
        case _, DecimalType() if source.root in _DIGITS:
            return _whole_digits(target) >= _DIGITS[source.root]
        case LengthType(), LengthType():
            # Only to the unlimited form: not all writers enforce lengths, and a reader cuts values to a limit. Not for
            # CHAR, because a cast pads or strips it.
            return target.root is source.root and target.length == LENGTH_MAX and target.root in _UNLIMITED
    return target.root in _WIDER.get(source.root, frozenset())


_UNLIMITED: Final = frozenset({Root.VARCHAR, Root.VARBINARY})


def _whole_digits(dtype: DecimalType) -> int:
    return dtype.precision - dtype.scale


def bounds_under(
    min_values: pa.Array | pa.ChunkedArray,
    max_values: pa.Array | pa.ChunkedArray,
    null_counts: pa.Array | pa.ChunkedArray,
    value_stats_cols: pa.Array | pa.ChunkedArray | None,
    row_counts: pa.Array | pa.ChunkedArray,
    *,
    file_fields: Sequence[Field],
    read_fields: Sequence[Field],
    wanted: Sequence[str],
) -> dict[str, Bounds]:
    """The bounds of columns of the schema to read, for many files of one older (or the same) schema.

    Not for files with only some columns of their rows (`_WRITE_COLS`): columns missing from such a file are not null.

    Args:
        min_values: Encoded rows of the minima, one per file.
        max_values: Encoded rows of the maxima.
        null_counts: Lists of counts.
        value_stats_cols: Lists of covered columns, named as in the schema of the files.
        row_counts: Rows of each file, which is the null count of a column that it does not have.
        file_fields: The columns of the schema that the files were written with.
        read_fields: The columns of the schema to read.
        wanted: Names of columns to read.

    Raises:
        FormatError: if the statistics contradict the schema of the files.
        InvalidInputError: if a wanted name is not a column to read.
    """
    readable = {field.name: field for field in read_fields}
    stored = {field.id: field for field in file_fields}
    for name in wanted:
        if name not in readable:
            raise InvalidInputError("column does not exist", column=name, columns=", ".join(readable))
    sources = {name: stored.get(readable[name].id) for name in wanted}
    usable = {name: source for name, source in sources.items() if source and widens(source.type, readable[name].type)}
    names = list(dict.fromkeys(source.name for source in usable.values()))
    decoded = decode_bounds(min_values, max_values, null_counts, value_stats_cols, file_fields, names)
    found = {}
    for name in wanted:
        dtype = readable[name].type
        if name in usable:
            found[name] = _cast(decoded[usable[name].name], dtype)
        elif sources[name] is None:
            found[name] = unknown_bounds(dtype, len(min_values))._replace(null_count=_int64(row_counts))
        else:
            found[name] = unknown_bounds(dtype, len(min_values))
    return found


def _cast(bounds: Bounds, dtype: DataType) -> Bounds:
    arrow = to_arrow(dtype)
    if bounds.min.type == arrow or not is_comparable(dtype):
        return bounds
    try:
        return bounds._replace(min=bounds.min.cast(arrow), max=bounds.max.cast(arrow))
    except pa.ArrowInvalid as error:
        raise FormatError("statistics have a value outside the range of its type", type=dtype) from error


def _int64(counts: pa.Array | pa.ChunkedArray) -> pa.Array:
    plain = counts.cast(pa.int64())
    return plain.combine_chunks() if isinstance(plain, pa.ChunkedArray) else plain
