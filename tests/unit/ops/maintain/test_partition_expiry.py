"""Partition expiry: what is too old, when commits look for it, and what other jobs may do in between."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tidelake as tl
from kit.small_tables import new_table, other_handle, row
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import CommitConflictError, InvalidInputError, UnsupportedError
from tidelake.io.env import Env
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.maintain import partition_expiry as expiry
from tidelake.ops.maintain.partition_expiry import PartitionExpiryPlan, PartitionExpiryResult
from tidelake.table import Table, load_table
from tidelake.testing import FakeClock, MemoryFileIO, TracingFileIO

NOW_MS = 1_700_000_000_000
"""The 14th of November 2023."""
OLD, OLDER, YOUNG = "2023-10-01", "2022-12-24", "2023-11-13"
HOUR = 3_600


def table_of(*days: str | None, keyed: bool = False, **options: str) -> Table:
    """A table with a row in each of these partitions, one commit for each."""
    made = new_table(keyed=keyed, snapshot__num_retained__min="1000", snapshot__num_retained__max="1000", **options)
    clock = made.store.env.clock
    assert isinstance(clock, FakeClock)
    clock.advance((NOW_MS - clock.now_ms()) / 1_000)
    for number, day in enumerate(days):
        put(made.with_options({"write-only": True}), day, number)
    return made


def put(table: Table, day: str | None, number: int = 0, **how: Any) -> Any:
    return table.write([{"id": number, "dt": day, "v": "v"}], **how)


def clock_of(table: Table) -> FakeClock:
    clock = table.store.env.clock
    assert isinstance(clock, FakeClock)
    return clock


def days_of(table: Table) -> list[str | None]:
    return sorted(set(table.to_arrow()["dt"].to_pylist()), key=str)


def kinds(table: Table) -> list[str]:
    found: list[str] = table.inspect.snapshots()["commit_kind"].to_pylist()
    return found


def planned(table: Table, *given: Any, **how: Any) -> PartitionExpiryPlan:
    plan = table.expire_partitions(*given, plan_only=True, **how)
    assert isinstance(plan, PartitionExpiryPlan)
    return plan


def expired(table: Table, *given: Any, **how: Any) -> list[str]:
    done = table.expire_partitions(*given, **how)
    assert isinstance(done, PartitionExpiryResult)
    return [str(each) for each in done.partitions]


# ------------------------------------------------------------------------------------------------ by hand


def test_a_plan_changes_nothing_and_says_what_would_go() -> None:
    table = table_of(OLD, OLDER, YOUNG, OLD)
    before = table.latest_snapshot()
    plan = planned(table, "7 d")
    assert [dict(each.values) for each in plan.partitions] == [{"dt": OLDER}, {"dt": OLD}]
    assert [(each.rows, each.files) for each in plan.partitions] == [(1, 1), (2, 2)]
    assert plan.size == sum(table.files(where="dt < '2023-11-01'")["file_size"].to_pylist())
    assert str(plan).startswith(f"2 partitions (dt={OLDER}; dt={OLD}): 3 rows in 3 files of ")
    assert table.latest_snapshot() == before


def test_the_exact_age_is_not_too_old() -> None:
    table = table_of("2023-11-13 22:13:20")  # a day ago
    assert planned(table, "1 d").partitions == ()
    clock_of(table).advance(0.001)
    assert len(planned(table, "1 d").partitions) == 1


def test_what_makes_no_time_never_goes_and_is_named() -> None:
    table = table_of(OLD, None, "soon")
    plan = planned(table, "7 d")
    assert plan.timeless == ("dt=__DEFAULT_PARTITION__", "dt=soon")
    assert plan.warnings == (
        "2 partitions (dt=__DEFAULT_PARTITION__; dt=soon) never expire: their values are null or make no time; "
        "see partition.timestamp-pattern and -formatter",
    )
    done = table.expire_partitions("7 d")
    assert done.warnings == plan.warnings
    assert days_of(table) == [None, "soon"]


def test_so_many_go_at_a_time_and_so_many_with_a_commit() -> None:
    days = [f"2023-01-0{number}" for number in range(1, 6)]
    table = table_of(*days, partition__expiration_max_num="3", partition__expiration_batch_size="2")
    assert planned(table, "7 d").left == 2
    assert expired(table, "7 d") == [f"dt={day}" for day in days[:3]]
    assert kinds(table)[5:] == ["OVERWRITE", "OVERWRITE"]
    assert expired(table, "7 d", max_expires=1) == [f"dt={days[3]}"]
    assert days_of(table) == days[4:]


def test_the_values_make_a_time_by_pattern_and_formatter() -> None:
    table = table_of("01/10/23", partition__timestamp_pattern="at $dt", partition__timestamp_formatter="'at' dd/MM/yy")
    assert len(planned(table, "7 d").partitions) == 1
    assert planned(table, "7 d", timestamp_formatter="'at' yy/MM/dd").timeless == ()
    assert planned(table, "7 d", timestamp_pattern="$dt").timeless == ("dt=01/10/23",)
    other = table_of("20231001", partition__timestamp_formatter="yyyyMMdd")
    assert expired(other, "7 d") == ["dt=20231001"]


def test_by_update_time_partitions_with_a_new_file_stay() -> None:
    table = table_of(OLD, None, partition__expiration_strategy="update-time", partition__expiration_time="1 h")
    assert planned(table).partitions == ()
    clock_of(table).advance(2 * HOUR)
    put(table.with_options({"write-only": True}), OLD)
    assert expired(table) == ["dt=__DEFAULT_PARTITION__"]
    assert expired(table, strategy="values-time") == [f"dt={OLD}"]


def test_a_partition_that_is_written_to_while_it_goes_stays_if_its_files_decide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = table_of(OLD, OLDER, partition__expiration_strategy="update-time", partition__expiration_time="1 h")
    clock_of(table).advance(2 * HOUR)
    seen = expiry.plan_partition_expiry

    def plan_and_be_overtaken(*given: Any) -> PartitionExpiryPlan:
        plan = seen(*given)
        monkeypatch.setattr(expiry, "plan_partition_expiry", seen)
        put(other_handle(table).with_options({"write-only": True}), OLD, 7)
        return plan

    monkeypatch.setattr("tidelake.table.maintenance.plan_partition_expiry", plan_and_be_overtaken)
    assert expired(table) == [f"dt={OLDER}"]
    assert table.count() == 2


def test_rows_of_a_dropped_partition_stay_in_older_snapshots() -> None:
    table = table_of(OLD, YOUNG)
    before = table.latest_snapshot()
    assert before is not None
    assert expired(table, "7 d") == [f"dt={OLD}"]
    assert table.at(snapshot=before.id).count() == 2
    table.rollback_to(snapshot=before.id)
    assert days_of(table) == [OLD, YOUNG]


def test_what_cannot_be_done_is_said() -> None:
    table = table_of(OLD)
    with pytest.raises(InvalidInputError, match="do not expire"):
        table.expire_partitions()
    with pytest.raises(UnsupportedError, match="strategy") as caught:
        table.expire_partitions("1 d", strategy="custom")
    assert caught.value.facts["value"] == "custom"
    with pytest.raises(UnsupportedError, match="letters"):
        table.expire_partitions("1 d", timestamp_formatter="EEE")
    with pytest.raises(InvalidInputError, match="quote"):
        table.expire_partitions("1 d", timestamp_formatter="yyyy'")
    with pytest.raises(InvalidInputError, match="negative"):
        table.expire_partitions("1 d", max_expires=-1)
    plain = Lake(FileSystemCatalog(Env(MemoryFileIO()))).create_table("db.t", {"id": "INT"})
    with pytest.raises(InvalidInputError, match="no partitions"):
        plain.expire_partitions("1 d")
    with pytest.raises(InvalidInputError, match="wrong form"):
        table.alter(set_options={"partition.expiration-strategy": "custom"})
    with pytest.raises(UnsupportedError, match="letters"):
        table.alter(set_options={"partition.timestamp-formatter": "EEE"})
    assert days_of(table) == [OLD]


# ------------------------------------------------------------------------------------------------ after commits


def test_after_a_commit_old_partitions_go_once_in_each_interval() -> None:
    table = table_of(OLD, partition__expiration_time="7 d", partition__expiration_check_interval="30 min")
    put(table, OLDER)
    assert kinds(table)[-2:] == ["APPEND", "OVERWRITE"]
    assert days_of(table) == []
    for _ in range(2):  # each by a committer of its own
        clock_of(table).advance(0.4 * HOUR)
        put(table.reload(), OLD)
    assert kinds(table)[-2:] == ["APPEND", "OVERWRITE"]
    put(table, OLD)
    assert days_of(table) == [OLD]
    clock_of(table).jump(-24 * HOUR)  # a check in the future is none
    put(table, YOUNG)
    assert days_of(table) == [YOUNG]


def test_a_long_lived_committer_looks_in_each_interval_and_asks_nothing_in_between() -> None:
    table = table_of(partition__expiration_time="7 d")
    io = TracingFileIO(table.store.env.io)
    counted = load_table(replace(table.store.env, io=io), table.name)
    writer, commit = counted.new_write("job"), counted.new_commit("job")

    def commit_row(number: int, day: str) -> None:
        writer.write([{"id": number, "dt": day, "v": "v"}])
        commit.commit(writer.prepare_commit(number), identifier=number)

    commit_row(1, OLD)
    assert kinds(table) == ["APPEND", "OVERWRITE"]
    before = len(io.ops)
    commit_row(2, OLD)
    commit_row(3, OLD)
    assert [op for op in io.ops[before:] if "partition-expiry" in str(op)] == []
    assert kinds(table)[2:] == ["APPEND", "APPEND"]
    clock_of(table).advance(HOUR)
    commit_row(4, OLD)
    assert kinds(table)[4:] == ["APPEND", "OVERWRITE"]
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    assert (snapshot.commit_user, snapshot.commit_identifier) == ("job", 4)
    assert commit.filter_committed([3, 4, 5]) == [5]
    assert table.new_commit("job").commit([], identifier=4).repeated


def test_without_an_interval_every_commit_looks_and_notes_nothing() -> None:
    table = table_of(partition__expiration_time="7 d", partition__expiration_check_interval="0 s")
    for _ in range(2):
        put(table, OLD)
        assert kinds(table)[-1] == "OVERWRITE"
    assert not table.store.env.io.exists("progress/partition-expiry")


def test_a_batch_commit_looks_at_its_end_where_the_option_says_so() -> None:
    table = table_of(partition__expiration_time="7 d", **{"end-input__check-partition-expire": "true"})
    table = table.with_options({"end-input.check-partition-expire": "true"})
    for number in range(2):
        put(table, OLD, number)
        assert kinds(table)[-1] == "OVERWRITE"
    put(table, OLD, commit_user="job", identifier=1)
    assert days_of(table) == [OLD]


def test_write_only_commits_leave_old_partitions_alone() -> None:
    table = table_of(OLD, partition__expiration_time="7 d", write_only="true")
    put(table, OLDER)
    assert days_of(table) == [OLDER, OLD]
    table.compact(full=True)
    put(table.with_options({"write-only": False}), YOUNG)
    assert days_of(table) == [YOUNG]


def test_what_fails_is_a_warning_of_the_commit() -> None:
    table = table_of(partition__expiration_time="7 d")
    theirs = table.with_options({"partition.timestamp-formatter": "EEE"})
    (warning,) = put(theirs, OLD).warnings
    assert warning.startswith("committed, but expiring partitions failed: formatter of partition times has letters")
    (warning,) = put(table, None).warnings
    assert warning.startswith("committed, but 1 partition (dt=__DEFAULT_PARTITION__) never expire")


@pytest.mark.parametrize("noted", [b"", b"x", b"9" * 100, b"-1"])
def test_a_damaged_note_of_the_last_check_is_none(noted: bytes) -> None:
    table = table_of(partition__expiration_time="7 d")
    table.store.env.io.overwrite("progress/partition-expiry", noted)
    put(table, OLD)
    assert days_of(table) == []
    assert table.check(deep=True).ok


def test_a_committer_with_its_hooks_can_be_pickled_between_commits(tmp_path: Path) -> None:
    columns, options = {"id": "INT", "dt": "STRING"}, {"partition.expiration-time": "7 d"}
    table = tl.connect(str(tmp_path)).create_table("db.t", columns, partition_by=["dt"], options=options)
    commit = table.new_commit("job")
    for number in (1, 2):
        writer = table.new_write("job")
        writer.write([{"id": number, "dt": "2001-01-01"}])
        commit.commit(writer.prepare_commit(number), identifier=number)
        commit = pickle.loads(pickle.dumps(commit))
    assert kinds(table) == ["APPEND", "OVERWRITE", "APPEND"]


def test_bytes_make_no_time() -> None:
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO())))
    options = {"partition.legacy-name": "false"}
    table = lake.create_table("db.t", {"id": "INT", "dt": "VARBINARY(20)"}, partition_by=["dt"], options=options)
    table.write([{"id": 1, "dt": b"2001-01-01"}])
    assert planned(table, "7 d").timeless == ("dt=2001-01-01",)


# ------------------------------------------------------------------------------------------------ late rows


def compacted_beside(table: Table, *days: str) -> tuple[Table, list[CommitMessage]]:
    """A table with two runs in each of these partitions, and what a job made of them that has not committed yet."""
    for number, day in enumerate(days * 2):
        put(table, day, number % len(days))
    writer = table.with_options({"write-only": False}).new_write("job")
    for day, bucket in {(day, number % 2) for number in range(4) for day in days}:
        writer.compact(row(day), bucket, full=True)
    return table, [each for each in writer.prepare_commit() if each.compact.before]


def test_a_job_that_meets_a_partition_that_expired_hears_that_its_rows_are_too_old() -> None:
    table, messages = compacted_beside(table_of(keyed=True, partition__expiration_time="7 d", write_only="true"), OLD)
    assert messages
    assert expired(table) == [f"dt={OLD}"]
    with pytest.raises(CommitConflictError, match="partitions that have expired") as caught:
        table.new_commit("job").commit(messages)
    assert caught.value.code == "partitions-expired"
    assert "partition.expiration-time" in str(caught.value.hint)


def test_a_written_part_stays_and_its_compaction_is_warned_of() -> None:
    table, messages = compacted_beside(table_of(keyed=True, partition__expiration_time="7 d", write_only="true"), OLD)
    writer = table.new_write("job")
    writer.write([{"id": 99, "dt": OLD, "v": "late"}])
    expired(table)
    done = table.new_commit("job").commit([*writer.prepare_commit(), *messages])
    assert done.compaction_lost
    (warning,) = done.warnings
    assert warning.startswith("committed, but rows were written to partitions that have expired")
    assert days_of(table) == [OLD]


def test_other_conflicts_keep_their_name() -> None:
    fresh = table_of(keyed=True, partition__expiration_time="7 d", write_only="true")
    for days, gone in (((YOUNG,), YOUNG), ((OLD, YOUNG), YOUNG)):
        table, messages = compacted_beside(fresh, *days)
        table.drop_partitions(f"dt >= '{min(days)}'" if len(days) > 1 else f"dt = '{gone}'")
        with pytest.raises(CommitConflictError) as caught:
            table.new_commit("job").commit(messages)
        assert caught.value.code == "file-deleted"
