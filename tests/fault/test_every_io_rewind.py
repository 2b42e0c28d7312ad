"""T1 for branches and rollbacks that commit: every operation of a verb fails or kills the process once.

Afterwards a new process finds what was there before the verb or what it leads to, whole; what raised anything but
`CommitUnknownError` has left nothing, tags included; and the verb, repeated, leads to where an undisturbed run does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fault.harness import FIRST, SECOND, Image, distinct_modes, doors, has_its_turn, memory_with
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import CommitUnknownError, TidelakeError
from tidelake.io.fileio import FileIO
from tidelake.io.selftest import probe_create_exclusive
from tidelake.table import Table
from tidelake.testing import Crash, FakeClock, Fault, FaultyFileIO, MemoryFileIO
from tidelake.testing.faulty import READS
from tidelake.testing.scenario import restore_image, take_image

KEPT = "rollback-to-as-latest-"
NAME, FOLDER = "db.t", "db.db/t"


@dataclass(frozen=True, slots=True)
class Act:
    """A verb, the table that it starts from, and whether it is one step."""

    run: Callable[[Table], object]
    options: tuple[tuple[str, str], ...] = ()
    is_atomic: bool = True


def rename(table: Table) -> None:
    if "side" in table.branches():
        table.rename_branch("side", "other")


ACTS = {
    "return": Act(lambda t: t.rollback_to(snapshot=2, as_latest=True)),
    "return with vectors": Act(
        lambda t: t.rollback_to(snapshot=2, as_latest=True), (("deletion-vectors.enabled", "true"),)
    ),
    "return to a tag": Act(lambda t: t.rollback_to(tag="second", as_latest=True)),
    "merge": Act(lambda t: t.merge_branch("side")),
    "rename": Act(rename),
    "roll the schema back": Act(lambda t: t.rollback_schema(0), is_atomic=False),
    "clear consumers": Act(lambda t: t.clear_consumers("a.*"), is_atomic=False),
}


@functools.cache
def filled(name: str) -> Image:
    """A table with a branch, a tag and consumers; what returns has changed rows, what is merged has only appends."""
    io, act = MemoryFileIO(), ACTS[name]
    lake = Lake(FileSystemCatalog(doors(io, 1)))
    table = lake.create_table(NAME, {"id": "INT"}, options=dict(act.options))
    for number in (1, 2, 3):
        table.write([{"id": number}])
    table.create_branch("side").write([{"id": 11}])
    table.branch("side").write([{"id": 12}])
    table.create_tag("second", snapshot=2)
    if name.startswith("return"):
        table.delete("id = 1")
        table.compact(full=True)
    for consumer in ("a1", "a2", "b"):
        table.reset_consumer(consumer, 2)
    if "schema" in name:
        table.add_column("v", "INT").add_column("w", "INT")
    return take_image(io)


def start(name: str, clock: FakeClock | None = None) -> FileIO:
    io = MemoryFileIO(clock=clock or FakeClock())
    restore_image(io, filled(name))
    lake = FaultyFileIO(io)
    for each in (lake, lake.sub(FOLDER)):
        probe_create_exclusive(each)
    return io


def opened(io: FileIO, seed: int, clock: FakeClock | None = None) -> Table:
    env = doors(io, seed)
    return Lake(FileSystemCatalog(env if clock is None else replace(env, clock=clock))).table(NAME)


def shown(table: Table) -> dict[str, Any]:
    """What a user sees of the table: the rows of its branches, its tags, consumers and columns."""
    names = ("main", *table.branches())
    rows = {name: sorted(row["id"] for row in table.branch(name).to_arrow().to_pylist()) for name in names}
    tags = {name: sorted(each for each in table.branch(name).tags() if not each.startswith(KEPT)) for name in names}
    return {"rows": rows, "tags": tags, "consumers": table.consumers(), "schemas": table.store.schemas.ids()}


def attempt(io: FileIO, name: str, seed: int = FIRST) -> BaseException | None:
    try:
        ACTS[name].run(opened(io, seed))
    except (Crash, TidelakeError) as failure:
        return failure
    return None


def points(name: str) -> Iterator[tuple[int, Fault]]:
    clean = FaultyFileIO(start(name))
    assert attempt(clean, name) is None
    for op in clean.ops:
        faults = distinct_modes(op)
        if op.name in READS:
            faults = faults if op.number % 4 == 0 else ()
        yield from ((op.number, fault) for fault in faults if has_its_turn(op, fault, 6 if len(clean.ops) > 60 else 2))


@pytest.mark.parametrize("name", ACTS)
def test_whatever_fails_all_of_it_is_done_or_nothing_and_a_repetition_finishes(name: str) -> None:
    before = shown(opened(memory_with(filled(name)), SECOND))
    undisturbed = start(name)
    assert attempt(undisturbed, name) is None
    wanted = shown(opened(undisturbed, SECOND))
    assert wanted != before
    seen: set[object] = set()
    for number, fault in points(name):
        where = f"REPRO act={name} op={number} fault={fault.value}"
        clock = FakeClock()
        io = FaultyFileIO(start(name, clock), {number: fault})
        failure = attempt(io, name)
        image = (failure is None, isinstance(failure, Crash), frozenset(take_image(io.inner).items()))
        if image in seen:
            continue
        seen.add(image)
        table = opened(io.inner, SECOND)
        left = plain(shown(table)) if isinstance(failure, Crash | CommitUnknownError) else shown(table)
        if failure is None:
            assert plain(left) == wanted, (where, left)
        elif ACTS[name].is_atomic:
            assert left in (before, wanted), (where, left)
            if not isinstance(failure, Crash | CommitUnknownError) and name != "rename":
                assert left == before, (where, left, failure)
                assert table.tags() == {"second": 2}, (where, table.tags())
        report = table.check(deep=True, rows=True)
        assert report.ok, (where, str(report))
        assert attempt(io.inner, name, SECOND + 1) is None, where
        table = opened(io.inner, SECOND + 2, clock)
        assert plain(shown(table)) == wanted, where
        assert_nothing_is_lost_or_left(table, plain(shown(table)), where)
    assert len(seen) > 1


def plain(found: dict[str, Any]) -> dict[str, Any]:
    """Without the tag that a merge leaves on its source if it dies."""
    tags = {
        name: [each for each in tags if not each.startswith("merge-branch-")] for name, tags in found["tags"].items()
    }
    return {**found, "tags": tags}


def assert_nothing_is_lost_or_left(table: Table, found: dict[str, Any], where: str) -> None:
    """What came back stays when everything else expires, and cleaning leaves nothing that is unreachable."""
    for name in ("main", *table.branches()):
        for tag in table.branch(name).tags():
            if tag.startswith((KEPT, "merge-branch-")):
                table.branch(name).delete_tag(tag)
    table.clear_consumers()
    table.expire_snapshots(retain_max=1, retain_min=1, older_than=2**53)
    table.store.env.clock.sleep(10 * 86_400)  # the clock of the storage too
    table.remove_orphans(plan_only=False)
    table = table.reload()
    assert shown(table)["rows"] == found["rows"], where
    report = table.check(deep=True, rows=True)
    assert (report.ok, report.orphans) == (True, ()), (where, str(report))
