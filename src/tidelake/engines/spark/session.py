"""Sessions: a local one that needs no configuration, and any other that is told of a lake."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from tidelake.catalog.filesystem import Lake
from tidelake.engines.spark.java import find_java
from tidelake.engines.spark.rows import frame_of
from tidelake.errors import InvalidInputError

DEFAULTS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
}
"""Settings of a session that we start, where the user says nothing else."""
_LOCAL: Final[Mapping[str, str]] = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def start(master: str, app: str, conf: Mapping[str, object]) -> SparkSession:
    """A session ready to use; the one that runs already if there is one.

    Raises:
        InvalidInputError: there is no Java to run on.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    if not _is_remote(master):
        home = find_java()
        if home is not None:
            os.environ["JAVA_HOME"] = home
        # Workers would otherwise run whatever `python3` the path has.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # It works all the same, and a user can do nothing about the warning.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    builder = SparkSession.builder.appName(app)
    builder = builder.remote(master) if _is_remote(master) else builder.master(master)
    settings = {**DEFAULTS, **(_LOCAL if master.startswith("local") else {}), **{k: str(v) for k, v in conf.items()}}
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def attach(session: SparkSession, lake: Lake) -> None:
    """Let `session.table("database.table")` find the tables of a lake; any other name is Spark's, as before."""
    known = type(session).table

    def table(tableName: str) -> DataFrame:  # noqa: N803 - the name of PySpark's argument
        if "." in tableName and tableName in lake:
            return frame_of(lake.table(tableName).scan(), session)
        return known(session, tableName)

    session.table = table  # type: ignore[method-assign]


def current(session: Any | None = None) -> SparkSession:
    """The session to use: the given one, the active one, or a fresh local one.

    Raises:
        InvalidInputError: what was given is no session.
    """
    if session is None:
        return SparkSession.getActiveSession() or start("local[*]", "tidelake", {})
    if not hasattr(session, "createDataFrame"):
        raise InvalidInputError(
            "this is no Spark session", got=type(session).__name__, hint="pass what tl.spark(lake) returns"
        )
    checked: SparkSession = session
    return checked


def _is_remote(master: str) -> bool:
    return master.startswith("sc://")
