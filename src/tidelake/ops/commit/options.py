"""The options that the commit honours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from tidelake.errors import UnsupportedError
from tidelake.io.retry import RetryOptions
from tidelake.ops.scan.options import BucketOptions
from tidelake.options import Affects, Bytes, DurationMs, Int64, OptionGroup, at_least, option
from tidelake.spec.avro import codec_name
from tidelake.spec.layout import TableLayout
from tidelake.store.paths import PathOptions

_WRITE = (Affects.WRITE,)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOptions(OptionGroup):
    """How a commit retries and what it checks."""

    max_retries: int | None = option(
        "commit.max-retries",
        None,
        doc="Retries of the publish; unset: at least 30 tries and two minutes.",
        affects=_WRITE,
    )
    timeout_ms: DurationMs | None = option(
        "commit.timeout", None, doc="Longest time for all tries together.", affects=_WRITE
    )
    min_retry_wait_ms: DurationMs | None = option(
        "commit.min-retry-wait", None, doc="First back-off; unset: 50 ms, drawn at random from 0.", affects=_WRITE
    )
    max_retry_wait_ms: DurationMs | None = option(
        "commit.max-retry-wait", None, doc="Largest back-off; unset: 2 s.", affects=_WRITE
    )
    strict_last_safe_snapshot: Int64 | None = option(
        "commit.strict-mode.last-safe-snapshot",
        None,
        doc="Fail when others changed the same partitions after this snapshot; -1 leaves the first commit unchecked.",
        affects=_WRITE,
    )
    discard_duplicate_files: bool = option(
        "commit.discard-duplicate-files", False, doc="Drop added files that are already in the table.", affects=_WRITE
    )
    ignore_empty: bool | None = option(
        "snapshot.ignore-empty-commit",
        None,
        doc="Whether a commit without files makes no snapshot; unset: batch commits make none, numbered ones do.",
        affects=_WRITE,
    )
    force_create_snapshot: bool = option(
        "commit.force-create-snapshot",
        False,
        doc="Numbered commits make a snapshot without files too, whatever snapshot.ignore-empty-commit says.",
        affects=_WRITE,
    )
    dynamic_partition_overwrite: bool = option(
        "dynamic-partition-overwrite", True, doc="Overwrite only the partitions present in the data.", affects=_WRITE
    )
    unsafe: bool = option(
        "unsafe.commit",
        False,
        doc="Commit although the storage cannot create a file exclusively: safe only for a single writer.",
        affects=_WRITE,
    )
    overwrite_upgrade: bool = option(
        "overwrite-upgrade", True, doc="Put overwriting files that do not overlap on the top level.", affects=_WRITE
    )

    def ignores_empty(self, is_batch: bool) -> bool:
        """Whether a commit without files makes no snapshot."""
        if self.force_create_snapshot and not is_batch:
            return False
        return is_batch if self.ignore_empty is None else self.ignore_empty

    def retry(self) -> RetryOptions:
        """The back-off: ours, or the format's own where the user set one of its options."""
        ours = RetryOptions()
        low = ours.delay_min_ms if self.min_retry_wait_ms is None else self.min_retry_wait_ms
        high = max(low, ours.delay_max_ms if self.max_retry_wait_ms is None else self.max_retry_wait_ms)
        return RetryOptions(
            delay_min_ms=low,
            delay_max_ms=high,
            tries_min=ours.tries_min if self.max_retries is None and self.timeout_ms is None else 1,
            tries_max=None if self.max_retries is None else self.max_retries + 1,
            elapsed_max_ms=_elapsed(self.timeout_ms, self.max_retries, ours),
        )


def _elapsed(timeout_ms: int | None, max_retries: int | None, ours: RetryOptions) -> int:
    if timeout_ms is not None:
        return timeout_ms
    return ours.elapsed_max_ms if max_retries is None else 2**53  # retries alone decide


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestOptions(OptionGroup):
    """Sizes and compression of manifests."""

    target_bytes: Bytes = option(
        "manifest.target-file-size", Bytes(8 << 20), doc="Size at which a manifest is full.", affects=_WRITE
    )
    merge_min_count: int = option(
        "manifest.merge-min-count", 30, doc="Small manifests that are merged into one.", affects=_WRITE
    )
    full_threshold_bytes: Bytes = option(
        "manifest.full-compaction-threshold-size",
        Bytes(16 << 20),
        doc="Bytes of small or deleting manifests that start a full merge.",
        affects=_WRITE,
    )
    compression: str = option("manifest.compression", "zstd", doc="Codec of manifests.", affects=_WRITE)
    delete_drop_stats: bool = option(
        "manifest.delete-file-drop-stats", False, doc="Leave statistics out of deletions.", affects=_WRITE
    )


class SequenceInit(Enum):
    """How a writer finds its first sequence number."""

    SCAN = "scan"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShape(OptionGroup):
    """What the commit must know of the table's kind."""

    write_only: bool = option(
        "write-only",
        False,
        doc="Writers neither compact nor expire.",
        affects=_WRITE,
        fallback=("write.compaction-skip",),
    )
    num_levels: int | None = option(
        "num-levels", None, doc="Levels of the tree; unset: trigger + 1.", affects=_WRITE, check=at_least(2)
    )
    compaction_trigger: int = option(
        "num-sorted-run.compaction-trigger",
        5,
        doc="Sorted runs that start a compaction.",
        affects=_WRITE,
        check=at_least(1),
    )
    snapshot_ordering: bool = option(
        "sequence.snapshot-ordering",
        False,
        doc="Order versions by the committing snapshot.",
        affects=_WRITE,
        immutable=True,
    )
    sequence_init: SequenceInit = option(
        "write.sequence-number-init-mode",
        SequenceInit.SCAN,
        doc="Where sequence numbers start: above the files of the bucket, or above a snapshot property.",
        affects=_WRITE,
    )
    row_tracking: bool = option(
        "row-tracking.enabled", False, doc="Give rows stable ids.", affects=_WRITE, immutable=True
    )
    row_tracking_grouped: bool = option(
        "row-tracking.partition-group-on-commit", True, doc="Row ids of a partition are contiguous.", affects=_WRITE
    )
    data_evolution: bool = option(
        "data-evolution.enabled", False, doc="Column-wise updates by row id.", affects=_WRITE, immutable=True
    )
    branch: str = option("branch", "main", doc="Branch the table works on.", affects=_WRITE)
    mark_done_at_end: bool = option(
        "partition.end-input-to-done", False, doc="Mark partitions done after a batch commit.", affects=_WRITE
    )
    mark_done_action: str = option(
        "partition.mark-done-action", "success-file", doc="What marks a partition done.", affects=_WRITE
    )

    @property
    def sequence_from_snapshot(self) -> bool:
        """Whether snapshots carry the greatest sequence number."""
        return self.sequence_init is SequenceInit.SNAPSHOT

    @property
    def max_level(self) -> int:
        """The highest level number of the tree."""
        return (self.num_levels or self.compaction_trigger + 1) - 1


def check_shape(shape: TableShape, branch: str) -> None:
    """Refuse what no commit to this branch could do.

    Raises:
        UnsupportedError: partitions are to be marked in a way that is not known, or an option names another branch.
    """
    if shape.mark_done_at_end and shape.mark_done_action != "success-file":
        raise UnsupportedError(
            "only success files mark partitions done",
            code="option-unsupported",
            option="partition.mark-done-action",
            value=shape.mark_done_action,
            hint="set it to success-file",
        )
    if "branch" in shape.given and shape.branch != branch:
        raise UnsupportedError(
            "option names another branch than the one that is open",
            code="option-unsupported",
            option="branch",
            value=shape.branch,
            branch=branch,
            hint="open that branch, or unset the option",
        )


def check_options(options: Mapping[str, str]) -> None:
    """Refuse values that no commit could use, before a schema that holds them is published.

    Raises:
        InvalidInputError: a value has the wrong form, or leads out of the table.
    """
    CommitOptions.parse(options)
    shape = TableShape.parse(options)
    BucketOptions.parse(options)
    codec_name(ManifestOptions.parse(options).compression)
    TableLayout(branch=shape.branch, data_directory=PathOptions.parse(options).data_directory or None)
