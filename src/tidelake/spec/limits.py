"""Upper bounds for parsers of metadata.

Every parser takes its limits from here, so that a corrupt or hostile file causes a `FormatError` and cannot exhaust
memory, time or the stack. The defaults are far above what real tables need.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

INT32_MAX: Final = 2**31 - 1
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
"""The largest and smallest integers of documents, which Java reads as int and long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper bounds; a document above one of them is refused with `FormatError`."""

    json_bytes: int = 16 << 20
    """Size of one JSON document (schema, snapshot, tag, statistics)."""
    json_depth: int = 64
    """Nesting of objects and arrays in one JSON document."""
    manifest_bytes_max: int = 512 << 20
    """Size of one manifest after decompression."""
    manifest_ratio_max: int = 2_000
    """Ratio of a manifest's decompressed to its compressed size."""
    fields_max: int = 10_000
    """Fields of one schema or type, nested ones included."""
    type_depth_max: int = 32
    """Nested constructed types."""


LIMITS = Limits()
"""The defaults, as one shared value."""
