"""A primary-key table and a dictionary that are treated alike stay alike, now and at every snapshot.

The model feeds every version that was written, oldest first, to the slow twin of the table's merge engine, flush by
flush as the writer does. Compaction, reopening and a stale second handle must change nothing that a read sees.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import tidelake as tl
from tidelake.catalog.filesystem import Lake
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO
from tidelake.testing.merge import SlowMerge, Version

Row = dict[str, Any]
WORDS = ("+I", "-U", "+U", "-D")
ENGINES: dict[str, tuple[dict[str, str], tuple[int, ...]]] = {
    "deduplicate": ({}, (0, 0, 2, 3, 1)),
    "deduplicate by sequence": ({"sequence.field": "n"}, (0, 0, 2, 3)),
    "partial-update": ({"merge-engine": "partial-update"}, (0, 2)),
    "sequence group": ({"merge-engine": "partial-update", "fields.n.sequence-group": "v"}, (0, 2)),
    "aggregation": (
        {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "fields.v.aggregate-function": "max"},
        (0, 2),
    ),
    "first-row": ({"merge-engine": "first-row"}, (0,)),
}
rows = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.integers(0, 9),
        st.sampled_from(["a", "b"]),
        st.none() | st.integers(0, 3),
        st.none() | st.sampled_from(["x", "y", "z"]),
    ),
    min_size=1,
    max_size=8,
)
who = st.sampled_from(["table", "stale"])


class KeyedTable(RuleBasedStateMachine):
    """`versions` holds the merged versions of every key by flush; `history` what each snapshot showed."""

    table: Table
    stale: Table

    @initialize(
        engine=st.sampled_from(list(ENGINES)),
        buckets=st.sampled_from(["1", "2", "-1"]),
        trigger=st.sampled_from(["2", "3", "5"]),
        partitioned=st.booleans(),
        write_only=st.booleans(),
        kind=st.sampled_from(["parquet", "orc", "avro"]),
    )
    def create(self, engine: str, buckets: str, trigger: str, partitioned: bool, write_only: bool, kind: str) -> None:
        options, self.kinds = ENGINES[engine]
        self.engine = engine
        write_only = write_only and engine != "first-row"  # its rows are seen once they are compacted
        self.lake = Lake(Env(MemoryFileIO(), FakeClock(1_000), SeededIds(1)))
        self.table = self.stale = self.lake.create_table(
            "d.t",
            {"k": "INT NOT NULL", "dt": "STRING NOT NULL", "n": "INT", "v": "STRING"},
            primary_key=["dt", "k"],
            partition_by=["dt"] if partitioned else [],
            options={
                "bucket": buckets,
                "num-sorted-run.compaction-trigger": trigger,
                "write-only": str(write_only).lower(),
                "file.format": kind,
                **options,
            },
        )
        self.slow = SlowMerge(self.table.schema, options)
        self.versions: dict[tuple[str, int], list[Version]] = {}
        self.history: dict[int, list[Row]] = {}
        self.number = 0

    def handle(self, name: str) -> Table:
        return self.stale if name == "stale" else self.table

    # -------------------------------------------------------------------------------------------- model

    def merged(self, versions: dict[tuple[str, int], list[Version]]) -> list[Row]:
        found = [self.slow.merge(each) for each in versions.values() if each]
        return sorted(
            (version[2] for version in found if version is not None and version[1] % 2 == 0),
            key=lambda row: (row["dt"], row["k"]),
        )

    def feed(self, written: list[tuple[int, Row]]) -> None:
        """One flush: the versions of a key in it are merged before they meet the older ones."""
        flush: dict[tuple[str, int], list[Version]] = {}
        for kind, row in written:
            flush.setdefault((row["dt"], row["k"]), []).append((self.number, kind, row))
            self.number += 1
        for key, versions in flush.items():
            merged = self.slow.merge(versions)
            if merged is not None:
                self.versions.setdefault(key, []).append(merged)

    def done(self) -> None:
        latest = self.table.latest_snapshot()
        if latest is not None:
            state = self.merged(self.versions)
            for snapshot_id in range(max(self.history, default=0) + 1, latest.id + 1):
                self.history[snapshot_id] = state
            if self.engine == "first-row" and self.history:
                # Rows show with the compaction, not with the commit before it.
                for snapshot_id in list(self.history):
                    if self.table.snapshot(snapshot_id).commit_kind.value != "COMPACT":
                        del self.history[snapshot_id]

    # -------------------------------------------------------------------------------------------- rules

    @rule(values=rows, by=who)
    def write(self, values: list[tuple[int, int, str, int | None, str | None]], by: str) -> None:
        written = [
            (self.kinds[choice % len(self.kinds)], {"k": k, "dt": dt, "n": n, "v": v}) for choice, k, dt, n, v in values
        ]
        self.handle(by).write([{**row, "rowkind": WORDS[kind]} for kind, row in written])
        self.feed(written)
        self.done()

    @rule(full=st.booleans(), by=who)
    def compact(self, full: bool, by: str) -> None:
        before = self.merged(self.versions)
        self.handle(by).compact(full=full)
        self.done()
        assert self.merged(self.versions) == before

    @precondition(lambda self: self.engine == "deduplicate")
    @rule(n=st.integers(0, 3), by=who)
    def delete(self, n: int, by: str) -> None:
        gone = [row for row in self.merged(self.versions) if row["n"] == n]
        assert self.handle(by).delete(f"n = {n}").rows == len(gone)
        self.feed([(3, row) for row in gone])
        self.done()

    @precondition(lambda self: self.engine in ("deduplicate", "partial-update"))
    @rule(n=st.integers(0, 3), by=who)
    def update(self, n: int, by: str) -> None:
        changed = [{**row, "v": "new"} for row in self.merged(self.versions) if row["n"] == n]
        assert self.handle(by).update({"v": "'new'"}, f"n = {n}").rows == len(changed)
        self.feed([(2, row) for row in changed])
        self.done()

    @rule(values=rows)
    def overwrite(self, values: list[tuple[int, int, str, int | None, str | None]]) -> None:
        written = [(0, {"k": k, "dt": dt, "n": n, "v": v}) for _, k, dt, n, v in values]
        self.table.write([row for _, row in written], mode="overwrite")
        self.versions = {}
        self.feed(written)
        self.done()

    @rule()
    def open_anew(self) -> None:
        self.table = self.lake.table("d.t")

    @rule()
    def open_the_other(self) -> None:
        self.stale = self.lake.table("d.t")

    @rule(key=st.integers(0, 9), dt=st.sampled_from(["a", "b"]))
    def look_up(self, key: int, dt: str) -> None:
        if self.engine == "first-row":
            return
        expected = [row for row in self.merged(self.versions) if (row["dt"], row["k"]) == (dt, key)]
        assert self.table.to_arrow(where=f"k = {key} AND dt = '{dt}'").to_pylist() == expected

    @rule(n=st.integers(0, 3))
    def filter(self, n: int) -> None:
        if self.engine == "first-row":
            return
        expected = [{"v": row["v"]} for row in self.merged(self.versions) if row["n"] == n]
        found = self.table.to_arrow(columns=["v"], where=f"n = {n}").to_pylist()
        assert sorted(map(repr, found)) == sorted(map(repr, expected))

    # -------------------------------------------------------------------------------------------- laws

    @invariant()
    def the_newest_snapshot_shows_the_model(self) -> None:
        if getattr(self, "history", None):
            latest = max(self.history)
            self.compare(latest, self.table if latest == self.table.latest_snapshot().id else None)

    def compare(self, snapshot_id: int, table: Table | None = None) -> None:
        table = table or self.table.at(snapshot=snapshot_id)
        found = sorted(table.to_arrow().to_pylist(), key=lambda row: (row["dt"], row["k"]))
        assert found == self.history[snapshot_id]
        assert table.count() == len(found)

    def teardown(self) -> None:
        for snapshot_id in getattr(self, "history", {}):
            self.compare(snapshot_id)
        if getattr(self, "history", None):
            report = self.table.check()
            assert report.ok, report


TestKeyedTable = KeyedTable.TestCase
TestKeyedTable.settings = settings(
    max_examples=30, stateful_step_count=10, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def test_a_key_has_one_row_whatever_was_written() -> None:
    table = tl.connect("memory://one-row").create_table(
        "d.t", {"k": "INT NOT NULL", "v": "INT"}, primary_key=["k"], options={"bucket": "1"}
    )
    for number in range(7):
        table.write([{"k": 1, "v": number}, {"k": number, "v": -number}])
    assert sorted(table.to_arrow()["k"].to_pylist()) == list(range(7))
