"""Object stores: lost answers settle or stay unknown, refusals are certain, credentials stay hidden."""

from __future__ import annotations

import builtins
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.s3_server import BUCKET, ScriptedS3, storage_options
from tidelake.errors import FormatError, InvalidInputError, StorageError
from tidelake.io import (
    Created,
    Env,
    Exists,
    FileIO,
    LocalFileIO,
    MemoryFileIO,
    SeededIds,
    Unknown,
    object_store,
    open_fileio,
)
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


@pytest.mark.parametrize("refused_by", ["the store", "a storage option"])
def test_the_hint_for_a_store_without_exclusive_creation_names_what_exists(refused_by: str) -> None:
    server = ScriptedS3()
    server.script = ["501"]
    with server.serve() as endpoint:
        options = storage_options(endpoint)
        if refused_by == "a storage option":
            options["conditional_put"] = "disabled"
        io = open_fileio("s3://bucket/t", options)
        with pytest.raises(StorageError) as caught:
            io.create_exclusive("s-1", b"ours")
    hint = str(caught.value.hint)
    assert caught.value.code == "no-exclusive-create"
    assert "lock" not in hint
    assert "conditional_put" in hint
    assert "unsafe.commit does not help" in hint
    assert server.objects == {}


def test_a_refused_connection_is_certain_too() -> None:
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
    shown += [str(pickle.dumps(io)), repr(pickle.loads(pickle.dumps(io))), caplog.text]
    assert not [text for text in shown if "canary" in text]
    assert "***" in repr(io)


def test_a_storage_pickles_without_its_secrets() -> None:
    secrets = {"access_key_id": "canary", "secret_access_key": "canary"}
    io = open_fileio("s3://bucket/t", {"region": "us-east-1", "skip_signature": True, **secrets})
    again = pickle.loads(pickle.dumps(io.sub("u")))
    assert again.root == "s3://bucket/t/u"
    assert again.storage_options == {"region": "us-east-1", "skip_signature": True}


@pytest.mark.parametrize("kind", [LocalFileIO, MemoryFileIO, ObjectStoreFileIO])
def test_a_half_made_storage_shows_itself_to_a_debugger(kind: type) -> None:
    assert kind.__name__ in repr(kind.__new__(kind))


def test_the_storage_in_the_traceback_of_its_constructor_shows_no_secret() -> None:
    with pytest.raises(InvalidInputError) as caught:
        open_fileio("s3://bucket/t", {"no-such-option": "x", "secret_access_key": "canary"})
    trace, shown = caught.tb, []
    while trace is not None:
        shown += [repr(value) for name, value in trace.tb_frame.f_locals.items() if name == "self"]
        trace = trace.tb_next
    assert any("ObjectStoreFileIO" in text for text in shown)
    assert "canary" not in "".join(shown)


CREDENTIALS = "[default]\naws_access_key_id = AKDEFAULT\naws_secret_access_key = s\n"
CREDENTIALS += "[work]\naws_access_key_id = AKWORK\naws_secret_access_key = s\n"


@pytest.mark.parametrize(
    ("environment", "options", "user"),
    [
        ({}, {}, "AKDEFAULT"),
        ({"AWS_PROFILE": "work"}, {}, "AKWORK"),
        ({}, {"profile": "work"}, "AKWORK"),
        ({"AWS_ACCESS_KEY_ID": "AKENV", "AWS_SECRET_ACCESS_KEY": "s", "AWS_PROFILE": "work"}, {}, "AKENV"),
        ({"AWS_ACCESS_KEY_ID": "AKENV", "AWS_SECRET_ACCESS_KEY": "s"}, {"aws_profile": "work"}, "AKWORK"),
        ({"AWS_PROFILE": "work"}, {"access_key_id": "AKGIVEN", "secret_access_key": "s"}, "AKGIVEN"),
    ],
)
def test_credentials_of_a_profile_are_found_where_amazon_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], options: dict[str, str], user: str
) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text(CREDENTIALS)
    (tmp_path / ".aws/config").write_text("[default]\nregion = eu-west-1\n[profile work]\nregion = eu-central-1\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    server = ScriptedS3()
    with server.serve() as endpoint:
        open_fileio("s3://bucket/t", {"endpoint": endpoint, **options}).overwrite("a", b"")
    assert f"Credential={user}/" in server.users[0]
    assert user != "AKWORK" or "eu-central-1" in server.users[0]


def test_a_profile_that_there_is_not_is_an_input_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(InvalidInputError, match="nobody"):
        open_fileio("s3://bucket/t", {"profile": "nobody"})
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(InvalidInputError, match="pip install boto3"):
        open_fileio("s3://bucket/t", {"profile": "nobody"})
    open_fileio("s3://bucket/t", {})


@pytest.mark.parametrize(
    ("location", "asked", "hint"),
    [
        ("s3://b/t", "Error performing PUT http://169.254.169.254/latest/api/token in 5ms - status code: 403", "AWS_"),
        (
            "gs://b/t",
            "Error performing GET http://metadata.google.internal/computeMetadata/v1: kind: Connect",
            "GOOGLE",
        ),
        ("az://b/t", "Error performing GET http://169.254.169.254/metadata/identity: kind: TimedOut", "AZURE"),
    ],
)
def test_no_credentials_found_is_said_as_that(location: str, asked: str, hint: str) -> None:
    io = open_fileio(location, {"account_name": "a"} if location.startswith("az") else {"skip_signature": True})
    assert isinstance(io, ObjectStoreFileIO)
    error = io._storage_error(OSError(asked), "object could not be read", "f")
    assert isinstance(error, StorageError)
    assert error.code == "no-credentials"
    assert str(error).startswith("no credentials found")
    assert hint in str(error.hint)
    assert object_store._was_not_sent(OSError(asked))


def test_http_is_allowed_by_the_variable_and_by_the_option_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _configure("s3", {"AWS_ALLOW_HTTP": "true"}) == ({}, {"allow_http": True})
    assert _configure("s3", {}) == ({}, {})
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    assert _configure("s3", {}) == ({}, {"allow_http": True})


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
