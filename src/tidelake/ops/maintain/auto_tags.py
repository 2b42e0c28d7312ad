"""Create the automatic tags of a table, and delete those beyond its limit.

`ops/maintain/tag_schedule` decides what is due; here the snapshots and tags are read and the plan is carried out. Tags
are created oldest first, and the next run goes on after the newest of them: a run that dies in between loses none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelake.io.clock import as_local_ms
from tidelake.ops.commit.options import TableShape
from tidelake.ops.context import TableContext
from tidelake.ops.maintain.expire import ExpireOptions, unless_overtaken
from tidelake.ops.maintain.tag_schedule import (
    AutomaticTags,
    HeldTag,
    TagCreation,
    TagSchedule,
    TagScheduleOptions,
    make_schedule,
    needs_snapshot,
    plan_automatic_tags,
    plan_batch_tag,
)
from tidelake.ops.maintain.tags import plan_tag_deletion, put_tag, refuse_callbacks, run_tag_deletion, tag_store
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.store.snapshots import plan_again

__all__ = ["DueTags", "find_automatic_tags", "run_automatic_tags", "tag_batch", "tag_what_is_due", "wants_snapshot"]


@dataclass(frozen=True, slots=True)
class DueTags:
    """The tags that are due, and what the plan was made on."""

    plan: AutomaticTags
    tags: Mapping[str, int] = field(default_factory=dict)
    """The snapshot of each automatic tag."""
    seen: Snapshot | None = None
    """The newest snapshot that was looked at."""


def find_automatic_tags(context: TableContext, *, known: DueTags | None = None) -> DueTags:
    """Find the tags that are due by the time of commits or by the watermark, whichever `tag.automatic-creation` says.

    With what was found before only newer snapshots are read, as long as the automatic tags are the same.

    Raises:
        InvalidInputError: an option has a wrong value.
        FormatError: a tag or a snapshot is damaged.
    """
    schedule = make_schedule(context.options)
    if schedule is None:
        return DueTags(AutomaticTags())
    store = context.store
    tags = _read_automatic(context, schedule)
    after = max(tags.values(), default=0)
    if known is not None and known.seen is not None and known.tags == tags and _goes_on(context, known.seen):
        after = max(after, known.seen.id)
    ids = [each for each in store.snapshots.ids() if each > after]
    found = [each for each in store.env.executor.map(store.snapshots.find, ids) if each is not None]
    seen = found[-1] if found else (known.seen if known is not None else None)
    return DueTags(plan_automatic_tags(schedule, tags, found), tags, seen)


def _read_automatic(context: TableContext, schedule: TagSchedule) -> dict[str, int]:
    """The snapshot of each automatic tag."""
    tags = tag_store(context.store)
    found = ((name, tags.find(name)) for name in schedule.select_automatic(tags.names()))
    return {name: tag.snapshot.id for name, tag in found if tag is not None}  # None: deleted after the listing


def wants_snapshot(context: TableContext) -> bool:
    """Whether even a commit without files should make a snapshot, because a tag is due by the clock.

    Raises:
        InvalidInputError: an option has a wrong value.
        FormatError: a tag is damaged.
    """
    schedule = make_schedule(context.options)
    if schedule is None or schedule.creation is not TagCreation.PROCESS_TIME:
        return False
    if context.options.of(TableShape).write_only:  # its commits create no tags
        return False
    now_ms = as_local_ms(context.store.env.clock.now_ms(), schedule.zone)
    return needs_snapshot(schedule, _read_automatic(context, schedule), now_ms)


def _goes_on(context: TableContext, seen: Snapshot) -> bool:
    """Whether a snapshot that was looked at is still part of the history, and not taken back by a rollback."""
    there = context.store.snapshots.find(seen.id)
    return seen.is_same_commit(there) if there is not None else (context.store.snapshots.latest_id() or 0) > seen.id


def run_automatic_tags(context: TableContext, plan: AutomaticTags) -> None:
    """Create and delete tags; one that exists already is left as it is.

    Raises:
        NotFoundError: a snapshot expired while it was tagged: plan again.
        CommitConflictError: what holds files kept changing; the new tags are there.
        UnsupportedError: the option `tag.callbacks` is set.
    """
    refuse_callbacks(context)
    _delete(context, plan.replaced)
    for new in plan.created:
        put_tag(context, new.name, new.snapshot)
    _delete(context, plan.deleted)


def _delete(context: TableContext, names: tuple[str, ...]) -> None:
    clean = context.options.of(ExpireOptions).clean_folders

    def attempt() -> None:
        there = set(tag_store(context.store).names())  # another job may be about the same
        chosen = [name for name in names if name in there]
        run_tag_deletion(context, plan_tag_deletion(context, *chosen), clean_folders=clean)

    if names:
        unless_overtaken(attempt)


def tag_what_is_due(context: TableContext, *, known: DueTags | None = None) -> DueTags:
    """Create the tags that are due by the time of commits or by the watermark.

    Raises:
        InvalidInputError: an option has a wrong value.
        NotFoundError: snapshots expired every time while they were tagged.
        CommitConflictError: what holds files kept changing; the new tags are there.
        UnsupportedError: the option `tag.callbacks` is set.
    """

    def attempt() -> DueTags:
        due = find_automatic_tags(context, known=known)
        if not due.plan.is_empty:
            run_automatic_tags(context, due.plan)
        return due

    return plan_again(attempt)


def tag_batch(context: TableContext) -> AutomaticTags:
    """Give the newest snapshot the tag of batch jobs.

    Raises:
        InvalidInputError: an option has a wrong value.
        NotFoundError: snapshots expired every time while they were tagged.
        CommitConflictError: what holds files kept changing.
        UnsupportedError: the option `tag.callbacks` is set.
    """
    store, options = context.store, context.options.of(TagScheduleOptions)

    def attempt() -> AutomaticTags:
        snapshot = store.snapshots.latest()
        if snapshot is None:
            return AutomaticTags()
        files, tags = tag_store(store).files(), tag_store(store).all()
        held = {name: HeldTag(tag, files[name].modified_ms) for name, tag in tags.items() if name in files}
        plan = plan_batch_tag(options, snapshot, held)
        run_automatic_tags(context, plan)
        return plan

    return plan_again(attempt)
