"""The arguments of procedures: their kinds, and how values by position or name are parsed.

All procedures parse their arguments here, so that `lake.call`, the command line and SQL accept the same forms and raise
the same errors. Names are compared without regard to case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final

from tidelake.errors import InvalidInputError
from tidelake.ops.maintain.times import before_ms, moment_ms, span_ms
from tidelake.options import nearest, option_text, parse_bool, parse_int

Values = Mapping[str, Any]
"""The value of every argument of a procedure, by its name; None if it was not given."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of argument. `read` raises TypeError or ValueError for a value that is not of this kind."""

    name: str
    expected: str
    read: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a procedure. A default is a value as `kind.read` returns it."""

    name: str
    kind: Kind
    doc: str
    required: bool = False
    default: Any = None

    def __str__(self) -> str:
        return self.name if self.required else f"[{self.name}]"


def bind(
    procedure: str, declared: Sequence[Argument], positional: Sequence[object], named: Mapping[str, object]
) -> Values:
    """Parse the value of each argument.

    Raises:
        InvalidInputError: an argument is not known, missing, given twice, or not of its kind.
    """
    if len(positional) > len(declared):
        raise InvalidInputError(
            "procedure takes fewer arguments",
            code="argument-unknown",
            procedure=procedure,
            given=len(positional),
            hint=usage(procedure, declared),
        )
    given: dict[str, object] = {each.name: value for each, value in zip(declared, positional, strict=False)}
    names = {each.name.lower(): each.name for each in declared}
    for typed, value in named.items():
        name = names.get(typed.lower())
        if name is None:
            raise _unknown(procedure, declared, typed)
        if name in given:
            raise InvalidInputError(
                "argument is given twice",
                code="argument-twice",
                procedure=procedure,
                argument=name,
                hint="give it once, by its position or by its name",
            )
        given[name] = value
    for each in declared:
        if each.required and given.get(each.name) is None:
            raise InvalidInputError(
                "argument is missing",
                code="argument-missing",
                procedure=procedure,
                argument=each.name,
                hint=usage(procedure, declared),
            )
    return {each.name: _read_value(procedure, each, given.get(each.name)) for each in declared}


def usage(procedure: str, declared: Sequence[Argument]) -> str:
    """A text with the arguments of a procedure, optional ones in brackets."""
    return f"{procedure} takes {', '.join(map(str, declared))}"


def _unknown(procedure: str, declared: Sequence[Argument], name: str) -> InvalidInputError:
    meant = nearest(name, [each.name for each in declared])
    hint = usage(procedure, declared)
    return InvalidInputError(
        "argument is not known",
        code="argument-unknown",
        procedure=procedure,
        argument=ascii(name[:80])[1:-1],
        hint=f"did you mean {meant}? {hint}" if meant else hint,
    )


def _read_value(procedure: str, argument: Argument, value: object) -> Any:
    if value is None:
        return argument.default
    try:
        return argument.kind.read(value)
    except InvalidInputError as error:  # this error is more precise than the kind's
        error.facts.update(procedure=procedure, argument=argument.name)
        raise
    except (TypeError, ValueError) as cause:
        raise InvalidInputError(
            f"argument is not {argument.kind.expected}",
            code="argument-type",
            procedure=procedure,
            argument=argument.name,
            value=repr(value)[:80],
            hint=f"{argument.name}: {argument.doc}",
        ) from cause


# ------------------------------------------------------------------------------------------------ kinds


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("not a text")
    return value


def _integer(value: object) -> int:
    if isinstance(value, str):
        return parse_int(value.strip(), bits=64)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError("not a number")
    return value


def _boolean(value: object) -> bool:
    if isinstance(value, str):
        return parse_bool(value.strip())
    if not isinstance(value, bool):
        raise TypeError("not a truth value")
    return value


def _names(value: object) -> tuple[str, ...]:
    listed = value.split(",") if isinstance(value, str) else value
    if not isinstance(listed, Sequence) or not all(isinstance(each, str) for each in listed):
        raise ValueError("not a list of names")
    names = tuple(each.strip() for each in listed)
    if not names or not all(names):
        raise ValueError("a name is empty")
    return names


def _past(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, str | date | timedelta | int):
        raise TypeError("not a time")
    before_ms(value, 0)  # only a check: an age becomes a time when the procedure runs
    return value


def _moment(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, str | date | int):
        raise TypeError("not a moment")
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)  # milliseconds, as in Paimon
    return moment_ms(value)


def _span(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, str | timedelta | int):
        raise TypeError("not a duration")
    return span_ms(value)


def _pairs(text: str) -> dict[str, str]:
    """Parse `k1=v1,k2=v2` as a map; blanks around names and values are ignored."""
    found: dict[str, str] = {}
    for pair in text.split(","):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not name or name in found:
            raise ValueError("not pairs of names and values")
        found[name] = value
    return found


def _partitions(value: object) -> tuple[dict[str, object], ...]:
    if isinstance(value, str):
        texts = [each for each in value.split(";") if each.strip()]
        listed: list[object] = [_pairs(each) for each in texts]
    else:
        listed = [value] if isinstance(value, Mapping) else list(value) if isinstance(value, Sequence) else []
    if not listed or not all(isinstance(each, Mapping) and each for each in listed):
        raise ValueError("not partitions")
    return tuple(dict(each) for each in listed if isinstance(each, Mapping))


def _options(value: object) -> dict[str, str]:
    if isinstance(value, str):
        return _pairs(value.strip().rstrip(","))
    if not isinstance(value, Mapping):
        raise TypeError("not options")
    return {str(key): option_text(str(key), each) for key, each in value.items()}


def _buckets(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return [value]
    if isinstance(value, str) or (isinstance(value, Sequence) and all(isinstance(each, int) for each in value)):
        return value
    raise ValueError("not bucket numbers")


def choice(*words: str) -> Kind:
    """The kind of an argument that is one of these words, in upper or lower case."""

    def read_word(value: object) -> str:
        word = value.strip().lower() if isinstance(value, str) else None
        if word not in words:
            raise ValueError("another word")
        return word

    return Kind(" or ".join(words), f"one of {', '.join(words)}", read_word)


TEXT: Final = Kind("text", "a text", _text)
INTEGER: Final = Kind("integer", "a whole number", _integer)
BOOLEAN: Final = Kind("boolean", "true or false", _boolean)
NAMES: Final = Kind("names", "a name, or several separated by commas", _names)
PAST: Final = Kind("past time", "a local time such as 2026-11-15 12:00:00, or an age such as 7 d", _past)
MOMENT: Final = Kind("moment", "a local time such as 2026-11-15 12:00:00, or milliseconds since 1970", _moment)
SPAN: Final = Kind("duration", "a duration such as 1 d", _span)
PARTITIONS: Final = Kind("partitions", "partitions such as dt=2026-11-15,region=eu;dt=2026-11-16", _partitions)
OPTIONS: Final = Kind("options", "options such as sink.parallelism=4,write-only=true", _options)
BUCKETS: Final = Kind("buckets", "bucket numbers such as 0,2-5", _buckets)
