"""What Spark writes is what the same rows written in process would be: every bucket mode, engine and write mode."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tidelake.catalog.lake import Lake
from tidelake.engines.spark.write import job as writing
from tidelake.errors import InvalidInputError
from tidelake.index.hash_index import decode_hash_index
from tidelake.ops.placement.dynamic_buckets import hash_entries
from tidelake.ops.read.rows import read_rows
from tidelake.spec.rows.binary_hash import hash_rows

Rows = list[dict[str, Any]]


def rows_of(table: Any, *keys: str) -> Rows:
    """All rows in the order of some columns, nulls first."""
    order = [(key, "ascending") for key in keys]
    found: Rows = table.to_arrow().sort_by(order).to_pylist()
    return found


def healthy(table: Any) -> bool:
    """Whether every invariant holds at every snapshot, rows included."""
    report = table.check(deep=True, rows=True)
    assert report.ok, report
    return True


@pytest.fixture
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any job of a write fails the test."""

    def run(*_: object) -> None:
        raise AssertionError("a job ran")

    monkeypatch.setattr(writing.WriteJob, "report_frame", run)


# ------------------------------------------------------------------------------------------------ bucket modes


@pytest.mark.parametrize("options", [{"bucket": "1"}, {"bucket": "13"}], ids=["one", "more than tasks"])
def test_fixed_buckets_of_many_partitions_hold_their_rows(spark: Any, lake: Lake, options: dict[str, str]) -> None:
    columns = {"p": "STRING", "id": "BIGINT", "v": "STRING"}
    table = lake.create_table("db.t", columns, primary_key=["p", "id"], partition_by=["p"], options=options)
    frame = spark.range(300).selectExpr("if(id < 200, 'hot', concat('p', id % 20)) p", "id", "concat('v', id) v")
    table.write(frame)
    table.write(frame.filter("id % 3 = 0").selectExpr("p", "id", "'new' v"))
    assert [row["v"] for row in rows_of(table, "id")] == ["new" if n % 3 == 0 else f"v{n}" for n in range(300)]
    assert healthy(table)


def test_null_bucket_keys_of_an_append_table_are_written_where_they_are_looked_for(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.t", {"k": "INT", "v": "INT"}, options={"bucket": "4", "bucket-key": "k"})
    table.write(spark.range(40).selectExpr("cast(if(id % 4 = 0, null, id) as int) k", "cast(id as int) v"))
    again = lake.create_table("db.u", {"k": "INT", "v": "INT"}, options={"bucket": "4", "bucket-key": "k"})
    again.write([{"k": None if n % 4 == 0 else n, "v": n} for n in range(40)])
    for each in (table, again):
        assert each.scan(where="k is null").to_arrow().num_rows == 10
    counts = [
        each.files(columns=["bucket", "row_count"])
        .group_by("bucket")
        .aggregate([("row_count", "sum")])
        .sort_by("bucket")
        for each in (table, again)
    ]
    assert counts[0].equals(counts[1])
    assert healthy(table)


def test_a_table_without_buckets_takes_rows_as_they_lie(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.t", {"id": "BIGINT", "p": "STRING"}, partition_by=["p"])
    done = table.write(spark.range(0, 60, 1, 3).selectExpr("id", "concat('p', id % 2) p"))
    assert done.rows == 60
    assert done.files == 6  # each task writes a file for each partition
    assert [row["id"] for row in rows_of(table, "id")] == list(range(60))


def test_the_sink_strategy_hash_brings_the_rows_of_a_partition_together(spark: Any, lake: Lake) -> None:
    options = {"partition.sink-strategy": "hash"}
    table = lake.create_table("db.t", {"id": "BIGINT", "p": "STRING"}, partition_by=["p"], options=options)
    done = table.write(spark.range(0, 60, 1, 3).selectExpr("id", "concat('p', id % 2) p"))
    assert (done.rows, done.files) == (60, 2)


def _check_index(table: Any) -> None:
    """Every bucket's index holds the hashes of exactly its keys."""
    snapshot = table.latest_snapshot()
    entries = hash_entries(table.store.manifests.read_index(snapshot.index_manifest))
    assert entries
    seen = 0
    for split in table.scan().splits():
        file = entries[split.partition][split.bucket]
        data = table.store.env.io.read(table.store.layout.index_path(file.file_name))
        known = set(decode_hash_index(data, path=file.file_name, row_count=file.row_count).tolist())
        rows = pa.Table.from_batches(list(read_rows(table.context, [split], table.scan().request())))
        hashes = hash_rows([rows.column("id").combine_chunks()], [table.schema.field("id").type])
        assert set(hashes.tolist()) <= known
        seen += len(known)
    assert seen == table.to_arrow().num_rows


def test_dynamic_buckets_are_assigned_by_their_owners_and_kept(spark: Any, lake: Lake) -> None:
    columns = {"p": "STRING", "id": "BIGINT", "v": "STRING"}
    options = {"bucket": "-1", "dynamic-bucket.target-row-num": "20"}
    table = lake.create_table("db.t", columns, primary_key=["p", "id"], partition_by=["p"], options=options)
    frame = spark.range(200).selectExpr("concat('p', id % 2) p", "id", "'old' v")
    table.write(frame)  # into an empty table: owners write at once
    first = table.files(columns=["partition", "bucket", "row_count"])
    assert pc.max(first.column("row_count")).as_py() <= 20
    table.write(spark.range(100, 260).selectExpr("concat('p', id % 2) p", "id", "'new' v"))
    table.write([{"p": "p1", "id": 7, "v": "here"}])  # and in process: the same buckets
    table.write(spark.createDataFrame([("p1", 9, "there")], "p string, id bigint, v string"))
    wanted = {n: "old" if n < 100 else "new" for n in range(260)} | {7: "here", 9: "there"}
    assert {row["id"]: row["v"] for row in rows_of(table, "id")} == wanted
    _check_index(table)
    assert healthy(table)


@pytest.mark.parametrize("keys", [["p", "id"], ["id"]], ids=["hash-dynamic", "key-dynamic"])
def test_a_job_that_another_overtakes_puts_its_rows_where_the_keys_are(
    spark: Any, lake: Lake, keys: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {"p": "INT", "id": "BIGINT", "v": "INT"}
    options = {"bucket": "-1", "dynamic-bucket.target-row-num": "9"}
    table = lake.create_table("db.t", columns, primary_key=keys, partition_by=["p"], options=options)
    run_job, begun = writing.run_job, []

    def late(*given: Any) -> Any:
        messages = run_job(*given)
        begun.append(1)
        if len(begun) == 1:  # it has written and not yet committed
            lake.table("db.t").write(spark.range(59, -1, -1).selectExpr("1 p", "id", "1 v"))
        return messages

    monkeypatch.setattr(writing, "run_job", late)
    table.write(spark.range(40).selectExpr("if(id < 20, 1, 2) p", "id", "2 v"))
    assert len(begun) == 2
    found = {(row["p"], row["id"]): row["v"] for row in rows_of(table, "p", "id")}
    ours = {(1 if number < 20 else 2, number): 2 for number in range(40)}
    theirs = {(1, number): 1 for number in range(60) if len(keys) == 2 or number >= 40}
    assert table.count() == len(found)
    assert found == {**theirs, **ours}
    assert healthy(table)


def test_dynamic_buckets_that_owners_share_are_shuffled_twice(spark: Any, lake: Lake) -> None:
    options = {"bucket": "-1", "dynamic-bucket.initial-buckets": "2", "dynamic-bucket.assigner-parallelism": "3"}
    columns = {"p": "INT", "id": "BIGINT", "v": "INT"}
    table = lake.create_table("db.t", columns, primary_key=["p", "id"], partition_by=["p"], options=options)
    table.write(spark.range(90).selectExpr("cast(id % 9 as int) p", "id", "1 v"))
    table.write(spark.range(90).selectExpr("cast(id % 9 as int) p", "id", "2 v"), mode="overwrite-dynamic")
    assert [(row["id"], row["v"]) for row in rows_of(table, "id")] == [(n, 2) for n in range(90)]
    _check_index(table)
    assert healthy(table)


# ------------------------------------------------------------------------------------------------ engines and kinds

ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "partial-update": {"partial-update.remove-record-on-delete": "true"},
    "aggregation": {"fields.a.aggregate-function": "sum", "fields.b.aggregate-function": "last_non_null_value"},
    "first-row": {},
}


@pytest.mark.parametrize("local", [{}, {"local-merge-buffer-size": "1 mb"}], ids=["sent", "merged first"])
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_merges_what_spark_writes(spark: Any, lake: Lake, engine: str, local: dict[str, str]) -> None:
    options = {"bucket": "2", "merge-engine": engine, **ENGINES[engine], **local}
    columns = {"id": "INT", "a": "INT", "b": "STRING"}
    tables = [lake.create_table(f"db.{name}", columns, primary_key=["id"], options=options) for name in ("s", "p")]
    steps = [
        [(1, 10, "x"), (2, None, "y"), (3, 5, None)],
        [(1, 1, None), (2, 7, None), (4, 2, "z")],
        [(1, None, "w"), (4, 3, None)],
    ]
    for step in steps:
        tables[0].write(spark.createDataFrame(step, "id int, a int, b string").coalesce(1))
        tables[1].write([dict(zip(columns, row, strict=True)) for row in step])
    assert rows_of(tables[0], "id") == rows_of(tables[1], "id")
    assert len(rows_of(tables[0], "id")) == 4
    assert healthy(tables[0])


def test_kinds_come_in_a_column_of_the_frame_by_name_or_by_the_option(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.t", {"id": "INT", "v": "STRING"}, primary_key=["id"], options={"bucket": "2"})
    table.write(spark.createDataFrame([(1, "a"), (2, "b"), (3, "c")], "id int, v string"))
    table.write(spark.createDataFrame([(1, "a", "-D"), (4, "d", "+I")], "id int, v string, rowkind string"))
    table.write(spark.createDataFrame([("-D", 2, "b"), ("+U", 3, "new")], "op string, id int, v string"), row_kind="op")
    assert [(row["id"], row["v"]) for row in rows_of(table, "id")] == [(3, "new"), (4, "d")]
    with pytest.raises(InvalidInputError, match="row kind is not known"):
        table.write(spark.createDataFrame([(1, "a", "?")], "id int, v string, rowkind string"))
    with pytest.raises(InvalidInputError, match="row-kind column does not exist"):
        table.write(spark.createDataFrame([(1, "a")], "id int, v string"), row_kind="op")
    fields = {"bucket": "2", "rowkind.field": "op"}
    other = lake.create_table("db.u", {"id": "INT", "op": "STRING"}, primary_key=["id"], options=fields)
    other.write(spark.createDataFrame([(1, "+I"), (2, "+I")], "id int, op string"))
    other.write(spark.createDataFrame([(1, "-D")], "id int, op string"))
    assert [row["id"] for row in rows_of(other, "id")] == [2]


def test_tasks_compact_what_is_due_and_not_in_a_write_only_table(spark: Any, lake: Lake) -> None:
    options = {"bucket": "1", "num-sorted-run.compaction-trigger": "3"}
    made = [
        lake.create_table(f"db.{name}", {"id": "INT"}, primary_key=["id"], options={**options, **more})
        for name, more in (("a", {}), ("w", {"write-only": "true"}), ("f", {"full-compaction.delta-commits": "1"}))
    ]
    for number in range(4):
        for table in made:
            table.write(spark.createDataFrame([(number,)], "id int").coalesce(1))
    levels = [pc.max(table.files().column("level")).as_py() for table in made]
    assert levels[0] > 0
    assert levels[1] == 0
    assert set(made[2].files().column("level").to_pylist()) == {3}
    for table in made:
        assert [row["id"] for row in rows_of(table, "id")] == [0, 1, 2, 3]
        assert healthy(table)


# ------------------------------------------------------------------------------------------------ expiry beside it


@pytest.mark.parametrize(
    ("keys", "options", "source"),
    [
        (["p", "id"], {"bucket": "2"}, False),
        (["p", "id"], {"bucket": "2"}, True),
        (["p", "id"], {"bucket": "-1", "dynamic-bucket.target-row-num": "40"}, False),
        (["id"], {"bucket": "-1", "dynamic-bucket.target-row-num": "40"}, False),
        (["p", "id"], {"bucket": "-2"}, False),
        (["p", "id"], {"bucket": "-2"}, True),
    ],
    ids=["fixed", "fixed by the data source", "dynamic", "moving", "postponed", "postponed by the data source"],
)
def test_a_write_whose_snapshot_expires_is_planned_again(
    spark: Any, lake: Lake, tmp_path: Any, keys: list[str], options: dict[str, str], source: bool
) -> None:
    """The snapshot that a job was planned on goes while the job runs; it was refused as `snapshot-expired`."""
    columns = {"p": "STRING NOT NULL", "id": "BIGINT NOT NULL", "v": "STRING"}
    table = lake.create_table("db.t", columns, primary_key=keys, partition_by=["p"], options=options)
    first = spark.range(100).selectExpr("concat('p', id % 2) p", "id", "'old' v")
    table.write(first)
    mark, root = str(tmp_path / "expired"), lake.location

    def expire_once(batches: Any) -> Any:
        import os

        import tidelake as tl

        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            there = tl.connect(root).table("db.t")
            there.write([{"p": "p0", "id": 1000, "v": "meanwhile"}])
            there.expire_snapshots(retain_max=1, retain_min=1)
        yield from batches

    frame = first.filter("id < 50").selectExpr("p", "id", "'new' v").coalesce(1).mapInArrow(expire_once, first.schema)
    if source:
        frame.write.format("tidelake").mode("append").save(table.location)
    else:
        table.write(frame)
    table.compact()
    assert (tmp_path / "expired").exists()
    expected = {**{n: "new" if n < 50 else "old" for n in range(100)}, 1000: "meanwhile"}
    assert {row["id"]: row["v"] for row in rows_of(table, "id")} == expected
    assert healthy(table)


# ------------------------------------------------------------------------------------------------ modes


def test_overwrites_replace_the_table_named_partitions_or_those_of_the_data(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.t", {"p": "INT", "id": "INT"}, partition_by=["p"])
    start = spark.range(6).selectExpr("cast(id % 3 as int) p", "cast(id as int) id")
    table.write(start)
    one = spark.createDataFrame([(1, 100)], "p int, id int")
    table.write(one, mode="overwrite-dynamic")
    assert [row["id"] for row in rows_of(table, "id")] == [0, 2, 3, 5, 100]
    table.write(one.selectExpr("2 p", "7 id"), mode="overwrite", partition={"p": 2})
    assert [row["id"] for row in rows_of(table, "id")] == [0, 3, 7, 100]
    with pytest.raises(InvalidInputError):
        table.write(one, mode="overwrite", partition={"p": 2})
    table.write(one.filter("false"), mode="overwrite-dynamic")
    assert [row["id"] for row in rows_of(table, "id")] == [0, 3, 7, 100]
    table.write(one.filter("false"), mode="overwrite", partition={"p": 0})
    assert [row["id"] for row in rows_of(table, "id")] == [7, 100]
    table.write(one, mode="overwrite")
    assert [row["id"] for row in rows_of(table, "id")] == [100]
    table.write(one.filter("false"), mode="overwrite")
    assert rows_of(table, "id") == []
    assert healthy(table)


def test_an_empty_append_commits_nothing(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.t", {"id": "INT"}, primary_key=["id"], options={"bucket": "2"})
    assert table.write(spark.createDataFrame([], "id int")).snapshot_ids == ()
    assert table.latest_snapshot() is None


def test_a_numbered_write_that_is_repeated_is_a_no_op_and_starts_no_job(
    spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create_table("db.t", {"id": "INT"})
    frame = spark.createDataFrame([(1,)], "id int")
    assert table.write(frame, commit_user="job", identifier=3).rows == 1
    monkeypatch.setattr(writing.WriteJob, "report_frame", lambda *_: pytest.fail("a job ran"))
    assert table.write(frame, commit_user="job", identifier=3).repeated
    assert rows_of(table, "id") == [{"id": 1}]


@pytest.mark.usefixtures("no_job")
def test_arguments_that_do_not_go_together_are_refused_before_a_job(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.t", {"p": "INT", "id": "INT"}, partition_by=["p"])
    frame = spark.createDataFrame([(1, 1)], "p int, id int")
    with pytest.raises(InvalidInputError, match="mode is not known"):
        table.write(frame, mode="upsert")
    with pytest.raises(InvalidInputError, match="only given to an overwrite"):
        table.write(frame, partition={"p": 1})
    with pytest.raises(InvalidInputError, match="needs a commit user"):
        table.write(frame, identifier=1)


# ------------------------------------------------------------------------------------------------ columns


def test_columns_are_found_by_name_and_missing_ones_get_default_or_null(spark: Any, lake: Lake) -> None:
    columns = {"id": "BIGINT NOT NULL", "name": "STRING", "n": "INT"}
    table = lake.create_table("db.t", columns, options={"bucket": "2", "bucket-key": "id"})
    table = table.alter(defaults={"n": "7"})
    table.write(spark.createDataFrame([(1,), (2,)], "id int"))
    table.write(spark.createDataFrame([(None, "x", 3)], "n int, name string, id int"))
    assert [tuple(row.values()) for row in rows_of(table, "id")] == [(1, None, 7), (2, None, 7), (3, "x", 7)]


def test_a_default_of_a_partition_column_brings_its_rows_to_one_task(spark: Any, lake: Lake) -> None:
    columns = {"p": "STRING", "id": "INT", "v": "INT"}
    table = lake.create_table("db.t", columns, partition_by=["p"], options={"bucket": "1", "bucket-key": "id"})
    table = table.alter(defaults={"p": "d"})
    done = table.write(spark.range(20).selectExpr("if(id % 2 = 0, 'd', null) p", "cast(id as int) id", "1 v"))
    assert (done.rows, done.files) == (20, 1)


@pytest.mark.parametrize(
    ("ddl", "match"),
    [
        ("id int, v string, more int", "does not have"),
        ("id int, v int", "does not fit"),
        ("id string, v string", "does not fit"),
        ("v string", "must not be null"),
        ("id int, v string, V string", "does not have"),
    ],
)
@pytest.mark.usefixtures("no_job")
def test_columns_that_cannot_fit_are_refused_before_a_job(spark: Any, lake: Lake, ddl: str, match: str) -> None:
    table = lake.create_table("db.t", {"id": "INT NOT NULL", "v": "STRING"})
    with pytest.raises(InvalidInputError, match=match):
        table.write(spark.createDataFrame([], ddl))


def test_every_type_that_spark_knows_comes_back_as_it_was_written(spark: Any, lake: Lake) -> None:
    columns = {
        "id": "INT", "b": "BOOLEAN", "t": "TINYINT", "s": "SMALLINT", "l": "BIGINT", "f": "FLOAT", "d": "DOUBLE",
        "m": "DECIMAL(20, 3)", "c": "CHAR(3)", "v": "VARCHAR(10)", "y": "BYTES", "dt": "DATE", "ti": "TIME(3)",
        "ts": "TIMESTAMP(6)", "lz": "TIMESTAMP_LTZ(6)", "a": "ARRAY<INT>", "mp": "MAP<STRING, INT>",
        "r": "ROW<x INT, y STRING>",
    }  # fmt: skip
    table = lake.create_table("db.t", columns, primary_key=["id"], options={"bucket": "2"})
    moment = dt.datetime(2026, 11, 16, 1, 2, 3, 456_789)
    row = {
        "id": 1, "b": True, "t": -1, "s": 2, "l": 2**40, "f": 1.5, "d": -2.5, "m": Decimal("1.500"), "c": "abc",
        "v": "text", "y": b"\x00\x01", "dt": dt.date(2026, 11, 16), "ti": dt.time(1, 2, 3, 4000), "ts": moment,
        "lz": moment.replace(tzinfo=dt.UTC), "a": [1, None], "mp": [("k", 1)], "r": {"x": 1, "y": "z"},
    }  # fmt: skip
    table.write([row, dict.fromkeys(columns) | {"id": 2}])
    other = lake.create_table("db.u", columns, primary_key=["id"], options={"bucket": "2"})
    other.write(table.to_spark(spark=spark))
    assert rows_of(other, "id") == rows_of(table, "id")
    assert healthy(other)


# ------------------------------------------------------------------------------------------------ evolution


def test_merge_schema_adds_columns_also_inside_rows_and_keeps_types(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.t", {"id": "INT", "r": "ROW<a INT>"}, primary_key=["id"], options={"bucket": "1"})
    table.write([{"id": 1, "r": {"a": 1}}])
    merging = table.with_options({"write.merge-schema": True})
    merging.write(spark.sql("select 2L id, named_struct('a', 2, 'b', 'x') r, 1.5D more"))
    merging.write(spark.sql("select 3 id, 4.5D more"))
    now = table.reload()
    assert [str(field.type) for field in now.schema.fields] == ["INT NOT NULL", "ROW<`a` INT, `b` STRING>", "DOUBLE"]
    assert rows_of(now, "id") == [
        {"id": 1, "r": {"a": 1, "b": None}, "more": None},
        {"id": 2, "r": {"a": 2, "b": "x"}, "more": 1.5},
        {"id": 3, "r": None, "more": 4.5},
    ]


def test_types_widen_or_change_only_where_the_options_say_so(spark: Any, lake: Lake) -> None:
    table = lake.create_table("db.t", {"id": "INT", "n": "INT", "big": "BIGINT", "s": "STRING"})
    table.write([{"id": 1, "n": 1, "big": 1, "s": "2026-11-16"}])
    wide = spark.sql(f"select 2L id, {2**40}L n, 3 big, date'2026-11-17' s")
    merging = table.with_options({"write.merge-schema": True})
    with pytest.raises(InvalidInputError):
        merging.write(wide)
    widening = merging.with_options({"write.merge-schema.type-widening": True})
    widening.write(wide.drop("s"))
    assert [str(each.type) for each in table.reload().schema.fields] == ["BIGINT", "BIGINT", "BIGINT", "STRING"]
    with pytest.warns(UserWarning, match="column `s` changes from STRING to DATE"):
        widening.with_options({"write.merge-schema.explicit-cast": True}).write(wide)
    now = table.reload()
    assert [str(each.type) for each in now.schema.fields] == ["BIGINT", "BIGINT", "BIGINT", "DATE"]
    assert [row["n"] for row in rows_of(now, "n")] == [1, 2**40, 2**40]


def test_a_write_in_process_merges_schemas_too(lake: Lake) -> None:
    table = lake.create_table("db.t", {"id": "INT"}).with_options({"write.merge-schema": True})
    table.write([{"id": 1, "name": "a"}])
    table.write(pa.table({"id": [2], "n": [1.5]}), commit_user="u", identifier=1)
    assert table.write(pa.table({"id": [2], "x": [1]}), commit_user="u", identifier=1).repeated
    assert rows_of(table.reload(), "id") == [{"id": 1, "name": "a", "n": None}, {"id": 2, "name": None, "n": 1.5}]
