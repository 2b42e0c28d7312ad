"""Write a set of tables with one release of Apache Paimon, and note what its Java API says of them.

    python tests/compat/write_tables.py VERSION FOLDER [SCENARIO ...]

FOLDER becomes a warehouse with the database `d`, one table per scenario, and `expected.json`: for each table and branch
every snapshot with its live files, manifests and index files, as decoded by Java. A process holds one release, so the
suite runs this script once per release.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import oracle
from oracle import Catalog, Table, java

RELEASES = ("2.0.0", "1.4.2", "1.3.1", "1.2.0", "0.9.0")
SCENARIOS: dict[str, Callable[[Catalog], Table]] = {}
MISSING: dict[str, frozenset[str]] = {
    "2.0.0": frozenset(),
    "1.4.2": frozenset(),
    "1.3.1": frozenset(),
    "1.2.0": frozenset({"deletion_vectors_append"}),
    "0.9.0": frozenset({"deletion_vectors_append"}),
}
"""What the driver cannot make a release do; anything else that fails is an error."""

VALUES = {
    "id": "INT NOT NULL", "b": "BOOLEAN", "i1": "TINYINT", "i2": "SMALLINT", "i8": "BIGINT", "f": "FLOAT",
    "d": "DOUBLE", "ch": "CHAR(5)", "s": "STRING", "by": "BYTES", "d9": "DECIMAL(9, 2)", "d38": "DECIMAL(38, 10)",
    "dd": "DATE", "ts3": "TIMESTAMP(3)", "ts6": "TIMESTAMP(6)", "ltz": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "ar": "ARRAY<INT>", "mp": "MAP<STRING, INT>", "r": "ROW<x INT, y STRING>",
}  # fmt: skip


def scenario(function: Callable[[Catalog], Table]) -> Callable[[Catalog], Table]:
    SCENARIOS[function.__name__] = function
    return function


def value_row(n: int) -> tuple[Any, ...]:
    """A row of `VALUES`; every fifth one is all null."""
    if n % 5 == 4:
        return (n, *[None] * (len(VALUES) - 1))
    text = "prefix that is long enough to be cut " + "é" * n + str(n)
    moment = dt.datetime(1969, 12, 31, 23, 59, 59, 999000) + dt.timedelta(days=n, microseconds=123 * n)
    return (
        n, n % 2 == 0, n - 100, -300 * n, 2**40 * n, n / 3, -n / 7, "ab", text, bytes([n, 255, 0]) * 9,
        Decimal(n) / 4 * -1, Decimal(10**20 * n).scaleb(-3), dt.date(1969, 12, 30) + dt.timedelta(days=n),
        moment.replace(microsecond=moment.microsecond // 1000 * 1000), moment, moment.replace(tzinfo=dt.UTC),
        [n, None], {"k": n}, {"x": n, "y": "z"},
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------ append tables


@scenario
def append_partitioned(c: Catalog) -> Table:
    fields = {"id": "INT", "dt": "STRING", "hr": "INT", "v": "STRING"}
    t = c.create_table("d.append_partitioned", fields, partition_by=["dt", "hr"])
    t.write([(i, f"d{i % 3}", i % 2, "a") for i in range(12)])
    t.write([(20, None, 1, "null"), (21, "", None, "blank"), (22, "a b/c=d", -5, "odd"), (23, "ü%", 7, "x")])
    t.write([(30, "d0", 0, "static")], {"dynamic-partition-overwrite": False}, overwrite={"dt": "d0"})
    t.write([(40, "d1", 1, "dynamic")], overwrite={})
    t.truncate([{"dt": "d2", "hr": "1"}])
    t.write([(50, "d9", 9, "last")])
    return t


@scenario
def append_types(c: Catalog) -> Table:
    t = c.create_table("d.append_types", VALUES)
    for number, fmt in enumerate(("parquet", "orc", "avro")):
        t.write([value_row(10 * number + i) for i in range(6)], {"file.format": fmt})
    for number in range(4):
        t.write([value_row(30 + number)])
    t.compact()
    t.write([value_row(40)], overwrite={})
    t.truncate()
    return t


@scenario
def append_bucketed(c: Catalog) -> Table:
    options = {"bucket": 3, "bucket-key": "id"}
    t = c.create_table("d.append_bucketed", {"id": "INT", "v": "STRING"}, options=options)
    for number in range(3):
        t.write([(i, "x" * number) for i in range(20)], {"write-only": True})
    t.compact()
    return t


@scenario
def typed_partitions(c: Catalog) -> Table:
    fields = {"v": "INT", "b": "BOOLEAN", "n": "BIGINT", "dd": "DATE", "m": "DECIMAL(5, 2)", "s": "VARCHAR(9)"}
    t = c.create_table("d.typed_partitions", fields, partition_by=["b", "n", "dd", "m", "s"])
    t.write(
        [
            (1, True, -5, dt.date(2020, 2, 29), Decimal("1.50"), "x"),
            (2, False, 2**60, dt.date(1969, 12, 31), Decimal("-0.01"), "longer 89"),
            (3, None, None, None, None, None),
        ]
    )
    t.write([(4, True, -5, dt.date(2020, 2, 29), Decimal("1.50"), "x")])
    return t


@scenario
def file_indexes(c: Catalog) -> Table:
    options = {"file-index.bloom-filter.columns": "v", "file-index.bloom-filter.v.items": 20}
    t = c.create_table("d.file_indexes", {"id": "INT", "v": "STRING"}, options=options)
    t.write([(i, str(i)) for i in range(10)])
    t.write([(i, str(i)) for i in range(10)], {"file-index.in-manifest-threshold": "1 b"})
    return t


@scenario
def deletion_vectors_append(c: Catalog) -> Table:
    t = c.create_table("d.deletion_vectors_append", {"id": "INT"}, options={"deletion-vectors.enabled": True})
    t.write([(i,) for i in range(10)])
    t.write([(i,) for i in range(10)])
    first, second = (f["file"] for f in t.files())
    t.delete_positions(first, [0, 9])
    t.delete_positions(second, [5])
    t.delete_positions(first, [1])
    return t


@scenario
def row_tracking(c: Catalog) -> Table:
    t = c.create_table("d.row_tracking", {"id": "INT", "v": "STRING"}, options={"row-tracking.enabled": True})
    for number in range(3):
        t.write([(i, "x") for i in range(number + 2)])
    return t


@scenario
def external_paths(c: Catalog) -> Table:
    outside = Path(str(c.java.warehouse()).removeprefix("file:")) / "outside"
    options = {
        "data-file.external-paths": outside.absolute().as_uri(),
        "data-file.external-paths.strategy": "round-robin",
    }
    t = c.create_table("d.external_paths", {"id": "INT", "dt": "STRING"}, partition_by=["dt"], options=options)
    t.write([(i, f"p{i % 2}") for i in range(6)])
    t.write([(9, "p1")], overwrite={"dt": "p1"})
    return t


# ------------------------------------------------------------------------------------------------ primary keys


@scenario
def pk_levels(c: Catalog) -> Table:
    fields = {"id": "INT NOT NULL", "dt": "STRING NOT NULL", "k": "BIGINT NOT NULL", "v": "STRING"}
    options = {"bucket": 2, "write-only": True, "changelog-producer": "input"}
    t = c.create_table("d.pk_levels", fields, ["dt", "id", "k"], ["dt"], options)
    t.write([(i, f"d{i % 2}", -i, "a") for i in range(20)])
    t.compact()
    for number in range(3):
        t.write([("+U", (i, f"d{i % 2}", -i, f"u{number}")) for i in range(number, 12)])
        t.compact(full=False, options={"compaction.force-up-level-0": True, "compaction.size-ratio": -99})
    t.write([("-D", (1, "d1", -1, "a")), ("-U", (2, "d0", -2, "a")), ("+U", (2, "d0", -2, "b"))])
    t.compact()
    t.write([(99, "d1", 0, "z")])
    t.write([(5, "d0", 0, "over")], overwrite={"dt": "d0"})
    return t


@scenario
def pk_types(c: Catalog) -> Table:
    fields = {
        "s": "STRING NOT NULL", "n": "SMALLINT NOT NULL", "m": "DECIMAL(20, 3) NOT NULL", "t": "TIMESTAMP(6) NOT NULL",
        "v": "DOUBLE",
    }  # fmt: skip
    t = c.create_table("d.pk_types", fields, ["s", "n", "m", "t"], options={"bucket": 1})
    moment = dt.datetime(1960, 1, 1, 1, 2, 3, 456789)
    rows = [("k" * i, i - 3, Decimal(i) / 8, moment + dt.timedelta(days=9 * i), i / 3) for i in range(8)]
    t.write(rows)
    t.write(rows[2:4])
    t.compact()
    return t


@scenario
def deletion_vectors_pk(c: Catalog) -> Table:
    options = {"bucket": 1, "deletion-vectors.enabled": True}
    t = c.create_table("d.deletion_vectors_pk", {"id": "INT NOT NULL", "v": "INT"}, ["id"], options=options)
    t.write([(i, i) for i in range(50)])
    t.compact()
    for number in range(3):
        t.write([(i, -i) for i in range(number, number + 4)])
    t.write([("-D", (40, 40))])
    return t


@scenario
def dynamic_buckets(c: Catalog) -> Table:
    fields = {"id": "INT NOT NULL", "dt": "STRING NOT NULL", "v": "INT"}
    options = {"dynamic-bucket.target-row-num": 5}
    t = c.create_table("d.dynamic_buckets", fields, ["dt", "id"], ["dt"], options)
    t.write([(i, f"p{i % 2}", i) for i in range(24)])
    t.write([(i, f"p{i % 2}", -i) for i in range(30)])
    t.write([(1, "p1", 100)], overwrite={"dt": "p1"})
    return t


# ------------------------------------------------------------------------------------------------ documents


@scenario
def evolution(c: Catalog) -> Table:
    fields = [("id", "INT NOT NULL", "the key"), ("v", "INT", None), ("r", "ROW<a INT, b ROW<q STRING>>", 'q"\\/é\n')]
    t = c.create_table("d.evolution", fields, ["id"], options={"bucket": 1}, comment='says "hello"\t\\ü')
    t.write([(1, 5, {"a": 1, "b": {"q": "x"}})])
    t.alter(("add", "n", "STRING", "first"), ("rename", "v", "w"), ("type", "w", "BIGINT"))
    t.write([{"id": 2, "w": 2**40, "n": "x", "r": {"a": 2, "b": {"q": None}}}])
    nested = [] if oracle.running() == "0.9.0" else [("add", ["r", "c"], "ARRAY<ROW<z INT>>")]
    t.alter(*nested, ("drop", "n"), ("set", "snapshot.num-retained.min", "5"))
    t.alter(("add", "n", "INT", ("after", "id")), ("comment", "n", "again"))
    t.write([{"id": 3, "w": 1, "n": 7, "r": {"a": None, "b": {"q": "y"}}}])
    t.compact()
    return t


@scenario
def tags_branches_consumers(c: Catalog) -> Table:
    options = {"bucket": 1, "changelog-producer": "input"}
    t = c.create_table("d.tags_branches_consumers", {"id": "INT NOT NULL", "v": "INT"}, ["id"], options=options)
    for number in range(4):
        t.write([(number, number)])
    t.create_tag("plain", 1)
    loaded, duration = t.load(), java("java.time.Duration")
    loaded.createTag("kept", 2, duration.ofHours(36))
    loaded.createTag("odd.name_3", 3, duration.ofMillis(1500))
    t.set_consumer("me", 2)
    t.set_consumer("another-one", 4)
    t.create_branch("empty")
    t.create_branch("dev", "kept")
    t.branch("dev").write([(77, 7)])
    with t.writer(user="job") as writer:
        for identifier in (1, 2):
            writer.write([(identifier, 50)])
            writer.commit(identifier, watermark=1000 * identifier)
    t.expire_snapshots(retain_max=4)
    return t


@scenario
def statistics(c: Catalog) -> Table:
    t = c.create_table("d.statistics", {"id": "INT", "s": "STRING", "m": "DECIMAL(5, 2)"})
    t.write([(i, str(i), Decimal(i)) for i in range(5)])
    columns, stats = java("java.util.HashMap")(), java("stats.ColStats")
    box = java("java.lang.Long").valueOf
    text = java("data.BinaryString").fromString
    columns.put("s", stats.newColStats(1, box(5), text("0"), text("4"), box(0), box(1), box(1)))
    least, most = (java("java.lang.Integer").valueOf(v) for v in (0, 4))
    columns.put("id", stats.newColStats(0, box(5), least, most, box(4), box(4), box(4)))
    columns.put("m", stats.newColStats(2, None, None, None, box(2), None, None))
    size = java("java.lang.Long").valueOf(123)
    for known in (columns, java("java.util.HashMap")()):
        found = java("stats.Statistics")(1, 0, box(5), size, known)
        t.analyze(found)
        t.write([(9, "z", None)])
    return t


def _codec(name: str) -> None:
    def write(c: Catalog) -> Table:
        t = c.create_table(f"d.codec_{name}", {"id": "INT"}, options={"manifest.compression": name})
        for number in range(3):
            t.write([(number,)])
        return t

    write.__name__ = f"codec_{name}"
    scenario(write)


for _name in ("null", "deflate", "snappy", "bzip2", "zstd"):
    _codec(_name)


def _metadata_format(fmt: str) -> None:
    def write(c: Catalog) -> Table:
        options = {"manifest.format": fmt, "manifest.compression": "zstd", "bucket": 1}
        fields = {"id": "INT NOT NULL", "dt": "STRING NOT NULL", "v": "STRING"}
        t = c.create_table(f"d.manifests_{fmt}", fields, ["dt", "id"], ["dt"], options)
        for number in range(3):
            t.write([(i, f"p{i % 2}", "x") for i in range(number, number + 5)])
        t.compact()
        t.write([(1, "p1", "y")], overwrite={"dt": "p1"})
        return t

    write.__name__ = f"manifests_{fmt}"
    scenario(write)


_metadata_format("orc")
_metadata_format("parquet")


@scenario
def merged_manifests(c: Catalog) -> Table:
    """More than thirty commits: minor merging of manifests with additions and deletions."""
    fields = {"id": "INT NOT NULL", "v": "STRING"}
    options = {"bucket": 1, "num-sorted-run.compaction-trigger": 3}
    t = c.create_table("d.merged_manifests", fields, ["id"], options=options)
    with t.writer(user="stream") as writer:
        for identifier in range(1, 36):
            writer.write([(identifier % 7, f"v{identifier}")])
            writer.commit(identifier)
    return t


@scenario
def full_manifests(c: Catalog) -> Table:
    """Full merging of manifests, and manifests of more than one block."""
    options = {
        "manifest.target-file-size": "40 kb",
        "manifest.full-compaction-threshold-size": "10 kb",
        "manifest.merge-min-count": 3,
        "write-only": True,
    }
    t = c.create_table("d.full_manifests", {"id": "INT", "p": "INT"}, partition_by=["p"], options=options)
    t.write([(i, i) for i in range(200)])
    for number in range(4):
        t.write([(i, i) for i in range(number * 10, number * 10 + 30)])
        t.truncate([{"p": str(number)}])
    return t


@scenario
def dense_stats(c: Catalog) -> Table:
    options = {
        "metadata.stats-mode": "none",
        "fields.a.stats-mode": "full",
        "fields.c.stats-mode": "truncate(3)",
        "fields.d.stats-mode": "counts",
    }
    fields = {"id": "INT NOT NULL", "a": "STRING", "b": "STRING", "c": "STRING", "d": "STRING"}
    t = c.create_table("d.dense_stats", fields, ["id"], options={"bucket": 1, **options})
    for number, dense in enumerate((True, False)):
        how = {"metadata.stats-dense-store": dense}
        t.write([(i + number, "é" * 30, "b", "cccccc", None) for i in range(3)], how)
    return t


# ------------------------------------------------------------------------------------------------ what Java says


def hex_row(row: Any) -> str:
    return bytes(java("utils.SerializationUtils").serializeBinaryRow(row)).hex()


def numbers(array: Any) -> list[int | None]:
    return [None if array.isNullAt(i) else int(array.getLong(i)) for i in range(int(array.size()))]


def stats_facts(stats: Any) -> dict[str, Any]:
    return {"min": hex_row(stats.minValues()), "max": hex_row(stats.maxValues()), "nulls": numbers(stats.nullCounts())}


def maybe(value: Any, convert: Callable[[Any], Any]) -> Any:
    return None if value is None else convert(value)


def texts(values: Any) -> list[str]:
    return [str(value) for value in values]


def optional(thing: Any, name: str, convert: Callable[[Any], Any]) -> Any:
    """A member that older releases lack."""
    return maybe(getattr(thing, name)(), convert) if hasattr(thing, name) else None


def entry_facts(entry: Any) -> dict[str, Any]:
    file = entry.file()
    deleted = file.deleteRowCount()
    external = file.externalPath() if hasattr(file, "externalPath") else None
    source = file.fileSource() if hasattr(file, "fileSource") else None
    return {
        "kind": int(entry.kind().toByteValue()),
        "partition": hex_row(entry.partition()),
        "bucket": int(entry.bucket()),
        "total_buckets": int(entry.totalBuckets()),
        "file_name": str(file.fileName()),
        "file_size": int(file.fileSize()),
        "row_count": int(file.rowCount()),
        "min_key": hex_row(file.minKey()),
        "max_key": hex_row(file.maxKey()),
        "key_stats": stats_facts(file.keyStats()),
        "value_stats": stats_facts(file.valueStats()),
        "min_sequence": int(file.minSequenceNumber()),
        "max_sequence": int(file.maxSequenceNumber()),
        "schema_id": int(file.schemaId()),
        "level": int(file.level()),
        "extra_files": texts(file.extraFiles()),
        "creation_time_ms": int(file.creationTime().getMillisecond()),
        "delete_row_count": int(deleted.get()) if deleted.isPresent() else None,
        "embedded_index": maybe(file.embeddedIndex(), lambda data: bytes(data).hex()),
        "file_source": int(source.get().toByteValue()) if source is not None and source.isPresent() else None,
        "value_stats_cols": optional(file, "valueStatsCols", texts),
        "external_path": str(external.get()) if external is not None and external.isPresent() else None,
        "first_row_id": optional(file, "firstRowId", int),
        "write_cols": optional(file, "writeCols", texts),
    }


def meta_facts(meta: Any) -> dict[str, Any]:
    return {
        "file_name": str(meta.fileName()),
        "file_size": int(meta.fileSize()),
        "num_added": int(meta.numAddedFiles()),
        "num_deleted": int(meta.numDeletedFiles()),
        "partition_stats": stats_facts(meta.partitionStats()),
        "schema_id": int(meta.schemaId()),
        **{
            name: optional(meta, java_name, int)
            for name, java_name in (
                ("min_bucket", "minBucket"),
                ("max_bucket", "maxBucket"),
                ("min_level", "minLevel"),
                ("max_level", "maxLevel"),
                ("min_row_id", "minRowId"),
                ("max_row_id", "maxRowId"),
            )
        },
    }


def index_facts(entry: Any) -> dict[str, Any]:
    file = entry.indexFile()
    return {
        "kind": int(entry.kind().toByteValue()),
        "partition": hex_row(entry.partition()),
        "bucket": int(entry.bucket()),
        "index_type": str(file.indexType()),
        "file_name": str(file.fileName()),
        "file_size": int(file.fileSize()),
        "row_count": int(file.rowCount()),
    }


def snapshot_facts(table: Any, snapshot: Any) -> dict[str, Any]:
    store = table.store()
    lists = store.manifestListFactory().create()
    index = snapshot.indexManifest()
    path_of = store.pathFactory().getPartitionString
    entries = list(store.newScan().withSnapshot(snapshot.id()).plan().files())
    partitions = {hex_row(entry.partition()): entry.partition() for entry in entries}
    return {
        "document": json.loads(str(snapshot.toJson())),
        "files": [entry_facts(entry) for entry in entries],
        "data": [meta_facts(meta) for meta in lists.readDataManifests(snapshot)],
        "delta": [meta_facts(meta) for meta in lists.readDeltaManifests(snapshot)],
        "changelog": [meta_facts(meta) for meta in lists.readChangelogManifests(snapshot)],
        "index": []
        if index is None
        else [index_facts(entry) for entry in store.indexManifestFileFactory().create().read(index)],
        "partition_paths": {row: str(path_of(partition)) for row, partition in partitions.items()},
    }


def view_facts(table: Table) -> dict[str, Any]:
    """Everything Java decodes from one branch of a table."""
    loaded = table.load()
    manager = loaded.snapshotManager()
    ids = range(int(manager.earliestSnapshotId() or 0), int(manager.latestSnapshotId() or -1) + 1)
    if len(ids) > 20:  # the first, the last, and some between
        ids = [*ids[:-2:9], *ids[-2:]]
    found = loaded.statistics()
    return {
        "snapshots": {i: snapshot_facts(loaded, manager.snapshot(i)) for i in ids if manager.snapshotExists(i)},
        "fields": table.fields(),
        "statistics": json.loads(str(found.get().toJson())) if found.isPresent() else None,
        "tags": {
            str(name): int(snapshot.id())
            for snapshot, names in dict(loaded.tagManager().tags()).items()
            for name in names
        },
        "consumers": {str(k): int(v) for k, v in dict(table.consumer_manager().consumers()).items()},
    }


def write_tables(version: str, folder: Path, only: tuple[str, ...] = ()) -> None:
    """Run the scenarios that the release can do, and write `expected.json`."""
    oracle.start(version)
    catalog = Catalog(folder)
    expected = {}
    for name, write in SCENARIOS.items():
        if name in MISSING[version] or (only and name not in only):
            continue
        table = write(catalog)
        branches = texts(table.load().branchManager().branches())
        expected[name] = {
            branch: view_facts(table if branch == "main" else table.branch(branch)) for branch in ("main", *branches)
        }
    (folder / "expected.json").write_text(json.dumps(expected, indent=1))


if __name__ == "__main__":
    write_tables(sys.argv[1], Path(sys.argv[2]), tuple(sys.argv[3:]))
