"""How much one batch of a stream takes: options, and the choice of splits.

Spark can hand a Python source one limit only, and none with a delay, so the source applies its limits itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelake.errors import InvalidInputError
from tidelake.ops.scan.split import Split

PREFIX: Final = "read.stream."
_FILES: Final = "maxFilesPerTrigger"
_BYTES: Final = "maxBytesPerTrigger"
_ROWS: Final = "maxRowsPerTrigger"
_LEAST: Final = "minRowsPerTrigger"
_DELAY: Final = "maxTriggerDelayMs"
NAMES: Final = (_FILES, _BYTES, _ROWS, _LEAST, _DELAY)
LIMIT_KEYS: Final = frozenset(key for name in NAMES for key in (name.lower(), f"{PREFIX}{name}".lower()))
"""The options of limits, as Spark passes them: in lower case, with the prefix or without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """What one batch takes at most, and the rows it waits for."""

    max_files: int | None = None
    max_bytes: int | None = None
    max_rows: int | None = None
    min_rows: int | None = None
    max_delay_ms: int | None = None
    """How long after the last batch with rows the next one waits for `min_rows`."""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> ReadLimits:
        """Parse the options of a stream.

        Raises:
            InvalidInputError: a value is not a positive integer, or one of the two options for waiting is missing.
        """
        files, size, rows, least, delay = (_parse_count(given, name) for name in NAMES)
        if (least is None) != (delay is None):
            raise InvalidInputError(
                "options for waiting belong together",
                code="option-conflict",
                options=f"{PREFIX}{_LEAST}, {PREFIX}{_DELAY}",
                hint="set both: how many rows a batch waits for, and how long at most",
            )
        return cls(max_files=files, max_bytes=size, max_rows=rows, min_rows=least, max_delay_ms=delay)

    @property
    def are_given(self) -> bool:
        """Whether there is any limit."""
        return self != ReadLimits()

    def waits(self, taken: Admission, idle_ms: float) -> bool:
        """Whether a batch is too small to be read yet, so long after the last one with rows."""
        if self.min_rows is None or self.max_delay_ms is None or taken.is_full or not taken.splits:
            return False
        return taken.rows < self.min_rows and idle_ms < self.max_delay_ms


class Admission:
    """Takes splits, one after the other, until the next one would exceed a limit. The first one is always taken."""

    def __init__(self, limits: ReadLimits) -> None:
        self._limits = limits
        self.splits = self.files = self.size = self.rows = 0
        self.is_full = False
        """Whether a split was refused."""

    def admit(self, split: Split) -> bool:
        """Take a split, or refuse it and all that follow."""
        limits = self._limits
        files, size, rows = self.files + len(split.files), self.size + split.size, self.rows + split.row_count
        fits = all(
            most is None or count <= most
            for count, most in ((files, limits.max_files), (size, limits.max_bytes), (rows, limits.max_rows))
        )
        if self.is_full or (self.splits and not fits):
            self.is_full = True
            return False
        self.splits, self.files, self.size, self.rows = self.splits + 1, files, size, rows
        return True


def _parse_count(given: Mapping[str, str], name: str) -> int | None:
    keys = [key for key in (f"{PREFIX}{name}", name) if key.lower() in given]
    if len(keys) > 1:
        raise InvalidInputError("option is given twice", options=", ".join(keys), hint=f"give {keys[0]}")
    if not keys:
        return None
    text = given[keys[0].lower()].strip()
    if not text.isdecimal() or int(text) < 1:
        raise InvalidInputError(
            "limit must be a positive integer", code="option-value", option=keys[0], value=text[:80], hint="write 1000"
        )
    return int(text)
