"""Hidden columns say where a row is stored, whatever else is asked of the read."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidelake as tl
from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.table import Table

PARTITION, BUCKET, FILE, ROW = HIDDEN = [
    *("__paimon_partition", "__paimon_bucket", "__paimon_file_path", "__paimon_row_index")
]


@pytest.fixture
def lake(tmp_path: Path) -> tl.Lake:
    return tl.connect(tmp_path, storage={"durability": "none"})


@pytest.fixture
def append(lake: tl.Lake) -> Table:
    """Two partitions, two files each, an older schema, and a deletion vector."""
    table = lake.create_table(
        "d.a", {"id": "INT", "p": "STRING"}, partition_by=["p"], options={"deletion-vectors.enabled": "true"}
    )
    table.write([{"id": number, "p": "ab"[number % 2]} for number in range(8)])
    table = table.alter(add={"v": "STRING"}, rename={"id": "number"})
    table.write([{"number": number, "p": "ab"[number % 2], "v": f"v{number}"} for number in range(8, 16)])
    table.delete("number in (0, 4, 5, 14)")
    return table


def assert_places_are_right(table: Table, rows: pa.Table, column: str) -> None:
    """The row is in that file, at that position."""
    assert rows.num_rows
    for row in rows.to_pylist():
        stored = pq.read_table(row[FILE].removeprefix("file:"), partitioning=None).to_pylist()[row[ROW]]
        assert row[column] in stored.values()
        assert row[PARTITION]["p"] == row.get("p", row[PARTITION]["p"])
    files = {row["file_path"]: row["bucket"] for row in table.inspect.files().to_pylist()}
    assert all(files[row[FILE]] == row[BUCKET] for row in rows.to_pylist())


def test_each_row_says_where_it_is_stored(append: Table) -> None:
    rows = append.to_arrow(["number", *HIDDEN, "p"])
    assert rows.column_names == ["number", *HIDDEN, "p"]
    assert rows.select(["number", "p"]).sort_by("number").equals(append.to_arrow(["number", "p"]).sort_by("number"))
    assert_places_are_right(append, rows, "number")
    assert rows.schema.equals(append.scan(["number", *HIDDEN, "p"]).arrow_schema)


def test_conditions_limits_and_orders_are_those_of_any_read(append: Table) -> None:
    rows = append.to_arrow(
        ["v", ROW, FILE, PARTITION, BUCKET], "number >= 9 and v <> 'v10'", order_by="number desc", limit=3
    )
    assert rows["v"].to_pylist() == ["v15", "v13", "v12"]
    assert_places_are_right(append, rows, "v")
    assert append.to_arrow([FILE, ROW], limit=5).num_rows == 5
    assert append.to_arrow([FILE], limit=0).num_rows == 0
    assert append.scan([FILE], "number > 7").count() == 7
    assert sum(batch.num_rows for batch in append.to_batches([BUCKET, "p"], "p = 'a'")) == 5
    assert append.at(snapshot=1).to_arrow([ROW])[ROW].to_pylist() == [0, 1, 2, 3] * 2


def test_a_lazy_frame_reads_the_hidden_columns_that_its_query_needs(append: Table) -> None:
    import polars as pl

    lazy = append.to_polars(["number", FILE, ROW], lazy=True)
    found = lazy.filter(pl.col("number") > 12).select(ROW, "number").sort("number").collect()
    assert found.columns == [ROW, "number"]
    assert found["number"].to_list() == [13, 15]
    assert lazy.select(pl.len()).collect().item() == 12
    assert lazy.filter(pl.col(ROW) == 1).collect().height == append.to_arrow([ROW])[ROW].to_pylist().count(1)


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_positions_are_those_of_every_format(lake: tl.Lake, file_format: str) -> None:
    table = lake.create_table("d.f", {"id": "INT"}, options={"file.format": file_format})
    table.write([{"id": number} for number in range(100)])
    rows = table.to_arrow(["id", ROW], "id % 7 = 3")
    assert rows["id"].to_pylist() == rows[ROW].to_pylist() == list(range(3, 100, 7))
    assert table.to_arrow([PARTITION], limit=1).to_pylist() == [{PARTITION: {}}]


def test_rows_that_are_merged_have_a_bucket_but_no_file(lake: tl.Lake) -> None:
    table = lake.create_table("d.k", {"id": "INT", "v": "INT"}, primary_key=["id"], options={"bucket": "2"})
    table.write([{"id": number, "v": 0} for number in range(20)])
    table.write([{"id": number, "v": 1} for number in range(10)])
    rows = table.to_arrow(["id", BUCKET, "v"], order_by="id")
    assert rows.num_rows == 20
    assert set(rows[BUCKET].to_pylist()) == {0, 1}
    for column in (FILE, ROW):
        with pytest.raises(UnsupportedError, match="need no merge") as caught:
            table.to_arrow(["id", column])
        assert caught.value.facts["column"] == column
    table.compact(full=True)
    rows = table.to_arrow(["id", FILE, ROW, BUCKET])
    assert rows.num_rows == 20
    assert len(set(zip(rows[FILE].to_pylist(), rows[ROW].to_pylist(), strict=True))) == 20
    assert table.scan([FILE]).read_optimized().count() == 20


def test_changes_views_and_system_tables_have_no_hidden_columns(append: Table, lake: tl.Lake) -> None:
    attempts: list[Callable[[], object]] = [
        lambda: append.changes(0, columns=["number", FILE]),
        lambda: append.follow(columns=["number", FILE]),
        lambda: lake.table("d.a$audit_log").to_arrow(["number", BUCKET]),
    ]
    for attempt in attempts:
        with pytest.raises(UnsupportedError, match="not available for changes"):
            attempt()
    with pytest.raises(InvalidInputError, match="column"):
        lake.table("d.a$files").to_arrow([FILE])
    for wrong in ([FILE, FILE], ["nope", FILE], ["number", "__paimon_file"]):
        with pytest.raises(InvalidInputError, match="column"):
            append.scan(wrong)


def test_a_scan_with_hidden_columns_goes_to_another_process(append: Table) -> None:
    scan = append.scan(["number", ROW], "number > 3", 4, "number")
    assert pickle.loads(pickle.dumps(scan)).to_arrow().equals(scan.to_arrow())
    assert repr(scan).startswith("Scan(d.a: number")


def test_a_column_of_the_table_with_such_a_name_is_that_column(lake: tl.Lake) -> None:
    table = lake.create_table("d.own", {"id": "INT", BUCKET: "STRING"})
    table.write([{"id": 1, BUCKET: "mine"}])
    assert table.to_arrow([BUCKET]).to_pylist() == [{BUCKET: "mine"}]
    assert table.to_arrow([BUCKET, ROW]).to_pylist() == [{BUCKET: "mine", ROW: 0}]


@pytest.mark.parametrize("how", [{"limit": 2}, {"where": "number > 1"}, {}])
def test_the_least_value_of_a_scan_with_hidden_columns_is_that_of_its_rows(
    append: Table, how: dict[str, object]
) -> None:
    plain, placed = (append.scan(columns, **how) for columns in (["number"], [BUCKET, "number"]))
    assert placed.to_arrow()["number"].to_pylist() == plain.to_arrow()["number"].to_pylist()
    for column in ("number", "v"):
        assert (placed.min(column), placed.max(column)) == (plain.min(column), plain.max(column))
