"""Conditions that Spark is asked: they mean the same there, or are not handed over."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kit.spark_rows import is_native
from tidelake.catalog.lake import Lake
from tidelake.engines.spark.bridge import conditions
from tidelake.engines.spark.bridge.conditions import to_column
from tidelake.expr.parse import parse_where
from tidelake.expr.tree import Compare, In, Not, Predicate, StartsWith, col
from tidelake.spec.types.data_types import Field
from tidelake.spec.types.type_codec import parse_type
from tidelake.table import Table

COLUMNS = {
    "b": "BOOLEAN",
    "n": "TINYINT",
    "i": "INT",
    "l": "BIGINT",
    "x": "FLOAT",
    "d": "DOUBLE",
    "m": "DECIMAL(9, 2)",
    "s": "STRING",
    "c": "CHAR(3)",
    "y": "BYTES",
    "t": "DATE",
    "w": "TIMESTAMP(3)",
    "u": "TIMESTAMP(6)",
    "z": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
}
TYPES = {name: parse_type(text) for name, text in COLUMNS.items()}
FIELDS = [Field(number, name, dtype) for number, (name, dtype) in enumerate(TYPES.items())]

SAID = [
    "b", "not b", "b = true", "not (d > 0.5)", "n = 1", "i != 2", "i <> 2", "l < 3", "d >= 0.1", "x > 1.25",
    "m = 1.5", "m >= 1.25",
    "s = 'b'", "s > 'a'", "c = 'ab'", "s like 'b%'", "s in ('a', 'b')", "s not in ('a')", "t = '2020-01-01'",
    "t < date '2020-01-02'", "w = timestamp '2020-01-01 00:00:00.001'", "u > timestamp '2020-01-01 00:00:00'",
    "u = timestamp '1960-01-01 00:00:00.000001'", "z >= '2020-01-01T00:00:00Z'", "i is null",
    "not (s is null or i > 1)",
    "i between 1 and 2", "i in (1, 2) or (d < 0.0 and not l = 3)", "d = 0.0",
    "d > 0.0", "not (d <= 0.0)", "d = cast('NaN' as double)", "d in (0.0, cast('NaN' as double))",
    "d not in (0.1, 7.5)", "x > 1024",
]  # fmt: skip
UNSAID = [
    "x = 0.1",
    "length(s) = 1",
    "i + 1 = 2",
    "s like '%b'",
    "y = X'00'",
    "i = l",
    "s in ('a', null)",
    "upper(s) = 'B'",
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Values on both sides of the constants above, and nulls."""
    import tidelake as tl

    lake: Lake = tl.connect(tmp_path_factory.mktemp("conditions"), storage={"durability": "none"})
    made = lake.create_table("db.t", COLUMNS)
    day = dt.datetime(2020, 1, 1)
    moments = [
        day,
        day + dt.timedelta(milliseconds=1),
        dt.datetime(1960, 1, 1, 0, 0, 0, 1),
        None,
        dt.datetime(9999, 1, 1),
    ]
    data: dict[str, list[Any]] = {
        "b": [True, False, True, None, False],
        "n": [1, -1, 2, None, 127],
        "i": [1, 2, 3, None, -5],
        "l": [1, 2, 3, None, 1 << 40],
        "x": [0.1, 1.5, float("nan"), None, 1e30],
        "d": [0.1, -0.0, float("nan"), None, float("-inf")],
        "m": [Decimal("1.50"), Decimal("1.25"), Decimal("-1.00"), None, Decimal("9999999.99")],
        "s": ["a", "b", "bb", None, ""],
        "c": ["ab", "abc", "b", None, ""],
        "y": [b"", b"\0", b"\xff", None, b"a"],
        "t": [None if each is None else each.date() for each in moments],
        "w": [None if each is None else each.replace(microsecond=each.microsecond // 1000 * 1000) for each in moments],
        "u": moments,
        "z": [None if each is None else each.replace(tzinfo=dt.UTC) for each in moments],
    }
    schema = made.schema.to_arrow()
    made.write(pa.table({name: pa.array(data[name], schema.field(name).type) for name in COLUMNS}))
    return made


def test_what_spark_can_say_is_asked_of_its_reader_and_keeps_the_same_rows(spark: Any, table: Table) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    try:
        frames = {text: table.to_spark(["i", "s"], text, spark) for text in SAID}
        assert [text for text, frame in frames.items() if not is_native(frame)] == []
        tagged = [frame.select(f.lit(text).alias("text"), "i", "s") for text, frame in frames.items()]
        found = reduce(DataFrame.union, tagged).toArrow().to_pylist()
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    expected = [{"text": text, **row} for text in SAID for row in table.to_arrow(["i", "s"], text).to_pylist()]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    assert {row["text"] for row in expected} == set(SAID), "each keeps a row"


@pytest.mark.parametrize("text", UNSAID)
def test_what_spark_would_say_otherwise_is_not_handed_over(spark: Any, table: Table, text: str) -> None:
    assert to_column(parse_where(text, FIELDS), TYPES) is None
    assert not is_native(table.to_spark(["i"], text, spark))


@pytest.mark.parametrize(
    "where",
    [
        Compare("d", "<", float("inf")),
        Compare("x", "=", 1e300),
        Compare("n", "=", 1000),
        Compare("i", "=", 1.5),
        Compare("m", "=", Decimal("0.001")),
        Compare("i", "=", None),
        Compare("t", "<", dt.datetime(2020, 1, 1, 5)),
        Compare("s", "=", 5),
        In("i", ()),
        In("i", (1, None)),
        StartsWith("y", "a"),
    ],
)
def test_values_that_do_not_fit_their_column_are_not_handed_over(spark: Any, where: Predicate) -> None:
    assert to_column(where, TYPES) is None
    assert to_column(Not(where), TYPES) is None
    assert to_column(where & (col("i") == 1), TYPES) is None


def test_a_long_condition_is_not_handed_over(spark: Any) -> None:
    assert to_column(In("i", tuple(range(conditions.NODES_MAX))), TYPES) is not None
    assert to_column(In("i", tuple(range(conditions.NODES_MAX + 1))), TYPES) is None
    deep: Predicate = col("i") == 0
    for number in range(5_000):
        deep = deep | (col("i") == number)
    assert to_column(deep, TYPES) is None
