"""The name gate: the one place that decides whether a text may become part of a path.

A name may be any Unicode text, blanks included, as long as it stays one path component on every storage: no separator,
no control character, no leading dot, not too long. Names that a person gives are refused with `InvalidInputError`,
names found inside metadata with `FormatError`; no path is ever built from a name that did not pass here.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from tidelake.errors import FormatError, InvalidInputError

NAME_BYTES_MAX: Final = 255
"""Longest file or folder name, in UTF-8 bytes, that common storages take."""

MAIN_BRANCH: Final = "main"

# Nearly every name is of this kind, and a commit checks hundreds of them.
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=-]*")

# What the layout adds to a name when it becomes a file or folder, so that the result still fits.
_AFFIX_BYTES: Final = {
    "database": len(".db"),
    "table": 0,
    "branch": len("branch-"),
    "tag": len("tag-"),
    "consumer": len("consumer-"),
}


def check_name(kind: str, name: str) -> str:
    """The name of a database, table, branch, tag or consumer, if it is usable as one.

    Args:
        kind: `database`, `table`, `branch`, `tag` or `consumer`; other kinds get the common rules.
        name: The name as given.

    Raises:
        InvalidInputError: If the name cannot be one path component, or is reserved for another meaning.
    """
    problem = _problem(name, NAME_BYTES_MAX - _AFFIX_BYTES.get(kind, 0))
    if problem is None and kind == "branch":
        problem = _branch_problem(name)
    if problem is not None:
        raise InvalidInputError(f"{kind} name {problem}", name=_shown(name), hint=f"choose another {kind} name")
    return name


def check_file_name(name: str, *, path: str) -> str:
    """A file name found inside the metadata file `path`, if it names a file and nothing else.

    Raises:
        FormatError: If the name could lead anywhere but into its own folder.
    """
    problem = _problem(name, NAME_BYTES_MAX)
    if problem is not None:
        raise FormatError(f"file name in metadata {problem}", path=path, name=_shown(name))
    return name


def check_relative_directory(directory: str) -> str:
    """A folder below the table's root, as in option `data-file.path-directory`, without slashes at its end.

    Raises:
        InvalidInputError: If it is absolute, empty, or has a component that is no plain name.
    """
    parts = directory.rstrip("/").split("/")
    for part in parts:
        problem = _problem(part, NAME_BYTES_MAX)
        if problem is not None:
            raise InvalidInputError(
                f"a component of the directory {problem}",
                directory=_shown(directory),
                hint="give a relative path of plain names, such as `data` or `files/data`",
            )
    return "/".join(parts)


def _problem(name: object, bytes_max: int) -> str | None:
    """What is wrong with the name as a path component, as the end of a sentence."""
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


def _shown(name: object) -> str:
    """The name as an error may print it: printable, and not at any length."""
    text = str(name)
    text = text if len(text) <= 80 else text[:77] + "..."
    return text if text.isprintable() else ascii(text)[1:-1]
