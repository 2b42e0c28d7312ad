"""A snapshot that expires between the reads of its data manifests and of its index manifest."""

from __future__ import annotations

import pytest

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.io.env import Env
from tidelake.io.fileio import FileIO
from tidelake.ops.commit.messages import CommitResult
from tidelake.table import Table
from tidelake.testing import FakeClock, FaultyFileIO, MemoryFileIO, Op

COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}


def open_on(io: FileIO) -> Table:
    return Lake(FileSystemCatalog(Env(io, clock=FakeClock(tick_ms=1)))).table("d.t")


def replace_newest_snapshot(io: FileIO) -> None:
    """Another job commits and expires everything before its commit."""
    other = open_on(io)
    other.write([{"k": 2, "v": "theirs"}])
    other.expire_snapshots(retain_max=1, retain_min=1)


class ExpiresBefore:
    """Replaces the newest snapshot before a read of an index manifest, the one with that number."""

    def __init__(self, inner: FileIO, number: int = 1) -> None:
        self.inner, self.left = inner, number

    def __call__(self, op: Op, /) -> None:
        if op.name == "read" and "/manifest/index-manifest-" in op.path:
            self.left -= 1
            if self.left == 0:
                replace_newest_snapshot(self.inner)


@pytest.fixture
def inner() -> MemoryFileIO:
    io = MemoryFileIO()
    options = {"bucket": "-1", "write-only": "true"}  # dynamic buckets have hash indexes, so an index manifest
    table = Lake(FileSystemCatalog(Env(io, clock=FakeClock(tick_ms=1)))).create_table(
        "d.t", COLUMNS, primary_key=["k"], options=options
    )
    table.write([{"k": 1, "v": "a"}])
    table.write([{"k": 1, "v": "b"}])
    return io


@pytest.mark.parametrize("plan_only", [True, False])
def test_a_compaction_does_not_end_with_file_does_not_exist(inner: MemoryFileIO, plan_only: bool) -> None:
    expiry = ExpiresBefore(inner)
    done = open_on(FaultyFileIO(inner, expiry)).compact(full=True, plan_only=plan_only)
    assert expiry.left <= 0
    if plan_only:
        assert done.files == 3  # those of the newest snapshot
    else:
        assert isinstance(done, CommitResult)
        assert len(done.snapshot_ids) == 1
    assert sorted(open_on(inner).to_arrow().column("k").to_pylist()) == [1, 2]


@pytest.mark.parametrize("number", range(1, 6))
def test_a_check_does_not_end_with_file_does_not_exist(inner: MemoryFileIO, number: int) -> None:
    expiry = ExpiresBefore(inner, number)
    report = open_on(FaultyFileIO(inner, expiry)).check(deep=True)
    assert expiry.left <= 0
    assert report.ok, str(report)


def test_a_check_of_an_index_manifest_that_is_really_gone_reports_it(inner: MemoryFileIO) -> None:
    newest = open_on(inner).latest_snapshot()
    assert newest is not None
    inner.delete(f"d.db/t/manifest/{newest.index_manifest}")
    assert not open_on(inner).check().ok


@pytest.mark.parametrize("number", [1, 2])
def test_a_job_that_keeps_a_table_compacted_goes_on(inner: MemoryFileIO, number: int) -> None:
    expiry = ExpiresBefore(inner, number)
    summary = open_on(FaultyFileIO(inner, expiry)).keep_compacted(max_rounds=2)
    assert expiry.left <= 0
    assert summary.rounds == 2
    assert open_on(inner).check(deep=True).ok
