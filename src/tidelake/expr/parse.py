"""Parse SQL text to expressions: WHERE conditions and SET values, in the dialect of Spark.

sqlglot parses the syntax; this module decides, node by node, what it means. Text that is not understood is refused with
its position: nothing is skipped. Operators that dialects group differently (`a = b = c`) need parentheses. Only the
functions of our own table exist.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, TypeVar

import pyarrow as pa
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from tidelake.errors import InvalidInputError
from tidelake.expr import constants
from tidelake.expr.evaluate import evaluate_scalar, matches
from tidelake.expr.functions import ALIASES, FUNCTIONS
from tidelake.expr.node import Scalar
from tidelake.expr.render import quote_name, to_sql
from tidelake.expr.scalar import (
    NULL,
    Arithmetic,
    Call,
    Cast,
    Coalesce,
    ColumnRef,
    Literal,
    Member,
    Negate,
    NullIf,
    literal,
)
from tidelake.expr.sides import SIDES, SOURCE, TARGET, column_of, full_name, side_of
from tidelake.expr.tree import (
    ALWAYS,
    NEVER,
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
    Test,
    Truth,
    like,
)
from tidelake.expr.vocabulary import AGGREGATES, BUILT, CONDITION_FUNCTIONS, NAMED_CASTS, TIMES, TYPES, UNSTEADY
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.data_types import (
    DataType,
    DecimalType,
    Field,
    Root,
    RowType,
    TimeType,
)

T = TypeVar("T")

TEXT_MAX: Final = 1 << 20
DEPTH_MAX: Final = 200

_COMPARISONS: Final[dict[type[exp.Expr], str]] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: SAME,
}
_MIRRORED: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<=", SAME: SAME}
_ARITHMETIC: Final[dict[type[exp.Expr], str]] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "div",
}
_CONDITIONS: Final = (
    *_COMPARISONS,
    exp.NullSafeNEQ,
    exp.And,
    exp.Or,
    exp.Not,
    exp.Like,
    exp.ILike,
    exp.Escape,
    exp.RegexpLike,
    exp.In,
    exp.Between,
    exp.Is,
)
_REFUSED: Final[tuple[tuple[tuple[type[exp.Expr], ...], str, str], ...]] = (
    (
        (exp.Query, exp.Exists, exp.Any, exp.All),
        "subqueries, ANY and ALL are not supported",
        "read the other table first, then use IN",
    ),
    ((exp.Window, exp.Filter), "window functions and filters are not supported", "compute it in a query engine"),
    ((exp.Interval,), "intervals are not supported", "use date_add(date, days), or write the resulting moment"),
    ((exp.Star,), "a star is not an expression", "name the column"),
    ((exp.Placeholder, exp.Parameter), "parameters are not supported", "write the value itself"),
    ((exp.Bracket,), "elements of arrays and maps are not supported", "only members of a ROW can be reached: r.x"),
    ((exp.Tuple,), "tuples are not supported", "compare the columns one by one"),
)


class _Dialect(Spark):
    """Spark, except that every function keeps the name in the text."""

    class Tokenizer(Spark.Tokenizer):
        """Without statements: a column may be called `show`."""

        COMMANDS: ClassVar[set[TokenType]] = set()

    class Parser(SparkParser):
        """Without sqlglot's table of functions, which would rewrite some of them."""

        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: SparkParser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST", "EXTRACT", "TRIM")
        }
        NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}


def parse_where(text: str, fields: Sequence[Field], *, sided: bool = False) -> Predicate:
    """Parse a condition on these columns.

    A name matches a column exactly, or ignoring case if only one column matches. With `sided` the columns are those of
    two tables by their full names (`tidelake.expr.sides`); the text may leave the side out if only one side matches.

    Raises:
        InvalidInputError: the text is not a condition, or asks for something that is not supported.
    """
    predicate = _parse(text, fields, lambda reader, node: reader.predicate(node), sided)
    matches(predicate, _no_rows(predicate.columns(), fields), 0)
    return predicate


def parse_scalar(text: str, fields: Sequence[Field], *, sided: bool = False) -> Scalar:
    """Parse a value computed from these columns; matches names and raises like `parse_where`."""
    scalar = _parse(text, fields, lambda reader, node: reader.scalar(node), sided)
    evaluate_scalar(scalar, _no_rows(scalar.columns(), fields), 0)
    return scalar


def _no_rows(names: Iterable[str], fields: Sequence[Field]) -> dict[str, pa.Array]:
    """Empty columns: evaluating an expression on them reports errors in types but not in values."""
    return {field.name: pa.nulls(0, to_arrow(field.type)) for field in fields if field.name in names}


def _parse(text: str, fields: Sequence[Field], read: Callable[[_Reader, exp.Expr], T], sided: bool) -> T:
    if len(text) > TEXT_MAX:
        raise InvalidInputError("SQL text is too long", length=len(text), limit=TEXT_MAX, hint="build it with tl.col")
    try:
        reader = (_SidedReader if sided else _Reader)(text, fields)
        return read(reader, _syntax(text, reader.names))
    except RecursionError as cause:
        raise _too_deep() from cause


def _too_deep() -> InvalidInputError:
    return InvalidInputError(
        "SQL text is nested too deeply", limit=DEPTH_MAX, hint="remove parentheses that are not needed, or use IN"
    )


# ----------------------------------------------------------------------------------------------------------- syntax


def _syntax(text: str, names: Callable[[], Iterable[tuple[str, ...]]]) -> exp.Expr:
    dialect = _Dialect()
    try:
        tokens = _with_plain_strings(text, dialect.tokenize(text))
        _refuse_quoted_names(text, tokens, names)
        depth = 0
        for token in tokens:
            depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
            if depth > DEPTH_MAX:
                raise _too_deep()
            if token.token_type == TokenType.SEMICOLON:
                raise _error_at(text, "SQL text has more than one expression", token.start, "remove the semicolon")
        parsed = dialect.parser().parse_into(exp.Condition, tokens, text)
    except SqlglotError as cause:
        details = getattr(cause, "errors", None) or [{}]
        raise _syntax_error(text, details[0]) from cause
    statements = [each for each in parsed if each is not None]
    if len(statements) != 1:
        raise InvalidInputError("SQL text is empty", hint="write a condition such as id > 7")
    return statements[0]


def _syntax_error(text: str, details: dict[str, Any]) -> InvalidInputError:
    near = details.get("highlight")
    line, column = details.get("line"), details.get("col")
    place = None
    if line is not None and column is not None:
        place = f"line {line}, column {max(column - len(near or '') + 1, 1)}"
    return InvalidInputError(
        "SQL text has a syntax error",
        text=_shorten(text),
        position=place,
        near=near,
        hint="check quotes ('text', `column`), parentheses and operators",
    )


def _with_plain_strings(text: str, tokens: Iterable[Token]) -> list[Token]:
    """The tokens with the values of strings: escapes are replaced as in Spark, adjacent strings are joined.

    The tokenizer turns a doubled quote inside a string into two strings without space between them, so these are joined
    with the quote.
    """
    result: list[Token] = []
    for token in tokens:
        if token.token_type != TokenType.STRING:
            result.append(token)
            continue
        raw = text[token.start : token.end + 1]
        value, last = constants.unescape(raw[1:-1]), result[-1] if result else None
        if last is not None and last.token_type == TokenType.STRING:
            touching = last.end + 1 == token.start and text[last.end] == raw[0]
            last.text += (raw[0] if touching else "") + value
            last.end = token.end
            continue
        token.text = value
        result.append(token)
    return result


def _refuse_quoted_names(text: str, tokens: Iterable[Token], names: Callable[[], Iterable[tuple[str, ...]]]) -> None:
    """Refuse double-quoted column names: Spark reads them as texts, so `"status" <> 'paid'` is true for all rows."""
    suspects = [token for token in tokens if token.token_type in _TEXT_TOKENS and _is_double_quoted(text, token)]
    if not suspects:
        return
    known = {".".join(path).lower(): path for path in names()}
    for token in suspects:
        path = known.get(token.text.lower())
        if path is not None:
            column, plain = ".".join(map(quote_name, path)), to_sql(literal(token.text))
            raise _error_at(
                text,
                "text in double quotes is also the name of a column",
                token.start,
                f"write {column} for the column, {plain} for the text",
                value=f'"{token.text}"',
            )


_TEXT_TOKENS: Final = (TokenType.STRING, TokenType.RAW_STRING)


def _is_double_quoted(text: str, token: Token) -> bool:
    # Adjacent strings were joined into one token, so that either of its ends may show the double quotes.
    raw = text[token.start : token.end + 1]
    return raw.lstrip("rR").startswith('"') or raw.endswith('"') or ('"' in raw and '"' not in token.text)


def _shorten(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}..."


def _error_at(text: str, message: str, start: int | None, hint: str, **facts: str | None) -> InvalidInputError:
    place = None
    if start is not None:
        place = f"line {text.count(chr(10), 0, start) + 1}, column {start - text.rfind(chr(10), 0, start)}"
    return InvalidInputError(message, position=place, hint=hint, **facts)


# ---------------------------------------------------------------------------------------------------------- meaning


class _Reader:
    """Converts syntax nodes to expressions; knows the columns, and the text for error positions."""

    def __init__(self, text: str, fields: Sequence[Field]) -> None:
        self.text = text
        self.fields = fields
        self.depth = 0

    def names(self) -> Iterator[tuple[str, ...]]:
        """All names that the text may use: columns, and members of ROW columns as paths."""
        return _paths(self.fields)

    # -------------------------------------------------------------------------------------------------- conditions

    def predicate(self, node: exp.Expr) -> Predicate:
        """The node as a condition."""
        node = _bare(node)
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise _too_deep()
        try:
            return self._predicate(node)
        finally:
            self.depth -= 1

    def _predicate(self, node: exp.Expr) -> Predicate:
        match node:
            case exp.And() | exp.Or():
                parts = tuple(self.predicate(part) for part in self._chain(node))
                return And(parts) if isinstance(node, exp.And) else Or(parts)
            case exp.Not():
                self._only(node, "this")
                return Not(self.predicate(node.this))
            case exp.Boolean():
                return ALWAYS if node.this else NEVER
            case exp.Null():
                return UNKNOWN
            case exp.NullSafeNEQ():
                return Not(self._comparison(node, SAME))
            case exp.Is():
                return self._is(node)
            case exp.In():
                return self._in(node)
            case exp.Between():
                self._only(node, "this", "low", "high")
                value, low, high = (self._side(node.args[key]) for key in ("this", "low", "high"))
                return And((self._compare(value, ">=", low, node), self._compare(value, "<=", high, node)))
            case exp.Like() | exp.ILike() | exp.Escape():
                return self._like(node)
            case exp.RegexpLike():
                self._only(node, "this", "expression", "negate")
                found = Regex(self._side(node.this), self._plain_text(node.expression))
                return Not(found) if node.args.get("negate") else found
            case exp.Anonymous() if node.name.lower() in CONDITION_FUNCTIONS:
                return self._condition_function(node)
        op = _COMPARISONS.get(type(node))
        if op is not None:
            return self._comparison(node, op)
        scalar = self.scalar(node)
        return scalar.predicate if isinstance(scalar, Truth) else Holds(scalar)

    def _chain(self, node: exp.Expr) -> list[exp.Expr]:
        """The parts of a chain of ANDs (or ORs) without parentheses. No recursion: a chain may be thousands long."""
        parts, waiting = [], [node]
        while waiting:
            current = waiting.pop()
            if type(current) is type(node):
                self._only(current, "this", "expression")
                waiting.extend((current.expression, current.this))
            else:
                parts.append(current)
        return parts

    def _comparison(self, node: exp.Expr, op: str) -> Predicate:
        self._only(node, "this", "expression")
        return self._compare(self._side(node.this), op, self._side(node.expression), node)

    def _side(self, node: exp.Expr) -> Scalar:
        """An operand of a comparison. A condition there needs parentheses, because dialects group it differently."""
        if isinstance(node, _CONDITIONS):
            raise self._error(node, "condition inside a comparison", "put the inner condition in parentheses")
        return self.scalar(node)

    def _compare(self, left: Scalar, op: str, right: Scalar, node: exp.Expr) -> Predicate:
        if isinstance(left, Literal) and isinstance(right, ColumnRef):
            left, op, right = right, _MIRRORED[op], left
        dtype = self._type(left)
        if dtype is not None and isinstance(right, Literal):
            value = self._beside(right, dtype, node)
            if value is not None and isinstance(left, ColumnRef) and op != SAME:
                return Compare(left.column, op, value[0])
            right = right if value is None else literal(value[0])
        return Test(left, op, right)

    def _beside(self, constant: Literal, dtype: DataType, node: exp.Expr) -> tuple[Any] | None:
        return self._add_position(node, lambda: constants.beside_column(constant, dtype))

    def _is(self, node: exp.Is) -> Predicate:
        self._only(node, "this", "expression")
        operand, wanted = _bare(node.this), node.expression
        if isinstance(node.this, _CONDITIONS):
            raise self._error(node, "condition inside IS", "put the inner condition in parentheses")
        match wanted:
            case exp.Boolean():
                return Is(self.predicate(operand), bool(wanted.this))
            case exp.Null() if self._is_condition(operand):
                return Is(self.predicate(operand), None)
            case exp.Null():
                return _is_null(self.scalar(operand))
        raise self._error(node, "IS must be followed by NULL, TRUE or FALSE", "use = or <=>")

    def _in(self, node: exp.In) -> Predicate:
        if node.args.get("query") is not None:
            raise self._unsupported_error(node.args["query"])
        self._only(node, "this", "expressions")
        value = self._side(node.this)
        options = [self._side(option) for option in node.expressions]
        if not options:
            raise self._error(node, "IN has no values", "list at least one value")
        each = [self._compare(value, "=", option, node) for option in options]
        if isinstance(value, ColumnRef) and all(isinstance(part, Compare) for part in each):
            return In(value.column, tuple(part.value for part in each if isinstance(part, Compare)))
        return Or(tuple(each))

    def _like(self, node: exp.Expr) -> Predicate:
        escape = "\\"
        if isinstance(node, exp.Escape):
            self._only(node, "this", "expression")
            escape, node = self._plain_text(node.expression), node.this
            if not isinstance(node, (exp.Like, exp.ILike)):
                raise self._error(node, "ESCAPE without LIKE", "remove it")
        self._only(node, "this", "expression", "negate")
        operand, pattern = self._side(node.this), self._plain_text(node.expression)
        ignore_case = isinstance(node, exp.ILike)
        found = self._add_position(node, lambda: like(operand, pattern, escape=escape, ignore_case=ignore_case))
        return Not(found) if node.args.get("negate") else found

    def _condition_function(self, node: exp.Anonymous) -> Predicate:
        name = node.name.lower()
        if name in ("isnull", "isnotnull"):
            (operand,) = self._arguments(node, 1)
            found = _is_null(self.scalar(operand))
            return Not(found) if name == "isnotnull" else found
        operand, argument = self._arguments(node, 2)
        value, text = self.scalar(operand), self._plain_text(argument)
        if name not in ("startswith", "endswith", "contains"):
            return Regex(value, text)
        plain = re.sub(r"([\\%_])", r"\\\1", text)
        if name == "startswith":
            return like(value, f"{plain}%")
        return Like(value, f"%{plain}" if name == "endswith" else f"%{plain}%")

    def _is_condition(self, node: exp.Expr) -> bool:
        called = isinstance(node, exp.Anonymous) and node.name.lower() in CONDITION_FUNCTIONS
        return called or isinstance(node, (*_CONDITIONS, exp.Boolean))

    # ----------------------------------------------------------------------------------------------------- scalars

    def scalar(self, node: exp.Expr) -> Scalar:
        """The node as a value."""
        node = _bare(node)
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise _too_deep()
        try:
            return self._scalar(node)
        finally:
            self.depth -= 1

    def _scalar(self, node: exp.Expr) -> Scalar:
        match node:
            case exp.Literal() if node.is_string:
                return literal(node.this)
            case exp.Literal():
                return self._add_position(node, lambda: constants.number(node.this))
            case exp.Boolean():
                return literal(bool(node.this))
            case exp.Null():
                return NULL
            case exp.RawString():
                return literal(node.this)
            case exp.HexString():
                return self._hex(node)
            case exp.Column() | exp.Dot():
                return self._column(node)
            case exp.Neg():
                self._only(node, "this")
                return self._negate(node.this)
            case exp.Cast() | exp.TryCast():
                return self._cast(node)
            case exp.Case() | exp.If():
                return self._case(node)
            case exp.DPipe():
                return self._concat(node)
            case exp.Trim() | exp.Extract():
                return self._worded_function(node)
            case exp.Anonymous() if node.name.lower() not in CONDITION_FUNCTIONS:
                return self._function(node)
        op = _ARITHMETIC.get(type(node))
        if op is not None:
            return self._arithmetic(node, op)
        if self._is_condition(node):
            return Truth(self.predicate(node))
        raise self._unsupported_error(node)

    def _arithmetic(self, node: exp.Expr, op: str) -> Scalar:
        self._only(node, "this", "expression", "typed", "safe")
        sides: tuple[exp.Expr, ...] = (node.this, node.expression)
        for side in sides:
            if isinstance(side, (*_CONDITIONS, exp.DPipe)):
                raise self._error(
                    side, "operators that dialects bind differently stand side by side", "use parentheses"
                )
        return Arithmetic(op, self.scalar(node.this), self.scalar(node.expression))

    def _concat(self, node: exp.Expr) -> Scalar:
        parts, waiting = [], [node]
        while waiting:
            current = waiting.pop()
            if isinstance(current, exp.DPipe):
                self._only(current, "this", "expression", "safe")
                waiting.extend((current.expression, current.this))
            elif isinstance(current, (*_CONDITIONS, *_ARITHMETIC)):
                raise self._error(
                    current, "operators that dialects bind differently stand side by side", "use parentheses"
                )
            else:
                parts.append(self.scalar(current))
        return Call("concat", tuple(parts))

    def _negate(self, node: exp.Expr) -> Scalar:
        """A sign directly before a number belongs to it: the smallest BIGINT has no positive counterpart."""
        match node:
            case exp.Literal() if not node.is_string:
                return self._add_position(node, lambda: constants.number(f"-{node.this}"))
            case exp.TryCast() if isinstance(node.this, exp.Literal) and not node.args.get("safe"):
                dtype = self._data_type(node.args["to"])
                number = dtype.root in _NUMBERS and re.fullmatch(r"[0-9.][0-9.eE+-]*", node.this.this)
                found = (
                    self._add_position(node, lambda: constants.parse_typed(f"-{node.this.this}", dtype))
                    if number
                    else None
                )
                if found is not None:
                    return found
        return Negate(self.scalar(node))

    def _cast(self, node: exp.Expr) -> Scalar:
        self._only(node, "this", "to", "safe")
        if node.args.get("safe"):
            raise self._error(
                node, "try_cast is not supported", "use CAST, and leave out rows that do not fit with CASE"
            )
        dtype, operand = self._data_type(node.args["to"]), _bare(node.this)
        if isinstance(operand, exp.Null):
            return Literal(None, dtype)
        if isinstance(operand, exp.Literal):
            found = self._constant_cast(node, operand, dtype)
            if found is not None:
                return found
        return Cast(self.scalar(operand), dtype)

    def _constant_cast(self, node: exp.Expr, operand: exp.Literal, dtype: DataType) -> Literal | None:
        """Evaluate DATE '2024-01-01', 5L and 1.5BD to a constant, which can prune."""
        plain_timestamp = node.args["to"].this.name == "TIMESTAMPTZ"
        if operand.is_string and plain_timestamp and not node.args["to"].expressions:
            return self._add_position(node, lambda: constants.timestamp(operand.this))
        if operand.is_string and dtype.root in (Root.BOOLEAN, Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT):
            return None
        if not operand.is_string and dtype.root not in _NUMBERS:
            return None
        if not operand.is_string and dtype.root in _INTEGERS and not operand.this.isdigit():
            return None
        if isinstance(dtype, TimeType) and dtype.root is not Root.TIME and not node.args["to"].expressions:
            dtype = replace(dtype, precision=9)  # without a precision in the text, keep all digits that are written
        return self._add_position(node, lambda: constants.parse_typed(operand.this, dtype))

    def _case(self, node: exp.Expr) -> Scalar:
        if isinstance(node, exp.If):
            self._only(node, "this", "true", "false")
            otherwise = node.args.get("false")
            value = self.scalar(node.args["true"])
            return Case(((self.predicate(node.this), value),), NULL if otherwise is None else self.scalar(otherwise))
        self._only(node, "this", "ifs", "default")
        subject = None if node.this is None else self.scalar(node.this)
        branches = []
        for branch in node.args["ifs"]:
            if subject is None:
                condition = self.predicate(branch.this)
            else:
                condition = self._compare(subject, "=", self._side(branch.this), branch)
            branches.append((condition, self.scalar(branch.args["true"])))
        default = node.args.get("default")
        return Case(tuple(branches), NULL if default is None else self.scalar(default))

    def _function(self, node: exp.Anonymous) -> Scalar:
        name = node.name.lower()
        if name in AGGREGATES:
            raise self._error(node, "aggregates are not supported", "they need a query engine", function=name)
        if name in UNSTEADY:
            raise self._unsteady_error(node, name)
        if name in NAMED_CASTS:
            (operand,) = self._arguments(node, 1)
            return Cast(self.scalar(operand), NAMED_CASTS[name])
        if name in BUILT:
            return self._built(node, name)
        if ALIASES.get(name, name) not in FUNCTIONS:
            known = {*FUNCTIONS, *ALIASES, *BUILT, *CONDITION_FUNCTIONS, *NAMED_CASTS}
            raise self._error(node, "function is not known", _nearest(name, known, "functions"), function=name)
        arguments = [self.scalar(each) for each in node.expressions]
        if name in ("ltrim", "rtrim"):
            arguments.reverse()  # in Spark the characters to trim are the first argument
        return Call(ALIASES.get(name, name), tuple(arguments))

    def _built(self, node: exp.Anonymous, name: str) -> Scalar:
        if name == "coalesce":
            if not node.expressions:
                raise self._error(
                    node, "function has the wrong number of arguments", "give it at least one", function=name
                )
            return Coalesce(tuple(self.scalar(each) for each in node.expressions))
        if name == "nvl2":
            subject, there, missing = self._arguments(node, 3)
            return Case(((Not(_is_null(self.scalar(subject))), self.scalar(there)),), self.scalar(missing))
        left, right = (self.scalar(each) for each in self._arguments(node, 2))
        match name:
            case "nullif":
                return NullIf(left, right)
            case "mod":
                return Arithmetic("%", left, right)
        return Coalesce((left, right))

    def _worded_function(self, node: exp.Expr) -> Scalar:
        """Functions with keywords among their arguments: TRIM(BOTH 'x' FROM s) and EXTRACT(YEAR FROM d)."""
        if isinstance(node, exp.Extract):
            self._only(node, "this", "expression")
            name = node.this.name.lower()
            if name not in ("year", "quarter", "month", "day", "hour", "minute", "second"):
                raise self._error(node, "part of a date is not known", "use year, month, day, hour, ...", part=name)
            return Call(name, (self.scalar(node.expression),))
        self._only(node, "this", "expression", "position")
        position = str(node.args.get("position") or "BOTH").upper()
        characters = node.args.get("expression")
        arguments = (node.this,) if characters is None else (node.this, characters)
        name = {"LEADING": "ltrim", "TRAILING": "rtrim", "BOTH": "trim"}[position]
        return Call(name, tuple(self.scalar(each) for each in arguments))

    def _hex(self, node: exp.HexString) -> Scalar:
        digits = str(node.this)
        try:
            return literal(bytes.fromhex(digits if len(digits) % 2 == 0 else f"0{digits}"))
        except ValueError as cause:
            message = "hexadecimal constant has an invalid character"
            raise self._error(node, message, "use digits and a to f") from cause

    # ----------------------------------------------------------------------------------------------------- columns

    def _column(self, node: exp.Expr) -> Scalar:
        field, members = self._resolve_path(self._path(node))
        scalar: Scalar = ColumnRef(field.name)
        for name in members:
            dtype = field.type
            if not isinstance(dtype, RowType):
                raise self._error(
                    name, "column has no members", "only a ROW has members", column=field.name, type=str(dtype)
                )
            field = self._find(name, dtype.fields, "member")
            scalar = Member(scalar, field.name)
        return scalar

    def _resolve_path(self, path: list[exp.Expr]) -> tuple[Field, list[exp.Expr]]:
        """The column at the start of a path, and the rest of the path."""
        return self._find(path[0], self.fields, "column"), path[1:]

    def _path(self, node: exp.Expr) -> list[exp.Expr]:
        match node:
            case exp.Column():
                self._only(node, "this", "table", "db", "catalog")
                return list(node.parts)
            case exp.Dot():
                self._only(node, "this", "expression")
                return [*self._path(_bare(node.this)), node.expression]
        raise self._unsupported_error(node)

    def _find(self, node: exp.Expr, fields: Sequence[Field], kind: str) -> Field:
        if isinstance(node, exp.Literal):
            hint = f"names are written without quotes or in backticks: {quote_name(node.name)}"
            raise self._error(node, f"text in the place of a {kind} name", hint, value=ascii(node.name))
        if not isinstance(node, exp.Identifier):
            raise self._unsupported_error(node)
        name = node.name
        exact = [field for field in fields if field.name == name]
        found = exact or [field for field in fields if field.name.lower() == name.lower()]
        if len(found) == 1:
            return found[0]
        if found:
            options = ", ".join(field.name for field in found)
            raise self._error(node, f"{kind} is ambiguous", f"write exactly one of {options}", **{kind: name})
        if name.lower() in UNSTEADY and kind == "column":
            raise self._unsteady_error(node, name)
        hint = _nearest(name, [field.name for field in fields], f"{kind}s")
        if kind == "column":
            hint += f"{'' if hint.endswith('?') else ';'} a text needs single quotes: '{name}'"
        raise self._error(node, f"{kind} does not exist", hint, **{kind: name})

    def _type(self, scalar: Scalar) -> DataType | None:
        """The declared type of a column or member; None for anything computed."""
        match scalar:
            case ColumnRef(name):
                return next(field.type for field in self.fields if field.name == name)
            case Member(operand, name):
                row = self._type(operand)
                assert isinstance(row, RowType)
                return next(field.type for field in row.fields if field.name == name)
        return None

    def _data_type(self, node: exp.Expr) -> DataType:
        name = node.this.name if isinstance(node, exp.DataType) and hasattr(node.this, "name") else ""
        numbers = [str(each.name) for each in node.expressions]
        if not all(each.isdigit() and len(each) < 10 for each in numbers):
            raise self._error(node, "type is not supported here", "cast to a plain type", type=name.lower())
        parameters = [int(each) for each in numbers]
        if name == "DECIMAL" and len(parameters) <= 2:
            precision, scale = (*parameters, *(10, 0)[len(parameters) :])
            if not 1 <= precision <= 38 or scale > precision:
                raise self._error(
                    node, "decimal type is out of range", "use at most 38 digits", precision=str(precision)
                )
            return DecimalType(precision=precision, scale=scale)
        if name in TIMES and len(parameters) <= 1:
            default = 3 if name == "TIME" else 6
            precision = parameters[0] if parameters else default
            if precision > 9:
                raise self._error(node, "precision of a time is out of range", "use 0 to 9", precision=str(precision))
            return TimeType(TIMES[name], precision=precision)
        if name in TYPES:
            return TYPES[name]
        raise self._error(
            node, "type is not supported here", "cast to a plain type such as INT or STRING", type=name.lower()
        )

    # ------------------------------------------------------------------------------------------------------ errors

    def _arguments(self, node: exp.Anonymous, count: int) -> list[exp.Expr]:
        if len(node.expressions) != count:
            name = node.name.lower()
            raise self._error(node, "function has the wrong number of arguments", f"give it {count}", function=name)
        return list(node.expressions)

    def _plain_text(self, node: exp.Expr) -> str:
        value = self.scalar(node)
        if isinstance(value, Literal) and isinstance(value.value, str):
            return value.value
        raise self._error(node, "pattern is not a plain text", "write it between quotes")

    def _only(self, node: exp.Expr, *keys: str) -> None:
        """Refuse a node with arguments that the caller does not interpret: ignoring one would change the meaning."""
        for key, value in node.args.items():
            if value and key not in keys:
                raise self._error(node, "part of the text is not supported", "write it another way", part=key)

    def _add_position(self, node: exp.Expr, read: Callable[[], T]) -> T:
        """Run `read`; an error from it gets the position of the node in the text."""
        try:
            return read()
        except InvalidInputError as cause:
            place = _error_at(self.text, "", _start(node), "").facts
            cause.facts.update(place)
            raise

    def _unsteady_error(self, node: exp.Expr, name: str) -> InvalidInputError:
        hint = (
            "write the value itself: a commit may evaluate the text again after a conflict, and must find the same rows"
        )
        return self._error(node, "value changes with each evaluation", hint, function=name.lower())

    def _unsupported_error(self, node: exp.Expr) -> InvalidInputError:
        for kinds, message, hint in _REFUSED:
            if isinstance(node, kinds):
                return self._error(node, message, hint)
        return self._error(node, "part of the text is not supported", "write it another way", part=node.key)

    def _error(self, node: exp.Expr, message: str, hint: str, **facts: str | None) -> InvalidInputError:
        return _error_at(self.text, message, _start(node), hint, **facts)


class _SidedReader(_Reader):
    """Knows the columns of two tables by their full names."""

    def names(self) -> Iterator[tuple[str, ...]]:
        for full, *members in _paths(self.fields):
            yield (column_of(full), *members)
            for word, side in SIDES.items():
                if side == side_of(full):
                    yield (word, column_of(full), *members)

    def _resolve_path(self, path: list[exp.Expr]) -> tuple[Field, list[exp.Expr]]:
        side = SIDES.get(path[0].name.lower()) if len(path) > 1 else None
        if side is not None:
            return self._of_side(path[1], side), path[2:]
        sides = [each for each in (TARGET, SOURCE) if self._has(each, path[0].name)]
        if len(sides) > 1:
            name = path[0].name
            hint = f"both sides have it: write {full_name(sides[0], name)} or {full_name(sides[1], name)}"
            raise self._error(path[0], "column is ambiguous", hint, column=name)
        return self._of_side(path[0], sides[0]) if sides else self._find(path[0], self.fields, "column"), path[1:]

    def _of_side(self, node: exp.Expr, side: str) -> Field:
        own = [replace(each, name=column_of(each.name)) for each in self.fields if side_of(each.name) == side]
        found = self._find(node, own, "column")
        return replace(found, name=full_name(side, found.name))

    def _has(self, side: str, name: str) -> bool:
        return any(column_of(each.name).lower() == name.lower() for each in self.fields if side_of(each.name) == side)


_INTEGERS: Final = (Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT)
_NUMBERS: Final = (*_INTEGERS, Root.DECIMAL, Root.FLOAT, Root.DOUBLE)


def _paths(fields: Iterable[Field]) -> Iterator[tuple[str, ...]]:
    for field in fields:
        yield (field.name,)
        if isinstance(field.type, RowType):
            yield from ((field.name, *path) for path in _paths(field.type.fields))


def _bare(node: exp.Expr) -> exp.Expr:
    """The node without the parentheses around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _start(node: exp.Expr) -> int | None:
    """The position of a node in the text: the first that it or a node below it records."""
    starts = [each.meta["start"] for each in node.walk() if "start" in each.meta]
    return min(starts, default=None)


def _is_null(scalar: Scalar) -> Predicate:
    return IsNull(scalar.column) if isinstance(scalar, ColumnRef) else Missing(scalar)


def _nearest(name: str, known: Iterable[str], kind: str) -> str:
    names = list(known)
    by_lower = {each.lower(): each for each in names}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    if close:
        return f"did you mean {by_lower[close[0]]}?"
    return f"{kind} are {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}"
