"""What tidelake does with every option of the format: honours it, refuses it, or leaves it without effect, and why.

All checks and pages read this one table, so that they cannot contradict each other: which options are refused when they
are set (create, alter, single use), which ones stop a commit to a table that has them, which ones only lead to a
warning because the rows are still right, what the doctor reports, and what the reference page says. A table that
another writer created with a refused option can be opened and read, except for the few options with which a read could
return rows that the user must not see, or for which there are no rows to read (`refuse_reading`), and for the two
orders of versions that the merge of primary-key tables does not follow (`ops/scan/keyed`).

An option that a group declares is honoured by the operations that the declaration names and needs no entry here. Every
other key has an entry; `all_capabilities` fails if a key has none or two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from tidelake.errors import InternalError, UnsupportedError
from tidelake.options.catalogue import KNOWN, current_spelling
from tidelake.options.declare import Affects, OptionSpec

__all__ = [
    "HONOURED_BY_NAME",
    "REFUSED",
    "WITHOUT_EFFECT",
    "Capability",
    "Commits",
    "Honoured",
    "Refused",
    "WithoutEffect",
    "all_capabilities",
    "commit_warnings",
    "refuse_commit",
    "refuse_given",
    "refuse_reading",
    "refused_options",
]


class Commits(Enum):
    """What a commit does with a table that has the option."""

    REFUSE = "refuse"
    """Refuse it, because it would be incomplete."""
    WARN = "warn"
    """Commit with a warning: the rows are right, but something else that the option asks for is not done."""
    GO_ON = "go on"
    """Commit: the option does not concern commits."""


@dataclass(frozen=True, slots=True)
class Honoured:
    """These operations do what the option says. `module` reads it by name; None if an option group declares it."""

    key: str
    verbs: tuple[Affects, ...]
    module: str | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """An option that cannot be set. The value `harmless` (in lower case) changes nothing and is accepted."""

    key: str
    harmless: str
    reason: str
    commits: Commits = Commits.REFUSE
    reads: bool = True
    """Whether a table that has the option can be read."""
    module: str | None = None
    """The module that refuses it itself, because more than key and value decide."""
    only: tuple[Affects, ...] = ()
    """The operations that refuse it, if it can be set nevertheless."""

    @property
    def verbs(self) -> tuple[Affects, ...]:
        """The operations that refuse it."""
        if self.only:
            return self.only
        commits = (Affects.WRITE, Affects.MAINTENANCE) if self.commits is Commits.REFUSE else ()
        return (Affects.CREATE, Affects.ALTER, *commits, *(() if self.reads else (Affects.READ,)))


@dataclass(frozen=True, slots=True)
class WithoutEffect:
    """An option that is kept in the table for other engines; `reason` says why tidelake can ignore it."""

    key: str
    reason: str


Capability: TypeAlias = Honoured | Refused | WithoutEffect

# ------------------------------------------------------------------------------------------- honoured, read by its name

_READ: Final = Affects.READ
_WRITE: Final = Affects.WRITE
_MAINTENANCE: Final = Affects.MAINTENANCE
_DEFINE: Final = (Affects.CREATE, Affects.ALTER)

HONOURED_BY_NAME: Final = (
    Honoured("primary-key", _DEFINE, "spec/schemas/schema.py"),
    Honoured("partition", _DEFINE, "spec/schemas/schema.py"),
    Honoured("bucket-key", (*_DEFINE, _READ, _WRITE), "spec/schemas/schema.py"),
    Honoured("blob-field", _DEFINE, "spec/schemas/schema.py"),
    Honoured("blob-descriptor-field", _DEFINE, "spec/schemas/schema.py"),
    Honoured("blob-view-field", _DEFINE, "spec/schemas/schema.py"),
    Honoured("vector-field", _DEFINE, "spec/schemas/schema.py"),
    Honoured("rowkind.field", (_WRITE,), "ops/write/verbs.py"),
    Honoured("fields.default-aggregate-function", (_READ, _WRITE, _MAINTENANCE), "lsm/aggregate/registry.py"),
    Honoured("delete.force-produce-changelog", (_WRITE,), "ops/change/verbs.py"),
    Honoured("commit.user-prefix", (_WRITE,), "ops/hooks/committers.py"),
    Honoured("partition.sink-strategy", (_WRITE,), "engines/spark/write/job.py"),
)
"""Options whose text one function reads directly: their values are names of columns, or one word."""

# ------------------------------------------------------------------------------------------------------------- refused

_PK_INDEX: Final = "indexes of primary-key tables are not written"
_CLUSTERING: Final = "rows are not clustered"
_CHAIN: Final = "chain tables are not read yet"


def _refuse_family(prefix: str, reason: str) -> Iterator[Refused]:
    for entry in KNOWN.values():
        if entry.key.startswith(prefix):
            yield Refused(entry.key, (entry.default or "").lower(), reason, Commits.WARN)


def _refuse_read(key: str, reason: str, harmless: str = "") -> Refused:
    return Refused(key, harmless, reason, Commits.GO_ON, reads=False, module="ops/scan/batch.py")


REFUSED: Final = (
    Refused("row-tracking.enabled", "false", "row IDs are not assigned"),
    Refused("data-evolution.enabled", "false", "columns cannot be written to separate files"),
    Refused("sequence.snapshot-ordering", "false", "versions are ordered by their sequence numbers", reads=False),
    Refused("chain-table.enabled", "false", "chain tables are neither read nor written"),
    Refused("visibility-callback.enabled", "false", "commits do not wait until they are visible to others"),
    Refused("metadata.iceberg.storage", "disabled", "Apache Iceberg metadata is not written"),
    Refused("tag.callbacks", "", "callback classes are not called after a tag is created", Commits.GO_ON),
    Refused("commit.callbacks", "", "callback classes are not called after a commit"),
    Refused("data-file.external-paths.strategy", "none", "files are written into the table's folder only"),
    Refused("manifest.format", "avro", "manifests are written in Avro only"),
    Refused("pk-clustering-override", "false", "files are sorted by key only", reads=False),
    *(Refused(key, "", _PK_INDEX) for key in KNOWN if key.startswith("pk-") and key.endswith(".index.columns")),
    Refused("type", "table", "tables of other types are neither read nor written", reads=False),
    Refused("query-auth.enabled", "false", "permissions on rows are not checked", Commits.WARN, reads=False),
    Refused("auto-create", "false", "tables are created by create_table only", Commits.GO_ON),
    Refused("upsert-key", "", "rows are appended, not merged by a key that is not the primary key", Commits.WARN),
    Refused("branch-merge.enabled", "false", "branches are not merged", Commits.WARN),
    Refused(
        "snapshot.watermark-idle-timeout", "", "idle tables get no snapshots that advance the watermark", Commits.WARN
    ),
    Refused(
        "partition.timestamp-format.strict",
        "false",
        "values of partitions that make no time are not refused when rows are written",
        Commits.WARN,
    ),
    *_refuse_family("clustering.", _CLUSTERING),
    _refuse_read("scan.bucket", "buckets are pruned by a condition on the bucket key"),
    _refuse_read("scan.plan-auto-tag-for-read.time-retained", "reads do not create tags"),
    _refuse_read("scan.fallback-snapshot-branch", _CHAIN),
    _refuse_read("scan.fallback-delta-branch", _CHAIN),
    _refuse_read("stream-scan-mode", "the option is internal to another engine", "none"),
    _refuse_read("batch-scan-mode", "the option is internal to another engine", "none"),
    Refused(
        "compaction.skip-expired-partitions",
        "false",
        "compactions do not look at the age of partitions",
        Commits.GO_ON,
        module="ops/compact/buckets.py",
        only=(_MAINTENANCE,),
    ),
    Refused("path", "", "the catalog says where a table is", Commits.GO_ON, module="spec/schemas/schema.py"),
)

_BY_KEY: Final = {each.key: each for each in REFUSED if each.module is None}

# ------------------------------------------------------------------------------------------------------ without effect


def _needs(key: str) -> str:
    return f"It has an effect only with `{key}`, which is refused."


_WITHOUT_EFFECT: Final = (
    (
        "The catalogs here have no metastore that lists partitions.",
        "metastore.partitioned-table metastore.tag-to-partition metastore.tag-to-partition.preview"
        " partition.idle-time-to-report-statistic",
    ),
    ("The rows of a bucket always keep their order.", "bucket-append-ordered"),
    (
        "Every way of merging sorted runs gives the same rows; the merge here has one.",
        "sort-engine sort-spill-threshold",
    ),
    (
        "Rows of append tables are written to files as they arrive and are not buffered by partition.",
        "write-buffer-for-append write-max-writers-to-spill",
    ),
    (
        "It sizes the managed memory of a Java process, which does not exist here.",
        "page-size cache-page-size write.batch-memory local-kv-db.block-size sort-spill-buffer-size",
    ),
    ("The same files are written, in the thread that writes the rows.", "async-file-write"),
    ("The same rows are read; readers choose themselves how far they read ahead.", "file-reader-async-threshold"),
    ("Batches of up to 65,536 rows are read; their size changes no row.", "read.batch-size"),
    (
        _needs("data-file.external-paths.strategy"),
        "data-file.external-paths.specific-fs data-file.external-paths.weights",
    ),
    ("Reads skip no file by a file index: they give the same rows, from more bytes.", "file-index.read.enabled"),
    ("File indexes are not written: readers give the same rows, from more bytes.", "file-index.in-manifest-threshold"),
    (
        "VARIANT values are written without shredding, which every reader understands.",
        "variant.shreddingSchema variant.inferShreddingSchema variant.shredding.inferenceMode"
        " variant.shredding.maxInferBufferRow variant.shredding.adaptive.maxInferBufferRow"
        " variant.shredding.adaptive.retentionRatio variant.shredding.maxSchemaDepth"
        " variant.shredding.maxSchemaWidth variant.shredding.minFieldCardinalityRatio",
    ),
    (
        "Both ways of merging manifests give the same entries; the merge here has one.",
        "manifest.merge-optimize.enabled",
    ),
    (
        _needs("visibility-callback.enabled"),
        "visibility-callback.timeout visibility-callback.check-interval",
    ),
    ("It is a number of threads; the same files are deleted and checked.", "file-operation.thread-num"),
    ("Every commit waits for the expiry that follows it.", "snapshot.expire.execution-mode"),
    ("A compaction of an append table plans all its files at once.", "compaction.file-num-limit"),
    (
        "It tunes the sorting of whole tables by columns, which tidelake does not do.",
        "sort-compaction.range-strategy sort-compaction.local-sample.magnification zorder.var-length-contribution",
    ),
    (
        "It tunes the local lookup files of Paimon; lookups here merge the files of the bucket themselves.",
        "lookup.cache-rows lookup.cache-file-retention lookup.cache-max-disk-size lookup.cache-spill-compression"
        " lookup.cache.high-priority-pool-ratio lookup.cache.bloom.filter.enabled lookup.cache.bloom.filter.fpp"
        " lookup.hash-load-factor lookup.merge-buffer-size lookup.merge-records-threshold",
    ),
    (
        "Lookup files beside data files are a cache: a reader that finds none creates its own.",
        "lookup.remote-file.enabled lookup.remote-file.level-threshold",
    ),
    (
        "It tunes lookup joins, which tidelake does not do.",
        "lookup.blob-as-descriptor lookup.continuous.discovery-interval",
    ),
    ("It limits the planning of a Flink source; reads here take splits one by one.", "scan.max-splits-per-task"),
    ("Errors in reading the other branch are always raised.", "scan.fallback-branch.read-fail-fast"),
    (
        "Readers of Paimon set it themselves, from `table-read.sequence-number.enabled`, which is honoured.",
        "key-value.sequence_number.enabled",
    ),
    (
        "It names the class of the action custom, which is refused in `partition.mark-done-action`.",
        "partition.mark-done-action.custom.class",
    ),
    (_needs("row-tracking.enabled"), "row-tracking.partition-group-on-commit"),
    (
        _needs("data-evolution.enabled"),
        "data-evolution.compaction.rewrite-row-ids data-evolution.merge-into.file-pruning"
        " data-evolution.merge-into.source-persist data-evolution.reassign.skip-contiguous-row-count"
        " data-evolution.row-id-conflict-rewrite.max-size data-evolution.row-sidecar.enabled"
        " data-evolution.row-sidecar.max-selected-rows data-evolution.row-sidecar.max-selection-ratio",
    ),
    (
        "BLOB columns need `data-evolution.enabled`, which is refused.",
        "blob-view.resolve.enabled blob-as-descriptor blob-descriptor.source-table blob-compaction.enabled"
        " blob-write-null-on-missing-file blob-write-null-on-fetch-failure blob.copy-buffer-size"
        " blob.split-by-file-size blob.target-file-size",
    ),
    (
        "Vectors are written as any column; files of their own need `data-evolution.enabled`, which is refused.",
        "vector.file.format vector.target-file-size",
    ),
    (
        "Indexes over the rows of a table are neither written nor used: reads give the same rows, from more bytes.",
        "vector-index.search-mode vector-search.distribute.enabled vector-search.lateral-join.batch-size"
        " full-text-index.search-mode scalar-index.search-mode global-index.enabled global-index.search-mode"
        " global-index.thread-num global-index.row-count-per-shard global-index.build.max-shard"
        " global-index.build.max-parallelism global-index.external-path",
    ),
    (
        "Indexed columns are in tables with `row-tracking.enabled`, to which commits are refused.",
        "global-index.column-update-action",
    ),
    (
        "It describes a table of another `type`, which is refused.",
        "format-table.implementation format-table.file.compression format-table.partition-path-only-value"
        " format-table.scan.list-parallelism format-table.commit-hive-sync-url materialized-table.definition-query"
        " materialized-table.interval-freshness materialized-table.interval-freshness.time-unit"
        " materialized-table.logical-refresh-mode materialized-table.refresh-mode materialized-table.refresh-status"
        " materialized-table.refresh-handler-description materialized-table.refresh-handler-bytes",
    ),
    (
        _needs("chain-table.enabled"),
        "chain-table.chain-partition-keys chain-table.split.key-range-enabled chain-table.streaming.merge-snapshot",
    ),
    (
        _needs("metadata.iceberg.storage"),
        "metadata.iceberg.storage-location metadata.iceberg.format-version metadata.iceberg.compaction.min.file-num"
        " metadata.iceberg.compaction.max.file-num metadata.iceberg.delete-after-commit.enabled"
        " metadata.iceberg.previous-versions-max metadata.iceberg.manifest-compression"
        " metadata.iceberg.manifest-legacy-version metadata.iceberg.database metadata.iceberg.table"
        " metadata.iceberg.uri metadata.iceberg.hive-conf-dir metadata.iceberg.hadoop-conf-dir"
        " metadata.iceberg.hive-client-class metadata.iceberg.hive-skip-update-stats"
        " metadata.iceberg.glue.skip-archive",
    ),
)
# why | keys

WITHOUT_EFFECT: Final = tuple(WithoutEffect(key, reason) for reason, keys in _WITHOUT_EFFECT for key in keys.split())


def all_capabilities(declared: Iterable[OptionSpec]) -> Mapping[str, Capability]:
    """What tidelake does with each option of the format, by key.

    Args:
        declared: The options of every group.

    Raises:
        InternalError: a key has no capability, or two of them.
    """
    found: dict[str, Capability] = {}
    entries: tuple[Capability, ...] = (*HONOURED_BY_NAME, *REFUSED, *WITHOUT_EFFECT)
    for each in entries:
        if each.key in found:
            raise InternalError("option has two capabilities", key=each.key)
        found[each.key] = each
    for spec in declared:
        entry = found.setdefault(spec.key, Honoured(spec.key, spec.affects))
        if not isinstance(entry, Refused) and (not isinstance(entry, Honoured) or entry.module is not None):
            raise InternalError("option is declared and has another capability", key=spec.key, capability=entry)
    missing = sorted(KNOWN.keys() - found.keys())
    if missing:
        raise InternalError("options have no capability", keys=missing)
    return found


# ------------------------------------------------------------------------------------------------------------ who asks


def refused_options(options: Mapping[str, str]) -> Iterator[tuple[str, Refused]]:
    """The options among these that are not honoured, as they are spelled."""
    for key, value in options.items():
        found = _BY_KEY.get(current_spelling(key))
        if found is not None and value.lower() != found.harmless:
            yield key, found


def refuse_given(given: Mapping[str, str]) -> None:
    """Refuse to set an option that is not honoured.

    Raises:
        UnsupportedError: one is.
    """
    for key, found in refused_options(given):
        raise _refusal(key, given[key], found.reason, "leave the option out")


def refuse_commit(options: Mapping[str, str]) -> None:
    """Refuse to commit to a table with an option that would make the commit incomplete.

    Raises:
        UnsupportedError: the table has such an option.
    """
    for key, found in refused_options(options):
        if found.commits is Commits.REFUSE:
            hint = "commit to this table with Apache Paimon, or unset the option"
            raise _refusal(key, options[key], found.reason, hint)


def commit_warnings(options: Mapping[str, str]) -> tuple[str, ...]:
    """What the table's options ask for and a commit does not do, one sentence for each reason."""
    reasons: dict[str, list[str]] = {}
    for key, found in refused_options(options):
        if found.commits is Commits.WARN:
            reasons.setdefault(found.reason, []).append(f"`{key}`")
    return tuple(f"committed, but {reason}: option {', '.join(keys)}" for reason, keys in reasons.items())


def refuse_reading(options: Mapping[str, str]) -> None:
    """Refuse to read a table with row permissions, or one that has no rows.

    Raises:
        UnsupportedError: it is such a table.
    """
    kind = options.get("type", "table")
    if kind.lower() == "object-table":
        raise _refusal("type", kind, "an object table lists files and has no rows of its own", "read the files instead")
    if options.get("query-auth.enabled", "false").lower() == "true":
        reason = "only the table's catalog knows which rows a user may see"
        raise _refusal("query-auth.enabled", "true", reason, "read this table through its catalog")


def _refusal(key: str, value: str, reason: str, hint: str) -> UnsupportedError:
    return UnsupportedError(
        f"table option is not supported: {reason}", code="option-unsupported", option=key, value=value[:80], hint=hint
    )
