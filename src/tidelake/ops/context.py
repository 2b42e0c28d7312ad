"""The table context: one table at one schema, with the options in force for one use.

Every verb takes this value instead of its parts, so that schema, paths and options always belong together. It never
changes: a verb that needs the newest schema or another option gets another context.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tidelake.options import TableOptions
from tidelake.spec.schemas.bucket_mode import BucketMode, bucket_mode
from tidelake.spec.schemas.schema import Schema
from tidelake.store.paths import DataPaths, PathOptions
from tidelake.store.snapshots import SnapshotPublisher, SnapshotSource
from tidelake.store.table_store import TableStore

__all__ = ["TableContext", "make_context"]


@dataclass(frozen=True, slots=True)
class TableContext:
    """A table to work on. Made by `make_context`."""

    name: str
    store: TableStore
    paths: DataPaths
    options: TableOptions
    rescale: Callable[[Mapping[bytes, int]], None] | None = field(default=None, compare=False)
    """A port: gives partitions other numbers of buckets, where writes that find far too few may do so."""

    @property
    def schema(self) -> Schema:
        """The schema that the table was opened with."""
        return self.store.schema

    @property
    def snapshots(self) -> SnapshotSource:
        """The port that reads snapshots."""
        return self.store.snapshots

    @property
    def publisher(self) -> SnapshotPublisher:
        """The port that publishes snapshots."""
        return self.store.publisher

    @property
    def table_options(self) -> TableOptions:
        """The options of the table alone: what holds its files must not depend on an option of one use."""
        return TableOptions(self.store.schema.options)

    @property
    def bucket_mode(self) -> BucketMode:
        """How rows get their bucket.

        Raises:
            InvalidInputError: the option `bucket` has a wrong value.
        """
        return bucket_mode(self.store.schema, self.options)

    @property
    def is_keyed(self) -> bool:
        """Whether the table has a primary key."""
        return bool(self.store.schema.primary_keys)


def make_context(name: str, store: TableStore, dynamic: Mapping[str, str]) -> TableContext:
    """The context of a table with the options of one use over its own.

    Raises:
        InvalidInputError: an option that says where files are has a wrong value.
    """
    schema = store.schema
    # Where files are is a matter of the table: an option of one use must not send a reader to other folders.
    paths = DataPaths(store.layout, schema, PathOptions.parse(schema.options))
    return TableContext(name, store, paths, TableOptions({**schema.options, **dynamic}))
