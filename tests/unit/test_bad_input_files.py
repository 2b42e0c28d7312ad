"""Data files that are not what the table says, and tables that go away: a typed error, no wrong row, no change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tidelake as tl
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO
from tidelake.testing.scenario import take_image

FORMATS = ("parquet", "orc", "avro")
COLUMNS = {"id": "INT NOT NULL", "s": "STRING"}
ROWS = [{"id": i, "s": f"text {i}" * 9} for i in range(500)]


def new_lake() -> Lake:
    return Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000), SeededIds(1))))


def new_table(kind: str = "parquet", columns: dict[str, str] | None = None) -> Table:
    return new_lake().create_table("d.t", columns or COLUMNS, options={"file.format": kind})


def path(table: Table) -> str:
    """The path of the first data file."""
    return f"bucket-0/{table.files().column('file_name')[0].as_py()}"


def content(table: Table) -> bytes:
    return table.store.env.io.read(path(table))


def other(kind: str, rows: list[dict[str, Any]], columns: dict[str, str] | None = None) -> bytes:
    """A sound data file of another table."""
    table = new_table(kind, columns)
    table.write(rows)
    return content(table)


def cut(data: bytes, _: str) -> bytes:
    return data[: len(data) // 2]


def shorter(data: bytes, _: str) -> bytes:
    return data[:-1]


def longer(data: bytes, _: str) -> bytes:
    return data + b"x"


def empty(_: bytes, __: str) -> bytes:
    return b""


def garbage(data: bytes, _: str) -> bytes:
    return bytes(range(256)) * (len(data) // 256 + 1)


def of_another_table(_: bytes, kind: str) -> bytes:
    return other(kind, [{"a": 1.5, "z": "x"}] * 100, {"a": "DOUBLE", "z": "STRING"})


def with_fewer_rows(_: bytes, kind: str) -> bytes:
    return other(kind, ROWS[:5])


def of_another_format(_: bytes, kind: str) -> bytes:
    return other("orc" if kind != "orc" else "avro", ROWS)


VERBS: dict[str, Callable[[Table], Any]] = {
    "read": lambda table: table.to_arrow(),
    "count": lambda table: table.count("id > 5"),
    "delete": lambda table: table.delete("id = 1"),
    "update": lambda table: table.update({"s": "'x'"}, "id = 1"),
    "compact": lambda table: table.compact(full=True),
}


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    "spoil", [cut, shorter, longer, empty, garbage, of_another_table, with_fewer_rows, of_another_format]
)
def test_a_data_file_that_is_another_one_is_refused_by_every_verb(
    spoil: Callable[[bytes, str], bytes], kind: str
) -> None:
    table = new_table(kind)
    table.write(ROWS)
    table.write([{"id": 1000}])
    victim = path(table)
    io = table.store.env.io
    io.overwrite(victim, spoil(io.read(victim), kind))
    before = take_image(io)
    for verb in VERBS.values():
        with pytest.raises(tl.FormatError) as caught:
            verb(table)
        assert caught.value.facts["path"] == victim
    assert victim in {finding.place for finding in table.check(rows=True).errors}
    assert take_image(io) == before


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_of_the_same_size_with_other_rows_is_found_by_the_check(kind: str) -> None:
    table = new_table(kind)
    table.write([{"id": 1, "s": "a"}])
    twins = (other(kind, [{"id": number, "s": "a"}]) for number in range(2, 100))
    twin = next(each for each in twins if len(each) == len(content(table)))
    assert table.check(rows=True).ok
    table.store.env.io.overwrite(path(table), twin)
    assert table.check(deep=True).ok
    found = table.check(rows=True)
    assert "statistics of column id are wrong" in str(found)
    assert not found.ok


@pytest.mark.parametrize("kind", FORMATS)
def test_a_data_file_that_is_missing_is_named_with_its_snapshot(kind: str) -> None:
    table = new_table(kind)
    table.write(ROWS)
    table.write([{"id": 1000}])
    victim = path(table)
    table.store.env.io.delete(victim)
    before = take_image(table.store.env.io)
    for verb in VERBS.values():
        with pytest.raises(tl.FormatError) as caught:
            verb(table)
        assert (caught.value.code, caught.value.facts["path"]) == ("file-missing", victim)
        assert caught.value.facts["snapshot_id"] == "2"
        assert caught.value.hint
    assert take_image(table.store.env.io) == before


def test_a_disk_that_fails_while_a_file_is_read_is_no_damaged_file(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table()
    table.write(ROWS)
    opened = type(table.store.env.io).open_input

    def failing(self: Any, name: str) -> Any:
        file = opened(self, name)

        def read(*_: Any) -> bytes:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(type(file), "read", read, raising=False)
        return file

    monkeypatch.setattr(type(table.store.env.io), "open_input", failing)
    with pytest.raises(tl.StorageError, match="could not be read"):
        table.to_arrow()


@pytest.mark.parametrize(("column", "value"), [("dt", "d2"), ("id", 1)])
def test_rows_in_a_partition_or_bucket_that_is_not_theirs_are_found_by_the_check(column: str, value: Any) -> None:
    lake = new_lake()
    options = {"bucket": "2", "bucket-key": "id", "metadata.stats-mode": "none"}
    columns = {"id": "INT NOT NULL", "dt": "STRING"}
    table, twin = (lake.create_table(name, columns, partition_by=["dt"], options=options) for name in ("d.t", "d.u"))
    for each, row in ((table, {"id": 0, "dt": "d1"}), (twin, {"id": 0, "dt": "d1", column: value})):
        each.write([row])
    places = [
        f"{each.paths.bucket(file['partition'], file['bucket'])}/{file['file_name']}"
        for each in (table, twin)
        for file in each.files().to_pylist()
    ]
    assert table.check(rows=True).ok
    misplaced = twin.store.env.io.read(places[1])
    table.store.env.io.overwrite(places[0], misplaced)
    errors = [finding.message for finding in table.check(rows=True).errors if finding.invariant == "I13"]
    assert errors == [f"rows belong to another {'partition' if column == 'dt' else 'bucket'}"]


# ------------------------------------------------------------------------------------------------ dropped tables


@pytest.mark.parametrize(
    "act",
    [
        *VERBS.values(),
        lambda table: table.count(),
        lambda table: table.write([{"id": 1}]),
        lambda table: table.truncate(),
        lambda table: table.alter(add={"q": "INT"}),
        lambda table: table.at(snapshot=1),
        lambda table: table.reload(),
    ],
)
def test_a_table_that_was_dropped_is_not_an_empty_one(act: Callable[[Table], Any]) -> None:
    lake = new_lake()
    table = lake.create_table("d.t", COLUMNS)
    table.write(ROWS)
    lake.drop_table("d.t")
    before = take_image(lake.env.io)
    with pytest.raises(tl.NotFoundError):
        act(table)
    assert take_image(lake.env.io) == before


def test_a_table_that_is_dropped_while_it_is_read_ends_in_an_error() -> None:
    lake = new_lake()
    table = lake.create_table("d.t", COLUMNS)
    for _ in range(3):
        table.write(ROWS)
    batches = table.scan().batches()
    next(batches)
    lake.drop_table("d.t")
    with pytest.raises(tl.FormatError, match="missing") as caught:
        list(batches)
    assert "dropped" in (caught.value.hint or "")


def test_a_job_does_not_write_into_the_table_that_took_the_place_of_its_own() -> None:
    lake = new_lake()
    table = lake.create_table("d.t", COLUMNS)
    lake.drop_table("d.t")
    fresh = lake.create_table("d.t", {"id": "STRING"})
    before = take_image(lake.env.io)
    with pytest.raises(tl.CommitConflictError):
        table.write(ROWS)
    assert take_image(lake.env.io) == before
    assert fresh.count() == 0


# ------------------------------------------------------------------------------------------------ stale handles


@pytest.mark.parametrize(
    ("verb", "ids"),
    [
        (lambda table: table.delete("id = 1"), [2, 3]),
        (lambda table: table.update({"id": "id + 100"}, "id = 1"), [2, 3, 101]),
        (lambda table: table.compact(full=True), [1, 2, 3]),
    ],
)
def test_a_handle_of_an_older_schema_does_not_drop_the_columns_it_does_not_know(
    verb: Callable[[Table], Any], ids: list[int]
) -> None:
    lake = new_lake()
    old = lake.create_table("d.t", {"id": "INT"})
    new = lake.table("d.t").alter(add={"w": "INT"})
    new.write([{"id": 1, "w": 10}, {"id": 2, "w": 20}])
    new.write([{"id": 3, "w": 30}])
    verb(old)
    found = sorted(new.to_arrow().to_pylist(), key=lambda row: row["id"])
    assert found == [{"id": number, "w": number % 100 * 10} for number in ids]


def test_a_job_that_learns_of_a_newer_schema_too_late_is_told_to_start_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lake = new_lake()
    old = lake.create_table("d.t", {"id": "INT"})
    lake.table("d.t").alter(add={"w": "INT"}).write([{"id": 1, "w": 10}])
    monkeypatch.setattr(Table, "_newest", lambda self: self)
    before = take_image(lake.env.io)
    for verb in (lambda: old.delete("id = 1"), lambda: old.compact(), lambda: old.update({"id": "2"}, "id = 1")):
        with pytest.raises(tl.CommitConflictError) as caught:
            verb()
        assert caught.value.code == "schema-changed"
    assert take_image(lake.env.io) == before
