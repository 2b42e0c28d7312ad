"""Every type in every format: what was written comes back, with nulls and extremes."""

from __future__ import annotations

import math
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kit.file_samples import make_batch, make_fields, read, same_table, values_of, write
from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.files.options import FORMATS
from tidelake.files.read.data_file import row_count_of
from tidelake.spec.types.data_types import Field
from tidelake.spec.types.type_codec import parse_type

CASES = [(kind, text) for kind in FORMATS for text in values_of(kind)]


@pytest.mark.parametrize(("kind", "text"), CASES)
def test_values_of_every_type_come_back(kind: str, text: str) -> None:
    values = values_of(kind)[text]
    fields = make_fields({"id": "INT NOT NULL", "v": text})
    rows = [{"id": index, "v": value} for index, value in enumerate([None, *values, None])]
    batch = make_batch(rows, fields)
    io, path, written = write(batch, fields, kind)
    assert written.row_count == len(rows) == row_count_of(io, path, format=kind)
    assert written.file_size == io.status(path).size
    found = read(io, path, fields)
    assert same_table(found, pa.Table.from_batches([batch]))
    assert found.schema.types == batch.schema.types


@pytest.mark.parametrize(("kind", "text"), CASES)
def test_a_column_of_nulls_and_one_without_come_back(kind: str, text: str) -> None:
    fields = make_fields({"n": text, "v": f"{text} NOT NULL"})
    batch = make_batch([{"v": value} for value in values_of(kind)[text]], fields)
    io, path, _ = write(batch, fields, kind)
    assert same_table(read(io, path, fields), pa.Table.from_batches([batch]))


@pytest.mark.parametrize("kind", FORMATS)
def test_all_types_in_one_file_of_several_batches(kind: str) -> None:
    values = values_of(kind)
    fields = make_fields({f"c{index}": text for index, text in enumerate(values)})
    rows = [
        {
            f"c{index}": column[number % len(column)] if number % 3 else None
            for index, column in enumerate(values.values())
        }
        for number in range(30)
    ]
    batches = [make_batch(rows[start : start + 7], fields) for start in range(0, 30, 7)]
    io, path, _ = write(batches, fields, kind, flush=True)
    assert same_table(read(io, path, fields), pa.Table.from_batches(batches).combine_chunks())


@pytest.mark.parametrize("kind", FORMATS)
def test_a_slice_of_a_batch_is_written_and_nothing_around_it(kind: str) -> None:
    fields = make_fields({"a": "ARRAY<ROW<x INT, t TIME(3)>>", "m": "MAP<STRING, TIMESTAMP(3)>", "r": "ROW<s STRING>"})
    rows = [
        {"a": [{"x": n, "t": n}] * (n % 4), "m": [(str(n), n)], "r": {"s": str(n)} if n % 5 else None}
        for n in range(100)
    ]
    batch = make_batch(rows, fields)
    io, path, written = write([batch.slice(13, 20), batch.slice(60, 5)], fields, kind)
    assert written.row_count == 25
    expected = pa.Table.from_batches([batch.slice(13, 20), batch.slice(60, 5)]).combine_chunks()
    assert same_table(read(io, path, fields), expected)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_text_of_ten_megabytes_comes_back(kind: str) -> None:
    fields = make_fields({"s": "STRING", "b": "BYTES"})
    batch = make_batch([{"s": "é" * 5_000_000, "b": bytes(range(256)) * 40_000}, {}], fields)
    io, path, _ = write(batch, fields, kind)
    assert read(io, path, fields).equals(pa.Table.from_batches([batch]))


@pytest.mark.parametrize("kind", FORMATS)
def test_deep_nesting_comes_back(kind: str) -> None:
    text, value = "INT", 5
    for depth in range(12):
        text, value = (
            (f"ARRAY<{text}>", [value, None]) if depth % 2 else (f"ROW<m{depth} {text}>", {f"m{depth}": value})
        )
    fields = make_fields({"v": text})
    batch = make_batch([{"v": value}, {"v": None}], fields)
    io, path, _ = write(batch, fields, kind)
    assert same_table(read(io, path, fields), pa.Table.from_batches([batch]))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_without_rows_is_never_made(kind: str) -> None:
    fields = make_fields({"a": "INT"})
    with pytest.raises(InvalidInputError, match="without rows"):
        write(make_batch([], fields), fields, kind)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("orc", "VARIANT"), ("orc", "VECTOR<FLOAT, 2>"), ("orc", "GEOMETRY(OGC:CRS84)"), ("orc", "ARRAY<VARIANT>"),
        ("avro", "TIMESTAMP(9)"), ("avro", "TIME(6)"), ("avro", "MULTISET<INT>"), ("avro", "VARIANT"),
        ("avro", "ROW<a TIMESTAMP(7)>"),
    ],
)  # fmt: skip
def test_a_type_that_the_format_cannot_hold_is_refused_before_a_file_is_made(kind: str, text: str) -> None:
    fields = make_fields({"v": text})
    from tidelake.io import MemoryFileIO

    io = MemoryFileIO()
    with pytest.raises(UnsupportedError, match="cannot be stored"):
        write(make_batch([{}], fields), fields, kind, io=io)
    assert io.list("") == []


@pytest.mark.parametrize(
    ("text", "value"), [("TIMESTAMP(6)", -1), ("TIMESTAMP(9)", -1_000_001), ("ARRAY<TIMESTAMP(6)>", [-999])]
)
def test_orc_refuses_moments_that_the_reference_cannot_read(text: str, value: object) -> None:
    fields = make_fields({"when": text})
    with pytest.raises(UnsupportedError, match="before 1970") as caught:
        write(make_batch([{"when": value}], fields), fields, "orc")
    assert caught.value.facts["column"] == "when"


@pytest.mark.parametrize("value", [-62_135_596_800_000, 253_402_300_799_999])
def test_orc_refuses_moments_that_nanoseconds_cannot_hold(value: int) -> None:
    fields = make_fields({"when": "TIMESTAMP(3)"})
    with pytest.raises(UnsupportedError, match="1677 to 2262"):
        write(make_batch([{"when": value}], fields), fields, "orc")


def test_avro_refuses_names_it_cannot_spell() -> None:
    fields = (Field(0, "a b", parse_type("INT")),)
    with pytest.raises(UnsupportedError, match="column name cannot be stored"):
        write(make_batch([{}], fields), fields, "avro")


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_columns_with_dots_and_other_odd_names_are_distinguished(kind: str) -> None:
    fields = make_fields({"a": "ROW<b INT, c INT>", "a.b": "INT", "ü ö": "INT", "a.b.c": "ROW<d INT>", "": "INT"})
    row = {"a": {"b": 1, "c": 2}, "a.b": 3, "ü ö": 4, "a.b.c": {"d": 5}, "": 6}
    io, path, _ = write(make_batch([row], fields), fields, kind)
    for field in fields:
        assert read(io, path, fields, [field]).to_pylist() == [{field.name: row[field.name]}]


def test_parquet_has_page_checksums_field_ids_and_no_foreign_schema() -> None:
    fields = make_fields({"id": "INT NOT NULL", "t": "TIMESTAMP(9)", "l": "ARRAY<INT>", "m": "MAP<STRING, INT>"})
    io, path, _ = write(make_batch([{"id": 1, "t": -1, "l": [1], "m": [("a", 1)]}], fields), fields, "parquet")
    opened = pq.ParquetFile(pa.BufferReader(io.read(path)))
    assert set(opened.metadata.metadata) == {b"tidelake.seal"}
    assert opened.metadata.format_version == "1.0"
    text = str(opened.schema)
    for piece in (
        "required int32 field_id=0 id",
        "optional int96 field_id=1 t",
        "field_id=536872960 element",
        "field_id=536867838 key",
        "field_id=536873984 value",
    ):
        assert piece in text, text
    column = opened.metadata.row_group(0).column(0)
    assert column.compression == "ZSTD"
    assert column.statistics.min == 1


def test_nanoseconds_before_1970_are_read_as_the_reference_writes_them() -> None:
    # The day rounded towards zero and a negative time of day, as the reference does it, and rounded down.
    from tidelake.files.int96 import from_int96, to_int96

    nanos = pa.array([-1, -86_400_000_000_001, 5, None], pa.timestamp("ns"))
    assert from_int96(to_int96(nanos), "ns").equals(nanos)
    theirs = pa.array([(-1).to_bytes(8, "little", signed=True) + (2_440_588).to_bytes(4, "little")], pa.binary(12))
    assert from_int96(theirs, "ns").cast(pa.int64()).to_pylist() == [-1]
    far = pa.array([bytes(8) + (5_373_484).to_bytes(4, "little")], pa.binary(12))
    assert from_int96(far, "us").cast(pa.int64()).to_pylist() == [253_402_214_400_000_000]
    with pytest.raises(UnsupportedError, match="does not fit"):
        from_int96(far, "ns")


def test_floats_keep_their_bits() -> None:
    fields = make_fields({"d": "DOUBLE"})
    for kind in FORMATS:
        io, path, _ = write(make_batch([{"d": -0.0}, {"d": math.nan}, {"d": 0.1 + 0.2}], fields), fields, kind)
        found = read(io, path, fields)["d"].to_pylist()
        assert math.copysign(1, found[0]) == -1
        assert math.isnan(found[1])
        assert found[2] == 0.1 + 0.2


def test_decimals_of_avro_take_the_fewest_bytes() -> None:
    from tidelake.files.avro.encode import encode_one

    values = [0, 1, -1, 127, 128, -128, -129, 255, 256, 10**37, -(10**37)]
    array = pa.array([Decimal(value) for value in values], pa.decimal128(38, 0))
    encoded = encode_one(array, {"type": "bytes", "logicalType": "decimal"})
    for value, bytes_ in zip(values, encoded.to_pylist(), strict=True):
        shortest = value.to_bytes((value + (value < 0)).bit_length() // 8 + 1, "big", signed=True)
        assert bytes_ == bytes([2 * len(shortest)]) + shortest


@pytest.mark.parametrize("kind", FORMATS)
def test_a_value_after_a_null_row_inside_a_row_is_not_lost(kind: str) -> None:
    # Arrow's ORC writer stored the hidden value below the null instead of the next one.
    fields = make_fields(
        {
            "r": "ROW<a ROW<b INT, c ROW<d STRING>>>",
            "s": "ROW<l ARRAY<ROW<x BOOLEAN>>, m MAP<STRING, ROW<y ROW<z DOUBLE>>>>",
        }
    )
    rows = [
        {"r": {"a": None}, "s": {"l": [None, {"x": True}], "m": [("k", None), ("l", {"y": None})]}},
        {"r": {"a": {"b": 39, "c": None}}, "s": {"l": None, "m": [("m", {"y": {"z": 1.5}})]}},
        {"r": {"a": {"b": 40, "c": {"d": "x"}}}, "s": None},
        {"r": None, "s": {"l": [{"x": None}, {"x": True}], "m": None}},
        {"r": {"a": {"b": 41, "c": {"d": "y"}}}, "s": {"l": [{"x": True}], "m": [("n", {"y": {"z": 2.5}})]}},
    ]
    for part in (rows, rows[:2], rows[:3], rows[3:]):
        batch = make_batch(part, fields)
        io, path, _ = write(batch, fields, kind)
        assert same_table(read(io, path, fields), pa.Table.from_batches([batch]))
