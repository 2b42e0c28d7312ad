"""Tags: create, replace, rename, delete and expire them.

To create a tag, its file is written and then the snapshot is checked: if an expiry deleted it before it could see the
tag, the tag is deleted again. To delete tags, their files are deleted first and then the files that only they held:
those of their states that no other tag, snapshot or branch holds. A crash between the two leaves orphans. A tag that is
given to another snapshot is overwritten in place, so that it is there at every moment; what only the old state held
becomes orphans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tidelake.cleanup import undo_on_error
from tidelake.errors import CommitUnknownError, InvalidInputError, NotFoundError, StorageError, UnsupportedError
from tidelake.io.clock import local_time_ms
from tidelake.io.fileio import Created, Exists, FileStatus, Outcome
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
from tidelake.ops.maintain.tag_schedule import make_schedule
from tidelake.ops.scan.travel import find_time
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
    time_ms: int | None = None,
    time_retained_ms: int | None = None,
    ignore_if_exists: bool = False,
) -> str:
    """Give a snapshot a name and return it; without a name it is `snapshot-N`.

    Args:
        context: the table.
        name: the name.
        snapshot_id: the snapshot; by default the newest.
        time_ms: instead of its id, the first snapshot that was committed at or after this time.
        time_retained_ms: how long the tag is kept; by default as the table's options say.
        ignore_if_exists: leave a tag of that name as it is.

    Raises:
        InvalidInputError: the name is taken or invalid, or an automatic one and the snapshot has one of these.
        NotFoundError: the snapshot does not exist, or expired while it was tagged.
        CommitUnknownError: it is unknown whether the tag was created.
        UnsupportedError: the option `tag.callbacks` is set.
    """
    refuse_callbacks(context)
    store = context.store

    def attempt() -> str:
        snapshot = _find_snapshot(store, snapshot_id) if time_ms is None else find_first_since(store, time_ms)
        chosen = f"snapshot-{snapshot.id}" if name is None else name
        if not (ignore_if_exists and tag_store(store).find(chosen) is not None):
            _refuse_second_automatic(context, chosen, snapshot)
        if not put_tag(context, chosen, snapshot, time_retained_ms) and not ignore_if_exists:
            raise InvalidInputError(
                "tag exists already",
                code="tag-exists",
                tag=chosen,
                hint="choose another name, or delete the tag first",
            )
        return chosen

    return plan_again(attempt) if snapshot_id is None else attempt()


def refuse_callbacks(context: TableContext) -> None:
    """Refuse to create a tag that classes want to hear of.

    Raises:
        UnsupportedError: the option `tag.callbacks` is set.
    """
    callbacks = context.options.of(TagOptions).callbacks
    if callbacks:
        raise UnsupportedError("tag callbacks are not supported", option="tag.callbacks", value=callbacks)


def _find_snapshot(store: TableStore, snapshot_id: int | None) -> Snapshot:
    snapshot = store.snapshots.latest() if snapshot_id is None else store.snapshots.get(snapshot_id)
    if snapshot is None:
        raise NotFoundError(
            "table has no snapshot to tag",
            code="snapshot-not-found",
            table=store.env.io.root,
            hint="write to the table first",
        )
    return snapshot


def find_first_since(store: TableStore, time_ms: int) -> Snapshot:
    """The first snapshot that was committed at or after a time, also among those that only a tag keeps.

    Raises:
        NotFoundError: all snapshots are older.
    """
    before = find_time(store, time_ms - 1)
    if before is not None:
        # The next one may have expired since, and then others before it; the caller looks again.
        newer = [each for each in store.snapshots.ids() if each > before.id]
        found = store.snapshots.find(newer[0]) if newer else None
    else:
        oldest = store.snapshots.earliest_id()
        known = [each.snapshot for each in tag_store(store).all().values() if each.snapshot.time_ms >= time_ms]
        known += [] if oldest is None else [store.snapshots.get(oldest)]
        found = min(known, key=lambda each: each.id, default=None)
    if found is None:
        raise NotFoundError(
            "no snapshot was committed at or after that time",
            code="snapshot-not-found",
            time_ms=time_ms,
            table=store.env.io.root,
            hint="give an earlier time; inspect.snapshots() lists the snapshots with theirs",
        )
    return found


def _refuse_second_automatic(context: TableContext, name: str, snapshot: Snapshot) -> None:
    """Refuse the name of an automatic tag for a snapshot that carries another one: Paimon relies on one at most."""
    schedule = make_schedule(context.options)
    if schedule is None or not schedule.select_automatic([name]):
        return
    tags = tag_store(context.store)
    for other in schedule.select_automatic(tags.names()):
        tag = None if other == name else tags.find(other)
        if tag is not None and tag.snapshot.id == snapshot.id:
            raise InvalidInputError(
                "snapshot has an automatic tag already",
                code="tag-exists",
                tag=name,
                snapshot_id=snapshot.id,
                automatic=other,
                hint="choose a name that is not that of an automatic tag, or delete the other tag first",
            )


def put_tag(context: TableContext, name: str, snapshot: Snapshot, time_retained_ms: int | None = None) -> bool:
    """Create the tag of a snapshot, kept as long as the options say unless a time is given; False if it exists.

    Raises:
        InvalidInputError: the name or the time is invalid.
        NotFoundError: the snapshot expired while it was tagged.
        CommitUnknownError: it is unknown whether the tag was created.
    """
    store, options = context.store, context.options.of(TagOptions)
    lifetime = options.time_retained_ms if time_retained_ms is None else time_retained_ms
    if not _publish(store, name, _make_tag(store, snapshot, lifetime)):
        return False
    if not _is_still_there(store, name, snapshot):
        tag_store(store).delete(name)
        raise NotFoundError("snapshot expired while it was tagged", code=EXPIRED, snapshot_id=snapshot.id, tag=name)
    _mark_success(context, name)
    return True


def _make_tag(store: TableStore, snapshot: Snapshot, lifetime_ms: int | None) -> Tag:
    if lifetime_ms is None:
        return Tag(snapshot=snapshot)
    if lifetime_ms <= 0:
        raise InvalidInputError(
            "a tag must be retained for some time",
            time_retained_ms=lifetime_ms,
            hint="write it as `90 d`, or leave it out",
        )
    created_ns = local_time_ms(store.env.clock) * _NANOS_PER_MS
    return Tag(snapshot=snapshot, create_time_ns=created_ns, time_retained_ns=lifetime_ms * _NANOS_PER_MS)


def _mark_success(context: TableContext, name: str) -> None:
    if context.options.of(TagOptions).success_file:
        store = context.store
        mark = mark_success(None, time_ms=store.env.clock.now_ms())
        store.env.io.overwrite(store.layout.tag_success_path(name), success_to_json(mark))


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
        if not _is_still_there(store, name, snapshot):
            raise NotFoundError("snapshot expired while it was tagged", code=EXPIRED, snapshot_id=snapshot.id, tag=name)


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


def _is_still_there(store: TableStore, name: str, snapshot: Snapshot) -> bool:
    """Whether something besides the tag holds its snapshot, after an expiry that could not see the tag."""
    return snapshot.is_same_commit(store.snapshots.find(snapshot.id)) or any(
        other != name and snapshot.is_same_commit(tag.snapshot) for other, tag in tag_store(store).all().items()
    )


# ------------------------------------------------------------------------------------------------ changing one


@dataclass(frozen=True, slots=True)
class TagReplacement:
    """A tag that is given to another snapshot, or gets another lifetime."""

    tag: str
    before: Snapshot
    after: Snapshot
    is_lost: bool
    """Whether neither a snapshot nor another tag keeps what the tag named: files that only it needs become orphans."""

    def __str__(self) -> str:
        text = f"tag {self.tag} from snapshot {self.before.id} to snapshot {self.after.id}"
        return f"{text}; neither a snapshot nor another tag keeps snapshot {self.before.id}" if self.is_lost else text


def plan_tag_replacement(context: TableContext, name: str, *, snapshot_id: int | None = None) -> TagReplacement:
    """Which snapshot a tag is given to: the newest one by default.

    Raises:
        NotFoundError: the tag or the snapshot does not exist.
        InvalidInputError: the name is that of an automatic tag, and the snapshot has one of these.
    """
    store = context.store
    before = tag_store(store).get(name).snapshot
    after = _find_snapshot(store, snapshot_id)
    _refuse_second_automatic(context, name, after)
    return TagReplacement(
        name, before, after, not after.is_same_commit(before) and not _is_still_there(store, name, before)
    )


def run_tag_replacement(context: TableContext, plan: TagReplacement, *, time_retained_ms: int | None = None) -> None:
    """Overwrite a tag; without a time it is kept until it is deleted.

    Raises:
        NotFoundError: the tag is gone, or the snapshot expired while it was tagged; the tag is as it was.
        InvalidInputError: the time is invalid.
        UnsupportedError: the option `tag.callbacks` is set.
    """
    refuse_callbacks(context)
    store, tags = context.store, tag_store(context.store)
    made = _make_tag(store, plan.after, time_retained_ms)
    old = tags.get(plan.tag)
    listed = tags.files().get(plan.tag)
    tags.replace(plan.tag, made)
    # An expiry recognizes a changed tag by its file in a listing: its time must differ where its size does not.
    for _ in range(_TIME_STEPS):
        if _looks_different(listed, tags.files().get(plan.tag)):
            break
        store.env.clock.sleep(_TIME_STEP_S)
        tags.replace(plan.tag, made)
    if not _is_still_there(store, plan.tag, plan.after):
        tags.replace(plan.tag, old)
        raise NotFoundError(
            "snapshot expired while it was tagged", code=EXPIRED, snapshot_id=plan.after.id, tag=plan.tag
        )


_TIME_STEP_S = 0.25
_TIME_STEPS = 10
"""Storages note the time of a file in milliseconds or in whole seconds."""


def _looks_different(before: FileStatus | None, after: FileStatus | None) -> bool:
    return before is None or after is None or (before.size, before.modified_ms) != (after.size, after.modified_ms)


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


def plan_tag_deletion(context: TableContext, *names: str) -> TagDeletion:
    """Which files go with tags.

    Raises:
        NotFoundError: a tag does not exist, or something that holds files was deleted while the plan was made.
        FormatError: something that holds files is damaged.
    """
    store = context.store
    doomed = {name: tag_store(store).get(name).snapshot for name in names}
    if not doomed:
        return TagDeletion()
    view = look(store)
    others = [kept for other, kept in read_tags(store, view.own).items() if other not in doomed]
    found = [
        _plan_files(context, view, snapshot, others)
        for snapshot in {each.id: each for each in doomed.values()}.values()
        if snapshot.id not in view.own.snapshots and all(kept.id != snapshot.id for kept in others)
    ]
    files = Deletion(
        data=_merge_paths(each.data for each in found),
        changelog=_merge_paths(each.changelog for each in found),
        metadata=_merge_paths(each.metadata for each in found),
        external=sum(each.external for each in found),
    )
    return TagDeletion(tuple(doomed), files, view)


def _merge_paths(paths: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(path for each in paths for path in each))


def _plan_files(context: TableContext, view: View, snapshot: Snapshot, others: Sequence[Snapshot]) -> Deletion:
    """The files of a state that nothing else holds; `others` are what the tags that stay keep."""
    store = context.store
    reader = Reader(store.manifests, context.paths)
    metadata = set(reader.metadata_of_lost(snapshot, changelog=False))
    holding = _tag_holding(store, reader, view, snapshot, others)
    add_changelogs(context, reader, view.own, holding)
    for other in view.others:
        add_branch(context, reader, other, holding)
    # Without its complete state the data files of the tag are unknown: they stay as orphans.
    try:
        data = reader.live(snapshot)
    except NotFoundError:
        data = no_files()
    return holding.plan_deletion(reader, data, no_files(), metadata)


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
    if plan.view is None:
        return ()
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


def plan_tag_expiry(context: TableContext, *, older_than_ms: int | None = None) -> TagDeletion:
    """Plan to delete the tags past their time, and those made before a moment.

    Raises:
        NotFoundError: something that holds files was deleted while the plan was made.
        FormatError: something that holds files is damaged.
    """
    store = context.store
    tags = tag_store(store).all()
    names = expired_tags(tags, now_local_ns=local_time_ms(store.env.clock) * _NANOS_PER_MS)
    if older_than_ms is not None:
        names = sorted({*names, *tags_before(store, tags, older_than_ms=older_than_ms)})
    return plan_tag_deletion(context, *names)


def run_tag_expiry(
    context: TableContext, *, older_than_ms: int | None = None, clean_folders: bool = False
) -> tuple[str, ...]:
    """Delete the tags past their time, or those made before a moment; returns their names.

    Raises:
        CommitConflictError: what holds files kept changing, and nothing was deleted.
    """

    def attempt() -> tuple[str, ...]:
        plan = plan_tag_expiry(context, older_than_ms=older_than_ms)
        run_tag_deletion(context, plan, clean_folders=clean_folders)
        return plan.tags

    return unless_overtaken(attempt)
