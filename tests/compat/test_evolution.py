"""Schema changes: both implementations make the same schema of them, or both refuse them.

Method: random sequences of changes from fixed seeds, applied by `evolution.apply` to a value and by the Java catalog to
a table of the same schema. Where we differ, `known_difference` recognises it and docs/spec-notes.md says why.
"""

from __future__ import annotations

import json
import random  # noqa: TID251 - drawn from fixed seeds
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import oracle
from tidelake.errors import InvalidInputError
from tidelake.spec.casts.casts import CastRule, cast_rule
from tidelake.spec.schemas import evolution as e
from tidelake.spec.schemas.schema import Schema, new_schema, schema_to_json
from tidelake.spec.types.data_types import DataType, ElementType, MapType, Root, RowType
from tidelake.spec.types.type_codec import parse_type

pytestmark = pytest.mark.oracle

# ------------------------------------------------------------------------------------------------ random changes

TYPES = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "CHAR(3)", "VARCHAR(5)", "STRING",
    "BINARY(3)", "BYTES", "DECIMAL(10, 2)", "DECIMAL(30, 5)", "DATE", "TIME(3)", "TIMESTAMP(3)", "TIMESTAMP(6)",
    "TIMESTAMP(6) WITH LOCAL TIME ZONE", "ARRAY<INT>", "MAP<STRING, INT>", "ROW<p INT, q ROW<s STRING>>",
    "ARRAY<ROW<p BIGINT>>", "INT NOT NULL", "STRING NOT NULL", "VARIANT", "MULTISET<INT>",
)  # fmt: skip
STARTS: tuple[dict[str, Any], ...] = (
    {"columns": {"a": "INT", "b": "STRING", "c": "DECIMAL(10, 2)", "d": "TIMESTAMP(6)"}},
    {
        "columns": {"k": "INT NOT NULL", "dt": "STRING NOT NULL", "v": "BIGINT", "w": "INT NOT NULL"},
        "primary_keys": ["dt", "k"],
        "partition_keys": ["dt"],
        "options": {"bucket": "2"},
    },
    {
        "columns": {
            "r": "ROW<x INT, y ROW<p INT, q STRING NOT NULL>>",
            "ar": "ARRAY<ROW<x INT, y INT>>",
            "m": "MAP<STRING, ROW<x INT, y INT>>",
            "z": "ARRAY<INT>",
        },
        "options": {"bucket": "3", "bucket-key": "z2", "alter-column-null-to-not-null.disabled": "false"},
        "extra": {"z2": "INT"},
    },
    {
        "columns": {"id": "INT NOT NULL", "s": "BIGINT", "v": "STRING", "g": "INT"},
        "primary_keys": ["id"],
        "options": {
            "bucket": "1",
            "merge-engine": "aggregation",
            "sequence.field": "s",
            "fields.g.aggregate-function": "sum",
            "disable-explicit-type-casting": "true",
        },
    },
)
OPTIONS = (
    ("bucket", "4"), ("bucket", "-1"), ("bucket-key", "a"), ("snapshot.num-retained.min", "3"), ("file.format", "orc"),
    ("merge-engine", "deduplicate"), ("primary-key", "a"), ("partition", "b"), ("comment", "x"), ("my.own", "y"),
    ("sequence.field", "v"), ("write-only", "true"), ("num-levels", "4"), ("manifest.compression", "snappy"),
    ("path", "elsewhere"), ("merge-engine", "no-such-engine"), ("changelog-producer", "input"),
)  # fmt: skip


def paths(dtype: DataType, prefix: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The paths of all members inside a type."""
    match dtype:
        case RowType(fields=fields):
            found = [(*prefix, field.name) for field in fields]
            return found + [path for field in fields for path in paths(field.type, (*prefix, field.name))]
        case ElementType(root=Root.ARRAY, element=element):
            return [(*prefix, "element"), *paths(element, (*prefix, "element"))]
        case MapType(value=value):
            return [(*prefix, "value"), *paths(value, (*prefix, "value"))]
    return []


@dataclass(frozen=True)
class Both:
    """One change in both languages."""

    ours: e.Change
    theirs: tuple[Any, ...]


def draw_change(r: random.Random, schema: Schema) -> Both:
    columns = [(field.name,) for field in schema.fields]
    nested = [path for field in schema.fields for path in paths(field.type, (field.name,))]
    path = r.choice(nested) if nested and r.random() < 0.4 else r.choice(columns)
    if r.random() < 0.03:
        path = ("missing",)
    kind = r.choice(
        ("add", "add", "drop", "rename", "type", "type", "nullable", "comment", "default", "move", "option")
    )
    there = list(path)
    siblings = [p[-1] for p in [*columns, *nested] if p[:-1] == path[:-1]]
    other = r.choice(siblings) if siblings else "missing"
    match kind:
        case "add":
            name = (
                r.choice(("n1", "n2", "N1", "a", "_KEY_x", "rowkind", "x y"))
                if r.random() < 0.5
                else f"n{r.randrange(99)}"
            )
            path, text = (*path[:-1], name), r.choice(TYPES)
            place = draw_place(r, other) if r.random() < 0.5 and len(path) == 1 else None
            theirs = ("add", list(path), text) if place is None else ("add", list(path), text, place[1])
            return Both(e.AddColumn(path, text, position=place and place[0]), theirs)
        case "drop":
            return Both(e.DropColumn(path), ("drop", there))
        case "rename":
            name = r.choice(("q1", "q2", other, "_SEQUENCE_NUMBER"))
            return Both(e.RenameColumn(path, name), ("rename", there, name))
        case "type":
            text, keep = r.choice(TYPES), r.random() < 0.3
            return Both(e.UpdateType(path, text, keep_nullability=keep), ("type", there, text, keep))
        case "nullable":
            nullable = r.random() < 0.5
            return Both(e.UpdateNullability(path, nullable), ("nullable", there, nullable))
        case "comment":
            text = r.choice(("hello", "", None))
            return Both(e.UpdateComment(path, text), ("comment", there, text))
        case "default":
            text = r.choice(("1", "abc", "2020-01-01", "true", "[1]"))
            return Both(e.UpdateDefault(path, text), ("default", there, text))
        case "move":
            path = r.choice(columns)
            ours, theirs = draw_place(r, r.choice(columns)[0])
            return Both(e.MoveColumn(path, ours), ("move", list(path), theirs))
    if r.random() < 0.15:
        return Both(e.UpdateTableComment("said"), ("table-comment", "said"))
    key, value = r.choice(OPTIONS)
    if r.random() < 0.3:
        return Both(e.RemoveOption(key), ("reset", key))
    return Both(e.SetOption(key, value), ("set", key, value))


def draw_place(r: random.Random, other: str) -> tuple[e.Position, Any]:
    return r.choice(
        (
            (e.First(), "first"),
            (e.Last(), "last"),
            (e.After(other), ("after", other)),
            (e.Before(other), ("before", other)),
        )
    )


# ------------------------------------------------------------------------------------------------ comparison


def document(schema: Schema) -> dict[str, Any]:
    return comparable(json.loads(schema_to_json(schema)))


def comparable(doc: dict[str, Any]) -> dict[str, Any]:
    """A schema document without its time and number, which count changes that change nothing differently."""
    return {key: value for key, value in doc.items() if key not in ("timeMillis", "id")} | {
        "options": dict(sorted(doc["options"].items()))
    }


def stored(table: oracle.Table) -> dict[str, Any]:
    """The newest schema file of the table."""
    folder = Path(str(table.load().location().toUri().getPath())) / "schema"
    newest = max(folder.iterdir(), key=lambda path: int(path.name.rpartition("-")[2]))
    return comparable(json.loads(newest.read_text()))


def start(catalog: oracle.Catalog, number: int, which: int, committed: bool) -> tuple[Schema, oracle.Table]:
    how = STARTS[which]
    columns = {**how["columns"], **how.get("extra", {})}
    keys = {name: how.get(name, ()) for name in ("primary_keys", "partition_keys")}
    options = how.get("options", {})
    table = catalog.create_table(f"d.t{number}", columns, keys["primary_keys"], keys["partition_keys"], options)
    schema = new_schema(columns, **keys, options=options, time_ms=1)
    assert document(schema) == stored(table)
    if committed:
        row = {"k": 1, "dt": "x", "w": 1, "id": 1, "z2": 1}
        table.write([{name: row.get(name) for name in columns}], {"write-only": True})
    return schema, table


def apply_both(schema: Schema, table: oracle.Table, changes: Sequence[Both], committed: bool) -> tuple[Any, Any]:
    """The schema or the error of each side."""
    ours: Schema | Exception
    theirs: dict[str, Any] | Exception
    try:
        ours = e.apply(schema, [change.ours for change in changes], time_ms=2, has_snapshots=committed)
    except InvalidInputError as error:
        ours = error
    try:
        table.alter(*[change.theirs for change in changes])
        theirs = stored(table)
    except oracle.java("java.lang.Throwable") as error:
        theirs = error
    return ours, theirs


def known_difference(changes: Sequence[Both], ours: Schema | Exception, theirs: Any) -> str | None:
    """Which entry of docs/spec-notes.md explains that one side refuses what the other accepts; None: nothing does."""
    said = str(ours) if isinstance(ours, Exception) else str(theirs)
    if isinstance(ours, Exception):
        ends = {change.theirs[1][-1] for change in changes if isinstance(change.theirs[1], list)}
        if "nested field does not exist" in said and ends & {"element", "value"}:
            return "S1"  # the path names no field
        if "path of a table" in said:
            return "S2"
        if "default value does not fit" in said:
            return "S3"
        if "default value of a nested field" in said:
            return "S6"
        return None
    if "Cannot move itself" in said:
        return "S4"
    same = re.search(r"\[(.*?)( NOT NULL)?\] cannot be converted to (.*?)( NOT NULL)? without", said)
    if same and same.group(1) == same.group(3):
        return "S8"
    if "is not supported yet" in said or "Cannot reset bucket" in said:
        return "S7" if all(c.theirs[0] == "reset" for c in changes if c.theirs[0] in ("set", "reset")) else None
    return None


@pytest.mark.parametrize("which", range(len(STARTS)))
@pytest.mark.parametrize("committed", [False, True], ids=["empty", "committed"])
def test_random_changes_have_the_same_effect(catalog: oracle.Catalog, which: int, committed: bool) -> None:
    r = random.Random(f"{which} {committed}")
    agreed: Counter[str] = Counter()
    differences = []
    for number in range(40):
        schema, table = start(catalog, number, which, committed)
        for _ in range(12):
            changes = [draw_change(r, schema) for _ in range(r.choice((1, 1, 1, 2)))]
            ours, theirs = apply_both(schema, table, changes, committed)
            if isinstance(ours, Schema) and isinstance(theirs, dict):
                assert document(ours) == theirs, [change.theirs for change in changes]
                agreed["accepted"] += 1
                schema = ours
            elif isinstance(ours, Exception) and isinstance(theirs, Exception):
                agreed["refused"] += 1
            else:
                if known_difference(changes, ours, theirs) is None:
                    differences.append(([change.theirs for change in changes], str(ours)[:300], str(theirs)[:300]))
                break  # the two tables are no longer alike
    assert not differences
    assert min(agreed["accepted"], agreed["refused"]) > 100


# ------------------------------------------------------------------------------------------------ casts

CASTS = (
    "CHAR(3)", "CHAR(9)", "VARCHAR(3)", "VARCHAR(30)", "STRING", "BOOLEAN", "BINARY(3)", "BINARY(9)", "VARBINARY(3)",
    "BYTES", "DECIMAL(10, 2)", "DECIMAL(5, 1)", "DECIMAL(38, 0)", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT",
    "DOUBLE", "DATE", "TIME(0)", "TIME(3)", "TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)",
    "TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP(9) WITH LOCAL TIME ZONE", "VARIANT", "BLOB",
    "ARRAY<INT>", "ARRAY<BIGINT>", "ARRAY<INT NOT NULL>", "MAP<STRING, INT>", "MAP<STRING, BIGINT>", "MULTISET<INT>",
    "MULTISET<STRING>", "ROW<a INT>", "ROW<b INT>", "ROW<a INT, b INT>", "ROW<a INT NOT NULL>", "VECTOR<FLOAT, 3>",
    "VECTOR<FLOAT, 4>",
)  # fmt: skip


def java_decision(source: str, target: str, *, explicit: bool) -> bool:
    """Whether the Java code changes a column from one type to the other."""
    option = {"disable-explicit-type-casting": str(not explicit).lower()}
    key = ["other"] if source == "BLOB" else []  # an append table would need data evolution
    columns = {"other": "INT", "c": source}
    schema = new_schema(columns, primary_keys=key, options=option, time_ms=1)
    before = oracle.java("schema.TableSchema").fromJson(schema_to_json(schema).decode())
    change = oracle.core._change("type", "c", target)
    changes = oracle.java("java.util.ArrayList")([change])
    lazy = oracle.java("utils.LazyField")
    try:
        oracle.java("schema.SchemaManager").generateTableSchema(
            before, changes, lazy(lambda: False), lazy(lambda: None)
        )
    except oracle.java("java.lang.Throwable"):
        return False
    return True


@pytest.mark.usefixtures("jvm")
@pytest.mark.parametrize("source", CASTS)
def test_type_changes_are_allowed_where_java_allows_them(source: str) -> None:
    wrong = {}
    for target in CASTS:
        if target == source:
            continue  # note S8: nothing to change
        rule = cast_rule(parse_type(source), parse_type(target))
        ours = rule is not CastRule.REFUSED, rule in (CastRule.IMPLICIT, CastRule.IDENTITY)
        theirs = java_decision(source, target, explicit=True), java_decision(source, target, explicit=False)
        if ours != theirs:
            wrong[target] = (rule.value, theirs)
    assert not wrong
