"""Schema files in storage: created once, never changed, the highest id is current."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelake.errors import FormatError, NotFoundError
from tidelake.io.fileio import FileIO, Outcome
from tidelake.io.sequenced import SequencedStore
from tidelake.spec.layout import SCHEMA_PREFIX, TableLayout
from tidelake.spec.schemas.schema import Schema, schema_from_json, schema_to_json


@dataclass(frozen=True, slots=True)
class SchemaStore:
    """The schemas of one branch. They are cached after the first read: a schema file never changes."""

    io: FileIO
    layout: TableLayout
    _known: dict[int, Schema] = field(default_factory=dict, repr=False, compare=False)

    @property
    def _files(self) -> SequencedStore:
        return SequencedStore(self.io, self.layout.schema_dir, SCHEMA_PREFIX, hints=False)

    def ids(self) -> list[int]:
        """All ids, oldest first."""
        return self._files.ids()

    def latest_id(self) -> int | None:
        """The id of the current schema, or None if the folder is not a table."""
        known = max(self._known, default=None)
        if known is None:
            return max(self._files.ids(), default=None)
        # Ids are dense, so asking for the next one is cheaper than listing the folder.
        while self._files.exists(known + 1):
            known += 1
        return known

    def latest(self) -> Schema | None:
        """The current schema, or None if the folder is not a table."""
        newest = self.latest_id()
        return None if newest is None else self.get(newest)

    def newest_known(self, current: Schema) -> Schema:
        """The newest of the given schema and the cached ones, without reading storage."""
        return max((current, *self._known.values()), key=lambda schema: schema.id)

    def get(self, schema_id: int) -> Schema:
        """One schema, through the cache.

        Raises:
            FormatError: the file is missing although something refers to it, or it is damaged.
        """
        if schema_id not in self._known:
            try:
                self._known[schema_id] = self.read(schema_id)
            except NotFoundError as cause:
                path = self.layout.schema_path(schema_id)
                raise FormatError("schema file is missing", path=path, table=self.io.root) from cause
        return self._known[schema_id]

    def read(self, schema_id: int) -> Schema:
        """One schema, read from storage.

        Raises:
            NotFoundError: it does not exist.
            FormatError: it is damaged.
        """
        data = self._files.read(schema_id)
        return schema_from_json(data, path=self.layout.schema_path(schema_id), expected_id=schema_id)

    def publish(self, schema: Schema) -> Outcome:
        """Create the schema's file if the id is free."""
        return self._files.publish(schema.id, schema_to_json(schema))

    def forget(self) -> None:
        """Empty the cache, for a table that was dropped and created again at the same path."""
        self._known.clear()
