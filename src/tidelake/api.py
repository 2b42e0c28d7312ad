"""The front door: from a location to a lake or a table."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from tidelake.catalog.filesystem import Lake, check_plain_name, create_at
from tidelake.engine import engine, is_engine_frame
from tidelake.errors import NotFoundError
from tidelake.io.cache import Cache
from tidelake.io.env import Env
from tidelake.io.executor import ThreadExecutor
from tidelake.io.open import open_fileio
from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.commit.options import CommitOptions
from tidelake.ops.write.rows import as_table
from tidelake.ops.write.verbs import check_mode
from tidelake.options import option_text
from tidelake.table import Table, load_table

CACHE_BYTES = 32 << 20
"""Metadata that an open lake or table keeps in memory."""


def connect(warehouse: str | os.PathLike[str], *, storage: Mapping[str, Any] | None = None) -> Lake:
    """Open a lake: a folder, `file://`, `s3://`, `gs://`, `az://` or `memory://`.

    Nothing is read or written yet. `storage` holds credentials and endpoints; secrets are never shown. Its
    `unsafe.commit=True` allows commits to a storage that cannot create a file exclusively, for a single writer.

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


def spark(lake: Lake, master: str = "local[*]", app: str = "tidelake", conf: Mapping[str, object] | None = None) -> Any:
    """A Spark session that knows the lake: `spark.table("shop.orders")`. The one that runs already if there is one.

    Finds Java 17 or newer, or takes that of the extra `java`. `conf` holds settings of Spark.

    Raises:
        InvalidInputError: Spark or Java is not installed.
    """
    return engine().start(lake, master=master, app=app, conf=conf or {})


def attach(session: Any, lake: Lake) -> None:
    """Let an existing Spark session know a lake: `session.table("shop.orders")` reads its table.

    Raises:
        InvalidInputError: Spark is not installed, or this is no session.
    """
    engine().attach(session, lake)


def _env(location: str | os.PathLike[str], storage: Mapping[str, Any] | None) -> Env:
    options = dict(storage or {})
    unsafe = CommitOptions.parse(
        {"unsafe.commit": option_text("unsafe.commit", options.pop("unsafe.commit", False))}
    ).unsafe
    threads = ThreadExecutor(min(4, os.cpu_count() or 1))
    return Env(open_fileio(location, options), executor=threads, unsafe_commit=unsafe, cache=Cache(CACHE_BYTES))


def write_table(
    location: str | os.PathLike[str],
    data: Any,
    *,
    primary_key: Sequence[str] | None = None,
    partition_by: Sequence[str] | None = None,
    options: Mapping[str, object] | None = None,
    mode: str = "append",
    storage: Mapping[str, Any] | None = None,
) -> CommitResult:
    """Write rows to a table by its location; the first write makes the table from the columns of the data.

    Raises:
        InvalidInputError: a column or a value does not fit; nothing was written.
        CommitConflictError: others changed the same files.
    """
    check_mode(mode)
    env = _env(location, storage)
    name = env.io.root.rstrip("/").rpartition("/")[2]
    try:
        table = load_table(env, name)
    except NotFoundError:
        check_plain_name(name)
        if not is_engine_frame(data):
            # A stream can be read once, so the rows must be at hand before the table is made from their columns.
            data = as_table(data)
        table = create_at(env, name, data, primary_key=primary_key, partition_by=partition_by, options=options)
    return table.write(data, mode=mode)
