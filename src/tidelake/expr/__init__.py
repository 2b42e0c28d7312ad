"""Expressions: predicates and scalars, their exact evaluation on Arrow columns and their pruning by statistics.

Trees are built with `col` and `lit`, or parsed from SQL text (`tidelake.expr.parse`, the only part that needs sqlglot).
"""

from tidelake.expr.scalar import (
    Arithmetic,
    Call,
    Cast,
    Coalesce,
    ColumnRef,
    Literal,
    Member,
    Negate,
    NullIf,
)
from tidelake.expr.tree import (
    ALWAYS,
    NEVER,
    UNKNOWN,
    And,
    Case,
    Column,
    Compare,
    Holds,
    In,
    Is,
    IsNull,
    Like,
    Missing,
    Not,
    Or,
    Predicate,
    Regex,
    Scalar,
    StartsWith,
    Term,
    Test,
    Truth,
    Unknown,
    call,
    case,
    coalesce,
    col,
    lit,
)

__all__ = [
    "ALWAYS", "NEVER", "UNKNOWN", "And", "Arithmetic", "Call", "Case", "Cast", "Coalesce", "Column", "ColumnRef",
    "Compare", "Holds", "In", "Is", "IsNull", "Like", "Literal", "Member", "Missing", "Negate", "Not", "NullIf", "Or",
    "Predicate", "Regex", "Scalar", "StartsWith", "Term", "Test", "Truth", "Unknown", "call", "case", "coalesce", "col",
    "lit",
]  # fmt: skip
