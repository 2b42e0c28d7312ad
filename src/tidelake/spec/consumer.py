"""Consumers: how far a named stream has read.

One small document per consumer, overwritten in place. Snapshots from `next_snapshot` on are protected from expiry.
Ours also tells when the last snapshot that was read was committed, by which a table that was rolled back meanwhile is
known. Other readers ignore that member and drop it when they write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidelake.spec.json_doc import encode_document, get_int, parse_object, unknown_members

_NEXT_SNAPSHOT: Final = "nextSnapshot"
_READ_TIME: Final = "tidelakeReadTimeMillis"


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """The position of a consumer."""

    next_snapshot: int
    """First snapshot that was not consumed yet."""
    read_ms: int | None = None
    """When the snapshot before it was committed, if that is known to be the one that was read."""
    unknown: Mapping[str, Any] = field(default_factory=dict, hash=False)


def consumer_from_json(data: bytes, *, path: str) -> Consumer:
    """Read a consumer file. It may be caught half written: a reader tries again on an error.

    Raises:
        FormatError: If the bytes are no consumer.
    """
    doc = parse_object(data, path=path)
    return Consumer(
        next_snapshot=get_int(doc, _NEXT_SNAPSHOT, path, minimum=0),
        read_ms=get_int(doc, _READ_TIME, path) if _READ_TIME in doc else None,
        unknown=unknown_members(doc, (_NEXT_SNAPSHOT, _READ_TIME)),
    )


def consumer_to_json(consumer: Consumer) -> bytes:
    """The content of a consumer file."""
    own = {_NEXT_SNAPSHOT: consumer.next_snapshot}
    if consumer.read_ms is not None:
        own[_READ_TIME] = consumer.read_ms
    return encode_document(own | dict(consumer.unknown), consumer, consumer_from_json)
