"""Long-lived changelogs in storage: the documents of expired snapshots whose changes are still kept.

`changelog-N` is written before `snapshot-N` is deleted, so that one of the two always exists. It has the form of a
snapshot, but of its files only those with changes certainly exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidelake.errors import NotFoundError
from tidelake.io.fileio import FileIO
from tidelake.io.sequenced import SequencedStore
from tidelake.spec.documents.snapshot import Snapshot, snapshot_from_json, snapshot_to_json
from tidelake.spec.layout import CHANGELOG_PREFIX, TableLayout


@dataclass(frozen=True, slots=True)
class ChangelogStore:
    """The long-lived changelogs of one branch."""

    io: FileIO
    layout: TableLayout

    @property
    def files(self) -> SequencedStore:
        """Their documents."""
        return SequencedStore(self.io, self.layout.changelog_dir, CHANGELOG_PREFIX, hints=True)

    def ids(self) -> list[int]:
        """All ids, oldest first."""
        return self.files.ids()

    def earliest_id(self) -> int | None:
        """The oldest id that is kept."""
        return self.files.earliest_id()

    def latest_id(self) -> int | None:
        """The newest id, or None if there is none."""
        return self.files.latest_id()

    def get(self, changelog_id: int) -> Snapshot:
        """Read one.

        Raises:
            NotFoundError: it never existed or has expired.
            FormatError: its file is damaged.
        """
        data = self.files.read(changelog_id)
        path = self.layout.changelog_path(changelog_id)
        return snapshot_from_json(data, path=path, expected_id=changelog_id)

    def find(self, changelog_id: int) -> Snapshot | None:
        """Read one, or None if it does not exist.

        Raises:
            FormatError: its file is damaged.
        """
        try:
            return self.get(changelog_id)
        except NotFoundError:
            return None

    def walk(self, first: int, last: int) -> Iterator[tuple[int, Snapshot | None]]:
        """The changelogs from `first` up to `last` by their ids; of consecutive missing ids only the first, with None.

        Raises:
            FormatError: a file is damaged.
        """
        return self.files.walk(first, last, self.find)

    def write(self, snapshot: Snapshot) -> None:
        """Keep the document of a snapshot that is about to expire; on return it is durable. May be repeated."""
        self.io.overwrite(self.layout.changelog_path(snapshot.id), snapshot_to_json(snapshot))

    def delete(self, changelog_id: int) -> None:
        """Delete one; a missing one is not an error.

        Raises:
            StorageError: the storage failed.
        """
        self.files.delete(changelog_id)

    def hint_latest(self, changelog_id: int) -> None:
        """Write the newest id to the hint file for readers; never fails."""
        self.files.write_hint_latest(changelog_id)

    def hint_earliest(self, changelog_id: int) -> None:
        """Write the oldest id to the hint file for readers; never fails."""
        self.files.write_hint_earliest(changelog_id)
