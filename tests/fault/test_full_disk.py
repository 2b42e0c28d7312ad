"""A disk that really is full: a write to a small tmpfs says whether its rows are there, wherever the room runs out."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelake as tl
from tidelake.errors import CommitUnknownError, TidelakeError

SIZE = 2 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode != 0:
        assert os.geteuid() != 0 or "permission" in mounted.stderr.lower(), mounted.stderr
        pytest.skip(f"mounting is not allowed: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sum", "first-row", "append"])
def test_on_a_full_disk_a_write_that_raised_left_none_of_its_rows(small_disk: Path, kind: str) -> None:
    """The room is taken in steps of one file system block, so that it runs out at every point of a write."""
    options = {
        "sum": {"bucket": "1", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
        "first-row": {"bucket": "1", "merge-engine": "first-row"},
        "append": {},
    }[kind]
    keyed = kind != "append"
    lake = tl.connect(str(small_disk))
    table = lake.create_table(
        "db.t",
        {"k": "INT NOT NULL", "n": "INT"},
        primary_key=["k"] if keyed else None,
        options={**options, **({"full-compaction.delta-commits": "1"} if kind == "sum" else {})},
    )
    table.write([{"k": k, "n": 1} for k in range(100)])
    ballast = small_disk / "ballast"
    raised = warned = 0
    for pages in range(40):
        before = total(table)
        room = os.statvfs(small_disk)
        free = room.f_bavail * room.f_frsize
        ballast.write_bytes(b"\0" * max(0, free - pages * 4096))
        row = {"k": 1_000 + pages if kind == "first-row" else 1, "n": 1}
        try:
            done = table.write([row])
        except CommitUnknownError:
            ballast.unlink()
            continue
        except TidelakeError:
            raised += 1
            ballast.unlink()
            assert total(table) == before, pages
        else:
            warned += bool(done.warnings)
            ballast.unlink()
            if total(table) != before + 1:
                assert any("its rows are shown by the next write" in each for each in done.warnings), (pages, done)
                table.compact()
            assert total(table) == before + 1, (pages, done)
    assert raised, "the disk was never full"
    assert warned or not keyed, "it was never full between the two snapshots of a write"
    report = table.check(rows=True)
    assert report.ok, str(report)


def total(table: tl.Table) -> int:
    """What every row that is written adds one to."""
    return sum(table.to_arrow().column("n").to_pylist())
