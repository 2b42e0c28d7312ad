"""From the messages of writers to the entries of a commit: its written part and its compacted part. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import FormatError, InvalidInputError
from tidelake.ops.commit.messages import CommitMessage, Compacted
from tidelake.spec.data_file import EMPTY_ROW, DataFile
from tidelake.spec.layout import POSTPONE_BUCKET
from tidelake.spec.manifests.index_manifest import DELETION_VECTORS, IndexEntry, IndexFile
from tidelake.spec.manifests.manifest import (
    ADD,
    DELETE,
    LAYOUT,
    check_file_names,
    empty_entries,
    entries_table,
    identities,
    with_kind,
)
from tidelake.spec.names import check_name
from tidelake.spec.rows.key_order import overlapping_neighbours
from tidelake.spec.types.data_types import DataType


@dataclass(frozen=True, slots=True)
class IndexChange:
    """An index file that is added or deleted."""

    kind: int
    entry: IndexEntry


@dataclass(frozen=True, slots=True)
class Changes:
    """What one snapshot adds and removes: data files, changelog files, index files."""

    delta: pa.Table
    changelog: pa.Table
    index: tuple[IndexChange, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return not self.delta.num_rows and not self.changelog.num_rows and not self.index

    @property
    def deletes_rows(self) -> bool:
        """Whether rows are deleted: a file is deleted or a deletion vector changes."""
        deletes = bool(pc.any(pc.equal(self.delta.column("kind"), DELETE)).as_py())
        return deletes or any(change.entry.file.index_type == DELETION_VECTORS for change in self.index)

    def partitions(self) -> frozenset[bytes]:
        """The partitions whose files or deletion vectors change."""
        touched = set(self.delta.column("partition").unique().to_pylist())
        touched |= {change.entry.partition for change in self.index if change.entry.file.index_type != "HASH"}
        return frozenset(touched)


def measure_compaction(delta: pa.Table) -> Compacted:
    """What a compaction read and wrote, by the entries of its snapshot; files that only moved are left out."""
    is_added = pc.equal(delta.column("kind"), ADD)
    added, deleted = delta.filter(is_added), delta.filter(pc.invert(is_added))
    read, written = (
        these.filter(
            pc.invert(pc.is_in(these.column("file_name"), value_set=those.column("file_name").combine_chunks()))
        )
        for these, those in ((deleted, added), (added, deleted))
    )
    return Compacted(
        files_in=read.num_rows,
        rows_in=_sum(read, "row_count"),
        bytes_in=_sum(read, "file_size"),
        files_out=written.num_rows,
        rows_out=_sum(written, "row_count"),
        bytes_out=_sum(written, "file_size"),
    )


def _sum(entries: pa.Table, name: str) -> int:
    return int(pc.sum(entries.column(name)).as_py() or 0)


NO_CHANGES = Changes(empty_entries(), empty_entries())


def split_messages(messages: Sequence[CommitMessage], *, default_buckets: int) -> tuple[Changes, Changes]:
    """The written and the compacted part of a commit.

    Deletions of a message come before its additions: readers of a delta recognise a moved file by this order.

    Raises:
        InvalidInputError: a file is added twice, or readers could not read a value or name once it is published.
    """
    written: list[_Row] = []
    written_changelog: list[_Row] = []
    compacted: list[_Row] = []
    compacted_changelog: list[_Row] = []
    written_index: list[IndexChange] = []
    compacted_index: list[IndexChange] = []
    for message in messages:
        total = default_buckets if message.total_buckets is None else message.total_buckets
        place = (message.partition, message.bucket, total)
        written += _rows(DELETE, place, message.data.deleted_files) + _rows(ADD, place, message.data.new_files)
        written_changelog += _rows(ADD, place, message.data.changelog_files)
        compacted += _rows(DELETE, place, message.compact.before) + _rows(ADD, place, message.compact.after)
        compacted_changelog += _rows(ADD, place, message.compact.changelog_files)
        for change, into in ((message.data, written_index), (message.compact, compacted_index)):
            into += _index(DELETE, message, change.deleted_index_files) + _index(ADD, message, change.new_index_files)
    _check_once(written)
    return (
        Changes(_build_entries(written), _build_entries(written_changelog), tuple(written_index)),
        Changes(_build_entries(compacted), _build_entries(compacted_changelog), tuple(compacted_index)),
    )


def changes_between(current: pa.Table, wanted: pa.Table) -> pa.Table:
    """The entries that lead from the live files of one state to those of another: deletions first, then additions."""
    return pa.concat_tables(
        [with_kind(only_in(current, wanted), DELETE), with_kind(only_in(wanted, current), ADD)]
    ).combine_chunks()


def only_in(some: pa.Table, others: pa.Table) -> pa.Table:
    """The entries whose file, at its level, is not among the others."""
    return some.filter(pc.invert(pc.is_in(identities(some), value_set=identities(others))))


def drop_stats_of_deleted_files(delta: pa.Table) -> pa.Table:
    """The entries, with the value statistics of deletions left out (`manifest.delete-file-drop-stats`)."""
    gone = pc.equal(delta.column("kind"), DELETE)
    empty = {
        "value_stats_min": pa.scalar(EMPTY_ROW, pa.large_binary()),
        "value_stats_max": pa.scalar(EMPTY_ROW, pa.large_binary()),
        "value_stats_null_counts": pa.scalar([], pa.large_list(pa.int64())),
        "value_stats_cols": pa.scalar([], pa.large_list(pa.large_string())),
    }
    for name, value in empty.items():
        index = delta.column_names.index(name)
        delta = delta.set_column(index, delta.schema.field(index), pc.if_else(gone, value, delta.column(name)))
    return delta


def upgrade_levels(
    messages: Sequence[CommitMessage], *, level: int, key_types: Sequence[DataType]
) -> tuple[CommitMessage, ...]:
    """Move the new files of an overwrite to the top level, in each bucket where they do not overlap.

    A reader then needs no merge. Only done if every new file is on level 0 of a real bucket.
    """
    files = [(message, file) for message in messages for file in message.data.new_files]
    if any(file.level != 0 or message.bucket < 0 for message, file in files):
        return tuple(messages)
    return tuple(_upgrade_message(message, level, key_types) for message in _by_bucket(messages))


_Row = tuple[int, bytes, int, int, DataFile]


def _rows(kind: int, place: tuple[bytes, int, int], files: Iterable[DataFile]) -> list[_Row]:
    return [(kind, *place, file) for file in files]


def _build_entries(rows: Sequence[_Row]) -> pa.Table:
    """Build entries that every reader accepts: a published manifest cannot be corrected."""
    try:
        entries = entries_table(rows)
        check_file_names(entries.column("file_name"), path="commit message")
        check_file_names(pc.list_flatten(entries.column("extra_files")), path="commit message")
    except FormatError as cause:
        raise InvalidInputError(
            "commit message has an invalid file name", code="file-name", name=cause.facts["name"]
        ) from cause
    except (pa.ArrowException, ValueError, OverflowError, TypeError, AttributeError) as cause:
        raise InvalidInputError("commit message has a value of a wrong type or size", cause=cause) from cause
    for name in _REQUIRED:
        column = entries.column(name)
        low = POSTPONE_BUCKET if name == "bucket" else 0
        counted = name in _COUNTED and pc.any(pc.less(column, low)).as_py()
        if column.null_count or counted or (name == "bucket" and pc.any(pc.equal(column, -1)).as_py()):
            raise InvalidInputError("commit message has a field that is null or out of range", field=name)
    return entries


_REQUIRED = tuple(column.name for column in LAYOUT.columns[1:] if column.required)
_COUNTED = frozenset({"bucket", "file_size", "row_count", "schema_id", "level"})


def _index(kind: int, message: CommitMessage, files: Sequence[IndexFile]) -> list[IndexChange]:
    for file in files:
        check_name("index file", file.file_name)
    return [IndexChange(kind, IndexEntry(message.partition, message.bucket, file)) for file in files]


def _check_once(rows: Sequence[_Row]) -> None:
    seen: set[tuple[bytes, int, str]] = set()
    for kind, partition, bucket, _, file in rows:
        if kind == ADD:
            place = (partition, bucket, file.file_name)
            if place in seen:
                raise InvalidInputError("commit adds one file twice", file=file.file_name, bucket=bucket)
            seen.add(place)


def _by_bucket(messages: Sequence[CommitMessage]) -> Iterable[CommitMessage]:
    """The messages, with all new files of a bucket moved to its first message."""
    gathered: dict[tuple[bytes, int], list[DataFile]] = {}
    for message in messages:
        gathered.setdefault((message.partition, message.bucket), []).extend(message.data.new_files)
    for message in messages:
        files = gathered.pop((message.partition, message.bucket), [])
        yield replace(message, data=replace(message.data, new_files=tuple(files)))


def _upgrade_message(message: CommitMessage, level: int, key_types: Sequence[DataType]) -> CommitMessage:
    files = message.data.new_files
    low = pa.array([file.min_key for file in files], pa.large_binary())
    high = pa.array([file.max_key for file in files], pa.large_binary())
    if overlapping_neighbours(low, high, key_types):
        return message
    return replace(message, data=replace(message.data, new_files=tuple(replace(f, level=level) for f in files)))
