"""Consumers: where named streams stand, setting one back or forgetting it, and forgetting idle ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.io.fileio import FileStatus
from tidelake.options import Affects, DurationMs, OptionGroup, option
from tidelake.spec.consumer import Consumer
from tidelake.store.consumers import ConsumerStore
from tidelake.store.table_store import TableStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions(OptionGroup):
    """How long an idle consumer is remembered."""

    expire_after_ms: DurationMs | None = option(
        "consumer.expiration-time",
        None,
        doc="Consumers that did not move for this long are forgotten.",
        affects=(Affects.MAINTENANCE,),
    )


def consumer_store(store: TableStore) -> ConsumerStore:
    """The consumers of the branch."""
    return ConsumerStore(store.env.io, store.layout, store.env.clock)


def reset_consumer(store: TableStore, consumer_id: str, next_snapshot: int | None) -> None:
    """Say which snapshot a consumer reads next, or (None) forget the consumer.

    Raises:
        InvalidInputError: the id or the snapshot id is unusable.
        NotFoundError: there is no such consumer to forget.
    """
    consumers = consumer_store(store)
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


def idle_consumers(files: Mapping[str, FileStatus], *, older_than_ms: int) -> list[str]:
    """The consumers whose file was written before a moment."""
    return sorted(name for name, each in files.items() if each.modified_ms < older_than_ms)


def run_consumer_expiry(store: TableStore, options: ConsumerOptions) -> tuple[str, ...]:
    """Forget idle consumers; returns their names. Without the option nobody is forgotten."""
    if options.expire_after_ms is None:
        return ()
    consumers = consumer_store(store)
    older_than_ms = store.env.clock.now_ms() - options.expire_after_ms
    names = idle_consumers(consumers.files(), older_than_ms=older_than_ms)
    for name in names:
        consumers.delete(name)
    return tuple(names)
