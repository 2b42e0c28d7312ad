"""The time that the values of a partition stand for, as partition expiry understands them.

A pattern such as `$dt $hour:00:00` makes one text of the values, and a formatter in the syntax of Java's
`DateTimeFormatter` parses it; without a formatter `2026-11-15` and `2026-11-15 12:00:00` are understood, leniently: the
35th of a month is a day of the next one. A time is local and without a zone: nanoseconds since the beginning of 1970 on
the wall clock. What cannot be parsed has no time, so that it never counts as old.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelake.errors import InvalidInputError, UnsupportedError

__all__ = ["NANOS_OF_DAY", "TimeExtractor"]

NANOS_OF_DAY: Final = 86_400 * 1_000_000_000
_YEAR_MAX: Final = 999_999_999
_DEFAULT: Final = re.compile(
    r"(?P<u>-?[0-9]{1,10})-(?P<M>-?[0-9]{1,2})-(?P<d>-?[0-9]{1,2})"
    r"(?: (?P<H>-?[0-9]{1,2}):(?P<m>-?[0-9]{1,2}):(?P<s>-?[0-9]{1,2})(?:\.(?P<S>[0-9]{1,9}))?)?"
)
_TOKEN: Final = re.compile(r"'(?:[^']|'')*'|([A-Za-z])\1*|.", re.DOTALL)
_NUMBERS: Final = {letter: {1: "[0-9]{1,19}", 2: "[0-9]{2}"} for letter in "MLdHms"}
"""The expression of a letter by the number of times it is repeated; three `M` are the name of a month."""


@dataclass(frozen=True, slots=True)
class TimeExtractor:
    """Reads the time of partitions. Made by `TimeExtractor.make`."""

    pattern: str | None
    expression: re.Pattern[str]
    lenient: bool
    names: tuple[str, ...]
    """The partition columns, in their order."""
    _order: tuple[int, ...] = field(repr=False)
    """The columns, the longest name first, so that `$dt` does not take the beginning of `$dt_hour`."""

    @classmethod
    def make(cls, names: Sequence[str], pattern: str | None, formatter: str | None) -> TimeExtractor:
        """Prepare to read the times of partitions with these columns.

        Raises:
            InvalidInputError: the formatter is not one of Java's.
            UnsupportedError: the formatter has a letter that is not supported.
        """
        order = sorted(range(len(names)), key=lambda index: -len(names[index]))
        expression = _DEFAULT if formatter is None else _compile(formatter)
        return cls(pattern, expression, formatter is None, tuple(names), tuple(order))

    def extract(self, texts: Sequence[str | None]) -> int | None:
        """The time of a partition from the texts of its values; None if a needed one is null or cannot be parsed."""
        text = texts[0] if self.pattern is None else self._substitute(self.pattern, texts)
        matched = None if text is None else self.expression.fullmatch(text)
        if matched is None:
            return None
        fields = {name[0]: digits for name, digits in matched.groupdict().items() if digits is not None}
        return _lenient_time(fields) if self.lenient else _smart_time(fields)

    def _substitute(self, text: str, texts: Sequence[str | None]) -> str | None:
        for index in self._order:
            value = texts[index]
            if value is None:
                return None
            text = text.replace(f"${self.names[index]}", value)
        return text


def _compile(formatter: str) -> re.Pattern[str]:
    parts: list[str] = []
    seen: dict[str, int] = {}
    depth = 0
    for token in _TOKEN.finditer(formatter):
        text = token.group()
        if token.group(1):
            parts.append(_field(text, seen, formatter))
        elif text == "''":
            parts.append("'")
        elif text.startswith("'"):
            if text == "'":
                raise _wrong(formatter, "a quote is not closed")
            parts.append(re.escape(text[1:-1].replace("''", "'")))
        elif text in "[]":
            depth += 1 if text == "[" else -1
            if depth < 0:
                raise _wrong(formatter, "a bracket is not open")
            parts.append("(?:" if text == "[" else ")?")
        elif text in "{}#":
            raise _wrong(formatter, f"{text} is reserved")
        else:
            parts.append(re.escape(text))
    return re.compile("".join(parts) + ")?" * depth)


def _field(run: str, seen: dict[str, int], formatter: str) -> str:
    letter, count = run[0], len(run)
    if letter in "yu":
        if count == 2:
            digits = "[0-9]{2}"
        elif count < 4:
            digits = f"[0-9]{{{count},19}}"
        else:
            digits = rf"[0-9]{{{count}}}|\+[0-9]{{{count + 1},19}}"
        letter = "r" if count == 2 else letter
    elif letter == "S" and count <= 9:
        digits = f"[0-9]{{{count}}}"
    else:
        known = _NUMBERS.get(letter, {}).get(count)
        if known is None:
            raise UnsupportedError(
                "formatter of partition times has letters that are not supported",
                code="option-unsupported",
                option="partition.timestamp-formatter",
                value=formatter[:80],
                letters=run,
                hint="use yyyy, MM, dd, HH, mm, ss and S, and text in single quotes",
            )
        digits, letter = known, "M" if letter == "L" else letter
    # A name of a group stands once in an expression: the first letter of the name is the field.
    number = seen[letter] = seen.get(letter, 0) + 1
    return f"(?P<{letter}{number}>{digits})"


def _wrong(formatter: str, problem: str) -> InvalidInputError:
    return InvalidInputError(
        "formatter of partition times cannot be understood",
        code="option-value",
        option="partition.timestamp-formatter",
        value=formatter[:80],
        problem=problem,
        hint="write it as yyyy-MM-dd HH:mm:ss, with text in single quotes",
    )


def _lenient_time(fields: dict[str, str]) -> int | None:
    year = int(fields["u"])
    if abs(year) > _YEAR_MAX:
        return None
    years, month = divmod(int(fields["M"]) - 1, 12)
    days = _days(year + years, month + 1, 1) + int(fields["d"]) - 1
    return days * NANOS_OF_DAY + _nanos(fields)


def _smart_time(fields: dict[str, str]) -> int | None:
    """The time of fields in their ranges; the last day of a month stands for later ones up to the 31st."""
    if "M" not in fields or "d" not in fields:
        return None
    if "r" in fields:
        year = 2000 + int(fields["r"])
    elif "y" in fields or "u" in fields:
        year = int(fields.get("y") or fields["u"])
    else:
        return None
    month, day = int(fields["M"]), int(fields["d"])
    if not 1 <= month <= 12 or not 1 <= day <= 31 or year > _YEAR_MAX or (year < 1 and "y" in fields):
        return None
    following = _days(year + month // 12, month % 12 + 1, 1)
    days = min(_days(year, month, 1) + day - 1, following - 1)
    hour, minute, second = (int(fields.get(letter, "0")) for letter in "Hms")
    ends_day = hour == 24 and not minute and not second and not int(fields.get("S", "0"))
    if (hour > 23 and not ends_day) or minute > 59 or second > 59:
        return None
    complete = "H" in fields and ("m" in fields or ("s" not in fields and "S" not in fields))
    complete = complete and ("s" in fields or "S" not in fields)
    return days * NANOS_OF_DAY + (_nanos(fields) if complete else 0)


def _nanos(fields: dict[str, str]) -> int:
    hour, minute, second = (int(fields.get(letter, "0")) for letter in "Hms")
    return ((hour * 60 + minute) * 60 + second) * 1_000_000_000 + int(fields.get("S", "").ljust(9, "0"))


def _days(year: int, month: int, day: int) -> int:
    """Days since the epoch of a day of the proleptic Gregorian calendar."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468
