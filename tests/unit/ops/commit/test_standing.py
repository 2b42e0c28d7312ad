"""What decides whether a snapshot that was published late follows the one it was planned on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import CommitUnknownError
from tidelake.io.env import Env
from tidelake.io.fileio import FileIO
from tidelake.table import Table
from tidelake.testing import FakeClock, FaultyFileIO, MemoryFileIO, Op

OPTIONS = {"deletion-vectors.enabled": "true", "write-only": "true"}


def open_on(io: FileIO) -> Table:
    return Lake(FileSystemCatalog(Env(io, clock=FakeClock(tick_ms=1)))).table("d.t")


def disturb(io: FileIO, *, compacts: bool) -> None:
    """Another job adds a row and expires everything before its last commit."""
    other = open_on(io)
    other.write([{"k": 9}])
    if compacts:
        other.compact(full=True)
    other.expire_snapshots(retain_max=1, retain_min=1)


class Once:
    """Calls another job before the first operation that fits."""

    def __init__(self, fits: Callable[[Op], bool], act: Callable[[], None]) -> None:
        self.fits, self.act, self.is_done = fits, act, False

    def __call__(self, op: Op, /) -> None:
        if not self.is_done and self.fits(op):
            self.is_done = True
            self.act()


def publishes(op: Op) -> bool:
    return op.name == "create_exclusive" and op.path.endswith("/snapshot/snapshot-3")


class AfterPublish:
    """The first look for the previous snapshot after the publish."""

    def __init__(self) -> None:
        self.published = False

    def __call__(self, op: Op) -> bool:
        if publishes(op):
            self.published = True
        return self.published and op.name == "exists" and op.path.endswith("/snapshot/snapshot-2")


@pytest.fixture
def inner() -> MemoryFileIO:
    io = MemoryFileIO()
    table = Lake(FileSystemCatalog(Env(io, clock=FakeClock(tick_ms=1)))).create_table(
        "d.t", {"k": "INT NOT NULL"}, options=OPTIONS
    )
    table.write([{"k": 1}, {"k": 2}])
    table.write([{"k": 3}])
    return io


def keys_of(io: FileIO) -> list[int]:
    return sorted(open_on(io).to_arrow().column("k").to_pylist())


def test_a_delete_published_too_late_is_planned_again_and_not_lost_or_in_doubt(inner: MemoryFileIO) -> None:
    """Others took its id, compacted and expired both: nothing in the next snapshot was built on its vectors."""
    other = Once(publishes, lambda: disturb(inner, compacts=True))
    done = open_on(FaultyFileIO(inner, other)).delete("k = 1")
    assert other.is_done
    assert done.snapshot_ids == (5,)
    assert keys_of(inner) == [2, 3, 9]
    assert open_on(inner).check(deep=True).ok


def test_a_delete_whose_vectors_the_next_snapshot_names_is_not_in_doubt(inner: MemoryFileIO) -> None:
    other = Once(AfterPublish(), lambda: disturb(inner, compacts=False))
    done = open_on(FaultyFileIO(inner, other)).delete("k = 1")
    assert other.is_done
    assert done.snapshot_ids == (3,)
    assert keys_of(inner) == [2, 3, 9]


def test_a_delete_that_left_no_trace_is_in_doubt_and_not_repeated(inner: MemoryFileIO) -> None:
    """A compaction applied its vectors, and every snapshot that named them has expired."""
    other = Once(AfterPublish(), lambda: disturb(inner, compacts=True))
    with pytest.raises(CommitUnknownError):
        open_on(FaultyFileIO(inner, other)).delete("k = 1")
    assert other.is_done
    assert keys_of(inner) == [2, 3, 9]
