"""Consumers: set or delete the progress of one, and delete idle ones or those of some names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.io.fileio import FileStatus
from tidelake.ops.context import TableContext
from tidelake.options import Affects, DurationMs, OptionGroup, option
from tidelake.spec.documents.consumer import Consumer
from tidelake.store.consumers import ConsumerStore
from tidelake.store.table_store import TableStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions(OptionGroup):
    """How long an idle consumer is kept."""

    expire_after_ms: DurationMs | None = option(
        "consumer.expiration-time",
        None,
        doc="Consumers without progress for this long are deleted.",
        affects=(Affects.MAINTENANCE,),
    )


def consumer_store(store: TableStore) -> ConsumerStore:
    """The consumers of the branch."""
    return ConsumerStore(store.env.io, store.layout, store.env.clock)


def reset_consumer(context: TableContext, consumer_id: str, next_snapshot: int | None) -> None:
    """Set the snapshot that a consumer reads next, or (None) delete the consumer.

    Raises:
        InvalidInputError: the consumer id or the snapshot id is invalid.
        NotFoundError: the consumer to delete does not exist.
    """
    consumers = consumer_store(context.store)
    known = consumers.find(consumer_id)
    if next_snapshot is None:
        if known is None:
            names = ", ".join(sorted(consumers.files())[:20])
            raise NotFoundError(
                "consumer does not exist",
                code="consumer-not-found",
                consumer=consumer_id,
                hint=f"consumers are {names}" if names else "the table has no consumer",
            )
        consumers.delete(consumer_id)
        return
    if next_snapshot < 1:
        raise InvalidInputError(
            "a consumer reads from snapshot 1 on", next_snapshot=next_snapshot, hint="give 1 or more"
        )
    unknown = {} if known is None else known.unknown
    consumers.write(consumer_id, Consumer(next_snapshot=next_snapshot, unknown=unknown))


def plan_clearing(context: TableContext, including: str | None = None, excluding: str | None = None) -> tuple[str, ...]:
    """The consumers whose whole id one regular expression matches (all by default) and the other one does not.

    Raises:
        InvalidInputError: an expression is malformed.
    """
    wanted = _compile("including", including or ".*")
    spared = _compile("excluding", excluding) if excluding else None
    return tuple(
        sorted(
            name
            for name in consumer_store(context.store).files()
            if wanted.fullmatch(name) and not (spared and spared.fullmatch(name))
        )
    )


def _compile(what: str, expression: str) -> re.Pattern[str]:
    try:
        return re.compile(expression)
    except re.error as cause:
        raise InvalidInputError(
            "regular expression for consumers is malformed",
            argument=what,
            expression=expression,
            cause=cause,
            hint="the expression must match the whole name, such as nightly-.*",
        ) from cause


def run_clearing(context: TableContext, names: Sequence[str]) -> None:
    """Delete consumers. Snapshots that only they kept may expire then.

    Raises:
        StorageError: the storage failed; some consumers may be deleted already.
    """
    consumers = consumer_store(context.store)
    for name in names:
        consumers.delete(name)


def idle_consumers(files: Mapping[str, FileStatus], *, older_than_ms: int) -> list[str]:
    """The consumers whose file was written before a moment."""
    return sorted(name for name, each in files.items() if each.modified_ms < older_than_ms)


def run_consumer_expiry(context: TableContext) -> tuple[str, ...]:
    """Delete idle consumers and return their names. Without the option no consumer is deleted."""
    expire_after_ms = context.options.of(ConsumerOptions).expire_after_ms
    if expire_after_ms is None:
        return ()
    consumers = consumer_store(context.store)
    older_than_ms = context.store.env.clock.now_ms() - expire_after_ms
    names = idle_consumers(consumers.files(), older_than_ms=older_than_ms)
    for name in names:
        consumers.delete(name)
    return tuple(names)
