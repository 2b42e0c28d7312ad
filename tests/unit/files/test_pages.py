"""Rows taken from single pages of Parquet files: the same rows as ever, and few bytes read for them."""

from __future__ import annotations

import io as streams
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kit.counting_io import CountedFileIO
from kit.file_samples import make_fields, read, write
from tidelake.errors import FormatError
from tidelake.expr import col
from tidelake.files.parquet.footer import open_footer, seal_text
from tidelake.files.parquet.pages import Pages, estimate_page_share, locate_rows
from tidelake.io import MemoryFileIO
from tidelake.spec.types.arrow_types import row_to_arrow

ROWS = 150_000
FIELDS = make_fields(
    {
        "id": "BIGINT NOT NULL", "i": "INT", "d": "DOUBLE", "m": "DECIMAL(20, 2)", "few": "STRING", "s": "STRING",
        "t": "TIMESTAMP(9)", "b": "BOOLEAN", "a": "ARRAY<INT>", "r": "ROW<x INT, y STRING>",
    }
)  # fmt: skip
FLAT = FIELDS[:-2]


def sample(count: int = ROWS) -> pa.RecordBatch:
    rng = np.random.default_rng(5)
    ids = np.arange(count)
    gaps = rng.random(count) < 0.2
    texts = pa.array(rng.integers(0, 1 << 60, count)).cast(pa.string())
    offsets = pa.array(np.arange(count + 1) * 2, pa.int32())
    columns = [
        pa.array(ids),
        pa.array(rng.integers(-9, 9, count), pa.int32(), mask=gaps),
        pa.array(rng.random(count)),
        pa.array([Decimal(int(each)) / 4 for each in rng.integers(0, 400, 50)]).take(pa.array(ids % 50)),
        pa.array([f"value {each}" for each in range(30)]).take(pa.array(ids % 30)),
        texts,
        pa.array(rng.integers(-(10**18), 10**18, count)).cast(pa.timestamp("ns")),
        pa.array(ids % 3 == 0, mask=gaps),
        pa.ListArray.from_arrays(offsets, pa.array(np.arange(count * 2), pa.int32())),
        pa.StructArray.from_arrays([pa.array(ids, pa.int32()), texts], ["x", "y"]),
    ]
    arrays = [column.cast(field.type) for column, field in zip(columns, row_to_arrow(FIELDS), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=row_to_arrow(FIELDS))


BATCH = sample()


@pytest.fixture(scope="module")
def stored() -> tuple[MemoryFileIO, str]:
    io, path, _ = write(BATCH, FIELDS, "parquet")
    return io, path


def size_of(io: MemoryFileIO, path: str) -> int:
    return len(io.read(path))


PLACES = {
    "one": [77_777],
    "ends": [0, ROWS - 1],
    "both sides of the end of a page": [19_999, 20_000],
    "one page": list(range(60_000, 60_100)),
    "three pages": [3, 5, 45_000, 45_001, 139_999],
}


@pytest.mark.parametrize("places", PLACES.values(), ids=PLACES.keys())
@pytest.mark.parametrize("fields", [FIELDS, FLAT, FIELDS[4:5], FIELDS[-1:]], ids=["all", "flat", "few", "nested"])
def test_rows_by_their_places_are_those_of_the_whole_file(stored, places, fields) -> None:
    io, path = stored
    expected = pa.Table.from_batches([BATCH]).take(pa.array(places)).select([field.name for field in fields])
    found = read(io, path, FIELDS, fields, only=np.array(places, np.int64), positions=True)
    assert found.drop_columns(["_ROW_NUMBER"]).equals(expected.cast(row_to_arrow(fields)))
    assert found["_ROW_NUMBER"].to_pylist() == places


def test_few_rows_cost_few_bytes(stored) -> None:
    io, path = stored
    counting = CountedFileIO(io)
    assert read(counting, path, FIELDS, FLAT, only=np.arange(60_000, 60_100)).num_rows == 100
    # One page in eight, the dictionaries, the footer and the page index.
    assert counting.bytes_read < size_of(io, path) / 5


def test_a_filter_reads_the_other_columns_by_pages(stored) -> None:
    io, path = stored
    counting = CountedFileIO(io)
    found = read(counting, path, FIELDS, FLAT, where=(col("id") >= 100_000) & (col("i") == 3) & (col("id") < 100_200))
    assert found.equals(read(io, path, FIELDS, FLAT).filter((pa.compute.field("i") == 3) & _between(100_000, 100_200)))
    assert 0 < found.num_rows < 40
    assert counting.bytes_read < size_of(io, path) / 3


def _between(low: int, high: int) -> Any:
    return (pa.compute.field("id") >= low) & (pa.compute.field("id") < high)


def test_deleted_rows_are_not_taken(stored) -> None:
    io, path = stored
    only, skip = np.array([5, 6, 90_000]), np.array([6, 7])
    assert read(io, path, FIELDS, FIELDS[:1], only=only, deleted=skip)["id"].to_pylist() == [5, 90_000]


def test_many_rows_are_read_as_ever(stored) -> None:
    io, path = stored
    places = np.arange(0, ROWS, 1000)
    found = read(io, path, FIELDS, FLAT, only=places)
    assert found.equals(pa.Table.from_batches([BATCH]).take(pa.array(places)).select(found.column_names))


# ------------------------------------------------------------------------------------------------ damage


def test_a_damaged_page_index_is_an_error_and_never_other_rows(stored) -> None:
    io, path = stored
    data = io.read(path)
    footer = open_footer(io.open_input(path), path=path)
    start = footer.start - footer.index_bytes
    assert footer.index_bytes > 1000
    only = np.array([45_000, 139_999])
    expected = read(io, path, FIELDS, FLAT, only=only)
    rng = np.random.default_rng(1)
    for at in rng.integers(start, footer.start, 40).tolist():
        damaged = MemoryFileIO()
        damaged.write(path, data[:at] + bytes([data[at] ^ (1 << int(rng.integers(8)))]) + data[at + 1 :])
        with pytest.raises(FormatError, match="page index"):
            read(damaged, path, FIELDS, FLAT, only=only)
        # Who reads whole row groups does not need it.
        assert read(damaged, path, FIELDS, FIELDS[:1]).num_rows == ROWS
    assert expected.num_rows == 2


def test_a_damaged_page_is_an_error(stored) -> None:
    io, path = stored
    metadata = pq.ParquetFile(pa.BufferReader(io.read(path))).metadata
    chunk = metadata.row_group(0).column(0)
    at = chunk.data_page_offset + 60
    data = bytearray(io.read(path))
    data[at] ^= 16
    damaged = MemoryFileIO()
    damaged.write(path, bytes(data))
    with pytest.raises(FormatError):
        read(damaged, path, FIELDS, FIELDS[:1], only=np.array([3]))
    assert read(damaged, path, FIELDS, FIELDS[:1], only=np.array([100_000]))["id"].to_pylist() == [100_000]


# ------------------------------------------------------------------------------------------------ others' files


def foreign(**options: Any) -> tuple[MemoryFileIO, str]:
    plain = pa.Table.from_batches([BATCH]).select([field.name for field in FLAT]).drop_columns(["t"])
    out = streams.BytesIO()
    pq.write_table(
        plain, out, row_group_size=ROWS, compression="snappy", store_schema=False, use_dictionary=["few"], **options
    )
    io = MemoryFileIO()
    io.write("data-1.parquet", out.getvalue())
    return io, "data-1.parquet"


@pytest.mark.parametrize("options", [{"write_page_index": True}, {}], ids=["with an index", "without"])
def test_files_of_other_writers_are_read_by_pages_where_they_have_an_index(options) -> None:
    io, path = foreign(**options)
    fields = [field for field in FLAT if field.name != "t"]
    counting = CountedFileIO(io)
    found = read(counting, path, fields, fields, only=np.array([60_000, 60_050]))
    assert found.equals(pa.Table.from_batches([BATCH]).take([60_000, 60_050]).select(found.column_names))
    small = counting.bytes_read < size_of(io, path) / 4
    assert small == bool(options)


def test_an_index_of_another_writer_that_makes_no_sense_is_not_used() -> None:
    io, path = foreign(write_page_index=True)
    fields = [field for field in FLAT if field.name != "t"]
    data = io.read(path)
    start = open_footer(io.open_input(path), path=path).start
    broken = MemoryFileIO()
    broken.write(path, data[: start - 600] + bytes(600) + data[start:])
    found = read(broken, path, fields, fields, only=np.array([60_000]))
    assert found["id"].to_pylist() == [60_000]
    assert found["s"].to_pylist() == [BATCH.column("s")[60_000].as_py()]


# ------------------------------------------------------------------------------------------------ what is written


def test_bounds_of_pages_are_left_out_where_readers_would_be_misled() -> None:
    fields = make_fields({"id": "INT", "d": "DOUBLE", "t": "TIMESTAMP(9)"})
    columns = [pa.array([1, 2], pa.int32()), pa.array([1.0, float("nan")]), pa.array([1, 2]).cast(pa.timestamp("ns"))]
    io, path, _ = write(pa.RecordBatch.from_arrays(columns, schema=row_to_arrow(fields)), fields, "parquet")
    metadata = pq.ParquetFile(pa.BufferReader(io.read(path))).metadata.row_group(0)
    assert [metadata.column(leaf).has_column_index for leaf in range(3)] == [True, False, False]
    assert [metadata.column(leaf).has_offset_index for leaf in range(3)] == [True, True, True]


def test_a_seal_from_before_there_was_a_page_index_is_still_known(stored) -> None:
    import re

    from tidelake.files.parquet import footer as parquet_footer

    assert re.fullmatch(parquet_footer._SEAL, b"crc32=0123abcd nan=1,2")
    assert re.fullmatch(parquet_footer._SEAL, seal_text([]))
    assert re.fullmatch(parquet_footer._SEAL, seal_text([3]))


# ------------------------------------------------------------------------------------------------ the arithmetic


def test_places_among_chosen_pages() -> None:
    pages = Pages(4, np.array([4, 14, 24]), np.array([10, 10, 10]), np.array([0, 100, 150]), 400)
    assert pages.counts.tolist() == [100, 50, 250]
    rows = np.array([3, 150, 399])
    assert pages.find_pages(rows).tolist() == [0, 2]
    assert pages.share(rows) == (20, 30)
    assert locate_rows(pages.firsts[[0, 2]], pages.counts[[0, 2]], rows).tolist() == [3, 100, 349]


def test_wide_rows_make_small_pages() -> None:
    rows = np.array([5, 9_000])
    assert estimate_page_share(rows, row_count=10_000, byte_count=10_000) == 1
    assert estimate_page_share(rows, row_count=10_000, byte_count=100 << 20) < 0.1
