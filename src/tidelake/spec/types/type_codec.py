"""Parse and print data types, as SQL text and as JSON.

A type has two forms: the SQL text that users write (``ROW<a INT, b ARRAY<STRING> NOT NULL>``) and the form in schema
files, where atomic types are texts and constructed types are objects. Both parsers check the ranges of the format and
the limits on depth and field count, so that every parsed `DataType` can be printed, walked and written.

Members of a ROW parsed from text are numbered from 0; a schema replaces these ids by its own.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

from tidelake.errors import FormatError, InvalidInputError
from tidelake.spec.documents.json_doc import JsonObject, as_object, get_int, get_list, get_str
from tidelake.spec.limits import INT32_MAX, LIMITS, Limits
from tidelake.spec.types.data_types import (
    BYTES,
    STRING,
    DataType,
    DecimalType,
    ElementType,
    Field,
    GeoType,
    LengthType,
    MapType,
    Root,
    RowType,
    SimpleType,
    TimeType,
    VectorType,
    children,
    with_nullable,
)

DECIMAL_PRECISION_MAX: Final = 38
TIME_PRECISION_MAX: Final = 9

_SIMPLE: Final = {
    "BOOLEAN": Root.BOOLEAN,
    "TINYINT": Root.TINYINT,
    "SMALLINT": Root.SMALLINT,
    "INT": Root.INT,
    "INTEGER": Root.INT,
    "BIGINT": Root.BIGINT,
    "FLOAT": Root.FLOAT,
    "DOUBLE": Root.DOUBLE,
    "DATE": Root.DATE,
    "VARIANT": Root.VARIANT,
    "BLOB": Root.BLOB,
}
_LENGTH: Final = {root.value: root for root in (Root.CHAR, Root.VARCHAR, Root.BINARY, Root.VARBINARY)}
_TIME: Final = {root.value: root for root in (Root.TIME, Root.TIMESTAMP, Root.TIMESTAMP_LTZ)}
_DECIMAL: Final = ("DECIMAL", "DEC", "NUMERIC")
_GEO: Final = {root.value: root for root in (Root.GEOMETRY, Root.GEOGRAPHY)}
_ELEMENT: Final = {root.value: root for root in (Root.ARRAY, Root.MULTISET)}
_KEYWORDS: Final = (
    *_SIMPLE,
    *_LENGTH,
    "STRING",
    "BYTES",
    *_DECIMAL,
    *_TIME,
    *_GEO,
    *_ELEMENT,
    "MAP",
    "VECTOR",
    "ROW",
)
_ALIASES: Final = {
    "BOOL": "BOOLEAN",
    "INT8": "TINYINT",
    "BYTE": "TINYINT",
    "INT16": "SMALLINT",
    "SHORT": "SMALLINT",
    "INT32": "INT",
    "INT64": "BIGINT",
    "LONG": "BIGINT",
    "FLOAT32": "FLOAT",
    "REAL": "FLOAT",
    "FLOAT64": "DOUBLE",
    "TEXT": "STRING",
    "STR": "STRING",
    "UTF8": "STRING",
    "DATETIME": "TIMESTAMP",
    "LIST": "ARRAY",
    "STRUCT": "ROW",
}
"""Type names of other systems that users may write. Schema files contain only the names of the format."""
_MEANT: Final = {"JSON": "VARIANT", "NUMBER": "DECIMAL", "UINT64": "DECIMAL(20, 0)", "TIMESTAMPTZ": "TIMESTAMP_LTZ"}

VECTOR_ELEMENTS: Final = frozenset(
    {Root.BOOLEAN, Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT, Root.FLOAT, Root.DOUBLE}
)
"""The element types that a VECTOR may have."""


# ------------------------------------------------------------------------------------------------------------- text


def parse_type(text: str, *, limits: Limits = LIMITS) -> DataType:
    """Parse the text of a type, such as ``DECIMAL(10, 2) NOT NULL`` or ``MAP<STRING, ARRAY<INT>>``.

    Raises:
        InvalidInputError: If the text is not a type, or the type is outside the ranges of the format.
    """
    try:
        return _TextParser(text, limits, constructed=True).parse()
    except _BadTypeError as error:
        raise InvalidInputError(error.message, type=_shorten(text), position=error.position, hint=error.hint) from error


class _BadTypeError(Exception):
    """Why a text is not a type. Callers turn it into the error for the origin of the text: a user or a file."""

    def __init__(self, message: str, position: int, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.position = position
        self.hint = hint


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    """`word`, `name` (backquoted), `text` (quoted), `end`, or the punctuation itself."""
    value: str
    position: int

    @property
    def keyword(self) -> str:
        return self.value.upper() if self.kind == "word" else ""


_TOKEN: Final = re.compile(
    r"""\s*(?: (?P<punctuation>[<>(),]) | `(?P<name>(?:[^`]|``)*)` | '(?P<text>(?:[^']|'')*)' | (?P<word>[^\s<>(),`']+)
        | (?P<end>\Z) )""",
    re.VERBOSE,
)


class _TextParser:
    """Recursive descent over the tokens of a type text, one token at a time."""

    def __init__(self, text: str, limits: Limits, *, constructed: bool) -> None:
        self.text = text
        self.limits = limits
        self.constructed = constructed  # whether ARRAY<..>, MAP<..>, ROW<..> may be given as text
        self.field_count = 0
        self.token, self.next_position = self._scan(0)

    def parse(self) -> DataType:
        dtype = self._type(0)
        if self.token.kind != "end":
            self._fail(f"unexpected {self._describe_token()} after the type")
        if type_depth(dtype) > self.limits.type_depth_max:
            self._fail("type is nested too deeply")
        if not self.constructed:
            return dtype
        numbered, _ = number_nested(dtype, 0)
        return numbered

    # ------------------------------------------------------------------------------------------------ tokens

    def _scan(self, position: int) -> tuple[_Token, int]:
        match = _TOKEN.match(self.text, position)
        if match is None:
            raise _BadTypeError("a quote in the type is not closed", position)
        group = match.lastgroup or "end"
        value = match[group]
        if group in ("name", "text"):
            quote = "`" if group == "name" else "'"
            value = value.replace(quote * 2, quote)
        kind = value if group == "punctuation" else group
        return _Token(kind, value, match.start(group)), match.end()

    def _advance(self) -> _Token:
        token = self.token
        self.token, self.next_position = self._scan(self.next_position)
        return token

    def _accept(self, *keywords: str) -> bool:
        """Consume these keywords if all of them come next."""
        token, position = self.token, self.next_position
        for keyword in keywords:
            if self.token.keyword != keyword:
                self.token, self.next_position = token, position
                return False
            self._advance()
        return True

    def _expect(self, kind: str) -> None:
        if self.token.kind != kind:
            self._fail(f"expected `{kind}` but found {self._describe_token()}")
        self._advance()

    def _describe_token(self) -> str:
        return "the end" if self.token.kind == "end" else f"`{_shorten(self.token.value)}`"

    def _fail(self, message: str, hint: str | None = None) -> NoReturn:
        raise _BadTypeError(message, self.token.position, hint)

    # ------------------------------------------------------------------------------------------------- types

    def _type(self, depth: int) -> DataType:
        if depth > self.limits.type_depth_max:
            self._fail("type is nested too deeply")
        dtype = self._nullability(self._plain_type(depth))
        suffix = _ELEMENT.get(self.token.keyword)
        if suffix is not None:
            self._advance()
            dtype = self._nullability(ElementType(suffix, element=dtype))
        return dtype

    def _nullability(self, dtype: DataType) -> DataType:
        if self._accept("NOT", "NULL"):
            return with_nullable(dtype, False)
        self._accept("NULL")
        return dtype

    def _plain_type(self, depth: int) -> DataType:
        keyword = self.token.keyword
        if self.constructed:
            keyword = _ALIASES.get(keyword, keyword)
        if keyword not in _KEYWORDS:
            self._fail(f"expected a type but found {self._describe_token()}", _suggestion(keyword))
        is_constructed = keyword in _ELEMENT or keyword in ("MAP", "ROW")
        if is_constructed and not self.constructed:
            self._fail(f"type {keyword} must be a JSON object")
        self._advance()
        if keyword in _SIMPLE:
            if keyword == "DOUBLE":
                self._accept("PRECISION")
            return SimpleType(_SIMPLE[keyword])
        if keyword in ("STRING", "BYTES"):
            return STRING if keyword == "STRING" else BYTES
        if keyword in _LENGTH:
            (length,) = self._parameters((1,))
            return LengthType(_LENGTH[keyword], length=self._check_range(length, 1, INT32_MAX, f"length of {keyword}"))
        if keyword in _DECIMAL:
            return self._decimal()
        if keyword in _TIME:
            return self._time(_TIME[keyword])
        if keyword in _GEO:
            return self._geo(_GEO[keyword])
        return self._constructed_type(keyword, depth + 1)

    def _decimal(self) -> DataType:
        precision, scale = self._parameters((10, 0))
        self._check_range(precision, 1, DECIMAL_PRECISION_MAX, "precision of DECIMAL")
        self._check_range(scale, 0, precision, "scale of DECIMAL")
        return DecimalType(precision=precision, scale=scale)

    def _time(self, root: Root) -> DataType:
        (precision,) = self._parameters((0 if root is Root.TIME else 6,))
        self._check_range(precision, 0, TIME_PRECISION_MAX, f"precision of {root.value}")
        if root is Root.TIMESTAMP and self._accept("WITH", "LOCAL", "TIME", "ZONE"):
            root = Root.TIMESTAMP_LTZ
        elif root is not Root.TIMESTAMP_LTZ:
            self._accept("WITHOUT", "TIME", "ZONE")
        return TimeType(root, precision=precision)

    def _geo(self, root: Root) -> DataType:
        crs, algorithm = "OGC:CRS84", "spherical" if root is Root.GEOGRAPHY else None
        if self.token.kind == "(":
            self._advance()
            crs = self._word("a coordinate system")
            if root is Root.GEOGRAPHY and self.token.kind == ",":
                self._advance()
                algorithm = self._word("an algorithm")
            self._expect(")")
        return GeoType(root, crs=crs, algorithm=algorithm)

    def _constructed_type(self, keyword: str, depth: int) -> DataType:
        if keyword == "ROW":
            return self._row(depth)
        self._expect("<")
        dtype: DataType
        if keyword == "MAP":
            key = self._type(depth)
            self._expect(",")
            dtype = MapType(key=key, value=self._type(depth))
        elif keyword == "VECTOR":
            element = self._type(depth)
            if element.root not in VECTOR_ELEMENTS:
                self._fail(f"VECTOR cannot have elements of type {element.root.value}")
            self._expect(",")
            length = self._check_range(self._integer(), 1, INT32_MAX, "length of VECTOR")
            dtype = VectorType(element=element, length=length)
        else:
            dtype = ElementType(_ELEMENT[keyword], element=self._type(depth))
        self._expect(">")
        return dtype

    def _row(self, depth: int) -> DataType:
        if self.token.kind not in ("<", "("):
            self._expect("<")
        closing = ">" if self._advance().kind == "<" else ")"
        fields: list[Field] = []
        while self.token.kind != closing or fields:
            fields.append(self._field(depth))
            if self.token.kind != ",":
                break
            self._advance()
        self._expect(closing)
        names = [field.name for field in fields]
        if len(set(names)) != len(names):
            self._fail("ROW has a duplicate field name")
        return RowType(fields=tuple(fields))

    def _field(self, depth: int) -> Field:
        self.field_count += 1
        if self.field_count > self.limits.fields_max:
            self._fail("type has too many fields")
        if self.token.kind not in ("word", "name") or not self.token.value.strip():
            self._fail(f"expected a field name but found {self._describe_token()}")
        name = self._advance().value
        dtype = self._type(depth)
        self._accept("COMMENT")
        description = self._advance().value if self.token.kind == "text" else None
        return Field(0, name, dtype, description)

    # -------------------------------------------------------------------------------------------- parameters

    def _word(self, what: str) -> str:
        if self.token.kind not in ("word", "text", "name"):
            self._fail(f"expected {what} but found {self._describe_token()}")
        return self._advance().value

    def _integer(self) -> int:
        value = self.token.value
        if self.token.kind != "word" or not (value.isascii() and value.isdecimal() and len(value) <= 10):
            self._fail(f"expected a number but found {self._describe_token()}")
        self._advance()
        return int(value)

    def _parameters(self, defaults: tuple[int, ...]) -> tuple[int, ...]:
        """The numbers in parentheses, filled up with defaults."""
        if self.token.kind != "(":
            return defaults
        self._advance()
        values = [self._integer()]
        while len(values) < len(defaults) and self.token.kind == ",":
            self._advance()
            values.append(self._integer())
        self._expect(")")
        return (*values, *defaults[len(values) :])

    def _check_range(self, value: int, minimum: int, maximum: int, what: str) -> int:
        if not minimum <= value <= maximum:
            self._fail(f"{what} must be between {minimum} and {maximum}")
        return value


def _suggestion(keyword: str) -> str | None:
    known = _MEANT.get(keyword)
    close = [known] if known else difflib.get_close_matches(keyword[:40], _KEYWORDS, n=1)
    return f"did you mean {close[0]}?" if close else None


def _shorten(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


# ------------------------------------------------------------------------------------------------------------- JSON


def type_from_json(value: object, *, path: str, limits: Limits = LIMITS) -> DataType:
    """Parse a type in a schema file: a text for an atomic type, an object for a constructed one.

    Raises:
        FormatError: If it is neither, or outside the ranges and limits.
    """
    return _JsonReader(path, limits).type(value, 0)


def fields_from_json(values: Sequence[object], *, path: str, limits: Limits = LIMITS) -> tuple[Field, ...]:
    """Parse the columns of a schema file.

    Raises:
        FormatError: If a column is malformed, or two have the same name or id.
    """
    return _JsonReader(path, limits).fields(values, 0)


class _JsonReader:
    def __init__(self, path: str, limits: Limits) -> None:
        self.path = path
        self.limits = limits
        self.field_count = 0

    def type(self, value: object, depth: int) -> DataType:
        if depth > self.limits.type_depth_max:
            raise FormatError("type is nested too deeply", path=self.path, limit_depth=self.limits.type_depth_max)
        if isinstance(value, str):
            return self._atomic(value, depth)
        doc = as_object(value, key="type", path=self.path)
        text = get_str(doc, "type", self.path)
        # Java only searches the text for NOT NULL, so other writers may have more in it.
        nullable = "NOT NULL" not in text
        if text.startswith("ARRAY"):
            return ElementType(Root.ARRAY, nullable, self._member(doc, "element", depth))
        if text.startswith("VECTOR"):
            return self._vector(doc, nullable, depth)
        if text.startswith("MULTISET"):
            return ElementType(Root.MULTISET, nullable, self._member(doc, "element", depth))
        if text.startswith("MAP"):
            key = self._member(doc, "key", depth)
            return MapType(nullable=nullable, key=key, value=self._member(doc, "value", depth))
        if text.startswith("ROW"):
            fields = self.fields(get_list(doc, "fields", self.path), depth + 1)
            return RowType(nullable=nullable, fields=fields)
        raise FormatError("type is unknown", path=self.path, type=_shorten(text))

    def _atomic(self, text: str, depth: int) -> DataType:
        try:
            dtype = _TextParser(text, self.limits, constructed=False).parse()
        except _BadTypeError as error:
            raise FormatError(error.message, path=self.path, type=_shorten(text), position=error.position) from error
        if depth + type_depth(dtype) > self.limits.type_depth_max:
            raise FormatError("type is nested too deeply", path=self.path, limit_depth=self.limits.type_depth_max)
        return dtype

    def _member(self, doc: JsonObject, key: str, depth: int) -> DataType:
        if doc.get(key) is None:
            raise FormatError("constructed type lacks a member", path=self.path, key=key)
        return self.type(doc[key], depth + 1)

    def _vector(self, doc: JsonObject, nullable: bool, depth: int) -> DataType:
        element = self._member(doc, "element", depth)
        if element.root not in VECTOR_ELEMENTS:
            raise FormatError("type cannot be the element of a VECTOR", path=self.path, type=element)
        length = get_int(doc, "length", self.path, minimum=1, maximum=INT32_MAX)
        return VectorType(nullable=nullable, element=element, length=length)

    def fields(self, values: Sequence[object], depth: int) -> tuple[Field, ...]:
        self.field_count += len(values)
        if self.field_count > self.limits.fields_max:
            raise FormatError("schema has too many fields", path=self.path, limit=self.limits.fields_max)
        fields = tuple(self._field(value, depth) for value in values)
        for what, found in (("name", {f.name for f in fields}), ("id", {f.id for f in fields})):
            if len(found) != len(fields):
                raise FormatError(f"two fields have the same {what}", path=self.path)
        return fields

    def _field(self, value: object, depth: int) -> Field:
        doc = as_object(value, key="fields", path=self.path)
        name = get_str(doc, "name", self.path)
        if not name.strip():
            raise FormatError("field has a blank name", path=self.path)
        if doc.get("type") is None:
            raise FormatError("field has no type", path=self.path, field=_shorten(name))
        return Field(
            get_int(doc, "id", self.path, minimum=0, maximum=INT32_MAX),
            name,
            self.type(doc["type"], depth),
            get_str(doc, "description", self.path, default=None),
            get_str(doc, "defaultValue", self.path, default=None),
        )


def type_to_json(dtype: DataType) -> str | dict[str, Any]:
    """The type in the form of schema files."""
    name = dtype.root.value if dtype.nullable else f"{dtype.root.value} NOT NULL"
    match dtype:
        case ElementType(element=element):
            return {"type": name, "element": type_to_json(element)}
        case MapType(key=key, value=value):
            return {"type": name, "key": type_to_json(key), "value": type_to_json(value)}
        case VectorType(element=element, length=length):
            return {"type": name, "element": type_to_json(element), "length": length}
        case RowType(fields=fields):
            return {"type": name, "fields": fields_to_json(fields)}
    return str(dtype)


def fields_to_json(fields: Sequence[Field]) -> list[dict[str, Any]]:
    """Columns or members of a ROW in the form of schema files."""
    docs: list[dict[str, Any]] = []
    for field in fields:
        doc: dict[str, Any] = {"id": field.id, "name": field.name, "type": type_to_json(field.type)}
        if field.description is not None:
            doc["description"] = field.description
        if field.default is not None:
            doc["defaultValue"] = field.default
        docs.append(doc)
    return docs


# ---------------------------------------------------------------------------------------------------- shape of a type


def type_depth(dtype: DataType) -> int:
    """How many constructed types are nested around the innermost type."""
    depth, level = 0, children(dtype)
    while level:
        depth += 1
        level = tuple(child for parent in level for child in children(parent))
    return depth


def type_json_depth(dtype: DataType) -> int:
    """How deeply JSON objects and arrays are nested for the type in a schema file."""
    match dtype:
        case RowType(fields=fields):
            return 2 + max((1 + type_json_depth(field.type) for field in fields), default=0)
        case ElementType() | MapType() | VectorType():
            return 1 + max(type_json_depth(child) for child in children(dtype))
    return 0


def number_nested(dtype: DataType, next_id: int) -> tuple[DataType, int]:
    """The type with its ROW members numbered from `next_id`, and the next free id.

    A member gets its id after the members inside its own type, as in Java.
    """
    match dtype:
        case RowType(fields=fields):
            numbered: list[Field] = []
            for field in fields:
                inner, next_id = number_nested(field.type, next_id)
                numbered.append(replace(field, id=next_id, type=inner))
                next_id += 1
            return replace(dtype, fields=tuple(numbered)), next_id
        case ElementType(element=element) | VectorType(element=element):
            inner, next_id = number_nested(element, next_id)
            return replace(dtype, element=inner), next_id
        case MapType(key=key, value=value):
            new_key, next_id = number_nested(key, next_id)
            new_value, next_id = number_nested(value, next_id)
            return replace(dtype, key=new_key, value=new_value), next_id
    return dtype, next_id
