"""A primary-key table and a dictionary that are treated alike stay alike, now and at every snapshot.

The model feeds every version that was written, oldest first, to the slow twin of the table's merge engine, flush by
flush as the writer does. Compaction, reopening and a stale second handle must change nothing that a read sees; tags and
branches keep what they named through overwrites, rollbacks and expiry; of two writers whose work overlaps the later
commit is the newer one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO
from tidelake.testing.merge import SlowMerge, Version

Row = dict[str, Any]


Key = tuple[str, int]


Versions = dict[Key, tuple[Version, ...]]


Shown = list[Row]


Values = list[tuple[int, int, str, int | None, str | None]]


WORDS = ("+I", "-U", "+U", "-D")


ENGINES: dict[str, tuple[dict[str, str], tuple[int, ...]]] = {
    "deduplicate": ({}, (0, 0, 2, 3, 1)),
    # Without deletions: one that a compaction dropped no longer holds back rows that are older by their sequence.
    "deduplicate by sequence": ({"sequence.field": "n"}, (0, 2)),
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
        st.integers(0, 4),
        st.sampled_from(["a", "b"]),
        st.none() | st.integers(0, 3),
        st.none() | st.sampled_from(["x", "y", "z"]),
    ),
    min_size=1,
    max_size=8,
)


who = st.sampled_from(["table", "stale"])


def shown(found: Iterable[Row]) -> Shown:
    """Rows by key; a column that a snapshot does not have yet counts as null."""
    kept = ({name: value for name, value in row.items() if value is not None} for row in found)
    return sorted(kept, key=lambda row: (row["dt"], row["k"]))


class KeyedTable(RuleBasedStateMachine):
    """`versions` holds the merged versions of every key by flush, `history` those that each snapshot shows."""

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
        lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000, tick_ms=1), SeededIds(1))))
        layout = {"bucket": buckets, "num-sorted-run.compaction-trigger": trigger, "file.format": kind}
        layout["write-only"] = str(write_only and engine != "first-row").lower()
        self.begin(lake, engine, layout, partitioned=partitioned, waits=engine == "first-row")

    def begin(self, lake: Lake, engine: str, layout: dict[str, str], *, partitioned: bool, waits: bool) -> None:
        """Make the table; `waits` tells that rows are seen once they are compacted."""
        options, self.kinds = ENGINES[engine]
        self.lake, self.engine, self.waits = lake, engine, waits
        self.buckets, self.partitioned = layout["bucket"], partitioned
        self.table = self.stale = self.lake.create_table(
            "d.t",
            {"k": "INT NOT NULL", "dt": "STRING NOT NULL", "n": "INT", "v": "STRING"},
            primary_key=["dt", "k"],
            partition_by=["dt"] if partitioned else [],
            options={"dynamic-bucket.target-row-num": "4", **layout, **options},
        )
        self.options = options
        self.slow = SlowMerge(self.table.schema, options)
        self.versions: Versions = {}
        self.history: dict[int, Versions] = {}
        self.tags: dict[str, tuple[int, Versions]] = {}
        self.side: Versions | None = None
        self.number = self.newest = 0

    def handle(self, name: str) -> Table:
        return self.stale if name == "stale" else self.table

    # -------------------------------------------------------------------------------------------- model

    def merged(self, versions: Versions) -> Shown:
        found = [self.slow.merge(each) for each in versions.values() if each]
        return shown(version[2] for version in found if version is not None and version[1] % 2 == 0)

    def whole(self, row: Row) -> Row:
        """A row with every column that the table has by now."""
        return {name: row.get(name) for name in self.table.schema.names}

    def flushed(self, versions: Versions, written: list[tuple[int, Row]]) -> Versions:
        """The versions after one more flush: those of a key in it are merged before they meet the older ones."""
        flush: dict[Key, list[Version]] = {}
        for kind, row in written:
            flush.setdefault((row["dt"], row["k"]), []).append((self.number, kind, self.whole(row)))
            self.number += 1
        new = dict(versions)
        for key, added in flush.items():
            merged = self.slow.merge(added)
            if merged is not None:
                new[key] = (*new.get(key, ()), merged)
        return new

    def done(self) -> None:
        """Note what the snapshots since the last look show."""
        latest = self.table.latest_snapshot()
        newest = latest.id if latest else 0
        for snapshot_id in range(self.newest + 1, newest + 1):
            # Rows that wait show when the verb has ended: a job that does not know all columns compacts some buckets
            # itself and leaves the others to a second compaction, with a snapshot between the two.
            if not self.waits or snapshot_id == newest:
                self.history[snapshot_id] = self.versions
            self.newest = snapshot_id

    def replaced(self, written: list[Row]) -> None:
        """Rows that were rewritten in place: they have one version from now on."""
        for row in written:
            self.versions = {**self.versions, (row["dt"], row["k"]): ((self.number, 0, self.whole(row)),)}
            self.number += 1

    def matching(self, n: int) -> list[Row]:
        return [self.whole(row) for row in self.merged(self.versions) if row.get("n") == n]

    # -------------------------------------------------------------------------------------------- rules

    def rows_of(self, values: Values, kinds: tuple[int, ...]) -> list[tuple[int, Row]]:
        return [(kinds[choice % len(kinds)], {"k": k, "dt": dt, "n": n, "v": v}) for choice, k, dt, n, v in values]

    @rule(values=rows, by=who, wide=st.booleans())
    def write(self, values: Values, by: str, wide: bool) -> None:
        written = self.rows_of(values, self.kinds)
        if wide and "w" in self.handle(by).schema.names:
            written = [(kind, {**row, "w": row["k"]}) for kind, row in written]
        self.handle(by).write([{**row, "rowkind": WORDS[kind]} for kind, row in written])
        self.versions = self.flushed(self.versions, written)
        self.done()

    @precondition(lambda self: self.buckets != "-1")
    @rule(values=rows, others=rows, swap=st.booleans())
    def two_writers(self, values: Values, others: Values, swap: bool) -> None:
        """Both write on the same state; the one that commits later is the newer one."""
        first, second = self.rows_of(values, self.kinds), self.rows_of(others, self.kinds)
        prepared = []
        for table, written in ((self.table, first), (self.stale, second)):
            writer = table.new_write()
            writer.write([{**row, "rowkind": WORDS[kind]} for kind, row in written])
            prepared.append((table, writer.prepare_commit(), written))
        for table, messages, written in reversed(prepared) if swap else prepared:
            table.new_commit().commit(messages)
            self.versions = self.flushed(self.versions, written)
            if self.waits:
                # Rows whose compaction was overtaken show with the next one.
                table.compact()
                self.newest = self.table.latest_snapshot().id - 1
            self.done()

    @rule(full=st.booleans(), by=who)
    def compact(self, full: bool, by: str) -> None:
        self.handle(by).compact(full=full)
        self.done()

    @precondition(lambda self: self.engine == "deduplicate")
    @rule(n=st.integers(0, 3), by=who)
    def delete(self, n: int, by: str) -> None:
        gone = self.matching(n)
        assert self.handle(by).delete(f"n = {n}").rows == len(gone)
        self.versions = self.flushed(self.versions, [(3, row) for row in gone])
        self.done()

    @precondition(lambda self: not self.engine.startswith("deduplicate"))
    @rule(n=st.integers(0, 3), by=who)
    def delete_in_place(self, n: int, by: str) -> None:
        gone = {(row["dt"], row["k"]) for row in self.matching(n)}
        assert self.handle(by).delete(f"n = {n}").rows == len(gone)
        self.versions = {key: each for key, each in self.versions.items() if key not in gone}
        self.done()

    @rule(n=st.integers(0, 3), by=who)
    def update(self, n: int, by: str) -> None:
        changed = [{**row, "v": "new"} for row in self.matching(n)]
        assert self.handle(by).update({"v": "'new'"}, f"n = {n}").rows == len(changed)
        if self.engine.startswith("deduplicate") or self.engine == "partial-update":
            self.versions = self.flushed(self.versions, [(2, row) for row in changed])
        else:
            self.replaced(changed)
        self.done()

    @rule(values=rows)
    def overwrite(self, values: Values) -> None:
        written = self.rows_of(values, (0,))
        self.table.write([row for _, row in written], mode="overwrite")
        self.versions = self.flushed({}, written)
        self.done()

    @precondition(lambda self: self.partitioned)
    @rule(values=rows, dt=st.sampled_from(["a", "b"]), dynamic=st.booleans())
    def overwrite_partition(self, values: Values, dt: str, dynamic: bool) -> None:
        written = [(kind, {**row, "dt": dt}) for kind, row in self.rows_of(values, (0,))]
        data = [row for _, row in written]
        if dynamic:
            self.table.write(data, mode="overwrite-dynamic")
        else:
            self.table.write(data, mode="overwrite", partition={"dt": dt})
        kept = {key: each for key, each in self.versions.items() if key[0] != dt}
        self.versions = self.flushed(kept, written)
        self.done()

    @rule()
    def open_anew(self) -> None:
        self.table = self.lake.table("d.t")

    @rule()
    def open_the_other(self) -> None:
        self.stale = self.lake.table("d.t")

    @rule(key=st.integers(0, 4), dt=st.sampled_from(["a", "b"]))
    def look_up(self, key: int, dt: str) -> None:
        expected = [row for row in self.merged(self.versions) if (row["dt"], row["k"]) == (dt, key)]
        assert shown(self.table.to_arrow(where=f"k = {key} AND dt = '{dt}'").to_pylist()) == expected

    @rule(n=st.integers(0, 3))
    def filter(self, n: int) -> None:
        expected = [{"v": row.get("v")} for row in self.merged(self.versions) if row.get("n") == n]
        found = self.table.to_arrow(columns=["v"], where=f"n = {n}").to_pylist()
        assert sorted(map(repr, found)) == sorted(map(repr, expected))

    # -------------------------------------------------------------------------------------------- laws

    @invariant()
    def the_newest_snapshot_shows_the_model(self) -> None:
        if getattr(self, "history", None):
            assert self.newest in self.history
            self.compare(self.table, self.versions)

    def compare(self, table: Table, versions: Versions) -> None:
        found = table.to_arrow().to_pylist()
        assert shown(found) == self.merged(versions)
        assert table.count() == len(found)

    def teardown(self) -> None:
        for number, versions in getattr(self, "history", {}).items():
            self.compare(self.table.at(snapshot=number), versions)
        for name, (_, versions) in getattr(self, "tags", {}).items():
            self.compare(self.table.at(tag=name), versions)
        if getattr(self, "side", None) is not None:
            self.compare(self.table.branch("side"), self.side)
        if getattr(self, "history", None):
            report = self.table.check(deep=True)
            assert report.ok, report
            assert [each for each in report.findings if each.invariant == "I5"] == []


class KeptTable(KeyedTable):
    """The same beside what changes the schema and the past: tags, branches, expiry, rollback."""

    @precondition(lambda self: "w" not in self.table.schema.names)
    @rule()
    def widen(self) -> None:
        """Add a column; the other handle does not know it."""
        self.table = self.table.alter(add={"w": "INT"})
        self.slow = SlowMerge(self.table.schema, self.options)
        self.versions = self.with_every_column(self.versions)
        self.history = {number: self.with_every_column(each) for number, each in self.history.items()}
        self.tags = {name: (number, self.with_every_column(each)) for name, (number, each) in self.tags.items()}
        self.side = None if self.side is None else self.with_every_column(self.side)

    def with_every_column(self, versions: Versions) -> Versions:
        return {
            key: tuple((number, kind, self.whole(row)) for number, kind, row in each) for key, each in versions.items()
        }

    @precondition(lambda self: self.history)
    @rule(name=st.sampled_from(["one", "two"]), data=st.data())
    def tag(self, name: str, data: st.DataObject) -> None:
        if name not in self.tags:
            number = data.draw(st.sampled_from(sorted(self.history)))
            self.table.create_tag(name, snapshot=number)
            self.tags[name] = (number, self.history[number])

    @precondition(lambda self: self.history and self.side is None)
    @rule(values=rows, data=st.data())
    def branch(self, values: Values, data: st.DataObject) -> None:
        """A branch starts where a snapshot was, and goes its own way."""
        number = data.draw(st.sampled_from(sorted(self.history)))
        side = self.table.create_branch("side", snapshot=number)
        written = self.rows_of(values, (0,))
        side.write([row for _, row in written])
        self.side = self.flushed(self.history[number], written)

    @precondition(lambda self: self.history)
    @rule(keep=st.integers(1, 3))
    def expire(self, keep: int) -> None:
        self.table.expire_snapshots(retain_max=keep, retain_min=1)
        left = set(self.table.store.snapshots.ids())
        assert len(left) <= keep
        self.history = {number: each for number, each in self.history.items() if number in left}

    @precondition(lambda self: self.history)
    @rule(data=st.data(), by=who)
    def roll_back(self, data: st.DataObject, by: str) -> None:
        number = data.draw(st.sampled_from(sorted(self.history)))
        self.handle(by).rollback_to(snapshot=number)
        self.versions, self.newest = self.history[number], number
        self.history = {each: versions for each, versions in self.history.items() if each <= number}
        self.tags = {name: each for name, each in self.tags.items() if each[0] <= number}
