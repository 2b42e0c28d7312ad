"""Building predicates."""

from __future__ import annotations

import pickle

import pytest

from tidelake.errors import InvalidInputError
from tidelake.expr import ALWAYS, And, Compare, In, IsNull, Not, Or, col


@pytest.mark.parametrize(
    ("built", "tree"),
    [
        (col("a") == 1, Compare("a", "=", 1)),
        (col("a") != 1, Compare("a", "!=", 1)),
        (col("a") < 1, Compare("a", "<", 1)),
        (col("a") <= 1, Compare("a", "<=", 1)),
        (col("a") > 1, Compare("a", ">", 1)),
        (col("a") >= 1, Compare("a", ">=", 1)),
        (col("a").is_in([1, 2]), In("a", (1, 2))),
        (col("a").is_null(), IsNull("a")),
        (col("a").is_not_null(), Not(IsNull("a"))),
        (col("a").between(1, 2), And((Compare("a", ">=", 1), Compare("a", "<=", 2)))),
        (~(col("a") == 1), Not(Compare("a", "=", 1))),
        ((col("a") == 1) & (col("b") == 2), And((Compare("a", "=", 1), Compare("b", "=", 2)))),
        ((col("a") == 1) | (col("b") == 2), Or((Compare("a", "=", 1), Compare("b", "=", 2)))),
    ],
)
def test_operators_build_the_tree(built, tree):
    assert type(built) is type(tree)
    assert repr(built) == repr(tree)


def test_a_tree_knows_its_columns():
    tree = ((col("a") == 1) & col("b").is_null()) | ~col("c").is_in([1])
    assert tree.columns() == {"a", "b", "c"}
    assert ALWAYS.columns() == frozenset()


def test_a_predicate_has_no_truth_value_so_and_or_not_cannot_be_mistaken():
    with pytest.raises(InvalidInputError, match="no truth value"):
        bool(col("a") == 1)
    with pytest.raises(InvalidInputError):
        (col("a") == 1) and (col("b") == 2)


def test_a_column_cannot_be_a_key_because_its_equality_builds_trees():
    with pytest.raises(TypeError):
        hash(col("a"))
    assert repr(col("a")) == "col('a')"


def test_a_tree_travels_to_another_process():
    tree = (col("a") == 1) | col("b").is_null()
    assert pickle.loads(pickle.dumps(tree)) == tree
