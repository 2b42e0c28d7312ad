"""The options that planning a read supports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidelake.options import Affects, Bytes, Int64, OptionGroup, at_least, option, same_option
from tidelake.spec.schemas.schema_options import SchemaOptions

_READ = (Affects.READ,)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitOptions(OptionGroup):
    """How large a split is."""

    target_bytes: Bytes = option(
        "source.split.target-size", Bytes(128 << 20), doc="Bytes of the files of one split.", affects=_READ
    )
    open_file_cost: Bytes = option(
        "source.split.open-file-cost", Bytes(4 << 20), doc="Least weight of a file.", affects=_READ
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(OptionGroup):
    """How a batch read is planned, and which faulty files it skips."""

    manifest_parallelism: int | None = option(
        "scan.manifest.parallelism",
        None,
        doc="Threads that read manifests; unset: those of the lake.",
        affects=_READ,
        check=at_least(1),
    )
    sort_partition: bool = option(
        "scan.plan-sort-partition", False, doc="Order splits by the values of their partition.", affects=_READ
    )
    ignore_corrupt_files: bool = option(
        "scan.ignore-corrupt-files",
        False,
        doc="Skip what cannot be read of a damaged data file; its rows are missing.",
        affects=_READ,
    )
    ignore_lost_files: bool = option(
        "scan.ignore-lost-files",
        False,
        doc="Skip data files that are gone; their rows are missing.",
        affects=_READ,
    )
    fallback_branch: str | None = option(
        "scan.fallback-branch", None, doc="Branch to read partitions from that this one does not have.", affects=_READ
    )
    primary_branch: str | None = option(
        "scan.primary-branch", None, doc="Branch whose partitions are read before those of this one.", affects=_READ
    )
    bounded_watermark: Int64 | None = option(
        "scan.bounded.watermark", None, doc="Watermark that ends a stream; batch reads end anyway.", affects=_READ
    )

    @property
    def other_branch(self) -> str | None:
        """The second branch that is read, if any."""
        return self.fallback_branch or self.primary_branch

    @property
    def may_skip_files(self) -> bool:
        """Whether files may be skipped, so that counting rows must read them."""
        return self.ignore_corrupt_files or self.ignore_lost_files


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableOptions(OptionGroup):
    """Options under which a merge by key and sequence number would give wrong rows; others declare them for writes."""

    listed: ClassVar[bool] = False

    clustering_override: bool = option(
        "pk-clustering-override", False, doc="Sort files by other columns than the key.", affects=_READ
    )
    snapshot_ordering: bool = option(
        "sequence.snapshot-ordering", False, doc="Order versions by the snapshots that brought them.", affects=_READ
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions(OptionGroup):
    """What the views of changes show of a row beside its kind and columns."""

    sequence_number: bool = same_option(SchemaOptions, "shows_sequence_numbers")
