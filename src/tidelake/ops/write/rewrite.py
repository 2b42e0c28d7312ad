"""Rewrite files that are not committed yet, with other sequence numbers or in other partitions and buckets.

Rows are copied as they are stored, with their row kinds, and never merged: versions that were merged before stay one
version. A file is in the order of keys, and so is every part of it. No file that the messages name is removed here,
because until the commit is published, another attempt starts from the same files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelake.cleanup import undo_on_error
from tidelake.files.options import FileOptions
from tidelake.files.write.keyed import KIND_FIELD, SEQUENCE_FIELD, KeyedWriter
from tidelake.lsm.engine import SEQUENCE
from tidelake.ops.commit.messages import CommitMessage, CompactIncrement, DataIncrement
from tidelake.ops.read.append import ReadRequest, read_data_file
from tidelake.ops.scan.split import Split
from tidelake.ops.write.restore import sequence_floors
from tidelake.options import TableOptions
from tidelake.spec.data_file import DataFile, FileSource
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.rows.binary_row import decode_rows
from tidelake.spec.rows.bucket_function import PartitionBucket
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.data_types import with_nullable
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore

__all__ = [
    "LEFT_OUT",
    "FileCopier",
    "PlaceRows",
    "Places",
    "compaction_left",
    "in_partition",
    "join_messages",
    "move_rows",
    "new_split",
]

Ints = np.ndarray[Any, Any]
PlaceRows = Callable[[pa.RecordBatch], Ints]
"""Returns the number of the place that each row of a batch goes to, or `LEFT_OUT` to drop the row."""
LEFT_OUT: Final = -1
_Files = tuple[DataFile, ...]


class Places:
    """Numbers for places."""

    def __init__(self) -> None:
        self._places: list[PartitionBucket] = []
        self._numbers: dict[PartitionBucket, int] = {}

    def number(self, place: PartitionBucket) -> int:
        """The number of a place."""
        found = self._numbers.get(place)
        if found is None:
            found = self._numbers[place] = len(self._places)
            self._places.append(place)
        return found

    def __getitem__(self, number: int) -> PartitionBucket:
        return self._places[number]


@dataclass(slots=True)
class FileCopier:
    """Copies rows of uncommitted level-0 files into new ones."""

    store: TableStore
    paths: DataPaths
    files: FileOptions
    _writers: list[KeyedWriter] = field(default_factory=list)

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Remove all new files if the block inside fails."""
        try:
            with undo_on_error(self._abort):
                yield
        finally:
            self._writers = []

    def _abort(self) -> None:
        for writer in self._writers:
            writer.abort()

    def copy_shifted(self, message: CommitMessage, file: DataFile, shift: int, *, changelog: bool = False) -> _Files:
        """Copy a file with other sequence numbers."""
        place = (message.partition, message.bucket)
        writer = self._writer(self.store.schemas.get(file.schema_id), place, changelog=changelog)
        for rows in self._rows(message, file):
            writer.write(_shift_numbers(rows, shift))
        return writer.close()

    def copy_to_places(
        self,
        message: CommitMessage,
        file: DataFile,
        place_rows: PlaceRows,
        places: Places,
        shift_of: Callable[[int], int],
        *,
        changelog: bool = False,
    ) -> dict[int, _Files]:
        """Copy the rows of a file to new files by place; `shift_of` returns the shift of sequence numbers in one."""
        schema = self.store.schemas.get(file.schema_id)
        writers: dict[int, KeyedWriter] = {}
        for rows in self._rows(message, file):
            to = place_rows(rows.to_batches()[0])
            for number in np.unique(to[to != LEFT_OUT]).tolist():
                place, here = places[number], to == number
                if number not in writers:
                    writers[number] = self._writer(schema, place, changelog=changelog)
                part = rows if here.all() else rows.filter(pa.array(here))
                if place[0] != message.partition:
                    part = in_partition(part, schema, place[0])
                writers[number].write(_shift_numbers(part, shift_of(number)))
        return {number: writer.close() for number, writer in writers.items()}

    def _rows(self, message: CommitMessage, file: DataFile) -> Iterator[pa.Table]:
        schema = self.store.schemas.get(file.schema_id)
        request = ReadRequest(schema=schema, columns=schema.names, stored=(SEQUENCE_FIELD, KIND_FIELD, *schema.fields))
        for batch in read_data_file(self.store, new_split(message, self.paths), file, request):
            if batch.num_rows:
                yield pa.Table.from_batches([batch])

    def _writer(self, schema: Schema, place: PartitionBucket, *, changelog: bool) -> KeyedWriter:
        writer = KeyedWriter(
            self.store.env,
            self.paths.bucket(*place),
            schema,
            self.files,
            level=0,
            source=FileSource.APPEND,
            changelog=changelog,
        )
        self._writers.append(writer)
        return writer


def _shift_numbers(rows: pa.Table, shift: int) -> pa.Table:
    place = rows.column_names.index(SEQUENCE)
    numbers = rows.column(SEQUENCE).to_numpy() + np.int64(shift)
    return rows.set_column(place, rows.schema.field(place), pa.array(numbers))


def in_partition(rows: pa.Table, schema: Schema, partition: bytes) -> pa.Table:
    """The rows with the partition columns of another partition."""
    types = [with_nullable(dtype, True) for dtype in schema.partition_types]
    values = decode_rows(pa.array([partition], pa.large_binary()), types)
    for name, column in zip(schema.partition_keys, values, strict=True):
        index = rows.column_names.index(name)
        filled = pa.repeat(column[0], rows.num_rows).cast(rows.schema.field(index).type)
        rows = rows.set_column(index, rows.schema.field(index), filled)
    return rows


def new_split(message: CommitMessage, paths: DataPaths) -> Split:
    """The new files of a message."""
    return Split(
        snapshot_id=message.base_snapshot_id or 0,
        partition=message.partition,
        bucket=message.bucket,
        bucket_path=paths.bucket(message.partition, message.bucket),
        total_buckets=message.total_buckets or -1,
        files=message.data.new_files,
    )


def compaction_left(message: CommitMessage) -> CompactIncrement:
    """The compaction in a message, unless it read files that are rewritten: those are left to the next compaction."""
    return CompactIncrement() if message.compacts_new_files else message.compact


# ------------------------------------------------------------------------------------------------ other places


@dataclass(slots=True)
class _Numbering:
    """The greatest sequence number of every place so far: of the table, and of the messages of this commit."""

    floors: Callable[[PartitionBucket], int]
    tops: dict[PartitionBucket, int]

    def shift(self, message: CommitMessage, place: PartitionBucket) -> int:
        """The shift of a message's sequence numbers in a place, so that they are greater than all others there."""
        low = min(file.min_sequence for file in message.data.new_files)
        high = max(file.max_sequence for file in message.data.new_files)
        top = max(self.tops.get(place, -1), self.floors(place))
        shift = top + 1 - low
        if place == (message.partition, message.bucket):
            shift = max(0, shift)
        self.tops[place] = high + shift
        return shift


def move_rows(
    copier: FileCopier,
    messages: Sequence[CommitMessage],
    placers: Mapping[int, PlaceRows],
    places: Places,
    latest: Snapshot | None,
    options: TableOptions,
    *,
    partitions: frozenset[bytes],
    totals: Mapping[bytes, int] | None = None,
) -> tuple[CommitMessage, ...]:
    """Move rows of some messages to other partitions and buckets; return the new messages.

    Args:
        copier: Writes the new files.
        messages: All messages of a commit.
        placers: Where the rows of messages go, by the index of the message.
        places: The numbers of places that `placers` use.
        latest: The snapshot on which the commit will be published.
        options: The options in force.
        partitions: The partitions that rows may go to.
        totals: The bucket counts of partitions, if they have changed.

    Raises:
        FormatError: a file is missing or damaged.
        StorageError: the storage failed.
    """
    tops: dict[PartitionBucket, int] = {}
    for position, message in enumerate(messages):
        if position not in placers:
            place = (message.partition, message.bucket)
            tops[place] = max([tops.get(place, -1), *(file.max_sequence for file in message.data.new_files)])
    numbering = _Numbering(sequence_floors(copier.store, latest, partitions, options), tops)
    base_id = latest.id if latest else 0
    kept: list[CommitMessage] = []
    extra: list[CommitMessage] = []
    for position, message in enumerate(messages):
        if position not in placers:
            kept.append(message)
            continue
        home = (message.partition, message.bucket)
        new, changelog = _move_message(copier, message, placers[position], places, numbering)
        for place in {**new, **changelog}:
            total = (totals or {}).get(place[0], message.total_buckets)
            found = CommitMessage(
                partition=place[0],
                bucket=place[1],
                total_buckets=total,
                data=DataIncrement(new_files=new.get(place, ()), changelog_files=changelog.get(place, ())),
                base_snapshot_id=base_id,
                assigned_on=message.assigned_on if place[0] == message.partition else None,
            )
            extra += [] if place == home else [found]
        data = replace(message.data, new_files=new.get(home, ()), changelog_files=changelog.get(home, ()))
        compact = compaction_left(message)
        base = message.base_snapshot_id if compact != CompactIncrement() else base_id
        total = (totals or {}).get(message.partition, message.total_buckets)
        kept.append(replace(message, total_buckets=total, data=data, compact=compact, base_snapshot_id=base))
    return tuple(each for each in join_messages(kept, extra) if not each.is_empty)


def _move_message(
    copier: FileCopier, message: CommitMessage, place_rows: PlaceRows, places: Places, numbering: _Numbering
) -> tuple[dict[PartitionBucket, _Files], dict[PartitionBucket, _Files]]:
    """Copy the data files and the changelog files of a message to places."""
    shifts: dict[int, int] = {}

    def shift_of(number: int) -> int:
        if number not in shifts:
            shifts[number] = numbering.shift(message, places[number])
        return shifts[number]

    found: tuple[dict[PartitionBucket, _Files], dict[PartitionBucket, _Files]] = ({}, {})
    for into, files in zip(found, (message.data.new_files, message.data.changelog_files), strict=True):
        for file in files:
            copied = copier.copy_to_places(message, file, place_rows, places, shift_of, changelog=into is found[1])
            for number, written in copied.items():
                into[places[number]] = (*into.get(places[number], ()), *written)
    return found


def join_messages(messages: Sequence[CommitMessage], extra: Sequence[CommitMessage]) -> list[CommitMessage]:
    """Add the files of further messages to the messages of the same places."""
    found = list(messages)
    # A message that replaces files of its bucket has no sequence numbers that others could follow.
    at = {(each.partition, each.bucket): i for i, each in enumerate(found) if not each.data.deleted_files}
    for each in extra:
        place = (each.partition, each.bucket)
        if place not in at:
            at[place] = len(found)
            found.append(each)
            continue
        there = found[at[place]]
        data = replace(
            there.data,
            new_files=(*there.data.new_files, *each.data.new_files),
            changelog_files=(*there.data.changelog_files, *each.data.changelog_files),
        )
        found[at[place]] = replace(there, data=data)
    return found
