"""What tests of streaming sinks share: a folder that a stream reads file by file, and queries that run to its end."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import tidelake as tl
from tidelake.table import Table

SCHEMA = "id bigint, p string, v bigint, s string"
COLUMNS = {"id": "BIGINT NOT NULL", "p": "STRING NOT NULL", "v": "BIGINT", "s": "STRING"}
_ARROW = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.int64()), ("s", pa.string())])
_FIRST_S = 1_700_000_000


@dataclass(slots=True)
class Feed:
    """A folder of files; a stream reads one of them in each batch, in their order."""

    folder: Path
    files: list[pa.Table] = field(default_factory=list)

    def add(self, rows: Sequence[tuple[Any, ...]] | pa.Table) -> pa.Table:
        """Add a file with these rows."""
        data = rows
        if not isinstance(data, pa.Table):
            columns = zip(*data, strict=True) if data else [()] * len(_ARROW)
            data = pa.table([pa.array(each, kind) for each, kind in zip(columns, _ARROW.types, strict=True)], _ARROW)
        self.folder.mkdir(exist_ok=True)
        number = len(self.files)
        hidden, path = self.folder / f".{number:04}", self.folder / f"{number:04}.parquet"
        pq.write_table(data, hidden)
        os.utime(hidden, (_FIRST_S + number, _FIRST_S + number))
        hidden.rename(path)
        self.files.append(data)
        return data

    def stream(self, spark: Any, schema: str = SCHEMA, per_batch: int = 1) -> Any:
        """A streaming frame of the files."""
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", per_batch)
        return reader.parquet(str(self.folder))


def run_stream(frame: Any, table: Table, checkpoint: Path, **how: Any) -> Any:
    """Write all that is there to a table with `stream_to`; the query, which has ended."""
    query = tl.stream_to(frame, table, checkpoint=checkpoint, trigger="availableNow", **how)
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return query


def run_source_sink(frame: Any, table: Table, checkpoint: Path, mode: str = "append", **options: str) -> Any:
    """Write all that is there to a table with the data source; the query, which has ended."""
    writer = frame.writeStream.format("tidelake").outputMode(mode).option("checkpointLocation", str(checkpoint))
    query = writer.options(**options).trigger(availableNow=True).start(table.location)
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return query


Run = Callable[..., Any]
"""`run_stream` or `run_source_sink`."""


def forget_commit(checkpoint: Path, batch: int) -> None:
    """Make Spark forget that a batch is done, as if the driver had died before it noted that."""
    for name in (f"{batch}", f".{batch}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=name.startswith("."))


def copy_checkpoint(source: Path, target: Path) -> None:
    """Replace a checkpoint by another."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


def content(table: Table) -> list[Mapping[str, Any]]:
    """The rows of the newest state, in a fixed order."""
    rows = table.reload().to_arrow()
    return sorted(rows.to_pylist(), key=repr)


def batches_of(table: Table, user: str) -> list[int]:
    """The numbers of the batches that a user committed rows in, in the order of the snapshots that are kept."""
    latest = table.latest_snapshot()
    if latest is None:
        return []
    kept = [each for each in table.store.snapshots.newest_first() if each.commit_user == user]
    return [each.commit_identifier for each in reversed(kept) if each.commit_kind.value != "COMPACT"]
