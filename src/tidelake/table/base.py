"""The base of a table's handle: its documents, its schema and the options in force."""

from __future__ import annotations

from collections.abc import Mapping

from tidelake.errors import InvalidInputError
from tidelake.expr.tree import Predicate
from tidelake.ops.context import TableContext, make_context
from tidelake.options.capabilities import refuse_reading
from tidelake.spec.schemas.schema import Schema
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore


class Handle:
    """A table at one schema; `dynamic` holds the options of this use, which override those of the table."""

    __slots__ = ()

    name: str
    store: TableStore
    dynamic: Mapping[str, str]

    @property
    def location(self) -> str:
        """The folder or URL of the table."""
        return self.store.env.io.root

    @property
    def schema(self) -> Schema:
        """Columns, keys and options."""
        return self.store.schema

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The key columns; none for an append table."""
        return tuple(self.schema.primary_keys)

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The partition columns."""
        return tuple(self.schema.partition_keys)

    @property
    def context(self) -> TableContext:
        """What operations and engines get of the table: documents, paths, and the options in force."""
        return make_context(self.name, self.store, self.dynamic)

    @property
    def options(self) -> Mapping[str, str]:
        """The options in force: those of the table, overridden by those of `with_options`."""
        return {**self.schema.options, **self.dynamic}

    @property
    def paths(self) -> DataPaths:
        """The paths of data files."""
        return self.context.paths

    @property
    def comment(self) -> str | None:
        """The table's comment."""
        return self.schema.comment

    def _predicate(self, where: Predicate | str | None) -> Predicate | None:
        if where is not None and not isinstance(where, Predicate | str):
            raise _no_condition(where)
        if not isinstance(where, str):
            return where
        from tidelake.expr.parse import parse_where  # the SQL parser takes as long to load as a small read

        return parse_where(where, self.schema.fields)

    def parse_condition(self, where: Predicate | str | None) -> Predicate | None:
        """A condition as a tree; a text is parsed with the columns of the table.

        Raises:
            InvalidInputError: it is neither, or the text cannot be parsed.
        """
        return self._predicate(where)

    def _condition(self, where: Predicate | str) -> Predicate:
        predicate = self._predicate(where)
        if predicate is None:
            raise _no_condition(where)
        return predicate

    def _refuse_unreadable(self) -> None:
        refuse_reading(self.store.schemas.newest_known(self.schema).options)


def _no_condition(where: object) -> InvalidInputError:
    return InvalidInputError(
        "condition is neither text nor an expression",
        got=type(where).__name__,
        hint='write "id > 7" or col("id") > 7; "true" stands for all rows',
    )
