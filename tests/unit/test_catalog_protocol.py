"""A lake asks its catalog for everything: where a table is kept is the catalog's own business."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from tidelake.catalog.filesystem import FileSystemCatalog, create_at
from tidelake.catalog.lake import Lake
from tidelake.catalog.names import table_of
from tidelake.catalog.protocol import Catalog
from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.io.env import Env
from tidelake.spec.schemas.schema import Schema
from tidelake.table import Table, load_table
from tidelake.testing import FakeClock, MemoryFileIO


@dataclass(frozen=True)
class RegisterCatalog:
    """Keeps names in a register, as a database would, and tables in folders that their names say nothing of."""

    env: Env
    register: dict[str, str] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def databases(self) -> list[str]:
        return sorted(self.names)

    def create_database(self, name: str) -> bool:
        if name in self.names:
            return False
        self.names.add(name)
        return True

    def drop_database(self, name: str) -> None:
        for table in self.tables(name):
            self.drop_table(f"{name}.{table}")
        self.names.remove(name)

    def tables(self, database: str) -> list[str]:
        if database not in self.names:
            raise NotFoundError("database does not exist", code="database-not-found", database=database)
        return sorted(name.partition(".")[2] for name in self.register if name.partition(".")[0] == database)

    def has_table(self, name: str) -> bool:
        return name in self.register

    def load_table(self, name: str, *, branch: str) -> Table:
        return load_table(self._env_of(table_of(name)), name, branch=branch)

    def create_table(self, name: str, schema: Schema) -> Table | None:
        if name in self.register:
            return None
        self.names.add(name.partition(".")[0])
        self.register[name] = f"folder-{len(self.register)}"
        return create_at(self._env_of(name), name, schema)

    def drop_table(self, name: str) -> None:
        self.env.io.delete_dir(self.register.pop(name))

    def rename_table(self, old: str, new: str) -> Table:
        self.register[new] = self.register.pop(old)
        return self.load_table(new, branch="main")

    def _env_of(self, name: str) -> Env:
        if name not in self.register:
            raise NotFoundError("table does not exist", code="table-not-found", table=name)
        return replace(self.env, io=self.env.io.sub(self.register[name]))


def register() -> Catalog:
    return RegisterCatalog(Env(MemoryFileIO("registered"), FakeClock()))


def file_system() -> Catalog:
    return FileSystemCatalog(Env(MemoryFileIO("in-folders"), FakeClock()))


@pytest.mark.parametrize("make", [register, file_system])
def test_a_lake_behaves_the_same_over_every_catalog(make):
    lake = Lake(make())
    lake.create_database("db")
    with pytest.raises(InvalidInputError) as caught:
        lake.create_database("db")
    assert caught.value.code == "database-exists"
    table = lake.create_table("db.t", {"id": "INT", "v": "INT"}, primary_key=["id"], options={"bucket": 1})
    with pytest.raises(InvalidInputError) as caught:
        lake.create_table("db.t", {"id": "INT"})
    assert caught.value.code == "table-exists"
    assert lake.create_table("db.t", {"id": "INT"}, if_not_exists=True).schema == table.schema
    table.write([{"id": 1, "v": 1}])
    table.create_tag("one")
    table.create_branch("b", tag="one")
    assert lake.table("db.t$branch_b").to_arrow().to_pylist() == [{"id": 1, "v": 1}]
    assert lake.table("db.t$branch_b").name == "db.t$branch_b"
    assert lake.table("db.t$branch_b$audit_log").to_arrow().to_pylist() == [{"rowkind": "+I", "id": 1, "v": 1}]
    renamed = lake.rename_table("db.t", "db.u")
    assert (lake.tables("db"), renamed.name, "db.u" in lake, "db.t" in lake) == (["u"], "db.u", True, False)
    assert lake.table("db.u").count() == 1
    with pytest.raises(NotFoundError) as missing:
        lake.table("db.t")
    assert missing.value.code == "table-not-found"
    with pytest.raises(InvalidInputError, match="not empty"):
        lake.drop_database("db")
    lake.drop_table("db.u")
    assert lake.tables("db") == []
    lake.drop_database("db")
    assert lake.databases() == []
    with pytest.raises(NotFoundError):
        lake.tables("db")
    lake.create_table("db.t", {"id": "INT"})
    lake.drop_database("db", cascade=True)
    assert "db.t" not in lake
