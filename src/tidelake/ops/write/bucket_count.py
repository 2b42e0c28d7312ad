"""Move rows of new files to other buckets, because their partition has another number of buckets now.

The reassigners, which move rows for other reasons, are built on this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidelake.files.options import FileOptions
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.context import TableContext
from tidelake.ops.write.rewrite import FileCopier, Ints, PlaceRows, Places, move_rows
from tidelake.options import TableOptions
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.rows.bucket_function import assign_buckets
from tidelake.spec.schemas.bucket_mode import BucketOptions
from tidelake.spec.schemas.schema import Schema

__all__ = ["CountReassigner", "brings_rows", "number_buckets"]


def brings_rows(message: CommitMessage) -> bool:
    """Whether a message adds new rows; a message that replaces files keeps their rows in the bucket."""
    return bool(message.data.new_files) and not message.data.deleted_files and message.bucket >= 0


@dataclass(slots=True)
class CountReassigner:
    """Moves rows of new files to another number of fixed buckets. Not shared between threads."""

    context: TableContext

    def reassign_by_count(
        self, messages: Sequence[CommitMessage], counts: Mapping[bytes, int], latest: Snapshot
    ) -> tuple[CommitMessage, ...]:
        """Move the rows of partitions to their new number of buckets (`counts`); return the new messages.

        Raises:
            FormatError: a file is missing or damaged; the new files are removed.
            StorageError: the storage failed; the new files are removed as far as it lets us.
        """
        schema, places = self.context.store.schema, Places()
        placers = {
            position: _place_by_count(
                schema, message.partition, counts[message.partition], self.context.options, places
            )
            for position, message in enumerate(messages)
            if message.partition in counts and brings_rows(message)
        }
        copier = self.copier()
        reached = frozenset(counts)
        with copier.all_or_nothing():
            return move_rows(
                copier, messages, placers, places, latest, self.context.options, partitions=reached, totals=counts
            )

    def copier(self) -> FileCopier:
        """A copier of the rows of new files."""
        return FileCopier(self.context.store, self.context.paths, self.context.options.of(FileOptions))


def _place_by_count(schema: Schema, partition: bytes, count: int, options: TableOptions, places: Places) -> PlaceRows:
    keys = schema.bucket_keys
    types = [schema.field(name).type for name in keys]
    function = options.of(BucketOptions).function

    def place_rows(batch: pa.RecordBatch) -> Ints:
        buckets = assign_buckets([batch.column(name) for name in keys], types, function=function, count=count)
        return number_buckets(partition, buckets, places)

    return place_rows


def number_buckets(partition: bytes, buckets: Ints, places: Places) -> Ints:
    """Number buckets of a partition as places."""
    found, inverse = np.unique(buckets, return_inverse=True)
    return np.array([places.number((partition, bucket)) for bucket in found.tolist()], np.int64)[inverse]
