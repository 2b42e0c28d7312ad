"""The snapshot a commit wants to publish, and the invariants every publish must keep. Pure.

The invariants run on every path right before the atomic write, so that a bug is caught before it reaches the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InternalError
from tidelake.spec.documents.progress import PROPERTY_PREFIX, SINCE_PROPERTY
from tidelake.spec.documents.snapshot import CommitKind, Snapshot
from tidelake.spec.manifests.index_manifest import IndexEntry
from tidelake.spec.manifests.manifest import ADD, DELETE, identities
from tidelake.spec.manifests.manifest_list import ManifestMeta

WRITER_NAME = "tidelake-"
WRITER_VERSION = f"{WRITER_NAME}0.1.0"
ATTEMPTS_PROPERTY = "commit.attempts"
"""The snapshot property with the number of attempts that it took to publish it, if there were several."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A snapshot to publish, with the changes and manifests it was built from."""

    snapshot: Snapshot
    delta: pa.Table
    before: tuple[ManifestMeta, ...]
    after: tuple[ManifestMeta, ...]
    delta_metas: tuple[ManifestMeta, ...] = ()
    index: tuple[IndexEntry, ...] = ()
    index_before: tuple[IndexEntry, ...] = ()
    returns_to: Snapshot | None = None
    """The older snapshot whose state this one has again."""


@dataclass(frozen=True, slots=True)
class ListFile:
    """Name and size of a manifest list that was written."""

    name: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lists:
    """The manifest lists and the index manifest that were written for a snapshot."""

    base: ListFile
    delta: ListFile
    changelog: ListFile | None
    index_manifest: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a snapshot says of its commit, beside the files."""

    uuid: str
    schema_id: int
    kind: CommitKind
    user: str
    identifier: int
    time_ms: int
    watermark: int | None
    properties: Mapping[str, str]
    statistics: str | None
    operation: str | None
    returns_to: Snapshot | None = None


def build_snapshot(
    previous: Snapshot | None, header: Header, lists: Lists, *, delta: pa.Table, changelog: pa.Table
) -> Snapshot:
    """The snapshot after `previous`."""
    delta_rows = row_count(delta, ADD) - row_count(delta, DELETE)
    watermarks = (header.watermark, previous.watermark if previous else None)
    back = header.returns_to
    return Snapshot(
        uuid=header.uuid,
        id=previous.id + 1 if previous else 1,
        schema_id=header.schema_id,
        base_manifest_list=lists.base.name,
        base_manifest_list_size_bytes=lists.base.size,
        delta_manifest_list=lists.delta.name,
        delta_manifest_list_size_bytes=lists.delta.size,
        changelog_manifest_list=lists.changelog.name if lists.changelog else None,
        changelog_manifest_list_size_bytes=lists.changelog.size if lists.changelog else None,
        index_manifest=lists.index_manifest,
        commit_user=header.user,
        writer_version=WRITER_VERSION,
        commit_identifier=header.identifier,
        commit_kind=header.kind,
        time_ms=header.time_ms,
        total_record_count=back.total_record_count
        if back
        else (previous.total_record_count or 0 if previous else 0) + delta_rows,
        delta_record_count=delta_rows,
        changelog_record_count=row_count(changelog, ADD) if changelog.num_rows else None,
        # A watermark never falls, whatever a late writer reports; only a state that comes back has its own again.
        watermark=back.watermark if back else max((each for each in watermarks if each is not None), default=None),
        statistics=header.statistics,
        properties=dict(header.properties),
        # Row ids are given once, also those of rows that a return to an older state takes away.
        next_row_id=max((each.next_row_id or 0 for each in (previous, back) if each), default=0),
        operation=header.operation,
    )


def carried_properties(previous: Snapshot | None, own: Mapping[str, str]) -> dict[str, str]:
    """The properties of a new snapshot: its own, all users' progress, and the first snapshot with such progress."""
    before = previous.properties if previous else {}
    kept = {key: text for key, text in before.items() if _is_progress(key)}
    properties = {**kept, **own}
    if any(key.startswith(PROPERTY_PREFIX) for key in properties):
        properties.setdefault(SINCE_PROPERTY, str(previous.id + 1 if previous else 1))
    return properties


def header_of_return(header: Header, previous: Snapshot) -> Header:
    """The header of a snapshot that has the state of an older one again: what describes the state comes from there.

    The progress of commit users comes from the previous snapshot: their commits stay published.
    """
    back = header.returns_to
    assert back is not None
    own = {key: text for key, text in back.properties.items() if not _is_progress(key) and key != ATTEMPTS_PROPERTY}
    if ATTEMPTS_PROPERTY in header.properties:
        own[ATTEMPTS_PROPERTY] = header.properties[ATTEMPTS_PROPERTY]
    return replace(
        header,
        schema_id=back.schema_id,
        watermark=back.watermark,
        statistics=back.statistics,
        properties=carried_properties(previous, own),
    )


def _is_progress(key: str) -> bool:
    return key.startswith(PROPERTY_PREFIX) or key == SINCE_PROPERTY


def row_count(entries: pa.Table, kind: int) -> int:
    """Rows of the files of one kind of entry."""
    rows = entries.column("row_count").filter(pc.equal(entries.column("kind"), kind))
    return int(pc.sum(rows).as_py() or 0)


# ------------------------------------------------------------------------------------------------ invariants


def check_invariants(previous: Snapshot | None, candidate: Candidate) -> None:
    """Run every invariant.

    Raises:
        InternalError: the candidate must not be published; this is a bug of ours.
    """
    for invariant in INVARIANTS:
        invariant(previous, candidate)


def _id_follows(previous: Snapshot | None, candidate: Candidate) -> None:
    expected = previous.id + 1 if previous else 1
    _hold(candidate.snapshot.id == expected, "snapshot id does not follow", candidate, expected=expected)


def _time_never_goes_back(previous: Snapshot | None, candidate: Candidate) -> None:
    _hold(not previous or candidate.snapshot.time_ms >= previous.time_ms, "commit time went back", candidate)


def _counts_add_up(previous: Snapshot | None, candidate: Candidate) -> None:
    snapshot = candidate.snapshot
    before = (previous.total_record_count or 0) if previous else 0
    delta = row_count(candidate.delta, ADD) - row_count(candidate.delta, DELETE)
    _hold(snapshot.delta_record_count == delta, "delta record count is wrong", candidate, expected=delta)
    back = candidate.returns_to
    total = before + delta if back is None else back.total_record_count
    _hold(snapshot.total_record_count == total, "total record count is wrong", candidate)


def _no_file_twice(_: Snapshot | None, candidate: Candidate) -> None:
    for kind in (ADD, DELETE):
        rows = candidate.delta.filter(pc.equal(candidate.delta.column("kind"), kind))
        distinct = pc.count_distinct(identities(rows)).as_py() if rows.num_rows else 0
        _hold(distinct == rows.num_rows, "a file is in the delta twice", candidate, kind=kind)


def _merging_kept_the_files(_: Snapshot | None, candidate: Candidate) -> None:
    before = sum(meta.num_added - meta.num_deleted for meta in candidate.before)
    after = sum(meta.num_added - meta.num_deleted for meta in candidate.after)
    _hold(before == after, "merging manifests changed the number of files", candidate, before=before, after=after)


def _no_more_deleted_than_there(_: Snapshot | None, candidate: Candidate) -> None:
    files = sum(meta.num_added - meta.num_deleted for meta in candidate.after)
    added = pc.sum(pc.equal(candidate.delta.column("kind"), ADD)).as_py() or 0
    live = files + 2 * added - candidate.delta.num_rows
    _hold(live >= 0, "more files are deleted than there are", candidate, live=live)


def _watermark_never_falls(previous: Snapshot | None, candidate: Candidate) -> None:
    old = previous.watermark if previous else None
    new, back = candidate.snapshot.watermark, candidate.returns_to
    _hold(back is not None or old is None or (new is not None and new >= old), "watermark fell", candidate)


def _nothing_deletes_what_comes_back(_: Snapshot | None, candidate: Candidate) -> None:
    clean = candidate.returns_to is None or not any(meta.num_deleted for meta in candidate.after)
    _hold(clean, "a manifest from before deletes files", candidate)


def _index_comes_back(_: Snapshot | None, candidate: Candidate) -> None:
    back = candidate.returns_to
    same = back is None or candidate.snapshot.index_manifest == back.index_manifest
    _hold(same, "index is not that of the older snapshot", candidate)


INVARIANTS: tuple[Callable[[Snapshot | None, Candidate], None], ...] = (
    _id_follows,
    _time_never_goes_back,
    _counts_add_up,
    _no_file_twice,
    _merging_kept_the_files,
    _no_more_deleted_than_there,
    _watermark_never_falls,
    _nothing_deletes_what_comes_back,
    _index_comes_back,
)


def _hold(condition: bool, message: str, candidate: Candidate, **facts: object) -> None:
    if not condition:
        raise InternalError(
            message,
            code="invariant",
            snapshot_id=candidate.snapshot.id,
            **facts,
            hint="nothing was published; please report this",
        )
