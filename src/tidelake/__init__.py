"""tidelake: a streaming lakehouse for Python and PySpark on Apache Paimon tables.

    import tidelake as tl
    lake = tl.connect("lake")

Names are loaded when they are first used: importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelake.api import attach, connect, open_table, spark, stream_to, write_table
    from tidelake.catalog.lake import Lake
    from tidelake.errors import (
        CommitConflictError,
        CommitUnknownError,
        FormatError,
        InternalError,
        InvalidInputError,
        NotFoundError,
        StorageError,
        TidelakeError,
        UnsupportedError,
    )
    from tidelake.expr.tree import col, lit
    from tidelake.query import Scan
    from tidelake.spec.schemas.evolution import After, Before, First, Last
    from tidelake.table import Table

__version__ = "0.1.0"

_WHERE = {
    "attach": "tidelake.api",
    "spark": "tidelake.api",
    "stream_to": "tidelake.api",
    "connect": "tidelake.api",
    "open_table": "tidelake.api",
    "write_table": "tidelake.api",
    "Scan": "tidelake.query",
    "lit": "tidelake.expr.tree",
    "Lake": "tidelake.catalog.lake",
    "Table": "tidelake.table",
    "col": "tidelake.expr.tree",
    "After": "tidelake.spec.schemas.evolution",
    "Before": "tidelake.spec.schemas.evolution",
    "First": "tidelake.spec.schemas.evolution",
    "Last": "tidelake.spec.schemas.evolution",
    "CommitConflictError": "tidelake.errors",
    "CommitUnknownError": "tidelake.errors",
    "FormatError": "tidelake.errors",
    "InternalError": "tidelake.errors",
    "InvalidInputError": "tidelake.errors",
    "NotFoundError": "tidelake.errors",
    "StorageError": "tidelake.errors",
    "TidelakeError": "tidelake.errors",
    "UnsupportedError": "tidelake.errors",
}

__all__ = [
    "After",
    "Before",
    "CommitConflictError",
    "CommitUnknownError",
    "First",
    "FormatError",
    "InternalError",
    "InvalidInputError",
    "Lake",
    "Last",
    "NotFoundError",
    "Scan",
    "StorageError",
    "Table",
    "TidelakeError",
    "UnsupportedError",
    "attach",
    "col",
    "connect",
    "lit",
    "open_table",
    "spark",
    "stream_to",
    "write_table",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'tidelake' has no attribute {name!r}")
    value = getattr(import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
