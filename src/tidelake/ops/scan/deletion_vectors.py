"""The deletion vectors of a snapshot, for the files that are read.

The index manifest is read as a table; Python values are made only for files that are read and have a vector.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import FormatError
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.manifests.index_manifest import VECTORS, DeletionVectorRange
from tidelake.spec.rows.bucket_function import PartitionBucket
from tidelake.store.deletion_vectors import FileVector
from tidelake.store.manifests import ManifestStore
from tidelake.store.paths import DataPaths

__all__ = ["deleted_counts", "file_vectors", "snapshot_vectors"]


def snapshot_vectors(store: ManifestStore, snapshot: Snapshot) -> pa.Table | None:
    """The deletion vectors of a snapshot as a table of `index_manifest.VECTORS`; None if it has none.

    Raises:
        FormatError: its index manifest is missing or damaged.
    """
    if snapshot.index_manifest is None:
        return None
    found = store.read_vectors(snapshot.index_manifest)
    return found if found.num_rows else None


def file_vectors(
    vectors: pa.Table, file_names: pa.ChunkedArray, paths: DataPaths
) -> dict[PartitionBucket, dict[str, FileVector]]:
    """The vectors of data files with these names, by partition and bucket, then by file name.

    Raises:
        FormatError: a data file has two of them.
    """
    near = vectors.filter(pc.is_in(vectors.column("data_file"), value_set=file_names.combine_chunks()))
    found: dict[PartitionBucket, dict[str, FileVector]] = {}
    columns = (near.column(name).to_pylist() for name in VECTORS.names)
    for partition, bucket, name, size, external, data_file, offset, length, cardinality in zip(*columns, strict=True):
        of_bucket = found.setdefault((partition, bucket), {})
        if data_file in of_bucket:
            raise FormatError("data file has two deletion vectors", data_file=data_file, index_file=name, bucket=bucket)
        where = DeletionVectorRange(data_file, offset, length, cardinality)
        of_bucket[data_file] = FileVector(paths.index(partition, bucket, name), size, where, external)
    return found


def deleted_counts(entries: pa.Table, vectors: pa.Table | None) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """An upper bound of the deleted rows of each entry's file; all its rows if the number is unknown."""
    rows = entries.column("row_count").to_numpy()
    if vectors is None or not entries.num_rows:
        return np.zeros(len(rows), np.int64)
    # Files with one name in several buckets, which no writer makes, would share their deletions; that is safe.
    unknown = pc.fill_null(vectors.column("cardinality"), np.iinfo(np.int32).max)
    sums = (
        pa.table({"name": vectors.column("data_file"), "rows": unknown})
        .group_by("name", use_threads=False)
        .aggregate([("rows", "sum")])
    )
    places = pc.index_in(entries.column("file_name"), value_set=sums.column("name").combine_chunks())
    found = pc.fill_null(sums.column("rows_sum").take(places.combine_chunks()), 0).to_numpy()
    least: np.ndarray[tuple[int], np.dtype[np.int64]] = np.minimum(found, rows)
    return least
