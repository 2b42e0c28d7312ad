"""What a commit does when the world is not as it left it: dropped tables, lost answers, expired snapshots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from kit.small_tables import committer, compaction, file, message, names, new_table, other_handle, with_foreign_options
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import (
    CommitConflictError,
    CommitUnknownError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from tidelake.io import Created, MemoryFileIO, Outcome
from tidelake.io.env import Env
from tidelake.io.fileio import Exists
from tidelake.io.ids import SeededIds
from tidelake.ops.commit.messages import Committable
from tidelake.ops.commit.safety import require_exclusive_create
from tidelake.options import TableOptions
from tidelake.spec.avro.container import parse_container
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.table import Table
from tidelake.testing import FakeClock

Act = Callable[[], object]


def batch(*messages) -> Committable:
    return Committable(messages=messages)


def numbered(identifier: int, *messages) -> Committable:
    return Committable(messages=messages, identifier=identifier)


def put(table: Table, *file_names: str) -> None:
    """Make the data files exist."""
    for name in file_names:
        table.store.env.io.write(table.store.layout.data_path("dt=d1", 0, name), b"x" * 100)


# ------------------------------------------------------------------------------------------------ tables made anew


@pytest.fixture
def lake() -> Lake:
    return Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000), SeededIds(1))))


def test_a_handle_of_a_dropped_table_does_not_bring_its_folder_back_to_life(lake):
    lake.create_table("db.t", {"id": "INT"})
    handle = lake.table("db.t")
    lake.drop_table("db.t")
    with pytest.raises(NotFoundError, match="was dropped after it was opened"):
        handle.write([{"id": 1}])
    assert not handle.store.snapshots.exists(1)
    assert lake.create_table("db.t", {"x": "STRING"}).to_arrow().num_rows == 0


def test_rows_for_a_table_that_was_dropped_do_not_land_in_its_successor(lake):
    lake.create_table("db.t", {"id": "INT"})
    handle = lake.table("db.t")
    lake.drop_table("db.t")
    lake.env.clock.advance(5)
    successor = lake.create_table("db.t", {"other": "STRING"})
    with pytest.raises(CommitConflictError) as caught:
        handle.write([{"id": 1}])
    assert caught.value.code == "table-replaced"
    assert successor.to_arrow().num_rows == 0


def test_a_deletion_from_an_empty_table_is_refused_and_the_table_stays_readable():
    table = new_table()
    with pytest.raises(CommitConflictError) as caught:
        committer(table).commit(batch(compaction((file("a"),), (file("b"),))))
    assert caught.value.code == "file-deleted"
    assert names(table) == []


def test_an_overwrite_must_not_bring_a_file_that_it_replaces():
    table = new_table()
    committer(table).commit(batch(message("a")))
    with pytest.raises(CommitConflictError, match="one file twice"):
        committer(table, "other").overwrite(batch(message("a")))
    assert table.latest_snapshot().id == 1


# ------------------------------------------------------------------------------------------------ repeated commits


def test_batch_messages_that_are_committed_twice_do_not_double_the_rows():
    table, mine = new_table(), [message("a")]
    commit = table.new_commit("u")
    commit.commit(mine)
    with pytest.raises(InvalidInputError) as caught:
        commit.commit(mine)
    assert caught.value.code == "committed-before"
    commit.commit([message("b")])
    assert names(table) == ["a", "b"]


@dataclass
class Interrupted:
    """Publishes, with something happening before or an answer lost after."""

    table: Table
    before: Act | None = None
    lost: int = 0

    def publish(self, candidate: Snapshot) -> Outcome:
        if self.before is not None:
            act, self.before = self.before, None
            act()
        outcome = self.table.store.publisher.publish(candidate)
        if self.lost:
            self.lost -= 1
            raise CommitUnknownError("answer was lost", snapshot_id=candidate.id)
        return outcome

    def left_nothing(self, candidate: Snapshot) -> bool:
        return self.table.store.publisher.left_nothing(candidate)


def test_a_batch_commit_repeated_after_a_lost_answer_does_not_double_the_rows():
    table = new_table()
    committer(table, "other").commit(batch(message("x")))
    commit = committer(table, publisher=Interrupted(table, lost=1))
    with pytest.raises(CommitUnknownError):
        commit.commit(batch(message("a")))
    with pytest.raises(CommitConflictError, match="already exists"):
        commit.commit(batch(message("a")))
    assert names(table) == ["a", "x"]
    commit.commit(batch(message("b")))
    assert names(table) == ["a", "b", "x"]


def test_a_numbered_commit_does_not_guess_when_the_snapshots_that_would_tell_have_expired():
    """A job sleeps between planning and publishing; its successor commits the same number, and its snapshot expires."""
    table = new_table()
    committer(table, "job").commit(numbered(1, message("a")))

    def meanwhile() -> None:
        successor = other_handle(table)
        committer(successor, "job").commit(numbered(2, message("b")))
        committer(successor, "x").commit(batch(message("c")))
        for snapshot_id in (1, 2):
            successor.store.env.io.delete(successor.store.layout.snapshot_path(snapshot_id))

    sleeper = committer(table, "job", publisher=Interrupted(table, before=meanwhile))
    with pytest.raises(CommitUnknownError, match="snapshots expired"):
        sleeper.commit(numbered(2, message("again")))
    assert committer(table, "job").commit(numbered(2, message("again"))).repeated
    assert names(table) == ["a", "b", "c"]


def test_a_commit_whose_id_has_expired_meanwhile_is_not_lost_below_the_newest_snapshot():
    """A job sleeps until others have committed and expired the id it is about to take."""

    def meanwhile() -> None:
        other = other_handle(table)
        for name in ("b", "c", "d"):
            committer(other, "x").commit(batch(message(name)))
        for snapshot_id in (1, 2, 3)[:expired]:
            other.store.env.io.delete(other.store.layout.snapshot_path(snapshot_id))

    for expired in (2, 3):
        table = new_table()
        committer(table, "x").commit(batch(message("a")))
        done = committer(table, publisher=Interrupted(table, before=meanwhile)).commit(batch(message("late")))
        assert done.snapshot_ids == (5,)
        assert names(table) == ["a", "b", "c", "d", "late"]
        assert table.store.snapshots.ids()[0] == expired + 1
        assert table.latest_snapshot().id == 5


def test_a_commit_planned_on_a_snapshot_that_was_rolled_back_is_planned_again():
    table = new_table()
    for name in ("a", "b", "c"):
        committer(table, "x").commit(batch(message(name)))

    def rolled_back() -> None:
        for snapshot_id in (2, 3):
            table.store.env.io.delete(table.store.layout.snapshot_path(snapshot_id))

    done = committer(table, publisher=Interrupted(table, before=rolled_back)).commit(batch(message("late")))
    assert done.snapshot_ids == (2,)
    assert table.store.snapshots.ids() == [1, 2]
    assert names(table) == ["a", "late"]


def test_a_commit_that_others_built_on_at_once_stands_though_the_one_before_it_is_gone():
    table = new_table()
    committer(table, "x").commit(batch(message("a")))

    class Quick(Interrupted):
        def publish(self, candidate: Snapshot) -> Outcome:
            outcome = super().publish(candidate)
            if candidate.id == 2:
                other = other_handle(table)
                committer(other, "x").commit(batch(message("c")))
                other.store.env.io.delete(other.store.layout.snapshot_path(1))
            return outcome

    assert committer(table, publisher=Quick(table)).commit(batch(message("b"))).snapshot_ids == (2,)
    assert names(table) == ["a", "b", "c"]


# ------------------------------------------------------------------------------------------------ recovery


def test_recovery_leaves_a_compaction_undone_whose_files_were_cleaned_away():
    table = new_table()
    put(table, "a", "b", "new")
    committer(table, "job").commit(numbered(1, message("a", "b")))
    two = (message("new"), compaction((file("a"), file("b")), (file("merged", row_count=20),)))
    # The first attempt died after its APPEND.
    committer(table, "job").commit(numbered(2, two[0]))
    (result,) = committer(table, "job").recover([numbered(2, *two)])
    assert result.compaction_lost
    assert names(table) == ["a", "b", "new"]


def test_recovery_finishes_a_compaction_whose_files_are_there():
    table = new_table()
    put(table, "a", "b", "new", "merged")
    committer(table, "job").commit(numbered(1, message("a", "b")))
    two = (message("new"), compaction((file("a"), file("b")), (file("merged", row_count=20),)))
    committer(table, "job").commit(numbered(2, two[0]))
    (result,) = committer(table, "job").recover([numbered(2, *two)])
    assert not result.compaction_lost
    assert names(table) == ["merged", "new"]
    table.store.env.io.delete(table.store.layout.data_path("dt=d1", 0, "merged"))
    (again,) = committer(table, "job").recover([numbered(2, *two)])
    assert again.repeated
    assert not again.compaction_lost


def test_a_dynamic_overwrite_without_rows_still_publishes_its_compaction():
    table = new_table()
    committer(table).commit(batch(message("a", "b")))
    result = committer(table).overwrite(batch(compaction((file("a"), file("b")), (file("c", row_count=20),))))
    assert result.snapshot_ids == (2,)
    assert names(table) == ["c"]


@pytest.mark.parametrize("identifier", [2**63, "7", 1.5])
def test_a_truncation_with_an_identifier_that_does_not_fit_is_refused(identifier):
    table = new_table()
    with pytest.raises(InvalidInputError):
        committer(table).truncate(identifier=identifier)
    assert table.latest_snapshot() is None


# ------------------------------------------------------------------------------------------------ options for one use


def test_options_for_one_use_reach_the_commit():
    table = new_table()
    committer(table, "other").commit(batch(message("a")))
    committer(table, "other").commit(batch(compaction((file("a"),), (file("b"),))))
    strict = table.with_options({"commit.strict-mode.last-safe-snapshot": 1})
    with pytest.raises(CommitConflictError) as caught:
        strict.new_commit().commit([message("c")])
    assert caught.value.code == "strict-mode"
    plain = table.with_options({"manifest.compression": "null"})
    plain.new_commit().commit([message("c")])
    store, latest = table.store, table.latest_snapshot()
    (meta,) = store.manifests.read_list(latest.delta_manifest_list)
    data = store.env.io.read(store.layout.manifest_path(meta.file_name))
    assert parse_container(data, path="m").codec == "null"


def test_an_option_for_one_use_that_commits_do_not_honour_is_refused():
    with pytest.raises(UnsupportedError) as caught:
        new_table().with_options({"commit.callbacks": "a.B"}).new_commit()
    assert caught.value.facts["option"] == "commit.callbacks"


def test_a_branch_given_for_one_use_is_the_one_that_is_read_and_written():
    table = new_table()
    store = table.store
    schema = store.env.io.read(store.layout.schema_path(0))
    store.env.io.write("branch/branch-dev/schema/schema-0", schema)
    branch = table.with_options({"branch": "dev"})
    branch.new_commit("u").commit([message("a")])
    assert names(branch) == ["a"]
    assert table.latest_snapshot() is None


def test_a_commit_to_another_branch_than_the_option_of_the_table_says_is_refused():
    theirs = with_foreign_options(new_table(), {"branch": "dev"})
    for act in (theirs.new_commit, lambda: new_table(branch="dev")):
        with pytest.raises(UnsupportedError) as caught:
            act()
        assert caught.value.facts["option"] == "branch"


# ------------------------------------------------------------------------------------------------ storage


class Flatterer(MemoryFileIO):
    """Whoever creates a name is told that it is theirs."""

    def create_exclusive(self, path: str, data: bytes) -> Outcome:
        assert not isinstance(super().create_exclusive(path, data), Exists) or path
        return Created()

    def sub(self, path: str) -> MemoryFileIO:
        inner = super().sub(path)
        inner.__class__ = Flatterer
        return inner


def test_a_storage_without_exclusive_creation_is_refused_unless_someone_vouches_for_it():
    env = Env(Flatterer(), FakeClock(1_000), SeededIds(1))
    with pytest.raises(StorageError) as caught:
        Lake(FileSystemCatalog(env)).create_table("db.t", {"id": "INT"})
    assert caught.value.code == "no-exclusive-create"
    assert "unsafe.commit" in caught.value.hint
    table = Lake(FileSystemCatalog(env)).create_table("db.t", {"id": "INT"}, options={"unsafe.commit": True})
    table.write([{"id": 1}])
    with pytest.raises(StorageError):
        table.alter(unset_options=["unsafe.commit"]).write([{"id": 2}])
    table.reload().with_options({"unsafe.commit": "true"}).write([{"id": 3}])
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 3]


def test_the_storage_itself_or_a_publisher_may_vouch_for_commits():
    io = Flatterer()
    require_exclusive_create(Env(io, unsafe_commit=True), TableOptions())
    require_exclusive_create(Env(io), TableOptions(), publisher=Interrupted(new_table()))
    with pytest.raises(StorageError):
        require_exclusive_create(Env(io), TableOptions({"unsafe.commit": "false"}))
    with pytest.raises(InvalidInputError):
        require_exclusive_create(Env(io), TableOptions({"unsafe.commit": "perhaps"}))
