"""The snapshots of a branch: a port to read them, a port to publish them, and both for the table's own folder.

In the folder a commit is the existence of `snapshot-N`. A catalog that decides which snapshot is the newest brings its
own `SnapshotSource` and `SnapshotPublisher`; commits and reads depend on these two ports alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from tidelake.errors import NotFoundError
from tidelake.io.fileio import FileIO, FileStatus, Outcome
from tidelake.io.lock import Lock, NoLock
from tidelake.io.sequenced import SequencedStore
from tidelake.spec.documents.snapshot import Snapshot, snapshot_from_json, snapshot_to_json
from tidelake.spec.layout import SNAPSHOT_PREFIX, TableLayout, parse_numbered

EXPIRED: Final = "snapshot-expired"
"""The error code for a snapshot that expired while something was planned on it or read from it."""
_ATTEMPTS: Final = 10
"""Plans on the newest snapshot at most, if each time that snapshot expires."""
T = TypeVar("T")


class SnapshotSource(Protocol):
    """Reads the snapshots of a branch. An implementation inherits from it and implements the methods without a body."""

    __slots__ = ()

    @property
    def root(self) -> str:
        """The root of the table, for messages."""

    def latest_id(self) -> int | None:
        """The newest id, or None without snapshots."""

    def earliest_id(self) -> int | None:
        """The oldest id that is kept."""

    def ids(self) -> list[int]:
        """All ids, oldest first."""

    def exists(self, snapshot_id: int) -> bool:
        """Whether the snapshot exists."""

    def get(self, snapshot_id: int) -> Snapshot:
        """Read one snapshot.

        Raises:
            NotFoundError: it never existed or has expired.
            FormatError: its document is damaged.
        """

    def walk(self, first: int, last: int) -> Iterator[tuple[int, Snapshot | None]]:
        """The snapshots from `first` up to `last` by their ids; of consecutive missing ids only the first, with None.

        Raises:
            FormatError: a document is damaged.
        """

    # -------------------------------------------------------------------------------------------- derived

    def latest(self) -> Snapshot | None:
        """The newest snapshot.

        Raises:
            FormatError: its document is damaged. It is not skipped: a reader would take an older state for the newest.
        """
        for _ in range(_ATTEMPTS - 1):
            newest = self.latest_id()
            found = None if newest is None else self.find(newest)
            if newest is None or found is not None:
                return found  # else it expired since, and another one is the newest
        newest = self.latest_id()
        return None if newest is None else self.get(newest)

    def on_newest(self, act: Callable[[Snapshot | None], T]) -> T:
        """Plan on the newest snapshot, and again on the new newest one if it expires while this runs.

        Raises:
            NotFoundError: a file is missing although its snapshot is there, or every newest snapshot expired.
        """
        return plan_again(lambda: self._on(self.latest(), act))

    def _on(self, snapshot: Snapshot | None, act: Callable[[Snapshot | None], T]) -> T:
        with self.held_to(snapshot.id if snapshot else None):
            return act(snapshot)

    @contextmanager
    def held_to(self, snapshot_id: int | None) -> Iterator[None]:
        """Read files of a snapshot; a missing file gets another error if the snapshot has expired.

        Raises:
            NotFoundError: a file is missing; with the code `EXPIRED` if the snapshot is gone.
        """
        try:
            yield
        except NotFoundError as cause:
            if snapshot_id is None or cause.code == EXPIRED or self.exists(snapshot_id):
                raise
            raise make_expired_error(snapshot_id, self.root, cause) from cause

    def find(self, snapshot_id: int) -> Snapshot | None:
        """Read one snapshot, or None if it does not exist.

        Raises:
            FormatError: its document is damaged.
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


class SnapshotPublisher(Protocol):
    """Changes the snapshots of a branch: a commit publishes one, expiry and rollback delete some."""

    __slots__ = ()

    @property
    def relies_on_storage(self) -> bool:
        """Whether a publish is safe only where the storage creates a file exclusively."""

    def publish(self, candidate: Snapshot) -> Outcome:
        """Make the candidate the snapshot of its id if the id is free: the atomic step of a commit."""

    def left_nothing(self, candidate: Snapshot) -> bool:
        """Whether it is certain that a publish which an interrupt ended published nothing, and never will.

        Raises:
            StorageError: the storage failed.
        """

    def delete(self, snapshot_id: int) -> None:
        """Delete a snapshot; a missing one is not an error. Its files are unreachable from then on.

        Raises:
            StorageError: the storage failed.
        """

    def hint_latest(self, snapshot_id: int) -> None:
        """Write the newest id to the hint file for readers; never fails, because nothing depends on it."""

    def hint_earliest(self, snapshot_id: int) -> None:
        """Write the oldest id to the hint file for readers; never fails."""


@dataclass(frozen=True, slots=True)
class SnapshotStore(SnapshotSource, SnapshotPublisher):
    """The snapshots in the folder of one branch: both ports."""

    io: FileIO
    layout: TableLayout
    lock: Lock = field(default_factory=NoLock, compare=False, repr=False)

    @property
    def _files(self) -> SequencedStore:
        return SequencedStore(self.io, self.layout.snapshot_dir, SNAPSHOT_PREFIX, hints=True)

    @property
    def root(self) -> str:
        """The root of the table."""
        return self.io.root

    def latest_id(self) -> int | None:
        """The newest id, or None without snapshots."""
        return self._files.latest_id()

    def earliest_id(self) -> int | None:
        """The oldest id that is kept."""
        return self._files.earliest_id()

    def ids(self) -> list[int]:
        """All ids, oldest first."""
        return self._files.ids()

    def files(self) -> dict[int, FileStatus]:
        """The file of each snapshot, by id."""
        found = ((parse_numbered(each.name, SNAPSHOT_PREFIX), each) for each in self.io.list(self.layout.snapshot_dir))
        return {number: each for number, each in found if number and not each.is_dir}

    def exists(self, snapshot_id: int) -> bool:
        """Whether the snapshot exists."""
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
                hint="it may have expired; inspect.snapshots() lists the snapshots that are kept",
            ) from cause
        return snapshot_from_json(data, path=self.layout.snapshot_path(snapshot_id), expected_id=snapshot_id)

    def walk(self, first: int, last: int) -> Iterator[tuple[int, Snapshot | None]]:
        """The snapshots from `first` up to `last` by their ids; of consecutive missing ids only the first, with None.

        Raises:
            FormatError: a file is damaged.
        """
        return self._files.walk(first, last, self.find)

    @property
    def relies_on_storage(self) -> bool:
        """Yes: two writers must not both create the file of one id."""
        return True

    def publish(self, candidate: Snapshot) -> Outcome:
        """Create the snapshot's file if the id is free, while the lock of the folder is held."""
        outcome: Outcome | None = None
        try:
            with self.lock.hold(f"{self.root}/{self.layout.snapshot_dir}"):
                outcome = self._files.publish(candidate.id, snapshot_to_json(candidate))
        except Exception:
            if outcome is None:
                raise
        # If only the release of the lock failed, the answer of the storage is still valid.
        return outcome

    def left_nothing(self, candidate: Snapshot) -> bool:
        """Whether it is certain that a publish which an interrupt ended published nothing, and never will.

        Raises:
            StorageError: the storage failed.
        """
        # If it had been published and had expired since, there would be a newer snapshot.
        newest = self.latest_id() or 0
        return self.io.is_synchronous and newest < candidate.id and not self.exists(candidate.id)

    def delete(self, snapshot_id: int) -> None:
        """Delete the file of a snapshot; a missing one is not an error. Its files are unreachable from then on.

        Raises:
            StorageError: the storage failed.
        """
        self._files.delete(snapshot_id)

    def hint_latest(self, snapshot_id: int) -> None:
        """Write the newest id to the hint file for readers; never fails, because nothing depends on it."""
        self._files.write_hint_latest(snapshot_id)

    def hint_earliest(self, snapshot_id: int) -> None:
        """Write the oldest id to the hint file for readers; never fails."""
        self._files.write_hint_earliest(snapshot_id)


def plan_again(attempt: Callable[[], T]) -> T:
    """Plan on the newest snapshot, and again while the snapshot that was planned on expires.

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


def make_expired_error(snapshot_id: int, table: str, cause: NotFoundError) -> NotFoundError:
    """Make the error for a file that is gone because its snapshot expired."""
    return NotFoundError(
        "snapshot expired while it was read",
        code=EXPIRED,
        path=cause.facts.get("path"),
        table=table,
        snapshot_id=snapshot_id,
        hint="read the table again; a tag or a longer snapshot.time-retained keeps what long reads need",
    )
