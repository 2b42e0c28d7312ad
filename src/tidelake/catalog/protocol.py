"""What a lake needs from a catalog: the names of databases and tables, and the handle of a table.

The lake parses what a user typed and raises the errors that are the same for every catalog, so a catalog gets only
well-formed names. It returns handles and not locations, because only the catalog knows what comes with a table: a
catalog in a database or on a server opens the table with an `Env` that holds its credentials, its lock around commits,
or its publisher of snapshots. No other module may assume that a table is a folder below the warehouse.
"""

from __future__ import annotations

from typing import Protocol

from tidelake.io.env import Env
from tidelake.spec.schemas.schema import Schema
from tidelake.table import Table


class Catalog(Protocol):
    """Finds databases and tables by name. The name of a table is `database.table` throughout."""

    @property
    def env(self) -> Env:
        """The storage of the warehouse, with clock and ids."""

    def databases(self) -> list[str]:
        """The names of the databases, sorted."""

    def create_database(self, name: str) -> bool:
        """Create a database; return False if it exists.

        Raises:
            InvalidInputError: the name is not usable.
            StorageError: the storage cannot create a file exclusively, so that commits would not be safe.
        """

    def drop_database(self, name: str) -> None:
        """Remove a database with all its tables.

        Raises:
            NotFoundError: the database does not exist.
        """

    def tables(self, database: str) -> list[str]:
        """The names of the tables of a database, without the database.

        Raises:
            NotFoundError: the database does not exist.
        """

    def has_table(self, name: str) -> bool:
        """Whether the table exists."""

    def load_table(self, name: str, *, branch: str) -> Table:
        """Open a table on a branch. `name` is the name that the handle shows: `database.table$branch_name`.

        Raises:
            NotFoundError: the table or the branch does not exist.
            InvalidInputError: the name is not usable.
        """

    def create_table(self, name: str, schema: Schema) -> Table | None:
        """Create a table, and its database if that is missing; return None if the name is in use by a table.

        Raises:
            InvalidInputError: an option has a value that it cannot have, or the name is not usable.
            UnsupportedError: an option is not honoured.
            StorageError: the storage failed or is not safe for commits; nothing was created.
        """

    def drop_table(self, name: str) -> None:
        """Remove a table with all its data.

        Raises:
            NotFoundError: the table does not exist.
        """

    def rename_table(self, old: str, new: str) -> Table:
        """Give a table another name, also in another database, and return it under that name.

        Raises:
            NotFoundError: the table, or the database to move it to, does not exist.
            InvalidInputError: the new name is in use, not usable, or equal to the old one.
            UnsupportedError: the catalog cannot rename a table in one step.
            StorageError: the storage failed; the table is whole under one of the two names.
        """
