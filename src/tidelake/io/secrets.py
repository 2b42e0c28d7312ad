"""Keeps credentials from being shown by accident.

Storage options arrive as plain text and are wrapped at once: a value whose key looks like a credential becomes a
`Secret`, which prints as stars, cannot be pickled, and returns its text only from `reveal`. Messages of libraries pass
`scrub` before they become part of an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import NoReturn

from tidelake.errors import InvalidInputError

MASK = "***"
_LONG = 8
"""The length from which on a secret is masked even inside of words."""

_SENSITIVE = re.compile(
    r"secret|token|passw(or)?d|passphrase|pwd|credential|bearer|authori[sz]ation|signature|\bsig\b"
    r"|(access|account|private|master|api|encryption|customer|shared)[._-]?key|sas([._-]|$)|service[._-]?account[._-]?key",
    re.IGNORECASE,
)
_QUERY = re.compile(r"(?<=[?&])([^=&#\s\"'<>]+)=[^&#\s\"'<>]*")
_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")


class Secret:
    """Text that is used but never shown."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text, for the one library call that needs it."""
        return self._text

    def __repr__(self) -> str:
        return MASK

    def __str__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return format(MASK, spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce__(self) -> NoReturn:
        raise InvalidInputError(
            "secret cannot be pickled", hint="send storage options to the other process by another channel"
        )


def is_sensitive(key: str) -> bool:
    """Return whether the value of this option may be a credential."""
    return _SENSITIVE.search(key) is not None


def wrap(options: Mapping[str, object]) -> dict[str, object]:
    """Return a copy in which every value with a sensitive key is a `Secret`."""
    # A boolean is never a secret, whatever its name (`skip_signature`).
    return {
        key: Secret(str(value)) if is_sensitive(key) and not isinstance(value, Secret | bool) else value
        for key, value in options.items()
    }


def reveal(options: Mapping[str, object]) -> dict[str, object]:
    """Return a copy with the secrets in plain text, for the one library call that needs them."""
    return {key: value.reveal() if isinstance(value, Secret) else value for key, value in options.items()}


def environment_secrets() -> tuple[Secret, ...]:
    """Return the credentials in environment variables, which a library may use and repeat in its messages."""
    stores = ("AWS_", "GOOGLE_", "AZURE_")
    return tuple(
        Secret(value) for key, value in os.environ.items() if key.startswith(stores) and is_sensitive(key) and value
    )


def redact(options: Mapping[str, object]) -> dict[str, str]:
    """Return a copy that can be shown."""
    return {
        key: scrub(str(value)) if isinstance(value, bool) or not _is_hidden(key, value) else MASK
        for key, value in options.items()
    }


def _is_hidden(key: str, value: object) -> bool:
    return is_sensitive(key) or isinstance(value, Secret)


def scrub(text: str, secrets: Iterable[Secret] = ()) -> str:
    """Mask these secrets in a text, and user names and parameter values in its URLs."""
    for hidden in sorted({secret.reveal() for secret in secrets}, key=len, reverse=True):
        if len(hidden) >= _LONG:
            text = text.replace(hidden, MASK)
        elif hidden:
            # A short secret is part of many unrelated words, and masking it inside of them would reveal its letters.
            text = re.sub(rf"(?<!\w){re.escape(hidden)}(?!\w)", MASK, text)
    return _QUERY.sub(rf"\1={MASK}", _USERINFO.sub(f"{MASK}@", text))
