"""Expiring snapshots: which go, which files go with them, and in which order.

`pick_end` chooses by count, age and consumers. The plan then finds the files that only the expiring snapshots reach:

* data files that the changes up to the first snapshot that stays have deleted. A file that changed its level only, or
  that was taken back later, is alive;
* changelog files of the expiring snapshots;
* manifests, manifest lists, index files and statistics that the first snapshot that stays does not reach.

Everything that another snapshot, a tag, another branch or a long-lived changelog holds stays. The order of the act
makes a crash harmless: the hint, the snapshot files (oldest first), one more look at what holds files, then the files.
Whatever is not deleted after that is an orphan; at no moment does a snapshot lack a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

import pyarrow as pa

from tidelake.errors import CommitConflictError, FormatError, InvalidInputError, NotFoundError, UnsupportedError
from tidelake.notebook import counted
from tidelake.ops.maintain.deletion import Deletion, run_deletion, settle_folder
from tidelake.ops.maintain.holders import (
    BranchView,
    View,
    look,
    moved,
    next_consumed,
    read_changelogs,
    read_snapshots,
    read_tags,
)
from tidelake.ops.maintain.reachable import Reader, dead_files, may_hold, no_files, union, without
from tidelake.options import INT32_MAX, Affects, DurationMs, OptionGroup, option
from tidelake.spec.layout import EARLIEST, INDEX_DIR, STATISTICS_DIR
from tidelake.spec.manifest_list import ManifestMeta
from tidelake.spec.snapshot import CommitKind, Snapshot
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore

_MAINTENANCE = (Affects.MAINTENANCE,)
_MANIFESTS = 256
"""Snapshots whose changes are looked at together; bounds what is held at once."""


class ExecutionMode(Enum):
    """Whether expiry after a commit is waited for."""

    SYNC = "sync"
    ASYNC = "async"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireOptions(OptionGroup):
    """How many snapshots are kept, and for how long."""

    retain_min: int = option("snapshot.num-retained.min", 10, doc="Newest snapshots that stay.", affects=_MAINTENANCE)
    retain_max: int = option(
        "snapshot.num-retained.max",
        INT32_MAX,
        doc="Snapshots beyond this number go, young or not.",
        affects=_MAINTENANCE,
    )
    time_retained_ms: DurationMs = option(
        "snapshot.time-retained",
        DurationMs(3_600_000),
        doc="How long a snapshot stays after it stopped being the newest.",
        affects=_MAINTENANCE,
    )
    limit: int = option("snapshot.expire.limit", 50, doc="Snapshots that one run expires.", affects=_MAINTENANCE)
    mode: ExecutionMode = option(
        "snapshot.expire.execution-mode",
        ExecutionMode.SYNC,
        doc="Whether a commit waits for its expiry; every commit here does.",
        affects=_MAINTENANCE,
    )
    clean_folders: bool = option(
        "snapshot.clean-empty-directories",
        False,
        doc="Remove folders that expiry leaves empty.",
        affects=_MAINTENANCE,
        fallback=("snapshot.expire.clean-empty-directories",),
    )
    changelog_min: int | None = option(
        "changelog.num-retained.min", None, doc="Long-lived changelogs that stay.", affects=_MAINTENANCE
    )
    changelog_max: int | None = option(
        "changelog.num-retained.max", None, doc="Long-lived changelogs beyond this go.", affects=_MAINTENANCE
    )
    changelog_retained_ms: DurationMs | None = option(
        "changelog.time-retained", None, doc="How long a long-lived changelog stays.", affects=_MAINTENANCE
    )

    @property
    def decoupled(self) -> bool:
        """Whether changelogs outlive their snapshots."""
        pairs = (
            (self.changelog_min, self.retain_min),
            (self.changelog_max, self.retain_max),
            (self.changelog_retained_ms, self.time_retained_ms),
        )
        return any(mine is not None and mine > snapshots for mine, snapshots in pairs)


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
                raise InvalidInputError(f"{name} is no number", got=repr(value)[:80], hint="give a whole number")
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


def pick_end(
    earliest: int, latest: int, retention: Retention, time_of: Callable[[int], int | None], *, consumed: int | None
) -> int:
    """The first snapshot that stays: those from `earliest` up to it, not included, expire.

    A snapshot is readable for the whole retention after it stopped being the newest: the age of its successor counts.

    Args:
        earliest: the oldest snapshot.
        latest: the newest one.
        retention: what must be kept.
        time_of: the commit time of a snapshot, or None when it is missing.
        consumed: the lowest snapshot that a consumer has still to read.
    """
    first = max(latest - retention.retain_max + 1, earliest)
    end = min(latest - retention.retain_min + 1, earliest + retention.limit)
    if consumed is not None:
        end = min(end, consumed)
    for snapshot_id in range(first, end):
        time_ms = time_of(snapshot_id + 1)
        if time_ms is not None and time_ms >= retention.older_than_ms:
            end = snapshot_id
            break
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

    def __str__(self) -> str:
        if not self.snapshot_ids:
            return "nothing to expire"
        return f"{counted(len(self.snapshot_ids), 'snapshot')} ({self.begin} to {self.end - 1}): {self.files}"


@dataclass(frozen=True, slots=True)
class ExpireResult:
    """What an expiry did. `left` are files that stayed as orphans, with the reason."""

    snapshot_ids: tuple[int, ...] = ()
    files: Deletion = field(default_factory=Deletion)
    left: tuple[str, ...] = ()
    reason: str | None = None

    def __str__(self) -> str:
        text = f"{counted(len(self.snapshot_ids), 'snapshot')} expired: {self.files}"
        return f"{text}; {counted(len(self.left), 'file')} left: {self.reason}" if self.left else text


def plan_expire(
    store: TableStore,
    paths: DataPaths,
    options: ExpireOptions,
    *,
    older_than_ms: int | None = None,
    retain_max: int | None = None,
    retain_min: int | None = None,
    max_deletes: int | None = None,
) -> ExpirePlan:
    """Which snapshots would expire now, and which files with them; arguments go before the table's options.

    Raises:
        InvalidInputError: the numbers contradict each other.
        UnsupportedError: changelogs of the table outlive their snapshots.
        CommitConflictError: what holds files moved meanwhile: plan again.
        NotFoundError: a file of something that holds files is gone.
        FormatError: something that holds files is damaged.
    """
    if older_than_ms is None:
        older_than_ms = store.env.clock.now_ms() - options.time_retained_ms
    retention = Retention(
        retain_min=_given(retain_min, options.retain_min),
        retain_max=_given(retain_max, options.retain_max),
        older_than_ms=older_than_ms,
        limit=_given(max_deletes, options.limit),
    )
    snapshots = store.snapshots
    latest, earliest = snapshots.latest_id(), snapshots.earliest_id()
    if latest is None or earliest is None or latest - earliest < retention.retain_min:
        return ExpirePlan()
    _refuse_decoupled(options)
    end = pick_end(earliest, latest, retention, _times(store), consumed=next_consumed(store))
    if end <= earliest:
        return ExpirePlan(begin=earliest, end=earliest)
    view = look(store)
    ids = tuple(number for number in view.own.snapshots if number < end)
    if not ids or end not in view.own.snapshots:
        raise plan_again("snapshots")
    try:
        files = plan_files(store, paths, view, ids, end)
    except NotFoundError as cause:
        # Another job may be expiring the same snapshots; if nothing moved, something that holds files is broken.
        change = moved(view, look(store))
        if change is None:
            raise
        raise plan_again(change) from cause
    return ExpirePlan(earliest, end, ids, files, view)


def _given(value: int | None, default: int) -> int:
    return default if value is None else value


def _times(store: TableStore) -> Callable[[int], int | None]:
    def time_of(snapshot_id: int) -> int | None:
        snapshot = store.snapshots.find(snapshot_id)
        return None if snapshot is None else snapshot.time_ms

    return time_of


def _refuse_decoupled(options: ExpireOptions) -> None:
    if options.decoupled:
        raise UnsupportedError(
            "changelogs that outlive their snapshots are not supported by expiry yet",
            code="option-unsupported",
            option="changelog.*-retained",
            hint="expire this table with Apache Paimon, or unset changelog.num-retained.* and changelog.time-retained",
        )


def plan_files(store: TableStore, paths: DataPaths, view: View, ids: Sequence[int], end: int) -> Deletion:
    """The files that only these snapshots reach.

    Raises:
        NotFoundError: something that holds files vanished meanwhile.
        FormatError: something that holds files is damaged.
    """
    reader = Reader(store.manifests, paths)
    expiring = read_snapshots(store, view.own, ids)
    (first_kept,) = read_snapshots(store, view.own, [end])
    dead, external, complete = _dead(reader, [*expiring[1:], first_kept])
    changelog = union(_changelogs_of(reader, expiring))
    metadata: set[str] = set()
    for snapshot in expiring:
        metadata |= reader.metadata_of_lost(snapshot)
    metadata -= reader.metadata(first_kept)
    complete = complete and len(ids) == end - ids[0]
    holding = _own_holding(store, reader, view, first_kept, ids[0], needed=bool(dead.num_rows) or _backwards(metadata))
    holding.states += [] if complete else [first_kept]
    _add_others(store, reader, view, holding)
    return holding.released(reader, dead, changelog, metadata, external=external)


def _dead(reader: Reader, snapshots: Sequence[Snapshot]) -> tuple[pa.Table, int, bool]:
    """The files that the changes of these snapshots leave deleted; False when not all of them could be read."""
    deltas = []
    for snapshot in snapshots:
        try:
            deltas.append(reader.changes(reader.delta(snapshot)))
        except (NotFoundError, FormatError):
            # What another expiry left half deleted: its files become orphans, the rest can still go.
            continue
    dead, external = dead_files(deltas, reader.paths)
    return dead, external, len(deltas) == len(snapshots)


def _changelogs_of(reader: Reader, snapshots: Iterable[Snapshot]) -> Iterable[pa.Table]:
    for snapshot in snapshots:
        try:
            yield reader.added(reader.changelog(snapshot))
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
    lost: list[Snapshot] = field(default_factory=list)
    """Long-lived changelogs, of which only some files need to exist."""

    def released(
        self, reader: Reader, data: pa.Table, changelog: pa.Table, metadata: set[str], *, external: int = 0
    ) -> Deletion:
        """Of these files those that nothing holds.

        Raises:
            NotFoundError: a file of a holder is gone.
            FormatError: a file of a holder is damaged.
        """
        data = _without_added(reader, data, self.changes, reader.delta)
        changelog = _without_added(reader, changelog, self.changelogs, reader.changelog)
        for snapshot in self.lost:
            kept = _kept_by_changelog(reader, snapshot)
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
        files = without(files, reader.added([meta for meta in metas if meta.num_added]))
    return files


def _paths(files: pa.Table) -> tuple[str, ...]:
    return tuple(sorted(set(files.column("path").to_pylist())))


def _kept_by_changelog(reader: Reader, changelog: Snapshot) -> pa.Table:
    parts = []
    for read in (reader.changelog, reader.delta):
        try:
            parts.append(reader.added(read(changelog)))
        except NotFoundError:
            continue
    return union(parts) if parts else no_files()


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
        holding.metadata |= reader.named(tag, changelog=False)
    for tag in below:
        if tag.id >= nearest:
            holding.metadata |= reader.metadata(tag, changelog=False)
    if needed:
        holding.states += below
        kept = read_snapshots(store, view.own, [each for each in view.own.snapshots if each > first_kept.id])
        hold_taken_back(reader, holding, kept)
        hold_taken_back(reader, holding, tags, changelog=False)
        holding.changes += [snapshot for snapshot in kept if snapshot.commit_kind is CommitKind.OVERWRITE]
    add_changelogs(store, reader, view.own, holding)
    return holding


def hold_taken_back(reader: Reader, holding: Holding, snapshots: Iterable[Snapshot], *, changelog: bool = True) -> None:
    """Hold what the documents of snapshots name and their index files, which may be those of an older snapshot."""
    for snapshot in snapshots:
        holding.metadata |= reader.named(snapshot, changelog=changelog) | reader.index(snapshot)


def _add_others(store: TableStore, reader: Reader, view: View, holding: Holding) -> None:
    for other in view.others:
        add_branch(store, reader, other, holding)


def add_branch(store: TableStore, reader: Reader, view: BranchView, holding: Holding) -> None:
    """Hold everything that another branch reaches."""
    snapshots = read_snapshots(store, view, view.snapshots)
    tags = read_tags(store, view).values()
    holding.states += [*snapshots[:1], *tags]
    holding.changes += snapshots[1:]
    holding.changelogs += snapshots
    for snapshot in snapshots:
        holding.metadata |= reader.metadata(snapshot)
    for tag in tags:
        holding.metadata |= reader.metadata(tag, changelog=False)
    add_changelogs(store, reader, view, holding)


def add_changelogs(store: TableStore, reader: Reader, view: BranchView, holding: Holding) -> None:
    """Hold what the long-lived changelogs of a branch reach, as far as it is there."""
    changelogs = read_changelogs(store, view)
    holding.lost += changelogs
    for changelog in changelogs:
        holding.metadata |= reader.metadata_of_lost(changelog)


# ------------------------------------------------------------------------------------------------ the act


def run_expire(store: TableStore, plan: ExpirePlan, options: ExpireOptions) -> ExpireResult:
    """Expire what was planned, unless what holds files has moved since.

    Raises:
        CommitConflictError: something moved before anything was deleted: plan again.
        StorageError: a snapshot could not be deleted; the files of those that were are orphans now.
    """
    if not plan.snapshot_ids or plan.view is None:
        if plan.begin and not store.env.io.exists(store.layout.snapshot_hint_path(EARLIEST), folder=False):
            store.snapshots.hint_earliest(plan.begin)
        return ExpireResult()
    consumed = next_consumed(store)
    change = "consumers" if consumed is not None and consumed < plan.end else moved(plan.view, look(store))
    if change is not None:
        raise plan_again(change)
    store.snapshots.hint_earliest(plan.end)
    for snapshot_id in plan.snapshot_ids:
        store.snapshots.delete(snapshot_id)
    # A power loss must not bring a snapshot back whose files are gone.
    settle_folder(store.env, store.layout.snapshot_dir)
    # Whoever made a tag or a branch of these snapshots meanwhile sees them gone and gives up, or is seen here.
    change = moved(plan.view, look(store), gone=plan.snapshot_ids)
    if change is not None:
        return ExpireResult(plan.snapshot_ids, Deletion(), plan.files.paths, f"{change} moved meanwhile")
    left = run_deletion(store.env, plan.files.paths, clean_folders=options.clean_folders)
    return ExpireResult(plan.snapshot_ids, plan.files, left, "the storage did not delete them" if left else None)


def plan_again(change: str) -> CommitConflictError:
    """The error for a plan that was overtaken before anything was deleted."""
    return CommitConflictError(
        "what holds files has moved since the plan was made, and nothing was deleted",
        code="plan-overtaken",
        moved=change,
        hint="plan again",
    )
