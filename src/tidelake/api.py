"""The front door: from a location to a lake or a table."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tidelake.catalog.filesystem import Lake
from tidelake.io.env import Env
from tidelake.io.executor import ThreadExecutor
from tidelake.io.open import open_fileio
from tidelake.table import Table, load_table


def connect(warehouse: str | os.PathLike[str], *, storage: Mapping[str, Any] | None = None) -> Lake:
    """Open a lake: a folder, `file://`, `s3://`, `gs://`, `az://` or `memory://`.

    Nothing is read or written yet. `storage` holds credentials and endpoints; secrets are never shown.

    Raises:
        InvalidInputError: the location or a storage option is wrong.
    """
    return Lake(_env(warehouse, storage))


def open_table(location: str | os.PathLike[str], *, storage: Mapping[str, Any] | None = None) -> Table:
    """Open one table by its location, without a catalog.

    Raises:
        NotFoundError: there is no table.
        InvalidInputError: the location or a storage option is wrong.
    """
    env = _env(location, storage)
    return load_table(env, env.io.root.rstrip("/").rpartition("/")[2])


def _env(location: str | os.PathLike[str], storage: Mapping[str, Any] | None) -> Env:
    return Env(open_fileio(location, storage), executor=ThreadExecutor(min(4, os.cpu_count() or 1)))
