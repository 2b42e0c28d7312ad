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
