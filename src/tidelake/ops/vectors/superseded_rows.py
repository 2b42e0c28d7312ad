"""The positions of rows that a compaction supersedes, for the deletion vectors.

Invariant: exactly the rows that a lookup found are added. Rows of files that the compaction rewrites are not, because
these files are removed together with their vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tidelake.index.vector_codec import Positions, bitmap_of
from tidelake.spec.manifests.index_manifest import IndexFile
from tidelake.store.deletion_vectors import FileVector, VectorOptions
from tidelake.store.paths import DataPaths

if TYPE_CHECKING:
    from pyroaring import BitMap

__all__ = ["BucketVectors", "DeletedPositions", "vectors_in"]


@dataclass(frozen=True, slots=True)
class BucketVectors:
    """The deletion vectors of a bucket: its index files, their paths, and the options for new ones."""

    paths: DataPaths
    options: VectorOptions
    indexes: tuple[IndexFile, ...] = ()


@dataclass(slots=True)
class DeletedPositions:
    """Deleted positions that a compaction found, by the name of the data file."""

    _found: dict[str, list[Positions]] = field(default_factory=dict)

    def add(self, name: str, positions: Positions) -> None:
        """Add deleted positions of a file."""
        if len(positions):
            self._found.setdefault(name, []).append(positions)

    def bitmaps(self) -> dict[str, BitMap]:
        """The deleted positions of each file."""
        return {name: bitmap_of(np.concatenate(parts)) for name, parts in self._found.items()}


def vectors_in(
    indexes: Sequence[IndexFile], paths: DataPaths, *, partition: bytes, bucket: int
) -> dict[str, FileVector]:
    """The deletion vectors in the index files of a bucket, by the names of the data files."""
    return {
        where.data_file: FileVector(
            paths.index(partition, bucket, index.file_name), index.file_size, where, index.external_path
        )
        for index in indexes
        for where in index.deletion_vectors or ()
    }
