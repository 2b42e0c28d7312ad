"""Long-lived changelogs in storage: what is left of a snapshot that expired while its changes are still wanted.

`changelog-N` is written before `snapshot-N` goes, so that at every moment one of the two is there. It has the form of a
snapshot, but of its files only those that hold changes are sure to exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidelake.errors import NotFoundError
from tidelake.io.fileio import FileIO
from tidelake.io.sequenced import SequencedStore
from tidelake.spec.layout import CHANGELOG_PREFIX, TableLayout
from tidelake.spec.snapshot import Snapshot, snapshot_from_json, snapshot_to_json


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
        """The newest id, or None when there is none."""
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
        """Read one, or None when it is not there.

        Raises:
            FormatError: its file is damaged.
        """
        try:
            return self.get(changelog_id)
        except NotFoundError:
            return None

    def walk(self, first: int, last: int) -> Iterator[tuple[int, Snapshot | None]]:
        """The changelogs from `first` up to `last` by their ids; of ids that are missing only the first, with None.

        Raises:
            FormatError: a file is damaged.
        """
        return self.files.walk(first, last, self.find)

    def write(self, snapshot: Snapshot) -> None:
        """Keep a snapshot that is about to expire; it survives a power loss on return. Repeating it is harmless."""
        self.io.overwrite(self.layout.changelog_path(snapshot.id), snapshot_to_json(snapshot))

    def delete(self, changelog_id: int) -> None:
        """Remove one; a missing one is fine.

        Raises:
            StorageError: the storage failed.
        """
        self.files.delete(changelog_id)

    def hint_latest(self, changelog_id: int) -> None:
        """Note the newest id for readers; never fails."""
        self.files.write_hint_latest(changelog_id)

    def hint_earliest(self, changelog_id: int) -> None:
        """Note the oldest id for readers; never fails."""
        self.files.write_hint_earliest(changelog_id)
