"""The file-system catalog: a database is a folder `name.db`, a table a folder in it with a schema.

Tables are not registered anywhere else, so every writer of the format sees the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidelake.catalog.names import split_name, table_exists, table_of
from tidelake.errors import InvalidInputError, NotFoundError, StorageError
from tidelake.io.env import Env
from tidelake.io.fileio import parent
from tidelake.ops.commit.safety import require_exclusive_create
from tidelake.ops.define.schemas import run_create
from tidelake.options import TableOptions
from tidelake.spec.layout import SCHEMA_PREFIX, TableLayout, database_dir, parse_database_dir, parse_numbered, table_dir
from tidelake.spec.names import MAIN_BRANCH
from tidelake.spec.schemas.schema import Schema
from tidelake.store.schemas import SchemaStore
from tidelake.table import Table, load_table, open_table


@dataclass(frozen=True, slots=True)
class FileSystemCatalog:
    """The databases and tables below one folder."""

    env: Env

    # -------------------------------------------------------------------------------------------- databases

    def databases(self) -> list[str]:
        """The names of the databases."""
        found = (parse_database_dir(each.name) for each in self.env.io.list("") if each.is_dir)
        return sorted(name for name in found if name)

    def create_database(self, name: str) -> bool:
        """Create a database; return False if it exists.

        Raises:
            InvalidInputError: the name is not usable.
            StorageError: the storage cannot create a file exclusively, so that commits would not be safe.
        """
        folder = database_dir(name)
        require_exclusive_create(self.env, TableOptions())
        if self.env.io.exists(folder):
            return False
        self.env.io.make_dir(folder)
        return True

    def drop_database(self, name: str) -> None:
        """Remove a database with all its tables.

        Raises:
            NotFoundError: the database does not exist.
        """
        self._require_database(name)
        self.env.io.delete_dir(database_dir(name))

    def _require_database(self, name: str) -> None:
        if not self.env.io.exists(database_dir(name)):
            raise NotFoundError(
                "database does not exist", code="database-not-found", database=name, lake=self.env.io.root
            )

    # -------------------------------------------------------------------------------------------- tables

    def tables(self, database: str) -> list[str]:
        """The names of the tables of a database.

        Raises:
            NotFoundError: the database does not exist.
        """
        self._require_database(database)
        folder = database_dir(database)
        return [
            each.name for each in self.env.io.list(folder) if each.is_dir and self._is_table(f"{folder}/{each.name}")
        ]

    def has_table(self, name: str) -> bool:
        """Whether the table exists."""
        return self._is_table(_folder(name))

    def load_table(self, name: str, *, branch: str = MAIN_BRANCH) -> Table:
        """Open a table on a branch. `name` is the name that the handle shows, which includes the branch.

        Raises:
            NotFoundError: the table or the branch does not exist.
            InvalidInputError: the name is not usable.
        """
        return load_table(self._env_of(table_of(name)), name, branch=branch)

    def create_table(self, name: str, schema: Schema) -> Table | None:
        """Create a table, and its database if that is missing; return None if the name is in use by a table.

        Raises:
            InvalidInputError: an option has a value that it cannot have, or the name is not usable.
            UnsupportedError: an option is not honoured.
            StorageError: the storage failed or is not safe for commits; nothing was created.
        """
        require_exclusive_create(self.env, TableOptions(schema.options))
        return create_at(self._env_of(name), name, schema)

    def drop_table(self, name: str) -> None:
        """Remove a table with all its data.

        Raises:
            NotFoundError: the table does not exist.
        """
        folder = _folder(name)
        if not self._is_table(folder):
            raise NotFoundError("table does not exist", code="table-not-found", table=name)
        self.env.io.delete_dir(folder)

    def rename_table(self, old: str, new: str) -> Table:
        """Move the folder of a table in one step: a crash leaves the whole table under the old or the new name.

        Raises:
            NotFoundError: the table, or the database to move it to, does not exist.
            InvalidInputError: the new name is in use, not usable, or equal to the old one.
            UnsupportedError: the storage cannot move a folder in one step.
            StorageError: the storage failed; the table is whole under one of the two names.
        """
        source, target = _folder(old), _folder(new)
        if old == new:
            raise InvalidInputError("new name is equal to the old one", table=old, hint="choose another name")
        before = load_table(self._env_of(old), old)
        self._require_database(split_name(new)[0])
        if self.env.io.exists(target):
            raise _name_in_use(new, is_table=self._is_table(target))
        try:
            self.env.io.rename_dir(source, target)
        except StorageError as error:
            if error.code == "file-exists":
                raise _name_in_use(new, is_table=self._is_table(target)) from error
            if not self._is_moved(source, target, before.schema):
                raise
            # Only the reply was lost: the folder is moved. Sync it, so that the move survives a power loss.
            self.env.io.sync([target, parent(source), parent(target)])
        return load_table(self._env_of(new), new)

    def _is_moved(self, source: str, target: str, schema: Schema) -> bool:
        """Whether the table is in its new folder and no longer in its old one."""
        if self._is_table(source) or not self._is_table(target):
            return False
        return SchemaStore(self.env.io.sub(target), TableLayout()).latest() == schema

    def _env_of(self, name: str) -> Env:
        return replace(self.env, io=self.env.io.sub(_folder(name)))

    def _is_table(self, folder: str) -> bool:
        names = (each.name for each in self.env.io.list(f"{folder}/schema"))
        return any(parse_numbered(name, SCHEMA_PREFIX) is not None for name in names)


def create_at(env: Env, name: str, schema: Schema) -> Table | None:
    """Create a table at the root of this environment's storage; return None if there is one.

    Raises:
        InvalidInputError: an option has a value that it cannot have.
        UnsupportedError: an option is not honoured.
        StorageError: the storage failed; nothing was created.
    """
    schemas = SchemaStore(env.io, TableLayout())
    return open_table(env, name, schema, schemas) if run_create(env, schemas, schema) else None


def _folder(name: str) -> str:
    return table_dir(*split_name(name))


def _name_in_use(name: str, *, is_table: bool) -> InvalidInputError:
    if is_table:
        return table_exists(name)
    return InvalidInputError(
        "a non-table folder already uses this name",
        code="table-exists",
        table=name,
        hint="remove the folder, or choose another name",
    )
