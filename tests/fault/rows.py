"""A life of a table with real rows, as data; what it must hold after each step, as a list of dictionaries.

The steps create, write, overwrite, delete, update, compact, alter and read. A job may repeat all of them from the first
one: numbered writes are told by their identifiers, and conditions are such that what was done once matches nothing.
So the table goes through the states of the model, in their order, however often the job died.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import NotFoundError, TidelakeError
from tidelake.io.env import Env
from tidelake.table import Table
from tidelake.testing.scenario import read_snapshots, twice

NAME = "db.rows"
FOLDER = "db.db/rows"
USER = "rows"
COLUMNS: Mapping[str, str] = {"id": "INT NOT NULL", "dt": "STRING", "v": "STRING"}
LAYOUTS: Mapping[str, Mapping[str, str]] = {
    "unaware": {"file.format": "parquet"},
    "bucketed": {"file.format": "orc", "bucket": "2", "bucket-key": "id"},
    "avro": {"file.format": "avro"},
    "marked": {"file.format": "parquet", "deletion-vectors.enabled": "true"},
    "marked buckets": {
        "file.format": "avro",
        "bucket": "2",
        "bucket-key": "id",
        "deletion-vectors.enabled": "true",
        "deletion-vectors.bitmap64": "true",
    },
}

Row: TypeAlias = dict[str, Any]
Bag: TypeAlias = Counter[tuple[tuple[str, Any], ...]]


@dataclass(frozen=True, slots=True)
class Create:
    """Make the table unless it is there."""


@dataclass(frozen=True, slots=True)
class Write:
    """Write rows under an identifier, `id` to partition."""

    identifier: int
    rows: Mapping[int, str | None] = field(hash=False)
    mode: str = "append"
    partition: str | None = None
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the rows with these ids."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Update:
    """Give a column of the rows with these ids another value, unless they have it."""

    column: str
    value: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Compact:
    """Join all small files."""


@dataclass(frozen=True, slots=True)
class Widen:
    """Add a column."""


@dataclass(frozen=True, slots=True)
class Read:
    """Read the newest snapshots."""


Step: TypeAlias = Create | Write | Delete | Update | Compact | Widen | Read

STEPS: tuple[Step, ...] = (
    Create(),
    Write(1, {1: "d1", 2: "d1", 3: "d2", 4: None}),
    Write(2, {5: "d1", 6: "d2"}),
    Write(3, {7: "d3", 8: "d1"}),
    Delete((2, 6)),
    Update("v", "u", (3, 5)),
    Compact(),
    Widen(),
    Write(4, {20: "d1", 21: "d2"}, wide=True),
    Write(5, {30: "d1", 31: "d1"}, mode="overwrite", partition="d1", wide=True),
    Write(6, {40: "d2"}, mode="overwrite-dynamic", wide=True),
    Update("dt", "d9", (40,)),
    Write(7, {50: "d1"}, wide=True),
    Compact(),
    Read(),
)


def bag(rows: Sequence[Row]) -> Bag:
    """Rows without their order; a column that was added later counts as null before."""
    return Counter(tuple(sorted((name, value) for name, value in row.items() if value is not None)) for row in rows)


# ------------------------------------------------------------------------------------------------ the model


def rows_of(step: Write) -> list[Row]:
    """The rows that a step writes."""
    rows: list[Row] = [{"id": number, "dt": dt, "v": f"v{number}"} for number, dt in step.rows.items()]
    return [{**row, "w": row["id"] * 1000} for row in rows] if step.wide else rows


def after(rows: list[Row], step: Step) -> list[Row]:
    """The rows of the table after one more step."""
    match step:
        case Write(mode="append"):
            return rows + rows_of(step)
        case Write():
            new = rows_of(step)
            gone = {row["dt"] for row in new} if step.partition is None else {step.partition}
            return [row for row in rows if row["dt"] not in gone] + new
        case Delete(ids):
            return [row for row in rows if row["id"] not in ids]
        case Update(column, value, ids):
            return [{**row, column: value} if row["id"] in ids else row for row in rows]
        case _:
            return rows


def states() -> list[Bag]:
    """The rows before each step, and after the last."""
    rows: list[Row] = []
    found = [bag(rows)]
    for step in STEPS:
        rows = after(rows, step)
        found.append(bag(rows))
    return found


# ------------------------------------------------------------------------------------------------ the table


class Job:
    """One process at work on the table; what it opens it keeps."""

    def __init__(self, env: Env, layout: str) -> None:
        self.env = env
        self.options = {"compaction.min.file-num": "2", "manifest.merge-min-count": "4", **LAYOUTS[layout]}
        self._table: Table | None = None

    def table(self) -> Table:
        """The table, opened at the first use."""
        if self._table is None:
            self._table = Lake(FileSystemCatalog(self.env)).table(NAME)
        return self._table

    def do(self, *steps: Step) -> None:
        """Do some steps, each as often as one likes.

        Raises:
            TidelakeError: as the verbs of a table do.
        """
        for step in steps:
            self._do(step)

    def _do(self, step: Step) -> None:
        match step:
            case Create():
                self._table = Lake(FileSystemCatalog(self.env)).create_table(
                    NAME, dict(COLUMNS), partition_by=["dt"], options=self.options, if_not_exists=True
                )
            case Write(identifier, _, mode, partition):
                spec = None if partition is None else {"dt": partition}
                self.table().write(rows_of(step), mode, partition=spec, commit_user=USER, identifier=identifier)
            case Delete(ids):
                self.table().delete(f"id in ({', '.join(map(str, ids))})")
            case Update(column, value, ids):
                chosen = f"id in ({', '.join(map(str, ids))}) and {column} <> '{value}'"
                self.table().update({column: f"'{value}'"}, chosen)
            case Compact():
                self.table().compact(full=True)
            case Widen():
                # Opened anew: an earlier try may have changed the schema without being told so.
                self._table = Lake(FileSystemCatalog(self.env)).table(NAME)
                if "w" not in [column.name for column in self._table.schema.fields]:
                    self._table = self._table.alter(add={"w": "BIGINT"})
            case Read():
                wrong = history_problems(self.table(), states(), last=2)
                assert wrong == [], wrong


# ------------------------------------------------------------------------------------------------ comparing


def state_of(env: Env) -> Bag | None:
    """The rows that a new process finds, None without a table."""
    try:
        return bag(Lake(FileSystemCatalog(env)).table(NAME).to_arrow().to_pylist())
    except NotFoundError:
        return None


def problems(env: Env, until: int, *, history: bool) -> list[str]:
    """What is wrong with the table after the first `until` steps, one sentence each.

    Args:
        env: doors to the storage of the lake.
        until: how many steps were done.
        history: also look at every snapshot, not only at the newest.
    """
    expected = states()[: until + 1]
    try:
        table = Lake(FileSystemCatalog(env)).table(NAME)
        wrong = _difference(bag(table.to_arrow().to_pylist()), expected[-1], "newest")
        wrong += twice(read_snapshots(table))
        wrong += history_problems(table, expected) if history else []
        wrong += [str(finding) for finding in table.check(deep=history, rows=True).errors]
    except TidelakeError as error:
        return [f"{type(error).__name__}: {error}"]
    return wrong


def history_problems(table: Table, expected: Sequence[Bag], *, last: int | None = None) -> list[str]:
    """Snapshots (the `last` ones, or all) that hold no state of the model, or one that was over already."""
    place = 0
    snapshots = read_snapshots(table)
    for snapshot in snapshots if last is None else snapshots[-last:]:
        found = bag(table.at(snapshot=snapshot.id).to_arrow().to_pylist())
        later = next((number for number in range(place, len(expected)) if expected[number] == found), None)
        if later is None:
            return _difference(found, expected[place], f"snapshot {snapshot.id}")
        place = later
    return []


def _difference(found: Bag, wanted: Bag, place: str) -> list[str]:
    return [] if found == wanted else [f"{place}: lost {dict(wanted - found)}, unexpected {dict(found - wanted)}"]
