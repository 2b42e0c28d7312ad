"""What a table says of itself: snapshots, schemas, options, tags, branches, consumers.

Each function returns an Arrow table with the columns of the format's `t$name`; every face renders the same function.
What a snapshot says of its files is in `file_tables`.
"""

from __future__ import annotations

import pyarrow as pa

from tidelake.io.clock import as_local_ms
from tidelake.ops.context import TableContext
from tidelake.ops.scan.travel import tag_names
from tidelake.spec.documents.consumer import consumer_from_json
from tidelake.spec.documents.tag import Tag, tag_from_json
from tidelake.spec.layout import BRANCH_DIR, BRANCH_PREFIX, CONSUMER_PREFIX, parse_named
from tidelake.spec.limits import LIMITS
from tidelake.spec.types.type_codec import fields_to_json
from tidelake.store.table_store import TableStore

_TIME = pa.timestamp("ms")


def _local(times_ms: list[int | None]) -> pa.Array:
    """Moments as Paimon shows them, by the local clock: what is read here can be given to `at(timestamp=...)`."""
    return pa.array([None if each is None else as_local_ms(each) for each in times_ms], _TIME)


def snapshots_table(context: TableContext) -> pa.Table:
    """`t$snapshots`: one row per snapshot that is kept, oldest first."""
    store = context.store
    found = [store.snapshots.find(snapshot_id) for snapshot_id in store.snapshots.ids()]
    kept = [snapshot for snapshot in found if snapshot]
    return pa.table(
        {
            "snapshot_id": pa.array([s.id for s in kept], pa.int64()),
            "schema_id": pa.array([s.schema_id for s in kept], pa.int64()),
            "commit_user": pa.array([s.commit_user for s in kept], pa.string()),
            "commit_identifier": pa.array([s.commit_identifier for s in kept], pa.int64()),
            "commit_kind": pa.array([s.commit_kind.value for s in kept], pa.string()),
            "commit_time": _local([s.time_ms for s in kept]),
            "base_manifest_list": pa.array([s.base_manifest_list for s in kept], pa.string()),
            "delta_manifest_list": pa.array([s.delta_manifest_list for s in kept], pa.string()),
            "changelog_manifest_list": pa.array([s.changelog_manifest_list for s in kept], pa.string()),
            "total_record_count": pa.array([s.total_record_count for s in kept], pa.int64()),
            "delta_record_count": pa.array([s.delta_record_count for s in kept], pa.int64()),
            "changelog_record_count": pa.array([s.changelog_record_count for s in kept], pa.int64()),
            "watermark": pa.array([s.watermark for s in kept], pa.int64()),
            "next_row_id": pa.array([s.next_row_id for s in kept], pa.int64()),
            "operation": pa.array([s.operation for s in kept], pa.string()),
        }
    )


def schemas_table(context: TableContext) -> pa.Table:
    """`t$schemas`: one row per schema."""
    store = context.store
    import msgspec

    kept = [store.schemas.get(schema_id) for schema_id in store.schemas.ids()]

    def text(value: object) -> str:
        return msgspec.json.encode(value).decode()

    return pa.table(
        {
            "schema_id": pa.array([s.id for s in kept], pa.int64()),
            "fields": pa.array([text(fields_to_json(s.fields)) for s in kept], pa.string()),
            "partition_keys": pa.array([text(list(s.partition_keys)) for s in kept], pa.string()),
            "primary_keys": pa.array([text(list(s.primary_keys)) for s in kept], pa.string()),
            "options": pa.array([text(dict(s.options)) for s in kept], pa.string()),
            "comment": pa.array([s.comment for s in kept], pa.string()),
            "update_time": _local([s.time_ms for s in kept]),
        }
    )


def options_table(context: TableContext) -> pa.Table:
    """`t$options`: key and value of each option that is set."""
    items = sorted(context.table_options.items())
    return pa.table(
        {
            "key": pa.array([key for key, _ in items], pa.string()),
            "value": pa.array([value for _, value in items], pa.string()),
        }
    )


def tags_table(context: TableContext) -> pa.Table:
    """`t$tags`: one row per tag, by name."""
    store = context.store
    kept = [(name, _read_tag(store, name)) for name in tag_names(store)]
    return pa.table(
        {
            "tag_name": pa.array([name for name, _ in kept], pa.string()),
            "snapshot_id": pa.array([tag.snapshot.id for _, tag in kept], pa.int64()),
            "schema_id": pa.array([tag.snapshot.schema_id for _, tag in kept], pa.int64()),
            "commit_time": _local([tag.snapshot.time_ms for _, tag in kept]),
            "record_count": pa.array([tag.snapshot.total_record_count for _, tag in kept], pa.int64()),
            "create_time": pa.array([_millis(tag.create_time_ns) for _, tag in kept], _TIME),
            "time_retained": pa.array([_duration_text(tag.time_retained_ns) for _, tag in kept], pa.string()),
        }
    )


def branches_table(context: TableContext) -> pa.Table:
    """`t$branches`: one row per branch, by name; its creation time is the time of the last change of its folder."""
    store = context.store
    listed = ((parse_named(each.name, BRANCH_PREFIX), each) for each in store.env.io.list(BRANCH_DIR) if each.is_dir)
    kept = sorted((name, each.modified_ms) for name, each in listed if name)
    return pa.table(
        {
            "branch_name": pa.array([name for name, _ in kept], pa.string()),
            "create_time": _local([time_ms for _, time_ms in kept]),
        }
    )


def consumers_table(context: TableContext) -> pa.Table:
    """`t$consumers`: the first snapshot that each consumer has not consumed yet."""
    store = context.store
    listed = (each for each in store.env.io.list(store.layout.consumer_dir) if not each.is_dir)
    found = {name: each.path for each in listed if (name := parse_named(each.name, CONSUMER_PREFIX))}
    read = {name: store.env.io.read(path, limit=1 << 16) for name, path in sorted(found.items())}
    kept = [(name, consumer_from_json(data, path=found[name]).next_snapshot) for name, data in read.items()]
    return pa.table(
        {
            "consumer_id": pa.array([name for name, _ in kept], pa.string()),
            "next_snapshot_id": pa.array([number for _, number in kept], pa.int64()),
        }
    )


def _read_tag(store: TableStore, name: str) -> Tag:
    path = store.layout.tag_path(name)
    return tag_from_json(store.env.io.read(path, limit=LIMITS.json_bytes), path=path)


def _millis(nanos: int | None) -> int | None:
    return None if nanos is None else nanos // 1_000_000


def _duration_text(nanos: int | None) -> str | None:
    """As Java prints a duration: `PT36H`, `PT1M1.5S`."""
    if nanos is None:
        return None
    minutes, rest = divmod(nanos, 60_000_000_000)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{rest // 1_000_000_000}.{rest % 1_000_000_000:09d}".rstrip("0").rstrip(".")
    parts = f"{hours}H" * bool(hours) + f"{minutes}M" * bool(minutes) + f"{seconds}S" * bool(rest)
    return f"PT{parts or '0S'}"
