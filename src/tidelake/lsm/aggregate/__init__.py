"""Aggregate functions of columns: how the versions of one key become one value.

A function works on whole columns: row i of its arguments is one key. It is pure and holds no state between calls, so
the state of a key is always an ordinary value of the column and may be stored, read back and merged further. What each
function does with nulls, overflow and retracted rows is that of the reference implementation; where its releases
disagree with the written format, `docs/spec-notes.md` says so.
"""

from tidelake.lsm.aggregate.base import Aggregate
from tidelake.lsm.aggregate.registry import FUNCTION_NAMES, aggregate_for, column_functions

__all__ = ["FUNCTION_NAMES", "Aggregate", "aggregate_for", "column_functions"]
