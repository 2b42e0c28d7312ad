"""T1 over merges: every operation of a merge on the storage fails or kills the process once.

After each fault a new process finds the rows before the merge or those after it, and the latter if it was acknowledged.
It runs the same merge again, whose conditions leave alone what was done: nothing is lost, nothing is doubled, and
`check` reads every live file and finds nothing wrong.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Literal

import pytest

from fault.harness import FIRST, MODES, SECOND, Image, digest, doors, has_its_turn, left_nothing, memory_with
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import CommitUnknownError, StorageError, TidelakeError
from tidelake.io import FileIO
from tidelake.io.env import Env
from tidelake.io.selftest import probe_create_exclusive
from tidelake.testing import Crash, Fault, FaultyFileIO, MemoryFileIO
from tidelake.testing.faulty import READS
from tidelake.testing.scenario import take_image

NAME, FOLDER = "db.merged", "db.db/merged"
COLUMNS = {"k": "INT NOT NULL", "dt": "STRING NOT NULL", "n": "INT", "v": "STRING"}
TABLES: Mapping[str, tuple[list[str], dict[str, str]]] = {
    "append": ([], {}),
    "append, buckets": ([], {"bucket": "2", "bucket-key": "k"}),
    "append, vectors": ([], {"deletion-vectors.enabled": "true"}),
    "deduplicate": (["dt", "k"], {"bucket": "1"}),
    "deduplicate, vectors": (["dt", "k"], {"bucket": "1", "deletion-vectors.enabled": "true"}),
    "dynamic buckets": (["dt", "k"], {"bucket": "-1"}),
    "aggregation": (["dt", "k"], {"bucket": "1", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}),
    "first-row": (["dt", "k"], {"bucket": "1", "merge-engine": "first-row"}),
}
HIDDEN = ("first-row", "deduplicate, vectors")
"""Tables whose new rows are seen once they are compacted."""
WHOLLY = ("append", "deduplicate")
"""Tables where every operation fails in every way; elsewhere each fails in one, in turn."""
SOURCE = [
    {"k": 1, "dt": "a", "n": 10, "v": "one"},
    {"k": 3, "dt": "b", "n": -1, "v": None},
    {"k": 7, "dt": "b", "n": 70, "v": "seven"},
    {"k": 8, "dt": "c", "n": 80, "v": "eight"},
    {"k": 9, "dt": "c", "n": -1, "v": "never"},
]
BEFORE = {1: (1, "x"), 2: (2, "y"), 3: (3, "z"), 4: (4, None)}
AFTER = {1: (11, "one"), 2: (2, "y"), 4: (4, "late"), 7: (70, "seven"), 8: (80, "eight")}


def merge(env: Env) -> None:
    """The merge under test; a second time it finds nothing to do."""
    (
        Lake(FileSystemCatalog(env))
        .table(NAME)
        .merge(SOURCE, on=["k", "dt"])
        .when_matched_delete("s.n < 0")
        .when_matched_update({"n": "t.n + s.n", "v": "s.v"}, condition="t.v <> s.v")
        .when_not_matched_insert(condition="s.n > 0")
        .when_not_matched_by_source_update({"v": "'late'"}, condition="t.v is null")
        .run()
    )


@functools.cache
def filled(kind: str) -> Image:
    """The storage before the merge."""
    io = MemoryFileIO()
    key, options = TABLES[kind]
    table = Lake(FileSystemCatalog(doors(io, 1))).create_table(
        NAME, COLUMNS, primary_key=key, partition_by=["dt"], options=options
    )
    rows = [{"k": k, "dt": "ab"[(k - 1) // 2], "n": n, "v": v} for k, (n, v) in BEFORE.items()]
    table.write(rows[::2])
    table.write(rows[1::2])
    return take_image(io)


def start(kind: str) -> FileIO:
    io = memory_with(filled(kind))
    # Done ahead: the racing threads of the probe would number the operations by chance.
    lake = FaultyFileIO(io)
    for each in (lake, lake.sub(FOLDER)):
        probe_create_exclusive(each)
    return io


def attempt(io: FileIO) -> Literal["acked"] | Crash | TidelakeError:
    """Merge in a process of its own and tell how it ended."""
    try:
        merge(doors(io, FIRST))
    except (Crash, TidelakeError) as failure:
        return failure
    return "acked"


def state_of(env: Env) -> dict[int, tuple[int, str | None]]:
    rows = Lake(FileSystemCatalog(env)).table(NAME).to_arrow().to_pylist()
    found = {row["k"]: (row["n"], row["v"]) for row in rows}
    assert len(found) == len(rows), f"a key has two rows: {rows}"
    return found


def look(io: FileIO, where: str, kind: str, *, acked: bool, nothing: bool) -> None:
    """What a new process finds, and what it has after it merged again."""
    found = state_of(doors(io, SECOND))
    # Where rows wait for a compaction to be seen, a fault before it leaves the new ones for the next job to show.
    waiting = {key: row for key, row in AFTER.items() if key not in (7, 8)} if kind in HIDDEN else AFTER
    allowed = [waiting, AFTER] if acked else [BEFORE] if nothing else [BEFORE, waiting, AFTER]
    assert found in allowed, (where, found)
    merge(doors(io, SECOND + 1))
    table = Lake(FileSystemCatalog(doors(io, SECOND + 2))).table(NAME)
    if kind in HIDDEN:
        table.compact(full=True)
    assert state_of(doors(io, SECOND + 2)) == AFTER, where
    report = table.check(rows=True)
    assert report.ok, (where, str(report))


@pytest.mark.parametrize("kind", TABLES)
def test_every_operation_of_a_merge_fails(kind: str) -> None:
    clean = FaultyFileIO(start(kind))
    assert attempt(clean) == "acked"
    assert state_of(doors(clean.inner, SECOND)) == AFTER
    seen: set[bytes] = set()
    visits = 0
    for op in clean.ops:
        # A death before a read leaves what a death after the change before it left.
        ways = MODES if kind in WHOLLY else (MODES[op.number % len(MODES)],)
        for fault in (Fault.BEFORE,) if op.name in READS else ways:
            if not has_its_turn(op, fault, 3 if kind in WHOLLY or op.name in READS else 1):
                continue
            where = f"REPRO kind={kind} op={op} fault={fault.value}"
            io = FaultyFileIO(start(kind), {op.number: fault})
            outcome = attempt(io)
            assert [fault_seen for _, fault_seen in io.injected_faults] == [fault], where
            assert outcome == "acked" or isinstance(outcome, Crash | StorageError | CommitUnknownError), (
                where,
                outcome,
            )
            visits += 1
            state = digest(take_image(io.inner), (outcome == "acked", left_nothing(outcome)))
            if state not in seen:
                seen.add(state)
                look(io.inner, where, kind, acked=outcome == "acked", nothing=left_nothing(outcome))
    assert visits >= len(clean.ops) / 3
    print(f"{kind}: {visits} faults led to {len(seen)} different storages")
