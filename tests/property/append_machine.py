"""An append table and a list of rows that are treated alike stay alike, now and at every snapshot.

The model keeps rows as dictionaries by column id, so that dropping, renaming and adding columns acts on it as the
format says: a dropped column takes its values along, a new one of the same name starts empty.

Two handles work on the table. The second one is opened now and then and grows stale in between: it does not know the
columns that came since, and must neither lose their values nor bring back those that went.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import tidelake as tl
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO

Row = dict[str, Any]


DAYS = ("a", "b", None)


numbers = st.integers(0, 12)


days = st.sampled_from(DAYS)


Values = list[tuple[int, str | None, int | None]]


who = st.sampled_from(["table", "stale"])
"""Which of the two handles acts."""


fresh_rows = st.lists(st.tuples(numbers, days, st.none() | st.integers(-3, 3)), min_size=1, max_size=6)


LAYOUTS: tuple[dict[str, str], ...] = ({}, {"bucket": "2", "bucket-key": "id"}, {"bucket": "2", "bucket-key": "id,n"})


def day_is(day: str | None) -> tl.Predicate:
    return tl.col("dt").is_null() if day is None else tl.col("dt") == day


def bag(rows: list[Row]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(sorted(row.items())) for row in rows)


KINDS = ("parquet", "orc", "avro")


class AppendTable(RuleBasedStateMachine):
    """`model` is the table now; `history` what every snapshot held, with the names its columns had then."""

    table: Table
    stale: Table
    model: list[Row]
    history: dict[int, list[Row]]

    @initialize(
        layout=st.sampled_from(LAYOUTS),
        partitioned=st.booleans(),
        kind=st.sampled_from(KINDS),
        grown=st.lists(fresh_rows, max_size=2),
    )
    def create(self, layout: dict[str, str], partitioned: bool, kind: str, grown: list[Values]) -> None:
        self.lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000), SeededIds(1))))
        options = {"compaction.min.file-num": "2", "file.format": kind, **layout}
        self.table = self.stale = self.lake.create_table(
            "d.t",
            {"id": "INT NOT NULL", "dt": "STRING", "n": "INT"},
            partition_by=["dt"] if partitioned else [],
            options=options,
        )
        self.keyed = set(layout.get("bucket-key", "").split(","))
        self.partitioned = partitioned
        self.wide = False
        self.model, self.history = [], {}
        self.extra: list[str] = []
        self.tagged: dict[str, list[Row]] = {}
        self.names = (f"x{number}" for number in itertools.count())
        # Most examples are short: some begin with a handle that is stale already.
        for values in grown:
            self.add_column(values)

    # -------------------------------------------------------------------------------------------- rows

    def handle(self, name: str) -> Table:
        return self.stale if name == "stale" else self.table

    def rows(self, values: Values, handle: Table) -> list[Row]:
        """The rows that a handle writes, in the columns it knows."""
        extra = [column.name for column in handle.schema.fields[3:]]
        return [
            {"id": i, "dt": dt, "n": n, **{name: None if n is None else n + int(name[1:]) * 100 for name in extra}}
            for i, dt, n in values
        ]

    def seen(self, rows: list[Row], handle: Table) -> list[Row]:
        """The same rows as the current schema shows them: by the ids of the columns, whatever they are called now."""
        now = {column.id: column.name for column in self.table.schema.fields}
        known = {column.name: now.get(column.id) for column in handle.schema.fields}
        return [
            dict.fromkeys(now.values()) | {known[name]: value for name, value in row.items() if known[name] is not None}
            for row in rows
        ]

    def done(self, model: list[Row]) -> None:
        """Note what the newest snapshot holds; snapshots in between are the same step's."""
        self.model = model
        latest = self.table.latest_snapshot()
        if latest is not None:
            for snapshot_id in range(max(self.history, default=0) + 1, latest.id + 1):
                self.history[snapshot_id] = model

    def keep(self, test: Callable[[Row], bool]) -> list[Row]:
        return [row for row in self.model if test(row)]

    @rule()
    def open_anew(self) -> None:
        self.table = self.lake.table("d.t")

    @rule()
    def open_the_other(self) -> None:
        self.stale = self.lake.table("d.t")

    @rule(values=fresh_rows, by=who)
    def write(self, values: Values, by: str) -> None:
        handle = self.handle(by)
        rows = self.rows(values, handle)
        assert handle.write(rows).rows == len(rows)
        self.done(self.model + self.seen(rows, handle))

    @rule(values=fresh_rows, by=who)
    def overwrite_all(self, values: Values, by: str) -> None:
        handle = self.handle(by)
        rows = self.rows(values, handle)
        handle.write(rows, mode="overwrite")
        self.done(self.seen(rows, handle))

    @precondition(lambda self: self.partitioned)
    @rule(values=fresh_rows, day=days)
    def overwrite_one_day(self, values: Values, day: str | None) -> None:
        rows = self.rows([(i, day, n) for i, _, n in values], self.table)
        self.table.write(rows, mode="overwrite", partition={"dt": day})
        self.done(self.keep(lambda row: row["dt"] != day) + rows)

    @precondition(lambda self: self.partitioned)
    @rule(values=fresh_rows, by=who)
    def overwrite_the_days_that_are_met(self, values: Values, by: str) -> None:
        handle = self.handle(by)
        rows = self.rows(values, handle)
        met = {row["dt"] for row in rows}
        handle.write(rows, mode="overwrite-dynamic")
        self.done(self.keep(lambda row: row["dt"] not in met) + self.seen(rows, handle))

    @rule(low=numbers, day=days, by=who)
    def delete(self, low: int, day: str | None, by: str) -> None:
        result = self.handle(by).delete((tl.col("id") >= low) & day_is(day))
        left = self.keep(lambda row: not (row["id"] >= low and row["dt"] == day))
        assert result.rows == len(self.model) - len(left)
        self.done(left)

    @rule(low=numbers)
    def delete_where_null_decides(self, low: int) -> None:
        result = self.table.delete(f"n < {low - 6}")
        left = self.keep(lambda row: row["n"] is None or row["n"] >= low - 6)
        assert result.rows == len(self.model) - len(left)
        self.done(left)

    @rule(number=numbers, by=who)
    def update(self, number: int, by: str) -> None:
        result = self.handle(by).update({"n": "n * 2 + 1"}, f"id = {number}")
        changed = [
            {**row, "n": None if row["n"] is None else row["n"] * 2 + 1} if row["id"] == number else row
            for row in self.model
        ]
        assert result.rows == sum(row["id"] == number for row in self.model)
        self.done(changed)

    @rule(day=days, low=numbers, by=who)
    def move(self, day: str | None, low: int, by: str) -> None:
        result = self.handle(by).update({"dt": "'b'", "id": "(id + 5) % 13"}, (tl.col("id") < low) & day_is(day))

        def meant(row: Row) -> bool:
            return bool(row["id"] < low and row["dt"] == day)

        assert result.rows == sum(map(meant, self.model))
        self.done([{**row, "dt": "b", "id": (row["id"] + 5) % 13} if meant(row) else row for row in self.model])

    @rule(full=st.booleans(), by=who)
    def compact(self, full: bool, by: str) -> None:
        self.handle(by).compact(full=full)
        self.done(self.model)

    @rule()
    def truncate(self) -> None:
        self.table.truncate()
        self.done([])

    @precondition(lambda self: self.history and len(self.tagged) < 3)
    @rule(data=st.data())
    def tag(self, data: st.DataObject) -> None:
        snapshot_id = data.draw(st.sampled_from(sorted(self.history)))
        name = self.table.create_tag(f"t{len(self.tagged)}", snapshot_id)
        self.tagged[name] = self.history[snapshot_id]

    # -------------------------------------------------------------------------------------------- columns

    @precondition(lambda self: len(self.extra) < 3)
    @rule(values=fresh_rows)
    def add_column(self, values: Values) -> None:
        """With rows that have a value for it, so that a handle which does not know it could lose something."""
        name = next(self.names)
        self.table = self.table.alter(add={name: "INT"})
        self.extra.append(name)
        self.model = [{**row, name: None} for row in self.model]
        self.write(values, "table")

    @precondition(lambda self: self.extra)
    @rule(data=st.data())
    def drop_column(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.extra))
        self.table = self.table.alter(drop=[name])
        self.extra.remove(name)
        self.done([{key: value for key, value in row.items() if key != name} for row in self.model])

    @precondition(lambda self: len(self.extra) > 1)
    @rule()
    def swap_names(self) -> None:
        """Drop the first extra column and give its name to the second: the values must follow the ids."""
        first, second = self.extra[:2]
        self.table = self.table.alter(drop=[first], rename={second: first})
        self.extra.remove(second)
        changed = [
            {(first if key == second else key): value for key, value in row.items() if key != first}
            for row in self.model
        ]
        self.done(changed)

    @precondition(lambda self: not self.wide and "n" not in self.keyed)
    @rule()
    def widen(self) -> None:
        self.table = self.table.alter(types={"n": "BIGINT"})
        self.wide = True
        self.done(self.model)

    # -------------------------------------------------------------------------------------------- reading

    @rule(number=numbers, day=days, limit=st.integers(0, 8))
    def read_in_part(self, number: int, day: str | None, limit: int) -> None:
        table, model = self.table, self.model
        assert bag(table.to_arrow(where=tl.col("id") == number).to_pylist()) == bag(
            [row for row in model if row["id"] == number]
        )
        some = (tl.col("id") > number) | day_is(day)
        chosen = [row for row in model if row["id"] > number or row["dt"] == day]
        assert table.count(some) == len(chosen)
        assert bag(table.to_arrow(columns=["n", "id"], where=some).to_pylist()) == bag(
            [{"n": row["n"], "id": row["id"]} for row in chosen]
        )
        assert table.count(day_is(day)) == sum(row["dt"] == day for row in model)
        few = bag(table.to_arrow(limit=limit).to_pylist())
        assert few.total() == min(limit, len(model))
        assert few <= bag(model)
        filtered = bag(table.to_arrow(where=some, limit=limit).to_pylist())
        assert filtered.total() == min(limit, len(chosen))
        assert filtered <= bag(chosen)

    @precondition(lambda self: self.history)
    @rule(data=st.data())
    def look_back(self, data: st.DataObject) -> None:
        snapshot_id = data.draw(st.sampled_from(sorted(self.history)))
        then = self.table.at(snapshot=snapshot_id)
        assert bag(then.to_arrow().to_pylist()) == bag(self.history[snapshot_id])
        assert then.count() == len(self.history[snapshot_id])

    @precondition(lambda self: self.tagged)
    @rule(data=st.data())
    def look_at_a_tag(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.tagged)))
        assert bag(self.stale.at(tag=name).to_arrow().to_pylist()) == bag(self.tagged[name])

    @invariant()
    def rows_are_those_of_the_model(self) -> None:
        if hasattr(self, "table"):
            assert bag(self.table.to_arrow().to_pylist()) == bag(self.model)
            assert self.table.count() == len(self.model)

    def teardown(self) -> None:
        if not hasattr(self, "table"):
            return
        report = self.table.check(deep=True, rows=True)
        assert report.ok, str(report)
        for snapshot_id, rows in self.history.items():
            assert bag(self.table.at(snapshot=snapshot_id).to_arrow().to_pylist()) == bag(rows), snapshot_id
