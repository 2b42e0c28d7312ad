"""DELETE and UPDATE of primary-key tables: matching rows are read and written again as deletions or as new versions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import pyarrow as pa

from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.expr.tree import Predicate
from tidelake.lsm.engines.build import MergeEngine, MergeOptions
from tidelake.ops.read.append import ReadRequest
from tidelake.ops.read.rows import read_rows
from tidelake.ops.scan.batch import BatchRead, plan_batch
from tidelake.ops.write.keyed import KeyedTableWriter
from tidelake.ops.write.kinds import KINDS
from tidelake.spec.schema import Schema
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore


def matching_rows(
    store: TableStore, paths: DataPaths, options: Mapping[str, str], where: Predicate
) -> Iterator[pa.RecordBatch]:
    """The rows of the newest snapshot that a condition keeps, whole."""
    plan = plan_batch(store, BatchRead(schema=store.schema, paths=paths, where=where, options=options))
    request = ReadRequest(schema=store.schema, columns=store.schema.names, where=where)
    return read_rows(store, plan.splits, request, options)


def check_delete(options: Mapping[str, str]) -> None:
    """Look whether deletions can be written to a table.

    Raises:
        UnsupportedError: its merge engine makes nothing of them.
    """
    merge = MergeOptions.parse(options)
    accepts = {
        MergeEngine.DEDUPLICATE: not merge.ignore_delete,
        MergeEngine.PARTIAL_UPDATE: merge.remove_on_delete or bool(merge.remove_on_group),
        MergeEngine.AGGREGATION: merge.aggregation_remove_on_delete,
        MergeEngine.FIRST_ROW: False,
    }
    if not accepts[merge.engine]:
        hints = {
            MergeEngine.DEDUPLICATE: "create the table without ignore-delete",
            MergeEngine.PARTIAL_UPDATE: "create the table with partial-update.remove-record-on-delete=true",
            MergeEngine.AGGREGATION: "create the table with aggregation.remove-record-on-delete=true",
            MergeEngine.FIRST_ROW: "choose another merge engine",
        }
        raise UnsupportedError(
            "merge engine of the table takes no deletions",
            option="merge-engine",
            value=merge.engine.value,
            hint=hints[merge.engine],
        )


def check_update(schema: Schema, options: Mapping[str, str], columns: Iterable[str]) -> None:
    """Look whether columns of a table can be given new values.

    Raises:
        InvalidInputError: a column is part of the primary key.
        UnsupportedError: a new version would not replace the old one.
    """
    key = next((name for name in columns if name in schema.primary_keys), None)
    if key is not None:
        raise InvalidInputError(
            "primary key cannot be changed", column=key, hint="delete the row and write it with its new key"
        )
    merge = MergeOptions.parse(options)
    if merge.engine in (MergeEngine.AGGREGATION, MergeEngine.FIRST_ROW):
        raise UnsupportedError(
            "a new version does not replace the row in this table",
            option="merge-engine",
            value=merge.engine.value,
            hint="write the rows whose merge gives the wanted values",
        )


def write_again(
    writer: KeyedTableWriter,
    rows: Iterable[pa.RecordBatch],
    kind: str,
    change: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda batch: batch,
) -> int:
    """Write rows with one kind; returns how many."""
    count = 0
    for batch in rows:
        changed = change(batch)
        writer.write(changed, pa.repeat(pa.scalar(KINDS[kind], pa.int8()), changed.num_rows))
        count += changed.num_rows
    return count
