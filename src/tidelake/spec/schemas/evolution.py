"""Schema evolution as a pure function: from a schema and changes to the next schema.

All changes together make one new schema with the next id, or return the same schema if they change nothing. Field ids
are never reused: a new field gets an id above `highest_field_id`, which never shrinks, also when a field is dropped.
Options that contain the name of a renamed column are updated.

A nested field is addressed by a path: names of ROW members, `element` for the elements of an ARRAY, `value` for the
values of a MAP. Keys of a MAP and elements of a MULTISET or VECTOR cannot change. A new name must not contain a dot,
because no path could address it. It may be given as a full path beside the old field, of which only the last name
counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, assert_never

from tidelake.errors import InvalidInputError
from tidelake.spec.casts.casts import CastRule, cast_rule, default_text, is_default_for, may_fail
from tidelake.spec.schemas.option_rules import (
    moves_partitions,
    names_option,
    option_change_problem,
    rename_in_options,
)
from tidelake.spec.schemas.schema import (
    SCHEMA_VERSION,
    SYSTEM_FIELD_ID_MIN,
    Schema,
    number_column,
    schema_violations,
    text_or_none,
)
from tidelake.spec.schemas.schema_options import SchemaOptions
from tidelake.spec.types.data_types import DataType, ElementType, Field, MapType, Root, RowType, walk, with_nullable
from tidelake.spec.types.type_codec import parse_type

ColumnPath: TypeAlias = str | Sequence[str]
"""A column by its name, or a nested field by its path: a sequence of names, or one text with dots.

If a text with dots is the name of a column, it means that column.
"""


@dataclass(frozen=True, slots=True)
class First:
    """Before all other columns."""


@dataclass(frozen=True, slots=True)
class Last:
    """After all other columns."""


@dataclass(frozen=True, slots=True)
class After:
    """Directly after another column of the same level."""

    column: str


@dataclass(frozen=True, slots=True)
class Before:
    """Directly before another column of the same level."""

    column: str


Position: TypeAlias = First | Last | After | Before


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Add a nullable column, by default at the end (see option `add-column-before-partition`)."""

    path: ColumnPath
    type: DataType | str
    description: str | None = None
    default: object = None
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Rename a column; it keeps its id and therefore its data."""

    path: ColumnPath
    name: str


@dataclass(frozen=True, slots=True)
class DropColumn:
    """Remove a column. A column of the same name that is added later does not get its data."""

    path: ColumnPath


@dataclass(frozen=True, slots=True)
class UpdateType:
    """Change the type of a column, if `casts` allows it."""

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
    """Set the comment of a column, or remove it with None."""

    path: ColumnPath
    comment: str | None


@dataclass(frozen=True, slots=True)
class UpdateDefault:
    """Set the value for rows that are written without one, or remove it with None. Old rows do not change."""

    path: ColumnPath
    default: object
    """A text, number, boolean, date or time."""


@dataclass(frozen=True, slots=True)
class MoveColumn:
    """Move a column within its level."""

    path: ColumnPath
    position: Position


@dataclass(frozen=True, slots=True)
class SetOption:
    """Set a table option."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class RemoveOption:
    """Remove a table option, if it is set."""

    key: str


@dataclass(frozen=True, slots=True)
class UpdateTableComment:
    """Set the comment of the table, or remove it with None."""

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
    """Apply changes in order and return the new schema, or the same object if they change nothing.

    Args:
        schema: The current schema.
        changes: What to change.
        time_ms: The current time, which becomes the creation time of the new schema.
        has_snapshots: Whether the table has a snapshot; some options cannot change after the first.

    Raises:
        InvalidInputError: If a change is not allowed, or the result breaks a rule that the current schema does not.
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
    """What the schema allowed before all changes. Fixed, so that one change cannot permit the next."""

    options: Mapping[str, str] = field(hash=False)
    has_snapshots: bool
    may_become_not_null: bool
    may_cast_explicitly: bool

    @classmethod
    def of(cls, schema: Schema, *, has_snapshots: bool) -> _Guards:
        typed = SchemaOptions.read_leniently(schema.options)
        return cls(
            options=schema.options,
            has_snapshots=has_snapshots,
            may_become_not_null=not typed.keeps_nullable,
            may_cast_explicitly=not typed.casts_implicitly,
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
            text = text_or_none(comment, "comment of a column", column=_join_path(parts))
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
    """The columns, also nested ones, whose old values may not fit their new type, with both types."""
    old = {column.id: column.type for column in before.fields}
    pairs = (pair for each in after.fields if each.id in old for pair in _leaves(each.name, old[each.id], each.type))
    return tuple((name, source, target) for name, source, target in pairs if may_fail(source, target))


def _leaves(name: str, old: DataType, new: DataType) -> Iterator[tuple[str, DataType, DataType]]:
    """The leaf types of a column before and after the changes, with their paths."""
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
    """Raise the error of the first rule that the new schema breaks and the old one did not."""
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
        raise InvalidInputError("column name is not a string", got=repr(path)[:100])
    return parts


def _new_name(path: tuple[str, ...], name: str) -> str:
    """The new name of the field at the path; refuses a name with a dot, which no path could address."""
    own = _own_name(path, name)
    if "." in own:
        hint = "give the name alone; a column cannot move into or out of a ROW"
        raise InvalidInputError("a new column name contains a dot", column=_join_path(path), name=name, hint=hint)
    return own


def _own_name(path: tuple[str, ...], name: str) -> str:
    """The last part of a name on the level of the path; the name may be given as a full path."""
    if not isinstance(name, str):
        raise InvalidInputError("column name is not a string", column=_join_path(path), got=repr(name)[:100])
    return name.removeprefix(f"{_join_path(path[:-1])}.") if len(path) > 1 else name


def _join_path(path: Sequence[str]) -> str:
    return ".".join(path)


def _edit_level(fields: Fields, path: tuple[str, ...], edit: Callable[[Fields], Fields]) -> Fields:
    """Apply `edit` to the fields of the level that the path ends in."""
    return edit(fields) if len(path) == 1 else _edit_inside(fields, path, path[1:], edit)


def _edit_inside(
    fields: Fields, path: tuple[str, ...], rest: tuple[str, ...], edit: Callable[[Fields], Fields]
) -> Fields:
    """Descend into the field named just before `rest`, the remaining part of `path`."""
    name = path[len(path) - len(rest) - 1]
    index = _index(fields, name, path[: len(path) - len(rest)])
    dtype = _edit_type(fields[index].type, path, rest, edit)
    return (*fields[:index], replace(fields[index], type=dtype), *fields[index + 1 :])


def _edit_type(
    dtype: DataType, path: tuple[str, ...], rest: tuple[str, ...], edit: Callable[[Fields], Fields]
) -> DataType:
    """Apply `edit` to the level of the type that `rest` ends in."""
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
    hints = {
        Root.ARRAY: "write `element` for what is in an ARRAY",
        Root.MAP: "write `value` for what is in a MAP; its keys cannot change",
    }
    place = _join_path(path[: len(path) - len(rest)])
    return InvalidInputError(
        "nested field does not exist",
        column=_join_path(path),
        inside=f"{place} {dtype.root.value}",
        hint=hints.get(dtype.root, "only ROW, ARRAY and MAP have nested fields that can change"),
    )


def _index(fields: Fields, name: str, path: Sequence[str]) -> int:
    for index, column in enumerate(fields):
        if column.name == name:
            return index
    names = ", ".join(column.name for column in fields[:20])
    raise InvalidInputError("column does not exist", column=_join_path(path), hint=f"the columns are {names or 'none'}")


def _refuse_taken(fields: Fields, name: str, path: tuple[str, ...]) -> None:
    if any(column.name == name for column in fields):
        place = _join_path((*path[:-1], name))
        raise InvalidInputError("column already exists", column=place, hint="choose another name")


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
        raise InvalidInputError("an added column must be nullable", column=_join_path(path), hint=hint)
    _refuse_nested_default(path, change.default)
    numbered, following = number_column(path[-1], dtype, draft.highest_field_id + 1)
    description = text_or_none(change.description, "comment of a column", column=_join_path(path))
    added = replace(numbered, description=description, default=default_text(change.default, column=_join_path(path)))
    position = change.position or _default_position(draft, path)

    def edit(fields: Fields) -> Fields:
        _refuse_taken(fields, added.name, path)
        return _insert(fields, added, position, path)

    fields = _edit_level(draft.fields, path, edit)
    return replace(draft, fields=fields, highest_field_id=following - 1)


def _refuse_nested_default(path: tuple[str, ...], default: object) -> None:
    # Writers fill in defaults of whole columns only, so that a nested default would be stored but never used.
    if default is not None and len(path) > 1:
        hint = "give the whole column a default, or none"
        raise InvalidInputError("default value of a nested field has no effect", column=_join_path(path), hint=hint)


def _with_default(column: Field, given: object) -> Field:
    default = default_text(given, column=column.name)
    # Checked here and not only for the final schema: Java refuses it even if a later change of the same call fixes it.
    if default is not None and not is_default_for(column.type, default):
        raise InvalidInputError(
            "default value does not fit the type", column=column.name, default=default, type=column.type
        )
    return replace(column, default=default)


def _default_position(draft: _Draft, path: tuple[str, ...]) -> Position:
    wanted = SchemaOptions.read_leniently(draft.guards.options).adds_before_partition
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
                "position of a column is not known", column=_join_path(path), hint="use First, Last, After or Before"
            )
    return (*fields[:index], added, *fields[index:])


def _rename(draft: _Draft, change: RenameColumn) -> _Draft:
    path = _parts(draft, change.path)
    name = _new_name(path, change.name)
    if path in {(key,) for key in draft.partition_keys}:
        raise InvalidInputError("a partition column cannot be renamed", column=_join_path(path))

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
        hint = "the names of its files contain the column name; add a new column instead"
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
            raise InvalidInputError("the last column cannot be dropped", column=_join_path(path), hint=hint)
        return (*fields[:index], *fields[index + 1 :])

    return replace(draft, fields=_edit_level(draft.fields, path, edit))


def _move(draft: _Draft, path: tuple[str, ...], position: Position) -> _Draft:
    if isinstance(position, After | Before) and _own_name(path, position.column) == path[-1]:
        raise InvalidInputError("a column cannot be moved relative to itself", column=_join_path(path))

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
                "type change is not allowed", column=_join_path(path), source=source, target=target, hint=hint
            )
        if rule is CastRule.EXPLICIT and not draft.guards.may_cast_explicitly:
            hint = "set disable-explicit-type-casting to false to allow it"
            raise InvalidInputError(
                "type change may lose data", column=_join_path(path), source=source, target=target, hint=hint
            )
        return with_nullable(target, nullable)

    return _edit_leaf(draft, path, update)


def _update_nullability(draft: _Draft, path: tuple[str, ...], nullable: bool) -> _Draft:
    if not isinstance(nullable, bool):
        raise InvalidInputError(
            "nullability is neither True nor False",
            column=_join_path(path),
            got=repr(nullable)[:100],
            hint="use a bool",
        )
    if path in {(key,) for key in draft.primary_keys} and nullable:
        raise InvalidInputError("a primary key column cannot become nullable", column=_join_path(path))

    def update(source: DataType) -> DataType:
        _check_nullability(draft, source, nullable, path)
        return with_nullable(source, nullable)

    return _edit_leaf(draft, path, update)


def _check_nullability(draft: _Draft, source: DataType, nullable: bool, path: tuple[str, ...]) -> None:
    if source.nullable and not nullable and not draft.guards.may_become_not_null:
        hint = "set alter-column-null-to-not-null.disabled to false if no row has a null"
        raise InvalidInputError("a nullable column cannot become NOT NULL", column=_join_path(path), hint=hint)


def _edit_leaf(draft: _Draft, path: tuple[str, ...], update: Callable[[DataType], DataType]) -> _Draft:
    """Apply `update` to the type at the path, which may be the element of an ARRAY or the value of a MAP."""
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
        raise InvalidInputError(
            "option value is not a string", option=key, hint="write numbers and booleans as strings"
        )
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
            hint="readers would look for existing files in other folders; create a new table with the option",
        )


def _set_keys(draft: _Draft, key: str, value: str) -> _Draft:
    """Set the primary or partition key of a table that has no snapshot and no such key yet."""
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
