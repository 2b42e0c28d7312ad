"""One table, two implementations: every verb of its life is done by Apache Paimon and by tidelake in turns.

Writes, deletions, minor and full compactions, schema changes, overwrites, dropped partitions, tags, expiry and rollback
alternate between the two, whoever begins. After every step both read the same rows, and in the end at every
snapshot and tag that is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random  # noqa: TID251 - drawn from fixed seeds
from typing import Any

import pytest

import oracle
import tidelake as tl
from compat.actors import change_of, encoded, our_rows
from compat.keyed_cells import FEATURES, LIFT, Cell, Kinded, Row, seen
from compat.keyed_cells import make_rows as matrix_rows
from compat.keyed_writes import our_write, their_write
from tidelake.table import Table

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("jvm")]

AGES_AWAY = 2**53
COLUMNS = {
    "id": "INT NOT NULL", "dt": "STRING NOT NULL", "v": "STRING", "n": "BIGINT", "s": "INT", "x": "STRING", "y": "INT",
    "z": "DOUBLE",
}  # fmt: skip
VALUES: dict[str, Sequence[Any]] = {
    "v": ("a", "b", "cc", None), "n": (1, 2, 3, None), "s": (5, 6, 7, None), "x": ("text", "", None),
    "xx": ("renamed", None), "y": (10, -20, None), "z": (0.5, -0.0, None), "w": (1.25, None),
}  # fmt: skip
ADDS, ANY, BALANCED = ("+I", "+U"), ("+I", "+I", "+I", "+U", "-U", "-D"), ("+I", "+I", "-U", "+U")
PARTIAL = {"merge-engine": "partial-update", "fields.n.sequence-group": "v,s"}
ENGINES: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "deduplicate": ({}, ANY),
    "deduplicate by two columns": ({"sequence.field": "n,s", "sequence.field.sort-order": "descending"}, ANY),
    "deletes ignored": ({"ignore-delete": "true"}, ANY),
    "partial-update": ({"merge-engine": "partial-update"}, ADDS),
    "sequence group with a sum": ({**PARTIAL, "fields.s.aggregate-function": "sum"}, ANY),
    "sequence group, deletes remove": ({**PARTIAL, "partial-update.remove-record-on-sequence-group": "n"}, ANY),
    "partial-update, deletes remove": (
        {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
        ANY,
    ),
    "aggregation with retractions": (
        {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "fields.s.aggregate-function": "product"},
        BALANCED,
    ),
    "first-row": ({"merge-engine": "first-row"}, ("+I",)),
}
STEPS: tuple[tuple[Any, ...], ...] = (
    ("write",), ("write",), ("compact",), ("alter", ("add", "w", "DOUBLE", ("after", "v"))), ("write",), ("lift",),
    ("alter", ("rename", "x", "xx")), ("write",), ("tag", "one"), ("lift",), ("tag", "two"), ("write",),
    ("alter", ("type", "y", "BIGINT")), ("write",), ("compact",), ("alter", ("drop", "z")), ("write",), ("write",),
    ("expire", 9), ("overwrite", "a"), ("drop", "b"), ("write",), ("lift",), ("write",), ("expire", 5), ("rollback", 2),
    ("write",), ("compact",), ("rollback", 1), ("write",), ("expire", 2), ("compact",),
)  # fmt: skip


class Us:
    """Tidelake."""

    name = "we"

    def __init__(self, folder: Path) -> None:
        self.lake = tl.connect(folder)

    @property
    def table(self) -> Table:
        return self.lake.table("d.t")

    def do(self, step: tuple[Any, ...], rows: list[Kinded]) -> None:
        table = self.table
        match step:
            case ("write",):
                our_write(table, rows)
            case ("compact",):
                table.compact(full=True)
            case ("lift",):
                table.with_options(LIFT).compact(full=False)
            case ("alter", change):
                table.alter(change_of(*change))
            case ("tag", name):
                table.create_tag(f"{name} by us")
            case ("expire", keep):
                table.expire_snapshots(retain_max=keep, retain_min=keep, older_than=AGES_AWAY)
            case ("overwrite", day):
                table.write([{**row, "dt": day} for _, row in rows[:3]], mode="overwrite", partition={"dt": day})
            case ("drop", day):
                table.new_commit().overwrite([], {"dt": day}, dynamic=False)
            case ("rollback", back):
                table.rollback_to(snapshot=table.latest_snapshot().id - back)

    def read(self, **how: Any) -> list[str]:
        return encoded(our_rows(self.table.at(**how) if how else self.table))


class Them:
    """Apache Paimon."""

    name = "they"

    def __init__(self, folder: Path) -> None:
        self.table = oracle.Catalog(folder).table("d.t")

    def do(self, step: tuple[Any, ...], rows: list[Kinded]) -> None:
        table = self.table
        match step:
            case ("write",):
                their_write(table, rows)
            case ("compact",):
                table.compact()
            case ("lift",):
                table.compact(full=False, options=LIFT)
            case ("alter", change):
                table.alter(change)
            case ("tag", name):
                table.create_tag(f"{name} by them")
            case ("expire", keep):
                table.expire_snapshots(retain_max=keep, retain_min=keep)
            case ("overwrite", day):
                fresh = [{**row, "dt": day} for _, row in rows[:3]]
                table.write(fresh, {"dynamic-partition-overwrite": False}, overwrite={"dt": day})
            case ("drop", day):
                table.truncate([{"dt": day}])
            case ("rollback", back):
                table.rollback(table.snapshots()[-1]["id"] - back)

    def read(self, **how: Any) -> list[str]:
        return encoded(self.table.read(**how))


def make_rows(table: Table, kinds: Sequence[str], rng: Random) -> list[Kinded]:
    rows = []
    for _ in range(rng.randrange(4, 16)):
        row: Row = {"id": rng.randrange(8), "dt": rng.choice("aabc/")}
        fresh = {name: rng.choice(VALUES[name]) for name in table.schema.names if name not in row}
        rows.append((rng.choice(kinds), {name: {**row, **fresh}[name] for name in table.schema.names}))
    return rows


CASES = [(engine, ("we", "they")[number % 2]) for number, engine in enumerate(ENGINES)]
CASES += [("deduplicate", "they"), ("sequence group with a sum", "they"), ("aggregation with retractions", "we")]


@pytest.mark.parametrize(("engine", "begins"), CASES)
def test_every_step_of_a_life_is_taken_in_turns(engine: str, begins: str, tmp_path: Path) -> None:
    options, kinds = ENGINES[engine]
    number = list(ENGINES).index(engine) + (begins == "we")
    layout = {"bucket": ("2", "-1", "1")[number % 3], "file.format": ("parquet", "orc", "avro")[number // 2 % 3]}
    create = {"primary_key": ["dt", "id"], "partition_by": ["dt"], "options": {**layout, **options}}
    if begins == "we":
        tl.connect(tmp_path).create_table("d.t", COLUMNS, **create)
    else:
        oracle.Catalog(tmp_path).create_table("d.t", COLUMNS, **create)
    us, them = Us(tmp_path), Them(tmp_path)
    actors: list[Us | Them] = [us, them] if begins == "we" else [them, us]
    rng = Random(engine + begins)
    for turn, step in enumerate(STEPS):
        actor = actors[turn % 2]
        actor.do(step, make_rows(us.table, kinds, rng))
        assert us.read() == them.read(), (turn, actor.name, step)
    snapshots = [document["id"] for document in them.table.snapshots()]
    assert snapshots == us.table.store.snapshots.ids()
    for snapshot in snapshots:
        assert us.read(snapshot=snapshot) == them.read(snapshot=snapshot), snapshot
    tags = sorted(us.table.tags())
    assert len(tags) == 2
    for tag in tags:
        assert us.read(tag=tag) == them.read(tag=tag) != [], tag
    assert list(us.table.schema.names) == list(them.table.fields())
    report = us.table.check(deep=True)
    assert report.ok, str(report)
    assert us.table.remove_orphans().paths == ()


TURNS = ("write", "write", "lift", "write", "compact", "write", "lift", "write", "write", "compact")


@pytest.mark.parametrize(
    ("cell", "begins"),
    [
        (Cell("every function", "parquet", "dynamic", "STRING"), "they"),
        (Cell("every function, taken back", "avro", "default", "DECIMAL(20, 2)"), "we"),
        (Cell("every function in groups", "orc", "hive", "INT, STRING, DATE, DOUBLE"), "they"),
    ],
    ids=str,
)
def test_every_function_is_folded_in_turns(cell: Cell, begins: str, tmp_path: Path) -> None:
    columns = FEATURES[cell.feature].columns
    options = {**cell.options, "write-only": "false"}
    tl.connect(tmp_path).create_table("d.t", cell.columns, primary_key=cell.primary_key, options=options)
    us, them = Us(tmp_path), Them(tmp_path)
    actors: list[Us | Them] = [us, them] if begins == "we" else [them, us]
    rng = Random(str(cell))
    for turn, step in enumerate(TURNS):
        actors[turn % 2].do((step,), matrix_rows(cell, rng))
        mine, yours = our_rows(us.table), them.table.read()
        assert encoded(seen(mine, columns)) == encoded(seen(yours, columns)), (turn, step)
    for document in them.table.snapshots():
        mine, yours = our_rows(us.table.at(snapshot=document["id"])), them.table.read(snapshot=document["id"])
        assert encoded(seen(mine, columns)) == encoded(seen(yours, columns)), document["id"]


@pytest.mark.parametrize("file_format", ["orc", "parquet", "avro"])
def test_short_texts_in_wide_columns_are_found_by_their_value(
    catalog: oracle.Catalog, tmp_path: Path, file_format: str
) -> None:
    """Java fills the bounds of CHAR columns up with blanks in ORC, and loses the row by them; we find it."""
    columns = {"k": "CHAR(4) NOT NULL", "v": "CHAR(5)"}
    theirs = catalog.create_table("d.t", columns, ["k"], (), {"bucket": "1", "file.format": file_format})
    theirs.write([("ab", "ab"), ("b", "x"), ("abcd", "é")])
    theirs.compact()
    ours = tl.connect(tmp_path).table("d.t")
    for column, value in (("k", "ab"), ("v", "ab"), ("k", "b"), ("v", "é")):
        assert ours.to_arrow(where=tl.col(column) == value)[column].to_pylist() == [value]
        assert value in ours.to_arrow(where=tl.col(column) <= value)[column].to_pylist()
    lost = theirs.read(where=("=", "k", "ab")) == []
    assert lost == (file_format == "orc")
