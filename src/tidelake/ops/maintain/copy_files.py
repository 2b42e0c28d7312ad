"""Copy the newest snapshot of a table into another table, file by file: no row is decoded.

The data files of the chosen partitions get new names in the folders of the target, and their deletion vectors and key
indexes come along. Everything is committed as one snapshot. Without that commit the target has no snapshot: what a
crash leaves are orphans.

Invariants: the bytes of a file do not change. A file keeps the columns that it was written with: its schema exists in
the target too, with the same fields. The target has no rows before the copy, and a target in which another job wrote
first is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.cleanup import undo_on_error
from tidelake.errors import CommitConflictError, InvalidInputError
from tidelake.io.fileio import FileIO
from tidelake.notebook import pluralize
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.guards import Proposal
from tidelake.ops.commit.messages import CommitMessage, CommitResult, Committable, DataIncrement
from tidelake.ops.context import TableContext
from tidelake.ops.placement.dynamic_buckets import index_state
from tidelake.ops.scan.partitions import PartitionFilter
from tidelake.ops.scan.plan import EVERY_PARTITION, data_manifests, live_entries
from tidelake.spec.data_file import DataFile, data_files
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.manifests.index_manifest import IndexEntry
from tidelake.spec.rows.bucket_function import PartitionBucket
from tidelake.spec.schemas.schema import Schema
from tidelake.store.external import open_external

__all__ = ["CopyPlan", "check_target", "plan_copy", "run_copy"]

_PIECE_BYTES: Final = 8 << 20
_WRITER_END: Final = "-w-"
"""The end of what the name of a staged file says of its writer."""
_SAME_OPTIONS: Final = (
    "bucket",
    "bucket-key",
    "bucket-function.type",
    "deletion-vectors.enabled",
    "merge-engine",
    "sequence.field",
)
"""Options on which the meaning of the files depends."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """The files that are copied."""

    source: str
    target: str
    snapshot_id: int | None = None
    files: int = 0
    rows: int = 0
    size: int = 0
    index_files: int = 0
    entries: pa.Table | None = field(default=None, repr=False, compare=False)
    indexes: tuple[IndexEntry, ...] = field(default=(), repr=False, compare=False)

    def __str__(self) -> str:
        what = f"{pluralize(self.files, 'file')} ({self.size:,} bytes, {pluralize(self.rows, 'row')})"
        return f"copies {what} of {self.source} to {self.target}"


@dataclass(frozen=True, slots=True)
class _Copy:
    """One file to copy."""

    source: str
    target: str
    external: str | None = None
    """The address of a source outside the table."""


def plan_copy(source: TableContext, target: str, partitions: PartitionFilter = EVERY_PARTITION) -> CopyPlan:
    """Plan a copy of the newest snapshot.

    Raises:
        FormatError: a manifest is missing or damaged.
    """

    def plan(snapshot: Snapshot | None) -> CopyPlan:
        if snapshot is None:
            return CopyPlan(source.name, target)
        store = source.store.manifests
        entries = live_entries(store, data_manifests(store, snapshot), partitions=partitions)
        listed = store.read_index(snapshot.index_manifest) if snapshot.index_manifest else ()
        rows = pa.array([each.partition for each in listed], pa.large_binary())
        chosen = partitions.mask(rows).to_pylist()
        indexes = tuple(each for each, wanted in zip(listed, chosen, strict=True) if wanted)
        return CopyPlan(
            source.name,
            target,
            snapshot.id,
            files=entries.num_rows,
            rows=int(pc.sum(entries.column("row_count")).as_py() or 0),
            size=int(pc.sum(entries.column("file_size")).as_py() or 0),
            index_files=len(indexes),
            entries=entries,
            indexes=indexes,
        )

    return source.store.snapshots.on_newest(plan)


def check_target(source: TableContext, target: TableContext) -> None:
    """Check that files of the source mean the same in the target, and that the target has no rows.

    Raises:
        InvalidInputError: keys, partition columns or an option differ, or the target has rows.
    """
    ours, theirs = source.schema, target.schema
    for what, one, other in (
        ("primary key", ours.primary_keys, theirs.primary_keys),
        ("partition columns", ours.partition_keys, theirs.partition_keys),
        *((key, source.options.get(key), target.options.get(key)) for key in _SAME_OPTIONS),
    ):
        if one != other:
            raise InvalidInputError(
                "tables do not agree, so that files of one would mean something else in the other",
                code="copy-target",
                difference=what,
                source=str(one),
                target=str(other),
                hint="copy to a new table",
            )
    if _has_rows(target.store.snapshots.latest()):
        raise InvalidInputError(
            "table to copy to has rows",
            code="copy-target",
            table=target.name,
            hint="truncate it, or copy to a new table",
        )


def _has_rows(snapshot: Snapshot | None) -> bool:
    return snapshot is not None and snapshot.total_record_count != 0


@dataclass(frozen=True, slots=True)
class _StillEmpty:
    """Guard: no other job has written rows to the target."""

    table: str

    def check(self, proposal: Proposal) -> None:
        """Refuse the copy if the target has rows.

        Raises:
            CommitConflictError: it has.
        """
        if _has_rows(proposal.latest):
            raise CommitConflictError(
                "another job wrote to the table while files were copied to it",
                code="copy-target",
                table=self.table,
                snapshot_id=proposal.latest.id,
                hint="copy to a table that no other job writes to",
            )


def run_copy(
    source: TableContext,
    target: TableContext,
    committer: Committer,
    plan: CopyPlan,
    progress: Progress | None = None,
) -> CommitResult:
    """Copy the files and commit them; if it fails, the copies are removed.

    Raises:
        CommitConflictError: another job wrote to the target.
        CommitUnknownError: the storage did not say whether the commit was published.
        InvalidInputError: the target lacks a schema that files were written with.
        NotFoundError: a file expired while it was copied: tag the snapshot first.
        StorageError: the storage failed; nothing was committed.
    """
    if plan.entries is None or not plan.files:
        return CommitResult()
    schema_ids = _map_schemas(source, target, set(plan.entries.column("schema_id").unique().to_pylist()))
    messages, copies = _make_messages(source, target, plan.entries, plan.indexes, schema_ids)
    env, done = source.store.env, 0

    def copy(each: _Copy) -> None:
        io, path = (env.io, each.source)
        if each.external is not None:
            io, path = open_external(env.io, source.schema.options, each.external)
        _copy_bytes(io, path, target.store.env.io, each.target)

    with undo_on_error(lambda: committer.discard(messages)):
        for some in _chunks(copies):
            env.executor.map(copy, some)
            done += len(some)
            if progress is not None:
                progress(done, len(copies))
        return committer.commit(Committable(messages=tuple(messages)), guards=(_StillEmpty(target.name),))


def _chunks(copies: Sequence[_Copy], count: int = 64) -> Iterator[Sequence[_Copy]]:
    for first in range(0, len(copies), count):
        yield copies[first : first + count]


def _copy_bytes(source: FileIO, path: str, target: FileIO, new_path: str) -> None:
    read = source.open_input(path)
    try:
        write = target.open_output(new_path)
        with undo_on_error(write.abort):
            while piece := read.read(_PIECE_BYTES):
                write.write(piece)
            write.close()
    finally:
        read.close()


def _map_schemas(source: TableContext, target: TableContext, used: set[int]) -> dict[int, int]:
    """The schema of the target for each schema that the files were written with: the same fields and keys."""
    known = {_shape(target.store.schemas.get(number)): number for number in target.store.schemas.ids()}
    found = {number: known.get(_shape(source.store.schemas.get(number))) for number in sorted(used)}
    lacking = next((number for number, there in found.items() if there is None), None)
    if lacking is not None:
        raise InvalidInputError(
            "table to copy to lacks a schema that files were written with",
            code="copy-target",
            schema_id=lacking,
            table=target.name,
            hint="copy to a new table, which gets every schema of the old one",
        )
    return {number: there for number, there in found.items() if there is not None}


def _shape(schema: Schema) -> tuple[object, ...]:
    """What decides how the files of a schema are read."""
    fields = tuple((each.id, each.name, str(each.type)) for each in schema.fields)
    return (fields, tuple(schema.partition_keys), tuple(schema.primary_keys))


def _make_messages(
    source: TableContext,
    target: TableContext,
    entries: pa.Table,
    indexes: Sequence[IndexEntry],
    schema_ids: Mapping[int, int],
) -> tuple[list[CommitMessage], list[_Copy]]:
    """The messages of the target's commit, and the files to copy for them."""
    uuid, copies = target.store.env.ids.uuid(), list[_Copy]()
    names: dict[tuple[bytes, int, str], str] = {}
    counts: dict[PartitionBucket, int] = {}
    grouped: dict[PartitionBucket, list[DataFile]] = {}
    places = entries.select(["partition", "bucket", "total_buckets"]).to_pylist()
    for number, (place, file) in enumerate(zip(places, data_files(entries), strict=True)):
        key = (place["partition"], place["bucket"])
        name = _rename(file.file_name, f"{uuid}-{number}")
        extra = tuple(_rename_beside(each, file.file_name, name) for each in file.extra_files)
        folders = source.paths.bucket(*key), target.paths.bucket(*key)
        outside = None if file.external_path is None else file.external_path.rpartition("/")[0]
        for old, new in ((file.file_name, name), *zip(file.extra_files, extra, strict=True)):
            address = None if outside is None else f"{outside}/{old}"
            copies.append(_Copy(f"{folders[0]}/{old}", f"{folders[1]}/{new}", address))
        names[*key, file.file_name] = name
        counts[key] = place["total_buckets"]
        moved = replace(
            file,
            file_name=name,
            extra_files=extra,
            external_path=None,
            schema_id=schema_ids[file.schema_id],
        )
        grouped.setdefault(key, []).append(moved)
    messages = {
        key: CommitMessage(
            partition=key[0],
            bucket=key[1],
            total_buckets=counts[key],
            data=DataIncrement(new_files=tuple(files)),
            # The key indexes are copied too, and the target had none: no row needs another bucket.
            assigned_on=index_state({}),
        )
        for key, files in grouped.items()
    }
    for number, entry in enumerate(indexes):
        key, index = (entry.partition, entry.bucket), entry.file
        name = _rename(index.file_name, f"{uuid}-{number}")
        ranges = index.deletion_vectors
        if ranges is not None:
            ranges = tuple(replace(each, data_file=names[*key, each.data_file]) for each in ranges)
        copied = replace(index, file_name=name, deletion_vectors=ranges, external_path=None)
        paths = source.paths.index(*key, index.file_name), target.paths.index(*key, name)
        copies.append(_Copy(*paths, index.external_path))
        message = messages.get(key) or CommitMessage(partition=key[0], bucket=key[1])
        data = replace(message.data, new_index_files=(*message.data.new_index_files, copied))
        messages[key] = replace(message, data=data)
    return list(messages.values()), copies


def _rename(name: str, unique: str) -> str:
    """A new name of the same kind: `data-…-0.parquet` keeps its first word and everything after the first dot.

    The name of a staged file also says who wrote it and in which order; compactions of Apache Paimon parse it.
    """
    stem, dot, rest = name.partition(".")
    writer, mark, own = stem.partition(_WRITER_END)
    if mark:
        return f"{writer}{mark}{unique}-{own.rpartition('-')[2]}{dot}{rest}"
    return f"{stem.partition('-')[0]}-{unique}{dot}{rest}"


def _rename_beside(name: str, owner: str, new_owner: str) -> str:
    """The new name of an extra file of a data file."""
    if name.startswith(owner):
        return new_owner + name.removeprefix(owner)
    return f"{new_owner.partition('.')[0]}-{name}"
