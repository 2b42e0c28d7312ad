"""A scan as a Spark frame: the same rows as in process, whatever is asked of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kit.spark_rows import assert_same, expected_rows, is_native, spark_rows
from tidelake.catalog.lake import Lake
from tidelake.engines.spark.read import frames
from tidelake.engines.spark.read.frames import parts_of, resize_batches
from tidelake.errors import InvalidInputError, NotFoundError, UnsupportedError
from tidelake.table import Table

HIDDEN = ["__paimon_partition", "__paimon_bucket", "__paimon_file_path", "__paimon_row_index"]


@pytest.fixture
def keyed(lake: Lake) -> Table:
    """A table of two buckets that has to be merged."""
    table = lake.create_table("db.k", {"k": "INT", "v": "STRING"}, primary_key=["k"], options={"bucket": "2"})
    table.write([{"k": number, "v": f"a{number}"} for number in range(30)])
    table.write([{"k": number, "v": f"b{number}"} for number in range(10, 40)])
    return table


@pytest.fixture
def append(lake: Lake) -> Table:
    """An append table of three snapshots."""
    table = lake.create_table("db.a", {"id": "INT", "s": "STRING"})
    for number in range(3):
        table.write([{"id": number * 10 + each, "s": None if each == 2 else f"s{each}"} for each in range(4)])
    return table


# ---------------------------------------------------------------------------------------------------- what is asked


def test_an_empty_table_and_an_empty_answer_have_the_columns(spark: Any, lake: Lake, keyed: Table) -> None:
    empty = lake.create_table("db.e", {"a": "INT", "b": "ARRAY<STRING>"})
    frame = assert_same(spark, empty.scan())
    assert frame.count() == 0
    assert frame.dtypes == [("a", "int"), ("b", "array<string>")]
    assert assert_same(spark, keyed.scan(where="k = 1000")).count() == 0


def test_columns_and_conditions_of_merged_rows(spark: Any, keyed: Table) -> None:
    assert not is_native(assert_same(spark, keyed.scan()))
    assert_same(spark, keyed.scan(["v"]))
    assert_same(spark, keyed.scan(["v", "k"], "k between 5 and 12"))
    assert_same(spark, keyed.scan(["k"], "v like 'a%'"))
    assert_same(spark, keyed.scan(["k"], "length(v) = 3 and k % 2 = 0"))
    assert keyed.to_spark(spark=spark).count() == 40
    assert keyed.to_spark(where="v = 'a12'", spark=spark).count() == 0, "an overwritten version is not seen"


def test_a_condition_that_spark_cannot_say_is_asked_before(spark: Any, append: Table) -> None:
    assert not is_native(assert_same(spark, append.scan(where="length(s) = 2")))
    assert not is_native(assert_same(spark, append.scan(where="id + 1 = 11 or s is null")))


def test_the_frame_is_pinned_to_its_snapshot_and_lazy(spark: Any, append: Table, keyed: Table) -> None:
    for table, more in ((append, {"id": 99, "s": "x"}), (keyed, {"k": 99, "v": "x"})):
        before = table.to_spark(spark=spark)
        count = before.count()
        table.write([more])
        assert before.count() == count
        assert table.to_spark(spark=spark).count() == count + 1


def test_limits_and_orders_are_those_of_the_scan(spark: Any, append: Table, keyed: Table) -> None:
    for table, first, second in ((append, "id", "s"), (keyed, "k", "v")):
        assert table.scan(limit=3).to_spark(spark).count() == 3
        assert table.scan(limit=0).to_spark(spark).count() == 0
        for order in (first, [f"{first} desc"], [f"{second} desc", first]):
            scan = table.scan(order_by=order)
            assert [tuple(row) for row in scan.to_spark(spark).collect()] == [
                tuple(row.values()) for row in scan.to_arrow().to_pylist()
            ]
        scan = table.scan([second], order_by=f"{first} desc", limit=5)
        assert [row[0] for row in scan.to_spark(spark).collect()] == scan.to_arrow().column(0).to_pylist()
        assert scan.to_spark(spark).columns == [second]


def test_nulls_come_first_ascending_and_last_descending(spark: Any, append: Table) -> None:
    for order in ("s", "s desc"):
        scan = append.scan(["s"], order_by=order)
        assert [row.s for row in scan.to_spark(spark).collect()] == scan.to_arrow().column("s").to_pylist()


def test_changes_begin_with_their_kind(spark: Any, append: Table) -> None:
    scan = append.changes(1, 2, columns=["s", "id"], where="id > 10")
    frame = scan.to_spark(spark)
    assert frame.columns == ["rowkind", "s", "id"]
    assert spark_rows(frame) == sorted(map(repr, scan.to_arrow().to_pylist()))
    assert frame.filter("rowkind = '+I'").count() == 3
    nothing = append.changes(3, 3).to_spark(spark)
    assert (nothing.columns, nothing.count()) == (["rowkind", "id", "s"], 0)


def test_changes_of_a_primary_key_table_keep_their_kinds(spark: Any, lake: Lake) -> None:
    options = {"bucket": "2", "write-only": "true"}
    table = lake.create_table("d.t", {"id": "INT NOT NULL", "v": "STRING"}, primary_key=["id"], options=options)
    table.write([{"id": each, "v": "a"} for each in range(9)])
    table.write([{"id": 1, "v": "b", "rowkind": "+U"}, {"id": 2, "v": "a", "rowkind": "-D"}])
    diff = table.with_options({"incremental-between-scan-mode": "diff"})
    log = lake.table("d.t$audit_log")
    for scan in (table.changes(0), table.changes(1, columns=["v"]), diff.changes(1, 2), log.scan()):
        frame = scan.to_spark(spark)
        assert frame.columns == scan.arrow_schema.names
        assert spark_rows(frame) == sorted(map(repr, scan.to_arrow().to_pylist()))
    between = table.with_options({"incremental-between": "1,2"}).scan()
    assert spark_rows(between.to_spark(spark)) == sorted(map(repr, between.to_arrow().to_pylist()))


def test_a_scan_chooses_of_its_own_columns(spark: Any, append: Table) -> None:
    scan = append.scan(["id", "s"])
    assert scan.to_spark(spark, ["s"]).columns == ["s"]
    for wrong in (["nope"], [], ["s", "s"]):
        with pytest.raises(InvalidInputError, match="scan's"):
            scan.to_spark(spark, wrong)


# ------------------------------------------------------------------------------------------------------ time travel


def test_every_way_to_travel_gives_the_rows_of_in_process(spark: Any, lake: Lake, append: Table, keyed: Table) -> None:
    for table in (append, keyed):
        table.create_tag("first", snapshot=1)
        ways = [
            table.at(snapshot=1),
            table.at(tag="first"),
            table.with_options({"scan.snapshot-id": "1"}),
            table.with_options({"scan.tag-name": "first"}),
            table.with_options({"scan.version": "first"}),
            table.with_options({"scan.timestamp-millis": str(table.at(snapshot=1).scan().snapshot().time_ms)}),
        ]
        expected = expected_rows(ways[0].scan())
        assert expected
        assert expected != expected_rows(table.scan())
        for way in ways:
            assert spark_rows(way.to_spark(spark=spark)) == expected == expected_rows(way.scan())


def test_incremental_reads_and_options_of_one_use(spark: Any, append: Table) -> None:
    append.create_tag("one", snapshot=1)
    append.create_tag("three", snapshot=3)
    for options in (
        {"incremental-between": "1,3"},
        {"incremental-between": "one,three"},
        {"incremental-between": "2,2"},
        {"scan.mode": "latest"},
        {"source.split.target-size": "1 b", "source.split.open-file-cost": "1 b"},
        {"scan.plan-sort-partition": "true", "scan.manifest.parallelism": "1"},
    ):
        assert_same(spark, append.with_options(options).scan())


def test_a_travelled_table_has_the_schema_of_then(spark: Any, append: Table) -> None:
    later = append.alter(add={"n": "INT"}, rename={"s": "t"})
    later.write([{"id": 100, "t": "z", "n": 1}])
    assert_same(spark, later.scan())
    then = assert_same(spark, later.at(snapshot=2).scan())
    assert then.columns == ["id", "s"]


def test_branches_are_read_and_fill_each_other_in(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.b", {"p": "INT", "v": "INT"}, partition_by=["p"])
    table.write([{"p": 1, "v": 1}, {"p": 2, "v": 2}])
    table.create_branch("side")
    side = table.branch("side")
    side.write([{"p": 3, "v": 33}, {"p": 1, "v": 11}])
    assert_same(spark, side.scan())
    assert_same(spark, table.scan())
    assert_same(spark, table.with_options({"scan.fallback-branch": "side"}).scan())


def test_what_does_not_exist_is_said_before_spark_is_asked(spark: Any, append: Table) -> None:
    with pytest.raises(NotFoundError):
        append.with_options({"scan.snapshot-id": "99"}).to_spark(spark=spark)
    with pytest.raises(InvalidInputError, match="nope"):
        append.to_spark(["nope"], spark=spark)


# -------------------------------------------------------------------------------------------------- hidden columns


def test_hidden_columns_tell_where_a_row_lies(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.h", {"p": "STRING", "v": "INT"}, partition_by=["p"])
    table.write([{"p": "x y", "v": 1}, {"p": "x y", "v": 2}, {"p": None, "v": 3}])
    frame = table.to_spark(["v", *HIDDEN, "p"], spark=spark)
    assert frame.columns == ["v", *HIDDEN, "p"]
    found = {row.v: row for row in frame.collect()}
    assert [found[v]["__paimon_partition"].p for v in (1, 2, 3)] == ["x y", "x y", None]
    assert [found[v]["__paimon_row_index"] for v in (1, 2, 3)] == [0, 1, 0]
    assert {row["__paimon_bucket"] for row in found.values()} == {0}
    paths = {row["__paimon_file_path"] for row in found.values()}
    assert paths == set(table.inspect.files().column("file_path").to_pylist())
    assert all(Path(path.removeprefix("file:")).exists() for path in paths)


def test_hidden_columns_alone_and_beside_conditions(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.h", {"v": "INT"})
    table.write([{"v": number} for number in range(10)])
    alone = table.to_spark(["__paimon_row_index"], spark=spark)
    assert [row[0] for row in alone.collect()] == list(range(10))
    some = table.to_spark(["__paimon_row_index", "__paimon_bucket"], "v >= 7", spark)
    assert [tuple(row) for row in some.collect()] == [(7, 0), (8, 0), (9, 0)]
    assert table.to_spark(["__paimon_partition"], spark=spark).count() == 10


def test_merged_rows_have_a_bucket_but_no_file(spark: Any, keyed: Table) -> None:
    found = keyed.to_spark(["k", "__paimon_bucket"], spark=spark).collect()
    by_bucket = {split.bucket for split in keyed.scan().splits()}
    assert {row["__paimon_bucket"] for row in found} == by_bucket == {0, 1}
    for name in ("__paimon_file_path", "__paimon_row_index"):
        with pytest.raises(UnsupportedError, match="need no merge"):
            keyed.to_spark(["k", name], spark=spark)
    keyed.compact(full=True)
    rows_of = keyed.to_spark(["k", "__paimon_row_index", "__paimon_bucket"], spark=spark).collect()
    assert len({(row[2], row[1]) for row in rows_of}) == 40


def test_hidden_columns_are_those_of_a_read_in_process(spark: Any, append: Table) -> None:
    scan = append.scan([HIDDEN[3], "id", *HIDDEN[:3]], "id > 1")
    shown = [row.asDict(recursive=True) for row in scan.to_spark(spark).collect()]
    assert sorted(map(repr, shown)) == sorted(map(repr, scan.to_arrow().to_pylist()))


# -------------------------------------------------------------------------------------------------------- spreading


def test_a_large_file_is_read_in_parts_that_are_the_file(
    spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create_table("db.t", {"id": "INT", "t": "TIME(3)"}, options={"parquet.block.size": "4 kb"})
    numbers = pa.array(range(20_000), pa.int32())
    table.write(pa.table({"id": numbers, "t": numbers.cast(pa.time32("ms"))}))
    (split,) = table.scan().splits()
    assert len(parts_of(split)) == 1
    monkeypatch.setattr(frames, "PART_BYTES", split.size // 4)
    monkeypatch.setattr(frames, "TASK_BYTES", 1)
    parts = parts_of(split)
    assert [part.share for part in parts] == [(number, len(parts)) for number in range(len(parts))]
    assert len(parts) >= 4
    frame = table.to_spark(spark=spark)
    assert frame.rdd.getNumPartitions() == 4, "two for each core"
    assert sorted(row.id for row in frame.collect()) == list(range(20_000))
    assert_same(spark, table.scan(where="t > TIME '00:00:10'"))


def test_a_split_that_is_merged_stays_whole(keyed: Table) -> None:
    for split in keyed.scan().splits():
        assert [part.split for part in parts_of(split)] == [split]


def test_batches_are_joined_or_cut_to_a_good_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "BATCH_ROWS_LEAST", 10)
    monkeypatch.setattr(frames, "BATCH_ROWS_MOST", 25)
    sizes = [1, 2, 3, 4, 5, 60, 2]
    given = [pa.record_batch({"n": list(range(size))}) for size in sizes]
    found = list(resize_batches(iter(given)))
    assert [batch.num_rows for batch in found] == [10, 25, 25, 15, 2]
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches(given))
    assert list(resize_batches(iter([]))) == []
