"""Small tables and messages for the tests of the verbs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import CommitMessage, CompactIncrement, DataIncrement
from tidelake.ops.context import make_context
from tidelake.spec.data_file import DataFile
from tidelake.spec.manifests.index_manifest import DELETION_VECTORS, DeletionVectorRange, IndexEntry, IndexFile
from tidelake.spec.rows.binary_row_scalar import encode_row
from tidelake.spec.types.data_types import INT, STRING
from tidelake.table import Table, load_table
from tidelake.testing import FakeClock, MemoryFileIO


def new_table(*, keyed: bool = False, **options: str) -> Table:
    """A table partitioned by dt; options are given with underscores for dots and dashes as they are."""
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000), SeededIds(1))))
    columns = {"id": "INT NOT NULL", "dt": "STRING", "v": "STRING"}
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    if keyed:
        columns["dt"] = "STRING NOT NULL"
        given = {"bucket": "2", **given}
    keys = ["dt", "id"] if keyed else []
    return lake.create_table("db.t", columns, partition_by=["dt"], primary_key=keys, options=given)


def with_foreign_options(table: Table, options: Mapping[str, str]) -> Table:
    """The table after another writer put options into its newest schema, which may be ones that we refuse."""
    path = table.store.layout.schema_path(table.schema.id)
    document = json.loads(table.store.env.io.read(path))
    document["options"] |= options
    table.store.env.io.overwrite(path, json.dumps(document).encode())
    return table.reload()


def row(value: str | None) -> bytes:
    """The partition dt=value."""
    return encode_row([value], [STRING])


def key(value: int) -> bytes:
    return encode_row([value], [INT])


def file(name: str, **fields: Any) -> DataFile:
    return DataFile(**{"file_name": name, "file_size": 100, "row_count": 10, **fields})


def ranged(name: str, low: int, high: int, *, level: int = 1, **fields: Any) -> DataFile:
    """A file of a keyed table with keys from low to high."""
    return file(name, min_key=key(low), max_key=key(high), level=level, **fields)


def message(
    *new: DataFile | str,
    dt: str | None = "d1",
    bucket: int = 0,
    total: int | None = -1,
    base: int | None = None,
    **data: Any,
) -> CommitMessage:
    """New files in one bucket; other lists of a write by their names."""
    files = tuple(file(each) if isinstance(each, str) else each for each in new)
    return CommitMessage(
        partition=row(dt),
        bucket=bucket,
        total_buckets=total,
        data=DataIncrement(new_files=files, **data),
        base_snapshot_id=base,
    )


def compaction(
    before: tuple[DataFile, ...],
    after: tuple[DataFile, ...],
    *,
    dt: str = "d1",
    bucket: int = 0,
    total: int | None = -1,
) -> CommitMessage:
    return CommitMessage(
        partition=row(dt), bucket=bucket, total_buckets=total, compact=CompactIncrement(before=before, after=after)
    )


def vectors(name: str, *data_files: str) -> IndexFile:
    """An index file with the deletion vectors of these data files."""
    ranges = tuple(DeletionVectorRange(each, 1, 22, 1) for each in data_files)
    return IndexFile(
        index_type=DELETION_VECTORS, file_name=name, file_size=30, row_count=len(ranges), deletion_vectors=ranges
    )


def index_entry(index_file: IndexFile, *, dt: str = "d1", bucket: int = 0) -> IndexEntry:
    return IndexEntry(row(dt), bucket, index_file)


def committer(table: Table, user: str = "u", **kwargs: Any) -> Committer:
    return Committer(make_context("t", table.store, {}), user, **kwargs)


def names(table: Table, **where: Any) -> list[str]:
    """The names of the live files, sorted."""
    return sorted(table.files(columns=["file_name"], **where).column("file_name").to_pylist())


def other_handle(table: Table) -> Table:
    """The same table as another job sees it: nothing shared but the storage."""
    return load_table(replace(table.store.env, ids=SeededIds(99)), table.name)
