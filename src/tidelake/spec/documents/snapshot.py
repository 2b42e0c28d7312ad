"""Snapshots: one committed version of a table, and its file.

The existence of `snapshot-N` is the commit, and the file never changes. So the codec is exact: a document of Java is
written back byte for byte, members that this version does not know are kept, and every file name in the document is
checked before a path is built from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from tidelake.errors import FormatError
from tidelake.spec.documents.json_doc import (
    encode_document,
    get_int,
    get_str,
    get_str_map,
    parse_object,
    unknown_members,
)
from tidelake.spec.limits import INT32_MAX
from tidelake.spec.names import check_file_name

SNAPSHOT_VERSION: Final = 3

BATCH_COMMIT_IDENTIFIER: Final = 2**63 - 1
"""The commit identifier of commits that do not belong to a stream."""


class CommitKind(Enum):
    """What a commit did."""

    APPEND = "APPEND"
    """Added files."""
    COMPACT = "COMPACT"
    """Rewrote files without changing rows."""
    OVERWRITE = "OVERWRITE"
    """Replaced or deleted rows."""
    ANALYZE = "ANALYZE"
    """Wrote statistics only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One committed version of a table. Never edited: a change is a new snapshot."""

    id: int
    schema_id: int
    base_manifest_list: str
    """Manifests of the state before this commit."""
    delta_manifest_list: str
    """Manifests with the changes of this commit."""
    commit_user: str
    commit_identifier: int
    commit_kind: CommitKind
    time_ms: int
    total_record_count: int | None
    """Physical rows in all live files; None in files of old versions that lack it."""
    delta_record_count: int | None
    """Physical rows added minus removed by this commit; None in files of old versions that lack it."""
    base_manifest_list_size_bytes: int | None = None
    delta_manifest_list_size_bytes: int | None = None
    changelog_manifest_list: str | None = None
    changelog_manifest_list_size_bytes: int | None = None
    index_manifest: str | None = None
    """All live index files at this snapshot."""
    changelog_record_count: int | None = None
    watermark: int | None = None
    statistics: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    next_row_id: int | None = None
    operation: str | None = None
    writer_version: str | None = None
    uuid: str | None = None
    version: int = SNAPSHOT_VERSION
    unknown: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Members of the file that this version does not know, which a rewrite keeps."""

    @property
    def identity(self) -> tuple[str, int, CommitKind]:
        """What a writer recognises its own commit by if it got no response to the publish."""
        return self.commit_user, self.commit_identifier, self.commit_kind

    def is_same_commit(self, other: Snapshot | None) -> bool:
        """Whether two documents describe the same commit, even if another release dropped unknown members.

        Manifest lists have unique names.
        """
        return other is not None and (self.id, self.base_manifest_list, self.delta_manifest_list) == (
            other.id,
            other.base_manifest_list,
            other.delta_manifest_list,
        )


SNAPSHOT_KEYS: Final = (
    "version",
    "uuid",
    "id",
    "schemaId",
    "baseManifestList",
    "baseManifestListSize",
    "deltaManifestList",
    "deltaManifestListSize",
    "changelogManifestList",
    "changelogManifestListSize",
    "indexManifest",
    "commitUser",
    "writerVersion",
    "commitIdentifier",
    "commitKind",
    "timeMillis",
    "totalRecordCount",
    "deltaRecordCount",
    "changelogRecordCount",
    "watermark",
    "statistics",
    "properties",
    "nextRowId",
    "operation",
)
"""Keys of a snapshot document, in the order of writing."""


def snapshot_from_json(data: bytes, *, path: str, expected_id: int | None = None) -> Snapshot:
    """Read a snapshot or long-lived changelog file.

    Args:
        data: The content of the file.
        path: Where it came from, for the error.
        expected_id: The number in the file name, which the document must repeat.

    Raises:
        FormatError: If the bytes are not a snapshot, or a snapshot with another id.
    """
    return snapshot_from_doc(parse_object(data, path=path), path=path, expected_id=expected_id)


def snapshot_from_doc(
    doc: Mapping[str, Any], *, path: str, expected_id: int | None = None, known: tuple[str, ...] = SNAPSHOT_KEYS
) -> Snapshot:
    """Read a parsed snapshot document; `known` may have keys besides those of a snapshot.

    Raises:
        FormatError: If the document is not a snapshot, or a snapshot with another id.
    """
    snapshot_id = get_int(doc, "id", path, minimum=1)
    if expected_id is not None and snapshot_id != expected_id:
        raise FormatError("snapshot id differs from its file name", path=path, id=snapshot_id, expected=expected_id)
    version = get_int(doc, "version", path, default=1, minimum=0, maximum=INT32_MAX)
    return Snapshot(
        version=version,
        uuid=get_str(doc, "uuid", path, default=None),
        id=snapshot_id,
        schema_id=get_int(doc, "schemaId", path, minimum=0),
        base_manifest_list=check_file_name(get_str(doc, "baseManifestList", path), path=path),
        base_manifest_list_size_bytes=get_int(doc, "baseManifestListSize", path, default=None, minimum=0),
        delta_manifest_list=check_file_name(get_str(doc, "deltaManifestList", path), path=path),
        delta_manifest_list_size_bytes=get_int(doc, "deltaManifestListSize", path, default=None, minimum=0),
        changelog_manifest_list=_file_name(doc, "changelogManifestList", path),
        changelog_manifest_list_size_bytes=get_int(doc, "changelogManifestListSize", path, default=None, minimum=0),
        index_manifest=_file_name(doc, "indexManifest", path),
        commit_user=get_str(doc, "commitUser", path),
        writer_version=get_str(doc, "writerVersion", path, default=None),
        commit_identifier=get_int(doc, "commitIdentifier", path),
        commit_kind=_commit_kind(get_str(doc, "commitKind", path), path),
        time_ms=get_int(doc, "timeMillis", path),
        total_record_count=_record_count(doc, "totalRecordCount", path, version),
        delta_record_count=_record_count(doc, "deltaRecordCount", path, version),
        changelog_record_count=get_int(doc, "changelogRecordCount", path, default=None),
        watermark=get_int(doc, "watermark", path, default=None),
        statistics=_file_name(doc, "statistics", path),
        properties=get_str_map(doc, "properties", path, default={}),
        next_row_id=get_int(doc, "nextRowId", path, default=None, minimum=0),
        operation=get_str(doc, "operation", path, default=None),
        unknown=unknown_members(doc, known),
    )


def snapshot_to_json(snapshot: Snapshot) -> bytes:
    """The content of a snapshot file."""
    return encode_document(
        snapshot_to_doc(snapshot) | dict(snapshot.unknown),
        snapshot,
        snapshot_from_json,
    )


def snapshot_to_doc(snapshot: Snapshot) -> dict[str, Any]:
    """The document of a snapshot in the order of writing, without its unknown members."""
    values = (
        snapshot.version,
        snapshot.uuid,
        snapshot.id,
        snapshot.schema_id,
        snapshot.base_manifest_list,
        snapshot.base_manifest_list_size_bytes,
        snapshot.delta_manifest_list,
        snapshot.delta_manifest_list_size_bytes,
        snapshot.changelog_manifest_list,
        snapshot.changelog_manifest_list_size_bytes,
        snapshot.index_manifest,
        snapshot.commit_user,
        snapshot.writer_version,
        snapshot.commit_identifier,
        snapshot.commit_kind.value,
        snapshot.time_ms,
        snapshot.total_record_count,
        snapshot.delta_record_count,
        snapshot.changelog_record_count,
        snapshot.watermark,
        snapshot.statistics,
        dict(snapshot.properties) or None,
        snapshot.next_row_id,
        snapshot.operation,
    )
    return {key: value for key, value in zip(SNAPSHOT_KEYS, values, strict=True) if value is not None}


def _file_name(doc: Mapping[str, Any], key: str, path: str) -> str | None:
    name = get_str(doc, key, path, default=None)
    return None if name is None else check_file_name(name, path=path)


def _record_count(doc: Mapping[str, Any], key: str, path: str, version: int) -> int | None:
    if version < SNAPSHOT_VERSION:
        return get_int(doc, key, path, default=None)
    return get_int(doc, key, path)


def _commit_kind(text: str, path: str) -> CommitKind:
    # An unknown kind may mean that files have to be read in another way, so that it cannot be ignored.
    try:
        return CommitKind(text)
    except ValueError as error:
        raise FormatError("commit kind is unknown", path=path, kind=text[:80]) from error
