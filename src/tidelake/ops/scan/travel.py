"""Which snapshot a read sees: the newest, or the one that a point in time, a tag, an id or a watermark names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.io.clock import moment_ms
from tidelake.options import Affects, Int64, OptionGroup, option
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.documents.tag import tag_from_json
from tidelake.spec.layout import TAG_PREFIX, parse_named
from tidelake.store.snapshots import plan_again
from tidelake.store.table_store import TableStore

T = TypeVar("T")
_READ = (Affects.READ,)
STREAM_PLACES: Final = frozenset({"scan.snapshot-id", "scan.timestamp-millis", "scan.timestamp"})
"""Options that also say where a stream begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TravelOptions(OptionGroup):
    """The options that choose a snapshot; at most one of them is set."""

    snapshot_id: Int64 | None = option("scan.snapshot-id", None, doc="Read this snapshot.", affects=_READ)
    tag: str | None = option("scan.tag-name", None, doc="Read this tag.", affects=_READ)
    timestamp_ms: Int64 | None = option(
        "scan.timestamp-millis",
        None,
        doc="Read the newest snapshot at this time.",
        affects=_READ,
        fallback=("log.scan.timestamp-millis",),
    )
    timestamp: str | None = option(
        "scan.timestamp", None, doc="Read the newest snapshot at this local time.", affects=_READ
    )
    watermark: Int64 | None = option(
        "scan.watermark", None, doc="Read the first snapshot with at least this watermark.", affects=_READ
    )
    version: str | None = option("scan.version", None, doc="A tag, watermark-N or a snapshot id.", affects=_READ)


def resolve(store: TableStore, options: TravelOptions) -> Snapshot | None:
    """The snapshot to read, or None for an empty table that is read at its newest state.

    Raises:
        InvalidInputError: more than one point is given, or one cannot be understood.
        NotFoundError: the snapshot or tag does not exist, or no snapshot is that old.
    """
    if len(options.given) > 1:
        raise InvalidInputError("read names more than one point in time", options=", ".join(sorted(options.given)))
    if options.snapshot_id is not None:
        return store.snapshots.get(options.snapshot_id)
    if options.tag is not None:
        return read_tag(store, options.tag)
    if options.timestamp_ms is not None:
        return at_time(store, options.timestamp_ms)
    if options.timestamp is not None:
        return at_time(store, parse_time(options.timestamp))
    if options.watermark is not None:
        return at_watermark(store, options.watermark)
    if options.version is not None:
        return at_version(store, options.version)
    return store.snapshots.latest()


def at_point(store: TableStore, options: TravelOptions, act: Callable[[Snapshot | None], T]) -> T:
    """Call `act` with the snapshot to read; if that expires while it runs, resolve and call again.

    Raises:
        InvalidInputError: more than one point is given, or one cannot be understood.
        NotFoundError: the snapshot or tag does not exist, no snapshot is that old, or a file is missing.
    """

    def attempt() -> T:
        snapshot = resolve(store, options)
        with store.snapshots.held_to(snapshot.id if snapshot else None):
            return act(snapshot)

    return plan_again(attempt)


def read_tag(store: TableStore, name: str) -> Snapshot:
    """The snapshot that a tag keeps.

    Raises:
        NotFoundError: the tag does not exist.
    """
    path = store.layout.tag_path(name)
    try:
        data = store.env.io.read(path, limit=16 << 20)
    except NotFoundError as cause:
        names = ", ".join(tag_names(store)[:20])
        raise NotFoundError(
            "tag does not exist",
            code="tag-not-found",
            tag=name,
            hint=f"tags are {names}" if names else "the table has no tag; create one with create_tag",
        ) from cause
    return tag_from_json(data, path=path).snapshot


def tag_names(store: TableStore) -> list[str]:
    """The names of the tags."""
    found = (parse_named(each.name, TAG_PREFIX) for each in store.env.io.list(store.layout.tag_dir) if not each.is_dir)
    return sorted(name for name in found if name)


def at_version(store: TableStore, version: str) -> Snapshot:
    """A tag of that name, `watermark-N`, or a snapshot id, in this order.

    Raises:
        NotFoundError: none of them exists.
    """
    if version in tag_names(store):
        return read_tag(store, version)
    if version.startswith("watermark-") and version.removeprefix("watermark-").lstrip("-").isdigit():
        return at_watermark(store, int(version.removeprefix("watermark-")))
    if version.isdigit():
        return store.snapshots.get(int(version))
    raise NotFoundError("version is neither a tag nor a snapshot id", code="tag-not-found", version=version)


def at_time(store: TableStore, time_ms: int) -> Snapshot:
    """The newest snapshot committed at or before a time.

    Raises:
        NotFoundError: all snapshots are later.
    """
    found = find_time(store, time_ms)
    if found is None:
        raise NotFoundError(
            "no snapshot is that old", code="snapshot-not-found", time_ms=time_ms, table=store.env.io.root
        )
    return found


def find_time(store: TableStore, time_ms: int) -> Snapshot | None:
    """The newest snapshot committed at or before a time, or None when all are later."""
    found: Snapshot | None = None
    ids = store.snapshots.ids()
    low, high = 0, len(ids)
    while low < high:  # commit times do not decrease
        middle = (low + high) // 2
        snapshot = store.snapshots.find(ids[middle])
        if snapshot is None:  # it expired after the listing, so it was among the oldest
            low = middle + 1
        elif snapshot.time_ms <= time_ms:
            found, low = snapshot, middle + 1
        else:
            high = middle
    return found


def at_watermark(store: TableStore, watermark: int) -> Snapshot:
    """The first snapshot whose watermark has reached a value.

    Raises:
        NotFoundError: none has.
    """
    for snapshot_id in store.snapshots.ids():
        snapshot = store.snapshots.find(snapshot_id)
        if snapshot is not None and snapshot.watermark is not None and snapshot.watermark >= watermark:
            return snapshot
    raise NotFoundError("no snapshot has reached that watermark", code="snapshot-not-found", watermark=watermark)


def parse_time(text: str) -> int:
    """Milliseconds since the epoch of a date or timestamp; without a zone it is in the local one, see `moment_ms`.

    Raises:
        InvalidInputError: it is not a timestamp.
    """
    try:
        return moment_ms(datetime.fromisoformat(text.strip()))
    except (ValueError, OverflowError) as cause:
        raise InvalidInputError(
            "timestamp cannot be understood", value=text, hint="write it as 2026-11-15 12:00:00"
        ) from cause


def is_local_time(text: str) -> bool:
    """Whether it is a date or timestamp without a zone of its own."""
    try:
        return datetime.fromisoformat(text.strip()).tzinfo is None
    except ValueError:
        return False  # milliseconds, or what is refused where it is used
