"""Bad input at the front door: a typed error that names the column and the fix; nothing written, nothing lost."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidelake as tl
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO
from tidelake.testing.scenario import take_image

COLUMNS = {
    "id": "INT NOT NULL", "s": "STRING", "c": "VARCHAR(3)", "d": "DECIMAL(5, 2)", "day": "DATE", "ts": "TIMESTAMP(3)",
    "t1": "TIMESTAMP(1)", "tm": "TIME(3)", "t0": "TIME(0)", "f": "FLOAT", "b": "BOOLEAN", "y": "TINYINT",
    "bi": "BIGINT", "bin": "BINARY(2)", "l": "ARRAY<INT NOT NULL>", "m": "MAP<STRING, INT>",
    "r": "ROW<x INT NOT NULL, y STRING>", "ds": "ARRAY<DECIMAL(5, 2)>",
}  # fmt: skip
NAIVE, MORNING = dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, 5)


def new_table(columns: dict[str, str] | None = None, **how: Any) -> Table:
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000), SeededIds(1))))
    return lake.create_table("d.t", columns or COLUMNS, **how)


def image(table: Table) -> dict[str, bytes]:
    """Every file of the table."""
    return take_image(table.store.env.io)


def of(name: str, *values: Any, type: pa.DataType | None = None) -> pa.Table:  # noqa: A002 - as Arrow says it
    """A row for each value, in Arrow, with an id."""
    column = values[0] if isinstance(values[0], pa.Array) else pa.array(values, type)
    return pa.table({"id": pa.array(range(len(column)), pa.int32()), name: column})


def row(**values: Any) -> list[dict[str, Any]]:
    return [{"id": 1, **values}]


NOT_UTF8 = pa.Array.from_buffers(
    pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe")]
)
ROW_WITH_MORE = pa.array([{"x": 1, "y": "a", "z": 2}])
ROW_TWICE = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
ZONED = pa.array([NAIVE], pa.timestamp("ms", "Europe/Berlin"))

MISFITS: list[tuple[Any, str, str | None]] = [
    # Another kind of value.
    ([{"id": "x"}], "value-type", "id"),
    ([{"id": "5"}], "value-type", "id"),
    ([{"id": True}], "value-type", "id"),
    (of("bi", "7"), "value-type", "bi"),
    (of("bi", True), "value-type", "bi"),
    (of("bi", dt.timedelta(seconds=1)), "value-type", "bi"),
    (of("b", 1), "value-type", "b"),
    (row(b=1), "value-type", "b"),
    (of("s", 5), "value-type", "s"),
    (row(s=5), "value-type", "s"),
    (of("day", "2024-01-01"), "value-type", "day"),
    (of("tm", 5), "value-type", "tm"),
    (row(l="abc"), "value-type", "l"),
    (row(l=5), "value-type", "l"),
    (row(r=5), "value-type", "r"),
    (of("l", ["a"]), "value-type", "l"),
    (of("m", {"a": 1}), "value-type", "m"),
    (of("s", pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])), "value-type", "s"),
    # Numbers that do not fit, or lose something.
    ([{"id": 2**31}], "value-type", "id"),
    ([{"id": 1.5}], "value-type", "id"),
    (of("y", 300), "value-type", "y"),
    (of("y", 1.5), "value-type", "y"),
    (of("bi", 2**63, type=pa.uint64()), "value-type", "bi"),
    (of("f", 2**24 + 1), "value-type", "f"),
    (of("f", 1e300), "value-type", "f"),
    (row(f=1e300), "value-type", "f"),
    (row(d=Decimal("1.005")), "value-type", "d"),
    (row(d=Decimal("1000.00")), "value-type", "d"),
    (row(d=1.555), "value-type", "d"),
    (row(d=Decimal("NaN")), "value-type", "d"),
    (row(d=Decimal("-Infinity")), "value-type", "d"),
    (of("d", 1.555), "value-type", "d"),
    (of("d", float("nan")), "value-type", "d"),
    (of("d", float("inf")), "value-type", "d"),
    (of("d", Decimal("10000.5")), "value-type", "d"),
    (of("ds", [1.5, 1.555]), "value-type", "ds"),
    # Days and moments.
    (row(day=MORNING), "value-type", "day"),
    (of("day", MORNING), "value-type", "day"),
    (of("day", 86_400_001, type=pa.date64()), "value-type", "day"),
    (of("day", 2**31 - 1, type=pa.date32()), "value-type", "day"),
    (of("day", -800_000, type=pa.date32()), "value-type", "day"),
    (row(ts=NAIVE.replace(microsecond=1)), "value-type", "ts"),
    (of("ts", 1, type=pa.timestamp("us")), "value-type", "ts"),
    (of("ts", 2**62, type=pa.timestamp("s")), "value-type", "ts"),
    (of("ts", 10**15, type=pa.timestamp("ms")), "value-type", "ts"),
    (of("ts", ZONED), "value-type", "ts"),
    (row(ts=NAIVE.replace(tzinfo=dt.UTC)), "value-type", "ts"),
    (of("t1", 123, type=pa.timestamp("ms")), "value-type", "t1"),
    (of("tm", -1, type=pa.time32("ms")), "value-type", "tm"),
    (of("tm", 86_400_000, type=pa.time32("ms")), "value-type", "tm"),
    (of("tm", 1, type=pa.time64("us")), "value-type", "tm"),
    (of("t0", 1, type=pa.time32("ms")), "value-type", "t0"),
    # Texts and bytes.
    (of("s", b"\xff\xfe"), "value-type", "s"),
    (of("s", NOT_UTF8), "value-type", "s"),
    (of("c", NOT_UTF8), "value-type", "c"),
    (of("s", NOT_UTF8.cast(pa.large_string())), "value-type", "s"),
    (row(s="\ud800"), "value-type", "s"),
    (row(s=b"\xff"), "value-type", "s"),
    (row(c="abcd"), "value-too-long", "c"),
    (of("bin", b"abc"), "value-too-long", "bin"),
    # Nulls, at the top and below it.
    ([{"id": None}], "null-value", "id"),
    ([{"s": "a"}], "null-value", "id"),
    ([{}], "null-value", "id"),
    (row(l=[1, None]), "null-value", "l.element"),
    (row(r={"y": "a"}), "null-value", "r.x"),
    (of("r", {"x": None, "y": "a"}), "value-type", "r"),
    (row(m=[(None, 1)]), "value-type", "m"),
    # Columns and members.
    (of("nope", 1), "column-unknown", "nope"),
    ([{"ID": 1}], "column-unknown", "ID"),
    (pa.table({"nope": pa.array([], pa.int32())}), "column-unknown", "nope"),
    (pa.table([[1], [2]], names=["id", "id"]), "column-duplicate", "id"),
    (row(r={"x": 1, "z": 2}), "value-type", "r"),
    (of("r", ROW_WITH_MORE), "value-type", "r"),
    (of("r", ROW_TWICE), "value-type", "r"),
    (row(m=[("a", 1), ("b", 1), ("a", 2)]), "value-type", "m"),
    ({"id": [1, 2], "s": ["a"]}, "column-length", None),
    # Nothing that holds rows.
    (None, "invalid-input", None),
    (5, "invalid-input", None),
    ("rows", "invalid-input", None),
    ([1], "invalid-input", None),
    ([None], "invalid-input", None),
    ([{1: 2}], "invalid-input", None),
]  # fmt: skip


@pytest.mark.parametrize(("data", "code", "column"), MISFITS)
def test_what_does_not_fit_is_refused_and_leaves_nothing(data: Any, code: str, column: str | None) -> None:
    table = new_table()
    before = image(table)
    with pytest.raises(tl.InvalidInputError) as caught:
        table.write(data)
    assert (caught.value.code, caught.value.facts.get("column")) == (code, column)
    assert caught.value.hint or caught.value.code in ("column-length", "invalid-input")
    assert image(table) == before


FITS: list[tuple[Any, str, Any]] = [
    ([{"id": 1.0}], "id", 1),
    (of("bi", 7, type=pa.uint8()), "bi", 7),
    (of("d", 1.5), "d", Decimal("1.50")),
    (of("d", 3), "d", Decimal("3.00")),
    (of("f", 0.5), "f", 0.5),
    (of("f", float("inf")), "f", float("inf")),
    (of("day", NAIVE), "day", dt.date(2024, 1, 1)),
    (of("day", dt.date(9999, 12, 31)), "day", dt.date(9999, 12, 31)),
    (of("ts", dt.date(2024, 1, 1)), "ts", NAIVE),
    (of("t1", 100, type=pa.timestamp("ms")), "t1", dt.datetime(1970, 1, 1, 0, 0, 0, 100_000)),
    (of("s", b"ab"), "s", "ab"),
    (of("s", "a", type=pa.string_view()), "s", "a"),
    (of("s", pa.array(["a"]).dictionary_encode()), "s", "a"),
    (of("bi", pa.RunEndEncodedArray.from_arrays([1], [5])), "bi", 5),
    (of("s", pa.nulls(1)), "s", None),
    (of("r", {"x": 1}), "r", {"x": 1, "y": None}),
    (of("r", pa.array([None], pa.struct([("x", pa.int64())]))), "r", None),
    (of("r", pa.array([{"y": "a", "x": 1}], pa.struct([("y", pa.string()), ("x", pa.int64())]))), "r",
     {"x": 1, "y": "a"}),
    (of("l", [1], type=pa.large_list(pa.int64())), "l", [1]),
    (of("ds", [1.5, None]), "ds", [Decimal("1.50"), None]),
    (row(m={"a": 1, "b": None}), "m", [("a", 1), ("b", None)]),
    (of("m", [("a", 1)], type=pa.map_(pa.string(), pa.int64())), "m", [("a", 1)]),
]  # fmt: skip


@pytest.mark.parametrize(("data", "column", "value"), FITS)
def test_what_fits_without_loss_is_written_in_whatever_form_it_comes(data: Any, column: str, value: Any) -> None:
    table = new_table()
    table.write(data)
    assert table.to_arrow(columns=[column]).to_pylist() == [{column: value}]


def test_an_unknown_column_is_told_with_the_columns_that_there_are() -> None:
    with pytest.raises(tl.InvalidInputError, match="columns are id, s, n"):
        new_table({"id": "INT", "s": "STRING", "n": "INT"}).write([{"x": 1}])


@pytest.mark.parametrize("data", [[], pa.table({}), pa.table({"id": pa.array([], pa.int32())}), iter(())])
def test_no_rows_make_no_snapshot(data: Any) -> None:
    table = new_table()
    before = image(table)
    assert table.write(data).snapshot_ids == ()
    assert image(table) == before


def test_rows_and_batches_in_one_stream_keep_their_order() -> None:
    table = new_table({"id": "INT"})
    table.write([{"id": 1}, pa.record_batch({"id": [2, 3]}), {"id": 4}, {"id": 5}])
    assert table.to_arrow().column("id").to_pylist() == [1, 2, 3, 4, 5]


# ------------------------------------------------------------------------------------------------ streams


class SourceError(Exception):
    """What the source of a stream raises."""


def batch(*ids: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(ids, pa.int32()), "dt": [f"d{i % 2}" for i in ids]})


def breaking() -> Iterator[pa.RecordBatch]:
    yield batch(*range(1000))
    yield batch(*range(1000, 3000))
    raise SourceError


def breaking_rows() -> Iterator[dict[str, Any]]:
    yield {"id": 1, "dt": "d1"}
    raise SourceError


def changing() -> Iterator[pa.RecordBatch]:
    yield batch(1, 2)
    yield pa.record_batch({"id": ["x"], "dt": ["d1"]})


def growing() -> Iterator[pa.RecordBatch]:
    yield batch(1, 2)
    yield pa.record_batch({"id": [3], "more": ["x"]})


@pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
@pytest.mark.parametrize(
    ("source", "error"),
    [
        (breaking, SourceError),
        (breaking_rows, SourceError),
        (lambda: pa.RecordBatchReader.from_batches(batch(1).schema, breaking()), SourceError),
        (changing, tl.InvalidInputError),
        (growing, tl.InvalidInputError),
    ],
    ids=["batches", "rows", "reader", "changing", "growing"],
)
def test_a_stream_that_breaks_off_leaves_nothing(source: Callable[[], Any], error: type[Exception], kind: str) -> None:
    # Files roll on the way, so that complete ones have to be removed too.
    options = {"file.format": kind, "target-file-row-num": "200"}
    table = new_table({"id": "INT NOT NULL", "dt": "STRING"}, partition_by=["dt"], options=options)
    table.write([{"id": 7, "dt": "d1"}])
    before = image(table)
    for mode in ("append", "overwrite", "overwrite-dynamic"):
        with pytest.raises(error):
            table.write(source(), mode=mode)
        assert image(table) == before


def test_an_error_of_a_foreign_stream_is_told_as_broken_data() -> None:
    class Foreign:
        def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
            reader = pa.RecordBatchReader.from_batches(batch(1).schema, breaking())
            return reader.__arrow_c_stream__(requested_schema)

    table = new_table({"id": "INT NOT NULL", "dt": "STRING"})
    before = image(table)
    with pytest.raises(tl.InvalidInputError, match="broke off"):
        table.write(Foreign())
    assert image(table) == before


def test_batches_may_come_in_different_types_that_fit() -> None:
    table = new_table({"id": "INT NOT NULL", "s": "STRING"})
    table.write([pa.record_batch({"id": pa.array([1], pa.int8())}), pa.record_batch({"s": ["x"], "id": [2]})])
    assert table.to_arrow().to_pylist() == [{"id": 1, "s": None}, {"id": 2, "s": "x"}]


# ------------------------------------------------------------------------------------------------ update and delete


@pytest.mark.parametrize(
    ("assignments", "where"),
    [
        ({"nope": "1"}, "id = 1"),
        ({"id": "'x'"}, "id = 1"),
        ({"id": "null"}, "id = 1"),
        ({"id": None}, "id = 1"),
        ({"id": 1.5}, "id = 1"),
        ({"y": "y * 100"}, "id = 1"),
        ({"d": "d * 1000"}, "id = 1"),
        ({"d": float("nan")}, "id = 1"),
        ({"c": "'abcd'"}, "id = 1"),
        ({"s": "id"}, "id = 1"),
        ({"id": "id / 0"}, "id = 1"),
        ({"id": "1 +"}, "id = 1"),
        ({"id": "nope + 1"}, "id = 1"),
        ({"l": [1]}, "id = 1"),
        ({}, "id = 1"),
        (["id"], "id = 1"),
        ({"id": "1"}, "nope = 1"),
        ({"id": "1"}, "id"),
        ({"id": "1"}, None),
        ({"id": "1"}, 5),
        ({"id": "1"}, ""),
    ],
)
def test_an_update_that_cannot_be_done_changes_nothing(assignments: Any, where: Any) -> None:
    table = new_table()
    table.write(row(y=100, d=Decimal("9.99")))
    before = image(table)
    with pytest.raises(tl.InvalidInputError):
        table.update(assignments, where)
    assert image(table) == before


@pytest.mark.parametrize("where", [None, 5, True, "", "id =", "nope = 1", "id + 1", "id = 'x'", tl.col("nope") == 1])
def test_a_delete_that_cannot_be_understood_changes_nothing(where: Any) -> None:
    table = new_table()
    table.write(row())
    before = image(table)
    with pytest.raises(tl.InvalidInputError):
        table.delete(where)
    assert image(table) == before


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"add": {"s": "INT"}},
        {"add": {"q": "INT NOT NULL"}},
        {"add": {"q": "INTT"}},
        {"add": {"q": 5}},
        {"add": {1: "INT"}},
        {"add": {"": "INT"}},
        {"add": {"\ud800": "INT"}},
        {"drop": ["nope"]},
        {"drop": list(COLUMNS)},
        {"drop": 5},
        {"rename": {"s": "id"}},
        {"nullable": {"s": False}},
        {"defaults": {"id": "x"}},
        {"defaults": {"y": "300"}},
        {"move": {"s": "front"}},
        {"set_options": {"target-file-size": "much"}},
    ],
)
def test_a_change_of_the_schema_that_is_wrong_changes_nothing(how: dict[str, Any]) -> None:
    table = new_table()
    table.write(row())
    before = image(table)
    with pytest.raises(tl.InvalidInputError):
        table.alter(**how)
    assert image(table) == before


# ------------------------------------------------------------------------------------------------ the first write

_fresh = itertools.count()


def location() -> str:
    return f"memory://bad-input-{next(_fresh)}/t"


@pytest.mark.parametrize(
    ("data", "how"),
    [
        ([], {}),
        ([{}], {}),
        (pa.table({}), {}),
        ([{"a": None}], {}),
        ([{"a": 1}, {"a": "x"}], {}),
        (pa.table([[1], [2]], names=["a", "a"]), {}),
        (pa.table({"a": pa.array([1], pa.duration("s"))}), {}),
        ([pa.record_batch({"a": [1]}), pa.record_batch({"a": ["x"]})], {}),
        (pa.table({"a": NOT_UTF8}), {}),
        (pa.table({"a": pa.array([-1], pa.time32("ms"))}), {}),
        ([{"a": 1}], {"mode": "upsert"}),
        ([{"a": 1}], {"partition_by": ["nope"]}),
        ([{"a": 1}], {"options": {"file.format": "csv"}}),
    ],
)
def test_a_first_write_that_is_refused_makes_no_table(data: Any, how: dict[str, Any]) -> None:
    where = location()
    with pytest.raises(tl.InvalidInputError):
        tl.write_table(where, data, **how)
    with pytest.raises(tl.NotFoundError):
        tl.open_table(where)


def test_a_first_write_whose_source_breaks_off_makes_no_table() -> None:
    where = location()
    with pytest.raises(SourceError):
        tl.write_table(where, breaking())
    with pytest.raises(tl.NotFoundError):
        tl.open_table(where)


def test_a_first_write_of_batches_of_growing_width_holds_them_all() -> None:
    where = location()
    narrow, wide = pa.array([1], pa.int32()), pa.array([2**40], pa.int64())
    tl.write_table(where, [pa.record_batch({"a": narrow}), pa.record_batch({"a": wide, "b": ["x"]})])
    assert tl.open_table(where).to_arrow().to_pylist() == [{"a": 1, "b": None}, {"a": 2**40, "b": "x"}]


def test_a_table_without_columns_is_refused() -> None:
    with pytest.raises(tl.InvalidInputError, match="at least one column"):
        Lake(FileSystemCatalog(Env(MemoryFileIO()))).create_table("d.t", {})


@pytest.mark.parametrize("what", ["folder", "file", "missing"])
def test_what_is_no_table_is_told_so(what: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(tl.NotFoundError, match="table does not exist"):
        tl.open_table(tmp_path / what)


def test_a_folder_with_a_damaged_schema_is_no_empty_table(tmp_path: Path) -> None:
    (tmp_path / "schema").mkdir()
    (tmp_path / "schema/schema-0").write_text("{")
    with pytest.raises(tl.FormatError):
        tl.open_table(tmp_path)
    with pytest.raises(tl.FormatError):
        tl.write_table(tmp_path, [{"a": 1}])
