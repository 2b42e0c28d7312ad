"""Consumers: the progress of a named stream.

One small document per consumer, overwritten in place. Snapshots from `next_snapshot` on do not expire. Our documents
also contain the commit time of the last snapshot that was read. If that snapshot has another time later, the table was
rolled back in between. Other readers ignore this member and drop it when they write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidelake.spec.documents.json_doc import encode_document, get_int, parse_object, unknown_members

_NEXT_SNAPSHOT: Final = "nextSnapshot"
_READ_TIME: Final = "tidelakeReadTimeMillis"


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """The progress of a consumer."""

    next_snapshot: int
    """The first snapshot that was not read yet."""
    read_ms: int | None = None
    """The commit time of the snapshot before it, if the consumer is known to have read that one."""
    unknown: Mapping[str, Any] = field(default_factory=dict, hash=False)


def consumer_from_json(data: bytes, *, path: str) -> Consumer:
    """Read a consumer file. It is overwritten in place, so a reader may see half of it and has to retry on an error.

    Raises:
        FormatError: If the bytes are not a consumer document.
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
