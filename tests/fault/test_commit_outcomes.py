"""The third answer to a publish, what an abort may delete, and how long a numbered commit is remembered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from fault.harness import doors
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import CommitConflictError, CommitUnknownError, StorageError
from tidelake.ops.commit.messages import CommitResult, Committable
from tidelake.spec.documents.progress import PROPERTY_PREFIX
from tidelake.spec.documents.snapshot import snapshot_to_json
from tidelake.table import Table
from tidelake.testing import Fault, FaultyFileIO, MemoryFileIO, Op
from tidelake.testing.faulty import Plan
from tidelake.testing.scenario import (
    COLUMNS,
    NAME,
    Session,
    data_path,
    live_names,
    message,
    read_snapshots,
    twice,
    write_data_file,
)

JOB = "job"


@dataclass(slots=True)
class World:
    """A table in memory, and a job that reaches it through a storage with faults."""

    storage: MemoryFileIO
    plan: list[Plan | None]
    faulty: FaultyFileIO

    @property
    def table(self) -> Table:
        """The table as everybody else sees it."""
        return Lake(FileSystemCatalog(doors(self.storage, 77))).table(NAME)

    def session(self, user: str = JOB, *, seed: int = 1) -> Session:
        """A process of the job."""
        return Session(doors(self.faulty, seed), user=user)

    def other_commits(self, name: str, *, seed: int = 500) -> CommitResult:
        """Another writer, for whom the storage works."""
        session = Session(doors(self.storage, seed), user=f"other-{name}")
        return session.committer().commit(session.prepare(add={"d2": (name,)}))

    def live(self) -> frozenset[str]:
        """The live files as everybody else sees them."""
        return live_names(self.table)

    def files(self) -> set[str]:
        """Every metadata file that is there."""
        io = self.table.store.env.io
        return {each.path for folder in ("manifest", "snapshot") for each in io.list(folder)}


@pytest.fixture
def world() -> World:
    storage = MemoryFileIO()
    Lake(FileSystemCatalog(doors(storage, 0))).create_table(NAME, dict(COLUMNS), partition_by=["dt"])
    plan: list[Plan | None] = [None]
    faulty = FaultyFileIO(storage, lambda op: plan[0](op) if plan[0] else None)
    made = World(storage, plan, faulty)
    made.other_commits("first")
    return made


def is_publish(op: Op) -> bool:
    return op.name == "create_exclusive" and "/snapshot/" in op.path


def once(fault: Fault, meanwhile: Callable[[], object] = lambda: None) -> Plan:
    """The first publish meets a fault, after something else happened."""
    done: list[Op] = []

    def plan(op: Op) -> Fault | None:
        if not is_publish(op) or done:
            return None
        done.append(op)
        meanwhile()
        return fault

    return plan


def silence(first: Fault) -> Plan:
    """The first publish meets a fault, and from then on the storage does not answer."""
    struck: list[Op] = []

    def plan(op: Op) -> Fault | None:
        if struck:
            return Fault.LOST
        if is_publish(op):
            struck.append(op)
            return first
        return None

    return plan


# ------------------------------------------------------------------------------------------------ the third answer


@pytest.mark.parametrize("identifier", [None, 4])
@pytest.mark.parametrize("fault", [Fault.AFTER, Fault.LOST])
def test_a_lost_answer_is_settled_by_reading_back(world: World, fault: Fault, identifier: int | None) -> None:
    session = world.session()
    committable = session.prepare(add={"d1": ("x",)})
    if identifier is not None:
        committable = replace(committable, identifier=identifier)
    world.plan[0] = once(fault)
    result = session.committer().commit(committable)
    assert result.snapshot_ids == (2,)
    assert not result.repeated
    assert world.live() == {"d2/first", "d1/x"}
    assert world.table.check(deep=True).ok


def test_a_lost_answer_whose_id_another_writer_took_is_a_loss_and_is_tried_again(world: World) -> None:
    session = world.session()
    committable = session.prepare(add={"d1": ("x",)})
    world.plan[0] = once(Fault.LOST, lambda: world.other_commits("second", seed=501))
    assert session.committer().commit(committable).snapshot_ids == (3,)
    assert [s.commit_user for s in read_snapshots(world.table)] == ["other-first", "other-second", JOB]
    assert world.live() == {"d2/first", "d2/second", "d1/x"}
    report = world.table.check(deep=True)
    assert report.ok
    assert report.orphans == ()


def test_a_batch_job_does_not_take_the_commit_of_a_namesake_for_its_own(world: World) -> None:
    """Two runs of a daily job share a user name; all batch commits share an identifier."""
    session = world.session()
    committable = session.prepare(add={"d1": ("x",)})
    namesake = Session(doors(world.storage, 9), user=JOB)
    theirs = namesake.prepare(add={"d1": ("y",)})
    world.plan[0] = once(Fault.LOST, lambda: namesake.committer().commit(theirs))
    assert session.committer().commit(committable).snapshot_ids == (3,)
    assert world.live() == {"d2/first", "d1/x", "d1/y"}


@pytest.mark.parametrize("first", [Fault.AFTER, Fault.LOST])
def test_a_silent_storage_gives_unknown_and_nothing_is_deleted(world: World, first: Fault) -> None:
    session = world.session()
    committable = replace(session.prepare(add={"d1": ("x",)}), identifier=7)
    committer = session.committer()
    before = len(world.faulty.ops)
    world.plan[0] = silence(first)
    with pytest.raises(CommitUnknownError):
        committer.commit(committable)
    assert not [op for op in world.faulty.ops[before:] if op.name in ("delete", "delete_dir")]
    written = {op.path.removeprefix("db.db/t/") for op in world.faulty.ops[before:] if op.name == "write"}
    assert {path for path in written if path.startswith("manifest/")} <= world.files()
    world.plan[0] = None
    again = world.session(seed=2)
    result = again.committer().commit(committable)
    assert result.repeated == (first is Fault.AFTER)
    assert world.live() == {"d2/first", "d1/x"}
    assert twice(read_snapshots(world.table)) == []
    assert world.table.check(deep=True).ok
    assert again.committer().commit(committable).repeated


def test_after_unknown_the_same_committer_repeats_the_commit_rightly(world: World) -> None:
    session = world.session()
    committable = replace(session.prepare(add={"d1": ("x",)}), identifier=7)
    committer = session.committer()
    world.plan[0] = silence(Fault.AFTER)
    with pytest.raises(CommitUnknownError):
        committer.commit(committable)
    world.plan[0] = None
    assert committer.commit(committable).repeated
    assert committer.commit(replace(committable, identifier=8, messages=())).snapshot_ids == (3,)


def test_a_certain_failure_publishes_nothing_and_leaves_no_file_behind(world: World) -> None:
    session = world.session()
    committable = session.prepare(add={"d1": ("x",)})
    before = world.files()
    world.plan[0] = once(Fault.BEFORE)
    with pytest.raises(StorageError):
        session.committer().commit(committable)
    assert world.files() == before
    assert world.live() == {"d2/first"}


def test_a_hint_that_cannot_be_written_does_not_fail_the_commit(world: World) -> None:
    session = world.session()
    committable = session.prepare(add={"d1": ("x",)})
    world.plan[0] = lambda op: Fault.BEFORE if op.name == "overwrite" and op.path.endswith("LATEST") else None
    assert session.committer().commit(committable).snapshot_ids == (2,)
    world.plan[0] = None
    assert world.live() == {"d2/first", "d1/x"}


# ------------------------------------------------------------------------------------------------ abort


def _exists(world: World, partition: str, name: str) -> bool:
    return world.table.store.env.io.exists(data_path(world.table, partition, name))


@pytest.mark.parametrize("identifier", [None, 3])
def test_abort_after_a_commit_that_landed_deletes_nothing(world: World, identifier: int | None) -> None:
    session = world.session()
    committable = session.prepare(add={"d1": ("x",)})
    session.committer().commit(replace(committable, identifier=identifier or committable.identifier))
    result = session.committer().abort(committable.messages, identifier=identifier)
    assert result.deleted == ()
    assert result.left
    assert _exists(world, "d1", "x")
    assert world.table.check(deep=True).ok


def test_abort_by_a_new_process_after_a_commit_that_landed_deletes_nothing(world: World) -> None:
    session = world.session()
    committable = replace(session.prepare(add={"d1": ("x",)}), identifier=3)
    session.committer().commit(committable)
    result = world.session(seed=2).committer().abort(committable.messages, identifier=3)
    assert result.deleted == ()
    assert world.table.check(deep=True).ok


def test_a_note_that_fails_behind_the_publish_is_a_warning_and_abort_deletes_nothing(world: World) -> None:
    """The snapshot lands, then the note of it fails: the commit is there, and a careless engine calls abort."""
    session = world.session()
    committable = replace(session.prepare(add={"d1": ("x",)}), identifier=3)
    committer = session.committer()
    published: list[Op] = []

    def plan(op: Op) -> Fault | None:
        if is_publish(op):
            published.append(op)
        return Fault.BEFORE if published and "/progress/" in op.path else None

    world.plan[0] = plan
    result = committer.commit(committable)
    world.plan[0] = None
    assert result.snapshot_ids
    assert "writing the commit progress" in result.warnings[0]
    assert committer.abort(committable.messages, identifier=3).deleted == ()
    assert _exists(world, "d1", "x")
    assert committer.commit(committable).repeated


@pytest.mark.parametrize("first", [Fault.AFTER, Fault.LOST])
def test_abort_in_doubt_leaves_the_files(world: World, first: Fault) -> None:
    session = world.session()
    committable = session.prepare(add={"d1": ("x",)})
    committer = session.committer()
    world.plan[0] = silence(first)
    with pytest.raises(CommitUnknownError):
        committer.commit(committable)
    world.plan[0] = None
    result = committer.abort(committable.messages)
    assert result.deleted == ()
    assert result.reason
    assert _exists(world, "d1", "x")


def test_abort_before_any_commit_deletes_new_files_and_nothing_that_was_read(world: World) -> None:
    session = world.session()
    committable = session.prepare(
        add={"d1": ("x",)}, before={"d2": ("first",)}, after={"d2": ("compacted",), "d1": ("y",)}
    )
    result = session.committer().abort(committable.messages)
    assert {path.rpartition("/")[2] for path in result.deleted} == {
        "data-x.parquet",
        "data-y.parquet",
        "data-compacted.parquet",
    }
    assert not _exists(world, "d1", "x")
    assert _exists(world, "d2", "first")
    assert world.table.check(deep=True).ok


def test_abort_leaves_a_file_that_was_only_moved_to_another_level(world: World) -> None:
    session = world.session()
    moved = message(session.table(), "d2", before=("first",), after=("first", "merged"))
    write_data_file(session.table(), "d2", "merged")
    result = session.committer().abort([moved])
    assert {path.rpartition("/")[2] for path in result.deleted} == {"data-merged.parquet"}
    assert _exists(world, "d2", "first")


def test_abort_of_a_compaction_that_lost_its_race_deletes_only_what_it_made(world: World) -> None:
    winner, loser = world.session("winner"), world.session("loser", seed=2)
    theirs = winner.prepare(add={}, before={"d2": ("first",)}, after={"d2": ("w",)})
    mine = loser.prepare(add={}, before={"d2": ("first",)}, after={"d2": ("l",)})
    committer = loser.committer()
    winner.committer().commit(theirs)
    with pytest.raises(CommitConflictError):
        committer.commit(mine)
    result = committer.abort(mine.messages)
    assert {path.rpartition("/")[2] for path in result.deleted} == {"data-l.parquet"}
    assert _exists(world, "d2", "first")
    assert _exists(world, "d2", "w")
    assert world.live() == {"d2/w"}


def test_abort_leaves_the_files_when_the_storage_cannot_tell(world: World) -> None:
    session = world.session()
    committable = session.prepare(add={"d1": ("x",)})
    committer = session.committer()
    world.plan[0] = lambda op: Fault.BEFORE if "/snapshot" in op.path else None
    result = committer.abort(committable.messages)
    assert result.deleted == ()
    assert "could not be read" in str(result.reason)
    assert _exists(world, "d1", "x")


def test_abort_leaves_the_files_when_the_snapshots_that_would_tell_have_expired(world: World) -> None:
    session = world.session()
    committable = session.prepare(add={"d1": ("x",)})
    committer = session.committer()
    for number in range(3):
        world.other_commits(f"later-{number}", seed=600 + number)
    _expire(world, 1, 2, 3)
    assert committer.abort(committable.messages).deleted == ()
    assert _exists(world, "d1", "x")


# ------------------------------------------------------------------------------------------------ memory


def _expire(world: World, *snapshot_ids: int) -> None:
    """What an expiry does to snapshots: the hint moves, the files go."""
    store = world.table.store
    store.publisher.hint_earliest(max(snapshot_ids) + 1)
    for snapshot_id in snapshot_ids:
        store.env.io.delete(store.layout.snapshot_path(snapshot_id))


def _drop_properties(world: World, snapshot_id: int) -> None:
    """What a snapshot looks like that a writer made who does not carry properties on."""
    store = world.table.store
    snapshot = replace(store.snapshots.get(snapshot_id), properties={})
    store.env.io.overwrite(store.layout.snapshot_path(snapshot_id), snapshot_to_json(snapshot))


def _three_commits(world: World) -> list[Committable]:
    session = world.session()
    committables = [replace(session.prepare(add={"d1": (f"n{n}",)}), identifier=n) for n in (1, 2, 3)]
    for committable in committables:
        session.committer().commit(committable)
    return committables


ALL = frozenset({"d2/first", "d1/n1", "d1/n2", "d1/n3"})


def test_a_replay_is_a_no_op_while_the_snapshots_are_kept(world: World) -> None:
    for committable in _three_commits(world):
        assert world.session(seed=2).committer().commit(committable).repeated
    assert world.live() == ALL


@pytest.mark.parametrize("lost", ["nothing", "document", "property"])
def test_a_replay_after_the_users_snapshots_expired_is_a_no_op(world: World, lost: str) -> None:
    """Either witness is enough: the progress document, or the property that snapshots carry on."""
    committables = _three_commits(world)
    world.other_commits("later", seed=600)
    _expire(world, 1, 2, 3, 4)
    store = world.table.store
    assert [s.commit_user for s in read_snapshots(world.table)] == ["other-later"]
    if lost == "document":
        store.env.io.delete(store.progress.path(JOB))
    if lost == "property":
        _drop_properties(world, 5)
    for committable in committables:
        assert world.session(seed=3).committer().commit(committable).repeated
    assert world.session(seed=4).committer().filter_committed([1, 2, 3, 4]) == [4]
    assert world.live() == ALL | {"d2/later"}
    assert world.table.store.snapshots.latest_id() == 5


def test_the_next_commit_after_a_writer_without_properties_is_published(world: World) -> None:
    _three_commits(world)
    world.other_commits("later", seed=600)
    _drop_properties(world, 5)
    session = world.session(seed=2)
    fourth = replace(session.prepare(add={"d1": ("n4",)}), identifier=4)
    assert session.committer().commit(fourth).snapshot_ids == (6,)
    latest = world.table.latest_snapshot()
    assert latest is not None
    assert latest.properties[PROPERTY_PREFIX + JOB] == "4"
    assert world.session(seed=3).committer().commit(fourth).repeated


def test_a_commit_that_died_before_its_publish_is_published_once_by_the_replay(world: World) -> None:
    session = world.session()
    committable = replace(session.prepare(add={"d1": ("x",)}), identifier=1)
    world.plan[0] = once(Fault.BEFORE)
    with pytest.raises(StorageError):
        session.committer().commit(committable)
    world.plan[0] = None
    world.other_commits("later", seed=600)
    assert world.session(seed=2).committer().commit(committable).snapshot_ids == (3,)
    assert world.session(seed=3).committer().commit(committable).repeated
    assert world.live() == {"d2/first", "d2/later", "d1/x"}


def test_a_commit_that_died_before_its_publish_is_not_stuck_when_the_snapshots_since_have_expired(world: World) -> None:
    """The property that later snapshots carry on tells that the identifier is not among those that are gone."""
    _three_commits(world)
    session = world.session(seed=2)
    fourth = replace(session.prepare(add={"d1": ("n4",)}), identifier=4)
    world.plan[0] = once(Fault.BEFORE)
    with pytest.raises(StorageError):
        session.committer().commit(fourth)
    world.plan[0] = None
    for turn in range(3):
        world.other_commits(f"later{turn}", seed=600 + turn)
    _expire(world, 1, 2, 3, 4, 5, 6)
    assert world.session(seed=3).committer().commit(fourth).snapshot_ids == (8,)
    assert world.session(seed=4).committer().commit(fourth).repeated
    assert world.live() == ALL | {"d2/later0", "d2/later1", "d2/later2", "d1/n4"}


def test_a_first_commit_that_died_is_not_stuck_when_all_snapshots_since_carried_properties_on(world: World) -> None:
    session = world.session(seed=5)
    world.plan[0] = once(Fault.BEFORE)
    first = replace(session.prepare(add={"d1": ("x",)}), identifier=1)
    with pytest.raises(StorageError):
        session.committer().commit(first)
    world.plan[0] = None
    numbered = world.session("numbered", seed=600)
    for turn in range(3):
        numbered.committer().commit(replace(numbered.prepare(add={"d2": (f"later{turn}",)}), identifier=turn))
    _expire(world, 1, 2, 3)
    assert world.session(seed=3).committer().commit(first).snapshot_ids == (5,)
    assert world.session(seed=4).committer().commit(first).repeated
    assert world.live() == {"d2/first", "d2/later0", "d2/later1", "d2/later2", "d1/x"}


def test_a_twin_whose_snapshot_expired_meanwhile_is_not_published_beside(world: World) -> None:
    """Between two attempts a twin publishes the same commit, and others expire its snapshot."""
    session = world.session()
    committable = replace(session.prepare(add={"d1": ("x",)}), identifier=1)
    twin = Session(doors(world.storage, 900), user=JOB)

    def overtake(op: Op) -> Fault | None:
        if is_publish(op):
            world.plan[0] = None
            twin.committer().commit(replace(twin.prepare(add={"d1": ("same rows",)}), identifier=1))
            world.other_commits("later", seed=600)
            _expire(world, 1, 2)
        return None

    world.plan[0] = overtake
    with pytest.raises(CommitUnknownError, match="expired"):
        session.committer().commit(committable)
    assert world.session(seed=3).committer().commit(committable).repeated
    assert world.live() == {"d2/first", "d1/same rows", "d2/later"}
    assert world.table.store.snapshots.latest_id() == 3


def test_where_a_writer_dropped_the_properties_in_between_nobody_can_tell(world: World) -> None:
    session = world.session()
    committable = replace(session.prepare(add={"d1": ("x",)}), identifier=1)
    committer = session.committer()
    world.plan[0] = silence(Fault.AFTER)
    with pytest.raises(CommitUnknownError):
        committer.commit(committable)
    world.plan[0] = None
    world.other_commits("foreign", seed=600)
    _drop_properties(world, 3)
    numbered = world.session("numbered", seed=601)
    numbered.committer().commit(replace(numbered.prepare(add={"d2": ("later",)}), identifier=1))
    _expire(world, 1, 2, 3)
    with pytest.raises(CommitUnknownError, match="expired"):
        world.session(seed=2).committer().commit(committable)
    assert world.live() == {"d2/first", "d1/x", "d2/foreign", "d2/later"}


def test_when_nobody_can_tell_any_more_the_replay_says_so_and_publishes_nothing(world: World) -> None:
    session = world.session()
    committable = replace(session.prepare(add={"d1": ("x",)}), identifier=1)
    committer = session.committer()
    world.plan[0] = silence(Fault.AFTER)
    with pytest.raises(CommitUnknownError):
        committer.commit(committable)
    world.plan[0] = None
    world.other_commits("later", seed=600)
    _drop_properties(world, 3)
    _expire(world, 1, 2)
    with pytest.raises(CommitUnknownError, match="expired"):
        world.session(seed=2).committer().commit(committable)
    assert world.table.store.snapshots.latest_id() == 3


def test_batch_commits_of_a_user_do_not_hide_its_numbered_ones(world: World) -> None:
    session = world.session()
    session.committer().commit(session.prepare(add={"d1": ("batch",)}))
    assert session.committer().commit(replace(session.prepare(add={"d1": ("x",)}), identifier=1)).snapshot_ids == (3,)
    session.committer().truncate()
    assert session.committer().commit(replace(session.prepare(add={"d1": ("y",)}), identifier=2)).snapshot_ids == (5,)
    assert world.live() == {"d1/y"}


def test_a_commit_that_died_between_its_two_snapshots_is_completed_by_the_replay(world: World) -> None:
    session = world.session()
    prepared = session.prepare(add={"d2": ("x",)}, before={"d2": ("first",)}, after={"d2": ("all",)})
    committable = replace(prepared, identifier=1)
    published: list[Op] = []

    def second_fails(op: Op) -> Fault | None:
        if is_publish(op):
            published.append(op)
        return Fault.BEFORE if len(published) == 2 and is_publish(op) else None

    world.plan[0] = second_fails
    first = session.committer().commit(committable)
    assert (first.snapshot_ids, first.compaction_lost) == ((2,), True)
    assert "its compaction failed and is left for later" in first.warnings[0]
    assert world.live() == {"d2/first", "d2/x"}
    world.plan[0] = None
    result = world.session(seed=2).committer().commit(committable)
    assert result.snapshot_ids == (3,)
    assert world.live() == {"d2/all", "d2/x"}
    assert world.session(seed=3).committer().commit(committable).repeated
