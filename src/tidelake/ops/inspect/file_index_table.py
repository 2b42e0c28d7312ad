"""`t$file_indexes`: what the file indexes of live data files list. Newer than release 2.0.0, with the columns of 2.1.

An index inside the manifest costs no read. Of one in a file of its own only the head is read, several at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import FormatError, NotFoundError
from tidelake.index.file_index import HEAD_BYTES_MAX, FileIndexEntry, parse_head
from tidelake.io.fileio import FileIO
from tidelake.ops.context import TableContext
from tidelake.ops.inspect.columns import make_table
from tidelake.ops.inspect.file_tables import file_addresses, live_files, partition_texts
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.store.external import open_external

__all__ = ["file_indexes_table"]

_SUFFIX = ".index"
_COLUMNS = (
    *("partition", "bucket", "file_name", "external_path", "file_size", "row_count", "schema_id"),
    *("extra_files", "embedded_index"),
)
_FIRST_BYTES = 4 << 10
"""Bytes that are read of an index file at first; most heads are shorter."""


@dataclass(frozen=True, slots=True)
class _Container:
    """The indexes of one data file."""

    entries: tuple[FileIndexEntry, ...]
    storage: str
    address: str | None
    size: int


def file_indexes_table(context: TableContext, snapshot: Snapshot | None) -> pa.Table:
    """One row per index of a column of a live data file.

    Raises:
        FormatError: an index is damaged, or missing.
    """
    entries = live_files(context.store, snapshot, _COLUMNS)
    entries = entries.filter(_has_index(entries))
    rows = entries.select(["file_name", "external_path", "extra_files", "embedded_index"]).to_pylist()
    addresses = file_addresses(context, entries)
    places = list(zip(rows, addresses.to_pylist(), strict=True))
    beside = [place for place in places if place[0]["embedded_index"] is None]
    read = iter(context.store.env.executor.map(partial(_read_container, context), beside))
    found = [next(read) if row["embedded_index"] is None else _parse_embedded(row, address) for row, address in places]
    # One row per index: the columns of a file are repeated for each of them.
    repeated = pa.array([number for number, each in enumerate(found) for _ in each.entries], pa.int64())
    listed = [(container, entry) for container in found for entry in container.entries]
    files = entries.take(repeated)
    return make_table(
        "file_indexes",
        {
            "partition": partition_texts(context.store, files.column("partition")),
            "bucket": files.column("bucket"),
            "file_path": addresses.take(repeated),
            "file_size_in_bytes": files.column("file_size"),
            "record_count": files.column("row_count"),
            "schema_id": files.column("schema_id"),
            "column_name": [entry.column for _, entry in listed],
            "index_type": [entry.kind for _, entry in listed],
            "storage_type": [container.storage for container, _ in listed],
            "index_file_path": [container.address for container, _ in listed],
            "index_size_in_bytes": [entry.size for _, entry in listed],
            "index_container_size_in_bytes": [container.size for container, _ in listed],
            "is_empty": [entry.is_empty for _, entry in listed],
        },
    )


def _has_index(entries: pa.Table) -> pa.BooleanArray:
    extra = entries.column("extra_files").combine_chunks()
    rows = pc.list_parent_indices(extra)
    indexed = rows.filter(pc.ends_with(pc.list_flatten(extra), pattern=_SUFFIX))
    numbers = pa.array(range(entries.num_rows), rows.type)
    beside = pc.is_in(numbers, value_set=indexed.combine_chunks() if isinstance(indexed, pa.ChunkedArray) else indexed)
    return pc.or_(beside, pc.is_valid(entries.column("embedded_index").combine_chunks()))


def _parse_embedded(row: dict[str, Any], address: str) -> _Container:
    data: bytes = row["embedded_index"]
    return _Container(parse_head(data, path=address), "EMBEDDED", None, len(data))


def _read_container(context: TableContext, place: tuple[dict[str, Any], str]) -> _Container:
    row, address = place
    names = [name for name in row["extra_files"] if name.endswith(_SUFFIX)]
    if len(names) > 1:
        raise FormatError("data file has more than one file index", path=address, indexes=", ".join(names))
    beside = f"{address.rpartition('/')[0]}/{names[0]}"
    io, path = _open(context, beside, external=row["external_path"] is not None)
    try:
        size = io.status(path).size
        head = io.read_range(path, 0, min(size, _FIRST_BYTES))
        length = int.from_bytes(head[12:16], "big")
        if len(head) < length <= min(size, HEAD_BYTES_MAX):
            head = io.read_range(path, 0, length)
    except NotFoundError as cause:
        raise FormatError("file index is missing", code="file-missing", path=beside) from cause
    return _Container(parse_head(head, path=beside), "FILE", beside, size)


def _open(context: TableContext, address: str, *, external: bool) -> tuple[FileIO, str]:
    io = context.store.env.io
    if external:
        return open_external(io, context.store.schema.options, address)
    return io, address.removeprefix("file:").removeprefix(io.root.rstrip("/") + "/")
