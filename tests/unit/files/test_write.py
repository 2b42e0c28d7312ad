"""Writing files: statistics, rolling, giving up, and what a failing storage leaves behind."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from kit.file_samples import make_batch, make_fields, read, values_of, write
from tidelake.errors import FormatError, InvalidInputError, StorageError
from tidelake.files.options import FORMATS, FileOptions
from tidelake.files.parquet.write import ROW_GROUP_ROWS
from tidelake.files.write.rolling import FileWriter, RollingWriter
from tidelake.io import FileIO, LocalFileIO, MemoryFileIO
from tidelake.spec.stats.column_stats import UNKNOWN, ColumnStats, collect
from tidelake.spec.stats.stats_modes import FULL, parse_stats_mode
from tidelake.testing import Crash, Fault, FaultyFileIO, UnsyncedFileIO

SIMPLE = make_fields({"id": "INT NOT NULL", "s": "STRING"})


def rows(count: int, start: int = 0) -> pa.RecordBatch:
    return make_batch([{"id": n, "s": f"text {n}"} for n in range(start, start + count)], SIMPLE)


# ------------------------------------------------------------------------------------------------ statistics


@pytest.mark.parametrize("kind", FORMATS)
def test_statistics_are_those_of_a_pass_over_the_column(kind: str) -> None:
    without = {"BLOB", "GEOMETRY", "GEOGRAPHY"}
    if kind == "parquet":  # nulls of nested columns are counted in the other formats
        without |= {"ARRAY", "MAP", "MULTISET", "ROW", "VECTOR", "VARIANT"}
    for text, values in values_of(kind).items():
        fields = make_fields({"v": text})
        batches = [make_batch([{"v": value}, {}], fields) for value in values]
        _, _, written = write(batches, fields, kind, {"metadata.stats-mode": "full"}, flush=True)
        root = fields[0].type.root.value
        if root in without:
            assert written.columns == (UNKNOWN,), text
            continue
        expected = collect(pa.Table.from_batches(batches).column(0), fields[0].type, FULL)
        if kind == "parquet" and text.startswith("TIMESTAMP(") and int(text[10]) > 6:
            expected = ColumnStats(null_count=expected.null_count)
        assert written.columns == (expected,), text


@pytest.mark.parametrize("kind", FORMATS)
def test_a_column_that_holds_nan_has_no_bounds(kind: str) -> None:
    fields = make_fields({"d": "DOUBLE", "f": "FLOAT"})
    batches = [
        make_batch([{"d": 1.0, "f": 2.0}], fields),
        make_batch([{"d": float("nan"), "f": -0.0}, {"d": 3.0}], fields),
    ]
    _, _, written = write(batches, fields, kind, flush=True)
    assert written.columns == (ColumnStats(null_count=0), ColumnStats(-0.0, 2.0, 1))


@pytest.mark.parametrize("kind", FORMATS)
def test_rows_that_are_all_null_do_not_hide_the_bounds_of_others(kind: str) -> None:
    fields = make_fields({"n": "INT", "s": "STRING"})
    batches = [make_batch([{}, {}], fields), make_batch([{"n": 5, "s": "x"}, {"n": 7}], fields)]
    _, _, written = write(batches, fields, kind, flush=True)
    assert written.columns == (ColumnStats(5, 7, 2), ColumnStats("x", "x", 3))


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("flush", [True, False])
def test_bounds_of_texts_too_long_for_arrow_are_kept(kind: str, flush: bool) -> None:
    fields = make_fields({"s": "STRING", "b": "BYTES"})
    batches = [
        make_batch([{"s": "b", "b": b"b"}, {"s": "z" * 9000, "b": b"a" * 9000}], fields),
        make_batch([{"s": "a" * 5000, "b": b"zz"}, {}], fields),
    ]
    _, _, full = write(batches, fields, kind, {"metadata.stats-mode": "full"}, flush=flush)
    assert full.columns == (ColumnStats("a" * 5000, "z" * 9000, 1), ColumnStats(b"a" * 9000, b"zz", 1))
    _, _, short = write(batches, fields, kind, flush=flush)
    assert short.columns[0] == ColumnStats("a" * 16, "z" * 15 + "{", 1)


@pytest.mark.parametrize("mode", ["none", "counts", "truncate(2)", "full"])
def test_a_mode_decides_what_is_kept(mode: str) -> None:
    fields = make_fields({"s": "STRING", "n": "INT"})
    batch = make_batch([{"s": "abcdef", "n": 1}, {"s": "b", "n": None}], fields)
    found = {}
    for kind in FORMATS:
        found[kind] = write(batch, fields, kind, {"metadata.stats-mode": mode})[2].columns
    expected = tuple(
        collect(column, field.type, parse_stats_mode(mode)) for column, field in zip(batch, fields, strict=True)
    )
    assert found == dict.fromkeys(FORMATS, expected)


def test_decimals_and_moments_have_exact_bounds() -> None:
    fields = make_fields({"m": "DECIMAL(38, 2)", "t": "TIMESTAMP(6)", "d": "DECIMAL(9, 2)"})
    big = Decimal("9" * 36 + ".99")
    batch = make_batch(
        [{"m": big, "t": -1, "d": Decimal("-1.25")}, {"m": big.copy_negate(), "t": 1, "d": Decimal("0.05")}], fields
    )
    _, _, written = write(batch, fields, "parquet")
    assert written.columns == (
        ColumnStats(big.copy_negate(), big, 0),
        ColumnStats((-1, 999_000), (0, 1_000), 0),
        ColumnStats(Decimal("-1.25"), Decimal("0.05"), 0),
    )


# ------------------------------------------------------------------------------------------------ row groups


def test_a_row_group_ends_at_its_rows_or_its_bytes() -> None:
    count = 2 * ROW_GROUP_ROWS + 10
    fields = make_fields({"id": "INT NOT NULL"})
    batch = pa.RecordBatch.from_arrays(
        [pa.array(np.arange(count, dtype=np.int32))], schema=make_batch([], fields).schema
    )
    io, path, _ = write(batch, fields, "parquet")
    assert groups(io, path) == [ROW_GROUP_ROWS, ROW_GROUP_ROWS, 10]
    io, path, _ = write(batch.slice(0, 100_000), fields, "parquet", {"file.block-size": "100 kb"})
    assert sum(groups(io, path)) == 100_000
    assert max(groups(io, path)) <= 2 * 25_600


def groups(io: FileIO, path: str) -> list[int]:
    metadata = pq.read_metadata(pa.BufferReader(io.read(path)))
    return [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]


def test_dictionary_encoding_and_codecs_can_be_chosen() -> None:
    options = {"parquet.enable.dictionary": "false", "file.compression": "snappy"}
    io, path, _ = write(rows(100), SIMPLE, "parquet", options)
    column = pq.read_metadata(pa.BufferReader(io.read(path))).row_group(0).column(1)
    assert column.compression == "SNAPPY"
    assert not column.has_dictionary_page
    io, path, _ = write(rows(100), SIMPLE, "orc", {"file.compression": "zlib"})
    assert orc.ORCFile(pa.BufferReader(io.read(path))).compression == "ZLIB"


def test_orc_columns_carry_their_field_ids() -> None:
    fields = make_fields({"a": "INT", "r": "ROW<x INT>"})
    io, path, _ = write(make_batch([{"a": 1, "r": {"x": 1}}], fields), fields, "orc")
    schema = orc.ORCFile(pa.BufferReader(io.read(path))).schema
    assert [field.metadata[b"paimon.id"] for field in schema] == [b"0", b"1"]
    assert schema.field("r").type.field("x").metadata[b"paimon.id"] == b"2"


# ------------------------------------------------------------------------------------------------ rolling


def names() -> Any:
    numbers = itertools.count()
    return lambda extension: f"data-u-{next(numbers)}.{extension}"


def rolling(io: FileIO, kind: str, target_bytes: int, **more: Any) -> RollingWriter:
    return RollingWriter(
        io,
        "bucket-0",
        SIMPLE,
        names=names(),
        format=kind,
        options=FileOptions.parse({}),
        target_bytes=target_bytes,
        **more,
    )


def random_rows(count: int, seed: int) -> pa.RecordBatch:
    generator = np.random.default_rng(seed)
    texts = pa.array([bytes(row).hex() for row in generator.integers(0, 256, (count, 30), dtype=np.uint8)])
    ids = pa.array(generator.integers(0, 2**31, count, dtype=np.int32))
    return pa.RecordBatch.from_arrays([ids, texts], schema=rows(0).schema)


@pytest.mark.parametrize("kind", FORMATS)
def test_files_roll_near_the_target_size_and_no_row_is_lost(kind: str) -> None:
    io = MemoryFileIO()
    target = 400_000
    writer = rolling(io, kind, target)
    batches = [random_rows(7_000, seed) for seed in range(10)]
    for batch in batches:
        writer.write(batch)
    files = writer.close()
    assert len(files) > 4
    for file in files[:-1]:
        assert 0.6 * target < file.file_size < 1.6 * target
    assert [file.file_name for file in files] == [f"data-u-{n}.{kind}" for n in range(len(files))]
    found = pa.concat_tables(read(io, f"bucket-0/{file.file_name}", SIMPLE) for file in files)
    assert found.combine_chunks().equals(pa.Table.from_batches(batches).combine_chunks())
    assert [child.size for child in io.list("bucket-0")] == [
        file.file_size for file in sorted(files, key=lambda file: file.file_name)
    ]


def test_rows_that_compress_well_fill_a_file_as_well() -> None:
    io = MemoryFileIO()
    writer = rolling(io, "parquet", 60_000)
    for start in range(0, 400_000, 20_000):
        writer.write(rows(20_000, start))
    files = writer.close()
    assert len(files) > 2
    for file in files[:-1]:
        assert 0.8 * 60_000 < file.file_size < 1.7 * 60_000


@pytest.mark.parametrize("kind", FORMATS)
def test_files_roll_at_a_number_of_rows(kind: str) -> None:
    io = MemoryFileIO()
    writer = rolling(io, kind, 1 << 30, target_rows=300)
    writer.write(rows(1000))
    assert [file.row_count for file in writer.close()] == [300, 300, 300, 100]


def test_without_rows_no_file_is_made() -> None:
    io = MemoryFileIO()
    writer = rolling(io, "parquet", 1000)
    writer.write(rows(0))
    assert writer.close() == []
    assert io.list("") == []


# ------------------------------------------------------------------------------------------------ giving up


@pytest.mark.parametrize("kind", FORMATS)
def test_abort_leaves_nothing(kind: str, tmp_path: Any) -> None:
    io = LocalFileIO(tmp_path)
    writer = FileWriter(io, f"bucket-0/a.{kind}", SIMPLE, format=kind, options=FileOptions())
    writer.write(rows(5000))
    writer.abort()
    writer.abort()
    several = rolling(io, kind, 10_000)
    for start in range(0, 100_000, 20_000):
        several.write(rows(20_000, start))
    assert several.written_files
    several.abort()
    assert io.list("bucket-0") == []
    with pytest.raises(InvalidInputError, match="closed"):
        writer.write(rows(1))
    with pytest.raises(InvalidInputError, match="closed"):
        several.write(rows(1))


def test_an_interrupt_just_after_a_file_was_created_leaves_no_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    io, open_output = LocalFileIO(tmp_path), LocalFileIO.open_output

    def interrupt(self: LocalFileIO, path: str, *, durable: bool = True) -> Any:
        open_output(self, path, durable=durable)
        raise KeyboardInterrupt

    several = rolling(io, "parquet", 10_000)
    several.write(rows(20_000))
    assert len(io.list("bucket-0")) > 0
    monkeypatch.setattr(LocalFileIO, "open_output", interrupt)
    with pytest.raises(KeyboardInterrupt):
        several.write(rows(20_000))
    several.abort()
    assert io.list("bucket-0") == []


@pytest.mark.parametrize("kind", FORMATS)
def test_a_name_that_is_taken_is_not_replaced(kind: str, tmp_path: Any) -> None:
    for io in (MemoryFileIO(), LocalFileIO(tmp_path)):
        path = f"bucket-0/a.{kind}"
        io.write(path, b"another file")
        with pytest.raises(StorageError) as caught:
            write(rows(1), SIMPLE, kind, io=io, path=path)
        assert caught.value.code == "file-exists"
        assert io.read(path) == b"another file"


def test_a_batch_of_other_columns_is_refused() -> None:
    for batch in (
        make_batch([{"id": 1}], make_fields({"id": "INT NOT NULL"})),
        make_batch([{"id": 1}], make_fields({"id": "BIGINT", "s": "STRING"})),
        make_batch([{"id": 1}], make_fields({"s": "STRING", "id": "INT"})),
    ):
        with pytest.raises(InvalidInputError, match="not those of the file"):
            write(batch, SIMPLE, "parquet")


@pytest.mark.parametrize("kind", FORMATS)
def test_nulls_in_a_column_declared_without_are_refused(kind: str) -> None:
    with pytest.raises(InvalidInputError, match="NOT NULL"):
        write(make_batch([{"s": "x"}], SIMPLE), SIMPLE, kind)


def test_nulls_inside_an_array_declared_without_are_refused_by_parquet() -> None:
    fields = make_fields({"a": "ARRAY<INT NOT NULL>"})
    with pytest.raises(InvalidInputError, match="cannot be written"):
        write(make_batch([{"a": [1, None]}], fields), fields, "parquet")


# ------------------------------------------------------------------------------------------------ faults


def scenario(io: FileIO, kind: str) -> None:
    writer = rolling(io, kind, 30_000)
    try:
        for seed in range(4):
            writer.write(random_rows(1000, seed))
        writer.close()
    except StorageError:
        writer.abort()
        raise


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER, Fault.TORN, Fault.NO_SPACE])
def test_after_every_failing_write_a_retry_finds_a_clean_folder(kind: str, fault: Fault) -> None:
    clean = FaultyFileIO(MemoryFileIO())
    scenario(clean, kind)
    steps = [op for op in clean.ops if op.name.startswith(("open_output", "output_"))]
    assert {op.name for op in steps} == {"open_output", "output_write", "output_close"}
    for op in steps:
        io = FaultyFileIO(MemoryFileIO(), {op.number: fault})
        with pytest.raises(StorageError):
            scenario(io, kind)
        assert [(op_seen.name, kind) for op_seen, kind in io.injected_faults] == [(op.name, fault)]
        assert io.inner.list("") == []


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("fault", [Fault.CRASH, Fault.CRASH_AFTER])
def test_a_crash_is_not_swallowed_and_nothing_is_touched_after_it(kind: str, fault: Fault) -> None:
    clean = FaultyFileIO(MemoryFileIO())
    scenario(clean, kind)
    for op in clean.ops:
        io = FaultyFileIO(MemoryFileIO(), {op.number: fault})
        with pytest.raises(Crash):
            scenario(io, kind)
        assert io.ops[-1].number == op.number


@pytest.mark.parametrize("kind", FORMATS)
def test_a_closed_file_survives_a_power_loss(kind: str) -> None:
    for seed in range(10):
        io = UnsyncedFileIO()
        _, path, written = write(rows(2000), SIMPLE, kind, io=io)
        io.crash(seed)
        assert io.status(path).size == written.file_size
        assert read(io, path, SIMPLE).num_rows == 2000


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_that_was_not_closed_is_damaged_or_gone_after_a_power_loss(kind: str) -> None:
    io = UnsyncedFileIO()
    write(rows(2000), SIMPLE, kind, io=io)
    for crash_at in range(1, len(io.calls) + 1):
        again = UnsyncedFileIO(crash_at=crash_at)
        with pytest.raises(Crash):
            write(rows(2000), SIMPLE, kind, io=again)
        again.crash(crash_at)
        path = f"bucket-0/data-1-0.{kind}"
        if again.exists(path):
            try:
                found = read(again, path, SIMPLE).num_rows
            except FormatError:
                continue
            assert found in (0, 2000)


def test_memory_stays_bounded_while_a_large_file_is_written(tmp_path: Any) -> None:
    fields = make_fields({"id": "BIGINT NOT NULL", "s": "STRING"})
    options = FileOptions.parse({"file.block-size": "4 mb"})
    io = LocalFileIO(tmp_path, durability="none")
    writer = FileWriter(io, "a.parquet", fields, format="parquet", options=options)
    schema = make_batch([], fields).schema

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, 2_000_000, 20_000):
            ids = pa.array(np.arange(start, start + 20_000))
            yield pa.RecordBatch.from_arrays([ids, ids.cast(pa.string())], schema=schema)

    before, peak = pa.total_allocated_bytes(), 0
    for batch in batches():
        writer.write(batch)
        peak = max(peak, pa.total_allocated_bytes() - before)
        assert writer.buffered_bytes < 5 << 20
    assert writer.close().row_count == 2_000_000
    assert peak < 24 << 20
