"""The two halves of a write, for engines: a writer that prepares commit messages, and the committer of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.ops.commit.abort import AbortResult
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import BATCH_IDENTIFIER, CommitMessage, CommitResult, Committable
from tidelake.ops.write.append import AppendWriter
from tidelake.ops.write.kinds import batches_with_kinds
from tidelake.ops.write.opening import TableWriter
from tidelake.spec.schemas.schema import Schema


class TableWrite:
    """Writes rows into files for one job; a `TableCommit` publishes the commit messages that it prepares."""

    def __init__(self, writer: TableWriter, schema: Schema, commit_user: str | None) -> None:
        self._writer = writer
        self._schema = schema
        self.user = commit_user

    def __reduce__(self) -> NoReturn:
        raise InvalidInputError(
            "a writer has open files and cannot be sent to another process",
            hint="send the table and create a writer there; the result of prepare_commit can be sent back",
        )

    def write(self, data: Any, *, row_kind: str | None = None) -> None:
        """Write rows. Row kinds are in a column `rowkind` that the table does not have, or in the column that is named.

        Raises:
            InvalidInputError: a column or a value does not fit.
        """
        for batch, kinds in batches_with_kinds(data, self._schema, column=row_kind):
            self._writer.write(batch, kinds)

    def compact(self, partition: bytes, bucket: int, full: bool = False) -> None:
        """Compact one bucket of a primary-key table; the next `prepare_commit` returns the result.

        Raises:
            UnsupportedError: the table has no primary key; append tables are compacted as a whole.
        """
        if isinstance(self._writer, AppendWriter):
            raise UnsupportedError(
                "a single bucket of an append table cannot be compacted", hint="use compact() of the table"
            )
        self._writer.compact(partition, bucket, full=full)

    def prepare_commit(self, identifier: int | None = None) -> list[CommitMessage]:
        """Close the files and return their commit messages.

        With the identifier of the commit, running compactions continue, and a later commit publishes them; without it,
        in a batch job, they are waited for. The identifiers also decide when `full-compaction.delta-commits` is due.
        """
        return self._writer.prepare(identifier)

    def close(self) -> None:
        """Delete files that were written but not prepared."""
        self._writer.abort()


class TableCommit:
    """Publishes the messages of writers for one commit user."""

    def __init__(
        self,
        committer: Committer,
        show: Callable[[CommitResult], CommitResult],
    ) -> None:
        self._committer = committer
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
            CommitConflictError: another job changed the same files.
            CommitUnknownError: the storage did not say whether a snapshot was published.
        """
        committable = _committable(messages, identifier, watermark, properties)
        return self._finish(self._committer.commit(committable), identifier)

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
            InvalidInputError: a new file is outside the partitions to replace.
            CommitConflictError: as `commit`.
            CommitUnknownError: as `commit`.
        """
        committable = _committable(messages, identifier, watermark, properties)
        return self._finish(self._committer.overwrite(committable, partition, dynamic=dynamic), identifier)

    def _finish(self, result: CommitResult, identifier: int | None) -> CommitResult:
        """Show rows that only a compaction makes visible, and warn of a newer schema.

        A numbered job leaves the first to its next commit.
        """
        result = self._show(result) if identifier is None else result
        warning = self._committer.schema_warning()
        # Without the warning a long-lived job would never notice columns and options that were set after it began.
        return replace(result, warnings=(*result.warnings, warning)) if warning else result

    def truncate(self, *, identifier: int | None = None) -> CommitResult:
        """Delete every row."""
        number = BATCH_IDENTIFIER if identifier is None else identifier
        return self._committer.truncate(identifier=number)

    def compact_manifests(self) -> CommitResult:
        """Merge all manifests fully."""
        return self._committer.compact_manifests()

    def filter_committed(self, identifiers: Iterable[int]) -> list[int]:
        """Return those of these identifiers that are not published yet."""
        return self._committer.filter_committed(identifiers)

    def abort(self, messages: Sequence[CommitMessage], *, identifier: int | None = None) -> AbortResult:
        """Delete files that were never committed; keep them if that is not certain."""
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
