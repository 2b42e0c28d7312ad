"""Laws of expressions: evaluation equals a slow twin, text and trees mean the same, smaller means the same."""

from __future__ import annotations

import datetime as dt
import math
import operator
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import cache
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelake.errors import InvalidInputError
from tidelake.expr.evaluate import evaluate_scalar, truth
from tidelake.expr.node import Scalar
from tidelake.expr.parse import parse_scalar, parse_where
from tidelake.expr.prune import Bounds, may_match
from tidelake.expr.render import to_sql
from tidelake.expr.scalar import Arithmetic, Call, Cast, Coalesce, ColumnRef, Literal, Negate, NullIf
from tidelake.expr.simplify import literals, restrict, simplify, substitute
from tidelake.expr.tree import (
    OPERATORS,
    SAME,
    UNKNOWN,
    And,
    Case,
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
    StartsWith,
    Test,
    Truth,
    Unknown,
)
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.data_types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, STRING, DataType, DecimalType, Field

COLUMNS: dict[str, tuple[DataType, tuple[Any, ...]]] = {
    "i": (INT, (-7, 0, 1, 2, 3)),
    "k": (BIGINT, (-3, 0, 1, 2**40)),
    "n": (DecimalType(precision=5, scale=2), (Decimal("-1.25"), Decimal("0.00"), Decimal("1.00"), Decimal("2.50"))),
    "g": (DOUBLE, (-1.5, 0.0, 1.0, 2.5, math.nan)),
    "s": (STRING, ("", "a", "A", "ab", "a%b", "b_", "é\U0001f40b", "it's \\ \n")),
    "b": (BOOLEAN, (False, True)),
    "d": (DATE, (dt.date(2023, 12, 31), dt.date(2024, 1, 1), dt.date(2024, 2, 29))),
}
FIELDS = [Field(index, name, dtype) for index, (name, (dtype, _)) in enumerate(COLUMNS.items())]
ROWS = st.fixed_dictionaries({name: st.sampled_from((None, *values)) for name, (_, values) in COLUMNS.items()})
TABLES = st.lists(ROWS, max_size=5)
COMPARE = dict(
    zip(OPERATORS, (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge), strict=True)
)


def ordered(value: Any) -> Any:
    """A value by which Python compares as SQL does: NaN equals itself and is greater than every number."""
    return (math.isnan(value), 0 if math.isnan(value) else value) if isinstance(value, float | int | Decimal) else value


# ------------------------------------------------------------------------------------------------------- strategies


@st.composite
def deferred(draw: st.DrawFn, strategy: Callable[..., st.SearchStrategy[Any]], *arguments: int) -> Any:
    """A strategy that is built when it is drawn from, and has a short name."""
    return draw(strategy(*arguments))


def constants(*kinds: str) -> st.SearchStrategy[Scalar]:
    return st.sampled_from([None, *(value for kind in kinds for value in COLUMNS[kind][1])]).map(Literal)


@cache
def numbers(depth: int = 2) -> st.SearchStrategy[Scalar]:
    leaf = st.one_of(st.sampled_from(("i", "k", "n")).map(ColumnRef), constants("i", "n"))
    if depth == 0:
        return leaf
    inner = deferred(numbers, depth - 1)
    divisors = st.sampled_from((-3, 2, Decimal("0.5"))).map(Literal)
    return st.one_of(
        leaf,
        st.builds(Arithmetic, st.sampled_from("+-"), inner, inner),
        st.builds(Arithmetic, st.just("*"), inner, constants("i")),
        st.builds(Arithmetic, st.sampled_from(("%", "div")), inner, divisors),
        st.builds(Negate, inner),
        st.builds(lambda *parts: Coalesce(parts), inner, inner),
        st.builds(NullIf, inner, inner),
        st.builds(lambda part: Call("abs", (part,)), inner),
        st.builds(lambda part: Call("length", (part,)), deferred(texts, depth - 1)),
    )


@cache
def texts(depth: int = 1) -> st.SearchStrategy[Scalar]:
    leaf = st.one_of(st.just(ColumnRef("s")), constants("s"))
    if depth == 0:
        return leaf
    inner = deferred(texts, depth - 1)
    return st.one_of(
        leaf,
        st.builds(lambda *parts: Call("concat", parts), inner, inner),
        st.builds(lambda part: Call("lower", (part,)), inner),
        st.builds(lambda part: Cast(part, STRING), st.just(ColumnRef("i"))),
        st.builds(lambda test, yes, no: Case(((test, yes),), no), deferred(leaves), inner, inner),
    )


@cache
def leaves() -> st.SearchStrategy[Predicate]:
    def of(name: str) -> st.SearchStrategy[Predicate]:
        values = st.sampled_from((None, *COLUMNS[name][1]))
        return st.one_of(
            st.builds(Compare, st.just(name), st.sampled_from(OPERATORS), values),
            st.builds(In, st.just(name), st.lists(values, max_size=3).map(tuple)),
            st.builds(IsNull, st.just(name)),
        )

    prefixes = st.sampled_from(("", "a", "a%", "é", "it's"))
    return st.one_of(
        st.sampled_from(tuple(COLUMNS)).flatmap(of),
        st.builds(StartsWith, st.just("s"), prefixes),
        st.just(Holds(ColumnRef("b"))),
        st.just(UNKNOWN),
    )


@cache
def conditions() -> st.SearchStrategy[Predicate]:
    operators = st.sampled_from((*OPERATORS, SAME))
    patterns = st.sampled_from(("", "%", "a%", "_", "%b%", "a\\%_", "%\\\\%", "A%"))
    return st.one_of(
        leaves(),
        st.builds(Test, deferred(numbers, 2), operators, deferred(numbers, 2)),
        st.builds(Test, deferred(texts, 1), operators, deferred(texts, 1)),
        st.builds(Test, st.just(ColumnRef("d")), operators, constants("d")),
        st.builds(Test, st.just(ColumnRef("i")), operators, constants("n", "k")),
        st.builds(Like, deferred(texts, 1), patterns, st.booleans()),
        st.builds(Regex, deferred(texts, 1), st.sampled_from(("^a", "b", "[A-Z]"))),
        st.builds(Missing, deferred(numbers, 2)),
    )


@cache
def predicates() -> st.SearchStrategy[Predicate]:
    def grow(inner: st.SearchStrategy[Predicate]) -> st.SearchStrategy[Predicate]:
        parts = st.lists(inner, max_size=3).map(tuple)
        return st.one_of(
            st.builds(And, parts),
            st.builds(Or, parts),
            st.builds(Not, inner),
            st.builds(Is, inner, st.sampled_from((True, False, None))),
            st.builds(lambda part: Holds(Truth(part)), inner),
        )

    return st.recursive(deferred(conditions), grow, max_leaves=5)


EXACT = dict(zip("+-*/%", (operator.add, operator.sub, operator.mul, operator.truediv, operator.mod), strict=True))

# -------------------------------------------------------------------------------------------------------- slow twin


def slow(predicate: Predicate, row: dict[str, Any]) -> bool | None:
    """SQL's three truth values, one row at a time."""
    match predicate:
        case Compare(name, op, value):
            return compared(op, row[name], value)
        case In(name, options):
            return slow(Or(tuple(Compare(name, "=", option) for option in options)), row)
        case IsNull(name):
            return row[name] is None
        case StartsWith(name, prefix):
            return None if row[name] is None else row[name].startswith(prefix)
        case Not(part):
            answer = slow(part, row)
            return None if answer is None else not answer
        case And(parts):
            answers = [slow(part, row) for part in parts]
            return False if False in answers else None if None in answers else True
        case Or(parts):
            answers = [slow(part, row) for part in parts]
            return True if True in answers else None if None in answers else False
        case Test(left, op, right):
            return compared(op, value_of(left, row), value_of(right, row))
        case Holds(operand):
            return value_of(operand, row)
        case Missing(operand):
            return value_of(operand, row) is None
        case Is(part, wanted):
            return slow(part, row) is wanted
        case Like(operand, pattern, ignore_case):
            text = value_of(operand, row)
            return None if text is None else bool(like_regex(pattern, ignore_case).fullmatch(text))
        case Regex(operand, pattern):
            text = value_of(operand, row)
            return None if text is None else re.search(pattern, text) is not None
        case Unknown():
            return None
    raise AssertionError(predicate)


def compared(op: str, left: Any, right: Any) -> bool | None:
    if op == SAME:
        return left == right if left is not None and right is not None else left is right
    return None if left is None or right is None else bool(COMPARE[op](ordered(left), ordered(right)))


def like_regex(pattern: str, ignore_case: bool) -> re.Pattern[str]:
    pieces = re.findall(r"\\.|.", pattern, re.DOTALL)
    body = "".join({"%": ".*", "_": "."}.get(piece, re.escape(piece[-1])) for piece in pieces)
    return re.compile(body, re.DOTALL | (re.IGNORECASE if ignore_case else 0))


def value_of(scalar: Scalar, row: dict[str, Any]) -> Any:
    match scalar:
        case Literal(value):
            return value
        case ColumnRef(name):
            return row[name]
        case Coalesce(parts):
            return next((value for part in parts if (value := value_of(part, row)) is not None), None)
        case NullIf(left, right):
            value = value_of(left, row)
            return None if compared("=", value, value_of(right, row)) else value
        case Case(branches, default):
            chosen = next((value for test, value in branches if slow(test, row)), default)
            return value_of(chosen, row)
        case Truth(predicate):
            return slow(predicate, row)
    operands = [value_of(child, row) for child in scalar.children() if isinstance(child, Scalar)]
    return None if None in operands else computed(scalar, *operands)


def computed(scalar: Scalar, *operands: Any) -> Any:
    match scalar:
        case Arithmetic(op):
            left, right = (Decimal(each) for each in operands)
            if op in "+-*":
                return {"+": left + right, "-": left - right, "*": left * right}[op]
            return left % right if op == "%" else int(left / right)
        case Negate():
            return -operands[0]
        case Cast():
            return str(operands[0])
        case Call("concat"):
            return "".join(operands)
        case Call("lower"):
            return operands[0].lower()
        case Call("length"):
            return len(operands[0])
        case Call("abs"):
            return abs(operands[0])
    raise AssertionError(scalar)


def columns_of(rows: list[dict[str, Any]]) -> dict[str, pa.Array]:
    return {name: pa.array([row[name] for row in rows], to_arrow(dtype)) for name, (dtype, _) in COLUMNS.items()}


# -------------------------------------------------------------------------------------------------------------- laws


@given(predicate=predicates(), rows=TABLES)
@settings(max_examples=150, deadline=None)
def test_a_predicate_on_columns_equals_its_slow_twin_on_rows(predicate, rows):
    assert truth(predicate, columns_of(rows), len(rows)).to_pylist() == [slow(predicate, row) for row in rows]


@given(scalar=st.one_of(numbers(3), texts(2)), rows=TABLES)
@settings(max_examples=150, deadline=None)
def test_a_scalar_on_columns_equals_its_slow_twin_on_rows(scalar, rows):
    found = evaluate_scalar(scalar, columns_of(rows), len(rows))
    found.validate(full=True)
    assert found.to_pylist() == [value_of(scalar, row) for row in rows]


@given(predicate=predicates(), rows=TABLES)
@settings(max_examples=150, deadline=None)
def test_a_predicate_written_as_text_and_read_again_means_the_same(predicate, rows):
    again = parse_where(to_sql(predicate), FIELDS)
    columns = columns_of(rows)
    assert truth(again, columns, len(rows)).equals(truth(predicate, columns, len(rows)))
    # NaN is not equal to itself, but it looks the same.
    assert repr(parse_where(to_sql(again), FIELDS)) == repr(again)


@given(scalar=st.one_of(numbers(3), texts(2)), rows=TABLES)
@settings(max_examples=120, deadline=None)
def test_a_scalar_written_as_text_and_read_again_is_the_same_value(scalar, rows):
    again, columns = parse_scalar(to_sql(scalar), FIELDS), columns_of(rows)
    assert evaluate_scalar(again, columns, len(rows)).equals(evaluate_scalar(scalar, columns, len(rows)))
    assert parse_scalar(to_sql(again), FIELDS) == again


@given(predicate=predicates(), rows=TABLES)
@settings(max_examples=120, deadline=None)
def test_a_simplified_predicate_keeps_every_truth_value(predicate, rows):
    smaller, columns = simplify(predicate), columns_of(rows)
    assert truth(smaller, columns, len(rows)).equals(truth(predicate, columns, len(rows)))
    assert repr(simplify(smaller)) == repr(smaller)


@given(predicate=predicates(), row=ROWS, names=st.sets(st.sampled_from(tuple(COLUMNS))))
@settings(max_examples=120, deadline=None)
def test_values_put_in_the_place_of_columns_leave_the_truth_as_it_is(predicate, row, names):
    values = {name: pa.scalar(row[name], to_arrow(COLUMNS[name][0])) for name in names}
    rest = substitute(predicate, values)
    assert not rest.columns() & names
    assert truth(rest, columns_of([row]), 1).to_pylist() == [slow(predicate, row)]


@given(predicate=predicates(), row=ROWS, names=st.sets(st.sampled_from(tuple(COLUMNS))))
@settings(max_examples=120, deadline=None)
def test_what_is_said_about_some_columns_holds_wherever_the_whole_holds(predicate, row, names):
    weaker = restrict(predicate, names)
    assert weaker.columns() <= names
    if slow(predicate, row) is True:
        assert slow(weaker, row) is True
        for name, (dtype, _) in COLUMNS.items():
            found = literals(predicate, name, dtype)
            assert found is None or row[name] in found


@given(
    predicate=predicates(),
    groups=st.lists(st.lists(ROWS, min_size=1, max_size=3), max_size=3),
    known=st.sets(st.sampled_from(tuple(COLUMNS))),
)
@settings(max_examples=150, deadline=None)
def test_pruning_never_says_no_for_a_group_that_holds_a_matching_row(predicate, groups, known):
    bounds = {name: bounds_of(name, groups) for name in known}
    answer = may_match(predicate, bounds, len(groups))
    assert answer.null_count == 0
    for group, kept in zip(groups, answer.to_pylist(), strict=True):
        assert kept or not any(slow(predicate, row) is True for row in group)


WORDS = [
    "i", "s", "d", "b", "n", "g", "(", ")", ",", "=", "<>", "<=>", "<", "+", "-", "*", "/", "%", "||", "and",
    "or", "not", "is", "null", "in", "between", "like", "escape", "rlike", "case", "when", "then", "else",
    "end", "cast(", "as", "int", "decimal(5,2)", "date", "'2024-01-01'", "'x'", "1", "0", "1.5", "1e3", "5L",
    "1BD", "X'0a'", "upper(", "coalesce(", "if(", "trim(", "extract(", "from", "interval", "day", "select", "*",
    "?", ":x", ".", "::", "[", "]", ";", "--", "/*", "'", "`", "\"", "\\", "~", "over", "true", "unknown",
    "any", "exists", "show", "é", "\0",
]  # fmt: skip


@given(text=st.one_of(st.text(max_size=30), st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)))
@settings(max_examples=200, deadline=None)
def test_any_text_is_read_or_refused_with_a_typed_error(text):
    for parse in (parse_where, parse_scalar):
        try:
            found = parse(text, FIELDS)
        except InvalidInputError as error:
            assert error.message  # noqa: PT017  a refusal is one of two right answers
        else:
            assert repr(parse(to_sql(found), FIELDS)) == repr(found)


@st.composite
def decimals(draw: st.DrawFn) -> tuple[DecimalType, Decimal]:
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    number = draw(st.one_of(st.sampled_from((0, 1, 10**precision - 1)), st.integers(0, 10**precision - 1)))
    digits = tuple(map(int, str(number)))
    return DecimalType(precision=precision, scale=scale), Decimal((draw(st.integers(0, 1)), digits, -scale))


@given(left=decimals(), right=decimals(), op=st.sampled_from("+-*/%"))
@settings(max_examples=150, deadline=None)
def test_decimal_arithmetic_is_exact_up_to_the_rounding_of_its_result_type(left, right, op):
    (left_type, x), (right_type, y) = left, right
    columns = {"x": pa.array([x, None], to_arrow(left_type)), "y": pa.array([y, y], to_arrow(right_type))}
    dtype = evaluate_scalar(Arithmetic(op, ColumnRef("x"), ColumnRef("y")), no_rows(columns), 0).type
    with localcontext(prec=200, rounding=ROUND_HALF_UP):
        undefined = op in "/%" and y == 0
        exact = None if undefined else EXACT[op](x, y)
        expected = None if exact is None else exact.quantize(Decimal(1).scaleb(-dtype.scale))
        fits = expected is not None and abs(expected) < Decimal(10) ** (dtype.precision - dtype.scale)
    try:
        found = evaluate_scalar(Arithmetic(op, ColumnRef("x"), ColumnRef("y")), columns, 2)
    except InvalidInputError:
        assert not fits
    else:
        found.validate(full=True)
        assert found.to_pylist() == [expected, None]
        assert fits


def no_rows(columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
    return {name: column.slice(0, 0) for name, column in columns.items()}


def bounds_of(name: str, groups: list[list[dict[str, Any]]]) -> Bounds:
    dtype = to_arrow(COLUMNS[name][0])
    values = [[row[name] for row in group if row[name] is not None] for group in groups]
    nulls = [len(group) - len(there) for group, there in zip(groups, values, strict=True)]
    # Some writers pass over NaN: the bounds are then those of the other values.
    values = [[value for value in group if value == value] for group in values]
    order = (lambda value: value.encode()) if name == "s" else None
    return Bounds(
        pa.array([min(group, default=None, key=order) for group in values], dtype),
        pa.array([max(group, default=None, key=order) for group in values], dtype),
        pa.array(nulls, pa.int64()),
        pa.array([len(group) for group in groups], pa.int64()),
    )
