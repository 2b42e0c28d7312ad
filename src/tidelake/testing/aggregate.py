"""Aggregate functions on one value at a time: the slow, obviously correct twin of `tidelake.lsm.aggregate`.

Values are the Python values of Arrow (`to_pylist`): a ROW is a dict, a MAP a list of pairs. Unlike the vectorised
functions the twin remembers whether a value was added yet, so a fold starts without a state, as in Paimon. Sketches and
bitmaps have no twin: they are compared with Paimon itself.
"""

from __future__ import annotations

import decimal
import math
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.spec.types.data_types import (
    DataType,
    DecimalType,
    ElementType,
    MapType,
    Root,
    RowType,
    VectorType,
)

__all__ = ["SlowAggregate", "frozen_value", "slow_fold"]

_INTEGERS = {Root.TINYINT: 7, Root.SMALLINT: 15, Root.INT: 31, Root.BIGINT: 63}
_BLANKS = frozenset("\t\n\v\f\r\x1c\x1d\x1e\x1f \u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2008\u2009\u200a")
_MORE_BLANKS = frozenset("\u2028\u2029\u205f\u3000")


@dataclass
class SlowAggregate:
    """The function of one column, and whether a value was added yet."""

    dtype: DataType
    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    fed: bool = False

    def add(self, state: Any, value: Any) -> Any:
        """Return the state after adding a newer value."""
        state = getattr(self, "_add_" + self.name)(state, value)
        self.fed = self.fed or value is not None or not self.name.startswith("first_no")
        return state

    def add_older(self, state: Any, value: Any) -> Any:
        """Return the state after adding a value that is older than the state."""
        if self.name == "collect":
            return self.add(state, value)
        return self.add(value, state)

    def retract(self, state: Any, value: Any) -> Any:
        """Return the state after retracting a value."""
        if self.settings.get("ignore-retract") == "true":
            return state
        taken_back = getattr(self, "_retract_" + self.name, None)
        if taken_back is None:
            raise UnsupportedError("the function cannot retract")
        self.fed = True
        return taken_back(state, value)

    # ------------------------------------------------------------------------------------------------------- numbers

    def _add_sum(self, state: Any, value: Any) -> Any:
        return value if state is None else state if value is None else self._total(state, value, 1)

    def _retract_sum(self, state: Any, value: Any) -> Any:
        if value is None:
            return state
        if state is None:
            return -value if isinstance(value, float) else self._total(0, value, -1)
        return self._total(state, value, -1)

    def _total(self, state: Any, value: Any, sign: int) -> Any:
        if isinstance(self.dtype, DecimalType):
            scale = self.dtype.scale
            number = _unscaled(state, scale) + sign * _unscaled(value, scale)
            return _decimal(number, scale) if abs(number) < 10**self.dtype.precision else None
        return self._in_range(state + value if sign > 0 else state - value)

    def _add_product(self, state: Any, value: Any) -> Any:
        if state is None or value is None:
            return value if state is None else state
        if isinstance(self.dtype, DecimalType):
            return self._round_half_up(Fraction(state) * Fraction(value))
        return self._in_range(state * value)

    def _retract_product(self, state: Any, value: Any) -> Any:
        if state is None or value is None:
            return state
        if self.dtype.root in (Root.FLOAT, Root.DOUBLE):
            return self._in_range(_float_quotient(state, value))
        if value == 0:
            raise InvalidInputError("division by zero")
        if isinstance(self.dtype, DecimalType):
            quotient = Fraction(state) / Fraction(value)
            rest = quotient.denominator
            for prime in (2, 5):
                while rest % prime == 0:
                    rest //= prime
            if rest != 1:
                raise InvalidInputError("the quotient has no finite expansion")
            return self._round_half_up(quotient)
        return self._in_range(abs(state) // abs(value) * (1 if (state < 0) == (value < 0) else -1))

    def _round_half_up(self, exact: Fraction) -> Decimal | None:
        assert isinstance(self.dtype, DecimalType)
        scaled = abs(exact) * 10**self.dtype.scale
        number = math.floor(scaled + Fraction(1, 2)) * (-1 if exact < 0 else 1)
        return _decimal(number, self.dtype.scale) if abs(number) < 10**self.dtype.precision else None

    def _in_range(self, number: Any) -> Any:
        bits = _INTEGERS.get(self.dtype.root)
        if bits is not None and not -(2**bits) <= number < 2**bits:
            raise InvalidInputError("overflow")
        return _as_float(number) if self.dtype.root is Root.FLOAT else number

    # ------------------------------------------------------------------------------------------------ extremes, logic

    def _add_max(self, state: Any, value: Any) -> Any:
        if state is None or value is None:
            return value if state is None else state
        return value if _sort_key(value) > _sort_key(state) else state

    def _add_min(self, state: Any, value: Any) -> Any:
        if state is None or value is None:
            return value if state is None else state
        return state if _sort_key(value) > _sort_key(state) else value

    def _add_bool_and(self, state: Any, value: Any) -> Any:
        return value if state is None else state if value is None else state and value

    def _add_bool_or(self, state: Any, value: Any) -> Any:
        return value if state is None else state if value is None else state or value

    # -------------------------------------------------------------------------------------------------------- choices

    def _add_last_value(self, state: Any, value: Any) -> Any:
        del state
        return value

    def _retract_last_value(self, state: Any, value: Any) -> Any:
        del state, value

    def _add_last_non_null_value(self, state: Any, value: Any) -> Any:
        return state if value is None else value

    def _retract_last_non_null_value(self, state: Any, value: Any) -> Any:
        return state if value is None else None

    def _add_first_value(self, state: Any, value: Any) -> Any:
        return state if self.fed else value

    def _add_first_non_null_value(self, state: Any, value: Any) -> Any:
        return state if self.fed or value is None else value

    _add_first_not_null_value = _add_first_non_null_value

    # ---------------------------------------------------------------------------------------------------------- lists

    def _add_listagg(self, state: str | None, value: str | None) -> str | None:
        if value is None or _is_blank(value):
            return state
        if state is None or _is_blank(state):
            return value
        delimiter = self.settings.get("list-agg-delimiter", ",")
        if self.settings.get("distinct") != "true":
            return state + delimiter + value
        seen = set(state.split(delimiter or " "))
        for part in value.split(delimiter or " "):
            if not _is_blank(part) and part not in seen:
                seen.add(part)
                state += delimiter + part
        return state

    def _add_collect(self, state: list[Any] | None, value: list[Any] | None) -> list[Any] | None:
        if state is None and value is None:
            return None
        items = (state or []) + (value or [])
        return self._distinct(items) if self.settings.get("distinct") == "true" else items

    def _distinct(self, items: list[Any]) -> list[Any]:
        found: dict[Any, Any] = {}
        for item in items:
            found.setdefault(self._frozen_item(item), item)
        return list(found.values())

    def _retract_collect(self, state: list[Any] | None, value: list[Any] | None) -> list[Any] | None:
        if state is None or not value:
            return state
        left = list(state)
        for item in value:
            for place, other in enumerate(left):
                if self._frozen_item(other) == self._frozen_item(item):
                    del left[place]
                    break
        return left

    def _frozen_item(self, item: Any) -> Any:
        assert isinstance(self.dtype, ElementType)
        return frozen_value(item, self.dtype.element)

    # ----------------------------------------------------------------------------------------------------------- maps

    def _add_merge_map(self, state: Any, value: Any) -> Any:
        if state is None or value is None:
            return value if state is None else state
        found = {self._frozen_key(key): (key, item) for key, item in state}
        for key, item in value:
            found[self._frozen_key(key)] = (key, item)
        return list(found.values())

    def _retract_merge_map(self, state: Any, value: Any) -> Any:
        if state is None or not value:
            return state
        gone = {self._frozen_key(key) for key, _ in value}
        return [(key, item) for key, item in state if self._frozen_key(key) not in gone]

    def _frozen_key(self, key: Any) -> Any:
        assert isinstance(self.dtype, MapType)
        return frozen_value(key, self.dtype.key)

    def _add_merge_map_with_keytime(self, state: Any, value: Any) -> Any:
        if state is None or value is None:
            return value if state is None else state
        assert isinstance(self.dtype, MapType)
        assert isinstance(self.dtype.value, RowType)
        time = self.settings.get("ts-field", self.dtype.value.fields[-1].name)
        found = {self._frozen_key(key): (key, row) for key, row in state}
        for key, row in value:
            place = self._frozen_key(key)
            if row is None:
                found.pop(place, None)
            elif row[time] is not None:
                stored = found[place][1] if place in found else None
                if stored is None or stored[time] is None or row[time].encode() > stored[time].encode():
                    found[place] = (key, row)
        return list(found.values())

    # --------------------------------------------------------------------------------------------------------- tables

    def _members(self, setting: str) -> list[str]:
        return [name.strip() for name in self.settings.get(setting, "").split(",") if name.strip()]

    def _row_key(self, row: Mapping[str, Any]) -> Any:
        assert isinstance(self.dtype, ElementType)
        assert isinstance(self.dtype.element, RowType)
        types = {each.name: each.type for each in self.dtype.element.fields}
        return tuple(frozen_value(row[name], types[name]) for name in self._members("nested-key"))

    def _drop_unusable_rows(self, rows: Iterable[Any]) -> list[Any]:
        rows = [row for row in rows if row is not None]
        strategy = self.settings.get("nested-key-null-strategy", "merge")
        whole = [row for row in rows if all(row[name] is not None for name in self._members("nested-key"))]
        if strategy == "error" and len(whole) < len(rows):
            raise InvalidInputError("the nested key has a null")
        return whole if strategy == "ignore" else rows

    def _add_nested_update(self, state: Any, value: Any) -> Any:
        if value is None:
            return state
        limit = int(self.settings.get("count-limit", 2**31 - 1))
        if state is not None and not self._members("nested-key") and len(state) >= limit:
            return state
        before, after = self._drop_unusable_rows(state or []), self._drop_unusable_rows(value)
        if not self._members("nested-key"):
            return before + after[: max(limit - len(state or []), 0)]
        found: dict[Any, Any] = {}
        for place, row in enumerate([*before, *after]):
            key = self._row_key(row)
            if key in found:
                # The state may have a key twice too, if it was set from a written row.
                if self._sequence(row) >= self._sequence(found[key]):
                    found[key] = row
            elif place < len(before) or len(found) < limit:
                found[key] = row
        return list(found.values())

    def _sequence(self, row: Mapping[str, Any]) -> list[tuple[bool, Any]]:
        values = [row[name] for name in self._members("nested-sequence-field")]
        return [(value is not None, 0 if value is None else _sort_key(value)) for value in values]

    def _retract_nested_update(self, state: Any, value: Any) -> Any:
        if state is None or value is None:
            return state
        key = self._row_key if self._members("nested-key") else self._frozen_item
        gone = [key(row) for row in self._drop_unusable_rows(value)]
        left = [row for row in self._drop_unusable_rows(state) if key(row) not in gone]
        return list({key(row): row for row in left}.values()) if self._members("nested-key") else left

    def _add_nested_partial_update(self, state: Any, value: Any) -> Any:
        if value is None:
            return state
        found: dict[Any, dict[str, Any]] = {}
        for row in [*(state or []), *value]:
            if row is not None:
                kept = found.setdefault(self._row_key(row), dict.fromkeys(row))
                kept.update({name: item for name, item in row.items() if item is not None})
        return list(found.values())


def slow_fold(make: Callable[[], SlowAggregate], versions: Iterable[tuple[bool, Any]]) -> Any:
    """Fold (retracted, value) pairs, oldest first, with a new function."""
    function, state = make(), None
    for retracted, value in versions:
        state = function.retract(state, value) if retracted else function.add(state, value)
    return state


def frozen_value(value: Any, dtype: DataType) -> Any:
    """Return a hashable value that is equal if and only if the values are equal."""
    if value is None:
        return None
    match dtype:
        case ElementType(root=Root.ARRAY, element=element) | VectorType(element=element):
            return tuple(frozen_value(item, element) for item in value)
        case MapType(key=key, value=item_type):
            return frozenset((frozen_value(k, key), frozen_value(v, item_type)) for k, v in value)
        case ElementType(root=Root.MULTISET, element=element):
            return frozenset((frozen_value(item, element), count) for item, count in value)
        case DataType(root=Root.VARIANT):
            return value["value"], value["metadata"]
        case RowType(fields=fields):
            return tuple(frozen_value(value[each.name], each.type) for each in fields)
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack(">d", value)
    return value


def _sort_key(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return (1, 0.0, 0.0) if math.isnan(value) else (0, value, math.copysign(1.0, value))
    return value


def _is_blank(text: str) -> bool:
    return all(letter in _BLANKS or letter in _MORE_BLANKS for letter in text)


def _unscaled(value: Decimal | int, scale: int) -> int:
    return int(Fraction(value) * 10**scale)


def _decimal(number: int, scale: int) -> Decimal:
    with decimal.localcontext(prec=60):
        return Decimal(number).scaleb(-scale)


def _float_quotient(state: float, value: float) -> float:
    if value != 0:
        return state / value
    if state == 0 or math.isnan(state) or math.isnan(value):
        return math.nan
    return math.copysign(math.inf, state) * math.copysign(1.0, value)


def _as_float(number: float) -> float:
    """Return the nearest 32-bit float."""
    try:
        narrow: float = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
    return narrow
