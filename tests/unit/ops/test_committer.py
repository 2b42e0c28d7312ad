"""What a commit does to a table, seen from outside: in memory, with a clock that does not wait."""

from __future__ import annotations

import pytest

import tidelake as tl
from kit.small_tables import with_foreign_options
from kit.verb_samples import added, compacted, day, names, new_file, table
from tidelake.ops.commit.messages import BATCH_IDENTIFIER, CommitMessage, DataIncrement
from tidelake.ops.placement.dynamic_buckets import index_state
from tidelake.spec.manifests.index_manifest import DELETION_VECTORS, HASH, DeletionVectorRange, IndexFile


def test_an_append_makes_one_snapshot_with_its_counts() -> None:
    t = table()
    result = t.new_commit("u").commit([added(new_file("a", row_count=7, file_size=70))], watermark=5)
    snapshot = t.latest_snapshot()
    assert snapshot is not None
    assert (result.snapshot_ids, result.rows, result.files, result.bytes) == ((1,), 7, 1, 70)
    assert (snapshot.id, snapshot.total_record_count, snapshot.delta_record_count) == (1, 7, 7)
    assert (snapshot.watermark, snapshot.commit_user, snapshot.commit_identifier) == (5, "u", BATCH_IDENTIFIER)
    assert names(t) == {"a"}


def test_written_and_compacted_files_make_two_snapshots_with_one_identifier() -> None:
    t = table(keyed=True)
    commit = t.new_commit("u")
    old = [new_file(f"o{i}", keys=(0, 9), min_sequence=i, max_sequence=i) for i in range(2)]
    commit.commit([added(*old, total=1)], identifier=1)
    merged = new_file("m", level=5, keys=(0, 9))
    fresh = new_file("n", keys=(3, 4), min_sequence=2, max_sequence=2)
    both = CommitMessage(
        partition=bytes(12),
        bucket=0,
        total_buckets=1,
        data=DataIncrement(new_files=(fresh,)),
        compact=compacted(tuple(old), (merged,), total=1).compact,
    )
    assert commit.commit([both], identifier=2).snapshot_ids == (2, 3)
    kinds = t.inspect.snapshots().column("commit_kind").to_pylist()
    assert kinds == ["APPEND", "APPEND", "COMPACT"]
    assert names(t) == {"n", "m"}


def test_a_repeated_numbered_commit_changes_nothing() -> None:
    t = table()
    commit = t.new_commit("job")
    commit.commit([added(new_file("a"))], identifier=1)
    again = t.new_commit("job").commit([added(new_file("b"))], identifier=1)
    assert again.repeated
    assert again.snapshot_ids == ()
    assert names(t) == {"a"}


def test_an_older_identifier_is_a_repeat_too() -> None:
    t = table()
    t.new_commit("job").commit([added(new_file("a"))], identifier=5)
    assert t.new_commit("job").commit([added(new_file("b"))], identifier=3).repeated
    assert t.new_commit("job").filter_committed([3, 5, 6]) == [6]


def test_a_batch_commit_of_the_same_user_does_not_hide_numbered_ones() -> None:
    t = table()
    commit = t.new_commit("job")
    commit.commit([added(new_file("a"))], identifier=1)
    commit.commit([added(new_file("b"))])
    assert not commit.commit([added(new_file("c"))], identifier=2).repeated
    assert names(t) == {"a", "b", "c"}


def test_an_empty_batch_commit_makes_no_snapshot_and_an_empty_numbered_one_does() -> None:
    t = table()
    assert t.new_commit().commit([]).snapshot_ids == ()
    assert t.latest_snapshot() is None
    assert t.new_commit("job").commit([], identifier=1).snapshot_ids == (1,)
    quiet = table(options={"snapshot.ignore-empty-commit": "true"})
    assert quiet.new_commit("job").commit([], identifier=1).snapshot_ids == ()


def test_a_compaction_of_files_that_are_gone_is_refused_and_names_them() -> None:
    t = table(keyed=True)
    old = new_file("o", keys=(0, 9))
    t.new_commit("a").commit([added(old, total=1)])
    t.new_commit("b").commit([compacted((old,), (new_file("x", level=5, keys=(0, 9)),), total=1)])
    with pytest.raises(tl.CommitConflictError, match="already gone") as refused:
        t.new_commit("c").commit([compacted((old,), (new_file("y", level=5, keys=(0, 9)),), total=1)])
    assert "o" in str(refused.value)
    assert names(t) == {"x"}


def test_a_lost_compaction_after_a_published_append_does_not_fail_the_caller() -> None:
    t = table(keyed=True)
    old = new_file("o", keys=(0, 9))
    t.new_commit("a").commit([added(old, total=1)])
    t.new_commit("b").commit([compacted((old,), (new_file("x", level=5, keys=(0, 9)),), total=1)])
    message = CommitMessage(
        partition=bytes(12),
        bucket=0,
        total_buckets=1,
        data=DataIncrement(new_files=(new_file("n", keys=(1, 1), min_sequence=9, max_sequence=9),)),
        compact=compacted((old,), (new_file("y", level=5, keys=(0, 9)),), total=1).compact,
    )
    result = t.new_commit("c").commit([message])
    assert result.compaction_lost
    assert len(result.snapshot_ids) == 1
    assert names(t) == {"x", "n"}


def test_overlapping_files_of_one_level_are_refused() -> None:
    t = table(keyed=True)
    t.new_commit("a").commit([compacted((), (new_file("x", level=5, keys=(0, 9)),), total=1)])
    with pytest.raises(tl.CommitConflictError, match="overlapping") as refused:
        t.new_commit("b").commit([compacted((), (new_file("y", level=5, keys=(9, 12)),), total=1)])
    assert refused.value.code == "key-range"
    t.new_commit("b").commit([compacted((), (new_file("y", level=5, keys=(10, 12)),), total=1)])
    assert names(t) == {"x", "y"}


def test_two_bucket_counts_in_one_partition_are_refused() -> None:
    t = table(options={"bucket": "2", "bucket-key": "id"})
    with pytest.raises(tl.CommitConflictError) as refused:
        t.new_commit().commit([added(new_file(), total=2), added(new_file(), total=4)])
    assert refused.value.code == "bucket-count"
    assert t.latest_snapshot() is None


class TestOverwrite:
    def test_a_static_overwrite_replaces_the_named_partition_only(self) -> None:
        t = table(partitioned=True)
        commit = t.new_commit()
        commit.commit([added(new_file("a"), partition=day("x")), added(new_file("b"), partition=day("y"))])
        commit.overwrite([added(new_file("c"), partition=day("x"))], {"dt": "x"}, dynamic=False)
        assert names(t) == {"b", "c"}

    def test_a_static_overwrite_without_files_empties_the_partition(self) -> None:
        t = table(partitioned=True)
        commit = t.new_commit()
        commit.commit([added(new_file("a"), partition=day("x")), added(new_file("b"), partition=day("y"))])
        commit.overwrite([], {"dt": "x"}, dynamic=False)
        assert names(t) == {"b"}

    def test_a_null_partition_is_named_by_none(self) -> None:
        t = table(partitioned=True)
        commit = t.new_commit()
        commit.commit([added(new_file("a"), partition=day(None)), added(new_file("b"), partition=day("y"))])
        commit.overwrite([], {"dt": None}, dynamic=False)
        assert names(t) == {"b"}

    def test_a_dynamic_overwrite_replaces_the_partitions_with_new_files(self) -> None:
        t = table(partitioned=True)
        commit = t.new_commit()
        commit.commit([added(new_file("a"), partition=day("x")), added(new_file("b"), partition=day("y"))])
        commit.overwrite([added(new_file("c"), partition=day("y"))])
        assert names(t) == {"a", "c"}
        assert commit.overwrite([]).snapshot_ids == ()

    def test_a_file_outside_the_overwritten_partition_is_refused(self) -> None:
        t = table(partitioned=True)
        with pytest.raises(tl.InvalidInputError, match="outside the partitions"):
            t.new_commit().overwrite([added(new_file(), partition=day("y"))], {"dt": "x"}, dynamic=False)

    def test_truncate_deletes_everything_and_says_so(self) -> None:
        t = table(partitioned=True)
        t.new_commit().commit([added(new_file("a"), partition=day("x"))])
        t.new_commit().truncate()
        snapshot = t.latest_snapshot()
        assert snapshot is not None
        assert (names(t), snapshot.operation, snapshot.total_record_count) == (set(), "TRUNCATE", 0)

    def test_level_0_files_that_do_not_overlap_are_put_on_the_top_level(self) -> None:
        t = table(keyed=True)
        t.new_commit().overwrite([added(new_file("a", keys=(0, 4)), new_file("b", keys=(5, 9)), total=1)])
        assert set(t.files().column("level").to_pylist()) == {5}
        t.new_commit().overwrite([added(new_file("c", keys=(0, 5)), new_file("d", keys=(5, 9)), total=1)])
        assert set(t.files().column("level").to_pylist()) == {0}

    def test_index_files_of_overwritten_partitions_go_too(self) -> None:
        t = table(keyed=True, options={"bucket": "-1"})
        index = IndexFile(index_type=HASH, file_name="index-1", file_size=4, row_count=1)
        message = CommitMessage(
            partition=bytes(12),
            bucket=0,
            total_buckets=-1,
            data=DataIncrement(new_files=(new_file("a", keys=(1, 1)),), new_index_files=(index,)),
            assigned_on=index_state({}),
        )
        t.new_commit().commit([message])
        assert t.latest_snapshot().index_manifest is not None  # type: ignore[union-attr]
        t.new_commit().truncate()
        assert t.latest_snapshot().index_manifest is None  # type: ignore[union-attr]


def test_two_deletes_on_one_file_of_a_table_without_buckets_collide() -> None:
    t = table(options={"deletion-vectors.enabled": "true"})
    t.new_commit().commit([added(new_file("a"), new_file("b"))])

    def vector(name: str, data_file: str) -> CommitMessage:
        ranges = (DeletionVectorRange(data_file, 1, 26, 1),)
        index = IndexFile(
            index_type=DELETION_VECTORS, file_name=name, file_size=35, row_count=1, deletion_vectors=ranges
        )
        return CommitMessage(
            partition=bytes(12), bucket=0, total_buckets=-1, data=DataIncrement(new_index_files=(index,))
        )

    t.new_commit().commit([vector("index-1", "a")])
    assert t.latest_snapshot().commit_kind.value == "OVERWRITE"  # type: ignore[union-attr]
    t.new_commit().commit([vector("index-2", "b")])
    with pytest.raises(tl.CommitConflictError):
        t.new_commit().commit([vector("index-3", "a")])


class TestStrictMode:
    def test_an_overwrite_after_a_foreign_append_to_its_partition_is_refused(self) -> None:
        t = table(partitioned=True, options={"commit.strict-mode.last-safe-snapshot": "0"})
        t.new_commit("other").commit([added(new_file("a"), partition=day("x"))])
        with pytest.raises(tl.CommitConflictError) as refused:
            t.new_commit("me").overwrite([added(new_file("b"), partition=day("x"))])
        assert refused.value.code == "strict-mode"
        t.new_commit("me").overwrite([added(new_file("b"), partition=day("y"))])
        assert names(t) == {"a", "b"}

    def test_minus_one_leaves_the_first_commit_unchecked(self) -> None:
        t = table(partitioned=True, options={"commit.strict-mode.last-safe-snapshot": "-1"})
        t.new_commit("other").commit([added(new_file("a"), partition=day("x"))])
        t.new_commit("me").overwrite([added(new_file("b"), partition=day("x"))])
        assert names(t) == {"b"}


def test_duplicate_files_are_dropped_where_the_option_says_so() -> None:
    t = table(options={"commit.discard-duplicate-files": "true"})
    file = new_file("a")
    t.new_commit().commit([added(file)])
    t.new_commit().commit([added(file, new_file("b"))])
    assert names(t) == {"a", "b"}


def test_manifests_are_merged_when_enough_small_ones_have_gathered() -> None:
    t = table(options={"manifest.merge-min-count": "4"})
    commit = t.new_commit()
    for _ in range(9):
        commit.commit([added(new_file())])
    assert t.inspect.manifests().num_rows < 9
    assert len(names(t)) == 9


def test_compact_manifests_publishes_only_when_something_changes() -> None:
    t = table()
    commit = t.new_commit()
    for _ in range(3):
        commit.commit([added(new_file())])
    assert commit.compact_manifests().snapshot_ids == (4,)
    assert t.inspect.manifests().num_rows == 1
    assert commit.compact_manifests().snapshot_ids == ()
    assert len(names(t)) == 3


def test_statistics_of_deletions_are_dropped_where_the_option_says_so() -> None:
    t = table(options={"manifest.delete-file-drop-stats": "true"})
    t.new_commit().commit([added(new_file("a"))])
    t.new_commit().truncate()
    snapshot = t.latest_snapshot()
    assert snapshot is not None
    metas = t.store.manifests.read_list(snapshot.delta_manifest_list)
    entries = t.store.manifests.read_entries(metas)
    assert entries.column("kind").to_pylist() == [1]
    assert entries.column("value_stats_cols").to_pylist() == [[]]


def test_progress_of_numbered_users_is_carried_on_by_later_snapshots() -> None:
    t = table()
    t.new_commit("job").commit([added(new_file())], identifier=4)
    t.new_commit("other").commit([added(new_file())])
    assert t.latest_snapshot().properties["progress.job"] == "4"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("key", "value"), [("row-tracking.enabled", "true"), ("metadata.iceberg.storage", "table-location")]
)
def test_an_option_that_commits_do_not_honour_is_refused_by_name(key: str, value: str) -> None:
    theirs = with_foreign_options(table(), {key: value})
    for act in (theirs.new_commit, lambda: table(options={key: value})):
        with pytest.raises(tl.UnsupportedError) as refused:
            act()
        assert key in str(refused.value)


def test_partitions_are_marked_done_where_the_option_says_so() -> None:
    t = table(partitioned=True, options={"partition.end-input-to-done": "true"})
    t.new_commit().commit([added(new_file(), partition=day("x"))])
    first = t.store.env.io.read("dt=x/_SUCCESS")
    assert b"creationTime" in first
    t.store.env.clock.sleep(1)
    t.new_commit().commit([added(new_file(), partition=day("x"))])
    again = t.store.env.io.read("dt=x/_SUCCESS")
    assert again.splitlines()[1] == first.splitlines()[1]
    assert again != first


@pytest.mark.parametrize("identifier", [True, 1.5, "7", 2**63, -(2**63) - 1])
def test_an_identifier_that_is_no_64_bit_integer_is_refused(identifier: object) -> None:
    with pytest.raises(tl.InvalidInputError):
        table().new_commit("u").commit([], identifier=identifier)  # type: ignore[arg-type]
