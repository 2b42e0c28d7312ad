"""The files that an overwrite deletes, computed from the newest state at every attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError
from tidelake.expr.tree import And, Compare, IsNull, Predicate
from tidelake.ops.commit.changes import Changes, IndexChange
from tidelake.ops.commit.messages import CommitMessage, CompactIncrement
from tidelake.ops.scan.partitions import EveryPartition, PartitionFilter, PartitionPredicate, PartitionSet
from tidelake.ops.scan.plan import EVERY_PARTITION, live_entries
from tidelake.spec.layout import POSTPONE_BUCKET
from tidelake.spec.manifests.index_manifest import HASH, IndexEntry
from tidelake.spec.manifests.manifest import DELETE, with_kind
from tidelake.spec.manifests.manifest_list import ManifestMeta
from tidelake.spec.schemas.schema import Schema
from tidelake.store.manifests import ManifestStore


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Which partitions are replaced, and whether the staged rows of postponed buckets are replaced too."""

    partitions: PartitionFilter
    postponed: bool


def static_filter(schema: Schema, spec: Mapping[str, object]) -> PartitionFilter:
    """The partitions that a (possibly partial) specification names; an empty one names all.

    Raises:
        InvalidInputError: a name is not a partition column.
    """
    if not spec:
        return EVERY_PARTITION
    parts = tuple(equals(name, value) for name, value in spec.items())
    return PartitionPredicate(And(parts), tuple(schema.partition_keys), tuple(schema.partition_types))


def written_partitions(messages: Sequence[CommitMessage]) -> frozenset[bytes]:
    """The partitions that rows were written to, whether or not a file is left of them."""
    nothing = CompactIncrement()
    return frozenset(each.partition for each in messages if each.data.new_files or each.compact == nothing)


def dynamic_filter(schema: Schema, partitions: frozenset[bytes]) -> PartitionFilter:
    """Exactly these partitions."""
    return PartitionSet(partitions, tuple(schema.partition_types))


def equals(name: str, value: object) -> Predicate:
    """Equality where None means null."""
    return IsNull(name) if value is None else Compare(name, "=", value)


def check_inside(new: pa.Table, partitions: PartitionFilter) -> None:
    """Check that every new file of a static overwrite is in a partition that it replaces.

    Raises:
        InvalidInputError: one is not.
    """
    if new.num_rows and not pc.all(partitions.mask(new.column("partition"))).as_py():
        outside = new.filter(pc.invert(partitions.mask(new.column("partition"))))
        raise InvalidInputError(
            "overwrite has a file outside the partitions that it replaces",
            file=outside.column("file_name")[0],
            hint="write only rows of the partition you overwrite, or use a dynamic overwrite",
        )


def overwrite_changes(
    new: Changes,
    overwrite: Overwrite,
    store: ManifestStore,
    metas: Sequence[ManifestMeta],
    index: Sequence[IndexEntry],
) -> Changes:
    """The new files, and deletions of all live files of the overwritten partitions."""
    live = live_entries(store, metas, partitions=overwrite.partitions)
    if not overwrite.postponed:
        live = live.filter(pc.not_equal(live.column("bucket"), POSTPONE_BUCKET))
    delta = pa.concat_tables([with_kind(live, DELETE), new.delta])
    gone = tuple(IndexChange(DELETE, entry) for entry in _select_index(index, overwrite.partitions))
    # All current key indexes are deleted, so those that the writers replaced need not be named.
    come = (change for change in new.index if change.kind != DELETE or change.entry.file.index_type != HASH)
    return Changes(delta, new.changelog.slice(0, 0), (*gone, *come))


def _select_index(index: Sequence[IndexEntry], partitions: PartitionFilter) -> list[IndexEntry]:
    if not index or isinstance(partitions, EveryPartition):
        return list(index)
    mask = partitions.mask(pa.array([entry.partition for entry in index], pa.large_binary()))
    return [entry for entry, wanted in zip(index, mask.to_pylist(), strict=True) if wanted]
