"""System tables as Spark frames: by `lake.spark_table`, and by `spark.table` of a session that knows the lake."""

from __future__ import annotations

from typing import Any

import pytest

import tidelake as tl
from tidelake.catalog.lake import Lake
from tidelake.errors import UnsupportedError
from tidelake.table import Table


@pytest.fixture
def table(lake: Lake) -> Table:
    """A partitioned table of two snapshots, with a tag and a branch."""
    table = lake.create_table(
        "db.t",
        {"id": "INT", "dt": "STRING"},
        primary_key=["dt", "id"],
        partition_by=["dt"],
        options={"bucket": "1", "deletion-vectors.enabled": "true"},
    )
    table.write([{"id": 1, "dt": "a"}, {"id": 2, "dt": "b"}])
    table.create_tag("first")
    table.create_branch("b", tag="first")
    table.write([{"id": 3, "dt": "a"}])
    return table


def test_system_tables_have_the_same_rows_on_spark(spark: Any, lake: Lake, table: Table) -> None:
    tl.attach(spark, lake)
    for name in ("files", "snapshots", "table_indexes", "statistics"):
        opened = lake.table(f"db.t${name}")
        frame = lake.spark_table(f"db.t${name}", spark=spark)
        assert frame.columns == list(opened.schema.names)
        shown = [row.asDict(recursive=True) for row in frame.collect()]
        assert shown == opened.to_arrow().to_pylist(), name
        assert [row.asDict(recursive=True) for row in spark.table(f"db.`t${name}`").collect()] == shown, name


def test_columns_and_conditions_reach_a_system_table_on_spark(spark: Any, lake: Lake, table: Table) -> None:
    frame = lake.spark_table("db.t$files", ["file_path", "level"], "partition = '{b}'", spark)
    assert frame.columns == ["file_path", "level"]
    assert frame.count() == 1
    assert lake.table("db.t$partitions").scan(order_by="partition desc", limit=1).to_spark(spark).count() == 1
    assert lake.table("db.t$branch_b$files").to_spark(spark=spark).count() == 2
    assert lake.table("db.t$consumers").to_spark(spark=spark).dtypes[1] == ("next_snapshot_id", "bigint")
    with pytest.raises(UnsupportedError, match="hidden columns"):
        lake.table("db.t$files").to_spark(columns=["level", "__paimon_file_path"], spark=spark)


def test_the_system_tables_of_the_lake_are_found_by_a_session(spark: Any, lake: Lake, table: Table) -> None:
    tl.attach(spark, lake)
    assert [row.table_name for row in spark.table("sys.tables").collect()] == ["t"]
    assert spark.table("sys.partitions").select("partition_name").orderBy("partition_name").head()[0] == "dt=a"
