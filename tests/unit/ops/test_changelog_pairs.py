"""Every combination of changelog producer, forced look-ups, deletion vectors and merge engine that a table may have.

Whatever was written, lifted to a middle level and compacted: the table shows what the engine makes of its versions, and
what compactions tell adds up to it.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from kit.changelogs import changelog, changelogs, numbered_changelog
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import InvalidInputError
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO
from tidelake.testing.merge import SlowMerge, Version

Row = tuple[str, int, int | None, int | None, int | None]
COLUMNS = {"k": "INT NOT NULL", "a": "INT", "b": "INT", "n": "INT"}
GROUP = {"merge-engine": "partial-update", "fields.n.sequence-group": "b"}
SUM = {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum", "fields.b.aggregate-function": "max"}
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "deduplicate by sequence": {"sequence.field": "n"},
    "deduplicate, deletes ignored": {"ignore-delete": "true"},
    "partial-update": {"merge-engine": "partial-update"},
    "partial-update, deletes remove": {
        "merge-engine": "partial-update",
        "partial-update.remove-record-on-delete": "true",
    },
    "sequence group": GROUP,
    "sequence group with a function": {**GROUP, "fields.b.aggregate-function": "sum"},
    "aggregation": SUM,
    "aggregation, deletes remove": {**SUM, "aggregation.remove-record-on-delete": "true"},
    "first-row": {"merge-engine": "first-row"},
}
DELETES = {name for name in ENGINES if "deletes" in name} | {"deduplicate", "deduplicate by sequence"}
PRODUCERS = ("none", "input", "lookup", "full-compaction")
LIFT = {
    "compaction.force-up-level-0": "true",
    "compaction.size-ratio": "-99",
    "compaction.max-size-amplification-percent": "100000",
}
# Rows are written by a job that compacts, or by one that only writes; a compaction goes to a middle level, or is full.
LIFE: tuple[tuple[str, list[Row]], ...] = (
    ("write", [("+I", 1, 1, 1, 1), ("+I", 2, 1, None, 2), ("+I", 3, 3, 3, 3), ("+I", 6, 1, 1, 1)]),
    ("append", [("+U", 1, None, 2, 2), ("+I", 4, 4, 4, 5), ("+I", 7, 1, 1, 1)]),
    ("lift", []),
    ("append", [("+U", 1, 5, 5, 1), ("+U", 2, None, 7, 3), ("+I", 5, 5, 5, 5), ("+U", 6, None, None, 4)]),
    ("lift", []),
    ("append", [("+U", 4, 8, None, 4), ("+U", 6, 2, None, 2), ("+I", 8, 8, 8, 8)]),
    ("full", []),
    ("write", [("+U", 1, 9, None, 9), ("+I", 9, 9, 9, 9), ("+U", 5, 5, 5, 5)]),
)
GONE: tuple[tuple[str, list[Row]], ...] = (
    ("append", [("-D", 1, 9, None, 9), ("-D", 5, 5, 5, 5)]),
    ("lift", []),
    ("append", [("-D", 9, 9, 9, 9), ("+I", 5, 1, 1, 6)]),
    ("full", []),
)


def allowed(producer: str, vectors: bool, engine: str) -> bool:
    if engine == "first-row":
        return producer in ("none", "lookup") and not vectors
    return not (vectors and producer == "full-compaction")


def make(producer: str, forced: bool, vectors: bool, options: dict[str, str]) -> Table:
    asked = {"changelog-producer": producer, "force-lookup": forced, "deletion-vectors.enabled": vectors}
    return Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000, tick_ms=1), SeededIds(1)))).create_table(
        "d.t",
        COLUMNS,
        primary_key=["k"],
        options={"bucket": "1", **{key: str(value).lower() for key, value in asked.items()}, **options},
    )


def carry_out(table: Table, step: str, rows: list[Row]) -> None:
    given = [dict(zip(("rowkind", *COLUMNS), row, strict=True)) for row in rows]
    match step:
        case "write":
            table.write(given)
        case "append":
            table.with_options({"write-only": "true"}).write(given)
        case "lift":
            table.with_options(LIFT).compact()
        case "full":
            table.compact(full=True)


def fold(table: Table, state: dict[int, dict[str, Any]], since: int) -> int:
    """Feed the changes of the snapshots after one to a state, which they must fit; return the newest snapshot."""
    latest = table.store.snapshots.latest_id() or 0
    for number in range(since + 1, latest + 1):
        for _, kind, row in numbered_changelog(table, number):
            if kind in ("-U", "-D"):
                assert state.pop(row["k"]) == row
            else:
                assert row["k"] not in state
                state[row["k"]] = row
    return latest


def shown(table: Table) -> dict[int, dict[str, Any]]:
    return {row["k"]: row for row in table.to_arrow().to_pylist()}


def quick(producer: str, forced: bool, vectors: bool, engine: str) -> bool:
    """Whether a combination is tried every time: some that look up for two reasons, or for none but the option."""
    told = producer in ("lookup", "full-compaction")
    return forced and told and not vectors and engine in ("deduplicate by sequence", "sequence group")


COMBINATIONS = [
    (producer, forced, vectors, engine)
    for producer, forced, vectors, engine in product(PRODUCERS, (False, True), (False, True), ENGINES)
    if allowed(producer, vectors, engine)
]


@pytest.mark.parametrize(
    ("producer", "forced", "vectors", "engine"),
    [each if quick(*each) else pytest.param(*each, marks=pytest.mark.long) for each in COMBINATIONS],
)
def test_what_is_told_adds_up_to_the_table(producer: str, forced: bool, vectors: bool, engine: str) -> None:
    table = make(producer, forced, vectors, ENGINES[engine])
    slow = SlowMerge(table.schema, table.options)
    versions: dict[int, list[Version]] = {}
    state: dict[int, dict[str, Any]] = {}
    seen = 0
    for number, (step, rows) in enumerate(LIFE + (GONE if engine in DELETES else ())):
        carry_out(table, step, rows)
        for kind, *values in rows:
            row = dict(zip(COLUMNS, values, strict=True))
            version = (number, ("+I", "-U", "+U", "-D").index(kind), row)
            versions.setdefault(row["k"], []).append(version)
        if producer == "input":
            latest = table.store.snapshots.latest_id() or 0
            told = [row for each in range(seen + 1, latest + 1) for row in changelog(table, each)]
            counted = [row for row in rows if not ("ignored" in engine and row[0] == "-D")]
            assert told == sorted(counted, key=lambda row: row[1])
            seen = latest
        elif producer == "none":
            assert changelogs(table) == {}
        else:
            seen = fold(table, state, seen)
            if step in ("write", "full") or (producer == "lookup" and step == "lift"):
                assert state == shown(table), (number, step)
        if number < len(LIFE) and step in ("write", "full"):
            expected = {key: answer[2] for key, each in versions.items() if (answer := slow.merge(each))}
            assert shown(table) == expected, (number, step)
    assert table.check().ok


def test_other_combinations_are_refused() -> None:
    for producer, vectors, engine in product(PRODUCERS, (False, True), ENGINES):
        if not allowed(producer, vectors, engine):
            with pytest.raises(InvalidInputError):
                make(producer, False, vectors, ENGINES[engine])


def test_full_compactions_tell_of_changes_where_look_ups_are_forced_too() -> None:
    table = make("full-compaction", True, False, GROUP)
    carry_out(table, "write", [("+I", 1, 1, 1, 1)])
    carry_out(table, "write", [("+I", 1, 2, 2, 2), ("+I", 2, 1, 1, None)])
    assert [tuple(row.values()) for row in shown(table).values()] == [(1, 2, 2, 2), (2, 1, 1, None)]
    assert [row for told in changelogs(table).values() for row in told] == [
        ("+I", 1, 1, 1, 1),
        ("-U", 1, 1, 1, 1),
        ("+U", 1, 2, 2, 2),
        ("+I", 2, 1, 1, None),
    ]


@pytest.mark.parametrize(("producer", "vectors"), [("lookup", False), ("lookup", True), ("none", True)])
def test_an_old_row_without_a_sequence_loses_its_group_when_it_is_rewritten(producer: str, vectors: bool) -> None:
    """It stayed whole: only keys with a new version went through the engine, where Paimon feeds it every row."""
    table = make(producer, False, vectors, GROUP)
    carry_out(table, "write", [("+I", 1, 1, 1, 1), ("+I", 3, 3, 3, None), ("+I", 5, 5, 5, 5)])
    state: dict[int, dict[str, Any]] = {}
    seen = fold(table, state, 0)
    assert [tuple(row.values()) for row in shown(table).values()] == [(1, 1, 1, 1), (3, 3, 3, None), (5, 5, 5, 5)]
    carry_out(table, "append", [("+U", 1, 2, 2, 2), ("+I", 4, 4, 4, None)])
    carry_out(table, "full", [])
    expected = [(1, 2, 2, 2), (3, 3, None, None), (4, 4, None, None), (5, 5, 5, 5)]
    assert [tuple(row.values()) for row in shown(table).values()] == expected
    if producer == "lookup":
        fold(table, state, seen)
        assert state == shown(table)


def test_a_middle_level_holds_whole_rows_where_full_compactions_tell_and_look_ups_are_forced() -> None:
    table = make("full-compaction", True, False, {"merge-engine": "partial-update"})
    carry_out(table, "append", [("+I", 1, 1, 1, 1)])
    carry_out(table, "full", [])
    carry_out(table, "append", [("+U", 1, None, 2, 2)])
    carry_out(table, "lift", [])
    assert sorted(table.files().column("level").to_pylist()) == [4, 5]
    assert [tuple(row.values()) for row in shown(table).values()] == [(1, 1, 2, 2)]
