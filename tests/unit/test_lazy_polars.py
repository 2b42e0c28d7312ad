"""A lazy Polars frame reads the columns and files its query needs, when it is collected."""

from __future__ import annotations

import datetime as dt
from typing import Any

import polars as pl
import pytest

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.expr.from_polars import weaker_predicate
from tidelake.expr.tree import And, Compare, In, IsNull, Not, Or, StartsWith
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.spec.types.data_types import Field
from tidelake.spec.types.type_codec import parse_type
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO, TracingFileIO

MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, 678)
TYPES = {
    "i": "INT",
    "t": "TINYINT",
    "s": "STRING",
    "f": "DOUBLE",
    "g": "FLOAT",
    "b": "BOOLEAN",
    "y": "BYTES",
    "d": "DATE",
    "m": "TIMESTAMP(6)",
    "ms": "TIMESTAMP(3)",
    "z": "TIMESTAMP_LTZ(6)",
    "x": "DECIMAL(10, 2)",
    "a": "ARRAY<INT>",
    "c": "CHAR(3)",
}
FIELDS = [Field(number, name, parse_type(text)) for number, (name, text) in enumerate(TYPES.items())]


@pytest.fixture
def traced() -> tuple[Table, TracingFileIO]:
    """Ten files in two partitions; column `wide` is large."""
    io = TracingFileIO(MemoryFileIO())
    lake = Lake(FileSystemCatalog(Env(io, FakeClock(1_000), SeededIds(1))))
    table = lake.create_table("d.t", {"id": "INT", "p": "STRING", "wide": "STRING"}, partition_by=["p"])
    for number in range(10):
        rows = [{"id": number * 10 + i, "p": "ab"[number % 2], "wide": "w" * 50} for i in range(10)]
        table.write(rows)
    io.ops.clear()
    return table, io


def opened(io: TracingFileIO) -> int:
    return len({op.path for op in io.ops if op.name == "open_input"})


def test_nothing_is_read_before_the_frame_is_collected(traced: tuple[Table, TracingFileIO]) -> None:
    table, io = traced
    frame = table.to_polars(lazy=True)
    assert isinstance(frame, pl.LazyFrame)
    query = frame.filter(pl.col("id") > 95).select("id")
    assert frame.collect_schema() == {"id": pl.Int32, "p": pl.String, "wide": pl.String}
    assert io.ops == []
    assert query.collect().to_series().to_list() == [96, 97, 98, 99]
    assert opened(io) == 1


def test_conditions_leave_out_files_and_partitions(traced: tuple[Table, TracingFileIO]) -> None:
    table, io = traced
    frame = table.to_polars(lazy=True)
    assert frame.filter(pl.col("p") == "a").select(pl.len()).collect().item() == 50
    assert opened(io) == 5
    io.ops.clear()
    found = frame.filter((pl.col("id").is_in([3, 77])) & pl.col("wide").str.ends_with("w")).collect()
    assert sorted(found["id"].to_list()) == [3, 77]
    assert opened(io) == 2


def test_a_limit_stops_early(traced: tuple[Table, TracingFileIO]) -> None:
    table, io = traced
    assert table.to_polars(lazy=True).head(4).collect().height == 4
    assert opened(io) == 1


def test_only_the_columns_of_the_query_are_read(
    traced: tuple[Table, TracingFileIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidelake import query

    asked: list[tuple[str, ...]] = []
    original = query.read_rows

    def watched(context: Any, splits: Any, request: Any) -> Any:
        asked.append(request.columns)
        return original(context, splits, request)

    monkeypatch.setattr(query, "read_rows", watched)
    frame = traced[0].to_polars(lazy=True)
    frame.group_by("p").agg(pl.col("id").max()).collect()
    frame.select(pl.len()).collect()
    assert all("wide" not in columns for columns in asked)
    assert len(asked) == 2


def test_what_cannot_be_pushed_is_applied_afterwards(traced: tuple[Table, TracingFileIO]) -> None:
    table, _ = traced
    odd = (pl.col("id") % 7 == 3) & (pl.col("id") > 50)
    lazy = table.to_polars(lazy=True).filter(odd).select("id").collect()
    assert lazy.equals(table.to_polars().filter(odd).select("id"))


def test_a_scan_keeps_its_own_condition_limit_and_order(traced: tuple[Table, TracingFileIO]) -> None:
    table, _ = traced
    lazy = table.scan(["id"], "id >= 90", order_by="id desc").to_polars(lazy=True)
    assert lazy.filter(pl.col("id") < 93).collect().to_series().to_list() == [92, 91, 90]
    first = table.scan(["id"], order_by="id", limit=3).to_polars(lazy=True)
    assert first.filter(pl.col("id") > 0).collect().to_series().to_list() == [1, 2]
    assert first.head(10).collect().height == 3


def test_each_collection_sees_the_table_as_it_is_then(traced: tuple[Table, TracingFileIO]) -> None:
    table, _ = traced
    lazy = table.to_polars(lazy=True).select(pl.len())
    assert lazy.collect().item() == 100
    table.write([{"id": 1000}])
    assert lazy.collect().item() == 101
    assert table.at(snapshot=1).to_polars(lazy=True).collect().height == 10


def test_changes_are_lazy_too(traced: tuple[Table, TracingFileIO]) -> None:
    changes = traced[0].changes(since=8).to_polars(lazy=True)
    assert changes.collect_schema().names() == ["rowkind", "id", "p", "wide"]
    assert changes.select("rowkind").unique().collect().item() == "+I"
    assert changes.filter(pl.col("rowkind") == "-D").collect().height == 0


# ------------------------------------------------------------------------------------------------ translation

col = pl.col
PUSHED = [
    (col("i") > 3, Compare("i", ">", 3)),
    (pl.lit(3) >= col("i"), Compare("i", "<=", 3)),
    (col("s") == "a", Compare("s", "=", "a")),
    (col("s") != "a", Compare("s", "!=", "a")),
    (col("b") == True, Compare("b", "=", True)),  # noqa: E712
    (col("y") == b"\x01", Compare("y", "=", b"\x01")),
    (col("d") < dt.date(2026, 1, 1), Compare("d", "<", dt.date(2026, 1, 1))),
    (col("m") >= MOMENT, Compare("m", ">=", MOMENT)),
    (col("f") <= 1.5, Compare("f", "<=", 1.5)),
    (col("f") > 1.5, Compare("f", ">", 1.5)),
    (col("f") != 1.5, Compare("f", "!=", 1.5)),
    (col("i").is_null(), IsNull("i")),
    (col("a").is_not_null(), Not(IsNull("a"))),
    (col("i").is_in([1, None, 2]), In("i", (1, 2))),
    (col("s").str.starts_with("x"), StartsWith("s", "x")),
    (col("i").is_between(1, 2), And((Compare("i", ">=", 1), Compare("i", "<=", 2)))),
    ((col("i") > 1) & (col("s") < "b"), And((Compare("i", ">", 1), Compare("s", "<", "b")))),
    ((col("i") > 1) | (col("s") < "b"), Or((Compare("i", ">", 1), Compare("s", "<", "b")))),
    ((col("i") > 1) & (col("i") + 1 > 2), Compare("i", ">", 1)),
]
NOT_PUSHED = [
    col("i") > 1.5,
    col("t") > 1000,
    col("f") == float("nan"),
    col("g") == 0.1,
    col("x") > 1,
    col("ms") == MOMENT,  # Polars would cut the moment to milliseconds
    col("m") == pl.lit(MOMENT).cast(pl.Datetime("ns")),
    col("z") == pl.lit(MOMENT),
    col("s") > 3,
    col("i") == col("t"),
    col("nope") == 3,
    ~(col("i").is_in([1])),
    (col("i") > 1) | (col("i") + 1 > 2),
    col("i").is_in([1, None], nulls_equal=True),
    col("i").is_between(1, 2, closed="left"),
    col("c").str.starts_with("x"),
    col("i").is_in(list(range(2000))),
    pl.lit(True),
]


@pytest.mark.parametrize(("expression", "expected"), PUSHED, ids=[str(each[0]) for each in PUSHED])
def test_conditions_that_mean_the_same_are_translated(expression: pl.Expr, expected: Any) -> None:
    assert weaker_predicate(expression, FIELDS) == expected


@pytest.mark.parametrize("expression", NOT_PUSHED, ids=[str(each)[:80] for each in NOT_PUSHED])
def test_conditions_that_differ_are_left_to_polars(expression: pl.Expr) -> None:
    assert weaker_predicate(expression, FIELDS) is None
