"""The port to a distributed engine: what lies below asks for one, and an installed package answers.

An engine spreads verbs over many machines and knows frames of its own. It is found by its entry point in the group
`tidelake.engines`, so that nothing here imports it and the core runs without it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final, Protocol

from tidelake.errors import InvalidInputError

GROUP: Final = "tidelake.engines"
DEFAULT: Final = "spark"
_PACKAGES: Final = {"spark": "pyspark"}
"""What an engine runs on: it is not installed if that is missing."""
_HINT: Final = "pip install 'tidelake[spark]'"


class Engine(Protocol):
    """What an engine does for tables and lakes; `table`, `scan` and `lake` are those of this package."""

    def start(self, lake: Any, *, master: str, app: str, conf: Mapping[str, object]) -> Any:
        """A session that knows the lake."""

    def attach(self, session: Any, lake: Any) -> None:
        """Let a session that is there know the lake."""

    def frame(self, scan: Any, session: Any | None = None, columns: Sequence[str] | None = None) -> Any:
        """A lazy frame of the scan's rows, pinned to one snapshot; `columns` may name hidden ones beside the scan's."""

    def column_types(self, data: Any) -> dict[str, Any]:
        """The columns that a table for a frame of the engine, or for its schema, would have, with their types."""

    def write(self, table: Any, frame: Any, how: Mapping[str, Any]) -> Any:
        """Write a frame of the engine to a table, with the arguments of `Table.write`."""

    def merge(self, table: Any, merge: Any, plan_only: bool) -> Any:
        """Carry a merge out whose source is a frame of the engine, or tell how that would be done."""

    def hands(self, session: Any) -> Any:
        """What carries steps of a compaction out as tasks of the session: `tidelake.ops.compact.steps.Hands`."""


@cache
def engine(name: str = DEFAULT) -> Engine:
    """The engine of a name.

    Raises:
        InvalidInputError: it is not installed.
    """
    for found in entry_points(group=GROUP, name=name):
        try:
            made: Engine = found.load()()
        except ModuleNotFoundError as cause:
            if cause.name != _PACKAGES.get(name):
                raise  # a fault of the engine's own modules or of what they import
            raise InvalidInputError(
                "engine is not installed", code="extra-missing", engine=name, missing=cause.name, hint=_HINT
            ) from cause
        return made
    raise InvalidInputError("engine is not known", engine=name, hint=_HINT)


def session_zone() -> str | None:
    """The time zone of the session that is active in this process, as the engine calls it; None without a session."""
    loaded = sys.modules.get("pyspark.sql")
    session = None if loaded is None else loaded.SparkSession.getActiveSession()
    return None if session is None else str(session.conf.get("spark.sql.session.timeZone"))


def is_engine_frame(data: object) -> bool:
    """Whether the data is a frame of an engine: rows that are not here yet and that it can spread itself."""
    return any(each.__module__.partition(".")[0] == "pyspark" for each in type(data).__mro__)
