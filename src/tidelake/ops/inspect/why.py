"""Every version of one key: its file, level and order, and the row that a read makes of all versions.

Versions that reads skip are listed too: deleted positions, and level-0 rows that wait for a compaction. Invariant: the
row is what a read of the table returns, made of the versions that are not hidden.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.expr.tree import And, Predicate, col
from tidelake.files.read.data_file import ROW_NUMBER
from tidelake.files.write.keyed import KIND_FIELD, SEQUENCE_FIELD
from tidelake.lsm.engine import KIND, SEQUENCE
from tidelake.lsm.engines.build import MergeEngine, MergeOptions
from tidelake.lsm.kernel import MergePlan, Piece, merge
from tidelake.lsm.ranks import sequence_ranks
from tidelake.notebook import pluralize
from tidelake.ops.context import TableContext
from tidelake.ops.read.append import deleted_rows, read_data_file
from tidelake.ops.read.keyed import Merging
from tidelake.ops.scan.keyed import plan_keyed
from tidelake.ops.scan.modes import State
from tidelake.ops.scan.request import ReadRequest
from tidelake.ops.scan.split import Split
from tidelake.spec.data_file import DataFile
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.schemas.schema import Schema
from tidelake.store.table_store import TableStore

_KINDS: Final = ("+I", "-U", "+U", "-D")
_MARKED, _WAITS = "marked as deleted", "waits for a compaction"
_RULES: Final = {
    MergeEngine.DEDUPLICATE: "the newest version wins, as it is",
    MergeEngine.PARTIAL_UPDATE: "each column has its newest value that is not null",
    MergeEngine.AGGREGATION: "each column is folded by its function, oldest version first",
    MergeEngine.FIRST_ROW: "the oldest version wins, as it is",
}


@dataclass(frozen=True, slots=True)
class Why:
    """The versions of a key, oldest first, and the row they make."""

    key: Mapping[str, Any]
    versions: pa.Table
    """Columns: file, level, sequence number, kind, why reads pass over it (null if not), then those of the table."""
    row: Mapping[str, Any] | None
    """What a read shows; None when the key is deleted or was never there."""
    rule: str

    def __str__(self) -> str:
        count = self.versions.num_rows
        if not count:
            return f"key {dict(self.key)}: no file holds a version of it, so it shows no row"
        lines = [f"key {dict(self.key)}: {pluralize(count, 'version')}; {self.rule}"]
        lines += [
            f"  {row['kind']} sequence {row['sequence']} level {row['level']} {row['file']}"
            + (f", {row['hidden']}" if row["hidden"] else "")
            for row in self.versions.to_pylist()
        ]
        return "\n".join([*lines, f"  shows {dict(self.row) if self.row is not None else 'no row'}"])


def why(context: TableContext, snapshot: Snapshot | None, key: Mapping[str, Any]) -> Why:
    """Explain one key at a snapshot.

    Raises:
        InvalidInputError: the table has no primary key, or the key is not whole.
    """
    store, schema, options = context.store, context.schema, context.options
    if not schema.primary_keys:
        raise InvalidInputError("table has no primary key", table=store.env.io.root, hint="filter its rows instead")
    wanted_key = ", ".join(schema.primary_keys)
    if not isinstance(key, Mapping):
        raise InvalidInputError(
            "key is not a mapping", got=type(key).__name__, hint=f"give {{column: value}} for {wanted_key}"
        )
    if set(key) != set(schema.primary_keys):
        raise InvalidInputError(
            "key does not have exactly the columns of the primary key",
            given=", ".join(map(str, key)) or "nothing",
            hint=f"give a value for each of {wanted_key}",
        )
    if None in key.values() and not any(schema.field(name).type.nullable for name in key if key[name] is None):
        raise InvalidInputError("a key column is never null", hint=f"give a value for each of {wanted_key}")
    parts: list[Predicate] = [col(name) == value for name, value in key.items()]
    where = And(tuple(parts))
    plan = plan_keyed(context, State(snapshot), ReadRequest(schema=schema, where=where, waiting=True))
    merge_options = options.of(MergeOptions)
    places: defaultdict[tuple[bytes, int], list[_Found]] = defaultdict(list)
    for split in plan.splits:
        for file in split.files:
            waits = file.level == 0 and merge_options.level0_waits
            places[split.partition, split.bucket] += _in_file(store, split, file, where, waits=waits)
    shape = Merging(schema, options).plan(by_age=False, ordered=True, drop_retracts=True)
    shown = {place: _merge_visible(found, shape, schema) for place, found in places.items()}
    # Sequence numbers order versions within a bucket. If the key moved between partitions, its old bucket shows no row.
    order = sorted(places, key=lambda place: shown[place] is not None)
    versions = _concat_nonempty([_versions(places[place], merge_options) for place in order])
    # The key as the table has it: a command line gives texts.
    known = {name: versions.column(name)[0].as_py() for name in key} if versions.num_rows else dict(key)
    return Why(known, versions, shown[order[-1]] if order else None, _rule(merge_options))


def _merge_visible(found: list[_Found], shape: MergePlan, schema: Schema) -> dict[str, Any] | None:
    """The row that the versions of one bucket make."""
    merged = merge([iter([each.visible]) for each in found], shape)
    rows = [row for table in merged for row in table.select(list(schema.names)).to_pylist()]
    return rows[0] if rows else None


def _concat_nonempty(tables: list[pa.Table]) -> pa.Table:
    some = [table for table in tables if table.num_rows]
    return pa.concat_tables(some) if some else pa.table({"file": pa.array([], pa.string())})


@dataclass(frozen=True, slots=True)
class _Found:
    """Versions in one batch of a file, and why each is hidden from reads."""

    file: DataFile
    rows: pa.Table
    hidden: pa.Array

    @property
    def visible(self) -> Piece:
        """Those that reads merge."""
        return Piece(self.rows.filter(self.hidden.is_null()), self.file.min_sequence, self.file.level)


def _in_file(store: TableStore, split: Split, file: DataFile, where: Predicate, *, waits: bool) -> Iterator[_Found]:
    schema = store.schema
    wanted = (SEQUENCE_FIELD, KIND_FIELD, *schema.fields)
    request = ReadRequest(schema=schema, columns=schema.names, where=where, stored=wanted, positions=True)
    marked = deleted_rows(store, split, file)
    for batch in read_data_file(store, replace(split, vectors={}), file, request):
        places = batch.column(ROW_NUMBER).to_numpy()
        gone = np.isin(places, marked) if marked is not None else np.zeros(len(places), dtype=bool)
        hidden = [_MARKED if is_gone else _WAITS if waits else None for is_gone in gone]
        yield _Found(file, pa.Table.from_batches([batch.drop_columns([ROW_NUMBER])]), pa.array(hidden, pa.string()))


def _versions(found: list[_Found], merge_options: MergeOptions) -> pa.Table:
    if not found:
        return pa.table({})
    rows = pa.concat_tables([each.rows for each in found])
    ties = [
        sequence_ranks(rows.column(each), descending=merge_options.is_descending) for each in merge_options.sequence
    ]
    order = np.lexsort((rows.column(SEQUENCE).to_numpy(), *reversed(ties)))
    counts = [each.rows.num_rows for each in found]
    names = np.array([each.file.file_name for each in found], dtype=object)
    system = {
        "file": pa.array(np.repeat(names, counts).tolist(), pa.string()),
        "level": pa.array(np.repeat([each.file.level for each in found], counts), pa.int32()),
        "sequence": rows.column(SEQUENCE),
        "kind": pa.array([_KINDS[kind] for kind in rows.column(KIND).to_pylist()]),
        "hidden": pa.chunked_array([each.hidden for each in found]),
    }
    values = {name: rows.column(name) for name in rows.column_names if name not in (SEQUENCE, KIND)}
    return pa.table(system | {name: value for name, value in values.items() if name not in system}).take(
        pa.array(order)
    )


def _rule(merge_options: MergeOptions) -> str:
    by = f"ordered by {', '.join(merge_options.sequence)}, then sequence number" if merge_options.sequence else ""
    return "; ".join(part for part in (_RULES[merge_options.engine], by) if part)
