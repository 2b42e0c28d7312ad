"""Changes lead from state to state: feeding those of a snapshot to what was there before gives what is there now.

For every engine, with changes told by looking up and by full compactions, whatever was written and compacted, whoever
did it. And the vectorised difference of two states is the one that a loop over keys gives.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kit.changelogs import numbered_changelog
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.lsm.difference import KeyRows, difference
from tidelake.lsm.engine import KIND
from tidelake.spec.types.data_types import INT, STRING, Field
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO

Row = tuple[Any, ...]
WORDS = ("+I", "-U", "+U", "-D")
GROUP = {"merge-engine": "partial-update", "fields.n.sequence-group": "v"}
SUM = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "fields.v.aggregate-function": "max"}
ENGINES: dict[str, tuple[dict[str, str], tuple[int, ...]]] = {
    "deduplicate": ({}, (0, 0, 2, 3, 1)),
    "deduplicate by sequence": ({"sequence.field": "n"}, (0, 2, 3)),
    "deduplicate, deletes ignored": ({"ignore-delete": "true"}, (0, 2, 3)),
    "partial-update": ({"merge-engine": "partial-update"}, (0, 2)),
    "partial-update, deletes remove": (
        {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
        (0, 2, 3),
    ),
    "sequence group": (GROUP, (0, 2, 3)),
    "aggregation": (SUM, (0, 2)),
    "aggregation, deletes remove": ({**SUM, "aggregation.remove-record-on-delete": "true"}, (0, 2, 3)),
    "first-row": ({"merge-engine": "first-row"}, (0,)),
}
rows = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.integers(0, 5),
        st.none() | st.integers(0, 3),
        st.none() | st.sampled_from(["x", "y", ""]),
    ),
    min_size=1,
    max_size=6,
)
steps = st.lists(
    st.tuples(st.just("write"), rows)
    | st.tuples(st.just("append"), rows)
    | st.tuples(st.just("lift"), st.none())
    | st.tuples(st.just("compact"), st.booleans()),
    min_size=2,
    max_size=9,
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    engine=st.sampled_from(list(ENGINES)),
    producer=st.sampled_from(["lookup", "full-compaction"]),
    trigger=st.sampled_from(["2", "3", "5"]),
    deduplicate=st.booleans(),
    forced=st.booleans(),
    vectors=st.booleans(),
    life=steps,
)
@example(
    "partial-update",
    "lookup",
    "3",
    False,
    False,
    False,
    [("write", [(0, 1, 1, None)]), ("write", [(0, 1, None, "x")])],
)
@example(
    "sequence group",
    "full-compaction",
    "3",
    False,
    True,
    False,
    [("write", [(0, 1, 1, "x")]), ("write", [(0, 1, 2, "y"), (0, 2, None, "x")])],
)
def test_changes_lead_from_what_was_there_to_what_is_there(
    engine: str,
    producer: str,
    trigger: str,
    deduplicate: bool,
    forced: bool,
    vectors: bool,
    life: list[tuple[str, Any]],
) -> None:
    options, kinds = ENGINES[engine]
    if engine == "first-row":
        producer, vectors = "lookup", False
    vectors = vectors and producer == "lookup"
    table = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000, tick_ms=1), SeededIds(1)))).create_table(
        "d.t",
        {"k": "INT NOT NULL", "n": "INT", "v": "STRING"},
        primary_key=["k"],
        options={
            "bucket": "1",
            "changelog-producer": producer,
            "changelog-producer.row-deduplicate": str(deduplicate).lower(),
            "force-lookup": str(forced).lower(),
            "deletion-vectors.enabled": str(vectors).lower(),
            "num-sorted-run.compaction-trigger": trigger,
            **options,
        },
    )
    follower = Follower(table, deduplicate=deduplicate)
    for step, given_rows in [*life, ("compact", True)]:
        match step:
            case "write":
                table.write(as_rows(given_rows, kinds))
            case "append":
                table.with_options({"write-only": "true"}).write(as_rows(given_rows, kinds))
            case "lift":
                how = {"compaction.force-up-level-0": "true", "compaction.size-ratio": "0"}
                table.with_options(how).compact()
            case "compact":
                table.compact(full=given_rows)
        follower.follow()
        settled = not any(level == 0 for level in table.files().column("level").to_pylist())
        if settled and (producer == "lookup" or step == "write" or (step == "compact" and given_rows)):
            follower.assert_there()


def as_rows(drawn: list[Row], kinds: tuple[int, ...]) -> list[dict[str, Any]]:
    return [
        {"rowkind": WORDS[kinds[kind % len(kinds)]], "k": key, "n": number, "v": text}
        for kind, key, number, text in drawn
    ]


class Follower:
    """Keeps what the changes of a table say, and refuses a change that does not fit."""

    def __init__(self, table: Table, *, deduplicate: bool) -> None:
        self.table, self.deduplicate = table, deduplicate
        self.state: dict[Any, dict[str, Any]] = {}
        self.seen = 0

    def follow(self) -> None:
        latest = self.table.store.snapshots.latest_id() or 0
        for number in range(self.seen + 1, latest + 1):
            before: dict[str, Any] | None = None
            for _, kind, row in numbered_changelog(self.table, number):
                if kind in ("-U", "-D"):
                    assert self.state.pop(row["k"]) == row
                else:
                    assert row["k"] not in self.state
                    self.state[row["k"]] = row
                assert (kind == "+U") == (before is not None), "-U and +U stand together"
                assert not (self.deduplicate and kind == "+U" and before == row)
                before = row if kind == "-U" else None
        self.seen = latest

    def assert_there(self) -> None:
        there = {row["k"]: row for row in self.table.to_arrow().to_pylist()}
        assert self.state == there


# ------------------------------------------------------------------------------------------------ the difference

state = st.dictionaries(
    st.integers(0, 9), st.tuples(st.integers(0, 3), st.none() | st.integers(0, 2), st.none() | st.sampled_from("xy"))
)
FIELDS = (Field(1, "n", INT), Field(2, "v", STRING))


def key_rows(of_keys: dict[int, Row]) -> KeyRows:
    keys = list(of_keys)
    columns = {
        "k": pa.array(keys, pa.int32()),
        "n": pa.array([of_keys[key][1] for key in keys], pa.int32()),
        "v": pa.array([of_keys[key][2] for key in keys], pa.string()),
        KIND: pa.array([of_keys[key][0] for key in keys], pa.int8()),
    }
    return KeyRows(pa.table(columns), np.array(keys, np.int64))


@settings(max_examples=200, deadline=None)
@given(before=state, after=state, compared=st.sampled_from([None, FIELDS, FIELDS[:1]]))
def test_the_difference_is_that_of_a_loop_over_keys(
    before: dict[int, Row], after: dict[int, Row], compared: tuple[Field, ...] | None
) -> None:
    expected: list[Row] = []
    for key in sorted({*before, *after}):
        old, new = (each.get(key) for each in (before, after))
        old = old if old is not None and old[0] % 2 == 0 else None
        new = new if new is not None and new[0] % 2 == 0 else None
        if old and new:
            width = None if compared is None else 1 + len(compared)
            if width is None or old[1:width] != new[1:width]:
                expected += [(key, *old[1:], 1), (key, *new[1:], 2)]
        elif old:
            expected.append((key, *old[1:], 3))
        elif new:
            expected.append((key, *new[1:], 0))
    found = difference(key_rows(before), key_rows(after), compared=compared)
    assert [tuple(row.values()) for row in found.to_pylist()] == expected
