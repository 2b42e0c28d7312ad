"""Rows whose partition has another number of buckets by now: they are dealt to as many.

What puts rows of new files elsewhere for other reasons, too, stands on this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidelake.files.options import FileOptions
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.scan.options import BucketOptions
from tidelake.ops.write.rewrite import Deal, FileCopier, Ints, Places, move_rows
from tidelake.spec.bucket import assign_buckets
from tidelake.spec.schema import Schema
from tidelake.spec.snapshot import Snapshot
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore

__all__ = ["Redealer", "brings_rows", "numbered"]


def brings_rows(message: CommitMessage) -> bool:
    """Whether a message brings new rows; what replaces files leaves their rows in the bucket."""
    return bool(message.data.new_files) and not message.data.deleted_files and message.bucket >= 0


@dataclass(slots=True)
class Redealer:
    """Deals rows of new files to another number of fixed buckets. Not shared between threads."""

    store: TableStore
    paths: DataPaths
    options: Mapping[str, str]
    files: FileOptions
    thin: bool = False

    def redeal(
        self, messages: Sequence[CommitMessage], counts: Mapping[bytes, int], latest: Snapshot
    ) -> tuple[CommitMessage, ...]:
        """The messages, with rows of these partitions in as many buckets as told.

        Raises:
            FormatError: a file is missing or damaged; nothing is left behind.
            StorageError: the storage failed; nothing is left behind that it lets us remove.
        """
        schema, places = self.store.schema, Places()
        deals = {
            position: _deal_by_count(schema, message.partition, counts[message.partition], self.options, places)
            for position, message in enumerate(messages)
            if message.partition in counts and brings_rows(message)
        }
        copier = self.copier()
        reached = frozenset(counts)
        with copier.all_or_nothing():
            return move_rows(copier, messages, deals, places, latest, self.options, partitions=reached, totals=counts)

    def copier(self) -> FileCopier:
        """What writes the rows of new files again."""
        return FileCopier(self.store, self.paths, self.files, self.thin)


def _deal_by_count(schema: Schema, partition: bytes, count: int, options: Mapping[str, str], places: Places) -> Deal:
    keys = schema.bucket_keys
    types = [schema.field(name).type for name in keys]
    function = BucketOptions.parse(options).function

    def deal(batch: pa.RecordBatch) -> Ints:
        buckets = assign_buckets([batch.column(name) for name in keys], types, function=function, count=count)
        return numbered(partition, buckets, places)

    return deal


def numbered(partition: bytes, buckets: Ints, places: Places) -> Ints:
    """The numbers of buckets of a partition as places."""
    found, inverse = np.unique(buckets, return_inverse=True)
    return np.array([places.number((partition, bucket)) for bucket in found.tolist()], np.int64)[inverse]
