"""A lock that a catalog offers is held while a snapshot is published, and for nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import StorageError
from tidelake.io import Env, MemoryFileIO, SeededIds
from tidelake.table import Table
from tidelake.testing import FakeClock


@dataclass
class Noted:
    """A lock that notes what happens, and fails on demand before or after the block."""

    io: MemoryFileIO = field(default_factory=MemoryFileIO)
    seen: list[tuple[str, list[str], list[str]]] = field(default_factory=list)
    before: Exception | None = None
    after: Exception | None = None

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:
        if self.before is not None:
            raise self.before
        there = self.snapshots()
        yield
        self.seen.append((name, there, self.snapshots()))
        if self.after is not None:
            raise self.after

    def snapshots(self) -> list[str]:
        return sorted(each.name for each in self.io.list("d.db/t/snapshot") if each.name.startswith("snapshot-"))


@pytest.fixture
def lock() -> Noted:
    return Noted()


@pytest.fixture
def table(lock: Noted) -> Table:
    lake = Lake(FileSystemCatalog(Env(lock.io, clock=FakeClock(), ids=SeededIds(1), lock=lock)))
    return lake.create_table("d.t", {"a": "INT"})


def test_a_snapshot_is_published_while_the_lock_is_held(table: Table, lock: Noted) -> None:
    table.write([{"a": 1}])
    table.write([{"a": 2}])
    assert [(before, after) for _, before, after in lock.seen] == [
        ([], ["snapshot-1"]),
        (["snapshot-1"], ["snapshot-1", "snapshot-2"]),
    ]
    assert len({name for name, *_ in lock.seen}) == 1


def test_branches_have_locks_of_their_own(table: Table, lock: Noted) -> None:
    table.write([{"a": 1}])
    table.create_tag("t")
    table.create_branch("b", tag="t").write([{"a": 2}])
    assert len({name for name, *_ in lock.seen}) == 2


def test_without_the_lock_nothing_is_published(table: Table, lock: Noted) -> None:
    lock.before = StorageError("lock is not to be had")
    with pytest.raises(StorageError, match="lock is not to be had"):
        table.write([{"a": 1}])
    assert table.latest_snapshot() is None


@pytest.mark.parametrize("error", [TimeoutError("no answer"), StorageError("lock was lost")])
def test_a_lock_that_fails_after_the_publish_does_not_fail_the_commit(
    table: Table, lock: Noted, error: Exception
) -> None:
    lock.after = error
    assert table.write([{"a": 1}]).snapshot_ids == (1,)
    assert table.to_arrow().to_pylist() == [{"a": 1}]
