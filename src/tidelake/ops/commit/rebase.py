"""Rebase and reassign: the ports that rewrite files when another commit reached their buckets first.

Sequence numbers are a column of the data files, and the version of a key with the largest number is the newest. A
writer continues the numbers of the snapshot it started from. If another commit reached the bucket since, the writer's
numbers may be too small and its rows would lose to older ones. The committer then calls the first port to rewrite the
new level-0 files with numbers above the bucket's maximum, and plans again. The implementation belongs to the writer: in
process, or as a Spark task.

The numbers may also be large enough by themselves, because the rows with the first numbers of a file were merged into
later ones, or because the same writer prepared the other commit. The files then stay as they are. But if a compaction
merged them with older rows, it skipped the files in between: it would put the older rows above those of the other
commit, and would have dropped deletions that these still need. It is left to the next compaction.

A writer also chose the buckets of its rows on that snapshot. If the partition has another number of buckets since, or
another commit placed the keys in other buckets, its rows would be in the wrong ones. The second port rewrites the new
files with the rows in the right buckets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import CommitConflictError
from tidelake.ops.commit.messages import CommitMessage, CompactIncrement
from tidelake.ops.commit.since import commits_since
from tidelake.ops.scan.partitions import PartitionSet
from tidelake.ops.scan.plan import data_manifests, live_entries
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.manifests.index_manifest import IndexEntry
from tidelake.spec.manifests.manifest import ADD
from tidelake.store.table_store import TableStore

Bucket = tuple[bytes, int]
_COLUMNS = ("kind", "partition", "bucket", "total_buckets", "level", "file_name", "max_sequence")


class SequenceRebaser(Protocol):
    """Rewrites new level-0 files so that their sequence numbers are above the maximum of their bucket."""

    def rebase(
        self, messages: Sequence[CommitMessage], floors: Mapping[Bucket, int], *, base_snapshot_id: int
    ) -> tuple[CommitMessage, ...]:
        """Return messages with files whose numbers start above `floors`, based on the given snapshot.

        The files of the old messages stay: the committer deletes them once the new ones are published.
        """


class Reassigner(Protocol):
    """Moves rows of new files to the buckets that their keys have on the newest snapshot.

    As in a rebase, the files of the old messages stay, and a method that raises leaves no new files behind.
    """

    def reassign(
        self,
        messages: Sequence[CommitMessage],
        latest: Snapshot | None,
        index: Sequence[IndexEntry],
        *,
        checked_id: int = 0,
    ) -> tuple[CommitMessage, ...]:
        """Return the messages with each row in the bucket that another commit gave its key.

        `index` lists the index files of the newest snapshot; snapshots up to `checked_id` were checked before.
        """

    def reassign_by_count(
        self, messages: Sequence[CommitMessage], counts: Mapping[bytes, int], latest: Snapshot
    ) -> tuple[CommitMessage, ...]:
        """Return the messages with the rows of these partitions in `counts` buckets."""


ReassignByCount = Callable[[Sequence[CommitMessage], Mapping[bytes, int], Snapshot], tuple[CommitMessage, ...]]
"""`reassign_by_count` of a `Reassigner`."""


def rebase_messages(
    store: TableStore,
    messages: Sequence[CommitMessage],
    latest: Snapshot | None,
    rebaser: SequenceRebaser | None,
    headroom: int = 0,
    checked_id: int = 0,
    reassign_by_count: ReassignByCount | None = None,
) -> tuple[CommitMessage, ...]:
    """Rewrite messages whose bucket has a new maximum, or whose partition has a new number of buckets.

    Compactions of new files are left out if they skipped files of other commits. `headroom` is how many numbers are
    left free for commits that may still come first: while these stay within it, the files need not be rewritten once
    more. Snapshots up to `checked_id` are known to have changed nothing.

    Raises:
        CommitConflictError: a rewrite is needed and no port for it was given, or a partition has another
            number of buckets and no reassigner was given.
    """
    stale = [
        message
        for message in messages
        if latest is not None
        and message.base_snapshot_id is not None
        and message.base_snapshot_id < latest.id
        and message.data.new_files
    ]
    if not stale or latest is None:
        return tuple(messages)
    oldest = max(checked_id, min(message.base_snapshot_id or 0 for message in stale))
    if oldest >= latest.id:
        return tuple(messages)
    added = _added_since(store, frozenset(message.partition for message in stale), oldest, latest)
    counts = _new_counts(stale, added)
    if counts:
        if reassign_by_count is None:
            raise _bucket_count_conflict(stale, counts, latest)
        reassigned = reassign_by_count(messages, counts, latest)
        return rebase_messages(store, reassigned, latest, rebaser, headroom, checked_id, reassign_by_count)
    floors = _floors(added)
    moved = [
        message
        for message in stale
        if min(file.min_sequence for file in message.data.new_files) <= floors.get(_bucket(message), -1)
    ]
    rewritten: dict[int, CommitMessage] = {}
    if moved:
        if rebaser is None:
            raise CommitConflictError(
                "another commit reached the bucket first, and its rows would count as newer than these",
                code="sequence-moved",
                bucket=moved[0].bucket,
                base_snapshot_id=moved[0].base_snapshot_id,
                snapshot_id=latest.id,
                hint="write the rows again on the newest snapshot",
            )
        wanted = {_bucket(message): floors[_bucket(message)] + headroom for message in moved}
        made = rebaser.rebase(moved, wanted, base_snapshot_id=latest.id)
        rewritten = {id(message): new for message, new in zip(moved, made, strict=True)}
    for message in _find_skipping(stale, added):
        plain = replace(message, compact=CompactIncrement(), base_snapshot_id=latest.id)
        rewritten.setdefault(id(message), plain)
    return tuple(rewritten.get(id(message), message) for message in messages)


def drop_doubtful_compactions(messages: Sequence[CommitMessage], written: Snapshot) -> tuple[CommitMessage, ...]:
    """Leave out compactions of new files that may have skipped a commit between their base and `written`.

    `written` published the new files. What an attempt left out that did not end well is not known any more.
    """
    return tuple(
        replace(message, compact=CompactIncrement())
        if message.compacts_new_files and message.base_snapshot_id != written.id - 1
        else message
        for message in messages
    )


def _find_skipping(stale: Sequence[CommitMessage], added: pa.Table) -> list[CommitMessage]:
    """The messages whose compaction read new files, but not all level-0 files that other commits added before them."""
    compacting = [message for message in stale if message.compacts_new_files]
    if not compacting:
        return []
    level0 = added.filter(pc.equal(added.column("level"), 0))
    columns = (level0.column(name).to_pylist() for name in ("partition", "bucket", "file_name"))
    names: defaultdict[Bucket, set[str]] = defaultdict(set)
    for partition, bucket, name in zip(*columns, strict=True):
        names[partition, bucket].add(name)
    return [each for each in compacting if names[_bucket(each)] - {file.file_name for file in each.compact.before}]


def _bucket(message: CommitMessage) -> Bucket:
    return message.partition, message.bucket


def _added_since(store: TableStore, partitions: frozenset[bytes], base_id: int, latest: Snapshot) -> pa.Table:
    """The files that commits after the base added to partitions, in the order of the commits."""
    chosen = PartitionSet(partitions, tuple(store.schema.partition_types))
    since = tuple(commits_since(store, base_id, latest.id))
    if any(later.snapshot is None for later in since):
        # One of them has expired: the live files of the partitions show the same, but cost more to read.
        metas = data_manifests(store.manifests, latest)
        entries = live_entries(store.manifests, metas, partitions=chosen, columns=_COLUMNS)
    else:
        entries = pa.concat_tables(later.read_entries(partitions=chosen, columns=_COLUMNS) for later in since)
    return entries.filter(pc.equal(entries.column("kind"), ADD))


def _new_counts(stale: Sequence[CommitMessage], added: pa.Table) -> dict[bytes, int]:
    """The partitions of messages that now have another number of buckets, and that number."""
    fixed = added.filter(pc.greater(added.column("total_buckets"), 0))
    grouped = fixed.group_by("partition", use_threads=False).aggregate([("total_buckets", "last")])
    pairs = zip(grouped.column("partition").to_pylist(), grouped.column("total_buckets_last").to_pylist(), strict=True)
    counts = dict(pairs)
    return {
        each.partition: counts[each.partition]
        for each in stale
        if (each.total_buckets or 0) > 0 and counts.get(each.partition, each.total_buckets) != each.total_buckets
    }


def _bucket_count_conflict(
    stale: Sequence[CommitMessage], counts: Mapping[bytes, int], latest: Snapshot
) -> CommitConflictError:
    first = next(each for each in stale if each.partition in counts)
    return CommitConflictError(
        "number of buckets of the partition changed while its rows were written",
        code="bucket-count",
        previous=first.total_buckets,
        new=counts[first.partition],
        snapshot_id=latest.id,
        hint="write the rows again with a writer that knows the new number",
    )


def _floors(added: pa.Table) -> dict[Bucket, int]:
    """The greatest sequence number of added files in each bucket."""
    grouped = added.group_by(["partition", "bucket"], use_threads=False).aggregate([("max_sequence", "max")])
    columns = (grouped.column(name).to_pylist() for name in ("partition", "bucket", "max_sequence_max"))
    return {(partition, bucket): top for partition, bucket, top in zip(*columns, strict=True)}
