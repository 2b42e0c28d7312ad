"""Read files with Spark's own Parquet reader, where its result is the same as ours: no merge, and types that it knows.

A field id connects a column of the table with that of a file, so a file is read with the names of the schema that it
was written with. All files of one schema make one frame; those with deletion vectors make another. Invariant: what
Spark would skip silently (hidden files, files that it may ignore as corrupt, rows that it prunes by bounds without
NaN) is read by us, or the read fails.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructField, StructType

from tidelake.engines.spark.bridge.conditions import column_named, to_column
from tidelake.engines.spark.bridge.types import comment_of, to_spark
from tidelake.engines.spark.read.deletion_vectors import (
    METADATA,
    VECTOR_FILES_MAX,
    VECTOR_ROWS_MAX,
    SplitFile,
    drop_deleted_rows,
    has_vector,
)
from tidelake.errors import FormatError, NotFoundError
from tidelake.files.options import format_of
from tidelake.files.read.data_file import check_same
from tidelake.files.write.keyed import keyed_fields
from tidelake.ops.scan.options import ReadOptions
from tidelake.ops.scan.split import Split
from tidelake.query import Scan
from tidelake.spec.data_file import DataFile
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.data_types import DataType, Field, Root, RowType, TimeType, walk, with_nullable

PATHS_MAX: Final = 2_000
"""The most files of a native read: Spark asks the storage about every path it is given."""
PATHS_FREE: Final = 32
"""Files that Spark lists on the driver. For more it starts a job, which pays only if the files are large."""
PATH_BYTES: Final = 1 << 20
"""How large the files have to be on average to pay for that job."""
SCHEMES_CONF: Final = "spark.tidelake.native.schemes"
"""Schemes of storages that Spark can read itself, as `s3=s3a,gs=gs`; it can always read local folders."""
_GLOB: Final = re.compile(r"[\[\]{}*?\\]")
_UNSEEN: Final = re.compile(r"[_.].*|.*:.*|.*\._COPYING_")
"""Names of files that Spark skips, or cannot open."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]+")
"""Names that Spark reports in `_metadata.file_name` without escaping."""
_FLOATS: Final = frozenset({Root.FLOAT, Root.DOUBLE})
_READABLE: Final = frozenset(
    {
        Root.BOOLEAN, Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT, Root.FLOAT, Root.DOUBLE, Root.DECIMAL,
        Root.CHAR, Root.VARCHAR, Root.BINARY, Root.VARBINARY, Root.DATE, Root.TIMESTAMP, Root.TIMESTAMP_LTZ, Root.ARRAY,
        Root.MAP, Root.ROW,
    }
)  # fmt: skip
_MICROS: Final = 6
_WIDER: Final = {
    Root.TINYINT: (Root.SMALLINT, Root.INT, Root.BIGINT),
    Root.SMALLINT: (Root.INT, Root.BIGINT),
    Root.INT: (Root.BIGINT,),
    Root.FLOAT: (Root.DOUBLE,),
}
_OPTIONS: Final = {
    "recursiveFileLookup": "true",  # otherwise Spark makes columns of folder names such as `dt=1`
    "mergeSchema": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "parquet.page.verify-checksum.enabled": "true",
    "ignoreCorruptFiles": "false",  # overrides the session, in which rows would be missing silently
    "ignoreMissingFiles": "false",
}


class NativeReader:
    """Reads the files of one scan that Spark can read itself."""

    def __init__(self, spark: SparkSession, scan: Scan, columns: Sequence[str]) -> None:
        self._spark, self._scan = spark, scan
        self._prefix = _prefix(scan.store.env.io.root, spark.conf.get(SCHEMES_CONF, "") or "")
        self._fields = [scan.schema.field(name) for name in columns]
        types = {field.name: field.type for field in scan.schema.fields}
        self._where = None if scan.where is None else to_column(scan.where, types)
        looked_at = set() if scan.where is None else scan.where.columns()
        self._needed = [*self._fields, *(scan.schema.field(name) for name in sorted(looked_at - set(columns)))]
        may_skip_files = scan.options.of(ReadOptions).may_skip_files
        said = scan.where is None or self._where is not None
        self._usable = self._prefix is not None and said and not may_skip_files
        self._known: dict[int, Schema | None] = {}

    def choose_splits(self, splits: Sequence[Split]) -> list[Split]:
        """The splits that Spark should read itself; none if listing the files would take longer than reading them."""
        found = [split for split in splits if self._fits(split)]
        with_vector = [file for split in found for file in split.files if has_vector(split, file)]
        many = len(with_vector) > VECTOR_FILES_MAX or sum(file.row_count for file in with_vector) > VECTOR_ROWS_MAX
        if many or any(field.name.lower() == METADATA for field in self._needed):
            found = [split for split in found if not any(has_vector(split, file) for file in split.files)]
        paths = sum(len(split.files) for split in found)
        few = paths <= PATHS_FREE or sum(split.size for split in found) >= paths * PATH_BYTES
        return found if few and paths <= PATHS_MAX else []

    def frames(self, splits: Sequence[Split]) -> list[DataFrame]:
        """One frame for the files of each schema.

        Raises:
            FormatError: a file is missing, or is not the one that the manifest describes.
        """
        self._scan.store.env.executor.map(self._check, ((split, file) for split in splits for file in split.files))
        groups: defaultdict[tuple[int, bool], list[SplitFile]] = defaultdict(list)
        for split in splits:
            for file in split.files:
                groups[file.schema_id, has_vector(split, file)].append((split, file))
        return [self._frame(schema_id, files, vectors) for (schema_id, vectors), files in sorted(groups.items())]

    def _check(self, split_file: SplitFile) -> None:
        split, file = split_file
        path = split.path_of(file)
        try:
            check_same("bytes", self._scan.store.env.io.status(path).size, file.file_size, path)
        except NotFoundError as cause:
            raise self._missing_error(cause) from cause

    def _missing_error(self, cause: Exception) -> FormatError:
        return FormatError(
            "data file is missing",
            code="file-missing",
            table=self._scan.store.env.io.root,
            cause=str(cause)[:300],
            hint="open the table again in case its snapshot expired or the table was dropped; otherwise run check()",
        )

    def _fits(self, split: Split) -> bool:
        return (
            self._usable
            and split.raw_convertible
            and split.branch is None
            and not _GLOB.search(split.bucket_path)
            and all(self._fits_file(file) for file in split.files)
            and not any(has_vector(split, file) and not _PLAIN.fullmatch(file.file_name) for file in split.files)
        )

    def _fits_file(self, file: DataFile) -> bool:
        name = file.file_name
        return (
            file.external_path is None
            and format_of(name) == "parquet"
            and not _GLOB.search(name)
            and not _UNSEEN.fullmatch(name)
            and self._schema(file.schema_id) is not None
        )

    def _schema(self, schema_id: int) -> Schema | None:
        """The schema of files, if Spark reads these as we do; else None."""
        if schema_id not in self._known:
            schema = self._scan.store.schemas.get(schema_id)
            by_id = {field.id: field for field in schema.fields}
            fits = all(field.id not in by_id or _reads_as(by_id[field.id].type, field.type) for field in self._needed)
            self._known[schema_id] = schema if fits and not _ambiguous(schema) else None
        return self._known[schema_id]

    def _frame(self, schema_id: int, files: Sequence[SplitFile], vectors: bool) -> DataFrame:
        schema = self._schema(schema_id)
        assert schema is not None
        by_id = {field.id: field for field in schema.fields}
        stored = {by_id[field.id].name: by_id[field.id] for field in self._needed if field.id in by_id}
        read = StructType([StructField(name, to_spark(field.type), True) for name, field in stored.items()])
        paths = [f"{self._prefix}/{split.path_of(file)}" for split, file in files]
        try:
            rows = self._spark.read.schema(read).options(**_OPTIONS).parquet(*paths)
        except AnalysisException as cause:
            if cause.getCondition() != "PATH_NOT_FOUND":
                raise
            raise self._missing_error(cause) from cause
        if vectors:
            rows = drop_deleted_rows(self._spark, self._scan.store, rows, files)
        rows = rows.select(*(_column(field, by_id.get(field.id)) for field in self._needed))
        if self._where is not None:
            rows = rows.filter(self._where)
        if len(self._needed) > len(self._fields):
            rows = rows.select(*(column_named(field.name) for field in self._fields))
        return rows


def _column(field: Field, stored: Field | None) -> Column:
    target = to_spark(field.type)
    if stored is None:
        found = f.lit(None).cast(target)
    else:
        found = column_named(stored.name)
        if stored.type.root in _FLOATS:
            # The value stays the same, but Spark pushes no filter on this expression down to its Parquet reader. That
            # reader would prune by bounds that ignore NaN, and treats -0.0 and 0.0 in a dictionary as different.
            found = f.nanvl(found, found)
        if to_spark(stored.type) != target:
            found = found.cast(target)
    return found.alias(field.name, metadata=comment_of(field))


def _ambiguous(schema: Schema) -> bool:
    """Whether two columns, or two nested fields of one, differ only by case, which Spark ignores by default."""
    fields = keyed_fields(schema) if schema.primary_keys else schema.fields
    inner = (each for field in fields for each in walk(field.type))
    members = [fields, *(each.fields for each in inner if isinstance(each, RowType))]
    return any(len({field.name.lower() for field in each}) < len(each) for each in members)


def _reads_as(stored: DataType, wanted: DataType) -> bool:
    """Whether Spark converts a stored column to the requested type exactly as we do."""
    inner = list(walk(stored))
    if any(each.root not in _READABLE or (isinstance(each, TimeType) and each.precision > _MICROS) for each in inner):
        return False
    if stored.root is Root.ROW and any(each.root in _FLOATS for each in inner):
        return False  # Spark pushes filters on nested fields down too, and `_column` does not protect those
    if with_nullable(stored, True) == with_nullable(wanted, True):
        return True
    return wanted.root in _WIDER.get(stored.root, ())


def _prefix(location: str, schemes: str) -> str | None:
    """The location as Spark spells it; None if Spark cannot read it."""
    if _GLOB.search(location):
        return None
    if "://" not in location:
        return f"file://{location}"
    scheme, _, rest = location.partition("://")
    known = dict(each.strip().split("=", 1) for each in schemes.split(",") if "=" in each)
    return f"{known[scheme]}://{rest}" if scheme in known else None
