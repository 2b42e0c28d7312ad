"""The buckets that a rewrite of files looks at: those of the chosen partitions, each with all its live files.

Invariant: a bucket is looked at whole or not at all, because leaving out a file would bring back what it hides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import CommitConflictError, InvalidInputError, UnsupportedError
from tidelake.expr.tree import And, Or, Predicate
from tidelake.io.clock import local_time_ms
from tidelake.ops.commit.overwrite import equals
from tidelake.ops.scan.options import BucketOptions
from tidelake.ops.scan.partitions import PartitionFilter, PartitionPredicate, PartitionSet
from tidelake.ops.scan.plan import EVERY_PARTITION, data_manifests, live_entries
from tidelake.ops.scan.planner import refuse_unreadable
from tidelake.ops.scan.split import Split, bucket_splits
from tidelake.ops.scan.vectors import snapshot_vectors
from tidelake.options import Affects, OptionGroup, option
from tidelake.spec.manifest import empty_entries
from tidelake.spec.schema import Schema
from tidelake.spec.snapshot import Snapshot
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore

Place = tuple[bytes, int]
"""A partition and a bucket of it."""
_BUCKETS_MAX: Final = 1 << 16
"""Numbers of one range: a slip of the finger must not fill the memory."""
_RANGE: Final = re.compile(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?")


@dataclass(frozen=True, slots=True)
class Job:
    """A table whose files are written anew: its documents, and how its files look."""

    name: str
    store: TableStore
    paths: DataPaths
    options: Mapping[str, str]
    thin: bool = False
    """Whether data files leave out the key columns that the columns of the table repeat."""

    @property
    def is_keyed(self) -> bool:
        """Whether the table has a primary key."""
        return bool(self.store.schema.primary_keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredPartitionOptions(OptionGroup):
    """Whether partitions past their time are left alone."""

    skip: bool = option(
        "compaction.skip-expired-partitions",
        False,
        doc="Leave partitions past their time alone; refused, since none expires yet.",
        affects=(Affects.MAINTENANCE,),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which buckets: of these partitions, with these numbers, of partitions that nobody wrote to for so long."""

    partitions: PartitionFilter = EVERY_PARTITION
    buckets: frozenset[int] | None = None
    idle_ms: int | None = None
    places: frozenset[Place] | None = None
    """Exactly these buckets, of those that the rest chooses."""


EVERYTHING: Final = Choice()


def choose_partitions(
    schema: Schema, where: Predicate | None, partitions: Sequence[Mapping[str, object]] | None
) -> PartitionFilter:
    """The partitions that a condition keeps, or those that specifications such as `{"dt": "…"}` name, also in part.

    Raises:
        InvalidInputError: both are given, or a column is no partition column.
    """
    if where is not None and partitions is not None:
        raise InvalidInputError("partitions are chosen twice", hint="give either where= or partitions=")
    if partitions is not None:
        given = [partitions] if isinstance(partitions, Mapping) else list(partitions)
        if not all(isinstance(each, Mapping) for each in given):
            raise InvalidInputError(
                "partition is no mapping", got=repr(partitions)[:100], hint='write [{"column": value}]'
            )
        where = Or(tuple(And(tuple(equals(name, value) for name, value in each.items())) for each in given))
    if where is None:
        return EVERY_PARTITION
    other = where.columns() - set(schema.partition_keys)
    if other:
        raise InvalidInputError(
            "whole partitions are chosen, and the condition looks at another column",
            column=min(other),
            hint=f"use {', '.join(schema.partition_keys) or 'no condition: the table has no partitions'}",
        )
    return PartitionPredicate(where, tuple(schema.partition_keys), tuple(schema.partition_types))


def choose_buckets(given: Iterable[int] | str | None, options: Mapping[str, str]) -> frozenset[int] | None:
    """Bucket numbers, also as a text such as `0,2-5`; None chooses all.

    Raises:
        InvalidInputError: a number is none, or the table has no fixed buckets, whose numbers alone mean something.
    """
    if given is None:
        return None
    numbers = _numbers(given) if isinstance(given, str) else frozenset(given)
    if not numbers or any(not _is_number(each) for each in numbers):
        raise InvalidInputError(
            "bucket numbers cannot be understood", buckets=repr(given)[:100], hint='write [0, 2] or "0,2-5"'
        )
    if BucketOptions.parse(options).bucket <= 0:
        raise InvalidInputError(
            "buckets are chosen by number only where their number is fixed",
            option="bucket",
            value=options.get("bucket", "-1"),
            hint="choose partitions instead",
        )
    return numbers


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _numbers(text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        matched = _RANGE.fullmatch(part)
        if matched is None:
            return frozenset()
        low = int(matched[1])
        high = int(matched[2] or low)
        if high - low > _BUCKETS_MAX:
            return frozenset()
        found.update(range(low, high + 1))
    return frozenset(found)


def live_buckets(job: Job, choice: Choice = EVERYTHING) -> tuple[Snapshot | None, list[Split]]:
    """The newest snapshot and the chosen buckets of it; rows that wait for a bucket are in none.

    Raises:
        CommitConflictError: the table has rows of a newer schema than the job's: written anew they would lose columns.
        UnsupportedError: an option is not honoured.
    """
    snapshot, entries = chosen_entries(job, choice)
    if snapshot is None:
        return None, []
    real = entries.filter(pc.greater_equal(entries.column("bucket"), 0))
    splits = bucket_splits(real, snapshot.id, job.paths, snapshot_vectors(job.store.manifests, snapshot))
    if choice.places is not None:
        splits = [split for split in splits if (split.partition, split.bucket) in choice.places]
    return snapshot, splits


def chosen_entries(job: Job, choice: Choice = EVERYTHING) -> tuple[Snapshot | None, pa.Table]:
    """The newest snapshot and the live files of what is chosen, rows that wait for a bucket among them.

    Raises:
        CommitConflictError: the table has rows of a newer schema than the job's: written anew they would lose columns.
        UnsupportedError: an option is not honoured.
    """
    if ExpiredPartitionOptions.parse(job.options).skip and "partition.expiration-time" in job.options:
        raise UnsupportedError(
            "partitions do not expire yet, so none can be left alone for it",
            option="compaction.skip-expired-partitions",
            hint="choose partitions, or unset the option for this use",
        )
    return job.store.snapshots.on_newest(lambda snapshot: _live_entries(job, choice, snapshot))


def _live_entries(job: Job, choice: Choice, snapshot: Snapshot | None) -> tuple[Snapshot | None, pa.Table]:
    store = job.store
    if snapshot is None:
        store.refuse_dropped()
        return None, empty_entries()
    entries = live_entries(
        store.manifests, data_manifests(store.manifests, snapshot), partitions=_pruned(choice, store.schema)
    )
    refuse_unreadable(store, snapshot, entries)
    refuse_newer(job, pc.max(entries.column("schema_id")).as_py() or 0)
    return snapshot, entries.filter(_mask(entries, choice, local_time_ms(store.env.clock)))


def refuse_newer(job: Job, schema_id: int) -> None:
    """A rewrite with an older schema would drop the columns that rows got since.

    Raises:
        CommitConflictError: the schema is newer than the job's.
    """
    known = job.store.schema.id
    if schema_id > known:
        raise CommitConflictError(
            "table has rows of a newer schema than this job knows",
            code="schema-changed",
            table=job.name,
            known=known,
            found=schema_id,
            hint="open the table anew and try again",
        )


def _pruned(choice: Choice, schema: Schema) -> PartitionFilter:
    if choice.places is None:
        return choice.partitions
    return PartitionSet(frozenset(partition for partition, _ in choice.places), tuple(schema.partition_types))


def _mask(entries: pa.Table, choice: Choice, now_ms: int) -> pa.Array:
    keep = pa.repeat(pa.scalar(True), entries.num_rows)
    if choice.places is not None:
        keep = pc.and_(keep, choice.partitions.mask(entries.column("partition")))
    if choice.buckets is not None:
        wanted = pa.array(sorted(choice.buckets), pa.int64())
        keep = pc.and_(keep, pc.is_in(entries.column("bucket").cast(pa.int64()), value_set=wanted))
    if choice.idle_ms is not None:
        made = entries.group_by("partition", use_threads=False).aggregate([("creation_time_ms", "max")])
        quiet = pc.fill_null(pc.less_equal(made.column("creation_time_ms_max"), now_ms - choice.idle_ms), True)
        idle = made.column("partition").filter(quiet).combine_chunks()
        keep = pc.and_(keep, pc.is_in(entries.column("partition"), value_set=idle))
    return keep
