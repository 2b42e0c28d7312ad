"""Rows that a compaction supersedes: where deletion vectors are kept, a mark stands for the older version of a key.

Invariant: what is marked is exactly what was looked up and found; rows of files that a compaction rewrites are not
marked, since those files and their vectors go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tidelake.index.deletion_vectors import Positions, bitmap_of
from tidelake.spec.index_manifest import IndexFile
from tidelake.store.paths import DataPaths
from tidelake.store.vectors import FileVector, VectorOptions

if TYPE_CHECKING:
    from pyroaring import BitMap

__all__ = ["BucketVectors", "Marks", "vectors_in"]


@dataclass(frozen=True, slots=True)
class BucketVectors:
    """The deletion vectors of a bucket: its index files, where they lie, and how new ones are written."""

    paths: DataPaths
    options: VectorOptions
    indexes: tuple[IndexFile, ...] = ()


@dataclass(slots=True)
class Marks:
    """Rows of data files that were superseded, by the name of the file."""

    _found: dict[str, list[Positions]] = field(default_factory=dict)

    def add(self, name: str, positions: Positions) -> None:
        """Mark rows of a file."""
        if len(positions):
            self._found.setdefault(name, []).append(positions)

    def bitmaps(self) -> dict[str, BitMap]:
        """What was marked."""
        return {name: bitmap_of(np.concatenate(parts)) for name, parts in self._found.items()}


def vectors_in(
    indexes: Sequence[IndexFile], paths: DataPaths, *, partition: bytes, bucket: int
) -> dict[str, FileVector]:
    """The vectors that the index files of a bucket hold, by the names of the data files."""
    return {
        where.data_file: FileVector(
            paths.index(partition, bucket, index.file_name), index.file_size, where, index.external_path
        )
        for index in indexes
        for where in index.deletion_vectors or ()
    }
