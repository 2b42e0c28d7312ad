"""Exact evaluation of predicates and scalars on Arrow columns, with SQL's three truth values.

A part that can fail (a division, a cast) is evaluated only for the rows that need it: `b <> 0 AND a / b > 1` and
`CASE WHEN b <> 0 THEN a / b END` never divide by zero. Everything else is evaluated for all rows at once.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError
from tidelake.expr import decimals
from tidelake.expr.cast import cast, cast_arrow
from tidelake.expr.coerce import (
    COMPARISONS,
    INTEGERS,
    common_type,
    is_moment,
    is_number,
    is_text,
    to_common_type,
    to_plain_array,
    type_of_text_beside,
)
from tidelake.expr.constants import moment_of
from tidelake.expr.functions import FUNCTIONS, Arguments, constant_of, find_function
from tidelake.expr.moments import plain_value
from tidelake.expr.node import Node, Scalar, walk
from tidelake.expr.render import to_sql
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
    literal_type,
)
from tidelake.expr.tree import (
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
    flatten,
)
from tidelake.spec.types.arrow_types import to_arrow

Columns = Mapping[str, pa.Array]
Rows = np.ndarray[Any, Any]
"""Positions of rows."""

_CAN_FAIL: Final = (Arithmetic, Negate, Cast, Call, Test, Case, Coalesce, NullIf)
_FAILURES: Final = (pa.ArrowException, OverflowError, ZeroDivisionError)


def matches(predicate: Predicate, columns: Columns, count: int) -> pa.BooleanArray:
    """Which of `count` rows satisfy the predicate; never null.

    Raises:
        InvalidInputError: a column does not exist, a value does not fit its type, or a value cannot be computed.
    """
    return pc.fill_null(truth(predicate, columns, count), False)


def truth(predicate: Predicate, columns: Columns, count: int) -> pa.BooleanArray:
    """The truth value of each of `count` rows; null is unknown. Raises like `matches`."""
    try:
        return _evaluate(predicate, columns, count)
    except RecursionError as cause:
        raise _too_deep() from cause


def evaluate_scalar(expr: Scalar, columns: Columns, count: int) -> pa.Array:
    """The value of each of `count` rows.

    Raises:
        InvalidInputError: a column does not exist, operands have types that cannot be combined, or a value cannot be
            computed (an overflow, a division by zero, a text that is not a number).
    """
    try:
        return _as_array(_value(expr, columns, count), count)
    except RecursionError as cause:
        raise _too_deep() from cause


# ------------------------------------------------------------------------------------------------------- predicates


def _evaluate(predicate: Predicate, columns: Columns, count: int) -> pa.BooleanArray:
    match predicate:
        case Compare(name, op, value):
            values = to_plain_array(find_column(columns, name))
            op, scalar = beside_column(op, value, values.type, name)
            return COMPARISONS[op](values, scalar)
        case In(name, options):
            return _is_in(to_plain_array(find_column(columns, name)), name, options, count)
        case IsNull(name):
            return pc.is_null(find_column(columns, name))
        case StartsWith(name, prefix):
            return pc.starts_with(_text(find_column(columns, name), predicate), pattern=prefix)
        case Not(part):
            return pc.invert(_evaluate(part, columns, count))
        case And():
            return _every(_guards_first(predicate), columns, count)
        case Or():
            return _some(_guards_first(predicate), columns, count)
    return _evaluate_scalars(predicate, columns, count)


def _evaluate_scalars(predicate: Predicate, columns: Columns, count: int) -> pa.BooleanArray:
    match predicate:
        case Test(left, op, right):
            values = _value(left, columns, count), _value(right, columns, count)
            return _as_array(_compare(op, *values, predicate), count)
        case Holds(operand):
            return _boolean(_as_array(_value(operand, columns, count), count), predicate)
        case Missing(operand):
            return pc.is_null(_as_array(_value(operand, columns, count), count))
        case Is(part, None):
            return pc.is_null(_evaluate(part, columns, count))
        case Is(part, value):
            return pc.fill_null(pc.equal(_evaluate(part, columns, count), value), False)
        case Like(operand, pattern, ignore_case):
            text = _text(_as_array(_value(operand, columns, count), count), predicate)
            return pc.match_like(text, pattern=pattern, ignore_case=ignore_case)
        case Regex(operand, pattern):
            text = _text(_as_array(_value(operand, columns, count), count), predicate)
            return _wrap_errors(lambda: pc.match_substring_regex(text, pattern=pattern), predicate)
        case Unknown():
            return pa.nulls(count, pa.bool_())
    raise InvalidInputError("predicate is of an unknown kind", predicate=predicate)


def _guards_first(predicate: And | Or) -> list[Predicate]:
    """First the parts that cannot fail, then those that can: the former decide which rows the latter are needed for."""
    return sorted(flatten(predicate), key=can_fail)


def _every(parts: Iterable[Predicate], columns: Columns, count: int) -> pa.BooleanArray:
    answer = constant(True, count)
    for part in parts:
        asked = pc.fill_null(answer, True) if can_fail(part) else None
        answer = pc.and_kleene(answer, _for_rows(part, asked, columns, count))
    return answer


def _some(parts: Iterable[Predicate], columns: Columns, count: int) -> pa.BooleanArray:
    answer = constant(False, count)
    for part in parts:
        asked = pc.invert(pc.fill_null(answer, False)) if can_fail(part) else None
        answer = pc.or_kleene(answer, _for_rows(part, asked, columns, count))
    return answer


def _for_rows(part: Predicate, asked: pa.BooleanArray | None, columns: Columns, count: int) -> pa.BooleanArray:
    """The truth value of the rows in `asked` (None: all rows); unknown for the others."""
    if asked is None:
        return _evaluate(part, columns, count)
    rows = np.flatnonzero(np.asarray(asked))
    found = _evaluate(part, _take_rows(part, columns, rows, count), len(rows))
    return found if len(rows) == count else _scatter([(rows, found)], found.type, count)


def _is_in(values: pa.Array, name: str, options: Sequence[Any], count: int) -> pa.BooleanArray:
    scalars = [typed_scalar(option, values.type, name) for option in options if option is not None]
    given = len(scalars)
    scalars = [scalar for scalar in scalars if not _is_finer(scalar, values.type)]  # no value of the column is equal
    if pa.types.is_floating(values.type) or any(scalar.type != values.type for scalar in scalars):
        equals = (COMPARISONS["="](values, scalar) for scalar in scalars)
        found = reduce(pc.or_kleene, equals, constant(False, count))
    else:
        found = pc.is_in(values, value_set=pa.array(scalars, values.type), skip_nulls=True)
    if not options:
        return constant(False, count)
    unknown = constant(True, count) if given < len(options) else pc.is_null(values)
    return pc.or_kleene(pc.fill_null(found, False), pc.if_else(unknown, pa.scalar(None, pa.bool_()), False))


def can_fail(node: Node) -> bool:
    """Whether evaluating it may be an error for some rows."""
    return any(isinstance(each, _CAN_FAIL) for each in walk(node))


# ---------------------------------------------------------------------------------------------------------- scalars


def _value(expr: Scalar, columns: Columns, count: int) -> Any:
    """An array, or a scalar where the value is the same for all rows."""
    match expr:
        case Literal():
            return literal_scalar(expr)
        case ColumnRef(name):
            return to_plain_array(find_column(columns, name))
        case Truth(predicate):
            return _evaluate(predicate, columns, count)
        case Case(branches, default):
            return _case(branches, default, expr, columns, count)
        case Coalesce(parts):
            return _coalesce(parts, expr, columns, count)
        case NullIf(left, right):
            values = _as_array(_value(left, columns, count), count)
            equal = _as_array(_compare("=", values, _value(right, columns, count), expr), count)
            return pc.if_else(pc.fill_null(equal, False), pa.scalar(None, values.type), values)
        case Arithmetic(op, left, right):
            return _arithmetic(expr, op, *_operands(left, right, columns, count), count)
        case Call(function, arguments):
            return _call(expr, function, arguments, columns, count)
    operand = _as_array(_value(_operand(expr), columns, count), count)
    match expr:
        case Member(_, name):
            return _member(operand, name, expr)
        case Negate():
            number = _number(operand, expr)
            return _wrap_errors(lambda: pc.negate_checked(number), expr)
        case Cast(_, dtype):
            return _wrap_errors(lambda: cast(operand, dtype), expr)
    raise InvalidInputError("expression is of an unknown kind", expression=expr)


def _operand(expr: Scalar) -> Scalar:
    if isinstance(expr, (Member, Negate, Cast)):
        return expr.operand
    raise InvalidInputError("expression is of an unknown kind", expression=expr)


def literal_scalar(expr: Literal) -> pa.Scalar:
    """The constant as an Arrow scalar.

    Raises:
        InvalidInputError: the value does not belong to its type.
    """
    dtype = expr.type or literal_type(expr.value)
    if dtype is None:
        return pa.scalar(None)
    try:
        if isinstance(expr.value, pa.TimestampScalar):
            return _moment(expr.value, to_arrow(dtype))
        return pa.scalar(expr.value, to_arrow(dtype))
    except (pa.ArrowException, ValueError, OverflowError, TypeError) as cause:
        raise InvalidInputError(
            "constant does not belong to its type",
            value=ascii(expr.value),
            type=dtype,
            hint="write a value of that type",
        ) from cause


def _operands(left: Scalar, right: Scalar, columns: Columns, count: int) -> tuple[Any, Any]:
    """Both operands; an integer constant beside a decimal has as many digits as are written, as in Spark."""
    values = [_value(left, columns, count), _value(right, columns, count)]
    if any(pa.types.is_decimal(value.type) for value in values):
        for index, side in enumerate((left, right)):
            if isinstance(side, Literal) and values[index].type in INTEGERS and side.value is not None:
                values[index] = pa.scalar(side.value, pa.decimal128(len(str(abs(side.value))), 0))
    return values[0], values[1]


def _arithmetic(expr: Scalar, op: str, left: Any, right: Any, count: int) -> Any:
    left, right = _number(left, expr, right.type), _number(right, expr, left.type)
    dtype = common_type(left.type, right.type)
    assert dtype is not None
    if pa.types.is_decimal(dtype):
        pair = _as_array(left, count), _as_array(right, count)
        return _wrap_errors(lambda: decimals.arithmetic(op, *pair), expr)
    if op == "/":
        dtype = pa.float64()
    elif op == "div":
        dtype = pa.int64() if dtype in INTEGERS else dtype
    left, right = to_common_type(left, dtype), to_common_type(right, dtype)
    if op in ("/", "%", "div"):
        _refuse_zero(left, right, expr)
    return _wrap_errors(lambda: _ARITHMETIC[op](left, right, count), expr)


def _remainder(left: Any, right: Any, count: int) -> pa.Array:
    """The remainder with the sign of the dividend, as in C and on the JVM; Arrow has no such kernel."""
    left, right = _as_array(left, count), _as_array(right, count)
    null = np.asarray(pc.or_(pc.is_null(left), pc.is_null(right)))
    divisor = np.where(null, 1, np.asarray(pc.fill_null(right, 1))).astype(right.type.to_pandas_dtype())
    # The least integer divided by -1 overflows on the way to its remainder, which is 0.
    divisor = np.where(divisor == -1, 1, divisor) if left.type in INTEGERS else divisor
    return pa.array(np.fmod(np.asarray(pc.fill_null(left, 0)), divisor), left.type, mask=null)


def _whole_quotient(left: Any, right: Any, _: int) -> Any:
    quotient = pc.divide_checked(left, right)
    return quotient if quotient.type in INTEGERS else pc.trunc(quotient).cast(pa.int64())


_ARITHMETIC: Final[Mapping[str, Callable[[Any, Any, int], Any]]] = {
    "+": lambda left, right, _: pc.add_checked(left, right),
    "-": lambda left, right, _: pc.subtract_checked(left, right),
    "*": lambda left, right, _: pc.multiply_checked(left, right),
    "/": lambda left, right, _: pc.divide(left, right),
    "%": _remainder,
    "div": _whole_quotient,
}


def _refuse_zero(left: Any, right: Any, expr: Node) -> None:
    zero = pc.equal(right, pa.scalar(0, right.type))
    if pc.any(pc.and_kleene(zero, pc.is_valid(left))).as_py():
        raise _computation_error(
            expr, "division by zero", "guard it: CASE WHEN divisor <> 0 THEN ... END, or nullif(divisor, 0)"
        )


def _case(
    branches: Sequence[tuple[Predicate, Scalar]], default: Scalar, expr: Node, columns: Columns, count: int
) -> pa.Array:
    left, pieces = np.arange(count), []
    for condition, value in branches:
        found = _evaluate(condition, _take_rows(condition, columns, left, count), len(left))
        hit = np.asarray(pc.fill_null(found, False))
        rows, left = left[hit], left[~hit]
        pieces.append((rows, _rows_value(value, columns, rows, count)))
    pieces.append((left, _rows_value(default, columns, left, count)))
    return _merge_branches(pieces, expr, count)


def _coalesce(parts: Sequence[Scalar], expr: Node, columns: Columns, count: int) -> pa.Array:
    left, pieces = np.arange(count), []
    for part in parts:
        values = _rows_value(part, columns, left, count)
        valid = np.asarray(values.is_valid())
        pieces.append((left[valid], values.filter(pa.array(valid))))
        left = left[~valid]
    return _merge_branches(pieces, expr, count)


def _call(expr: Scalar, name: str, arguments: Sequence[Scalar], columns: Columns, count: int) -> pa.Array:
    function = find_function(name)
    if function is None:
        raise InvalidInputError("function is not known", function=name, hint=f"functions are {', '.join(FUNCTIONS)}")
    if len(arguments) < function.least or (function.most is not None and len(arguments) > function.most):
        raise InvalidInputError(
            "function has the wrong number of arguments",
            function=name,
            arguments=len(arguments),
            hint=f"give it {_format_count(function.least, function.most)}",
        )
    given = Arguments(
        [_as_array(_value(each, columns, count), count) for each in arguments],
        [
            constant_of(each.value, True) if isinstance(each, Literal) else constant_of(None, False)
            for each in arguments
        ],
    )
    return _wrap_errors(lambda: function.run(given), expr)


def _member(operand: pa.Array, name: str, expr: Node) -> pa.Array:
    if not pa.types.is_struct(operand.type) or operand.type.get_field_index(name) < 0:
        raise InvalidInputError("value has no such member", member=name, expression=_shorten_sql(expr))
    return to_plain_array(pc.struct_field(operand, name))


def _compare(op: str, left: Any, right: Any, expr: Node) -> Any:
    if is_text(left.type) and not is_text(right.type) and not pa.types.is_null(right.type):
        left = read_text(left, right.type, expr)
    elif is_text(right.type) and not is_text(left.type) and not pa.types.is_null(left.type):
        right = read_text(right, left.type, expr)
    dtype = common_type(left.type, right.type)
    if dtype is None or pa.types.is_nested(dtype):
        raise InvalidInputError(
            "values of these types cannot be compared",
            expression=_shorten_sql(expr),
            left=left.type,
            right=right.type,
            hint="cast one of them",
        )
    if pa.types.is_null(dtype):
        left, right, dtype = to_common_type(left, pa.bool_()), to_common_type(right, pa.bool_()), pa.bool_()
    return _wrap_errors(lambda: COMPARISONS[op](to_common_type(left, dtype), to_common_type(right, dtype)), expr)


def read_text(text: Any, other: pa.DataType, expr: Node) -> Any:
    """Cast a text that is compared with a value of another type, as Spark does."""
    target = type_of_text_beside(other)
    if isinstance(text, pa.Scalar):
        return _wrap_errors(lambda: cast_arrow(pa.array([text.as_py()], text.type), target), expr)[0]
    return _wrap_errors(lambda: cast_arrow(text, target), expr)


# ---------------------------------------------------------------------------------------------------------- helpers


def _rows_value(expr: Scalar, columns: Columns, rows: Rows, count: int) -> pa.Array:
    return _as_array(_value(expr, _take_rows(expr, columns, rows, count), len(rows)), len(rows))


def _take_rows(node: Node, columns: Columns, rows: Rows, count: int) -> Columns:
    """The columns that a node reads, for these rows only."""
    if len(rows) == count:
        return columns
    return {name: find_column(columns, name).take(pa.array(rows)) for name in node.columns()}


def _merge_branches(pieces: Sequence[tuple[Rows, pa.Array]], expr: Node, count: int) -> pa.Array:
    dtype = reduce(lambda left, right: _result_type(left, right, expr), (values.type for _, values in pieces))
    return _scatter([(rows, _result(values, dtype, expr)) for rows, values in pieces], dtype, count)


def _result_type(left: pa.DataType, right: pa.DataType, expr: Node) -> pa.DataType:
    dtype = common_type(left, right)
    if dtype is None:
        raise InvalidInputError(
            "branches have no common type",
            expression=_shorten_sql(expr),
            left=left,
            right=right,
            hint="cast one of them",
        )
    if pa.types.is_decimal256(dtype):
        return pa.decimal128(*decimals.limit_precision(dtype.precision, dtype.scale))
    return dtype


def _result(values: pa.Array, dtype: pa.DataType, expr: Node) -> pa.Array:
    if pa.types.is_decimal(dtype) and values.type != dtype and not pa.types.is_null(values.type):
        return _wrap_errors(lambda: decimals.round_to(values, dtype.precision, dtype.scale), expr)
    return to_common_type(values, dtype)


def _scatter(pieces: Sequence[tuple[Rows, pa.Array]], dtype: pa.DataType, count: int) -> pa.Array:
    """One array from pieces of values and their row numbers; null for rows in none of the pieces."""
    order, start = np.full(count, -1, np.int64), 0
    for rows, values in pieces:
        order[rows] = np.arange(start, start + len(rows))
        start += len(values)
    everything = pa.concat_arrays([values for _, values in pieces]) if pieces else pa.nulls(0, dtype)
    return everything.take(pa.array(order, mask=order < 0))


def _as_array(value: Any, count: int) -> pa.Array:
    if not isinstance(value, pa.Scalar):
        return value
    return pa.repeat(value, count) if value.is_valid else pa.nulls(count, value.type)


def _number(value: Any, expr: Node, other: pa.DataType | None = None) -> Any:
    dtype = value.type
    if pa.types.is_null(dtype):
        target = other if other is not None and is_number(other) else pa.int32()
        return to_common_type(value, target)
    if is_number(dtype):
        return value
    hint = "join text with || or concat" if is_text(dtype) else "use date_add and datediff for dates, or cast it"
    raise InvalidInputError("operand is not a number", expression=_shorten_sql(expr), type=dtype, hint=hint)


def _text(values: pa.Array, expr: Node) -> pa.Array:
    values = to_plain_array(values)
    if pa.types.is_null(values.type):
        return values.cast(pa.string())
    if is_text(values.type):
        return values
    raise InvalidInputError(
        "value is not text", expression=_shorten_sql(expr), type=values.type, hint="cast it to STRING first"
    )


def _boolean(values: pa.Array, expr: Node) -> pa.BooleanArray:
    if pa.types.is_null(values.type):
        return values.cast(pa.bool_())
    if pa.types.is_boolean(values.type):
        return values
    raise InvalidInputError(
        "value is not a condition", expression=_shorten_sql(expr), type=values.type, hint="compare it with something"
    )


def _wrap_errors(compute: Callable[[], Any], expr: Node) -> Any:
    """Run a computation; its failures become errors that name the expression."""
    try:
        return compute()
    except ZeroDivisionError as cause:
        hint = "guard it: CASE WHEN divisor <> 0 THEN ... END, or nullif(divisor, 0)"
        raise _computation_error(expr, "division by zero", hint) from cause
    except InvalidInputError as cause:
        cause.facts.setdefault("expression", _shorten_sql(expr))
        raise
    except _FAILURES as cause:
        reason = " ".join(str(cause).split()) or "overflow"
        raise _computation_error(
            expr, reason[:200], "cast to a wider type, or leave out the rows that do not fit"
        ) from cause


def _computation_error(expr: Node, reason: str, hint: str) -> InvalidInputError:
    return InvalidInputError("expression cannot be computed", expression=_shorten_sql(expr), reason=reason, hint=hint)


def _shorten_sql(expr: Node) -> str:
    text = to_sql(expr)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _format_count(least: int, most: int | None) -> str:
    return f"{least} or more" if most is None else str(least) if least == most else f"{least} to {most}"


def _too_deep() -> InvalidInputError:
    return InvalidInputError("expression is nested too deeply", hint="split it, or use IN for a long list of values")


def constant(value: bool, count: int) -> pa.BooleanArray:
    """An array of one truth value."""
    return pa.repeat(pa.scalar(value), count)


def find_column(columns: Columns, name: str) -> pa.Array:
    """The column of this name.

    Raises:
        InvalidInputError: the column does not exist.
    """
    if name not in columns:
        raise InvalidInputError("column does not exist", column=name, hint=f"columns are {', '.join(columns)}")
    return columns[name]


def typed_scalar(value: Any, dtype: pa.DataType, name: str) -> pa.Scalar:
    """The value as a scalar of the column's type, or of a finer timestamp type if the column's would cut digits off.

    Raises:
        InvalidInputError: it does not fit.
    """
    value = plain_value(value)
    try:
        if isinstance(value, str) and pa.types.is_timestamp(dtype):
            value = moment_of(value, zoned=dtype.tz is not None)
        if isinstance(value, str) and not is_text(dtype):
            return pa.scalar(value).cast(dtype)
        if isinstance(value, dt.datetime | pa.TimestampScalar) and is_moment(dtype):
            return _moment(value, dtype)
        if isinstance(value, float) and pa.types.is_integer(dtype) and not value.is_integer():
            raise TypeError("a fraction in a column of integers")  # Arrow would silently cut it off
        return pa.scalar(value, dtype)
    except (pa.ArrowException, ValueError, OverflowError, TypeError) as cause:
        raise InvalidInputError(
            "value does not fit the column",
            column=name,
            value=ascii(value),
            type=dtype,
            hint="write a value of that type",
        ) from cause


def beside_column(op: str, value: Any, dtype: pa.DataType, name: str) -> tuple[str, pa.Scalar]:
    """Rewrite a comparison of a column with a value so that Arrow computes it exactly.

    Arrow converts a whole column to nanoseconds if the value has some, and fails for years before 1677 and after 2262.
    But a value with nanoseconds is between two values of a column of microseconds and equals none of them, so that a
    comparison with the microsecond below it has the same answer.

    Raises:
        InvalidInputError: the value does not fit the column's type.
    """
    scalar = typed_scalar(value, dtype, name)
    if not _is_finer(scalar, dtype):
        return op, scalar
    micros = pa.timestamp("us", getattr(dtype, "tz", None))
    if op in ("=", "!="):  # never, and wherever there is a value
        return "<" if op == "=" else ">=", pa.scalar(_LEAST, micros)
    return "<=" if op in ("<", "<=") else ">", pa.scalar(scalar.value // 1_000, micros)


def _is_finer(scalar: pa.Scalar, dtype: pa.DataType) -> bool:
    return isinstance(scalar, pa.TimestampScalar) and scalar.type.unit == "ns" and getattr(dtype, "unit", None) != "ns"


_LEAST: Final = -(2**63)


def _moment(value: dt.datetime | pa.TimestampScalar, dtype: pa.DataType) -> pa.Scalar:
    """The point in time in the column's unit, or exact if that unit is too coarse: Arrow would silently cut it."""
    zone = getattr(dtype, "tz", None)
    if isinstance(value, pa.TimestampScalar):
        exact = pa.scalar(value.value, pa.timestamp("ns", zone))
    else:
        exact = pa.scalar(value, pa.timestamp("us", zone))
    try:
        coarse = exact.cast(dtype)
    except pa.ArrowInvalid:
        return exact
    return coarse if coarse.cast(exact.type).equals(exact) else exact
