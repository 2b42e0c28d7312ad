"""The port to a distributed engine such as Spark: finds the engine that is installed.

An engine runs the methods of tables on many machines and has data frames of its own. It is found by its entry point in
the group `tidelake.engines`, so that no module here imports it and the core runs without it. Everything that an engine
works on imports this module, so the protocols are declared by the modules that call an engine: `ScanEngine` in `query`,
`TableEngine` in `table.engine_port`, `LakeEngine` in `catalog.engine_port`; `engines.port.Engine` combines them.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final

from tidelake.errors import InvalidInputError

GROUP: Final = "tidelake.engines"
DEFAULT: Final = "spark"
_PACKAGES: Final = {"spark": "pyspark"}
"""The package that each engine needs: if that is missing, the engine is not installed."""
_HINT: Final = "pip install 'tidelake[spark]'"


@cache
def engine(name: str = DEFAULT) -> Any:
    """Return the engine with this name. The caller annotates the result with the protocol that it uses.

    Raises:
        InvalidInputError: it is not installed.
    """
    for found in entry_points(group=GROUP, name=name):
        try:
            return found.load()()
        except ModuleNotFoundError as cause:
            if cause.name != _PACKAGES.get(name):
                raise  # the engine itself is broken, not missing
            raise InvalidInputError(
                "engine is not installed", code="extra-missing", engine=name, missing=cause.name, hint=_HINT
            ) from cause
    raise InvalidInputError("engine is not known", engine=name, hint=_HINT)


def session_zone() -> str | None:
    """The time zone of the session that is active in this process, as the engine calls it; None without a session."""
    loaded = sys.modules.get("pyspark.sql")
    session = None if loaded is None else loaded.SparkSession.getActiveSession()
    return None if session is None else str(session.conf.get("spark.sql.session.timeZone"))


def is_engine_frame(data: object) -> bool:
    """Whether the data is a frame of an engine, whose rows are not in this process."""
    return any(each.__module__.partition(".")[0] == "pyspark" for each in type(data).__mro__)
