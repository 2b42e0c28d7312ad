"""Dedicated compaction: one job that follows what others write to a primary-key table and compacts what is due.

It starts after the newest COMPACT snapshot, and by looking at every bucket where there is none. From then on a round
reads what the snapshots since the last one changed, adds the new files to the buckets it knows, opens the buckets it
does not know in one scan of their partitions, compacts what is due and commits it under the job's own commit user.
Nothing else is read, so that a round costs by what was written and not by the size of the table.

Invariant: a bucket that is known holds exactly the files that are live in it at the last snapshot looked at. Whatever
puts that in doubt (another job compacted or overwrote it, a snapshot expired unseen, the table was rolled back, the
schema changed) makes the job forget the bucket and look again. Stopping at any point loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import CommitConflictError, FormatError, NotFoundError, UnsupportedError
from tidelake.io.clock import Clock, local_time_ms
from tidelake.lsm.options import CompactionOptions
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.compact.buckets import Choice, Job, Place, live_buckets
from tidelake.ops.compact.keyed_table import BucketCompaction, Tree, open_trees
from tidelake.ops.compact.publish import publish_compactions, still_there
from tidelake.ops.compact.steps import Hands, run_steps
from tidelake.ops.scan.plan import delta_manifests, read_changes
from tidelake.ops.scan.split import bucket_splits
from tidelake.spec.manifest import ADD
from tidelake.spec.snapshot import CommitKind, Snapshot

_FILES_MAX: Final = 100_000
"""Files of known buckets that are remembered; buckets without news are forgotten first."""
_BUCKETS_MAX: Final = 64
"""Buckets of one commit: what is done is published before the rest is begun."""
_NAP_S: Final = 0.5
_WARNINGS_KEPT: Final = 100


class Stop(Protocol):
    """What tells the job to end: a `threading.Event` does."""

    def is_set(self) -> bool:
        """Whether it is time."""


@dataclass(frozen=True, slots=True)
class Desk:
    """A table to compact, who commits what is done, and what follows a commit."""

    job: Job
    committer: Committer
    afterwards: Callable[[CommitResult], CommitResult]
    replay: Callable[[Choice], CommitResult | None] | None = None
    """Gives rows that wait for a bucket theirs, where the table postpones that; None if none waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """When to end, whichever comes first: after so many rounds, at a time, or when told; else never."""

    rounds: int | None = None
    time_ms: int | None = None
    stop: Stop | None = None

    def reached(self, rounds: int, clock: Clock) -> bool:
        """Whether it is time."""
        if self.rounds is not None and rounds >= self.rounds:
            return True
        if self.time_ms is not None and clock.now_ms() >= self.time_ms:
            return True
        return self.stop is not None and self.stop.is_set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One look at the table: up to which snapshot, and what was done."""

    snapshot_id: int = 0
    compacted: int = 0
    """Buckets whose compaction was committed."""
    overtaken: int = 0
    """Buckets in which another job was faster; they are looked at again."""
    commits: int = 0
    files: int = 0
    bytes: int = 0
    warnings: tuple[str, ...] = ()

    @property
    def is_idle(self) -> bool:
        """Whether there was nothing to do."""
        return not self.compacted and not self.overtaken


@dataclass(frozen=True, slots=True, kw_only=True)
class Tended:
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
    """What could not be done after its commits: the newest of them."""

    def after(self, done: Round) -> Tended:
        """With one more round."""
        return Tended(
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
    told: Callable[[Round], None] | None = None,
) -> Tended:
    """Look again and again, at once after a round that had work and else after a while, until it is time to end.

    Raises:
        CommitUnknownError: the storage did not tell whether a commit is there.
        FormatError: a live file is missing or damaged.
        StorageError: the storage failed.
    """
    total = Tended()
    while not end.reached(total.rounds, clock):
        done = compaction.round(end)
        total = total.after(done)
        if told is not None:
            told(done)
        if done.is_idle:
            _wait(end, total.rounds, clock, interval_s)
    return total


def _wait(end: End, rounds: int, clock: Clock, seconds: float) -> None:
    """Sleep, in naps where someone may tell us to stop."""
    until = clock.monotonic() + seconds
    while (left := until - clock.monotonic()) > 0 and not end.reached(rounds, clock):
        if end.time_ms is not None:
            left = min(left, max(end.time_ms - clock.now_ms(), 1) / 1_000)
        clock.sleep(left if end.stop is None else min(left, _NAP_S))


@dataclass(slots=True)
class DedicatedCompaction:
    """The state of the job between rounds. Not shared between threads."""

    open_desk: Callable[[], Desk]
    """Opens the table with its current schema; the committer is always of the same user."""
    choice: Choice = field(default_factory=Choice)
    hands: Hands | None = None
    """Who carries the compactions out; without any, the threads of the lake do."""
    _desk: Desk | None = None
    _seen: Snapshot | None = None
    _trees: dict[Place, Tree] = field(default_factory=dict)
    """The known buckets, those without news for longest first."""
    _news: set[Place] = field(default_factory=set)
    """Known buckets in which something may be due."""
    _unknown: set[Place] = field(default_factory=set)
    """Buckets to open."""

    @property
    def known(self) -> int:
        """How many buckets are known."""
        return len(self._trees)

    def round(self, end: End | None = None) -> Round:
        """Look at what is new, compact what is due and commit it.

        Raises:
            UnsupportedError: the table has no primary key, or its compactions do more than merge.
            CommitUnknownError: the storage did not tell whether a commit is there.
            FormatError: a live file is missing or damaged.
        """
        desk = self._opened()
        latest = desk.job.store.snapshots.latest()
        if latest is None:
            return Round()
        try:
            if latest.schema_id > desk.job.store.schema.id:
                desk = self._renewed()
            replayed = self._replayed(desk, latest)
            if replayed is not None:
                return replayed
            self._follow(desk, latest)
            self._open_unknown(desk)
        except CommitConflictError as error:
            if error.code != "schema-changed":
                raise
            self._renewed()
            return Round(snapshot_id=latest.id, overtaken=1)
        done = Round(snapshot_id=latest.id)
        due = self._due(desk.job)
        for start in range(0, len(due), _BUCKETS_MAX):
            done = self._compact(desk, due[start : start + _BUCKETS_MAX], done)
            if end is not None and end.reached(0, desk.job.store.env.clock):
                break
        self._forget_some()
        return done

    def _replayed(self, desk: Desk, latest: Snapshot) -> Round | None:
        """A round that gave waiting rows their buckets; what is due in these is for the next one."""
        if desk.replay is None or latest == self._seen:
            return None
        try:
            result = desk.replay(self.choice)
        except CommitConflictError as error:
            if error.code == "schema-changed":
                raise
            return Round(snapshot_id=latest.id, overtaken=1)
        if result is None:
            return None
        done = desk.afterwards(result)
        return Round(
            snapshot_id=latest.id,
            compacted=1,
            commits=len(done.snapshot_ids),
            files=done.files,
            bytes=done.bytes,
            warnings=done.warnings,
        )

    # -------------------------------------------------------------------------------------------- what is new

    def _opened(self) -> Desk:
        if self._desk is None:
            self._desk = self.open_desk()
            if not self._desk.job.is_keyed:
                raise UnsupportedError(
                    "only primary-key tables are compacted while others write",
                    table=self._desk.job.name,
                    hint="compact an append table from time to time with compact()",
                )
        return self._desk

    def _renewed(self) -> Desk:
        self._desk = None
        self._forget(list(self._trees))
        return self._opened()

    def _forget(self, places: Iterable[Place]) -> None:
        """Look at these buckets again, whatever was known of them."""
        for place in places:
            self._trees.pop(place, None)
            self._news.discard(place)
            self._unknown.add(place)

    def _follow(self, desk: Desk, latest: Snapshot) -> None:
        """Take in what the snapshots since the last look changed."""
        since = self._since(desk, latest)
        if since is None:
            self._look_at_all(desk, latest)
            return
        for snapshot_id in range(since + 1, latest.id + 1):
            snapshot = latest if snapshot_id == latest.id else desk.job.store.snapshots.find(snapshot_id)
            if snapshot is None:  # it expired before we saw it
                self._look_at_all(desk, latest)
                return
            if snapshot.commit_user != desk.committer.user and snapshot.commit_kind is not CommitKind.ANALYZE:
                self._take_in(desk, snapshot)
        self._seen = latest

    def _since(self, desk: Desk, latest: Snapshot) -> int | None:
        """The snapshot whose successors are new; None when all buckets have to be looked at."""
        snapshots, seen = desk.job.store.snapshots, self._seen
        if seen is None:
            compacted = (each.id for each in snapshots.newest_first() if each.commit_kind is CommitKind.COMPACT)
            return next(compacted, None)
        if latest.id < seen.id or (latest.id == seen.id and latest != seen):
            return None
        there = seen if latest.id == seen.id else snapshots.find(seen.id)
        return None if there is not None and there != seen else seen.id  # another one: the table was rolled back

    def _look_at_all(self, desk: Desk, latest: Snapshot) -> None:
        self._trees, self._news, self._unknown = {}, set(), set()
        _, buckets = live_buckets(desk.job, self.choice)
        for split, tree in zip(buckets, open_trees(desk.job, buckets), strict=True):
            self._know((split.partition, split.bucket), tree)
        self._seen = latest

    def _take_in(self, desk: Desk, snapshot: Snapshot) -> None:
        store = desk.job.store
        metas = delta_manifests(store.manifests, snapshot)
        entries = read_changes(store.manifests, metas, partitions=self.choice.partitions)
        entries = entries.filter(pc.greater_equal(entries.column("bucket"), 0))
        added = pc.equal(entries.column("kind"), ADD)
        if snapshot.commit_kind is not CommitKind.APPEND or not pc.all(added).as_py():
            # Known buckets may have lost files; of the others only those with new level-0 files may have work.
            fresh = entries.filter(pc.and_(added, pc.equal(entries.column("level"), 0)))
            self._forget({*(_places(entries) & self._trees.keys()), *_places(fresh)})
            return
        for split in bucket_splits(entries, snapshot.id, desk.job.paths, None):
            place = (split.partition, split.bucket)
            tree = self._trees.get(place)
            if tree is None:
                self._unknown.add(place)
            elif snapshot.id > tree.bucket.split.snapshot_id:  # else it was opened with these files
                try:
                    levels = tree.levels.apply((), tree.bucket.merging.files(split.files))
                except FormatError:
                    self._forget([place])
                else:
                    self._know(place, replace(tree, levels=levels))

    def _know(self, place: Place, tree: Tree) -> None:
        self._trees.pop(place, None)  # to the end: it has news
        self._trees[place] = tree
        self._news.add(place)

    def _open_unknown(self, desk: Desk) -> None:
        if not self._unknown:
            return
        wanted = replace(self.choice, places=frozenset(self._unknown))
        _, buckets = live_buckets(desk.job, wanted)
        for split, tree in zip(buckets, open_trees(desk.job, buckets), strict=True):
            self._know((split.partition, split.bucket), tree)
        self._unknown.clear()

    def _forget_some(self) -> None:
        count = sum(len(tree.levels.files) for tree in self._trees.values())
        for place in list(self._trees):
            if count <= _FILES_MAX:
                return
            if place not in self._news:
                count -= len(self._trees.pop(place).levels.files)

    # -------------------------------------------------------------------------------------------- what is due

    def _due(self, job: Job) -> list[BucketCompaction]:
        by_time = CompactionOptions.parse(job.options).optimization_interval_ms is not None
        now = local_time_ms(job.store.env.clock)
        found = []
        seen_id = 0 if self._seen is None else self._seen.id
        for place in [each for each in self._trees if by_time or each in self._news]:
            due, self._trees[place] = self._trees[place].seen_at(seen_id).due(now_ms=now)
            if due is None:
                self._news.discard(place)
            else:
                found.append(due)
        return found

    def _compact(self, desk: Desk, due: Sequence[BucketCompaction], done: Round) -> Round:
        places = [(each.split.partition, each.split.bucket) for each in due]
        try:
            made = run_steps(desk.job, due, self.hands)
        except (FormatError, NotFoundError):
            there = still_there(desk.job, [(*place, each.files) for place, each in zip(places, due, strict=True)])
            if all(there):
                raise
            self._forget(places)  # another job replaced a file and expired it while it was read
            return replace(done, overtaken=done.overtaken + there.count(False))
        published = publish_compactions(desk.job, desk.committer, made)
        for place, message in zip(places, made, strict=True):
            if place in published.lost:
                self._forget([place])
            else:
                self._know(place, self._trees[place].after(message))  # more may be due
        result = desk.afterwards(published.result)
        return replace(
            done,
            compacted=done.compacted + len(made) - len(published.lost),
            overtaken=done.overtaken + len(published.lost),
            commits=done.commits + len(result.snapshot_ids),
            files=done.files + result.files,
            bytes=done.bytes + result.bytes,
            warnings=done.warnings + result.warnings,
        )


def _places(entries: pa.Table) -> set[Place]:
    columns = entries.select(["partition", "bucket"]).group_by(["partition", "bucket"], use_threads=False).aggregate([])
    return set(zip(columns.column("partition").to_pylist(), columns.column("bucket").to_pylist(), strict=True))
