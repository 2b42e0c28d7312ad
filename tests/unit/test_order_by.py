"""The first rows by an order, without reading the files that cannot hold one of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import InvalidInputError
from tidelake.expr.prune import Bounds
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.ops.read import order
from tidelake.ops.scan.topn import SortKey, may_be_first, parse_order
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO, TracingFileIO

NAN = float("nan")


def table_of(columns: dict[str, str], *, partition_by: tuple[str, ...] = ()) -> tuple[Table, TracingFileIO]:
    io = TracingFileIO(MemoryFileIO())
    lake = Lake(FileSystemCatalog(Env(io, FakeClock(1_000), SeededIds(1))))
    return lake.create_table("d.t", columns, partition_by=list(partition_by)), io


def data_files_read(io: TracingFileIO) -> int:
    return len({op.path for op in io.ops if op.name == "open_input" and "bucket-" in op.path})


@pytest.fixture
def numbers() -> tuple[Table, TracingFileIO]:
    """Ten files of ten rows, 0-9, 10-19 and so on."""
    table, io = table_of({"id": "INT", "p": "STRING", "f": "DOUBLE"})
    for start in range(0, 100, 10):
        table.write([{"id": start + i, "p": "ab"[i % 2], "f": float(start)} for i in range(10)])
    io.ops.clear()
    return table, io


def test_only_files_that_may_hold_a_first_row_are_read(numbers: tuple[Table, TracingFileIO]) -> None:
    table, io = numbers
    assert table.to_arrow(["id"], order_by="id", limit=3).column("id").to_pylist() == [0, 1, 2]
    assert data_files_read(io) == 1
    io.ops.clear()
    assert table.to_arrow(["id"], order_by="id desc", limit=12).column("id").to_pylist() == list(range(99, 87, -1))
    assert data_files_read(io) == 2
    plan = table.scan(order_by="id DESC", limit=12).plan()
    assert (plan.files_live, plan.files_kept) == (10, 2)


def test_a_condition_on_rows_keeps_every_file_and_one_on_partitions_does_not() -> None:
    table, io = table_of({"id": "INT", "p": "STRING"}, partition_by=("p",))
    for number in range(6):
        table.write([{"id": number, "p": "ab"[number % 2]}])
    io.ops.clear()
    assert table.to_arrow(["id"], "id % 3 = 2", 1, "id").column("id").to_pylist() == [2]
    assert data_files_read(io) == 6
    io.ops.clear()
    assert table.to_arrow(["id"], "p = 'b'", 1, "id").column("id").to_pylist() == [1]
    assert data_files_read(io) == 1


def test_a_limit_of_a_condition_on_partitions_stops_early() -> None:
    table, io = table_of({"id": "INT", "p": "STRING"}, partition_by=("p",))
    for number in range(6):
        table.write([{"id": number, "p": "ab"[number % 2]}])
    io.ops.clear()
    assert table.to_arrow(["p"], "p = 'b'", 1).to_pylist() == [{"p": "b"}]
    assert data_files_read(io) == 1


def test_a_column_that_is_not_asked_for_can_give_the_order(numbers: tuple[Table, TracingFileIO]) -> None:
    table, _ = numbers
    found = table.to_arrow(["p"], order_by="id desc", limit=2)
    assert found.schema.names == ["p"]
    assert found.to_pylist() == [{"p": "b"}, {"p": "a"}]


def test_several_columns_break_ties_and_the_rest_keeps_its_order(numbers: tuple[Table, TracingFileIO]) -> None:
    table, _ = numbers
    found = table.to_arrow(order_by=["p desc", "id desc"], limit=3).column("id").to_pylist()
    assert found == [99, 97, 95]
    as_read = table.to_arrow(["id"], "p = 'a'").column("id").to_pylist()
    assert table.to_arrow(order_by=["p"], limit=3).column("id").to_pylist() == as_read[:3]


def test_null_is_least_and_nan_is_greatest() -> None:
    table, _ = table_of({"f": "DOUBLE"})
    for value in (1.0, NAN, None, -np.inf, np.inf):
        table.write([{"f": value}])
    up = table.to_arrow(order_by="f").column("f").to_pylist()
    assert up[:4] == [None, -np.inf, 1.0, np.inf]
    assert up[4] != up[4]
    down = table.to_arrow(order_by="f desc", limit=2).column("f").to_pylist()
    assert down[0] != down[0]
    assert down[1] == np.inf


def test_files_of_nulls_come_first_or_not_at_all() -> None:
    table, io = table_of({"id": "INT"})
    for values in ([None, None], [1, None], [5, 6], [7, 8]):
        table.write([{"id": value} for value in values])
    assert table.to_arrow(order_by="id", limit=3).column("id").to_pylist() == [None, None, None]
    assert table.to_arrow(order_by="id", limit=4).column("id").to_pylist() == [None, None, None, 1]
    io.ops.clear()
    assert table.to_arrow(order_by="id desc", limit=2).column("id").to_pylist() == [8, 7]
    assert data_files_read(io) <= 2


def test_rows_of_an_older_schema_are_ordered_as_they_are_read_now() -> None:
    table, _ = table_of({"id": "INT"})
    table.write([{"id": 5}])
    table = table.alter(add={"n": "INT"})
    table.write([{"id": 1, "n": 3}])
    table = table.alter(types={"n": "BIGINT"})
    table.write([{"id": 2, "n": 2}])
    assert table.to_arrow(["id"], order_by="n", limit=1).column("id").to_pylist() == [5]
    assert table.to_arrow(["id"], order_by="n desc", limit=2).column("id").to_pylist() == [1, 2]


def test_memory_is_bounded_by_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "SLACK_ROWS", 10)
    seen = []
    original = order._sort

    def watched(batches: Any, *rest: Any) -> pa.Table:
        seen.append(sum(batch.num_rows for batch in batches))
        return original(batches, *rest)

    monkeypatch.setattr(order, "_sort", watched)
    schema = pa.schema([("x", pa.int64())])
    batches = (pa.record_batch({"x": [(i * 37) % 1000 + j for j in range(5)]}) for i in range(200))
    found = pa.Table.from_batches(order.sorted_batches(batches, (SortKey("x"),), 3, schema), schema)
    assert found.column("x").to_pylist() == [0, 1, 2]
    assert max(seen) <= 3 + 10 + 5


@pytest.mark.parametrize(
    ("order_by", "said"),
    [
        ("nope", "does not exist"),
        ([], "no column"),
        (["id", "id desc"], "twice"),
        ("a", "no order"),
        ("id sideways", "does not exist"),
    ],
)
def test_an_order_that_is_none_is_refused(order_by: Any, said: str) -> None:
    table, _ = table_of({"id": "INT", "a": "ARRAY<INT>"})
    with pytest.raises(InvalidInputError, match=said):
        table.scan(order_by=order_by)


def test_a_column_may_be_called_like_a_direction() -> None:
    table, _ = table_of({"id desc": "INT", "id": "INT"})
    assert parse_order("id desc", table.schema) == (SortKey("id desc"),)
    assert parse_order("id asc", table.schema) == (SortKey("id"),)


def test_the_order_shows_in_the_plan(numbers: tuple[Table, TracingFileIO]) -> None:
    assert "order by   id desc" in numbers[0].scan(order_by="id desc", limit=1).explain()


def test_bounds_that_are_not_known_rule_nothing_out() -> None:
    low, high = pa.array([1, None, 5]), pa.array([2, None, 9])
    bounds = Bounds(low, high, pa.array([0, 0, None]), pa.array([10, 10, 10]))
    assert may_be_first(bounds, 5, descending=False).tolist() == [True, True, True]  # nulls may come first
    assert may_be_first(bounds, 5, descending=True).tolist() == [True, True, True]  # all of the last may be null
    known = Bounds(low, high, pa.array([0, 0, 0]), pa.array([10, 10, 10]))
    assert may_be_first(known, 5, descending=False).tolist() == [True, True, False]
    assert may_be_first(known, 5, descending=True).tolist() == [False, True, True]
    assert may_be_first(known, 11, descending=False).tolist() == [True, True, True]
