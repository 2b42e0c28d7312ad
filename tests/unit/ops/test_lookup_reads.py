"""What look-ups of compactions read: near keys cost few bytes, far ones the key columns, many keys everything once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kit.changelogs import changelog
from kit.counting_io import CountedFileIO
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.expr.evaluate import matches
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.ops.compact.level_lookup import _Hit, keys_between
from tidelake.ops.read.keyed import Merging
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO

ROWS = 400_000
COLUMNS = {"k": "BIGINT NOT NULL", "a": "BIGINT", "b": "DOUBLE", "s": "STRING", "t": "STRING"}
LOOKUP = {"changelog-producer": "lookup"}
VECTORS = {"deletion-vectors.enabled": "true"}
KINDS = {"changelog": LOOKUP, "vectors": VECTORS, "both": LOOKUP | VECTORS}

Base = tuple[CountedFileIO, Table, str, bytes]


def rows_of(keys: np.ndarray, version: int, schema: pa.Schema) -> pa.Table:
    rng = np.random.default_rng(version)
    noise = rng.integers(0, 1 << 60, (2, len(keys)))
    texts = [pa.array(each).cast(pa.string()) for each in noise]
    columns = {"k": keys, "a": noise[0], "b": rng.random(len(keys)), "s": texts[0], "t": texts[1]}
    if "shop" in schema.names:
        columns["shop"] = pa.array(["one shop"]).take(pa.array(np.zeros(len(keys), np.int64)))
    if schema.field("k").type == pa.string():
        columns["k"] = pa.array([f"user-{key:012}" for key in keys.tolist()])
    return pa.Table.from_arrays(
        [pa.array(columns[field.name]).cast(field.type) for field in schema], schema=schema
    ).combine_chunks()


@pytest.fixture(scope="module")
def bases() -> Callable[..., MemoryFileIO]:
    """Loaded tables, made once; each test works on a copy."""
    made: dict[str, MemoryFileIO] = {}

    def loaded(kind: str, key: str) -> MemoryFileIO:
        if kind + key not in made:
            io = MemoryFileIO()
            lake = Lake(FileSystemCatalog(Env(io, FakeClock(1_000, tick_ms=1), SeededIds(1))))
            columns = {"shop": "STRING NOT NULL", **COLUMNS} if key == "composite" else dict(COLUMNS)
            if key == "text":
                columns["k"] = "STRING NOT NULL"
            names = ["shop", "k"] if key == "composite" else ["k"]
            options = {"bucket": "1", **KINDS[kind]}
            table = lake.create_table("d.t", columns, primary_key=names, options=options)
            table.write(rows_of(np.arange(ROWS) * 2, 0, table.schema.to_arrow()))
            table.compact(full=True)
            made[kind + key] = io
        return made[kind + key]

    return loaded


@pytest.fixture
def base(bases) -> Callable[[str, str], Base]:
    def copied(kind: str, key: str = "number") -> Base:
        source, copy = bases(kind, key), MemoryFileIO()
        for status in _files(source, ""):
            copy.write(status, source.read(status))
        io = CountedFileIO(copy)
        lake = Lake(FileSystemCatalog(Env(io, FakeClock(1_000_000, tick_ms=1), SeededIds(7))))
        table = lake.table("d.t")
        (name,) = table.files()["file_name"].to_pylist()
        data = copy.read(f"d.db/t/bucket-0/{name}")
        assert pq.ParquetFile(pa.BufferReader(data)).num_row_groups == 2
        io.reads.clear()
        return io, table, name, data

    return copied


def _files(io: MemoryFileIO, folder: str) -> list[str]:
    found = []
    for each in io.list(folder):
        found += _files(io, each.path) if each.is_dir else [each.path]
    return found


def column_bytes(data: bytes, *names: str) -> int:
    metadata = pq.ParquetFile(pa.BufferReader(data)).metadata
    return sum(
        metadata.row_group(group).column(leaf).total_compressed_size
        for group in range(metadata.num_row_groups)
        for leaf in range(metadata.num_columns)
        if metadata.schema.column(leaf).path in names
    )


def pages_until(data: bytes) -> int:
    """Where the pages end: the page index and the footer are behind."""
    metadata = pq.ParquetFile(pa.BufferReader(data)).metadata
    chunks = [metadata.row_group(metadata.num_row_groups - 1).column(leaf) for leaf in range(metadata.num_columns)]
    starts = [min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset) for chunk in chunks]
    return max(start + chunk.total_compressed_size for start, chunk in zip(starts, chunks, strict=True))


@pytest.mark.parametrize(
    ("kind", "key"),
    [("changelog", "number"), ("changelog", "text"), ("both", "composite"), ("vectors", "number")],
)
def test_keys_that_lie_close_together_cost_a_row_group_of_keys_and_a_page_of_each_column(base, kind, key) -> None:
    io, table, name, data = base(kind, key)
    keys = np.arange(300_000, 300_100)  # half of them are there
    table.write(rows_of(keys, 1, table.schema.to_arrow()))
    names = ("shop", "k") if key == "composite" else ("k",)
    values = len(data) - column_bytes(data, *names, *(f"_KEY_{each}" for each in names))
    pages = ROWS // 20_000
    # The tail of the file is read for its footer, and again for the page index.
    allowed = column_bytes(data, *names) * 0.7 + (200_000 if kind == "vectors" else 2 * values / pages + 300_000)
    assert io.bytes_of(name) < allowed, (io.bytes_of(name), len(data))
    assert io.twice(name, until=min(pages_until(data), len(data) - (64 << 10))) == 0
    if "changelog-producer" in KINDS[kind]:
        told = changelog(table, table.latest_snapshot().id)
        assert sorted({row[0] for row in told}) == ["+I", "+U", "-U"]
        assert len(told) == 150
    assert table.count() == ROWS + 50


def test_keys_far_apart_cost_the_key_columns_once_and_the_pages_that_they_lie_in(base) -> None:
    io, table, name, data = base("changelog")
    old = {row["k"]: row for row in table.to_arrow(where="k in (40, 399998, 700000)").to_pylist()}
    io.reads.clear()
    table.write(rows_of(np.array([40, 399_998, 700_000]), 1, table.schema.to_arrow()))
    values = len(data) - column_bytes(data, "k", "_KEY_k")
    assert io.bytes_of(name) < column_bytes(data, "k") + 4 * values / (ROWS // 20_000) + 300_000
    assert io.twice(name, until=min(pages_until(data), len(data) - (64 << 10))) == 0
    told = changelog(table, table.latest_snapshot().id)
    before = {row[1]: row for row in told if row[0] == "-U"}
    assert {key: before[key][1:] for key in before} == {key: tuple(row.values()) for key, row in old.items()}


@pytest.mark.parametrize("kind", ["changelog", "both"])
def test_many_keys_read_the_base_once_and_nothing_of_it_twice(base, kind) -> None:
    io, table, name, data = base(kind)
    expected = table.to_arrow()
    io.reads.clear()
    keys = np.arange(0, ROWS, 7) * 2
    news = rows_of(keys, 1, table.schema.to_arrow())
    table.write(news)
    pages = pages_until(data)
    assert io.twice(name, until=min(pages, len(data) - (64 << 10))) == 0
    assert io.bytes_of(name) <= len(data) - column_bytes(data, "_KEY_k") + 200_000
    found = table.to_arrow().sort_by("k")
    assert found.take(pa.array(keys // 2)).equals(news)
    rest = np.delete(np.arange(ROWS), keys // 2)
    assert found.take(pa.array(rest)).equals(expected.sort_by("k").take(pa.array(rest)))


def test_many_keys_in_several_windows_read_the_base_once(base, monkeypatch) -> None:
    """A window of the merge may end anywhere in a row group of the base."""
    monkeypatch.setattr("tidelake.ops.read.keyed._HAND_BYTES", 1 << 18)
    io, table, name, data = base("changelog")
    table.write(rows_of(np.arange(0, ROWS, 5) * 2, 1, table.schema.to_arrow()))
    assert io.twice(name, until=min(pages_until(data), len(data) - (64 << 10))) == 0
    assert len(changelog(table, table.latest_snapshot().id)) == 2 * ROWS // 5


def test_a_range_of_keys_of_several_columns_is_that_of_the_whole_keys() -> None:
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000), SeededIds(1))))
    columns = {"a": "INT NOT NULL", "b": "STRING NOT NULL", "c": "INT NOT NULL"}
    table = lake.create_table("d.t", columns, primary_key=list(columns), options={"bucket": "1"})
    merging = Merging(table.schema, table.context.options)
    keys = [(a, b, c) for a in range(3) for b in ("", "x", "xy") for c in range(-1, 2)]
    rows = pa.Table.from_pylist([dict(zip(columns, key, strict=True)) for key in keys], schema=table.schema.to_arrow())
    arrays = {name: rows.column(name).combine_chunks() for name in columns}
    for first in keys:
        for last in keys:
            named = (dict(zip(columns, key, strict=True)) for key in (first, last))
            found = matches(keys_between(merging, *named), arrays, len(keys)).to_pylist()
            assert found == [first <= key <= last for key in keys]
        above = keys_between(merging, dict(zip(columns, first, strict=True)), None)
        assert matches(above, arrays, len(keys)).to_pylist() == [first <= key for key in keys]


@pytest.mark.parametrize("shops", [1, 40])
def test_keys_of_two_columns_are_found_at_both_ends_of_row_groups(shops) -> None:
    """Bounds of a row group are those of each column; its keys are in the order of both."""
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000, tick_ms=1), SeededIds(1))))
    columns = {"shop": "INT NOT NULL", "k": "INT NOT NULL", "v": "INT"}
    options = {"bucket": "1", "file.block-size": "20 kb", **VECTORS}
    table = lake.create_table("d.t", columns, primary_key=["shop", "k"], options=options)
    numbers = np.arange(8_000)
    data = {"shop": numbers // (8_000 // shops), "k": numbers % (8_000 // shops), "v": numbers}
    schema = table.schema.to_arrow()
    table.write(pa.table(data).cast(schema))
    table.compact(full=True)
    for at in range(900, 7_900, 331):
        near = slice(at, at + 50)
        table.write(pa.table({"shop": data["shop"][near], "k": data["k"][near], "v": -numbers[near]}).cast(schema))
        assert table.count() == 8_000


def test_files_without_a_page_index_are_looked_up_all_the_same(base, monkeypatch) -> None:
    monkeypatch.setattr("tidelake.files.parquet.read.PagesOfFile.of", lambda *_, **__: None)
    _, table, _, _ = base("both")
    old = table.to_arrow(where="k = 300000").to_pylist()
    table.write(rows_of(np.array([300_000, 300_001]), 1, table.schema.to_arrow()))
    told = changelog(table, table.latest_snapshot().id)
    assert [row[0] for row in told] == ["-U", "+U", "+I"]
    assert told[0][1:] == tuple(old[0].values())


@pytest.mark.parametrize("format_", ["orc", "avro"])
def test_other_formats_are_looked_up_all_the_same(format_) -> None:
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000, tick_ms=1), SeededIds(1))))
    options = {"bucket": "1", "file.format": format_, **LOOKUP, **VECTORS}
    table = lake.create_table("d.t", COLUMNS, primary_key=["k"], options=options)
    first = rows_of(np.arange(5_000), 0, table.schema.to_arrow())
    table.write(first)
    table.compact(full=True)
    table.write(rows_of(np.array([7, 4_000]), 1, table.schema.to_arrow()))
    told = changelog(table, table.latest_snapshot().id)
    assert [row[:2] for row in told] == [("-U", 7), ("+U", 7), ("-U", 4_000), ("+U", 4_000)]
    assert told[0][1:] == tuple(first.slice(7, 1).to_pylist()[0].values())
    assert table.count() == 5_000


@pytest.mark.parametrize("kind", KINDS)
def test_texts_of_few_values_come_out_of_look_ups_as_they_went_in(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    coded: list[bool] = []
    taken = _Hit.rows

    def seen(hit: _Hit, columns: list[str]) -> pa.Table:
        coded.append(pa.types.is_dictionary(hit.piece["c"].type))
        return taken(hit, columns)

    monkeypatch.setattr(_Hit, "rows", seen)
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000, tick_ms=1), SeededIds(1))))
    options = {"bucket": "1", "merge-engine": "partial-update", **KINDS[kind]}
    columns = {"k": "INT NOT NULL", "c": "STRING", "v": "INT"}
    table = lake.create_table("d.t", columns, primary_key=["k"], options=options)
    names = ["red", "green", None, "", "blue"]
    table.write([{"k": k, "c": names[k % 5], "v": k} for k in range(20_000)])
    table.compact(full=True)
    table.write([{"k": k, "v": -k, "c": None} for k in range(0, 20_000, 7)])
    expected = [{"k": k, "c": names[k % 5], "v": -k if k % 7 == 0 else k} for k in range(20_000)]
    assert table.to_arrow(order_by="k").to_pylist() == expected
    assert coded
    assert all(coded)
    if kind != "vectors":
        told = table.changes(since=table.latest_snapshot().id - 1).to_arrow().to_pylist()
        before = [(row["k"], row["c"], row["v"]) for row in told if row["rowkind"] == "-U"]
        after = [(row["k"], row["c"], row["v"]) for row in told if row["rowkind"] == "+U"]
        assert before == [(k, names[k % 5], k) for k in range(0, 20_000, 7)]
        assert after == [(k, names[k % 5], -k) for k in range(0, 20_000, 7)]
