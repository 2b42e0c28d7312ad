"""How much a reader of metadata is willing to swallow.

Every parser of the format takes its bounds from here, so that a corrupt or hostile file costs a typed error and never
memory, time or the stack. The defaults are far above what real tables need.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper bounds of what is parsed; anything above is refused with `FormatError`."""

    json_bytes: int = 16 << 20
    """Size of one JSON document (schema, snapshot, tag, statistics)."""
    json_depth: int = 64
    """Nesting of objects and arrays in one JSON document."""
    manifest_bytes_max: int = 512 << 20
    """Size of one manifest after decompression."""
    manifest_ratio_max: int = 2_000
    """Decompressed size of a manifest by its compressed size."""
    fields_max: int = 10_000
    """Fields of one schema or type, nested ones included."""
    type_depth_max: int = 32
    """Constructed types around the innermost type."""


LIMITS = Limits()
"""The defaults, as one shared value."""
