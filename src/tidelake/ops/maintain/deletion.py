"""Deleting files that nothing refers to any longer; one that cannot be deleted is an orphan and does no harm."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from tidelake.errors import NotFoundError, StorageError
from tidelake.io.env import Env
from tidelake.io.fileio import parent
from tidelake.spec.layout import parse_bucket_name

_BATCH = 1_000


@dataclass(frozen=True, slots=True)
class Deletion:
    """Paths relative to the table. `external` counts data files outside its folder, which are never deleted."""

    data: tuple[str, ...] = ()
    changelog: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()
    external: int = 0

    @property
    def paths(self) -> tuple[str, ...]:
        """All of them, data first."""
        return (*self.data, *self.changelog, *self.metadata)

    def __str__(self) -> str:
        text = f"{len(self.data)} data, {len(self.changelog)} changelog and {len(self.metadata)} metadata files"
        return f"{text}, {self.external} files outside the table stay" if self.external else text


def run_deletion(env: Env, paths: Sequence[str], *, clean_folders: bool = False) -> tuple[str, ...]:
    """Delete files, and on demand the bucket and partition folders that this leaves empty; returns what is left.

    A file that the storage does not delete stays as an orphan: the operation that made it unused is done already.
    """

    def delete(path: str) -> str | None:
        try:
            env.io.delete(path)
        except StorageError:
            return path
        return None

    left: list[str] = []
    for start in range(0, len(paths), _BATCH):
        left += [path for path in env.executor.map(delete, paths[start : start + _BATCH]) if path is not None]
    if clean_folders:
        _clean(env, {parent(path) for path in paths})
    return tuple(left)


def settle_folder(env: Env, folder: str) -> None:
    """Make deletions in a folder survive a power loss; if the folder is gone too, nothing can reappear.

    Raises:
        StorageError: the storage failed.
    """
    with suppress(NotFoundError):
        env.io.sync([folder])


def _clean(env: Env, folders: set[str]) -> None:
    """Remove empty bucket folders, and upwards the partition folders that this empties."""
    buckets = {folder for folder in folders if parse_bucket_name(folder.rpartition("/")[2]) is not None}
    while buckets:
        emptied = {folder for folder in sorted(buckets) if _remove_empty(env, folder)}
        buckets = {above for folder in emptied if "=" in (above := parent(folder)).rpartition("/")[2]}


def _remove_empty(env: Env, folder: str) -> bool:
    try:
        return env.io.delete_empty_dir(folder)
    except StorageError:
        return False
