"""T1 over the verbs for files and manifests: operations of the storage fail or kill the process once, in turns.

Afterwards a new process finds the rows that were there (after a purge: all or none of them), repeats the verb, and ends
where a clean run ends, with a clean `check`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from fault.harness import FIRST, MODES, SECOND, Image, attempt_verb, distinct_modes, doors, has_its_turn, memory_with
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import CommitUnknownError, StorageError
from tidelake.io.fileio import FileIO
from tidelake.io.selftest import probe_create_exclusive
from tidelake.testing import Crash, FaultyFileIO, MemoryFileIO
from tidelake.testing.scenario import take_image

COLUMNS = {"id": "INT NOT NULL", "dt": "STRING NOT NULL"}


@dataclass(frozen=True)
class Verb:
    """A verb, the rows before and after it, and in how many turns its operations fail."""

    run: Callable[[Lake], object]
    before: tuple[int, ...]
    after: tuple[int, ...]
    table: str = "d.t"
    loses: bool = False
    one_in: int = 2


ROWS = (0, 1, 3, 20, 21, 22, 23)
VERBS = {
    "materialize": Verb(lambda lake: lake.table("d.t").materialize_deletion_vectors(), ROWS, ROWS),
    "sort manifests": Verb(lambda lake: lake.table("d.t").compact_manifests(sort=True), ROWS, ROWS),
    "remove unexisting": Verb(
        lambda lake: lake.table("d.t").remove_unexisting_files(), (), (0, 20, 21, 22, 23), loses=True
    ),
    "copy": Verb(lambda lake: _copy(lake), (), ROWS, table="d.copy"),
    "purge": Verb(lambda lake: lake.table("d.t").purge_files(), ROWS, (), one_in=4),
}


def _copy(lake: Lake) -> object:
    if "d.copy" in lake and lake.table("d.copy").latest_snapshot() is not None:
        return None  # the commit was published although its answer was lost
    return lake.copy_table("d.t", "d.copy")


def _run(verb: Verb, io: FileIO) -> object:
    return verb.run(open_lake(io, FIRST))


def open_lake(io: FileIO, seed: int) -> Lake:
    return Lake(FileSystemCatalog(doors(io, seed)))


@functools.cache
def start(loses: bool) -> Image:
    io = MemoryFileIO()
    lake = open_lake(io, 1)
    options = {"deletion-vectors.enabled": "true"}
    table = lake.create_table("d.t", COLUMNS, partition_by=["dt"], options=options)
    for first in (0, 20):
        table.write([{"id": n, "dt": f"d{n % 2}"} for n in range(first, first + 4)])
    table.delete("id = 2")
    table.create_tag("t", snapshot=1)
    table.create_branch("b", snapshot=2)
    if loses:
        split = table.scan(where="dt = 'd1'").splits()[0]
        io.delete(f"d.db/t/{split.bucket_path}/{split.files[-1].file_name}")
    return take_image(io)


def ids(lake: Lake, name: str) -> tuple[int, ...]:
    found: list[Any] = lake.table(name).to_arrow().column("id").to_pylist() if name in lake else []
    return tuple(sorted(found))


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_that_fails_anywhere_leaves_a_whole_table_and_can_be_repeated(name: str) -> None:
    verb = VERBS[name]

    def storage() -> FileIO:
        io = memory_with(start(verb.loses))
        probe_create_exclusive(FaultyFileIO(io))
        return io

    clean = FaultyFileIO(storage())
    verb.run(open_lake(clean, FIRST))
    visits = 0
    for op in clean.ops:
        for fault in distinct_modes(op):
            if not has_its_turn(op, fault, verb.one_in * len(MODES)):
                continue
            visits += 1
            where = f"REPRO verb={name} op={op} fault={fault.value}"
            io = FaultyFileIO(storage(), {op.number: fault})
            outcome = attempt_verb(functools.partial(_run, verb, io))
            assert outcome == "acked" or isinstance(outcome, Crash | StorageError | CommitUnknownError), where
            lake = open_lake(io.inner, SECOND)
            if not verb.loses:
                assert ids(lake, verb.table) in (verb.before, verb.after), where
            verb.run(lake)
            lake = open_lake(io.inner, SECOND + 1)
            assert ids(lake, verb.table) == verb.after, where
            if not verb.loses:
                report = lake.table(verb.table).check(deep=True)
                assert report.ok, (where, str(report))
    assert visits >= 5
