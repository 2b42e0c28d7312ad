"""Postponed buckets: rows wait in the order in which they came, get buckets once, and are never in both places."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import CommitConflictError, InvalidInputError, UnsupportedError
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.ops.commit.messages import Committable
from tidelake.ops.scan.postponed import PostponeOptions, in_arrival_order
from tidelake.ops.write import replay
from tidelake.spec.data_file import DataFile
from tidelake.spec.documents.snapshot import CommitKind
from tidelake.spec.layout import POSTPONE_BUCKET
from tidelake.table import Table, load_table
from tidelake.testing import FakeClock, MemoryFileIO

MERGED = {"postpone.merge-on-read": "true"}


def create(*, partitioned: bool = False, columns: dict[str, str] | None = None, **options: str) -> Table:
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000, tick_ms=1), SeededIds(1))))
    return lake.create_table(
        "d.t",
        columns or {"dt": "STRING NOT NULL", "id": "INT NOT NULL", "v": "STRING"},
        primary_key=["dt", "id"] if partitioned else ["id"],
        partition_by=["dt"] if partitioned else [],
        options={"bucket": "-2", **given},
    )


def rows(*facts: tuple[int, str], dt: str = "a", kind: str = "+I") -> list[dict[str, Any]]:
    return [{"dt": dt, "id": number, "v": v, "rowkind": kind} for number, v in facts]


def stage(table: Table, data: Any, number: int, user: str = "job") -> None:
    table.write(data, commit_user=user, identifier=number)


def shown(table: Table, **options: str) -> list[tuple[str, int, str]]:
    found = [(row["dt"], row["id"], row["v"]) for row in table.with_options(options).to_arrow().to_pylist()]
    return sorted(found)


def merged(table: Table) -> list[tuple[str, int, str]]:
    return shown(table, **MERGED)


def facts(table: Table, *names: str) -> list[tuple[Any, ...]]:
    entries = table.files()
    return sorted(zip(*(entries.column(name).to_pylist() for name in names), strict=True))


def other(table: Table) -> Table:
    return load_table(replace(table.store.env, ids=SeededIds(99)), table.name)


# ------------------------------------------------------------------------------------------------ staging


def test_numbered_rows_wait_and_are_not_read_until_a_compaction_gives_them_buckets() -> None:
    table = create()
    stage(table, rows((1, "x"), (2, "x")), 1)
    assert shown(table) == []
    assert facts(table, "bucket", "total_buckets", "level", "min_sequence") == [(-2, -2, 0, -1)]
    done = table.compact()
    assert shown(table) == [("a", 1, "x"), ("a", 2, "x")]
    assert facts(table, "bucket", "total_buckets") == [(0, 1)]
    snapshot = table.snapshot(done.snapshot_ids[0])
    assert (len(done.snapshot_ids), snapshot.commit_kind) == (1, CommitKind.COMPACT)
    assert table.check(rows=True).findings == ()
    assert table.compact().snapshot_ids == ()


def test_staged_files_are_avro_without_statistics_and_named_after_their_writer() -> None:
    table = create(file__format="orc", file__compression="zlib", metadata__stats_mode__per__level="0:full")
    stage(table, rows((3, "x"), (1, "y")), 1, user="a/../job")
    entry = table.files().to_pylist()[0]
    prefix, _, number = entry["file_name"].rpartition("-")
    assert prefix.startswith("data--u-a_.._job-s-")
    assert "-w-" in prefix
    assert number == "0.avro"
    assert entry["value_stats_cols"] == []
    assert entry["key_stats_null_counts"] == [None]
    table.compact()
    assert facts(table, "bucket", "level")[0][0] == 0
    assert table.files().column("file_name")[0].as_py().endswith(".orc")


def test_rows_of_a_type_that_avro_lacks_are_staged_in_the_format_of_the_table() -> None:
    table = create(columns={"id": "INT NOT NULL", "dt": "STRING", "v": "MAP<INT, STRING>"})
    stage(table, pa.table({"id": [1], "dt": ["a"], "v": pa.array([[(1, "x")]], pa.map_(pa.int32(), pa.string()))}), 1)
    table.compact()
    assert table.to_arrow().column("v").to_pylist() == [[(1, "x")]]


def test_versions_are_replayed_in_the_order_in_which_they_came() -> None:
    table = create()
    writer, commit = table.new_write("job"), table.new_commit("job")
    for number in range(1, 13):
        writer.write(rows((1, f"v{number}"), (number, "own")))
        commit.commit(writer.prepare_commit(number), identifier=number)
    other(table).write(rows((2, "last")), commit_user="rival", identifier=1)
    wanted = merged(table)
    table.compact()
    found = {number: v for _, number, v in shown(table)}
    assert (found[1], found[2], found[12]) == ("v12", "last", "own")
    assert shown(table) == wanted


def test_files_of_one_moment_keep_the_order_of_their_numbers() -> None:
    named = [DataFile(file_name=f"data--u-j-s-1-w-x-{n}.avro", file_size=1, row_count=1) for n in (10, 2, 1)]
    timed = [replace(each, creation_time_ms=5) for each in named]
    early = replace(named[0], creation_time_ms=4, file_name="data--u-z-s-9-w-y-99.avro")
    found = [file.file_name.rpartition("-")[2] for file in in_arrival_order([*timed, early])]
    assert found == ["99.avro", "1.avro", "2.avro", "10.avro"]


def test_a_retraction_that_cannot_be_merged_is_refused_before_it_waits() -> None:
    table = create(merge_engine="aggregation", fields__v__aggregate_function="max")
    with pytest.raises(UnsupportedError, match="retract a row"):
        stage(table, rows((1, "x"), kind="-D"), 1)
    first = create(merge_engine="first-row")
    with pytest.raises(InvalidInputError, match="does not accept -U and -D rows"):
        stage(first, rows((1, "x"), kind="-D"), 1)
    assert table.files().num_rows == first.files().num_rows == 0


def test_a_deletion_that_waited_deletes() -> None:
    table = create()
    table.write(rows((1, "x"), (2, "x")))
    stage(table, rows((1, "x"), kind="-D"), 1)
    assert merged(table) == [("a", 2, "x")]
    table.compact()
    assert shown(table) == [("a", 2, "x")]


def test_null_keys_are_refused_before_they_wait() -> None:
    table = create()
    with pytest.raises(InvalidInputError):
        stage(table, pa.table({"dt": ["a"], "id": pa.array([None], pa.int32()), "v": ["x"]}), 1)


# ------------------------------------------------------------------------------------------------ how many buckets


def test_the_number_of_buckets_follows_rows_then_the_option_then_the_size() -> None:
    def count(**options: str) -> int:
        given = {"postpone." + key.replace("_", "-"): value for key, value in options.items()}
        return PostponeOptions.parse(given).buckets_for(rows=10, size=5_000)

    assert count() == 1
    assert count(default_bucket_num="7") == 7
    assert count(target_size_per_bucket="1000 b") == 5
    assert count(default_bucket_num="7", target_size_per_bucket="1000 b") == 7
    assert count(default_bucket_num="7", target_row_num_per_bucket="4") == 3
    chosen = PostponeOptions.parse({"postpone.target-row-num-per-bucket": "4"})
    assert chosen.batch_buckets_for(rows=10, size=0) == 4
    capped = {"postpone.target-row-num-per-bucket": "1", "postpone.batch-write-fixed-bucket.max-parallelism": "6"}
    assert PostponeOptions.parse(capped).batch_buckets_for(rows=100, size=0) == 6


def test_partitions_have_their_own_numbers_and_keep_them() -> None:
    table = create(partitioned=True, postpone__target_row_num_per_bucket="3")
    stage(table, [*rows(*((n, "x") for n in range(9))), *rows((1, "y"), dt="b")], 1)
    table.compact()
    assert set(facts(table, "total_buckets")) == {(1,), (3,)}
    stage(table, rows(*((n, "z") for n in range(100, 130)), dt="b"), 2)
    table.write(rows(*((n, "z") for n in range(200, 230)), dt="b"))
    table.compact()
    totals = {(part, total) for part, total in facts(table, "partition", "total_buckets")}
    assert sorted(total for _, total in totals) == [1, 3]
    assert len(shown(table)) == 9 + 1 + 60
    assert table.check(rows=True).findings == ()


def test_a_batch_goes_straight_to_buckets_whose_number_its_rows_decide() -> None:
    table = create(partitioned=True, postpone__target_row_num_per_bucket="3")
    table.write([*rows(*((n, "x") for n in range(9))), *rows((1, "y"), dt="b")])
    assert {total for (total,) in facts(table, "total_buckets")} == {4, 1}
    assert len(shown(table)) == 10


def test_what_does_not_fit_into_memory_is_staged_until_the_number_is_known_and_leaves_nothing_behind() -> None:
    table = create(write_buffer_size="1 kb", postpone__target_size_per_bucket="2 kb")
    batches = [
        pa.table({"dt": ["a"] * 50, "id": pa.array(range(s, s + 50), pa.int32()), "v": ["x" * 20] * 50})
        for s in range(0, 500, 50)
    ]
    table.write(iter(batches))
    assert len(shown(table)) == 500
    assert {bucket for (bucket,) in facts(table, "bucket")} >= {0}
    assert POSTPONE_BUCKET not in {bucket for (bucket,) in facts(table, "bucket")}
    assert facts(table, "total_buckets")[0][0] in (2, 4, 8, 16)
    assert not list(table.store.env.io.list("bucket-postpone"))


def test_a_batch_may_be_staged_too() -> None:
    table = create(postpone__batch_write_fixed_bucket="false")
    table.write(rows((1, "x")))
    table.write(rows((1, "y")))
    assert facts(table, "bucket") == [(-2,), (-2,)]
    table.compact()
    assert shown(table) == [("a", 1, "y")]


def test_rescaling_needs_a_number_and_leaves_waiting_rows_alone() -> None:
    table = create()
    table.write(rows((1, "x"), (2, "x")))
    stage(table, rows((2, "y"), (3, "y")), 1)
    with pytest.raises(InvalidInputError, match="no number of buckets"):
        table.rescale()
    table.rescale(3)
    assert {total for (total,) in facts(table, "total_buckets")} == {3, -2}
    table.compact(full=True)
    assert shown(table) == [("a", 1, "x"), ("a", 2, "y"), ("a", 3, "y")]
    assert {total for (total,) in facts(table, "total_buckets")} == {3}


def test_an_overwrite_replaces_waiting_rows_too() -> None:
    table = create(partitioned=True)
    stage(table, [*rows((1, "x")), *rows((1, "x"), dt="b")], 1)
    table.write(rows((2, "y")), mode="overwrite", partition={"dt": "a"})
    table.compact()
    assert shown(table) == [("a", 2, "y"), ("b", 1, "x")]
    staging = table.with_options({"postpone.batch-write-fixed-bucket": "false"})
    staging.write(rows((3, "z"), dt="b"), mode="overwrite-dynamic")
    assert shown(table) == [("a", 2, "y")]
    table.compact()
    assert shown(table) == [("a", 2, "y"), ("b", 3, "z")]


# ------------------------------------------------------------------------------------------------ races


def racing(table: Table, monkeypatch: pytest.MonkeyPatch, act: Any) -> list[int]:
    """Let somebody act after the first plan of a compaction and before its commit."""
    replayed, calls = replay._replay_rows, []

    def late(*args: Any, **more: Any) -> Any:
        found = replayed(*args, **more)
        calls.append(1)
        if len(calls) == 1:
            act(other(table))
        return found

    monkeypatch.setattr(replay, "_replay_rows", late)
    return calls


def test_an_overwrite_meanwhile_is_found_by_strict_mode_and_planned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    table = create()
    stage(table, rows((1, "x")), 1)
    calls = racing(table, monkeypatch, lambda rival: rival.write(rows((2, "y")), mode="overwrite"))
    table.compact()
    assert shown(table) == [("a", 2, "y")]
    assert len(calls) == 1
    assert table.check(rows=True).findings == ()


def test_strict_mode_refuses_the_commit_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    table = create()
    stage(table, rows((1, "x")), 1)
    plan = replay.plan_replay(table.context)
    assert plan is not None
    other(table).write(rows((2, "y")), mode="overwrite")
    messages = replay._replay_rows(table.context, plan, full=False, progress=None)
    with pytest.raises(CommitConflictError) as caught:
        table._committer(None, last_safe=plan.snapshot.id).commit(Committable(messages=tuple(messages)))
    assert caught.value.code == "strict-mode"


def test_rows_staged_meanwhile_wait_for_the_next_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    table = create()
    stage(table, rows((1, "x")), 1)
    calls = racing(table, monkeypatch, lambda rival: stage(rival, rows((1, "y")), 1, "rival"))
    table.compact()
    assert len(calls) == 1
    assert shown(table) == [("a", 1, "x")]
    assert merged(table) == [("a", 1, "y")]


def test_a_batch_to_the_same_bucket_meanwhile_makes_the_compaction_plan_again(monkeypatch: pytest.MonkeyPatch) -> None:
    table = create()
    table.write(rows((1, "old")))
    stage(table, rows((1, "x"), (2, "x")), 1)
    calls = racing(table, monkeypatch, lambda rival: rival.write(rows((1, "batch"), (3, "batch"))))
    table.compact()
    assert len(calls) == 2
    assert shown(table) == [("a", 1, "x"), ("a", 2, "x"), ("a", 3, "batch")]
    full = shown(table)
    table.compact(full=True)
    assert shown(table) == full
    assert table.check(rows=True).findings == ()


def test_two_compactions_at_once_give_each_row_one_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    table = create()
    stage(table, rows((1, "x"), (2, "x")), 1)
    racing(table, monkeypatch, lambda rival: rival.compact())
    table.compact()
    assert shown(table) == [("a", 1, "x"), ("a", 2, "x")]
    assert sum(count for (count,) in facts(table, "row_count")) == 2


# ------------------------------------------------------------------------------------------------ other verbs


def test_rows_that_wait_are_not_undone_by_changes_of_rows() -> None:
    table = create(partitioned=True)
    table.write([*rows((1, "x"), (2, "x")), *rows((1, "x"), dt="b")])
    stage(table, rows((1, "y")), 1)
    for change in (lambda: table.delete("id = 1"), lambda: table.update({"v": "'z'"}, "id = 2")):
        with pytest.raises(InvalidInputError) as caught:
            change()
        assert caught.value.code == "rows-waiting"
    assert table.delete("dt = 'b' AND id = 1").rows == 1
    table.compact()
    assert table.update({"v": "'z'"}, "id = 2").rows == 1
    assert table.delete("id = 1").rows == 1
    assert shown(table) == [("a", 2, "z")]


def test_a_plan_shows_what_waits() -> None:
    table = create()
    stage(table, rows((1, "x")), 1)
    assert "bucket-postpone: 1 files" in repr(table.compact(plan_only=True))


def test_a_dedicated_compaction_gives_rows_their_buckets() -> None:
    table = create()
    stage(table, rows((1, "x")), 1)
    stage(table, rows((1, "y"), (2, "y")), 2)
    tended = table.keep_compacted(max_rounds=3)
    assert shown(table) == [("a", 1, "y"), ("a", 2, "y")]
    assert tended.commits == 1


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sequence__field": "v"},
        {"merge_engine": "partial-update"},
        {"merge_engine": "aggregation", "fields__v__aggregate_function": "max"},
        {"merge_engine": "first-row"},
    ],
    ids=["deduplicate", "sequence", "partial-update", "aggregation", "first-row"],
)
def test_merging_on_read_shows_what_a_compaction_will_make(options: dict[str, str]) -> None:
    table = create(partitioned=True, postpone__target_row_num_per_bucket="4", **options)
    table.write([*rows(*((n, f"m{n}") for n in range(10))), *rows((1, "b"), dt="b")])
    stage(table, [*rows(*((n, "a") for n in range(3, 14))), *rows((7, "z"), (7, "c"))], 1)
    stage(table, rows((3, "q"), (1, "r"), dt="c"), 2)
    wanted = merged(table)
    where = table.with_options(MERGED).scan(where="v >= 'm'")
    assert {row["id"] for row in where.to_arrow().to_pylist()} == {number for _, number, v in wanted if v >= "m"}
    assert table.with_options(MERGED).scan().count() == len(wanted)
    table.compact(full=True)
    assert shown(table) == wanted
    assert len(wanted) == 17


def test_rows_that_wait_are_newer_also_where_files_of_a_bucket_share_sequence_numbers() -> None:
    table = create(postpone__default_bucket_num="1", write_only="true")
    # as two jobs of others leave them, which do not look at each other's numbers
    for word in ("one", "two"):
        writer = table.new_write()
        writer.write(rows(*((n, word) for n in range(9))))
        messages = [replace(message, base_snapshot_id=None) for message in writer.prepare_commit()]
        shifted = word == "two" and [
            replace(each, data=replace(each.data, new_files=tuple(_renumbered(f) for f in each.data.new_files)))
            for each in messages
        ]
        table.new_commit().commit(shifted or messages)
    spans = facts(table, "min_sequence", "max_sequence")
    assert spans[0][1] >= spans[1][0]
    stage(table, rows((5, "new"), (8, "new")), 1)
    assert [number for _, number, v in merged(table) if v == "new"] == [5, 8]


def _renumbered(file: DataFile) -> DataFile:
    """The metadata of a file that claims to begin where others are."""
    return replace(file, min_sequence=0)


# ------------------------------------------------------------------------------------------------ far too few buckets


def test_a_partition_gets_more_buckets_only_if_it_needs_many_times_those_it_has() -> None:
    options = PostponeOptions.parse({"postpone.target-row-num-per-bucket": "10"})
    assert options.more_buckets_for(1, rows=320, size=0) is None
    assert options.more_buckets_for(1, rows=321, size=0) == 64
    assert options.more_buckets_for(2, rows=640, size=0) is None
    few = PostponeOptions.parse(
        {
            "postpone.target-row-num-per-bucket": "1",
            "postpone.batch-write-fixed-bucket.rescale-load-factor": "1",
            "postpone.batch-write-fixed-bucket.max-parallelism": "4",
        }
    )
    assert few.more_buckets_for(2, rows=3, size=0) == 4
    assert few.more_buckets_for(4, rows=9, size=0) is None  # there may be no more
    assert PostponeOptions.parse({"postpone.default-bucket-num": "64"}).more_buckets_for(1, rows=9, size=9) is None


def test_a_batch_rescales_partitions_with_far_too_few_buckets_first_and_an_overwrite_does_not() -> None:
    factor = {"postpone__batch_write_fixed_bucket__rescale_load_factor": "2"}
    table = create(partitioned=True, postpone__target_row_num_per_bucket="4", **factor)
    table.write([*rows((0, "old"), dt="a"), *rows((0, "old"), dt="b")])
    stage(table, rows((7, "waits"), dt="a"), 1)
    table.write([*rows(*((n, "new") for n in range(9)), dt="a"), *rows(*((n, "new") for n in range(8)), dt="b")])
    real = [(bucket, total) for bucket, total in facts(table, "bucket", "total_buckets") if bucket >= 0]
    assert {total for _, total in real} == {1, 4}
    kinds = [table.store.snapshots.get(n).commit_kind for n in range(3, 5)]
    assert kinds == [CommitKind.OVERWRITE, CommitKind.APPEND]
    assert len(shown(table)) == 17
    assert len(merged(table)) == 17  # the row that waits is one of them
    assert ("a", 7, "waits") in merged(table)
    table.write(rows(*((n, "all") for n in range(40)), dt="b"), mode="overwrite")
    assert table.latest_snapshot().id == 5


def test_a_rescale_that_another_job_overtakes_leaves_the_buckets_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {
        "postpone__batch_write_fixed_bucket__rescale_load_factor": "1",
        "postpone__target_row_num_per_bucket": "2",
    }
    table = create(**options)
    table.write(rows((0, "old")))

    def overtaken(*_: object) -> None:
        raise CommitConflictError("others were faster")

    monkeypatch.setattr(Table, "_run_rescale", overtaken)
    table.write(rows(*((n, "new") for n in range(9))))
    assert {total for (total,) in facts(table, "total_buckets")} == {1}
    assert len(shown(table)) == 9


# ------------------------------------------------------------------------------------------------ streams


def told(table: Table, **how: Any) -> list[tuple[int, list[tuple[str, int, str]]]]:
    steps = table.follow(timeout=0, **how)
    return [
        (step.snapshot_id, [(row["rowkind"], row["id"], row["v"]) for row in step.to_arrow().to_pylist()])
        for step in steps
    ]


def test_a_stream_without_a_changelog_is_told_of_rows_when_they_wait() -> None:
    table = create()
    stage(table, rows((1, "x"), (2, "x")), 1)
    stage(table, [*rows((1, "y"), kind="+U"), *rows((2, "x"), kind="-D"), *rows((1, "z"), kind="+U")], 2)
    came = [(1, [("+I", 1, "x"), ("+I", 2, "x")]), (2, [("+U", 1, "y"), ("-D", 2, "x"), ("+U", 1, "z")])]
    assert told(table, start="earliest") == came
    table.compact()
    stage(table, rows((3, "w")), 3)
    assert told(table, start="earliest") == [*came, (4, [("+I", 3, "w")])]
    chosen = [row for _, found in told(table, start="earliest", where="id = 1") for row in found]
    assert chosen == [("+I", 1, "x"), ("+U", 1, "y"), ("+U", 1, "z")]


def test_a_stream_that_begins_with_the_whole_state_misses_no_row_that_waits() -> None:
    table = create(partitioned=True)
    stage(table, rows((1, "x"), (2, "x")), 1)
    table.compact()
    stage(table, rows((1, "y"), kind="+U"), 2)
    stage(table, rows((2, "x"), kind="-D"), 3)
    stage(table, rows((9, "b"), dt="b"), 4)
    stream = table.follow(timeout=0, poll=0)
    first = next(stream)
    assert first.full
    found = [(row["rowkind"], row["dt"], row["id"], row["v"]) for row in first.to_arrow().to_pylist()]
    assert found[:2] == [("+I", "a", 1, "x"), ("+I", "a", 2, "x")]
    assert found[2:] == [("+U", "a", 1, "y"), ("-D", "a", 2, "x"), ("+I", "b", 9, "b")]
    assert first.rows.count() == 5
    table.compact()
    stage(table, rows((3, "z")), 5)
    assert [ids for step in stream for ids in step.to_arrow().column("id").to_pylist()] == [3]


@pytest.mark.parametrize("producer", ["input", "lookup", "full-compaction"])
def test_a_stream_of_a_changelog_is_told_once_when_rows_get_their_buckets(producer: str) -> None:
    table = create(changelog_producer=producer)
    stage(table, rows((1, "x")), 1)
    assert told(table, start="earliest") == []
    assert told(table) == [(1, [])]
    table.compact(full=True)
    assert told(table, start="earliest") == [(2, [("+I", 1, "x")])]


def test_changes_between_snapshots_are_those_of_buckets() -> None:
    table = create()
    stage(table, rows((1, "x")), 1)
    table.write(rows((2, "y")))
    assert [row["id"] for row in table.changes(0).to_arrow().to_pylist()] == [2]
