"""Expiring snapshots: which are deleted, which files with them, and in which order.

`pick_end` chooses by count, age and consumers. The plan then finds the files that only the expiring snapshots reach:

* data files that the changes up to the first snapshot that stays have deleted. A file that only changed its level, or
  that a later change added again, is live;
* changelog files of the expiring snapshots;
* manifests, manifest lists, index files and statistics that the first snapshot that stays does not use.

Everything that another snapshot, a tag, another branch or a long-lived changelog holds stays. The order of the
steps makes a crash harmless: write the long-lived changelogs, write the hint, delete the snapshot files (oldest first),
check again what holds files, delete the files. A file that is not deleted after that is an orphan; at no moment does a
snapshot or a changelog lack a file.

Where changelogs outlive their snapshots, each expiring snapshot leaves its document as `changelog-N`. Of a table with
changelog files that holds those. Of any other it holds its manifests and the files that writers wrote and that it adds
or deletes: what a stream reads of it. Such a file therefore goes with the changelog that deletes it (`changelogs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import CommitConflictError, FormatError, InvalidInputError, NotFoundError
from tidelake.notebook import pluralize
from tidelake.ops.context import TableContext
from tidelake.ops.maintain.deletion import Deletion, run_deletion, settle_folder
from tidelake.ops.maintain.holders import (
    BranchView,
    View,
    find_change,
    look,
    next_consumed,
    read_changelogs,
    read_snapshots,
    read_tags,
)
from tidelake.ops.maintain.reachable import Reader, dead_files, made_by_compactions, may_hold, no_files, union, without
from tidelake.ops.scan.follow import FollowOptions
from tidelake.options import Affects, DurationMs, OptionGroup, option, same_option
from tidelake.spec.documents.snapshot import CommitKind, Snapshot
from tidelake.spec.layout import EARLIEST, INDEX_DIR, STATISTICS_DIR
from tidelake.spec.manifests.manifest import ADD
from tidelake.spec.manifests.manifest_list import ManifestMeta
from tidelake.spec.schemas.schema_options import ChangelogProducer, SchemaOptions
from tidelake.store.changelogs import ChangelogStore
from tidelake.store.snapshots import SnapshotSource
from tidelake.store.table_store import TableStore

T = TypeVar("T")
_MAINTENANCE = (Affects.MAINTENANCE,)
_OVERTAKEN: Final = "plan-overtaken"
_ATTEMPTS: Final = 10
"""Plans of a deletion."""
_MANIFESTS = 256
"""Snapshots whose changes are read together; bounds memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireOptions(OptionGroup):
    """How many snapshots are kept, and for how long."""

    retain_min: int = same_option(SchemaOptions, "snapshots_min")
    retain_max: int = same_option(SchemaOptions, "snapshots_max")
    time_retained_ms: DurationMs = option(
        "snapshot.time-retained",
        DurationMs(3_600_000),
        doc="How long a snapshot stays after it stopped being the newest.",
        affects=_MAINTENANCE,
    )
    limit: int = option("snapshot.expire.limit", 50, doc="Snapshots that one run expires.", affects=_MAINTENANCE)
    clean_folders: bool = option(
        "snapshot.clean-empty-directories",
        False,
        doc="Remove folders that expiry leaves empty.",
        affects=_MAINTENANCE,
        fallback=("snapshot.expire.clean-empty-directories",),
    )
    changelog_min: int | None = same_option(SchemaOptions, "changelogs_min")
    changelog_max: int | None = same_option(SchemaOptions, "changelogs_max")
    changelog_retained_ms: DurationMs | None = option(
        "changelog.time-retained", None, doc="How long a long-lived changelog stays.", affects=_MAINTENANCE
    )
    consumers_hold_changelogs_only: bool = option(
        "consumer.changelog-only",
        False,
        doc="Where changelogs outlive their snapshots, consumers hold back changelogs only.",
        affects=_MAINTENANCE,
    )

    @property
    def keeps_changelogs_longer(self) -> bool:
        """Whether changelogs outlive their snapshots."""
        pairs = (
            (self.changelog_min, self.retain_min),
            (self.changelog_max, self.retain_max),
            (self.changelog_retained_ms, self.time_retained_ms),
        )
        return any(mine is not None and mine > snapshots for mine, snapshots in pairs)


def find_consumed(context: TableContext) -> int | None:
    """The first snapshot that a consumer holds back, if any.

    Where streams see overwrites, that is the one before what the consumer reads next: what an overwrite takes back is
    there as long as the snapshot that it replaced.

    Raises:
        FormatError: the document of a consumer is damaged: it may hold anything.
    """
    options = context.options.of(ExpireOptions)
    if options.keeps_changelogs_longer and options.consumers_hold_changelogs_only:
        return None
    following = next_consumed(context.store)
    taken_back = context.is_keyed and context.table_options.of(FollowOptions).overwrites
    return following if following is None or not taken_back else following - 1


def streams_read_data(context: TableContext) -> bool:
    """Whether the changes of a table are the files that its snapshots add, because it has no changelog producer."""
    producer = SchemaOptions.read_leniently(context.table_options).changelog_producer
    return not context.is_keyed or producer is ChangelogProducer.NONE


# ------------------------------------------------------------------------------------------------ which snapshots


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What must be kept."""

    retain_min: int
    retain_max: int
    older_than_ms: int
    """A snapshot may go when its successor was committed before this."""
    limit: int

    def __post_init__(self) -> None:
        for name, value in (("retain_min", self.retain_min), ("retain_max", self.retain_max), ("limit", self.limit)):
            if not isinstance(value, int):
                raise InvalidInputError(f"{name} is not a number", got=repr(value)[:80], hint="give a whole number")
        if self.retain_min < 1:
            raise InvalidInputError(
                "at least one snapshot must be retained", retain_min=self.retain_min, hint="give 1 or more"
            )
        if self.retain_max < self.retain_min:
            raise InvalidInputError(
                "the most snapshots to retain are fewer than the least",
                retain_min=self.retain_min,
                retain_max=self.retain_max,
                hint="raise retain_max or lower retain_min",
            )
        if self.limit < 0:
            raise InvalidInputError("number of snapshots to expire is negative", max_deletes=self.limit)


Times: TypeAlias = Callable[[int, int], Iterable[tuple[int, int | None]]]
"""The commit times from one id up to another; of ids that are missing perhaps only the first, with None."""


def pick_end(earliest: int, latest: int, retention: Retention, times: Times, *, consumed: int | None) -> int:
    """The first snapshot that stays: those from `earliest` up to it, not included, expire.

    A snapshot is readable for the whole retention after it stopped being the newest: the age of its successor counts.

    Args:
        earliest: the oldest snapshot.
        latest: the newest one.
        retention: what must be kept.
        times: the commit times of the snapshots.
        consumed: the lowest snapshot that a consumer has still to read.
    """
    first = max(latest - retention.retain_max + 1, earliest)
    end = min(latest - retention.retain_min + 1, earliest + retention.limit)
    if consumed is not None:
        end = min(end, consumed)
    before = first
    for snapshot_id, time_ms in times(first + 1, end):
        if time_ms is None:
            continue
        if time_ms >= retention.older_than_ms:
            end = before
            break
        before = snapshot_id
    return max(end, earliest)


# ------------------------------------------------------------------------------------------------ which files


@dataclass(frozen=True, slots=True)
class ExpirePlan:
    """Snapshots to expire, from `begin` up to `end`, not included, and the files that go with them."""

    begin: int = 0
    end: int = 0
    snapshot_ids: tuple[int, ...] = ()
    files: Deletion = field(default_factory=Deletion)
    view: View | None = field(default=None, repr=False, compare=False)
    """What held files when the plan was made."""
    changelogs: tuple[Snapshot, ...] = field(default=(), repr=False)
    """Snapshots that stay as long-lived changelogs."""

    def __str__(self) -> str:
        if not self.snapshot_ids:
            return "nothing to expire"
        kept = f", {pluralize(len(self.changelogs), 'changelog')} stay" if self.changelogs else ""
        ids = f"{self.snapshot_ids[0]} to {self.snapshot_ids[-1]}"
        return f"{pluralize(len(self.snapshot_ids), 'snapshot')} ({ids}): {self.files}{kept}"


@dataclass(frozen=True, slots=True)
class ExpireResult:
    """What an expiry did. `left` are files that stayed as orphans, with the reason."""

    snapshot_ids: tuple[int, ...] = ()
    files: Deletion = field(default_factory=Deletion)
    left: tuple[str, ...] = ()
    reason: str | None = None
    changelog_ids: tuple[int, ...] = ()
    """Long-lived changelogs that expired, where those are what is expired."""

    def __str__(self) -> str:
        number, what = (
            (len(self.changelog_ids), "changelog") if self.changelog_ids else (len(self.snapshot_ids), "snapshot")
        )
        text = f"{pluralize(number, what)} expired: {self.files}"
        return f"{text}; {pluralize(len(self.left), 'file')} left: {self.reason}" if self.left else text


def plan_expire(
    context: TableContext,
    *,
    older_than_ms: int | None = None,
    retain_max: int | None = None,
    retain_min: int | None = None,
    max_deletes: int | None = None,
    leaves_changelogs: bool | None = None,
) -> ExpirePlan:
    """Which snapshots would expire now, and which files with them; arguments go before the table's options.

    `leaves_changelogs` says whether changelogs outlive their snapshots.

    Raises:
        InvalidInputError: the numbers contradict each other.
        CommitConflictError: what holds files changed while the plan was made: plan again.
        NotFoundError: a file of something that holds files is gone.
        FormatError: something that holds files is damaged.
    """
    store, options = context.store, context.options.of(ExpireOptions)
    if older_than_ms is None:
        older_than_ms = store.env.clock.now_ms() - options.time_retained_ms
    retention = Retention(
        retain_min=_or_default(retain_min, options.retain_min),
        retain_max=_or_default(retain_max, options.retain_max),
        older_than_ms=older_than_ms,
        limit=_or_default(max_deletes, options.limit),
    )
    snapshots = store.snapshots
    latest, earliest = snapshots.latest_id(), snapshots.earliest_id()
    if latest is None or earliest is None or latest - earliest < retention.retain_min:
        return ExpirePlan()
    end = pick_end(earliest, latest, retention, times_of(snapshots), consumed=find_consumed(context))
    if end <= earliest:
        return ExpirePlan(begin=earliest, end=earliest)
    view = look(store)
    # Counted by their ids too many may go where some are missing: as many as must stay do stay.
    end = min((end, *view.own.snapshots[-retention.retain_min :]))
    ids = tuple(number for number in view.own.snapshots if number < end)
    end = next((number for number in view.own.snapshots if number >= end), 0)
    if not ids and end == earliest:
        return ExpirePlan(begin=earliest, end=earliest)
    if not ids or not end:
        raise overtaken("snapshots")
    try:
        expiring = read_snapshots(store, view.own, ids)
        (first_kept,) = read_snapshots(store, view.own, [end])
        leaves = options.keeps_changelogs_longer if leaves_changelogs is None else leaves_changelogs
        left = _Left(leaves, streams_read_data(context))
        files = plan_files(context, view, expiring, first_kept, left)
    except NotFoundError as cause:
        # Another job may be expiring the same snapshots; if nothing changed, the table is damaged.
        change = find_change(view, look(store))
        if change is None:
            raise
        raise overtaken(change) from cause
    return ExpirePlan(earliest, end, ids, files, view, tuple(expiring) if leaves else ())


def _or_default(value: int | None, default: int) -> int:
    return default if value is None else value


def times_of(kept: SnapshotSource | ChangelogStore) -> Times:
    """The commit times of snapshots or of long-lived changelogs."""

    def times(first: int, last: int) -> Iterable[tuple[int, int | None]]:
        return ((number, None if found is None else found.time_ms) for number, found in kept.walk(first, last))

    return times


@dataclass(frozen=True, slots=True)
class _Left:
    """What expiring snapshots leave: changelogs or nothing, and whether those hold data files or changelog files."""

    changelogs: bool = False
    data: bool = False


def plan_files(
    context: TableContext, view: View, expiring: Sequence[Snapshot], first_kept: Snapshot, left: _Left
) -> Deletion:
    """The files that only these snapshots reach, and not the changelogs that they leave.

    Raises:
        NotFoundError: a snapshot, tag or changelog that holds files was deleted while the plan was made.
        FormatError: something that holds files is damaged.
    """
    reader = Reader(context.store.manifests, context.paths)
    keeps_data = left.changelogs and left.data
    dead, external, complete = _dead(reader, [*expiring[1:], first_kept], compacted_only=keeps_data)
    changelog = no_files() if left.changelogs else union(_changelogs_of(reader, expiring))
    metadata: set[str] = set()
    for snapshot in expiring:
        metadata |= reader.beside(snapshot) if keeps_data else reader.metadata_of_lost(snapshot)
    metadata -= reader.metadata(first_kept)
    if left.changelogs and not left.data:
        for snapshot in expiring:
            metadata -= reader.changelog_metadata(snapshot)
    complete = complete and len(expiring) == first_kept.id - expiring[0].id
    needed = bool(dead.num_rows) or _backwards(metadata)
    holding = _own_holding(context.store, reader, view, first_kept, expiring[0].id, needed=needed)
    if not left.changelogs:
        add_changelogs(context, reader, view.own, holding)
    holding.states += [] if complete else [first_kept]
    for other in view.others:
        add_branch(context, reader, other, holding)
    return holding.plan_deletion(reader, dead, changelog, metadata, external=external)


def _dead(reader: Reader, snapshots: Sequence[Snapshot], *, compacted_only: bool = False) -> tuple[pa.Table, int, bool]:
    """The files that the changes of these snapshots leave deleted; False when not all of them could be read."""
    deltas = []
    for snapshot in snapshots:
        try:
            delta = reader.changes(reader.delta(snapshot))
            deltas.append(delta.filter(made_by_compactions(delta)) if compacted_only else delta)
        except (NotFoundError, FormatError):
            # An unfinished expiry deleted some of its files; the others become orphans.
            continue
    dead, external = dead_files(deltas, reader.paths)
    return dead, external, len(deltas) == len(snapshots)


def _changelogs_of(reader: Reader, snapshots: Iterable[Snapshot]) -> Iterable[pa.Table]:
    for snapshot in snapshots:
        try:
            yield reader.read_added(reader.changelog(snapshot))
        except (NotFoundError, FormatError):
            continue


def _backwards(metadata: Iterable[str]) -> bool:
    """Whether there is a file that a later snapshot may take back from an older one: manifests are only passed on."""
    return any(path.startswith((INDEX_DIR + "/", STATISTICS_DIR + "/")) or "/index-" in path for path in metadata)


# ------------------------------------------------------------------------------------------------ what holds them


@dataclass(slots=True)
class Holding:
    """What holds files, gathered before anything is released.

    `states` hold their live data files, `changes` the files that they add, `changelogs` their changelog files.
    """

    states: list[Snapshot] = field(default_factory=list)
    changes: list[Snapshot] = field(default_factory=list)
    changelogs: list[Snapshot] = field(default_factory=list)
    metadata: set[str] = field(default_factory=set)
    lost: list[tuple[Snapshot, bool]] = field(default_factory=list)
    """Long-lived changelogs, of which only some files need to exist, and whether streams read data files of them."""

    def plan_deletion(
        self, reader: Reader, data: pa.Table, changelog: pa.Table, metadata: set[str], *, external: int = 0
    ) -> Deletion:
        """Of these files those that nothing holds.

        Raises:
            NotFoundError: a file of a holder is gone.
            FormatError: a file of a holder is damaged.
        """
        data = _without_added(reader, data, self.changes, reader.delta)
        changelog = _without_added(reader, changelog, self.changelogs, reader.changelog)
        for snapshot, reads_data in self.lost:
            kept = _kept_by_changelog(reader, snapshot, reads_data=reads_data)
            data, changelog = without(data, kept), without(changelog, kept)
        for state in self.states:
            if may_hold(data, state):
                data = without(data, reader.live(state))
        return Deletion(_paths(data), _paths(changelog), tuple(sorted(metadata - self.metadata)), external)


def _without_added(
    reader: Reader, files: pa.Table, snapshots: Sequence[Snapshot], read: Callable[[Snapshot], Sequence[ManifestMeta]]
) -> pa.Table:
    """The files that none of these snapshots adds; many small manifests are decoded in one go."""
    for start in range(0, len(snapshots), _MANIFESTS):
        if not files.num_rows:
            break
        metas = [meta for snapshot in snapshots[start : start + _MANIFESTS] for meta in read(snapshot)]
        files = without(files, reader.read_added([meta for meta in metas if meta.num_added]))
    return files


def _paths(files: pa.Table) -> tuple[str, ...]:
    return tuple(sorted(set(files.column("path").to_pylist())))


def _kept_by_changelog(reader: Reader, changelog: Snapshot, *, reads_data: bool) -> pa.Table:
    parts = [reader.read_added(reader.changelog(changelog))]
    if reads_data:
        try:
            entries = reader.changes(reader.delta(changelog))
        except NotFoundError:
            entries = None
        if entries is not None:
            written = pc.and_(pc.equal(entries.column("kind"), ADD), pc.invert(made_by_compactions(entries)))
            parts.append(reader.locate_entries(entries.filter(written)))
    return union(parts)


def _own_holding(
    store: TableStore, reader: Reader, view: View, first_kept: Snapshot, begin: int, *, needed: bool
) -> Holding:
    """What the branch itself holds besides the first snapshot that stays.

    Manifests are only ever passed on from a snapshot to the next, so of the tags those between the expiring snapshots
    and the one before them speak for all. Data, index and statistics files may be taken back later by an overwrite that
    goes back to an older state, so each kept overwrite and each tag is asked about them.
    """
    holding = Holding()
    tags = sorted(read_tags(store, view.own).values(), key=lambda each: -each.id)
    below = [tag for tag in tags if tag.id < first_kept.id]
    nearest = max((tag.id for tag in below if tag.id <= begin), default=0)
    for tag in tags:
        holding.metadata |= reader.list_named(tag, changelog=False)
    for tag in below:
        if tag.id >= nearest:
            holding.metadata |= reader.metadata(tag, changelog=False)
    if needed:
        holding.states += below
        kept = read_snapshots(store, view.own, [each for each in view.own.snapshots if each > first_kept.id])
        hold_taken_back(reader, holding, kept)
        hold_taken_back(reader, holding, tags, changelog=False)
        holding.changes += [snapshot for snapshot in kept if snapshot.commit_kind is CommitKind.OVERWRITE]
    return holding


def hold_taken_back(reader: Reader, holding: Holding, snapshots: Iterable[Snapshot], *, changelog: bool = True) -> None:
    """Hold what the documents of snapshots name and their index files, which may be those of an older snapshot."""
    for snapshot in snapshots:
        holding.metadata |= reader.list_named(snapshot, changelog=changelog) | reader.index(snapshot)


def add_branch(context: TableContext, reader: Reader, view: BranchView, holding: Holding) -> None:
    """Hold everything that another branch reaches."""
    snapshots = read_snapshots(context.store, view, view.snapshots)
    tags = read_tags(context.store, view).values()
    holding.states += [*snapshots[:1], *tags]
    holding.changes += snapshots[1:]
    holding.changelogs += snapshots
    for snapshot in snapshots:
        holding.metadata |= reader.metadata(snapshot)
    for tag in tags:
        holding.metadata |= reader.metadata(tag, changelog=False)
    add_changelogs(context, reader, view, holding)


def add_changelogs(context: TableContext, reader: Reader, view: BranchView, holding: Holding) -> None:
    """Hold what the long-lived changelogs of a branch reach, as far as it is there."""
    reads_data = streams_read_data(context)
    for changelog in read_changelogs(context.store, view):
        holding.lost.append((changelog, reads_data))
        holding.metadata |= reader.kept_metadata(changelog, reads_data=reads_data)


# ------------------------------------------------------------------------------------------------ the act


def run_expire(context: TableContext, plan: ExpirePlan) -> ExpireResult:
    """Expire what was planned, unless what holds files has changed since.

    Raises:
        CommitConflictError: it changed before anything was deleted: plan again.
        StorageError: a snapshot could not be deleted; the files of those that were are orphans now.
    """
    store = context.store
    if not plan.snapshot_ids or plan.view is None:
        if plan.begin and not store.env.io.exists(store.layout.snapshot_hint_path(EARLIEST), folder=False):
            store.publisher.hint_earliest(plan.begin)
        return ExpireResult()
    consumed = find_consumed(context)
    held = consumed is not None and consumed <= plan.snapshot_ids[-1]
    change = "consumers" if held else find_change(plan.view, look(store))
    if change is not None:
        raise overtaken(change)
    leave_changelogs(store, plan.changelogs)
    store.publisher.hint_earliest(plan.end)
    for snapshot_id in plan.snapshot_ids:
        store.publisher.delete(snapshot_id)
    # After a power loss no snapshot may reappear whose files are gone.
    settle_folder(store.env, store.layout.snapshot_dir)
    # A job that tags or branches one of these snapshots now either finds it gone and gives up, or is found here.
    change = find_change(plan.view, look(store), gone=plan.snapshot_ids, left=[each.id for each in plan.changelogs])
    if change is not None:
        return ExpireResult(plan.snapshot_ids, Deletion(), plan.files.paths, f"{change} changed during the expiry")
    clean = context.options.of(ExpireOptions).clean_folders
    left = run_deletion(store.env, plan.files.paths, clean_folders=clean)
    return ExpireResult(plan.snapshot_ids, plan.files, left, "the storage did not delete them" if left else None)


def leave_changelogs(store: TableStore, snapshots: Sequence[Snapshot]) -> None:
    """Write the changelogs that expiring snapshots leave; they survive a power loss before a snapshot goes.

    Raises:
        StorageError: the storage failed; no snapshot is gone.
    """
    if not snapshots:
        return
    changelogs = store.changelogs
    for snapshot in snapshots:
        changelogs.write(snapshot)
    changelogs.hint_latest(snapshots[-1].id)
    if not store.env.io.exists(store.layout.changelog_hint_path(EARLIEST), folder=False):
        changelogs.hint_earliest(changelogs.earliest_id() or snapshots[0].id)


def unless_overtaken(attempt: Callable[[], T]) -> T:
    """Plan a deletion and run it, and do both again if what holds files changed in between.

    Raises:
        CommitConflictError: it changed every time, and nothing was deleted.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return attempt()
        except CommitConflictError as error:
            if error.code != _OVERTAKEN:
                raise
    return attempt()


def overtaken(change: str) -> CommitConflictError:
    """Make the error for a plan that was overtaken before anything was deleted."""
    return CommitConflictError(
        "what holds files has changed since the plan was made, and nothing was deleted",
        code=_OVERTAKEN,
        moved=change,
        hint="plan again",
    )
