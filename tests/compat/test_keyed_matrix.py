"""Two tables side by side, one of Apache Paimon and one of ours, given the same rows and compacted at the same moments.

At every snapshot both read the same rows in both tables, in every state of the tree: before a compaction, after a minor
one, after a full one. And the metadata of every file is the same, names, sizes and times apart: keys, statistics,
sequence numbers, counts of deletions, levels, sources.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from random import Random  # noqa: TID251 - drawn from fixed seeds
from typing import Any

import pytest

import oracle
import tidelake as tl
from compat.actors import encoded, our_rows
from compat.facts import entry_facts
from compat.keyed_cells import (
    BUCKETS,
    FEATURES,
    FORMATS,
    KEYS,
    LIFE,
    LIFT,
    STATES,
    Cell,
    Kinded,
    Row,
    coverage,
    deal,
    feature_of,
    fits,
    make_rows,
    seen,
    third,
)
from compat.keyed_writes import our_write, their_write
from tidelake.lsm.aggregate import FUNCTION_NAMES
from tidelake.spec.rows.binary_row_scalar import decode_row
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.data_types import Root
from tidelake.table import Table

CELLS = list(deal())
CHOSEN = CELLS if os.environ.get("TIDELAKE_EVERY_CELL") == "1" else third(CELLS)
"""All of them take a quarter of an hour: `make compat-all`."""
TOLD_APART = ("file_name", "file_size", "creation_time_ms")
WRITES = {"write-only": "false"}


def test_a_third_of_the_cells_still_has_every_function_and_engine() -> None:
    assert {cell.feature for cell in CHOSEN} == set(FEATURES)


def test_every_function_and_engine_is_compared_in_every_state_format_and_bucket_mode() -> None:
    covered = coverage(CELLS)
    for name in FUNCTION_NAMES:
        for state in STATES:
            assert {(kind, mode) for what, at, kind, mode in covered if (what, at) == (name, state)} == {
                (kind, mode) for kind in FORMATS for mode in BUCKETS
            }, name
    for name in FEATURES:
        for state in STATES:
            here = [(kind, mode) for what, at, kind, mode in covered if (what, at) == (name, state)]
            assert {kind for kind, _ in here} == set(FORMATS), name
            assert {mode for _, mode in here} == set(BUCKETS), name
    for key in KEYS:
        here = [cell for cell in CELLS if cell.key == key]
        assert len({FEATURES[cell.feature].options.get("merge-engine") for cell in here}) >= 3, key
        assert {cell.format for cell in here} == {kind for kind in FORMATS if fits(key, kind, "default")}, key
    assert all([state for _, state in LIFE].count(state) >= 2 for state in STATES)
    assert len(covered) >= 1000


# ------------------------------------------------------------------------------------------------ both write


class Both:
    """A table of theirs and one of ours."""

    def __init__(self, cell: Cell, folder: Path) -> None:
        self.cell, self.columns = cell, feature_of(cell).columns
        catalogs = {side: oracle.Catalog(folder / side) for side in ("theirs", "ours")}
        self.theirs = catalogs["theirs"].create_table("d.t", cell.columns, cell.primary_key, (), cell.options)
        self.ours = tl.connect(folder / "ours").create_table(
            "d.t", cell.columns, primary_key=cell.primary_key, options=cell.options
        )
        self.ours_in_java = catalogs["ours"].table("d.t")
        self.theirs_by_us = tl.open_table(str(folder / "theirs/d.db/t"))

    def do(self, step: str, rows: list[Kinded]) -> None:
        match step:
            case "write":
                their_write(self.theirs, rows)
                our_write(self.ours, rows)
            case "lift":
                self.theirs.compact(full=False, options=LIFT)
                self.ours.with_options({**WRITES, **LIFT}).compact(full=False)
            case "compact":
                self.theirs.compact()
                self.ours.with_options(WRITES).compact(full=True)

    def read(self, snapshot: int) -> dict[str, list[Row]]:
        """The rows of a snapshot, by whose table it is and who reads it."""
        found = {
            "theirs by them": self.theirs.read(snapshot=snapshot),
            "theirs by us": our_rows(self.theirs_by_us.at(snapshot=snapshot)),
            "ours by them": self.ours_in_java.read(snapshot=snapshot),
            "ours by us": our_rows(self.ours.at(snapshot=snapshot)),
        }
        return {who: seen(rows, self.columns) for who, rows in found.items()}

    def differences(self, found: list[Row], expected: list[Row]) -> dict[str, Any]:
        """What is seen otherwise, column by column, so that a failure names the column."""
        if encoded(found) == encoded(expected):
            return {}
        key = self.cell.primary_key
        told = {}
        for name in self.cell.columns:
            left, right = (
                set(encoded({each: row[each] for each in (*key, name)} for row in rows)) for rows in (found, expected)
            )
            if left != right:
                told[name] = {"found": sorted(left - right)[:3], "expected": sorted(right - left)[:3]}
        return told or {"": (len(found), len(expected))}


def file_facts(table: Table, snapshot: int) -> list[dict[str, Any]]:
    """What the manifests say of every live file, in an order that does not depend on names."""
    schema, facts = table.schema, []
    for each in entry_facts(table.files(snapshot=snapshot)):
        names = each["value_stats_cols"]
        orc = each["file_name"].endswith(".orc")
        kept = {name: value for name, value in each.items() if name not in TOLD_APART}
        if each["file_name"].endswith(".avro"):
            kept["key_stats"] = None  # those of Java are collected by the mode of the values, ours by that of keys
        else:
            kept["key_stats"] = bounds(schema, schema.trimmed_primary_keys, each["key_stats"], orc=orc)
        kept["value_stats"] = bounds(schema, schema.names if names is None else names, each["value_stats"], orc=orc)
        facts.append(kept)
    place = ("partition", "bucket", "level", "min_sequence", "min_key")
    return sorted(facts, key=lambda each: [each[name] for name in place])


def bounds(schema: Schema, names: Sequence[str], stats: dict[str, Any], *, orc: bool) -> dict[str, Any]:
    """Minimum, maximum and null count of each column that has some.

    Bounds where ours are better on purpose are left out: those of floats, which must not lie about NaN and the zeros,
    those of binaries in ORC, which Java does not know, and of CHAR in ORC, which it fills up with blanks.
    """
    fields = [schema.field(name) for name in names]
    types = [field.type for field in fields]
    low, high = (decode_row(bytes.fromhex(stats[side]), types) for side in ("min", "max"))
    vague = {Root.FLOAT, Root.DOUBLE, *((Root.BINARY, Root.VARBINARY, Root.CHAR) if orc else ())}
    return {
        field.name: (None if field.type.root in vague else (least, most), nulls)
        for field, least, most, nulls in zip(fields, low, high, stats["nulls"], strict=True)
    }


def assigned_otherwise(cell: Cell) -> bool:
    """Whether rows that are not even written take part in the choice of buckets: in Java they do."""
    return cell.buckets == "dynamic" and "ignored" in cell.feature


def levels(table: Table, snapshot: int) -> set[int]:
    return set(table.files(snapshot=snapshot)["level"].to_pylist())


def state_of(found: set[int]) -> set[str]:
    """The states that a tree with files on these levels may be called."""
    if found == {0}:
        return {"before"}
    return {"minor"} if found & set(range(1, 5)) else {"full"}


# In Avro Java counts the columns of the key and of the system too.
FIRST_ONLY = [Cell("statistics of the first", kind, "default", "STRING, BIGINT") for kind in ("parquet", "orc")]


@pytest.mark.oracle
@pytest.mark.usefixtures("jvm")
@pytest.mark.parametrize("cell", [*CHOSEN, *FIRST_ONLY], ids=str)
def test_both_make_the_same_of_the_same_rows(cell: Cell, tmp_path: Path) -> None:
    both = Both(cell, tmp_path)
    rng = Random(str(cell))
    for step, _ in LIFE:
        both.do(step, make_rows(cell, rng))
    facts = feature_of(cell).facts and not assigned_otherwise(cell)
    assert both.ours.latest_snapshot().id == both.theirs_by_us.latest_snapshot().id == len(LIFE)
    for snapshot, (step, state) in enumerate(LIFE, 1):
        views = both.read(snapshot)
        expected = views.pop("theirs by them")
        for who, rows in views.items():
            assert not both.differences(rows, expected), (snapshot, step, who)
        if facts:
            for table in (both.theirs_by_us, both.ours):
                assert state_of(levels(table, snapshot)) == {state}, (snapshot, levels(table, snapshot))
            assert file_facts(both.ours, snapshot) == file_facts(both.theirs_by_us, snapshot), (snapshot, step)
    report = both.ours.check(deep=True)
    assert report.ok, str(report)
