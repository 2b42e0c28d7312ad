"""Postponed buckets on Spark: staged rows, batches that decide on buckets, and the compaction of what waits."""

from __future__ import annotations

import datetime as dt
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidelake.catalog.lake import Lake
from tidelake.engines.spark.write import job as writing
from tidelake.errors import FormatError, InvalidInputError
from tidelake.ops.write import replay
from tidelake.spec.documents.snapshot import CommitKind

COLUMNS = {"p": "STRING NOT NULL", "id": "INT NOT NULL", "v": "STRING"}
FRAME = "p string, id int, v string"
BY_ROWS = {"postpone.target-row-num-per-bucket": "10"}


def create(lake: Lake, name: str = "t", **options: str) -> Any:
    given = {"bucket": "-2", **{key.replace("__", "."): value for key, value in options.items()}}
    return lake.create_table(f"db.{name}", COLUMNS, primary_key=["p", "id"], partition_by=["p"], options=given)


def shown(table: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())


def counts(table: Any) -> dict[str, set[int]]:
    """The numbers of buckets of each partition, by its folder."""
    found: dict[str, set[int]] = {}
    files = table.files()
    for path, total in zip(files["partition"].to_pylist(), files["total_buckets"].to_pylist(), strict=True):
        found.setdefault(str(path), set()).add(total)
    return found


def folders(table: Any) -> set[str]:
    """The folders of buckets that hold files."""
    return {path.parent.name for path in Path(table.location).rglob("data-*")}


def data_files(table: Any) -> set[str]:
    return {path.name for path in Path(table.location).rglob("data-*")}


def rows(letter: str, start: int, end: int, v: str) -> list[tuple[str, int, str]]:
    return [(letter, number, v) for number in range(start, end)]


def dicts(given: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    return [dict(zip(COLUMNS, row, strict=True)) for row in given]


# ------------------------------------------------------------------------------------------------ batches


def test_a_batch_decides_on_the_buckets_of_each_partition_and_later_ones_keep_them(spark: Any, lake: Lake) -> None:
    table, twin = create(lake, "t", **BY_ROWS), create(lake, "u", **BY_ROWS)
    first = [*rows("a", 0, 35, "1"), *rows("b", 0, 5, "1")]
    more = [*rows("b", 3, 40, "2"), *rows("c", 0, 15, "2")]
    for batch in (first, more):
        table.write(spark.createDataFrame(batch, FRAME))
        twin.write(dicts(batch))
        assert shown(table) == shown(twin)
        assert counts(table) == counts(twin)
        assert "bucket-postpone" not in folders(table)
    assert sorted(max(each) for each in counts(table).values()) == [1, 2, 4]
    assert table.check(deep=True, rows=True).ok
    assert table.latest_snapshot().commit_kind is CommitKind.APPEND


def test_a_number_that_is_given_needs_no_staging_and_partitions_may_differ(
    spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(lake, "t", **{"postpone.default-bucket-num": "3", "local-merge-buffer-size": "1 mb"})
    monkeypatch.setattr(writing, "_write_staged", None)
    table.write(spark.createDataFrame([*rows("a", 0, 20, "1"), *rows("b", 0, 20, "1")], FRAME))
    table.rescale(5, where="p = 'b'")
    table.write(spark.createDataFrame([*rows("a", 10, 30, "2"), *rows("b", 10, 30, "2")], FRAME))
    assert sorted(max(each) for each in counts(table).values()) == [3, 5]
    assert shown(table) == sorted(
        [*rows("a", 0, 10, "1"), *rows("a", 10, 30, "2"), *rows("b", 0, 10, "1"), *rows("b", 10, 30, "2")]
    )
    assert table.check(deep=True, rows=True).ok


def test_overwrites_decide_anew(spark: Any, lake: Lake) -> None:
    table = create(lake, **BY_ROWS)
    table.write(spark.createDataFrame([*rows("a", 0, 40, "1"), *rows("b", 0, 5, "1")], FRAME))
    table.write(spark.createDataFrame(rows("a", 0, 5, "2"), FRAME), mode="overwrite-dynamic")
    assert [max(each) for each in counts(table).values()] == [1, 1]
    assert shown(table) == [*rows("a", 0, 5, "2"), *rows("b", 0, 5, "1")]
    table.write(spark.createDataFrame(rows("b", 0, 15, "3"), FRAME), mode="overwrite")
    assert shown(table) == rows("b", 0, 15, "3")
    assert table.check(deep=True, rows=True).ok


def test_the_order_of_one_task_is_kept_through_staging(spark: Any, lake: Lake) -> None:
    table = create(lake, **BY_ROWS)
    versions = [("a", n % 3, f"{n:03}") for n in range(60)]
    table.write(spark.createDataFrame(versions, FRAME).coalesce(1))
    assert shown(table) == [("a", 0, "057"), ("a", 1, "058"), ("a", 2, "059")]


def test_a_partition_with_far_too_few_buckets_is_rescaled_first(spark: Any, lake: Lake) -> None:
    factor = {"postpone.batch-write-fixed-bucket.rescale-load-factor": "2", **BY_ROWS}
    for name, given in (("t", spark.createDataFrame), ("u", lambda batch, _: dicts(batch))):
        table = create(lake, name, **factor)
        table.write(given([*rows("a", 0, 5, "1"), *rows("b", 0, 5, "1")], FRAME))
        table.write(given([*rows("a", 0, 20, "2"), *rows("b", 0, 21, "2")], FRAME))  # 2 buckets would do, and 3
        assert sorted(max(each) for each in counts(table).values()) == [1, 4]
        kinds = [table.snapshot(n).commit_kind for n in range(1, table.latest_snapshot().id + 1)]
        assert kinds == [CommitKind.APPEND, CommitKind.OVERWRITE, CommitKind.APPEND]
        assert shown(table) == [*rows("a", 0, 20, "2"), *rows("b", 0, 21, "2")]
        assert table.check(deep=True, rows=True).ok


def test_what_fails_after_staging_leaves_nothing_and_a_dead_driver_leaves_orphans(
    spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(lake, **BY_ROWS)
    frame = spark.createDataFrame(rows("a", 0, 20, "1"), FRAME)
    with pytest.raises(InvalidInputError, match="must not be null"):
        table.write(spark.createDataFrame([("a", 1, ""), ("a", None, "")], FRAME))
    assert data_files(table) == set()

    def broken(*_: object, **__: object) -> None:
        raise FormatError("metadata is damaged")

    with monkeypatch.context() as patch:
        patch.setattr(writing.BucketCounts, "of", broken)
        with pytest.raises(FormatError):
            table.write(frame)
    assert data_files(table) == set()
    with monkeypatch.context() as patch:
        patch.setattr(writing, "remove_staged", lambda *_: None)
        table.write(frame)
    assert table.to_arrow().num_rows == 20
    assert "bucket-postpone" in folders(table)
    assert table.files().num_rows == 2
    import os

    for path in Path(table.location).rglob("*"):
        os.utime(path, (0, 0))  # orphans are looked for a day later
    assert all("bucket-postpone" in path for path in table.remove_orphans(plan_only=True).paths)
    table.remove_orphans()
    assert table.check(deep=True, rows=True).ok


# ------------------------------------------------------------------------------------------------ what waits


@pytest.mark.parametrize(
    ("engine", "full"),
    [
        ("deduplicate", True),
        ("deduplicate", False),
        ("partial-update", False),
        ("aggregation", True),
        ("first-row", False),
    ],
)
def test_staged_rows_get_their_buckets_on_spark_as_in_process(spark: Any, lake: Lake, engine: str, full: bool) -> None:
    options = {"merge-engine": engine, "fields.v.aggregate-function": "listagg", "postpone.default-bucket-num": "2"}
    if engine != "aggregation":
        del options["fields.v.aggregate-function"]
    table, twin = create(lake, "t", **options), create(lake, "u", **options)
    steps: list[tuple[int, int]] = []
    for turn in range(2):
        for number in range(2):
            batch = [*rows("a", number, number + 6, f"{turn}{number}"), *rows("bc"[turn], 0, 3, f"{turn}{number}")]
            frame, again = spark.createDataFrame(batch, FRAME).coalesce(1), dicts(batch)
            for each, data in ((table, frame), (twin, again)):
                each.write(data, commit_user="stream", identifier=turn * 2 + number)
        assert "bucket-postpone" in folders(table)
        before = table.latest_snapshot().id
        table.compact(full=full, on=spark, progress=lambda done, of: steps.append((done, of)))
        twin.compact(full=full)
        assert table.latest_snapshot().id == before + 1
        assert table.latest_snapshot().commit_kind is CommitKind.COMPACT
        assert steps[-1] == (2, 2)
        assert shown(table) == shown(twin)
        assert shown(table)
        assert counts(table) == counts(twin)
        assert min(table.files()["bucket"].to_pylist()) >= 0
    assert table.check(deep=True, rows=True).ok
    if full:
        assert set(table.files()["level"].to_pylist()) == {5}


def test_buckets_that_are_due_and_get_no_row_are_compacted_too(spark: Any, lake: Lake) -> None:
    table = create(lake, **{"write-only": "true", "postpone.default-bucket-num": "1"})
    for number in range(6):
        table.write(dicts(rows("quiet", 0, 5, str(number))))
    table.write(dicts(rows("busy", 0, 5, "new")), commit_user="stream", identifier=1)
    table.compact(on=spark)
    assert table.latest_snapshot().commit_kind is CommitKind.COMPACT
    assert table.files().num_rows == 2
    assert shown(table) == [*rows("busy", 0, 5, "new"), *rows("quiet", 0, 5, "5")]
    assert table.check(deep=True, rows=True).ok


def test_writes_are_staged_without_numbers_if_the_options_say_so(spark: Any, lake: Lake) -> None:
    table = create(lake, **{"postpone.batch-write-fixed-bucket": "false"})
    table.write(spark.createDataFrame(rows("a", 0, 9, "1"), FRAME).repartition(2))
    assert folders(table) == {"bucket-postpone"}
    assert table.count() == 0
    assert table.with_options({"postpone.merge-on-read": "true"}).count() == 9
    done = table.keep_compacted(max_rounds=2, on=spark, interval="1 ms")
    assert done.commits == 1
    assert shown(table) == rows("a", 0, 9, "1")
    assert table.write(spark.createDataFrame(rows("b", 0, 1, "2"), FRAME), commit_user="u", identifier=1).rows == 1
    assert table.write(spark.createDataFrame(rows("b", 0, 1, "2"), FRAME), commit_user="u", identifier=1).repeated


def test_a_compaction_on_spark_keeps_what_spark_has_no_type_for(spark: Any, lake: Lake) -> None:
    columns = {"id": "INT", "at": "TIMESTAMP(9)", "time": "TIME(3)"}
    table = lake.create_table("db.t", columns, primary_key=["id"], options={"bucket": "-2"})
    fine = pa.array([1_700_000_000_123_456_789], pa.timestamp("ns"))
    batch = pa.table({"id": [1], "at": fine, "time": pa.array([dt.time(1, 2, 3, 4000)], pa.time32("ms"))})
    table.write(batch, commit_user="stream", identifier=1)
    waiting = table.with_options({"postpone.merge-on-read": "true"}).to_arrow()
    table.compact(on=spark)
    assert table.to_arrow().equals(waiting)
    assert table.to_arrow()["at"].cast(pa.int64()).to_pylist() == [1_700_000_000_123_456_789]


def test_a_staged_file_that_is_gone_is_told_and_nothing_is_left_behind(spark: Any, lake: Lake) -> None:
    table = create(lake)
    table.write(
        spark.createDataFrame([*rows("a", 0, 9, "1"), *rows("b", 0, 9, "1")], FRAME), commit_user="u", identifier=1
    )
    lost = min(Path(table.location).rglob("data-*"))
    data = lost.read_bytes()
    lost.unlink()
    before = table.latest_snapshot()
    with pytest.raises(FormatError):
        table.compact(on=spark)
    assert table.latest_snapshot() == before
    assert folders(table) == {"bucket-postpone"}
    lost.write_bytes(data)
    table.compact(on=spark)
    assert len(shown(table)) == 18


def test_a_compaction_on_spark_that_is_overtaken_is_planned_again(
    spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(lake)
    table.write(dicts(rows("a", 0, 3, "1")), commit_user="u", identifier=1)
    known, plans = replay._replay_rows, []

    def overtaken(*args: Any, **more: Any) -> Any:
        messages = known(*args, **more)
        plans.append(len(messages))
        if len(plans) == 1:
            lake.table("db.t").write(dicts([("a", 1, "batch"), ("a", 9, "batch")]))
        return messages

    monkeypatch.setattr(replay, "_replay_rows", overtaken)
    table.compact(on=spark)
    assert len(plans) == 2
    assert shown(table) == [*rows("a", 0, 3, "1"), ("a", 9, "batch")]  # what waits is newer
    staged = data_files(table) - set(table.files()["file_name"].to_pylist())
    assert [name.partition("-s-")[0] for name in staged] == ["data--u-u"]  # what the first try wrote is gone
    assert table.check(deep=True, rows=True).ok


def test_the_data_source_stages_rows(spark: Any, lake: Lake) -> None:
    table = create(lake)
    frame = spark.createDataFrame(rows("a", 0, 9, "1"), FRAME)
    frame.repartition(3).write.format("tidelake").mode("append").save(table.location)
    assert folders(table) == {"bucket-postpone"}
    users = {name.split("-s-")[0] for name in data_files(table)}
    assert users == {f"data--u-{table.latest_snapshot().commit_user}"}
    table.compact(on=spark)
    assert shown(table) == rows("a", 0, 9, "1")
    frame.filter("id < 3").write.format("tidelake").mode("overwrite").save(table.location)
    assert table.count() == 0
    table.compact()
    assert shown(table) == rows("a", 0, 3, "1")
    assert table.check(deep=True, rows=True).ok


def test_what_crosses_to_tasks_pickles(spark: Any, lake: Lake) -> None:
    table = create(lake, **BY_ROWS)
    job = writing.WriteJob.of(table, spark.range(1), overwrite=False, row_kind=None, identifier=None, user="u")
    assert job.sizes_buckets
    assert pickle.loads(pickle.dumps(job)) == job
