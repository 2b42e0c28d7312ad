"""What a writer takes over when it opens buckets: live files and their vectors, bucket counts, sequence numbers.

All buckets of a block are looked up at once, from one state of the table. Nothing but metadata is read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import FormatError
from tidelake.ops.commit.loop import SEQUENCE_PROPERTY
from tidelake.ops.commit.options import TableShape
from tidelake.ops.compact.vectors import index_files_of
from tidelake.ops.scan.partitions import PartitionSet
from tidelake.ops.scan.plan import data_manifests, live_entries
from tidelake.ops.write.routing import Place
from tidelake.spec.data_file import DataFile, data_files
from tidelake.spec.index_manifest import IndexFile
from tidelake.spec.snapshot import Snapshot
from tidelake.store.table_store import TableStore


@dataclass(frozen=True, slots=True)
class Restored:
    """A bucket as it was found."""

    files: tuple[DataFile, ...] = ()
    total_buckets: int | None = None
    """The bucket count of its partition, None where that has no files."""
    next_sequence: int = 0
    indexes: tuple[IndexFile, ...] = ()
    """The index files with the deletion vectors of its files."""


def ignores_files(snapshot: Snapshot | None, options: Mapping[str, str], *, overwrite: bool) -> bool:
    """Whether a writer has no use for the files that are there.

    An overwrite replaces them. A writer that never compacts needs only their greatest sequence number, and the snapshot
    tells it where the table keeps it there.
    """
    shape = TableShape.parse(options)
    told = snapshot is None or SEQUENCE_PROPERTY in snapshot.properties
    return overwrite or (shape.write_only and shape.sequence_from_snapshot and told)


def restore_places(
    store: TableStore,
    snapshot: Snapshot | None,
    places: Collection[Place],
    options: Mapping[str, str],
    *,
    overwrite: bool = False,
) -> dict[Place, Restored]:
    """The buckets as a snapshot has them.

    Raises:
        FormatError: the metadata of the table is damaged.
    """
    files: defaultdict[Place, list[DataFile]] = defaultdict(list)
    totals: dict[bytes, int] = {}
    indexes: dict[Place, tuple[IndexFile, ...]] = {}
    if snapshot is not None and not ignores_files(snapshot, options, overwrite=overwrite):
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
    floor = -1 if overwrite else _told(snapshot, options)
    found = {}
    for place in places:
        live = tuple(files[place])
        top = max((file.max_sequence for file in live), default=-1)
        found[place] = Restored(live, totals.get(place[0]), max(top, floor) + 1, indexes.get(place, ()))
    return found


def sequence_floors(
    store: TableStore, snapshot: Snapshot | None, partitions: frozenset[bytes], options: Mapping[str, str]
) -> Callable[[Place], int]:
    """The greatest sequence number of every bucket of some partitions at a snapshot; -1 where there is none.

    Raises:
        FormatError: the metadata of the table is damaged.
    """
    told = _told(snapshot, options)
    if snapshot is None:
        return lambda _: told
    chosen = PartitionSet(partitions, tuple(store.schema.partition_types))
    columns = ("partition", "bucket", "max_sequence")
    metas = data_manifests(store.manifests, snapshot)
    entries = live_entries(store.manifests, metas, partitions=chosen, columns=columns)
    grouped = entries.group_by(["partition", "bucket"], use_threads=False).aggregate([("max_sequence", "max")])
    rows = (grouped.column(name).to_pylist() for name in ("partition", "bucket", "max_sequence_max"))
    tops = {(partition, bucket): max(top, told) for partition, bucket, top in zip(*rows, strict=True)}
    return lambda place: tops.get(place, told)


def _totals(entries: pa.Table) -> dict[bytes, int]:
    counted = entries.filter(pc.greater(entries.column("total_buckets"), 0))
    grouped = counted.group_by("partition", use_threads=False).aggregate([("total_buckets", "max")])
    pairs = zip(grouped.column("partition").to_pylist(), grouped.column("total_buckets_max").to_pylist(), strict=True)
    return dict(pairs)


def _told(snapshot: Snapshot | None, options: Mapping[str, str]) -> int:
    """The greatest sequence number that the snapshot tells of, where sequence numbers start from it."""
    if snapshot is None or not TableShape.parse(options).sequence_from_snapshot:
        return -1
    told = snapshot.properties.get(SEQUENCE_PROPERTY)
    try:
        return -1 if told is None else int(told)
    except ValueError as cause:
        raise FormatError(
            "snapshot property is not a number", property=SEQUENCE_PROPERTY, value=ascii(told[:40] if told else told)
        ) from cause
