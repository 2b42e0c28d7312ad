"""Rescaling: the rows of whole partitions are dealt to another number of fixed buckets.

The rows of a snapshot are read merged, written to the new buckets and committed in place of exactly the files they were
read from. A commit of anybody else to the same partitions in between makes it fail, so that no row is ever lost. The
option `bucket` of the table stays as it is: it says how many buckets new partitions get.

Invariant: one snapshot takes the old files out and the new ones in, so that no reader sees a partition with two counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, TypeVar

from tidelake.errors import (
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from tidelake.notebook import html_card, html_table, plain
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import CommitMessage, CommitResult, Committable, CompactIncrement, DataIncrement
from tidelake.ops.compact.buckets import Choice, Job, live_buckets
from tidelake.ops.compact.vectors import index_files_of
from tidelake.ops.read.append import ReadRequest
from tidelake.ops.read.rows import read_rows
from tidelake.ops.scan.options import BucketOptions
from tidelake.ops.scan.partitions import PartitionFilter
from tidelake.ops.scan.split import Split
from tidelake.ops.write.keyed import KeyedTableWriter
from tidelake.ops.write.verbs import Target
from tidelake.spec.index_manifest import IndexFile
from tidelake.store.snapshots import EXPIRED

T = TypeVar("T")

Progress = Callable[[int, int], None]
"""Told how many of how many partitions are done."""
_SHOWN_MAX: Final = 20
_ATTEMPTS: Final = 10
"""Plans of a rescale."""


@dataclass(frozen=True, slots=True)
class RescaledPartition:
    """A partition whose rows get new buckets: its buckets, each with all its files."""

    path: str
    buckets: tuple[Split, ...]

    @property
    def previous(self) -> int:
        """The number of buckets it has."""
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


def new_bucket_count(options: Mapping[str, str], given: int | None) -> int:
    """How many buckets the partitions shall have: what is given, or what the table's option says.

    Raises:
        InvalidInputError: the table's buckets are not fixed, or the number is missing or none.
    """
    fixed = BucketOptions.parse(options).bucket
    if fixed == -1:
        raise InvalidInputError(
            "only fixed buckets have a number to change",
            option="bucket",
            value=fixed,
            hint="dynamic buckets grow by themselves, and an append table without buckets needs none",
        )
    if given is None and fixed < 0:
        raise InvalidInputError(
            "table with postponed buckets does not say how many they shall be", hint="give bucket_num="
        )
    count: object = fixed if given is None else given
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise InvalidInputError("number of buckets must be positive", bucket_num=count, hint="give 1 or more")
    return count


def plan_rescale(job: Job, partitions: PartitionFilter, count: int) -> RescalePlan:
    """The chosen partitions of the newest snapshot that have another number of buckets.

    Raises:
        CommitConflictError: the table has rows of a newer schema than the job's.
        UnsupportedError: rows are marked deleted by deletion vectors.
    """
    snapshot, buckets = live_buckets(job, Choice(partitions=partitions))
    if snapshot is None:
        return RescalePlan(count)
    found = []
    for partition, group in groupby(buckets, key=lambda split: split.partition):
        splits = tuple(group)
        if any(split.total_buckets != count for split in splits):
            found.append(RescaledPartition(job.paths.partition(partition), splits))
    return RescalePlan(count, snapshot.id, tuple(found))


def rescale_options(options: Mapping[str, str], plan: RescalePlan) -> dict[str, str]:
    """The options in force while a plan is carried out: the new count, and nobody else in the partitions since."""
    return {
        **options,
        "bucket": str(plan.bucket_num),
        "write-only": "false",
        "commit.strict-mode.last-safe-snapshot": str(plan.snapshot_id),
    }


def rescaled_anew(attempt: Callable[[], T]) -> T:
    """Plan a rescale and carry it out, again while what it was planned on expires.

    Raises:
        CommitConflictError: others changed the partitions meanwhile; nothing was changed.
        NotFoundError: what was planned on expired every time; nothing was changed.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return attempt()
        except NotFoundError as error:
            # Strict mode cannot tell what changed since the plan where a snapshot since then is gone.
            if error.code not in ("snapshot-not-found", EXPIRED):
                raise
    return attempt()


def run_rescale(job: Job, committer: Committer, plan: RescalePlan, progress: Progress | None = None) -> CommitResult:
    """Write the rows of the planned partitions to their new buckets and commit them; `job` has `rescale_options`.

    Raises:
        CommitConflictError: others changed the partitions meanwhile; nothing was changed or left behind.
        CommitUnknownError: the storage did not tell whether the commit is there.
        FormatError: a file is missing or damaged.
    """
    if not plan.partitions:
        return CommitResult()
    messages: list[CommitMessage] = []
    try:
        for number, each in enumerate(plan.partitions, start=1):
            messages += _rewritten(job, each)
            if progress:
                progress(number, len(plan.partitions))
        with job.store.snapshots.held_to(plan.snapshot_id):
            indexes = index_files_of(job.store, job.store.snapshots.get(plan.snapshot_id))
        gone = [
            _taken_out(split, indexes.get((split.partition, split.bucket), ()))
            for each in plan.partitions
            for split in each.buckets
        ]
        return committer.commit(Committable(messages=(*gone, *messages), operation="OVERWRITE"))
    except BaseException:
        committer.discard(messages)
        raise


def _taken_out(split: Split, indexes: tuple[IndexFile, ...]) -> CommitMessage:
    """Every file of a bucket goes, and with them their deletion vectors."""
    return CommitMessage(
        partition=split.partition,
        bucket=split.bucket,
        total_buckets=split.total_buckets,
        data=DataIncrement(deleted_files=split.files, deleted_index_files=indexes),
    )


def _rewritten(job: Job, partition: RescaledPartition) -> list[CommitMessage]:
    """The new files of a partition; of a primary-key table on its lowest level, where no reader has to merge them."""
    schema = job.store.schema
    request = ReadRequest(schema=schema, columns=schema.names)
    writer = Target(job.name, job.store, job.paths, job.options).writer(overwrite=True)
    try:
        for batch in read_rows(job.store, _in_order(partition, keyed=job.is_keyed), request, job.options):
            writer.write(batch)
        if isinstance(writer, KeyedTableWriter):
            writer.compact_written(full=True)
        return [_folded(job, message) for message in writer.prepare()]
    except BaseException:
        writer.abort()
        raise


def _in_order(partition: RescaledPartition, *, keyed: bool) -> Iterator[Split]:
    for split in partition.buckets:
        if keyed:
            # Every level counts, also where reads wait for a compaction: what is left out now would be gone.
            yield replace(split, raw_convertible=False)
        else:
            ordered = sorted(split.files, key=lambda file: (file.min_sequence, file.file_name))
            yield replace(split, files=tuple(ordered))


def _folded(job: Job, message: CommitMessage) -> CommitMessage:
    """What was written and then compacted as if it had been written like that at once; what passed is removed."""
    written = {(file.file_name, file.level): file for file in message.data.new_files}
    for file in message.compact.before:
        written.pop((file.file_name, file.level), None)
    files = (*written.values(), *message.compact.after)
    kept = {file.file_name for file in files}
    folder = job.paths.bucket(message.partition, message.bucket)
    for file in message.data.new_files:
        if file.file_name not in kept:
            with suppress(StorageError):  # found by orphan cleaning
                job.store.env.io.delete(f"{folder}/{file.file_name}")
    return replace(
        message,
        data=replace(message.data, new_files=files),
        compact=CompactIncrement(),
        base_snapshot_id=None,
    )
