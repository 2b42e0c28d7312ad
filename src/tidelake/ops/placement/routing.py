"""Which partition and bucket each row of a batch belongs to, as one small number per row.

Rows are not moved here: a batch keeps its rows together, and a row is copied only once, when it is sorted. Places are
numbered in the order in which they are first seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelake.ops.placement.bucket_counts import BucketCounts
from tidelake.ops.placement.dynamic_buckets import DynamicBuckets
from tidelake.spec.rows.binary_hash import hash_rows
from tidelake.spec.rows.binary_row import EMPTY_ROW, encode_rows
from tidelake.spec.rows.bucket_function import PartitionBucket, assign_buckets
from tidelake.spec.schemas.bucket_mode import BucketOptions
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.data_types import with_nullable

Ints = np.ndarray[Any, Any]
_TABLE_MAX: Final = 1 << 20


@dataclass(slots=True)
class Router:
    """Numbers the places of rows. Not shared between threads."""

    schema: Schema
    buckets: BucketOptions
    counts: BucketCounts
    places: list[PartitionBucket] = field(default_factory=list)
    _numbers: dict[PartitionBucket, int] = field(default_factory=dict)

    def route(self, rows: pa.RecordBatch, dynamic: DynamicBuckets | None = None) -> Ints:
        """The number of the place of each row; `dynamic` assigns the buckets if they are dynamic.

        Raises:
            InvalidInputError: the bucket of a row cannot be computed.
            FormatError: an index file of dynamic buckets is missing or damaged.
        """
        if dynamic is None:
            return self.numbers(*self.find_buckets(rows))
        partitions, names = partitions_of(rows, self.schema)
        return self.numbers(partitions, names, self._assign_rows(rows, partitions, names, dynamic))

    def find_buckets(self, rows: pa.RecordBatch) -> tuple[Ints, list[bytes], Ints]:
        """The number of each row's partition, the partitions by number, and the bucket of each row by its hash.

        Raises:
            InvalidInputError: the bucket of a row cannot be computed.
        """
        partitions, names = partitions_of(rows, self.schema)
        return partitions, names, self._hash_partitions(rows, partitions, names)

    def numbers(self, partitions: Ints, names: Sequence[bytes], buckets: Ints) -> Ints:
        """The number of each row's place, from the number of its partition in `names` and its bucket."""
        span = int(buckets.max(initial=0)) + 1
        both = buckets if len(names) == 1 else partitions * span + buckets
        if len(names) * span <= _TABLE_MAX:
            found = np.flatnonzero(np.bincount(both, minlength=1))
            table = np.zeros(len(names) * span, np.int32)
            table[found] = [self._number((names[each // span], each % span)) for each in found.tolist()]
            return table[both]
        found, inverse = np.unique(both, return_inverse=True)
        numbers = [self._number((names[each // span], each % span)) for each in found.tolist()]
        return np.array(numbers, np.int32)[inverse]

    def number(self, place: PartitionBucket) -> int:
        """The number of a place."""
        return self._number(place)

    def forget(self) -> None:
        """Forget all numbers and start again at 0."""
        self.places, self._numbers = [], {}

    def _number(self, place: PartitionBucket) -> int:
        found = self._numbers.get(place)
        if found is None:
            found = self._numbers[place] = len(self.places)
            self.places.append(place)
        return found

    def _hash_partitions(self, rows: pa.RecordBatch, partitions: Ints, names: Sequence[bytes]) -> Ints:
        counts = [self.counts.of(name) for name in names]
        found = self._hash_rows(rows, counts[0]) if counts else np.empty(0, np.int64)
        for count in set(counts[1:]) - set(counts[:1]):
            here = np.isin(partitions, [number for number, each in enumerate(counts) if each == count])
            found[here] = self._hash_rows(rows.filter(pa.array(here)), count)
        return found

    def _hash_rows(self, rows: pa.RecordBatch, count: int) -> Ints:
        keys = self.schema.bucket_keys
        arrays = [rows.column(name) for name in keys]
        types = [self.schema.field(name).type for name in keys]
        return assign_buckets(arrays, types, function=self.buckets.function, count=count).astype(np.int64)

    def _assign_rows(self, rows: pa.RecordBatch, partitions: Ints, names: list[bytes], dynamic: DynamicBuckets) -> Ints:
        keys = self.schema.trimmed_primary_keys
        hashes = hash_rows([rows.column(name) for name in keys], [self.schema.field(name).type for name in keys])
        order = np.argsort(partitions, kind="stable")
        bounds = np.searchsorted(partitions[order], np.arange(len(names) + 1))
        buckets = np.empty(rows.num_rows, np.int64)
        for partition, (start, end) in zip(names, pairwise(bounds.tolist()), strict=True):
            here = order[start:end]
            if len(here):
                buckets[here] = dynamic.assign(partition, hashes[here])
        return buckets


def partitions_of(rows: pa.RecordBatch, schema: Schema) -> tuple[Ints, list[bytes]]:
    """The number of each row's partition, and the partitions by number."""
    if not schema.partition_keys:
        return np.zeros(rows.num_rows, np.int64), [EMPTY_ROW]
    columns = [rows.column(name) for name in schema.partition_keys]
    types = [with_nullable(dtype, True) for dtype in schema.partition_types]
    encoded = encode_rows(columns, types, length=rows.num_rows).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist()
