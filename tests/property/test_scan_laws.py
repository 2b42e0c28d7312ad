"""Laws of reads: leaving files, columns and rows out early never changes what comes out.

The same rows are asked for twice: by way of pruned files and pushed conditions, and from the whole table in memory.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO

FEW = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
COLUMNS = {
    "n": "INT",
    "b": "BIGINT",
    "s": "STRING",
    "f": "DOUBLE",
    "d": "DATE",
    "m": "TIMESTAMP(6)",
    "t": "TIMESTAMP(3)",
}
DAY = dt.date(2020, 1, 1)

number = st.integers(-4, 4)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "n": number,
    "b": st.sampled_from([-(2**62), -1, 0, 1, 2**62]),
    "s": st.sampled_from(["", "a", "ab", "b", "z" * 20, "z" * 20 + "a", "ü"]),
    "f": st.sampled_from([-1.5, -0.0, 0.0, 2.5, float("nan"), float("inf")]),
    "d": number.map(lambda days: DAY + dt.timedelta(days)),
    "m": number.map(lambda n: dt.datetime(2020, 1, 1) + dt.timedelta(microseconds=n)),
    "t": number.map(lambda n: dt.datetime(2020, 1, 1) + dt.timedelta(milliseconds=n)),
}
row = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})
files = st.lists(st.lists(row, min_size=1, max_size=5), min_size=1, max_size=5)


def filled(written: list[list[dict[str, Any]]], partitioned: bool) -> Table:
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000), SeededIds(1))))
    options = {"metadata.stats-mode": "truncate(4)"}
    table = lake.create_table("d.t", COLUMNS, partition_by=["s"] if partitioned else [], options=options)
    messages = []
    for rows in written:
        writer = table.new_write()
        writer.write(rows)
        messages += writer.prepare_commit()
    table.new_commit().commit(messages)
    return table


def key_of(value: Any, descending: bool) -> tuple[int, Any]:
    """Null first and NaN last, as a key for Python's own sort."""
    if value is None:
        return (0, 0)
    return (2, 0) if value != value else (1, value)


@given(files, st.sampled_from(sorted(COLUMNS)), st.booleans(), st.integers(0, 12), st.booleans())
@FEW
def test_the_first_rows_are_those_of_the_whole_table(written, column, descending, limit, partitioned) -> None:
    table = filled(written, partitioned)
    every = [row[column] for rows in written for row in rows]
    expected = sorted(every, key=lambda value: key_of(value, descending), reverse=descending)[:limit]
    order = f"{column} desc" if descending else column
    found = table.to_arrow([column], order_by=order, limit=limit).column(column).to_pylist()
    assert [key_of(value, descending) for value in found] == [key_of(value, descending) for value in expected]


# ------------------------------------------------------------------------------------------------ Polars

OPERATORS = ("eq", "ne", "lt", "le", "gt", "ge")


@st.composite
def comparisons(draw: st.DrawFn) -> pl.Expr:
    name = draw(st.sampled_from(sorted(COLUMNS)))
    column, value = pl.col(name), draw(VALUES[name])
    match draw(st.integers(0, 6)):
        case 0:
            return column.is_null()
        case 1:
            return column.is_not_null()
        case 2:
            return column.is_in(draw(st.lists(VALUES[name], max_size=3)))
        case 3 if name == "s":
            return column.str.starts_with(draw(st.sampled_from(["", "a", "zz", "ü"])))
        case 4:
            return column.is_between(pl.lit(value), pl.lit(draw(VALUES[name])))
        case 5 if name in "mt":
            return column < pl.lit(value).cast(pl.Datetime("ns")) + pl.duration(nanoseconds=draw(number))
    return getattr(column, draw(st.sampled_from(OPERATORS)))(pl.lit(value))


@st.composite
def conditions(draw: st.DrawFn, depth: int = 2) -> pl.Expr:
    if depth == 0 or draw(st.booleans()):
        return draw(comparisons())
    left, right = draw(conditions(depth=depth - 1)), draw(conditions(depth=depth - 1))
    return draw(st.sampled_from([left & right, left | right, ~left]))


@given(files, conditions(), st.booleans())
@FEW
@pytest.mark.filterwarnings("ignore")  # Polars finds some of these comparisons odd, and they are
def test_a_lazy_frame_finds_what_polars_finds_in_all_rows(written, condition, partitioned) -> None:
    table = filled(written, partitioned)
    eager = table.to_polars().filter(condition)
    lazy = table.to_polars(lazy=True).filter(condition).collect()
    assert lazy.equals(eager)


@given(files, conditions(), st.integers(0, 6))
@FEW
@pytest.mark.filterwarnings("ignore")
def test_limits_go_before_or_behind_conditions_as_they_stand(written, condition, limit) -> None:
    table = filled(written, partitioned=False)
    eager, lazy = table.to_polars(), table.to_polars(lazy=True)
    assert lazy.head(limit).filter(condition).collect().equals(eager.head(limit).filter(condition))
    assert (
        lazy.filter(condition).head(limit).select("n").collect().equals(eager.filter(condition).head(limit).select("n"))
    )
