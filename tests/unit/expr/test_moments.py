"""Points in time finer than microseconds: all nine digits count, in texts and in values, in filters and in pruning."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tidelake as tl
from tidelake.errors import InvalidInputError
from tidelake.expr import ALWAYS, NEVER, Compare, col, lit
from tidelake.expr.evaluate import matches, truth
from tidelake.expr.from_polars import weaker_predicate
from tidelake.expr.moments import from_nanos, plain_value
from tidelake.expr.parse import parse_where
from tidelake.expr.prune import Bounds, may_match
from tidelake.expr.render import to_sql
from tidelake.expr.simplify import literals, simplify
from tidelake.spec.types.data_types import Field
from tidelake.spec.types.type_codec import parse_type

UTC = dt.UTC
TEXT = "2026-01-02 03:04:05.123456789"
NANOS = 1_767_323_045_123_456_789
FINE = pa.scalar(NANOS, pa.timestamp("ns"))
FINE_UTC = pa.scalar(NANOS, pa.timestamp("ns", "UTC"))
TYPES = {
    "t9": "TIMESTAMP(9)",
    "t6": "TIMESTAMP(6)",
    "t3": "TIMESTAMP(3)",
    "z9": "TIMESTAMP(9) WITH LOCAL TIME ZONE",
    "z6": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "d": "DATE",
}
FIELDS = [Field(index, name, parse_type(text)) for index, (name, text) in enumerate(TYPES.items())]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (np.datetime64(NANOS, "ns"), FINE),
        (pd.Timestamp(NANOS), FINE),
        (pd.Timestamp(NANOS, tz="UTC").tz_convert("Asia/Kathmandu"), FINE_UTC),
        (FINE, FINE),
        (pa.scalar(NANOS, pa.timestamp("ns", "Europe/Berlin")), FINE_UTC),
        (pl.Series([NANOS]).cast(pl.Datetime("ns")).to_arrow()[0], FINE),
        (np.datetime64("2026-01-02T03:04:05.123456000", "ns"), dt.datetime(2026, 1, 2, 3, 4, 5, 123456)),
        (np.datetime64("2026-01-02T03:04", "m"), dt.datetime(2026, 1, 2, 3, 4)),
        (np.datetime64("2026-01-02"), dt.date(2026, 1, 2)),
        (pd.Timestamp("2026-01-02", tz="UTC"), dt.datetime(2026, 1, 2, tzinfo=UTC)),
        (pa.scalar(5), 5),
        (np.datetime64("NaT"), None),
        (pd.NaT, None),
        (pa.scalar(None, pa.timestamp("ns")), None),
        ("text", "text"),
    ],
)
def test_values_of_other_libraries_keep_every_digit(given, expected):
    found = plain_value(given)
    assert found == expected
    assert type(found) is type(expected)
    assert (col("t9") == given) == Compare("t9", "=", expected)


@pytest.mark.parametrize("given", [np.datetime64("20000-01-01", "s"), np.datetime64(5, "ps")])
def test_a_moment_that_no_type_holds_is_refused(given):
    with pytest.raises(InvalidInputError, match="out of range"):
        plain_value(given)
    with pytest.raises(InvalidInputError, match="out of range"):
        parse_where("t9 = '9999-01-01 00:00:00.000000001'", FIELDS)


def column(name: str, *nanos: int) -> dict[str, pa.Array]:
    """Moments as a column, cut to what its type holds."""
    dtype = {"t9": pa.timestamp("ns"), "t6": pa.timestamp("us"), "t3": pa.timestamp("ms"), "d": pa.date32()}
    dtype |= {"z9": pa.timestamp("ns", "UTC"), "z6": pa.timestamp("us", "UTC")}
    return {
        name: pa.array(nanos, pa.int64())
        .cast(pa.timestamp("ns", getattr(dtype[name], "tz", None)))
        .cast(dtype[name], safe=False)
    }


OPS = {"=": [2], "<>": [0, 1, 3], "<": [0, 1], "<=": [0, 1, 2], ">": [3], ">=": [2, 3]}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", ["t9", "z9"])
def test_all_nine_digits_of_a_constant_count(op, name):
    columns = column(name, NANOS - 1000, NANOS - 1, NANOS, NANOS + 1)
    zone = "Z" if name == "z9" else ""
    kind = "TIMESTAMP_LTZ" if name == "z9" else "TIMESTAMP_NTZ"
    texts = (f"'{TEXT}{zone}'", f"TIMESTAMP '{TEXT}{zone}'", f"{kind} '{TEXT}'", f"CAST('{TEXT}' AS {kind}(9))")
    for text in texts:
        predicate = parse_where(f"{name} {op} {text}", FIELDS)
        assert [i for i, yes in enumerate(matches(predicate, columns, 4).to_pylist()) if yes] == OPS[op], text
        assert parse_where(to_sql(predicate), FIELDS) == predicate
    for value in (np.datetime64(NANOS, "ns"), FINE, f"{TEXT}{zone}"):
        found = matches(Compare(name, "!=" if op == "<>" else op, plain_value(value)), columns, 4)
        assert [i for i, yes in enumerate(found.to_pylist()) if yes] == OPS[op], value


@pytest.mark.parametrize("name", ["t6", "t3", "z6", "d"])
@pytest.mark.parametrize("op", ["=", "<>", "<", "<=", ">", ">=", "<=>"])
def test_a_constant_between_two_values_of_a_coarser_column_equals_none(name, op):
    columns = column(name, NANOS - 86_400_000_000_000, NANOS, NANOS + 86_400_000_000_000)
    expected = {"=": [], "<=>": [], "<>": [0, 1, 2], "<": [0, 1], "<=": [0, 1], ">": [2], ">=": [2]}[op]
    predicate = parse_where(f"{name} {op} TIMESTAMP '{TEXT}'", FIELDS)
    assert [i for i, yes in enumerate(matches(predicate, columns, 3).to_pylist()) if yes] == expected
    assert matches(col(name).is_in([FINE, None]), columns, 3).to_pylist() == [False] * 3
    assert truth(~col(name).is_in([FINE]), columns, 3).to_pylist() == [True] * 3
    assert literals(col(name).is_in([FINE, plain_value(columns[name][0])]), name, parse_type(TYPES[name])) == (
        plain_value(columns[name][0]),
    )


def test_years_without_nanoseconds_compare_with_nanoseconds():
    far = {"t6": pa.array([dt.datetime(1, 1, 1), dt.datetime(9999, 1, 1), None], pa.timestamp("us"))}
    for op, expected in (("<", [True, False, None]), (">=", [False, True, None]), ("!=", [True, True, None])):
        assert truth(Compare("t6", op, FINE), far, 3).to_pylist() == expected
    assert truth(Compare("t6", "=", FINE), far, 3).to_pylist() == [False, False, None]


@pytest.mark.parametrize("name", ["t9", "t6", "d"])
def test_bounds_are_compared_with_all_digits(name):
    counts = pa.array([0], pa.int64()), pa.array([2], pa.int64())
    bounds = {name: Bounds(column(name, NANOS - 1)[name], column(name, NANOS)[name], *counts)}
    for op, expected in (("<=", True), (">", False), ("=", name == "t9")):
        assert may_match(Compare(name, op, FINE), bounds, 1).to_pylist() == [expected]


def test_a_constant_with_nanoseconds_folds_and_renders():
    assert to_sql(lit(FINE).scalar) == f"TIMESTAMP '{TEXT}'"
    assert to_sql(lit(FINE_UTC).scalar) == f"TIMESTAMP_LTZ '{TEXT} UTC'"
    assert simplify(lit(FINE) == lit(from_nanos(NANOS, zoned=False))) == ALWAYS
    assert simplify(lit(FINE).cast("TIMESTAMP(6)") == lit(FINE)) == NEVER


def test_nanoseconds_of_polars_are_pushed_to_columns_that_have_them():
    constant = pl.lit(np.datetime64(NANOS, "ns"))
    assert weaker_predicate(pl.col("t9") == constant, FIELDS) == Compare("t9", "=", FINE)
    assert weaker_predicate(pl.col("t6") == constant, FIELDS) is None


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_filter_on_nanoseconds_finds_its_row(partitioned):
    lake = tl.connect("memory://nanoseconds")
    table = lake.create_table(
        f"db.t{partitioned}", {"id": "INT", "t9": "TIMESTAMP(9)"}, partition_by=["t9"] if partitioned else []
    )
    for number in range(3):
        table.write(pa.table({"id": [number], "t9": pa.array([NANOS + number], pa.timestamp("ns"))}))
    for where in (
        f"t9 = TIMESTAMP '{TEXT}'",
        f"t9 = '{TEXT}'",
        col("t9") == pd.Timestamp(NANOS),
        col("t9").is_in([FINE]),
    ):
        scan = table.scan(["id"], where)
        assert scan.to_arrow().column("id").to_pylist() == [0]
        if partitioned:  # the format has no bounds of nanoseconds in its files
            assert scan.plan().files_kept == 1
    assert table.update({"id": "10"}, f"t9 > '{TEXT}'").rows == 2
    assert table.delete(col("t9") == np.datetime64(NANOS, "ns")).rows == 1
    assert table.to_arrow().column("id").to_pylist() == [10, 10]
