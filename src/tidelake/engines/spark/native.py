"""Files that Spark's own Parquet reader reads exactly as we do: without a merge, with types that it knows.

Columns are found by field id, so a file is read with the names of the schema it was written with; files of one schema
make one frame. Spark lists every path it is given: above a number of them Arrow is the faster way.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructField, StructType

from tidelake.engines.spark.conditions import to_column
from tidelake.engines.spark.types import to_spark
from tidelake.files.options import format_of
from tidelake.ops.scan.options import ReadOptions
from tidelake.ops.scan.split import Split
from tidelake.query import Scan
from tidelake.spec.schema import Schema
from tidelake.spec.types import DataType, Field, Root, TimeType, walk, with_nullable

PATHS_MAX: Final = 10_000
SCHEMES_CONF: Final = "spark.tidelake.native.schemes"
"""Schemes of storages that Spark can read itself, as `s3=s3a,gs=gs`; folders always are."""
_GLOB: Final = re.compile(r"[\[\]{}*?\\]")
_READABLE: Final = frozenset(
    {
        Root.BOOLEAN, Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT, Root.FLOAT, Root.DOUBLE, Root.DECIMAL,
        Root.CHAR, Root.VARCHAR, Root.BINARY, Root.VARBINARY, Root.DATE, Root.TIMESTAMP, Root.TIMESTAMP_LTZ, Root.ARRAY,
        Root.MAP, Root.ROW,
    }
)  # fmt: skip
_WIDER: Final = {
    Root.TINYINT: (Root.SMALLINT, Root.INT, Root.BIGINT),
    Root.SMALLINT: (Root.INT, Root.BIGINT),
    Root.INT: (Root.BIGINT,),
    Root.FLOAT: (Root.DOUBLE,),
}
_OPTIONS: Final = {
    "recursiveFileLookup": "true",  # or folder names would become columns
    "mergeSchema": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "parquet.page.verify-checksum.enabled": "true",
}


class NativeReader:
    """Reads what Spark can read itself, for one scan."""

    def __init__(self, spark: SparkSession, scan: Scan) -> None:
        self._spark, self._scan = spark, scan
        self._prefix = _prefix(scan.store.env.io.root, spark.conf.get(SCHEMES_CONF, "") or "")
        self._fields = [scan.schema.field(name) for name in scan.columns]
        types = {field.name: field.type for field in scan.schema.fields}
        self._where = None if scan.where is None else to_column(scan.where, types)
        forgiving = ReadOptions.parse(scan.options).forgiving
        plain = scan.changes is None and (scan.where is None or self._where is not None)
        self._usable = self._prefix is not None and plain and not forgiving
        self._known: dict[int, Schema | None] = {}

    def takes(self, split: Split) -> bool:
        """Whether Spark's reader gives the rows of a split."""
        return (
            self._usable
            and split.raw_convertible
            and split.branch is None
            and not _GLOB.search(split.bucket_path)
            and all(
                file.external_path is None and format_of(file.file_name) == "parquet" and self._schema(file.schema_id)
                for file in split.files
            )
        )

    def _schema(self, schema_id: int) -> Schema | None:
        if schema_id not in self._known:
            schema = self._scan.store.schemas.get(schema_id)
            by_id = {field.id: field for field in schema.fields}
            needed = {*self._scan.columns, *(self._scan.where.columns() if self._scan.where is not None else ())}
            wanted = [self._scan.schema.field(name) for name in needed]
            fits = all(field.id not in by_id or _reads_as(by_id[field.id].type, field.type) for field in wanted)
            self._known[schema_id] = schema if fits else None
        return self._known[schema_id]

    def frames(self, splits: Sequence[Split]) -> list[DataFrame]:
        """One frame for the files of each schema."""
        paths: defaultdict[int, list[str]] = defaultdict(list)
        for split in splits:
            for file in split.files:
                paths[file.schema_id].append(f"{self._prefix}/{split.path_of(file)}")
        return [self._frame(schema_id, found) for schema_id, found in sorted(paths.items())]

    def _frame(self, schema_id: int, paths: list[str]) -> DataFrame:
        schema = self._schema(schema_id)
        assert schema is not None
        by_id = {field.id: field for field in schema.fields}
        extra = sorted(
            (self._scan.where.columns() if self._scan.where is not None else set()) - set(self._scan.columns)
        )
        wanted = [*self._fields, *(self._scan.schema.field(name) for name in extra)]
        stored = {by_id[field.id].name: by_id[field.id] for field in wanted if field.id in by_id}
        read = StructType([StructField(name, to_spark(field.type), True) for name, field in stored.items()])
        rows = self._spark.read.schema(read).options(**_OPTIONS).parquet(*paths)
        rows = rows.select(*(_column(field, by_id.get(field.id)) for field in wanted))
        if self._where is not None:
            rows = rows.filter(self._where)
        return rows.select(*(_named(field.name) for field in self._fields)) if extra else rows


def _column(field: Field, stored: Field | None) -> Column:
    target = to_spark(field.type)
    if stored is None:
        return f.lit(None).cast(target).alias(field.name)
    found = _named(stored.name)
    if to_spark(stored.type) != target:
        found = found.cast(target)
    return found.alias(field.name) if stored.name != field.name or to_spark(stored.type) != target else found


def _named(name: str) -> Column:
    return f.col(f"`{name.replace('`', '``')}`")


def _reads_as(stored: DataType, wanted: DataType) -> bool:
    """Whether Spark reads a stored column as the wanted type, value by value as we do."""
    for each in walk(stored):
        if each.root not in _READABLE or (isinstance(each, TimeType) and each.precision > 6):
            return False
    if with_nullable(stored, True) == with_nullable(wanted, True):
        return True
    return wanted.root in _WIDER.get(stored.root, ())


def _prefix(location: str, schemes: str) -> str | None:
    """What Spark calls the location; None where it cannot read there."""
    if _GLOB.search(location):
        return None
    if "://" not in location:
        return f"file://{location}"
    scheme, _, rest = location.partition("://")
    known = dict(each.strip().split("=", 1) for each in schemes.split(",") if "=" in each)
    return f"{known[scheme]}://{rest}" if scheme in known else None
