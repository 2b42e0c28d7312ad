"""T1 for keys that move between partitions and for postponed buckets: every operation of a step fails or kills once.

The steps are one upsert that moves keys, one staged write, one batch that goes straight to buckets, the compaction
that gives waiting rows their buckets, and commits of rows whose keys other jobs gave other buckets or partitions first.
After each fault a new process finds the rows before the step or those after it, and the latter if it was acknowledged;
it repeats the step with the same identifier, and nothing is lost or doubled.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from fault.harness import EVERY, distinct_modes, doors
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import TidelakeError
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.maintain.check import Severity
from tidelake.table import Table
from tidelake.testing import Crash, FaultyFileIO, MemoryFileIO, Op
from tidelake.testing.faulty import READS
from tidelake.testing.scenario import restore_image, take_image

COLUMNS = {"dt": "STRING NOT NULL", "id": "INT NOT NULL", "v": "INT"}
MERGED = {"postpone.merge-on-read": "true"}
Rows = list[tuple[str, int, int]]


def rows(*facts: tuple[str, int, int]) -> list[dict[str, Any]]:
    return [{"dt": dt, "id": number, "v": v} for dt, number, v in facts]


def moving(lake: Lake) -> Table:
    options = {"bucket": "-1", "dynamic-bucket.target-row-num": "2", "num-sorted-run.compaction-trigger": "2"}
    table = lake.create_table("d.t", COLUMNS, primary_key=["id"], partition_by=["dt"], options=options)
    table.write(rows(("a", 1, 1), ("a", 2, 1), ("b", 3, 1), ("b", 4, 1)))
    return table


def postponed(lake: Lake) -> Table:
    options = {"bucket": "-2", "postpone.target-row-num-per-bucket": "2", "num-sorted-run.compaction-trigger": "2"}
    table = lake.create_table("d.t", COLUMNS, primary_key=["dt", "id"], partition_by=["dt"], options=options)
    table.write(rows(("a", 1, 1), ("a", 2, 1)))
    table.write(rows(("a", 2, 2), ("b", 3, 2)), commit_user="job", identifier=1)
    return table


def upsert(table: Table) -> None:
    table.write(rows(("b", 1, 2), ("a", 3, 2), ("c", 5, 2)), commit_user="job", identifier=7)


PREPARED: list[CommitMessage] = []


def overtaken(lake: Lake, keys: list[str]) -> Table:
    """A table that another job wrote to after this one prepared its rows and before it commits them."""
    options = {"bucket": "-1", "dynamic-bucket.target-row-num": "2", "num-sorted-run.compaction-trigger": "2"}
    table = lake.create_table("d.t", COLUMNS, primary_key=keys, partition_by=["dt"], options=options)
    table.write(rows(("a", 1, 1)))
    writer = table.new_write("job")
    writer.write(rows(("a", 2, 2), ("a", 3, 2), ("a", 4, 2), ("b", 5, 2), ("a", 1, 2)))
    PREPARED[:] = writer.prepare_commit(7)
    table.write(rows(("a", 4, 1), ("b", 3, 1), ("a", 3, 1), ("b", 1, 1), ("a", 6, 1)))
    return table


def commit_late(table: Table) -> None:
    table.new_commit("job").commit(PREPARED, identifier=7)


def batch(table: Table) -> None:
    if ("c", 9, 3) not in shown(table):  # a batch has no number: the job looks first
        table.write(rows(("c", 9, 3), ("a", 1, 3)))


def compact(table: Table) -> None:
    table.compact(full=True)


def shown(table: Table) -> Rows:
    found = table.with_options(MERGED).to_arrow().to_pylist()
    return sorted((row["dt"], row["id"], row["v"]) for row in found)


STEPS: dict[str, tuple[Callable[[Lake], Table], Callable[[Table], None]]] = {
    "upsert that moves keys": (moving, upsert),
    "staged write": (postponed, upsert),
    "batch to buckets": (postponed, batch),
    "compaction of waiting rows": (postponed, compact),
    "commit of rows whose keys got other buckets": (partial(overtaken, keys=["dt", "id"]), commit_late),
    "commit of rows whose keys moved": (partial(overtaken, keys=["id"]), commit_late),
}
SHARE, READ_SHARE = (1, 1) if EVERY else (7, 60)


@pytest.mark.parametrize("name", STEPS)
def test_a_step_that_dies_anywhere_is_there_or_not_and_can_be_repeated(name: str) -> None:
    make, step = STEPS[name]
    start = MemoryFileIO()
    make(Lake(FileSystemCatalog(doors(start, 1))))
    image = take_image(start)
    clean = opened(image)
    before = shown(clean[1])
    faulty = FaultyFileIO(clean[0])
    step(Lake(FileSystemCatalog(doors(faulty, 2))).table("d.t"))
    operations = tuple(faulty.ops)
    after = shown(opened(take_image(clean[0]))[1])
    assert (before == after) == (step is compact)
    visits = 0
    for op in operations:
        for way, fault in enumerate(distinct_modes(op)):
            if (op.number + way) % (READ_SHARE if op.name in READS else SHARE) == 0:
                visits += 1
                visit(image, step, op, fault, before, after)
    print(f"{name}: {visits} faults over {len(operations)} operations")
    assert visits >= 8


def opened(image: Any) -> tuple[MemoryFileIO, Table]:
    io = MemoryFileIO()
    restore_image(io, image)
    return io, Lake(FileSystemCatalog(doors(io, 5))).table("d.t")


def visit(image: Any, step: Callable[[Table], None], op: Op, fault: Any, before: Rows, after: Rows) -> None:
    io, _ = opened(image)
    faulty = FaultyFileIO(io, {op.number: fault})
    acked = False
    try:
        step(Lake(FileSystemCatalog(doors(faulty, 2))).table("d.t"))
        acked = True
    except (Crash, TidelakeError):
        pass
    where = f"{op.number} {op.name} {fault}"
    table = Lake(FileSystemCatalog(doors(io, 8))).table("d.t")
    found = shown(table)
    assert found in ([after] if acked else [before, after]), where
    step(table)
    assert shown(table) == after, where
    table.compact(full=True)
    plain = table.to_arrow().to_pylist()
    assert sorted((row["dt"], row["id"], row["v"]) for row in plain) == after, where
    assert [each for each in table.check(rows=True).findings if each.severity is Severity.ERROR] == [], where
