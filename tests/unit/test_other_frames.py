"""pandas and DuckDB take rows from a table, and pandas frames are written like any other data."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
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


def test_a_fault_of_an_import_below_a_read_is_not_reported_as_a_missing_pandas(table, monkeypatch):
    fault = ImportError("cannot import name 'gone'", name="tidelake.ops.gone")

    def fail(_):
        raise fault

    monkeypatch.setattr("tidelake.query.Scan.to_arrow", fail)
    with pytest.raises(ImportError) as caught:
        table().to_pandas()
    assert caught.value is fault


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


# ------------------------------------------------------------------------------------------------ the index of pandas


def frame_with(index):
    return pd.DataFrame({"v": ["a", "b"]}, index=index)


@pytest.fixture
def lake():
    return tl.connect("memory://")


CONSECUTIVE = pd.RangeIndex(1, 3, name="id")
SCATTERED = pd.Index([1, 7], name="id")


@pytest.mark.parametrize("index", [CONSECUTIVE, SCATTERED], ids=["consecutive", "scattered"])
def test_a_named_index_is_written_whatever_its_values_are(lake, index):
    rows = [{"id": one, "v": v} for one, v in zip(index, "ab", strict=True)]
    table = lake.create_table("d.t", {"id": "BIGINT", "v": "STRING"})
    table.write(frame_with(index))
    assert table.to_arrow().to_pylist() == rows


@pytest.mark.parametrize("index", [CONSECUTIVE, SCATTERED], ids=["consecutive", "scattered"])
def test_a_table_made_from_a_frame_has_its_named_index_as_a_column(lake, index, tmp_path):
    assert lake.create_table("d.t", frame_with(index)).schema.names == ("id", "v")
    tl.write_table(tmp_path / "t", frame_with(index), primary_key=["id"])
    assert tl.open_table(tmp_path / "t").to_arrow().column("id").to_pylist() == list(index)


def test_the_named_index_of_the_source_of_a_merge_is_a_column_of_it(lake):
    table = lake.create_table("d.t", {"id": "BIGINT", "v": "STRING"})
    table.write([{"id": 1, "v": "old"}])
    done = table.merge(frame_with(CONSECUTIVE), on=["id"]).when_matched_update().when_not_matched_insert().run()
    assert (done.updated, done.inserted) == (1, 1)
    none = frame_with(CONSECUTIVE).iloc[:0].rename(columns={"v": "unknown"})
    with pytest.raises(tl.InvalidInputError, match="unknown"):
        table.merge(none, on=["id"]).when_matched_update({"v": "s.v"}).run()


def test_an_added_column_may_be_the_named_index_of_a_frame(lake):
    table = lake.create_table("d.t", {"v": "STRING"})
    table.with_options({"write.merge-schema": True}).write(frame_with(CONSECUTIVE))
    assert table.reload().to_arrow(columns=["id", "v"]).to_pylist() == [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]


def test_an_unnamed_index_is_not_written_whatever_its_values_are(lake):
    table = lake.create_table("d.t", frame_with(pd.Index([5, 9])))
    table.write([frame_with(pd.Index([5, 9])), frame_with(None)])
    assert table.schema.names == ("v",)
    assert table.to_arrow().column("v").to_pylist() == ["a", "b", "a", "b"]


def test_of_an_index_with_several_levels_the_named_ones_are_written(lake):
    levels = pd.MultiIndex.from_tuples([("x", 1, 5), ("x", 2, 6)], names=["a", None, "c"])
    assert lake.create_table("d.t", frame_with(levels)).schema.names == ("a", "c", "v")


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (frame_with(pd.Index([1, 2], name="v")), "share a name"),
        (frame_with(pd.MultiIndex.from_tuples([(1, 2), (3, 4)], names=["a", "a"])), "share a name"),
        (pd.DataFrame([[1, 2]], columns=["v", "v"]), "a column twice"),
        (pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("v", 1), ("v", 2)])), "several levels"),
        (pd.DataFrame({"v": [1, "x"]}), "column v"),
        (pd.Series(["a"], name="v"), "to_frame"),
        (pl.Series("v", ["a"]), "to_frame"),
        (pl.DataFrame({"v": [object()]}), "Python objects"),
        (pl.DataFrame({"v": pl.Series([1], dtype=pl.UInt128)}), "Decimal"),
        (pl.DataFrame({"v": pl.Series([2**127 - 1], dtype=pl.Int128)}), "does not fit"),
        (pa.array([1]), "no rows and columns"),
        (pa.chunked_array([[1]]), "no rows and columns"),
    ],
)
def test_frames_that_no_table_can_hold_are_refused_with_our_errors(lake, frame, message):
    table = lake.create_table("d.t", {"v": "STRING"})
    for use in (
        table.write,
        lambda data: table.merge(data, on=["v"]).when_matched_delete().run(),
        lambda data: tl.write_table("memory://fresh/t", data),
    ):
        with pytest.raises(tl.InvalidInputError, match=message):
            use(frame)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pl.Series(["a", None], dtype=pl.Categorical), "STRING"),
        (pl.Series(["a", None], dtype=pl.Enum(["a"])), "STRING"),
        (pl.Series([2**100, -1], dtype=pl.Int128), "DECIMAL(38, 0)"),
        (pl.Series([["a"], None], dtype=pl.List(pl.Categorical)), "ARRAY<STRING>"),
        (pl.Series([{"x": "a"}, None], dtype=pl.Struct({"x": pl.Enum(["a"])})), "ROW<`x` STRING>"),
    ],
)
def test_types_that_only_polars_knows_are_stored_as_what_they_hold(lake, values, expected):
    frame = pl.DataFrame({"v": values})
    for number, data in enumerate((frame, frame.lazy())):
        table = lake.create_table(f"d.t{number}", data)
        assert str(table.schema.field("v").type) == expected
        table.write(data)
        assert table.to_arrow().column("v").to_pylist() == values.to_list()
