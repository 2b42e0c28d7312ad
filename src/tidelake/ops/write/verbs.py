"""The write verbs of tables: each takes rows or a condition and makes one commit.

Rows are checked and written before anything is committed. If writing fails, or is interrupted, the new files are
removed. If the commit fails, they are removed too, unless it is uncertain whether it was published. Once the commit is
published the verb succeeds, even if a post-commit hook fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tidelake.cleanup import undo_on_error
from tidelake.errors import CommitUnknownError, InvalidInputError
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import BATCH_IDENTIFIER, CommitMessage, CommitResult, Committable
from tidelake.ops.commit.outcome import compaction_warning, name_published, without_compaction_warning
from tidelake.ops.commit.overwrite import static_filter
from tidelake.ops.commit.replan import replan
from tidelake.ops.context import TableContext
from tidelake.ops.scan.partitions import PartitionSet
from tidelake.ops.write.frames import is_of
from tidelake.ops.write.kinds import batches_with_kinds
from tidelake.ops.write.opening import open_writer
from tidelake.options import TableOptions
from tidelake.spec.schemas.bucket_mode import BucketMode

MODES = ("append", "overwrite", "overwrite-dynamic")


def run_write(
    target: TableContext,
    committer: Committer,
    data: Any,
    *,
    mode: str = "append",
    partition: Mapping[str, object] | None = None,
    identifier: int | None = None,
    row_kind: str | None = None,
) -> CommitResult:
    """Write rows and commit them; `row_kind` names the column with their row kinds.

    Raises:
        InvalidInputError: the mode, a column or a value is wrong; nothing was written.
        CommitConflictError: another job changed the same files.
        CommitUnknownError: the storage did not answer whether the commit is there.
    """
    repeated = begin_write(target, committer, mode=mode, partition=partition, identifier=identifier)
    if repeated is not None:
        return repeated

    def attempt() -> CommitResult:
        messages = _rows_written(target, committer, data, mode, identifier, row_kind)
        return commit_write(target, committer, messages, mode=mode, partition=partition, identifier=identifier)

    return replan(attempt, plans=None if _comes_again(data) else 1)


def _rows_written(
    target: TableContext, committer: Committer, data: Any, mode: str, identifier: int | None, row_kind: str | None
) -> list[CommitMessage]:
    """Write the rows; if that fails, the new files are removed."""
    writer = open_writer(target, overwrite=mode != "append", user=committer.user, numbered=identifier is not None)
    with undo_on_error(writer.abort):
        field = target.options.get("rowkind.field")
        for batch, kinds in batches_with_kinds(data, target.store.schema, column=row_kind, field=field):
            writer.write(batch, kinds)
        return writer.prepare(identifier, wait=True)


def _comes_again(data: Any) -> bool:
    """Whether rows can be read again, unlike streams and generators."""
    if isinstance(data, (pa.Table, pa.RecordBatch, Mapping, Sequence)):
        return True
    return is_of("pandas", data) or is_of("polars", data)


def begin_write(
    target: TableContext,
    committer: Committer,
    *,
    mode: str,
    partition: Mapping[str, object] | None = None,
    identifier: int | None = None,
) -> CommitResult | None:
    """Check the arguments of a write; return its result if it was committed before, else None.

    Raises:
        InvalidInputError: the mode is not known, or does not take a partition.
    """
    check_mode(mode)
    if partition is not None and mode != "overwrite":
        raise InvalidInputError("a partition is only given to an overwrite", mode=mode, hint='set mode="overwrite"')
    if identifier is not None and not committer.filter_committed([identifier]):
        return compact_hidden_rows(target, committer, CommitResult(repeated=True))
    return None


def commit_write(
    target: TableContext,
    committer: Committer,
    messages: Sequence[CommitMessage],
    *,
    mode: str,
    partition: Mapping[str, object] | None = None,
    identifier: int | None = None,
    watermark: int | None = None,
    origin: str | None = None,
) -> CommitResult:
    """Commit the messages of one write; `watermark` and `origin` are those of its committable.

    Raises:
        CommitConflictError: another job changed the same files; the new files are removed.
        CommitUnknownError: the storage did not answer whether the commit is there.
    """
    number = BATCH_IDENTIFIER if identifier is None else identifier
    replaces_some = mode == "overwrite-dynamic" or (mode == "overwrite" and bool(partition))
    if replaces_some and target.bucket_mode is BucketMode.CROSS_PARTITION:
        _refuse_keys_elsewhere(target, committer, messages, partition)
    committable = Committable(messages=tuple(messages), identifier=number, watermark=watermark, origin=origin)
    return compact_hidden_rows(target, committer, _commit(committer, committable, mode, partition))


def _refuse_keys_elsewhere(
    target: TableContext,
    committer: Committer,
    messages: Sequence[CommitMessage],
    partition: Mapping[str, object] | None,
) -> None:
    """Refuse an overwrite of some partitions with keys that are in other partitions."""
    from tidelake.ops.placement.cross_partition import refuse_keys_elsewhere

    schema = target.store.schema
    touched = PartitionSet(frozenset(each.partition for each in messages), tuple(schema.partition_types))
    replaced = static_filter(schema, partition) if partition else touched
    with discard_on_error(committer, messages):
        refuse_keys_elsewhere(target, messages, replaced)


def compact_hidden_rows(
    target: TableContext, committer: Committer, result: CommitResult, *, waiting: bool = False
) -> CommitResult:
    """Compact level-0 rows that readers do not see yet, if nothing else will.

    That is so if the commit was a repetition, its compaction lost a race or was left out because of a newer schema, or
    with `waiting`. The rows are committed in any case: if the compaction fails, the result has a warning.
    """
    if not target.is_keyed:
        return result
    from tidelake.lsm.engines.build import MergeOptions
    from tidelake.ops.compact.table import run_compaction
    from tidelake.ops.write.keyed import KeyedWriteOptions

    hidden = target.options.of(MergeOptions).needs_lookup
    if not hidden or target.options.of(KeyedWriteOptions).write_only:
        return result
    # A writer with an older schema does not compact, because it does not know all columns.
    left = bool(result.snapshot_ids) and committer.published_schema_id > target.store.schema.id
    if not (result.repeated or result.compaction_lost or waiting or left):
        return result
    seen = without_compaction_warning(result)
    try:
        target = _with_newest_schema(target)
        done = run_compaction(target, committer)
    except Exception as error:  # noqa: BLE001 - the rows are committed already, so this is only a warning
        return replace(seen, warnings=(*seen.warnings, compaction_warning(error, hides=True)))
    except BaseException as interrupt:
        name_published(interrupt, result.snapshot_ids)
        raise
    return replace(seen, warnings=tuple(dict.fromkeys(seen.warnings + done.warnings)))


def _with_newest_schema(target: TableContext) -> TableContext:
    """The same table with its newest schema, and the options that the caller gave for this use."""
    schema = target.store.schemas.latest()
    if schema is None or schema.id == target.store.schema.id:
        return target
    own = target.store.schema.options
    given = {key: value for key, value in target.options.items() if own.get(key) != value}
    return replace(
        target, store=replace(target.store, schema=schema), options=TableOptions({**schema.options, **given})
    )


def check_mode(mode: str) -> None:
    """Check the mode of a write.

    Raises:
        InvalidInputError: the mode is not one of `MODES`.
    """
    if mode not in MODES:
        raise InvalidInputError(
            "write mode is not known",
            mode=mode,
            hint=f"use one of {', '.join(MODES)}; append is an upsert in a table with a primary key",
        )


def _commit(
    committer: Committer,
    committable: Committable,
    mode: str,
    partition: Mapping[str, object] | None,
) -> CommitResult:
    with discard_on_error(committer, committable.messages):
        if mode == "append":
            return committer.commit(replace(committable, operation="WRITE"))
        dynamic = mode == "overwrite-dynamic"
        return committer.overwrite(replace(committable, operation="OVERWRITE"), partition, dynamic=dynamic)


@contextmanager
def discard_on_error(committer: Committer, messages: Sequence[CommitMessage]) -> Iterator[None]:
    """Remove the files of messages if the block inside fails or is interrupted, unless the commit may be published.

    All verbs use this handler: only the verb knows its files, and no later attempt will commit them.
    """
    try:
        yield
    except CommitUnknownError:
        raise  # the commit may be published, so nothing is removed
    except BaseException as error:
        committer.note_interrupt(error)  # also if it came between two steps of the verb
        committer.discard(messages)
        raise
