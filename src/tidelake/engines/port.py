"""The whole port to an engine: what lakes, tables and scans ask of it, each declared where it is asked."""

from __future__ import annotations

from typing import Protocol

from tidelake.catalog.engine_port import LakeEngine
from tidelake.query import ScanEngine
from tidelake.table import Table
from tidelake.table.engine_port import TableEngine


class Engine(LakeEngine, TableEngine[Table], ScanEngine, Protocol):
    """What a class that is registered as an entry point of `tidelake.engines` has to answer."""
