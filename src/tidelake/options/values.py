"""Parses and prints the values of options, with the units of the format."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NewType

from tidelake.errors import InvalidInputError

DurationMs = NewType("DurationMs", int)
"""Annotation of a duration option: whole milliseconds."""

Bytes = NewType("Bytes", int)
"""Annotation of a memory size option: bytes."""

Int64 = NewType("Int64", int)
"""Annotation of a 64-bit integer option. A plain `int` has 32 bits, as in the format's own readers."""

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


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
    wanted = fold_key(text)
    for member in members:
        if wanted in (fold_key(str(member.value)), fold_key(member.name)):
            return member
    raise ValueError("one of " + ", ".join(str(member.value) for member in members))


def fold_key(text: str) -> str:
    """The text without case, and with `-` for `_`."""
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
