"""The options of partition expiry, and which partitions have expired by their values.

Commits ask the latter too, because a conflict over a partition that expires has another cure than other conflicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tidelake.errors import InvalidInputError, TidelakeError, UnsupportedError
from tidelake.io.clock import Clock, local_time_ms
from tidelake.options import Affects, DurationMs, OptionGroup, TableOptions, at_least, option
from tidelake.spec.rows.binary_row_scalar import decode_row
from tidelake.spec.rows.partition_path import value_text
from tidelake.spec.rows.partition_time import TimeExtractor
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.data_types import Root

__all__ = ["ExpiredByValue", "PartitionExpiryOptions", "PartitionTimes", "Strategy", "partition_texts"]

_MAINTENANCE: Final = (Affects.MAINTENANCE,)
_AFTER_WRITES: Final = (Affects.WRITE, Affects.MAINTENANCE)
_NANOS_OF_MS: Final = 1_000_000
_BINARIES: Final = frozenset({Root.BINARY, Root.VARBINARY})
_NO_TIME: Final = "\0"


class Strategy(Enum):
    """What decides how old a partition is."""

    VALUES_TIME = "values-time"
    UPDATE_TIME = "update-time"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionExpiryOptions(OptionGroup):
    """When partitions expire, and how many at a time."""

    time_ms: DurationMs | None = option(
        "partition.expiration-time",
        None,
        doc="Partitions older than this are dropped after commits; unset: they do not expire.",
        affects=_AFTER_WRITES,
    )
    check_interval_ms: DurationMs = option(
        "partition.expiration-check-interval",
        DurationMs(3_600_000),
        doc="How often commits look for expired partitions; 0 lets every commit look.",
        affects=_AFTER_WRITES,
    )
    strategy_name: str = option(
        "partition.expiration-strategy",
        Strategy.VALUES_TIME.value,
        doc="values-time: the age of the time in the partition's values; update-time: of its newest file.",
        affects=_AFTER_WRITES,
    )
    pattern: str | None = option(
        "partition.timestamp-pattern",
        None,
        doc="How the values of a partition make a time, such as $dt $hour:00:00; unset: the first column.",
        affects=_AFTER_WRITES,
    )
    formatter: str | None = option(
        "partition.timestamp-formatter",
        None,
        doc="How that text is parsed, such as yyyyMMdd; unset: as yyyy-MM-dd, with or without HH:mm:ss.",
        affects=_AFTER_WRITES,
    )
    max_count: int = option(
        "partition.expiration-max-num",
        100,
        doc="At most so many partitions are dropped at a time.",
        affects=_AFTER_WRITES,
        check=at_least(0),
    )
    batch_size: int | None = option(
        "partition.expiration-batch-size",
        None,
        doc="Partitions that one commit drops; unset: all of them in one.",
        affects=_AFTER_WRITES,
    )
    checks_at_end: bool = option(
        "end-input.check-partition-expire",
        False,
        doc="Look for expired partitions after every batch commit, whatever the interval.",
        affects=(Affects.WRITE,),
    )

    @property
    def strategy(self) -> Strategy:
        """What decides how old a partition is.

        Raises:
            UnsupportedError: it is a strategy of the user's own.
        """
        try:
            return Strategy(self.strategy_name)
        except ValueError as cause:
            raise UnsupportedError(
                "strategy of partition expiry is not supported",
                code="option-unsupported",
                option="partition.expiration-strategy",
                value=self.strategy_name[:80],
                hint=f"use {' or '.join(each.value for each in Strategy)}",
            ) from cause


class PartitionTimes:
    """The times in the values of a table's partitions."""

    def __init__(self, schema: Schema, options: PartitionExpiryOptions) -> None:
        """Prepare to read times.

        Raises:
            InvalidInputError: the table has no partitions, or the formatter cannot be understood.
            UnsupportedError: the formatter has a letter that is not supported.
        """
        if not schema.partition_keys:
            raise InvalidInputError("table has no partitions", hint="delete rows with a condition instead")
        self._schema = schema
        self._extractor = TimeExtractor.make(schema.partition_keys, options.pattern, options.formatter)

    def find(self, row: bytes) -> int | None:
        """The local time of a partition in nanoseconds; None if its values are null or make no time."""
        texts = partition_texts(self._schema, row)
        types = self._schema.partition_types
        # Paimon reads no time from bytes, whatever text they hold.
        plain = [_NO_TIME if each.root in _BINARIES else text for text, each in zip(texts, types, strict=True)]
        return self._extractor.extract(plain)

    def is_older(self, row: bytes, local_ms: int) -> bool:
        """Whether the time of a partition is before a local time."""
        found = self.find(row)
        return found is not None and found < local_ms * _NANOS_OF_MS


def partition_texts(schema: Schema, row: bytes) -> tuple[str | None, ...]:
    """The values of a partition as texts, null as None: numbers of days for dates, as everywhere in expiry.

    Raises:
        FormatError: the bytes are not a partition of this table.
    """
    values = decode_row(row, schema.partition_types)
    return tuple(
        None if value is None else value_text(value, dtype, legacy=not isinstance(value, bytes))
        for value, dtype in zip(values, schema.partition_types, strict=True)
    )


@dataclass(frozen=True, slots=True)
class ExpiredByValue:
    """Says of partitions whether all have expired by their values, for commits that meet a conflict there."""

    schema: Schema
    options: TableOptions
    clock: Clock

    def __call__(self, rows: Sequence[bytes]) -> bool:
        """Whether they have; no, where partitions do not expire, or it cannot be found out."""
        try:
            found = self.options.of(PartitionExpiryOptions)
            if found.time_ms is None or found.strategy is not Strategy.VALUES_TIME:
                return False
            times = PartitionTimes(self.schema, found)
            before_ms = local_time_ms(self.clock) - found.time_ms
            return all(times.is_older(row, before_ms) for row in rows)
        except TidelakeError:
            return False  # only for the message of another error
