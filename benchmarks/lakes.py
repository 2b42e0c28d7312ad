"""Tables of metadata to measure on: real manifests, data files that exist in name only."""

from __future__ import annotations

import uuid
from pathlib import Path

import tidelake as tl
from tidelake.ops.commit.messages import CommitMessage, DataIncrement
from tidelake.spec.data_file import DataFile, SimpleStats
from tidelake.spec.rows.binary_row_scalar import encode_row
from tidelake.table import Table

COLUMNS = {"id": "BIGINT", "v": "DOUBLE", "s": "STRING", "dt": "STRING"}


def make_table(folder: Path, name: str = "bench.t", options: dict[str, str] | None = None) -> Table:
    return tl.connect(folder).create_table(name, COLUMNS, partition_by=["dt"], options=options or {})


def new_file(table: Table, number: int) -> DataFile:
    """A file with statistics of all columns, as a writer would describe it."""
    types = [field.type for field in table.schema.fields]
    low = encode_row([number * 1000, 0.5, f"s{number:012d}a", "d"], types)
    high = encode_row([number * 1000 + 999, 99.5, f"s{number:012d}z", "d"], types)
    return DataFile(
        file_name=f"data-{uuid.uuid4()}-0.parquet",
        file_size=1_000_000 + number,
        row_count=1000,
        value_stats=SimpleStats(low, high, (0, 0, 0, 0)),
        value_stats_cols=None,
        max_sequence=999,
        creation_time_ms=1_790_000_000_000,
    )


def message(table: Table, day: str, files: list[DataFile]) -> CommitMessage:
    partition = encode_row([day], table.schema.partition_types)
    return CommitMessage(partition=partition, bucket=0, total_buckets=-1, data=DataIncrement(new_files=tuple(files)))


def fill(table: Table, *, files: int, commits: int, days: int, scattered: bool) -> None:
    """Commit files so that each commit holds one range of days (clustered) or all of them (scattered)."""
    commit = table.new_commit()
    per_commit = files // commits
    for c in range(commits):
        groups: dict[str, list[DataFile]] = {}
        for i in range(per_commit):
            number = c * per_commit + i
            day = number % days if scattered else number * days // files
            groups.setdefault(f"d{day:05d}", []).append(new_file(table, number))
        commit.commit([message(table, day, group) for day, group in groups.items()])
