"""The index files of a bucket after rows of it were marked deleted, or data files removed.

In a table without buckets a bucket has several index files, and only those are written anew that hold a vector which
changes. With buckets there is one, which is replaced whole.

Invariant: after the update every data file that stays has at most one vector, with all marks that it had before, and
no removed file has any. An update names every index file that it replaces, so that a commit on top of another change of
the same vectors is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidelake.errors import FormatError, NotFoundError
from tidelake.index.deletion_vectors import Positions, bitmap_of
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.compact.buckets import Job, Place
from tidelake.ops.compact.publish import remove_files
from tidelake.ops.scan.options import BucketOptions
from tidelake.spec.index_manifest import DELETION_VECTORS, IndexEntry, IndexFile
from tidelake.spec.schema import Schema
from tidelake.spec.snapshot import Snapshot
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore
from tidelake.store.vectors import FileVector, VectorOptions, read_vector, write_vectors

if TYPE_CHECKING:
    from pyroaring import BitMap

__all__ = ["NO_UPDATE", "IndexUpdate", "drop_vectors", "index_files_of", "plan_update", "rolls", "run_update"]

_ANY_ROWS = 1 << 40
"""Rows of a data file that the caller knows nothing of."""


@dataclass(frozen=True, slots=True)
class IndexUpdate:
    """Index files that appear and disappear in one commit."""

    new: tuple[IndexFile, ...] = ()
    deleted: tuple[IndexFile, ...] = ()


NO_UPDATE = IndexUpdate()


def index_files_of(store: TableStore, snapshot: Snapshot | None) -> dict[Place, tuple[IndexFile, ...]]:
    """The files of deletion vectors of a snapshot, by partition and bucket.

    Raises:
        FormatError: the index manifest is missing or damaged.
    """
    found: dict[Place, tuple[IndexFile, ...]] = {}
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
    """Which index files of a bucket have to be written anew, for data files that are marked further or removed.

    Args:
        files: The index files of the bucket.
        marked: Names of data files with new marks.
        removed: Names of data files that go.
        rolled: Whether the bucket may have several index files.
    """
    touched = {*marked, *removed}
    holding = tuple(file for file in files if any(each.data_file in touched for each in file.deletion_vectors or ()))
    # One file for the bucket: more marks go into it even where none of its vectors changes.
    return holding if rolled or not (holding or marked) else tuple(files)


def run_update(
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
    """Write the index files of a bucket that change; see `plan_update`.

    `marked` has the new positions alone: what was marked before is kept.

    Raises:
        FormatError: an index file is missing or damaged.
        StorageError: the storage failed; nothing is left behind that it lets us remove.
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


def rolls(schema: Schema, options: Mapping[str, str]) -> bool:
    """Whether a bucket of the table may have several files of deletion vectors: it has none that rows belong to."""
    return not schema.primary_keys and BucketOptions.parse(options).bucket == -1


def drop_vectors(job: Job, snapshot: Snapshot | None, messages: Sequence[CommitMessage]) -> list[CommitMessage]:
    """The messages of a compaction, which now also remove the vectors of the files it read.

    Those of one bucket share its index files: the first of them carries the change.

    Raises:
        FormatError: an index file is missing or damaged; the new files of all messages are removed.
        StorageError: the storage failed; they are removed as far as it lets us.
    """
    known = index_files_of(job.store, snapshot)
    removed: dict[Place, set[str]] = {}
    for message in messages:
        names = removed.setdefault((message.partition, message.bucket), set())
        names.update(file.file_name for file in message.compact.before)
    made: list[CommitMessage] = []
    options, rolled = VectorOptions.parse(job.options), rolls(job.store.schema, job.options)
    try:
        for message in messages:
            place = (message.partition, message.bucket)
            update = run_update(
                job.store,
                job.paths,
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
    except BaseException:
        remove_files(job, [*made, *messages[len(made) :]])
        raise
    return made


def _positions(store: TableStore, place: FileVector, neighbours: Sequence[FileVector]) -> Positions:
    try:
        return read_vector(store, place, row_count=_ANY_ROWS, neighbours=neighbours)
    except NotFoundError as cause:
        raise FormatError("file of deletion vectors is missing", code="file-missing", path=place.path) from cause
