"""Staged rows of postponed buckets: in which order they were written, and how many buckets their partition gets.

Writers stage rows in the folder `bucket-postpone`; the number of buckets is not chosen in advance. A compaction that
moves the rows to buckets, or a read that merges them, uses this module to find the buckets.

Invariant: the files of one writer are read in the order it wrote them, and a partition with buckets keeps their number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.options import Affects, Bytes, Int64, OptionGroup, at_least, option
from tidelake.spec.data_file import DataFile
from tidelake.spec.layout import POSTPONE_BUCKET

__all__ = ["PostponeOptions", "bucket_counts", "in_arrival_order", "staged_entries"]

_WRITE: Final = (Affects.WRITE,)
_NUMBER: Final = re.compile(r"-(\d+)\.[^/]*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class PostponeOptions(OptionGroup):
    """How staged rows get a bucket."""

    default_buckets: int = option(
        "postpone.default-bucket-num",
        1,
        doc="Buckets of a partition that has none yet; unset: by the size of its rows, one at least.",
        affects=_WRITE,
        check=at_least(1),
    )
    target_rows: Int64 | None = option(
        "postpone.target-row-num-per-bucket",
        None,
        doc="Rows of a bucket of a partition that has none yet; decides before all others.",
        affects=_WRITE,
        check=at_least(1),
    )
    target_bytes: Bytes = option(
        "postpone.target-size-per-bucket",
        Bytes(1 << 30),
        doc="Bytes of a bucket of a partition that has none yet, if neither rows nor a number are given.",
        affects=_WRITE,
        check=at_least(1),
    )
    batch_fixed: bool = option(
        "postpone.batch-write-fixed-bucket",
        True,
        doc="Writes that are not numbered go straight to buckets.",
        affects=_WRITE,
    )
    batch_buckets_max: int = option(
        "postpone.batch-write-fixed-bucket.max-parallelism",
        2048,
        doc="Buckets that such a write gives a partition at most, if their number is not given.",
        affects=_WRITE,
        check=at_least(1),
    )
    rescale_factor: int = option(
        "postpone.batch-write-fixed-bucket.rescale-load-factor",
        32,
        doc="Such a write gives a partition more buckets first if it needs more than so many times those there.",
        affects=_WRITE,
        check=at_least(1),
    )
    merge_on_read: bool = option(
        "postpone.merge-on-read",
        False,
        doc="Batch reads merge staged rows, which have no bucket yet.",
        affects=(Affects.READ,),
    )

    @property
    def needs_size(self) -> bool:
        """Whether the number of buckets depends on the rows."""
        return self.target_rows is not None or "postpone.default-bucket-num" not in self.given

    def buckets_for(self, *, rows: int, size: int) -> int:
        """How many buckets a partition without any gets for so many staged rows and bytes."""
        if self.target_rows is not None:
            return max(1, -(-rows // self.target_rows))
        return max(1, -(-size // self.target_bytes)) if self.needs_size else self.default_buckets

    def batch_buckets_for(self, *, rows: int, size: int) -> int:
        """How many buckets a partition without any gets from a write that goes straight to them."""
        wanted = self.buckets_for(rows=rows, size=size)
        return min(1 << (wanted - 1).bit_length(), self.batch_buckets_max) if self.needs_size else wanted

    def batch_counts(self, sizes: Mapping[bytes, tuple[int, int]]) -> dict[bytes, int]:
        """That number for partitions with so many rows and bytes each."""
        return {partition: self.batch_buckets_for(rows=rows, size=size) for partition, (rows, size) in sizes.items()}

    def more_buckets_for(self, there: int, *, rows: int, size: int) -> int | None:
        """How many buckets a partition gets that has far too few of them for such a write; None if it keeps them."""
        if not self.needs_size or self.buckets_for(rows=rows, size=size) <= there * self.rescale_factor:
            return None
        suggested = self.batch_buckets_for(rows=rows, size=size)
        return suggested if suggested > there else None


def staged_entries(entries: pa.Table) -> pa.Table:
    """The files of staged rows."""
    return entries.filter(pc.equal(entries.column("bucket"), POSTPONE_BUCKET))


def in_arrival_order(files: Sequence[DataFile]) -> tuple[DataFile, ...]:
    """Staged files of a partition, given in the order of their entries, as their rows were written.

    By creation time, and files of the same moment by the number in their names: this keeps the order of each writer,
    and of two writers the later one counts as newer.
    """
    return tuple(sorted(files, key=lambda file: (file.creation_time_ms or 0, _number(file.file_name))))


def _number(name: str) -> int:
    found = _NUMBER.search(name)
    return int(found[1]) if found else 0


def bucket_counts(
    entries: pa.Table, options: PostponeOptions, chosen: Mapping[bytes, int] | None = None
) -> dict[bytes, int]:
    """The number of buckets of every partition with rows: existing ones, or those it will get.

    For a partition without buckets `chosen` takes precedence over what its staged rows suggest.
    """
    real = entries.filter(pc.greater(entries.column("total_buckets"), 0))
    counts = _aggregate_by_partition(real, ("total_buckets", "max"))
    rows, sizes = (
        _aggregate_by_partition(staged_entries(entries), (name, "sum")) for name in ("row_count", "file_size")
    )
    fresh = {partition: options.buckets_for(rows=count, size=sizes[partition]) for partition, count in rows.items()}
    return fresh | dict(chosen or {}) | counts


def _aggregate_by_partition(entries: pa.Table, how: tuple[str, str]) -> dict[bytes, int]:
    found = entries.group_by("partition", use_threads=False).aggregate([how])
    names = (found.column(name).to_pylist() for name in ("partition", f"{how[0]}_{how[1]}"))
    return dict(zip(*names, strict=True))
