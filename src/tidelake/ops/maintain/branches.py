"""Branches: a second line of snapshots over the same files.

A branch is created by copying documents, oldest first, so that a crash leaves an empty branch at worst. A fast-forward
of the main branch replaces only what differs from the branch: equal documents stay, so that the main branch never loses
the common history, and repeating it after a crash finishes the work.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tidelake.errors import InvalidInputError, NotFoundError, StorageError
from tidelake.io.fileio import FileIO, parent
from tidelake.io.sequenced import DOCUMENT_BYTES_MAX
from tidelake.ops.context import TableContext
from tidelake.ops.maintain.rewind import note_rewind, settle_rewind
from tidelake.ops.maintain.rollback import remove_changelogs, without_lost_changelog
from tidelake.ops.maintain.tags import settle_creation, tag_store
from tidelake.spec.documents.snapshot import Snapshot, snapshot_to_json
from tidelake.spec.documents.tag import tag_to_json
from tidelake.spec.layout import LATEST, TableLayout, branch_dir
from tidelake.spec.names import MAIN_BRANCH
from tidelake.store.branches import BranchStore
from tidelake.store.schemas import SchemaStore
from tidelake.store.snapshots import SnapshotStore
from tidelake.store.table_store import TableStore
from tidelake.store.tags import TagStore


def branch_store(store: TableStore) -> BranchStore:
    """The branches of the table."""
    return BranchStore(store.env.io, store.layout)


def create_branch(context: TableContext, name: str, *, tag: str | None = None, snapshot_id: int | None = None) -> None:
    """Create a branch: empty, or at a tag or a snapshot.

    Prefer a tag: the expiry of Apache Paimon ignores branches and would delete files of a snapshot that only a branch
    still has.

    Raises:
        InvalidInputError: the name is taken or invalid, or both a tag and a snapshot are given.
        NotFoundError: the tag or snapshot does not exist, or was deleted while the branch was created.
        CommitUnknownError: it is unknown whether the branch was created.
    """
    if tag is not None and snapshot_id is not None:
        raise InvalidInputError("give a tag or a snapshot, not both", tag=tag, snapshot_id=snapshot_id)
    store = context.store
    target = replace(store.layout, branch=name)
    io = store.env.io
    if io.exists(branch_dir(name)):
        raise _name_conflict(name)
    origin = tag_store(store).get(tag) if tag is not None else None
    start = origin.snapshot if origin else None if snapshot_id is None else store.snapshots.get(snapshot_id)
    schema_ids = [each for each in store.schemas.ids() if start is None or each <= start.schema_id]
    for number, schema_id in enumerate(schema_ids):
        data = io.read(store.layout.schema_path(schema_id), limit=DOCUMENT_BYTES_MAX)
        if not _put(io, target.schema_path(schema_id), data) and number == 0:
            raise _name_conflict(name)
    if start is None:
        return
    if origin is not None and tag is not None:
        _put(io, target.tag_path(tag), tag_to_json(origin))
    _put(io, target.snapshot_path(start.id), _snapshot_bytes(store, start))
    if not _still_held(store, start):
        # An expiry that started before the branch existed may delete its files.
        branch_store(store).delete(name)
        raise NotFoundError("snapshot expired while it was branched", code="snapshot-not-found", snapshot_id=start.id)


def _snapshot_bytes(store: TableStore, snapshot: Snapshot) -> bytes:
    """The snapshot's own file if it still exists, so that the copy has the same bytes."""
    try:
        return store.env.io.read(store.layout.snapshot_path(snapshot.id), limit=DOCUMENT_BYTES_MAX)
    except NotFoundError:
        return snapshot_to_json(without_lost_changelog(store, snapshot))


def _still_held(store: TableStore, start: Snapshot) -> bool:
    if store.snapshots.find(start.id) == start:
        return True
    return any(each.snapshot.id == start.id for each in tag_store(store).all().values())


def _put(io: FileIO, path: str, data: bytes) -> bool:
    """Create a document; False if it exists already."""
    outcome = io.create_exclusive(path, data)
    return settle_creation(outcome, lambda: _read(io, path) == data, what=path)


def _read(io: FileIO, path: str) -> bytes | None:
    try:
        return io.read(path, limit=DOCUMENT_BYTES_MAX)
    except NotFoundError:
        return None


def _name_conflict(name: str) -> InvalidInputError:
    return InvalidInputError("branch exists already", code="branch-exists", branch=name, hint="choose another name")


def delete_branch(context: TableContext, name: str) -> None:
    """Delete a branch; files that only it refers to become orphans.

    Raises:
        InvalidInputError: it is the main branch, or the one the handle works on.
        NotFoundError: the branch does not exist.
    """
    if name == MAIN_BRANCH:
        raise InvalidInputError("the main branch cannot be deleted", branch=name, hint="drop the table instead")
    if name == context.store.layout.branch:
        raise InvalidInputError("branch is in use by this handle", branch=name, hint="open the main branch first")
    branches = branch_store(context.store)
    branches.check(name)
    branches.delete(name)


def rename_branch(context: TableContext, name: str, new: str) -> None:
    """Give a branch another name in one step: a crash leaves it whole under the old or the new one.

    Its tags, consumers and the progress of its commit users move along. Stop jobs that work on it first.

    Raises:
        InvalidInputError: it is the main branch or the one the handle works on, or the new name is taken or unusable.
        NotFoundError: the branch does not exist.
        UnsupportedError: the storage cannot move a folder in one step.
        StorageError: the storage failed; the branch is whole under one of the two names.
    """
    if name == MAIN_BRANCH:
        raise InvalidInputError("the main branch cannot be renamed", branch=name, hint="create a branch from a tag")
    if name == context.store.layout.branch:
        raise InvalidInputError("branch is in use by this handle", branch=name, hint="open the main branch first")
    io = context.store.env.io
    branch_store(context.store).check(name)
    source, target = branch_dir(name), branch_dir(new)
    if io.exists(target):
        raise _name_conflict(new)
    before = _first_schema(context.store, name)
    try:
        io.rename_dir(source, target)
    except StorageError as error:
        if error.code == "file-exists":
            raise _name_conflict(new) from error
        if io.exists(source) or before is None or _first_schema(context.store, new) != before:
            raise
        # Only the reply was lost: the folder is moved. Sync it, so that the move survives a power loss.
        io.sync([target, parent(target)])


def _first_schema(store: TableStore, branch: str) -> bytes | None:
    """The oldest schema file of a branch."""
    layout = replace(store.layout, branch=branch)
    ids = SchemaStore(store.env.io, layout).ids()
    return _read(store.env.io, layout.schema_path(ids[0])) if ids else None


# ------------------------------------------------------------------------------------------------ fast-forward


@dataclass(frozen=True, slots=True)
class ForwardPlan:
    """The changes that make the main branch equal to the branch."""

    branch: str
    start: int
    """The branch's oldest snapshot; what the main branch has before it stays."""
    fork: int = field(compare=False)
    """The newest snapshot of the branch that the main branch has too, or else the oldest."""
    removed_snapshots: tuple[int, ...] = ()
    added_snapshots: tuple[int, ...] = ()
    removed_schemas: tuple[int, ...] = ()
    written_schemas: tuple[int, ...] = ()
    removed_tags: tuple[str, ...] = ()
    written_tags: tuple[str, ...] = ()
    removed_changelogs: tuple[int, ...] = ()

    def __str__(self) -> str:
        return (
            f"main becomes {self.branch} from snapshot {self.start} on: snapshots {list(self.removed_snapshots)} go, "
            f"{list(self.added_snapshots)} come, tags {list(self.removed_tags)} go, {list(self.written_tags)} come"
        )


def plan_fast_forward(context: TableContext, name: str) -> ForwardPlan:
    """What would change on the main branch.

    Raises:
        InvalidInputError: the handle is not on the main branch, or the branch has no snapshot.
        NotFoundError: the branch does not exist.
    """
    store = context.store
    if store.layout.branch != MAIN_BRANCH:
        raise InvalidInputError("only the main branch can be moved forward", branch=store.layout.branch)
    if name == MAIN_BRANCH:
        raise InvalidInputError("the main branch cannot be moved to itself", branch=name)
    branch_store(store).check(name)
    io, main, side = store.env.io, store.layout, replace(store.layout, branch=name)
    theirs = SnapshotStore(io, side)
    their_ids, our_ids = theirs.ids(), store.snapshots.ids()
    if not their_ids:
        raise InvalidInputError("branch has no snapshot to move to", branch=name, hint="write to the branch first")
    start = their_ids[0]
    same = _common(io, main, side, their_ids)
    their_schemas, our_schemas = SchemaStore(io, side).ids(), SchemaStore(io, main).ids()
    first_schema = theirs.get(start).schema_id
    their_tags, our_tags = TagStore(io, side).files(), TagStore(io, main)
    ours = our_tags.files()
    return ForwardPlan(
        name,
        start,
        max(same, default=start),
        removed_snapshots=tuple(sorted((i for i in our_ids if i >= start and i not in same), reverse=True)),
        added_snapshots=tuple(i for i in their_ids if i not in same),
        removed_schemas=tuple(
            sorted((i for i in our_schemas if i >= first_schema and i not in their_schemas), reverse=True)
        ),
        written_schemas=tuple(i for i in their_schemas if _differs(io, main.schema_path(i), side.schema_path(i))),
        removed_tags=tuple(
            sorted(
                tag
                for tag, kept in our_tags.all().items()
                if tag in ours and kept.snapshot.id >= start and _differs(io, ours[tag].path, side.tag_path(tag))
            )
        ),
        written_tags=tuple(
            tag for tag, file in sorted(their_tags.items()) if _differs(io, main.tag_path(tag), file.path)
        ),
        removed_changelogs=tuple(each for each in reversed(store.changelogs.ids()) if each >= start),
    )


def _common(io: FileIO, main: TableLayout, side: TableLayout, ids: Iterable[int]) -> frozenset[int]:
    """The snapshots from the branch's first on that are the same on both, up to the first that is not."""
    same = []
    for snapshot_id in ids:
        if _differs(io, main.snapshot_path(snapshot_id), side.snapshot_path(snapshot_id)):
            break
        same.append(snapshot_id)
    return frozenset(same)


def _differs(io: FileIO, one: str, other: str) -> bool:
    return _read(io, one) != _read(io, other)


def run_fast_forward(context: TableContext, plan: ForwardPlan) -> None:
    """Make the main branch equal to the branch from the branch's first snapshot on.

    Stop writers first. Files that only the replaced snapshots of the main branch held become orphans.

    Raises:
        NotFoundError: the branch was deleted since the plan.
        CommitUnknownError: it is unknown whether a document was created; repeat the call to continue.
        StorageError: the storage failed; repeat the call to continue.
    """
    store = context.store
    io, main, side = store.env.io, store.layout, replace(store.layout, branch=plan.branch)
    # Before anything is deleted: if the main branch has no snapshot of the common history left, it gets one.
    if plan.start in plan.added_snapshots and plan.start not in plan.removed_snapshots:
        _copy(io, side.snapshot_path(plan.start), main.snapshot_path(plan.start))
    io.delete(main.snapshot_hint_path(LATEST))
    tags = TagStore(io, main)
    for tag in plan.removed_tags:
        tags.delete(tag)
    rewind = note_rewind(store, SnapshotStore(io, side).get(plan.fork))
    for snapshot_id in plan.removed_snapshots:
        store.publisher.delete(snapshot_id)
    remove_changelogs(store, plan.removed_changelogs)
    for schema_id in plan.removed_schemas:
        io.delete(main.schema_path(schema_id))
    for schema_id in plan.written_schemas:
        io.overwrite(main.schema_path(schema_id), _need(io, side.schema_path(schema_id)))
    for snapshot_id in plan.added_snapshots:
        _copy(io, side.snapshot_path(snapshot_id), main.snapshot_path(snapshot_id))
    for tag in plan.written_tags:
        io.overwrite(main.tag_path(tag), _need(io, side.tag_path(tag)))
    settle_rewind(store, rewind)
    ids = store.snapshots.ids()
    store.publisher.hint_earliest(ids[0])
    store.publisher.hint_latest(ids[-1])
    store.schemas.forget()


def _copy(io: FileIO, source: str, target: str) -> None:
    data = _need(io, source)
    if not _put(io, target, data) and _read(io, target) != data:
        raise InvalidInputError(
            "a snapshot was committed during the fast-forward", path=target, hint="stop writers and try again"
        )


def _need(io: FileIO, path: str) -> bytes:
    return io.read(path, limit=DOCUMENT_BYTES_MAX)
