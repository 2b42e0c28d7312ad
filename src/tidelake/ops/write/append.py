"""The writer of append tables: rows to rolling data files, one open file per partition and bucket.

Files are durable when `prepare` returns, and no snapshot refers to them until their messages are committed. Rows of one
bucket keep their order; their sequence numbers continue those of the bucket, or start at 0 in a table without buckets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError
from tidelake.files.options import FileOptions
from tidelake.files.write.bucket import BucketWriter
from tidelake.ops.commit.messages import CommitMessage, DataIncrement
from tidelake.ops.scan.partitions import PartitionSet
from tidelake.ops.scan.plan import data_manifests, live_entries
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.rows.binary_row import EMPTY_ROW, encode_rows
from tidelake.spec.rows.bucket_function import PartitionBucket, assign_buckets
from tidelake.spec.schemas.bucket_mode import BucketOptions
from tidelake.spec.types.data_types import with_nullable
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore


@dataclass(slots=True)
class _Bucket:
    """An open bucket: its writer, its next sequence number and the bucket count of its partition."""

    writer: BucketWriter
    next_sequence: int
    total_buckets: int


@dataclass(frozen=True, slots=True)
class _Restored:
    """From the files of a bucket: the greatest sequence number and the bucket count of the partition."""

    max_sequence: int = -1
    total_buckets: int | None = None


@dataclass(slots=True)
class AppendWriter:
    """Writes batches that have the table's columns and types (`rows`). Not shared between threads."""

    store: TableStore
    paths: DataPaths
    files: FileOptions
    buckets: BucketOptions
    overwrite: bool = False
    _open: dict[PartitionBucket, _Bucket] = field(default_factory=dict)

    def write(self, batch: pa.RecordBatch, kinds: pa.Array | None = None) -> None:
        """Route the rows of a batch to their partitions and buckets.

        Raises:
            InvalidInputError: the bucket count of the partition differs from the table's, or a row is a retract row.
        """
        if kinds is not None and any(kind % 2 for kind in kinds.unique().to_pylist()):
            raise InvalidInputError(
                "table without a primary key accepts only insertions",
                hint="use delete(), or create the table with a primary key",
            )
        for place, rows in self._route(batch):
            bucket = self._open.get(place) or self._open_bucket(place)
            bucket.writer.write(rows)

    def prepare(self, identifier: int | None = None, *, wait: bool | None = None) -> list[CommitMessage]:
        """Close all files and describe them; the next write opens new ones. There is nothing to wait for."""
        del identifier, wait
        messages = [self._message(place, bucket) for place, bucket in self._open.items()]
        self._open = {}
        return [message for message in messages if not message.is_empty]

    def abort(self) -> None:
        """Remove files that are not prepared yet."""
        for bucket in self._open.values():
            bucket.writer.abort()
        self._open = {}

    # -------------------------------------------------------------------------------------------- routing

    def _route(self, batch: pa.RecordBatch) -> Iterator[tuple[PartitionBucket, pa.RecordBatch]]:
        schema = self.store.schema
        if not schema.partition_keys and self.buckets.bucket <= 0:
            yield (EMPTY_ROW, 0), batch
            return
        partitions = self._partitions(batch)
        buckets = self._bucket_ids(batch)
        codes = partitions.indices.to_numpy().astype(np.int64) * (int(buckets.max(initial=0)) + 1) + buckets
        order = np.argsort(codes, kind="stable")
        cuts = np.flatnonzero(np.diff(codes[order])) + 1
        sorted_rows = batch if len(cuts) == 0 else batch.take(pa.array(order))
        starts = [0, *cuts.tolist(), batch.num_rows]
        rows = partitions.dictionary.to_pylist()
        for start, end in pairwise(starts):
            first = order[start]
            place = (rows[partitions.indices[first].as_py()], int(buckets[first]))
            yield place, sorted_rows.slice(start, end - start)

    def _partitions(self, batch: pa.RecordBatch) -> pa.DictionaryArray:
        schema = self.store.schema
        columns = [batch.column(name) for name in schema.partition_keys]
        types = [with_nullable(dtype, True) for dtype in schema.partition_types]
        return encode_rows(columns, types, length=batch.num_rows).dictionary_encode()

    def _bucket_ids(self, batch: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        if self.buckets.bucket <= 0:
            return np.zeros(batch.num_rows, dtype=np.int64)
        schema = self.store.schema
        keys = schema.bucket_keys
        ids = assign_buckets(
            [batch.column(name) for name in keys],
            [schema.field(name).type for name in keys],
            function=self.buckets.function,
            count=self.buckets.bucket,
        )
        return ids.astype(np.int64)

    # -------------------------------------------------------------------------------------------- buckets

    def _open_bucket(self, place: PartitionBucket) -> _Bucket:
        restored = self._restore(place)
        total = self.buckets.bucket
        if total > 0 and restored.total_buckets not in (None, total):
            raise InvalidInputError(
                "partition has another number of buckets",
                code="bucket-count",
                partition=self.paths.partition(place[0]) or "the table",
                previous=restored.total_buckets,
                new=total,
                hint="overwrite the partition, or rescale() it, to change its number of buckets",
            )
        writer = BucketWriter(self.store.env, self.paths.bucket(*place), self.store.schema, self.files)
        bucket = _Bucket(writer, restored.max_sequence + 1, total)
        self._open[place] = bucket
        return bucket

    def _restore(self, place: PartitionBucket) -> _Restored:
        if self.buckets.bucket <= 0 or self.overwrite:
            return _Restored()
        return self.store.snapshots.on_newest(lambda snapshot: self._restore_at(snapshot, place))

    def _restore_at(self, snapshot: Snapshot | None, place: PartitionBucket) -> _Restored:
        if snapshot is None:
            return _Restored()
        partition = PartitionSet(frozenset({place[0]}), tuple(self.store.schema.partition_types))
        metas = data_manifests(self.store.manifests, snapshot)
        columns = ("bucket", "total_buckets", "max_sequence")
        entries = live_entries(self.store.manifests, metas, partitions=partition, columns=columns)
        totals = entries.column("total_buckets").unique().to_pylist()
        here = entries.filter(pc.equal(entries.column("bucket"), place[1]))
        top = pc.max(here.column("max_sequence")).as_py() if here.num_rows else -1
        return _Restored(top, max(totals, default=None))

    def _message(self, place: PartitionBucket, bucket: _Bucket) -> CommitMessage:
        files = bucket.writer.close(sequence=bucket.next_sequence)
        return CommitMessage(
            partition=place[0],
            bucket=place[1],
            total_buckets=bucket.total_buckets,
            data=DataIncrement(new_files=files),
        )
