"""Snapshots, schemas and progress documents in storage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelake.errors import FormatError, InvalidInputError, NotFoundError
from tidelake.io.fileio import Created, Exists
from tidelake.spec.documents.progress import CommitProgress, progress_to_json
from tidelake.spec.documents.snapshot import CommitKind, Snapshot, snapshot_to_json
from tidelake.spec.layout import TableLayout
from tidelake.spec.schemas.schema import new_schema
from tidelake.store.commit_progress import ProgressStore
from tidelake.store.schemas import SchemaStore
from tidelake.store.snapshots import SnapshotStore
from tidelake.testing import MemoryFileIO, TracingFileIO

SNAPSHOT = Snapshot(
    id=1,
    schema_id=0,
    base_manifest_list="a",
    delta_manifest_list="b",
    commit_user="u",
    commit_identifier=1,
    commit_kind=CommitKind.APPEND,
    time_ms=1,
    total_record_count=0,
    delta_record_count=0,
)
SCHEMA = new_schema({"a": "INT"}, time_ms=1)


@pytest.fixture
def io() -> TracingFileIO:
    return TracingFileIO(MemoryFileIO())


@pytest.fixture
def snapshots(io) -> SnapshotStore:
    store = SnapshotStore(io, TableLayout())
    for number in (1, 2, 3):
        assert store.publish(replace(SNAPSHOT, id=number)) == Created()
    return store


def test_an_empty_table_has_no_snapshot(io):
    store = SnapshotStore(io, TableLayout())
    assert (store.latest(), store.latest_id(), store.earliest_id(), store.ids()) == (None, None, None, [])
    assert list(store.newest_first()) == []


def test_the_newest_snapshot_is_found_with_or_without_hints(snapshots, io):
    assert snapshots.latest().id == 3
    snapshots.hint_latest(3)
    assert snapshots.latest().id == 3
    for bad in (b"1", b"99", b"", b"junk", b"\xff"):
        io.overwrite("snapshot/LATEST", bad)
        assert snapshots.latest().id == 3, bad


def test_a_published_id_is_taken_for_ever(snapshots):
    assert snapshots.publish(replace(SNAPSHOT, id=3, commit_user="other")) == Exists()
    assert snapshots.get(3).commit_user == "u"


def test_a_missing_snapshot_is_named(snapshots):
    with pytest.raises(NotFoundError) as caught:
        snapshots.get(9)
    assert caught.value.code == "snapshot-not-found"
    assert snapshots.find(9) is None
    assert snapshots.exists(2)
    assert not snapshots.exists(9)


def test_a_damaged_head_is_never_skipped(snapshots, io):
    io.overwrite("snapshot/snapshot-3", b"")
    with pytest.raises(FormatError):
        snapshots.latest()
    with pytest.raises(FormatError):
        snapshots.find(3)


def test_a_snapshot_under_the_name_of_another_is_refused(snapshots, io):
    io.overwrite("snapshot/snapshot-3", snapshot_to_json(SNAPSHOT))
    with pytest.raises(FormatError, match="differs from its file name"):
        snapshots.latest()


def test_walking_back_ends_at_the_first_that_is_gone(snapshots, io):
    assert [snapshot.id for snapshot in snapshots.newest_first()] == [3, 2, 1]
    assert [snapshot.id for snapshot in snapshots.newest_first(down_to=2)] == [3, 2]
    io.delete("snapshot/snapshot-2")
    assert [snapshot.id for snapshot in snapshots.newest_first()] == [3]
    assert snapshots.ids() == [1, 3]


# ------------------------------------------------------------------------------------------------ schemas


def test_schemas_are_read_once_and_the_highest_is_current(io):
    store = SchemaStore(io, TableLayout())
    assert store.latest() is None
    assert store.publish(SCHEMA) == Created()
    assert store.publish(SCHEMA) == Exists()
    assert store.latest() == SCHEMA
    reads = [op for op in io.ops if op.name == "read"]
    assert store.get(0) == SCHEMA
    assert [op for op in io.ops if op.name == "read"] == reads
    other = SchemaStore(io, TableLayout())
    assert other.publish(replace(SCHEMA, id=1)) == Created()
    assert store.latest_id() == 1
    assert store.ids() == [0, 1]


def test_a_schema_that_something_refers_to_must_be_there(io):
    store = SchemaStore(io, TableLayout())
    with pytest.raises(FormatError, match="schema file is missing"):
        store.get(5)
    with pytest.raises(NotFoundError):
        store.read(5)


def test_forgetting_reads_again(io):
    store = SchemaStore(io, TableLayout())
    store.publish(SCHEMA)
    store.get(0)
    io.overwrite("schema/schema-0", b"{}")
    assert store.get(0) == SCHEMA
    store.forget()
    with pytest.raises(FormatError):
        store.get(0)


def test_each_branch_has_documents_of_its_own(io):
    SchemaStore(io, TableLayout()).publish(SCHEMA)
    assert SchemaStore(io, TableLayout(branch="b")).latest() is None
    with pytest.raises(InvalidInputError):
        TableLayout(branch="../b")


# ------------------------------------------------------------------------------------------------ progress


def test_progress_comes_back_and_is_empty_before(io):
    store = ProgressStore(io, TableLayout())
    assert store.read("u") == CommitProgress(user="u")
    store.write(CommitProgress(user="u", committed=4, after=2))
    store.write(CommitProgress(user="u", committed=5, after=3))
    assert store.read("u").committed == 5
    assert store.read("v") == CommitProgress(user="v")


def test_a_document_of_another_user_is_not_believed(io):
    store = ProgressStore(io, TableLayout())
    io.overwrite(store.path("u"), progress_to_json(CommitProgress(user="other", committed=9)))
    assert store.read("u") == CommitProgress(user="u")


@pytest.mark.parametrize("data", [b"", b"{", b"{}", b"x" * (1 << 17)])
def test_a_damaged_progress_document_is_said_and_not_guessed(io, data):
    store = ProgressStore(io, TableLayout())
    io.overwrite(store.path("u"), data)
    with pytest.raises(FormatError):
        store.read("u")


@pytest.mark.parametrize("user", ["../..", "a/b", "\x00", "", "x" * 5_000])
def test_any_user_has_a_path_in_the_progress_folder(io, user):
    store = ProgressStore(io, TableLayout(branch="b"))
    folder, _, name = store.path(user).rpartition("/")
    assert folder == "branch/branch-b/progress"
    assert "/" not in name
    assert len(name) < 120
