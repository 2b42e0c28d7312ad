"""How an option is declared, parsed and documented. The options are declared next to the code that reads them.

A group is a frozen dataclass whose fields are made by `option`:

    @dataclass(frozen=True, slots=True, kw_only=True)
    class RetryOptions(OptionGroup):
        max_retries: int | None = option("commit.max-retries", None, doc="Tries after the first.", affects=WRITES)

The annotation chooses the parser, so key, type, default and text are on one line and stay consistent. Only `parse`
takes the raw string map: it parses the texts once, remembers which keys the user set (`given`), and ignores keys of
other groups.

Invariant: a value in a parsed group has the declared type and passed its check; anything else is an `InvalidInputError`
with code ``option-value`` that names the key, the value and the expected form.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Self

from tidelake.errors import InternalError, InvalidInputError
from tidelake.options.values import (
    Bytes,
    DurationMs,
    Int64,
    TextMap,
    fold_key,
    format_bytes,
    format_duration,
    parse_bool,
    parse_bytes,
    parse_duration,
    parse_enum,
    parse_float,
    parse_int,
    parse_list,
    parse_map,
)

NEAREST_CUTOFF = 0.7
_METADATA = "tidelake.option"


class Affects(Enum):
    """The verbs that must honour an option, or refuse by its name."""

    READ = "read"
    WRITE = "write"
    MAINTENANCE = "maintenance"
    CREATE = "create"
    ALTER = "alter"


# ---------------------------------------------------------------------------------------------------------------------
# Declaration
# ---------------------------------------------------------------------------------------------------------------------

Check = Callable[[Any], str | None]
"""Takes a parsed value, returns the expected form when the value is not acceptable, None when it is."""


def at_least(limit: float) -> Check:
    """A check that the value is not below `limit`."""
    return lambda value: None if value >= limit else f"at least {limit}"


def between(low: float, high: float) -> Check:
    """A check that the value is from `low` to `high`, both included."""
    return lambda value: None if low <= value <= high else f"from {low} to {high}"


@dataclass(frozen=True, slots=True)
class _Declaration:
    key: str
    default: Any
    doc: str
    affects: tuple[Affects, ...]
    immutable: bool
    fallback: tuple[str, ...]
    parse: Callable[[str], Any] | None
    check: Check | None


def option(
    key: str,
    default: Any,
    *,
    doc: str,
    affects: Sequence[Affects],
    immutable: bool = False,
    fallback: Sequence[str] = (),
    parse: Callable[[str], Any] | None = None,
    check: Check | None = None,
) -> Any:
    """Declare one option as a field of an `OptionGroup`.

    Args:
        key: The key in the table's options.
        default: The typed value when neither `key` nor a fallback is set. It is not checked.
        doc: One sentence for the reference page.
        affects: The verbs that must honour it.
        immutable: Whether it may not change once the table has snapshots.
        fallback: Older keys, tried in this order when `key` is not set.
        parse: Replaces the parser of the annotation; raises `ValueError` with the expected form.
        check: Runs on the parsed value; returns the expected form when it is not acceptable.
    """
    declaration = _Declaration(key, default, doc, tuple(affects), immutable, tuple(fallback), parse, check)
    return dataclasses.field(default=default, metadata={_METADATA: declaration})


def same_option(group: type[OptionGroup], attribute: str) -> Any:
    """A field for an option that another group declares, so that each key is declared once.

    Args:
        group: The group that declares it.
        attribute: Its field in that group.

    Raises:
        InternalError: the group has no such option.
    """
    for field in dataclasses.fields(group):
        if field.name == attribute and _METADATA in field.metadata:
            return dataclasses.field(default=field.default, metadata=field.metadata)
    raise InternalError("option is not declared in this group", attribute=attribute, group=group.__qualname__)


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """One declared option, as the reference page and the hints see it."""

    key: str
    attribute: str
    group: str
    type_name: str
    default: Any
    doc: str
    affects: tuple[Affects, ...]
    immutable: bool
    fallback: tuple[str, ...]
    declaration: object = dataclasses.field(repr=False, compare=False)
    read: Callable[[str], Any] = dataclasses.field(repr=False, compare=False)
    write: Callable[[Any], str] = dataclasses.field(repr=False, compare=False)
    check: Check | None = dataclasses.field(repr=False, compare=False)

    @property
    def default_text(self) -> str | None:
        """The default as a user would write it, or None."""
        return None if self.default is None else self.write(self.default)

    def parse(self, text: str, *, key: str | None = None) -> Any:
        """The typed value of `text`, checked.

        Args:
            text: The value as the user wrote it.
            key: The key it was found under, when that was a fallback.

        Raises:
            InvalidInputError: (``option-value``) when the text is not of the expected form.
        """
        key = self.key if key is None else key
        if not isinstance(text, str):
            raise _bad_value(key, text, f"text: {self.type_name}")
        try:
            value = self.read(text)
        except ValueError as error:
            raise _bad_value(key, text, str(error)) from error
        problem = None if self.check is None else self.check(value)
        if problem is not None:
            raise _bad_value(key, text, problem)
        return value


def _bad_value(key: str, value: object, expected: str) -> InvalidInputError:
    return InvalidInputError(
        "option has a value of the wrong form",
        code="option-value",
        hint=f"give {key} {expected}",
        key=key,
        value=value,
        expected=expected,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionGroup:
    """Base of all groups. `given` holds the declared keys that the user set, also under an old spelling.

    A subclass is listed by `all_options` unless it sets ``listed = False`` in its body.
    """

    listed: ClassVar[bool] = True

    given: frozenset[str] = frozenset()

    def __init_subclass__(cls) -> None:
        # Not super(): slots=True creates the class a second time, and a bare super() would mean the first one.
        # The second call replaces the first, because both have the same name.
        _GROUPS[f"{cls.__module__}.{cls.__qualname__}"] = cls

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """The group that these options describe. Keys of other groups are ignored.

        Raises:
            InvalidInputError: (``option-value``) when a value is not of the declared form.
        """
        group, problems = cls.parse_leniently(options)
        if problems:
            raise problems[0]
        return group

    @classmethod
    def parse_leniently(cls, options: Mapping[str, str]) -> tuple[Self, tuple[InvalidInputError, ...]]:
        """The group that these options describe, and what is wrong with the values that were left at their default."""
        values: dict[str, Any] = {}
        given = set()
        problems = []
        for spec in specs_of(cls):
            key = next((key for key in (spec.key, *spec.fallback) if key in options), None)
            if key is None:
                continue
            given.add(spec.key)
            try:
                values[spec.attribute] = spec.parse(options[key], key=key)
            except InvalidInputError as error:
                problems.append(error)
        return cls(given=frozenset(given), **values), tuple(problems)

    @classmethod
    def read_leniently(cls, options: Mapping[str, str]) -> Self:
        """The group where a value of a wrong form counts as unset: for tables that another writer may have made."""
        return cls.parse_leniently(options)[0]

    def explicit(self, key: str) -> bool:
        """Whether the user set this option, so that a better default of tidelake does not replace it.

        Raises:
            InternalError: when the group has no such option.
        """
        if key not in {spec.key for spec in specs_of(type(self))}:
            raise InternalError("option is not declared in this group", key=key, group=type(self).__qualname__)
        return key in self.given


_GROUPS: dict[str, type[OptionGroup]] = {}


# ---------------------------------------------------------------------------------------------------------------------
# The registry
# ---------------------------------------------------------------------------------------------------------------------


def specs_of(group: type[OptionGroup]) -> tuple[OptionSpec, ...]:
    """The options of a group in the order of their fields.

    Raises:
        InternalError: when an annotation has no parser.
    """
    if group not in _SPECS:
        _SPECS[group] = _resolve(group)
    return _SPECS[group]


_SPECS: dict[type[OptionGroup], tuple[OptionSpec, ...]] = {}


def _resolve(group: type[OptionGroup]) -> tuple[OptionSpec, ...]:
    hints = typing.get_type_hints(group)
    return tuple(
        _spec(group, field.name, hints[field.name], field.metadata[_METADATA])
        for field in dataclasses.fields(group)
        if _METADATA in field.metadata
    )


def _spec(group: type[OptionGroup], attribute: str, annotation: Any, declared: _Declaration) -> OptionSpec:
    type_name, read, write = _syntax(annotation, where=f"{group.__qualname__}.{attribute}")
    return OptionSpec(
        key=declared.key,
        attribute=attribute,
        group=f"{group.__module__}.{group.__qualname__}",
        type_name=type_name,
        default=declared.default,
        doc=declared.doc,
        affects=declared.affects,
        immutable=declared.immutable,
        fallback=declared.fallback,
        declaration=declared,
        read=declared.parse or read,
        write=write,
        check=declared.check,
    )


_Syntax = tuple[str, Callable[[str], Any], Callable[[Any], str]]

_SYNTAX: dict[Any, _Syntax] = {
    bool: ("boolean", parse_bool, lambda value: str(value).lower()),
    int: ("integer", parse_int, str),
    Int64: ("long", functools.partial(parse_int, bits=64), str),
    float: ("double", parse_float, str),
    str: ("string", str, str),
    DurationMs: ("duration", parse_duration, format_duration),
    Bytes: ("memorysize", parse_bytes, format_bytes),
    list: ("list", lambda text: list(parse_list(text)), ",".join),
    tuple: ("list", parse_list, ",".join),
    Mapping: ("map", parse_map, lambda value: ",".join(f"{name}:{item}" for name, item in value.items())),
    TextMap: ("map", parse_map, lambda value: ",".join(f"{name}:{item}" for name, item in value.items())),
}


def _syntax(annotation: Any, *, where: str) -> _Syntax:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        members = [member for member in typing.get_args(annotation) if member is not type(None)]
        if len(members) == 1:
            return _syntax(members[0], where=where)
    elif isinstance(annotation, type) and issubclass(annotation, Enum):
        members_of = annotation
        return "enum", lambda text: parse_enum(text, members_of), lambda member: str(member.value)
    elif typing.get_args(annotation) in ((), (str,), (str, ...), (str, str)):
        origin = typing.get_origin(annotation) or annotation
        if (found := _SYNTAX.get(origin)) is not None:
            return found
    raise InternalError("option annotation has no parser", where=where, annotation=annotation)


def all_groups() -> tuple[type[OptionGroup], ...]:
    """Every group that was imported and is listed."""
    return tuple(group for group in _GROUPS.values() if group.listed)


def all_options(groups: Iterable[type[OptionGroup]] | None = None) -> tuple[OptionSpec, ...]:
    """Every option of the groups that were imported (or of the given ones), sorted by key, each key once.

    Raises:
        InternalError: when two groups declare one key (`same_option` takes over the declaration of another group).
    """
    chosen = all_groups() if groups is None else groups
    found: dict[str, OptionSpec] = {}
    for group in chosen:
        for spec in specs_of(group):
            first = found.setdefault(spec.key, spec)
            if first.declaration is not spec.declaration or first.type_name != spec.type_name:
                raise InternalError("option is declared twice", key=spec.key, groups=(first.group, spec.group))
    return tuple(found[key] for key in sorted(found))


def check_declared(options: Mapping[str, str]) -> frozenset[str]:
    """Check the values of the keys that a group declares; returns those keys.

    Raises:
        InvalidInputError: (``option-value``) when one is not of the declared form, or out of its range.
    """
    checked = set()
    for spec in all_options() if options else ():
        for key in (spec.key, *spec.fallback):
            if key in options:
                spec.parse(options[key], key=key)
                checked.add(key)
    return frozenset(checked)


def nearest(key: str, candidates: Iterable[str] | None = None) -> str | None:
    """The known key that is spelled most like `key`, or None if none is similar.

    Args:
        key: What the user wrote.
        candidates: The known keys; the declared ones when not given.
    """
    known = _declared_keys() if candidates is None else candidates
    by_fold = {fold_key(name): name for name in known}
    found = difflib.get_close_matches(fold_key(key), by_fold, n=1, cutoff=NEAREST_CUTOFF)
    return by_fold[found[0]] if found else None


@dataclass(frozen=True, slots=True)
class UnknownKey:
    """An option key that no group declares, with the known key that it resembles."""

    key: str
    nearest: str | None


def unknown_keys(
    options: Iterable[str],
    *,
    known: Iterable[str] = (),
    families: Sequence[re.Pattern[str]] = (),
) -> tuple[UnknownKey, ...]:
    """The keys that are neither declared, nor among `known`, nor of a family; in the order given.

    Unknown keys are kept and never refused: the result is for a warning.
    """
    names = _declared_keys().union(known)
    return tuple(
        UnknownKey(key, nearest(key, sorted(names)))
        for key in options
        if key not in names and not any(family.fullmatch(key) for family in families)
    )


def _declared_keys() -> set[str]:
    return {key for spec in all_options() for key in (spec.key, *spec.fallback)}
