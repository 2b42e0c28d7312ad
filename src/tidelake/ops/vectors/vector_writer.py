"""Update the index files of a bucket after rows were deleted or data files removed.

In a table without buckets a bucket may have several index files, and only those with a changed vector are rewritten.
In a table with buckets a bucket has one, which is always replaced.

Invariant: after the update every data file that stays has at most one vector, with all positions that it had before,
and no removed file has one. An update names every index file that it replaces, so that the commit is refused if another
job changed the same vectors first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidelake.cleanup import undo_on_error
from tidelake.errors import FormatError, NotFoundError
from tidelake.index.vector_codec import Positions, bitmap_of
from tidelake.ops.commit.abort import remove_files
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.context import TableContext
from tidelake.options import TableOptions
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.manifests.index_manifest import DELETION_VECTORS, IndexEntry, IndexFile
from tidelake.spec.rows.bucket_function import PartitionBucket
from tidelake.spec.schemas.bucket_mode import BucketMode, bucket_mode
from tidelake.spec.schemas.schema import Schema
from tidelake.store.deletion_vectors import FileVector, VectorOptions, read_vector, write_vectors
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore

if TYPE_CHECKING:
    from pyroaring import BitMap

__all__ = ["NO_UPDATE", "IndexUpdate", "drop_vectors", "index_files_of", "plan_update", "rolls", "write_index_files"]

_ANY_ROWS = 1 << 40
"""A row count for vectors of data files whose row count is not known here."""


@dataclass(frozen=True, slots=True)
class IndexUpdate:
    """Index files that one commit adds and removes."""

    new: tuple[IndexFile, ...] = ()
    deleted: tuple[IndexFile, ...] = ()


NO_UPDATE = IndexUpdate()


def index_files_of(store: TableStore, snapshot: Snapshot | None) -> dict[PartitionBucket, tuple[IndexFile, ...]]:
    """The index files with deletion vectors of a snapshot, by partition and bucket.

    Raises:
        FormatError: the index manifest is missing or damaged.
    """
    found: dict[PartitionBucket, tuple[IndexFile, ...]] = {}
    entries: Sequence[IndexEntry] = ()
    if snapshot is not None and snapshot.index_manifest is not None:
        entries = store.manifests.read_index(snapshot.index_manifest)
    for entry in entries:
        if entry.file.index_type == DELETION_VECTORS:
            place = (entry.partition, entry.bucket)
            found[place] = (*found.get(place, ()), entry.file)
    return found


def plan_update(
    files: Sequence[IndexFile], *, marked: Collection[str], removed: Collection[str], rolled: bool
) -> tuple[IndexFile, ...]:
    """Which index files of a bucket have to be rewritten, because data files get more deleted rows or are removed.

    Args:
        files: The index files of the bucket.
        marked: Names of data files with new deleted positions.
        removed: Names of data files that are removed.
        rolled: Whether the bucket may have several index files.
    """
    touched = {*marked, *removed}
    holding = tuple(file for file in files if any(each.data_file in touched for each in file.deletion_vectors or ()))
    # With a single file per bucket, new vectors go into it even if none of the old vectors changes.
    return holding if rolled or not (holding or marked) else tuple(files)


def write_index_files(
    store: TableStore,
    paths: DataPaths,
    files: Sequence[IndexFile],
    *,
    partition: bytes,
    bucket: int,
    marked: Mapping[str, BitMap],
    removed: Collection[str],
    options: VectorOptions,
    rolled: bool,
) -> IndexUpdate:
    """Rewrite the index files of a bucket that change; see `plan_update`.

    `marked` has only the new deleted positions; the old ones are kept.

    Raises:
        FormatError: an index file is missing or damaged.
        StorageError: the storage failed; the new files are removed as far as it lets us.
    """
    old = plan_update(files, marked=marked.keys(), removed=removed, rolled=rolled)
    vectors = {name: bitmap for name, bitmap in marked.items() if bitmap and name not in removed}
    for file in old:
        path = paths.index(partition, bucket, file.file_name)
        places = [FileVector(path, file.file_size, each, file.external_path) for each in file.deletion_vectors or ()]
        for place in places:
            name = place.range.data_file
            if name in removed:
                continue
            before = bitmap_of(_positions(store, place, places))
            vectors[name] = before | vectors[name] if name in vectors else before
    if not old and not vectors:
        return NO_UPDATE
    new = write_vectors(
        store,
        paths,
        sorted(vectors.items()),
        partition=partition,
        bucket=bucket,
        options=options,
        rolled=rolled,
    )
    return IndexUpdate(new, old)


def rolls(schema: Schema, options: TableOptions) -> bool:
    """Whether a bucket may have several index files with deletion vectors, as in a table without buckets."""
    return bucket_mode(schema, options) is BucketMode.UNAWARE


def drop_vectors(
    context: TableContext, snapshot: Snapshot | None, messages: Sequence[CommitMessage]
) -> list[CommitMessage]:
    """Add to the messages of a compaction the removal of the deletion vectors of the files it read.

    The messages of one bucket share its index files: the first of them holds the change.

    Raises:
        FormatError: an index file is missing or damaged; the new files of all messages are removed.
        StorageError: the storage failed; they are removed as far as it lets us.
    """
    known = index_files_of(context.store, snapshot)
    removed: dict[PartitionBucket, set[str]] = {}
    for message in messages:
        names = removed.setdefault((message.partition, message.bucket), set())
        names.update(file.file_name for file in message.compact.before)
    made: list[CommitMessage] = []
    options, rolled = context.options.of(VectorOptions), rolls(context.store.schema, context.options)
    with undo_on_error(lambda: remove_files(context, [*made, *messages[len(made) :]])):
        for message in messages:
            place = (message.partition, message.bucket)
            update = write_index_files(
                context.store,
                context.paths,
                known.pop(place, ()),
                partition=message.partition,
                bucket=message.bucket,
                marked={},
                removed=removed[place],
                options=options,
                rolled=rolled,
            )
            change = replace(message.compact, new_index_files=update.new, deleted_index_files=update.deleted)
            made.append(replace(message, compact=change))
    return made


def _positions(store: TableStore, place: FileVector, neighbours: Sequence[FileVector]) -> Positions:
    try:
        return read_vector(store, place, row_count=_ANY_ROWS, neighbours=neighbours)
    except NotFoundError as cause:
        raise FormatError("file of deletion vectors is missing", code="file-missing", path=place.path) from cause
