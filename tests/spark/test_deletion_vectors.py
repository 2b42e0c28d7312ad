"""Deleted rows do not come through Spark either, whether its own reader or a Python worker reads a file."""

from __future__ import annotations

from typing import Any

import pytest

from kit.spark_rows import assert_same, is_native
from tidelake.catalog.lake import Lake
from tidelake.engines.spark.read.deletion_vectors import drop_deleted_rows, has_vector
from tidelake.table import Table


@pytest.mark.parametrize("wide", ["false", "true"])
def test_marked_rows_are_left_out_whichever_way_a_file_is_read(lake: Lake, spark: Any, wide: str) -> None:
    options = {"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": wide, "bucket": "2", "bucket-key": "id"}
    table = lake.create_table("db.t", {"id": "INT", "v": "STRING"}, options=options)
    for first in (0, 100):
        table.write([{"id": first + n, "v": str(n)} for n in range(50)])
    table.delete("id < 30 and id % 3 = 0")
    frame = assert_same(spark, table.scan())
    assert frame.count() == 90
    assert is_native(frame)
    assert len(frame.inputFiles()) == 4
    assert_same(spark, table.scan(where="id % 2 = 0"))
    assert_same(spark, table.scan(columns=["v"], where="id >= 20"))
    assert table.scan(limit=85).to_spark(spark).count() == 85
    hidden = table.scan().to_spark(spark, columns=["id", "__paimon_row_index"]).filter("id < 30").toArrow()
    assert all(number % 3 for number in hidden["id"].to_pylist())
    source = spark.read.format("tidelake").load(table.location)
    assert source.count() == 90
    table.compact(full=True)
    assert assert_same(spark, table.scan()).count() == 90


def marked_table(lake: Lake, **options: str) -> Table:
    options = {"deletion-vectors.enabled": "true", "bucket": "2", "bucket-key": "id", **options}
    table = lake.create_table("db.t", {"id": "INT", "v": "STRING"}, options=options)
    for first in (0, 100):
        table.write([{"id": first + n, "v": str(n)} for n in range(50)])
    table.delete("id < 30 and id % 3 = 0")
    return table


def assert_marked_go_through_workers(spark: Any, table: Table) -> None:
    frame = assert_same(spark, table.scan())
    read = {name.rpartition("/")[2] for name in frame.inputFiles()}
    marked = {each["f0"] for ranges in table.inspect.table_indexes()["dv_ranges"].to_pylist() for each in ranges}
    assert len(read) == len(marked) == 2
    assert not read & marked


@pytest.mark.parametrize(("limit", "most"), [("VECTOR_FILES_MAX", 1), ("VECTOR_ROWS_MAX", 40)])
def test_many_marked_files_or_rows_are_read_by_python_workers(
    lake: Lake, spark: Any, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    table = marked_table(lake)
    assert len(assert_same(spark, table.scan()).inputFiles()) == 4
    monkeypatch.setattr(f"tidelake.engines.spark.read.native.{limit}", most)
    assert_marked_go_through_workers(spark, table)


def test_marked_files_with_names_that_spark_may_tell_otherwise_are_read_by_python_workers(
    lake: Lake, spark: Any
) -> None:
    table = marked_table(lake, **{"data-file.prefix": "da%20ta und mehr-"})
    assert_marked_go_through_workers(spark, table)


def test_a_row_that_no_vector_can_speak_of_is_an_error_and_not_left_out(lake: Lake, spark: Any) -> None:
    table = marked_table(lake)
    splits = [split for split in table.scan().splits() if split.vectors]
    places = [(split, file) for split in splits for file in split.files if has_vector(split, file)]
    paths = [f"{table.location}/{split.path_of(file)}" for split, file in places]
    rows = spark.read.parquet(*paths)
    assert drop_deleted_rows(spark, table.store, rows, places).count() == 40
    with pytest.raises(Exception, match="outside of the files that were planned"):
        drop_deleted_rows(spark, table.store, rows, places[:1]).collect()


def test_a_column_that_hides_what_spark_tells_of_files_changes_nothing(lake: Lake, spark: Any) -> None:
    table = lake.create_table(
        "db.t", {"id": "INT", "_metadata": "STRING"}, options={"deletion-vectors.enabled": "true"}
    )
    table.write([{"id": n, "_metadata": str(n)} for n in range(20)])
    table.delete("id < 10")
    assert assert_same(spark, table.scan()).count() == 10
    assert assert_same(spark, table.scan(columns=["id"])).count() == 10


def test_vectors_of_two_schemas_and_of_a_renamed_column(lake: Lake, spark: Any) -> None:
    table = marked_table(lake)
    table = table.alter(add={"w": "BIGINT"}, rename={"v": "text"})
    table.write([{"id": 200 + n, "text": str(n), "w": n} for n in range(50)])
    table.delete("id > 210 and id % 2 = 0 or id > 140 and id < 145")
    frame = assert_same(spark, table.scan())
    assert_same(spark, table.scan(columns=["w", "text"], where="id % 5 = 1"))
    assert frame.filter("id >= 200").count() == 31
    assert len(frame.inputFiles()) == 6


def test_marks_and_filters_over_files_of_several_row_groups(lake: Lake, spark: Any) -> None:
    options = {"deletion-vectors.enabled": "true", "file.block-size": "16 kb"}
    table = lake.create_table("db.t", {"id": "INT", "v": "STRING"}, options=options)
    table.write([{"id": n, "v": f"{n:09}"} for n in range(20_000)])
    table.delete("id % 7 = 0 and id > 3000")
    for where in (None, "id > 15000", "id = 14000", "id between 5000 and 5010", "v = '000006999'"):
        assert is_native(assert_same(spark, table.scan(where=where)))
    frame = table.to_spark(spark=spark).filter("id >= 12000 and id < 12100")
    assert sorted(row.id for row in frame.collect()) == [n for n in range(12000, 12100) if n % 7]
