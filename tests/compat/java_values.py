"""Values of every type as both implementations give them, in one form to compare."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from oracle.types import Variant
from tidelake.spec.types.arrow_types import row_to_arrow
from tidelake.spec.types.data_types import Field

UTC = dt.UTC


EPOCH = dt.datetime(1970, 1, 1)


BIG = Decimal(10**38 - 1)


MOMENTS = [
    dt.datetime(1969, 12, 31, 23, 59, 58, 5000),
    dt.datetime(1900, 2, 3, 4, 5, 6, 7000),
    dt.datetime(2024, 2, 29),
]


FINE = [dt.datetime(1969, 12, 31, 23, 59, 58, 123456), dt.datetime(1900, 2, 3, 4, 5, 6, 7), dt.datetime(2024, 2, 29)]


FAR = [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)]


LATE = [dt.datetime(2000, 1, 1, 0, 0, 0, 123456), dt.datetime(2024, 2, 29)]


# type -> values, one per row. Nulls are added to every column.
VALUES: dict[str, list[Any]] = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, 127],
    "SMALLINT": [-(2**15), 2**15 - 1],
    "INT": [-(2**31), 2**31 - 1],
    "BIGINT": [-(2**63), 2**63 - 1],
    "FLOAT": [math.nan, math.inf, -0.0, 1.5],
    "DOUBLE": [math.nan, -math.inf, -0.0, 5e-324],
    "CHAR(5)": ["ab", "éééé", "abcde"],
    "VARCHAR(9)": ["", "abc", "日本語"],
    "STRING": ["", "x" * 5000, "\x00\U0001f600"],
    "BINARY(3)": [b"abc", b"\x00\xff\x7f"],
    "BYTES": [b"", b"\xff" * 5000],
    "DECIMAL(9, 2)": [Decimal("-9999999.99"), Decimal("0.01")],
    "DECIMAL(18, 0)": [Decimal(10**18 - 1), Decimal(-5)],
    "DECIMAL(19, 4)": [Decimal("-123456789012345.6789"), Decimal("0.0001")],
    "DECIMAL(38, 0)": [BIG, BIG.copy_negate(), Decimal(0), Decimal(-1), Decimal(255)],
    "DECIMAL(38, 38)": [Decimal("0." + "9" * 38), Decimal(0)],
    "DATE": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)],
    "TIME(3)": [dt.time(0), dt.time(23, 59, 59, 999000)],
    "TIMESTAMP(0)": [dt.datetime(1950, 1, 1), dt.datetime(2024, 2, 29, 1, 2, 3)],
    "TIMESTAMP(3)": MOMENTS,
    "TIMESTAMP(6)": LATE,
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": [value.replace(tzinfo=UTC) for value in MOMENTS],
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": [value.replace(tzinfo=UTC) for value in LATE],
    "ARRAY<INT>": [[], [1, None, -1]],
    "ARRAY<STRING NOT NULL>": [["", "é"]],
    "ARRAY<ARRAY<DECIMAL(20, 3)>>": [[[Decimal("1.500")], None, []]],
    "MAP<STRING, INT>": [{}, {"a": 1, "b": None}],
    "MAP<INT, ROW<x INT, y STRING>>": [{1: {"x": 1, "y": "z"}, 2: None}],
    "MULTISET<STRING>": [{"a": 2, "b": 1}],
    "ROW<a INT, b ROW<c STRING, d ARRAY<MAP<STRING, DOUBLE>>>>": [
        {"a": 1, "b": {"c": "x", "d": [{"k": 1.5}, None]}},
        {"a": None, "b": None},
    ],
}


ONLY_PARQUET: dict[str, list[Any]] = {
    "TIMESTAMP(7)": [-100, 1_700_000_000_000_000_100, -(10**18) - 100],
    "TIMESTAMP(9)": [-1, 1, -(10**18) - 1, 2**62, -(2**62)],
    "TIMESTAMP(9) WITH LOCAL TIME ZONE": [-1, 86_400_000_000_000, -86_400_000_000_000],
    "ARRAY<TIMESTAMP(9)>": [[-1, None, 5]],
    "ROW<t TIMESTAMP(9), m MAP<STRING, TIMESTAMP(9)>>": [{"t": -1, "m": {"a": -(10**18) - 1}}],
    "VARIANT": [Variant(b"\x0c\x01", b"\x01\x00\x00")],
}


NOT_ORC: dict[str, list[Any]] = {
    "VECTOR<FLOAT, 3>": [[1.0, -2.5, 0.0]],
    "TIMESTAMP(6)": [*FINE, *FAR],
    "TIMESTAMP(3)": [*MOMENTS, FAR[0]],
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": [value.replace(tzinfo=UTC) for value in (*FINE, *FAR)],
}


def values_of(kind: str) -> dict[str, list[Any]]:
    if kind == "parquet":
        return {**VALUES, **NOT_ORC, **ONLY_PARQUET}
    return {**VALUES, **NOT_ORC} if kind == "avro" else VALUES


def table_of(kind: str) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Columns and rows: each type is a column, its values and a null fill the rows."""
    values = values_of(kind)
    columns = {"id": "INT NOT NULL", **{f"c{index}": dtype for index, dtype in enumerate(values)}}
    count = max(map(len, values.values())) + 1
    rows = []
    for number in range(count):
        row: dict[str, Any] = {"id": number}
        for index, column in enumerate(values.values()):
            row[f"c{index}"] = column[number] if number < len(column) else None
        rows.append(row)
    return columns, rows


def plain(value: Any, arrow_type: pa.DataType, *, fine: bool = False) -> Any:
    """A value as the reference driver shows it: nanoseconds as a number, maps as dictionaries."""
    if value is None or (isinstance(value, pa.Scalar) and not value.is_valid):
        return None
    kinds = pa.types
    if kinds.is_timestamp(arrow_type):
        if arrow_type.unit == "ns":
            return value.value
        micros = value.value * {"s": 1_000_000, "ms": 1000, "us": 1}[arrow_type.unit]
        moment = EPOCH + dt.timedelta(microseconds=micros)
        return moment.replace(tzinfo=UTC) if arrow_type.tz else moment
    if kinds.is_map(arrow_type):
        entries = value.values
        keys, items = entries.field(0), entries.field(1)
        return {plain(keys[i], keys.type): plain(items[i], items.type) for i in range(len(entries))}
    if kinds.is_list(arrow_type) or kinds.is_fixed_size_list(arrow_type):
        return [plain(item, arrow_type.value_type) for item in value.values]
    if kinds.is_struct(arrow_type):
        members = {field.name: plain(value[field.name], field.type) for field in arrow_type}
        if list(members) == ["value", "metadata"]:
            return Variant(members["value"], members["metadata"])
        return members
    return value.as_py()


def stored(value: Any, arrow_type: pa.DataType) -> Any:
    """The opposite: a value of the driver as Arrow takes it."""
    kinds = pa.types
    if value is None:
        return None
    if kinds.is_timestamp(arrow_type):
        if isinstance(value, int):
            return value
        delta = value.replace(tzinfo=None) - EPOCH
        micros = (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
        return {"ms": micros // 1000, "us": micros, "ns": micros * 1000}[arrow_type.unit]
    if kinds.is_map(arrow_type):
        return [(stored(k, arrow_type.key_type), stored(v, arrow_type.item_type)) for k, v in value.items()]
    if kinds.is_list(arrow_type) or kinds.is_fixed_size_list(arrow_type):
        return [stored(item, arrow_type.value_type) for item in value]
    if isinstance(value, Variant):
        return {"value": value.value, "metadata": value.metadata}
    if kinds.is_struct(arrow_type):
        return {field.name: stored(value[field.name], field.type) for field in arrow_type}
    return value


def to_batch(rows: Sequence[dict[str, Any]], fields: Sequence[Field]) -> pa.RecordBatch:
    schema = row_to_arrow(fields)
    columns = [pa.array([stored(row[field.name], field.type) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def to_rows(batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [
        {field.name: plain(batch.column(field.name)[row], field.type) for field in batch.schema}
        for batch in batches
        for row in range(batch.num_rows)
    ]


def same(one: Any, other: Any) -> bool:
    """Equality in which NaN equals itself and the zeros differ."""
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def assert_same(found: Sequence[dict[str, Any]], expected: Sequence[dict[str, Any]], columns: dict[str, str]) -> None:
    assert [row["id"] for row in found] == [row["id"] for row in expected]
    for one, other in zip(found, expected, strict=True):
        for name in one:
            assert same(one[name], other[name]), (columns.get(name), one[name], other[name])
