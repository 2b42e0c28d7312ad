"""Expiring long-lived changelogs: which are deleted, and which files with them.

The plan finds the files that only the expiring changelogs refer to. In a table that writes changelog files these are
the changelog files. In any other table they are the data files that an expiring changelog deletes: the snapshots that
added them expired earlier. Manifests that are still used are found through the first one that stays, a changelog or the
oldest snapshot. As with snapshots, the documents are deleted before the files, so that a crash leaves orphans and never
a changelog that lacks a file.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import FormatError, NotFoundError
from tidelake.notebook import pluralize
from tidelake.ops.context import TableContext
from tidelake.ops.maintain.deletion import Deletion, run_deletion, settle_folder
from tidelake.ops.maintain.expire import (
    ExpireOptions,
    ExpireResult,
    Holding,
    Retention,
    Times,
    add_branch,
    hold_taken_back,
    overtaken,
    streams_read_data,
    times_of,
)
from tidelake.ops.maintain.holders import View, find_change, look, next_consumed, read_snapshots, read_tags
from tidelake.ops.maintain.reachable import Reader, dead_files, made_by_compactions, no_files, union
from tidelake.spec.documents.snapshot import CommitKind, Snapshot
from tidelake.spec.layout import EARLIEST, LATEST


def pick_changelog_end(
    earliest: int,
    latest: int,
    newest_snapshot: int,
    retention: Retention,
    times: Times,
    *,
    consumed: int | None,
) -> int:
    """The first changelog that stays: those from `earliest` up to it, not included, expire.

    The newest one always stays: together with the oldest snapshot it shows that no change is missing between them.

    Args:
        earliest: the oldest changelog.
        latest: the newest one.
        newest_snapshot: the newest snapshot, from which changelogs are counted.
        retention: what must be kept.
        times: the commit times of the changelogs.
        consumed: the lowest snapshot that a consumer has still to read.
    """
    first = max(newest_snapshot - retention.retain_max + 1, earliest)
    end = min(newest_snapshot - retention.retain_min + 1, earliest + retention.limit, latest)
    if consumed is not None:
        end = min(end, consumed)
    for changelog_id, time_ms in times(first, end - 1):
        if time_ms is not None and time_ms >= retention.older_than_ms:
            end = changelog_id
            break
    return max(end, earliest)


@dataclass(frozen=True, slots=True)
class ChangelogPlan:
    """Long-lived changelogs to expire, and the files that go with them."""

    changelog_ids: tuple[int, ...] = ()
    files: Deletion = field(default_factory=Deletion)
    end: int = 0
    """The first that stays; snapshots may follow it."""
    view: View | None = field(default=None, repr=False, compare=False)
    """What held files when the plan was made."""

    def __str__(self) -> str:
        if not self.changelog_ids:
            return "no changelog to expire"
        ids = f"{self.changelog_ids[0]} to {self.changelog_ids[-1]}"
        return f"{pluralize(len(self.changelog_ids), 'changelog')} ({ids}): {self.files}"


def plan_changelog_expiry(
    context: TableContext,
    *,
    older_than_ms: int | None = None,
    retain_max: int | None = None,
    retain_min: int | None = None,
    max_deletes: int | None = None,
    delete_all: bool = False,
) -> ChangelogPlan:
    """Which long-lived changelogs would expire now, and which files with them; arguments go before the options.

    `delete_all` takes all of them that no consumer has still to read.

    Raises:
        InvalidInputError: the numbers contradict each other.
        CommitConflictError: what holds files changed while the plan was made: plan again.
        NotFoundError: a file of something that holds files is gone.
        FormatError: something that holds files is damaged.
    """
    store, how = context.store, context.options.of(ExpireOptions)
    changelogs, newest = store.changelogs, store.snapshots.latest_id()
    earliest, latest = changelogs.earliest_id(), changelogs.latest_id()
    if newest is None or earliest is None or latest is None:
        return ChangelogPlan()
    retained_ms = how.time_retained_ms if how.changelog_retained_ms is None else how.changelog_retained_ms
    least = _first_given(retain_min, how.changelog_min, how.retain_min)
    retention = Retention(
        retain_min=least,
        retain_max=max(_first_given(retain_max, how.changelog_max, how.retain_max), least if retain_max is None else 1),
        older_than_ms=store.env.clock.now_ms() - retained_ms if older_than_ms is None else older_than_ms,
        limit=_first_given(max_deletes, how.limit),
    )
    consumed = next_consumed(store)
    if delete_all:
        end = latest + 1 if consumed is None else max(min(latest + 1, consumed), earliest)
    else:
        end = pick_changelog_end(earliest, latest, newest, retention, times_of(changelogs), consumed=consumed)
    view = look(store)
    ids = tuple(each for each in view.own.changelogs if each < end)
    if not ids:
        return ChangelogPlan()
    try:
        files = _plan_files(context, view, ids, end)
    except NotFoundError as cause:
        change = find_change(view, look(store))
        if change is None:
            raise
        raise overtaken(change) from cause
    return ChangelogPlan(ids, files, end, view)


def _first_given(*values: int | None) -> int:
    return next(value for value in values if value is not None)


def _plan_files(context: TableContext, view: View, ids: tuple[int, ...], end: int) -> Deletion:
    store = context.store
    reader = Reader(store.manifests, context.paths)
    # If a snapshot of the same id exists, an expiry crashed before it deleted the snapshot, which holds all files.
    expiring = [store.changelogs.get(each) for each in ids if each not in view.own.snapshots]
    changelog = union(found for each in expiring if (found := _added_changelog(reader, each)) is not None)
    metadata: set[str] = set()
    for each in expiring:
        metadata |= reader.readable_metadata(each)
    dead, external = no_files(), 0
    if streams_read_data(context):
        deltas = [found for each in expiring if (found := _read_written_entries(reader, each)) is not None]
        dead, external = dead_files(deltas, context.paths)
    holding = _collect_holding(context, reader, view, end)
    if dead.num_rows:
        _hold_taken_back_by_later(context, view, end, holding)
    return holding.plan_deletion(reader, dead, changelog, metadata, external=external)


def _added_changelog(reader: Reader, changelog: Snapshot) -> pa.Table | None:
    try:
        return reader.read_added(reader.changelog(changelog))
    except (NotFoundError, FormatError):
        return None  # an unfinished expiry deleted some of it: the remaining files are orphans


def _read_written_entries(reader: Reader, changelog: Snapshot) -> pa.Table | None:
    """The entries of files that writers wrote; output of compactions was deleted with the snapshots."""
    try:
        entries = reader.changes(reader.delta(changelog))
    except (NotFoundError, FormatError):
        return None
    return entries.filter(pc.invert(made_by_compactions(entries)))


def _collect_holding(context: TableContext, reader: Reader, view: View, end: int) -> Holding:
    """What holds files once these changelogs are gone."""
    holding = Holding()
    store, own = context.store, view.own
    tags = list(read_tags(store, own).values())
    snapshots = read_snapshots(store, own, own.snapshots)
    holding.states += [*snapshots[:1], *tags]
    holding.changes += [each for each in snapshots[1:] if each.commit_kind is CommitKind.OVERWRITE]
    hold_taken_back(reader, holding, snapshots)
    for state in (*snapshots[:1], *tags):
        holding.metadata |= reader.metadata(state, changelog=False)
    following = next((each for each in own.changelogs if each >= end), None)
    if following is not None:
        holding.metadata |= reader.readable_metadata(store.changelogs.get(following))
    for other in view.others:
        add_branch(context, reader, other, holding)
    return holding


def _hold_taken_back_by_later(context: TableContext, view: View, end: int, holding: Holding) -> None:
    """Hold the files that later changelogs add, where an overwrite took back what an expiring one deletes."""
    kept = context.store.env.executor.map(context.store.changelogs.get, [n for n in view.own.changelogs if n >= end])
    overwrites = (each for each in kept if each.commit_kind is CommitKind.OVERWRITE)
    holding.lost += [(each, streams_read_data(context)) for each in overwrites]


def run_changelog_expiry(context: TableContext, plan: ChangelogPlan) -> ExpireResult:
    """Expire what was planned, unless what holds files has changed since.

    Raises:
        CommitConflictError: it changed before anything was deleted: plan again.
        StorageError: a changelog could not be deleted; the files of those that were are orphans now.
    """
    if not plan.changelog_ids or plan.view is None:
        return ExpireResult()
    store = context.store
    consumed = next_consumed(store)
    change = "consumers" if consumed is not None and consumed < plan.end else find_change(plan.view, look(store))
    if change is not None:
        raise overtaken(change)
    changelogs = store.changelogs
    left = [each for each in plan.view.own.changelogs if each >= plan.end]
    if left:
        changelogs.hint_earliest(left[0])
    for changelog_id in plan.changelog_ids:
        changelogs.delete(changelog_id)
    if not left:
        for hint in (LATEST, EARLIEST):
            store.env.io.delete(store.layout.changelog_hint_path(hint))
    # After a power loss no changelog may reappear whose files are gone.
    settle_folder(store.env, store.layout.changelog_dir)
    change = find_change(plan.view, look(store), dropped=plan.changelog_ids)
    if change is not None:
        return ExpireResult((), Deletion(), plan.files.paths, f"{change} changed during the expiry", plan.changelog_ids)
    clean = context.options.of(ExpireOptions).clean_folders
    stayed = run_deletion(store.env, plan.files.paths, clean_folders=clean)
    reason = "the storage did not delete them" if stayed else None
    return ExpireResult((), plan.files, stayed, reason, plan.changelog_ids)
