"""Credentials of Amazon's own tools: `AWS_PROFILE` and the files in `~/.aws`, read by boto3 where it is installed.

They are used where nothing closer is given. The order is that of Amazon's tools: storage options, variables of the
environment, a profile; the machine's own role comes last and is asked for by the store. Nothing is requested here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from tidelake.errors import InvalidInputError

PROFILE: Final = "profile"
"""The storage option that names a profile."""
_CLOSER: Final = frozenset({"access_key_id", "secret_access_key", "session_token", "skip_signature", "token"})
_ENVIRONMENT: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_LIFETIME: Final = timedelta(minutes=15)
"""How long the store keeps what it was told; boto3 renews what ends sooner."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What a profile says: how to get credentials, and the region if it names one."""

    credentials: Any = field(repr=False)
    region: str | None

    def __call__(self) -> dict[str, object]:
        """The credentials of the moment, as the store asks for them."""
        found = self.credentials.get_frozen_credentials()
        return {
            "access_key_id": found.access_key,
            "secret_access_key": found.secret_key,
            "token": found.token,
            "expires_at": datetime.now(UTC) + _LIFETIME,
        }


def is_wanted(config: Mapping[str, object], environment: Mapping[str, str]) -> bool:
    """Whether a profile is asked for, or is what is left."""
    names = {name.removeprefix("aws_") for name in config}
    if names & _CLOSER:
        return False
    if PROFILE in names:
        return True
    if any(environment.get(name) for name in _ENVIRONMENT):
        return False
    return bool(environment.get("AWS_PROFILE")) or any(path.is_file() for path in profile_files(environment))


def profile_files(environment: Mapping[str, str]) -> tuple[Path, Path]:
    """The two files that hold profiles."""
    home = Path(environment.get("HOME") or "~").expanduser() / ".aws"
    return (
        Path(environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials").expanduser(),
        Path(environment.get("AWS_CONFIG_FILE") or home / "config").expanduser(),
    )


def find_profile(name: str | None) -> Profile | None:
    """The named profile, or the one in force; None where it holds no credentials or boto3 is not installed.

    Raises:
        InvalidInputError: a profile is named that there is not, or boto3 is missing to read it.
    """
    named = name or os.environ.get("AWS_PROFILE")
    try:
        import botocore.exceptions
        import botocore.session
    except ImportError as cause:
        if named is None:
            return None
        raise InvalidInputError(
            "a profile of AWS is read by boto3, which is not installed",
            code="extra-missing",
            profile=named,
            hint="pip install boto3, or give access_key_id and secret_access_key as storage options",
        ) from cause
    try:
        session = botocore.session.Session(profile=name)
        resolver = session.get_component("credential_provider")
        resolver.remove("iam-role")  # a request; the store makes it when it needs to
        found = resolver.load_credentials()
        region = session.get_config_variable("region")
    except botocore.exceptions.BotoCoreError as cause:
        raise InvalidInputError(
            "profile of AWS cannot be used", profile=named, reason=str(cause)[:200], hint="check AWS_PROFILE and ~/.aws"
        ) from None
    return None if found is None else Profile(found, region)
