"""Reading files: newer schemas, filters, deleted rows, files of other writers, damaged files."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from kit.file_samples import make_batch, make_fields, read, read_batches, same_table, write
from tidelake.errors import FormatError, InvalidInputError, NotFoundError, StorageError, UnsupportedError
from tidelake.expr import Predicate, col
from tidelake.files.options import FORMATS
from tidelake.files.read.data_file import ROW_NUMBER, row_count_of
from tidelake.io import MemoryFileIO
from tidelake.spec.types.data_types import Field, RowType
from tidelake.spec.types.type_codec import parse_type
from tidelake.testing import Fault, FaultyFileIO, TracingFileIO


def field(number: int, name: str, text: str) -> Field:
    return Field(number, name, parse_type(text))


def row_type(*members: Field) -> RowType:
    return RowType(fields=members)


# ------------------------------------------------------------------------------------------------ evolution


@pytest.mark.parametrize("kind", FORMATS)
def test_columns_are_found_by_id_under_the_name_they_had(kind: str) -> None:
    old = (field(0, "a", "INT"), field(1, "b", "STRING"), field(2, "c", "BIGINT"))
    io, path, _ = write(make_batch([{"a": 300, "b": "12", "c": 7}, {}], old), old, kind)
    # b was renamed to a, a to z and narrowed; b was added again; c was dropped; d is new.
    new = (field(1, "a", "STRING"), field(0, "z", "TINYINT"), field(3, "b", "INT"), field(4, "d", "ROW<x INT>"))
    assert read(io, path, old, new).to_pylist() == [
        {"a": "12", "z": 44, "b": None, "d": None},
        {"a": None, "z": None, "b": None, "d": None},
    ]


@pytest.mark.parametrize("kind", FORMATS)
def test_members_of_rows_are_matched_by_id_inside_arrays_and_maps(kind: str) -> None:
    x, y = field(10, "x", "INT"), field(11, "y", "STRING")
    inner = row_type(x, y)
    old = (
        Field(0, "r", inner),
        Field(1, "a", replace(parse_type("ARRAY<INT>"), element=inner)),
        Field(2, "m", replace(parse_type("MAP<STRING, INT>"), value=inner)),
    )
    value = {"x": 300, "y": "7"}
    io, path, _ = write(make_batch([{"r": value, "a": [value, None], "m": [("k", value)]}, {}], old), old, kind)
    # y became x and an INT, the old x is gone, n is new.
    changed = row_type(field(12, "n", "DATE"), field(11, "x", "INT"))
    new = (
        Field(2, "m2", replace(parse_type("MAP<STRING, INT>"), value=changed)),
        Field(1, "a2", replace(parse_type("ARRAY<INT>"), element=changed)),
        Field(0, "r2", changed),
    )
    seen = {"n": None, "x": 7}
    assert read(io, path, old, new).to_pylist() == [
        {"m2": [("k", seen)], "a2": [seen, None], "r2": seen},
        {"m2": None, "a2": None, "r2": None},
    ]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_row_whose_members_are_all_new_is_null_where_it_was_null(kind: str) -> None:
    old = (Field(0, "r", row_type(field(1, "x", "INT"))),)
    new = (Field(0, "r", row_type(field(2, "z", "INT"))),)
    io, path, _ = write(make_batch([{"r": {"x": 1}}, {"r": None}, {"r": {"x": None}}], old), old, kind)
    assert read(io, path, old, new)["r"].to_pylist() == [{"z": None}, None, {"z": None}]


@pytest.mark.parametrize("kind", FORMATS)
def test_elements_and_map_values_are_cast(kind: str) -> None:
    old = make_fields({"a": "ARRAY<INT>", "m": "MAP<STRING, STRING>", "t": "ARRAY<ARRAY<TIMESTAMP(3)>>"})
    new = make_fields({"a": "ARRAY<BIGINT>", "m": "MAP<STRING, DECIMAL(5, 1)>", "t": "ARRAY<ARRAY<DATE>>"})
    row = {"a": [1, None], "m": [("k", "1.25")], "t": [[86_400_001], None]}
    io, path, _ = write(make_batch([row, {}], old), old, kind)
    found = read(io, path, old, new)
    assert found["a"].to_pylist() == [[1, None], None]
    assert found["m"].to_pylist() == [[("k", Decimal("1.3"))], None]
    assert str(found["t"][0].as_py()) == "[[datetime.date(1970, 1, 2)], None]"


def test_a_value_that_cannot_be_cast_says_so() -> None:
    old, new = make_fields({"s": "STRING"}), make_fields({"s": "INT"})
    io, path, _ = write(make_batch([{"s": "abc"}], old), old, "parquet")
    with pytest.raises(InvalidInputError) as caught:
        read(io, path, old, new)
    assert caught.value.code == "cast-value"


def test_a_zone_stands_between_wall_clocks_and_instants() -> None:
    old, new = make_fields({"t": "TIMESTAMP(3)"}), make_fields({"t": "TIMESTAMP(3) WITH LOCAL TIME ZONE"})
    io, path, _ = write(make_batch([{"t": 0}], old), old, "parquet")
    assert read(io, path, old, new, zone="Asia/Shanghai")["t"].cast(pa.int64()).to_pylist() == [-8 * 3_600_000]


@pytest.mark.parametrize("kind", FORMATS)
def test_rows_are_counted_without_reading_a_column(kind: str) -> None:
    fields = make_fields({"a": "INT", "b": "STRING"})
    io, path, _ = write(make_batch([{"a": n} for n in range(1000)], fields), fields, kind)
    batches = list(read_batches(io, path, fields, (), batch_rows=300))
    assert [batch.num_rows for batch in batches] == [300, 300, 300, 100]
    assert row_count_of(io, path, format=kind) == 1000
    numbers = read(io, path, fields, (), positions=True)
    assert numbers.to_pydict() == {ROW_NUMBER: list(range(1000))}


# ------------------------------------------------------------------------------------------------ filters

MIXED = make_fields(
    {
        "id": "INT NOT NULL",
        "s": "STRING",
        "d": "DOUBLE",
        "m": "DECIMAL(10, 2)",
        "t": "TIMESTAMP(6)",
        "dt": "DATE",
        "r": "ROW<x INT>",
    }
)


def mixed(count: int = 1000) -> list[pa.RecordBatch]:
    rows: list[dict[str, Any]] = [
        {
            "id": n,
            "s": None if n % 7 == 0 else f"s{n:05d}",
            "d": float("nan") if n % 11 == 0 else n / 3,
            "m": Decimal(n) / 4 if n % 5 else None,
            "t": n * 1_000_000,
            "dt": n // 10,
            "r": {"x": n},
        }
        for n in range(count)
    ]
    return [make_batch(rows[start : start + 100], MIXED) for start in range(0, count, 100)]


FILTERS: list[tuple[Predicate, int]] = [
    (col("id") == 555, 1),
    (col("id") >= 950, 50),
    ((col("id") < 10) | (col("id") > 995), 14),
    (col("s") == "s00555", 1),
    (col("s").is_null() & (col("id") < 100), 15),
    (col("d") != 5.0, 999),
    (~(col("d") == 5.0), 999),
    (col("m") == Decimal("1.25"), 0),
    (col("m") == Decimal("1.50"), 1),
    (col("id").is_in([3, 500, 5000]), 2),
    (col("id") == -1, 0),
    (col("dt") == "1970-01-11", 10),
]  # fmt: skip


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(("where", "count"), FILTERS, ids=[str(n) for n in range(len(FILTERS))])
def test_a_filter_keeps_what_filtering_afterwards_keeps(kind: str, where: Predicate, count: int) -> None:
    from tidelake.expr.evaluate import matches

    io, path, _ = write(mixed(), MIXED, kind, flush=True)
    everything = read(io, path, MIXED)
    keep = matches(where, {name: everything[name].combine_chunks() for name in where.columns()}, everything.num_rows)
    expected = everything.filter(keep).combine_chunks()
    assert expected.num_rows == count
    assert same_table(read(io, path, MIXED, where=where), expected)
    # Columns that only the filter looks at are read for it and not given back.
    assert same_table(read(io, path, MIXED, MIXED[5:], where=where), expected.select(["dt", "r"]))


@pytest.mark.parametrize("kind", FORMATS)
def test_nan_is_found_although_no_bounds_hold_it(kind: str) -> None:
    fields = make_fields({"id": "INT", "d": "DOUBLE"})
    batch = make_batch([{"id": 1, "d": 5.0}, {"id": 2, "d": float("nan")}], fields)
    io, path, _ = write(batch, fields, kind)
    for where in (col("d") != 5.0, ~(col("d") == 5.0), col("d") > 5.0, ~(col("d") <= 5.0), col("d") == float("nan")):
        assert read(io, path, fields, where=where)["id"].to_pylist() == [2]
    if kind == "parquet":
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_batches([batch]), sink)
        theirs = MemoryFileIO()
        theirs.write(path, sink.getvalue().to_pybytes())
        for where in (col("d") != 5.0, col("d") > 7.0, ~(col("d") <= 5.0), col("d") == float("nan")):
            assert read(theirs, path, fields, where=where)["id"].to_pylist() == [2]


def test_row_groups_that_cannot_match_are_not_read() -> None:
    io, path, _ = write(mixed(), MIXED, "parquet", flush=True)
    damaged = MemoryFileIO()
    data = bytearray(io.read(path))
    data[200] ^= 1  # in the first row group
    damaged.write(path, bytes(data))
    with pytest.raises(FormatError):
        read(damaged, path, MIXED)
    assert read(damaged, path, MIXED, where=col("id") >= 500).num_rows == 500
    assert read(damaged, path, MIXED, where=col("t") == "1970-01-01 00:08:20").num_rows == 1


def test_stripes_that_cannot_match_are_not_read() -> None:
    fields = make_fields({"id": "INT NOT NULL", "s": "STRING"})
    generator = np.random.default_rng(1)
    batches = [
        make_batch([{"id": n, "s": generator.bytes(60).hex()} for n in range(start, start + 2000)], fields)
        for start in range(0, 20_000, 2000)
    ]
    io, path, _ = write(batches, fields, "orc", {"file.block-size": "100 kb"})
    stripes = orc.ORCFile(pa.BufferReader(io.read(path))).nstripes
    assert stripes > 2
    damaged = MemoryFileIO()
    data = bytearray(io.read(path))
    data[1000] ^= 1
    damaged.write(path, bytes(data))
    with pytest.raises(FormatError, match="checksums"):
        read(damaged, path, fields)
    assert read(damaged, path, fields, where=col("id") >= 19_000).num_rows == 1000


def test_the_other_columns_are_read_only_where_the_filter_matches() -> None:
    fields = make_fields({"id": "INT NOT NULL", "flag": "BOOLEAN", "big": "STRING"})
    generator = np.random.default_rng(1)
    batches = [
        make_batch([{"id": n, "flag": part == 3, "big": generator.bytes(500).hex()} for n in range(200)], fields)
        for part in range(5)
    ]
    io, path, written = write(batches, fields, "parquet", flush=True)
    counting = CountingFileIO(io)
    assert read(counting, path, fields, where=(col("flag") == True) & (col("id") == 7)).num_rows == 1  # noqa: E712
    assert counting.bytes_read < written.file_size / 2


class CountingFileIO(TracingFileIO):
    bytes_read = 0

    def open_input(self, path: str) -> Any:
        opened = super().open_input(path)
        owner = self

        class Counting(type(opened)):  # type: ignore[misc]
            def read(self, size: int = -1, /) -> bytes:
                data = super().read(size)
                owner.bytes_read += len(data)
                return data

        return Counting(self.inner.read(path))


def test_statistics_of_a_column_that_is_cast_do_not_prune() -> None:
    old, new = make_fields({"v": "STRING"}), make_fields({"v": "INT"})
    batches = [make_batch([{"v": "9"}, {"v": "10"}], old), make_batch([{"v": "100"}], old)]
    io, path, _ = write(batches, old, "parquet", flush=True)
    assert read(io, path, old, new, where=col("v") == 10)["v"].to_pylist() == [10]
    narrow = make_fields({"v": "VARCHAR(1)"})
    assert read(io, path, old, narrow, where=col("v") == "1")["v"].to_pylist() == ["1", "1"]


def test_a_column_that_the_file_does_not_have_is_null_to_a_filter() -> None:
    old = make_fields({"a": "INT"})
    new = (*old, field(9, "n", "INT"))
    io, path, _ = write(make_batch([{"a": 1}], old), old, "parquet")
    assert read(io, path, old, old, where=col("n").is_null(), filter_fields=new).num_rows == 1
    assert read(io, path, old, new, where=col("n") == 1).num_rows == 0


def test_a_filter_on_an_unknown_column_or_of_a_wrong_value_is_refused() -> None:
    fields = make_fields({"a": "INT"})
    io, path, _ = write(make_batch([{"a": 1}], fields), fields, "parquet")
    with pytest.raises(InvalidInputError, match="not there"):
        read(io, path, fields, where=col("nope") == 1)
    with pytest.raises(InvalidInputError, match="does not fit"):
        read(io, path, fields, where=col("a") == "x")
    with pytest.raises(InvalidInputError, match="at least one row"):
        read(io, path, fields, batch_rows=0)


# ------------------------------------------------------------------------------------------------ deleted rows, numbers


@pytest.mark.parametrize("kind", FORMATS)
def test_deleted_rows_do_not_come_out_and_numbers_stay(kind: str) -> None:
    io, path, _ = write(mixed(), MIXED, kind, flush=True)
    gone = np.zeros(1000, bool)
    gone[[0, 5, 999]] = True
    gone[100:300] = True
    skip = np.flatnonzero(gone)
    found = read(io, path, MIXED, MIXED[:1], positions=True, deleted=skip, batch_rows=64)
    assert found["id"].to_pylist() == found[ROW_NUMBER].to_pylist() == np.flatnonzero(~gone).tolist()
    assert read(io, path, MIXED, MIXED[:1], deleted=skip[:0]).num_rows == 1000
    assert read(io, path, MIXED, MIXED[:1], deleted=np.arange(1000)).num_rows == 0
    filtered = read(io, path, MIXED, MIXED[:1], positions=True, deleted=skip, where=col("id") >= 290)
    assert filtered["id"].to_pylist() == filtered[ROW_NUMBER].to_pylist() == list(range(300, 999))
    for wrong in ([1000], [-1, 3]):
        with pytest.raises(InvalidInputError, match="does not have"):
            read(io, path, MIXED, deleted=np.array(wrong))


@pytest.mark.parametrize("kind", FORMATS)
def test_batches_are_no_larger_than_asked_and_in_order(kind: str) -> None:
    io, path, _ = write(mixed(), MIXED, kind)
    batches = list(read_batches(io, path, MIXED, MIXED[:1], batch_rows=64))
    assert max(batch.num_rows for batch in batches) <= 64
    assert [n for batch in batches for n in batch.column(0).to_pylist()] == list(range(1000))


# ------------------------------------------------------------------------------------------------ files of others


# ------------------------------------------------------------------------------------------------ dictionaries


def shops(count: int, distinct: int) -> tuple[tuple[Field, ...], pa.RecordBatch]:
    fields = (field(0, "shop", "VARCHAR(20)"), field(1, "n", "INT"))
    rows = [{"shop": f"shop-{n * distinct // count:08d}", "n": n} for n in range(count)]
    return fields, make_batch(rows, fields)


def test_texts_that_a_file_stores_by_number_come_as_a_dictionary_where_that_is_wanted() -> None:
    fields, batch = shops(5000, 20)
    io, path, _ = write(batch, fields, "parquet")
    found = read(io, path, fields, dictionaries={"shop", "n"})
    assert found.schema.types == [pa.dictionary(pa.int32(), pa.string()), pa.int32()]
    assert found.column("shop").to_pylist() == batch.column("shop").to_pylist()
    assert read(io, path, fields).schema.types == [pa.string(), pa.int32()]


def test_texts_that_hardly_repeat_come_as_they_are() -> None:
    fields, batch = shops(5000, 5000)
    io, path, _ = write(batch, fields, "parquet")
    assert read(io, path, fields, dictionaries={"shop"}).schema.types == [pa.string(), pa.int32()]


def test_a_dictionary_that_ran_over_in_the_middle_of_a_file_is_read_whole() -> None:
    texts = ["a"] * 40_000 + [f"{n:06d}" for n in range(4000)] + ["b"] * 10_000
    sink = pa.BufferOutputStream()
    # Ten kilobytes of a dictionary are soon full: the rest is stored plainly.
    pq.write_table(pa.table({"t": texts}), sink, dictionary_pagesize_limit=10_000, data_page_size=5_000)
    stored = pq.ParquetFile(pa.BufferReader(sink.getvalue())).metadata.row_group(0).column(0)
    assert {"PLAIN", "RLE_DICTIONARY"} <= set(stored.encodings)
    io = MemoryFileIO()
    io.write("a.parquet", sink.getvalue().to_pybytes())
    fields = (field(0, "t", "STRING"),)
    batches = list(read_batches(io, "a.parquet", fields, fields, dictionaries={"t"}))
    assert {batch.schema.types[0] for batch in batches} == {pa.dictionary(pa.int32(), pa.string())}
    assert [text for batch in batches for text in batch.column(0).to_pylist()] == texts


@pytest.mark.parametrize("kind", ["orc", "avro"])
def test_formats_without_dictionaries_give_plain_texts(kind: str) -> None:
    fields, batch = shops(5000, 20)
    io, path, _ = write(batch, fields, kind)
    assert read(io, path, fields, dictionaries={"shop"}).schema.types == [pa.string(), pa.int32()]


def test_a_column_that_is_filtered_or_cast_comes_as_it_is() -> None:
    fields, batch = shops(5000, 20)
    io, path, _ = write(batch, fields, "parquet")
    found = read(io, path, fields, where=col("shop") == "shop-00000003", dictionaries={"shop"})
    assert found.schema.types == [pa.string(), pa.int32()]
    assert found.column("n").to_pylist() == list(range(750, 1000))
    found = read(io, path, fields, where=col("n") < 3, dictionaries={"shop"})
    assert found.column("shop").to_pylist() == ["shop-00000000"] * 3
    shorter = (field(0, "shop", "VARCHAR(6)"), field(1, "n", "INT"))
    found = read(io, path, fields, shorter, dictionaries={"shop"})
    assert set(found.column("shop").to_pylist()) == {"shop-0"}
    longer = (field(0, "shop", "STRING"), field(1, "n", "INT"))
    found = read(io, path, fields, longer, dictionaries={"shop"})
    assert found.column("shop").to_pylist() == batch.column("shop").to_pylist()


@pytest.mark.parametrize("skipping", [False, True])
def test_a_stream_gives_the_same_rows_batch_by_batch(skipping: bool) -> None:
    fields, batch = shops(5000, 20)
    io, path, _ = write(batch, fields, "parquet")
    skip = np.arange(0, 5000, 3) if skipping else None
    sizes = []
    wanted = read(io, path, fields, deleted=skip)
    for names in ((), ("shop",)):
        batches = list(
            read_batches(io, path, fields, fields, batch_rows=700, deleted=skip, stream=True, dictionaries=names)
        )
        sizes.append([each.num_rows for each in batches])
        assert [row for each in batches for row in each.to_pylist()] == wanted.to_pylist()
    assert max(map(max, sizes)) <= 700


def test_parquet_without_field_ids_and_with_an_arrow_schema_is_read() -> None:
    fields = make_fields(
        {
            "s": "STRING", "a": "ARRAY<STRING>", "t3": "TIMESTAMP(3)", "t9": "TIMESTAMP(9)", "i": "TINYINT",
            "m": "DECIMAL(9, 2)", "l": "TIMESTAMP(6) WITH LOCAL TIME ZONE", "v": "VECTOR<FLOAT, 2>", "k": "STRING",
        }
    )  # fmt: skip
    table = pa.table(
        {
            "k": pa.array(["x", "y", None]).dictionary_encode(),
            "s": pa.array(["a", None, "c"], pa.large_string()),
            "a": pa.array([["x"], None, []], pa.large_list(pa.large_string())),
            "t3": pa.array([1_000, -1_000, None], pa.timestamp("us")),
            "t9": pa.array([1, -1, None], pa.timestamp("ns")),
            "i": pa.array([1, None, -1], pa.int32()),
            "m": pa.array([Decimal("1.25"), None, Decimal("-1.00")], pa.decimal128(38, 2)),
            "l": pa.array([5, None, -5], pa.timestamp("us", "Europe/Berlin")),
            "v": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.float32(), 2)),
        }
    )
    for options in (
        {},
        {"use_deprecated_int96_timestamps": True},
        {"store_schema": False, "version": "1.0", "coerce_timestamps": "us", "allow_truncated_timestamps": True},
    ):
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, **options)
        io = MemoryFileIO()
        io.write("a.parquet", sink.getvalue().to_pybytes())
        found = read(io, "a.parquet", fields)
        assert found["s"].to_pylist() == ["a", None, "c"]
        assert found["a"].to_pylist() == [["x"], None, []]
        assert found["t3"].cast(pa.int64()).to_pylist() == [1, -1, None]
        nanos = [0, 0, None] if "coerce_timestamps" in options else [1, -1, None]
        assert found["t9"].cast(pa.int64()).to_pylist() == nanos
        assert found["i"].to_pylist() == [1, None, -1]
        assert found["m"].to_pylist() == [Decimal("1.25"), None, Decimal("-1.00")]
        assert found["l"].cast(pa.int64()).to_pylist() == [5, None, -5]
        assert found["v"].to_pylist() == [[1, 2], None, [3, 4]]
        assert found["k"].to_pylist() == ["x", "y", None]
        for name in ("s", "i", "m", "t3"):
            assert read(io, "a.parquet", fields, where=col(name).is_not_null()).num_rows == 2


def test_a_row_group_of_several_gigabytes_would_be_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    io, path, _ = write(mixed(), MIXED, "parquet")
    monkeypatch.setattr("tidelake.files.parquet.read._TABLE_BYTES_MAX", 10)
    assert same_table(read(io, path, MIXED, batch_rows=70), pa.Table.from_batches(mixed()).combine_chunks())
    numbers = read(io, path, MIXED, MIXED[:1], batch_rows=70, positions=True)
    assert numbers["id"].to_pylist() == numbers[ROW_NUMBER].to_pylist() == list(range(1000))
    gone = np.arange(500, 1000)
    found = read(io, path, MIXED, MIXED[:1], where=col("d") > 100.0, deleted=gone, batch_rows=70, positions=True)
    assert found["id"].to_pylist() == found[ROW_NUMBER].to_pylist() == [n for n in range(500) if n > 300 or n % 11 == 0]


def test_columns_of_the_same_name_in_another_case_are_other_columns() -> None:
    fields = make_fields({"a": "INT", "A": "INT"})
    io, path, _ = write(make_batch([{"a": 1, "A": 2}], fields), fields, "parquet")
    assert read(io, path, fields, fields[1:]).to_pylist() == [{"A": 2}]
    only_upper = (replace(fields[0], name="B"),)
    assert read(io, path, only_upper).to_pylist() == [{"B": None}]


def test_shredded_variants_are_refused() -> None:
    fields = make_fields({"v": "VARIANT"})
    struct = pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", pa.int32())])
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"v": pa.array([{"metadata": b"", "value": b"", "typed_value": 1}], struct)}), sink)
    io = MemoryFileIO()
    io.write("a.parquet", sink.getvalue().to_pybytes())
    with pytest.raises((FormatError, UnsupportedError), match="variant"):
        read(io, "a.parquet", fields)


def test_a_column_of_another_type_than_its_schema_says_is_an_error() -> None:
    written, claimed = make_fields({"a": "STRING"}), make_fields({"a": "INT"})
    for kind in FORMATS:
        io, path, _ = write(make_batch([{"a": "x"}], written), written, kind)
        with pytest.raises(FormatError) as caught:
            read(io, path, claimed)
        assert caught.value.facts["path"] == path


# ------------------------------------------------------------------------------------------------ damage


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    "data", [b"", b"x", b"PAR1", b"PAR1" + bytes(100) + b"PAR1", b"ORC" + bytes(50), b"Obj\x01" + bytes(60)]
)
def test_other_bytes_are_a_format_error_that_names_the_file(kind: str, data: bytes) -> None:
    fields = make_fields({"a": "INT"})
    io = MemoryFileIO()
    io.write(f"bucket-0/x.{kind}", data)
    for ask in (
        lambda: read(io, f"bucket-0/x.{kind}", fields),
        lambda: row_count_of(io, f"bucket-0/x.{kind}", format=kind),
    ):
        with pytest.raises(FormatError) as caught:
            ask()
        assert caught.value.facts["path"] == f"bucket-0/x.{kind}"


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_that_was_cut_off_is_an_error(kind: str) -> None:
    io, path, written = write(mixed(300), MIXED, kind)
    data = io.read(path)
    for kept in range(0, written.file_size, max(1, written.file_size // 60)):
        cut = MemoryFileIO()
        cut.write(path, data[:kept])
        with pytest.raises(FormatError):
            read(cut, path, MIXED)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_missing_file_and_a_failing_storage_stay_what_they_are(kind: str) -> None:
    fields = make_fields({"a": "INT"})
    with pytest.raises(NotFoundError):
        read(MemoryFileIO(), f"x.{kind}", fields)
    io, path, _ = write(make_batch([{"a": 1}], fields), fields, kind)
    with pytest.raises(StorageError):
        read(FaultyFileIO(io, {1: Fault.BEFORE}), path, fields)


def test_an_iterator_that_is_dropped_closes_its_file() -> None:
    opened: list[Any] = []

    class Watching(MemoryFileIO):
        def open_input(self, path: str) -> Any:
            opened.append(super().open_input(path))
            return opened[-1]

    io, path, _ = write(mixed(), MIXED, "parquet", io=Watching(), flush=True)
    batches = read_batches(io, path, MIXED, MIXED)
    assert not opened
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert [file.closed for file in opened] == [True]


@pytest.mark.parametrize(
    "texts", [{"a": "INT"}, {"a": "STRING"}, {"a": "DOUBLE NOT NULL"}, {"a": "BIGINT", "b": "BOOLEAN"}]
)
@pytest.mark.parametrize("change", [-1, 1])
def test_a_wrong_number_of_records_in_an_avro_block_is_noticed(texts: dict[str, str], change: int) -> None:
    fields = make_fields(texts)
    values = {"INT": 7, "STRING": "x", "DOUBLE NOT NULL": 1.5, "BIGINT": 2**40, "BOOLEAN": True}
    row = {name: values[text] for name, text in texts.items()}
    io, path, _ = write(make_batch([row] * 20, fields), fields, "avro", {"file.compression": "null"})
    data = io.read(path)
    sync = data[-16:]
    place = data.index(sync) + 16  # the number of records of the first block, as a zig-zag number of one byte
    assert data[place] == 40
    wrong = MemoryFileIO()
    wrong.write(path, data[:place] + bytes([40 + 2 * change]) + data[place + 1 :])
    with pytest.raises(FormatError):
        read(wrong, path, fields)


def test_avro_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = make_fields({"id": "INT NOT NULL", "s": "STRING"})
    rows = [{"id": n, "s": "x" * 3000} for n in range(1000)]
    io, path, _ = write(make_batch(rows, fields), fields, "avro")
    monkeypatch.setattr("tidelake.files.avro.read._PIECE_BYTES", 300_000)
    sizes = [batch.num_rows for batch in read_batches(io, path, fields, fields)]
    assert sum(sizes) == 1000
    assert len(sizes) > 3
    found = read(io, path, fields, fields[:1], positions=True, where=col("id") >= 990)
    assert found["id"].to_pylist() == found[ROW_NUMBER].to_pylist() == list(range(990, 1000))


# ------------------------------------------------------------------------------------------------ parts


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
@pytest.mark.parametrize("kind", FORMATS)
def test_the_parts_of_a_file_together_are_the_file(kind: str, parts: int) -> None:
    fields = (field(0, "a", "INT"),)
    rows = make_batch([{"a": number} for number in range(5_000)], fields)
    io, path, _ = write(rows, fields, kind, options={"file.block-size": "1 kb"})
    where = col("a") >= 100
    found = [
        pa.Table.from_batches(
            list(read_batches(io, path, fields, fields, where=where, share=(part, parts))),
            schema=rows.schema,
        )
        for part in range(parts)
    ]
    assert pa.concat_tables(found)["a"].to_pylist() == list(range(100, 5_000))
