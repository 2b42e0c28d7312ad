"""Predicates: a small tree, its exact evaluation on Arrow columns and its pruning by statistics."""

from tidelake.expr.tree import ALWAYS, And, Column, Compare, In, IsNull, Not, Or, Predicate, col

__all__ = ["ALWAYS", "And", "Column", "Compare", "In", "IsNull", "Not", "Or", "Predicate", "col"]
