"""Splits: the files one task reads, and how files are packed into them. Frozen, picklable, without credentials."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.ops.scan.deletion_vectors import file_vectors
from tidelake.ops.scan.options import SplitOptions
from tidelake.spec.data_file import DataFile, data_files
from tidelake.store.deletion_vectors import FileVector
from tidelake.store.paths import DataPaths

T = TypeVar("T")


class SplitMode(Enum):
    """What the rows of a split are."""

    STATE = "state"
    """Rows of the table: versions of a key are merged."""
    CHANGES = "changes"
    """Every row of the files as it is stored, with its row kind."""
    TAKEN_BACK = "taken-back"
    """The merged rows of files that are gone, each as a deletion."""
    DIFFERENCE = "difference"
    """The difference between the merged rows of the files and those of the files before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Files of one bucket that are read together, in this order.

    `raw_convertible` means that no merge is needed: the rows of the files are the rows of the table.
    """

    snapshot_id: int
    partition: bytes
    bucket: int
    bucket_path: str
    total_buckets: int
    files: tuple[DataFile, ...]
    raw_convertible: bool = True
    vectors: Mapping[str, FileVector] = field(default_factory=dict, hash=False)
    """The deletion vectors of files that have one, by file name; perhaps also of files that are not in the split."""
    branch: str | None = None
    """The branch whose schemas the files were written with, if not that of the table that is read."""
    staged: tuple[DataFile, ...] = ()
    """Files with staged rows of the partition; the rows of this bucket are merged in."""
    staged_path: str = ""
    """The folder of the staged files."""
    mode: SplitMode = SplitMode.STATE
    before: tuple[DataFile, ...] = ()
    """Files of the earlier state, where a difference is read."""
    before_vectors: Mapping[str, FileVector] = field(default_factory=dict, hash=False)
    """The deletion vectors of those files."""

    @property
    def row_count(self) -> int:
        """Physical rows of the files."""
        return sum(file.row_count for file in (*self.files, *self.before))

    @property
    def live_row_count(self) -> int | None:
        """Rows of the files that are not deleted; None if the metadata does not say so."""
        marked = [self.vectors[file.file_name] for file in self.files if file.file_name in self.vectors]
        known = [vector.cardinality for vector in marked if vector.cardinality is not None]
        return self.row_count - sum(known) if len(known) == len(marked) else None

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(file.file_size for file in (*self.files, *self.before))

    def with_files(self, files: Iterable[DataFile]) -> Split:
        """The same split with some of its files, and with no more vectors than they have."""
        chosen = tuple(files)
        vectors = {each.file_name: self.vectors[each.file_name] for each in chosen if each.file_name in self.vectors}
        return replace(self, files=chosen, vectors=vectors)

    @property
    def places(self) -> frozenset[tuple[str, int, FileVector | None]]:
        """The files with everything that affects their merge: levels and deletion vectors."""
        return frozenset((each.file_name, each.level, self.vectors.get(each.file_name)) for each in self.files)

    @property
    def places_before(self) -> frozenset[tuple[str, int, FileVector | None]]:
        """The same of the files of the earlier state."""
        return frozenset((each.file_name, each.level, self.before_vectors.get(each.file_name)) for each in self.before)

    def path_of(self, file: DataFile) -> str:
        """The path of a file of the split, relative to the table."""
        return f"{self.bucket_path}/{file.file_name}"


def pack(items: Iterable[T], weight_of: Callable[[T], int], *, target: int, least: int) -> list[list[T]]:
    """Put items into bins in order; a bin is closed when the next item would make it heavier than the target."""
    bins: list[list[T]] = []
    weight = 0
    for item in items:
        own = max(weight_of(item), least)
        if not bins or weight + own > target:
            bins.append([])
            weight = 0
        bins[-1].append(item)
        weight += own
    return bins


def bucket_codes(entries: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The number of each entry's bucket: 0, 1, … by partition, then by bucket."""
    partitions = entries.column("partition").combine_chunks().dictionary_encode()
    ranks = np.empty(len(partitions.dictionary), np.int64)
    ranks[pc.sort_indices(partitions.dictionary).to_numpy()] = np.arange(len(ranks))
    places = np.stack([ranks[partitions.indices.to_numpy()], entries.column("bucket").to_numpy()], 1)
    return np.unique(places, axis=0, return_inverse=True)[1].reshape(-1)


def bucket_splits(entries: pa.Table, snapshot_id: int, paths: DataPaths, vectors: pa.Table | None) -> list[Split]:
    """One split for each bucket with all its files in the order of their entries; by partition, then by bucket.

    `vectors` are the deletion vectors of the snapshot, as `vectors.snapshot_vectors` gives them. With None every row of
    the files is read, deleted or not.

    Raises:
        FormatError: a data file has two deletion vectors.
    """
    if not entries.num_rows:
        return []
    codes = bucket_codes(entries)
    order = np.argsort(codes, kind="stable")
    files = data_files(entries.take(pa.array(order)))
    starts = [0, *(np.flatnonzero(np.diff(codes[order])) + 1).tolist()]
    firsts = pa.array(order[starts])
    places = (entries.column(name).take(firsts).to_pylist() for name in ("partition", "bucket", "total_buckets"))
    marked = file_vectors(vectors, entries.column("file_name"), paths) if vectors is not None else {}
    return [
        Split(
            snapshot_id=snapshot_id,
            partition=partition,
            bucket=bucket,
            bucket_path=paths.bucket(partition, bucket),
            total_buckets=total,
            files=tuple(files[start:end]),
            vectors=marked.get((partition, bucket), {}),
        )
        for (start, end), partition, bucket, total in zip(pairwise([*starts, len(files)]), *places, strict=True)
    ]


def append_splits(bucket: Split, options: SplitOptions) -> list[Split]:
    """The splits of an append bucket: files in write order, none of them cut."""
    ordered = sorted(bucket.files, key=lambda file: (file.min_sequence, file.file_name))
    bins = pack(ordered, lambda file: file.file_size, target=options.target_bytes, least=options.open_file_cost)
    return [bucket.with_files(group) for group in bins]
