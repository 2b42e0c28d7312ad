"""Streams into tables: every kind of table, every output mode, each batch once whatever is repeated."""

from __future__ import annotations

import json
import logging
import threading  # noqa: TID251 - two drivers at once
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidelake as tl
from kit.streams import (
    COLUMNS,
    SCHEMA,
    Feed,
    batches_of,
    content,
    copy_checkpoint,
    forget_commit,
    run_source_sink,
    run_stream,
)
from tidelake.catalog.lake import Lake
from tidelake.engines.spark.datasource.stream_writer import StreamTableWriter
from tidelake.engines.spark.stream import batches as stream_batches
from tidelake.engines.spark.stream.batches import BatchSink, find_stream_user, watermark_ms
from tidelake.engines.spark.stream.requests import SinkRequest, choose_checkpoint, parse_trigger
from tidelake.errors import CommitConflictError, FormatError, InvalidInputError, TidelakeError, UnsupportedError
from tidelake.spec.documents.snapshot import CommitKind
from tidelake.table import Table

KINDS: dict[str, dict[str, Any]] = {
    "unaware": {"options": {"bucket": "-1"}},
    "append-fixed": {"options": {"bucket": "2", "bucket-key": "id"}},
    "fixed": {"primary_key": ["id", "p"], "partition_by": ["p"], "options": {"bucket": "2"}},
    "dynamic": {"primary_key": ["id", "p"], "partition_by": ["p"], "options": {"bucket": "-1"}},
    "cross-partition": {"primary_key": ["id"], "partition_by": ["p"], "options": {"bucket": "-1"}},
    "postponed": {"primary_key": ["id", "p"], "partition_by": ["p"], "options": {"bucket": "-2"}},
}
ENGINES = {
    "sum": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "partial-update": {"merge-engine": "partial-update"},
    "first-row": {"merge-engine": "first-row"},
}
FILES = [
    [(1, "a", 10, "x"), (2, "b", 20, None), (3, "a", 30, "z"), (1, "a", 1, "x1")],
    [(2, "b", 5, "y2"), (3, "b", None, "z2"), (4, "a", 40, "w")],
]


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path / "in")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def make(lake: Lake, kind: str, name: str = "db.t", **more: str) -> Table:
    how = KINDS[kind]
    return lake.create_table(name, COLUMNS, **{**how, "options": {**how["options"], **more}})


def sums(files: list[pa.Table], keys: pa.ChunkedArray | None = None) -> pa.Table:
    """The sums over files, as the stream of `summed` gives them."""
    found = pa.concat_tables(files).group_by(["id", "p"]).aggregate([("v", "sum"), ("s", "max")])
    found = found.rename_columns(["id", "p", "v", "s"])
    return found if keys is None else found.filter(pc.is_in(pair(found), value_set=keys))


def pair(rows: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(rows.column("id").cast(pa.string()), rows.column("p"), "-")


def summed(frame: Any) -> Any:
    from pyspark.sql import functions as f

    return frame.groupBy("id", "p").agg(f.sum("v").alias("v"), f.max("s").alias("s"))


def settled(table: Table) -> list[Any]:
    """The rows that readers see after a compaction: staged rows have none before."""
    table.compact(full=True)
    return content(table)


# ------------------------------------------------------------------------------------------------ as in process


@pytest.mark.parametrize("kind", KINDS)
def test_appended_batches_are_the_writes_of_their_rows(
    spark: Any, lake: Lake, feed: Feed, checkpoint: Path, kind: str
) -> None:
    table, twin = make(lake, kind), make(lake, kind, "db.twin")
    for number, rows in enumerate(FILES):
        twin.write(feed.add(rows), commit_user="job", identifier=number)
    query = run_stream(feed.stream(spark), table, checkpoint)
    assert batches_of(table, query.id) == [0, 1]
    assert content(table) == content(twin)
    assert settled(table) == settled(twin)
    assert table.check(deep=True).ok


@pytest.mark.parametrize("engine", ENGINES)
def test_appended_batches_are_merged_by_the_engine_of_the_table(
    spark: Any, lake: Lake, feed: Feed, checkpoint: Path, engine: str
) -> None:
    table, twin = make(lake, "fixed", **ENGINES[engine]), make(lake, "fixed", "db.twin", **ENGINES[engine])
    for number, rows in enumerate(FILES):
        twin.write(feed.add(rows), commit_user="job", identifier=number)
    run_stream(feed.stream(spark), table, checkpoint)
    assert content(table) == content(twin)


@pytest.mark.parametrize("kind", ["fixed", "dynamic", "postponed"])
def test_updated_groups_are_upserts(spark: Any, lake: Lake, feed: Feed, checkpoint: Path, kind: str) -> None:
    table, twin = make(lake, kind), make(lake, kind, "db.twin")
    for number, rows in enumerate(FILES):
        added = feed.add(rows)
        twin.write(sums(feed.files, pair(added)), commit_user="job", identifier=number)
    run_stream(summed(feed.stream(spark)), table, checkpoint, output_mode="update")
    assert settled(table) == settled(twin)
    assert len(content(table)) == 5


@pytest.mark.parametrize("kind", KINDS)
def test_a_complete_result_replaces_the_whole_table(
    spark: Any, lake: Lake, feed: Feed, checkpoint: Path, kind: str
) -> None:
    table = make(lake, kind)
    table.write([{"id": 99, "p": "old", "v": 1, "s": "gone"}])
    for rows in FILES:
        feed.add([row for row in rows if kind != "cross-partition" or row[0] != 3])
    frame = summed(feed.stream(spark))
    query = run_stream(frame, table, checkpoint, output_mode="complete")
    forget_commit(checkpoint, 1)
    run_stream(frame, table, checkpoint, output_mode="complete")
    assert settled(table) == sorted(sums(feed.files).to_pylist(), key=repr)
    assert batches_of(table, query.id) == [0, 1]


def test_row_kinds_delete_and_update(spark: Any, lake: Lake, feed: Feed, checkpoint: Path) -> None:
    table = make(lake, "fixed", "db.t")
    named = make(lake, "fixed", "db.named")
    table.write([{"id": 1, "p": "a", "v": 1, "s": "x"}, {"id": 2, "p": "a", "v": 2, "s": "y"}])
    named.write(table.to_arrow())
    kinds = pa.table({"id": [1, 2], "p": ["a", "a"], "v": [1, 7], "s": ["x", "z"], "k": ["-D", "+U"]})
    feed.add(kinds)
    stream = feed.stream(spark, f"{SCHEMA}, k string")
    run_stream(stream.withColumnRenamed("k", "rowkind"), table, checkpoint)
    run_stream(stream, named, checkpoint.with_name("other"), row_kind="k")
    assert content(table) == content(named) == [{"id": 2, "p": "a", "v": 7, "s": "z"}]


# ------------------------------------------------------------------------------------------------ each batch once


def start(run: Any, spark: Any, feed: Feed, table: Table, checkpoint: Path, **how: Any) -> Any:
    return run(feed.stream(spark, **how), table, checkpoint)


SINKS = pytest.mark.parametrize("run", [run_stream, run_source_sink])


@SINKS
@pytest.mark.parametrize("kind", ["unaware", "fixed"])
def test_a_batch_that_spark_forgot_is_not_written_again(
    spark: Any, lake: Lake, feed: Feed, checkpoint: Path, kind: str, run: Any
) -> None:
    table = make(lake, kind, **(ENGINES["sum"] if kind == "fixed" else {}))
    twin = make(lake, kind, "db.twin", **(ENGINES["sum"] if kind == "fixed" else {}))
    for rows in FILES:
        twin.write(feed.add(rows))
    first = start(run, spark, feed, table, checkpoint)
    forget_commit(checkpoint, 1)
    again = start(run, spark, feed, table, checkpoint)
    assert (first.id, again.id) == (first.id, first.id)
    assert content(table) == content(twin)
    assert batches_of(table, first.id) == [0, 1]
    twin.write(feed.add(FILES[0]))
    start(run, spark, feed, table, checkpoint)
    assert content(table) == content(twin)


@SINKS
def test_a_forgotten_batch_is_known_after_its_snapshot_has_expired(
    spark: Any, lake: Lake, feed: Feed, checkpoint: Path, run: Any
) -> None:
    table = make(lake, "fixed", **ENGINES["sum"])
    for rows in FILES:
        feed.add(rows)
    query = start(run, spark, feed, table, checkpoint)
    expected = content(table)
    for _ in range(2):
        table.write([{"id": 50, "p": "a", "v": 0, "s": None}])
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="2100-01-01")
    assert batches_of(table, query.id) == []
    forget_commit(checkpoint, 1)
    start(run, spark, feed, table, checkpoint)
    assert [row for row in content(table) if row["id"] != 50] == expected


def test_a_failure_after_the_publish_is_no_second_commit(
    spark: Any, lake: Lake, feed: Feed, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(lake, "fixed", **ENGINES["sum"])
    feed.add(FILES[0])

    def fail(*_: Any) -> None:
        raise RuntimeError("the driver dies here")

    with monkeypatch.context() as patched:
        patched.setattr(stream_batches, "log_batch", fail)
        with pytest.raises(Exception, match="the driver dies here"):
            run_stream(feed.stream(spark), table, checkpoint)
    assert not (checkpoint / "commits" / "0").exists()
    published = content(table)
    query = run_stream(feed.stream(spark), table, checkpoint)
    assert (checkpoint / "commits" / "0").exists()
    assert published == content(table)
    assert batches_of(table, query.id) == [0]


def test_a_checkpoint_that_was_set_back_repeats_its_batches_without_effect(
    spark: Any, lake: Lake, feed: Feed, checkpoint: Path
) -> None:
    table = make(lake, "unaware")
    copy = checkpoint.with_name("copy")
    feed.add(FILES[0])
    run_stream(feed.stream(spark), table, checkpoint)
    copy_checkpoint(checkpoint, copy)
    feed.add(FILES[1])
    feed.add(FILES[0])
    query = run_stream(feed.stream(spark), table, checkpoint)
    copy_checkpoint(copy, checkpoint)
    feed.add(FILES[1])
    run_stream(feed.stream(spark), table, checkpoint)
    assert batches_of(table, query.id) == [0, 1, 2, 3]
    assert content(table) == sorted(pa.concat_tables(feed.files).to_pylist(), key=repr)


@SINKS
def test_other_rows_under_the_number_of_a_committed_batch_are_an_error(
    spark: Any, lake: Lake, feed: Feed, checkpoint: Path, run: Any
) -> None:
    table = make(lake, "unaware")
    copy = checkpoint.with_name("copy")
    feed.add(FILES[0])
    start(run, spark, feed, table, checkpoint)
    copy_checkpoint(checkpoint, copy)
    feed.add(FILES[1])
    feed.add(FILES[0])
    start(run, spark, feed, table, checkpoint)
    before = content(table)
    copy_checkpoint(copy, checkpoint)
    feed.add(FILES[1])
    with pytest.raises(Exception, match="checkpoint is older than the commits of its query"):
        start(run, spark, feed, table, checkpoint, per_batch=9)
    assert content(table) == before


def test_a_new_checkpoint_is_a_new_writer(spark: Any, lake: Lake, feed: Feed, checkpoint: Path) -> None:
    table = make(lake, "unaware", **{"commit.user-prefix": "orders"})
    feed.add(FILES[0])
    first = run_stream(feed.stream(spark), table, checkpoint)
    second = run_stream(feed.stream(spark), table, checkpoint.with_name("other"))
    assert [table.snapshot(number).commit_user for number in (1, 2)] == [f"orders_{first.id}", f"orders_{second.id}"]
    assert len(content(table)) == 2 * len(FILES[0])


@SINKS
def test_a_query_keeps_its_commit_user_when_the_prefix_of_the_table_changes(
    spark: Any, lake: Lake, feed: Feed, checkpoint: Path, run: Any
) -> None:
    table = make(lake, "unaware", **{"commit.user-prefix": "first"})
    for rows in FILES:
        feed.add(rows)
    start(run, spark, feed, table, checkpoint)
    before = content(table)
    table.set_options({"commit.user-prefix": "second"})
    forget_commit(checkpoint, 1)
    query = start(run, spark, feed, table, checkpoint)
    assert content(table) == before
    assert batches_of(table, f"first_{query.id}") == [0, 1]


def test_a_query_that_has_committed_finds_its_user_without_the_documents_of_others(lake: Lake) -> None:
    table = make(lake, "unaware")
    for query in ("one", "two"):
        table.write([{"id": 1, "p": "a", "v": 1, "s": "x"}], commit_user=query, identifier=0)
    others = Path(table.store.env.io.root, table.store.progress.path("two"))
    assert others.is_file()
    others.write_text("damaged")
    assert find_stream_user(table, "one") == "one"
    with pytest.raises(FormatError):
        find_stream_user(table, "three")


@SINKS
def test_a_complete_result_of_an_older_checkpoint_is_an_error(
    spark: Any, lake: Lake, feed: Feed, checkpoint: Path, run: Any
) -> None:
    table = make(lake, "fixed")
    how = {"output_mode": "complete"} if run is run_stream else {"mode": "complete"}
    copy = checkpoint.with_name("copy")
    feed.add(FILES[0])
    run(summed(feed.stream(spark)), table, checkpoint, **how)
    copy_checkpoint(checkpoint, copy)
    feed.add(FILES[1])
    run(summed(feed.stream(spark)), table, checkpoint, **how)
    copy_checkpoint(copy, checkpoint)
    feed.add(FILES[0])
    with pytest.raises(Exception, match="checkpoint is older than the commits of its query"):
        run(summed(feed.stream(spark, per_batch=9)), table, checkpoint, **how)


@SINKS
def test_a_table_that_is_created_again_under_a_query_is_an_error(
    spark: Any, lake: Lake, feed: Feed, checkpoint: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(lake, "fixed")
    for rows in FILES:
        feed.add(rows)
    replaced = []

    def replace_table() -> None:
        if not replaced:
            lake.drop_table("db.t")
            replaced.append(make(lake, "append-fixed"))

    frame = feed.stream(spark)
    if run is run_stream:
        logged = stream_batches.log_batch
        monkeypatch.setattr(stream_batches, "log_batch", lambda *given: (logged(*given), replace_table()))
        with pytest.raises(Exception, match="table was dropped and created again"):
            run(frame, table, checkpoint)
    else:
        writer = StreamTableWriter.of(table, frame.schema, overwrite=False, checkpoint=str(checkpoint))
        replace_table()
        with pytest.raises(CommitConflictError, match="table was dropped and created again"):
            writer.write(iter([]))
        with pytest.raises(CommitConflictError, match="table was dropped and created again"):
            writer.commit([], 0)
    assert replaced[0].latest_snapshot() is None


def test_several_queries_write_to_one_table(spark: Any, lake: Lake, tmp_path: Path) -> None:
    table = make(lake, "fixed", **ENGINES["sum"])
    feeds = [Feed(tmp_path / f"in{number}") for number in range(2)]
    queries = []
    for number, feed in enumerate(feeds):
        for rows in FILES:
            feed.add(rows)
        frame = feed.stream(spark)
        queries.append(tl.stream_to(frame, table, checkpoint=tmp_path / f"c{number}", trigger={"availableNow": True}))
    for query in queries:
        query.awaitTermination()
    assert [batches_of(table, query.id) for query in queries] == [[0, 1], [0, 1]]
    assert sum(row["v"] or 0 for row in content(table)) == 2 * sum(row[2] or 0 for rows in FILES for row in rows)


@pytest.mark.parametrize("kind", ["unaware", "fixed"])
def test_two_drivers_of_one_query_commit_a_batch_once(
    spark: Any, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    table = make(lake, kind, **(ENGINES["sum"] if kind == "fixed" else {}))
    cp = tmp_path / "checkpoint"
    cp.mkdir()
    (cp / "metadata").write_text(json.dumps({"id": "one-query"}))
    meet = threading.Barrier(2, timeout=60)
    commit = stream_batches.commit_frame

    def commit_together(*arguments: Any) -> Any:
        meet.wait()
        return commit(*arguments)

    monkeypatch.setattr(stream_batches, "commit_frame", commit_together)
    frame = spark.createDataFrame(FILES[0], SCHEMA)
    failed: list[BaseException] = []

    def drive() -> None:
        try:
            BatchSink(spark, table, SinkRequest(str(cp), {})).write_batch(frame, 0)
        except BaseException as error:  # noqa: BLE001 - shown below
            failed.append(error)

    drivers = [threading.Thread(target=drive) for _ in range(2)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    assert failed == []
    assert batches_of(table, "one-query") == [0]
    assert sum(row["v"] for row in content(table)) == 61
    assert table.check(deep=True).ok


# ------------------------------------------------------------------------------------------------ batches without rows


@SINKS
def test_batches_without_rows_commit_nothing(spark: Any, lake: Lake, feed: Feed, checkpoint: Path, run: Any) -> None:
    table = make(lake, "fixed", **ENGINES["sum"])
    feed.add([])
    feed.add(FILES[0])
    feed.add([])
    query = start(run, spark, feed, table, checkpoint)
    assert batches_of(table, query.id) == [1]
    expected = content(table)
    forget_commit(checkpoint, 2)
    start(run, spark, feed, table, checkpoint)
    assert batches_of(table, query.id) == [1]
    feed.add([(9, "a", 9, "new")])
    start(run, spark, feed, table, checkpoint)
    assert batches_of(table, query.id) == [1, 3]
    assert content(table) == sorted([*expected, {"id": 9, "p": "a", "v": 9, "s": "new"}], key=repr)


@pytest.mark.parametrize("key", ["commit.force-create-snapshot", "tag.automatic-creation"])
def test_an_option_asks_for_snapshots_of_batches_without_rows(
    spark: Any, lake: Lake, feed: Feed, checkpoint: Path, key: str
) -> None:
    table = make(lake, "unaware", **{key: "true" if key.startswith("commit") else "process-time"})
    feed.add([])
    query = run_stream(feed.stream(spark), table, checkpoint)
    assert batches_of(table, query.id) == [0]


# ------------------------------------------------------------------------------------------------ the table changes


@SINKS
def test_batches_after_a_change_of_the_table_have_its_new_columns(
    spark: Any, lake: Lake, feed: Feed, checkpoint: Path, run: Any
) -> None:
    table = make(lake, "fixed")
    feed.add(FILES[0])
    start(run, spark, feed, table, checkpoint)
    table.add_column("more", "INT")
    feed.add(FILES[1])
    start(run, spark, feed, table, checkpoint)
    latest = table.latest_snapshot()
    assert latest is not None
    assert latest.schema_id == 1
    assert {row["more"] for row in content(table)} == {None}
    assert len(content(table)) == 5


def test_a_change_between_two_batches_of_a_running_query(
    spark: Any, lake: Lake, feed: Feed, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(lake, "fixed")
    for rows in FILES:
        feed.add(rows)
    logged = stream_batches.log_batch

    def alter_after_the_first(name: str, batch_id: int, *rest: Any) -> None:
        logged(name, batch_id, *rest)
        if batch_id == 0:
            table.drop_column("s") if dropping else table.add_column("more", "INT")

    monkeypatch.setattr(stream_batches, "log_batch", alter_after_the_first)
    dropping = False
    run_stream(feed.stream(spark), table, checkpoint)
    assert [table.snapshot(number).schema_id for number in (1, 2)] == [0, 1]
    dropping = True
    with pytest.raises(Exception, match=r"(?s)column.*s\b"):
        run_stream(feed.stream(spark), table, checkpoint.with_name("other"))
    assert len(content(table)) == 5


def test_new_columns_of_a_stream_are_added_where_the_table_allows_it(
    spark: Any, lake: Lake, feed: Feed, checkpoint: Path
) -> None:
    table = make(lake, "fixed", **{"write.merge-schema": "true"})
    feed.add(FILES[0])
    run_stream(feed.stream(spark).selectExpr("*", "v * 2 twice"), table, checkpoint)
    assert {row["id"]: row["twice"] for row in content(table)} == {1: 2, 2: 40, 3: 60}


# ------------------------------------------------------------------------------------------------ watermarks


def test_watermarks_of_the_query_get_into_snapshots(spark: Any, lake: Lake, feed: Feed, checkpoint: Path) -> None:
    table = make(lake, "unaware")
    for number in range(3):
        feed.add([(number, "a", number, "x")])
    frame = feed.stream(spark).withColumn("time", spark_time()).withWatermark("time", "0 seconds").drop("time")
    run_stream(frame, table, checkpoint)
    marks = [table.snapshot(number).watermark for number in (1, 2, 3)]
    assert marks[0] is None
    assert marks[2] == 1_700_000_000_000
    run_stream(frame, table, checkpoint)
    assert table.check(deep=True).ok


def spark_time() -> Any:
    from pyspark.sql import functions as f

    return f.timestamp_seconds(f.col("id") + 1_700_000_000)


def test_a_full_compaction_comes_after_every_n_batches(spark: Any, lake: Lake, feed: Feed, checkpoint: Path) -> None:
    table = make(lake, "fixed", **{"full-compaction.delta-commits": "2"})
    for _ in range(2):
        for rows in FILES:
            feed.add(rows)
    run_stream(feed.stream(spark), table, checkpoint)
    latest = table.latest_snapshot()
    assert latest is not None
    found = [table.snapshot(number) for number in range(1, latest.id + 1)]
    compacted = [each.commit_identifier for each in found if each.commit_kind is CommitKind.COMPACT]
    assert compacted == [1, 3]


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (None, None),
        ({"eventTime": {}}, None),
        ({"eventTime": {"watermark": "1970-01-01T00:00:00.000Z"}}, None),
        ({"eventTime": {"watermark": "2023-11-14T22:13:20.123Z"}}, 1_700_000_000_123),
    ],
)
def test_the_watermark_of_a_report(report: Any, expected: int | None) -> None:
    assert watermark_ms(report) == expected


# ------------------------------------------------------------------------------------------------ requests


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, {}),
        ("availableNow", {"availableNow": True}),
        ("available-now", {"availableNow": True}),
        ("once", {"once": True}),
        ("5 seconds", {"processingTime": "5 seconds"}),
        ({"processingTime": "1 minute 30 seconds"}, {"processingTime": "1 minute 30 seconds"}),
        ({"availableNow": True}, {"availableNow": True}),
    ],
)
def test_triggers(given: object, expected: dict[str, Any]) -> None:
    assert parse_trigger(given) == expected


@pytest.mark.parametrize(
    "given",
    ["soon", "", {}, {"availableNow": False}, {"processingTime": 5}, {"once": True, "availableNow": True}, 5, {"x": 1}],
)
def test_triggers_that_are_none(given: object) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_trigger(given)
    assert "availableNow" in str(caught.value.hint)


def test_a_trigger_without_batches_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="micro-batches"):
        parse_trigger({"continuous": "1 second"})


def test_where_the_checkpoint_is() -> None:
    assert choose_checkpoint(Path("/a/b"), None, None) == "/a/b"
    assert choose_checkpoint("s3a://b/c/", "/default", "q") == "s3a://b/c"
    assert choose_checkpoint(None, "/default/", "q") == "/default/q"
    for given, default in ((None, None), ("", None), (None, "/default"), (5, None)):
        with pytest.raises(InvalidInputError):
            choose_checkpoint(given, default, None)


def test_requests_that_cannot_be_done_are_refused_before_the_query_starts(
    spark: Any, lake: Lake, feed: Feed, checkpoint: Path
) -> None:
    plain = make(lake, "unaware")
    feed.add(FILES[0])
    frame = feed.stream(spark)
    refused: list[tuple[Any, dict[str, Any], str]] = [
        (frame, {"output_mode": "update"}, "needs a table with a primary key"),
        (frame, {"output_mode": "upsert"}, "output mode is not known"),
        (frame, {"checkpoint": None}, "stream has no checkpoint"),
        (frame, {"trigger": "now and then"}, "trigger is not known"),
        (frame, {"row_kind": "missing"}, "row-kind column does not exist"),
        (frame.selectExpr("*", "1 other"), {}, "other"),
        (spark.createDataFrame(FILES[0], SCHEMA), {}, "frame is not a stream"),
    ]
    for given, how, message in refused:
        with pytest.raises(TidelakeError, match=message):
            tl.stream_to(given, plain, **{"checkpoint": checkpoint, **how})
    assert not checkpoint.exists()


def test_a_session_with_a_folder_of_checkpoints_needs_only_a_name(
    spark: Any, lake: Lake, feed: Feed, tmp_path: Path
) -> None:
    table = make(lake, "unaware")
    feed.add(FILES[0])
    key = "spark.sql.streaming.checkpointLocation"
    spark.conf.set(key, str(tmp_path / "all"))
    try:
        for _ in range(2):
            query = tl.stream_to(feed.stream(spark), table.location, trigger="once", query_name="orders")
            query.awaitTermination()
            assert query.name == "orders"
    finally:
        spark.conf.unset(key)
    assert (tmp_path / "all" / "orders" / "metadata").exists()
    assert batches_of(table, query.id) == [0]


# ------------------------------------------------------------------------------------------------ the data source


@pytest.mark.parametrize("kind", ["unaware", "append-fixed", "fixed", "postponed"])
def test_the_data_source_writes_what_stream_to_writes(
    spark: Any, lake: Lake, feed: Feed, checkpoint: Path, kind: str
) -> None:
    table, twin = make(lake, kind), make(lake, kind, "db.twin")
    for number, rows in enumerate([*FILES, FILES[0]]):
        twin.write(feed.add(rows), commit_user="job", identifier=number)
    query = run_source_sink(feed.stream(spark), table, checkpoint)
    assert batches_of(table, query.id) == [0, 1, 2]
    assert settled(table) == settled(twin)
    assert table.check(deep=True).ok


def test_the_data_source_replaces_the_table_by_a_complete_result(
    spark: Any, lake: Lake, feed: Feed, checkpoint: Path
) -> None:
    table = make(lake, "fixed")
    for rows in FILES:
        feed.add(rows)
    frame = summed(feed.stream(spark))
    query = run_source_sink(frame, table, checkpoint, "complete")
    forget_commit(checkpoint, 1)
    run_source_sink(frame, table, checkpoint, "complete")
    assert content(table) == sorted(sums(feed.files).to_pylist(), key=repr)
    assert batches_of(table, query.id) == [0, 1]


def test_the_data_source_names_stream_to_for_tables_that_need_a_shuffle(
    spark: Any, lake: Lake, feed: Feed, checkpoint: Path
) -> None:
    table = make(lake, "dynamic")
    feed.add(FILES[0])
    with pytest.raises(Exception, match=r"tl\.stream_to"):
        run_source_sink(feed.stream(spark), table, checkpoint)
    assert table.latest_snapshot() is None


def test_a_task_of_the_data_source_that_fails_removes_its_files(
    spark: Any, lake: Lake, feed: Feed, checkpoint: Path
) -> None:
    table = lake.create_table("db.t", {"id": "BIGINT", "v": "TINYINT"}, options={"bucket": "-1"})
    feed.add([(number, "a", number, "x") for number in range(40)])
    feed.add([(1, "a", 1_000, "x")])
    # One task: Spark kills the other tasks of a batch that failed, and never learns which files these had written.
    frame = feed.stream(spark, per_batch=2).selectExpr("id", "v").coalesce(1)
    with pytest.raises(Exception, match="does not fit"):
        run_source_sink(frame, table, checkpoint)
    assert table.latest_snapshot() is None
    assert list(Path(table.location).rglob("data-*")) == []


def test_the_data_source_removes_files_of_finished_tasks_if_another_failed(
    spark: Any, lake: Lake, feed: Feed, checkpoint: Path
) -> None:
    table = make(lake, "unaware")
    writer = StreamTableWriter.of(table, spark.createDataFrame([], SCHEMA).schema, overwrite=False, checkpoint=None)
    finished = replace(writer.write(iter(feed.add(FILES[0]).to_batches())), query_id="query")
    assert len(list(Path(table.location).rglob("data-*"))) == 1
    writer.abort([finished], 0)  # all tasks finished, so that a commit may have been tried
    assert len(list(Path(table.location).rglob("data-*"))) == 1
    writer.abort([finished, None], 0)
    assert list(Path(table.location).rglob("data-*")) == []


def test_a_batch_that_fails_after_another_was_committed_leaves_no_file(
    spark: Any, lake: Lake, feed: Feed, checkpoint: Path
) -> None:
    table = lake.create_table("db.t", {"id": "BIGINT", "v": "TINYINT"}, options={"bucket": "2", "bucket-key": "id"})
    feed.add([(number, "a", number, "x") for number in range(40)])
    feed.add([(number, "a", 1_000 if number == 7 else 1, "x") for number in range(40)])
    with pytest.raises(Exception, match="does not fit"):
        run_stream(feed.stream(spark).selectExpr("id", "v"), table, checkpoint)
    assert table.reload().count() == 40
    known = {Path(path).name for path in table.reload().inspect.files().column("file_path").to_pylist()}
    assert {path.name for path in Path(table.location).rglob("data-*")} == known


# ------------------------------------------------------------------------------------------------ the log


def test_each_batch_is_one_line_of_the_log(
    spark: Any, lake: Lake, feed: Feed, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = make(lake, "unaware")
    feed.add(FILES[0])
    feed.add([])
    caplog.set_level(logging.INFO, "tidelake.stream")
    run_stream(feed.stream(spark), table, checkpoint)
    forget_commit(checkpoint, 1)
    forget_commit(checkpoint, 0)
    lines = [each.getMessage() for each in caplog.records if each.name == "tidelake.stream"]
    assert lines[0].startswith("db.t: batch 0, 4 rows, snapshots 1, 1 attempts, 0 lost races, ")
    assert lines[1].startswith("db.t: batch 1 has no rows, nothing was committed")
    assert len(lines) == 2
