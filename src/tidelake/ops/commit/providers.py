"""The changes of a request: fixed, computed from the state, rebased on it, or those back to an older state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidelake.ops.commit.changes import NO_CHANGES, Changes, changes_between, split_messages
from tidelake.ops.commit.loop import State
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.commit.overwrite import Overwrite, overwrite_changes
from tidelake.ops.commit.rebase import Reassigner, SequenceRebaser, rebase_messages
from tidelake.ops.scan.plan import data_manifests, live_entries
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.store.table_store import TableStore

__all__ = ["FixedChanges", "OverwriteChanges", "RebasedChanges", "ReturningChanges"]

_HEADROOM: Final = 1 << 16
"""Sequence numbers that a second rebase leaves free at most; each further rebase up to sixteen times as many."""


@dataclass(frozen=True, slots=True)
class FixedChanges:
    """The same changes for every state."""

    fixed: Changes
    messages: tuple[CommitMessage, ...] = ()

    def changes(self, state: State) -> Changes:
        """The changes, whatever the state."""
        del state
        return self.fixed


@dataclass(frozen=True, slots=True)
class OverwriteChanges:
    """The written files, and deletions of all files that the state has in the same partitions."""

    store: TableStore
    written: Changes
    overwrite: Overwrite
    messages: tuple[CommitMessage, ...] = ()

    def changes(self, state: State) -> Changes:
        """The changes for a state."""
        return overwrite_changes(self.written, self.overwrite, self.store.manifests, state.metas, state.index)


@dataclass(frozen=True, slots=True)
class ReturningChanges:
    """What makes the state equal to that of an older snapshot again. Index files come back with its index manifest."""

    store: TableStore
    target: Snapshot
    messages: tuple[CommitMessage, ...] = ()

    def changes(self, state: State) -> Changes:
        """The changes for a state.

        Raises:
            NotFoundError: a manifest of the older snapshot is gone.
        """
        manifests = self.store.manifests
        wanted = live_entries(manifests, data_manifests(manifests, self.target))
        delta = changes_between(live_entries(manifests, state.metas), wanted)
        return Changes(delta, NO_CHANGES.changelog)


class RebasedChanges:
    """The written changes, with rows reassigned and rebased if another commit reached their buckets first."""

    def __init__(
        self,
        store: TableStore,
        messages: Sequence[CommitMessage],
        written: Changes,
        rebaser: SequenceRebaser | None,
        reassigner: Reassigner | None,
        default_buckets: int,
    ) -> None:
        self._store, self._given, self.messages, self._written = store, tuple(messages), tuple(messages), written
        self._rebaser, self._reassigner = rebaser, reassigner
        self._default_buckets = default_buckets
        self._passed: list[CommitMessage] = []
        self._rebased = self._checked_id = 0

    def _headroom(self) -> int:
        """Sequence numbers to leave free: random, so that one publish does not force all waiting commits to rebase."""
        if not self._rebased:
            return 0
        return int(self._store.env.ids.random() * (_HEADROOM << min(4 * self._rebased - 4, 24)))

    def changes(self, state: State) -> Changes:
        """The changes for a state, rebased on it.

        Raises:
            CommitConflictError: the rows cannot be rebased.
        """
        before = self.messages
        if self._reassigner is not None:
            self._take(self._reassigner.reassign(before, state.snapshot, state.index, checked_id=self._checked_id))
        placed = self.messages
        reassign_by_count = None if self._reassigner is None else self._reassign_by_count
        self._take(
            rebase_messages(
                self._store,
                placed,
                state.snapshot,
                self._rebaser,
                self._headroom(),
                self._checked_id,
                reassign_by_count,
            )
        )
        self._checked_id = state.snapshot.id if state.snapshot else 0
        self._rebased += self.messages != placed
        if self.messages != before:
            self._written, _ = split_messages(self.messages, default_buckets=self._default_buckets)
        return self._written

    def _reassign_by_count(
        self, messages: Sequence[CommitMessage], counts: Mapping[bytes, int], latest: Snapshot
    ) -> tuple[CommitMessage, ...]:
        assert self._reassigner is not None
        self._take(self._reassigner.reassign_by_count(messages, counts, latest))
        return self.messages

    def _take(self, messages: tuple[CommitMessage, ...]) -> None:
        """Continue with these messages; remember the replaced ones, whose files the committer deletes later."""
        if messages != self.messages:
            self._passed += self.messages
            self.messages = messages

    def pair_made_with_given(self) -> tuple[Sequence[CommitMessage], Sequence[CommitMessage]]:
        """All messages with files that rebases wrote, and the messages that were passed in."""
        return (*self._passed, *self.messages), self._given

    def pair_replaced_with_published(self) -> tuple[Sequence[CommitMessage], Sequence[CommitMessage]]:
        """The messages that rebases replaced, and the messages that were published."""
        return self._passed, self.messages
