"""The deletion vectors of a bucket that is compacted: rows that were superseded are marked, marks of rewritten files go.

A bucket has one index file with the vectors of all its data files. A compaction that changes any of them writes a new
one with all of them and names the one it replaces, so that it is published only on the vectors that it knew.

Invariant: no vector is left of a file that a compaction rewrote, and none is lost of a file that it did not. Files that
are only moved keep theirs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tidelake.index.deletion_vectors import Positions, bitmap_of
from tidelake.ops.scan.split import Split
from tidelake.spec.data_file import DataFile
from tidelake.spec.index_manifest import DELETION_VECTORS, IndexEntry, IndexFile
from tidelake.spec.snapshot import Snapshot
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore
from tidelake.store.vectors import FileVector, VectorOptions, read_vector, write_vectors

__all__ = ["BucketVectors", "Marks", "VectorChange", "changed_vectors", "index_files", "vectors_in"]

Place = tuple[bytes, int]


@dataclass(frozen=True, slots=True)
class BucketVectors:
    """Where a bucket keeps its vectors, and how new ones are written."""

    paths: DataPaths
    options: VectorOptions
    indexes: tuple[IndexFile, ...] = ()
    """The index files that it has, one at most unless another writer left more."""


@dataclass(slots=True)
class Marks:
    """Rows of data files that were superseded, by the name of the file."""

    found: defaultdict[str, list[Positions]] = field(default_factory=lambda: defaultdict(list))

    def add(self, name: str, positions: Positions) -> None:
        """Mark rows of a file."""
        if len(positions):
            self.found[name].append(positions)


@dataclass(frozen=True, slots=True)
class VectorChange:
    """Index files that appear, and those that they replace."""

    new: tuple[IndexFile, ...] = ()
    old: tuple[IndexFile, ...] = ()


def changed_vectors(
    store: TableStore,
    split: Split,
    vectors: BucketVectors,
    marks: Marks,
    *,
    files: Mapping[str, DataFile],
    rewritten: Collection[str],
) -> VectorChange:
    """Write the vectors of a bucket anew, if a compaction changed any.

    Args:
        store: The table.
        split: The bucket, with the vectors that its files have.
        vectors: Where they are kept.
        marks: Rows that the compaction superseded.
        files: The data files of the bucket before the compaction, by their names.
        rewritten: Names of files that are no more.

    Raises:
        FormatError: a vector is damaged.
        StorageError: the storage failed; nothing is left behind that it lets us remove.
    """
    if not marks.found and split.vectors.keys().isdisjoint(rewritten):
        return VectorChange()
    kept: dict[str, list[Positions]] = {}
    for name, vector in split.vectors.items():
        if name not in rewritten and name in files:
            known = read_vector(
                store, vector, row_count=files[name].row_count, neighbours=split.vectors.values()
            )
            kept[name] = [known]
    for name, found in marks.found.items():
        kept.setdefault(name, []).extend(found)
    written = write_vectors(
        store,
        vectors.paths,
        [(name, bitmap_of(np.concatenate(parts))) for name, parts in sorted(kept.items())],
        partition=split.partition,
        bucket=split.bucket,
        options=vectors.options,
        rolled=False,
    )
    return VectorChange(written, vectors.indexes)


def vectors_in(indexes: Sequence[IndexFile], paths: DataPaths, place: Place) -> dict[str, FileVector]:
    """The vectors that index files of a bucket hold, by the names of the data files."""
    return {
        where.data_file: FileVector(paths.index(*place, index.file_name), index.file_size, where, index.external_path)
        for index in indexes
        for where in index.deletion_vectors or ()
    }


def index_files(store: TableStore, snapshot: Snapshot | None) -> dict[Place, tuple[IndexFile, ...]]:
    """The files of deletion vectors that each bucket has at a snapshot.

    Raises:
        FormatError: the index manifest is missing or damaged.
    """
    if snapshot is None or snapshot.index_manifest is None:
        return {}
    found: defaultdict[Place, tuple[IndexFile, ...]] = defaultdict(tuple)
    entry: IndexEntry
    for entry in store.manifests.read_index(snapshot.index_manifest):
        if entry.file.index_type == DELETION_VECTORS:
            found[entry.partition, entry.bucket] += (entry.file,)
    return dict(found)
