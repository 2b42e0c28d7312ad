"""Who carries out the steps of a `Script`: the reference, or tidelake. And what each of them reads afterwards.

Rows are compared as text: `encoded` gives every value one form, whichever implementation it came from, in which NaN
equals itself, the zeros differ and the order of the entries of a map does not matter.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import oracle
import tidelake as tl
from compat.facts import open_branch
from compat.java_values import to_batch, to_rows
from compat.tables import Row, Script, Step
from tidelake.spec.schemas import evolution
from tidelake.table import Table

__all__ = ["Ours", "Theirs", "encoded", "our_rows", "our_types", "their_view"]

DATABASE = "d"


def encoded(rows: Iterable[Row]) -> list[str]:
    """Rows as texts, sorted."""
    return sorted(json.dumps(_plain(row), ensure_ascii=False, sort_keys=True) for row in rows)


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return ["float", value.hex()]
        case bytes():
            return ["bytes", value.hex()]
        case Decimal():
            return ["decimal", format(value, "f")]
        case dt.datetime():
            # Without a zone of its own in the text of either: that is in the type.
            return ["moment", value.isoformat(timespec="microseconds")]
        case dt.date() | dt.time():
            return [type(value).__name__, value.isoformat()]
        case dict():
            return ["entries", sorted(([_plain(key), _plain(item)] for key, item in value.items()), key=json.dumps)]
        case tuple():
            return ["variant", *map(_plain, value)]
        case list():
            return [_plain(item) for item in value]
    raise TypeError(type(value))


# ------------------------------------------------------------------------------------------------ tidelake


def our_rows(table: Table, **how: Any) -> list[Row]:
    return to_rows(table.scan(**how).batches())


def our_types(table: Table) -> dict[str, str]:
    return {field.name: str(field.type) for field in table.schema.fields}


def position_of(place: Any) -> evolution.Position:
    if isinstance(place, str):
        return evolution.First() if place == "first" else evolution.Last()
    return evolution.After(place[1]) if place[0] == "after" else evolution.Before(place[1])


def change_of(action: str, target: Any, *rest: Any) -> evolution.Change:
    """A change as the driver spells it, as one of ours."""
    path = target if isinstance(target, str) else tuple(target)
    match action:
        case "add":
            place = position_of(rest[1]) if len(rest) > 1 else None
            return evolution.AddColumn(path, rest[0], position=place)
        case "drop":
            return evolution.DropColumn(path)
        case "rename":
            return evolution.RenameColumn(path, rest[0])
        case "type":
            return evolution.UpdateType(path, rest[0])
        case "nullable":
            return evolution.UpdateNullability(path, rest[0])
        case "comment":
            return evolution.UpdateComment(path, rest[0])
        case "move":
            return evolution.MoveColumn(path, position_of(rest[0]))
        case "set":
            return evolution.SetOption(target, rest[0])
        case "reset":
            return evolution.RemoveOption(target)
        case "table-comment":
            return evolution.UpdateTableComment(target)
    raise ValueError(action)


class Ours:
    """Tidelake on a warehouse."""

    def __init__(self, warehouse: Path) -> None:
        self.warehouse = warehouse
        self.lake = tl.connect(str(warehouse))

    def create(self, script: Script) -> None:
        self.lake.create_table(
            f"{DATABASE}.{script.name}", script.columns, partition_by=script.partition_by, options=script.options
        )

    def table(self, name: str) -> Table:
        return self.lake.table(f"{DATABASE}.{name}")

    def can(self, step: Step) -> bool:
        """Whether there is a verb for the step."""
        return step[0] not in ("tag", "branch", "rollback")

    def do(self, name: str, step: Step) -> None:
        table = self.table(name)
        match step:
            case ("write", rows):
                table.write(to_batch(rows, table.schema.fields))
            case ("write", rows, options):
                table.with_options(options).write(to_batch(rows, table.schema.fields))
            case ("overwrite", rows, None):
                table.write(to_batch(rows, table.schema.fields), mode="overwrite-dynamic")
            case ("overwrite", rows, partition):
                table.write(to_batch(rows, table.schema.fields), mode="overwrite", partition=partition or None)
            case ("delete", low, high):
                table.delete((tl.col("id") >= low) & (tl.col("id") <= high))
            case ("compact",):
                table.compact(full=True)
            case ("truncate",):
                table.truncate()
            case ("drop", partition):
                table.new_commit().overwrite([], partition, dynamic=False)
            case ("alter", *changes):
                table.alter(*(change_of(*change) for change in changes))
            case ("branch-write", branch, rows):
                there = open_branch(self.warehouse / f"{DATABASE}.db" / name, branch)
                there.write(to_batch(rows, there.schema.fields))
            case _:
                raise ValueError(step)


# ------------------------------------------------------------------------------------------------ the reference


class Theirs:
    """Apache Paimon on a warehouse."""

    def __init__(self, warehouse: Path) -> None:
        self.catalog = oracle.Catalog(warehouse)

    def create(self, script: Script) -> None:
        self.catalog.create_table(
            f"{DATABASE}.{script.name}", script.columns, (), script.partition_by, dict(script.options)
        )

    def table(self, name: str) -> oracle.Table:
        return self.catalog.table(f"{DATABASE}.{name}")

    def do(self, name: str, step: Step) -> None:
        table = self.table(name)
        match step:
            case ("write", rows):
                table.write(rows)
            case ("write", rows, options):
                table.write(rows, options)
            case ("overwrite", rows, None):
                table.write(rows, {"dynamic-partition-overwrite": True}, overwrite={})
            case ("overwrite", rows, partition):
                table.write(rows, {"dynamic-partition-overwrite": False}, overwrite=partition)
            case ("delete", low, high):
                table.rewrite(lambda row: not low <= row["id"] <= high)
            case ("compact",):
                table.compact()
            case ("truncate",):
                table.truncate()
            case ("drop", partition):
                table.truncate([partition])
            case ("alter", *changes):
                table.alter(*changes)
            case ("tag", tag):
                table.create_tag(tag)
            case ("branch", branch, tag):
                table.create_branch(branch, tag)
            case ("branch-write", branch, rows):
                table.branch(branch).write(rows)
            case ("rollback", snapshot):
                table.rollback(snapshot)
            case _:
                raise ValueError(step)


def their_types(table: oracle.Table, at: dict[str, Any] | None = None) -> dict[str, str]:
    """The types of columns; comments of nested members, which only the reference prints, are left out."""
    return {name: re.sub(r" COMMENT '[^']*'", "", text) for name, text in table.fields(at).items()}


def their_view(table: oracle.Table) -> dict[str, Any]:
    """What the reference reads: types and rows at each snapshot and tag of one branch."""
    loaded = table.load()
    snapshots = {}
    for document in table.snapshots():
        at = {"scan.snapshot-id": document["id"]}
        snapshots[str(document["id"])] = {"fields": their_types(table, at), "rows": encoded(table.read(options=at))}
    tags = {}
    for names in dict(loaded.tagManager().tags()).values():
        for name in map(str, names):
            at = {"scan.tag-name": name}
            tags[name] = {"fields": their_types(table, at), "rows": encoded(table.read(options=at))}
    return {"fields": their_types(table), "snapshots": snapshots, "tags": tags}
