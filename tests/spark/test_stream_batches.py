"""The reader of streams, driven as Spark drives it but without a session: each batch, restart and error in a moment."""

from __future__ import annotations

import json
import logging
import warnings
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadLimit

from kit.stream_queries import READ_ALL, StreamQuery, all_rows, fold
from tidelake.catalog.lake import Lake
from tidelake.engines.spark.datasource.source import SourceOptions
from tidelake.engines.spark.stream.source import TableStream
from tidelake.errors import FormatError, InvalidInputError, NotFoundError, UnsupportedError
from tidelake.ops.scan import follow, stream
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.store.table_store import TableStore
from tidelake.table import Table


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(row["id"] for row in rows)


def append_table(lake: Lake, **options: str) -> Table:
    return lake.create_table(
        "db.log",
        {"id": "INT NOT NULL", "dt": "STRING", "v": "STRING"},
        partition_by=["dt"],
        options={key.replace("_", "-"): value for key, value in options.items()},
    )


def keyed_table(lake: Lake, **options: str) -> Table:
    given = {"bucket": "2", **{key.replace("_", "-"): value for key, value in options.items()}}
    return lake.create_table("db.kv", {"id": "INT NOT NULL", "v": "STRING"}, primary_key=["id"], options=given)


def add(table: Table, *numbers: int, dt: str = "a", v: str = "x") -> None:
    table.write([{"id": each, "dt": dt, "v": v} for each in numbers])


def put(table: Table, *numbers: int, v: str = "x", row_kind: str | None = None) -> None:
    rows = [{"id": each, "v": v} for each in numbers]
    table.write([{**row, "rowkind": row_kind} for row in rows] if row_kind else rows)


# ------------------------------------------------------------------------------------------------ where it begins


@pytest.fixture
def log(lake: Lake) -> Table:
    """An append table with the snapshots 1, 2 and 3, each of which adds a row with its number."""
    table = append_table(lake)
    for number in (1, 2, 3):
        add(table, number)
    return table


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({}, [1, 2, 3]),
        ({"scan_mode": "latest-full"}, [1, 2, 3]),
        ({"scan_mode": "full"}, [1, 2, 3]),
        ({"scan_mode": "latest"}, []),
        ({"scan_mode": "compacted-full"}, [1, 2, 3]),
        ({"scan_mode": "from-snapshot", "scan_snapshot__id": 2}, [2, 3]),
        ({"scan_snapshot__id": 3}, [3]),
        ({"scan_mode": "from-snapshot-full", "scan_snapshot__id": 2}, [1, 2, 3]),
        ({"scan_timestamp__millis": "time of 2"}, [2, 3]),
        ({"scan_mode": "from-timestamp", "scan_timestamp__millis": 1}, [1, 2, 3]),
        ({"scan_file__creation__time__millis": 1}, [1, 2, 3]),
        ({"scan_creation__time__millis": "time of 2"}, [2, 3]),
    ],
)
def test_a_stream_begins_where_its_scan_mode_says_and_goes_on_with_changes(
    log: Table, options: dict[str, object], first: list[int]
) -> None:
    second = log.snapshot(2).time_ms
    query = StreamQuery(log, **{key: second if value == "time of 2" else value for key, value in options.items()})
    assert ids(all_rows(query.run())) == first
    add(log, 4)
    assert ids(all_rows(query.run())) == [4]


@pytest.mark.parametrize("options", [{"scan_mode": "latest-delta"}, {"incremental__between": "1,2"}])
def test_a_batch_scan_mode_is_refused(log: Table, options: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError, match="a stream cannot begin there"):
        StreamQuery(log, **options).run()


@pytest.mark.parametrize("mode", ["latest", "latest-full", "compacted-full"])
def test_the_stream_of_an_empty_table_returns_all_that_is_committed_later(lake: Lake, mode: str) -> None:
    table = append_table(lake)
    query = StreamQuery(table, scan_mode=mode)
    assert all_rows(query.run()) == []
    add(table, 1)
    add(table, 2)
    assert ids(all_rows(query.run())) == [1, 2]
    assert all_rows(query.run()) == []


def test_an_overwrite_of_an_empty_table_is_part_of_its_first_state(lake: Lake) -> None:
    table = append_table(lake)
    query = StreamQuery(table)
    query.run()
    table.write([{"id": 1, "dt": "a", "v": "x"}], mode="overwrite")
    assert ids(all_rows(query.run())) == [1]


def test_a_first_batch_that_is_repeated_begins_where_it_began_before(log: Table) -> None:
    query = StreamQuery(log, scan_mode="latest")
    assert query.run(crash=True) == [[]]
    add(log, 4)
    assert ids(all_rows(query.run())) == [4]


def test_a_first_batch_with_a_state_is_repeated_with_that_state(log: Table) -> None:
    query = StreamQuery(log)
    assert ids(all_rows(query.run(crash=True))) == [1, 2, 3]
    add(log, 4)
    repeated, following = query.run()
    assert (ids(repeated), ids(following)) == ([1, 2, 3], [4])


# ------------------------------------------------------------------------------------------------ changes


@pytest.mark.parametrize("producer", ["none", "input", "lookup", "full-compaction"])
def test_the_changelog_folds_to_the_table_at_every_restart(lake: Lake, producer: str) -> None:
    table = keyed_table(lake, changelog_producer=producer)
    query = StreamQuery(table, read_changelog=True, maxFilesPerTrigger=1)
    seen: list[dict[str, Any]] = []
    put(table, *range(8))
    rounds = (
        lambda: None,
        lambda: put(table, 1, 2, 3, v="y"),
        lambda: put(table, 2, v="y", row_kind="-D"),
        lambda: put(table, 2, 9, v="z"),
    )
    for change in rounds:
        change()
        if producer != "none":
            table.compact(full=True)
        seen += all_rows(query.run())
        if producer in ("lookup", "full-compaction"):
            assert fold(seen, "id") == sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])
    if producer in ("none", "input"):  # kinds as they were written, so a deletion has only its key in common
        assert {(row["rowkind"], row["id"]) for row in seen} >= {("+I", 9), ("-D", 2), ("+I", 2)}
        assert len(seen) == 8 + 3 + 1 + 2


def test_versions_of_a_key_come_in_their_order(lake: Lake) -> None:
    table = keyed_table(lake)
    query = StreamQuery(table, scan_mode="latest", read_changelog=True)
    query.run()
    for number in range(6):
        put(table, 1, 2, 3, v=str(number))
    (rows,) = [batch for batch in query.run() if batch]
    for key in (1, 2, 3):
        assert [row["v"] for row in rows if row["id"] == key] == list("012345")


def test_without_kinds_a_keyed_stream_returns_every_row_and_warns_once(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    table = keyed_table(lake)
    query = StreamQuery(table, scan_mode="latest")
    query.run()
    put(table, 1)
    put(table, 1, row_kind="-D")
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        rows = all_rows(query.run())
    assert rows == [{"id": 1, "v": "x"}, {"id": 1, "v": "x"}]
    assert [("read.changelog" in each.message) for each in caplog.records] == [True]


def test_with_kinds_nothing_is_warned_of(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    table = keyed_table(lake)
    with caplog.at_level(logging.WARNING):
        StreamQuery(table, read_changelog=True).run()
    assert not caplog.records


@pytest.mark.parametrize("producer", ["none", "input", "lookup"])
@pytest.mark.parametrize("moves", ["ba", "ab", "aba", "bab"])
@pytest.mark.parametrize("together", [True, False])
def test_a_key_that_moves_to_another_partition_is_added_before_it_is_deleted(
    lake: Lake, producer: str, moves: str, together: bool
) -> None:
    table = lake.create_table(
        "db.moves",
        {"id": "INT NOT NULL", "p": "STRING NOT NULL", "v": "INT"},
        primary_key=["id"],
        partition_by=["p"],
        options={"bucket": "-1", "changelog-producer": producer},
    )
    query = StreamQuery(table, scan_mode="latest", read_changelog=True)
    query.run()
    seen = []
    for number, partition in enumerate(moves):
        table.write([{"id": 1, "p": partition, "v": number}, {"id": 10 + number, "p": "c", "v": number}])
        if producer == "lookup":
            table.compact(full=True)
        if not together:
            seen += all_rows(query.run())
    seen += all_rows(query.run())
    assert fold(seen, "id") == sorted(table.reload().to_arrow().to_pylist(), key=lambda row: row["id"])


def test_an_overwrite_of_a_table_whose_keys_move_is_read_as_deletions_first(lake: Lake) -> None:
    table = lake.create_table(
        "db.moves",
        {"id": "INT NOT NULL", "p": "STRING NOT NULL", "v": "INT"},
        primary_key=["id"],
        partition_by=["p"],
        options={"bucket": "-1", "dynamic-partition-overwrite": "false"},
    )
    table.write([{"id": 1, "p": "b", "v": 0}, {"id": 2, "p": "a", "v": 0}])
    query = StreamQuery(table, read_changelog=True, streaming__read__overwrite=True)
    seen = all_rows(query.run())
    table.write([{"id": 1, "p": "a", "v": 1}, {"id": 2, "p": "b", "v": 1}], mode="overwrite")
    seen += all_rows(query.run())
    assert [row["rowkind"] for row in seen] == ["+I", "+I", "-D", "-D", "+I", "+I"]
    assert fold(seen, "id") == [{"id": 1, "p": "a", "v": 1}, {"id": 2, "p": "b", "v": 1}]


def test_an_append_table_has_insertions_only(log: Table) -> None:
    rows = all_rows(StreamQuery(log, read_changelog=True).run())
    assert [row["rowkind"] for row in rows] == ["+I"] * 3


def test_overwrites_of_an_append_table_are_read_if_that_is_asked_for(log: Table) -> None:
    silent = StreamQuery(log, scan_mode="latest")
    asked = StreamQuery(log, scan_mode="latest", streaming__read__append__overwrite=True)
    silent.run()
    asked.run()
    log.write([{"id": 7, "dt": "a", "v": "x"}], mode="overwrite")
    add(log, 8)
    assert ids(all_rows(silent.run())) == [8]
    assert ids(all_rows(asked.run())) == [7, 8]


def test_an_overwrite_of_a_keyed_table_is_read_as_deletions_and_insertions(lake: Lake) -> None:
    table = keyed_table(lake)
    put(table, 1, 2)
    query = StreamQuery(table, read_changelog=True, streaming__read__overwrite=True)
    seen = all_rows(query.run())
    table.write([{"id": 2, "v": "new"}, {"id": 3, "v": "new"}], mode="overwrite")
    seen += all_rows(query.run())
    assert fold(seen, "id") == [{"id": 2, "v": "new"}, {"id": 3, "v": "new"}]
    assert sum(row["rowkind"] == "-D" for row in seen) == 2


def test_columns_and_a_condition_are_options(lake: Lake) -> None:
    table = append_table(lake)
    add(table, 1, 2, dt="a")
    add(table, 3, 4, dt="b")
    query = StreamQuery(table, columns="id", where="dt = 'b' and id > 3")
    assert all_rows(query.run()) == [{"id": 4}]
    add(table, 5, dt="b")
    add(table, 6, dt="a")
    assert all_rows(query.run()) == [{"id": 5}]


# ------------------------------------------------------------------------------------------------ limits and restarts


def spread(lake: Lake) -> Table:
    """One snapshot with four files, each a split."""
    table = append_table(lake)
    table.write([{"id": number, "dt": str(number), "v": "x"} for number in range(4)])
    return table


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"maxFilesPerTrigger": 1}, [1, 1, 1, 1]),
        ({"read_stream_maxFilesPerTrigger": 3}, [3, 1]),
        ({"maxRowsPerTrigger": 2}, [2, 2]),
        ({"maxBytesPerTrigger": 1}, [1, 1, 1, 1]),
        ({"maxFilesPerTrigger": 3, "maxRowsPerTrigger": 2}, [2, 2]),
        ({}, [4]),
    ],
)
def test_limits_divide_a_snapshot(lake: Lake, options: dict[str, object], sizes: list[int]) -> None:
    batches = StreamQuery(spread(lake), **options).run()
    assert [len(batch) for batch in batches] == sizes
    assert ids(all_rows(batches)) == [0, 1, 2, 3]


def test_a_limit_does_not_count_where_spark_asks_for_everything(lake: Lake) -> None:
    reader = StreamQuery(spread(lake), maxFilesPerTrigger=1).reader()
    start = reader.initialOffset()
    end = reader.latestOffset(start, READ_ALL)
    assert (end["snapshotId"], end["index"]) == (2, -1)


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_a_restart_inside_a_snapshot_reads_each_row_once(lake: Lake, stop: int) -> None:
    table = spread(lake)
    query = StreamQuery(table, maxFilesPerTrigger=1)
    before = query.run(most=stop)
    lost = query.run(crash=True)  # the driver dies with the batch, which is repeated
    table.write([{"id": 9, "dt": "0", "v": "x"}])
    table.compact(full=True)
    after = query.run()
    assert lost[0] == after[0]
    assert ids(all_rows([*before, *after])) == [0, 1, 2, 3, 9]


def test_a_restart_inside_the_first_state_does_not_see_later_commits_there(lake: Lake) -> None:
    table = keyed_table(lake, bucket="4")
    put(table, *range(20))
    query = StreamQuery(table, read_changelog=True, maxFilesPerTrigger=1)
    seen = all_rows(query.run(most=1))
    put(table, *range(20), v="later")
    seen += all_rows(query.run())
    assert fold(seen, "id") == [{"id": number, "v": "later"} for number in range(20)]
    assert len(seen) == 40


def test_options_that_pack_other_splits_are_refused_inside_a_snapshot(lake: Lake) -> None:
    table = spread(lake)
    query = StreamQuery(table, maxFilesPerTrigger=1)
    query.run(most=2)
    query.change(where="dt <> '0'")
    with pytest.raises(InvalidInputError, match="other splits") as caught:
        query.run()
    assert caught.value.code == "stream-splits-changed"
    assert "where" in (caught.value.hint or "")


def test_a_batch_waits_for_rows_but_not_for_ever(log: Table) -> None:
    query = StreamQuery(log, scan_mode="latest", minRowsPerTrigger=3, maxTriggerDelayMs=3_600_000)
    assert all_rows(query.run(now=False)) == []
    reader = query.reader()
    start = json.loads(query.offsets[-1])
    add(log, 4)
    limit = reader.getDefaultReadLimit()
    assert reader.latestOffset(start, limit) == start
    add(log, 5, 6)
    assert reader.latestOffset(start, limit)["snapshotId"] == 6
    query.change(maxTriggerDelayMs=1)
    late = query.reader()
    late._open()._last_rows -= 1  # a second ago
    assert late.latestOffset(start, late.getDefaultReadLimit())["snapshotId"] == 6


def test_the_first_state_is_read_at_once_although_it_has_fewer_rows_than_a_batch_waits_for(lake: Lake) -> None:
    table = spread(lake)
    query = StreamQuery(table, minRowsPerTrigger=6, maxTriggerDelayMs=3_600_000)
    assert ids(all_rows(query.run(now=False))) == [0, 1, 2, 3]
    add(table, 4)
    assert query.run(now=False) == []
    add(table, *range(5, 10))
    assert ids(all_rows(query.run(now=False))) == [4, 5, 6, 7, 8, 9]


def test_a_query_that_ends_does_not_wait_for_rows(log: Table) -> None:
    query = StreamQuery(log, minRowsPerTrigger=100, maxTriggerDelayMs=3_600_000)
    assert ids(all_rows(query.run(now=True))) == [1, 2, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"minRowsPerTrigger": 5}, "belong together"),
        ({"maxTriggerDelayMs": 5}, "belong together"),
        ({"maxRowsPerTrigger": 0}, "positive integer"),
        ({"read_stream_maxRowsPerTrigger": "many"}, "positive integer"),
        ({"read_stream_maxRowsPerTrigger": 1, "maxRowsPerTrigger": 1}, "given twice"),
    ],
)
def test_wrong_limits_are_refused(log: Table, options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        StreamQuery(log, **options).run()


def test_a_query_that_ends_reads_up_to_the_snapshot_that_was_the_newest(log: Table) -> None:
    query = StreamQuery(log, scan_snapshot__id=1)
    reader = query.reader()
    reader.prepareForTriggerAvailableNow()
    add(log, 4)
    end = reader.latestOffset(reader.initialOffset(), READ_ALL)
    assert end["snapshotId"] == 4
    assert reader.latestOffset(end, READ_ALL) == end


def test_snapshots_without_changes_are_passed_with_the_next_rows_or_after_some(lake: Lake) -> None:
    table = keyed_table(lake)
    query = StreamQuery(table, scan_mode="latest")
    query.run(now=False)
    put(table, 1)
    table.compact(full=True)
    assert [len(batch) for batch in query.run(now=False)] == [1]
    assert json.loads(query.offsets[-1])["snapshotId"] == 3
    for number in range(3):
        table.write([{"id": number, "v": "o"}], mode="overwrite")
    assert query.run(now=False) == []  # no batch just for that
    for number in range(6):
        table.write([{"id": number, "v": "o"}], mode="overwrite")
    assert query.run(now=False) == [[]]
    assert json.loads(query.offsets[-1])["snapshotId"] == 12


# ------------------------------------------------------------------------------------------------ what goes wrong


def test_an_expired_snapshot_is_reported_with_what_to_do(log: Table) -> None:
    query = StreamQuery(log, scan_snapshot__id=1, maxFilesPerTrigger=1)
    query.run(most=1)
    for number in (4, 5, 6):
        add(log, number)
    log.expire_snapshots(retain_max=1, retain_min=1)
    with pytest.raises(NotFoundError, match="expired before it was read") as caught:
        query.run()
    assert caught.value.code == "snapshot-expired"
    assert "checkpoint" in (caught.value.hint or "")


def test_an_expired_first_state_is_reported(lake: Lake) -> None:
    table = spread(lake)
    query = StreamQuery(table, maxFilesPerTrigger=1)
    query.run(most=1)
    for number in (5, 6):
        add(table, number)
    table.expire_snapshots(retain_max=1, retain_min=1)
    with pytest.raises(NotFoundError, match="whose state the stream begins with expired"):
        query.run()


def test_a_rollback_of_what_was_read_is_reported(log: Table) -> None:
    query = StreamQuery(log)
    query.run()
    log.rollback_to(snapshot=1)
    for number in (7, 8, 9):
        add(log, number)
    with pytest.raises(NotFoundError, match="rolled back") as caught:
        query.run()
    assert caught.value.code == "stream-out-of-range"


def take(reader: TableStream, start: dict[str, Any], limit: ReadLimit) -> tuple[dict[str, Any], list[int]]:
    """One batch of a query that runs on: its end, and the ids of its rows."""
    end = reader.latestOffset(start, limit)
    return end, [
        row["id"] for task in reader.partitions(start, end) for batch in reader.read(task) for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_rows_are_lost_if_the_table_is_rolled_back_and_written_while_a_query_catches_up(
    log: Table, batches: int
) -> None:
    for number in (4, 5):
        add(log, number)
    reader = StreamQuery(log, scan_snapshot__id=1, maxFilesPerTrigger=1).reader()
    at, limit = reader.initialOffset(), reader.getDefaultReadLimit()
    for number in range(1, batches + 1):
        at, found = take(reader, at, limit)
        assert found == [number]
    log.rollback_to(snapshot=batches)
    for number in range(batches + 101, 107):
        add(log, number)
    with pytest.raises(NotFoundError, match="rolled back") as caught:
        take(reader, at, limit)
    assert caught.value.code == "stream-out-of-range"


def test_a_rollback_to_what_was_not_looked_at_yet_does_not_stop_a_query(log: Table) -> None:
    reader = StreamQuery(log, scan_snapshot__id=1, maxFilesPerTrigger=1).reader()
    at, limit = reader.initialOffset(), reader.getDefaultReadLimit()
    at, found = take(reader, at, limit)  # has looked at snapshot 2, not at 3
    log.rollback_to(snapshot=2)
    add(log, 103)
    for expected in ([2], [103], []):
        at, found = take(reader, at, limit)
        assert found == expected


def test_kept_plans_of_snapshots_that_were_rolled_back_are_not_read(lake: Lake) -> None:
    table = append_table(lake)
    add(table, 1)
    table.write([{"id": number, "dt": str(number), "v": "x"} for number in range(4)])
    reader = StreamQuery(table, scan_snapshot__id=1, maxFilesPerTrigger=1).reader()
    at, limit = reader.initialOffset(), reader.getDefaultReadLimit()
    at, _ = take(reader, at, limit)
    at, found = take(reader, at, limit)
    assert found == [0]
    table.rollback_to(snapshot=1)
    with pytest.raises(NotFoundError, match="rolled back"):
        reader.latestOffset(at, limit)


def test_a_rollback_after_a_restart_and_before_the_next_snapshot_is_reported(log: Table) -> None:
    query = StreamQuery(log)
    query.run()
    reader, at = query.reader(), json.loads(query.offsets[-1])
    reader.initialOffset()
    assert reader.latestOffset(at, READ_ALL) == at
    log.rollback_to(snapshot=2)
    add(log, 103)
    add(log, 104)
    with pytest.raises(NotFoundError, match="rolled back"):
        reader.latestOffset(at, READ_ALL)


def test_catching_up_reads_each_snapshot_twice_and_planning_a_batch_again_one(
    log: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4, 11):
        add(log, number)
    query = StreamQuery(log, scan_snapshot__id=1)
    reader = query.reader()
    start = reader.initialOffset()
    planner = reader._open()._planner
    looked_for: list[int] = []
    real = follow.find_change

    def count(store: TableStore, snapshot_id: int) -> Snapshot | None:
        looked_for.append(snapshot_id)
        return real(store, snapshot_id)

    monkeypatch.setattr(follow, "find_change", count)
    monkeypatch.setattr(stream, "find_change", count)
    end = reader.latestOffset(start, READ_ALL)
    assert sorted(looked_for) == sorted([*range(1, 12), *range(1, 10)])  # each, and the one before it again
    looked_for.clear()
    assert len(reader.partitions(start, end)) == 1
    assert looked_for == [10]
    assert planner._unchecked is None


@pytest.mark.parametrize("maximum", [2, 100])
def test_a_planned_batch_is_empty_after_a_restart_with_a_delay(lake: Lake, maximum: int) -> None:
    table = spread(lake)
    query = StreamQuery(table, scan_snapshot__id=1, maxFilesPerTrigger=maximum)
    (lost,) = query.run(crash=True)
    query.change(streaming_read_snapshot_delay="1 h")
    batches = query.run()
    assert batches[0] == lost
    assert ids(all_rows(batches)) == [0, 1, 2, 3]  # a snapshot that was begun is read to its end
    add(table, 4)
    assert query.run() == []


@pytest.mark.parametrize("maximum", [2, 100])
def test_a_planned_batch_is_empty_after_a_restart_with_a_last_watermark(lake: Lake, maximum: int) -> None:
    table = append_table(lake)
    writer = table.new_write("flink")
    writer.write([{"id": number, "dt": str(number), "v": "x"} for number in range(4)])
    table.new_commit("flink").commit(writer.prepare_commit(), watermark=5)
    query = StreamQuery(table, scan_snapshot__id=1, maxFilesPerTrigger=maximum)
    (lost,) = query.run(crash=True)
    query.change(scan_bounded_watermark=1)
    batches = query.run()
    assert batches[0] == lost
    assert ids(all_rows(batches)) == [0, 1, 2, 3]
    add(table, 4)
    assert query.run() == []


@pytest.mark.parametrize("maximum", [2, 100])
@pytest.mark.parametrize("rewritten", [False, True])
def test_a_planned_batch_is_empty_after_a_rollback_of_its_snapshot(lake: Lake, maximum: int, rewritten: bool) -> None:
    table = spread(lake)
    add(table, 10)
    table.write([{"id": number, "dt": str(number), "v": "y"} for number in range(4)])
    query = StreamQuery(table, scan_snapshot__id=3, maxFilesPerTrigger=maximum)
    query.run(crash=True)
    table.rollback_to(snapshot=2)
    if rewritten:
        table.write([{"id": number, "dt": str(number), "v": "z"} for number in range(4)])
    with pytest.raises(NotFoundError, match="rolled back") as caught:
        query.run()
    assert caught.value.code == "stream-out-of-range"


def test_a_table_that_is_created_again_is_reported(lake: Lake, log: Table) -> None:
    query = StreamQuery(log)
    query.run()
    lake.drop_table("db.log")
    again = append_table(lake)
    add(again, 1)
    with pytest.raises(NotFoundError, match="created again"):
        query.run()


def test_altered_columns_stop_the_stream_after_the_rows_before_them(log: Table) -> None:
    query = StreamQuery(log)
    query.run()
    reader = query.reader()
    reader.initialOffset()
    add(log, 4)
    newer = log.alter(add={"more": "INT"})
    newer.write([{"id": 5, "dt": "a", "v": "x", "more": 1}])
    start = json.loads(query.offsets[-1])
    between = reader.latestOffset(start, READ_ALL)
    assert between["snapshotId"] == 5
    with pytest.raises(InvalidInputError, match="altered while it was streamed") as caught:
        reader.latestOffset(between, READ_ALL)
    assert caught.value.code == "stream-schema-changed"
    assert sorted(all_rows(query.run()), key=lambda row: row["id"]) == [
        {"id": 4, "dt": "a", "v": "x", "more": None},
        {"id": 5, "dt": "a", "v": "x", "more": 1},
    ]


def test_a_new_column_does_not_concern_a_stream_of_chosen_columns(log: Table) -> None:
    query = StreamQuery(log, columns="id,v")
    query.run()
    reader = query.reader()
    reader.initialOffset()
    newer = log.alter(add={"more": "INT"})
    newer.write([{"id": 5, "dt": "a", "v": "x", "more": 1}])
    end = reader.latestOffset(json.loads(query.offsets[-1]), READ_ALL)
    assert end["snapshotId"] == 5
    newer.alter(rename={"v": "w"}).write([{"id": 6, "dt": "a", "w": "x", "more": 1}])
    with pytest.raises(InvalidInputError, match="altered while it was streamed"):
        reader.latestOffset(end, READ_ALL)


def test_rows_are_lost_where_the_column_of_the_condition_is_dropped(log: Table) -> None:
    query = StreamQuery(log, columns="id", where="v = 'x'")
    query.run()
    reader = query.reader()
    reader.initialOffset()
    start = json.loads(query.offsets[-1])
    add(log, 4)
    dropped = log.alter(drop=["v"])
    dropped.write([{"id": 5, "dt": "a"}])
    between = reader.latestOffset(start, READ_ALL)
    assert between["snapshotId"] == 5
    with pytest.raises(InvalidInputError, match="altered while it was streamed") as caught:
        reader.latestOffset(between, READ_ALL)
    assert caught.value.code == "stream-schema-changed"
    assert caught.value.facts["columns"] == "v"


def test_rows_are_lost_where_the_column_of_the_condition_is_dropped_and_added_again(log: Table) -> None:
    query = StreamQuery(log, columns="id", where="v = 'x'")
    query.run()
    reader = query.reader()
    reader.initialOffset()
    log.alter(drop=["v"]).alter(add={"v": "STRING"}).write([{"id": 6, "dt": "a", "v": "x"}])
    with pytest.raises(InvalidInputError, match="altered while it was streamed"):
        reader.latestOffset(json.loads(query.offsets[-1]), READ_ALL)


def test_the_hint_for_new_columns_names_the_option_that_keeps_old_ones(log: Table) -> None:
    reader = StreamQuery(log, scan_snapshot__id=1).reader()
    at = reader.initialOffset()
    newer = log.alter(add={"more": "INT"})
    at = reader.latestOffset(at, READ_ALL)
    newer.write([{"id": 5, "dt": "a", "v": "x", "more": 1}])
    with pytest.raises(InvalidInputError, match="altered while it was streamed") as caught:
        reader.latestOffset(at, READ_ALL)
    assert "without scan.snapshot-id" in (caught.value.hint or "")


def test_the_name_of_a_query_is_not_an_option_of_the_table(log: Table) -> None:
    options = SourceOptions.parse({"path": log.location, "queryname": "q", "checkpointlocation": "c"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        options.open()


def test_a_change_of_options_alone_does_not_stop_a_stream(log: Table) -> None:
    query = StreamQuery(log)
    query.run()
    reader = query.reader()
    reader.initialOffset()
    add(log.alter(set_options={"write-buffer-size": "64 mb"}), 4)
    assert reader.latestOffset(json.loads(query.offsets[-1]), READ_ALL)["snapshotId"] == 5


def test_offsets_of_a_newer_release_are_refused(log: Table) -> None:
    query = StreamQuery(log)
    query.run()
    query.offsets[-1] = json.dumps({**json.loads(query.offsets[-1]), "version": 2})
    with pytest.raises(UnsupportedError, match="newer version"):
        query.run()


def test_offsets_of_another_source_are_refused(log: Table) -> None:
    query = StreamQuery(log)
    query.offsets, query.done = ['{"logOffset": 3}'], 1
    with pytest.raises(FormatError, match="not one of a table"):
        query.run()


def test_a_missing_table_is_reported_at_the_first_use(log: Table) -> None:
    struct = StreamQuery(log).reader()._struct
    query = StreamQuery(log)
    query.options["path"] = f"{log.location}-missing"
    reader = query.reader(struct)
    with pytest.raises(NotFoundError):
        reader.initialOffset()


# ------------------------------------------------------------------------------------------------ consumers


def test_a_consumer_is_saved_only_for_snapshots_that_are_read_as_a_whole(lake: Lake) -> None:
    table = spread(lake)
    query = StreamQuery(table, consumer__id="c", maxFilesPerTrigger=3)
    query.run(most=1)
    assert table.consumers() == {"c": 1}  # its state is still to be read
    query.run()
    assert table.consumers() == {"c": 2}
    table.write([{"id": number, "dt": str(number), "v": "x"} for number in range(4)])
    query.run(most=1)
    query.run(most=0)
    assert table.consumers() == {"c": 2}
    query.run()
    assert table.consumers() == {"c": 3}


def test_expiry_keeps_what_a_consumer_has_still_to_read(log: Table) -> None:
    query = StreamQuery(log, scan_snapshot__id=2, consumer__id="c", maxFilesPerTrigger=1)
    query.run(most=1)
    log.expire_snapshots(retain_max=1, retain_min=1)
    assert log.store.snapshots.earliest_id() == 2
    assert ids(all_rows(query.run())) == [3]
    log.expire_snapshots(retain_max=1, retain_min=1)
    assert log.consumers() == {"c": 4}
    assert log.store.snapshots.earliest_id() == 3


@pytest.mark.parametrize("maximum", [1, 100])
def test_a_first_state_expires_although_the_query_has_a_consumer(lake: Lake, maximum: int) -> None:
    table = spread(lake)
    query = StreamQuery(table, consumer__id="c", maxFilesPerTrigger=maximum)
    lost = query.run(crash=True)
    assert table.consumers() == {"c": 1}
    for number in (5, 6):
        add(table, number)
    table.expire_snapshots(retain_max=1, retain_min=1)
    batches = query.run(most=2)
    assert batches[0] == lost[0]
    table.expire_snapshots(retain_max=1, retain_min=1)
    batches += query.run()
    assert ids(all_rows(batches)) == [0, 1, 2, 3, 5, 6]
    query.run()
    assert table.consumers() == {"c": 4}
    table.expire_snapshots(retain_max=1, retain_min=1)
    assert table.store.snapshots.earliest_id() == 3


def test_another_query_does_not_skip_a_first_state_that_the_consumer_has_still_to_read(lake: Lake) -> None:
    table = spread(lake)
    StreamQuery(table, consumer__id="c", maxFilesPerTrigger=1).run(most=1)
    add(table, 5)
    with (
        pytest.raises(NotFoundError, match="has still to read the state") as caught,
        table.follow(consumer="c") as rows,
    ):
        next(rows)
    assert "reset_consumer(id, snapshot)" in (caught.value.hint or "")
    again = StreamQuery(table, consumer__id="c")
    assert ids(all_rows(again.run())) == [0, 1, 2, 3, 5]
    assert table.consumers() == {"c": 3}
    add(table, 6)
    assert ids(all_rows(StreamQuery(table, consumer__id="c").run())) == [6]


def test_the_hint_for_a_consumer_behind_a_rollback_says_how_to_reset_it(log: Table) -> None:
    StreamQuery(log, consumer__id="c").run()
    add(log, 4)
    query = StreamQuery(log, consumer__id="c")
    query.run()
    query.run()
    log.rollback_to(snapshot=1)
    with pytest.raises(NotFoundError) as caught:
        StreamQuery(log, consumer__id="c").run()
    assert 'table.reset_consumer("c", snapshot)' in (caught.value.hint or "")
    log.reset_consumer("c", 2)
    add(log, 7)
    assert ids(all_rows(StreamQuery(log, consumer__id="c").run())) == [7]


def test_another_query_goes_on_where_the_consumer_stopped(log: Table) -> None:
    StreamQuery(log, consumer__id="c").run()
    add(log, 4)
    assert ids(all_rows(StreamQuery(log, consumer__id="c").run())) == [4]
    ignoring = StreamQuery(log, consumer__id="c", consumer_ignore__progress=True)
    assert ids(all_rows(ignoring.run())) == [1, 2, 3, 4]


def test_each_batch_is_logged_with_how_far_it_is_behind(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    table = lake.create_table("db.logged", {"id": "INT"})
    for number in range(3):
        table.write([{"id": number}])
    caplog.set_level(logging.INFO, "tidelake.stream")
    StreamQuery(table, scan_snapshot__id=1, maxFilesPerTrigger=1).run()
    lines = [each.getMessage().rsplit(" and ", 1)[0] for each in caplog.records if each.levelno == logging.INFO]
    behind = ["2 snapshots", "1 snapshot", "0 snapshots"]
    assert lines == [
        f"logged: batch up to snapshot {number}, 1 split, 1 row; {text}" for number, text in enumerate(behind, 1)
    ]
