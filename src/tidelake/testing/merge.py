"""Merge engines on one key at a time: the slow, obviously correct twin of `tidelake.lsm.engines`.

A version is (sequence number, kind, values by column). Versions are merged oldest first, as the format orders them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.lsm.engines.build import MergeEngine, MergeOptions, sequence_groups
from tidelake.options import TableOptions
from tidelake.spec.schemas.schema import Schema
from tidelake.testing.aggregate import SlowAggregate

__all__ = ["SlowMerge", "Version"]

Version = tuple[int, int, dict[str, Any]]
"""Sequence number, kind (0 +I, 1 -U, 2 +U, 3 -D), values by column."""


@dataclass(frozen=True)
class SlowMerge:
    """Merges the versions of one key with the merge engine of a schema and its options."""

    schema: Schema
    options: Mapping[str, str] = field(default_factory=dict)

    def merge(self, versions: Sequence[Version]) -> Version | None:
        """Return the merged version, or None if there is none. A single version is returned unchanged."""
        chosen = MergeOptions.parse(self.options)
        fed = self.in_order(versions)
        if len(fed) == 1:
            return fed[0]
        match chosen.engine:
            case MergeEngine.DEDUPLICATE:
                counted = [v for v in fed if not (chosen.ignore_delete and v[1] % 2)]
                return counted[-1] if counted else None
            case MergeEngine.FIRST_ROW:
                if any(v[1] % 2 for v in fed) and not chosen.ignore_delete:
                    raise InvalidInputError("first-row table does not accept rows of kind -U or -D")
                counted = [v for v in fed if v[1] % 2 == 0]
                return counted[0] if counted else None
            case MergeEngine.AGGREGATION:
                return self._aggregate(fed, chosen)
            case MergeEngine.PARTIAL_UPDATE:
                return self._partial(fed, chosen)

    def in_order(self, versions: Sequence[Version]) -> list[Version]:
        """Sort versions, oldest first: by sequence fields, sequence number, and retract rows before additions."""
        chosen = MergeOptions.parse(self.options)

        def place(version: Version) -> tuple[Any, ...]:
            number, kind, values = version
            user = []
            for name in chosen.sequence:
                value = values[name]
                comparable = value.encode() if isinstance(value, str) else value
                ranked = _Reversed(comparable) if chosen.is_descending else comparable
                user.append((False, 0) if value is None else (True, ranked))
            return (user, number, kind % 2 == 0)

        return sorted(versions, key=place)

    def _aggregate(self, fed: Sequence[Version], chosen: MergeOptions) -> Version:
        default = self.options.get("fields.default-aggregate-function", "last_non_null_value")
        functions = {}
        for column in self.schema.fields:
            if column.name in self.schema.primary_keys:
                continue
            name = self.options.get(f"fields.{column.name}.aggregate-function", default)
            name = "last_value" if column.name in chosen.sequence else name
            functions[column.name] = self._function(column.name, name)
        state: dict[str, Any] = dict.fromkeys(functions)
        deleted = False
        for _, kind, values in fed:
            if chosen.aggregation_remove_on_delete and kind == 3:
                state, deleted = {name: values[name] for name in functions}, True
                continue
            deleted = False
            for name, function in functions.items():
                step = function.retract if kind % 2 else function.add
                state[name] = step(state[name], values[name])
        return fed[-1][0], 3 if deleted else 0, self._keys(fed) | state

    def _partial(self, fed: Sequence[Version], chosen: MergeOptions) -> Version:
        groups = sequence_groups(TableOptions(self.options))
        of_column = {name: group for group in groups for name in (*group.ordering, *group.protected)}
        ordering = {name for group in groups for name in group.ordering}
        default = self.options.get("fields.default-aggregate-function")
        functions = {}
        for column in self.schema.fields:
            name = self.options.get(f"fields.{column.name}.aggregate-function", default)
            if name and column.name not in ordering and column.name not in self.schema.primary_keys:
                functions[column.name] = self._function(column.name, name)
        names = [name for name in self.schema.names if name not in self.schema.primary_keys]
        state: dict[str, Any] = dict.fromkeys(names)
        deleted = inserted = False
        number = fed[0][0]

        def older(group: Any, values: Mapping[str, Any]) -> bool:
            def key(row: Mapping[str, Any]) -> list[Any]:
                return [(row[name] is not None, row[name] if row[name] is not None else 0) for name in group.ordering]

            return key(values) < key(state)

        for index, (sequence, kind, values) in enumerate(fed):
            deleted = False
            empty = {g: all(values[name] is None for name in g.ordering) for g in groups}
            late = {g: older(g, values) for g in groups}
            if kind % 2 == 0:
                if not groups:
                    self._check(values)
                for name in names:
                    group = of_column.get(name)
                    if group is None:
                        state[name] = values[name] if values[name] is not None else state[name]
                    elif empty[group] or (late[group] and name not in functions):
                        continue
                    elif name not in functions:
                        state[name] = values[name]
                    else:
                        step = functions[name].add_older if late[group] else functions[name].add
                        state[name] = step(state[name], values[name])
                inserted, number = True, sequence
                continue
            if index == 0:
                self._check(values)
                state = {name: values[name] for name in names}
                late = dict.fromkeys(groups, False)
            if chosen.ignore_delete:
                continue
            if chosen.remove_on_delete:
                number = sequence
                if kind == 3:
                    self._check(values)
                    state, deleted = {name: values[name] for name in names}, True
                continue
            if not groups:
                raise UnsupportedError("partial-update table does not accept rows of kind -U or -D")
            number = sequence
            removing = [group for group in groups if set(group.ordering) & set(chosen.remove_on_group)]
            if kind == 3 and any(not empty[group] and not late[group] for group in removing):
                self._check(values)
                state, deleted = {name: values[name] for name in names}, True
                continue
            for group in groups:
                if empty[group]:
                    continue
                for name in group.protected:
                    if name in functions:
                        state[name] = functions[name].retract(state[name], values[name])
                    elif not late[group]:
                        state[name] = None
                if not late[group]:
                    state |= {name: values[name] for name in group.ordering}
        return number, 3 if deleted or not inserted else 0, self._keys(fed) | state

    def _function(self, column: str, name: str) -> SlowAggregate:
        prefix = f"fields.{column}."
        settings = {key[len(prefix) :]: value for key, value in self.options.items() if key.startswith(prefix)}
        return SlowAggregate(self.schema.field(column).type, name, settings)

    def _keys(self, fed: Sequence[Version]) -> dict[str, Any]:
        return {name: fed[-1][2][name] for name in self.schema.primary_keys}

    def _check(self, values: Mapping[str, Any]) -> None:
        for column in self.schema.fields:
            if not column.type.nullable and values[column.name] is None:
                raise InvalidInputError("NOT NULL column has a null", column=column.name)


@dataclass(frozen=True)
class _Reversed:
    value: Any

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.value < self.value)
