"""Snapshots in storage: the existence of `snapshot-N` is the commit; everything else here only finds and reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidelake.errors import NotFoundError
from tidelake.io.fileio import FileIO, Outcome
from tidelake.io.sequenced import SequencedStore
from tidelake.spec.layout import SNAPSHOT_PREFIX, TableLayout
from tidelake.spec.snapshot import Snapshot, snapshot_from_json, snapshot_to_json


@dataclass(frozen=True, slots=True)
class SnapshotStore:
    """The snapshots of one branch."""

    io: FileIO
    layout: TableLayout

    @property
    def _files(self) -> SequencedStore:
        return SequencedStore(self.io, self.layout.snapshot_dir, SNAPSHOT_PREFIX, hints=True)

    def latest_id(self) -> int | None:
        """The newest id, or None when there is no snapshot."""
        return self._files.latest_id()

    def latest(self) -> Snapshot | None:
        """The newest snapshot.

        Raises:
            FormatError: its file is damaged. It is never skipped: an older state would be served as the newest.
        """
        newest = self._files.latest_id()
        return None if newest is None else self.get(newest)

    def earliest_id(self) -> int | None:
        """The oldest id that is kept."""
        return self._files.earliest_id()

    def ids(self) -> list[int]:
        """All ids, oldest first."""
        return self._files.ids()

    def exists(self, snapshot_id: int) -> bool:
        """Whether the snapshot is there."""
        return self._files.exists(snapshot_id)

    def get(self, snapshot_id: int) -> Snapshot:
        """Read one snapshot.

        Raises:
            NotFoundError: it never existed or has expired.
            FormatError: its file is damaged.
        """
        try:
            data = self._files.read(snapshot_id)
        except NotFoundError as cause:
            raise NotFoundError(
                "snapshot does not exist",
                code="snapshot-not-found",
                snapshot_id=snapshot_id,
                table=self.io.root,
                hint="it may have expired; list what is there with inspect.snapshots()",
            ) from cause
        return snapshot_from_json(data, path=self.layout.snapshot_path(snapshot_id), expected_id=snapshot_id)

    def find(self, snapshot_id: int) -> Snapshot | None:
        """Read one snapshot, or None when it is not there.

        Raises:
            FormatError: its file is damaged.
        """
        try:
            return self.get(snapshot_id)
        except NotFoundError:
            return None

    def newest_first(self, *, down_to: int = 1) -> Iterator[Snapshot]:
        """The snapshots from the newest back to `down_to`, ending at the first that is gone."""
        newest = self.latest_id()
        if newest is None:
            return
        for snapshot_id in range(newest, down_to - 1, -1):
            snapshot = self.find(snapshot_id)
            if snapshot is None:
                return
            yield snapshot

    def publish(self, snapshot: Snapshot) -> Outcome:
        """Create the snapshot's file if the id is free: the one atomic step of a commit."""
        return self._files.publish(snapshot.id, snapshot_to_json(snapshot))

    def delete(self, snapshot_id: int) -> None:
        """Remove a snapshot's file; a missing one is fine. Its files are unreachable from then on.

        Raises:
            StorageError: the storage failed.
        """
        self._files.delete(snapshot_id)

    def hint_latest(self, snapshot_id: int) -> None:
        """Note the newest id for readers; never fails, because nothing depends on it."""
        self._files.write_hint_latest(snapshot_id)

    def hint_earliest(self, snapshot_id: int) -> None:
        """Note the oldest id for readers; never fails."""
        self._files.write_hint_earliest(snapshot_id)
