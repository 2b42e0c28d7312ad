"""What the metadata of a plan says exactly of the least and the greatest value of a column.

A file answers by its statistics where these are certain to be values of live rows; a partition column answers by the
partition. What cannot answer is left to be read, with a bound that no value of it is beyond, if one is known. These
statistics are bounds and not values, so they answer nothing:

* of texts and bytes, which may be cut to a prefix;
* of floating-point columns the maxima: NaN is greater than every number, but many writers leave it out;
* of timestamps in ORC files, which some writers cut to milliseconds;
* of columns that had another type when the file was written, except integers;
* of files with a deletion vector, whose bounds may belong to deleted rows.

Invariant: the least of `known` and of what the rows of `unread` hold is the least value of all rows; likewise the
greatest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.files.options import format_of
from tidelake.ops.scan.split import Split, SplitMode
from tidelake.spec.casts.casts import same_type
from tidelake.spec.data_file import DataFile
from tidelake.spec.rows.binary_row import decode_rows
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.stats.column_stats import is_comparable
from tidelake.spec.stats.stats_evolution import bounds_under
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.data_types import DataType, Root, with_nullable
from tidelake.store.table_store import TableStore

__all__ = ["Unread", "Values", "metadata_columns", "plan_extremes"]

_CUT = frozenset({Root.CHAR, Root.VARCHAR, Root.BINARY, Root.VARBINARY})
_FLOATS = frozenset({Root.FLOAT, Root.DOUBLE})
_TIMESTAMPS = frozenset({Root.TIMESTAMP, Root.TIMESTAMP_LTZ})
_INTEGERS = frozenset({Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT})


@dataclass(frozen=True, slots=True)
class Unread:
    """Files whose rows must be looked at, and a bound that no value of them is beyond (an array of one, or of none)."""

    split: Split
    bound: pa.Array


@dataclass(frozen=True, slots=True)
class Values:
    """What metadata knows of one end of a column: values that rows have, and what has to be read besides."""

    known: pa.Array
    unread: tuple[Unread, ...]

    @property
    def is_exact(self) -> bool:
        """Whether nothing has to be read."""
        return not self.unread


def plan_extremes(
    store: TableStore, splits: Sequence[Split], schema: Schema, columns: Iterable[str], *, greatest: bool
) -> dict[str, Values]:
    """What metadata knows of the least (or `greatest`) value of columns in all rows of splits.

    Raises:
        FormatError: the statistics of a file contradict its schema.
    """
    by_file = _file_ends(store, splits, schema, [name for name in columns if name not in schema.partition_keys])
    return {
        name: _partition_ends(splits, schema, name)
        if name in schema.partition_keys
        else _column_ends(splits, schema.field(name).type, by_file[name], greatest=greatest)
        for name in columns
    }


def metadata_columns(
    store: TableStore, splits: Sequence[Split], schema: Schema, columns: Iterable[str]
) -> tuple[list[str], list[str]]:
    """The columns whose minimum, and those whose maximum, metadata answers without reading rows."""
    ordered = [name for name in columns if is_comparable(schema.field(name).type)]
    valued = [name for name in ordered if name not in schema.partition_keys]
    by_file = _file_ends(store, splits, schema, valued)
    files = _stored_files(splits)
    settled = all(_has_rows_as_stored(split) for split in splits)

    def is_exact(name: str, *, greatest: bool) -> bool:
        if name in schema.partition_keys:
            return _partition_ends(splits, schema, name).is_exact
        found = by_file[name]
        certain = _are_certain(files, schema.field(name).type, found, greatest=greatest)
        return settled and bool((certain | found.empty).all())

    low, high = ([name for name in ordered if is_exact(name, greatest=greatest)] for greatest in (False, True))
    return low, high


# ------------------------------------------------------------------------------------------------ partitions


def _partition_ends(splits: Sequence[Split], schema: Schema, name: str) -> Values:
    """A partition has one value, which counts if one of its rows is certain to be live."""
    dtype = to_arrow(schema.field(name).type)
    if not splits:
        return Values(pa.array([], dtype), ())
    number = schema.partition_keys.index(name)
    types = [with_nullable(each, True) for each in schema.partition_types]
    rows = list(dict.fromkeys(split.partition for split in splits))
    values = decode_rows(pa.array(rows, pa.large_binary()), types)[number].cast(dtype)
    place = {row: number for number, row in enumerate(rows)}
    known: set[int] = set()
    doubtful: list[Split] = []
    for split in splits:
        live = split.live_row_count if _has_rows_as_stored(split) else None
        if live is None:
            doubtful.append(split)
        elif live:
            known.add(place[split.partition])
    unread = [
        Unread(split, values.slice(place[split.partition], 1))
        for split in doubtful
        if place[split.partition] not in known and values[place[split.partition]].is_valid
    ]
    return Values(values.take(pa.array(sorted(known), pa.int64())).drop_null(), tuple(unread))


# ------------------------------------------------------------------------------------------------ statistics


@dataclass(frozen=True, slots=True)
class _Ends:
    """The statistics of one column over the files that rows are read from as they are stored."""

    low: pa.Array
    high: pa.Array
    empty: np.ndarray
    """Whether the column has only nulls in the file."""
    same_type: np.ndarray
    """Whether values are read as they were written."""


def _has_rows_as_stored(split: Split) -> bool:
    return split.raw_convertible and split.mode is SplitMode.STATE and split.branch is None and not split.staged


def _stored_files(splits: Sequence[Split]) -> list[tuple[Split, DataFile]]:
    return [(split, file) for split in splits if _has_rows_as_stored(split) for file in split.files]


def _file_ends(store: TableStore, splits: Sequence[Split], schema: Schema, names: Sequence[str]) -> Mapping[str, _Ends]:
    """The statistics of columns, in the order of `_stored_files`."""
    files = [file for _, file in _stored_files(splits)]
    by_schema: defaultdict[int, list[int]] = defaultdict(list)
    for number, file in enumerate(files):
        by_schema[file.schema_id].append(number)
    parts: defaultdict[str, list[_Ends]] = defaultdict(list)
    order: list[int] = []
    for schema_id, numbers in by_schema.items():
        order += numbers
        written = store.schemas.get(schema_id)
        found = _bounds([files[number] for number in numbers], written, schema, names)
        for name, ends in found.items():
            parts[name].append(ends)
    back = pa.array(np.argsort(np.array(order, np.int64), kind="stable"))
    return {name: _join(parts[name], back, to_arrow(schema.field(name).type)) for name in names}


def _bounds(files: Sequence[DataFile], written: Schema, schema: Schema, names: Sequence[str]) -> dict[str, _Ends]:
    counts = pa.array([file.row_count for file in files], pa.int64())
    found = bounds_under(
        pa.array([file.value_stats.min_values for file in files], pa.large_binary()),
        pa.array([file.value_stats.max_values for file in files], pa.large_binary()),
        pa.array([file.value_stats.null_counts for file in files], pa.list_(pa.int64())),
        pa.array([file.value_stats_cols for file in files], pa.list_(pa.string())),
        counts,
        file_fields=written.fields,
        read_fields=schema.fields,
        wanted=names,
    )
    stored = {field.id: field.type for field in written.fields}
    ends = {}
    for name, each in found.items():
        field = schema.field(name)
        empty = pc.fill_null(pc.equal(each.null_count, counts), False).to_numpy(zero_copy_only=False)
        same = field.id in stored and _reads_as_written(stored[field.id], field.type)
        ends[name] = _Ends(each.min, each.max, empty, np.full(len(files), same))
    return ends


def _reads_as_written(stored: DataType, dtype: DataType) -> bool:
    return same_type(stored, dtype) or {stored.root, dtype.root} <= _INTEGERS


def _join(parts: Sequence[_Ends], order: pa.Array, dtype: pa.DataType) -> _Ends:
    if not parts:
        nothing = np.zeros(0, bool)
        return _Ends(pa.array([], dtype), pa.array([], dtype), nothing, nothing)
    low, high = (pa.concat_arrays([getattr(part, end) for part in parts]).take(order) for end in ("low", "high"))
    places = order.to_numpy()
    return _Ends(
        low,
        high,
        np.concatenate([part.empty for part in parts])[places],
        np.concatenate([part.same_type for part in parts])[places],
    )


def _column_ends(splits: Sequence[Split], dtype: DataType, ends: _Ends, *, greatest: bool) -> Values:
    stored = _stored_files(splits)
    bounds = ends.high if greatest else ends.low
    is_known = _are_known(dtype, bounds, greatest=greatest)
    certain = _are_certain(stored, dtype, ends, greatest=greatest)
    unread = [
        Unread(stored[number][0].with_files((stored[number][1],)), bounds.slice(number, int(is_known[number])))
        for number in np.flatnonzero(~(certain | ends.empty)).tolist()
    ]
    unread += [Unread(split, bounds.slice(0, 0)) for split in splits if not _has_rows_as_stored(split)]
    return Values(bounds.filter(pa.array(certain & ~ends.empty)), tuple(unread))


def _are_known(dtype: DataType, bounds: pa.Array, *, greatest: bool) -> np.ndarray:
    """Which files have a bound that no value is beyond."""
    known: np.ndarray = bounds.is_valid().to_numpy(zero_copy_only=False)
    if dtype.root in _FLOATS:
        is_nan = pc.fill_null(pc.is_nan(bounds), False).to_numpy(zero_copy_only=False)
        known = known & ~is_nan & (not greatest)
    return known


def _are_certain(
    files: Sequence[tuple[Split, DataFile]], dtype: DataType, ends: _Ends, *, greatest: bool
) -> np.ndarray:
    """Which files have a bound that is the value of a live row."""
    if dtype.root in _CUT:
        return np.zeros(len(files), bool)
    certain: np.ndarray = _are_known(dtype, ends.high if greatest else ends.low, greatest=greatest) & ends.same_type
    certain &= np.array([file.file_name not in split.vectors for split, file in files], dtype=bool)
    if dtype.root in _TIMESTAMPS:
        certain &= np.array([format_of(file.file_name) != "orc" for _, file in files], dtype=bool)
    return certain
