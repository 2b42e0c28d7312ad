"""Schemas: the value, its document, and new schemas with their rules.

A schema file is never modified; a change is a new file with the next id (see `evolution`). Field ids are unique over
the whole life of a table and `highest_field_id` never shrinks, so that readers can find columns of old data files by
id. A schema of another writer may break rules that `schema_violations` checks; one made here never does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from tidelake.errors import FormatError, InvalidInputError
from tidelake.options import parse_map
from tidelake.spec.casts.casts import default_text, is_default_for
from tidelake.spec.documents.json_doc import (
    encode_document,
    get_int,
    get_list,
    get_str,
    get_str_list,
    get_str_map,
    parse_object,
    unknown_members,
)
from tidelake.spec.limits import INT32_MAX, LIMITS
from tidelake.spec.schemas.option_rules import (
    OptionContext,
    file_indexes,
    idle_index_settings,
    names_option,
    option_violations,
)
from tidelake.spec.schemas.schema_options import SchemaOptions
from tidelake.spec.types.arrow_types import row_to_arrow
from tidelake.spec.types.data_types import DataType, ElementType, Field, MapType, Root, RowType, walk, with_nullable
from tidelake.spec.types.format_types import unstorable
from tidelake.spec.types.index_types import INDEXED_TYPES, can_index
from tidelake.spec.types.type_codec import (
    fields_from_json,
    fields_to_json,
    number_nested,
    parse_type,
    type_depth,
    type_json_depth,
)

SCHEMA_VERSION: Final = 3

SYSTEM_COLUMNS: Final = frozenset({"_SEQUENCE_NUMBER", "_VALUE_KIND", "_LEVEL", "rowkind", "_ROW_ID"})
"""Names of system columns, which users cannot use."""

KEY_COLUMN_PREFIX: Final = "_KEY_"
"""The prefix of key columns in data files."""

SYSTEM_FIELD_ID_MIN: Final = INT32_MAX // 2
"""Ids from here on belong to system columns."""

RECORD_TIME_ROOTS: Final = frozenset({Root.INT, Root.BIGINT, Root.TIMESTAMP, Root.TIMESTAMP_LTZ})
"""The types of columns that record-level expiry can use."""

_NOT_IN_KEYS: Final = frozenset(
    {
        Root.ARRAY,
        Root.MAP,
        Root.ROW,
        Root.MULTISET,
        Root.VECTOR,
        Root.VARIANT,
        Root.GEOMETRY,
        Root.GEOGRAPHY,
        Root.BLOB,
    }
)
_KNOWN_KEYS: Final = (
    "version",
    "id",
    "fields",
    "highestFieldId",
    "partitionKeys",
    "primaryKeys",
    "options",
    "comment",
    "timeMillis",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """One version of a table's columns, keys and options. Never edited: a change is a new schema."""

    id: int
    fields: tuple[Field, ...]
    highest_field_id: int
    partition_keys: tuple[str, ...] = ()
    primary_keys: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, hash=False)
    comment: str | None = None
    time_ms: int = 0
    version: int = SCHEMA_VERSION
    unknown: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Members of the file that this version does not know, which a rewrite keeps."""
    _by_name: dict[str, Field] = field(default_factory=dict, init=False, repr=False, compare=False)
    """A read looks up each of its columns. Searching `fields` each time would be quadratic in wide tables."""

    def __post_init__(self) -> None:
        self._by_name.update((column.name, column) for column in reversed(self.fields))

    def __str__(self) -> str:
        """One line for each column, and the keys."""
        width = max((len(column.name) for column in self.fields), default=0)
        lines = [f"{column.name:{width}}  {column.type}" for column in self.fields]
        if self.primary_keys:
            lines.append(f"primary key ({', '.join(self.primary_keys)})")
        if self.partition_keys:
            lines.append(f"partitioned by ({', '.join(self.partition_keys)})")
        return "\n".join(lines)

    @property
    def names(self) -> tuple[str, ...]:
        """Column names, in the order of the table."""
        return tuple(column.name for column in self.fields)

    def to_arrow(self) -> pa.Schema:
        """The Arrow schema of the table's rows."""
        return row_to_arrow(self.fields)

    @property
    def row_type(self) -> RowType:
        """The columns as one ROW type, which is not nullable itself."""
        return RowType(nullable=False, fields=self.fields)

    @property
    def trimmed_primary_keys(self) -> tuple[str, ...]:
        """The primary key without partition columns, which identifies a row inside its partition."""
        return tuple(name for name in self.primary_keys if name not in self.partition_keys)

    @property
    def bucket_keys(self) -> tuple[str, ...]:
        """The columns that decide the bucket: option `bucket-key`, else the trimmed primary key."""
        return names_option(self.options, "bucket-key") or self.trimmed_primary_keys

    @property
    def partition_types(self) -> tuple[DataType, ...]:
        """Types of the partition columns, in the order of the partition keys."""
        return tuple(self.field(name).type for name in self.partition_keys)

    def field(self, name: str) -> Field:
        """The column of this name.

        Raises:
            InvalidInputError: If the schema has no such column.
        """
        found = self._by_name.get(name)
        if found is None:
            raise InvalidInputError(
                "column does not exist", column=name, hint=f"the columns are {_list_names(self.names)}"
            )
        return found

    def field_by_id(self, field_id: int) -> Field | None:
        """The column with this id, or None."""
        return next((column for column in self.fields if column.id == field_id), None)


# -------------------------------------------------------------------------------------------------------------- codec


def schema_from_json(data: bytes, *, path: str, expected_id: int | None = None) -> Schema:
    """Read a schema file.

    Args:
        data: The content of the file.
        path: Where it came from, for the error.
        expected_id: The number in the file name, which the document must repeat.

    Raises:
        FormatError: If the bytes are not a schema, or a schema with another id.
    """
    doc = parse_object(data, path=path)
    schema_id = get_int(doc, "id", path, minimum=0)
    if expected_id is not None and schema_id != expected_id:
        raise FormatError("schema id differs from its file name", path=path, id=schema_id, expected=expected_id)
    version = get_int(doc, "version", path, default=1, minimum=0, maximum=INT32_MAX)
    options = get_str_map(doc, "options", path)
    # Defaults that changed since. A table that is older than the change keeps its old default.
    if version <= 1:
        options.setdefault("bucket", "1")
    if version <= 2:
        options.setdefault("file.format", "orc")
    schema = Schema(
        version=version,
        id=schema_id,
        fields=fields_from_json(get_list(doc, "fields", path), path=path),
        highest_field_id=get_int(doc, "highestFieldId", path, minimum=-1, maximum=INT32_MAX),
        partition_keys=get_str_list(doc, "partitionKeys", path),
        primary_keys=get_str_list(doc, "primaryKeys", path),
        options=options,
        comment=get_str(doc, "comment", path, default=None),
        time_ms=get_int(doc, "timeMillis", path, default=0),
        unknown=unknown_members(doc, _KNOWN_KEYS),
    )
    names = set(schema.names)
    for kind, keys in (("partition", schema.partition_keys), ("primary", schema.primary_keys)):
        for name in keys:
            if name not in names:
                raise FormatError(f"{kind} key is not a column of the schema", path=path, column=name)
        if len(set(keys)) != len(keys):
            raise FormatError(f"{kind} key has a column twice", path=path)
    return schema


def schema_to_json(schema: Schema) -> bytes:
    """The content of a schema file."""
    doc: dict[str, Any] = {
        "version": schema.version,
        "id": schema.id,
        "fields": fields_to_json(schema.fields),
        "highestFieldId": schema.highest_field_id,
        "partitionKeys": schema.partition_keys,
        "primaryKeys": schema.primary_keys,
        "options": schema.options,
    }
    # Left out if None: other readers would take a JSON null as the text "null".
    if schema.comment is not None:
        doc["comment"] = schema.comment
    doc["timeMillis"] = schema.time_ms
    return encode_document(doc | dict(schema.unknown), schema, schema_from_json)


# --------------------------------------------------------------------------------------------------------- new schemas


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a new table: without an id, its type as text or value."""

    name: str
    type: DataType | str
    description: str | None = None
    default: object = None


def text_or_none(value: object, what: str, *, column: str | None = None) -> str | None:
    """Return the value if it is a string or None.

    Raises:
        InvalidInputError: it is anything else; `what` names it in the message.
    """
    if value is None or isinstance(value, str):
        return value
    facts = {} if column is None else {"column": column}
    raise InvalidInputError(f"{what} is not a string", **facts, got=repr(value)[:100], hint="write it in quotes")


def new_schema(
    columns: Mapping[str, DataType | str] | Iterable[Column],
    *,
    primary_keys: Iterable[str] = (),
    partition_keys: Iterable[str] = (),
    options: Mapping[str, str] | None = None,
    comment: str | None = None,
    time_ms: int,
) -> Schema:
    """The first schema of a table.

    The fields get their ids, primary key columns become NOT NULL, and the options `primary-key` and `partition` become
    keys.

    Args:
        columns: Columns in order, or a mapping of names to types.
        primary_keys: Columns of the primary key; an append table has none.
        partition_keys: Columns of the partition path.
        options: Table options.
        comment: The comment of the table.
        time_ms: The current time.

    Raises:
        InvalidInputError: If the table would break a rule of the format.
    """
    settings = dict(options or {})
    for key, value in settings.items():
        if not isinstance(value, str):
            raise InvalidInputError(
                "option value is not a string", option=key, hint="write numbers and booleans as strings"
            )
    if "path" in settings:
        raise InvalidInputError(
            "the path of a table cannot be set as an option", option="path", hint="remove the option"
        )
    primary = _keys(tuple(primary_keys), settings, "primary-key")
    partition = _keys(tuple(partition_keys), settings, "partition")
    not_null = () if SchemaOptions.read_leniently(settings).nullable_keys else primary
    fields: list[Field] = []
    next_id = 0
    for column in _columns(columns):
        dtype = parse_type(column.type) if isinstance(column.type, str) else column.type
        dtype = with_nullable(dtype, False) if column.name in not_null else dtype
        numbered, next_id = number_column(column.name, dtype, next_id)
        description = text_or_none(column.description, "comment of a column", column=column.name)
        default = default_text(column.default, column=column.name)
        fields.append(replace(numbered, description=description, default=default))
    if not fields:
        raise InvalidInputError("table needs at least one column", hint='name some: {"id": "BIGINT", "v": "STRING"}')
    schema = Schema(
        id=0,
        fields=tuple(fields),
        highest_field_id=next_id - 1,
        partition_keys=partition,
        primary_keys=primary,
        options=settings,
        comment=text_or_none(comment, "comment of the table"),
        time_ms=time_ms,
    )
    for error in schema_violations(schema):
        raise error
    return schema


def number_column(name: str, dtype: DataType, next_id: int) -> tuple[Field, int]:
    """Number a new column and then its nested members; return it and the next free id."""
    numbered, following = number_nested(dtype, next_id + 1)
    return Field(next_id, name, numbered), following


def _columns(columns: Mapping[str, DataType | str] | Iterable[Column]) -> Iterable[Column]:
    if isinstance(columns, Mapping):
        return [Column(name, dtype) for name, dtype in columns.items()]
    return columns


def _keys(given: tuple[str, ...], options: dict[str, str], option: str) -> tuple[str, ...]:
    """The key columns, given either as an argument or as an option; removes the option."""
    named = names_option(options, option)
    options.pop(option, None)
    if named and given:
        raise InvalidInputError("key is given both as an argument and as an option", option=option, hint="use one")
    return given or named


# ---------------------------------------------------------------------------------------------------------------- rules


def schema_violations(schema: Schema) -> Iterator[InvalidInputError]:
    """The rules of the format that the schema breaks, each as the error to raise for it."""
    yield from _column_violations(schema)
    yield from _format_violations(schema)
    yield from _key_violations(schema)
    if set(schema.primary_keys) | set(schema.partition_keys) <= set(schema.names):
        yield from _bucket_violations(schema)
    yield from option_violations(
        OptionContext(
            options=schema.options,
            columns=frozenset(schema.names),
            primary_keys=schema.primary_keys,
            partition_keys=schema.partition_keys,
        )
    )
    yield from _expiry_violations(schema)
    yield from _row_kind_violations(schema)
    yield from _blob_violations(schema)
    yield from _index_violations(schema)


def _expiry_violations(schema: Schema) -> Iterator[InvalidInputError]:
    """Record-level expiry needs a time column; without one, every compaction of the table would fail."""
    option, hint = "record-level.time-field", "name an INT, BIGINT or TIMESTAMP column"
    name = schema.options.get(option)
    if name is None and "record-level.expire-time" in schema.options:
        yield InvalidInputError("record-level expiry needs a time column", option=option, hint=hint)
    for column in schema.fields:
        if column.name == name and column.type.root not in RECORD_TIME_ROOTS:
            yield InvalidInputError(
                "column type cannot be used for record-level expiry",
                option=option,
                column=name,
                type=column.type,
                hint=hint,
            )


def _row_kind_violations(schema: Schema) -> Iterator[InvalidInputError]:
    """Row kinds are texts in one column. `option_violations` reports names that are not columns."""
    option, hint = "rowkind.field", "name one CHAR or STRING column"
    name = schema.options.get(option)
    if name is not None and "," in name and name not in schema.names:
        yield InvalidInputError("row kinds come from one column", option=option, value=name, hint=hint)
    for column in schema.fields:
        if column.name == name and column.type.root not in (Root.CHAR, Root.VARCHAR):
            yield InvalidInputError(
                "column cannot hold row kinds", option=option, column=name, type=column.type, hint=hint
            )


def _blob_violations(schema: Schema) -> Iterator[InvalidInputError]:
    """BLOB values are stored in their own files, which needs data evolution and columns that options name."""
    types = {column.name: column.type for column in schema.fields}
    blobs = {name for name, dtype in types.items() if any(each.root is Root.BLOB for each in walk(dtype))}
    evolves = SchemaOptions.read_leniently(schema.options).data_evolution
    for name in (each for each in types if each in blobs):
        if not _is_blob(types[name]) and not _holds_blobs(types[name]):
            hint = "use BLOB, ARRAY<BLOB> or MAP<..., BLOB> as the type of a whole column"
            yield InvalidInputError("BLOB is nested too deeply in a type", column=name, type=types[name], hint=hint)
        elif not evolves and not schema.primary_keys:
            hint = "use BYTES for values that are stored with their rows"
            yield InvalidInputError("a BLOB column needs the option data-evolution.enabled", column=name, hint=hint)
    if blobs and blobs == types.keys():
        yield InvalidInputError("table has only BLOB columns", hint="add a column of another type")
    for key in ("blob-field", "blob-descriptor-field", "blob-view-field"):
        for name in names_option(schema.options, key):
            if name not in types or _is_blob(types[name]) or (key == "blob-field" and _holds_blobs(types[name])):
                continue
            hint = "name BLOB columns only"
            yield InvalidInputError("column is not a BLOB", option=key, column=name, type=types[name], hint=hint)
    for name in names_option(schema.options, "vector-field"):
        if name in types and types[name].root is not Root.VECTOR:
            hint = "give the column a type such as VECTOR<FLOAT, 3>, or remove the option"
            yield InvalidInputError(
                "column is not a VECTOR", option="vector-field", column=name, type=types[name], hint=hint
            )


def _is_blob(dtype: DataType) -> bool:
    return dtype.root is Root.BLOB


def _holds_blobs(dtype: DataType) -> bool:
    match dtype:
        case ElementType(root=Root.ARRAY, element=element):
            return _is_blob(element)
        case MapType(value=value):
            return _is_blob(value)
    return False


def _index_violations(schema: Schema) -> Iterator[InvalidInputError]:
    types = {column.name: column.type for column in schema.fields}
    for index in file_indexes(schema.options):
        dtype = types.get(index.column)
        if index.kind not in INDEXED_TYPES:
            hint = f"kinds are {', '.join(INDEXED_TYPES)}"
            yield InvalidInputError("kind of file index is not known", option=index.option, kind=index.kind, hint=hint)
            continue
        if index.of_map_key and dtype is not None:
            if not isinstance(dtype, MapType) or dtype.key.root not in (Root.CHAR, Root.VARCHAR):
                hint = "only a MAP with text keys can have an index on single keys"
                yield InvalidInputError(
                    "column has no map keys to index", option=index.option, column=index.column, type=dtype, hint=hint
                )
                continue
            dtype = dtype.value
        if dtype is not None and not can_index(index.kind, dtype):
            yield InvalidInputError(
                "file index does not support the column type",
                option=index.option,
                column=index.column,
                type=dtype,
                hint="choose another kind of index, or leave the column out",
            )
    for key, kind, column in idle_index_settings(schema.options):
        hint = f"name the column in file-index.{kind}.columns, or remove the option"
        yield InvalidInputError(
            "option belongs to a file index that the column does not have", option=key, column=column, hint=hint
        )


def _column_violations(schema: Schema) -> Iterator[InvalidInputError]:
    count = sum(1 for column in schema.fields for dtype in walk(column.type) for _ in _members(dtype))
    if count + len(schema.fields) > LIMITS.fields_max:
        yield InvalidInputError("table has too many fields", limit=LIMITS.fields_max)
    for name, times in Counter(schema.names).items():
        if times > 1:
            yield InvalidInputError("column is given twice", column=name, hint="rename one of them")
    for column in schema.fields:
        name = column.name
        if not name.strip():
            yield InvalidInputError("column has a blank name", column=name)
        if name in SYSTEM_COLUMNS or name.startswith(KEY_COLUMN_PREFIX):
            yield InvalidInputError("column name is reserved", column=name, hint="choose another name")
        yield from _type_violations(column)
        if column.default is not None and not is_default_for(column.type, column.default):
            yield InvalidInputError(
                "default value does not fit the type", column=name, default=column.default, type=column.type
            )


def _format_violations(schema: Schema) -> Iterator[InvalidInputError]:
    for key, file_format in _formats(schema.options):
        for column in schema.fields:
            found = unstorable(file_format, column.type)
            if found is not None:
                yield InvalidInputError(
                    "type cannot be stored in files of this format",
                    code="type-format",
                    column=column.name,
                    type=found,
                    option=key,
                    value=file_format,
                    hint=f"set {key} to parquet, or choose another type",
                )


def _formats(options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The formats that files of the table may have, with the options that set them."""
    for key in ("file.format", "changelog-file.format"):
        if key in options:
            yield key, options[key].strip().lower()
    key = "file.format.per.level"
    try:
        levels = parse_map(options.get(key, ""))
    except ValueError:
        return  # `option_violations` reports values that cannot be parsed
    yield from ((key, each.lower()) for each in sorted(set(levels.values())))


def _type_violations(column: Field) -> Iterator[InvalidInputError]:
    # In a schema file the type of a column is nested in three more levels: document, array of fields, field.
    too_deep = type_json_depth(column.type) + 3 > LIMITS.json_depth
    if too_deep or type_depth(column.type) > LIMITS.type_depth_max:
        yield InvalidInputError("type is nested too deeply", column=column.name)
    for dtype in walk(column.type):
        names = [member.name for member in _members(dtype)]
        if len(set(names)) != len(names):
            yield InvalidInputError("nested field is given twice", column=column.name, type=dtype)
        if not all(name.strip() for name in names):
            yield InvalidInputError("nested field has a blank name", column=column.name, type=dtype)


def _members(dtype: DataType) -> tuple[Field, ...]:
    return dtype.fields if isinstance(dtype, RowType) else ()


def _key_violations(schema: Schema) -> Iterator[InvalidInputError]:
    types = {column.name: column.type for column in schema.fields}
    for kind, keys in (("partition", schema.partition_keys), ("primary", schema.primary_keys)):
        for name, times in Counter(keys).items():
            if times > 1:
                yield InvalidInputError(f"{kind} key has a column twice", column=name, hint="list each column once")
            if name not in types:
                hint = f"the columns are {_list_names(schema.names)}"
                yield InvalidInputError(f"{kind} key is not a column of the table", column=name, hint=hint)
            elif types[name].root in _NOT_IN_KEYS:
                hint = "use a column of an atomic type"
                yield InvalidInputError(
                    f"type cannot be in a {kind} key", column=name, type=types[name].root.value, hint=hint
                )
    if not SchemaOptions.read_leniently(schema.options).nullable_keys:
        for name in schema.primary_keys:
            if name in types and types[name].nullable:
                yield InvalidInputError("primary key column is nullable", column=name, hint="make it NOT NULL")
    if schema.primary_keys and not schema.trimmed_primary_keys:
        hint = "add a column to the primary key, or every partition would hold one row"
        yield InvalidInputError("primary key has only partition columns", hint=hint)


def _bucket_violations(schema: Schema) -> Iterator[InvalidInputError]:
    bucket = SchemaOptions.read_leniently(schema.options).bucket
    keys = names_option(schema.options, "bucket-key")
    if bucket == 0 or bucket < (-2 if schema.primary_keys else -1):
        hint = "use a positive number, -1 (dynamic) or, with a primary key, -2 (postponed)"
        yield InvalidInputError("bucket count is out of range", option="bucket", value=bucket, hint=hint)
    if bucket == -1 and keys:
        hint = "set `bucket` to a positive number, or remove `bucket-key`"
        yield InvalidInputError("bucket key needs a fixed bucket count", option="bucket-key", hint=hint)
    if bucket > 0 and not schema.bucket_keys:
        hint = "set `bucket-key` to the columns that choose the bucket, or remove `bucket`"
        yield InvalidInputError("an append table with fixed buckets needs a bucket key", option="bucket", hint=hint)
    for name in keys:
        if name not in schema.names:
            continue  # `option_violations` reports names that are not columns
        if name in schema.partition_keys:
            yield InvalidInputError("bucket key is a partition column", column=name, hint="remove it from the key")
        elif schema.primary_keys and name not in schema.primary_keys:
            hint = f"choose among {_list_names(schema.trimmed_primary_keys)}"
            yield InvalidInputError("bucket key is not in the primary key", column=name, hint=hint)
        elif schema.field(name).type.root in _NOT_IN_KEYS:
            yield InvalidInputError("type cannot be in a bucket key", column=name, type=schema.field(name).type)


def _list_names(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:20])
    return f"{shown}, ..." if len(names) > 20 else shown or "none"
