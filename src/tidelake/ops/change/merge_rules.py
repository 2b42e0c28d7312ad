"""The clauses of a merge: what the user wrote is resolved to rules. Pure.

A target row and a source row are a matched pair if the condition `on` is true. Clauses are tried in their order, and
the first whose condition is true (not false, not unknown) decides: `MATCHED` clauses for matched pairs, `NOT_MATCHED`
clauses for source rows without a match, `BY_SOURCE` clauses for target rows without a match.

Invariant: a `Merge` is fully resolved. Every expression uses qualified column names, every star is expanded, every
value fits the type of its column, and no primary-key column gets another value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.expr.coerce import INTEGERS, common_type, is_bytes, is_text
from tidelake.expr.evaluate import can_fail, evaluate_scalar, matches
from tidelake.expr.node import Node, Scalar
from tidelake.expr.scalar import ColumnRef
from tidelake.expr.sides import SOURCE, TARGET, Sides, full_name, looks_at, sides_to_sql
from tidelake.expr.simplify import conjuncts
from tidelake.expr.tree import SAME, And, Predicate, Test
from tidelake.ops.write.values import fit_column
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.data_types import Field, with_nullable

ALL: Final = "*"
"""Stands for all columns of the source, each for the column of its name."""


class When(Enum):
    """Which rows a clause is about."""

    MATCHED = "matched"
    NOT_MATCHED = "not matched"
    BY_SOURCE = "not matched by source"


class Action(Enum):
    """What a clause does."""

    UPDATE = "update"
    DELETE = "delete"
    INSERT = "insert"


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause as the user wrote it; `values` is a mapping from columns to values, or `ALL`."""

    when: When
    action: Action
    condition: object = None
    values: object = ALL

    @property
    def sets(self) -> bool:
        """Whether it gives values to columns."""
        return self.action is not Action.DELETE


@dataclass(frozen=True, slots=True)
class Rule:
    """A resolved clause. `values` are the new values of the columns that it sets, with qualified names."""

    when: When
    action: Action
    condition: Predicate | None = None
    values: Mapping[str, Scalar] = field(default_factory=dict)

    def __str__(self) -> str:
        condition = "" if self.condition is None else f" and {sides_to_sql(self.condition)}"
        values = ", ".join(f"{name} = {sides_to_sql(value)}" for name, value in self.values.items())
        return f"when {self.when.value}{condition} then {self.action.value}{f' {values}' if values else ''}"

    def nodes(self) -> tuple[Node, ...]:
        """All its expressions."""
        return (*([] if self.condition is None else [self.condition]), *self.values.values())


@dataclass(frozen=True, slots=True)
class Equal:
    """Two values, one of each side, that are equal for a matched pair; they are compared in `dtype`."""

    target: Scalar
    source: Scalar
    dtype: pa.DataType
    nulls: bool = False
    """Whether null equals null."""


@dataclass(frozen=True, slots=True)
class Join:
    """When two rows are a matched pair: their values are equal, and the rest of the condition is true."""

    equals: tuple[Equal, ...]
    rest: Predicate | None = None
    about_target: Predicate | None = None
    """The part of the rest that uses only the target."""

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the target that decide."""
        nodes: list[Node] = [each.target for each in self.equals]
        nodes += [] if self.rest is None else [self.rest]
        return frozenset().union(*(looks_at(node, TARGET) for node in nodes))

    def partner(self, column: str) -> Scalar | None:
        """The value of the source that a column of the target must equal."""
        wanted = ColumnRef(full_name(TARGET, column))
        return next((each.source for each in self.equals if each.target == wanted), None)


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge, resolved against the columns of both sides."""

    join: Join
    rules: tuple[Rule, ...]

    def of(self, *whens: When) -> list[tuple[int, Rule]]:
        """The rules for these rows, in their order, with their numbers."""
        return [(number, rule) for number, rule in enumerate(self.rules) if rule.when in whens]

    def does(self, action: Action) -> bool:
        """Whether a rule does this."""
        return any(rule.action is action for rule in self.rules)

    @property
    def changes(self) -> tuple[Rule, ...]:
        """The rules that change existing rows."""
        return tuple(rule for rule in self.rules if rule.action is not Action.INSERT)

    @property
    def looks_at_all(self) -> bool:
        """Whether target rows without a match matter."""
        return any(rule.when is When.BY_SOURCE for rule in self.rules)

    @property
    def assigned_columns(self) -> frozenset[str]:
        """The columns that updates set."""
        return frozenset(name for rule in self.rules if rule.action is Action.UPDATE for name in rule.values)

    @property
    def decides(self) -> frozenset[str]:
        """The columns of the target that decide which rule applies to a row."""
        conditions = (rule.condition for rule in self.changes if rule.condition is not None)
        return self.join.columns.union(*(looks_at(condition, TARGET) for condition in conditions))

    def covers(self, keys: Sequence[str]) -> bool:
        """Whether a source row has at most one match: each key column must equal a value of the source."""
        return bool(keys) and all(self.join.partner(key) is not None for key in keys)

    def by_key(self, keys: Sequence[str]) -> bool:
        """Whether rows match by the primary key and nothing else."""
        return self.join.rest is None and len(self.join.equals) == len(keys) and self.covers(keys)

    def inserts_own(self, keys: Sequence[str]) -> bool:
        """Whether every new row has the key that its match would have."""
        return all(
            rule.values.get(key) == self.join.partner(key) is not None
            for rule in self.rules
            if rule.action is Action.INSERT
            for key in keys
        )

    def needs(self, schema: Schema) -> tuple[str, ...]:
        """The columns of the target that its changed rows are made from, those that decide included."""
        wanted = set(self.decides)
        for rule in self.changes:
            kept = set(schema.names) - set(rule.values)
            wanted |= kept.union(*(looks_at(value, TARGET) for value in rule.values.values()))
        return tuple(name for name in schema.names if name in wanted)


# ------------------------------------------------------------------------------------------------ resolving


def resolve_merge(
    schema: Schema, source: Sequence[Field], on: object, clauses: Sequence[Clause], *, lenient: bool = False
) -> Merge:
    """Resolve a merge of rows with the columns `source` into a table.

    Args:
        schema: The table's schema.
        source: The columns of the source.
        on: A condition over both sides, a column that both have, or a list of such.
        clauses: The clauses, in their order.
        lenient: Whether a star skips columns that the source lacks (`write.merge-schema`), instead of refusing.

    Raises:
        InvalidInputError: an expression cannot be parsed, a column does not exist, a value does not fit, a clause can
            never apply, or a primary-key column would change.
    """
    sides = Sides(tuple(schema.fields), tuple(source))
    join = _join(sides, on)
    if not clauses:
        raise InvalidInputError(
            "merge has no clause",
            hint="add one: when_matched_update(), when_not_matched_insert(), when_matched_delete()",
        )
    rules = tuple(_rule(schema, sides, join, clause, lenient) for clause in clauses)
    for when in When:
        own = [rule for rule in rules if rule.when is when]
        if any(rule.condition is None for rule in own[:-1]):
            raise InvalidInputError(
                "clause can never be reached",
                clause=str(own[-1]),
                hint="only the last clause of its kind may be without a condition",
            )
    return Merge(join, rules)


def _join(sides: Sides, on: object) -> Join:
    equals: list[Equal] = []
    rest: list[Predicate] = []
    for part in conjuncts(_on(sides, on)):
        found = _equal(sides, part)
        if found is None:
            rest.append(part)
        else:
            equals.append(found)
    # A part that can fail for a row is evaluated only for rows that pass the other parts, so it cannot prune.
    alone = [part for part in rest if part.columns() and not looks_at(part, SOURCE) and not can_fail(part)]
    return Join(tuple(equals), _all_of(rest), _all_of(alone))


def _on(sides: Sides, on: object) -> Predicate:
    if isinstance(on, str) and any(each.name == on for each in (*sides.target, *sides.source)):
        on = [on]
    if isinstance(on, str | Predicate):
        return sides.condition(on)
    names = list(on) if isinstance(on, Iterable) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise InvalidInputError(
            "merge does not say which rows belong together",
            hint='on="id" or on=["id", "day"] for columns of both, or on="t.id = s.id"',
        )
    for name in names:
        for side, fields in (("table", sides.target), ("source", sides.source)):
            if not any(each.name == name for each in fields):
                raise InvalidInputError(f"column is not one of the {side}", column=name, hint="name one that both have")
    return And(tuple(sides.condition(_same_name(name)) for name in names))


def _same_name(name: str) -> Predicate:
    return Test(ColumnRef(full_name(TARGET, name)), "=", ColumnRef(full_name(SOURCE, name)))


def _equal(sides: Sides, part: Predicate) -> Equal | None:
    """Two values that can be looked up in a hash table; None for any other condition."""
    if not isinstance(part, Test) or part.op not in ("=", SAME):
        return None
    left, right = part.left, part.right
    if looks_at(left, SOURCE):
        left, right = right, left
    if not looks_at(left, TARGET) or looks_at(left, SOURCE) or not looks_at(right, SOURCE) or looks_at(right, TARGET):
        return None
    dtype = common_type(_type(sides, left), _type(sides, right))
    return Equal(left, right, dtype, part.op == SAME) if dtype is not None and _hashable(dtype) else None


def _hashable(dtype: pa.DataType) -> bool:
    kinds = pa.types
    return (
        dtype in INTEGERS
        or is_text(dtype)
        or is_bytes(dtype)
        or kinds.is_floating(dtype)
        or kinds.is_boolean(dtype)
        or kinds.is_decimal128(dtype)
        or kinds.is_date32(dtype)
        or kinds.is_timestamp(dtype)
        or kinds.is_time32(dtype)
    )


def _rule(schema: Schema, sides: Sides, join: Join, clause: Clause, lenient: bool) -> Rule:
    condition = None if clause.condition is None else sides.condition(clause.condition)
    if condition is not None:
        matches(condition, _no_rows(sides, condition), 0)
    rule = Rule(clause.when, clause.action, condition)
    if clause.action is not Action.DELETE:
        rule = replace(rule, values=_values(schema, sides, clause, lenient))
    _check_sides(rule)
    if clause.action is Action.UPDATE:
        rule = replace(rule, values=_without_keys(schema, join, rule.values, star=clause.values == ALL))
    for name, value in rule.values.items():
        column = schema.field(name)
        nullable = replace(column, type=with_nullable(column.type, True), default=None)
        fit_column(evaluate_scalar(value, _no_rows(sides, value), 0), nullable, to_arrow(column.type), 0)
    return rule


def _values(schema: Schema, sides: Sides, clause: Clause, lenient: bool) -> dict[str, Scalar]:
    if clause.values == ALL:
        return _star(schema, sides, lenient)
    if not isinstance(clause.values, Mapping):
        raise InvalidInputError(
            "new values are not a mapping", got=type(clause.values).__name__, hint='say what: {"column": "expression"}'
        )
    if not clause.values and clause.action is Action.UPDATE:
        raise InvalidInputError("nothing to update", hint='say what: {"column": "expression"}')
    return {_target_column(schema, name): sides.value(value) for name, value in clause.values.items()}


def _target_column(schema: Schema, name: str) -> str:
    """The column to set, which may be written with its side."""
    side, dot, rest = name.partition(".")
    own = dot and side in ("t", "target") and name not in schema.names
    return schema.field(rest if own else name).name


def _star(schema: Schema, sides: Sides, lenient: bool) -> dict[str, Scalar]:
    given = {each.name for each in sides.source}
    missing = [name for name in schema.names if name not in given]
    if missing and not lenient:
        raise InvalidInputError(
            "source lacks columns of the table",
            code="column-missing",
            columns=", ".join(missing),
            hint="list the columns to set, or set write.merge-schema to skip those that are missing",
        )
    return {name: ColumnRef(full_name(SOURCE, name)) for name in schema.names if name in given}


def _check_sides(rule: Rule) -> None:
    """Refuse an expression that uses the side that has no row."""
    wrong = {When.NOT_MATCHED: TARGET, When.BY_SOURCE: SOURCE}.get(rule.when)
    if wrong is None:
        return
    for node in rule.nodes():
        column = min(looks_at(node, wrong), default=None)
        if column is not None:
            raise InvalidInputError(
                f"clause for rows that are {rule.when.value} uses the side that has no row",
                column=full_name(wrong, column),
                hint=f"use columns of {'s' if wrong == TARGET else 't'} alone",
            )


def _without_keys(schema: Schema, join: Join, values: Mapping[str, Scalar], *, star: bool) -> dict[str, Scalar]:
    """Drop values that only repeat the key, or the partition of a table with a key; refuse to change a key."""
    keys, fixed = schema.primary_keys, {*schema.primary_keys, *(schema.partition_keys if schema.primary_keys else ())}
    kept = {name: value for name, value in values.items() if name not in fixed or join.partner(name) != value}
    for name in kept:
        if name in keys:
            hint = "delete the row and insert it with its new key"
            raise InvalidInputError(
                "primary key cannot be changed",
                column=name,
                hint="list the columns to set, without the key" if star else hint,
            )
    return kept


def _no_rows(sides: Sides, node: Node) -> dict[str, pa.Array]:
    return {name: pa.nulls(0, to_arrow(sides.known[name].type)) for name in node.columns() if name in sides.known}


def _type(sides: Sides, scalar: Scalar) -> pa.DataType:
    return evaluate_scalar(scalar, _no_rows(sides, scalar), 0).type


def _all_of(parts: Sequence[Predicate]) -> Predicate | None:
    return None if not parts else parts[0] if len(parts) == 1 else And(tuple(parts))


# ------------------------------------------------------------------------------------------------ without a look


def blind_values(merge: Merge, keys: Sequence[str], columns: Sequence[str]) -> Mapping[str, Scalar] | None:
    """The values to write for every source row, if a merge does the same to existing and to new keys; else None.

    That is so if a matched and an unmatched row get the same values, without a condition, from the source alone, and
    rows match by the key and nothing else. `columns` are those that must be set, besides the key.
    """
    if not merge.by_key(keys) or len(merge.rules) != 2 or any(rule.condition is not None for rule in merge.rules):
        return None
    found = {(rule.when, rule.action): rule for rule in merge.rules}
    update = found.get((When.MATCHED, Action.UPDATE))
    insert = found.get((When.NOT_MATCHED, Action.INSERT))
    if update is None or insert is None:
        return None
    if not merge.inserts_own(keys):
        return None
    rest = {name: value for name, value in insert.values.items() if name not in keys}
    same = rest == dict(update.values) and set(rest) >= set(columns) - set(keys)
    return insert.values if same and not any(looks_at(value, TARGET) for value in rest.values()) else None


def describe_merge(merge: Merge) -> tuple[str, ...]:
    """Describe the match condition and the rules for a user."""
    parts = [
        f"{sides_to_sql(each.target)} {'<=>' if each.nulls else '='} {sides_to_sql(each.source)}"
        for each in merge.join.equals
    ]
    parts += [] if merge.join.rest is None else [sides_to_sql(merge.join.rest)]
    return (" and ".join(parts), *map(str, merge.rules))
