"""The `_SUCCESS` document, which marks a partition or tag as complete.

Marking it again keeps the creation time and updates the modification time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tidelake.spec.documents.json_doc import encode_document, get_int, parse_object, unknown_members

_KEYS: Final = ("creationTime", "modificationTime")


@dataclass(frozen=True, slots=True, kw_only=True)
class Success:
    """When a partition or tag was first and last marked as complete."""

    creation_time_ms: int
    modification_time_ms: int
    unknown: Mapping[str, Any] = field(default_factory=dict, hash=False)


def mark_success(previous: Success | None, *, time_ms: int) -> Success:
    """The document to write now, given the existing one."""
    if previous is None:
        return Success(creation_time_ms=time_ms, modification_time_ms=time_ms)
    return replace(previous, modification_time_ms=time_ms)


def success_from_json(data: bytes, *, path: str) -> Success:
    """Read a success marker.

    Raises:
        FormatError: If the bytes are not a success marker.
    """
    doc = parse_object(data, path=path)
    return Success(
        creation_time_ms=get_int(doc, "creationTime", path),
        modification_time_ms=get_int(doc, "modificationTime", path),
        unknown=unknown_members(doc, _KEYS),
    )


def success_to_json(success: Success) -> bytes:
    """The content of a success marker."""
    times = {"creationTime": success.creation_time_ms, "modificationTime": success.modification_time_ms}
    return encode_document(times | dict(success.unknown), success, success_from_json)
