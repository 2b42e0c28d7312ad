"""Decide whether a name may become part of a path. No path is built from a name that was not checked here.

A name may be any Unicode text, also with blanks, if it is a single path component on every storage: no separator, no
control character, no leading dot, not too long. A bad name from a user is an `InvalidInputError`, one in metadata a
`FormatError`.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from tidelake.errors import FormatError, InvalidInputError

NAME_BYTES_MAX: Final = 255
"""The longest file or folder name, in UTF-8 bytes, that common storages allow."""

MAIN_BRANCH: Final = "main"

# A fast path: nearly all names match, and a commit checks hundreds of them.
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=-]*")

# The bytes that the layout adds to a name of this kind, so that the file or folder name is not too long either.
_AFFIX_BYTES: Final = {
    "database": len(".db"),
    "table": 0,
    "branch": len("branch-"),
    "tag": len("tag-"),
    "consumer": len("consumer-"),
}


def check_name(kind: str, name: str) -> str:
    """Return the name of a database, table, branch, tag or consumer, or refuse it.

    Args:
        kind: `database`, `table`, `branch`, `tag` or `consumer`; other kinds get the common rules.
        name: The name as given.

    Raises:
        InvalidInputError: If the name cannot be a path component, or has another meaning.
    """
    problem = _problem(name, NAME_BYTES_MAX - _AFFIX_BYTES.get(kind, 0))
    if problem is None and kind == "branch":
        problem = _branch_problem(name)
    if problem is not None:
        raise InvalidInputError(f"{kind} name {problem}", name=_printable(name), hint=f"choose another {kind} name")
    return name


def check_file_name(name: str, *, path: str) -> str:
    """Return a file name from the metadata file `path`, or refuse it.

    Raises:
        FormatError: If the name could lead out of its folder.
    """
    problem = _problem(name, NAME_BYTES_MAX)
    if problem is not None:
        raise FormatError(f"file name in metadata {problem}", path=path, name=_printable(name))
    return name


def check_relative_directory(directory: str) -> str:
    """Return a folder below the table's root (option `data-file.path-directory`) without slashes at its end.

    Raises:
        InvalidInputError: If it is absolute or empty, or one of its components is not a valid name.
    """
    parts = directory.rstrip("/").split("/")
    for part in parts:
        problem = _problem(part, NAME_BYTES_MAX)
        if problem is not None:
            raise InvalidInputError(
                f"a component of the directory {problem}",
                directory=_printable(directory),
                hint="give a relative path of plain names, such as `data` or `files/data`",
            )
    return "/".join(parts)


def _problem(name: object, bytes_max: int) -> str | None:
    """Why the name cannot be a path component, as the end of a sentence; None if it can."""
    if not isinstance(name, str):
        return "is not text"
    if len(name) <= bytes_max and _PLAIN.fullmatch(name):
        return None
    if not name.strip():
        return "is blank"
    if name.startswith("."):
        return "starts with a dot"
    if "/" in name or "\\" in name:
        return "contains a path separator"
    if any(unicodedata.category(character) == "Cc" for character in name):
        return "contains a control character"
    try:
        size = len(name.encode("utf-8"))
    except UnicodeEncodeError:
        return "is not valid Unicode text"
    return f"is longer than {bytes_max} bytes" if size > bytes_max else None


def _branch_problem(name: str) -> str | None:
    if name == MAIN_BRANCH:
        return "is reserved for the main branch"
    if name.isdecimal():
        return "is purely numeric"
    return None


def _printable(name: object) -> str:
    """The name for an error message: printable, and shortened."""
    text = str(name)
    text = text if len(text) <= 80 else text[:77] + "..."
    return text if text.isprintable() else ascii(text)[1:-1]
