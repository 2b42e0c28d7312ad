"""What a table says of itself: snapshots, schemas, options, tags, branches, consumers, aggregations, statistics.

Each function returns an Arrow table with the columns of the format's `t$name`; every face renders the same function.
What a snapshot says of its files is in `file_tables`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from tidelake.io.clock import as_local_ms
from tidelake.ops.context import TableContext
from tidelake.ops.inspect.columns import make_table
from tidelake.ops.scan.travel import tag_names
from tidelake.spec.documents.consumer import consumer_from_json
from tidelake.spec.documents.json_doc import parse_object
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.documents.statistics import statistics_from_json
from tidelake.spec.documents.tag import Tag, tag_from_json
from tidelake.spec.layout import BRANCH_DIR, BRANCH_PREFIX, CONSUMER_PREFIX, parse_named
from tidelake.spec.limits import LIMITS
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.type_codec import fields_to_json
from tidelake.store.table_store import TableStore

_FIELDS: Final = "fields."


def _local(times_ms: list[int | None]) -> list[int | None]:
    """Moments as Paimon shows them, by the local clock: what is read here can be given to `at(timestamp=...)`."""
    return [None if each is None else as_local_ms(each) for each in times_ms]


def snapshots_table(context: TableContext) -> pa.Table:
    """`t$snapshots`: one row per snapshot that is kept, oldest first."""
    store = context.store
    found = [store.snapshots.find(snapshot_id) for snapshot_id in store.snapshots.ids()]
    kept = [snapshot for snapshot in found if snapshot]
    return make_table(
        "snapshots",
        {
            "snapshot_id": [s.id for s in kept],
            "schema_id": [s.schema_id for s in kept],
            "commit_user": [s.commit_user for s in kept],
            "commit_identifier": [s.commit_identifier for s in kept],
            "commit_kind": [s.commit_kind.value for s in kept],
            "commit_time": _local([s.time_ms for s in kept]),
            "base_manifest_list": [s.base_manifest_list for s in kept],
            "delta_manifest_list": [s.delta_manifest_list for s in kept],
            "changelog_manifest_list": [s.changelog_manifest_list for s in kept],
            "total_record_count": [s.total_record_count for s in kept],
            "delta_record_count": [s.delta_record_count for s in kept],
            "changelog_record_count": [s.changelog_record_count for s in kept],
            "watermark": [s.watermark for s in kept],
            "next_row_id": [s.next_row_id for s in kept],
            "operation": [s.operation for s in kept],
            "writer_version": [s.writer_version for s in kept],
        },
    )


def schemas_table(context: TableContext) -> pa.Table:
    """`t$schemas`: one row per schema."""
    store = context.store
    import msgspec

    kept = [store.schemas.get(schema_id) for schema_id in store.schemas.ids()]

    def text(value: object) -> str:
        return msgspec.json.encode(value).decode()

    return make_table(
        "schemas",
        {
            "schema_id": [s.id for s in kept],
            "fields": [text(fields_to_json(s.fields)) for s in kept],
            "partition_keys": [text(list(s.partition_keys)) for s in kept],
            "primary_keys": [text(list(s.primary_keys)) for s in kept],
            "options": [text(dict(s.options)) for s in kept],
            "comment": [s.comment for s in kept],
            "update_time": _local([s.time_ms for s in kept]),
        },
    )


def options_table(context: TableContext) -> pa.Table:
    """`t$options`: key and value of each option that is set."""
    items = sorted(_newest(context).options.items())
    return make_table(
        "options",
        {
            "key": [key for key, _ in items],
            "value": [value for _, value in items],
        },
    )


def tags_table(context: TableContext) -> pa.Table:
    """`t$tags`: one row per tag, by name."""
    store = context.store
    kept = [(name, _read_tag(store, name)) for name in tag_names(store)]
    return make_table(
        "tags",
        {
            "tag_name": [name for name, _ in kept],
            "snapshot_id": [tag.snapshot.id for _, tag in kept],
            "schema_id": [tag.snapshot.schema_id for _, tag in kept],
            "commit_time": _local([tag.snapshot.time_ms for _, tag in kept]),
            "record_count": [tag.snapshot.total_record_count for _, tag in kept],
            "create_time": [_millis(tag.create_time_ns) for _, tag in kept],
            "time_retained": [_duration_text(tag.time_retained_ns) for _, tag in kept],
        },
    )


def branches_table(context: TableContext) -> pa.Table:
    """`t$branches`: one row per branch, by name; its creation time is the time of the last change of its folder."""
    store = context.store
    listed = ((parse_named(each.name, BRANCH_PREFIX), each) for each in store.env.io.list(BRANCH_DIR) if each.is_dir)
    kept = sorted((name, each.modified_ms) for name, each in listed if name)
    return make_table(
        "branches",
        {
            "branch_name": [name for name, _ in kept],
            "create_time": _local([time_ms for _, time_ms in kept]),
        },
    )


def consumers_table(context: TableContext) -> pa.Table:
    """`t$consumers`: the first snapshot that each consumer has not consumed yet."""
    store = context.store
    listed = (each for each in store.env.io.list(store.layout.consumer_dir) if not each.is_dir)
    found = {name: each.path for each in listed if (name := parse_named(each.name, CONSUMER_PREFIX))}
    read = {name: store.env.io.read(path, limit=1 << 16) for name, path in sorted(found.items())}
    kept = [(name, consumer_from_json(data, path=found[name]).next_snapshot) for name, data in read.items()]
    return make_table(
        "consumers",
        {
            "consumer_id": [name for name, _ in kept],
            "next_snapshot_id": [number for _, number in kept],
        },
    )


def aggregation_fields_table(context: TableContext) -> pa.Table:
    """`t$aggregation_fields`: one row per column, with the values and the names of its options `fields.<column>.*`."""
    schema = _newest(context)
    found: dict[str, list[tuple[str, str]]] = {}
    for key, value in sorted(schema.options.items()):
        if key.startswith(_FIELDS):
            found.setdefault(key.removeprefix(_FIELDS).partition(".")[0], []).append((key, value))
    own = [found.get(field.name, []) for field in schema.fields]
    return make_table(
        "aggregation_fields",
        {
            "field_name": [field.name for field in schema.fields],
            "field_type": [str(field.type) for field in schema.fields],
            "function": [f"[{', '.join(value for _, value in each)}]" for each in own],
            "function_options": [f"[{', '.join(key for key, _ in each)}]" for each in own],
            "comment": [field.description for field in schema.fields],
        },
    )


def statistics_table(context: TableContext, snapshot: Snapshot | None) -> pa.Table:
    """`t$statistics`: the statistics that a snapshot refers to; no row if it has none."""
    store = context.store
    kept = []
    if snapshot is not None and snapshot.statistics is not None:
        path = store.layout.statistics_path(snapshot.statistics)
        data = store.env.io.read(path, limit=LIMITS.json_bytes)
        kept.append((statistics_from_json(data, path=path), parse_object(data, path=path).get("colStats") or {}))
    return make_table(
        "statistics",
        {
            "snapshot_id": [each.snapshot_id for each, _ in kept],
            "schema_id": [each.schema_id for each, _ in kept],
            "mergedRecordCount": [each.merged_record_count for each, _ in kept],
            "mergedRecordSize": [each.merged_record_size_bytes for each, _ in kept],
            "colstat": [_print_json(columns) for _, columns in kept],
        },
    )


def _print_json(columns: Mapping[str, object]) -> str:
    """As Java prints JSON for people."""
    return json.dumps(columns, indent=2, separators=(",", " : "), ensure_ascii=False) if columns else "{ }"


def _newest(context: TableContext) -> Schema:
    """The newest schema: a handle of the past, too, shows what the table is set to now."""
    return context.store.schemas.latest() or context.schema


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
