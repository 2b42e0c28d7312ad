"""What a check finds: something that is not as it should be, where, and how bad that is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tidelake.notebook import plain

__all__ = ["Finding", "Severity"]


class Severity(Enum):
    """How bad a finding is."""

    ERROR = "error"
    WARNING = "warning"
    REMARK = "remark"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    invariant: str
    severity: Severity
    message: str
    place: str = ""

    def __str__(self) -> str:
        place = f" {plain(self.place)}" if self.place else ""
        return f"{self.severity.value} {self.invariant}{place}: {plain(self.message)}"
