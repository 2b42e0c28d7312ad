"""The paths of a table's folders and files.

All paths are relative to the table's root (for databases and tables, to the warehouse) and use ``/``; all their
components were checked by `names`. Schemas, snapshots, changelogs, tags and consumers exist once per branch; manifests,
indexes, statistics and data files are shared by all branches and never move.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidelake.errors import InvalidInputError
from tidelake.spec.limits import INT64_MAX
from tidelake.spec.names import MAIN_BRANCH, check_file_name, check_name, check_relative_directory

LATEST: Final = "LATEST"
EARLIEST: Final = "EARLIEST"

SNAPSHOT_PREFIX: Final = "snapshot-"
SCHEMA_PREFIX: Final = "schema-"
CHANGELOG_PREFIX: Final = "changelog-"
TAG_PREFIX: Final = "tag-"
BRANCH_PREFIX: Final = "branch-"
CONSUMER_PREFIX: Final = "consumer-"
BUCKET_PREFIX: Final = "bucket-"

POSTPONE_BUCKET: Final = -2
"""The bucket of staged rows, which get their real bucket later; its folder is `bucket-postpone`."""

MANIFEST_DIR: Final = "manifest"
INDEX_DIR: Final = "index"
STATISTICS_DIR: Final = "statistics"
BRANCH_DIR: Final = "branch"
SUCCESS_NAME: Final = "_SUCCESS"

_DATABASE_SUFFIX = ".db"
_POSTPONE_NAME = "postpone"


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The paths of one branch of one table.

    Raises:
        InvalidInputError: If the branch or the data directory is not a usable name.
    """

    branch: str = MAIN_BRANCH
    data_directory: str | None = None

    def __post_init__(self) -> None:
        if self.branch != MAIN_BRANCH:
            check_name("branch", self.branch)
        if self.data_directory is not None:
            object.__setattr__(self, "data_directory", check_relative_directory(self.data_directory))

    # -------------------------------------------------------------------------------------- once per branch

    @property
    def branch_root(self) -> str:
        """Folder of the branch with a slash at its end, or an empty text for the main branch."""
        return "" if self.branch == MAIN_BRANCH else branch_dir(self.branch) + "/"

    @property
    def schema_dir(self) -> str:
        """Folder of the schemas."""
        return f"{self.branch_root}schema"

    @property
    def snapshot_dir(self) -> str:
        """Folder of the snapshots."""
        return f"{self.branch_root}snapshot"

    @property
    def changelog_dir(self) -> str:
        """Folder of the long-lived changelogs."""
        return f"{self.branch_root}changelog"

    @property
    def tag_dir(self) -> str:
        """Folder of the tags."""
        return f"{self.branch_root}tag"

    @property
    def consumer_dir(self) -> str:
        """Folder of the consumers."""
        return f"{self.branch_root}consumer"

    def schema_path(self, schema_id: int) -> str:
        """Path of a schema.

        Raises:
            InvalidInputError: If the id is negative.
        """
        return f"{self.schema_dir}/{SCHEMA_PREFIX}{_number(schema_id, minimum=0)}"

    def snapshot_path(self, snapshot_id: int) -> str:
        """Path of a snapshot.

        Raises:
            InvalidInputError: If the id is not positive.
        """
        return f"{self.snapshot_dir}/{SNAPSHOT_PREFIX}{_number(snapshot_id, minimum=1)}"

    def snapshot_hint_path(self, hint: str) -> str:
        """Path of the `LATEST` or `EARLIEST` hint of the snapshots.

        Raises:
            InvalidInputError: If it is neither of the two.
        """
        return f"{self.snapshot_dir}/{_hint_name(hint)}"

    def changelog_path(self, snapshot_id: int) -> str:
        """Path of a long-lived changelog.

        Raises:
            InvalidInputError: If the id is not positive.
        """
        return f"{self.changelog_dir}/{CHANGELOG_PREFIX}{_number(snapshot_id, minimum=1)}"

    def changelog_hint_path(self, hint: str) -> str:
        """Path of the `LATEST` or `EARLIEST` hint of the long-lived changelogs.

        Raises:
            InvalidInputError: If it is neither of the two.
        """
        return f"{self.changelog_dir}/{_hint_name(hint)}"

    def tag_path(self, name: str) -> str:
        """Path of a tag.

        Raises:
            InvalidInputError: If the name is unusable.
        """
        return f"{self.tag_dir}/{TAG_PREFIX}{check_name('tag', name)}"

    def tag_success_path(self, name: str) -> str:
        """Path of the success marker of a tag.

        Raises:
            InvalidInputError: If the name is unusable.
        """
        return f"{self.tag_dir}/tag-success-file/{check_name('tag', name)}{SUCCESS_NAME}"

    def consumer_path(self, consumer_id: str) -> str:
        """Path of a consumer.

        Raises:
            InvalidInputError: If the id is unusable.
        """
        return f"{self.consumer_dir}/{CONSUMER_PREFIX}{check_name('consumer', consumer_id)}"

    # -------------------------------------------------------------------------------- shared by all branches

    def manifest_path(self, file_name: str) -> str:
        """Path of a manifest, manifest list or index manifest.

        Raises:
            FormatError: If the name is unusable.
        """
        return f"{MANIFEST_DIR}/{check_file_name(file_name, path=MANIFEST_DIR)}"

    def index_path(self, file_name: str) -> str:
        """Path of an index file.

        Raises:
            FormatError: If the name is unusable.
        """
        return f"{INDEX_DIR}/{check_file_name(file_name, path=INDEX_DIR)}"

    def statistics_path(self, file_name: str) -> str:
        """Path of a statistics document.

        Raises:
            FormatError: If the name is unusable.
        """
        return f"{STATISTICS_DIR}/{check_file_name(file_name, path=STATISTICS_DIR)}"

    def partition_dir(self, partition_path: str) -> str:
        """Folder of a partition (`dt=2026/hh=1`, or an empty text in a table without partitions); may be empty.

        Raises:
            InvalidInputError: If the partition path would leave the table.
        """
        parts = [] if self.data_directory is None else [self.data_directory]
        if partition_path:
            parts.append(check_relative_directory(partition_path))
        return "/".join(parts)

    def bucket_dir(self, partition_path: str, bucket: int) -> str:
        """Folder of a bucket.

        Raises:
            InvalidInputError: If the partition path would leave the table, or the bucket has no folder.
        """
        folder = self.partition_dir(partition_path)
        return f"{folder}/{bucket_name(bucket)}" if folder else bucket_name(bucket)

    def data_path(self, partition_path: str, bucket: int, file_name: str) -> str:
        """Path of a data or changelog file.

        Raises:
            InvalidInputError: If the partition path would leave the table, or the bucket has no folder.
            FormatError: If the file name is unusable.
        """
        folder = self.bucket_dir(partition_path, bucket)
        return f"{folder}/{check_file_name(file_name, path=folder)}"

    def success_path(self, partition_path: str) -> str:
        """Path of the success marker of a partition.

        Raises:
            InvalidInputError: If the partition path would leave the table.
        """
        folder = self.partition_dir(partition_path)
        return f"{folder}/{SUCCESS_NAME}" if folder else SUCCESS_NAME


def database_dir(database: str) -> str:
    """Folder of a database in its warehouse.

    Raises:
        InvalidInputError: If the name is unusable.
    """
    return check_name("database", database) + _DATABASE_SUFFIX


def parse_database_dir(name: str) -> str | None:
    """The database of a folder in the warehouse, or None if the folder is not a database."""
    return name.removesuffix(_DATABASE_SUFFIX) or None if name.endswith(_DATABASE_SUFFIX) else None


def table_dir(database: str, table: str) -> str:
    """Folder of a table in its warehouse.

    Raises:
        InvalidInputError: If one of the names is unusable.
    """
    return f"{database_dir(database)}/{check_name('table', table)}"


def branch_dir(branch: str) -> str:
    """Folder of a branch in its table.

    Raises:
        InvalidInputError: If the name is unusable, or is the main branch, which has no folder.
    """
    return f"{BRANCH_DIR}/{BRANCH_PREFIX}{check_name('branch', branch)}"


def bucket_name(bucket: int) -> str:
    """Name of a bucket's folder.

    Raises:
        InvalidInputError: If the bucket is negative and not the postpone bucket.
    """
    if bucket == POSTPONE_BUCKET:
        return BUCKET_PREFIX + _POSTPONE_NAME
    return BUCKET_PREFIX + str(_number(bucket, minimum=0))


def parse_bucket_name(name: str) -> int | None:
    """The bucket of a folder, or None if the folder is not a bucket."""
    if name == BUCKET_PREFIX + _POSTPONE_NAME:
        return POSTPONE_BUCKET
    return parse_numbered(name, BUCKET_PREFIX)


def parse_numbered(name: str, prefix: str) -> int | None:
    """The number in a name such as `snapshot-12`, or None if the name is anything else.

    This ignores temporary files (`snapshot-1{uuid}.tmp`) and also `snapshot-012`: readers look for snapshot 12 under
    another name.
    """
    digits = name.removeprefix(prefix)
    if len(digits) == len(name) - len(prefix) and digits.isascii() and digits.isdecimal() and len(digits) <= 19:
        number = int(digits)
        if number <= INT64_MAX and str(number) == digits:
            return number
    return None


def parse_named(name: str, prefix: str) -> str | None:
    """The name in a file or folder name such as `tag-release`, or None if it does not start with the prefix."""
    rest = name.removeprefix(prefix)
    return rest if rest and len(rest) == len(name) - len(prefix) else None


def _number(value: int, *, minimum: int) -> int:
    if not minimum <= value <= INT64_MAX:
        raise InvalidInputError("number is out of range for a file or folder name", number=value, minimum=minimum)
    return value


def _hint_name(hint: str) -> str:
    if hint not in (LATEST, EARLIEST):
        raise InvalidInputError("hint does not exist", name=hint, hint=f"use {LATEST} or {EARLIEST}")
    return hint
