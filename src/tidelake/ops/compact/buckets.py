"""Choose the buckets that a rewrite looks at: those of the chosen partitions, each with all its live files.

Invariant: a bucket is looked at whole or not at all. Without one of its files, older versions of the keys in that file
would come back.
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
from tidelake.ops.context import TableContext
from tidelake.ops.scan.deletion_vectors import snapshot_vectors
from tidelake.ops.scan.partitions import PartitionFilter, PartitionPredicate, PartitionSet
from tidelake.ops.scan.plan import EVERY_PARTITION, data_manifests, live_entries
from tidelake.ops.scan.planner import refuse_unreadable
from tidelake.ops.scan.split import Split, bucket_splits
from tidelake.options import Affects, OptionGroup, TableOptions, option
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.manifests.manifest import empty_entries
from tidelake.spec.rows.bucket_function import PartitionBucket
from tidelake.spec.schemas.bucket_mode import BucketOptions
from tidelake.spec.schemas.schema import Schema

_BUCKETS_MAX: Final = 1 << 16
"""Numbers of one range such as `0-5`, so that a typing error does not fill the memory."""
_RANGE: Final = re.compile(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredPartitionOptions(OptionGroup):
    """Whether compaction skips expired partitions."""

    skip: bool = option(
        "compaction.skip-expired-partitions",
        False,
        doc="Skip expired partitions; refused, because compactions do not look at the age of partitions.",
        affects=(Affects.MAINTENANCE,),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which buckets: of these partitions, with these numbers, of partitions without a write for `idle_ms`."""

    partitions: PartitionFilter = EVERY_PARTITION
    buckets: frozenset[int] | None = None
    idle_ms: int | None = None
    places: frozenset[PartitionBucket] | None = None
    """Only these of the buckets that the other fields choose."""


EVERYTHING: Final = Choice()


def choose_partitions(
    schema: Schema, where: Predicate | None, partitions: Sequence[Mapping[str, object]] | None
) -> PartitionFilter:
    """A filter from a condition, or from specifications such as `{"dt": "…"}`, which may leave columns out.

    Raises:
        InvalidInputError: both are given, or a column is not a partition column.
    """
    if where is not None and partitions is not None:
        raise InvalidInputError("partitions are chosen twice", hint="give either where= or partitions=")
    if partitions is not None:
        given = [partitions] if isinstance(partitions, Mapping) else list(partitions)
        if not all(isinstance(each, Mapping) for each in given):
            raise InvalidInputError(
                "partition is not a mapping", got=repr(partitions)[:100], hint='write [{"column": value}]'
            )
        where = Or(tuple(And(tuple(equals(name, value) for name, value in each.items())) for each in given))
    if where is None:
        return EVERY_PARTITION
    other = where.columns() - set(schema.partition_keys)
    if other:
        raise InvalidInputError(
            "condition uses a column that is not a partition column",
            column=min(other),
            hint=f"use {', '.join(schema.partition_keys) or 'no condition: the table has no partitions'}",
        )
    return PartitionPredicate(where, tuple(schema.partition_keys), tuple(schema.partition_types))


def choose_buckets(given: Iterable[int] | str | None, options: TableOptions) -> frozenset[int] | None:
    """Bucket numbers, also as a text such as `0,2-5`; None chooses all.

    Raises:
        InvalidInputError: the numbers cannot be parsed, or the table has no fixed buckets.
    """
    if given is None:
        return None
    numbers = _numbers(given) if isinstance(given, str) else frozenset(given)
    if not numbers or any(not _is_number(each) for each in numbers):
        raise InvalidInputError(
            "bucket numbers cannot be parsed", buckets=repr(given)[:100], hint='write [0, 2] or "0,2-5"'
        )
    if options.of(BucketOptions).bucket <= 0:
        raise InvalidInputError(
            "buckets can be chosen by number only in tables with fixed buckets",
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


def live_buckets(context: TableContext, choice: Choice = EVERYTHING) -> tuple[Snapshot | None, list[Split]]:
    """The newest snapshot and its chosen buckets; staged rows are in none of them.

    Raises:
        CommitConflictError: the table has rows of a newer schema than the job's; a rewrite would drop their columns.
        UnsupportedError: an option is not honoured.
    """
    _refuse_skipping(context)
    return context.store.snapshots.on_newest(lambda snapshot: _live_splits(context, choice, snapshot))


def _live_splits(
    context: TableContext, choice: Choice, snapshot: Snapshot | None
) -> tuple[Snapshot | None, list[Split]]:
    """The buckets at one snapshot. Its deletion vectors expire with its files, so they are read under the same hold."""
    _, entries = _live_entries(context, choice, snapshot)
    if snapshot is None:
        return None, []
    real = entries.filter(pc.greater_equal(entries.column("bucket"), 0))
    splits = bucket_splits(real, snapshot.id, context.paths, snapshot_vectors(context.store.manifests, snapshot))
    if choice.places is not None:
        splits = [split for split in splits if (split.partition, split.bucket) in choice.places]
    return snapshot, splits


def chosen_entries(context: TableContext, choice: Choice = EVERYTHING) -> tuple[Snapshot | None, pa.Table]:
    """The newest snapshot and the chosen live files, those with staged rows included.

    Raises:
        CommitConflictError: the table has rows of a newer schema than the job's; a rewrite would drop their columns.
        UnsupportedError: an option is not honoured.
    """
    _refuse_skipping(context)
    return context.store.snapshots.on_newest(lambda snapshot: _live_entries(context, choice, snapshot))


def _refuse_skipping(context: TableContext) -> None:
    if context.options.of(ExpiredPartitionOptions).skip and "partition.expiration-time" in context.options:
        raise UnsupportedError(
            "compactions cannot skip expired partitions",
            option="compaction.skip-expired-partitions",
            hint="choose partitions, or unset the option for this use",
        )


def _live_entries(context: TableContext, choice: Choice, snapshot: Snapshot | None) -> tuple[Snapshot | None, pa.Table]:
    store = context.store
    if snapshot is None:
        store.refuse_dropped()
        return None, empty_entries()
    entries = live_entries(
        store.manifests, data_manifests(store.manifests, snapshot), partitions=_partition_filter(choice, store.schema)
    )
    refuse_unreadable(store, snapshot, entries)
    refuse_newer(context, pc.max(entries.column("schema_id")).as_py() or 0)
    return snapshot, entries.filter(_mask(entries, choice, local_time_ms(store.env.clock)))


def refuse_newer(context: TableContext, schema_id: int) -> None:
    """Refuse rows of a newer schema: a rewrite with the older one would drop the columns added since.

    Raises:
        CommitConflictError: the schema is newer than the job's.
    """
    known = context.store.schema.id
    if schema_id > known:
        raise CommitConflictError(
            "table has rows of a newer schema than this job knows",
            code="schema-changed",
            table=context.name,
            known=known,
            found=schema_id,
            hint="open the table again and retry",
        )


def _partition_filter(choice: Choice, schema: Schema) -> PartitionFilter:
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
