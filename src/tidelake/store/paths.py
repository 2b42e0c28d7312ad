"""The folder of a partition and bucket, from the partition's bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelake.options import Affects, OptionGroup, option
from tidelake.spec.layout import TableLayout
from tidelake.spec.rows.binary_row_scalar import decode_row
from tidelake.spec.rows.partition_path import partition_path
from tidelake.spec.schemas.schema import Schema

_BOTH = (Affects.READ, Affects.WRITE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PathOptions(OptionGroup):
    """How partition folders are named and where data files are stored."""

    legacy_partition_name: bool = option(
        "partition.legacy-name", True, doc="Partition folders are named by plain values.", affects=_BOTH
    )
    default_partition_name: str = option(
        "partition.default-name", "__DEFAULT_PARTITION__", doc="Folder of null and blank values.", affects=_BOTH
    )
    data_directory: str | None = option(
        "data-file.path-directory", None, doc="Folder of the data inside the table.", affects=_BOTH, immutable=True
    )
    external_paths: str | None = option(
        "data-file.external-paths", None, doc="Roots outside the table that may contain its data files.", affects=_BOTH
    )
    index_beside_data: bool = option(
        "index-file-in-data-file-dir",
        False,
        doc="Store index files of a bucket in the folder of its data files.",
        affects=_BOTH,
        immutable=True,
    )


@dataclass(frozen=True, slots=True)
class DataPaths:
    """The folders of a table's partitions and buckets."""

    layout: TableLayout
    schema: Schema
    options: PathOptions
    _known: dict[bytes, str] = field(default_factory=dict, repr=False, compare=False)

    def partition(self, row: bytes) -> str:
        """The folder of a partition below the data folder; empty without partition columns.

        Raises:
            FormatError: the bytes are not a partition of this table.
        """
        if row not in self._known:
            schema = self.schema
            values = decode_row(row, schema.partition_types)
            path = partition_path(
                schema.partition_keys,
                values,
                schema.partition_types,
                legacy=self.options.legacy_partition_name,
                default_name=self.options.default_partition_name,
            )
            self._known[row] = path.rstrip("/")
        return self._known[row]

    def bucket(self, row: bytes, bucket: int) -> str:
        """The folder of a bucket of a partition."""
        return self.layout.bucket_dir(self.partition(row), bucket)

    def index(self, row: bytes, bucket: int, file_name: str) -> str:
        """The path of an index file of a bucket.

        Raises:
            FormatError: the name is not allowed in a path.
        """
        if self.options.index_beside_data:
            return self.layout.data_path(self.partition(row), bucket, file_name)
        return self.layout.index_path(file_name)
