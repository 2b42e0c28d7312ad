"""A frame goes into a table and comes back."""

from __future__ import annotations

from typing import Any

import tidelake as tl
from tidelake.catalog.lake import Lake


def test_what_spark_writes_is_what_both_read(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.t", {"id": "BIGINT", "v": "STRING"}, primary_key=["id"], options={"bucket": "3"})
    frame = spark.range(-50, 50).selectExpr("id", "concat('v', id) v")
    done = table.write(frame)
    assert done.rows == 100
    expected = [{"id": number, "v": f"v{number}"} for number in range(-50, 50)]
    assert table.to_arrow().sort_by("id").to_pylist() == expected
    assert [row.asDict() for row in table.to_spark(spark=spark).orderBy("id").collect()] == expected
    assert table.check(deep=True, rows=True).ok


def test_an_upsert_by_spark_wins_over_what_was_there(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.t", {"id": "INT", "v": "STRING"}, primary_key=["id"], options={"bucket": "2"})
    table.write([{"id": 1, "v": "old"}, {"id": 2, "v": "kept"}])
    table.write(spark.createDataFrame([(1, "new")], "id int, v string"))
    rows = table.to_spark(spark=spark).orderBy("id").collect()
    assert [(row.id, row.v) for row in rows] == [(1, "new"), (2, "kept")]


def test_the_first_write_of_a_frame_by_its_path_makes_the_table(spark: Any, lake: Lake) -> None:
    path = f"{lake.location}/db.db/t"
    tl.write_table(path, spark.createDataFrame([(1, "a")], "id int, v string"), primary_key=["id"])
    assert lake.table("db.t").to_arrow().to_pylist() == [{"id": 1, "v": "a"}]
