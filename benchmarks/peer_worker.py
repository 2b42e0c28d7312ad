"""Runs in the peers' environment: pypaimon and deltalake do the same work. One JSON line in, one out."""

from __future__ import annotations

import json
import sys
import time
import uuid

HANDLERS = {}


def handler(function):
    HANDLERS[function.__name__] = function
    return function


def _table(warehouse, name, options=None):
    from pypaimon import CatalogFactory

    table = CatalogFactory.create({"warehouse": warehouse}).get_table(name)
    return table.copy(options) if options else table


@handler
def plan(warehouse, name, day, native):
    started = time.perf_counter()
    table = _table(warehouse, name, {"scan.native-plan.enabled": str(native).lower()})
    builder = table.new_read_builder()
    builder = builder.with_filter(builder.new_predicate_builder().equal("dt", day))
    splits = builder.new_scan().plan().splits()
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "files": sum(len(split.files) for split in splits)}


def _paimon_table(warehouse, name):
    import pyarrow as pa
    from pypaimon import CatalogFactory, Schema

    catalog = CatalogFactory.create({"warehouse": warehouse})
    catalog.create_database("bench", True)
    schema = pa.schema([("id", pa.int64()), ("v", pa.float64()), ("s", pa.string()), ("dt", pa.string())])
    catalog.create_table(name, Schema.from_pyarrow_schema(schema, partition_keys=["dt"]), True)
    return catalog.get_table(name)


def _message(table, count):
    """One written file, described `count` times under new names."""
    import copy

    import pyarrow as pa

    write = table.new_batch_write_builder().new_write()
    write.write_arrow(pa.table({"id": [1], "v": [1.0], "s": ["x"], "dt": ["d00001"]}))
    messages = write.prepare_commit()
    write.close()
    first = messages[0].new_files[0]
    files = []
    for _ in range(count):
        each = copy.copy(first)
        each.file_name = f"data-{uuid.uuid4()}-0.parquet"
        files.append(each)
    messages[0].new_files[:] = files
    return messages


@handler
def small_commits(warehouse, name, count, native):
    """Seconds of each of `count` more commits of one file."""
    table = _paimon_table(warehouse, name)
    if native:
        table = table.copy({"commit.native.enabled": "true"})
    times = []
    for _ in range(count):
        messages = _message(table, 1)
        builder = table.new_batch_write_builder()
        commit = builder.new_commit()
        started = time.perf_counter()
        commit.commit(messages)
        times.append(time.perf_counter() - started)
        commit.close()
    return {"seconds": sum(times), "times": times}


@handler
def big_commit(warehouse, name, files, native):
    table = _paimon_table(warehouse, name)
    if native:
        table = table.copy({"commit.native.enabled": "true"})
    messages = _message(table, files)
    commit = table.new_batch_write_builder().new_commit()
    started = time.perf_counter()
    commit.commit(messages)
    seconds = time.perf_counter() - started
    commit.close()
    return {"seconds": seconds}


@handler
def delta_commits(path, count):
    """Seconds of each of `count` more commits of one file to a Delta table."""
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake
    from deltalake.transaction import AddAction

    row = pa.table({"id": [1], "dt": ["d"]})
    if not DeltaTable.is_deltatable(path):
        write_deltalake(path, row)
    times = []
    table = DeltaTable(path)
    schema = table.schema()
    for _ in range(count):
        action = AddAction(f"part-{uuid.uuid4()}.parquet", 1000, {}, 1_790_000_000_000, True, "{}")
        started = time.perf_counter()
        table.create_write_transaction([action], "append", schema)
        table.update_incremental()
        times.append(time.perf_counter() - started)
    return {"seconds": sum(times), "times": times}


# ------------------------------------------------------------------------------------------------ rows of key tables

NATIVE = {f"{name}.enabled": "true" for name in ("scan.native-plan", "read.native", "commit.native", "write.native")}


@handler
def sql(warehouse, query):
    from pypaimon_rust.datafusion import SQLContext

    started = time.perf_counter()
    context = SQLContext()
    context.register_catalog("paimon", {"warehouse": warehouse}, "bench")
    rows = sum(batch.num_rows for batch in context.sql(query))
    return {"seconds": time.perf_counter() - started, "rows": rows}


@handler
def paimon_load(warehouse, source, buckets):
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pypaimon import CatalogFactory, Schema

    rows = pq.read_table(source)
    fields = [pa.field(f.name, f.type, nullable=f.name != "k") for f in rows.schema]
    catalog = CatalogFactory.create({"warehouse": warehouse})
    catalog.create_database("bench", True)
    options = {"bucket": str(buckets), **NATIVE}
    schema = Schema.from_pyarrow_schema(pa.schema(fields), primary_keys=["k"], options=options)
    catalog.create_table("bench.t", schema, True)
    started = time.perf_counter()
    _paimon_write(catalog.get_table("bench.t"), rows.cast(pa.schema(fields)))
    return {"seconds": time.perf_counter() - started}


def _paimon_write(table, rows):
    builder = table.new_batch_write_builder()
    write, commit = builder.new_write(), builder.new_commit()
    write.write_arrow(rows)
    commit.commit(write.prepare_commit())
    write.close()
    commit.close()


@handler
def paimon_upserts(warehouse, news):
    import pathlib
    import shutil

    import pyarrow as pa
    import pyarrow.parquet as pq

    copy = warehouse + "-copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(warehouse, copy)
    parts = [pq.read_table(path) for path in sorted(pathlib.Path(news).iterdir())]
    fields = pa.schema([pa.field(f.name, f.type, nullable=f.name != "k") for f in parts[0].schema])
    parts = [part.cast(fields) for part in parts]
    started = time.perf_counter()
    table = _table(copy, "bench.t")
    for part in parts:
        _paimon_write(table, part)
    reader = table.new_read_builder()
    rows = reader.new_read().to_arrow(reader.new_scan().plan().splits()).num_rows
    return {"seconds": time.perf_counter() - started, "rows": rows}


@handler
def delta_load(path, source):
    import pyarrow.parquet as pq
    from deltalake import write_deltalake

    rows = pq.read_table(source)
    started = time.perf_counter()
    write_deltalake(path, rows)
    return {"seconds": time.perf_counter() - started}


@handler
def delta_upserts(path, news, read=True):
    import pathlib
    import shutil

    import pyarrow.parquet as pq
    from deltalake import DeltaTable

    copy = path + "-copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(path, copy)
    parts = [pq.read_table(each) for each in sorted(pathlib.Path(news).iterdir())]
    started = time.perf_counter()
    table = DeltaTable(copy)
    for part in parts:
        merge = table.merge(part, "t.k = s.k", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    rows = DeltaTable(copy).to_pyarrow_table().num_rows if read else None
    return {"seconds": time.perf_counter() - started, "rows": rows}


def main():
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = HANDLERS[request.pop("work")](**request)
        except Exception as error:  # noqa: BLE001 - told to the other side
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
