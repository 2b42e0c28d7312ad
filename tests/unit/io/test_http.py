"""Posting documents: one request, a time limit, and an error for every answer that is not a JSON object."""

from __future__ import annotations

import threading  # noqa: TID251 - an answer that does not come
from collections.abc import Iterator

import pytest

from kit.report_server import ReportServer, report_server
from tidelake.errors import InvalidInputError, StorageError
from tidelake.io.http import post_json


@pytest.fixture
def server() -> Iterator[ReportServer]:
    with report_server() as made:
        yield made


def test_a_document_is_posted_and_the_object_of_the_answer_returned(server: ReportServer) -> None:
    assert post_json(server.url, {"a": "ü", "b": None}) == {"result": "success"}
    assert server.posted == [{"a": "ü", "b": None}]
    assert server.types == ["application/json"]


@pytest.mark.parametrize(
    ("status", "answer", "words"),
    [
        (500, b"{}", "status 500"),
        (404, b"", "status 404"),
        (200, b"", "not JSON"),
        (200, b"\xff{", "not JSON"),
        (200, b"[1]", "not a JSON object"),
    ],
)
def test_another_answer_is_an_error(server: ReportServer, status: int, answer: bytes, words: str) -> None:
    server.status, server.answer = status, answer
    with pytest.raises(StorageError) as caught:
        post_json(server.url, {})
    assert words in str(caught.value.facts["problem"])


def test_a_redirect_is_an_error_because_it_would_drop_the_document(server: ReportServer) -> None:
    server.status, server.location = 302, "/elsewhere"
    with pytest.raises(StorageError) as caught:
        post_json(server.url, {})
    assert "302" in str(caught.value.facts["problem"])
    assert server.posted == [{}]


def test_an_answer_that_does_not_come_is_an_error_after_the_time_limit(server: ReportServer) -> None:
    server.delay = threading.Event()
    with pytest.raises(StorageError, match="could not be posted"):
        post_json(server.url, {}, timeout_s=0.1)
    server.delay.set()


def test_a_service_that_is_not_there_is_an_error_without_secrets() -> None:
    with pytest.raises(StorageError) as caught:
        post_json("http://me:hidden@127.0.0.1:1/x?token=hidden", {}, timeout_s=2)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://a/b", "x", ""])
def test_only_http_is_spoken(url: str) -> None:
    with pytest.raises(InvalidInputError):
        post_json(url, {})
