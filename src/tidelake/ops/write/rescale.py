"""Rescale: rewrite the rows of whole partitions to another number of fixed buckets.

The rows of a snapshot are read merged, written to the new buckets and committed in place of exactly the files they were
read from. If another job commits to the same partitions in between, the rescale fails, so no row is ever lost. The
table's option `bucket` does not change: it says how many buckets new partitions get.

Invariant: one snapshot removes the old files and adds the new ones, so no reader sees a partition with two counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, TypeVar

from tidelake.cleanup import undo_on_error
from tidelake.errors import (
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from tidelake.files.options import FileOptions
from tidelake.notebook import html_card, html_table, plain
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import CommitMessage, CommitResult, Committable, CompactIncrement, DataIncrement
from tidelake.ops.commit.replan import replan
from tidelake.ops.compact.buckets import Choice, live_buckets
from tidelake.ops.context import TableContext
from tidelake.ops.read.append import ReadRequest
from tidelake.ops.read.rows import read_rows
from tidelake.ops.scan.partitions import PartitionFilter
from tidelake.ops.scan.split import Split
from tidelake.ops.vectors.vector_writer import index_files_of
from tidelake.ops.write.append import AppendWriter
from tidelake.ops.write.keyed import KeyedTableWriter
from tidelake.options import TableOptions
from tidelake.spec.manifests.index_manifest import IndexFile
from tidelake.spec.schemas.bucket_mode import BucketOptions

T = TypeVar("T")

Progress = Callable[[int, int], None]
"""Called with the number of finished partitions and the number of all partitions."""
_SHOWN_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class RescaledPartition:
    """A partition to rescale: its buckets, each with all its files."""

    path: str
    buckets: tuple[Split, ...]

    @property
    def previous(self) -> int:
        """The number of buckets that it has."""
        return self.buckets[0].total_buckets

    @property
    def files(self) -> int:
        """Files that are read and replaced."""
        return sum(len(split.files) for split in self.buckets)

    @property
    def size(self) -> int:
        """Their bytes."""
        return sum(split.size for split in self.buckets)


@dataclass(frozen=True, slots=True, repr=False)
class RescalePlan:
    """What a rescale would rewrite: the partitions of a snapshot that have another number of buckets."""

    bucket_num: int
    snapshot_id: int = 0
    partitions: tuple[RescaledPartition, ...] = ()

    @property
    def files(self) -> int:
        """Files that would be read and replaced."""
        return sum(each.files for each in self.partitions)

    @property
    def size(self) -> int:
        """Their bytes."""
        return sum(each.size for each in self.partitions)

    def __str__(self) -> str:
        many = "partition" if len(self.partitions) == 1 else "partitions"
        count = f"{len(self.partitions)} {many}"
        return f"{count} to {self.bucket_num} buckets, {self.files:,} files, {self.size:,} bytes"

    def __repr__(self) -> str:
        lines = [f"  {path}: {old} buckets, {files} files, {size} bytes" for path, old, files, size in self._steps()]
        return "\n".join([f"RescalePlan({self})", *map(plain, lines), *self._more()])

    def _repr_html_(self) -> str:
        table = html_table(("partition", "buckets", "files", "bytes"), self._steps())
        return html_card(f"rescale: {self}", [("", more) for more in self._more()], table)

    def _steps(self) -> list[tuple[str, str, str, str]]:
        return [
            (each.path or "the table", f"{each.previous:,}", f"{each.files:,}", f"{each.size:,}")
            for each in self.partitions[:_SHOWN_MAX]
        ]

    def _more(self) -> list[str]:
        left = len(self.partitions) - _SHOWN_MAX
        return [f"  and {left:,} more"] if left > 0 else []


def new_bucket_count(options: TableOptions, given: int | None) -> int:
    """The new number of buckets: the given one, or that of the table's option.

    Raises:
        InvalidInputError: the table's buckets are not fixed, or the number is missing or not positive.
    """
    fixed = options.of(BucketOptions).bucket
    if fixed == -1:
        raise InvalidInputError(
            "only a number of fixed buckets can be changed",
            option="bucket",
            value=fixed,
            hint="dynamic buckets grow by themselves, and an append table without buckets needs none",
        )
    if given is None and fixed < 0:
        raise InvalidInputError(
            "table with postponed buckets has no number of buckets in its options", hint="give bucket_num="
        )
    count: object = fixed if given is None else given
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise InvalidInputError("number of buckets must be positive", bucket_num=count, hint="give 1 or more")
    return count


def plan_rescale(context: TableContext, partitions: PartitionFilter, count: int) -> RescalePlan:
    """Find the chosen partitions of the newest snapshot that have another number of buckets.

    Raises:
        CommitConflictError: the table has rows of a newer schema than the job's.
        UnsupportedError: an option is not honoured.
    """
    snapshot, buckets = live_buckets(context, Choice(partitions=partitions))
    if snapshot is None:
        return RescalePlan(count)
    found = []
    for partition, group in groupby(buckets, key=lambda split: split.partition):
        splits = tuple(group)
        if any(split.total_buckets != count for split in splits):
            found.append(RescaledPartition(context.paths.partition(partition), splits))
    return RescalePlan(count, snapshot.id, tuple(found))


def replan_rescale(attempt: Callable[[], T]) -> T:
    """Plan a rescale and run it; plan again while the snapshot that it was planned on expires.

    Raises:
        CommitConflictError: another job changed the partitions in between; nothing was changed.
        NotFoundError: the planned snapshot expired at every attempt; nothing was changed.
    """

    def attempt_rescale() -> T:
        try:
            return attempt()
        except NotFoundError as error:
            # Strict mode cannot check what changed since the plan if one of the snapshots since then has expired.
            error.replannable |= error.code == "snapshot-not-found"
            raise

    return replan(attempt_rescale)


def run_rescale(
    context: TableContext, committer: Committer, plan: RescalePlan, progress: Progress | None = None
) -> CommitResult:
    """Write the rows of the planned partitions to their new buckets and commit them.

    The plan's snapshot must be the committer's last safe one, so that it refuses changes by other jobs since then.

    Raises:
        CommitConflictError: another job changed the partitions in between; nothing was changed, new files are removed.
        CommitUnknownError: the storage did not answer whether the commit is there.
        FormatError: a file is missing or damaged.
    """
    if not plan.partitions:
        return CommitResult()
    messages: list[CommitMessage] = []
    with undo_on_error(lambda: committer.discard(messages)):
        for number, each in enumerate(plan.partitions, start=1):
            messages += _rewrite_partition(context, each, plan.bucket_num)
            if progress:
                progress(number, len(plan.partitions))
        with context.store.snapshots.held_to(plan.snapshot_id):
            indexes = index_files_of(context.store, context.store.snapshots.get(plan.snapshot_id))
        gone = [
            _delete_bucket(split, indexes.get((split.partition, split.bucket), ()))
            for each in plan.partitions
            for split in each.buckets
        ]
        return committer.commit(Committable(messages=(*gone, *messages), operation="OVERWRITE"))


def _delete_bucket(split: Split, indexes: tuple[IndexFile, ...]) -> CommitMessage:
    """A message that deletes every file of a bucket, with their deletion vectors."""
    return CommitMessage(
        partition=split.partition,
        bucket=split.bucket,
        total_buckets=split.total_buckets,
        data=DataIncrement(deleted_files=split.files, deleted_index_files=indexes),
    )


def _rewrite_partition(context: TableContext, partition: RescaledPartition, count: int) -> list[CommitMessage]:
    """Write the new files of a partition; in a primary-key table to the lowest level, so that no reader merges them."""
    schema = context.store.schema
    request = ReadRequest(schema=schema, columns=schema.names)
    writer = _open_writer(context, partition, count)
    with undo_on_error(writer.abort):
        for batch in read_rows(context, _in_order(partition, keyed=context.is_keyed), request):
            writer.write(batch)
        if isinstance(writer, KeyedTableWriter):
            writer.compact_written(full=True)
        return [_fold_compaction(context, message) for message in writer.prepare()]


def _open_writer(context: TableContext, partition: RescaledPartition, count: int) -> AppendWriter | KeyedTableWriter:
    """Open a writer that replaces a partition by one with `count` buckets, and compacts even if `write-only` is set."""
    if context.is_keyed:
        row = partition.buckets[0].partition
        return KeyedTableWriter(context, overwrite=True, counts={row: count}, compacts=True)
    files, buckets = context.options.of(FileOptions), replace(context.options.of(BucketOptions), bucket=count)
    return AppendWriter(context.store, context.paths, files, buckets, overwrite=True)


def _in_order(partition: RescaledPartition, *, keyed: bool) -> Iterator[Split]:
    for split in partition.buckets:
        if keyed:
            # Read level 0 too, even if readers do not see it before a compaction: rows not read here would be lost.
            yield replace(split, raw_convertible=False)
        else:
            ordered = sorted(split.files, key=lambda file: (file.min_sequence, file.file_name))
            yield replace(split, files=tuple(ordered))


def _fold_compaction(context: TableContext, message: CommitMessage) -> CommitMessage:
    """Fold a compaction into the files that were written, as if they had been written so; remove temporary files."""
    written = {(file.file_name, file.level): file for file in message.data.new_files}
    for file in message.compact.before:
        written.pop((file.file_name, file.level), None)
    files = (*written.values(), *message.compact.after)
    kept = {file.file_name for file in files}
    folder = context.paths.bucket(message.partition, message.bucket)
    for file in message.data.new_files:
        if file.file_name not in kept:
            with suppress(StorageError):  # orphan cleaning will find it
                context.store.env.io.delete(f"{folder}/{file.file_name}")
    return replace(
        message,
        data=replace(message.data, new_files=files),
        compact=CompactIncrement(),
        base_snapshot_id=None,
    )
