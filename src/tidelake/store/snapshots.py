"""Snapshots in storage: the existence of `snapshot-N` is the commit; everything else here only finds and reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from tidelake.errors import NotFoundError
from tidelake.io.fileio import FileIO, Outcome
from tidelake.io.sequenced import SequencedStore
from tidelake.spec.layout import SNAPSHOT_PREFIX, TableLayout
from tidelake.spec.snapshot import Snapshot, snapshot_from_json, snapshot_to_json

EXPIRED: Final = "snapshot-expired"
"""The code of the error for a snapshot that expired while something was planned or read on it."""
_ATTEMPTS: Final = 10
"""Plans on the newest snapshot, each of which expires under the one who plans."""
T = TypeVar("T")


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
        for _ in range(_ATTEMPTS - 1):
            newest = self._files.latest_id()
            found = None if newest is None else self.find(newest)
            if newest is None or found is not None:
                return found  # else it expired since, and another is the newest
        newest = self._files.latest_id()
        return None if newest is None else self.get(newest)

    def on_newest(self, act: Callable[[Snapshot | None], T]) -> T:
        """Plan on the newest snapshot, and anew on the one that is the newest then if that one expires meanwhile.

        Raises:
            NotFoundError: a file is missing although its snapshot is there, or every newest snapshot expired.
        """
        return plan_again(lambda: self._on(self.latest(), act))

    def _on(self, snapshot: Snapshot | None, act: Callable[[Snapshot | None], T]) -> T:
        with self.held_to(snapshot.id if snapshot else None):
            return act(snapshot)

    @contextmanager
    def held_to(self, snapshot_id: int | None) -> Iterator[None]:
        """Read files of a snapshot: the error for one that is missing says whether that is because of its expiry.

        Raises:
            NotFoundError: with the code `EXPIRED`, the snapshot is gone; else as it was raised.
        """
        try:
            yield
        except NotFoundError as cause:
            if snapshot_id is None or cause.code == EXPIRED or self.exists(snapshot_id):
                raise
            raise expired(snapshot_id, self.io.root, cause) from cause

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

    def walk(self, first: int, last: int) -> Iterator[tuple[int, Snapshot | None]]:
        """The snapshots from `first` up to `last` by their ids; of ids that are missing only the first, with None.

        Raises:
            FormatError: a file is damaged.
        """
        return self._files.walk(first, last, self.find)

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


def plan_again(attempt: Callable[[], T]) -> T:
    """Plan on what is the newest, and again while the snapshot that was planned on expires.

    Raises:
        NotFoundError: it expired every time.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return attempt()
        except NotFoundError as error:
            if error.code != EXPIRED:
                raise
    return attempt()


def expired(snapshot_id: int, table: str, cause: NotFoundError) -> NotFoundError:
    """The error for a file that is gone because its snapshot expired."""
    return NotFoundError(
        "snapshot expired while it was read",
        code=EXPIRED,
        path=cause.facts.get("path"),
        table=table,
        snapshot_id=snapshot_id,
        hint="read the table again; a tag or a longer snapshot.time-retained keeps what long reads need",
    )
