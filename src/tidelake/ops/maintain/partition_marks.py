"""Marking partitions done by hand: which partitions are meant, and what the table's options do to mark them.

Only partitions with files in the newest snapshot can be marked, so that no folder appears that no data is in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.notebook import pluralize
from tidelake.ops.commit.mark_done import MarkDoneOptions, check_mark_done, run_mark_done
from tidelake.ops.commit.overwrite import static_filter
from tidelake.ops.context import TableContext
from tidelake.ops.scan.partitions import PartitionFilter
from tidelake.ops.scan.plan import data_manifests, live_entries
from tidelake.spec.documents.snapshot import Snapshot

__all__ = ["MarkDonePlan", "plan_mark_done", "run_partition_marks"]


@dataclass(frozen=True, slots=True)
class MarkDonePlan:
    """The folders of the partitions to mark, and what marks them."""

    partitions: tuple[str, ...]
    actions: tuple[str, ...]

    def __str__(self) -> str:
        named = "; ".join(self.partitions[:5]) + (" …" if len(self.partitions) > 5 else "")
        return f"{pluralize(len(self.partitions), 'partition')} ({named}) done by {' and '.join(self.actions)}"


def plan_mark_done(context: TableContext, partitions: Sequence[Mapping[str, object]]) -> MarkDonePlan:
    """Find the partitions that specifications name, each with a value for every partition column.

    Raises:
        InvalidInputError: the table has no partitions, a column is missing or unknown, or an option is wrong.
        NotFoundError: a partition has no files.
        UnsupportedError: an action of the options is not supported.
    """
    options = context.options.of(MarkDoneOptions)
    check_mark_done(options)
    if not partitions:
        raise InvalidInputError("no partition to mark done is given", hint='write [{"column": value}]')
    filters = [_exact_filter(context, each) for each in partitions]
    rows = context.snapshots.on_newest(lambda newest: _live_rows(context, newest))
    found: dict[str, None] = {}
    for specification, chosen in zip(partitions, filters, strict=True):
        matching = rows.filter(chosen.mask(rows)).to_pylist()
        if not matching:
            raise NotFoundError(
                "partition has no files",
                code="partition-not-found",
                table=context.name,
                partition=_describe(specification),
                hint="write to it first, or look at its values with inspect.partitions()",
            )
        found.update((context.paths.partition(row), None) for row in matching)
    return MarkDonePlan(tuple(found), tuple(each.value for each in options.actions))


def run_partition_marks(context: TableContext, plan: MarkDonePlan) -> MarkDonePlan:
    """Mark the partitions of a plan; doing it again keeps the time of the first mark.

    Raises:
        StorageError: the storage failed, or a report was not accepted; partitions before that one are marked.
    """
    run_mark_done(context.store, context.name, context.options.of(MarkDoneOptions), plan.partitions)
    return plan


def _exact_filter(context: TableContext, specification: Mapping[str, object]) -> PartitionFilter:
    if not isinstance(specification, Mapping):
        raise InvalidInputError(
            "partition is not a mapping", got=repr(specification)[:100], hint='write [{"column": value}]'
        )
    keys = context.schema.partition_keys
    if not keys:
        raise InvalidInputError("table has no partitions", table=context.name)
    wrong = sorted(set(keys) ^ set(specification))
    if wrong:
        raise InvalidInputError(
            "partition needs a value for each partition column and no other",
            partition=_describe(specification),
            columns=", ".join(wrong),
            hint=f"give {', '.join(keys)}",
        )
    return static_filter(context.schema, specification)


def _live_rows(context: TableContext, snapshot: Snapshot | None) -> pa.Array:
    if snapshot is None:
        context.store.refuse_dropped()
        return pa.array([], pa.large_binary())
    manifests = context.store.manifests
    return live_entries(manifests, data_manifests(manifests, snapshot), columns=["partition"])["partition"].unique()


def _describe(specification: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in specification.items())[:200]
