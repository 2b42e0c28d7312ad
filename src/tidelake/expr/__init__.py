"""Expressions: predicates and scalars, their exact evaluation on Arrow columns and pruning by statistics.

Trees are built with `col` and `lit`, or parsed from SQL text.

    node          what all nodes have in common
    scalar        nodes for values: constants, columns, arithmetic, functions
    tree          nodes for conditions, and the builders `col`, `lit`, `case`, ...
    moments       points in time as constants, down to nanoseconds
    evaluate      compute predicates and scalars on Arrow columns
    coerce        the common type of two values, and comparison kernels
    cast          CAST as in Spark's ANSI mode
    decimals      exact decimal arithmetic with Spark's result types
    functions     the SQL functions as Arrow kernels
    prune         decide from bounds whether rows may match
    simplify      equivalent smaller predicates, conjuncts, parts about some columns
    sides         expressions over the target and the source of a merge
    parse         SQL text to expressions; the only module that needs sqlglot
    constants     constants in SQL text, and their conversion to a column's type
    vocabulary    types and functions that the parser knows by name
    render        expressions to SQL text
    from_polars   conditions of a Polars query
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
