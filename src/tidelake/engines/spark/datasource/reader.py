"""The reading half of the data source: the driver plans once and packs splits into tasks, which return Arrow batches.

The reader accepts a filter only if it means exactly the same here as in Spark; Spark applies the others. Invariant: the
result is the same, whichever filters the reader accepts.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Self

import pyarrow as pa
from pyspark.sql import datasource as ds
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceReader, InputPartition

from tidelake.engines.spark.bridge.grants import TableRef
from tidelake.engines.spark.bridge.tasks import balance
from tidelake.engines.spark.read.source_rows import read_source_rows
from tidelake.expr.tree import And, Compare, In, IsNull, Not, Predicate, StartsWith
from tidelake.ops.read.placed import hidden_among, require_raw
from tidelake.ops.scan.planner import conjunction
from tidelake.query import ROWKIND, Scan, Shape, with_request
from tidelake.spec.types.data_types import DataType, Root
from tidelake.table import Table
from tidelake.table.placed import PlacedScan

_OPERATORS: Final[Mapping[type[ds.Filter], str]] = {
    ds.EqualTo: "=",
    ds.LessThan: "<",
    ds.LessThanOrEqual: "<=",
    ds.GreaterThan: ">",
    ds.GreaterThanOrEqual: ">=",
}
_INTEGERS: Final = {Root.TINYINT: 8, Root.SMALLINT: 16, Root.INT: 32, Root.BIGINT: 64}
_TEXTS: Final = frozenset({Root.CHAR, Root.VARCHAR})


@dataclass(slots=True)
class TableReader(DataSourceReader):
    """Reads columns of a table; every task reads some of the planned splits."""

    ref: TableRef
    struct: spark.StructType
    tasks: int | None
    where: Predicate | None = None
    kinds: bool = False
    """Whether the kinds of rows come in front, as in the audit log."""

    @classmethod
    def of(
        cls,
        table: Table,
        struct: spark.StructType,
        tasks: int | None,
        where: str | None = None,
        *,
        kinds: bool = False,
    ) -> Self:
        """A reader of columns of the table, and of the rows that match a condition.

        Raises:
            InvalidInputError: other processes cannot reach the storage, or the condition cannot be parsed.
        """
        ref = TableRef.of(table.name, table.store, table.dynamic)
        return cls(ref, struct, tasks, table.scan(where=where).where, kinds)

    def partitions(self) -> list[InputPartition]:
        """The splits of the newest snapshot, or of the one that the options name, packed by size."""
        scan = self._scan(self.ref.open())
        splits = scan.splits()
        require_raw(splits, hidden_among(self.struct.names, scan.schema))
        bins = balance(splits, lambda split: split.size, self.tasks or os.cpu_count() or 1)
        return [InputPartition(each) for each in bins if each]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of the splits of one task."""
        table = self.ref.open()
        request = self._scan(table).request()
        yield from read_source_rows(table.context, partition.value or (), request, self.struct)

    def _scan(self, table: Table) -> Scan:
        own = self.struct.names if not self.kinds else [name for name in self.struct.names if name != ROWKIND]
        scan = table.scan(own or table.schema.names[:1], self.where)
        if self.kinds and isinstance(scan, PlacedScan):
            scan.refuse_changes()
        return with_request(scan, shape=Shape.AUDIT_LOG) if self.kinds else scan


class PushingReader(TableReader):
    """A reader that accepts filters of Spark."""

    __slots__ = ()

    def pushFilters(self, filters: list[ds.Filter]) -> Iterable[ds.Filter]:  # noqa: N802 - PySpark's name
        """Accept the filters that mean the same here, and return the others to Spark."""
        types = {field.name: field.type for field in self.ref.schema.fields}
        accepted: list[Predicate] = []
        returned: list[ds.Filter] = []
        for each in filters:
            found = to_predicate(each, types)
            if found is None:
                returned.append(each)
            else:
                accepted.append(found)
        if accepted:
            self.where = conjunction(self.where, And(tuple(accepted)))
        return returned


def to_predicate(condition: ds.Filter, types: Mapping[str, DataType]) -> Predicate | None:
    """Translate a filter of Spark; None if no condition keeps exactly the same rows."""
    if isinstance(condition, ds.Not):
        inner = to_predicate(condition.child, types)
        return None if inner is None else Not(inner)
    path: tuple[str, ...] = getattr(condition, "attribute", ())
    if len(path) != 1 or path[0] not in types:
        return None
    name, dtype = path[0], types[path[0]]
    match condition:
        case ds.IsNull():
            return IsNull(name)
        case ds.IsNotNull():
            return Not(IsNull(name))
        case ds.StringStartsWith(value=prefix) if dtype.root in _TEXTS:
            return StartsWith(name, prefix)
        case ds.In(value=values) if values and all(_is_exact(value, dtype) for value in values):
            return In(name, tuple(values))
        case ds.EqualNullSafe(value=None):
            return IsNull(name)
        case ds.EqualNullSafe(value=value) if _is_exact(value, dtype):
            # The first part keeps this from being null for rows without a value, so that NOT keeps them, as in Spark.
            return And((Not(IsNull(name)), Compare(name, "=", value)))
    op = _OPERATORS.get(type(condition))
    if op is None or not _is_exact(getattr(condition, "value", None), dtype):
        return None
    return Compare(name, op, condition.value)  # type: ignore[attr-defined]


def _is_exact(value: Any, dtype: DataType) -> bool:
    """Whether a value can be compared with a column of this type without a cast, here and in Spark."""
    root = dtype.root
    if isinstance(value, bool) or root is Root.BOOLEAN:
        return isinstance(value, bool) and root is Root.BOOLEAN
    if root in _INTEGERS:
        limit = 1 << (_INTEGERS[root] - 1)
        return isinstance(value, int) and -limit <= value < limit
    if root is Root.DOUBLE:
        return isinstance(value, float)
    if root is Root.DECIMAL:
        return isinstance(value, Decimal) and value.is_finite()
    if root in _TEXTS:
        return isinstance(value, str)
    if root is Root.DATE:
        return isinstance(value, dt.date) and not isinstance(value, dt.datetime)
    return False
