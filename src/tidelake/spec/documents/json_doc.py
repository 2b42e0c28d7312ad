"""Read and write all JSON documents: reading is strict, writing prints as Java does.

Reading refuses what many parsers accept but must not be in a table: oversized or deeply nested text, duplicate keys,
NaN, invalid UTF-8, and bytes after the document. The errors are `FormatError` with the path and, if known, the byte
offset. Fractions become `decimal.Decimal`, so that a value that is only carried through keeps its digits.

Writing uses Java's layout (two spaces, ``"key" : value``, ``[ ]``), so that rewriting a document of Java gives the same
bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, Final, NoReturn, TypeAlias, TypeVar, overload

import msgspec
import numpy as np

from tidelake.errors import FormatError, InternalError, InvalidInputError
from tidelake.spec.limits import INT64_MAX, INT64_MIN, LIMITS

JsonObject: TypeAlias = dict[str, Any]


class Missing(Enum):
    """Type of the marker that makes a key required."""

    REQUIRED = "required"


REQUIRED: Final = Missing.REQUIRED

NEW_DOCUMENT: Final = "(not written yet)"
"""The path in errors about a document that is checked before it is written."""

D = TypeVar("D")
T = TypeVar("T")

_DECODER = msgspec.json.Decoder(float_hook=Decimal)
_OFFSET = re.compile(r"\(byte (\d+)\)")
_STRUCTURE = b'"{}[]:'
_NOT_STRUCTURE = bytes(sorted(set(range(256)) - set(_STRUCTURE)))
_PIECE = 1 << 15


# ---------------------------------------------------------------------------------------------------------- reading


def parse_object(
    data: bytes, *, path: str, limit_bytes: int = LIMITS.json_bytes, limit_depth: int = LIMITS.json_depth
) -> JsonObject:
    """Parse one JSON object.

    Args:
        data: The whole document.
        path: Where it came from, for the error.
        limit_bytes: The largest size that is accepted.
        limit_depth: The deepest nesting that is accepted.

    Raises:
        FormatError: If the bytes are not exactly one JSON object within the limits.
    """
    if len(data) > limit_bytes:
        raise FormatError("document is too large", path=path, size_bytes=len(data), limit_bytes=limit_bytes)
    depth, member_count = _scan(data, limit_depth)
    if depth > limit_depth:
        raise FormatError("document is nested too deeply", path=path, depth=depth, limit_depth=limit_depth)
    try:
        doc = _DECODER.decode(data)
    except UnicodeDecodeError as error:
        # The decoder counts from the start of the string. Report the offset in the document instead.
        raise FormatError("document is not valid UTF-8", path=path, offset=_bad_utf8_offset(data)) from error
    except msgspec.MsgspecError as error:
        match = _OFFSET.search(str(error))
        offset = int(match[1]) if match else len(data)
        raise FormatError("document is not valid JSON", path=path, offset=offset, cause=_reason(error)) from error
    except (InvalidOperation, RecursionError) as error:
        raise FormatError("document has a number that cannot be represented", path=path) from error
    if not isinstance(doc, dict):
        raise FormatError("document is not a JSON object", path=path, found=_kind(doc))
    if _count_members(doc) != member_count:
        raise FormatError("document has a key more than once", path=path, key=_duplicate_key(data))
    return doc


def _scan(data: bytes, limit_depth: int) -> tuple[int, int]:
    """Nesting depth and number of object members of bytes that may or may not be valid JSON.

    Needed because the decoder recurses and silently keeps one of two duplicate keys. Stops as soon as the depth is
    above the limit. Works in pieces that fit into the processor's cache.
    """
    if b"\\" in data:
        # Remove escapes in pairs from the left, as a JSON parser reads them; the quotes that are left delimit strings.
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    structure = np.frombuffer(data.translate(None, _NOT_STRUCTURE), dtype=np.uint8)
    quote_count, level, depth, member_count = 0, 0, 0, 0
    for start in range(0, structure.size, _PIECE):
        piece = structure[start : start + _PIECE]
        is_quote = piece == ord('"')
        if quote_count % 2 or is_quote.any():
            # The 8-bit running count wraps, but only its parity (inside or outside a string) matters.
            quotes = np.cumsum(is_quote, dtype=np.uint8)
            inside = (quotes + np.uint8(quote_count % 2)) & np.uint8(1)
            quote_count += int(np.count_nonzero(is_quote))
            piece = piece & (inside - np.uint8(1))  # blanks the inside of strings
        member_count += int(np.count_nonzero(piece == ord(":")))
        folded = piece & 0xDF  # `{` and `[` become one code, `}` and `]` another
        steps = (folded == 0x5B).view(np.int8) - (folded == 0x5D).view(np.int8)
        levels = np.cumsum(steps, dtype=np.int32)
        if levels.size:
            depth = max(depth, level + int(levels.max()))
            level += int(levels[-1])
        if depth > limit_depth:
            break
    return depth, member_count


def _count_members(doc: JsonObject) -> int:
    count = 0
    stack: list[Any] = [doc]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            count += len(node)
            stack.extend(value for value in node.values() if isinstance(value, dict | list))
        else:
            stack.extend(value for value in node if isinstance(value, dict | list))
    return count


def _duplicate_key(data: bytes) -> str | None:
    """The duplicate key. Slow, and only called for a document that is refused."""
    found: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                found.append(key)
            seen.add(key)

    json.loads(data, object_pairs_hook=note, parse_int=str, parse_float=str)
    return found[0] if found else None


def _bad_utf8_offset(data: bytes) -> int | None:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return None


def _reason(error: Exception) -> str:
    text = _OFFSET.sub("", str(error)).removeprefix("JSON is malformed: ").strip()
    return text[:1].lower() + text[1:]


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | Decimal() | float():
            return "number"
        case str():
            return "string"
        case list() | tuple():
            return "array"
        case _:
            return "object"


# ---------------------------------------------------------------------------------------------------- typed getters


def _refuse(path: str, key: str, expected: str, value: object) -> NoReturn:
    raise FormatError("value has the wrong type", path=path, key=key, expected=expected, found=_kind(value))


def _get(doc: Mapping[str, Any], key: str, path: str, default: object, check: Callable[[Any], T]) -> Any:
    value = doc.get(key)
    if value is not None:
        return check(value)
    if default is not REQUIRED:
        return default
    raise FormatError("document lacks a required key", path=path, key=key)


@overload
def get_int(doc: Mapping[str, Any], key: str, path: str, *, minimum: int = ..., maximum: int = ...) -> int: ...
@overload
def get_int(
    doc: Mapping[str, Any], key: str, path: str, *, default: D, minimum: int = ..., maximum: int = ...
) -> int | D: ...
def get_int(
    doc: Mapping[str, Any],
    key: str,
    path: str,
    *,
    default: object = REQUIRED,
    minimum: int = INT64_MIN,
    maximum: int = INT64_MAX,
) -> object:
    """The integer under `key`; the default if it is absent or null.

    Raises:
        FormatError: If it is required and absent, is not an integer (or is a boolean), or is out of range.
    """

    def check(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            _refuse(path, key, "integer", value)
        if not minimum <= value <= maximum:
            raise FormatError("integer is out of range", path=path, key=key, minimum=minimum, maximum=maximum)
        return value

    return _get(doc, key, path, default, check)


@overload
def get_str(doc: Mapping[str, Any], key: str, path: str) -> str: ...
@overload
def get_str(doc: Mapping[str, Any], key: str, path: str, *, default: D) -> str | D: ...
def get_str(doc: Mapping[str, Any], key: str, path: str, *, default: object = REQUIRED) -> object:
    """The string under `key`; the default if it is absent or null.

    Raises:
        FormatError: If it is required and absent, or is not a string.
    """
    return _get(doc, key, path, default, lambda value: _string(value, key, path))


@overload
def get_list(doc: Mapping[str, Any], key: str, path: str) -> list[Any]: ...
@overload
def get_list(doc: Mapping[str, Any], key: str, path: str, *, default: D) -> list[Any] | D: ...
def get_list(doc: Mapping[str, Any], key: str, path: str, *, default: object = REQUIRED) -> object:
    """The array under `key`; the default if it is absent or null.

    Raises:
        FormatError: If it is required and absent, or is not an array.
    """

    def check(value: object) -> list[Any]:
        return value if isinstance(value, list) else _refuse(path, key, "array", value)

    return _get(doc, key, path, default, check)


@overload
def get_object(doc: Mapping[str, Any], key: str, path: str) -> JsonObject: ...
@overload
def get_object(doc: Mapping[str, Any], key: str, path: str, *, default: D) -> JsonObject | D: ...
def get_object(doc: Mapping[str, Any], key: str, path: str, *, default: object = REQUIRED) -> object:
    """The object under `key`; the default if it is absent or null.

    Raises:
        FormatError: If it is required and absent, or is not an object.
    """

    def check(value: object) -> JsonObject:
        return value if isinstance(value, dict) else _refuse(path, key, "object", value)

    return _get(doc, key, path, default, check)


def get_str_list(doc: Mapping[str, Any], key: str, path: str) -> tuple[str, ...]:
    """The array of strings under `key`.

    Raises:
        FormatError: If it is absent, is not an array, or contains anything but strings.
    """
    return tuple(_string(value, key, path) for value in get_list(doc, key, path))


@overload
def get_str_map(doc: Mapping[str, Any], key: str, path: str) -> dict[str, str]: ...
@overload
def get_str_map(doc: Mapping[str, Any], key: str, path: str, *, default: D) -> dict[str, str] | D: ...
def get_str_map(doc: Mapping[str, Any], key: str, path: str, *, default: object = REQUIRED) -> object:
    """The object of strings under `key`; the default if it is absent or null.

    Raises:
        FormatError: If it is required and absent, is not an object, or has a value that is not a string.
    """

    def check(value: object) -> dict[str, str]:
        if not isinstance(value, dict):
            _refuse(path, key, "object", value)
        return {name: _string(text, f"{key}.{name}", path) for name, text in value.items()}

    return _get(doc, key, path, default, check)


def as_object(value: object, *, key: str, path: str) -> JsonObject:
    """The value, which must be an object.

    Raises:
        FormatError: If it is anything else; `key` names its place in the document.
    """
    return value if isinstance(value, dict) else _refuse(path, key, "object", value)


def unknown_members(doc: Mapping[str, Any], known: Iterable[str]) -> JsonObject:
    """The members of `doc` that the caller does not know, in their order, which a rewrite must keep."""
    known = frozenset(known)
    return {key: value for key, value in doc.items() if key not in known}


def _string(value: object, key: str, path: str) -> str:
    return value if isinstance(value, str) else _refuse(path, key, "string", value)


# ---------------------------------------------------------------------------------------------------------- writing


def encode_document(doc: Mapping[str, Any], value: T, decode: Callable[..., T]) -> bytes:
    """Print the document of `value`, and check that decoding it returns the same value.

    One unreadable document can make a whole table unreadable, so that no document is written without this check.

    Raises:
        InvalidInputError: If it cannot be decoded or decodes to another value, because a value in it has the wrong
            type.
        InternalError: If the document has a value that JSON cannot represent.
    """
    data = dump(doc)
    kind = type(value).__name__.lower()
    try:
        again = decode(data, path=NEW_DOCUMENT)
    except (FormatError, InvalidInputError) as cause:
        raise InvalidInputError(
            f"{kind} document would not be readable, so it was not written",
            code="document-unreadable",
            reason=cause.message,
            **{name: cause.facts[name] for name in ("key", "expected", "found") if name in cause.facts},
            hint="give texts where texts belong and numbers where numbers belong",
        ) from cause
    if again != value:
        raise InvalidInputError(
            f"{kind} document would be read with other values, so it was not written",
            code="document-unreadable",
            hint="give texts where texts belong and numbers where numbers belong",
        )
    return data


def dump(doc: Mapping[str, Any]) -> bytes:
    """Print a document as Java does.

    Raises:
        InvalidInputError: If a text in it is not valid Unicode: a lone surrogate has no UTF-8 encoding.
        InternalError: If the document has a value that JSON cannot represent.
    """
    parts: list[str] = []
    _print(doc, "\n", parts)
    text = "".join(parts)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as cause:
        around = ascii(text[max(0, cause.start - 20) : cause.end])
        raise InvalidInputError("text is not valid Unicode", text=around, hint="remove the lone surrogate") from cause


_ESCAPES = {code: f"\\u{code:04X}" for code in range(0x20)}
_ESCAPES |= {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}


def _print(value: object, newline: str, parts: list[str]) -> None:
    """Append the text of `value`; `newline` is a line break plus the indentation of the enclosing object."""
    match value:
        case str():
            parts.append(f'"{value.translate(_ESCAPES)}"')
        case None | bool():
            parts.append({None: "null", True: "true", False: "false"}[value])
        case int():
            parts.append(str(value))
        case Decimal() if value.is_finite():
            # Java prints plain digits. For a large exponent that could be millions of zeros, so it is printed as it is.
            exponent = value.as_tuple().exponent
            plain = isinstance(exponent, int) and -64 < exponent <= 0
            parts.append(format(value, "f") if plain else str(value))
        case Mapping():
            _print_object(value, newline, parts)
        case list() | tuple():
            _print_array(value, newline, parts)
        case _:
            raise InternalError("value cannot be written as JSON", type=type(value).__name__)


def _print_object(members: Mapping[str, Any], newline: str, parts: list[str]) -> None:
    if not members:
        parts.append("{ }")
        return
    inner = newline + "  "
    separator = "{"
    for key, value in members.items():
        parts.append(f'{separator}{inner}"{key.translate(_ESCAPES)}" : ')
        _print(value, inner, parts)
        separator = ","
    parts.append(newline + "}")


def _print_array(items: Sequence[Any], newline: str, parts: list[str]) -> None:
    # Java prints arrays on one line and does not indent them; only objects inside break lines.
    separator = "[ "
    for item in items:
        parts.append(separator)
        _print(item, newline, parts)
        separator = ", "
    parts.append(" ]" if items else "[ ]")
