"""May this change go on top of that state?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kit.small_tables import compaction, file, index_entry, message, ranged, row, vectors
from tidelake.errors import CommitConflictError
from tidelake.ops.commit.changes import Changes, IndexChange, split_messages
from tidelake.ops.commit.conflicts import (
    Context,
    check_bucket_counts,
    check_conflicts,
    combine_index,
    discard_duplicates,
)
from tidelake.spec.manifests.index_manifest import HASH, IndexFile
from tidelake.spec.manifests.manifest import ADD, DELETE, empty_entries, entries_table
from tidelake.spec.types.data_types import INT

CONTEXT = Context(
    base_user="them",
    commit_user="us",
    overwrite=False,
    key_types=[INT],
    ordered_levels=True,
)


def state(*files, dt: str = "d1", bucket: int = 0, total: int = 1):
    return entries_table([(ADD, row(dt), bucket, total, each) for each in files])


def changes(*messages) -> Changes:
    written, compacted = split_messages(messages, default_buckets=1)
    return compacted if written.is_empty else written


def check(base, *messages, index=(), **context) -> None:
    check_conflicts(base, changes(*messages), index, replace(CONTEXT, **context))


def refused(base, *messages, index=(), **context) -> CommitConflictError:
    with pytest.raises(CommitConflictError) as caught:
        check(base, *messages, index=index, **context)
    return caught.value


def test_appends_of_two_jobs_go_together():
    check(state(file("a")), message("b", total=1))


def test_a_file_that_is_there_cannot_be_added():
    error = refused(state(file("a")), message("a", total=1))
    assert error.code == "file-conflict"
    assert error.facts["file"] == "a"
    assert error.facts["base_user"] == "them"


def test_a_file_that_is_gone_cannot_be_deleted():
    error = refused(state(file("b")), compaction((file("a"),), (file("c"),), total=1))
    assert error.code == "file-deleted"
    assert "a" in error.facts["files"]


def test_a_file_moved_to_another_level_is_another_file():
    check(
        state(ranged("a", 1, 2, level=0)),
        compaction((ranged("a", 1, 2, level=0),), (ranged("a", 1, 2, level=3),), total=1),
    )
    refused(
        state(ranged("a", 1, 2, level=3)),
        compaction((ranged("a", 1, 2, level=0),), (ranged("a", 1, 2, level=4),), total=1),
    )


@pytest.mark.parametrize(
    "twice",
    [
        compaction((file("a"),), (file("a"),), total=1),
        message("a", deleted_files=(file("a"),), total=1),
        message("b", deleted_files=(file("b"),), total=1),
    ],
    ids=["compacted into itself", "deleted and added", "added and deleted"],
)
def test_a_commit_must_not_name_one_file_twice_because_readers_may_lose_it(twice):
    error = refused(state(file("a")), twice)
    assert error.code == "file-conflict"
    assert error.message == "commit names one file twice"


def test_sorted_runs_must_not_overlap():
    error = refused(state(ranged("a", 1, 5)), compaction((), (ranged("b", 5, 9),), total=1))
    assert error.code == "key-range"
    assert error.facts["level"] == "1"
    check(state(ranged("a", 1, 5)), compaction((), (ranged("b", 6, 9),), total=1))


@pytest.mark.parametrize(
    "other",
    [
        compaction((), (ranged("b", 2, 3, level=2),), total=1),
        compaction((), (ranged("b", 2, 3),), bucket=1, total=1),
        compaction((), (ranged("b", 2, 3),), dt="d2", total=1),
        message(ranged("b", 2, 3, level=0), total=1),
    ],
    ids=["level", "bucket", "partition", "level 0"],
)
def test_ranges_elsewhere_may_overlap(other):
    check(state(ranged("a", 1, 5)), other)


def test_replacing_a_run_by_its_merger_is_fine():
    before = (ranged("a", 1, 5), ranged("b", 6, 9))
    check(state(*before), compaction(before, (ranged("c", 1, 9),), total=1))


def test_tables_without_keys_have_no_order_to_keep():
    check(state(file("a", level=1)), compaction((), (file("b", level=1),), total=1), ordered_levels=False, key_types=[])


def test_two_bucket_counts_in_one_partition_are_refused_unless_it_is_overwritten():
    error = refused(state(file("a"), total=4), message("b", total=8))
    assert error.code == "bucket-count"
    assert (error.facts["previous"], error.facts["new"]) == ("4", "8")
    check(state(file("a"), total=4), message("b", total=8), overwrite=True)
    check(state(file("a"), total=4), message("b", total=-1))
    check(state(file("a"), dt="d2", total=4), message("b", total=8))


def test_a_first_commit_is_looked_at_too():
    with pytest.raises(CommitConflictError):
        check_bucket_counts(changes(message("a", total=1), message("b", total=2)).delta, CONTEXT)
    check_bucket_counts(empty_entries(), CONTEXT)


def test_files_that_are_there_are_dropped_where_that_is_wanted():
    delta = changes(message("a", "b", total=1)).delta
    assert discard_duplicates(delta, state(file("a")))["file_name"].to_pylist() == ["b"]
    gone = changes(compaction((file("a"),), (), total=1)).delta
    assert discard_duplicates(gone, state(file("a"))).num_rows == 1


# ------------------------------------------------------------------------------------------------ index files


def change(kind: int, index_file: IndexFile, **place) -> IndexChange:
    return IndexChange(kind, index_entry(index_file, **place))


HASHES = IndexFile(index_type=HASH, file_name="h1", file_size=1, row_count=1)


def combined(previous, *made, by_file: bool) -> list[str]:
    return [entry.file.file_name for entry in combine_index(previous, made, vectors_by_file=by_file)]


def test_a_hash_index_replaces_the_one_of_its_bucket_that_it_names():
    previous = [index_entry(HASHES), index_entry(replace(HASHES, file_name="other"), bucket=1)]
    made = (change(ADD, replace(HASHES, file_name="h2")), change(DELETE, HASHES))
    assert sorted(combined(previous, *made, by_file=False)) == ["h2", "other"]


@pytest.mark.parametrize("named", [None, "h0"])
def test_a_hash_index_that_names_another_or_none_where_one_is_drops_keys_and_is_refused(named):
    made = [change(ADD, replace(HASHES, file_name="h2"))]
    made += [] if named is None else [change(DELETE, replace(HASHES, file_name=named))]
    with pytest.raises(CommitConflictError) as caught:
        combine_index([index_entry(HASHES)], made, vectors_by_file=False)
    assert caught.value.code == "index-conflict"


def test_the_vectors_of_a_bucket_are_replaced_and_others_stay():
    previous = [index_entry(vectors("v1", "a")), index_entry(vectors("v2", "b"), bucket=1)]
    made = (change(DELETE, vectors("v1", "a")), change(ADD, vectors("v3", "a")))
    assert sorted(combined(previous, *made, by_file=False)) == ["v2", "v3"]


def test_vectors_of_a_table_without_buckets_are_known_by_their_file():
    previous = [index_entry(vectors("v1", "a"))]
    assert combined(previous, change(ADD, vectors("v2", "b")), by_file=True) == ["v1", "v2"]
    made = (change(DELETE, vectors("v1", "a")), change(ADD, vectors("v2", "a", "b")))
    assert combined(previous, *made, by_file=True) == ["v2"]


@pytest.mark.parametrize(
    "made",
    [
        (change(DELETE, vectors("gone", "a")),),
        (change(ADD, vectors("v1", "b")),),
        (change(ADD, vectors("v2", "a")),),
    ],
    ids=["delete what is gone", "add what is there", "two vectors for one file"],
)
def test_vectors_that_contradict_the_state_are_refused(made):
    with pytest.raises(CommitConflictError) as caught:
        combine_index([index_entry(vectors("v1", "a"))], made, vectors_by_file=True)
    assert caught.value.code == "index-conflict"


def test_two_jobs_that_delete_rows_of_one_file_collide():
    base, index = state(file("a"), total=-1), [index_entry(vectors("theirs", "a"))]
    ours = message(deleted_index_files=(), new_index_files=(vectors("ours", "a"),))
    assert refused(base, ours, index=index, ordered_levels=False)
    based = message(deleted_index_files=(vectors("theirs", "a"),), new_index_files=(vectors("ours", "a"),))
    check(base, based, index=index, ordered_levels=False)


def test_a_job_that_builds_on_replaced_vectors_collides():
    base, index = state(file("a"), total=-1), [index_entry(vectors("newer", "a"))]
    stale = message(deleted_index_files=(vectors("older", "a"),), new_index_files=(vectors("ours", "a"),))
    assert refused(base, stale, index=index, ordered_levels=False)


def test_vectors_of_different_files_do_not_collide():
    base, index = state(file("a"), file("b"), total=-1), [index_entry(vectors("theirs", "a"))]
    check(base, message(new_index_files=(vectors("ours", "b"),)), index=index, ordered_levels=False)


def test_files_without_a_part_in_it_do_not_matter_to_a_change_of_vectors():
    base, index = state(file("a"), file("b"), file("c"), total=-1), [index_entry(vectors("theirs", "a", "b"))]
    ours = message(deleted_index_files=(vectors("theirs", "a", "b"),), new_index_files=(vectors("ours", "a", "b"),))
    check(base, ours, index=index, ordered_levels=False)
    elsewhere = [index_entry(vectors("theirs", "a"), dt="d2")]
    check(base, message(new_index_files=(vectors("ours", "a"),)), index=elsewhere)


def test_a_file_is_deleted_together_with_the_vector_it_has():
    base, index = state(file("a"), total=-1), [index_entry(vectors("v", "a"))]
    knowing = message("b", deleted_files=(file("a"),), deleted_index_files=(vectors("v", "a"),))
    check(base, knowing, index=index, ordered_levels=False)
    unaware = message("b", deleted_files=(file("a"),))
    error = refused(base, unaware, index=index, ordered_levels=False)
    assert error.code == "file-deleted"


def test_old_vectors_that_contradict_each_other_do_not_stop_other_commits():
    previous = [index_entry(vectors("v1", "a")), index_entry(vectors("v2", "a"))]
    assert combined(previous, change(ADD, vectors("v3", "b")), by_file=True) == ["v1", "v2", "v3"]
