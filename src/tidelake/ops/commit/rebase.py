"""The port for sequence numbers of several writers on one bucket.

Sequence numbers are a column of the data files, and the newest version of a key is the one with the largest. A writer
counts on from the snapshot it started from; if another commit reached the bucket meanwhile, its numbers may lie below
and its rows would lose to older ones. The committer then asks this port to rewrite its own new level-0 files above the
bucket's maximum, and plans again. In process or as a Spark task, the implementation belongs to the writer.

A writer also chose the buckets of its rows on that snapshot. If the partition got another number of them since, or its
keys live elsewhere by now, the rows would lie in the wrong ones: a second port writes its own new files again, with the
rows where they belong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import CommitConflictError
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.scan.partitions import PartitionSet
from tidelake.ops.scan.plan import data_manifests, delta_manifests, live_entries, read_changes
from tidelake.spec.index_manifest import IndexEntry
from tidelake.spec.manifest import ADD
from tidelake.spec.snapshot import Snapshot
from tidelake.store.table_store import TableStore

Bucket = tuple[bytes, int]
_COLUMNS = ("kind", "partition", "bucket", "total_buckets", "max_sequence")


class SequenceRebaser(Protocol):
    """Rewrites new level-0 files so that their sequence numbers lie above a bucket's maximum."""

    def rebase(
        self, messages: Sequence[CommitMessage], floors: Mapping[Bucket, int], *, base_snapshot_id: int
    ) -> tuple[CommitMessage, ...]:
        """Messages with files whose numbers start above `floors`, based on the given snapshot.

        The files of the given messages stay: the committer removes them once the new ones are published.
        """


class Reassigner(Protocol):
    """Puts rows of new files where their keys belong on the newest snapshot.

    As with sequence numbers, the files of the given messages stay, and nothing is left behind by a method that raises.
    """

    def reassign(
        self,
        messages: Sequence[CommitMessage],
        latest: Snapshot | None,
        index: Sequence[IndexEntry],
        *,
        checked_id: int = 0,
    ) -> tuple[CommitMessage, ...]:
        """The messages, with rows of keys that other commits placed elsewhere where these are now.

        `index` lists the index files of the newest snapshot; snapshots up to `checked_id` were looked at before.
        """

    def redeal(
        self, messages: Sequence[CommitMessage], counts: Mapping[bytes, int], latest: Snapshot
    ) -> tuple[CommitMessage, ...]:
        """The messages, with rows of these partitions in as many buckets as told."""


Redeal = Callable[[Sequence[CommitMessage], Mapping[bytes, int], Snapshot], tuple[CommitMessage, ...]]
"""`redeal` of a `Reassigner`."""


def rebase_messages(
    store: TableStore,
    messages: Sequence[CommitMessage],
    latest: Snapshot | None,
    rebaser: SequenceRebaser | None,
    headroom: int = 0,
    checked_id: int = 0,
    redeal: Redeal | None = None,
) -> tuple[CommitMessage, ...]:
    """The messages, rewritten where another commit moved the maximum of their bucket or the number of buckets.

    `headroom` leaves so many numbers to commits that may still come first: while they stay within it, the files need
    not be written once more. Snapshots up to `checked_id` are known to have moved nothing.

    Raises:
        CommitConflictError: a rewrite is needed and there is nobody to do it, or a partition got another number of
            buckets.
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
        if redeal is None:
            raise _recounted(stale, counts, latest)
        redealt = redeal(messages, counts, latest)
        return rebase_messages(store, redealt, latest, rebaser, headroom, checked_id, redeal)
    floors = _floors(added)
    moved = [
        message
        for message in stale
        if min(file.min_sequence for file in message.data.new_files) <= floors.get(_bucket(message), -1)
    ]
    if not moved:
        return tuple(messages)
    if rebaser is None:
        raise CommitConflictError(
            "another commit reached the bucket first, and its rows would win over these",
            code="sequence-moved",
            bucket=moved[0].bucket,
            base_snapshot_id=moved[0].base_snapshot_id,
            snapshot_id=latest.id,
            hint="write the rows again on the newest snapshot",
        )
    wanted = {_bucket(message): floors[_bucket(message)] + headroom for message in moved}
    rewritten = iter(rebaser.rebase(moved, wanted, base_snapshot_id=latest.id))
    places = {id(message) for message in moved}
    return tuple(next(rewritten) if id(message) in places else message for message in messages)


def _bucket(message: CommitMessage) -> Bucket:
    return message.partition, message.bucket


def _added_since(store: TableStore, partitions: frozenset[bytes], base_id: int, latest: Snapshot) -> pa.Table:
    """The files that commits after the base brought to partitions, in the order of the commits."""
    chosen = PartitionSet(partitions, tuple(store.schema.partition_types))
    since = [snapshot for _, snapshot in store.snapshots.walk(base_id + 1, latest.id)]
    if any(snapshot is None for snapshot in since):
        # One of them has expired: the live files of the partitions tell the same, only at a higher price.
        metas = data_manifests(store.manifests, latest)
        entries = live_entries(store.manifests, metas, partitions=chosen, columns=_COLUMNS)
    else:
        found = [delta_manifests(store.manifests, snapshot) for snapshot in since if snapshot]
        tables = [read_changes(store.manifests, metas, partitions=chosen, columns=_COLUMNS) for metas in found]
        entries = pa.concat_tables(tables)
    return entries.filter(pc.equal(entries.column("kind"), ADD))


def _new_counts(stale: Sequence[CommitMessage], added: pa.Table) -> dict[bytes, int]:
    """The partitions of messages that have another number of buckets by now, and that number."""
    fixed = added.filter(pc.greater(added.column("total_buckets"), 0))
    grouped = fixed.group_by("partition", use_threads=False).aggregate([("total_buckets", "last")])
    pairs = zip(grouped.column("partition").to_pylist(), grouped.column("total_buckets_last").to_pylist(), strict=True)
    counts = dict(pairs)
    return {
        each.partition: counts[each.partition]
        for each in stale
        if (each.total_buckets or 0) > 0 and counts.get(each.partition, each.total_buckets) != each.total_buckets
    }


def _recounted(stale: Sequence[CommitMessage], counts: Mapping[bytes, int], latest: Snapshot) -> CommitConflictError:
    first = next(each for each in stale if each.partition in counts)
    return CommitConflictError(
        "partition got another number of buckets while its rows were written",
        code="bucket-count",
        previous=first.total_buckets,
        new=counts[first.partition],
        snapshot_id=latest.id,
        hint="write the rows again with a writer that knows the new number",
    )


def _floors(added: pa.Table) -> dict[Bucket, int]:
    """The greatest sequence number that files brought to each bucket."""
    grouped = added.group_by(["partition", "bucket"], use_threads=False).aggregate([("max_sequence", "max")])
    columns = (grouped.column(name).to_pylist() for name in ("partition", "bucket", "max_sequence_max"))
    return {(partition, bucket): top for partition, bucket, top in zip(*columns, strict=True)}
