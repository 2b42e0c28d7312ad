"""T1 for change streams: every operation of a consumer, and of expiry that leaves and takes changelogs, fails or kills.

A consumer that dies anywhere and is started again gets every change, with the rows that were committed, in order; only
the one that it had in hand may come twice. Expiry that dies anywhere leaves no change unread that it did not expire: of
what is left every change is read with all its rows, by the snapshot or by the changelog that it left. Repeated, each
step comes to what it would have come to at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fault.harness import Image, digest, distinct_modes, doors, memory_with
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import CommitUnknownError, StorageError, TidelakeError
from tidelake.io import FileIO
from tidelake.io.selftest import probe_create_exclusive
from tidelake.ops.scan.changes import earliest_change
from tidelake.table import Table
from tidelake.testing import Crash, Fault, FaultyFileIO, MemoryFileIO, Op
from tidelake.testing.faulty import READS
from tidelake.testing.scenario import take_image

COLUMNS = {"id": "INT NOT NULL", "v": "INT"}
OUTLIVE = {"changelog.time-retained": "30 d", "consumer.changelog-only": "true"}
KINDS = {
    "changes told": {"changelog-producer": "lookup"},
    "vectors": {"deletion-vectors.enabled": "true", "changelog-producer": "lookup"},
    "written rows": {"changelog-producer": "none"},
}
SHARE = 8
"""Every how many points are visited here; `tests/soak` visits all of them."""
Changes = dict[int, list[str]]


def made(kind: str) -> Image:
    """A table with some commits, each with changes, and a consumer that has read the first."""
    io = MemoryFileIO()
    options = {"bucket": "1", "num-levels": "3", **OUTLIVE, **KINDS[kind]}
    table = Lake(FileSystemCatalog(doors(io, 1))).create_table("d.t", COLUMNS, primary_key=["id"], options=options)
    for number in range(4):
        rows = [{"id": number + each, "v": number, "rowkind": "+I"} for each in range(3)]
        table.write([*rows, {"id": 9, "v": None, "rowkind": "-D"}])
    next(table.follow(consumer="c", start="earliest", timeout=0)).ack()
    return take_image(io)


def aged(image: Image) -> Image:
    """The same with changelogs in the place of all snapshots but the newest, whose consumer is gone."""
    io = memory_with(image)
    table = Lake(FileSystemCatalog(doors(io, 2))).table("d.t")
    table.reset_consumer("c")
    table.expire_snapshots(retain_max=1, retain_min=1)
    assert len(table.store.changelogs.ids()) >= 3
    return take_image(io)


def read_changes(table: Table) -> Changes:
    """The rows of every change that is left."""
    found: Changes = {}
    for change in table.follow(start=earliest_change(table.store) or 1, timeout=0):
        found[change.snapshot_id] = rows_of(change)
    return found


def rows_of(change: Any) -> list[str]:
    return sorted(map(repr, change.to_arrow().to_pylist()))


def start(image: Image) -> FileIO:
    io = memory_with(image)
    for each in (FaultyFileIO(io), FaultyFileIO(io).sub("d.db/t")):
        probe_create_exclusive(each)  # its racing threads would number the operations by chance
    return io


def points(io: FaultyFileIO, share: int) -> list[tuple[Op, Fault]]:
    """The faults to visit, in turn over operations and ways; of reads, after which nothing is left, fewer."""
    every = [(op, fault) for op in io.ops for fault in distinct_modes(op) if op.name not in READS]
    reads = [(op, Fault.BEFORE) for op in io.ops if op.name in READS]
    return every[::share] + reads[:: 2 * share]


def attempt(io: FileIO, step: Callable[[Table], None], where: str) -> None:
    """Do a step in a process that may fail or die."""
    failure: BaseException | None = None
    try:
        step(Lake(FileSystemCatalog(doors(io, 3))).table("d.t"))
    except (Crash, TidelakeError) as error:
        failure = error
    assert failure is None or isinstance(failure, Crash | StorageError | CommitUnknownError), (where, failure)


@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer_that_dies_anywhere_gets_every_change_once_it_is_back(kind: str) -> None:
    kill_consumers(kind, share=2)


def kill_consumers(kind: str, share: int) -> None:
    image = made(kind)
    expected = read_changes(Lake(FileSystemCatalog(doors(memory_with(image), 4))).table("d.t"))
    first = min(expected)

    def consume(table: Table, handled: list[int]) -> None:
        for change in table.follow(consumer="c", start="earliest", timeout=0):
            assert rows_of(change) == expected[change.snapshot_id]
            handled.append(change.snapshot_id)

    clean, seen = FaultyFileIO(start(image)), list[int]()
    consume(Lake(FileSystemCatalog(doors(clean, 3))).table("d.t"), seen)
    assert seen == sorted(expected)[1:]
    visits = points(clean, share)
    for op, fault in visits:
        where = f"REPRO kind={kind} op={op} fault={fault.value}"
        io, handled, again = FaultyFileIO(start(image), {op.number: fault}), list[int](), list[int]()
        attempt(io, lambda table, handled=handled: consume(table, handled), where)
        consume(Lake(FileSystemCatalog(doors(io.inner, 5))).table("d.t"), again)
        new = [each for each in again if each not in handled]
        assert [*handled, *new] == sorted(each for each in expected if each > first), (where, handled, again)
        assert len(again) - len(new) <= 1, (where, handled, again)
        table = Lake(FileSystemCatalog(doors(io.inner, 6))).table("d.t")
        assert table.consumers()["c"] > max(expected), where
        assert table.check().ok, where
    assert len(visits) >= 10
    print(f"{kind}: {len(visits)} faults over {len(clean.ops)} operations")


def leave_changelogs(table: Table) -> None:
    table.expire_snapshots(retain_max=1, retain_min=1)


def take_changelogs(table: Table) -> None:
    table.expire_changelogs(retain_max=3, retain_min=1)


def take_all_changelogs(table: Table) -> None:
    table.expire_changelogs(delete_all=True)


STEPS = {"leave": leave_changelogs, "take some": take_changelogs, "take all": take_all_changelogs}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("kind", KINDS)
def test_expiry_that_dies_anywhere_leaves_whole_changes(kind: str, name: str) -> None:
    kill_expiry(kind, name, share=SHARE)


def kill_expiry(kind: str, name: str, share: int) -> None:
    step = STEPS[name]
    image = made(kind) if step is leave_changelogs else aged(made(kind))
    before = read_changes(Lake(FileSystemCatalog(doors(memory_with(image), 4))).table("d.t"))
    clean = FaultyFileIO(start(image))
    step(Lake(FileSystemCatalog(doors(clean, 3))).table("d.t"))
    after = read_changes(Lake(FileSystemCatalog(doors(memory_with(take_image(clean.inner)), 4))).table("d.t"))
    assert (after == before) == (step is leave_changelogs)
    visits, seen = points(clean, share), set[bytes]()
    for op, fault in visits:
        where = f"REPRO kind={kind} step={name} op={op} fault={fault.value}"
        io = FaultyFileIO(start(image), {op.number: fault})
        attempt(io, step, where)
        storage = digest(take_image(io.inner), True)
        if storage in seen:
            continue
        seen.add(storage)
        for process in (5, 6):  # what is found, and what is left once the step is repeated
            table = Lake(FileSystemCatalog(doors(io.inner, process))).table("d.t")
            found = read_changes(table)
            assert found == {number: before[number] for number in before if number >= min(found, default=1 << 30)}, (
                where
            )
            report = table.check()
            assert report.ok, (where, str(report))
            step(table)
        assert found == after, where
    assert len(visits) >= 5
    print(f"{kind}, {name}: {len(visits)} faults led to {len(seen)} different storages")
