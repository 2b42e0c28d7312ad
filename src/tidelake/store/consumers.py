"""Consumers in storage: the progress of each named stream, in small documents that are overwritten in place."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelake.errors import FormatError, NotFoundError
from tidelake.io.clock import Clock, SystemClock
from tidelake.io.fileio import FileIO, FileStatus
from tidelake.spec.documents.consumer import Consumer, consumer_from_json, consumer_to_json
from tidelake.spec.layout import CONSUMER_PREFIX, TableLayout, parse_named

_BYTES_MAX = 1 << 16
_TRIES = 5
_PAUSE_S = 0.005


@dataclass(frozen=True, slots=True)
class ConsumerStore:
    """The consumers of one branch."""

    io: FileIO
    layout: TableLayout
    clock: Clock = field(default_factory=SystemClock)

    def files(self) -> dict[str, FileStatus]:
        """The file of each consumer, by id."""
        found = ((parse_named(each.name, CONSUMER_PREFIX), each) for each in self.io.list(self.layout.consumer_dir))
        return {name: each for name, each in found if name is not None and not each.is_dir}

    def all(self) -> dict[str, Consumer]:
        """Every consumer by id; one that is deleted while they are read is left out.

        Raises:
            FormatError: a document is damaged, even after several reads.
        """
        found = ((name, self._read(each.path)) for name, each in sorted(self.files().items()))
        return {name: consumer for name, consumer in found if consumer is not None}

    def find(self, consumer_id: str) -> Consumer | None:
        """Read one consumer, or None if it does not exist.

        Raises:
            InvalidInputError: the id cannot be the id of a consumer.
            FormatError: its document is damaged.
        """
        return self._read(self.layout.consumer_path(consumer_id))

    def write(self, consumer_id: str, consumer: Consumer) -> None:
        """Write the progress of a consumer.

        Raises:
            InvalidInputError: the id cannot be the id of a consumer.
        """
        self.io.overwrite(self.layout.consumer_path(consumer_id), consumer_to_json(consumer))

    def delete(self, consumer_id: str) -> None:
        """Delete a consumer; a missing one is not an error."""
        self.io.delete(self.layout.consumer_path(consumer_id))

    def _read(self, path: str) -> Consumer | None:
        for tries_left in reversed(range(_TRIES)):
            try:
                return consumer_from_json(self.io.read(path, limit=_BYTES_MAX), path=path)
            except NotFoundError:
                return None
            except FormatError:
                # Other writers replace the document in two steps: a moment later it may be complete.
                if not tries_left:
                    raise
            self.clock.sleep(_PAUSE_S)
        return None
