"""The state of buckets that a writer opens: live files and their vectors, bucket counts, sequence numbers.

All buckets of a block are read together, from one snapshot. Only metadata is read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import FormatError
from tidelake.ops.commit.loop import SEQUENCE_PROPERTY
from tidelake.ops.commit.options import TableShape
from tidelake.ops.scan.partitions import PartitionSet
from tidelake.ops.scan.plan import data_manifests, live_entries
from tidelake.ops.vectors.vector_writer import index_files_of
from tidelake.options import TableOptions
from tidelake.spec.data_file import DataFile, data_files
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.manifests.index_manifest import IndexFile
from tidelake.spec.rows.bucket_function import PartitionBucket
from tidelake.store.table_store import TableStore


@dataclass(frozen=True, slots=True)
class Restored:
    """The state of a bucket at a snapshot."""

    files: tuple[DataFile, ...] = ()
    total_buckets: int | None = None
    """The bucket count of its partition; None if the partition has no files."""
    next_sequence: int = 0
    indexes: tuple[IndexFile, ...] = ()
    """The index files with the deletion vectors of its files."""


def ignores_files(snapshot: Snapshot | None, options: TableOptions, *, overwrite: bool, compacts: bool) -> bool:
    """Whether a writer does not need the existing files.

    An overwrite replaces them. A writer that never compacts needs only their greatest sequence number, and the snapshot
    has it if the table's options say so.
    """
    shape = options.of(TableShape)
    recorded = snapshot is None or SEQUENCE_PROPERTY in snapshot.properties
    return overwrite or (not compacts and shape.sequence_from_snapshot and recorded)


def restore_places(
    store: TableStore,
    snapshot: Snapshot | None,
    places: Collection[PartitionBucket],
    options: TableOptions,
    *,
    overwrite: bool = False,
    compacts: bool = True,
) -> dict[PartitionBucket, Restored]:
    """Read the state of buckets at a snapshot.

    Raises:
        FormatError: the metadata of the table is damaged.
    """
    files: defaultdict[PartitionBucket, list[DataFile]] = defaultdict(list)
    totals: dict[bytes, int] = {}
    indexes: dict[PartitionBucket, tuple[IndexFile, ...]] = {}
    if snapshot is not None and not ignores_files(snapshot, options, overwrite=overwrite, compacts=compacts):
        partitions = frozenset(partition for partition, _ in places)
        chosen = PartitionSet(partitions, tuple(store.schema.partition_types))
        entries = live_entries(store.manifests, data_manifests(store.manifests, snapshot), partitions=chosen)
        totals = _totals(entries)
        numbers = pa.array(sorted({bucket for _, bucket in places}), entries.schema.field("bucket").type)
        here = entries.filter(pc.is_in(entries.column("bucket"), value_set=numbers))
        owners = zip(here.column("partition").to_pylist(), here.column("bucket").to_pylist(), strict=True)
        for place, file in zip(owners, data_files(here), strict=True):
            files[place].append(file)
        indexes = index_files_of(store, snapshot)
    floor = -1 if overwrite else _read_recorded_sequence(snapshot, options)
    found = {}
    for place in places:
        live = tuple(files[place])
        top = max((file.max_sequence for file in live), default=-1)
        found[place] = Restored(live, totals.get(place[0]), max(top, floor) + 1, indexes.get(place, ()))
    return found


def sequence_floors(
    store: TableStore, snapshot: Snapshot | None, partitions: frozenset[bytes], options: TableOptions
) -> Callable[[PartitionBucket], int]:
    """The greatest sequence number of every bucket of some partitions at a snapshot; -1 for a bucket without files.

    Raises:
        FormatError: the metadata of the table is damaged.
    """
    recorded = _read_recorded_sequence(snapshot, options)
    if snapshot is None:
        return lambda _: recorded
    chosen = PartitionSet(partitions, tuple(store.schema.partition_types))
    columns = ("partition", "bucket", "max_sequence")
    metas = data_manifests(store.manifests, snapshot)
    entries = live_entries(store.manifests, metas, partitions=chosen, columns=columns)
    grouped = entries.group_by(["partition", "bucket"], use_threads=False).aggregate([("max_sequence", "max")])
    rows = (grouped.column(name).to_pylist() for name in ("partition", "bucket", "max_sequence_max"))
    tops = {(partition, bucket): max(top, recorded) for partition, bucket, top in zip(*rows, strict=True)}
    return lambda place: tops.get(place, recorded)


def _totals(entries: pa.Table) -> dict[bytes, int]:
    counted = entries.filter(pc.greater(entries.column("total_buckets"), 0))
    grouped = counted.group_by("partition", use_threads=False).aggregate([("total_buckets", "max")])
    pairs = zip(grouped.column("partition").to_pylist(), grouped.column("total_buckets_max").to_pylist(), strict=True)
    return dict(pairs)


def _read_recorded_sequence(snapshot: Snapshot | None, options: TableOptions) -> int:
    """The greatest sequence number that the snapshot records, if sequence numbers start from it; else -1."""
    if snapshot is None or not options.of(TableShape).sequence_from_snapshot:
        return -1
    text = snapshot.properties.get(SEQUENCE_PROPERTY)
    try:
        return -1 if text is None else int(text)
    except ValueError as cause:
        raise FormatError(
            "snapshot property is not a number", property=SEQUENCE_PROPERTY, value=ascii(text[:40] if text else text)
        ) from cause
