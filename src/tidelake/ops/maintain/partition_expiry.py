"""Partition expiry: drop the partitions that are older than the table keeps them.

What is too old is found from the newest snapshot, and dropped in batches, each an OVERWRITE snapshot of its own: files
go when the snapshots before it expire, so until then a rollback brings the rows back. A partition is dropped whole or
not at all. By update time, a partition that another job wrote to since the plan is not old any more, and a guard
refuses to drop it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import CommitConflictError, InvalidInputError
from tidelake.io.clock import local_time_ms
from tidelake.notebook import pluralize
from tidelake.ops.commit.guards import Guard, Proposal
from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.commit.since import commits_since
from tidelake.ops.context import TableContext
from tidelake.ops.scan.partition_times import PartitionExpiryOptions, PartitionTimes, Strategy, partition_texts
from tidelake.ops.scan.partitions import PartitionFilter, PartitionSet
from tidelake.ops.scan.plan import data_manifests, live_entries
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.manifests.manifest import ADD
from tidelake.store.table_store import TableStore

__all__ = [
    "Drop",
    "ExpiredPartition",
    "PartitionExpiryPlan",
    "PartitionExpiryResult",
    "plan_partition_expiry",
    "run_partition_expiry",
]

_NAMED: Final = 5
"""Partitions that a text names."""
_ATTEMPTS: Final = 5
"""Plans at most, where other jobs write to partitions that are dropped."""
_WRITTEN: Final = "partition-written"
_COLUMNS: Final = ("partition", "row_count", "file_size", "creation_time_ms")

Drop = Callable[[PartitionFilter, Sequence[Guard]], CommitResult]
"""Drops the chosen partitions in one commit, unless a guard refuses it."""


@dataclass(frozen=True, slots=True)
class ExpiredPartition:
    """A partition that is too old, and what it holds in the newest snapshot."""

    values: Mapping[str, str]
    """The values by column, as texts; null is the name that stands for it in folders."""
    rows: int
    files: int
    size: int
    """Bytes of the files."""
    row: bytes = field(repr=False)

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.values.items())


@dataclass(frozen=True, slots=True)
class PartitionExpiryPlan:
    """The partitions to drop, in order of their values, and how many go with one commit."""

    partitions: tuple[ExpiredPartition, ...] = ()
    batch_size: int | None = None
    left: int = 0
    """Expired partitions beyond the greatest number that is dropped at a time."""
    timeless: tuple[str, ...] = ()
    """Partitions that never expire, because their values are null or make no time."""
    snapshot_id: int | None = None
    """The snapshot that was looked at."""
    strategy: Strategy = Strategy.VALUES_TIME

    @property
    def rows(self) -> int:
        """Rows of the files to drop, older versions and deleted rows included."""
        return sum(each.rows for each in self.partitions)

    @property
    def files(self) -> int:
        """Data files to drop."""
        return sum(each.files for each in self.partitions)

    @property
    def size(self) -> int:
        """Bytes of these files."""
        return sum(each.size for each in self.partitions)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the plan leaves out."""
        if not self.timeless:
            return ()
        text = f"{pluralize(len(self.timeless), 'partition')} ({_name_some(self.timeless)}) never expire"
        return (f"{text}: their values are null or make no time; see partition.timestamp-pattern and -formatter",)

    def batches(self) -> Iterator[tuple[ExpiredPartition, ...]]:
        """The partitions that go together."""
        size = self.batch_size if self.batch_size and self.batch_size > 0 else max(1, len(self.partitions))
        for start in range(0, len(self.partitions), size):
            yield self.partitions[start : start + size]

    def __str__(self) -> str:
        if not self.partitions:
            return "no partition has expired"
        text = f"{pluralize(len(self.partitions), 'partition')} ({_name_some(list(map(str, self.partitions)))})"
        text = f"{text}: {pluralize(self.rows, 'row')} in {pluralize(self.files, 'file')} of {self.size:,} bytes"
        return f"{text}; {self.left} more are left to the next time" if self.left else text


@dataclass(frozen=True, slots=True)
class PartitionExpiryResult:
    """The partitions that were dropped, and the snapshots that dropped them."""

    partitions: tuple[ExpiredPartition, ...] = ()
    snapshot_ids: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.partitions:
            return "no partition has expired"
        return f"dropped {pluralize(len(self.partitions), 'partition')} ({_name_some(list(map(str, self.partitions)))})"


def plan_partition_expiry(context: TableContext, options: PartitionExpiryOptions) -> PartitionExpiryPlan:
    """Find the partitions that are too old.

    Raises:
        InvalidInputError: the table has no partitions, no expiration time is given, or the formatter is wrong.
        UnsupportedError: the strategy, or a letter of the formatter, is not supported.
        FormatError: a manifest is damaged.
    """
    if not context.schema.partition_keys:
        raise InvalidInputError(
            "table has no partitions", table=context.name, hint="delete old rows with a condition instead"
        )
    if options.time_ms is None:
        raise InvalidInputError(
            "partitions of this table do not expire",
            table=context.name,
            hint="give expiration_time, or set the option partition.expiration-time",
        )
    strategy = options.strategy
    times = PartitionTimes(context.schema, options) if strategy is Strategy.VALUES_TIME else None
    snapshot, live = context.snapshots.on_newest(lambda newest: (newest, _live_partitions(context, newest)))
    before_ms = local_time_ms(context.store.env.clock) - options.time_ms
    rows: list[bytes] = live.column("partition").to_pylist()
    timeless: list[str] = []
    if times is None:
        # A file without a creation time may be a new one.
        old = pc.fill_null(pc.less(live.column("creation_time_ms_max"), before_ms), False).to_pylist()
    else:
        old = [times.is_older(row, before_ms) for row in rows]
        young = (row for row, is_old in zip(rows, old, strict=True) if not is_old)
        timeless = [_describe(context, row) for row in young if times.find(row) is None]
    expired = sorted(
        (_expired_partition(context, each) for each in live.filter(pa.array(old, pa.bool_())).to_pylist()),
        key=lambda each: ",".join(each.values.values()).encode("utf-16-be", "surrogatepass"),
    )
    return PartitionExpiryPlan(
        partitions=tuple(expired[: options.max_count]),
        batch_size=options.batch_size,
        left=len(expired[options.max_count :]),
        timeless=tuple(sorted(timeless)),
        snapshot_id=None if snapshot is None else snapshot.id,
        strategy=strategy,
    )


def run_partition_expiry(
    context: TableContext, options: PartitionExpiryOptions, plan: PartitionExpiryPlan, drop: Drop
) -> PartitionExpiryResult:
    """Drop the partitions of a plan, batch by batch; by update time, only those that stay idle.

    Raises:
        CommitConflictError: partitions were written to again and again, or every attempt of a commit lost its race;
            batches before that one are dropped.
        CommitUnknownError: it is unknown whether a batch was dropped.
        StorageError: the storage failed; batches before that one are dropped.
    """
    wanted = {each.row for each in plan.partitions}
    done: dict[bytes, ExpiredPartition] = {}
    results: list[CommitResult] = []
    types = tuple(context.schema.partition_types)

    def drop_the_rest() -> None:
        newest = plan_partition_expiry(context, options) if failed else plan
        left = replace(newest, partitions=tuple(each for each in newest.partitions if each.row in wanted - done.keys()))
        for batch in left.batches():
            chosen = PartitionSet(frozenset(each.row for each in batch), types)
            results.append(drop(chosen, _make_guards(context.store, chosen, left)))
            done.update((each.row, each) for each in batch)

    failed = False
    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            drop_the_rest()
            break
        except CommitConflictError as error:
            if error.code != _WRITTEN or not attempts_left:
                raise
            failed = True
    return PartitionExpiryResult(
        partitions=tuple(done.values()),
        snapshot_ids=tuple(snapshot_id for each in results for snapshot_id in each.snapshot_ids),
        warnings=tuple(dict.fromkeys((*plan.warnings, *(text for each in results for text in each.warnings)))),
    )


def _make_guards(store: TableStore, chosen: PartitionSet, plan: PartitionExpiryPlan) -> tuple[Guard, ...]:
    if plan.strategy is Strategy.VALUES_TIME or plan.snapshot_id is None:
        return ()
    return (_PartitionsIdle(store, chosen, plan.snapshot_id),)


@dataclass(frozen=True, slots=True)
class _PartitionsIdle:
    """The guard of partitions that are old because no job wrote to them: none has since the plan."""

    store: TableStore
    partitions: PartitionSet
    planned_on: int

    def check(self, proposal: Proposal) -> None:
        """Refuse to drop a partition with new files.

        Raises:
            CommitConflictError: another job added files to one, or the snapshots that would show it have expired.
        """
        for later in commits_since(self.store, max(self.planned_on, proposal.checked_id), proposal.latest.id):
            if later.snapshot is not None:
                entries = later.read_entries(partitions=self.partitions, columns=("kind", "partition"))
                if not pc.any(pc.equal(entries.column("kind"), ADD)).as_py():
                    continue
            raise CommitConflictError(
                "another job wrote to a partition while it was dropped for its age",
                code=_WRITTEN,
                snapshot_id=later.id,
                hint="plan again: the partition is not old any more",
            )


def _live_partitions(context: TableContext, snapshot: Snapshot | None) -> pa.Table:
    """Rows, bytes, files and newest creation time of each partition of a snapshot."""
    names = [("row_count", "sum"), ("file_size", "sum"), ("creation_time_ms", "max"), ("partition", "count")]
    if snapshot is None:
        context.store.refuse_dropped()
        fields = [("partition", pa.large_binary()), *((f"{name}_{how}", pa.int64()) for name, how in names)]
        return pa.schema(fields).empty_table()
    manifests = context.store.manifests
    entries = live_entries(manifests, data_manifests(manifests, snapshot), columns=_COLUMNS)
    return entries.group_by("partition", use_threads=False).aggregate(names)


def _expired_partition(context: TableContext, live: Mapping[str, int | bytes]) -> ExpiredPartition:
    row = live["partition"]
    assert isinstance(row, bytes)
    return ExpiredPartition(
        values=_values(context, row),
        rows=int(live["row_count_sum"]),
        files=int(live["partition_count"]),
        size=int(live["file_size_sum"]),
        row=row,
    )


def _values(context: TableContext, row: bytes) -> dict[str, str]:
    null = context.paths.options.default_partition_name
    texts = partition_texts(context.schema, row)
    names = context.schema.partition_keys
    return {name: null if text is None else text for name, text in zip(names, texts, strict=True)}


def _describe(context: TableContext, row: bytes) -> str:
    return ", ".join(f"{name}={value}" for name, value in _values(context, row).items())


def _name_some(names: Sequence[str]) -> str:
    return "; ".join(names[:_NAMED]) + (" …" if len(names) > _NAMED else "")
