"""Credentials from AWS profiles: `AWS_PROFILE` and the files in `~/.aws`, read with boto3 if it is installed.

A profile is used only if no credentials are given more directly. The order is that of the AWS tools: storage options,
environment variables, a profile; the role of the machine comes last, and the store asks for it. Nothing here sends a
request.
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
"""How long the store keeps credentials before it asks again; boto3 renews those that expire sooner."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile: how to get credentials, and the region if it has one."""

    credentials: Any = field(repr=False)
    region: str | None

    def __call__(self) -> dict[str, object]:
        """Return the current credentials in the form that the store expects."""
        found = self.credentials.get_frozen_credentials()
        return {
            "access_key_id": found.access_key,
            "secret_access_key": found.secret_key,
            "token": found.token,
            "expires_at": datetime.now(UTC) + _LIFETIME,
        }


def is_wanted(config: Mapping[str, object], environment: Mapping[str, str]) -> bool:
    """Return whether to use a profile: one is asked for, or other credentials are missing."""
    names = {name.removeprefix("aws_") for name in config}
    if names & _CLOSER:
        return False
    if PROFILE in names:
        return True
    if any(environment.get(name) for name in _ENVIRONMENT):
        return False
    return bool(environment.get("AWS_PROFILE")) or any(path.is_file() for path in profile_files(environment))


def profile_files(environment: Mapping[str, str]) -> tuple[Path, Path]:
    """Return the paths of the two files with profiles."""
    home = Path(environment.get("HOME") or "~").expanduser() / ".aws"
    return (
        Path(environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials").expanduser(),
        Path(environment.get("AWS_CONFIG_FILE") or home / "config").expanduser(),
    )


def find_profile(name: str | None) -> Profile | None:
    """Return the named profile, or the active one; None if it has no credentials or boto3 is not installed.

    Raises:
        InvalidInputError: the named profile does not exist, or boto3 is needed to read it and not installed.
    """
    named = name or os.environ.get("AWS_PROFILE")
    try:
        import botocore.exceptions
        import botocore.session
    except ImportError as cause:
        if named is None:
            return None
        raise InvalidInputError(
            "AWS profile needs boto3, which is not installed",
            code="extra-missing",
            profile=named,
            hint="pip install boto3, or give access_key_id and secret_access_key as storage options",
        ) from cause
    try:
        session = botocore.session.Session(profile=name)
        resolver = session.get_component("credential_provider")
        resolver.remove("iam-role")  # it would send a request; the store does so itself when it needs to
        found = resolver.load_credentials()
        region = session.get_config_variable("region")
    except botocore.exceptions.BotoCoreError as cause:
        raise InvalidInputError(
            "AWS profile cannot be used", profile=named, reason=str(cause)[:200], hint="check AWS_PROFILE and ~/.aws"
        ) from None
    return None if found is None else Profile(found, region)
