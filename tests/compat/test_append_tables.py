"""Append tables in turns: whatever one implementation writes, compacts or changes, both read the same rows of it."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import oracle
import tidelake as tl
from compat.java_values import assert_same, same, table_of, to_batch, to_rows
from tidelake.files.options import FORMATS
from tidelake.spec.schemas.evolution import After, First
from tidelake.table import Table

pytestmark = pytest.mark.oracle

LAYOUTS: dict[str, dict[str, str]] = {
    "unaware": {},
    "default": {"bucket": "3", "bucket-key": "id"},
    "mod": {"bucket": "3", "bucket-key": "id", "bucket-function.type": "mod"},
    "hive": {"bucket": "3", "bucket-key": "id", "bucket-function.type": "hive"},
}
PARTITIONS: dict[str, tuple[str, list[Any]]] = {
    "p_text": ("STRING", ["a", "x/y=z%20 \\:*", None, "", "日本 語", "a.b", " "]),
    "p_int": ("INT", [-(2**31), 0, None, 2**31 - 1, 7, 7, 7]),
    "p_date": ("DATE", [dt.date(1969, 12, 31), None, dt.date(2024, 2, 29), dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "p_decimal": ("DECIMAL(20, 3)", [Decimal("-1.500"), Decimal("0.000"), None, Decimal("99999999999999999.999")]),
    "p_moment": ("TIMESTAMP(3)", [dt.datetime(1969, 12, 31, 23, 59, 58, 5000), None, dt.datetime(2024, 2, 29)]),
}


def ours_rows(table: Table, **how: Any) -> list[dict[str, Any]]:
    return to_rows(table.scan(**how).batches())


def by_id(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["id"], repr(row)))


def assert_equal(ours: Iterable[dict[str, Any]], theirs: Iterable[dict[str, Any]], where: Any = None) -> None:
    one, other = by_id(ours), by_id(theirs)
    assert len(one) == len(other), (where, one, other)
    for mine, yours in zip(one, other, strict=True):
        assert same(mine, yours), (where, mine, yours)


def both(tmp_path: Path, name: str = "d.t") -> tuple[Table, oracle.Table]:
    return tl.connect(str(tmp_path)).table(name), oracle.Catalog(tmp_path).table(name)


def places(theirs: oracle.Table) -> list[tuple[str, int, int]]:
    """Partition, bucket and rows of every live file, as the reference sees them."""
    return sorted((each["partition"], each["bucket"], each["rows"]) for each in theirs.files())


# ------------------------------------------------------------------------------------------------ every type


@pytest.mark.parametrize("partitioned", [False, True], ids=["whole", "partitioned"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", FORMATS)
def test_every_type_goes_both_ways(jvm: None, tmp_path: Path, kind: str, layout: str, partitioned: bool) -> None:
    columns, rows = table_of(kind)
    if partitioned:
        columns |= {name: dtype for name, (dtype, _) in PARTITIONS.items()}
        for number, row in enumerate(rows):
            row |= {name: values[number % len(values)] for name, (_, values) in PARTITIONS.items()}
    options = {"file.format": kind, **LAYOUTS[layout]}
    keys = list(PARTITIONS) if partitioned else []
    lake = tl.connect(str(tmp_path))
    ours = lake.create_table("d.ours", columns, partition_by=keys, options=options)
    catalog = oracle.Catalog(tmp_path)
    theirs = catalog.create_table("d.theirs", columns, (), keys, options)

    ours.write(to_batch(rows, ours.schema.fields))
    assert_same(by_id(catalog.table("d.ours").read()), rows, columns)
    assert_equal(ours_rows(ours), rows)
    theirs.write([tuple(row.values()) for row in rows])
    seen = lake.table("d.theirs")
    # What the reference writes of moments before 1970 into ORC it reads back changed: its own reading counts.
    assert_same(by_id(ours_rows(seen)), by_id(theirs.read()), columns)
    assert [str(each.type) for each in seen.schema.fields] == [str(each.type) for each in ours.schema.fields]
    assert places(catalog.table("d.ours")) == places(theirs)

    # Now the other one appends to each of them.
    catalog.table("d.ours").write([tuple(row.values()) for row in rows])
    seen.write(to_batch(rows, seen.schema.fields))
    for name in ("d.ours", "d.theirs"):
        assert_equal(ours_rows(lake.table(name)), catalog.table(name).read(), name)
        report = lake.table(name).check(deep=True)
        assert report.ok, str(report)


# ------------------------------------------------------------------------------------------------ taking turns

COLUMNS = {"id": "INT NOT NULL", "dt": "STRING", "v": "STRING", "n": "BIGINT"}


def rows_from(start: int, count: int = 6) -> list[dict[str, Any]]:
    days = ["d1", "d2", None]
    return [
        {"id": start + i, "dt": days[i % 3], "v": None if i % 4 == 3 else f"v{start + i}", "n": (start + i) * 10**9}
        for i in range(count)
    ]


def tuples(rows: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows]


Model = list[dict[str, Any]]
Step = tuple[Callable[[Table, oracle.Table], Any], Callable[[Model], Model]]


def turns(partitioned: bool) -> list[Step]:
    """What is done to the table, and what it does to the rows."""
    steps: list[Step] = []

    def appended(start: int) -> None:
        rows = rows_from(start)
        steps.append((lambda ours, theirs: ours.write(rows), lambda model: model + rows))
        more = rows_from(start + 10)
        steps.append((lambda ours, theirs: theirs.write(tuples(more)), lambda model: model + more))

    def same_rows(act: Callable[[Table, oracle.Table], Any]) -> None:
        steps.append((act, lambda model: model))

    for start in (0, 20, 40):
        appended(start)
    same_rows(lambda ours, theirs: theirs.compact())
    appended(60)
    same_rows(lambda ours, theirs: ours.compact(full=True))
    steps.append(
        (lambda ours, theirs: ours.delete("id between 2 and 12"), lambda m: [r for r in m if not 2 <= r["id"] <= 12])
    )
    steps.append(
        (
            lambda ours, theirs: ours.update({"v": "concat(v, '!')", "n": "n + 1"}, "id >= 70"),
            lambda m: [
                {**r, "v": None if r["v"] is None else r["v"] + "!", "n": r["n"] + 1} if r["id"] >= 70 else r for r in m
            ],
        )
    )
    steps.append(
        (
            lambda ours, theirs: ours.update({"dt": "'moved'", "id": "id + 1000"}, "dt = 'd2'"),
            lambda m: [{**r, "dt": "moved", "id": r["id"] + 1000} if r["dt"] == "d2" else r for r in m],
        )
    )
    appended(80)
    same_rows(lambda ours, theirs: theirs.compact())
    if partitioned:
        new = [{"id": 500 + i, "dt": "d1", "v": "new", "n": None} for i in range(4)]
        dynamic = {"dynamic-partition-overwrite": True}
        static = {"dynamic-partition-overwrite": False}
        steps.append(
            (
                lambda ours, theirs: ours.write(new, mode="overwrite", partition={"dt": "d1"}),
                lambda m: [r for r in m if r["dt"] != "d1"] + new,
            )
        )
        other = [{**row, "id": row["id"] + 100, "v": None} for row in new]
        steps.append(
            (
                lambda ours, theirs: theirs.write(tuples(other), static, overwrite={"dt": "d1"}),
                lambda m: [r for r in m if r["dt"] != "d1"] + other,
            )
        )
        null = [{**row, "dt": None} for row in new]
        steps.append(
            (
                lambda ours, theirs: ours.write(null, mode="overwrite-dynamic"),
                lambda m: [r for r in m if r["dt"] is not None] + null,
            )
        )
        moved = [{**row, "dt": "moved"} for row in new]
        steps.append(
            (
                lambda ours, theirs: theirs.write(tuples(moved), dynamic, overwrite={}),
                lambda m: [r for r in m if r["dt"] != "moved"] + moved,
            )
        )
    appended(2000)
    fresh = rows_from(3000)
    steps.append((lambda ours, theirs: ours.write(fresh, mode="overwrite"), lambda m: fresh))
    appended(3100)
    steps.append(
        (
            lambda ours, theirs: theirs.write(tuples(fresh), {"dynamic-partition-overwrite": False}, overwrite={}),
            lambda m: fresh,
        )
    )
    steps.append((lambda ours, theirs: ours.truncate(), lambda m: []))
    appended(4000)
    steps.append((lambda ours, theirs: theirs.truncate(), lambda m: []))
    appended(5000)
    return steps


@pytest.mark.parametrize(
    ("kind", "layout", "partitioned"),
    [
        (FORMATS[0], "unaware", False),
        (FORMATS[0], "default", False),
        *((FORMATS[0], layout, True) for layout in LAYOUTS),
        *((kind, "default", True) for kind in FORMATS[1:]),
    ],
)
def test_rows_agree_at_every_snapshot_when_both_take_turns(
    jvm: None, tmp_path: Path, kind: str, layout: str, partitioned: bool
) -> None:
    options = {"file.format": kind, "compaction.min.file-num": "3", **LAYOUTS[layout]}
    tl.connect(str(tmp_path)).create_table("d.t", COLUMNS, partition_by=["dt"] if partitioned else [], options=options)
    ours, theirs = both(tmp_path)
    model: Model = []
    states: dict[int, Model] = {}
    for number, (act, effect) in enumerate(turns(partitioned)):
        before = (ours.latest_snapshot() or NO_SNAPSHOT).id
        act(ours, theirs)
        model = effect(model)
        after = (ours.latest_snapshot() or NO_SNAPSHOT).id
        # The reference compacts buckets while it writes: that is a snapshot of its own with the same rows.
        assert before <= after <= before + 2, number
        states |= dict.fromkeys(range(before + 1, after + 1), model)
        if number == 9:
            theirs.create_tag("ninth")
            tagged = model
    for snapshot_id, expected in states.items():
        assert_equal(ours_rows(ours.at(snapshot=snapshot_id)), expected, snapshot_id)
        assert_equal(theirs.read(snapshot=snapshot_id), expected, snapshot_id)
        assert ours.at(snapshot=snapshot_id).count() == len(expected)
    assert_equal(ours_rows(ours.at(tag="ninth")), tagged)
    assert_equal(theirs.read(tag="ninth"), tagged)
    report = ours.check(deep=True)
    assert report.ok, str(report)

    # Time: at, before and after the commit of some snapshots.
    last = max(states)
    for snapshot_id in (1, 5, last // 2, last):
        moment = ours.snapshot(snapshot_id).time_ms
        for ms in {moment, max(moment - 1, ours.snapshot(1).time_ms), moment + 1}:
            ours_then = ours_rows(ours.at(timestamp=ms))
            assert_equal(ours_then, theirs.read(options={"scan.timestamp-millis": ms}), ms)

    # Changes: every kind of step lies inside one of these ranges.
    for since, until in itertools.pairwise([1, 2, 6, 9, 12, 15, last - 8, last - 4, last]):
        changes = ours.changes(since, until).to_arrow().to_pylist()
        expected = theirs.read(options={"incremental-between": f"{since},{until}"}, kinds=True)
        flat = [{"rowkind": kind, **row} for kind, row in expected]
        assert_equal(changes, flat, (since, until))

    # Filters and projections, against the reference and the model.
    for text, parts in (
        ("id = 5001", ("=", "id", 5001)),
        ("id in (5003, 5011, 7)", ("in", "id", [5003, 5011, 7])),
        ("v is null", ("isnull", "v")),
        ("dt = 'd1' and n > 5010000000000", ("and", ("=", "dt", "d1"), (">", "n", 5010 * 10**9))),
        ("dt is null or id < 5002", ("or", ("isnull", "dt"), ("<", "id", 5002))),
    ):
        found = ours_rows(ours, where=text, columns=["v", "id"])
        assert found, text
        assert_equal(found, theirs.read(columns=["v", "id"], where=parts), text)
        assert ours.count(text) == len(found)


class _NoSnapshot:
    id = 0


NO_SNAPSHOT = _NoSnapshot()


# ------------------------------------------------------------------------------------------------ schema changes


@pytest.mark.parametrize("kind", FORMATS)
def test_rows_agree_after_schema_changes_of_both(jvm: None, tmp_path: Path, kind: str) -> None:
    columns = {
        "id": "INT NOT NULL", "a": "INT", "b": "STRING", "c": "DECIMAL(10, 2)", "r": "ROW<x INT, y STRING>",
        "l": "ARRAY<ROW<p INT, q DOUBLE>>", "m": "MAP<STRING, ROW<u INT>>", "dt": "STRING",
    }  # fmt: skip
    lake = tl.connect(str(tmp_path))
    options = {"file.format": kind}
    table = lake.create_table("d.t", columns, partition_by=["dt"], options=options)
    theirs = oracle.Catalog(tmp_path).table("d.t")
    ids = itertools.count()

    def value(dtype: str, number: int) -> Any:
        root = dtype.partition("<")[0].partition("(")[0].removesuffix(" NOT NULL")
        if number % 3 == 2:
            return None
        if root in ("INT", "BIGINT"):
            return number - 5
        return {"STRING": str(number), "DECIMAL": Decimal(number), "DOUBLE": number / 2, "DATE": None}.get(root)

    def next_rows(fields: dict[str, str]) -> list[dict[str, Any]]:
        rows = []
        for _ in range(4):
            number = next(ids)
            row = {name: value(dtype, number + at) for at, (name, dtype) in enumerate(fields.items())}
            rows.append({**row, "id": number, "dt": f"d{number % 2}"})
        return rows

    def nested(row: dict[str, Any], **members: Any) -> dict[str, Any]:
        return {**row, **{name: member for name, member in members.items() if row["id"] % 4 != 3}}

    def agree() -> None:
        table = lake.table("d.t")
        assert_equal(ours_rows(table), theirs.read())
        for text, parts in (("id >= 6", (">=", "id", 6)), ("dt = 'd1'", ("=", "dt", "d1"))):
            assert_equal(ours_rows(table, where=text), theirs.read(where=parts), text)

    def write(**members: Any) -> None:
        fields = theirs.fields()
        table = lake.table("d.t")
        rows = [nested(row, **members) for row in next_rows(fields)]
        table.write(rows)
        theirs.write([nested(row, **members) for row in next_rows(fields)])
        agree()

    write(r={"x": 1, "y": "a"}, l=[{"p": 7, "q": 1.5}, None], m={"k": {"u": 5}})
    table = table.alter(add={"d": "DATE"}, rename={"a": "z"}, types={"c": "DECIMAL(12, 2)"})
    agree()
    write(r={"x": 2, "y": None}, l=[], m={})
    theirs.alter(("add", "a", "STRING", "first"), ("drop", "b"), ("type", ["r", "x"], "BIGINT"))
    agree()
    write(r={"x": 2**40, "y": "b"}, l=[{"p": None, "q": None}], m={"k": None})
    table = lake.table("d.t").alter(add={"r.n": "INT"}, rename={"r.y": "yy"}, move={"z": First(), "d": After("id")})
    agree()
    write(r={"x": 3, "yy": "c", "n": 4})
    theirs.alter(("drop", ["l", "element", "q"]), ("add", ["m", "value", "w"], "STRING"), ("type", "z", "BIGINT"))
    agree()
    write(l=[{"p": 9}], m={"k": {"u": 1, "w": "x"}})
    lake.table("d.t").compact(full=True)
    agree()
    theirs.compact()
    agree()
    lake.table("d.t").update({"z": "z + 1"}, "id < 10")
    lake.table("d.t").delete("id = 1")
    agree()
    table = lake.table("d.t")
    report = table.check(deep=True)
    assert report.ok, str(report)
    for snapshot in theirs.snapshots():
        at = snapshot["id"]
        assert_equal(ours_rows(table.at(snapshot=at)), theirs.read(snapshot=at), at)
    moment = lake.table("d.t").snapshot(3).time_ms
    assert_equal(
        ours_rows(lake.table("d.t").at(timestamp=moment)), theirs.read(options={"scan.timestamp-millis": moment})
    )


def test_a_file_of_a_travelled_write_or_read_is_never_changed(catalog: oracle.Catalog, tmp_path: Path) -> None:
    theirs = catalog.create_table("d.t", {"id": "INT NOT NULL", "v": "STRING"})
    theirs.write([(1, "a")])
    table = tl.connect(str(tmp_path)).table("d.t")
    table.write([{"id": 2}])
    theirs.alter(("drop", "v"))
    old = tl.connect(str(tmp_path)).table("d.t").at(snapshot=2)
    assert_equal(to_rows(old.scan().batches()), [{"id": 1, "v": "a"}, {"id": 2, "v": None}])
    assert_equal(to_rows(old.scan().batches()), theirs.read(snapshot=2))
    with pytest.raises(tl.InvalidInputError, match="point in time"):
        old.write([{"id": 3}])
