"""The options that a commit supports."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from tidelake.errors import UnsupportedError
from tidelake.io.retry import RetryOptions
from tidelake.lsm.options import CompactionOptions
from tidelake.options import Affects, Bytes, DurationMs, Int64, OptionGroup, TableOptions, option, same_option
from tidelake.spec.avro.container import codec_name
from tidelake.spec.layout import TableLayout
from tidelake.spec.schemas.bucket_mode import BucketOptions
from tidelake.spec.schemas.schema_options import SchemaOptions
from tidelake.store.paths import PathOptions

_WRITE = (Affects.WRITE,)
_SORT = (Affects.WRITE, Affects.MAINTENANCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOptions(OptionGroup):
    """How a commit retries and what it checks."""

    max_retries: int | None = option(
        "commit.max-retries",
        None,
        doc="Retries of a publish; unset: at least 30 attempts and two minutes.",
        affects=_WRITE,
    )
    timeout_ms: DurationMs | None = option(
        "commit.timeout", None, doc="Longest time for all attempts together.", affects=_WRITE
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
        "dynamic-partition-overwrite",
        True,
        doc="Overwrite only the partitions present in the data, where neither the mode nor the caller says which.",
        affects=_WRITE,
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

    @property
    def asks_for_empty(self) -> bool:
        """Whether an option asks for a snapshot for a numbered commit without files."""
        return self.force_create_snapshot or self.ignore_empty is False

    def retry(self) -> RetryOptions:
        """The back-off: our defaults, changed by the options that the user set."""
        ours = RetryOptions()
        low = ours.delay_min_ms if self.min_retry_wait_ms is None else self.min_retry_wait_ms
        high = max(low, ours.delay_max_ms if self.max_retry_wait_ms is None else self.max_retry_wait_ms)
        return RetryOptions(
            delay_min_ms=low,
            delay_max_ms=high,
            tries_min=ours.tries_min if self.max_retries is None and self.timeout_ms is None else 1,
            tries_max=None if self.max_retries is None else self.max_retries + 1,
            elapsed_max_ms=_max_elapsed_ms(self.timeout_ms, self.max_retries, ours),
        )


def _max_elapsed_ms(timeout_ms: int | None, max_retries: int | None, ours: RetryOptions) -> int:
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
    sort: bool = option(
        "manifest-sort.enabled",
        False,
        doc="Merges sort the entries of a partitioned table by partition and bucket.",
        affects=_SORT,
    )
    sort_field: str | None = option(
        "manifest-sort.partition-field",
        None,
        doc="Partition column to sort manifests by first; unset: the first one.",
        affects=_SORT,
    )
    sort_rewrite_bytes: Bytes = option(
        "manifest-sort.max-rewrite-size", Bytes(256 << 20), doc="Bytes of manifests that a merge sorts.", affects=_SORT
    )


def force_full_merge(options: ManifestOptions) -> ManifestOptions:
    """The options with which every manifest is merged that a full merge would change."""
    return replace(options, merge_min_count=1, full_threshold_bytes=Bytes(0 if options.sort else 1))


class SequenceInit(Enum):
    """Where a writer gets its first sequence number from."""

    SCAN = "scan"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShape(OptionGroup):
    """Options of the table that change what a commit does."""

    write_only: bool = same_option(SchemaOptions, "write_only")
    num_levels: int | None = same_option(CompactionOptions, "num_levels_given")
    compaction_trigger: int = same_option(CompactionOptions, "trigger")
    sequence_init: SequenceInit = option(
        "write.sequence-number-init-mode",
        SequenceInit.SCAN,
        doc="Where sequence numbers start: above the files of the bucket, or above a snapshot property.",
        affects=_WRITE,
    )
    branch: str = option("branch", "main", doc="Branch the table works on.", affects=_WRITE)

    @property
    def sequence_from_snapshot(self) -> bool:
        """Whether snapshots carry the greatest sequence number."""
        return self.sequence_init is SequenceInit.SNAPSHOT

    @property
    def max_level(self) -> int:
        """The highest level number of the tree."""
        return (self.num_levels or self.compaction_trigger + 1) - 1


def check_shape(shape: TableShape, branch: str) -> None:
    """Refuse options that a commit to this branch cannot follow.

    Raises:
        UnsupportedError: an option names another branch.
    """
    if "branch" in shape.given and shape.branch != branch:
        raise UnsupportedError(
            "option names another branch than the one that is open",
            code="option-unsupported",
            option="branch",
            value=shape.branch,
            branch=branch,
            hint="open that branch, or unset the option",
        )


def check_options(options: TableOptions) -> None:
    """Refuse values that no commit could use, before a schema that holds them is published.

    Raises:
        InvalidInputError: a value has the wrong form, or is a path outside the table.
    """
    options.of(CommitOptions)
    shape = options.of(TableShape)
    options.of(BucketOptions)
    codec_name(options.of(ManifestOptions).compression)
    TableLayout(branch=shape.branch, data_directory=options.of(PathOptions).data_directory or None)
