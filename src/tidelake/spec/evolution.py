"""Schema evolution as a pure function: a schema and changes in, the next schema out.

However many changes are given, the result is one new schema with the next id, or the very same schema if nothing
changed. Field ids are never used twice: a new field takes ids above `highest_field_id`, which never shrinks, and a
dropped one takes its id to the grave. Options that name a renamed column follow it.

A nested field is addressed by its path: names of ROW members, `element` for what an ARRAY holds, `value` for what a MAP
maps to. Keys of a MAP, and what a MULTISET or VECTOR holds, do not evolve. A new name has no dot, since nothing could
address it; given with the way to the field that it replaces, it means the name behind the last dot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, assert_never

from tidelake.errors import InvalidInputError
from tidelake.spec.casts import CastRule, cast_rule, default_text, is_default_for, may_fail
from tidelake.spec.option_rules import (
    flag_option,
    moves_partitions,
    names_option,
    option_change_problem,
    rename_in_options,
)
from tidelake.spec.schema import (
    SCHEMA_VERSION,
    SYSTEM_FIELD_ID_MIN,
    Schema,
    number_column,
    schema_violations,
    text_or_none,
)
from tidelake.spec.type_codec import parse_type
from tidelake.spec.types import DataType, ElementType, Field, MapType, Root, RowType, walk, with_nullable

ColumnPath: TypeAlias = str | Sequence[str]
"""A column by its name, or a nested field by the names on the way to it: as a sequence, or as one text with dots.

A text with dots that is the name of a column means that column.
"""


@dataclass(frozen=True, slots=True)
class First:
    """In front of all other columns."""


@dataclass(frozen=True, slots=True)
class Last:
    """Behind all other columns."""


@dataclass(frozen=True, slots=True)
class After:
    """Directly behind another column of the same level."""

    column: str


@dataclass(frozen=True, slots=True)
class Before:
    """Directly in front of another column of the same level."""

    column: str


Position: TypeAlias = First | Last | After | Before


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Add a nullable column; without a position at the end (see option `add-column-before-partition`)."""

    path: ColumnPath
    type: DataType | str
    description: str | None = None
    default: object = None
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Give a column another name; its id, and so its data, stays."""

    path: ColumnPath
    name: str


@dataclass(frozen=True, slots=True)
class DropColumn:
    """Remove a column; adding one of the same name later does not bring its data back."""

    path: ColumnPath


@dataclass(frozen=True, slots=True)
class UpdateType:
    """Change the type of a column, as far as `casts` allows."""

    path: ColumnPath
    type: DataType | str
    keep_nullability: bool = False
    """Ignore the nullability of the new type."""


@dataclass(frozen=True, slots=True)
class UpdateNullability:
    """Make a column nullable or not."""

    path: ColumnPath
    nullable: bool


@dataclass(frozen=True, slots=True)
class UpdateComment:
    """Describe a column, or with None stop describing it."""

    path: ColumnPath
    comment: str | None


@dataclass(frozen=True, slots=True)
class UpdateDefault:
    """Set the value written where none is given, or with None remove it. Old rows do not change."""

    path: ColumnPath
    default: object
    """A text, or a number, flag, date or time that has an obvious one."""


@dataclass(frozen=True, slots=True)
class MoveColumn:
    """Put a column to another place of its level."""

    path: ColumnPath
    position: Position


@dataclass(frozen=True, slots=True)
class SetOption:
    """Set a table option."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class RemoveOption:
    """Remove a table option; one that is not set is no error."""

    key: str


@dataclass(frozen=True, slots=True)
class UpdateTableComment:
    """Describe the table, or with None stop describing it."""

    comment: str | None


Change: TypeAlias = (
    AddColumn
    | RenameColumn
    | DropColumn
    | UpdateType
    | UpdateNullability
    | UpdateComment
    | UpdateDefault
    | MoveColumn
    | SetOption
    | RemoveOption
    | UpdateTableComment
)

_KEY_OPTIONS: Final = ("primary-key", "partition")


def apply(schema: Schema, changes: Sequence[Change], *, time_ms: int, has_snapshots: bool) -> Schema:
    """The schema after the changes, made in order; the same object if they change nothing.

    Args:
        schema: The current schema.
        changes: What to change.
        time_ms: Now, the creation time of the new schema.
        has_snapshots: Whether the table has ever been committed to, which freezes some options.

    Raises:
        InvalidInputError: If a change is not allowed, or the result breaks a rule that the current schema keeps.
    """
    draft = _Draft(
        fields=schema.fields,
        highest_field_id=max(schema.highest_field_id, _highest_id(schema.fields)),
        primary_keys=schema.primary_keys,
        partition_keys=schema.partition_keys,
        options=schema.options,
        comment=schema.comment,
        guards=_Guards.of(schema, has_snapshots=has_snapshots),
    )
    for change in changes:
        draft = _apply_one(draft, change)
    if draft.equals(schema):
        return schema
    evolved = Schema(
        id=schema.id + 1,
        fields=draft.fields,
        highest_field_id=draft.highest_field_id,
        partition_keys=draft.partition_keys,
        primary_keys=draft.primary_keys,
        options=draft.options,
        comment=draft.comment,
        time_ms=time_ms,
        version=SCHEMA_VERSION,
        unknown=schema.unknown,
    )
    _check(schema, evolved)
    return evolved


@dataclass(frozen=True, slots=True, kw_only=True)
class _Guards:
    """What the schema before all changes says about them; a change cannot lift a guard for the next one."""

    options: Mapping[str, str] = field(hash=False)
    has_snapshots: bool
    may_become_not_null: bool
    may_cast_explicitly: bool

    @classmethod
    def of(cls, schema: Schema, *, has_snapshots: bool) -> _Guards:
        return cls(
            options=schema.options,
            has_snapshots=has_snapshots,
            may_become_not_null=not flag_option(schema.options, "alter-column-null-to-not-null.disabled", default=True),
            may_cast_explicitly=not flag_option(schema.options, "disable-explicit-type-casting", default=False),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """A schema between two changes."""

    fields: tuple[Field, ...]
    highest_field_id: int
    primary_keys: tuple[str, ...]
    partition_keys: tuple[str, ...]
    options: Mapping[str, str] = field(hash=False)
    comment: str | None
    guards: _Guards

    def equals(self, schema: Schema) -> bool:
        return (
            self.fields == schema.fields
            and self.highest_field_id == max(schema.highest_field_id, _highest_id(schema.fields))
            and self.primary_keys == schema.primary_keys
            and self.partition_keys == schema.partition_keys
            and self.options == schema.options
            and self.comment == schema.comment
        )


def _apply_one(draft: _Draft, change: Change) -> _Draft:
    match change:
        case AddColumn():
            return _add(draft, change)
        case RenameColumn():
            return _rename(draft, change)
        case DropColumn(path):
            return _drop(draft, _parts(draft, path))
        case UpdateType():
            return _update_type(draft, change)
        case UpdateNullability(path, nullable):
            return _update_nullability(draft, _parts(draft, path), nullable)
        case UpdateComment(path, comment):
            parts = _parts(draft, path)
            text = text_or_none(comment, "comment of a column", column=_shown(parts))
            return _update_field(draft, parts, lambda field: replace(field, description=text))
        case UpdateDefault(path, default):
            parts = _parts(draft, path)
            _refuse_nested_default(parts, default)
            return _update_field(draft, parts, lambda field: _with_default(field, default))
        case MoveColumn(path, position):
            return _move(draft, _parts(draft, path), position)
        case SetOption(key, value):
            return _set_option(draft, key, value)
        case RemoveOption(key):
            return _remove_option(draft, key)
        case UpdateTableComment(comment):
            return replace(draft, comment=text_or_none(comment, "comment of the table"))
    assert_never(change)


def doubtful_casts(before: Schema, after: Schema) -> tuple[tuple[str, DataType, DataType], ...]:
    """The columns, nested ones too, that got a type which values of the old one may not fit, with both types."""
    old = {column.id: column.type for column in before.fields}
    pairs = (pair for each in after.fields if each.id in old for pair in _leaves(each.name, old[each.id], each.type))
    return tuple((name, source, target) for name, source, target in pairs if may_fail(source, target))


def _leaves(name: str, old: DataType, new: DataType) -> Iterator[tuple[str, DataType, DataType]]:
    """What a column holds, before and after: the column itself, or whatever it has inside."""
    match old, new:
        case RowType(fields=before), RowType(fields=after):
            types = {member.id: member.type for member in before}
            for member in after:
                if member.id in types:
                    yield from _leaves(f"{name}.{member.name}", types[member.id], member.type)
        case ElementType(element=before), ElementType(element=after):
            yield from _leaves(f"{name}.element", before, after)
        case MapType(value=before), MapType(value=after):
            yield from _leaves(f"{name}.value", before, after)
        case _:
            yield name, old, new


def _check(before: Schema, after: Schema) -> None:
    """Raise the first rule broken by the new schema that the old one did not break already."""
    if after.highest_field_id >= SYSTEM_FIELD_ID_MIN:
        raise InvalidInputError("table has used up its field ids", highest_field_id=after.highest_field_id)
    old = {str(error) for error in schema_violations(before)}
    for error in schema_violations(after):
        if str(error) not in old:
            raise error


# -------------------------------------------------------------------------------------------------------- paths

Fields: TypeAlias = tuple[Field, ...]


def _parts(draft: _Draft, path: ColumnPath) -> tuple[str, ...]:
    if not isinstance(path, str):
        parts = tuple(path)
    elif any(column.name == path for column in draft.fields):
        parts = (path,)
    else:
        parts = tuple(path.split("."))
    if not parts:
        raise InvalidInputError("column path is empty")
    if not all(isinstance(part, str) for part in parts):
        raise InvalidInputError("name of a column is not a text", got=repr(path)[:100])
    return parts


def _new_name(path: tuple[str, ...], name: str) -> str:
    """The name that the field at the path is to have; one that nothing could address is refused."""
    own = _own_name(path, name)
    if "." in own:
        hint = "give the name alone; a column cannot move into or out of a ROW"
        raise InvalidInputError("a new name has a dot in it", column=_shown(path), name=name, hint=hint)
    return own


def _own_name(path: tuple[str, ...], name: str) -> str:
    """The name of a field beside the one at the path, which may be given with the way to it."""
    if not isinstance(name, str):
        raise InvalidInputError("name of a column is not a text", column=_shown(path), got=repr(name)[:100])
    return name.removeprefix(f"{_shown(path[:-1])}.") if len(path) > 1 else name


def _shown(path: Sequence[str]) -> str:
    return ".".join(path)


def _edit_level(fields: Fields, path: tuple[str, ...], edit: Callable[[Fields], Fields]) -> Fields:
    """Replace the fields among which the last name of the path stands."""
    return edit(fields) if len(path) == 1 else _edit_inside(fields, path, path[1:], edit)


def _edit_inside(
    fields: Fields, path: tuple[str, ...], rest: tuple[str, ...], edit: Callable[[Fields], Fields]
) -> Fields:
    """Descend into the field named just before `rest`, which is the end of the whole `path`."""
    name = path[len(path) - len(rest) - 1]
    index = _index(fields, name, path[: len(path) - len(rest)])
    dtype = _edit_type(fields[index].type, path, rest, edit)
    return (*fields[:index], replace(fields[index], type=dtype), *fields[index + 1 :])


def _edit_type(
    dtype: DataType, path: tuple[str, ...], rest: tuple[str, ...], edit: Callable[[Fields], Fields]
) -> DataType:
    """The type in which the level that `rest` ends in was edited."""
    match dtype:
        case RowType(fields=fields) if len(rest) == 1:
            return replace(dtype, fields=edit(fields))
        case RowType(fields=fields):
            return replace(dtype, fields=_edit_inside(fields, path, rest[1:], edit))
        case ElementType(root=Root.ARRAY, element=element) if rest[0] == "element" and len(rest) > 1:
            return replace(dtype, element=_edit_type(element, path, rest[1:], edit))
        case MapType(value=value) if rest[0] == "value" and len(rest) > 1:
            return replace(dtype, value=_edit_type(value, path, rest[1:], edit))
    raise _no_such_path(dtype, path, rest)


def _no_such_path(dtype: DataType, path: tuple[str, ...], rest: tuple[str, ...]) -> InvalidInputError:
    hints = {Root.ARRAY: "an ARRAY is entered by `element`", Root.MAP: "a MAP is entered by `value`; its key is fixed"}
    place = _shown(path[: len(path) - len(rest)])
    return InvalidInputError(
        "nested field does not exist",
        column=_shown(path),
        inside=f"{place} {dtype.root.value}",
        hint=hints.get(dtype.root, "only ROW, ARRAY and MAP have nested fields that change"),
    )


def _index(fields: Fields, name: str, path: Sequence[str]) -> int:
    for index, column in enumerate(fields):
        if column.name == name:
            return index
    names = ", ".join(column.name for column in fields[:20])
    raise InvalidInputError("column does not exist", column=_shown(path), hint=f"the columns are {names or 'none'}")


def _refuse_taken(fields: Fields, name: str, path: tuple[str, ...]) -> None:
    if any(column.name == name for column in fields):
        place = _shown((*path[:-1], name))
        raise InvalidInputError("column exists already", column=place, hint="choose another name")


def _highest_id(fields: Fields) -> int:
    nested = (
        member.id
        for column in fields
        for dtype in walk(column.type)
        if isinstance(dtype, RowType)
        for member in dtype.fields
    )
    return max((*(column.id for column in fields), *nested), default=-1)


# ------------------------------------------------------------------------------------------------------ columns


def _add(draft: _Draft, change: AddColumn) -> _Draft:
    path = _parts(draft, change.path)
    dtype = parse_type(change.type) if isinstance(change.type, str) else change.type
    if len(path) > 1:
        _new_name(path, path[-1])
    if not dtype.nullable:
        hint = "add it as nullable: rows written before have no value for it"
        raise InvalidInputError("an added column must be nullable", column=_shown(path), hint=hint)
    _refuse_nested_default(path, change.default)
    numbered, following = number_column(path[-1], dtype, draft.highest_field_id + 1)
    description = text_or_none(change.description, "comment of a column", column=_shown(path))
    added = replace(numbered, description=description, default=default_text(change.default, column=_shown(path)))
    position = change.position or _default_position(draft, path)

    def edit(fields: Fields) -> Fields:
        _refuse_taken(fields, added.name, path)
        return _insert(fields, added, position, path)

    fields = _edit_level(draft.fields, path, edit)
    return replace(draft, fields=fields, highest_field_id=following - 1)


def _refuse_nested_default(path: tuple[str, ...], default: object) -> None:
    # Writers fill in whole columns only: a default inside one would be noted and never used.
    if default is not None and len(path) > 1:
        hint = "give the whole column a default, or none"
        raise InvalidInputError("default value of a nested field has no effect", column=_shown(path), hint=hint)


def _with_default(column: Field, given: object) -> Field:
    default = default_text(given, column=column.name)
    # At once and not only at the end: the reference refuses it even where a later change of the same step mends it.
    if default is not None and not is_default_for(column.type, default):
        raise InvalidInputError(
            "default value does not fit the type", column=column.name, default=default, type=column.type
        )
    return replace(column, default=default)


def _default_position(draft: _Draft, path: tuple[str, ...]) -> Position:
    wanted = flag_option(draft.guards.options, "add-column-before-partition", default=False)
    if len(path) == 1 and draft.partition_keys and wanted:
        return Before(next(column.name for column in draft.fields if column.name in draft.partition_keys))
    return Last()


def _insert(fields: Fields, added: Field, position: Position, path: tuple[str, ...]) -> Fields:
    match position:
        case First():
            index = 0
        case Last():
            index = len(fields)
        case After(column):
            index = _index(fields, _own_name(path, column), (*path[:-1], column)) + 1
        case Before(column):
            index = _index(fields, _own_name(path, column), (*path[:-1], column))
        case _:
            raise InvalidInputError(
                "position of a column is not known", column=_shown(path), hint="use First, Last, After or Before"
            )
    return (*fields[:index], added, *fields[index:])


def _rename(draft: _Draft, change: RenameColumn) -> _Draft:
    path = _parts(draft, change.path)
    name = _new_name(path, change.name)
    if path in {(key,) for key in draft.partition_keys}:
        raise InvalidInputError("a partition column cannot be renamed", column=_shown(path))

    def edit(fields: Fields) -> Fields:
        index = _index(fields, path[-1], path)
        _refuse_taken(fields, name, path)
        if len(path) == 1:
            _refuse_blob_rename(draft, fields[index])
        return (*fields[:index], replace(fields[index], name=name), *fields[index + 1 :])

    fields = _edit_level(draft.fields, path, edit)
    primary_keys = draft.primary_keys
    if len(path) == 1:
        primary_keys = tuple(name if key == path[0] else key for key in primary_keys)
    options = rename_in_options(draft.options, path, name)
    return replace(draft, fields=fields, primary_keys=primary_keys, options=options)


def _refuse_blob_rename(draft: _Draft, column: Field) -> None:
    inline = names_option(draft.options, "blob-descriptor-field") + names_option(draft.options, "blob-view-field")
    if column.name not in inline and any(dtype.root is Root.BLOB for dtype in walk(column.type)):
        hint = "its files carry the name of the column"
        raise InvalidInputError("a BLOB column cannot be renamed", column=column.name, hint=hint)


def _drop(draft: _Draft, path: tuple[str, ...]) -> _Draft:
    if len(path) == 1 and path[0] in draft.primary_keys + draft.partition_keys:
        raise InvalidInputError(
            "a key column cannot be dropped", column=path[0], hint="create a new table with other keys"
        )

    def edit(fields: Fields) -> Fields:
        index = _index(fields, path[-1], path)
        if len(fields) == 1:
            hint = "drop the enclosing column instead" if len(path) > 1 else "drop the table instead"
            raise InvalidInputError("the last column cannot be dropped", column=_shown(path), hint=hint)
        return (*fields[:index], *fields[index + 1 :])

    return replace(draft, fields=_edit_level(draft.fields, path, edit))


def _move(draft: _Draft, path: tuple[str, ...], position: Position) -> _Draft:
    if isinstance(position, After | Before) and _own_name(path, position.column) == path[-1]:
        raise InvalidInputError("a column cannot be moved relative to itself", column=_shown(path))

    def edit(fields: Fields) -> Fields:
        index = _index(fields, path[-1], path)
        others = (*fields[:index], *fields[index + 1 :])
        return _insert(others, fields[index], position, path)

    return replace(draft, fields=_edit_level(draft.fields, path, edit))


def _update_field(draft: _Draft, path: tuple[str, ...], update: Callable[[Field], Field]) -> _Draft:
    def edit(fields: Fields) -> Fields:
        index = _index(fields, path[-1], path)
        return (*fields[:index], update(fields[index]), *fields[index + 1 :])

    return replace(draft, fields=_edit_level(draft.fields, path, edit))


# -------------------------------------------------------------------------------------------------------- types


def _update_type(draft: _Draft, change: UpdateType) -> _Draft:
    path = _parts(draft, change.path)
    target = parse_type(change.type) if isinstance(change.type, str) else change.type
    if len(path) == 1 and path[0] in draft.primary_keys + draft.partition_keys:
        raise InvalidInputError("the type of a key column cannot change", column=path[0])

    def update(source: DataType) -> DataType:
        nullable = source.nullable if change.keep_nullability else target.nullable
        _check_nullability(draft, source, nullable, path)
        rule = cast_rule(source, target)
        if rule is CastRule.IDENTITY:
            return with_nullable(source, nullable)
        if rule is CastRule.REFUSED:
            nested = source.root in (Root.ROW, Root.ARRAY, Root.MAP)
            hint = "change its nested fields one by one" if nested else "add a new column and fill it"
            raise InvalidInputError(
                "type change is not allowed", column=_shown(path), source=source, target=target, hint=hint
            )
        if rule is CastRule.EXPLICIT and not draft.guards.may_cast_explicitly:
            hint = "set disable-explicit-type-casting to false to allow it"
            raise InvalidInputError(
                "type change may lose data", column=_shown(path), source=source, target=target, hint=hint
            )
        return with_nullable(target, nullable)

    return _edit_leaf(draft, path, update)


def _update_nullability(draft: _Draft, path: tuple[str, ...], nullable: bool) -> _Draft:
    if not isinstance(nullable, bool):
        raise InvalidInputError(
            "nullability is neither True nor False", column=_shown(path), got=repr(nullable)[:100], hint="use a bool"
        )
    if path in {(key,) for key in draft.primary_keys} and nullable:
        raise InvalidInputError("a primary key column cannot become nullable", column=_shown(path))

    def update(source: DataType) -> DataType:
        _check_nullability(draft, source, nullable, path)
        return with_nullable(source, nullable)

    return _edit_leaf(draft, path, update)


def _check_nullability(draft: _Draft, source: DataType, nullable: bool, path: tuple[str, ...]) -> None:
    if source.nullable and not nullable and not draft.guards.may_become_not_null:
        hint = "set alter-column-null-to-not-null.disabled to false if no row holds a null"
        raise InvalidInputError("a nullable column cannot become NOT NULL", column=_shown(path), hint=hint)


def _edit_leaf(draft: _Draft, path: tuple[str, ...], update: Callable[[DataType], DataType]) -> _Draft:
    """Replace the type that the path leads to, which may be what an ARRAY holds or a MAP maps to."""
    index = _index(draft.fields, path[0], path[:1])
    column = draft.fields[index]
    changed = replace(column, type=_edit_leaf_type(column.type, path, path[1:], update))
    return replace(draft, fields=(*draft.fields[:index], changed, *draft.fields[index + 1 :]))


def _edit_leaf_type(
    dtype: DataType, path: tuple[str, ...], rest: tuple[str, ...], update: Callable[[DataType], DataType]
) -> DataType:
    if not rest:
        return update(dtype)
    match dtype:
        case RowType(fields=fields):
            index = _index(fields, rest[0], path[: len(path) - len(rest) + 1])
            member = replace(fields[index], type=_edit_leaf_type(fields[index].type, path, rest[1:], update))
            return replace(dtype, fields=(*fields[:index], member, *fields[index + 1 :]))
        case ElementType(root=Root.ARRAY, element=element) if rest[0] == "element":
            return replace(dtype, element=_edit_leaf_type(element, path, rest[1:], update))
        case MapType(value=value) if rest[0] == "value":
            return replace(dtype, value=_edit_leaf_type(value, path, rest[1:], update))
    raise _no_such_path(dtype, path, rest)


# ------------------------------------------------------------------------------------------------------ options


def _set_option(draft: _Draft, key: str, value: str) -> _Draft:
    if not all(isinstance(each, str) for each in (key, value)):
        raise InvalidInputError("option is not a text", option=key, hint="write numbers and flags as text")
    _refuse_path(key)
    if key in _KEY_OPTIONS:
        return _set_keys(draft, key, value)
    _check_option(draft, key, value)
    return replace(draft, options={**draft.options, key: value})


def _remove_option(draft: _Draft, key: str) -> _Draft:
    _refuse_path(key)
    if key not in draft.options:
        return draft
    _check_option(draft, key, None)
    return replace(draft, options={name: value for name, value in draft.options.items() if name != key})


def _refuse_path(key: str) -> None:
    if key == "path":
        raise InvalidInputError("the path of a table cannot change", option=key)


def _check_option(draft: _Draft, key: str, value: str | None) -> None:
    if not draft.guards.has_snapshots:
        return
    problem = option_change_problem(draft.guards.options, key, value)
    if problem is not None:
        raise problem
    if draft.partition_keys and moves_partitions(draft.guards.options, key, value):
        raise InvalidInputError(
            "option cannot change once the table has a snapshot",
            option=key,
            hint="files that are there would be looked for in other folders; create a new table with it",
        )


def _set_keys(draft: _Draft, key: str, value: str) -> _Draft:
    """Define the primary or partition key of a table that has neither rows nor such a key yet."""
    names = names_option({key: value}, key)
    current = draft.primary_keys if key == "primary-key" else draft.partition_keys
    if names == current:
        return draft
    if draft.guards.has_snapshots or current:
        raise InvalidInputError("the keys of a table cannot change", option=key, hint="create a new table")
    if key == "partition":
        return replace(draft, partition_keys=names)
    fields = tuple(
        replace(column, type=with_nullable(column.type, False)) if column.name in names else column
        for column in draft.fields
    )
    return replace(draft, primary_keys=names, fields=fields)
