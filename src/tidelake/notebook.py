"""Formats values for people: one line of plain text, or HTML in a notebook.

Names, comments and messages in tables come from other people. Invariant: whatever they contain, `plain` returns
printable text on one line, and the HTML functions never interpret any of it as markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

TEXT_MAX = 200
"""The number of characters of a text that are shown; the rest is cut off."""


def plain(text: object, *, limit: int | None = None) -> str:
    """Return printable text on one line; control characters, and those that reorder or hide text, are escaped."""
    found = str(text)
    if limit is not None and len(found) > limit:
        found = found[: limit - 1] + "…"
    if found.isprintable():
        return found
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in found)


def pluralize(number: int, what: str) -> str:
    """Return a count with its noun: `1 file`, `2,000 files`, `0 branches`."""
    return f"{number:,} {what}{'' if number == 1 else 'es' if what.endswith('ch') else 's'}"


def html_text(text: object) -> str:
    """Escape text for HTML."""
    return escape(plain(text, limit=TEXT_MAX))


def html_pre(text: str) -> str:
    """Return lines of text as preformatted HTML."""
    return "<pre>" + "\n".join(escape(plain(line)) for line in text.splitlines()) + "</pre>"


def html_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table with headings; an empty text without rows."""
    body = "".join("<tr>" + "".join(f"<td>{html_text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    head = "<tr>" + "".join(f"<th>{html_text(heading)}</th>" for heading in headings) + "</tr>" if headings else ""
    return f"<table>{head}{body}</table>" if body else ""


def html_card(title: str, facts: Iterable[tuple[str, object]], *more: str) -> str:
    """Return HTML with a title, one line per fact that has a value, and further HTML."""
    lines = "".join(
        f"<div><i>{html_text(name)}</i> {html_text(value)}</div>" for name, value in facts if value not in (None, "")
    )
    return f"<div><b>{html_text(title)}</b>{lines}{''.join(more)}</div>"
