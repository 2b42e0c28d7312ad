"""What every part of a table's handle stands on: the doors, the schema and the options in force."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from tidelake.errors import InvalidInputError
from tidelake.expr.tree import Predicate
from tidelake.ops.scan.modes import names_a_place
from tidelake.spec.option_support import refuse_reading
from tidelake.spec.schema import Schema
from tidelake.store.paths import DataPaths, PathOptions
from tidelake.store.table_store import TableStore


class Handle(ABC):
    """A table at one schema, with options of one use over those of the table."""

    __slots__ = ()

    name: str
    store: TableStore
    dynamic: Mapping[str, str]

    @property
    def location(self) -> str:
        """Where the table lies."""
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
    def options(self) -> Mapping[str, str]:
        """The options in force: those of the table, and over them those of `with_options`."""
        return {**self.schema.options, **self.dynamic}

    @property
    def paths(self) -> DataPaths:
        """Where data files lie."""
        return DataPaths(self.store.layout, self.schema, PathOptions.parse(self.schema.options))

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

    def _condition(self, where: Predicate | str) -> Predicate:
        predicate = self._predicate(where)
        if predicate is None:
            raise _no_condition(where)
        return predicate

    def _refuse_unreadable(self) -> None:
        refuse_reading(self.store.schemas.newest_known(self.schema).options)

    @abstractmethod
    def _refuse_view(self) -> None:
        """Refuse to change a table through a view of it."""

    def _refuse_travelled(self) -> None:
        if names_a_place(self.dynamic):
            raise InvalidInputError(
                "table is read at a point in time and cannot be written there", hint="write to the table itself"
            )


def _no_condition(where: object) -> InvalidInputError:
    return InvalidInputError(
        "condition is neither text nor an expression",
        got=type(where).__name__,
        hint='write "id > 7" or col("id") > 7; "true" stands for all rows',
    )
