"""Another job that commits and expires everything but its own snapshot while a verb is at work.

The storage calls it before a read of one number. Sweeping over the numbers visits every moment at which what a verb
stands on can go: the snapshot it looked at, its manifests, and after a compaction its data files too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from fault.harness import Image, doors, memory_with
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import InvalidInputError
from tidelake.io.fileio import FileIO
from tidelake.io.selftest import probe_create_exclusive
from tidelake.table import Table
from tidelake.testing import FaultyFileIO, MemoryFileIO, Op
from tidelake.testing.faulty import READS
from tidelake.testing.scenario import take_image

NAME = "db.t"
TAG = "kept"
BRANCH = "side"
KEYS = 6
"""Keys of the table before another job comes; that one adds the next."""

_COLUMNS = {"k": "INT NOT NULL", "p": "STRING NOT NULL", "v": "STRING"}
_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "append": {},
    "append with buckets": {"bucket": "2", "bucket-key": "k"},
    "append with vectors": {"deletion-vectors.enabled": "true"},
    "keyed": {"bucket": "2"},
    "keyed with changelog": {"bucket": "2", "changelog-producer": "input"},
    "keyed with vectors": {"bucket": "2", "deletion-vectors.enabled": "true"},
    "keyed with dynamic buckets": {"bucket": "-1"},
}
KINDS = tuple(_OPTIONS)


def open_table(io: FileIO, seed: int) -> Table:
    """The table, in a process of its own."""
    return Lake(FileSystemCatalog(doors(io, seed))).table(NAME)


@functools.cache
def image_of(kind: str) -> Image:
    """The storage of a table with four snapshots, a tag, a branch and a consumer."""
    io = MemoryFileIO()
    probe_create_exclusive(FaultyFileIO(io))
    lake = Lake(FileSystemCatalog(doors(io, 1)))
    lake.create_database("db")
    options = {"file.format": "parquet", "write-only": "true", **_OPTIONS[kind]}
    keys = ["k", "p"] if kind.startswith("keyed") else []
    table = lake.create_table(NAME, _COLUMNS, primary_key=keys, partition_by=["p"], options=options)
    for number in range(3):
        rows = [{"k": key, "p": f"p{key % 2}", "v": f"v{number}"} for key in (2 * number, 2 * number + 1)]
        table.write(rows)
    table.create_tag(TAG, snapshot=2)
    table.create_branch(BRANCH, tag=TAG)
    table.reset_consumer("reader", 4)
    table.compact(full=True)
    return take_image(io)


def disturb(io: FileIO, *, rewriting: bool) -> None:
    """What the other job does: one more row, with `rewriting` a compaction of all files, and an expiry of the rest."""
    table = open_table(io, 77)
    with suppress(InvalidInputError):  # where a rescale has just been published
        table.write([{"k": KEYS, "p": "p0", "v": "new"}])
    if rewriting:
        table.compact(full=True)
    table.reset_consumer("reader", table.latest_snapshot().id)  # type: ignore[union-attr]
    table.expire_snapshots(retain_max=1, retain_min=1)


@dataclass(slots=True)
class Visitor:
    """Calls the other job before the read of one number, once."""

    inner: FileIO
    at: int
    rewriting: bool
    seen: list[Op] = field(default_factory=list)
    """The reads so far."""
    fired: Op | None = None

    def __call__(self, op: Op, /) -> None:
        if op.name in READS:
            self.seen.append(op)
            if len(self.seen) == self.at:
                self.fired = op
                disturb(self.inner, rewriting=self.rewriting)


def visit(kind: str, at: int, verb: Callable[[Table], object], *, rewriting: bool) -> tuple[object, Visitor]:
    """Do a verb, disturbed before its read with that number (0: not at all); what came of it, or the error."""
    inner = memory_with(image_of(kind))
    probe_create_exclusive(FaultyFileIO(inner))  # ahead, so that its operations are not counted
    visitor = Visitor(inner, 0, rewriting)
    io = FaultyFileIO(inner, visitor)
    table = open_table(io, 5)
    visitor.seen, visitor.at = [], at
    try:
        return verb(table), visitor
    except Exception as error:  # noqa: BLE001 - whatever comes is judged by the test
        return error, visitor
