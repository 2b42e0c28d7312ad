"""The one exception tree. Classes are grouped by what a handler would do.

    TidelakeError
    ├── InvalidInputError    (ValueError)   fix the call
    ├── NotFoundError        (LookupError)  fix the name
    ├── CommitConflictError                 not published: plan again
    ├── CommitUnknownError                  maybe published: look before retrying
    ├── StorageError         (OSError)      the environment failed: retry later
    ├── FormatError                         bytes contradict the specification
    ├── UnsupportedError                    a valid table, but this is not done yet
    └── InternalError                       our bug: please report

A new class needs a caller who would act differently; anything finer is a new `code`. Codes are stable and append-only.
Every error survives pickling, because a Spark executor will pickle it.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = [
    "CommitConflictError",
    "CommitUnknownError",
    "FormatError",
    "InternalError",
    "InvalidInputError",
    "NotFoundError",
    "StorageError",
    "TidelakeError",
    "UnsupportedError",
]

_REPLANNABLE: Final = frozenset(
    {
        "file-conflict",  # a file that the plan touches was changed too
        "file-deleted",  # a file that the plan replaces, or in which it looked something up, is gone
        "index-conflict",  # as those two, for an index file or the deletion vector of a data file
        "key-range",  # the sorted run that the plan adds to holds other files by now
        "keys-moved",  # keys that the plan found in one partition may be in another
        "partition-written",  # a partition that the plan drops, because it was idle, was written to
        "partitions-expired",  # files that the plan touches are gone with their partitions, which have expired
        "rows-changed",  # rows that the plan read were changed
        "snapshot-expired",  # the snapshot that the plan was made on is gone
    }
)
"""Codes of the errors that a fresh plan on the newest state solves. The one table; who plans never lists codes."""


class TidelakeError(Exception):
    """Root of all errors raised on purpose.

    `message` is one lower-case sentence without a full stop; `facts` are printed last as ``name=`value` ``; `hint` says
    what to do next. Neither may hold a secret. Whatever cannot be printed is escaped, because a fact may come from a
    hostile file, and a terminal or a log obeys control characters.

    `replannable` says that nothing was done, and that the same call may succeed once it is planned again on the newest
    state. It follows from the code; who raises the error, or knows what it was planned on, may know better and set it.
    """

    default_code = "error"

    def __init__(self, message: str, /, *, code: str | None = None, hint: str | None = None, **facts: object) -> None:
        super().__init__(message)
        self.message = _printable(message)
        self.code = code or self.default_code
        self.replannable = self.code in _REPLANNABLE
        self.hint = None if hint is None else _printable(hint)
        # Values are rendered now: an error must not keep tables, sockets or secrets alive, and must pickle.
        self.facts: dict[str, str] = {
            name: _printable(str(value)) for name, value in facts.items() if value is not None
        }

    def __str__(self) -> str:
        text = self.message
        if self.facts:
            text += ". " + ", ".join(f"{name}=`{value}`" for name, value in self.facts.items())
        if self.hint:
            text += f"\nhelp: {self.hint}"
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.code, self.hint, self.facts, self.replannable)


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)


def _rebuild(
    cls: type[TidelakeError], message: str, code: str, hint: str | None, facts: dict[str, str], replannable: bool
) -> TidelakeError:
    error = cls(message, code=code, hint=hint)
    error.facts = dict(facts)
    error.replannable = replannable
    return error


class InvalidInputError(TidelakeError, ValueError):
    """The call is wrong: fix the argument it names."""

    default_code = "invalid-input"


class NotFoundError(TidelakeError, LookupError):
    """The named database, table, snapshot, tag or file does not exist."""

    default_code = "not-found"


class CommitConflictError(TidelakeError):
    """Another commit got in the way and nothing was published: plan again on the new state."""

    default_code = "commit-conflict"


class CommitUnknownError(TidelakeError):
    """The answer to the publish was lost: the commit may or may not be there. Look before retrying."""

    default_code = "commit-unknown"


class StorageError(TidelakeError, OSError):
    """The storage or the environment failed: retry later."""

    default_code = "storage"


class FormatError(TidelakeError):
    """Bytes of a table contradict the format."""

    default_code = "format"


class UnsupportedError(TidelakeError):
    """The table is valid, but this feature of it is not supported yet."""

    default_code = "unsupported"


class InternalError(TidelakeError):
    """A bug in tidelake: please report it."""

    default_code = "internal"
