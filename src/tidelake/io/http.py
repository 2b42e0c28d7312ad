"""Posting JSON documents to a service of the user's, such as one that waits for partitions.

Each call is one request with a time limit. A redirect is an error: following it would drop the document.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final

from tidelake.errors import InvalidInputError, StorageError
from tidelake.io.secrets import scrub

__all__ = ["post_json"]

_TIMEOUT_S: Final = 30.0
_ANSWER_MAX: Final = 1 << 16


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def post_json(url: str, document: Mapping[str, object], *, timeout_s: float = _TIMEOUT_S) -> Mapping[str, Any]:
    """Post a document and return the object in the answer.

    Raises:
        InvalidInputError: the address is not one of HTTP.
        StorageError: the answer did not come in time, or is not a success with a JSON object.
    """
    if not url.startswith(("http://", "https://")):
        raise InvalidInputError("address is not one of HTTP", url=scrub(url)[:200])
    body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    try:
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="POST")
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=timeout_s) as answer:
            data = answer.read(_ANSWER_MAX)
    except urllib.error.HTTPError as cause:
        cause.close()
        raise _failure(url, f"the answer has status {cause.code}") from None
    except (OSError, http.client.HTTPException, ValueError) as cause:
        raise _failure(url, scrub(str(cause) or type(cause).__name__)) from None
    try:
        found = json.loads(data)
    except ValueError as cause:
        raise _failure(url, "the answer is not JSON") from cause
    if not isinstance(found, dict):
        raise _failure(url, "the answer is not a JSON object")
    return found


def _failure(url: str, problem: str) -> StorageError:
    return StorageError(
        "document could not be posted",
        code="http-post",
        url=scrub(url)[:200],
        problem=problem[:200],
        hint="check the address, and whether the service runs; then try again",
    )
