"""Consumer files and success markers: the smallest documents."""

import pytest

from tidelake.errors import FormatError
from tidelake.spec.documents.consumer import Consumer, consumer_from_json, consumer_to_json
from tidelake.spec.documents.success import Success, mark_success, success_from_json, success_to_json

JAVA = b'{\n  "nextSnapshot" : 3\n}'


def test_a_consumer_of_the_reference_is_written_back_byte_for_byte():
    consumer = consumer_from_json(JAVA, path="p")
    assert consumer == Consumer(next_snapshot=3)
    assert consumer_to_json(consumer) == JAVA


def test_a_consumer_keeps_members_it_does_not_know():
    consumer = consumer_from_json(b'{"x": [1], "nextSnapshot": 5}', path="p")
    assert consumer_to_json(consumer) == b'{\n  "nextSnapshot" : 5,\n  "x" : [ 1 ]\n}'


@pytest.mark.parametrize(
    "data", [JAVA[:9], b"", b"{}", b'{"nextSnapshot": null}', b'{"nextSnapshot": "5"}', b'{"nextSnapshot": -1}', b"5"]
)
def test_a_torn_or_foreign_consumer_is_a_format_error(data):
    with pytest.raises(FormatError) as error:
        consumer_from_json(data, path="t/consumer/consumer-me")
    assert error.value.facts["path"] == "t/consumer/consumer-me"


def test_the_success_marker_of_the_specification():
    data = b'{ "creationTime" : 1794772211963, "modificationTime" : 1794772211963 }'
    success = success_from_json(data, path="p")
    assert success == Success(creation_time_ms=1794772211963, modification_time_ms=1794772211963)
    assert success_from_json(success_to_json(success), path="p") == success
    assert success_to_json(success).startswith(b'{\n  "creationTime" : 1794772211963,\n  "modificationTime"')


def test_marking_again_keeps_the_first_time():
    first = mark_success(None, time_ms=10)
    assert first == Success(creation_time_ms=10, modification_time_ms=10)
    assert mark_success(first, time_ms=20) == Success(creation_time_ms=10, modification_time_ms=20)


@pytest.mark.parametrize("data", [b"{}", b'{"creationTime": 1}', b'{"creationTime": 1, "modificationTime": 1.5}', b"["])
def test_a_malformed_marker_is_a_format_error(data):
    with pytest.raises(FormatError):
        success_from_json(data, path="p")


def test_when_the_last_snapshot_was_committed_is_kept_beside_what_others_know():
    data = b'{"nextSnapshot": 5, "tidelakeReadTimeMillis": 17, "x": 1}'
    consumer = consumer_from_json(data, path="consumer/consumer-c")
    assert consumer == Consumer(next_snapshot=5, read_ms=17, unknown={"x": 1})
    assert consumer_from_json(consumer_to_json(consumer), path="p") == consumer
