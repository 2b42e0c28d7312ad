"""Columns and types as users name them."""

from __future__ import annotations

from collections.abc import Iterable

from tidelake.errors import InvalidInputError
from tidelake.spec.type_codec import parse_type
from tidelake.spec.types import DataType


def path_of(name: str) -> str | tuple[str, ...]:
    """A column, or with dots a member of a ROW.

    Raises:
        InvalidInputError: it is no text.
    """
    if not isinstance(name, str):
        raise InvalidInputError("name of a column is no text", got=repr(name)[:100])
    return tuple(name.split(".")) if "." in name else name


def typed(dtype: str | DataType) -> DataType:
    """A type, from its text if need be.

    Raises:
        InvalidInputError: the text is no type.
    """
    if not isinstance(dtype, str | DataType):
        raise InvalidInputError("type is neither text nor a type", got=repr(dtype)[:100], hint='write "BIGINT"')
    return parse_type(dtype) if isinstance(dtype, str) else dtype


def names_of(given: Iterable[str]) -> tuple[str, ...]:
    """One name, or several.

    Raises:
        InvalidInputError: it is neither.
    """
    if not isinstance(given, Iterable):
        raise InvalidInputError("names are given as a list of texts", got=repr(given)[:100])
    return (given,) if isinstance(given, str) else tuple(given)
