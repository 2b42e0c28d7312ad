"""A small table whose data files exist, to expire, tag and branch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.ops.commit.messages import CommitMessage, CompactIncrement, DataIncrement
from tidelake.spec.data_file import DataFile
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO

DAY_S = 86_400


def new_table(**options: str) -> Table:
    """An empty table without partitions in memory, whose storage and jobs share one clock."""
    clock = FakeClock()
    env = Env(MemoryFileIO(clock=clock), clock, SeededIds(1))
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    return Lake(FileSystemCatalog(env)).create_table("d.t", {"id": "INT"}, options=given)


def clock_of(table: Table) -> FakeClock:
    clock = table.store.env.clock
    assert isinstance(clock, FakeClock)
    return clock


def new_file(table: Table, name: str, *, extra: tuple[str, ...] = (), **fields: Any) -> DataFile:
    """Write a file where the table looks for it, and describe it."""
    for each in (name, *extra):
        table.store.env.io.write(f"bucket-0/{each}", b"x")
    made = clock_of(table).now_ms()
    return DataFile(file_name=name, file_size=1, row_count=1, extra_files=extra, creation_time_ms=made, **fields)


def commit(table: Table, *, user: str | None = None, identifier: int | None = None, **parts: Any) -> int:
    """One commit of files in the only bucket; returns the id of its last snapshot. A minute passes."""
    clock_of(table).advance(60)
    data = {
        key: parts.pop(key)
        for key in ("new_files", "deleted_files", "changelog_files", "new_index_files", "deleted_index_files")
        if key in parts
    }
    message = CommitMessage(
        partition=bytes(12), bucket=0, total_buckets=-1, data=DataIncrement(**data), compact=CompactIncrement(**parts)
    )
    result = table.new_commit(user).commit([message], identifier=identifier)
    assert result.snapshot_ids, result
    return result.snapshot_ids[-1]


def add(table: Table, *names: str, **how: Any) -> int:
    """Commit new files."""
    return commit(table, new_files=tuple(new_file(table, name, **how) for name in names))


def replaced(table: Table, old: DataFile, name: str) -> int:
    """Compact one file into another."""
    return commit(table, before=(old,), after=(new_file(table, name, level=1),))


def raised(table: Table, file: DataFile) -> DataFile:
    """Move a file one level up under its name."""
    after = replace(file, level=file.level + 1)
    commit(table, before=(file,), after=(after,))
    return after


def data_names(table: Table) -> set[str]:
    """The data files in storage."""
    return {each.name for each in table.store.env.io.list("bucket-0")}


def every_file(table: Table) -> set[str]:
    """Every file of the table in storage but hints, documents of branches included."""

    def below(folder: str) -> set[str]:
        found: set[str] = set()
        for each in table.store.env.io.list(folder):
            found |= below(each.path) if each.is_dir else {each.path}
        return found

    return {path for path in below("") if not path.endswith(("LATEST", "EARLIEST"))}
