"""Every option key of the table format, honoured or not, as data.

It has two uses: a warning about an unknown key names the nearest known one, and the reference page lists every key with
its type and default. Options that tidelake reads are declared in groups (`tidelake.options`) next to their readers.

Invariant: every key is listed once, under its current spelling; older spellings are in `OLD_SPELLINGS` and point to a
listed key. Keys with a free part (a column name, a library's own option) are families.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tidelake.errors import InvalidInputError
from tidelake.options import declare as declared
from tidelake.options import values
from tidelake.options.declare import UnknownKey

__all__ = [
    "ENGINE_KEYS",
    "FAMILIES",
    "FAMILY_ENTRIES",
    "KNOWN",
    "OLD_SPELLINGS",
    "CatalogEntry",
    "FamilyEntry",
    "check_values",
    "current_spelling",
    "is_immutable",
    "is_known",
    "nearest",
    "unknown_keys",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """One key. `default` is text as a user would write it, None when there is none or other options decide it.

    `common` marks what matters most in practice; `newer` what release 2.0.0 does not know yet.
    """

    key: str
    section: str
    type_name: str
    default: str | None
    immutable: bool
    common: bool
    newer: bool
    doc: str


@dataclass(frozen=True, slots=True)
class FamilyEntry:
    """Keys with a free part, written as ``<part>`` in `shape`."""

    shape: str
    default: str | None
    doc: str

    @property
    def pattern(self) -> re.Pattern[str]:
        """Matches the keys of the family, in full."""
        return re.compile(re.sub("<[^>]+>", ".+", self.shape.replace(".", r"\.")), re.DOTALL)


# key | type | default, - for none, {} for the empty map | * common, I immutable, N newer than 2.0.0 | meaning
_TABLE = """
# Table identity, schema and DDL
type | enum | table | I | kind of table: table, format-table, materialized-table, object-table, lance-table ...
primary-key | string | - | *I | primary key columns given as an option (not together with a DDL key)
primary-key.nullable | boolean | false | IN | allow nulls in key columns; nulls compare equal when merging
upsert-key | string | - | - | columns by which INSERT merges into a table without primary key
partition | string | - | *I | partition columns given as an option (not together with DDL partitioning)
path | string | - | - | table location; set by the catalog
branch | string | main | * | branch the table object works on
auto-create | boolean | false | - | create the storage directory on first read/write
add-column-before-partition | boolean | false | - | place added columns before the first partition column
alter-column-null-to-not-null.disabled | boolean | true | - | forbid changing a column from nullable to not null
disable-explicit-type-casting | boolean | false | - | allow only lossless type changes in ALTER
partition.default-name | string | __DEFAULT_PARTITION__ | - | directory name used for null or empty partition values
partition.legacy-name | boolean | true | - | write partition values as plain text (true) or by SQL cast rules (false)
metastore.partitioned-table | boolean | false | - | register partitions in the metastore
metastore.tag-to-partition | string | - | - | expose tags as partitions of this virtual column in the metastore
metastore.tag-to-partition.preview | enum | none | - | also show the next tag (none, process-time, watermark, batch)
query-auth.enabled | boolean | false | - | ask the catalog for row/column permissions on reads

# Buckets
bucket | integer | -1 | * | bucket count: > 0 fixed, -1 dynamic/unaware, -2 postponed
bucket-key | string | - | *I | columns hashed to a bucket; default trimmed primary key
bucket-function.type | enum | default | I | default, mod or hive hashing
bucket-append-ordered | boolean | true | - | keep order inside buckets of append tables
dynamic-bucket.target-row-num | long | 2000000 | * | rows (distinct key hashes) per dynamic bucket
dynamic-bucket.initial-buckets | integer | - | I | number of assigners, hence initial buckets per partition
dynamic-bucket.max-buckets | integer | -1 | - | upper bound of dynamic buckets, -1 unlimited
dynamic-bucket.assigner-parallelism | integer | - | - | parallelism of the assigner step
cross-partition-upsert.index-ttl | duration | - | - | forget keys older than this in the cross-partition index
cross-partition-upsert.bootstrap-parallelism | integer | 10 | - | readers per task when loading the key index
postpone.default-bucket-num | integer | 1 | * | bucket count of new partitions and of overwrites
postpone.target-row-num-per-bucket | long | - | - | estimate bucket count from staged rows; wins over size
postpone.target-size-per-bucket | memorysize | 1 gb | - | estimate bucket count from staged bytes
postpone.batch-write-fixed-bucket | boolean | true | - | batch writes go straight to real buckets
postpone.batch-write-fixed-bucket.max-parallelism | integer | 2048 | - | cap for the inferred bucket count
postpone.batch-write-fixed-bucket.rescale-load-factor | integer | 32 | N | rescale above this factor
postpone.merge-on-read | boolean | false | - | batch reads merge staged rows into real buckets

# Merging and ordering
merge-engine | enum | deduplicate | *I | deduplicate, partial-update, aggregation, first-row
sequence.field | string | - | * | user columns that decide which version is newest
sequence.field.sort-order | enum | ascending | * | direction for all sequence fields
sequence.snapshot-ordering | boolean | false | I | order versions by committing snapshot id
write.sequence-number-init-mode | enum | scan | - | start numbers from files (scan) or a property (snapshot)
ignore-delete | boolean | false | * | drop -D and -U rows
ignore-update-before | boolean | false | - | drop -U rows
rowkind.field | string | - | *I | string column holding the row kind
partial-update.remove-record-on-delete | boolean | false | *I | a -D removes the whole row
partial-update.remove-record-on-sequence-group | string | - | *I | a -D with such an ordering column removes the row
aggregation.remove-record-on-delete | boolean | false | I | a -D removes the whole row
fields.default-aggregate-function | string | - | * | function for columns without their own
sort-engine | enum | loser-tree | - | loser-tree or min-heap merge
record-level.expire-time | duration | - | - | drop rows older than this during compaction
record-level.time-field | string | - | - | column used for record expiration

# Changelog
changelog-producer | enum | none | * | none, input, full-compaction, lookup
changelog-producer.row-deduplicate | boolean | false | * | suppress -U/+U pairs with equal values
changelog-producer.row-deduplicate-ignore-fields | string | - | - | columns that this comparison leaves out
changelog-file.prefix | string | changelog- | - | file name prefix
changelog-file.format | string | - | - | format, default that of data files
changelog-file.compression | string | - | - | compression, default that of data files
changelog-file.stats-mode | string | - | - | statistics mode for changelog files
changelog.num-retained.min | integer | - | - | min long-lived changelogs; default snapshot value
changelog.num-retained.max | integer | - | - | max long-lived changelogs; default snapshot value
changelog.time-retained | duration | - | * | age limit of changelogs; longer than that of snapshots, it decouples them
delete.force-produce-changelog | boolean | false | - | SQL DELETE writes delete rows instead of overwriting

# Write buffer and writers
write-buffer-size | memorysize | 256 mb | * | shared in-memory buffer per task
write-buffer-spillable | boolean | true | * | spill the buffer to local disk before flushing files
write-buffer-spill.max-disk-size | memorysize | 9223372036854775807 | - | local spill limit
write-buffer-for-append | boolean | false | - | use the buffer for append tables too
write-max-writers-to-spill | integer | 10 | - | open writers before append/postponed writers switch to spilling
write-only | boolean | false | * | no compaction and no expiration in writers
page-size | memorysize | 64 kb | - | memory page
local-sort.max-num-file-handles | integer | 128 | - | merge fan-in of spilled runs
spill-compression | string | zstd | - | codec of spill files
spill-compression.zstd-level | integer | 1 | - | zstd level for spills
local-merge-buffer-size | memorysize | - | - | pre-shuffle merge buffer; unset disables
write.batch-size | integer | 1024 | - | rows per format writer batch
write.batch-memory | memorysize | 128 mb | - | bytes per format writer batch
async-file-write | boolean | true | - | write files in a background thread
partition.sink-strategy | enum | NONE | - | shuffle before writing partitions: none, hash, partition_dynamic
partition.timestamp-format.strict | boolean | false | - | reject partition values that do not parse

# Files and formats
file.format | string | parquet | * | data file format (parquet, orc, avro)
file.format.per.level | map | {} | - | format per LSM level, e.g. 0:avro
file.compression | string | zstd | * | codec
file.compression.per.level | map | {} | - | codec per level
file.compression.zstd-level | integer | 1 | - | zstd level
file.block-size | memorysize | - | - | row group / stripe size
file.suffix.include.compression | boolean | false | - | put the codec into file names
target-file-size | memorysize | - | * | rolling size; 128 MB primary-key, 256 MB append
target-file-row-num | long | 9223372036854775807 | - | rolling row count for newly written files
data-file.prefix | string | data- | - | file name prefix
data-file.path-directory | string | - | I | sub directory for data
data-file.thin-mode | boolean | false | - | do not store key columns twice
data-file.external-paths | string | - | - | extra storage roots for data files
data-file.external-paths.strategy | enum | none | - | none, specific-fs, round-robin, entropy-inject, weight-robin
data-file.external-paths.specific-fs | string | - | - | scheme for specific-fs
data-file.external-paths.weights | string | - | - | weights for weight-robin
parquet.enable.dictionary | integer | - | - | dictionary encoding switch
read.batch-size | integer | 1024 | - | rows per reader batch
file-reader-async-threshold | memorysize | 10 mb | - | read files larger than this asynchronously
metadata.stats-mode | string | truncate(16) | * | none, counts, truncate(n), full
metadata.stats-mode.per.level | map | {} | - | stats mode per level
metadata.stats-dense-store | boolean | true | - | store only columns that have stats
metadata.stats-keep-first-n-columns | integer | -1 | - | stats for the first n columns only
file-index.read.enabled | boolean | true | - | use file indexes when reading
file-index.in-manifest-threshold | memorysize | 500 bytes | - | embed indexes smaller than this in manifests
index-file-in-data-file-dir | boolean | false | I | store bucket index files beside data
variant.shreddingSchema | string | - | - | explicit variant shredding schema
variant.inferShreddingSchema | boolean | false | - | infer the shredding schema
variant.shredding.inferenceMode | enum | per-file | - | per-file or adaptive
variant.shredding.maxInferBufferRow | integer | 4096 | - | sample rows for the first file
variant.shredding.adaptive.maxInferBufferRow | integer | 256 | - | sample rows for later files
variant.shredding.adaptive.retentionRatio | double | 0.05 | - | keep a path above this presence
variant.shredding.maxSchemaDepth | integer | 50 | - | depth limit
variant.shredding.maxSchemaWidth | integer | 300 | - | field limit
variant.shredding.minFieldCardinalityRatio | double | 0.1 | - | minimum presence to shred a field

# Manifests
manifest.target-file-size | memorysize | 8 mb | * | target manifest size
manifest.merge-min-count | integer | 30 | * | minimum tail manifests to merge
manifest.full-compaction-threshold-size | memorysize | 16 mb | - | bytes of dirty manifests that start a full merge
manifest.compression | string | zstd | - | codec
manifest.format | string | avro | - | file format of manifests: avro, orc or parquet
manifest.delete-file-drop-stats | boolean | false | - | strip stats from DELETE entries
manifest.merge-optimize.enabled | boolean | true | N | block-wise merge implementation
manifest-sort.enabled | boolean | false | - | sort manifests while merging
manifest-sort.partition-field | string | - | - | partition column to sort by
manifest-sort.max-rewrite-size | memorysize | 256 mb | - | bytes rewritten per sort pass

# Commit
commit.max-retries | integer | 10 | * | retries of the atomic publish
commit.timeout | duration | - | - | total retry time, unlimited if unset
commit.min-retry-wait | duration | 10 ms | - | first back-off
commit.max-retry-wait | duration | 10 s | - | largest back-off
commit.force-compact | boolean | false | - | wait for compaction before each commit
commit.force-create-snapshot | boolean | false | - | streaming: snapshot even without data
snapshot.ignore-empty-commit | boolean | - | - | override empty commit handling
commit.user-prefix | string | - | - | prefix of generated commit users
commit.strict-mode.last-safe-snapshot | long | - | * | fail on concurrent foreign changes after this snapshot
commit.discard-duplicate-files | boolean | false | - | drop files already committed
commit.callbacks | string | - | - | classes called after commit
dynamic-partition-overwrite | boolean | true | * | overwrite only partitions present in the data
overwrite-upgrade | boolean | true | - | label non-overlapping overwrite files with the max level
visibility-callback.enabled | boolean | false | - | wait until committed data is visible
visibility-callback.timeout | duration | 30 min | - | limit of that wait
visibility-callback.check-interval | duration | 10 s | - | poll interval
file-operation.thread-num | integer | - | - | threads for deletes and checks

# Compaction
num-sorted-run.compaction-trigger | integer | 5 | * | sorted runs that trigger compaction
num-sorted-run.stop-trigger | integer | - | * | runs that block writing; trigger + 3
num-levels | integer | - | - | LSM levels; trigger + 1
compaction.max-size-amplification-percent | integer | 200 | * | space amplification limit
compaction.size-ratio | integer | 1 | - | percent slack when growing a candidate
compaction.offpeak.start.hour | integer | -1 | - | off-peak window start
compaction.offpeak.end.hour | integer | -1 | - | off-peak window end (exclusive)
compaction.offpeak-ratio | integer | 0 | - | extra size ratio in the window
compaction.optimization-interval | duration | - | * | force a full compaction this often
compaction.total-size-threshold | memorysize | - | - | always full-compact while the bucket is smaller
compaction.incremental-size-threshold | memorysize | - | - | full-compact when data above the bottom exceeds this
compaction.force-up-level-0 | boolean | false | - | always lift level 0
compaction.force-rewrite-all-files | boolean | false | - | full compaction rewrites everything
compaction.small-file-ratio | double | 0.7 | - | file is small below this share of target size
compaction.min.file-num | integer | 5 | * | append: files needed to compact
compaction.file-num-limit | integer | 100000 | - | append: files per planning round
compaction.delete-ratio-threshold | double | 0.2 | - | append: deleted share that forces a rewrite
compaction.skip-expired-partitions | boolean | false | - | do not compact expired partitions
full-compaction.delta-commits | integer | - | * | full compaction every n commits
sort-spill-threshold | integer | - | - | readers before merge inputs are spilled; stop trigger + 1
sort-spill-buffer-size | memorysize | 64 mb | - | buffer of that spill
sort-compaction.range-strategy | enum | SIZE | - | range split by SIZE or QUANTITY
sort-compaction.local-sample.magnification | integer | 1000 | - | sampling factor
zorder.var-length-contribution | integer | 8 | - | bytes of strings used in z-order
clustering.columns | string | - | * | columns to cluster by
clustering.strategy | string | auto | - | auto, order, zorder, hilbert
clustering.incremental | boolean | false | - | LSM-like incremental clustering for append tables
clustering.incremental.mode | enum | global-sort | - | global-sort or local-sort
clustering.incremental.optimize-write | boolean | false | - | cluster while writing
clustering.history-partition.idle-to-full-sort | duration | - | - | idle time after which a partition is fully clustered
clustering.history-partition.limit | integer | 5 | - | such partitions per run
pk-clustering-override | boolean | false | I | sort primary-key files by clustering columns

# Lookup and deletion vectors
deletion-vectors.enabled | boolean | false | * | mark deletes in bitmaps instead of merging at read
deletion-vectors.bitmap64 | boolean | false | - | 64-bit bitmaps (Iceberg compatible)
deletion-vectors.merge-on-read | boolean | false | - | also read level 0 by merging
deletion-vectors.modifiable | boolean | false | - | allow switching deletion vectors on existing tables
deletion-vector.index-file.target-size | memorysize | 2 mb | - | size of DV index files
force-lookup | boolean | false | I | use lookup compaction regardless of producer
lookup-wait | boolean | true | * | commit waits for lookup compaction
lookup-compact | enum | RADICAL | - | RADICAL or GENTLE
lookup-compact.max-interval | integer | - | - | gentle: force after this many triggers
lookup.cache-rows | long | 10000 | - | rows cached by lookup tables
lookup.cache-file-retention | duration | 1 h | - | keep local lookup files
lookup.cache-max-disk-size | memorysize | 9223372036854775807 | - | disk limit
lookup.cache-max-memory-size | memorysize | 256 mb | - | memory limit
lookup.cache-spill-compression | string | zstd | - | codec of local files
lookup.cache.high-priority-pool-ratio | double | 0.25 | - | cache share for index blocks
lookup.cache.bloom.filter.enabled | boolean | true | - | bloom filter in local files
lookup.cache.bloom.filter.fpp | double | 0.05 | - | false positive rate
lookup.hash-load-factor | float | 0.75 | - | hash index load factor
lookup.merge-buffer-size | memorysize | 8 mb | - | memory per key while merging
lookup.merge-records-threshold | integer | 1024 | - | versions per key kept as objects
lookup.remote-file.enabled | boolean | false | - | store lookup files next to data files
lookup.remote-file.level-threshold | integer | -2147483648 | - | only for levels >= this
lookup.blob-as-descriptor | boolean | false | - | lookup joins keep blob references only
lookup.continuous.discovery-interval | duration | - | - | refresh interval of lookup joins
local-kv-db.block-size | memorysize | 4 kb | - | block size of the local store
cache-page-size | memorysize | 64 kb | - | page size of caches

# Scan and streaming read
scan.mode | enum | default | * | startup mode
scan.snapshot-id | long | - | * | snapshot to read / start from
scan.tag-name | string | - | * | tag to read
scan.timestamp-millis | long | - | * | time travel, epoch millis
scan.timestamp | string | - | * | time travel, timestamp string
scan.watermark | long | - | - | first snapshot with at least this watermark
scan.version | string | - | - | VERSION AS OF string
scan.creation-time-millis | long | - | - | start by snapshot creation time
scan.file-creation-time-millis | long | - | - | only files created after
incremental-between | string | - | * | start,end snapshots or tags
incremental-between-timestamp | string | - | - | start,end times
incremental-between-scan-mode | enum | auto | * | auto, delta, changelog, diff
incremental-between-tag-to-snapshot | boolean | false | - | treat two tags as snapshot range
incremental-to-auto-tag | string | - | - | changes up to this auto tag
scan.bounded.watermark | long | - | - | end streaming when the watermark passes
scan.bucket | integer | - | - | read one bucket only
scan.manifest.parallelism | integer | - | - | threads reading manifests
scan.max-splits-per-task | integer | 10 | - | streaming planning back-pressure
scan.plan-sort-partition | boolean | false | - | order splits by partition
scan.plan-auto-tag-for-read.time-retained | duration | - | - | protect the planned snapshot by a temporary tag
scan.ignore-corrupt-files | boolean | false | - | skip unreadable files
scan.ignore-lost-files | boolean | false | - | skip missing files
scan.fallback-branch | string | - | - | read missing partitions from this branch
scan.fallback-branch.read-fail-fast | boolean | false | - | raise fallback errors
scan.primary-branch | string | - | - | prefer partitions of this branch
scan.fallback-snapshot-branch | string | - | - | chain tables: snapshot branch
scan.fallback-delta-branch | string | - | - | chain tables: delta branch
source.split.target-size | memorysize | 128 mb | * | target split size
source.split.open-file-cost | memorysize | 4 mb | - | minimum weight of a file
streaming-read-overwrite | boolean | false | * | primary-key streams see overwrites
streaming-read-append-overwrite | boolean | false | - | append streams see files added by overwrites
streaming.read.snapshot.delay | duration | - | - | read snapshots only after this delay
continuous.discovery-interval | duration | 10 s | - | poll interval
table-read.sequence-number.enabled | boolean | false | - | audit/binlog tables expose the sequence number
key-value.sequence_number.enabled | boolean | false | - | internal switch behind table-read.sequence-number.enabled
stream-scan-mode | enum | none | - | internal: compaction and monitoring scans
batch-scan-mode | enum | none | - | internal: compaction scans
consumer-id | string | - | * | named stream position stored in the table
consumer.mode | enum | exactly-once | - | exactly-once or at-least-once
consumer.expiration-time | duration | - | * | remove idle consumers
consumer.ignore-progress | boolean | false | - | start fresh but still protect snapshots
consumer.changelog-only | boolean | false | - | consumer protects changelogs only

# Snapshots, tags, partitions
snapshot.num-retained.min | integer | 10 | * | minimum snapshots kept
snapshot.num-retained.max | integer | 2147483647 | * | maximum snapshots kept
snapshot.time-retained | duration | 1 h | * | age limit
snapshot.expire.limit | integer | 50 | - | snapshots per expiration run
snapshot.expire.execution-mode | enum | sync | - | sync or async
snapshot.clean-empty-directories | boolean | false | - | delete empty directories
snapshot.watermark-idle-timeout | duration | - | - | force snapshots so watermark tags advance
tag.automatic-creation | enum | none | * | none, process-time, watermark, batch
tag.creation-period | enum | daily | * | daily, hourly, two-hours
tag.creation-period-duration | duration | - | - | custom period
tag.creation-delay | duration | 0 ms | - | grace after the period end
tag.period-formatter | enum | with_dashes | - | tag name format
tag.num-retained-max | integer | - | - | automatic tags kept
tag.default-time-retained | duration | - | * | default tag lifetime
tag.time-expire-enabled | boolean | true | - | expire tags by lifetime
tag.automatic-completion | boolean | false | - | create missing tags
tag.batch.customized-name | string | - | - | tag name in batch mode
tag.create-success-file | boolean | false | - | write a success file per tag
tag.callbacks | string | - | - | classes called after tag creation
sink.watermark-time-zone | string | UTC | - | zone of watermarks for tags
sink.process-time-zone | string | - | - | zone of processing time for tags
partition.expiration-time | duration | - | * | partition lifetime
partition.expiration-check-interval | duration | 1 h | - | check frequency
partition.expiration-strategy | string | values-time | - | values-time or update-time
partition.expiration-max-num | integer | 100 | - | partitions dropped per run
partition.expiration-batch-size | integer | - | - | partitions per commit
partition.timestamp-formatter | string | - | * | format of partition time
partition.timestamp-pattern | string | - | * | pattern with $columns
end-input.check-partition-expire | boolean | false | - | check at the end of batch jobs
partition.mark-done-action | string | success-file | - | actions marking a partition complete
partition.mark-done-action.custom.class | string | - | - | class for custom action
partition.mark-done-action.http.url | string | - | - | endpoint for http-report
partition.mark-done-action.http.params | string | - | - | extra parameters for http-report
partition.end-input-to-done | boolean | false | - | mark partitions done after a batch job
partition.idle-time-to-report-statistic | duration | 0 ms | - | idle time before reporting partition statistics

# Row tracking, data evolution, blobs, vectors, global indexes
row-tracking.enabled | boolean | false | *I | assign stable row ids (append tables)
row-tracking.partition-group-on-commit | boolean | true | - | contiguous ids per partition
data-evolution.enabled | boolean | false | I | column-wise updates by row id
data-evolution.compaction.rewrite-row-ids | boolean | false | - | legacy; true is rejected
data-evolution.merge-into.file-pruning | boolean | true | - | prune untouched files in MERGE
data-evolution.merge-into.source-persist | boolean | false | - | cache the MERGE source
data-evolution.reassign.skip-contiguous-row-count | long | 1000000000 | - | runs longer than this keep their row ids
data-evolution.row-id-conflict-rewrite.max-size | memorysize | 256 mb | - | rebase conflicting updates up to this size
data-evolution.row-sidecar.enabled | boolean | false | - | write row-store sidecar files
data-evolution.row-sidecar.max-selected-rows | long | 4096 | - | use the sidecar up to this many rows
data-evolution.row-sidecar.max-selection-ratio | double | 0.05 | - | and up to this ratio
blob-field | string | - | I | columns stored as BLOB
blob-descriptor-field | string | - | I | BLOB columns stored inline as descriptors
blob-view-field | string | - | I | BLOB columns stored as references to other tables
blob-view.resolve.enabled | boolean | true | - | resolve views on read
blob-as-descriptor | boolean | false | - | exchange descriptors instead of bytes
blob-descriptor.source-table | string | - | - | table whose storage is used to read descriptors
blob-compaction.enabled | boolean | false | - | compact blob files
blob-write-null-on-missing-file | boolean | false | - | write null if the source is missing
blob-write-null-on-fetch-failure | boolean | false | - | write null on other fetch errors
blob.copy-buffer-size | memorysize | 4 kb | - | copy buffer
blob.split-by-file-size | boolean | - | - | count blob bytes in split sizes
blob.target-file-size | memorysize | - | - | rolling size of blob files
vector-field | string | - | - | ARRAY columns stored as VECTOR
vector.file.format | string | - | - | separate format for vector columns
vector.target-file-size | memorysize | - | - | rolling size of vector files
vector-index.search-mode | enum | fast | - | fast, full, detail
vector-search.distribute.enabled | boolean | false | - | distributed vector search
vector-search.lateral-join.batch-size | integer | 256 | - | query vectors per batch
full-text-index.search-mode | enum | fast | - | fast, full, detail
scalar-index.search-mode | enum | fast | - | fast, full, detail
global-index.enabled | boolean | true | - | use global indexes in scans
global-index.search-mode | enum | - | - | fallback search mode
global-index.thread-num | integer | 32 | - | index I/O threads
global-index.row-count-per-shard | long | 100000 | - | rows per shard
global-index.build.max-shard | integer | 32 | - | preferred shard limit
global-index.build.max-parallelism | integer | 4096 | - | build parallelism limit
global-index.column-update-action | enum | THROW_ERROR | - | what updates of indexed columns do
global-index.external-path | string | - | - | root for index files
pk-btree.index.columns | string | - | - | primary-key tables: btree indexed columns
pk-bitmap.index.columns | string | - | - | bitmap indexed columns
pk-multivalue.index.columns | string | - | N | multi-value indexed columns
pk-full-text.index.columns | string | - | - | full-text indexed column
pk-vector.index.columns | string | - | - | vector indexed column

# Format tables, chain tables, materialized tables
format-table.implementation | enum | paimon | - | paimon or engine
format-table.file.compression | string | - | - | codec of format tables
format-table.partition-path-only-value | boolean | false | - | partition directories without key names
format-table.scan.list-parallelism | integer | 64 | - | partition listing threads
format-table.commit-hive-sync-url | string | - | - | metastore to sync on commit
chain-table.enabled | boolean | false | - | chain table mode
chain-table.chain-partition-keys | string | - | - | partition keys that form the chain
chain-table.split.key-range-enabled | boolean | true | - | split buckets by key range
chain-table.streaming.merge-snapshot | boolean | false | - | merge snapshot and delta at stream start
materialized-table.definition-query | string | - | - | defining query
materialized-table.interval-freshness | string | - | - | freshness
materialized-table.interval-freshness.time-unit | enum | - | - | unit
materialized-table.logical-refresh-mode | enum | - | - | logical mode
materialized-table.refresh-mode | enum | - | - | physical mode
materialized-table.refresh-status | enum | - | - | status
materialized-table.refresh-handler-description | string | - | - | handler summary
materialized-table.refresh-handler-bytes | string | - | - | serialized handler

# Iceberg compatibility
metadata.iceberg.storage | enum | disabled | - | table-location, hadoop-catalog, hive-catalog or rest-catalog
metadata.iceberg.storage-location | enum | - | - | table-location or catalog-location; the default follows the storage
metadata.iceberg.format-version | integer | 2 | - | Iceberg format version, 2 or 3
metadata.iceberg.compaction.min.file-num | integer | 10 | - | Iceberg manifests that start a merge
metadata.iceberg.compaction.max.file-num | integer | 50 | - | Iceberg manifests that force a merge
metadata.iceberg.delete-after-commit.enabled | boolean | true | - | remove old Iceberg metadata files
metadata.iceberg.previous-versions-max | integer | 0 | - | old Iceberg metadata files kept
metadata.iceberg.manifest-compression | string | snappy | - | codec of Iceberg manifests
metadata.iceberg.manifest-legacy-version | boolean | false | - | manifest layout of Iceberg 1.4
metadata.iceberg.database | string | - | - | database name in the Iceberg catalog
metadata.iceberg.table | string | - | - | table name in the Iceberg catalog
metadata.iceberg.uri | string | - | - | Hive metastore address
metadata.iceberg.hive-conf-dir | string | - | - | folder of the Hive configuration
metadata.iceberg.hadoop-conf-dir | string | - | - | folder of the Hadoop configuration
metadata.iceberg.hive-client-class | string | - | - | Hive client class
metadata.iceberg.hive-skip-update-stats | boolean | false | - | do not update Hive statistics
metadata.iceberg.glue.skip-archive | boolean | false | - | do not archive Glue table versions
"""

_FAMILIES = (
    ("fields.<column>.aggregate-function", None, "how the column is folded; last_non_null_value under aggregation"),
    ("fields.<columns>.sequence-group", None, "columns that these ordering columns decide"),
    ("fields.<column>.ignore-retract", "false", "retracts leave the column as it is"),
    ("fields.<column>.distinct", "false", "listagg and collect drop duplicates"),
    ("fields.<column>.list-agg-delimiter", ",", "text between the parts of listagg"),
    ("fields.<column>.nested-key", None, "key columns inside a nested table"),
    ("fields.<column>.nested-key-null-strategy", "merge", "null nested keys: merge, ignore or error"),
    ("fields.<column>.nested-sequence-field", None, "order inside a nested table"),
    ("fields.<column>.count-limit", "2147483647", "size limit of a nested table"),
    ("fields.<column>.ts-field", None, "time column of merge_map_with_keytime; the last field by default"),
    ("fields.<column>.stats-mode", None, "statistics of this column; those of the table by default"),
    ("fields.<column>.map.storage-layout", None, "how a MAP column is laid out"),
    ("fields.<column>.map.shared-shredding.max-columns", None, "columns a shredded MAP may take"),
    ("fields.<column>.map.shared-shredding.column-placement-policy", None, "where a shredded MAP puts its columns"),
    ("fields.<column>.pk-vector.index.type", None, "kind of vector index"),
    ("fields.<column>.pk-vector.index.options", None, "its settings as JSON"),
    ("fields.<column>.pk-vector.distance.metric", "inner_product", "distance of the vector index"),
    ("fields.<column>.pk-btree.index.options", None, "settings of the btree index as JSON"),
    ("fields.<column>.pk-bitmap.index.options", None, "settings of the bitmap index as JSON"),
    ("fields.<column>.pk-multivalue.index.options", None, "settings of the multi-value index as JSON"),
    ("fields.<column>.pk-full-text.index.options", None, "settings of the full-text index as JSON"),
    ("file-index.<type>.columns", None, "columns with this file index; m[k] indexes one key of a MAP"),
    ("file-index.<type>.<column>.<setting>", None, "a setting of one file index, such as items or fpp"),
    ("commit.callback.<class>.param", None, "constructor parameter of a commit callback"),
    ("tag.callback.<class>.param", None, "constructor parameter of a tag callback"),
    ("blob-descriptor.<storage option>", None, "storage options for reading blob descriptors"),
    ("parquet.<library option>", None, "handed to the Parquet library"),
    ("orc.<library option>", None, "handed to the ORC library"),
    ("avro.<library option>", None, "handed to the Avro library"),
)

OLD_SPELLINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "blob.stored-descriptor-fields": "blob-descriptor-field",
        "changelog-producer.lookup-wait": "lookup-wait",
        "deduplicate.ignore-delete": "ignore-delete",
        "delete-file.thread-num": "file-operation.thread-num",
        "first-row.ignore-delete": "ignore-delete",
        "log.scan": "scan.mode",
        "log.scan.timestamp-millis": "scan.timestamp-millis",
        "orc.write.batch-size": "write.batch-size",
        "parquet.variant.shreddingSchema": "variant.shreddingSchema",
        "partial-update.ignore-delete": "ignore-delete",
        "sink.clustering.by-columns": "clustering.columns",
        "sink.clustering.strategy": "clustering.strategy",
        "snapshot.expire.clean-empty-directories": "snapshot.clean-empty-directories",
        "write.compaction-skip": "write-only",
    }
)
"""Former key -> current key. (`file.compression` also serves as the default of `format-table.file.compression`.)"""

_ENGINE = """
changelog-producer.compaction-interval changelog.precommit-compact.buffer-size changelog.precommit-compact.thread-num
commit.custom-listeners compaction.bucket-distribution-strategy end-input.watermark
filesystem.job-level-settings.enabled lookup.async lookup.async-thread-number lookup.bootstrap-parallelism
lookup.cache lookup.dynamic-partition.refresh-interval lookup.dynamic-partition.refresh.async lookup.refresh.async
lookup.refresh.async.pending-snapshot-count lookup.refresh.full-load-threshold lookup.refresh.time-periods-blacklist
partition.idle-time-to-done partition.mark-done-action.mode partition.mark-done.recover-from-state
partition.time-interval precommit-compact read.shuffle-bucket-with-partition scan.bounded
scan.dedicated-split-generation scan.infer-parallelism scan.infer-parallelism.max scan.max-snapshot.count
scan.parallelism scan.partitions scan.remove-normalize scan.split-enumerator.batch-size scan.split-enumerator.mode
scan.watermark.alignment.group scan.watermark.alignment.max-drift scan.watermark.alignment.update-interval
scan.watermark.emit.strategy scan.watermark.idle-timeout sink.clustering.sample-factor sink.clustering.sort-in-cluster
sink.committer-cpu sink.committer-memory sink.committer-operator-chaining sink.coordinator-commit.enabled
sink.cross-partition.managed-memory sink.key-only-deletes.enabled sink.managed.writer-buffer-memory
sink.operator-uid.suffix sink.parallelism sink.savepoint.auto-tag sink.use-managed-memory-allocator
sink.writer-coordinator.cache-expire-after-access sink.writer-coordinator.cache-memory
sink.writer-coordinator.cache-soft-values sink.writer-coordinator.enabled sink.writer-coordinator.page-size
sink.writer-coordinator.prefetch-manifests sink.writer-cpu sink.writer-memory sink.writer-refresh-detectors
source.checkpoint-align.enabled source.checkpoint-align.timeout source.operator-uid.suffix
unaware-bucket.compaction.parallelism unaware-bucket.no-shuffle
"""

ENGINE_KEYS: Final[frozenset[str]] = frozenset(_ENGINE.split())
"""Keys of the Flink connector that are often met on tables. Other engines ignore them, so they are not mistakes."""


def _entries() -> dict[str, CatalogEntry]:
    entries: dict[str, CatalogEntry] = {}
    section = ""
    for line in _TABLE.splitlines():
        if line.startswith("#"):
            section = line.removeprefix("#").strip()
        elif line:
            key, type_name, default, flags, doc = line.split(" | ", 4)
            entries[key] = CatalogEntry(
                key=key,
                section=section,
                type_name=type_name,
                default={"-": None, "{}": ""}.get(default, default),
                immutable="I" in flags,
                common="*" in flags,
                newer="N" in flags,
                doc=doc,
            )
    return entries


KNOWN: Final[Mapping[str, CatalogEntry]] = MappingProxyType(_entries())
"""Every plain key of the format, by key, in the order of the reference page."""

FAMILY_ENTRIES: Final[tuple[FamilyEntry, ...]] = tuple(FamilyEntry(*row) for row in _FAMILIES)
FAMILIES: Final[tuple[re.Pattern[str], ...]] = tuple(entry.pattern for entry in FAMILY_ENTRIES)

_FIELD_PREFIX = "fields."
_FIELD_SHAPE = re.compile(r"fields\.<\w+>\.(.+)")
_FIELD_SUFFIXES = tuple(match[1] for entry in FAMILY_ENTRIES if (match := _FIELD_SHAPE.fullmatch(entry.shape)))
_FIELD_SUFFIX_PARTS = max(suffix.count(".") + 1 for suffix in _FIELD_SUFFIXES)


_CHOICES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "bucket-function.type": "default mod hive",
        "changelog-producer": "none input full-compaction lookup",
        "consumer.mode": "exactly-once at-least-once",
        "clustering.incremental.mode": "global-sort local-sort",
        "data-file.external-paths.strategy": "none specific-fs round-robin entropy-inject weight-robin",
        "file.format": "parquet orc avro",
        "format-table.implementation": "paimon engine",
        "incremental-between-scan-mode": "auto delta changelog diff",
        "lookup-compact": "radical gentle",
        "merge-engine": "deduplicate partial-update aggregation first-row",
        "metastore.tag-to-partition.preview": "none process-time watermark batch",
        "partition.expiration-strategy": "values-time update-time",
        "partition.sink-strategy": "none hash partition_dynamic",
        "sequence.field.sort-order": "ascending descending",
        "snapshot.expire.execution-mode": "sync async",
        "sort-compaction.range-strategy": "size quantity",
        "sort-engine": "loser-tree min-heap",
        "tag.automatic-creation": "none process-time watermark batch",
        "tag.creation-period": "daily hourly two-hours",
        "tag.period-formatter": "with_dashes without_dashes without_dashes_and_spaces",
        "variant.shredding.inferenceMode": "per-file adaptive",
        "write.sequence-number-init-mode": "scan snapshot",
    }
)
"""The possible values of keys that take one of a few, as far as they are certain, in the spelling of Paimon.

Paimon accepts any case, but no blanks and no other character between the words: it could not open a table with such a
value.
"""

_LEAST: Final[Mapping[str, int]] = MappingProxyType(
    {
        "commit.max-retries": 0,
        "compaction.min.file-num": 1,
        "dynamic-bucket.target-row-num": 1,
        "local-sort.max-num-file-handles": 1,
        "manifest.merge-min-count": 1,
        "num-levels": 2,
        "num-sorted-run.compaction-trigger": 1,
        "num-sorted-run.stop-trigger": 1,
        "page-size": 1,
        "read.batch-size": 1,
        "snapshot.expire.limit": 1,
        "snapshot.num-retained.max": 1,
        "snapshot.num-retained.min": 1,
        "changelog.num-retained.max": 1,
        "changelog.num-retained.min": 1,
        "source.split.open-file-cost": 0,
        "source.split.target-size": 1,
        "tag.num-retained-max": 1,
        "variant.shredding.maxInferBufferRow": 1,
        "write.batch-size": 1,
    }
)
"""The smallest value of keys where a smaller one would be meaningless."""

_PARSERS: Final[Mapping[str, Callable[[str], object]]] = MappingProxyType(
    {
        "boolean": values.parse_bool,
        "integer": values.parse_int,
        "long": lambda text: values.parse_int(text, bits=64),
        "double": values.parse_float,
        "duration": values.parse_duration,
        "memorysize": values.parse_bytes,
        "map": values.parse_map,
    }
)
_LOOSE: Final = frozenset({"parquet.enable.dictionary"})
"""Keys whose readers accept more than the type says."""


def check_values(options: Mapping[str, str]) -> None:
    """Check the value of every key that is known: its type, its range, its choices. Other keys are not checked.

    Raises:
        InvalidInputError: (``option-value``) when one is not of the form its key takes.
    """
    checked = declared.check_declared(options)
    for key, text in options.items():
        problem = _value_problem(current_spelling(key), text, typed=key not in checked)
        if problem is not None:
            raise InvalidInputError(
                "option has a value of the wrong form",
                code="option-value",
                key=key,
                value=text[:80],
                expected=problem,
                hint=f"give {key} {problem}",
            )


def _value_problem(key: str, text: str, *, typed: bool) -> str | None:
    """The expected form, if the text does not have it."""
    entry = KNOWN.get(key)
    if entry is None or key in _LOOSE:
        return None
    choices = _CHOICES.get(key, "").split()
    if choices and text.lower() not in choices:
        return "one of " + ", ".join(choices)
    parse = _PARSERS.get(entry.type_name)
    if parse is None or not (typed or key in _LEAST):
        return None
    try:
        value = parse(text)
    except ValueError as error:
        return str(error)
    least = _LEAST.get(key)
    return f"at least {least}" if least is not None and isinstance(value, int) and value < least else None


def is_known(key: str) -> bool:
    """Whether the key means something to the format, to an engine that shares tables with us, or to tidelake."""
    return not unknown_keys((key,))


def is_immutable(key: str) -> bool:
    """Whether the key, in any spelling, may not change once a table has snapshots."""
    entry = KNOWN.get(current_spelling(key))
    return entry is not None and entry.immutable


def current_spelling(key: str) -> str:
    """The key that replaced an older one; any other key as it is."""
    return OLD_SPELLINGS.get(key, key)


def nearest(key: str) -> str | None:
    """The known key that is spelled most like `key`, or None. A wrong `fields.<column>` ending gets the right one."""
    if (hint := _nearest_of_field(key)) is not None:
        return hint
    names = {*KNOWN, *(spec.key for spec in declared.all_options())}
    return declared.nearest(key, sorted(names))


def _nearest_of_field(key: str) -> str | None:
    # Column names and endings may both contain dots, so each of the last dots could separate the two.
    parts = key.removeprefix(_FIELD_PREFIX).split(".") if key.startswith(_FIELD_PREFIX) else []
    borders = range(max(1, len(parts) - _FIELD_SUFFIX_PARTS), len(parts))
    tails = {".".join(parts[border:]): ".".join(parts[:border]) for border in borders}
    found = [(tail, suffix) for tail in tails if (suffix := declared.nearest(tail, _FIELD_SUFFIXES)) is not None]
    if not found:
        return None
    tail, suffix = max(found, key=lambda pair: difflib.SequenceMatcher(None, *pair).ratio())
    return f"{_FIELD_PREFIX}{tails[tail]}.{suffix}"


def unknown_keys(options: Iterable[str]) -> tuple[UnknownKey, ...]:
    """The unknown keys, each with the nearest known one, in the order given. For warnings only."""
    known = {*KNOWN, *OLD_SPELLINGS, *ENGINE_KEYS}
    strangers = declared.unknown_keys(options, known=known, families=FAMILIES)
    return tuple(UnknownKey(stranger.key, nearest(stranger.key)) for stranger in strangers)
