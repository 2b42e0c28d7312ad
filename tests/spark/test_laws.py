"""Spark reads what is read in process, whatever the table holds and whatever is asked for. One session for all."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tidelake as tl
from kit.spark_rows import assert_same
from tidelake.catalog.lake import Lake
from tidelake.expr.tree import Predicate, col
from tidelake.table import Table

NUMBERS = itertools.count()
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "INT": st.integers(-3, 3),
    "BIGINT": st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1)),
    "DOUBLE": st.sampled_from([0.0, -0.0, 1.0, -2.5, math.nan, math.inf, -math.inf]),
    "FLOAT": st.sampled_from([0.0, -0.0, 1.0, 0.5, math.nan, math.inf]),
    "STRING": st.sampled_from(["", "a", "ab", "b", "ü", "\U0001f300"]),
    "DECIMAL(8, 2)": st.sampled_from([Decimal("0.00"), Decimal("1.50"), Decimal("-999999.99")]),
    "BOOLEAN": st.booleans(),
    "TIME(3)": st.integers(0, 3),
    "ARRAY<INT>": st.lists(st.one_of(st.none(), st.integers(0, 2)), max_size=2),
}
COMPARED = frozenset(VALUES) - {"ARRAY<INT>", "TIME(3)"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake for all tables of this file."""
    return tl.connect(tmp_path_factory.mktemp("laws"), storage={"durability": "none"})


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, str], bool, list[list[dict[str, Any]]], bool]:
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4))
    columns = {"k": "INT", **{f"c{number}": kind for number, kind in enumerate(kinds)}}
    row = st.fixed_dictionaries(
        {"k": st.integers(0, 6)},
        optional={name: st.one_of(st.none(), VALUES[kind]) for name, kind in columns.items() if name != "k"},
    )
    commits = draw(st.lists(st.lists(row, max_size=6), min_size=1, max_size=3))
    return columns, draw(st.booleans()), commits, draw(st.booleans())


@st.composite
def predicates(draw: st.DrawFn, columns: dict[str, str]) -> Predicate:
    def leaf() -> Predicate:
        name = draw(st.sampled_from([name for name, kind in columns.items() if kind in COMPARED]))
        which = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "in", "null"]))
        if which == "null":
            return col(name).is_null()
        values = VALUES[columns[name]]
        if which == "in":
            return col(name).is_in(draw(st.lists(values, min_size=1, max_size=3)))
        return col(name)._compare(which, draw(values))

    found = leaf()
    for _ in range(draw(st.integers(0, 2))):
        other = leaf()
        found = found & other if draw(st.booleans()) else found | other
        found = ~found if draw(st.booleans()) else found
    return found


def built(
    place: Lake, columns: dict[str, str], keyed: bool, commits: list[list[dict[str, Any]]], compact: bool
) -> Table:
    options = {"bucket": "1"} if keyed else {}
    made = place.create_table(f"db.t{next(NUMBERS)}", columns, primary_key=["k"] if keyed else None, options=options)
    schema = made.schema.to_arrow()
    for rows in commits:
        if rows:
            columns_of = {name: [row.get(name) for row in rows] for name in schema.names}
            made.write(pa.table({name: pa.array(columns_of[name], schema.field(name).type) for name in schema.names}))
    if compact and keyed:
        made.compact(full=True)
    return made


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_spark_gives_the_rows_of_in_process(spark: Any, place: Lake, data: st.DataObject) -> None:
    columns, keyed, commits, compact = data.draw(tables())
    table = built(place, columns, keyed, commits, compact)
    wanted = data.draw(st.lists(st.sampled_from(list(columns)), min_size=1, unique=True))
    assert_same(spark, table.scan())
    assert_same(spark, table.scan(wanted, data.draw(predicates(columns))))
