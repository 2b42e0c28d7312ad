"""Object stores: lost answers settle or stay unknown, refusals are certain, credentials stay hidden."""

from __future__ import annotations

import builtins
import pickle
import sys
from collections.abc import Iterator

import pytest

from s3_server import BUCKET, ScriptedS3, storage_options
from tidelake.errors import FormatError, InvalidInputError, StorageError
from tidelake.io import Created, Env, Exists, FileIO, MemoryFileIO, SeededIds, Unknown, open_fileio
from tidelake.io.object_store import FOLDER_MARKER, ObjectStoreFileIO, _configure
from tidelake.testing import FakeClock

pytestmark = pytest.mark.s3


@pytest.fixture
def scripted() -> Iterator[tuple[ScriptedS3, FileIO]]:
    server = ScriptedS3()
    env = Env(MemoryFileIO(), clock=FakeClock(), ids=SeededIds(1))
    with server.serve() as endpoint:
        yield server, open_fileio("s3://bucket/t", {**storage_options(endpoint), "timeout": "5s"}, env)


KEY = "/bucket/t/s-1"


def test_an_undisturbed_put_is_one_request(scripted: tuple[ScriptedS3, FileIO]) -> None:
    server, io = scripted
    assert io.create_exclusive("s-1", b"ours") == Created()
    assert server.puts == 1
    assert io.create_exclusive("s-1", b"theirs") == Exists()
    assert server.objects == {KEY: b"ours"}


@pytest.mark.parametrize("step", ["503+", "500+", "reset+", "429+", "408+"])
def test_our_own_success_whose_answer_was_lost_is_created(scripted: tuple[ScriptedS3, FileIO], step: str) -> None:
    server, io = scripted
    server.script = [step]
    assert io.create_exclusive("s-1", b"ours") == Created()
    assert server.objects == {KEY: b"ours"}


@pytest.mark.parametrize("step", ["503", "500", "reset", "429", "409"])
def test_a_passing_failure_is_tried_again(scripted: tuple[ScriptedS3, FileIO], step: str) -> None:
    server, io = scripted
    server.script = [step]
    assert io.create_exclusive("s-1", b"ours") == Created()
    assert server.puts == 2
    assert server.objects == {KEY: b"ours"}


@pytest.mark.parametrize("step", ["503", "reset", "409", "412"])
def test_a_failure_with_the_object_of_another_is_exists(scripted: tuple[ScriptedS3, FileIO], step: str) -> None:
    server, io = scripted
    server.objects[KEY] = b"theirs"
    server.script = [step]
    assert io.create_exclusive("s-1", b"ours") == Exists()
    assert server.objects == {KEY: b"theirs"}


@pytest.mark.parametrize("step", ["503", "reset", "409"])
def test_a_failure_that_does_not_pass_is_unknown(scripted: tuple[ScriptedS3, FileIO], step: str) -> None:
    server, io = scripted
    server.script = [step] * 20
    outcome = io.create_exclusive("s-1", b"ours")
    assert isinstance(outcome, Unknown)
    assert isinstance(outcome.cause, StorageError)


def test_success_that_cannot_be_read_back_is_unknown(scripted: tuple[ScriptedS3, FileIO]) -> None:
    server, io = scripted
    server.script = ["reset+"] + ["reset"] * 20
    server.gets = ["403"] * 40
    assert isinstance(io.create_exclusive("s-1", b"ours"), Unknown)
    assert server.objects == {KEY: b"ours"}


def test_a_refusal_after_a_lost_answer_is_still_unknown(scripted: tuple[ScriptedS3, FileIO]) -> None:
    server, io = scripted
    server.script = ["reset", "403"]
    assert isinstance(io.create_exclusive("s-1", b"ours"), Unknown)


@pytest.mark.parametrize(
    ("step", "code"), [("400", "storage"), ("403", "storage-denied"), ("501", "no-exclusive-create")]
)
def test_a_refusal_is_certain(scripted: tuple[ScriptedS3, FileIO], step: str, code: str) -> None:
    server, io = scripted
    server.script = [step]
    with pytest.raises(StorageError) as caught:
        io.create_exclusive("s-1", b"ours")
    assert caught.value.code == code
    assert server.puts == 1
    assert server.objects == {}


def test_nobody_listening_is_certain_too() -> None:
    server = ScriptedS3()
    with server.serve() as endpoint:
        options = storage_options(endpoint)
    env = Env(MemoryFileIO(), clock=FakeClock(), ids=SeededIds(1))
    io = open_fileio("s3://bucket/t", options, env)
    with pytest.raises(StorageError):
        io.create_exclusive("s-1", b"ours")


def test_a_write_whose_answer_stays_lost_fails(scripted: tuple[ScriptedS3, FileIO]) -> None:
    server, io = scripted
    server.script = ["reset"] * 20
    with pytest.raises(StorageError, match="lost"):
        io.write("s-1", b"ours")


@pytest.fixture
def lake(s3_options: dict[str, str], request: pytest.FixtureRequest) -> FileIO:
    return open_fileio(f"s3a://{BUCKET}/{request.node.name}", s3_options)


def test_a_large_file_goes_in_parts_and_still_does_not_replace(lake: FileIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelake.io.object_store.PUT_BYTES_MAX", 1_000)
    lake.write("big", b"x" * 6_000_000)
    assert len(lake.read("big")) == 6_000_000
    with pytest.raises(StorageError) as caught:
        lake.write("big", b"y" * 2_000)
    assert caught.value.code == "file-exists"


def test_a_folder_is_kept_visible_by_a_marker(lake: FileIO) -> None:
    lake.make_dir("shop.db")
    assert [child.name for child in lake.list("shop.db")] == [FOLDER_MARKER]


def test_markers_of_other_tools_are_folders_not_files(s3_options: dict[str, str]) -> None:
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=s3_options["endpoint"],
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="x",
    )
    for key in ("marked/db/", "marked/db/t/", "marked/db/t/f"):
        client.put_object(Bucket=BUCKET, Key=key, Body=b"")
    io = open_fileio(f"s3://{BUCKET}/marked", s3_options)
    assert [(child.path, child.is_dir) for child in io.list("")] == [("db", True)]
    assert [(child.path, child.is_dir) for child in io.list("db")] == [("db/t", True)]
    assert [(child.path, child.is_dir) for child in io.list("db/t")] == [("db/t/f", False)]


def test_a_folder_of_several_batches_is_deleted(lake: FileIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelake.io.object_store._DELETE_BATCH", 10)
    for number in range(25):
        lake.overwrite(f"d/{number:04}", b"")
    assert len(lake.list("d")) == 25
    lake.delete_dir("d")
    assert lake.list("d") == []


def test_a_missing_bucket_is_not_an_empty_lake(s3_options: dict[str, str]) -> None:
    io = open_fileio("s3://no-such-bucket/t", s3_options)
    for ask in (io.read, io.list, lambda path: io.write(path, b"x")):
        with pytest.raises(StorageError) as caught:
            ask("f")
        assert caught.value.code == "bucket-not-found"


def test_credentials_show_nowhere(s3_options: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", logger="tidelake")
    options = {**s3_options, "secret_access_key": "canary-secret", "access_key_id": "canary-id"}
    io = open_fileio("s3://no-such-bucket/t", options)
    shown = [repr(io), str(io), io.root]
    with pytest.raises(StorageError) as caught:
        io.read("f")
    shown += [str(caught.value), repr(caught.value), repr(caught.value.__cause__)]
    with pytest.raises(InvalidInputError) as refused:
        pickle.dumps(io)
    shown += [str(refused.value), caplog.text]
    assert not [text for text in shown if "canary" in text]
    assert "***" in repr(io)


def test_a_storage_without_secrets_pickles() -> None:
    io = open_fileio("s3://bucket/t", {"region": "us-east-1", "skip_signature": True})
    again = pickle.loads(pickle.dumps(io.sub("u")))
    assert again.root == "s3://bucket/t/u"


@pytest.mark.parametrize("options", [{"no-such-option": "canary"}, {"timeout": "canary seconds"}])
def test_a_wrong_option_is_an_input_error(options: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError):
        open_fileio("s3://bucket/t", options)


def test_option_names_of_other_tools_are_understood() -> None:
    config, client = _configure(
        "s3",
        {
            "s3.endpoint": "http://127.0.0.1:1",
            "fs.s3a.access.key": "a",
            "s3.secret-key": "b",
            "s3.path.style.access": "true",
            "s3.connect.timeout": "3s",
            "aws_region": "r",
        },
    )
    assert config == {
        "endpoint": "http://127.0.0.1:1",
        "access_key_id": "a",
        "secret_access_key": "b",
        "virtual_hosted_style_request": False,
        "aws_region": "r",
    }
    assert client == {"connect_timeout": "3s", "allow_http": True}


@pytest.mark.parametrize(
    ("location", "options", "root"),
    [
        ("gs://bucket/a/b", {"skip_signature": True}, "gs://bucket/a/b"),
        ("az://container/a", {"account_name": "acc", "account_key": "a2V5"}, "az://container/a"),
        ("abfss://container@acc.dfs.core.windows.net/a", {"account_key": "a2V5"}, "abfss://container/a"),
        ("s3://bucket", {}, "s3://bucket"),
        ("s3://bucket/a/", {}, "s3://bucket/a"),
    ],
)
def test_other_clouds_open_without_a_request(location: str, options: dict[str, object], root: str) -> None:
    io = open_fileio(location, options)
    assert isinstance(io, ObjectStoreFileIO)
    assert io.root == root


def test_a_missing_extra_names_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: object, **kwargs: object) -> object:
        if name.startswith("obstore"):
            raise ImportError(name)
        return real(name, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", refuse)
    for name in [name for name in sys.modules if name.startswith("obstore")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(InvalidInputError, match=r"pip install 'tidelake\[s3\]'"):
        open_fileio("s3://bucket/t")


def test_a_truncated_object_is_a_format_error(lake: FileIO) -> None:
    lake.write("empty", b"")
    with pytest.raises(FormatError):
        lake.read_range("empty", 0, 1)
