"""Publish compactions, and drop those that another job overtook.

A compaction replaces the files it read. If another job replaced one of them first, the rewritten rows may be stale: the
new files are removed and the bucket is planned again. Invariant: a file is removed here only when it is certain that no
snapshot refers to it. A conflict never loses a row, because the files that a compaction read stay live until it is
published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import (
    CommitConflictError,
)
from tidelake.ops.commit.abort import remove_files
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import CommitMessage, CommitResult, Committable
from tidelake.ops.context import TableContext
from tidelake.ops.scan.partitions import PartitionSet
from tidelake.ops.scan.plan import data_manifests, live_entries
from tidelake.spec.data_file import DataFile
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.rows.bucket_function import PartitionBucket


@dataclass(frozen=True, slots=True)
class Published:
    """What was committed, and the buckets whose compaction another job overtook, with the conflict."""

    result: CommitResult = field(default_factory=CommitResult)
    lost: frozenset[PartitionBucket] = frozenset()
    conflict: CommitConflictError | None = None


def publish_compactions(context: TableContext, committer: Committer, messages: Sequence[CommitMessage]) -> Published:
    """Commit compactions of several buckets as one COMPACT snapshot, without those that were overtaken.

    Raises:
        CommitConflictError: a conflict that a fresh plan would not solve; the new files are removed.
        CommitUnknownError: the storage did not answer whether the snapshot is there; nothing is removed.
        StorageError: the storage failed; the new files are removed as far as it lets us.
    """
    if not messages:
        return Published()
    try:
        return Published(committer.commit(Committable(messages=tuple(messages))))
    except CommitConflictError as conflict:
        if not conflict.replannable:
            remove_files(context, messages)
            raise
        there = still_there(context, [(each.partition, each.bucket, each.compact.before) for each in messages])
        # The messages of a bucket share its deletion vectors: if one message is stale, all of them are.
        shared = {(each.partition, each.bucket) for each in messages if each.compact.deleted_index_files}
        stale = {(each.partition, each.bucket) for each, stands in zip(messages, there, strict=True) if not stands}
        there = [
            stands and (each.partition, each.bucket) not in shared & stale
            for each, stands in zip(messages, there, strict=True)
        ]
        if all(there):  # all files are still live, so the conflict may be in any of the buckets
            there = [False] * len(messages)
        kept = [message for message, stands in zip(messages, there, strict=True) if stands]
        lost = [message for message, stands in zip(messages, there, strict=True) if not stands]
        remove_files(context, lost)
        rest = publish_compactions(context, committer, kept)
        places = frozenset((message.partition, message.bucket) for message in lost)
        return replace(rest, lost=rest.lost | places, conflict=conflict)
    except BaseException:
        committer.discard(messages)
        raise


def still_there(context: TableContext, inputs: Sequence[tuple[bytes, int, Sequence[DataFile]]]) -> list[bool]:
    """For each bucket, whether all of its files are live on their levels in the newest snapshot."""
    store = context.store
    partitions = PartitionSet(frozenset(row for row, *_ in inputs), tuple(store.schema.partition_types))
    columns = ("partition", "bucket", "level", "file_name")

    def find_live(latest: Snapshot | None) -> pa.Table | None:
        metas = data_manifests(store.manifests, latest) if latest else ()
        return live_entries(store.manifests, metas, partitions=partitions, columns=columns) if latest else None

    live = store.snapshots.on_newest(find_live)
    if live is None:
        return [False] * len(inputs)
    wanted = pa.array([file.file_name for *_, files in inputs for file in files], pa.large_string())
    near = live.filter(pc.is_in(live.column("file_name"), value_set=wanted))
    there = set(zip(*(near.column(name).to_pylist() for name in columns), strict=True))
    return [
        all((partition, bucket, file.level, file.file_name) in there for file in files)
        for partition, bucket, files in inputs
    ]
