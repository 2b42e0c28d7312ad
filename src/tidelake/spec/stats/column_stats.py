"""Column statistics of data files: collect them from Arrow, store them as BinaryRows, and decode them for pruning.

The stored form has two encoded rows (minima, maxima) of the covered columns, whose types are made nullable, and one
null count per covered column. A null bound means "unknown, or all values are null". Dense statistics leave out columns
without statistics and name the others in `_VALUE_STATS_COLS`: null means all columns, the empty list none.

Invariant: every value of a column is between its bounds. If this cannot be guaranteed (the values include NaN, the type
has no order, a maximum could not be raised, stored bounds contradict each other), bounds are left out. So pruning may
be less effective, but never loses a row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import FormatError, InvalidInputError
from tidelake.spec.data_file import SimpleStats
from tidelake.spec.rows.binary_row import decode_rows
from tidelake.spec.rows.binary_row_scalar import EMPTY_ROW, decode_row, encode_row
from tidelake.spec.stats.stats_modes import FULL, StatsKind, StatsMode, truncate
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.data_types import DataType, Field, Root, TimeType, with_nullable

__all__ = [
    "UNKNOWN",
    "Bounds",
    "ColumnStats",
    "SimpleStats",
    "collect",
    "decode_bounds",
    "decode_stats",
    "encode_stats",
    "is_comparable",
    "partition_stats",
    "unknown_bounds",
]

_TEXT: Final = frozenset({Root.CHAR, Root.VARCHAR})
_BINARY: Final = frozenset({Root.BINARY, Root.VARBINARY})
_FLOATS: Final = frozenset({Root.FLOAT, Root.DOUBLE})
_COMPARABLE: Final = (
    _TEXT
    | _BINARY
    | _FLOATS
    | {
        Root.BOOLEAN,
        Root.DECIMAL,
        Root.TINYINT,
        Root.SMALLINT,
        Root.INT,
        Root.BIGINT,
        Root.DATE,
        Root.TIME,
        Root.TIMESTAMP,
        Root.TIMESTAMP_LTZ,
    }
)
_UNITS_OF_MILLI: Final = {"ms": 1, "us": 1_000, "ns": 1_000_000}


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Bounds (in the format's internal domain, see `binary_row_scalar`) and null count; None is unknown."""

    min: Any = None
    max: Any = None
    null_count: int | None = None

    @property
    def absent(self) -> bool:
        """Whether nothing is known, so that dense statistics leave the column out."""
        return self.min is None and self.max is None and self.null_count is None


UNKNOWN: Final = ColumnStats()


class Bounds(NamedTuple):
    """The statistics of one column over many files, one element per file; null is unknown."""

    min: pa.Array
    max: pa.Array
    null_count: pa.Array


def is_comparable(dtype: DataType) -> bool:
    """Whether the type has an order, so that there can be bounds."""
    return dtype.root in _COMPARABLE


# ---------------------------------------------------------------------------------------------------------------------
# Collecting
# ---------------------------------------------------------------------------------------------------------------------


def collect(column: pa.Array | pa.ChunkedArray, dtype: DataType, mode: StatsMode) -> ColumnStats:
    """The statistics of one column of a file.

    Raises:
        InvalidInputError: if the Arrow values do not belong to the type.
    """
    if mode.kind is StatsKind.NONE:
        return UNKNOWN
    if not is_comparable(dtype):
        return ColumnStats(null_count=column.null_count)
    values = _canonical(column, dtype)
    null_count = values.null_count
    if mode.kind is StatsKind.COUNTS or null_count == len(values) or _has_nan(values, dtype):
        return ColumnStats(null_count=null_count)
    extremes = pc.min_max(values)
    low, high = _internal(extremes["min"], dtype), _internal(extremes["max"], dtype)
    if dtype.root in _FLOATS:
        # A query takes both zeros as equal, but some readers order -0.0 before 0.0: widen the bounds to include both.
        low, high = (-0.0 if low == 0 else low), (0.0 if high == 0 else high)
    if mode.length is not None and isinstance(high, str | bytes):
        cut = truncate(low, high, mode.length)
        if cut is None:
            return ColumnStats(null_count=null_count)
        low, high = cut
    return ColumnStats(low, high, null_count)


def _canonical(column: pa.Array | pa.ChunkedArray, dtype: DataType) -> pa.Array | pa.ChunkedArray:
    canonical = to_arrow(dtype)
    found = column.type
    if found == canonical:
        return column
    if dtype.root in _TEXT | _BINARY:
        if found in (pa.large_string(), pa.large_binary()) and (found == pa.large_string()) == (dtype.root in _TEXT):
            return column
        # Cast to the large form, because 32-bit offsets could overflow.
        canonical = pa.large_string() if dtype.root in _TEXT else pa.large_binary()
    try:
        return column.cast(canonical)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError("column holds values of another type", expected=dtype, found=found) from error


def _has_nan(values: pa.Array | pa.ChunkedArray, dtype: DataType) -> bool:
    # Readers disagree on whether NaN is the largest value, incomparable, or ignored in statistics.
    return dtype.root in _FLOATS and bool(pc.any(pc.is_nan(values)).as_py())


def _internal(scalar: pa.Scalar, dtype: DataType) -> Any:
    if isinstance(dtype, TimeType) and dtype.root is not Root.TIME:
        per_milli = _UNITS_OF_MILLI[scalar.type.unit]
        millis, rest = divmod(scalar.value, per_milli)
        return millis, rest * (1_000_000 // per_milli)
    return scalar.value if dtype.root in (Root.DATE, Root.TIME) else scalar.as_py()


def partition_stats(
    partitions: pa.Array | pa.ChunkedArray, counts: pa.Array | np.ndarray | None, types: Sequence[DataType]
) -> SimpleStats:
    """The statistics of a manifest's partitions, for its manifest list.

    Args:
        partitions: Encoded partition rows, unique or not.
        counts: How many records have each partition; one each if None.
        types: The types of the partition columns.

    Raises:
        FormatError: if the bytes are not rows of these types.
        InvalidInputError: if the number of counts is wrong.
    """
    if not types:
        return SimpleStats(EMPTY_ROW, EMPTY_ROW, ())
    rows = _one_chunk(partitions)
    records = np.ones(len(rows), np.int64) if counts is None else np.asarray(counts, np.int64)
    if len(records) != len(rows):
        raise InvalidInputError("each partition needs one count", partitions=len(rows), counts=len(records))
    nullable = _nullable(types)
    columns = []
    for values, dtype in zip(decode_rows(rows, nullable), nullable, strict=True):
        stats = collect(values, dtype, FULL)
        nulls = int(records[values.is_null().to_numpy(zero_copy_only=False)].sum())
        columns.append(ColumnStats(stats.min, stats.max, nulls))
    return _encode(columns, nullable)


# ---------------------------------------------------------------------------------------------------------------------
# One file
# ---------------------------------------------------------------------------------------------------------------------


def encode_stats(
    columns: Sequence[ColumnStats], fields: Sequence[Field], *, dense: bool
) -> tuple[SimpleStats, tuple[str, ...] | None]:
    """The stored statistics of a file, and the names of the columns they cover (None for all).

    Args:
        columns: The statistics of each field.
        fields: The columns, in schema order.
        dense: Whether to leave out columns without statistics. Key statistics are never dense.

    Raises:
        InvalidInputError: if the numbers of statistics and fields differ, or a bound does not fit its type.
    """
    if len(columns) != len(fields):
        raise InvalidInputError("each column needs its statistics", columns=len(fields), statistics=len(columns))
    kept = [(stats, field) for stats, field in zip(columns, fields, strict=True) if not (dense and stats.absent)]
    names = None if len(kept) == len(fields) else tuple(field.name for _, field in kept)
    return _encode([stats for stats, _ in kept], _nullable([field.type for _, field in kept])), names


def _encode(columns: Sequence[ColumnStats], nullable: Sequence[DataType]) -> SimpleStats:
    return SimpleStats(
        encode_row([stats.min for stats in columns], nullable),
        encode_row([stats.max for stats in columns], nullable),
        tuple(stats.null_count for stats in columns),
    )


def decode_stats(
    stats: SimpleStats, fields: Sequence[Field], value_stats_cols: Sequence[str] | None
) -> dict[str, ColumnStats]:
    """The statistics of each field of one file; `UNKNOWN` for fields that are not covered.

    Args:
        stats: The stored statistics.
        fields: The columns of the schema that the file was written with.
        value_stats_cols: The covered columns, None for all.

    Raises:
        FormatError: if names, rows and counts contradict each other or the fields.
    """
    if value_stats_cols is None and stats.min_values == stats.max_values == EMPTY_ROW:
        value_stats_cols = ()
    covered = _covered_fields(fields, value_stats_cols)
    nullable = _nullable([field.type for field in covered])
    minima, maxima = decode_row(stats.min_values, nullable), decode_row(stats.max_values, nullable)
    nulls: Sequence[int | None] = stats.null_counts or (None,) * len(covered)
    if len(nulls) != len(covered):
        raise _bad_counts(len(covered))
    # Paimon 0.9 writes -1 if Parquet has no statistics of a column.
    nulls = [None if count is not None and count < 0 else count for count in nulls]
    found = dict.fromkeys((field.name for field in fields), UNKNOWN)
    for field, low, high, count in zip(covered, minima, maxima, nulls, strict=True):
        found[field.name] = ColumnStats(*_drop_wrong_bounds(low, high, field.type), count)
    return found


_PADDED: Final = r"(?s)[\x00-\x20].*"
"""In ORC files of Java the bounds of CHAR columns are padded with blanks, but the values are not. So a minimum is only
valid up to its first character that does not sort after a blank. A padded maximum is larger and still a bound."""


def _drop_wrong_bounds(low: Any, high: Any, dtype: DataType) -> tuple[Any, Any]:
    if not is_comparable(dtype):
        return None, None
    if dtype.root is Root.CHAR and low is not None:
        low = re.sub(_PADDED, "", low)
    if dtype.root in _FLOATS and any(bound is not None and math.isnan(bound) for bound in (low, high)):
        return None, None
    return (None, None) if low is not None and high is not None and low > high else (low, high)


def _covered_fields(fields: Sequence[Field], names: Sequence[str] | None) -> list[Field]:
    if names is None:
        return list(fields)
    by_name = {field.name: field for field in fields}
    for name in names:
        if name not in by_name:
            raise FormatError("statistics cover a column that is not in the schema", column=name)
    if len(set(names)) != len(names):
        raise FormatError("statistics cover a column twice", columns=", ".join(names))
    return [by_name[name] for name in names]


def _nullable(types: Sequence[DataType]) -> list[DataType]:
    return [with_nullable(dtype, True) for dtype in types]


def _bad_counts(columns: int) -> FormatError:
    return FormatError(
        "number of null counts in the statistics differs from the number of columns",
        hint="run check() on the table; the file can still be read, but not pruned",
        columns=columns,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Many files
# ---------------------------------------------------------------------------------------------------------------------


def decode_bounds(
    min_values: pa.Array | pa.ChunkedArray,
    max_values: pa.Array | pa.ChunkedArray,
    null_counts: pa.Array | pa.ChunkedArray,
    value_stats_cols: pa.Array | pa.ChunkedArray | None,
    fields: Sequence[Field],
    wanted: Sequence[str],
) -> dict[str, Bounds]:
    """The statistics of some columns over many files of one schema, in the order of the files.

    Files are grouped by the columns that their statistics cover, and each group is decoded at once. Only the wanted
    columns are decoded, so that damage in others does not matter.

    Args:
        min_values: Encoded rows of the minima, one per file.
        max_values: Encoded rows of the maxima.
        null_counts: Lists of counts; a null or empty list is unknown.
        value_stats_cols: Lists of names; a null list covers all fields. None if all lists are null (key statistics).
        fields: The columns of the schema that the files were written with.
        wanted: The names to decode.

    Raises:
        FormatError: if names, rows and counts contradict each other or the fields.
        InvalidInputError: if a wanted name is not a field.
    """
    by_name = {field.name: field for field in fields}
    for name in wanted:
        if name not in by_name:
            raise InvalidInputError("column does not exist", column=name, columns=", ".join(by_name))
    minima, maxima, counts = _one_chunk(min_values), _one_chunk(max_values), _one_chunk(null_counts)
    groups = _groups(minima, maxima, value_stats_cols)
    pieces = [
        _group_bounds(
            _take(minima, rows), _take(maxima, rows), _take(counts, rows), _covered_fields(fields, names), wanted
        )
        for names, rows in groups
    ]
    if not pieces:
        return {name: unknown_bounds(by_name[name].type, 0) for name in wanted}
    order = np.argsort(np.concatenate([rows for _, rows in groups]), kind="stable")
    found = {}
    for name in wanted:
        dtype = by_name[name].type
        parts = [
            piece[name] if name in piece else unknown_bounds(dtype, len(rows))
            for piece, (_, rows) in zip(pieces, groups, strict=True)
        ]
        found[name] = Bounds(*(_take(pa.concat_arrays(arrays), order) for arrays in zip(*parts, strict=True)))
    return found


def unknown_bounds(dtype: DataType, length: int) -> Bounds:
    """Bounds of `length` files without statistics."""
    arrow = to_arrow(dtype)
    return Bounds(pa.nulls(length, arrow), pa.nulls(length, arrow), pa.nulls(length, pa.int64()))


_Group = tuple[tuple[str, ...] | None, np.ndarray]


def _groups(minima: pa.Array, maxima: pa.Array, value_stats_cols: pa.Array | pa.ChunkedArray | None) -> list[_Group]:
    """Group files by the columns that their statistics cover: the columns, and the files' row numbers."""
    files = len(minima)
    empty = pc.and_(pc.equal(minima, _like(EMPTY_ROW, minima)), pc.equal(maxima, _like(EMPTY_ROW, maxima)))
    empty = pc.fill_null(empty, False).to_numpy(zero_copy_only=False)
    groups: list[_Group] = []
    if value_stats_cols is None:
        everything = np.ones(files, bool)
    else:
        layouts = _one_chunk(value_stats_cols)
        everything = layouts.is_null().to_numpy(zero_copy_only=False)
        for first, rows in _equal_lists(layouts, np.flatnonzero(~everything)):
            groups.append((tuple(layouts[first].as_py()), rows))
    # Empty rows that claim to cover all columns come from writers without statistics, so nothing is known.
    groups += [((), np.flatnonzero(everything & empty)), (None, np.flatnonzero(everything & ~empty))]
    return [(names, rows) for names, rows in groups if len(rows)]


def _equal_lists(lists: pa.Array, rows: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Group rows of a list array by equal lists: the first row of each group, and all its rows."""
    if not len(rows):
        return []
    chosen = _take(lists, rows)
    words = pc.dictionary_encode(chosen.flatten()).indices.fill_null(-1).to_numpy().astype(np.int32)
    lengths = chosen.value_lengths().to_numpy().astype(np.int64)
    # View the codes of each list as one binary value, so that Arrow's dictionary encoding finds equal lists.
    offsets = np.concatenate(([0], np.cumsum(lengths))) * words.itemsize
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(words))]
    codes = pa.Array.from_buffers(pa.large_binary(), len(rows), buffers).dictionary_encode().indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    return [(int(rows[part[0]]), rows[part]) for part in np.split(order, starts[1:])]


def _group_bounds(
    minima: pa.Array, maxima: pa.Array, counts: pa.Array, covered: Sequence[Field], wanted: Sequence[str]
) -> dict[str, Bounds]:
    positions = {field.name: index for index, field in enumerate(covered)}
    asked = [name for name in wanted if name in positions]
    if not asked:
        return {}
    nullable = _nullable([field.type for field in covered])
    ordered = [positions[name] for name in asked if is_comparable(covered[positions[name]].type)]
    low = dict(zip(ordered, decode_rows(minima, nullable, columns=ordered), strict=True))
    high = dict(zip(ordered, decode_rows(maxima, nullable, columns=ordered), strict=True))
    nulls = _null_counts(counts, len(covered), [positions[name] for name in asked])
    found = {}
    for name in asked:
        index = positions[name]
        dtype = covered[index].type
        if index in low:
            found[name] = Bounds(*_drop_wrong_bound_arrays(low[index], high[index], dtype), nulls[index])
        else:
            found[name] = unknown_bounds(dtype, len(minima))._replace(null_count=nulls[index])
    return found


def _null_counts(counts: pa.Array, columns: int, positions: Sequence[int]) -> Mapping[int, pa.Array]:
    lengths = pc.fill_null(counts.value_lengths(), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    flat = counts.flatten()
    if np.any((lengths != 0) & (lengths != columns)):
        raise _bad_counts(columns)
    if pc.any(pc.less(flat, 0)).as_py():  # Paimon 0.9, see `decode_stats`
        flat = pc.if_else(pc.less(flat, 0), pa.scalar(None, flat.type), flat)
    starts = np.cumsum(lengths) - lengths
    unknown = lengths == 0
    return {index: flat.take(pa.array(starts + index, mask=unknown)).cast(pa.int64()) for index in positions}


def _drop_wrong_bound_arrays(low: pa.Array, high: pa.Array, dtype: DataType) -> tuple[pa.Array, pa.Array]:
    if dtype.root is Root.CHAR:
        low = pc.replace_substring_regex(low, _PADDED, "")
    wrong = pc.fill_null(pc.greater(low, high), False)
    if dtype.root in _FLOATS:
        for bound in (low, high):
            wrong = pc.or_(wrong, pc.fill_null(pc.is_nan(bound), False))
    if not pc.any(wrong).as_py():
        return low, high
    nothing = pa.scalar(None, low.type)
    return pc.if_else(wrong, nothing, low), pc.if_else(wrong, nothing, high)


def _like(value: bytes, array: pa.Array) -> pa.Scalar:
    return pa.scalar(value, array.type)


def _take(array: pa.Array, rows: np.ndarray) -> pa.Array:
    in_place = len(rows) == len(array) and bool(np.all(rows == np.arange(len(rows))))
    return array if in_place else array.take(pa.array(rows))


def _one_chunk(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
