"""Credentials that cannot be shown by accident."""

from __future__ import annotations

import copy
import logging
import pickle

import pytest

from tidelake.errors import InvalidInputError
from tidelake.io import Secret
from tidelake.io.secrets import is_sensitive, redact, reveal, scrub, wrap

KEYS = [
    "access_key_id",
    "secret_access_key",
    "s3.access-key",
    "s3.secret-key",
    "fs.s3a.access.key",
    "AWS_SESSION_TOKEN",
    "token",
    "bearer_token",
    "password",
    "db.passwd",
    "client_secret",
    "account_key",
    "azure_storage_sas_key",
    "sas.token",
    "service_account_key",
    "application_credentials",
    "X-Amz-Signature",
    "Authorization",
    "private-key",
    "encryption_key",
    "api.key",
]


@pytest.mark.parametrize("key", KEYS)
def test_a_credential_is_known_by_its_key(key: str) -> None:
    assert is_sensitive(key)
    shown = redact({key: "canary"})
    assert shown == {key: "***"}
    assert "canary" not in repr(wrap({key: "canary"}))
    assert reveal(wrap({key: "canary"})) == {key: "canary"}


@pytest.mark.parametrize("key", ["endpoint", "region", "bucket", "timeout", "primary-key", "sequence.field", "path"])
def test_plain_options_stay_readable(key: str) -> None:
    assert redact({key: "value"}) == {key: "value"}
    assert wrap({key: "value"}) == {key: "value"}


def test_a_boolean_is_not_a_secret() -> None:
    assert wrap({"skip_signature": True}) == {"skip_signature": True}
    assert redact({"skip_signature": True}) == {"skip_signature": "True"}


def test_a_secret_shows_in_no_way(caplog: pytest.LogCaptureFixture) -> None:
    secret = Secret("canary")
    logging.getLogger("x").warning("%s %r", secret, {"k": secret})
    shown = [str(secret), repr(secret), f"{secret}", f"{secret:>10}", f"{secret!r}", repr([secret]), caplog.text]
    assert not [text for text in shown if "canary" in text]
    assert secret.reveal() == "canary"


def test_a_secret_is_not_pickled_but_copies() -> None:
    secret = Secret("canary")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(InvalidInputError) as caught:
            pickle.dumps({"k": secret}, protocol)
        assert "canary" not in str(caught.value)
    assert copy.copy(secret) is secret
    assert copy.deepcopy({"k": secret})["k"] is secret


def test_secrets_compare_by_their_text() -> None:
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1
    assert wrap(wrap({"token": "a"})) == {"token": Secret("a")}


def test_foreign_text_is_scrubbed() -> None:
    text = "GET https://user:canary@host/b/k?X-Amz-Signature=canary&sig=canary failed: canary2"
    assert "canary" not in scrub(text, [Secret("canary2"), Secret("")])
    assert scrub("plain text, a=b") == "plain text, a=b"
    assert scrub("a bad access", [Secret("a"), Secret("bad")]) == "*** *** access"
    assert scrub("key=long-secret, x=long", [Secret("long"), Secret("long-secret")]) == "key=***, x=***"
    assert redact({"endpoint": "https://user:canary@host/"}) == {"endpoint": "https://***@host/"}
