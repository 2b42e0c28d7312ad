"""How an option is declared, parsed and documented; the options themselves live beside the code that reads them.

A group is a frozen dataclass whose fields are made by `option`:

    @dataclass(frozen=True, slots=True, kw_only=True)
    class RetryOptions(OptionGroup):
        max_retries: int | None = option("commit.max-retries", None, doc="Tries after the first.", affects=WRITES)

The annotation chooses the parser, so key, type, default and text stand on one line and cannot drift apart. `parse` is
the only door for the raw string map: it turns text into typed values once, remembers which keys the user really set
(`given`), and ignores keys of other groups.

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, NewType, Self

from tidelake.errors import InternalError, InvalidInputError

__all__ = [
    "Affects",
    "Bytes",
    "DurationMs",
    "Int64",
    "OptionGroup",
    "OptionSpec",
    "TextMap",
    "UnknownKey",
    "all_options",
    "at_least",
    "between",
    "check_declared",
    "format_bytes",
    "format_duration",
    "nearest",
    "option",
    "option_text",
    "parse_bool",
    "parse_bytes",
    "parse_duration",
    "parse_enum",
    "parse_float",
    "parse_int",
    "parse_list",
    "parse_map",
    "specs_of",
    "unknown_keys",
]

DurationMs = NewType("DurationMs", int)
"""Annotation of a duration option: whole milliseconds."""

Bytes = NewType("Bytes", int)
"""Annotation of a memory size option: bytes."""

Int64 = NewType("Int64", int)
"""Annotation of a 64-bit integer option. A plain `int` has 32 bits, as in the format's own readers."""

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
NEAREST_CUTOFF = 0.7
_METADATA = "tidelake.option"


class Affects(Enum):
    """The verbs that must honour an option, or refuse by its name."""

    READ = "read"
    WRITE = "write"
    MAINTENANCE = "maintenance"
    ENGINE = "engine"


@dataclass(frozen=True, slots=True)
class TextMap(Mapping[str, str]):
    """A small immutable map of texts: hashable and picklable, unlike a mapping proxy."""

    pairs: tuple[tuple[str, str], ...] = ()

    def __getitem__(self, key: str) -> str:
        for name, value in self.pairs:
            if name == key:
                return value
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)


# ---------------------------------------------------------------------------------------------------------------------
# Value syntax. Each parser raises ValueError with the expected form; `OptionGroup.parse` adds the key and the value.
# ---------------------------------------------------------------------------------------------------------------------

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_FLOAT = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")
# The format's readers trim what Java's trim() trims, which is every character up to the blank and nothing else.
_BLANK = "".join(map(chr, range(0x21)))
_QUANTITY = re.compile(r"([0-9]+)[\x00-\x20]*([^\x00-\x20].*)?", re.DOTALL)

_DURATION_NS = {
    label: factor
    for factor, labels in (
        (86_400_000_000_000, ("d", "day", "days")),
        (3_600_000_000_000, ("h", "hour", "hours")),
        (60_000_000_000, ("min", "m", "minute", "minutes")),
        (1_000_000_000, ("s", "sec", "secs", "second", "seconds")),
        (1_000_000, ("", "ms", "milli", "millis", "millisecond", "milliseconds")),
        (1_000, ("µs", "micro", "micros", "microsecond", "microseconds")),
        (1, ("ns", "nano", "nanos", "nanosecond", "nanoseconds")),
    )
    for label in labels
}
_SIZE_BYTES = {
    label: factor
    for factor, labels in (
        (1, ("", "b", "bytes")),
        (1 << 10, ("k", "kb", "kibibytes")),
        (1 << 20, ("m", "mb", "mebibytes")),
        (1 << 30, ("g", "gb", "gibibytes")),
        (1 << 40, ("t", "tb", "tebibytes")),
    )
    for label in labels
}
_DURATION_FORM = "a duration such as `1 d`, `2 h`, `30 min`, `10 s` or `500 ms`; a plain number is milliseconds"
_SIZE_FORM = "a size such as `64 kb`, `128 mb` or `1 gb`; a plain number is bytes"


def parse_bool(text: str) -> bool:
    """Read ``true`` or ``false`` in any case.

    Raises:
        ValueError: on anything else.
    """
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError("true or false")
    return lowered == "true"


def parse_int(text: str, *, bits: int = 32) -> int:
    """Read a decimal integer of 32 or 64 bits.

    Raises:
        ValueError: on other text or a number out of range.
    """
    limit = 1 << (bits - 1)
    value = int(text) if _INTEGER.fullmatch(text) else limit
    if not -limit <= value < limit:
        raise ValueError(f"an integer of {bits} bits, from {-limit} to {limit - 1}")
    return value


def parse_float(text: str) -> float:
    """Read a decimal number, ``NaN`` or ``Infinity``; a trailing ``f`` or ``d`` is allowed.

    Raises:
        ValueError: on anything else.
    """
    trimmed = text.strip(_BLANK)
    if not _FLOAT.fullmatch(trimmed):
        raise ValueError("a number such as 0.75")
    return float(trimmed) if trimmed.endswith(("NaN", "Infinity")) else float(trimmed.rstrip("fFdD"))


def parse_duration(text: str) -> DurationMs:
    """Read a duration; units below a millisecond are cut off.

    Raises:
        ValueError: on an unknown unit, a sign, a fraction, or more than 64 bits of milliseconds.
    """
    amount, unit = _quantity(text, _DURATION_NS, _DURATION_FORM)
    millis = amount * unit // 1_000_000
    if millis > INT64_MAX:
        raise ValueError(_DURATION_FORM)
    return DurationMs(millis)


def parse_bytes(text: str) -> Bytes:
    """Read a memory size; units are powers of 1024.

    Raises:
        ValueError: on an unknown unit, a sign, a fraction, or more than 64 bits of bytes.
    """
    amount, unit = _quantity(text, _SIZE_BYTES, _SIZE_FORM)
    if amount * unit > INT64_MAX:
        raise ValueError(_SIZE_FORM)
    return Bytes(amount * unit)


def _quantity(text: str, units: Mapping[str, int], form: str) -> tuple[int, int]:
    match = _QUANTITY.fullmatch(text.strip(_BLANK))
    # A number of more than 19 digits cannot fit in 64 bits, and converting a huge one would take long.
    if match is None or len(match[1].lstrip("0")) > 19 or int(match[1]) > INT64_MAX:
        raise ValueError(form)
    unit = units.get((match[2] or "").lower())
    if unit is None:
        raise ValueError(form)
    return int(match[1]), unit


def parse_list(text: str) -> tuple[str, ...]:
    """Read comma separated names, each trimmed; the empty text is the empty list.

    Raises:
        ValueError: when a name between two commas is empty.
    """
    names = [name.strip() for name in text.split(",")]
    while names and not names[-1]:
        names.pop()
    if not all(names):
        raise ValueError("names separated by commas")
    return tuple(names)


def parse_map(text: str) -> TextMap:
    """Read ``k1:v1,k2:v2`` with keys and values trimmed; the empty text is the empty map.

    Raises:
        ValueError: on a pair without exactly one colon, an empty key or value, or a repeated key.
    """
    form = "pairs such as `k1:v1,k2:v2`"
    entries = text.strip().strip(",")
    pairs = []
    for entry in entries.split(",") if entries else ():
        name, separator, value = (part.strip() for part in entry.partition(":"))
        if not (separator and name and value) or ":" in value:
            raise ValueError(form)
        pairs.append((name, value))
    if len(dict(pairs)) != len(pairs):
        raise ValueError(form + " with each key once")
    return TextMap(tuple(pairs))


def parse_enum(text: str, members: type[Enum]) -> Enum:
    """Read a member by its value or its name, in any case, with ``-`` or ``_``.

    Raises:
        ValueError: when no member is spelled so; the message lists them.
    """
    wanted = _fold(text)
    for member in members:
        if wanted in (_fold(str(member.value)), _fold(member.name)):
            return member
    raise ValueError("one of " + ", ".join(str(member.value) for member in members))


def _fold(text: str) -> str:
    return text.lower().replace("_", "-")


def format_duration(value: int) -> str:
    """The shortest text that `parse_duration` reads back as this many milliseconds."""
    for label, factor in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if value and value % factor == 0:
            return f"{value // factor} {label}"
    return f"{value} ms"


def format_bytes(value: int) -> str:
    """The shortest text that `parse_bytes` reads back as this many bytes."""
    for label, factor in (("tb", 1 << 40), ("gb", 1 << 30), ("mb", 1 << 20), ("kb", 1 << 10)):
        if value and value % factor == 0:
            return f"{value // factor} {label}"
    return f"{value} bytes"


# ---------------------------------------------------------------------------------------------------------------------
# Declaration
# ---------------------------------------------------------------------------------------------------------------------

Check = Callable[[Any], str | None]
"""Takes a parsed value, returns the expected form when the value is not acceptable, None when it is."""


def at_least(limit: float) -> Check:
    """A check that the value is not below `limit`."""
    return lambda value: None if value >= limit else f"at least {limit}"


def between(low: float, high: float) -> Check:
    """A check that the value lies in `low` .. `high`, both included."""
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
    """Base of all groups. `given` holds the declared keys that the user set, under whatever spelling.

    A subclass is listed by `all_options` unless it sets ``listed = False`` in its body.
    """

    listed: ClassVar[bool] = True

    given: frozenset[str] = frozenset()

    def __init_subclass__(cls) -> None:
        # Not super(): slots=True builds the class anew, and its zero-argument super() would still mean the first one.
        # The second call replaces the first, because both have the same name.
        _GROUPS[f"{cls.__module__}.{cls.__qualname__}"] = cls

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """The group that these options describe. Keys of other groups are ignored.

        Raises:
            InvalidInputError: (``option-value``) when a value is not of the declared form.
        """
        values: dict[str, Any] = {}
        given = set()
        for spec in specs_of(cls):
            key = next((key for key in (spec.key, *spec.fallback) if key in options), None)
            if key is not None:
                values[spec.attribute] = spec.parse(options[key], key=key)
                given.add(spec.key)
        return cls(given=frozenset(given), **values)

    def explicit(self, key: str) -> bool:
        """Whether the user set this option, so that it wins over a better default of ours.

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


def all_options(groups: Iterable[type[OptionGroup]] | None = None) -> tuple[OptionSpec, ...]:
    """Every option of the groups that were imported (or of the given ones), sorted by key, each key once.

    Raises:
        InternalError: when two groups declare one key differently.
    """
    chosen = [group for group in _GROUPS.values() if group.listed] if groups is None else groups
    found: dict[str, OptionSpec] = {}
    for group in chosen:
        for spec in specs_of(group):
            first = found.setdefault(spec.key, spec)
            if dataclasses.replace(first, attribute=spec.attribute, group=spec.group, doc=spec.doc) != spec:
                raise InternalError("option is declared in two ways", key=spec.key, groups=(first.group, spec.group))
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
    """The known key that is spelled most like `key`, or None when none comes near.

    Args:
        key: What the user wrote.
        candidates: The known keys; the declared ones when not given.
    """
    known = _declared_keys() if candidates is None else candidates
    by_fold = {_fold(name): name for name in known}
    found = difflib.get_close_matches(_fold(key), by_fold, n=1, cutoff=NEAREST_CUTOFF)
    return by_fold[found[0]] if found else None


@dataclass(frozen=True, slots=True)
class UnknownKey:
    """An option key that nobody declares, with the known key it resembles."""

    key: str
    nearest: str | None


def unknown_keys(
    options: Iterable[str],
    *,
    known: Iterable[str] = (),
    families: Sequence[re.Pattern[str]] = (),
) -> tuple[UnknownKey, ...]:
    """The keys that are neither declared, nor among `known`, nor of a family; in the order given.

    Unknown keys are kept and never refused: the answer is for a warning.
    """
    names = _declared_keys().union(known)
    return tuple(
        UnknownKey(key, nearest(key, sorted(names)))
        for key in options
        if key not in names and not any(family.fullmatch(key) for family in families)
    )


def _declared_keys() -> set[str]:
    return {key for spec in all_options() for key in (spec.key, *spec.fallback)}


def option_text(key: object, value: object) -> str:
    """The text of an option given as a Python value.

    Raises:
        InvalidInputError: it is neither text, number nor truth value.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return str(value)
    raise InvalidInputError(
        "option must be a text, a number or a truth value", code="option-value", option=key, got=type(value).__name__
    )
