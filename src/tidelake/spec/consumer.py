"""Consumers: how far a named stream has read.

One small document per consumer, overwritten in place. Snapshots from `next_snapshot` on are protected from expiry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidelake.spec.json_doc import dump, get_int, parse_object, unknown_members

_NEXT_SNAPSHOT: Final = "nextSnapshot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """The position of a consumer."""

    next_snapshot: int
    """First snapshot that was not consumed yet."""
    unknown: Mapping[str, Any] = field(default_factory=dict, hash=False)


def consumer_from_json(data: bytes, *, path: str) -> Consumer:
    """Read a consumer file. It may be caught half written: a reader tries again on an error.

    Raises:
        FormatError: If the bytes are no consumer.
    """
    doc = parse_object(data, path=path)
    return Consumer(
        next_snapshot=get_int(doc, _NEXT_SNAPSHOT, path, minimum=0), unknown=unknown_members(doc, (_NEXT_SNAPSHOT,))
    )


def consumer_to_json(consumer: Consumer) -> bytes:
    """The content of a consumer file."""
    return dump({_NEXT_SNAPSHOT: consumer.next_snapshot} | dict(consumer.unknown))
