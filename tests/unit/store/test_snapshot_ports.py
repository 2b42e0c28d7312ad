"""A catalog may own the snapshots of a table: this one keeps them in a dict, and the folder of the table has none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import NotFoundError
from tidelake.io.env import Env
from tidelake.io.fileio import Created, Exists, Outcome, Unknown
from tidelake.io.ids import SeededIds
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.store.snapshots import SnapshotSource
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO


@dataclass
class Catalog(SnapshotSource):
    """Both ports over a dict. `lose` answers are lost after the snapshot was published."""

    kept: dict[int, Snapshot] = field(default_factory=dict)
    lose: int = 0
    relies_on_storage: bool = False
    root: str = "catalog"

    def latest_id(self) -> int | None:
        return max(self.kept, default=None)

    def earliest_id(self) -> int | None:
        return min(self.kept, default=None)

    def ids(self) -> list[int]:
        return sorted(self.kept)

    def exists(self, snapshot_id: int) -> bool:
        return snapshot_id in self.kept

    def get(self, snapshot_id: int) -> Snapshot:
        if snapshot_id not in self.kept:
            raise NotFoundError("snapshot does not exist", code="snapshot-not-found", snapshot_id=snapshot_id)
        return self.kept[snapshot_id]

    def walk(self, first: int, last: int) -> Iterator[tuple[int, Snapshot | None]]:
        return ((number, self.kept.get(number)) for number in range(first, last + 1))

    def publish(self, candidate: Snapshot) -> Outcome:
        if self.kept.setdefault(candidate.id, candidate) is not candidate:
            return Exists()
        if self.lose:
            self.lose -= 1
            return Unknown(TimeoutError("the answer was lost"))
        return Created()

    def left_nothing(self, candidate: Snapshot) -> bool:
        return candidate.id not in self.kept

    def delete(self, snapshot_id: int) -> None:
        self.kept.pop(snapshot_id, None)

    def hint_latest(self, snapshot_id: int) -> None:
        """It knows."""

    def hint_earliest(self, snapshot_id: int) -> None:
        """It knows."""


@pytest.fixture
def catalog() -> Catalog:
    return Catalog()


@pytest.fixture(params=[False, True], ids=["append", "keyed"])
def table(catalog: Catalog, request: pytest.FixtureRequest) -> Table:
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), clock=FakeClock(), ids=SeededIds(1))))
    how: dict[str, Any] = {"primary_key": ["k"], "options": {"bucket": "1"}} if request.param else {}
    return owned(lake.create_table("d.t", {"k": "INT NOT NULL", "v": "STRING"}, **how), catalog)


def owned(table: Table, catalog: Catalog) -> Table:
    """The table with its snapshots in the catalog."""
    return replace(table, store=replace(table.store, snapshots=catalog, publisher=catalog))


def in_folder(table: Table) -> list[str]:
    return [each.name for each in table.store.env.io.list("snapshot")]


def rows(table: Table) -> list[tuple[int, str]]:
    return sorted((row["k"], row["v"]) for row in table.to_arrow().to_pylist())


def test_commits_and_reads_go_through_the_catalog(table: Table, catalog: Catalog) -> None:
    assert table.write([{"k": 1, "v": "a"}]).snapshot_ids == (1,)
    assert table.write([{"k": 2, "v": "b"}]).snapshot_ids == (2,)
    assert rows(table) == [(1, "a"), (2, "b")]
    assert rows(table.at(snapshot=1)) == [(1, "a")]
    assert sorted(catalog.kept) == [1, 2]
    assert in_folder(table) == []


def test_a_writer_that_lost_the_race_in_the_catalog_plans_again(table: Table, catalog: Catalog) -> None:
    rival = Catalog(catalog.kept)
    late = catalog.latest_id

    def latest_id() -> int | None:
        found = late()
        if found is None:  # the rival commits right after the first look
            owned(table, rival).write([{"k": 2, "v": "rival"}])
        return found

    catalog.latest_id = latest_id  # type: ignore[method-assign]
    done = table.new_commit().commit(prepared(table, {"k": 1, "v": "mine"}))
    assert done.snapshot_ids == (2,)
    assert rows(table) == [(1, "mine"), (2, "rival")]


def prepared(table: Table, row: dict[str, Any]) -> Any:
    writer = table.new_write()
    writer.write([row])
    return writer.prepare_commit()


def test_a_lost_answer_of_the_catalog_is_settled_by_reading_back(table: Table, catalog: Catalog) -> None:
    catalog.lose = 1
    assert table.write([{"k": 1, "v": "a"}]).snapshot_ids == (1,)
    assert rows(table) == [(1, "a")]


def test_the_table_stays_with_its_catalog_when_its_schema_changes(table: Table, catalog: Catalog) -> None:
    table.write([{"k": 1, "v": "a"}])
    wider = table.alter(add={"w": "INT"})
    wider.write([{"k": 2, "v": "b", "w": 3}])
    table.delete("k = 1")  # with the newest schema
    assert rows(table.reload()) == [(2, "b")]
    assert in_folder(table) == []
    assert catalog.latest_id() == 3


def test_the_catalog_alone_says_which_snapshots_go(table: Table, catalog: Catalog) -> None:
    table.write([{"k": 1, "v": "a"}])
    table.write([{"k": 2, "v": "b"}])
    table.rollback_to(snapshot=1)
    assert sorted(catalog.kept) == [1]
    assert rows(table) == [(1, "a")]
