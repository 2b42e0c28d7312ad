"""Start a session, or connect a running one to a lake. A local session needs no configuration.

Invariant: callers get the session they asked for. A running session is used only if it has the requested master and
settings.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from tidelake.catalog.lake import Lake
from tidelake.engines.spark.read.frames import frame_of
from tidelake.engines.spark.session.java import find_java
from tidelake.errors import InvalidInputError

LOCAL: Final = "local[*]"
"""The default master: with it, any running session is used."""
DEFAULTS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
}
"""Settings of a session that we start, unless the user sets them."""
_LOOPBACK: Final[Mapping[str, str]] = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_PYTHON: Final = "spark.pyspark.python"
_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)")


def start(master: str, app: str, conf: Mapping[str, object]) -> SparkSession:
    """Start a session, or return the running one if it has this master and these settings.

    Raises:
        InvalidInputError: no Java was found, or a session with another master or other settings is running.
    """
    wanted = {key: _text(value) for key, value in conf.items()}
    running = SparkSession.getActiveSession()
    if running is not None:
        _check_master(running, master)
        _set_up(running, wanted)
        return running
    if not _is_remote(master):
        _prepare(master, wanted)
    # What we use works with this pandas, and a user can do nothing about the warning.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    builder = SparkSession.builder.appName(app)
    builder = builder.remote(master) if _is_remote(master) else builder.master(master)
    for key, value in {**DEFAULTS, **(_LOOPBACK if master.startswith("local") else {}), **wanted}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _prepare(master: str, conf: Mapping[str, str]) -> None:
    """Choose the Java and the Python of the session; otherwise Spark would take what it finds on the path."""
    home = find_java()
    if home is not None:
        os.environ["JAVA_HOME"] = home
    if _PYTHON in conf:
        os.environ["PYSPARK_PYTHON"] = conf[_PYTHON]
    elif master.startswith(("local", "spark://")):
        # Workers would otherwise run whatever `python3` the path has; on other clusters this path means nothing.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def _check_master(running: SparkSession, master: str) -> None:
    there = running.conf.get("spark.remote" if _is_remote(master) else "spark.master", None)
    if master not in (LOCAL, there):
        raise InvalidInputError(
            "a Spark session with another master is already running",
            code="session-runs",
            master=there,
            wanted=master,
            hint="use it with tl.attach(session, lake), or stop() it first",
        )


def _set_up(running: SparkSession, conf: Mapping[str, str]) -> None:
    """Change the settings of a running session: all of them, or none if one cannot be changed."""
    other = {key: value for key, value in conf.items() if running.conf.get(key, None) != value}
    fixed = next((key for key in other if not running.conf.isModifiable(key)), None)
    if fixed is not None:
        raise InvalidInputError(
            "setting cannot be changed while the Spark session is running",
            code="session-runs",
            setting=fixed,
            hint="stop() the session first, or leave the setting out",
        )
    for key, value in other.items():
        running.conf.set(key, value)


def attach(session: SparkSession, lake: Lake) -> None:
    """Make `session.table("database.table")` find the tables of a lake; Spark looks up all other names as before."""
    before = session.table

    def table(tableName: str) -> DataFrame:  # noqa: N803 - the name of PySpark's argument
        name = _name_in(lake, tableName)
        return before(tableName) if name is None else frame_of(lake.table(name).scan(), session)

    session.table = table  # type: ignore[method-assign]


def _name_in(lake: Lake, text: str) -> str | None:
    """The name of a table of the lake, or of a branch of one; None if the lake does not have it."""
    found = list(_PART.finditer(text))
    parts = [each[2] or each[1].replace("``", "`") for each in found]
    if len(parts) != 2 or ".".join(each[0] for each in found) != text:
        return None
    name = ".".join(parts)
    try:
        there = name.partition("$")[0] in lake
    except InvalidInputError:  # a name that no table of a lake can have
        return None
    return name if there else None


def current(session: Any | None = None) -> SparkSession:
    """The session to use: the given one, the active one, or a new local one.

    Raises:
        InvalidInputError: the argument is not a session, or no Java was found.
    """
    if session is None:
        return SparkSession.getActiveSession() or start(LOCAL, "tidelake", {})
    if not hasattr(session, "createDataFrame"):
        raise InvalidInputError(
            "this is not a Spark session", got=type(session).__name__, hint="pass what tl.spark(lake) returns"
        )
    checked: SparkSession = session
    return checked


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_remote(master: str) -> bool:
    return master.startswith("sc://")
