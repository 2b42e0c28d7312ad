"""How far a numbered commit user has come: a small document of ours beside the table's own.

Snapshots expire, and other writers do not carry our snapshot properties on, so the memory of "identifier 7 of user U is
published" must outlive both. `committed` is certain. `pending` was about to be published on top of snapshot `after`:
whoever finds it must look for it in the snapshots that follow, and need not look at those before.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from tidelake.errors import InvalidInputError
from tidelake.spec.json_doc import encode_document, get_int, get_str, parse_object
from tidelake.spec.names import check_name

DIRECTORY = "progress"
PROPERTY_PREFIX = "progress."
SINCE_PROPERTY = "progress-since"
"""From this snapshot on every one was made by a writer that carries properties on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The newest identifier a user has certainly committed, and one that may have been."""

    user: str
    committed: int | None = None
    pending: int | None = None
    after: int = 0


def progress_file_name(user: str) -> str:
    """The file of a user; a name that is no good file name is replaced by its digest."""
    try:
        plain = len(user.encode()) <= 100 and check_name("user", user)
    except (InvalidInputError, UnicodeEncodeError):
        plain = ""
    if plain:
        return f"user-{plain}"
    return f"hash-{hashlib.blake2b(user.encode('utf-8', 'surrogatepass'), digest_size=20).hexdigest()}"


def progress_from_json(data: bytes, *, path: str) -> Progress:
    """Read the document.

    Raises:
        FormatError: the bytes are not such a document.
    """
    doc = parse_object(data, path=path)
    return Progress(
        user=get_str(doc, "user", path),
        committed=get_int(doc, "committed", path, default=None),
        pending=get_int(doc, "pending", path, default=None),
        after=get_int(doc, "after", path, default=0),
    )


def progress_to_json(progress: Progress) -> bytes:
    """Write the document."""
    doc: dict[str, object] = {"user": progress.user}
    if progress.committed is not None:
        doc["committed"] = progress.committed
    if progress.pending is not None:
        doc["pending"] = progress.pending
    doc["after"] = progress.after
    return encode_document(doc, progress, progress_from_json)
