"""Writers of tables with postponed buckets (`bucket = -2`).

`StagingWriter` is for jobs that write continuously: rows go to the folder `bucket-postpone` in the order of arrival,
one open file per partition, and a compaction gives them their buckets later. `DecidingWriter` is for a single batch: it
measures the rows of each partition that has no buckets yet, decides on the number of buckets, and writes the rows
straight to them. Rows that do not fit into memory until then are kept in staged files that are never committed.

Invariant: rows of one writer keep their order, inside a file and by the names and times of the files. Files are durable
when `prepare` returns, and no snapshot refers to them until their messages are committed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError, StorageError, UnsupportedError
from tidelake.expr.tree import Predicate
from tidelake.files.avro.types import avro_schema
from tidelake.files.options import FileOptions
from tidelake.files.read.request import Delivery
from tidelake.files.write.keyed import KIND_FIELD, KeyedWriter, keyed_fields
from tidelake.lsm.engine import KIND, SEQUENCE
from tidelake.ops.commit.messages import CommitMessage, DataIncrement
from tidelake.ops.context import TableContext
from tidelake.ops.placement.bucket_counts import count_entries
from tidelake.ops.placement.routing import partitions_of
from tidelake.ops.read.append import read_data_file
from tidelake.ops.scan.planner import find_live
from tidelake.ops.scan.postponed import PostponeOptions, bucket_counts, in_arrival_order, staged_entries
from tidelake.ops.scan.request import ReadRequest
from tidelake.ops.scan.split import Split
from tidelake.ops.write.keyed import KeyedTableWriter
from tidelake.ops.write.keyed_options import KeyedWriteOptions
from tidelake.ops.write.local_merge import with_kinds
from tidelake.ops.write.row_kind_filter import RowKindFilter
from tidelake.options import TableOptions, TextMap
from tidelake.spec.data_file import FileSource
from tidelake.spec.layout import POSTPONE_BUCKET
from tidelake.spec.schemas.schema import Schema
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore

__all__ = [
    "DecidingWriter",
    "Sizes",
    "StagingWriter",
    "plan_rescales",
    "refuse_waiting",
    "remove_staged",
    "staged_rows",
    "staged_sizes",
    "staged_split",
]

Sizes = dict[bytes, tuple[int, int]]
"""Rows and bytes of staged or buffered rows, by partition."""
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")
_USER_MAX: Final = 100
_NO_SEQUENCE: Final = -1
"""The placeholder in staged rows, which get their sequence number together with their bucket."""


class StagingWriter:
    """Stages rows in the order of arrival. Not shared between threads."""

    def __init__(self, context: TableContext, user: str | None = None) -> None:
        """Read the options; the first row opens the first file.

        Raises:
            InvalidInputError: an option has a wrong value.
            UnsupportedError: tables of this kind cannot be written yet.
        """
        store, options = context.store, context.options
        self._store, self._paths = store, context.paths
        self._row_kinds = RowKindFilter(store.schema, options)
        self._files = _make_staging_options(options.of(FileOptions), store.schema, user or "", store.env.ids.random())
        self._uuid, self._numbers = store.env.ids.uuid(), itertools.count()
        self._open: dict[bytes, KeyedWriter] = {}

    def write(self, batch: pa.RecordBatch, kinds: pa.Array | None = None) -> None:
        """Take in the rows of a batch, with the kind of each as a number; all are +I when None.

        Raises:
            InvalidInputError: a key is null, or the merge engine takes no deletions.
            StorageError: the storage failed.
        """
        self.take(self._row_kinds.drop_ignored_rows(with_kinds(batch, kinds)))

    def take(self, rows: pa.RecordBatch) -> None:
        """Take in rows that have their row kinds and are checked already.

        Raises:
            InvalidInputError: a key is null.
            StorageError: the storage failed.
        """
        for name in self._store.schema.primary_keys:
            if rows.column(name).null_count:
                raise InvalidInputError("primary key is null", column=name, hint="give every row a key")
        numbers, names = partitions_of(rows, self._store.schema)
        whole = pa.Table.from_batches([rows])
        whole = whole.append_column(SEQUENCE, pa.array(np.full(rows.num_rows, _NO_SEQUENCE, np.int64)))
        for number, partition in enumerate(names):
            here = whole if len(names) == 1 else whole.filter(pa.array(numbers == number))
            if here.num_rows:
                (self._open.get(partition) or self._open_writer(partition)).write(here)

    def _open_writer(self, partition: bytes) -> KeyedWriter:
        prefix, uuid, numbers = self._files.prefix, self._uuid, self._numbers
        writer = self._open[partition] = KeyedWriter(
            self._store.env,
            self._paths.bucket(partition, POSTPONE_BUCKET),
            self._store.schema,
            self._files,
            level=0,
            source=FileSource.APPEND,
            names=lambda extension: f"{prefix}{uuid}-{next(numbers)}.{extension}",
        )
        return writer

    def compact(self, partition: bytes, bucket: int, *, full: bool = False) -> None:
        """Refuse to compact: rows have no bucket yet.

        Raises:
            InvalidInputError: always.
        """
        del partition, bucket, full
        raise InvalidInputError("staged rows have no bucket to compact", hint="use compact() of the table")

    def prepare(self, identifier: int | None = None, *, wait: bool | None = None) -> list[CommitMessage]:
        """Close all files and describe them. There is nothing to wait for.

        Raises:
            StorageError: the storage failed.
        """
        del identifier, wait
        messages = [
            CommitMessage(
                partition=partition,
                bucket=POSTPONE_BUCKET,
                total_buckets=POSTPONE_BUCKET,
                data=DataIncrement(new_files=writer.close()),
            )
            for partition, writer in self._open.items()
        ]
        self._open = {}
        return [message for message in messages if not message.is_empty]

    def abort(self) -> None:
        """Remove files that are not prepared yet."""
        for writer in self._open.values():
            writer.abort()
        self._open = {}


def _make_staging_options(options: FileOptions, schema: Schema, user: str, lot: float) -> FileOptions:
    """The options of staged files: Avro if it can store the columns, no statistics, the writer in the file names."""
    name = _UNSAFE.sub("_", user)[:_USER_MAX]
    fields = keyed_fields(schema)
    try:
        avro_schema(fields)
        format_name = "avro"
    except UnsupportedError:
        format_name = options.format
    return replace(
        options,
        format=format_name,
        compression=options.compression if format_name == options.format else "zstd",
        format_per_level=TextMap(),
        compression_per_level=TextMap(),
        stats_mode_per_level=TextMap(),
        stats_mode="none",
        thin=False,
        column_stats=TextMap(tuple((field.name, "none") for field in fields)),
        prefix=f"{options.prefix}-u-{name}-s-{int(lot * 2**31)}-w-",
    )


def staged_rows(store: TableStore, split: Split) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
    """Read the rows of staged files of one partition in the order of arrival, with their row kinds.

    Raises:
        FormatError: a file is missing or damaged.
    """
    schema = store.schema
    fields = (KIND_FIELD, *schema.fields)
    request = ReadRequest(schema=schema, columns=schema.names, stored=fields, delivery=Delivery(stream=True))
    for file in in_arrival_order(split.files):
        for batch in read_data_file(store, split, file, request):
            yield batch.drop_columns([KIND]), batch.column(KIND)


def refuse_waiting(store: TableStore, where: Predicate) -> None:
    """Refuse to change rows in partitions with staged rows: these are older, but would win when they get their buckets.

    Raises:
        InvalidInputError: there are staged rows.
    """
    live = store.snapshots.on_newest(lambda newest: find_live(store, newest, where, store.schema))
    waiting = 0 if live is None else staged_entries(live.entries).num_rows
    if waiting:
        raise InvalidInputError(
            "staged rows have no buckets yet, and would undo the change when they get them",
            code="rows-waiting",
            table=store.env.io.root,
            files=waiting,
            hint="run compact() first",
        )


class DecidingWriter:
    """Writes the rows of a batch job straight to buckets, once their number is known. Not shared between threads."""

    def __init__(
        self,
        context: TableContext,
        *,
        overwrite: bool = False,
        user: str | None = None,
    ) -> None:
        """Read the options; nothing is read from the table before the first row.

        The context's `rescale` gives partitions more buckets if the rows need far more than there are.

        Raises:
            InvalidInputError: an option has a wrong value.
            UnsupportedError: tables of this kind cannot be written yet.
        """
        options = context.options
        self._context, self._store, self._options, self._user = context, context.store, options, user
        self._overwrite = overwrite
        self._postpone = options.of(PostponeOptions)
        self._row_kinds = RowKindFilter(context.schema, options)
        self._room = min(options.of(KeyedWriteOptions).block_bytes, self._postpone.target_bytes)
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._staging: StagingWriter | None = None
        self._staged: list[CommitMessage] = []
        self._writer: KeyedTableWriter | None = None
        if not self._postpone.needs_size:
            self._writer = self._make_writer({})

    def write(self, batch: pa.RecordBatch, kinds: pa.Array | None = None) -> None:
        """Take in the rows of a batch, with the kind of each as a number; all are +I when None.

        Raises:
            InvalidInputError: a key is null, or a row cannot be merged.
            StorageError: the storage failed.
        """
        if self._writer is not None:
            self._writer.write(batch, kinds)
            return
        rows = self._row_kinds.drop_ignored_rows(with_kinds(batch, kinds))
        if self._staging is not None:
            self._staging.take(rows)
            return
        self._held.append(rows)
        self._held_bytes += rows.nbytes
        if self._held_bytes > self._room:
            staging = StagingWriter(self._context, self._user)
            self._staging = staging
            held, self._held = self._held, []
            for each in held:
                staging.take(each)

    def compact(self, partition: bytes, bucket: int, *, full: bool = False) -> None:
        """Compact one bucket now; the result is part of the next `prepare`.

        Raises:
            FormatError: a file is missing or damaged.
        """
        self._decide().compact(partition, bucket, full=full)

    def prepare(self, identifier: int | None = None, *, wait: bool | None = None) -> list[CommitMessage]:
        """Write all buffered rows and describe everything since the last call.

        Raises:
            InvalidInputError: a row cannot be merged.
            FormatError: a file is missing or damaged.
            StorageError: the storage failed.
        """
        messages = self._decide().prepare(identifier, wait=wait)
        self._forget()
        if self._postpone.needs_size:
            self._writer = None
        return messages

    def abort(self) -> None:
        """Remove files that are not prepared yet."""
        self._held, self._held_bytes = [], 0
        if self._staging is not None:
            self._staging.abort()
        self._forget()
        if self._writer is not None:
            self._writer.abort()

    def _decide(self) -> KeyedTableWriter:
        """Decide on the number of buckets, and open a writer with all rows so far."""
        if self._writer is not None:
            return self._writer
        self._staged = self._staging.prepare() if self._staging is not None else []
        sizes = self._sizes()
        rescale = self._context.rescale
        if rescale is not None and not self._overwrite:
            more = plan_rescales(self._store, self._options, sizes)
            if more:
                rescale(more)
        writer = self._writer = self._make_writer(self._postpone.batch_counts(sizes))
        for rows, kinds in self._rows():
            writer.write(rows, kinds)
        self._held, self._held_bytes = [], 0
        return writer

    def _make_writer(self, counts: Mapping[bytes, int]) -> KeyedTableWriter:
        return KeyedTableWriter(self._context, self._overwrite, user=self._user, counts=counts)

    def _sizes(self) -> Sizes:
        """Rows and bytes so far, by partition."""
        found = staged_sizes(self._staged)
        for rows in self._held:
            numbers, names = partitions_of(rows, self._store.schema)
            for name, count in zip(names, np.bincount(numbers, minlength=len(names)).tolist(), strict=True):
                more, size = found.get(name, (0, 0))
                found[name] = (more + count, size + rows.nbytes * count // max(rows.num_rows, 1))
        return found

    def _rows(self) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        for rows in self._held:
            yield rows.drop_columns([KIND]), rows.column(KIND)
        for message in self._staged:
            yield from staged_rows(self._store, staged_split(message, self._context.paths))

    def _forget(self) -> None:
        remove_staged(self._store, self._context.paths, self._staged)
        self._staged, self._staging = [], None


def plan_rescales(store: TableStore, options: TableOptions, sizes: Sizes) -> dict[bytes, int]:
    """Find the partitions that have far too few buckets for a batch, and the number that each should have.

    Raises:
        FormatError: the metadata of the table is damaged.
    """
    entries = store.snapshots.on_newest(lambda newest: count_entries(store, newest) if newest else None)
    if entries is None:
        return {}
    postpone = options.of(PostponeOptions)
    there = bucket_counts(entries.filter(pc.greater_equal(entries.column("bucket"), 0)), postpone)
    found = {
        partition: postpone.more_buckets_for(there[partition], rows=rows, size=size)
        for partition, (rows, size) in sizes.items()
        if partition in there
    }
    return {partition: count for partition, count in found.items() if count is not None}


def staged_sizes(messages: Iterable[CommitMessage]) -> Sizes:
    """Rows and bytes of staged files, by partition."""
    found: Sizes = {}
    for message in messages:
        files = message.data.new_files
        rows, size = found.get(message.partition, (0, 0))
        found[message.partition] = rows + sum(f.row_count for f in files), size + sum(f.file_size for f in files)
    return found


def remove_staged(store: TableStore, paths: DataPaths, messages: Iterable[CommitMessage]) -> None:
    """Remove staged files that no snapshot refers to; orphan cleaning finds those that the storage does not delete."""
    for message in messages:
        split = staged_split(message, paths)
        for file in split.files:
            with suppress(StorageError):
                store.env.io.delete(split.path_of(file))


def staged_split(message: CommitMessage, paths: DataPaths) -> Split:
    """The staged files of a message."""
    return Split(
        snapshot_id=0,
        partition=message.partition,
        bucket=message.bucket,
        bucket_path=paths.bucket(message.partition, message.bucket),
        total_buckets=POSTPONE_BUCKET,
        files=message.data.new_files,
    )
