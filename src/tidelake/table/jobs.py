"""The two halves of a job, for engines: a writer whose messages are committed apart, and the committer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.ops.commit.abort import AbortResult
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import BATCH_IDENTIFIER, CommitMessage, CommitResult, Committable
from tidelake.ops.write.append import AppendWriter
from tidelake.ops.write.kinds import batches_with_kinds
from tidelake.ops.write.verbs import TableWriter
from tidelake.spec.schema import Schema


class TableWrite:
    """Writes rows into files for one job; what it prepares is committed apart."""

    def __init__(self, writer: TableWriter, schema: Schema, commit_user: str | None) -> None:
        self._writer = writer
        self._schema = schema
        self.user = commit_user

    def __reduce__(self) -> NoReturn:
        raise InvalidInputError(
            "a writer has open files and stays in its process",
            hint="send the table, and make a writer of it there; what prepare_commit returns can be sent too",
        )

    def write(self, data: Any, *, row_kind: str | None = None) -> None:
        """Write rows; kinds come in a column `rowkind` that the table does not have, or in the one that is named.

        Raises:
            InvalidInputError: a column or a value does not fit.
        """
        for batch, kinds in batches_with_kinds(data, self._schema, column=row_kind):
            self._writer.write(batch, kinds)

    def compact(self, partition: bytes, bucket: int, full: bool = False) -> None:
        """Compact one bucket of a primary-key table; what it did is part of the next `prepare_commit`.

        Raises:
            UnsupportedError: the table has no primary key, whose compaction is planned over all its files.
        """
        if isinstance(self._writer, AppendWriter):
            raise UnsupportedError("files of append tables are compacted together", hint="use compact() of the table")
        self._writer.compact(partition, bucket, full=full)

    def prepare_commit(self, identifier: int | None = None) -> list[CommitMessage]:
        """Close the files and describe them.

        With the identifier of the commit, compactions that still run go on, and what they do is part of a later one;
        without it, in a batch job, they are waited for. It also tells when `full-compaction.delta-commits` is due.
        """
        return self._writer.prepare(identifier)

    def close(self) -> None:
        """Remove what was written and not prepared."""
        self._writer.abort()


class TableCommit:
    """Publishes the messages of writers for one commit user."""

    def __init__(
        self,
        committer: Committer,
        afterwards: Callable[[CommitResult], CommitResult],
        show: Callable[[CommitResult], CommitResult],
    ) -> None:
        self._committer = committer
        self._afterwards = afterwards
        self._show = show

    @property
    def user(self) -> str:
        """The commit user."""
        return self._committer.user

    def commit(
        self,
        messages: Sequence[CommitMessage],
        *,
        identifier: int | None = None,
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> CommitResult:
        """Publish what writers prepared; repeating a numbered commit is a no-op.

        Raises:
            CommitConflictError: others changed the same files.
            CommitUnknownError: the storage did not tell whether a snapshot is there.
        """
        committable = _committable(messages, identifier, watermark, properties)
        return self._ended(self._committer.commit(committable), identifier)

    def overwrite(
        self,
        messages: Sequence[CommitMessage],
        partition: Mapping[str, object] | None = None,
        *,
        dynamic: bool | None = None,
        identifier: int | None = None,
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> CommitResult:
        """Replace the named partitions, or (dynamic) those that have new files.

        Raises:
            InvalidInputError: a new file lies outside the partitions to replace.
            CommitConflictError: as `commit`.
            CommitUnknownError: as `commit`.
        """
        committable = _committable(messages, identifier, watermark, properties)
        return self._ended(self._committer.overwrite(committable, partition, dynamic=dynamic), identifier)

    def _ended(self, result: CommitResult, identifier: int | None) -> CommitResult:
        """What follows a commit; rows that a lost compaction hides are shown by the next commit of a numbered job."""
        return self._afterwards(self._show(result) if identifier is None else result)

    def truncate(self, *, identifier: int | None = None) -> CommitResult:
        """Delete every row."""
        number = BATCH_IDENTIFIER if identifier is None else identifier
        return self._afterwards(self._committer.truncate(identifier=number))

    def compact_manifests(self) -> CommitResult:
        """Merge all manifests fully."""
        return self._afterwards(self._committer.compact_manifests())

    def filter_committed(self, identifiers: Iterable[int]) -> list[int]:
        """Of these identifiers those that are not published yet."""
        return self._committer.filter_committed(identifiers)

    def abort(self, messages: Sequence[CommitMessage], *, identifier: int | None = None) -> AbortResult:
        """Delete files that were never committed; leaves them in any doubt."""
        return self._committer.abort(messages, identifier=identifier)


def _committable(
    messages: Sequence[CommitMessage],
    identifier: int | None,
    watermark: int | None,
    properties: Mapping[str, str] | None,
) -> Committable:
    if isinstance(messages, CommitMessage):
        raise InvalidInputError("messages must be a sequence", hint="pass [message]")
    return Committable(
        messages=tuple(messages),
        identifier=BATCH_IDENTIFIER if identifier is None else identifier,
        watermark=watermark,
        properties=dict(properties or {}),
    )
