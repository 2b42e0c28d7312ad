"""Check where the keys of a primary-key table are. Reads hash indexes and keys of live files, changes nothing.

I6  a key is in one bucket: its hash is in the index of one dynamic bucket of its partition, and the index of a bucket
    has the hashes of all its keys; a key that may move between partitions is in one of them
I13 rows are in the partition and the bucket they belong to
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations

import numpy as np
import pyarrow as pa

from tidelake.errors import FormatError, TidelakeError
from tidelake.index.hash_index import Hashes
from tidelake.ops.context import TableContext
from tidelake.ops.maintain.finding import Finding, Severity
from tidelake.ops.maintain.row_places import rows_in_bucket, rows_in_partition
from tidelake.ops.placement.cross_partition import MovingKeys
from tidelake.ops.placement.dynamic_buckets import hash_entries, load_hashes
from tidelake.ops.read.append import ReadRequest, read_data_file
from tidelake.ops.scan.options import SplitOptions
from tidelake.ops.scan.plan import data_manifests, live_entries
from tidelake.ops.scan.planner import splits_of
from tidelake.ops.scan.split import Split
from tidelake.options import TableOptions
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.manifests.index_manifest import IndexFile
from tidelake.spec.rows.binary_hash import hash_rows
from tidelake.spec.schemas.bucket_mode import BucketMode, bucket_mode
from tidelake.spec.schemas.schema import Schema
from tidelake.store.table_store import TableStore

__all__ = ["check_hash_indexes", "check_keys"]

_SHOWN = 10
"""Hashes that a finding lists for each pair of buckets."""
_Indexes = Mapping[bytes, Mapping[int, IndexFile]]


def _mode(context: TableContext) -> BucketMode | None:
    """How keys get their bucket; None where the option is wrong, which is not reported here."""
    try:
        return bucket_mode(context.schema, context.table_options)
    except TidelakeError:
        return None


# ------------------------------------------------------------------------------------------------ indexes alone


def check_hash_indexes(
    context: TableContext, snapshot: Snapshot, state: pa.Table, seen: set[tuple[str, ...]]
) -> Iterator[Finding]:
    """What is wrong with the hash indexes of a snapshot with these live files; partitions in `seen` were looked at."""
    if _mode(context) is not BucketMode.DYNAMIC:
        return
    store, paths = context.store, context.paths
    place = store.layout.snapshot_path(snapshot.id)
    entries = () if snapshot.index_manifest is None else store.manifests.read_index(snapshot.index_manifest)
    try:
        indexes: _Indexes = hash_entries(entries)
    except FormatError as error:
        yield _error("I6", str(error), place)
        return
    grouped = state.group_by(["partition", "bucket"], use_threads=False).aggregate([])
    for partition, bucket in zip(*(grouped.column(name).to_pylist() for name in ("partition", "bucket")), strict=True):
        if bucket not in indexes.get(partition, {}):
            yield _error("I6", "bucket has rows and no hash index", paths.bucket(partition, bucket))
    for partition, files in indexes.items():
        names = tuple(file.file_name for _, file in sorted(files.items()))
        if names not in seen:
            seen.add(names)
            yield from _check_twice(store, files, paths.partition(partition) or place)


def _check_twice(store: TableStore, files: Mapping[int, IndexFile], place: str) -> Iterator[Finding]:
    hashes: dict[int, Hashes] = {}
    for bucket, file in sorted(files.items()):
        try:
            hashes |= load_hashes(store, {bucket: file})
        except FormatError as error:
            yield _error("I2", str(error), place)
    whole = np.concatenate([np.empty(0, np.int32), *hashes.values()])
    if len(np.unique(whole)) == len(whole):
        return
    for first, second in combinations(hashes, 2):
        both = np.intersect1d(hashes[first], hashes[second], assume_unique=True)
        if len(both):
            shown = ", ".join(map(str, both[:_SHOWN].tolist()))
            yield _error("I6", f"{len(both)} key hashes are in bucket {first} and in bucket {second}: {shown}", place)


# ------------------------------------------------------------------------------------------------ keys


def check_keys(context: TableContext, *, every_snapshot: bool = False) -> tuple[Finding, ...]:
    """What is wrong with the places of keys at the newest snapshot, or at every one that is kept.

    Manifests, snapshots and files that cannot be read are skipped, because other checks report them.
    """
    if not context.is_keyed:
        return ()
    store, mode = context.store, _mode(context)
    findings: list[Finding] = []
    seen: set[tuple[str, str | None]] = set()
    for snapshot_id in reversed(store.snapshots.ids()):
        try:
            snapshot = store.snapshots.get(snapshot_id)
            entries = live_entries(store.manifests, data_manifests(store.manifests, snapshot))
            named = () if snapshot.index_manifest is None else store.manifests.read_index(snapshot.index_manifest)
            indexes: _Indexes = hash_entries(named) if mode is BucketMode.DYNAMIC else {}
        except TidelakeError:
            continue
        for split in splits_of(entries, snapshot_id, context.paths, SplitOptions(), None):
            findings += _check_split(context, split, indexes.get(split.partition, {}).get(split.bucket), seen)
        if mode is BucketMode.CROSS_PARTITION:
            findings += _check_moving(context, snapshot)
        if not every_snapshot:
            break
    return tuple(findings)


def _check_split(
    context: TableContext, split: Split, index: IndexFile | None, seen: set[tuple[str, str | None]]
) -> Iterator[Finding]:
    if split.bucket < 0:
        return
    store = context.store
    known: Hashes | None = None
    for file in split.files:
        look = (split.path_of(file), None if index is None else index.file_name)
        if look in seen or file.external_path is not None:
            continue
        seen.add(look)
        try:
            schema = store.schemas.get(file.schema_id)
            if index is not None and known is None:
                known = load_hashes(store, {split.bucket: index})[split.bucket]
            columns = tuple(dict.fromkeys((*schema.partition_keys, *schema.primary_keys)))
            request = ReadRequest(schema=schema, columns=columns)
            batches = read_data_file(store, split, file, request)
            wrong = [_count_misplaced(context, schema, split, batch, known) for batch in batches]
        except TidelakeError:
            continue
        if any(partition for partition, *_ in wrong):
            yield _error("I13", "rows belong to another partition", look[0])
        if any(bucket for _, bucket, _ in wrong):
            yield _error("I13", "rows belong to another bucket", look[0])
        lacking = sum(count for *_, count in wrong)
        if lacking:
            yield _error("I6", f"{lacking} keys are not in the hash index of bucket {split.bucket}", look[0])


def _count_misplaced(
    context: TableContext, schema: Schema, split: Split, batch: pa.RecordBatch, known: Hashes | None
) -> tuple[bool, bool, int]:
    """Whether rows are of another partition, of another bucket, and how many are not in the index of theirs."""
    lacking = 0 if known is None else int((~np.isin(_hashes(schema, batch), known)).sum())
    return not rows_in_partition(schema, split, batch), not rows_in_bucket(context, schema, split, batch), lacking


def _hashes(schema: Schema, batch: pa.RecordBatch) -> Hashes:
    keys = schema.trimmed_primary_keys
    return hash_rows([batch.column(name) for name in keys], [schema.field(name).type for name in keys])


def _check_moving(context: TableContext, snapshot: Snapshot) -> Iterator[Finding]:
    """Whether a key is in two partitions, or in two buckets of one."""
    options = TableOptions({key: value for key, value in context.table_options.items() if key != _TTL})
    try:
        MovingKeys(replace(context, options=options), snapshot).load()
    except FormatError as error:
        if error.code == "key-twice":
            yield _error("I6", str(error), context.store.layout.snapshot_path(snapshot.id))
    except TidelakeError:
        return


_TTL = "cross-partition-upsert.index-ttl"


def _error(invariant: str, message: str, place: str) -> Finding:
    return Finding(invariant, Severity.ERROR, message, place)
