"""Which partitions are wanted: by a predicate over the partition columns, or by an exact set.

A filter answers twice: `prune` from the partition ranges of manifests (may keep too much, never too little), and `mask`
exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError
from tidelake.expr.evaluate import matches
from tidelake.expr.prune import Bounds, may_match
from tidelake.expr.tree import Predicate
from tidelake.spec.data_file import SimpleStats
from tidelake.spec.manifests.manifest_list import ManifestMeta
from tidelake.spec.rows.binary_row import decode_rows
from tidelake.spec.types.data_types import DataType, with_nullable


class PartitionFilter(Protocol):
    """A choice of partitions."""

    def prune(self, metas: Sequence[ManifestMeta]) -> list[ManifestMeta]:
        """The manifests that may hold an entry of a wanted partition, in order."""

    def mask(self, partitions: pa.Array | pa.ChunkedArray) -> pa.BooleanArray:
        """Which of the serialized partitions are wanted."""


@dataclass(frozen=True, slots=True)
class EveryPartition:
    """All of them."""

    def prune(self, metas: Sequence[ManifestMeta]) -> list[ManifestMeta]:
        return list(metas)

    def mask(self, partitions: pa.Array | pa.ChunkedArray) -> pa.BooleanArray:
        return pa.repeat(pa.scalar(True), len(partitions))


@dataclass(frozen=True, slots=True)
class PartitionSet:
    """Exactly these serialized partitions."""

    rows: frozenset[bytes]
    types: tuple[DataType, ...]

    def prune(self, metas: Sequence[ManifestMeta]) -> list[ManifestMeta]:
        if not self.rows:
            return []
        if not self.types:
            return list(metas)
        wanted = decode_rows(pa.array(sorted(self.rows), pa.large_binary()), _nullable(self.types))
        keep = pa.repeat(pa.scalar(True), len(metas))
        for bounds, values in zip(_bounds(metas, self.types), wanted, strict=True):
            if values.null_count == 0 and not pa.types.is_floating(values.type):
                extremes = pc.min_max(values)
                below = pc.less_equal(bounds.low, extremes["max"])
                above = pc.greater_equal(bounds.high, extremes["min"])
                keep = pc.and_(keep, pc.fill_null(pc.and_(below, above), True))
        return [meta for meta, wanted_here in zip(metas, keep.to_pylist(), strict=True) if wanted_here]

    def mask(self, partitions: pa.Array | pa.ChunkedArray) -> pa.BooleanArray:
        values = pa.array(sorted(self.rows), pa.large_binary())
        return _flat(pc.is_in(partitions, value_set=values))


@dataclass(frozen=True, slots=True)
class PartitionPredicate:
    """The partitions whose values satisfy a predicate."""

    predicate: Predicate
    names: tuple[str, ...]
    types: tuple[DataType, ...]

    def __post_init__(self) -> None:
        other = self.predicate.columns() - set(self.names)
        if other:
            raise InvalidInputError(
                "column is not a partition column", column=min(other), hint=f"use {', '.join(self.names) or 'none'}"
            )

    def prune(self, metas: Sequence[ManifestMeta]) -> list[ManifestMeta]:
        if not metas:
            return []
        bounds = dict(zip(self.names, _bounds(metas, self.types), strict=True))
        keep = may_match(self.predicate, bounds, len(metas)).to_pylist()
        return [meta for meta, wanted in zip(metas, keep, strict=True) if wanted]

    def mask(self, partitions: pa.Array | pa.ChunkedArray) -> pa.BooleanArray:
        # Few partitions, many entries: the predicate looks at each distinct partition once.
        encoded = _flat(partitions).dictionary_encode()
        columns = decode_rows(encoded.dictionary, _nullable(self.types))
        wanted = matches(self.predicate, dict(zip(self.names, columns, strict=True)), len(encoded.dictionary))
        return wanted.take(encoded.indices)


def _bounds(metas: Sequence[ManifestMeta], types: Sequence[DataType]) -> list[Bounds]:
    stats = [meta.partition_stats for meta in metas]
    nullable = _nullable(types)
    low = decode_rows(pa.array([each.min_values for each in stats], pa.large_binary()), nullable)
    high = decode_rows(pa.array([each.max_values for each in stats], pa.large_binary()), nullable)
    rows = pa.array([meta.num_entries for meta in metas], pa.int64())
    return [
        Bounds(low[i], high[i], pa.array([_null_count(each, i) for each in stats], pa.int64()), rows)
        for i in range(len(types))
    ]


def _null_count(stats: SimpleStats, column: int) -> int | None:
    return stats.null_counts[column] if column < len(stats.null_counts) else None


def _nullable(types: Sequence[DataType]) -> list[DataType]:
    return [with_nullable(dtype, True) for dtype in types]


def _flat(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
