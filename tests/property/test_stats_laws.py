"""Laws of statistics: bounds contain every value, the fast path equals the slow twin, pruning never loses a row."""

from __future__ import annotations

import contextlib
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tidelake.errors import FormatError
from tidelake.spec.rows.binary_row_scalar import encode_row
from tidelake.spec.stats.column_stats import (
    ColumnStats,
    SimpleStats,
    collect,
    decode_bounds,
    decode_stats,
    encode_stats,
)
from tidelake.spec.stats.column_stats import partition_stats as fast_partition_stats
from tidelake.spec.stats.stats_evolution import bounds_under, widens
from tidelake.spec.stats.stats_modes import (
    COUNTS,
    FULL,
    NONE,
    StatsKind,
    StatsMode,
    truncate_max_bytes,
    truncate_max_text,
)
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.data_types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TINYINT,
    DataType,
    DecimalType,
    Field,
    Root,
    TimeType,
)
from tidelake.testing.stats import (
    slow_bounds_under,
    slow_collect,
    slow_decode,
    slow_partition_stats,
    slow_truncate_max,
)

FAST = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])

# Few different characters, so that prefixes are shared, and all the ones where raising is hard.
TEXTS = st.text(
    st.sampled_from(["a", "b", "\x7f", "é", "\ud7ff", "\ue000", "\uffff", "\U0001f600", "\U0010ffff"]), max_size=6
)
BINARIES = st.lists(st.sampled_from([0, 1, 0x7F, 0x80, 0xFE, 0xFF]), max_size=6).map(bytes)
DECIMALS = {precision: st.decimals(-(10 ** (precision - 2)) + 1, 10 ** (precision - 2) - 1, places=2, allow_nan=False)
            for precision in (9, 20)}  # fmt: skip
MILLIS = st.integers(-(2**40), 2**40)

VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    BOOLEAN: st.booleans(),
    TINYINT: st.integers(-128, 127),
    SMALLINT: st.integers(-(2**15), 2**15 - 1),
    INT: st.integers(-(2**31), 2**31 - 1),
    BIGINT: st.integers(-(2**63), 2**63 - 1),
    FLOAT: st.floats(width=32),
    DOUBLE: st.floats() | st.sampled_from([0.0, -0.0, math.nan]),
    DATE: st.integers(-(2**31), 2**31 - 1),
    STRING: TEXTS,
    BYTES: BINARIES,
    DecimalType(precision=9, scale=2): DECIMALS[9],
    DecimalType(precision=20, scale=2): DECIMALS[20],
    TimeType(Root.TIME, precision=3): st.integers(0, 86_399_999),
    TimeType(Root.TIMESTAMP, precision=3): MILLIS.map(lambda millis: (millis, 0)),
    TimeType(Root.TIMESTAMP, precision=6): st.tuples(MILLIS, st.integers(0, 999).map(lambda micros: micros * 1000)),
    TimeType(Root.TIMESTAMP_LTZ, precision=9): st.tuples(MILLIS, st.integers(0, 999_999)),
}
TYPES = st.sampled_from(list(VALUES))
MODES = st.sampled_from([NONE, COUNTS, FULL]) | st.integers(1, 5).map(lambda n: StatsMode(StatsKind.TRUNCATE, n))


def to_array(values: list[Any], dtype: DataType) -> pa.Array:
    """Values of the internal domain as an Arrow array of the canonical type."""
    arrow = to_arrow(dtype)
    if isinstance(dtype, TimeType) and dtype.root is not Root.TIME:
        per_milli = {"ms": 1, "us": 1_000, "ns": 1_000_000}[arrow.unit]
        values = [None if v is None else v[0] * per_milli + v[1] * per_milli // 1_000_000 for v in values]
        return pa.array(values, pa.int64()).cast(arrow)
    if dtype.root in (Root.DATE, Root.TIME):
        return pa.array(values, pa.int32()).cast(arrow)
    return pa.array(values, arrow)


def canonical(value: Any) -> Any:
    """Equal for equal bytes: tells the zeros apart and decimals of another exponent not."""
    if isinstance(value, float):
        return value, math.copysign(1, value)
    return value.normalize() if isinstance(value, Decimal) else value


def same(left: ColumnStats, right: ColumnStats) -> bool:
    return [canonical(v) for v in (left.min, left.max, left.null_count)] == [
        canonical(v) for v in (right.min, right.max, right.null_count)
    ]


def may_match(stats: ColumnStats, rows: int, low: Any, high: Any) -> bool:
    """Whether a file of `rows` rows could hold a value between `low` and `high`."""
    if stats.null_count is not None and stats.null_count == rows:
        return False
    below = stats.max is not None and stats.max < low
    above = stats.min is not None and stats.min > high
    return not (below or above)


@st.composite
def columns(draw: st.DrawFn) -> tuple[DataType, list[Any], StatsMode]:
    dtype = draw(TYPES)
    return dtype, draw(st.lists(st.none() | VALUES[dtype], max_size=8)), draw(MODES)


@FAST
@given(columns())
def test_collecting_equals_the_slow_twin(column: tuple[DataType, list[Any], StatsMode]) -> None:
    dtype, values, mode = column
    assert same(collect(to_array(values, dtype), dtype, mode), slow_collect(values, dtype, mode))


@FAST
@given(columns())
def test_bounds_contain_every_value(column: tuple[DataType, list[Any], StatsMode]) -> None:
    dtype, values, mode = column
    stats = collect(to_array(values, dtype), dtype, mode)
    for value in values:
        if value is not None and stats.min is not None:
            assert stats.min <= value <= stats.max
    assert (stats.min is None) == (stats.max is None)
    assert stats.null_count in (None, values.count(None))


@FAST
@given(TEXTS, st.integers(1, 6), TEXTS)
def test_a_raised_text_is_short_and_after_everything_with_its_prefix(value: str, length: int, tail: str) -> None:
    raised = truncate_max_text(value, length)
    assert raised == slow_truncate_max(value, length)
    if raised is not None:
        assert len(raised) <= length
        assert raised.encode("utf-8") >= value.encode("utf-8")
        if len(value) > length:
            assert raised.encode("utf-8") > (value[:length] + tail).encode("utf-8")


@FAST
@given(BINARIES, st.integers(1, 6), BINARIES)
def test_raised_bytes_are_short_and_after_everything_with_their_prefix(value: bytes, length: int, tail: bytes) -> None:
    raised = truncate_max_bytes(value, length)
    assert raised == slow_truncate_max(value, length)
    if raised is not None:
        assert len(raised) <= length
        assert raised > value[:length] + tail if len(value) > length else raised == value


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Field], list[list[list[Any]]], list[list[StatsMode]], list[bool]]:
    """Fields, and per file the values of each column, the mode of each column, and whether it is dense."""
    types = draw(st.lists(TYPES, min_size=1, max_size=4))
    fields = [Field(index, f"c{index}", dtype) for index, dtype in enumerate(types)]
    files, modes, dense = [], [], []
    for _ in range(draw(st.integers(0, 5))):
        rows = draw(st.integers(0, 4))
        files.append([draw(st.lists(st.none() | VALUES[t], min_size=rows, max_size=rows)) for t in types])
        modes.append([draw(MODES) for _ in types])
        dense.append(draw(st.booleans()))
    return fields, files, modes, dense


def stored(table: Any) -> list[tuple[SimpleStats, tuple[str, ...] | None]]:
    fields, files, modes, dense = table
    return [
        encode_stats(
            [collect(to_array(v, f.type), f.type, m) for v, f, m in zip(file, fields, mode, strict=True)],
            fields,
            dense=is_dense,
        )
        for file, mode, is_dense in zip(files, modes, dense, strict=True)
    ]


def arrays(files: list[tuple[SimpleStats, tuple[str, ...] | None]]) -> list[pa.Array]:
    return [
        pa.array([stats.min_values for stats, _ in files], pa.large_binary()),
        pa.array([stats.max_values for stats, _ in files], pa.large_binary()),
        pa.array([stats.null_counts for stats, _ in files], pa.large_list(pa.int64())),
        pa.array([names for _, names in files], pa.large_list(pa.string())),
    ]


@FAST
@given(tables())
def test_reading_many_files_equals_reading_each_with_the_slow_twin(table: Any) -> None:
    fields = table[0]
    files = stored(table)
    found = decode_bounds(*arrays(files), fields, [field.name for field in fields])
    slow = [slow_decode(stats, fields, names) for stats, names in files]
    assert [decode_stats(stats, fields, names) for stats, names in files] == slow
    for field in fields:
        expected = [each[field.name] for each in slow]
        assert found[field.name].min.equals(to_array([stats.min for stats in expected], field.type))
        assert found[field.name].max.equals(to_array([stats.max for stats in expected], field.type))
        assert found[field.name].null_count.to_pylist() == [stats.null_count for stats in expected]


@FAST
@given(tables(), st.data())
def test_pruning_by_stored_bounds_never_loses_a_row(table: Any, data: st.DataObject) -> None:
    fields, files, _, _ = table
    index = data.draw(st.integers(0, len(fields) - 1))
    field = fields[index]
    low, high = data.draw(VALUES[field.type]), data.draw(VALUES[field.type])
    assume(low == low and high == high)
    for (stats, names), file in zip(stored(table), files, strict=True):
        decoded = decode_stats(stats, fields, names)[field.name]
        if any(value is not None and low <= value <= high for value in file[index]):
            assert may_match(decoded, len(file[index]), low, high)


WIDENINGS = [
    (source, target)
    for source in (TINYINT, SMALLINT, INT, BIGINT, FLOAT, DecimalType(precision=9, scale=2))
    for target in (
        SMALLINT,
        INT,
        BIGINT,
        FLOAT,
        DOUBLE,
        STRING,
        DecimalType(precision=9, scale=2),
        DecimalType(precision=22, scale=3),
        DecimalType(precision=10, scale=0),
    )
]


@FAST
@given(st.sampled_from(WIDENINGS), st.data())
def test_bounds_seen_through_a_newer_schema_still_contain_every_value(
    change: tuple[DataType, DataType], data: st.DataObject
) -> None:
    source, target = change
    values = data.draw(st.lists(st.none() | VALUES[source], max_size=6))
    old = [Field(0, "old", source), Field(1, "gone", INT)]
    new = [Field(0, "new", target), Field(7, "added", STRING)]
    columns = [collect(to_array(values, source), source, FULL), ColumnStats(1, 2, 0)]
    files = [encode_stats(columns, old, dense=True)]
    found = bounds_under(
        *arrays(files), pa.array([len(values)]), file_fields=old, read_fields=new, wanted=["new", "added"]
    )
    expected = slow_bounds_under(
        slow_decode(*files[0][:1], old, files[0][1]), len(values), file_fields=old, read_fields=new
    )
    assert found["new"].null_count.to_pylist() == [expected["new"].null_count]
    assert found["added"].null_count.to_pylist() == [expected["added"].null_count] == [len(values)]
    low, high = found["new"].min[0].as_py(), found["new"].max[0].as_py()
    if not widens(source, target):
        assert (low, high) == (None, None)
        return
    seen = [value for value in to_array(values, source).cast(to_arrow(target)).to_pylist() if value is not None]
    if low is not None:
        assert all(low <= value <= high for value in seen)
        # Exact: a widened bound may not be looser either.
        assert (min(seen), max(seen)) == (low, high)
    assert (low is None) == (not seen or any(value != value for value in seen))


@FAST
@given(st.lists(TYPES, max_size=3).flatmap(lambda types: st.tuples(
    st.just(types),
    st.lists(st.tuples(st.tuples(*(st.none() | VALUES[t] for t in types)), st.integers(1, 3)), max_size=6),
)))  # fmt: skip
def test_partition_statistics_equal_the_slow_twin(
    case: tuple[list[DataType], list[tuple[tuple[Any, ...], int]]],
) -> None:
    types, partitions = case
    rows = [encode_row(values, types) for values, _ in partitions]
    counts = [count for _, count in partitions]
    every = [row for row, count in zip(rows, counts, strict=True) for _ in range(count)]
    slow = slow_partition_stats(every, types)
    assert fast_partition_stats(pa.array(rows, pa.large_binary()), pa.array(counts, pa.int64()), types) == slow
    assert fast_partition_stats(pa.array(every, pa.large_binary()), None, types) == slow


@FAST
@given(tables(), st.data())
def test_corrupt_statistics_give_a_format_error_or_an_answer(table: Any, data: st.DataObject) -> None:
    fields = table[0]
    files = stored(table)
    assume(files)
    index = data.draw(st.integers(0, len(files) - 1))
    stats, names = files[index]
    bad = bytearray(stats.min_values)
    for _ in range(data.draw(st.integers(1, 3))):
        bad[data.draw(st.integers(0, len(bad) - 1))] = data.draw(st.integers(0, 255))
    broken = SimpleStats(
        bytes(bad[: data.draw(st.integers(0, len(bad)))] if data.draw(st.booleans()) else bad),
        stats.max_values,
        data.draw(st.sampled_from([stats.null_counts, (), (1,), (None,) * 9])),
    )
    files[index] = (broken, data.draw(st.sampled_from([names, None, (), ("c0",), ("nope",), ("c0", "c0")])))
    for read in (
        lambda: decode_bounds(*arrays(files), fields, [field.name for field in fields]),
        lambda: decode_stats(*files[index][:1], fields, files[index][1]),
    ):
        with contextlib.suppress(FormatError):
            read()
