"""Following a table: where a stream begins, what it delivers, when it ends, and what a consumer remembers of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import InvalidInputError, NotFoundError, StorageError
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.table import Table, load_table
from tidelake.table.following import Change, Following
from tidelake.testing import FakeClock, FaultyFileIO, MemoryFileIO

COLUMNS = {"id": "INT NOT NULL", "v": "STRING"}


def new_table(*, keyed: bool = False, io: Any = None, **options: str) -> Table:
    clock = FakeClock(1_000_000)
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    how = {"bucket": "1", "write-only": "true"} if keyed else {"write-only": "true"}
    lake = Lake(FileSystemCatalog(Env(io or MemoryFileIO(clock=clock), clock, SeededIds(1))))
    return lake.create_table("d.t", COLUMNS, primary_key=["id"] if keyed else None, options={**how, **given})


def clock_of(table: Table) -> FakeClock:
    clock = table.store.env.clock
    assert isinstance(clock, FakeClock)
    return clock


def put(table: Table, *ids: int, **how: Any) -> int:
    clock_of(table).advance(60)
    return table.write([{"id": each, "v": f"v{each}"} for each in ids], **how).snapshot_ids[-1]


def ids(change: Change) -> list[int]:
    return sorted(change.to_arrow().column("id").to_pylist())


def drained(table: Table, **how: Any) -> list[tuple[int, list[int]]]:
    return [(change.snapshot_id, ids(change)) for change in table.follow(timeout=0, **how)]


@pytest.fixture(params=[False, True], ids=["append", "keyed"])
def table(request: pytest.FixtureRequest) -> Table:
    found = new_table(keyed=request.param)
    for number in range(1, 4):
        put(found, number, number + 10)
    return found


# ------------------------------------------------------------------------------------------------ where it begins


def test_a_stream_begins_with_the_whole_state_and_goes_on_with_changes(table: Table) -> None:
    stream = table.follow(poll=0, timeout=0)
    first = next(stream)
    assert (first.snapshot_id, first.full, ids(first)) == (3, True, [1, 2, 3, 11, 12, 13])
    assert set(first.to_arrow().column("rowkind").to_pylist()) == {"+I"}
    put(table, 7)
    second = next(stream)
    assert (second.snapshot_id, second.full, ids(second)) == (4, False, [7])
    assert second.schema.names == ["rowkind", "id", "v"]
    assert list(stream) == []


def test_other_places_to_begin(table: Table) -> None:
    assert drained(table, start="latest") == []
    assert drained(table, start="earliest") == [(1, [1, 11]), (2, [2, 12]), (3, [3, 13])]
    assert drained(table, start=2) == [(2, [2, 12]), (3, [3, 13])]
    assert drained(table, start=-5) == drained(table, start="earliest")
    at = table.snapshot(2).time_ms
    exact = datetime.fromtimestamp(at / 1000, UTC)
    for moment in (exact, exact.astimezone().replace(tzinfo=None)):
        assert drained(table, start=moment) == drained(table, start=2)  # exactly then: with it
    assert drained(table.with_options({"scan.timestamp-millis": at + 1})) == drained(table, start=3)
    assert drained(table.with_options({"scan.timestamp-millis": 5})) == drained(table, start=1)
    full = table.with_options({"scan.mode": "from-snapshot-full", "scan.snapshot-id": 2})
    assert [number for number, _ in drained(full)] == [2, 3]
    assert drained(table.with_options({"scan.version": "2"})) == drained(table, start=2)
    made = table.with_options({"scan.file-creation-time-millis": at})
    assert drained(made) == [(3, [2, 3, 12, 13])]


@pytest.mark.parametrize(
    "options",
    [
        {"scan.mode": "latest-delta"},
        {"incremental-between": "1,2"},
        {"scan.tag-name": "x"},
        {"scan.version": "x"},
        {"scan.watermark": 5},
    ],
)
def test_a_stream_does_not_begin_where_only_batches_do(table: Table, options: dict[str, Any]) -> None:
    table.create_tag("x", snapshot=1)
    found = Table(table.name, table.store, {key: str(value) for key, value in options.items()})
    with pytest.raises(InvalidInputError, match="cannot begin there"):
        next(found.follow(timeout=0))


def test_what_makes_no_sense_is_refused_before_anything_is_read(table: Table) -> None:
    for wrong in ("tomorrow", None, 1.5):
        with pytest.raises(InvalidInputError, match="cannot begin there"):
            table.follow(start=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="given twice"):
        table.with_options({"scan.mode": "latest"}).follow(start=1)
    for how in ({"poll": -1}, {"timeout": float("nan")}, {"poll": "1 s"}):
        with pytest.raises(InvalidInputError, match="seconds"):
            table.follow(**how)
    with pytest.raises(InvalidInputError):
        table.follow(until="tomorrow")
    with pytest.raises(InvalidInputError):
        table.follow(consumer="")
    with pytest.raises(InvalidInputError):
        table.follow(consumer="../escape")


def test_an_empty_table_is_waited_for() -> None:
    for start, expected in (("latest-full", [(1, [1])]), ("latest", [(1, [1])]), ("earliest", [(1, [1])])):
        table = new_table()
        stream = table.follow(start=start, timeout=0)
        assert list(table.follow(start=start, timeout=0)) == []
        stream = table.follow(start=start, timeout=5, poll=1)
        slept = clock_of(table).sleep
        clock_of(table).sleep = lambda seconds, t=table, s=slept: (s(seconds), t.latest_snapshot() or put(t, 1))  # type: ignore[method-assign]
        assert [(each.snapshot_id, ids(each)) for each in stream] == expected, start


# ------------------------------------------------------------------------------------------------ what it delivers


def test_compactions_change_nothing_and_overwrites_are_seen_on_demand(table: Table) -> None:
    put(table, 5)
    table.compact(full=True)
    put(table, 1, mode="overwrite")
    put(table, 6)
    assert [number for number, _ in drained(table, start=4)] == [4, 7]
    seen = table.with_options(
        {"streaming-read-overwrite" if table.primary_key else "streaming-read-append-overwrite": True}
    )
    changes = {change.snapshot_id: change.to_arrow().to_pylist() for change in seen.follow(start=4, timeout=0)}
    assert sorted(changes) == [4, 6, 7]
    kinds = [(row["rowkind"], row["id"]) for row in changes[6]]
    gone = [("-D", each) for each in (1, 2, 3, 5, 11, 12, 13)] if table.primary_key else []
    assert kinds == [*gone, ("+I", 1)]


@pytest.mark.parametrize("producer", ["none", "input", "lookup", "full-compaction"])
def test_where_the_state_meets_the_changes_nothing_is_missed_or_doubled(producer: str) -> None:
    """Rows wait in level 0 when the stream begins; whoever compacts tells of them later, or they were told already."""
    table = new_table(keyed=True, changelog_producer=producer)
    put(table, 1, 2)
    table.compact(full=True)
    put(table, 2, 3)
    stream = table.follow(timeout=0)
    first = next(stream)
    waits = producer in ("lookup", "full-compaction")
    assert ids(first) == ([1, 2] if waits else [1, 2, 3])
    seen = {row["id"]: row["rowkind"] for row in first.to_arrow().to_pylist()}
    table.compact(full=True)
    later = [(row["rowkind"], row["id"]) for change in stream for row in change.to_arrow().to_pylist()]
    assert sorted(later) == ([("+I", 3), ("+U", 2), ("-U", 2)] if waits else [])
    assert {*seen, *(each for _, each in later)} == {1, 2, 3}


def test_overwrites_do_not_go_with_changelogs_of_compactions() -> None:
    table = new_table(keyed=True, changelog_producer="lookup")
    with pytest.raises(InvalidInputError, match="does not go with the lookup producer") as caught:
        table.with_options({"streaming-read-overwrite": True})
    assert caught.value.facts["option"] == "streaming-read-overwrite"


def test_columns_and_conditions_choose_what_is_delivered(table: Table) -> None:
    found = list(table.follow(start="earliest", timeout=0, columns=["id"], where="id = 2"))
    assert [change.snapshot_id for change in found if change.rows.count()] == [2]
    assert found[-1].schema.names == ["rowkind", "id"]


def test_a_change_takes_every_form_of_a_scan(table: Table) -> None:
    import pyarrow as pa

    change = next(table.follow(start=2, timeout=0))
    rows = change.to_arrow()
    assert change.to_batches().read_all() == rows
    assert pa.table(change) == rows
    assert change.to_polars().height == rows.num_rows
    assert len(change.to_pandas()) == rows.num_rows
    assert (change.commit_kind, change.watermark) == ("APPEND", None)
    assert change.time_ms == table.snapshot(2).time_ms


def test_rows_written_with_a_later_schema_are_read_with_that_of_the_handle(table: Table) -> None:
    stream = table.follow(start="latest", timeout=0)
    list(stream)
    stream = table.follow(start=3, timeout=0)
    altered = table.alter(add={"more": "INT"}, rename={"v": "w"})
    clock_of(table).advance(60)
    altered.write([{"id": 77, "w": "x", "more": 1}])
    found = [change.to_arrow() for change in stream]
    assert found[-1].to_pylist() == [{"rowkind": "+I", "id": 77, "v": "x"}]


def test_young_snapshots_wait_for_their_delay(table: Table) -> None:
    slow = table.with_options({"streaming.read.snapshot.delay": "90 s"})
    assert [number for number, _ in drained(slow, start=1)] == [1]
    clock_of(table).advance(31)
    assert [number for number, _ in drained(slow, start=1)] == [1, 2]


# ------------------------------------------------------------------------------------------------ when it ends


def test_a_stream_ends_after_a_snapshot_or_when_nothing_comes(table: Table) -> None:
    assert [number for number, _ in drained(table, start=1, until=2)] == [1, 2]
    stream = table.follow(start=1, until="latest")
    put(table, 9)
    assert [change.snapshot_id for change in stream] == [1, 2, 3]
    assert list(stream) == []
    before = clock_of(table).monotonic()
    assert len(list(table.follow(start=1, timeout=7, poll=2))) == 4
    assert 7 <= clock_of(table).monotonic() - before < 8


def test_a_stream_that_ends_at_a_compaction_does_not_wait_for_more(table: Table) -> None:
    table.compact(full=True)
    before = clock_of(table).monotonic()
    assert [change.snapshot_id for change in table.follow(start=1, until="latest")] == [1, 2, 3]
    assert clock_of(table).monotonic() == before


def test_a_closed_stream_delivers_nothing_more(table: Table) -> None:
    with table.follow(start=1) as stream:
        next(stream)
    assert list(stream) == []
    assert "closed" in repr(stream)


def test_a_watermark_ends_a_stream() -> None:
    table = new_table()
    for number in range(1, 5):
        write = table.new_write("job")
        write.write([{"id": number, "v": None}])
        table.new_commit("job").commit(write.prepare_commit(number), identifier=number, watermark=number * 10)
    for bound, expected in ((5, []), (10, [1]), (29, [1, 2]), (99, [1, 2, 3, 4])):
        bounded = table.with_options({"scan.bounded.watermark": bound})
        assert [number for number, _ in drained(bounded, start=1)] == expected
        assert [number for number, _ in drained(bounded)] == [4]
        assert len(list(bounded.follow(timeout=None if bound < 50 else 0))) == 1


def test_a_snapshot_that_expired_unseen_is_an_error_that_says_what_helps(table: Table) -> None:
    stream = table.follow(start=1, timeout=0)
    next(stream)
    table.expire_snapshots(retain_max=1, retain_min=1)
    with pytest.raises(NotFoundError, match="expired") as caught:
        next(stream)
    assert caught.value.code == "snapshot-expired"
    assert "consumer" in (caught.value.hint or "")
    assert caught.value.facts["snapshot_id"] == "2"


def test_a_table_that_was_rolled_back_or_made_anew_is_noticed(table: Table) -> None:
    stream = table.follow(start="latest", timeout=0)
    list(stream)
    ahead = table.follow(start=3, timeout=0)
    next(ahead)
    table.rollback_to(snapshot=1)
    with pytest.raises(NotFoundError, match="rolled back") as caught:
        next(ahead)
    assert caught.value.code == "stream-out-of-range"
    behind = table.follow(start=1, timeout=3, poll=1)
    next(behind)
    put(table, 50)
    assert next(behind).snapshot_id == 2
    real = clock_of(table).sleep

    def meanwhile(seconds: float) -> None:
        real(seconds)
        if table.latest_snapshot().id == 2:
            table.rollback_to(snapshot=1)
            put(table, 60)
            put(table, 61)

    clock_of(table).sleep = meanwhile  # type: ignore[method-assign]
    with pytest.raises(NotFoundError, match="rolled back"):
        next(behind)


def test_a_dropped_table_is_told(table: Table) -> None:
    stream = table.follow(start=3, timeout=0)
    next(stream)
    for folder in ("snapshot", "schema", "manifest"):
        table.store.env.io.delete_dir(folder)
    with pytest.raises(NotFoundError, match="no longer exists"):
        next(stream)


# ------------------------------------------------------------------------------------------------ consumers


def test_a_consumer_goes_on_where_it_stopped(table: Table) -> None:
    stream = table.follow(consumer="c", start=1, timeout=0)
    first = next(stream)
    assert table.consumers() == {"c": 1}  # held back, and not handled yet
    first.ack()
    assert table.consumers() == {"c": 2}
    first.ack()
    next(stream)
    assert table.consumers() == {"c": 2}
    stream.close()
    assert drained(table, consumer="c") == [(2, [2, 12]), (3, [3, 13])]
    assert table.consumers() == {"c": 4}
    table.compact(full=True)
    assert drained(table, consumer="c") == []
    assert table.consumers() == {"c": 5}  # what changes nothing is behind it


def test_a_change_that_was_not_acknowledged_comes_again(table: Table) -> None:
    def work(stream: Following) -> None:
        for change in stream:
            if change.snapshot_id == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), table.follow(consumer="c", start=1, timeout=0) as stream:
        work(stream)
    assert table.consumers() == {"c": 2}
    assert [number for number, _ in drained(table, consumer="c")] == [2, 3]


def test_the_whole_state_comes_again_until_it_was_acknowledged(table: Table) -> None:
    stream = table.follow(consumer="c", timeout=0)
    assert next(stream).full
    assert table.consumers() == {}
    again = table.follow(consumer="c", timeout=0)
    change = next(again)
    assert change.full
    change.ack()
    assert table.consumers() == {"c": 4}


def test_acknowledging_late_never_goes_back(table: Table) -> None:
    stream = table.follow(consumer="c", start=1, timeout=0)
    first, second = next(stream), next(stream)
    second.ack()
    first.ack()
    assert table.consumers() == {"c": 3}


def test_expiry_waits_for_a_consumer_from_its_first_look_on(table: Table) -> None:
    list(table.follow(consumer="new", start="latest", timeout=0))
    assert table.consumers() == {"new": 4}
    next(table.follow(consumer="c", start=2, timeout=0))
    table.expire_snapshots(retain_max=1, retain_min=1)
    assert [number for number, _ in drained(table, consumer="c")] == [2, 3]


def test_a_consumer_whose_snapshots_are_gone_is_told_and_can_be_set_on(table: Table) -> None:
    table.expire_snapshots(retain_max=1, retain_min=1)
    table.reset_consumer("c", 1)
    with pytest.raises(NotFoundError, match="expired") as caught:
        next(table.follow(consumer="c", timeout=0))
    assert "reset_consumer" in (caught.value.hint or "")
    table.reset_consumer("c", 3)
    assert [number for number, _ in drained(table, consumer="c")] == [3]


def test_progress_can_be_ignored_and_is_then_kept_anew(table: Table) -> None:
    table.reset_consumer("c", 3)
    fresh = table.with_options({"consumer-id": "c", "consumer.ignore-progress": True})
    assert [number for number, _ in drained(fresh, start=1)] == [1, 2, 3]
    assert table.consumers() == {"c": 4}


def test_what_others_keep_in_the_document_of_a_consumer_stays(table: Table) -> None:
    io = table.store.env.io
    io.overwrite("consumer/consumer-c", b'{"nextSnapshot": 2, "owner": "them"}')
    drained(table, consumer="c")
    assert b"them" in io.read("consumer/consumer-c")


@pytest.mark.parametrize("more", [2, 6])
def test_a_consumer_that_comes_back_after_a_rollback_does_not_pass_over_what_came_since(
    table: Table, more: int
) -> None:
    drained(table, consumer="c", start=1)
    assert table.consumers() == {"c": 4}
    table.rollback_to(snapshot=1)
    for number in range(more):
        put(table, 50 + number)
    with pytest.raises(NotFoundError, match="rolled back") as caught:
        drained(table, consumer="c")
    assert caught.value.code == "stream-out-of-range"
    assert table.consumers() == {"c": 4}
    table.reset_consumer("c", 2)
    assert [number for number, _ in drained(table, consumer="c")] == list(range(2, more + 2))


def test_a_consumer_that_others_moved_on_is_taken_at_its_word(table: Table) -> None:
    drained(table, consumer="c", start=1)
    table.store.env.io.overwrite("consumer/consumer-c", b'{"nextSnapshot": 2}')
    table.rollback_to(snapshot=2)
    put(table, 50)
    assert [number for number, _ in drained(table, consumer="c")] == [2, 3]


def test_at_least_once_saves_now_and_then_and_when_it_is_closed(table: Table) -> None:
    for number in range(4, 12):
        put(table, number)
    lazy = table.with_options({"consumer.mode": "at-least-once"})
    seen = []
    with lazy.follow(consumer="c", start=1, timeout=0, poll=60) as stream:
        for change in stream:
            seen.append(table.consumers()["c"])
            if change.snapshot_id == 5:
                clock_of(table).advance(61)
            if change.snapshot_id == 9:
                break
    assert seen == [1, 1, 1, 1, 1, 6, 6, 6, 6]
    assert table.consumers() == {"c": 9}  # 9 itself was not acknowledged


def test_an_idle_consumer_that_still_looks_is_not_forgotten(table: Table) -> None:
    keeping = table.with_options({"consumer.expiration-time": "30 s"})
    stream = keeping.follow(consumer="c", start="latest", timeout=100, poll=5)
    io = table.store.env.io
    before = io.status("consumer/consumer-c").modified_ms if io.exists("consumer/consumer-c") else 0
    assert list(stream) == []
    assert clock_of(table).now_ms() - io.status("consumer/consumer-c").modified_ms <= 15_000
    assert io.status("consumer/consumer-c").modified_ms > before


def test_progress_that_cannot_be_saved_is_told_and_the_change_comes_again() -> None:
    inner = MemoryFileIO()
    failing = [False]

    def plan(op: Any) -> None:
        if failing[0] and op.name == "overwrite" and "consumer" in str(op.path):
            raise StorageError("full")

    table = new_table(io=FaultyFileIO(inner, plan))
    put(table, 1)
    put(table, 2)
    stream = table.follow(consumer="c", start=1, timeout=0)
    next(stream)
    failing[0] = True
    with pytest.raises(StorageError):
        next(stream)
    failing[0] = False
    again = load_table(table.store.env, table.name)
    assert [number for number, _ in drained(again, consumer="c")] == [1, 2]


# ------------------------------------------------------------------------------------------------ what it costs


def test_a_step_looks_at_its_own_snapshot_and_lists_nothing(table: Table) -> None:
    for number in range(4, 24):
        put(table, number)
    io = FaultyFileIO(table.store.env.io)
    env = Env(io, table.store.env.clock, SeededIds(5))
    stream = load_table(env, table.name).follow(start=4, timeout=0)
    next(stream).to_arrow()
    before = len(io.ops)
    for _ in range(10):
        next(stream).to_arrow()
    ops = io.ops[before:]
    assert not [op for op in ops if op.name == "list"]
    assert len(ops) <= 10 * 8, [op.name for op in ops]


# ------------------------------------------------------------------------------------------------ overwrites that age


def marked_overwrite(**options: str) -> tuple[Table, int]:
    """A table with deletion vectors, a row of it superseded and marked, then overwritten."""
    table = new_table(
        keyed=True, write_only="false", deletion_vectors__enabled="true", streaming_read_overwrite="true", **options
    )
    put(table, *range(200))
    clock_of(table).advance(60)
    table.write([{"id": 7, "v": "newer"}])
    return table, put(table, 1, mode="overwrite")


def taken_back(table: Table, number: int) -> list[str]:
    (change,) = table.follow(start=number, timeout=0)
    rows = change.to_arrow().to_pylist()
    assert [row for row in rows if row["rowkind"] != "-D"] == [{"rowkind": "+I", "id": 1, "v": "v1"}]
    return sorted(row["v"] for row in rows if row["rowkind"] == "-D")


def test_an_overwrite_takes_back_rows_that_were_not_marked_before() -> None:
    table, number = marked_overwrite()
    expected = sorted(["newer", *(f"v{each}" for each in range(200) if each != 7)])
    assert taken_back(table, number) == expected
    table.reset_consumer("c", number)
    table.expire_snapshots(retain_max=1, retain_min=1)
    assert taken_back(load_table(table.store.env, "d.t"), number) == expected


@pytest.mark.parametrize("producer", ["none", "input"])
def test_an_overwrite_in_a_changelog_of_a_table_with_vectors_says_that_its_rows_are_gone(producer: str) -> None:
    table, number = marked_overwrite(changelog__time_retained="30 d", changelog_producer=producer)
    put(table, 2)
    table.expire_snapshots(retain_max=1, retain_min=1)
    assert table.store.changelogs.find(number) is not None
    fresh = load_table(table.store.env, "d.t")
    with pytest.raises(NotFoundError, match="snapshot") as caught:
        [change.to_arrow() for change in fresh.follow(start=number, timeout=0)]
    assert caught.value.code == "snapshot-expired"
    # Behind it the stream goes on.
    assert [ids(change) for change in fresh.follow(start=number + 1, timeout=0)] == [[2]]


def test_an_overwrite_in_a_changelog_of_dynamic_buckets_needs_no_index() -> None:
    table = new_table(keyed=True, bucket="-1", streaming_read_overwrite="true", changelog__time_retained="30 d")
    put(table, 1, 2)
    number = put(table, 1, mode="overwrite")
    put(table, 3)
    table.expire_snapshots(retain_max=1, retain_min=1)
    (change, _) = load_table(table.store.env, "d.t").follow(start=number, timeout=0)
    rows = [(row["rowkind"], row["id"]) for row in change.to_arrow().to_pylist()]
    assert sorted(rows) == [("+I", 1), ("-D", 1), ("-D", 2)]


@pytest.mark.parametrize(
    ("option", "given", "seconds"), [(None, None, 1.0), ("7 s", None, 7.0), ("7 s", 0.25, 0.25), ("200 ms", None, 0.2)]
)
def test_a_stream_looks_as_often_as_it_is_told_or_the_table_says(option, given, seconds) -> None:
    options = {} if option is None else {"continuous.discovery-interval": option}
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(), SeededIds(1))))
    stream = lake.create_table("d.t", {"a": "INT"}, options=options).follow(poll=given)
    assert stream._poll_s == seconds
