"""Check what the caller of a streaming sink asks for: output mode, trigger and checkpoint. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.table import Table

CHECKPOINT_CONF: Final = "spark.sql.streaming.checkpointLocation"
OUTPUT_MODES: Final = ("append", "update", "complete")
_ONE_INTERVAL: Final = r"\d+\s*(?:microsecond|millisecond|second|minute|hour|day|week)s?"
_INTERVAL: Final = re.compile(rf"(?:interval\s+)?{_ONE_INTERVAL}(?:\s+{_ONE_INTERVAL})*", re.IGNORECASE)
_WORDS: Final = {"availablenow": "availableNow", "once": "once", "processingtime": "processingTime"}
_TRIGGER_HINT: Final = (
    'write {"availableNow": True} to process what is there and stop, or {"processingTime": "10 seconds"}'
)


@dataclass(frozen=True, slots=True)
class SinkRequest:
    """A checked request: how a stream is written to a table."""

    checkpoint: str
    trigger: Mapping[str, Any]
    """Arguments of Spark's `trigger`; none to start each batch when the one before is done."""
    output_mode: str = "append"
    row_kind: str | None = None
    query_name: str | None = None


def check_output_mode(mode: object, table: Table) -> str:
    """Check an output mode for a table.

    Raises:
        InvalidInputError: Spark does not know the mode, or an update has no key to find the row that changes.
    """
    name = str(mode).lower() if isinstance(mode, str) else ""
    if name not in OUTPUT_MODES:
        raise InvalidInputError("output mode is not known", output_mode=mode, hint=f"use {', '.join(OUTPUT_MODES)}")
    if name == "update" and not table.primary_key:
        raise InvalidInputError(
            "output mode update needs a table with a primary key",
            code="update-needs-key",
            table=table.name,
            hint="use append or complete, or a table whose primary key is what the stream groups by",
        )
    return name


def parse_trigger(given: object) -> Mapping[str, Any]:
    """The arguments of Spark's `trigger`: a mapping with one of them, the word availableNow or once, or an interval.

    Raises:
        InvalidInputError: it is none of these.
        UnsupportedError: the trigger is one of Spark's that runs no micro-batches.
    """
    if given is None:
        return {}
    if isinstance(given, str):
        word = _WORDS.get(given.strip().replace("-", "").replace("_", "").lower())
        given = {"processingTime": given} if word in (None, "processingTime") else {word: True}
    if not isinstance(given, Mapping) or len(given) != 1:
        raise InvalidInputError("trigger is not one setting", trigger=given, hint=_TRIGGER_HINT)
    [(key, value)] = given.items()
    if key in ("continuous", "realTime"):
        raise UnsupportedError(
            "tables are written in micro-batches, and this trigger has none",
            trigger=key,
            hint='use {"processingTime": "100 milliseconds"} for short batches',
        )
    if key in ("availableNow", "once") and value is True:
        return {key: True}
    if key == "processingTime" and isinstance(value, str) and _INTERVAL.fullmatch(value.strip()):
        return {key: value.strip()}
    raise InvalidInputError("trigger is not known", trigger=f"{key}={value!r}", hint=_TRIGGER_HINT)


def choose_checkpoint(given: object, default: str | None, query_name: str | None) -> str:
    """The folder of the checkpoint: the given one, or that of a named query below the session's default.

    Raises:
        InvalidInputError: there is neither, or the default is given for a query without a name, which would get another
            folder, and so lose its place, at every start.
    """
    if given is not None and not isinstance(given, (str, os.PathLike)):
        raise InvalidInputError("checkpoint is not a path", got=type(given).__name__, hint="give a folder or a URL")
    location = os.fspath(given) if given is not None else ""
    if str(location).strip():
        return str(location).rstrip("/")
    if default and query_name:
        return f"{default.rstrip('/')}/{query_name}"
    if default:
        raise InvalidInputError(
            "query has no name, and so no checkpoint that it finds again",
            code="checkpoint-missing",
            setting=CHECKPOINT_CONF,
            hint="pass query_name= or checkpoint=",
        )
    raise InvalidInputError(
        "stream has no checkpoint",
        code="checkpoint-missing",
        hint=f"pass checkpoint=, a folder of this query alone, or set {CHECKPOINT_CONF} and pass query_name=",
    )
