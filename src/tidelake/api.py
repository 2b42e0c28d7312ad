"""The entry points of the package: open a lake or a table by its location, or use one from Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidelake.catalog.engine_port import LakeEngine
from tidelake.catalog.filesystem import FileSystemCatalog, create_at
from tidelake.catalog.global_tables import CATALOG_OPTIONS
from tidelake.catalog.lake import Lake, first_schema
from tidelake.catalog.names import check_plain_name, table_exists
from tidelake.engine import engine, is_engine_frame
from tidelake.errors import NotFoundError
from tidelake.io.cache import Cache
from tidelake.io.env import Env
from tidelake.io.executor import ThreadExecutor
from tidelake.io.open import open_fileio
from tidelake.io.secrets import redact
from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.commit.options import CommitOptions
from tidelake.ops.write.rows import as_table
from tidelake.ops.write.verbs import check_mode
from tidelake.options import option_text
from tidelake.table import Table, load_table

if TYPE_CHECKING:  # only an engine needs it
    from tidelake.table.engine_port import TableEngine

CACHE_BYTES = 32 << 20
"""Metadata that an open lake or table keeps in memory."""


def connect(warehouse: str | os.PathLike[str], *, storage: Mapping[str, Any] | None = None) -> Lake:
    """Open a lake: a folder, `file://`, `s3://`, `gs://`, `az://` or `memory://`.

    Nothing is read or written yet. `storage` holds credentials and endpoints; secrets are never shown. Its
    `unsafe.commit=True` allows commits to a storage that cannot create a file exclusively, for a single writer, and
    `catalog-options-table.enabled=True` adds the system table `sys.catalog_options`.

    Raises:
        InvalidInputError: the location or a storage option is wrong.
    """
    given = dict(storage or {})
    shown = option_text(CATALOG_OPTIONS, given.pop(CATALOG_OPTIONS, False))
    env = _env(warehouse, given)
    return Lake(FileSystemCatalog(env), redact({**given, CATALOG_OPTIONS: shown, "warehouse": env.io.root}))


def open_table(location: str | os.PathLike[str], *, storage: Mapping[str, Any] | None = None) -> Table:
    """Open one table by its location, without a catalog.

    Raises:
        NotFoundError: the table does not exist.
        InvalidInputError: the location or a storage option is wrong.
    """
    env = _env(location, storage)
    return load_table(env, env.io.root.rstrip("/").rpartition("/")[2])


def spark(lake: Lake, master: str = "local[*]", app: str = "tidelake", conf: Mapping[str, object] | None = None) -> Any:
    """A Spark session that knows the lake: `spark.table("shop.orders")`. A session that runs already is used.

    Finds Java 17 or newer, or uses that of the extra `java`. `conf` holds settings of Spark.

    Raises:
        InvalidInputError: Spark or Java is not installed.
    """
    port: LakeEngine = engine()
    return port.start(lake, master=master, app=app, conf=conf or {})


def attach(session: Any, lake: Lake) -> None:
    """Let an existing Spark session know a lake: `session.table("shop.orders")` reads its table.

    Raises:
        InvalidInputError: Spark is not installed, or this is not a Spark session.
    """
    port: LakeEngine = engine()
    port.attach(session, lake)


def stream_to(
    df: Any,
    table: Table | str | os.PathLike[str],
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    trigger: Mapping[str, object] | str | None = None,
    output_mode: str = "append",
    row_kind: str | None = None,
    query_name: str | None = None,
    options: Mapping[str, object] | None = None,
) -> Any:
    """Write a streaming frame of Spark to a table, every micro-batch exactly once, and return the running query.

    Args:
        df: a streaming frame.
        table: a table of any kind, or its location.
        checkpoint: the folder in which Spark keeps the progress of this query; by default a folder with the name of the
            query below `spark.sql.streaming.checkpointLocation`. A new checkpoint is a new writer.
        trigger: `{"availableNow": True}`, `{"processingTime": "5 seconds"}`, or one of the texts `"availableNow"` and
            `"5 seconds"`; by default each batch starts when the one before is done.
        output_mode: `append`; `update`, for a table with a primary key; or `complete`, which replaces the whole table.
        row_kind: the column with the row kinds, by default `rowkind`.
        query_name: the name of the query.
        options: options of the table for this use.

    Raises:
        InvalidInputError: an argument is wrong, or the columns do not fit the table.
        UnsupportedError: such a table cannot be written, or the frame belongs to Spark Connect.
    """
    target = table if isinstance(table, Table) else open_table(table)
    port: TableEngine[Table] = engine()
    return port.stream_to(
        target.with_options(options) if options else target,
        df,
        {
            "checkpoint": checkpoint,
            "trigger": trigger,
            "output_mode": output_mode,
            "row_kind": row_kind,
            "query_name": query_name,
        },
    )


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
    """Write rows to a table by its location; the first write creates the table with the columns of the data.

    Raises:
        InvalidInputError: a column or a value does not fit; nothing was written.
        CommitConflictError: another job changed the same files.
    """
    check_mode(mode)
    env = _env(location, storage)
    name = env.io.root.rstrip("/").rpartition("/")[2]
    try:
        table = load_table(env, name)
    except NotFoundError:
        check_plain_name(name)
        if not is_engine_frame(data):
            # A stream can be read only once, so all rows are read before the table is created with their columns.
            data = as_table(data)
        now_ms = env.clock.now_ms()
        first = first_schema(data, time_ms=now_ms, primary_key=primary_key, partition_by=partition_by, options=options)
        made = create_at(env, name, first)
        if made is None:
            raise table_exists(name, "write again: another writer created the table at the same time") from None
        table = made
    return table.write(data, mode=mode)
