"""Splits: the files one task reads, and how files are packed into them. Frozen, picklable, free of credentials."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from tidelake.ops.scan.options import SplitOptions
from tidelake.spec.data_file import DataFile

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Files of one bucket that are read together, in this order.

    `raw_convertible` tells that no merge is needed: the rows of the files are the rows of the table.
    """

    snapshot_id: int
    partition: bytes
    bucket: int
    bucket_path: str
    total_buckets: int
    files: tuple[DataFile, ...]
    raw_convertible: bool = True
    branch: str | None = None
    """The branch whose schemas the files were written with, if not that of the table that is read."""

    @property
    def row_count(self) -> int:
        """Physical rows of the files."""
        return sum(file.row_count for file in self.files)

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(file.file_size for file in self.files)

    def path_of(self, file: DataFile) -> str:
        """Where a file of the split lies, relative to the table."""
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


def append_splits(base: Split, files: Sequence[DataFile], options: SplitOptions) -> list[Split]:
    """Splits of an append bucket: files in write order, none of them cut."""
    ordered = sorted(files, key=lambda file: (file.min_sequence, file.file_name))
    bins = pack(ordered, lambda file: file.file_size, target=options.target_bytes, least=options.open_file_cost)
    return [replace(base, files=tuple(group)) for group in bins]
