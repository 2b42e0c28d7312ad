"""T1 for partition expiry and marks: every operation of the storage fails or kills the process once.

Whatever is left, a new process finds whole batches dropped and the others complete, and every row of a published
commit; doing the same again ends as an undisturbed run does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from fault.harness import Image, distinct_modes, doors, has_its_turn, memory_with
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import CommitConflictError, CommitUnknownError, NotFoundError, StorageError
from tidelake.io.fileio import FileIO
from tidelake.io.selftest import probe_create_exclusive
from tidelake.spec.documents.success import success_from_json
from tidelake.table import Table
from tidelake.testing import Crash, Fault, FaultyFileIO, MemoryFileIO
from tidelake.testing.faulty import READS
from tidelake.testing.scenario import take_image

NAME = "db.t"
OLD = ("2001-01-01", "2001-01-02", "2001-01-03")
YOUNG = "2999-01-01"
ALLOWED = [(*OLD, YOUNG), (OLD[2], YOUNG), (YOUNG,)]
"""The partitions that may be left: batches of two go, one after the other."""
Act = Callable[[Table], Any]


def expire(table: Table) -> None:
    table.expire_partitions()


def write(table: Table) -> None:
    result = table.write([{"id": 99, "dt": YOUNG}], commit_user="job", identifier=1)
    if result.warnings:
        raise StorageError("; ".join(result.warnings))


def mark(table: Table) -> None:
    table.mark_partition_done([{"dt": OLD[0]}, {"dt": YOUNG}])


ACTS: dict[str, Act] = {"by-hand": expire, "after-a-commit": write, "mark": mark}


@functools.cache
def start() -> Image:
    io = MemoryFileIO()
    probe_create_exclusive(FaultyFileIO(io))
    lake = Lake(FileSystemCatalog(doors(io, 1)))
    lake.create_database("db")
    options = {
        "bucket": "1",
        "partition.expiration-time": "7 d",
        "partition.expiration-check-interval": "0 s",
        "partition.expiration-batch-size": "2",
    }
    keys = ["dt", "id"]
    columns = {"id": "INT NOT NULL", "dt": "STRING NOT NULL"}
    table = lake.create_table(NAME, columns, primary_key=keys, partition_by=["dt"], options=options)
    writer = table.with_options({"write-only": True})
    writer.write([{"id": number, "dt": day} for number, day in enumerate((*OLD, YOUNG))])
    return take_image(io)


def probed() -> FileIO:
    io = memory_with(start())
    probe_create_exclusive(FaultyFileIO(io))  # ahead: its racing threads would number the operations by chance
    return io


def opened(io: FileIO, seed: int = 7) -> Table:
    return Lake(FileSystemCatalog(doors(io, seed))).table(NAME)


def attempt(io: FileIO, act: Act, seed: int = 7) -> BaseException | None:
    try:
        act(opened(io, seed))
    except (Crash, StorageError, CommitUnknownError, CommitConflictError) as failure:
        return failure
    return None


def points(act: Act) -> Iterator[tuple[int, Fault]]:
    """Every operation that changes something, in the ways that differ for it, and some of the reads."""
    clean = FaultyFileIO(probed())
    assert attempt(clean, act) is None
    one_in = 1 + len(clean.ops) // 15
    for op in clean.ops:
        faults = distinct_modes(op)
        if op.name in READS:
            faults = faults if op.number % 4 == 0 else ()
        yield from ((op.number, fault) for fault in faults if has_its_turn(op, fault, one_in))


def days(table: Table) -> tuple[str, ...]:
    return tuple(sorted(set(table.to_arrow()["dt"].to_pylist())))


def mark_of(io: FileIO, day: str) -> int | None:
    with suppress(NotFoundError):
        return success_from_json(io.read(f"db.db/t/dt={day}/_SUCCESS"), path=day).creation_time_ms
    return None


@pytest.mark.parametrize("name", ACTS)
def test_whatever_fails_whole_batches_are_dropped_and_a_second_try_finishes(name: str) -> None:
    act, count, seen = ACTS[name], 0, set()
    wanted = ALLOWED[0] if name == "mark" else ALLOWED[-1]
    for number, fault in points(act):
        where = f"REPRO act={name} op={number} fault={fault.value}"
        io = FaultyFileIO(probed(), {number: fault})
        failure = attempt(io, act)
        count += 1
        image = (failure is None, frozenset(take_image(io.inner).items()))
        if image in seen:
            continue
        seen.add(image)
        left = opened(io.inner, 8)
        assert days(left) in ALLOWED, (where, days(left))
        assert left.check(deep=True).ok, where
        marks = {day: mark_of(io.inner, day) for day in (OLD[0], YOUNG) if mark_of(io.inner, day) is not None}
        assert not marks or name == "mark", where
        if failure is None:
            assert days(left) == wanted, where
        assert attempt(io.inner, act, 9) is None, where
        assert attempt(io.inner, mark if name == "mark" else expire, 10) is None, where
        after = opened(io.inner, 11)
        assert days(after) == wanted, where
        assert after.count() == len(wanted) + (name == "after-a-commit"), where
        if name == "mark":
            assert all(mark_of(io.inner, day) == made for day, made in marks.items()), where
            assert mark_of(io.inner, YOUNG) is not None, where
    assert len(seen) > 1
    print(f"{name}: {count} faults led to {len(seen)} different storages")
