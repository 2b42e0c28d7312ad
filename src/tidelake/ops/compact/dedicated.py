"""Dedicated compaction: one job that follows the writers of a primary-key table and compacts what is due.

It starts after the newest COMPACT snapshot; if there is none, it first looks at every bucket. From then on a round
reads what the snapshots since the last one changed, adds the new files to the buckets it knows, opens the buckets it
does not know in one scan of their partitions, compacts what is due and commits it under the job's own commit user.
It reads nothing else, so the cost of a round depends on what was written and not on the size of the table.

Invariant: a known bucket holds exactly the files that are live in it at the last snapshot looked at. Whatever makes
this uncertain (another job compacted or overwrote the bucket, a snapshot expired unseen, the table was rolled back,
the schema changed) makes the job forget the bucket and look again. Stopping at any point loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import CommitConflictError, FormatError, NotFoundError, UnsupportedError
from tidelake.io.clock import Clock, local_time_ms
from tidelake.lsm.options import CompactionOptions
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.commit.since import LaterCommit, commits_since
from tidelake.ops.compact.buckets import Choice, live_buckets
from tidelake.ops.compact.keyed_table import BucketCompaction, Tree, open_trees
from tidelake.ops.compact.publish import publish_compactions, still_there
from tidelake.ops.compact.steps import StepRunner, run_steps
from tidelake.ops.context import TableContext
from tidelake.ops.scan.split import bucket_splits
from tidelake.spec.documents.snapshot import CommitKind, Snapshot
from tidelake.spec.manifests.manifest import ADD
from tidelake.spec.rows.bucket_function import PartitionBucket
from tidelake.store.snapshots import EXPIRED, plan_again

_FILES_MAX: Final = 100_000
"""Files of known buckets that are kept in memory; buckets without new files are forgotten first."""
_BUCKETS_MAX: Final = 64
"""Buckets of one commit: these are published before the next ones are compacted."""
_NAP_S: Final = 0.5
_WARNINGS_KEPT: Final = 100


class Stop(Protocol):
    """A signal that ends the job, such as a `threading.Event`."""

    def is_set(self) -> bool:
        """Whether the job should end."""


@dataclass(frozen=True, slots=True)
class TableToCompact:
    """A table with the committer of its compactions."""

    context: TableContext
    committer: Committer
    replay: Callable[[Choice], CommitResult | None] | None = None
    """Moves staged rows to their buckets, in a table with postponed buckets; it returns None if there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """When to end, whichever comes first: after some rounds, at a time, or at a signal; without any, never."""

    rounds: int | None = None
    time_ms: int | None = None
    stop: Stop | None = None

    def is_reached(self, rounds: int, clock: Clock) -> bool:
        """Whether the job should end."""
        if self.rounds is not None and rounds >= self.rounds:
            return True
        if self.time_ms is not None and clock.now_ms() >= self.time_ms:
            return True
        return self.stop is not None and self.stop.is_set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One look at the table: up to which snapshot, and what the job did."""

    snapshot_id: int = 0
    compacted: int = 0
    """Buckets whose compaction was committed."""
    overtaken: int = 0
    """Buckets that another job compacted first; the job looks at them again."""
    commits: int = 0
    files: int = 0
    bytes: int = 0
    warnings: tuple[str, ...] = ()

    @property
    def is_idle(self) -> bool:
        """Whether there was nothing to do."""
        return not self.compacted and not self.overtaken


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSummary:
    """What a dedicated compaction did until it ended."""

    rounds: int = 0
    compacted: int = 0
    overtaken: int = 0
    commits: int = 0
    files: int = 0
    bytes: int = 0
    snapshot_id: int = 0
    """The last snapshot that was looked at."""
    warnings: tuple[str, ...] = ()
    """The newest warnings of its post-commit hooks."""

    def after(self, done: Round) -> CompactionSummary:
        """With one more round."""
        return CompactionSummary(
            rounds=self.rounds + 1,
            compacted=self.compacted + done.compacted,
            overtaken=self.overtaken + done.overtaken,
            commits=self.commits + done.commits,
            files=self.files + done.files,
            bytes=self.bytes + done.bytes,
            snapshot_id=done.snapshot_id,
            warnings=(*self.warnings, *done.warnings)[-_WARNINGS_KEPT:],
        )


def run_dedicated(
    compaction: DedicatedCompaction,
    end: End,
    clock: Clock,
    *,
    interval_s: float,
    report: Callable[[Round], None] | None = None,
) -> CompactionSummary:
    """Run rounds until `end`: the next one at once after a round that had work, and after `interval_s` otherwise.

    Raises:
        CommitUnknownError: the storage did not answer whether a commit is there.
        FormatError: a live file is missing or damaged.
        StorageError: the storage failed.
    """
    total = CompactionSummary()
    while not end.is_reached(total.rounds, clock):
        done = compaction.round(end)
        total = total.after(done)
        if report is not None:
            report(done)
        if done.is_idle:
            _wait(end, total.rounds, clock, interval_s)
    return total


def _wait(end: End, rounds: int, clock: Clock, seconds: float) -> None:
    """Sleep; with a stop signal in short naps, because it cannot wake us."""
    until = clock.monotonic() + seconds
    while (left := until - clock.monotonic()) > 0 and not end.is_reached(rounds, clock):
        if end.time_ms is not None:
            left = min(left, max(end.time_ms - clock.now_ms(), 1) / 1_000)
        clock.sleep(left if end.stop is None else min(left, _NAP_S))


@dataclass(slots=True)
class DedicatedCompaction:
    """The state of the job between rounds. Not shared between threads."""

    open_table: Callable[[], TableToCompact]
    """Opens the table with its current schema; the committer is always of the same user."""
    choice: Choice = field(default_factory=Choice)
    runner: StepRunner | None = None
    """Runs the compactions; None for the threads of the lake."""
    _table: TableToCompact | None = None
    _seen: Snapshot | None = None
    _trees: dict[PartitionBucket, Tree] = field(default_factory=dict)
    """The known buckets, those without new files for longest first."""
    _news: set[PartitionBucket] = field(default_factory=set)
    """Known buckets in which a compaction may be due."""
    _unknown: set[PartitionBucket] = field(default_factory=set)
    """Buckets to open."""

    @property
    def known_count(self) -> int:
        """The number of known buckets."""
        return len(self._trees)

    def round(self, end: End | None = None) -> Round:
        """Look at what is new, compact what is due and commit it.

        Raises:
            UnsupportedError: the table has no primary key, or its compactions do more than merge.
            CommitUnknownError: the storage did not answer whether a commit is there.
            FormatError: a live file is missing or damaged.
        """
        table = self._open()
        latest = table.context.store.snapshots.latest()
        if latest is None:
            return Round()
        try:
            if latest.schema_id > table.context.store.schema.id:
                table = self._reopen()
            replayed = self._place_staged_rows(table, latest)
            if replayed is not None:
                return replayed
            self._follow(table, latest)
            self._open_unknown(table)
        except CommitConflictError as error:
            if error.code != "schema-changed":
                raise
            self._reopen()
            return Round(snapshot_id=latest.id, overtaken=1)
        done = Round(snapshot_id=latest.id)
        due = self._due(table.context)
        for start in range(0, len(due), _BUCKETS_MAX):
            done = self._compact(table, due[start : start + _BUCKETS_MAX], done)
            if end is not None and end.is_reached(0, table.context.store.env.clock):
                break
        self._forget_some()
        return done

    def _place_staged_rows(self, table: TableToCompact, latest: Snapshot) -> Round | None:
        """Move staged rows to their buckets in a round of its own; the next round compacts these buckets."""
        if table.replay is None or latest == self._seen:
            return None
        try:
            result = table.replay(self.choice)
        except CommitConflictError as error:
            if error.code == "schema-changed":
                raise
            return Round(snapshot_id=latest.id, overtaken=1)  # another writer was first: the next round tries again
        if result is None:
            return None
        return Round(
            snapshot_id=latest.id,
            compacted=1,
            commits=len(result.snapshot_ids),
            files=result.files,
            bytes=result.bytes,
            warnings=result.warnings,
        )

    # -------------------------------------------------------------------------------------------- what is new

    def _open(self) -> TableToCompact:
        if self._table is None:
            self._table = self.open_table()
            if not self._table.context.is_keyed:
                raise UnsupportedError(
                    "dedicated compaction needs a primary-key table",
                    table=self._table.context.name,
                    hint="compact an append table from time to time with compact()",
                )
        return self._table

    def _reopen(self) -> TableToCompact:
        self._table = None
        self._forget(list(self._trees))
        return self._open()

    def _forget(self, places: Iterable[PartitionBucket]) -> None:
        """Look at these buckets again in the next round."""
        for place in places:
            self._trees.pop(place, None)
            self._news.discard(place)
            self._unknown.add(place)

    def _follow(self, table: TableToCompact, latest: Snapshot) -> None:
        """Apply what the snapshots since the last round changed."""
        since = self._since(table, latest)
        if since is None:
            self._look_at_all(table, latest)
            return
        store = table.context.store
        newest = () if since >= latest.id else (LaterCommit(store, latest.id, latest),)  # no need to read it again
        for later in chain(commits_since(store, since, latest.id - 1), newest):
            if later.snapshot is None:  # it expired before we saw it
                self._look_at_all(table, latest)
                return
            if not later.is_by(table.committer.user) and later.kind is not CommitKind.ANALYZE:
                try:
                    with store.snapshots.held_to(later.id):
                        self._take_in(table, later)
                except NotFoundError as error:
                    if error.code != EXPIRED:
                        raise
                    self._look_at_all(table, latest)
                    return
        self._seen = latest

    def _since(self, table: TableToCompact, latest: Snapshot) -> int | None:
        """The id of the last snapshot that is known; None if the job has to look at all buckets."""
        snapshots, seen = table.context.store.snapshots, self._seen
        if seen is None:
            compacted = (each.id for each in snapshots.newest_first() if each.commit_kind is CommitKind.COMPACT)
            return next(compacted, None)
        if latest.id < seen.id or (latest.id == seen.id and latest != seen):
            return None
        there = seen if latest.id == seen.id else snapshots.find(seen.id)
        return None if there is not None and there != seen else seen.id  # another one: the table was rolled back

    def _look_at_all(self, table: TableToCompact, latest: Snapshot) -> None:
        found = _open_buckets(table.context, self.choice)
        self._trees, self._news, self._unknown = {}, set(), set()
        for place, tree in found:
            self._know(place, tree)
        self._seen = latest

    def _take_in(self, table: TableToCompact, later: LaterCommit) -> None:
        entries = later.read_entries(partitions=self.choice.partitions)
        entries = entries.filter(pc.greater_equal(entries.column("bucket"), 0))
        added = pc.equal(entries.column("kind"), ADD)
        restored = later.find_restored_files()
        known = self._trees.keys()
        # Unknown: every tree may be out of date. New files of other buckets still count, below.
        stale = set(known) if restored is None else {(row, bucket) for row, bucket, _ in restored} & known
        self._forget(stale)
        if later.kind is not CommitKind.APPEND or not pc.all(added).as_py():
            # Known buckets may have lost files. Of the others only those with new level-0 files can need compaction.
            fresh = entries.filter(pc.and_(added, pc.equal(entries.column("level"), 0)))
            self._forget({*(_places(entries) & self._trees.keys()), *_places(fresh)})
            return
        for split in bucket_splits(entries, later.id, table.context.paths, None):
            place = (split.partition, split.bucket)
            tree = self._trees.get(place)
            if tree is None:
                self._unknown.add(place)
            elif later.id > tree.bucket.split.snapshot_id:  # else it was opened with these files
                try:
                    levels = tree.levels.apply((), tree.bucket.merging.files(split.files))
                except FormatError:
                    self._forget([place])
                else:
                    self._know(place, replace(tree, levels=levels))

    def _know(self, place: PartitionBucket, tree: Tree) -> None:
        self._trees.pop(place, None)  # move it to the end, behind buckets without new files
        self._trees[place] = tree
        self._news.add(place)

    def _open_unknown(self, table: TableToCompact) -> None:
        if not self._unknown:
            return
        wanted = replace(self.choice, places=frozenset(self._unknown))
        for place, tree in _open_buckets(table.context, wanted):
            self._know(place, tree)
        self._unknown.clear()

    def _forget_some(self) -> None:
        count = sum(len(tree.levels.files) for tree in self._trees.values())
        for place in list(self._trees):
            if count <= _FILES_MAX:
                return
            if place not in self._news:
                count -= len(self._trees.pop(place).levels.files)

    # -------------------------------------------------------------------------------------------- what is due

    def _due(self, context: TableContext) -> list[BucketCompaction]:
        by_time = context.options.of(CompactionOptions).optimization_interval_ms is not None
        now = local_time_ms(context.store.env.clock)
        found = []
        seen_id = 0 if self._seen is None else self._seen.id
        for place in [each for each in self._trees if by_time or each in self._news]:
            due, self._trees[place] = self._trees[place].seen_at(seen_id).due(now_ms=now)
            if due is None:
                self._news.discard(place)
            else:
                found.append(due)
        return found

    def _compact(self, table: TableToCompact, due: Sequence[BucketCompaction], done: Round) -> Round:
        places = [(each.split.partition, each.split.bucket) for each in due]
        try:
            made = run_steps(table.context, due, self.runner)
        except (FormatError, NotFoundError):
            there = still_there(table.context, [(*place, each.files) for place, each in zip(places, due, strict=True)])
            if all(there):
                raise
            self._forget(places)  # another job replaced a file and expired it while it was read
            return replace(done, overtaken=done.overtaken + there.count(False))
        published = publish_compactions(table.context, table.committer, made)
        for place, message in zip(places, made, strict=True):
            if place in published.lost:
                self._forget([place])
            else:
                self._know(place, self._trees[place].after(message))  # more may be due
        result = published.result
        return replace(
            done,
            compacted=done.compacted + len(made) - len(published.lost),
            overtaken=done.overtaken + len(published.lost),
            commits=done.commits + len(result.snapshot_ids),
            files=done.files + result.files,
            bytes=done.bytes + result.bytes,
            warnings=done.warnings + result.warnings,
        )


def _open_buckets(context: TableContext, choice: Choice) -> list[tuple[PartitionBucket, Tree]]:
    def attempt() -> list[tuple[PartitionBucket, Tree]]:
        _, buckets = live_buckets(context, choice)
        places = ((each.partition, each.bucket) for each in buckets)
        return list(zip(places, open_trees(context, buckets), strict=True))

    return plan_again(attempt)  # the snapshot of the buckets may expire before their index files are looked up


def _places(entries: pa.Table) -> set[PartitionBucket]:
    columns = entries.select(["partition", "bucket"]).group_by(["partition", "bucket"], use_threads=False).aggregate([])
    return set(zip(columns.column("partition").to_pylist(), columns.column("bucket").to_pylist(), strict=True))
