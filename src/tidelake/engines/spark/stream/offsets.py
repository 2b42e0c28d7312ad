"""What Spark stores of a stream in its checkpoint: small JSON documents with a version.

Spark stores the end of each batch, but not where the first one begins: after a crash in the first batch it asks for the
initial offset again, in another process. So the initial offset says only that nothing was read, and the end of the
batch that settles where the stream begins also says where that is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidelake.errors import FormatError, UnsupportedError
from tidelake.ops.scan.stream import Position

VERSION: Final = 1
_VERSION: Final = "version"
_SNAPSHOT: Final = "snapshotId"
_INDEX: Final = "index"
_FULL: Final = "scanSnapshot"
_CREATED: Final = "createdFromMillis"
_READ: Final = "readMillis"
_CHECKSUM: Final = "checksum"
_BEGIN: Final = "begin"
_HINT: Final = "start the query with a new checkpoint"


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """An offset of Spark."""

    position: Position | None = None
    """None: it is not settled yet where the stream begins, because the table has no snapshot to begin with."""
    begin: Position | None = None
    """Where the stream begins, in the end of the batch that settled it."""


NOT_BEGUN: Final = StreamOffset()


def offset_to_json(offset: StreamOffset) -> dict[str, Any]:
    """The document of an offset. Equal offsets have equal documents, members in the same order."""
    if offset.position is None:
        return {_VERSION: VERSION, _SNAPSHOT: 0, _INDEX: -1, _FULL: False}
    found = {_VERSION: VERSION, **_position_to_json(offset.position)}
    if offset.begin is not None:
        found[_BEGIN] = _position_to_json(offset.begin)
    return found


def offset_from_json(document: Mapping[str, Any]) -> StreamOffset:
    """Parse the document of an offset. Members that are not known are ignored.

    Raises:
        UnsupportedError: a newer release wrote it.
        FormatError: it is not an offset of a stream of a table.
    """
    version = _int(document, _VERSION)
    if version > VERSION:
        raise UnsupportedError(
            "checkpoint has offsets of a newer version",
            version=version,
            known=VERSION,
            hint=f"continue the query with the release that wrote it, or a later one, or {_HINT}",
        )
    position = _position_from_json(document)
    begin = document.get(_BEGIN)
    if begin is not None and not isinstance(begin, Mapping):
        raise _damage_error(document, _BEGIN)
    return StreamOffset(
        position if position.snapshot_id > 0 else None, None if begin is None else _position_from_json(begin)
    )


def _position_to_json(position: Position) -> dict[str, Any]:
    found: dict[str, Any] = {_SNAPSHOT: position.snapshot_id, _INDEX: position.index, _FULL: position.full}
    more = {_CREATED: position.created_from_ms, _READ: position.read_ms, _CHECKSUM: position.checksum}
    return found | {key: value for key, value in more.items() if value is not None}


def _position_from_json(document: Mapping[str, Any]) -> Position:
    full = document.get(_FULL)
    if not isinstance(full, bool):
        raise _damage_error(document, _FULL)
    snapshot_id, index = _int(document, _SNAPSHOT), _int(document, _INDEX)
    if snapshot_id < 0 or index < -1:
        raise _damage_error(document, _SNAPSHOT if snapshot_id < 0 else _INDEX)
    return Position(
        snapshot_id,
        index,
        full,
        _int(document, _CREATED) if _CREATED in document else None,
        _int(document, _READ) if _READ in document else None,
        _int(document, _CHECKSUM) if _CHECKSUM in document else None,
    )


def _int(document: Mapping[str, Any], key: str) -> int:
    value = document.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _damage_error(document, key)
    return value


def _damage_error(document: Mapping[str, Any], key: str) -> FormatError:
    return FormatError(
        "checkpoint has an offset that is not one of a table",
        member=key,
        offset=str(dict(document))[:200],
        hint=f"the checkpoint may be that of another query: {_HINT}",
    )
