"""Tags: create, rename, delete and expire them.

To create a tag, its file is written and then the snapshot is checked: if an expiry deleted it before it could see the
tag, the tag is deleted again. To delete a tag, its file is deleted first and then the files that only the tag held:
those of its state that no other tag, snapshot or branch holds. A crash between the two leaves orphans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tidelake.cleanup import undo_on_error
from tidelake.errors import CommitUnknownError, InvalidInputError, NotFoundError, StorageError, UnsupportedError
from tidelake.io.clock import local_time_ms
from tidelake.io.fileio import Created, Exists, Outcome
from tidelake.notebook import pluralize
from tidelake.ops.context import TableContext
from tidelake.ops.maintain.deletion import Deletion, run_deletion, settle_folder
from tidelake.ops.maintain.expire import (
    Holding,
    add_branch,
    add_changelogs,
    hold_taken_back,
    overtaken,
    unless_overtaken,
)
from tidelake.ops.maintain.holders import View, find_change, look, read_snapshots, read_tags
from tidelake.ops.maintain.reachable import Reader, no_files
from tidelake.options import Affects, DurationMs, OptionGroup, option
from tidelake.spec.documents.snapshot import CommitKind, Snapshot
from tidelake.spec.documents.success import mark_success, success_to_json
from tidelake.spec.documents.tag import Tag
from tidelake.store.snapshots import EXPIRED, plan_again
from tidelake.store.table_store import TableStore
from tidelake.store.tags import TagStore

_MAINTENANCE = (Affects.MAINTENANCE,)
_NANOS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TagOptions(OptionGroup):
    """How long tags are kept, and what else is done for a new tag."""

    time_retained_ms: DurationMs | None = option(
        "tag.default-time-retained",
        None,
        doc="How long a tag is kept unless it has its own time.",
        affects=_MAINTENANCE,
    )
    expire: bool = option(
        "tag.time-expire-enabled",
        True,
        doc="Whether tags past their time are deleted after a commit.",
        affects=_MAINTENANCE,
    )
    success_file: bool = option(
        "tag.create-success-file", False, doc="Write a success file for each tag.", affects=_MAINTENANCE
    )
    callbacks: str = option("tag.callbacks", "", doc="Classes to call after a tag was created.", affects=_MAINTENANCE)


def tag_store(store: TableStore) -> TagStore:
    """The tags of the branch."""
    return TagStore(store.env.io, store.layout)


# ------------------------------------------------------------------------------------------------ making one


def create_tag(
    context: TableContext,
    name: str | None,
    *,
    snapshot_id: int | None = None,
    time_retained_ms: int | None = None,
    ignore_if_exists: bool = False,
) -> str:
    """Give a snapshot (the newest one) a name and return it; without a name it is `snapshot-N`.

    Raises:
        InvalidInputError: the name is taken or invalid.
        NotFoundError: the snapshot does not exist, or expired while it was tagged.
        CommitUnknownError: it is unknown whether the tag was created.
        UnsupportedError: the option `tag.callbacks` is set.
    """
    options = context.options.of(TagOptions)
    if options.callbacks:
        raise UnsupportedError("tag callbacks are not supported", option="tag.callbacks", value=options.callbacks)

    def attempt() -> str:
        return _create(context.store, options, name, snapshot_id, time_retained_ms, ignore_if_exists)

    return plan_again(attempt) if snapshot_id is None else attempt()


def _create(
    store: TableStore,
    options: TagOptions,
    name: str | None,
    snapshot_id: int | None,
    time_retained_ms: int | None,
    ignore_if_exists: bool,
) -> str:
    snapshot = store.snapshots.latest() if snapshot_id is None else store.snapshots.get(snapshot_id)
    if snapshot is None:
        raise NotFoundError(
            "table has no snapshot to tag",
            code="snapshot-not-found",
            table=store.env.io.root,
            hint="write to the table first",
        )
    chosen = f"snapshot-{snapshot.id}" if name is None else name
    lifetime = options.time_retained_ms if time_retained_ms is None else time_retained_ms
    tag = Tag(snapshot=snapshot)
    if lifetime is not None:
        if lifetime <= 0:
            raise InvalidInputError(
                "a tag must be retained for some time",
                time_retained_ms=lifetime,
                hint="write it as `90 d`, or leave it out",
            )
        created_ns = local_time_ms(store.env.clock) * _NANOS_PER_MS
        tag = replace(tag, create_time_ns=created_ns, time_retained_ns=lifetime * _NANOS_PER_MS)
    if not _publish(store, chosen, tag):
        if ignore_if_exists:
            return chosen
        raise InvalidInputError(
            "tag exists already", code="tag-exists", tag=chosen, hint="choose another name, or delete the tag first"
        )
    _check_still_there(store, chosen, snapshot)
    if options.success_file:
        mark = mark_success(None, time_ms=store.env.clock.now_ms())
        store.env.io.overwrite(store.layout.tag_success_path(chosen), success_to_json(mark))
    return chosen


def hold_snapshot(store: TableStore, name: str, snapshot: Snapshot) -> None:
    """Create a tag for a snapshot that an operation needs: without a lifetime, and without what else a new tag causes.

    Raises:
        InvalidInputError: the name is taken.
        NotFoundError: the snapshot expired before it was tagged.
        CommitUnknownError: it is unknown whether the tag was created.
    """
    if not _publish(store, name, Tag(snapshot=snapshot)):
        raise InvalidInputError("tag exists already", code="tag-exists", tag=name, hint="try again")
    with undo_on_error(lambda: tag_store(store).delete(name), ignore=(StorageError,)):
        _check_still_there(store, name, snapshot)


def _publish(store: TableStore, name: str, tag: Tag) -> bool:
    """Create the tag; False if the name is taken."""
    tags = tag_store(store)
    return settle_creation(tags.create(name, tag), lambda: tags.find(name) == tag, what=f"tag {name}")


def settle_creation(outcome: Outcome, is_mine: Callable[[], bool], *, what: str) -> bool:
    """Whether we created a document, given an answer of the storage that may be unknown.

    Raises:
        CommitUnknownError: the answer is unknown, and the document is not there.
    """
    if isinstance(outcome, Created):
        return True
    if isinstance(outcome, Exists):
        return False
    if is_mine():
        return True
    raise CommitUnknownError(
        "storage did not confirm whether the document was created",
        document=what,
        cause=outcome.cause,
        hint="check whether it exists, and repeat the call if not",
    )


def _check_still_there(store: TableStore, name: str, snapshot: Snapshot) -> None:
    there = store.snapshots.find(snapshot.id)
    if snapshot.is_same_commit(there) or any(
        other != name and snapshot.is_same_commit(tag.snapshot) for other, tag in tag_store(store).all().items()
    ):
        return
    tag_store(store).delete(name)
    raise NotFoundError("snapshot expired while it was tagged", code=EXPIRED, snapshot_id=snapshot.id, tag=name)


def rename_tag(context: TableContext, name: str, new: str) -> None:
    """Give a tag another name; at every moment it is there under one of them.

    Raises:
        NotFoundError: the tag does not exist.
        InvalidInputError: the new name is taken or invalid.
        CommitUnknownError: it is unknown whether the new tag was created; the old one still exists.
    """
    store = context.store
    tag = tag_store(store).get(name)
    if not _publish(store, new, tag):
        raise InvalidInputError("tag exists already", code="tag-exists", tag=new, hint="choose another name")
    tag_store(store).delete(name)


# ------------------------------------------------------------------------------------------------ letting go


@dataclass(frozen=True, slots=True)
class TagDeletion:
    """Tags to delete, and the files that only they hold."""

    tags: tuple[str, ...] = ()
    files: Deletion = field(default_factory=Deletion)
    view: View | None = field(default=None, repr=False, compare=False)
    """What held files when the plan was made."""

    def __str__(self) -> str:
        if not self.tags:
            return "no tag to delete"
        return f"{pluralize(len(self.tags), 'tag')} ({', '.join(self.tags[:5])}): {self.files}"


def plan_tag_deletion(context: TableContext, name: str) -> TagDeletion:
    """Which files go with a tag.

    Raises:
        NotFoundError: the tag does not exist, or something that holds files was deleted while the plan was made.
        FormatError: something that holds files is damaged.
    """
    store = context.store
    snapshot = tag_store(store).get(name).snapshot
    view = look(store)
    others = {other: kept for other, kept in read_tags(store, view.own).items() if other != name}
    if snapshot.id in view.own.snapshots or any(kept.id == snapshot.id for kept in others.values()):
        return TagDeletion((name,), Deletion(), view)
    reader = Reader(store.manifests, context.paths)
    metadata = set(reader.metadata_of_lost(snapshot, changelog=False))
    holding = _tag_holding(store, reader, view, snapshot, list(others.values()))
    add_changelogs(context, reader, view.own, holding)
    for other in view.others:
        add_branch(context, reader, other, holding)
    # Without its complete state the data files of the tag are unknown: they stay as orphans.
    try:
        data = reader.live(snapshot)
    except NotFoundError:
        data = no_files()
    return TagDeletion((name,), holding.plan_deletion(reader, data, no_files(), metadata), view)


def _tag_holding(
    store: TableStore, reader: Reader, view: View, snapshot: Snapshot, others: Sequence[Snapshot]
) -> Holding:
    """What the branch holds besides one tag, the nearest first: they leave the least to ask the others about."""
    holding = Holding()
    snapshots = read_snapshots(store, view.own, view.own.snapshots)
    states = [*others, *snapshots[:1]]
    holding.states += sorted(states, key=lambda each: abs(each.id - snapshot.id))
    left = max((each for each in states if each.id < snapshot.id), key=lambda each: each.id, default=None)
    right = min((each for each in states if each.id > snapshot.id), key=lambda each: each.id, default=None)
    for neighbour in (left, right):
        if neighbour is not None:
            holding.metadata |= reader.metadata(neighbour, changelog=False)
    hold_taken_back(reader, holding, others, changelog=False)
    hold_taken_back(reader, holding, snapshots)
    holding.changes += [each for each in snapshots[1:] if each.commit_kind is CommitKind.OVERWRITE]
    return holding


def run_tag_deletion(context: TableContext, plan: TagDeletion, *, clean_folders: bool = False) -> tuple[str, ...]:
    """Delete tags and what only they held; returns files that stayed as orphans.

    Raises:
        CommitConflictError: what holds files changed before anything was deleted: plan again.
        StorageError: a tag could not be deleted.
    """
    assert plan.view is not None
    store = context.store
    change = find_change(plan.view, look(store))
    if change is not None:
        raise overtaken(change)
    for name in plan.tags:
        tag_store(store).delete(name)
    if not plan.files.paths:
        return ()
    # After a power loss no tag may reappear whose files are gone.
    settle_folder(store.env, store.layout.tag_dir)
    if find_change(plan.view, look(store), untagged=plan.tags) is not None:
        return plan.files.paths
    return run_deletion(store.env, plan.files.paths, clean_folders=clean_folders)


# ------------------------------------------------------------------------------------------------ time


def expired_tags(tags: dict[str, Tag], *, now_local_ns: int) -> list[str]:
    """The tags past their time, oldest snapshot first; a tag without a lifetime stays."""
    return sorted(
        (
            name
            for name, tag in tags.items()
            if tag.create_time_ns is not None
            and tag.time_retained_ns is not None
            and now_local_ns > tag.create_time_ns + tag.time_retained_ns
        ),
        key=lambda name: (tags[name].snapshot.id, name),
    )


def tags_before(store: TableStore, tags: dict[str, Tag], *, older_than_ms: int) -> list[str]:
    """The tags made before a moment: by their own note, else by the time of their file."""
    local = local_time_ms(store.env.clock) - store.env.clock.now_ms()
    files = tag_store(store).files()
    made = {
        name: files[name].modified_ms if tag.create_time_ns is None else tag.create_time_ns // _NANOS_PER_MS - local
        for name, tag in tags.items()
        if name in files
    }
    return sorted(name for name, made_ms in made.items() if made_ms < older_than_ms)


def run_tag_expiry(
    context: TableContext, *, older_than_ms: int | None = None, clean_folders: bool = False
) -> tuple[str, ...]:
    """Delete the tags past their time, or those made before a moment; returns their names.

    Raises:
        CommitConflictError: what holds files kept changing; some tags may be deleted already.
    """
    store = context.store
    tags = tag_store(store).all()
    names = expired_tags(tags, now_local_ns=local_time_ms(store.env.clock) * _NANOS_PER_MS)
    if older_than_ms is not None:
        names = sorted({*names, *tags_before(store, tags, older_than_ms=older_than_ms)})

    def delete(name: str) -> None:
        run_tag_deletion(context, plan_tag_deletion(context, name), clean_folders=clean_folders)

    for name in names:
        unless_overtaken(partial(delete, name))
    return tuple(names)
