"""The handle of a table, and what hangs on it."""

from tidelake.table.handle import Table, load_table, open_table
from tidelake.table.inspecting import Inspect
from tidelake.table.jobs import TableCommit, TableWrite
from tidelake.table.naming import path_of, typed

__all__ = ["Inspect", "Table", "TableCommit", "TableWrite", "load_table", "open_table", "path_of", "typed"]
