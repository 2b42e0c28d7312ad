"""Read the checkpoint of a streaming query: the id of the query, and what a batch was read from.

Spark writes `metadata` when a query starts for the first time, and `offsets/N` before batch N runs. Nothing here writes
to a checkpoint.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

QUERY_ID: Final = "sql.streaming.queryId"
"""The local property in which Spark passes the id of the query to its batches and their tasks."""
_HEADER_LINES: Final = 2
"""Lines of an offset log that are not about sources: the version, and the settings and times of the batch."""
_LOG_OFFSET: Final = "logOffset"
_DIGEST_BYTES: Final = 10


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The checkpoint of a query; with a session also one that is not on the local disk."""

    location: str
    session: SparkSession | None = None

    def read_query_id(self) -> str | None:
        """The id of the query; None if it cannot be read."""
        text = self._read("metadata")
        try:
            found = None if text is None else json.loads(text).get("id")
        except (ValueError, AttributeError):
            return None
        return found if isinstance(found, str) else None

    def read_origin(self, batch_id: int) -> str | None:
        """A digest of what a batch reads from its sources; None if it cannot be read.

        The times of the batch are left out: Spark chooses them again if it plans the batch again.
        """
        text = self._read(f"offsets/{batch_id}")
        if text is None:
            return None
        offsets = text.rstrip("\n").split("\n")[_HEADER_LINES:]
        parts = [part for number, offset in enumerate(offsets) for part in (offset, *self._read_files(number, offset))]
        return hashlib.blake2b("\n".join(parts).encode(), digest_size=_DIGEST_BYTES).hexdigest()

    def _read_files(self, source: int, offset: str) -> list[str]:
        """The files of a batch, if its source is a folder: the offset of one only counts its batches.

        Spark lists the files of batch N of a source in `sources/<source>/N`, and from time to time those of all batches
        up to N in `N.compact`.
        """
        try:
            number = json.loads(offset).get(_LOG_OFFSET)
        except (ValueError, AttributeError):
            return []
        if not isinstance(number, int):
            return []
        log = f"sources/{source}/{number}"
        text = self._read(log) or self._read(f"{log}.compact") or ""
        return [line for line in text.split("\n") if _is_of_batch(line, number)]

    def _read(self, name: str) -> str | None:
        scheme, colon, rest = self.location.partition(":")
        if not colon or scheme == "file":
            local = Path("/" + rest.lstrip("/") if colon else self.location, name)
            try:
                return local.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                pass  # a path without a scheme may belong to another storage of the cluster
        if self.session is None:
            return None
        try:
            rows = self.session.read.text(f"{self.location}/{name}", wholetext=True).collect()
        except PySparkException:
            return None
        return str(rows[0].value) if rows else None


def _is_of_batch(line: str, number: int) -> bool:
    """Whether a line of the log of a source of files names a file of this batch."""
    try:
        return bool(json.loads(line).get("batchId") == number)
    except (ValueError, AttributeError):
        return False
