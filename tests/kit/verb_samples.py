"""Small files, messages and tables to test the verbs with."""

from __future__ import annotations

import itertools

import tidelake as tl
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.io.memory import MemoryFileIO
from tidelake.ops.commit.messages import CommitMessage, CompactIncrement, DataIncrement
from tidelake.spec.data_file import DataFile
from tidelake.spec.rows.binary_row_scalar import encode_row
from tidelake.spec.types.data_types import INT, STRING, with_nullable
from tidelake.table import Table
from tidelake.testing import FakeClock

KEY = [with_nullable(INT, False)]
_numbers = itertools.count()


def key(value: int) -> bytes:
    return encode_row([value], KEY)


def day(name: str | None) -> bytes:
    return encode_row([name], [STRING])


def new_file(
    name: str | None = None, *, level: int = 0, keys: tuple[int, int] | None = None, **more: object
) -> DataFile:
    low, high = (key(k) for k in keys) if keys else (bytes(12), bytes(12))
    facts: dict[str, object] = {"file_size": 10, "row_count": 1, **more}
    return DataFile(
        file_name=name or f"data-{next(_numbers)}.parquet",
        level=level,
        min_key=low,
        max_key=high,
        **facts,  # type: ignore[arg-type]
    )


def added(*files: DataFile, partition: bytes = bytes(12), bucket: int = 0, total: int = -1) -> CommitMessage:
    return CommitMessage(partition=partition, bucket=bucket, total_buckets=total, data=DataIncrement(new_files=files))


def compacted(
    before: tuple[DataFile, ...], after: tuple[DataFile, ...], *, partition: bytes = bytes(12), total: int = -1
) -> CommitMessage:
    return CommitMessage(
        partition=partition, bucket=0, total_buckets=total, compact=CompactIncrement(before=before, after=after)
    )


def table(
    *, partitioned: bool = False, keyed: bool = False, options: dict[str, str] | None = None, seed: int = 1
) -> Table:
    """An empty table in memory; with a fake clock, so that nothing waits."""
    clock = FakeClock()
    env = Env(MemoryFileIO(clock=clock), clock=clock, ids=SeededIds(seed))
    columns = {"id": "INT NOT NULL", "dt": "STRING", "v": "STRING"}
    return tl.Lake(FileSystemCatalog(env)).create_table(
        "db.t",
        columns,
        primary_key=["id"] if keyed else [],
        partition_by=["dt"] if partitioned else [],
        options={"bucket": "1"} | (options or {}) if keyed else options or {},
    )


def names(t: Table) -> set[str]:
    return set(t.files(columns=["file_name"]).column("file_name").to_pylist())
