"""Strict mode: fail instead of building on what others changed."""

from __future__ import annotations

import pytest

from kit.small_tables import compaction, file, message, new_table, vectors
from tidelake.errors import CommitConflictError, NotFoundError
from tidelake.ops.commit.changes import split_messages
from tidelake.ops.commit.strict import check_strict
from tidelake.spec.documents.snapshot import CommitKind


@pytest.fixture
def table():
    made = new_table()
    them = made.new_commit("them")
    them.commit([message("a"), message("b", dt="d2")])  # 1
    them.commit([compaction((file("a"),), (file("a2"),))])  # 2
    them.commit([message("c", dt="d2")])  # 3
    them.overwrite([message("z", dt="d3")])  # 4
    return made


def check(table, *messages, kind=CommitKind.APPEND, last_safe=0, user="us") -> None:
    written, _ = split_messages(messages, default_buckets=-1)
    check_strict(table.store, written, kind, user=user, last_safe=last_safe, latest=table.latest_snapshot())


def test_a_compaction_of_the_same_partition_stops_a_commit():
    made = new_table()
    made.new_commit("them").commit([message("a")])
    made.new_commit("them").commit([compaction((file("a"),), (file("a2"),))])
    with pytest.raises(CommitConflictError) as caught:
        check(made, message("new"))
    assert caught.value.code == "strict-mode"
    assert (caught.value.facts["snapshot_id"], caught.value.facts["base_user"]) == ("2", "them")


def test_snapshots_up_to_the_safe_one_and_other_partitions_do_not_matter(table):
    check(table, message("new"), last_safe=2)
    check(table, message("new", dt="d2"))
    check(table, message("new", dt="elsewhere"))


def test_own_snapshots_do_not_matter(table):
    check(table, message("new"), user="them")


def test_an_overwrite_minds_appends_too(table):
    check(table, message("new", dt="d2"), last_safe=2)
    with pytest.raises(CommitConflictError):
        check(table, message("new", dt="d2"), kind=CommitKind.OVERWRITE, last_safe=2)


def test_an_overwrite_of_others_stops_a_commit(table):
    with pytest.raises(CommitConflictError):
        check(table, message("new", dt="d3"), last_safe=3)


def test_deletion_vectors_of_others_stop_a_commit():
    made = new_table()
    them = made.new_commit("them")
    them.commit([message("a")])
    them.commit([message(new_index_files=(vectors("v", "a"),))])
    with pytest.raises(CommitConflictError):
        check(made, message("new"), last_safe=1)
    check(made, message("new", dt="d2"), last_safe=1)


def test_a_snapshot_that_has_expired_leaves_nobody_to_ask(table):
    table.store.env.io.delete("snapshot/snapshot-2")
    with pytest.raises(NotFoundError):
        check(table, message("new"))
