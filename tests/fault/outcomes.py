"""Every verb of a table without an identifier, on every kind of table whose commit takes another way.

The rule that these are tried for: a verb that raised anything but `CommitUnknownError` has left none of its rows, and
one that returned has left all of them. What failed after the commit is among the warnings of its result.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fault.harness import EVERY, FIRST, Image, doors, memory_with
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.io import FileIO
from tidelake.io.selftest import probe_create_exclusive
from tidelake.ops.change.merge import MergeResult
from tidelake.ops.commit.messages import CommitResult
from tidelake.table import Table
from tidelake.testing import FaultyFileIO, MemoryFileIO, Op
from tidelake.testing.scenario import take_image

NAME, FOLDER = "db.sums", "db.db/sums"
COLUMNS: Final = {"k": "INT NOT NULL", "dt": "STRING NOT NULL", "n": "INT"}
EXPIRES: Final = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"}
"""So that every commit is followed by an expiry."""
COMPACTS: Final = {"bucket": "1", "full-compaction.delta-commits": "1"}
"""So that every write is followed by a compaction."""
Bag = Counter[tuple[int, str, int]]
Result = CommitResult | MergeResult


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of table."""

    options: Mapping[str, str]
    keyed: bool = True
    hides: bool = False
    """Whether rows are shown once they are compacted."""


KINDS: Final[Mapping[str, Kind]] = {
    "append": Kind({}, keyed=False),
    "append, vectors": Kind({"deletion-vectors.enabled": "true"}, keyed=False),
    "sum": Kind({**COMPACTS, "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}),
    "dynamic buckets": Kind({"bucket": "-1", "full-compaction.delta-commits": "1"}),
    "first-row": Kind({"bucket": "1", "merge-engine": "first-row"}, hides=True),
    "vectors": Kind({"bucket": "1", "deletion-vectors.enabled": "true"}, hides=True),
    "lookup": Kind({"bucket": "1", "changelog-producer": "lookup"}, hides=True),
}
NEW: Final = [{"k": 1, "dt": "a", "n": 5}, {"k": 9, "dt": "a", "n": 9}]


def _write_apart(table: Table) -> Result:
    """The two halves of a job."""
    write = table.new_write()
    write.write(NEW)
    return table.new_commit().commit(write.prepare_commit())


def _merge(table: Table) -> Result:
    merge = table.merge([{"k": 1, "dt": "a", "n": 1}, {"k": 9, "dt": "a", "n": 9}], on=["k", "dt"])
    return merge.when_matched_update({"n": "t.n + s.n"}).when_not_matched_insert().run()


def _compact(table: Table) -> Result:
    done = table.compact(full=True)
    assert isinstance(done, CommitResult)
    return done


VERBS: Final[Mapping[str, Callable[[Table], Result]]] = {
    "write": lambda table: table.write(NEW),
    "halves": _write_apart,
    "overwrite": lambda table: table.write(NEW, "overwrite"),
    "overwrite partition": lambda table: table.write(NEW, "overwrite-dynamic"),
    "delete": lambda table: table.delete("k = 1"),
    "delete partition": lambda table: table.delete("dt = 'a'"),
    "update": lambda table: table.update({"n": "n + 1"}, "k = 2"),
    "merge": _merge,
    "truncate": lambda table: table.truncate(),
    "drop": lambda table: table.drop_partitions("dt = 'a'"),
    "compact": _compact,
}
CASES: Final = [
    (kind, verb)
    for i, kind in enumerate(KINDS)
    for j, verb in enumerate(VERBS)
    if EVERY or verb == "write" or (i + j) % 4 == 0
]
"""Every verb on every kind; a working day tries each verb on some."""


@functools.cache
def filled(kind: str) -> Image:
    """The storage before the verb."""
    io, what = MemoryFileIO(), KINDS[kind]
    table = Lake(FileSystemCatalog(doors(io, 1))).create_table(
        NAME,
        COLUMNS,
        primary_key=["dt", "k"] if what.keyed else None,
        partition_by=["dt"],
        options={**what.options, **EXPIRES},
    )
    table.write([{"k": 1, "dt": "a", "n": 10}, {"k": 2, "dt": "b", "n": 20}])
    table.write([{"k": 2, "dt": "b", "n": 2}, {"k": 3, "dt": "a", "n": 30}])
    return take_image(io)


def start(kind: str) -> FileIO:
    """The storage before the verb, with what a first commit asks of it done ahead."""
    io = memory_with(filled(kind))
    lake = FaultyFileIO(io)
    for each in (lake, lake.sub(FOLDER)):
        probe_create_exclusive(each)
    return io


def run(io: FileIO, verb: str) -> Result:
    """Do it in a process of its own."""
    return VERBS[verb](Lake(FileSystemCatalog(doors(io, FIRST))).table(NAME))


def opened(io: FileIO, seed: int) -> Table:
    """The table, for a new process."""
    return Lake(FileSystemCatalog(doors(io, seed))).table(NAME)


def rows_of(table: Table) -> Bag:
    """What a table shows."""
    rows: list[dict[str, Any]] = table.to_arrow().to_pylist()
    return Counter((row["k"], row["dt"], row["n"]) for row in rows)


@functools.cache
def expected(kind: str, verb: str) -> tuple[Bag, Bag, tuple[Op, ...]]:
    """The rows before and after the verb, and what it asks of the storage."""
    io = FaultyFileIO(start(kind))
    before = rows_of(opened(io.inner, 2))
    done = run(io, verb)
    assert done.warnings == (), done.warnings
    return before, rows_of(opened(io.inner, 2)), tuple(io.ops)


def is_publish(op: Op) -> bool:
    """Whether an operation makes a snapshot."""
    return op.name == "create_exclusive" and "/snapshot/snapshot-" in op.path


def published_at(ops: tuple[Op, ...]) -> int:
    """The number of the operation that makes the first snapshot; the last one where there is none."""
    return next((op.number for op in ops if is_publish(op)), ops[-1].number)
