"""pandas and DuckDB take rows from a table, and pandas frames are written like any other data."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import duckdb
import pandas as pd
import pytest

import tidelake as tl

COLUMNS = {"a": "INT", "b": "STRING", "c": "TIMESTAMP(3)", "e": "DECIMAL(10,2)", "x": "ARRAY<INT>"}
ROWS = [
    {"a": 1, "b": "x", "c": dt.datetime(2020, 1, 1), "e": Decimal("1.10"), "x": [1, 2]},
    {"a": 2, "b": None, "c": None, "e": None, "x": None},
]


@pytest.fixture
def table(tmp_path):
    def make(rows=ROWS):
        found = tl.connect(tmp_path).create_table("d.t", COLUMNS)
        found.write(rows)
        return found

    return make


def test_rows_become_a_pandas_frame(table):
    frame = table().to_pandas(columns=["a", "b"], where="a = 1")
    assert isinstance(frame, pd.DataFrame)
    assert frame.to_dict("records") == [{"a": 1, "b": "x"}]


def test_a_pandas_frame_is_written_with_its_nulls(table):
    frame = pd.DataFrame(
        {
            "a": [1, 2],
            "b": ["x", None],
            "c": pd.to_datetime(["2020-01-01", None]),
            "e": [Decimal("1.10"), None],
            "x": [[1, 2], None],
        }
    )
    assert table(frame).to_arrow().to_pylist() == ROWS


def test_rows_become_a_relation_of_a_duckdb_connection(table):
    found = table()
    relation = found.scan().to_duckdb(duckdb.connect())
    assert relation.filter("a = 2").fetchall() == [(2, None, None, None, None)]
    assert found.to_duckdb(columns=["e"]).fetchall() == [(Decimal("1.10"),), (None,)]
