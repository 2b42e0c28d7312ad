"""Credentials that cannot be shown by accident.

Storage options arrive as plain text and are wrapped at once: a value whose key sounds like a credential becomes a
`Secret`, which prints as stars, refuses to be pickled, and gives its text only to who asks by `reveal`. Text from
libraries passes `scrub` before it reaches an error message.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import NoReturn

from tidelake.errors import InvalidInputError

MASK = "***"
_LONG = 8
"""Characters of a secret that is masked wherever it stands."""

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
        """The text itself, for the one library call that needs it."""
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
            "secret cannot be pickled", hint="hand storage options to the other process by a channel of their own"
        )


def is_sensitive(key: str) -> bool:
    """Whether the value of this option may be a credential."""
    return _SENSITIVE.search(key) is not None


def wrap(options: Mapping[str, object]) -> dict[str, object]:
    """A copy in which every value with a sensitive key is a `Secret`."""
    # A switch is no secret, whatever its name (`skip_signature`).
    return {
        key: Secret(str(value)) if is_sensitive(key) and not isinstance(value, Secret | bool) else value
        for key, value in options.items()
    }


def reveal(options: Mapping[str, object]) -> dict[str, object]:
    """A copy with the secrets in plain text, for the one library call that needs them."""
    return {key: value.reveal() if isinstance(value, Secret) else value for key, value in options.items()}


def environment_secrets() -> tuple[Secret, ...]:
    """What variables of the environment hold that a library may use and repeat in its messages."""
    stores = ("AWS_", "GOOGLE_", "AZURE_")
    return tuple(
        Secret(value) for key, value in os.environ.items() if key.startswith(stores) and is_sensitive(key) and value
    )


def redact(options: Mapping[str, object]) -> dict[str, str]:
    """A copy fit to be shown."""
    return {
        key: scrub(str(value)) if isinstance(value, bool) or not _hidden(key, value) else MASK
        for key, value in options.items()
    }


def _hidden(key: str, value: object) -> bool:
    return is_sensitive(key) or isinstance(value, Secret)


def scrub(text: str, secrets: Iterable[Secret] = ()) -> str:
    """The text without these secrets, without user names in URLs and without values of URL parameters."""
    for hidden in sorted({secret.reveal() for secret in secrets}, key=len, reverse=True):
        if len(hidden) >= _LONG:
            text = text.replace(hidden, MASK)
        elif hidden:
            # A short one is part of many words that say nothing of it, and masking those would tell its letters.
            text = re.sub(rf"(?<!\w){re.escape(hidden)}(?!\w)", MASK, text)
    return _QUERY.sub(rf"\1={MASK}", _USERINFO.sub(f"{MASK}@", text))
