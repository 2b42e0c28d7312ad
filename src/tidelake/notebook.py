"""How values look to a person: one plain line of text, or a little HTML in a notebook.

Names, comments and messages come from tables that others wrote. Invariant: whatever they hold, `plain` gives printable
text on one line, and the HTML functions give text in which nothing of theirs is markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

TEXT_MAX = 200
"""Characters of one foreign text that are shown; the rest is cut."""


def plain(text: object, *, limit: int | None = None) -> str:
    """Printable text on one line; characters that move the cursor, hide or turn others are spelled out."""
    found = str(text)
    if limit is not None and len(found) > limit:
        found = found[: limit - 1] + "…"
    if found.isprintable():
        return found
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in found)


def counted(number: int, what: str) -> str:
    """`1 file`, `2,000 files`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def html_text(text: object) -> str:
    """Text inside HTML."""
    return escape(plain(text, limit=TEXT_MAX))


def html_pre(text: str) -> str:
    """Lines of text as they are."""
    return "<pre>" + "\n".join(escape(plain(line)) for line in text.splitlines()) + "</pre>"


def html_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a row of headings; empty text when there is no row."""
    body = "".join("<tr>" + "".join(f"<td>{html_text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    head = "<tr>" + "".join(f"<th>{html_text(heading)}</th>" for heading in headings) + "</tr>" if headings else ""
    return f"<table>{head}{body}</table>" if body else ""


def html_card(title: str, facts: Iterable[tuple[str, object]], *more: str) -> str:
    """A title, facts one a line (those without a value left out), and what is HTML already."""
    lines = "".join(
        f"<div><i>{html_text(name)}</i> {html_text(value)}</div>" for name, value in facts if value not in (None, "")
    )
    return f"<div><b>{html_text(title)}</b>{lines}{''.join(more)}</div>"
