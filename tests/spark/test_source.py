"""The data source `tidelake`: found by itself, read and written through Spark's own `read` and `write`."""

from __future__ import annotations

import datetime as dt
import os
from decimal import Decimal
from glob import glob
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tidelake.catalog.lake import Lake
from tidelake.errors import UnsupportedError
from tidelake.table import Table

EVERYTHING = {
    "id": "BIGINT",
    "name": "STRING",
    "small": "SMALLINT",
    "x": "DOUBLE",
    "price": "DECIMAL(10,2)",
    "day": "DATE",
    "at": "TIMESTAMP(6)",
    "zoned": "TIMESTAMP_LTZ(6)",
    "raw": "BYTES",
    "tags": "ARRAY<STRING NOT NULL>",
    "counts": "MAP<STRING, INT NOT NULL>",
    "place": "ROW<street STRING, number INT NOT NULL>",
    "clock": "TIME",
}


def row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "name": f"n{number}",
        "small": number,
        "x": number / 2,
        "price": Decimal(number).quantize(Decimal("0.01")),
        "day": dt.date(2026, 11, 1) + dt.timedelta(number),
        "at": dt.datetime(2026, 11, 1, 2, 3, 4, 5),
        "zoned": dt.datetime(2026, 11, 1, tzinfo=dt.UTC),
        "raw": b"r",
        "tags": ["a", "b"],
        "counts": [("k", number)],
        "place": {"street": None, "number": number},
        "clock": dt.time(0, 0, 1),
    }


@pytest.fixture
def everything(lake: Lake) -> Table:
    """A table with a column of most types, and one row of nulls."""
    table = lake.create_table("db.all", EVERYTHING, primary_key=["id"], options={"bucket": "2"})
    table.write([*map(row, range(6)), {"id": 99}])
    return table


@pytest.fixture
def keyed(lake: Lake) -> Table:
    return lake.create_table("db.k", {"id": "BIGINT", "v": "STRING"}, primary_key=["id"], options={"bucket": "2"})


def read(spark: Any, **options: str) -> Any:
    return spark.read.format("tidelake").options(**options)


def write(frame: Any, table: Table, mode: str = "append", **options: str) -> None:
    frame.write.format("tidelake").options(**options).mode(mode).save(table.location)


# ------------------------------------------------------------------------------------------------ reading


def test_every_type_arrives_as_spark_knows_it(spark: Any, everything: Table) -> None:
    frame = read(spark).load(everything.location)
    first = frame.filter("id = 3").collect()[0]
    assert (first.name, first.small, first.x, first.price) == ("n3", 3, 1.5, Decimal("3.00"))
    assert (first.day, first["at"]) == (dt.date(2026, 11, 4), dt.datetime(2026, 11, 1, 2, 3, 4, 5))
    assert (first.tags, first.counts, first.place.number, first.clock) == (["a", "b"], {"k": 3}, 3, 1000)
    assert frame.schema["id"].nullable is False
    empty = frame.filter("id = 99").collect()[0]
    assert [value for name, value in empty.asDict().items() if name != "id"] == [None] * 12


def test_columns_are_chosen_by_the_option_and_by_a_narrower_schema(spark: Any, everything: Table) -> None:
    chosen = read(spark, columns="name, id").load(everything.location)
    assert chosen.columns == ["name", "id"]
    assert chosen.orderBy("id").first() == ("n0", 0)
    narrow = read(spark).schema("price decimal(10,2), id bigint").load(everything.location)
    assert narrow.orderBy("id").first() == (Decimal("0.00"), 0)


@pytest.mark.parametrize(
    ("schema", "said"), [("id int", "another type"), ("id bigint, more string", "does not have a column")]
)
def test_a_schema_that_the_table_does_not_have_is_refused(
    spark: Any, everything: Table, schema: str, said: str
) -> None:
    with pytest.raises(Exception, match=said):
        read(spark).schema(schema).load(everything.location).collect()


def test_dynamic_options_travel_and_read_branches(spark: Any, lake: Lake, keyed: Table) -> None:
    keyed.write([{"id": 1, "v": "old"}])
    keyed.create_branch("side", snapshot=1).write([{"id": 2, "v": "side"}])
    keyed.write([{"id": 1, "v": "new"}])
    names = {"warehouse": lake.location, "database": "db"}
    assert [each.v for each in read(spark).load(keyed.location).collect()] == ["new"]
    assert [each.v for each in read(spark, **{"scan.snapshot-id": "1"}).load(keyed.location).collect()] == ["old"]
    assert read(spark, table="k", branch="side", **names).load().count() == 2
    assert read(spark, table="k$branch_side", **names).load().count() == 2


def test_filters_are_taken_over_and_left_to_spark_with_the_same_rows(spark: Any, everything: Table) -> None:
    everything.write([{"id": 50, "x": float("nan"), "name": "nan"}])
    plain = everything.to_spark(spark=spark)
    for condition in (
        "id > 2",
        "id <= 2 and name like 'n%'",
        "id in (1, 3, 77)",
        "not (id = 3)",
        "name <=> null",
        "not (name <=> 'n1')",
        "name is not null and x > 1",
        "x <= 1.5D",
        "price = 2.00",
        "day >= date'2026-11-04'",
        "small < 3S",
        "name = 'n5' or id = 0",
        "at > timestamp_ntz'2026-01-01 00:00:00'",
        "place.number = 2",
    ):
        frame = read(spark, pushFilters="true").load(everything.location)
        found = sorted(each.id for each in frame.filter(condition).collect())
        assert found == sorted(each.id for each in plain.filter(condition).collect()), condition


def test_a_filter_that_is_taken_over_leaves_files_unread(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.p", {"id": "BIGINT", "dt": "STRING"}, partition_by=["dt"])
    table.write([{"id": number, "dt": f"d{number}"} for number in range(3)])
    doomed = table.files(columns=["file_name"]).column(0).to_pylist()
    frame = read(spark, pushFilters="true").load(table.location).filter("dt = 'd1'")
    chosen = read(spark, where="dt = 'd1'").load(table.location)
    kept = table.scan(where="dt = 'd1'").splits()[0].files[0].file_name
    for folder in lake.env.io.list("db.db/p"):
        for file in lake.env.io.list(f"db.db/p/{folder.name}/bucket-0") if folder.name.startswith("dt=") else ():
            if file.name in doomed and file.name != kept:
                lake.env.io.delete(f"db.db/p/{folder.name}/bucket-0/{file.name}")
    assert [each.id for each in frame.collect()] == [1]
    assert [each.id for each in chosen.collect()] == [1]


def test_a_frame_that_is_used_again_gives_the_rows_of_each_query(spark: Any, keyed: Table) -> None:
    """Spark 4.3 reads a frame with the filters of the query before, where the next one has none to take over."""
    keyed.write([{"id": number, "v": "a"} for number in range(6)])
    frame = read(spark).load(keyed.location)
    assert [frame.filter("id > 3").count(), frame.count(), frame.filter("id = 0 or id = 5").count()] == [2, 6, 2]


def test_reading_works_where_the_session_pushes_no_filters(spark: Any, keyed: Table) -> None:
    """A reader that takes filters is an error there, so that one must not be offered."""
    keyed.write([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert read(spark, pushFilters="true").load(keyed.location).filter("id = 2").count() == 1
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_an_empty_table_has_no_rows(spark: Any, keyed: Table) -> None:
    assert read(spark).load(keyed.location).collect() == []


# ------------------------------------------------------------------------------------------------ writing


def test_tasks_that_write_to_one_bucket_number_their_rows_one_after_the_other(spark: Any, keyed: Table) -> None:
    keyed.write([{"id": 1, "v": "before"}])
    for round_number in range(2):
        frame = spark.range(0, 3, 1, 3).selectExpr("1L id", f"concat('r{round_number}-task', id) v")
        write(frame, keyed)
    assert keyed.to_arrow().to_pylist() == [{"id": 1, "v": "r1-task2"}]
    ranges = keyed.files(columns=["min_sequence", "max_sequence"]).to_pylist()
    assert len(ranges) == 7
    assert len({each["min_sequence"] for each in ranges}) == 7
    assert keyed.check(deep=True, rows=True).ok
    keyed.compact(full=True)
    assert keyed.to_arrow().to_pylist() == [{"id": 1, "v": "r1-task2"}]


def test_append_tables_with_buckets_keep_the_order_of_the_tasks(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.a", {"id": "BIGINT"}, options={"bucket": "2", "bucket-key": "id"})
    for _ in range(2):
        write(spark.range(0, 40, 1, 4), table)
    files = table.files(columns=["bucket", "min_sequence", "max_sequence"]).to_pylist()
    for bucket in (0, 1):
        ranges = sorted((f["min_sequence"], f["max_sequence"]) for f in files if f["bucket"] == bucket)
        assert ranges[0][0] == 0
        assert all(before[1] + 1 == after[0] for before, after in pairwise(ranges))
    assert table.count() == 80
    assert table.check(deep=True, rows=True).ok


def test_an_overwrite_replaces_all_partitions_or_those_with_new_rows(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.p", {"id": "BIGINT", "dt": "STRING"}, partition_by=["dt"])
    table.write([{"id": 1, "dt": "a"}, {"id": 2, "dt": "b"}])
    new = spark.createDataFrame([(3, "b")], "id bigint, dt string")
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        write(new, table, "overwrite")
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert sorted(table.to_arrow().column("id").to_pylist()) == [1, 3]
    write(new, table, "overwrite", partitionOverwriteMode="dynamic")
    assert sorted(table.to_arrow().column("id").to_pylist()) == [1, 3]
    write(new, table, "overwrite")
    assert table.to_arrow().column("id").to_pylist() == [3]
    write(new.limit(0), table, "overwrite")
    assert table.count() == 0


def test_the_first_write_makes_the_table(spark: Any, lake: Lake) -> None:
    options = {"warehouse": lake.location, "database": "db", "table": "made"}
    frame = spark.range(4).selectExpr("id", "'x' v")
    made = {"primary-key": "id", "bucket": "2"}
    frame.write.format("tidelake").options(**options, **made).mode("append").save()
    table = lake.table("db.made")
    assert (table.primary_key, table.count()) == (("id",), 4)
    assert read(spark, **options).load().count() == 4


def test_a_temporary_view_is_read_and_written_by_sql(spark: Any, keyed: Table) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW keyed USING tidelake OPTIONS (path '{keyed.location}')")
    spark.sql("INSERT INTO keyed VALUES (1, 'a'), (2, 'b')")
    assert spark.sql("SELECT max(v) FROM keyed WHERE id < 2").first()[0] == "a"
    spark.sql("INSERT OVERWRITE keyed VALUES (3, 'c')")
    assert keyed.to_arrow().to_pylist() == [{"id": 3, "v": "c"}]


def test_a_table_of_sparks_catalog_says_what_to_use_instead(spark: Any, keyed: Table) -> None:
    spark.sql(f"CREATE TABLE in_catalog USING tidelake OPTIONS (path '{keyed.location}')")
    try:
        keyed.write([{"id": 1, "v": "a"}])
        with pytest.raises(Exception, match="make a temporary view"):
            spark.sql("SELECT * FROM in_catalog").collect()
        assert spark.sql(f"SELECT v FROM in_catalog WITH (path = '{keyed.location}')").first()[0] == "a"
        spark.sql("ALTER TABLE in_catalog ADD COLUMN more INT")
        with pytest.raises(Exception, match="does not have a column"):
            spark.sql(f"SELECT * FROM in_catalog WITH (path = '{keyed.location}')").collect()
    finally:
        spark.sql("DROP TABLE in_catalog")


def test_a_failed_task_commits_nothing_and_what_is_left_is_listed(spark: Any, keyed: Table) -> None:
    # The second task meets a null key, after the first has written its file. Whether the driver has heard of that file
    # when it gives up is a race of Spark's own; a file that it has not heard of is nobody's.
    frame = spark.range(0, 2, 1, 2).selectExpr("if(id = 1, null, id) id", "'a' v")
    with pytest.raises(Exception, match="must not be null"):
        write(frame, keyed)
    assert keyed.latest_snapshot() is None
    left = {Path(path).name for path in glob(f"{keyed.location}/bucket-*/*")}
    assert len(left) <= 1
    for path in glob(f"{keyed.location}/bucket-*/*"):
        os.utime(path, (0, 0))  # orphans are looked for a day later
    assert {Path(path).name for path in keyed.remove_orphans().paths} == left
    assert not glob(f"{keyed.location}/bucket-*/*")


def test_hidden_columns_are_read_by_the_option_and_refused_where_rows_are_merged(
    spark: Any, lake: Lake, keyed: Table
) -> None:
    table = lake.create_table(
        "db.h", {"id": "BIGINT", "p": "STRING"}, partition_by=["p"], options={"deletion-vectors.enabled": "true"}
    )
    table.write([{"id": number, "p": "ab"[number % 2]} for number in range(10)])
    table.delete("id in (3, 4)")
    names = ["__paimon_row_index", "id", "__paimon_file_path", "__paimon_partition", "__paimon_bucket"]
    wanted = sorted(map(repr, table.to_arrow(names, "id > 1").to_pylist()))
    frame = read(spark, columns=", ".join(names), where="id > 1").load(table.location)
    assert frame.columns == names
    assert sorted(repr(row.asDict(recursive=True)) for row in frame.collect()) == wanted
    scanned = table.scan(names, "id > 1").to_spark(spark)
    assert sorted(repr(row.asDict(recursive=True)) for row in scanned.collect()) == wanted
    assert read(spark, columns="__paimon_file_path").load(table.location).distinct().count() == 2
    for number in range(2):
        keyed.write([{"id": 1, "v": str(number)}])
    assert read(spark, columns="id, __paimon_bucket").load(keyed.location).count() == 1
    with pytest.raises(Exception, match="need no merge"):
        read(spark, columns="__paimon_file_path").load(keyed.location).collect()
    with pytest.raises(Exception, match="not available for changes"):
        read(spark, columns="id, __paimon_bucket", **{"read.changelog": "true"}).load(keyed.location)
    with pytest.raises(UnsupportedError, match="not available for changes"):
        lake.stream("db.k", spark, columns="id, __paimon_bucket")
