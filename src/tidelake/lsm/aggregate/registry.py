"""The aggregate function of a column, made from its options and checked against its type.

Settings are read here and nowhere else. Invariant: a function accepts every array of its column's type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tidelake.errors import InvalidInputError
from tidelake.lsm.aggregate.base import Aggregate, Function, IgnoringRetract
from tidelake.lsm.aggregate.binaries import Bitmap32, Bitmap64, HllSketch, ThetaSketch
from tidelake.lsm.aggregate.choice import FirstNonNullValue, FirstValue, KeyValue, LastNonNullValue, LastValue
from tidelake.lsm.aggregate.collect import Collect
from tidelake.lsm.aggregate.extremes import Extreme, Logic
from tidelake.lsm.aggregate.maps import MergeMap, MergeMapWithKeyTime
from tidelake.lsm.aggregate.numbers import Product, Sum
from tidelake.lsm.aggregate.tables import INT32_MAX, NestedPartialUpdate, NestedUpdate
from tidelake.lsm.aggregate.text import ListAgg
from tidelake.options import TableOptions, nearest
from tidelake.spec.schemas.option_rules import bool_option, enum_option, int_option, names_option
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.data_types import LENGTH_MAX, DataType, ElementType, LengthType, MapType, Root, RowType

__all__ = ["FUNCTION_NAMES", "aggregate_for", "column_functions"]

PRIMARY_KEY: Final = "primary-key"
DEFAULT_FUNCTION: Final = "last_non_null_value"

_NUMBERS: Final = frozenset({Root.DECIMAL, Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT, Root.FLOAT, Root.DOUBLE})
_COMPARABLE: Final = _NUMBERS | {
    Root.BOOLEAN,
    Root.CHAR,
    Root.VARCHAR,
    Root.BINARY,
    Root.VARBINARY,
    Root.DATE,
    Root.TIME,
    Root.TIMESTAMP,
    Root.TIMESTAMP_LTZ,
}


@dataclass(frozen=True, slots=True)
class _Column:
    """A column, the name of its function and the options of its table."""

    name: str
    dtype: DataType
    function: str
    options: TableOptions

    def key(self, setting: str) -> str:
        return f"fields.{self.name}.{setting}"

    def flag(self, setting: str) -> bool:
        return bool_option(self.options, self.key(setting))

    def column_error(self, message: str, *, hint: str, **facts: object) -> InvalidInputError:
        facts = {"column": self.name, "function": self.function, "type": self.dtype, **facts}
        return InvalidInputError(message, code=None, hint=hint, **facts)

    def members(self, setting: str, row: RowType) -> tuple[int, ...]:
        """Return the indices of the members that a setting names.

        Raises:
            InvalidInputError: It is empty, names a member that the row does not have, or names one twice.
        """
        if self.key(setting) not in self.options:
            return ()
        names = names_option(self.options, self.key(setting))
        known = [field.name for field in row.fields]
        wrong = [name for name in names if name not in known]
        if wrong or not names or len(set(names)) < len(names):
            raise self.column_error(
                "option must name members of the rows, each once",
                option=self.key(setting),
                value=self.options[self.key(setting)],
                hint=f"the members are {', '.join(known)}",
            )
        return tuple(known.index(name) for name in names)


@dataclass(frozen=True, slots=True)
class _Kind:
    """One function of the registry: the types it accepts, in words and as a check, and how to make it."""

    accepts: str
    fits: Callable[[DataType], bool]
    make: Callable[[_Column], Function]


def aggregate_for(column: str, dtype: DataType, name: str, options: TableOptions) -> Aggregate:
    """Return the function with this name for a column, with the settings from the options.

    Args:
        column: Name of the column, as in the option keys.
        dtype: Type of the column.
        name: Name of the function.
        options: Options of the table.

    Raises:
        InvalidInputError: The function does not exist or does not accept the type, or a setting is wrong.
    """
    kind = _KINDS.get(name)
    if kind is None:
        guess = nearest(name, FUNCTION_NAMES)
        raise InvalidInputError(
            "aggregate function does not exist",
            column=column,
            function=name,
            hint=f"did you mean {guess}?" if guess else f"the functions are {', '.join(FUNCTION_NAMES)}",
        )
    wanted = _Column(column, dtype, name, options)
    if not kind.fits(dtype):
        raise wanted.column_error(
            "aggregate function does not accept the type of the column", hint=f"{name} accepts {kind.accepts}"
        )
    function = kind.make(wanted)
    return IgnoringRetract(function) if wanted.flag("ignore-retract") else function


def column_functions(schema: Schema, options: TableOptions) -> dict[str, Aggregate]:
    """Return the function of every column of an aggregation table, in the order of the columns.

    Raises:
        InvalidInputError: A column has a function that does not exist or does not fit it.
    """
    sequence = names_option(options, "sequence.field")
    default = options.get("fields.default-aggregate-function", DEFAULT_FUNCTION)
    functions = {}
    for field in schema.fields:
        if field.name in sequence:
            name = "last_value"
        elif field.name in schema.primary_keys:
            name = PRIMARY_KEY
        else:
            name = options.get(f"fields.{field.name}.aggregate-function", default)
        functions[field.name] = aggregate_for(field.name, field.type, name, options)
    return functions


# -------------------------------------------------------------------------------------------------------------- makers


def _plain(make: Callable[[str, DataType, str], Function]) -> Callable[[_Column], Function]:
    return lambda column: make(column.name, column.dtype, column.function)


def _extreme(*, largest: bool) -> Callable[[_Column], Function]:
    def make(column: _Column) -> Function:
        common = column.name, column.dtype, column.function
        return Logic(*common, not largest) if column.dtype.root is Root.BOOLEAN else Extreme(*common, largest)

    return make


def _logic(*, every: bool) -> Callable[[_Column], Function]:
    return lambda column: Logic(column.name, column.dtype, column.function, every)


def _listagg(column: _Column) -> Function:
    delimiter = column.options.get(column.key("list-agg-delimiter"), ",")
    return ListAgg(column.name, column.dtype, column.function, delimiter, column.flag("distinct"))


def _collect(column: _Column) -> Function:
    return Collect(column.name, column.dtype, column.function, column.flag("distinct"))


def _row_of(dtype: DataType) -> RowType | None:
    match dtype:
        case ElementType(root=Root.ARRAY, element=RowType() as row) | MapType(value=RowType() as row):
            return row
    return None


def _key_time(column: _Column) -> Function:
    row = _row_of(column.dtype)
    assert row is not None
    option = column.options.get(column.key("ts-field"))
    names = [field.name for field in row.fields]
    if option is not None and option not in names:
        raise column.column_error(
            "option does not name a member of the rows",
            option=column.key("ts-field"),
            value=option,
            hint=f"the members are {', '.join(names)}",
        )
    place = len(names) - 1 if option is None else names.index(option)
    if row.fields[place].type.root not in (Root.CHAR, Root.VARCHAR):
        raise column.column_error(
            "time member of the rows is not a text",
            member=names[place],
            hint=f"name a STRING member in {column.key('ts-field')}",
        )
    return MergeMapWithKeyTime(column.name, column.dtype, column.function, place)


def _nested_update(column: _Column) -> Function:
    row = _row_of(column.dtype)
    assert row is not None
    keys = column.members("nested-key", row)
    for setting in ("nested-sequence-field", "nested-key-null-strategy"):
        if not keys and column.key(setting) in column.options:
            raise column.column_error(
                "option needs a nested key", option=column.key(setting), hint=f"set {column.key('nested-key')} too"
            )
    sequence = column.members("nested-sequence-field", row)
    for place in sequence:
        if row.fields[place].type.root not in _COMPARABLE:
            raise column.column_error(
                "type of a nested sequence member has no order",
                member=row.fields[place].name,
                hint="name members of a number, text, binary, boolean or time type",
            )
    null_keys = enum_option(column.options, column.key("nested-key-null-strategy"), ("merge", "ignore", "error"))
    limit = int_option(column.options, column.key("count-limit"), default=INT32_MAX)
    return NestedUpdate(column.name, column.dtype, column.function, keys, sequence, null_keys, limit)


def _nested_partial_update(column: _Column) -> Function:
    row = _row_of(column.dtype)
    assert row is not None
    keys = column.members("nested-key", row)
    if not keys:
        raise column.column_error(
            "aggregate function needs a nested key", hint=f"set {column.key('nested-key')} to members of the rows"
        )
    return NestedPartialUpdate(column.name, column.dtype, column.function, keys)


def _any(_: DataType) -> bool:
    return True


def _is_text(dtype: DataType) -> bool:
    return isinstance(dtype, LengthType) and dtype.root is Root.VARCHAR and dtype.length == LENGTH_MAX


def _is_table(dtype: DataType) -> bool:
    return dtype.root is Root.ARRAY and _row_of(dtype) is not None


def _is_timed_map(dtype: DataType) -> bool:
    row = _row_of(dtype)
    return dtype.root is Root.MAP and row is not None and len(row.fields) >= 2


_NUMERIC_KIND: Final = "DECIMAL, TINYINT, SMALLINT, INT, BIGINT, FLOAT and DOUBLE"
_ORDERED_KIND: Final = "numbers, texts, binaries, BOOLEAN, DATE, TIME and TIMESTAMP"


def _of(accepts: str, roots: frozenset[Root] | set[Root], make: Callable[[_Column], Function]) -> _Kind:
    return _Kind(accepts, lambda dtype: dtype.root in roots, make)


def _of_any(make: Callable[[str, DataType, str], Function]) -> _Kind:
    return _Kind("every type", _any, _plain(make))


_KINDS: Final[Mapping[str, _Kind]] = {
    "sum": _of(_NUMERIC_KIND, _NUMBERS, _plain(Sum)),
    "product": _of(_NUMERIC_KIND, _NUMBERS, _plain(Product)),
    "max": _of(_ORDERED_KIND, _COMPARABLE, _extreme(largest=True)),
    "min": _of(_ORDERED_KIND, _COMPARABLE, _extreme(largest=False)),
    "last_value": _of_any(LastValue),
    "last_non_null_value": _of_any(LastNonNullValue),
    "first_value": _of_any(FirstValue),
    "first_non_null_value": _of_any(FirstNonNullValue),
    "first_not_null_value": _of_any(FirstNonNullValue),
    "bool_and": _of("BOOLEAN", {Root.BOOLEAN}, _logic(every=True)),
    "bool_or": _of("BOOLEAN", {Root.BOOLEAN}, _logic(every=False)),
    "listagg": _Kind("STRING", _is_text, _listagg),
    "collect": _of("ARRAY", {Root.ARRAY}, _collect),
    "merge_map": _of("MAP", {Root.MAP}, _plain(MergeMap)),
    "merge_map_with_keytime": _Kind("MAP to ROW of at least two members", _is_timed_map, _key_time),
    "nested_update": _Kind("ARRAY of ROW", _is_table, _nested_update),
    "nested_partial_update": _Kind("ARRAY of ROW", _is_table, _nested_partial_update),
    "rbm32": _of("VARBINARY and BYTES", {Root.VARBINARY}, _plain(Bitmap32)),
    "rbm64": _of("VARBINARY and BYTES", {Root.VARBINARY}, _plain(Bitmap64)),
    "hll_sketch": _of("VARBINARY and BYTES", {Root.VARBINARY}, _plain(HllSketch)),
    "theta_sketch": _of("VARBINARY and BYTES", {Root.VARBINARY}, _plain(ThetaSketch)),
    PRIMARY_KEY: _of_any(KeyValue),
}

FUNCTION_NAMES: Final = tuple(_KINDS)
"""The names of all functions, as in options."""
