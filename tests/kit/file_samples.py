"""Values of every type with nulls and extremes, and short ways to write and read one file; used by several suites."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tidelake.files.options import FileOptions
from tidelake.files.read.data_file import read_file
from tidelake.files.read.request import Delivery, RowRequest, StoredFile
from tidelake.files.write.rolling import FileWriter, WrittenFile
from tidelake.io import FileIO, MemoryFileIO
from tidelake.spec.types.arrow_types import row_to_arrow
from tidelake.spec.types.data_types import Field
from tidelake.spec.types.type_codec import number_nested, parse_type

BIG = Decimal("9" * 38)
DAY = 86_400_000
# Counts since 1970: just before it, long before it, and after it. In ORC moments before 1970 end in whole milliseconds.
MILLIS = [-1, -DAY, -62_135_596_800_000, 0, 253_402_300_799_999]
MICROS = [-1, -1_000_001, -62_135_596_800_000_000, 0, 253_402_300_799_999_999]
NANOS = [-1, -(10**18) - 1, -(2**63) + 1, 0, 2**63 - 1]
NANOS_DAY = 86_400_000_000_000

VALUES: dict[str, list[Any]] = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, 0, 127],
    "SMALLINT": [-(2**15), 2**15 - 1],
    "INT": [-(2**31), 2**31 - 1],
    "BIGINT": [-(2**63), 2**63 - 1],
    "FLOAT": [math.nan, math.inf, -math.inf, -0.0, 0.0, 1.5],
    "DOUBLE": [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7e308],
    "CHAR(5)": ["ab", "ééééé"],
    "VARCHAR(20)": ["", "\x00", "日本語"],
    "STRING": ["", "x" * 10_000, "\U0010ffff"],
    "BINARY(3)": [b"abc", b"\x00\xff\x00"],
    "VARBINARY(9)": [b"", b"\xff\xff"],
    "BYTES": [b"", b"\xff" * 10_000],
    "DECIMAL(9, 2)": [Decimal("-9999999.99"), Decimal("0.01")],
    "DECIMAL(18, 18)": [Decimal("0." + "9" * 18), Decimal("-0." + "9" * 18)],
    "DECIMAL(38, 0)": [BIG, BIG.copy_negate(), Decimal(-1), Decimal(0), Decimal(128), Decimal(-129)],
    "DECIMAL(38, 38)": [Decimal("0." + "9" * 38)],
    "DATE": [-719_162, -1, 0, 2_932_896],
    "TIME(0)": [0, 86_399_000],
    "TIME(3)": [0, 86_399_999],
    "TIMESTAMP(0)": [-1000, 0, 1_700_000_000_000],
    "TIMESTAMP(3)": [-1, -2_000_000_001, 1_700_000_000_001],
    "TIMESTAMP(6)": [-1000, 0, 1_700_000_000_000_001],
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": [-1, 0, 1_700_000_000_001],
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": [-1000, 0, 1_700_000_000_000_001],
    "ARRAY<INT>": [[], [1, None, -1]],
    "ARRAY<STRING NOT NULL>": [["", "é"], []],
    "ARRAY<ARRAY<ARRAY<DECIMAL(20, 3)>>>": [[[[Decimal("1.500"), None]], None, []]],
    "MAP<STRING, INT>": [[], [("a", 1), ("", None)]],
    "MAP<INT NOT NULL, ARRAY<CHAR(3)>>": [[(1, ["abc", None]), (-1, None)]],
    "MAP<DATE, ROW<x TIME(3)>>": [[(0, {"x": 5}), (-1, None)]],
    "MULTISET<STRING>": [[("a", 1), ("b", 2)], []],
    "ROW<a INT, b ROW<c STRING, d ARRAY<MAP<STRING, DOUBLE>>>>": [
        {"a": 1, "b": {"c": "x", "d": [[("k", math.nan)], None, []]}},
        {"a": None, "b": None},
    ],
}
NOT_ORC: dict[str, list[Any]] = {
    "TIMESTAMP(3)": MILLIS,
    "TIMESTAMP(6)": MICROS,
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": MICROS,
    "VECTOR<FLOAT, 3>": [[1.0, -0.0, 2.5]],
    "VECTOR<BIGINT NOT NULL, 2>": [[1, -1]],
    "BLOB": [b"", b"x" * 100],
}
ONLY_PARQUET: dict[str, list[Any]] = {
    "TIMESTAMP(7)": NANOS,
    "TIMESTAMP(9)": NANOS,
    "TIMESTAMP(9) WITH LOCAL TIME ZONE": [-1, 0, NANOS_DAY, -NANOS_DAY],
    "ARRAY<TIMESTAMP(9)>": [[-1, None, 5], []],
    "MAP<TIMESTAMP(9), TIMESTAMP(8)>": [[(-1, None), (5, -(2**62))]],
    "ROW<t TIMESTAMP(9), m MAP<STRING, TIMESTAMP(9)>>": [{"t": -1, "m": [("a", -(10**18) - 1)]}],
    "MULTISET<INT>": [[(1, 2)]],
    "TIME(6)": [0, 86_399_999],
    "VARIANT": [{"value": b"\x0c\x01", "metadata": b"\x01\x00\x00"}],
    "GEOMETRY(OGC:CRS84)": [b"\x01\x01\x00\x00\x00" + bytes(16)],
    "GEOGRAPHY(OGC:CRS84, spherical)": [b"\x01\x01\x00\x00\x00" + bytes(16)],
}
IN_ORC_NOT_AVRO: dict[str, list[Any]] = {
    "TIMESTAMP(9)": [0, 1, 2**63 - 1, -1_000_000],
    "TIME(6)": [0, 86_399_999],
    "MULTISET<INT>": [[(1, 2)]],
}


def values_of(kind: str) -> dict[str, list[Any]]:
    """The types that a format holds, each with values."""
    match kind:
        case "parquet":
            return {**VALUES, **NOT_ORC, **ONLY_PARQUET}
        case "avro":
            return {**VALUES, **NOT_ORC}
    return {**VALUES, **IN_ORC_NOT_AVRO}


def make_fields(types: Mapping[str, str]) -> tuple[Field, ...]:
    """Fields with ids that count through nested members, as those of a new table do."""
    fields, free = [], 0
    for name, text in types.items():
        dtype, after = number_nested(parse_type(text), free + 1)
        fields.append(Field(free, name, dtype))
        free = after
    return tuple(fields)


def make_batch(rows: Sequence[Mapping[str, Any]], fields: Sequence[Field]) -> pa.RecordBatch:
    """A batch of the canonical Arrow types; missing values are null."""
    schema = row_to_arrow(fields)
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def write(
    batches: pa.RecordBatch | Iterable[pa.RecordBatch],
    fields: Sequence[Field],
    kind: str,
    options: Mapping[str, str] | None = None,
    *,
    io: FileIO | None = None,
    path: str | None = None,
    flush: bool = False,
) -> tuple[FileIO, str, WrittenFile]:
    """Write one file; with `flush` every batch is a row group."""
    io = MemoryFileIO() if io is None else io
    path = f"bucket-0/data-1-0.{kind}" if path is None else path
    writer = FileWriter(io, path, fields, format=kind, options=FileOptions.parse(options or {}))
    for batch in [batches] if isinstance(batches, pa.RecordBatch) else batches:
        writer.write(batch)
        if flush:
            writer.flush()
    return io, path, writer.close()


def read_batches(
    io: FileIO, path: str, fields: Sequence[Field], read_fields: Sequence[Field], **more: Any
) -> Iterator[pa.RecordBatch]:
    """The rows of a file batch by batch; `more` are fields of the request, of its delivery, or of the file."""
    if "dictionaries" in more:
        more["dictionaries"] = frozenset(more["dictionaries"])
    of_file = {each.name: more.pop(each.name) for each in dataclasses.fields(StoredFile) if each.name in more}
    of_delivery = {each.name: more.pop(each.name) for each in dataclasses.fields(Delivery) if each.name in more}
    stored = StoredFile(**{"io": io, "path": path, "format": path.rpartition(".")[2], "fields": fields} | of_file)
    return read_file(stored, RowRequest(fields=read_fields, delivery=Delivery(**of_delivery), **more))


def read(
    io: FileIO,
    path: str,
    fields: Sequence[Field],
    read_fields: Sequence[Field] | None = None,
    **more: Any,
) -> pa.Table:
    """All rows of a file, in one chunk."""
    wanted = fields if read_fields is None else read_fields
    batches = list(read_batches(io, path, fields, wanted, **more))
    schema = batches[0].schema if batches else row_to_arrow(wanted)
    return pa.Table.from_batches(batches, schema=schema).combine_chunks()


def same_table(one: pa.Table, other: pa.Table) -> bool:
    """Equality in which NaN equals itself and the zeros differ; names inside lists and maps do not matter."""
    return one.column_names == other.column_names and all(
        repr(_plain(a)) == repr(_plain(b)) for a, b in zip(one.columns, other.columns, strict=True)
    )


def _plain(column: Any) -> Any:
    arrays = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return [_values(value) for array in arrays for value in array]


def _values(value: pa.Scalar) -> Any:
    if not value.is_valid:
        return None
    kinds = pa.types
    if kinds.is_temporal(value.type):
        return value.value
    if kinds.is_list(value.type) or kinds.is_fixed_size_list(value.type) or kinds.is_map(value.type):
        return [_values(item) for item in value.values]
    if kinds.is_struct(value.type):
        return [_values(item) for item in value.values()]
    return value.as_py()
