"""Commit progress: a small document of ours that records which numbered commits of a user are published.

Snapshots expire, and other writers do not copy our snapshot properties to theirs. So the fact that "identifier 7 of
user U is published" needs a document of its own. `committed` is certain. `pending` was about to be published after
snapshot `after`: the next committer has to look for it in later snapshots, but not in earlier ones. `uncertain` is left
by a rollback that did not end, or could not find out what the target has: greater numbers are certainly not published.
`origins` say what the newest commits were made from, so that a repetition with other rows is noticed.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from tidelake.errors import FormatError, InvalidInputError
from tidelake.spec.documents.json_doc import JsonObject, encode_document, get_int, get_str, parse_object
from tidelake.spec.names import check_name

DIRECTORY = "progress"
_PLAIN, _DIGEST = FILE_PREFIXES = ("user-", "hash-")
_NUMBER = re.compile("-?[0-9]{1,19}")
PROPERTY_PREFIX = "progress."
SINCE_PROPERTY = "progress-since"
"""Since this snapshot, all snapshots were made by writers that copy the properties."""
ORIGINS_KEPT = 128
"""The number of commits whose origin is kept: more than the batches that a checkpoint of Spark keeps by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitProgress:
    """The commit progress of a user: the last published identifier, and one that may be published."""

    user: str
    committed: int | None = None
    pending: int | None = None
    after: int = 0
    uncertain: int | None = None
    """Numbers above `committed` and up to this one may be published, at whatever snapshot."""
    origins: tuple[tuple[int, str], ...] = ()
    """The newest identifiers, ascending, each with a text that stands for what its rows were read from."""

    def find_unsettled_after(self, identifier: int) -> int | None:
        """The snapshot after which an identifier above `committed` may be published; None if it certainly is not."""
        if self.uncertain is not None and identifier <= self.uncertain:
            return 0
        return self.after if self.pending == identifier else None

    def origin_of(self, identifier: int) -> str | None:
        """The origin of a commit; None if it is not known."""
        return dict(self.origins).get(identifier)

    def with_origin(self, identifier: int, origin: str | None) -> tuple[tuple[int, str], ...]:
        """The origins after a commit with this one."""
        if origin is None:
            return self.origins
        return tuple(sorted({**dict(self.origins), identifier: origin}.items()))[-ORIGINS_KEPT:]


def progress_file_name(user: str) -> str:
    """The file name for a user. A user name that is not a valid file name is replaced by its digest."""
    try:
        plain = len(user.encode()) <= 100 and check_name("user", user)
    except (InvalidInputError, UnicodeEncodeError):
        plain = ""
    if plain:
        return f"{_PLAIN}{plain}"
    return f"{_DIGEST}{hashlib.blake2b(user.encode('utf-8', 'surrogatepass'), digest_size=20).hexdigest()}"


def progress_from_json(data: bytes, *, path: str) -> CommitProgress:
    """Read the document.

    Raises:
        FormatError: the bytes are not a progress document.
    """
    doc = parse_object(data, path=path)
    return CommitProgress(
        user=get_str(doc, "user", path),
        committed=get_int(doc, "committed", path, default=None),
        pending=get_int(doc, "pending", path, default=None),
        after=get_int(doc, "after", path, default=0),
        uncertain=get_int(doc, "uncertain", path, default=None),
        origins=_origins_from(doc, path),
    )


def _origins_from(doc: JsonObject, path: str) -> tuple[tuple[int, str], ...]:
    given = doc.get("origins") or {}
    if not isinstance(given, dict) or not all(
        _NUMBER.fullmatch(number) and isinstance(origin, str) for number, origin in given.items()
    ):
        raise FormatError("origins of commits are not texts by number", path=path)
    return tuple(sorted((int(number), origin) for number, origin in given.items()))


def progress_to_json(progress: CommitProgress) -> bytes:
    """Write the document."""
    doc: dict[str, object] = {"user": progress.user}
    if progress.committed is not None:
        doc["committed"] = progress.committed
    if progress.pending is not None:
        doc["pending"] = progress.pending
    doc["after"] = progress.after
    if progress.uncertain is not None:
        doc["uncertain"] = progress.uncertain
    if progress.origins:
        doc["origins"] = {str(number): origin for number, origin in progress.origins}
    return encode_document(doc, progress, progress_from_json)
