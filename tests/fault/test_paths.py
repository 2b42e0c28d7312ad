"""T11: no name, value or path from anywhere leads outside the lake.

Every entry point that takes a text which becomes part of a path, or reads one from metadata, is called with every
hostile text. It may refuse (typed, before anything is written) or take the text as a plain name; in either case the
tree around the lake stays as it was, and nothing in it is even opened. Three witnesses watch: the paths that reach the
storage, the interpreter's audit events, and the content of the tree.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import FormatError, InvalidInputError, TidelakeError
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.io.local import LocalFileIO
from tidelake.ops.commit.messages import CommitMessage, DataIncrement
from tidelake.spec.data_file import DataFile
from tidelake.spec.documents.snapshot import snapshot_to_json
from tidelake.spec.manifests.index_manifest import IndexEntry, IndexFile, encode_index_manifest
from tidelake.spec.manifests.manifest import ADD, encode_manifest, entries_table
from tidelake.spec.manifests.manifest_list import ManifestMeta, encode_manifest_list
from tidelake.spec.manifests.manifest_meta import meta_of_entries
from tidelake.spec.rows.binary_row_scalar import encode_row
from tidelake.spec.types.data_types import STRING
from tidelake.table import Table, load_table
from tidelake.testing import FakeClock, TracingFileIO

UP = tuple("../" * n + "outside/secret" for n in (1, 2, 3, 4, 8))
REFUSED = (
    *UP,
    "..",
    "../",
    "../..",
    "/",
    "//",
    "/etc/passwd",
    "//etc/passwd",
    "/outside/secret",
    "./x",
    ".",
    "./",
    "./..",
    ".hidden",
    "...",
    "..\\..\\outside",
    "a/../../../outside/secret",
    "a/b",
    "a//b",
    "a\\b",
    "\\",
    "\\\\host\\share",
    "x/",
    "/x",
    "",
    " ",
    "\t",
    "\n",
    "\x00",
    "a\x00",
    "a\x00/../../outside",
    "../outside\x00.parquet",
    "a\nb",
    "a\rb",
    "a\x1b[2Jb",
    "a\x7f",
    "\x85",
    "\ud800",
    "a\udfff",
    "x" * 256,
    "é" * 128,
    "x" * 4096,
    "../" * 2000,
    "file:///etc/passwd",
    "file:/etc/passwd",
    "s3://bucket/key",
    "http://host/x",
    "memory://x/y",
)
"""Texts that are no single path component."""
ODD = (
    "..x",
    "~",
    "~root",
    "$HOME",
    "${HOME}",
    "%2e%2e",
    "%2e%2e%2foutside",
    "%00",
    "a..b",
    "x..",
    "-rf",
    "--help",
    "*",
    "?",
    "a b",
    "a'b",
    'a"b',
    "a;b",
    "|x",
    "`id`",
    "$(id)",
    "CON",
    "C:",
    "a:b",
    "‥",
    "∕etc∕passwd",
    "⁄outside",
    "．．",
    "\u202egpj.exe",
    "a\u200bb",
    "Ａ",
    "ﬁ",
    "İ",
    "e\u0301",
    "🐋",
    "snapshot-1",
    "schema",
    "manifest",
    "bucket-0",
    "LATEST",
)
"""Texts that look dangerous and may or may not be names; whatever they are, they stay inside."""
HOSTILE = (*REFUSED, *ODD)


# ------------------------------------------------------------------------------------------------ witnesses


@dataclass
class Watch:
    """The audit events of the interpreter that touch a path; a hook cannot be removed, so this one is switched."""

    top: str | None = None
    lake: str = ""
    touched: list[str] = field(default_factory=list)

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if self.top is None or not (event == "open" or event.startswith(("os.", "shutil."))):
            return
        for each in args[:2]:
            if isinstance(each, str | bytes | os.PathLike):
                path = os.path.abspath(os.fsdecode(each))
                inside = path == self.lake or path.startswith(self.lake + os.sep)
                if path.startswith("/etc") or (path.startswith(self.top + os.sep) and not inside):
                    self.touched.append(f"{event} {path}")


WATCH = Watch()
sys.addaudithook(WATCH)


def tree(root: Path, skip: Path) -> dict[str, Any]:
    """Every file and folder below the root but the lake, with content and kind."""
    found: dict[str, Any] = {}
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if Path(folder, name) != skip]
        for name in (*folders, *files):
            path = Path(folder, name)
            found[str(path)] = os.readlink(path) if path.is_symlink() else path.is_file() and path.read_bytes()
    return found


class World:
    """A lake in a folder with a canary tree around it."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.root = top / "a" / "b" / "lake"
        for folder in (top, top / "a", top / "a" / "b", top / "outside", top / "a" / "outside"):
            folder.mkdir(exist_ok=True)
            (folder / "secret").write_text("canary")
            (folder / "secret.parquet").write_text("canary")
        self.io = TracingFileIO(LocalFileIO(self.root, durability="none"))
        self.lake = Lake(FileSystemCatalog(Env(self.io, FakeClock(1_000), SeededIds(1))))
        self._before = tree(top, self.root)
        self._number = 0

    def fresh_name(self) -> str:
        self._number += 1
        return f"db.t{self._number}"

    def table(self, **options: Any) -> Table:
        columns = {"id": "INT NOT NULL", "dt": "STRING"}
        return self.lake.create_table(self.fresh_name(), columns, **{"partition_by": ["dt"], **options})

    @contextlib.contextmanager
    def watching(self, what: str) -> Iterator[None]:
        WATCH.top, WATCH.lake, WATCH.touched = str(self.top), str(self.root), []
        start = len(self.io.ops)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        finally:
            WATCH.top = None
        assert WATCH.touched == [], what
        for op in self.io.ops[start:]:
            path = os.path.normpath(os.path.join(self.root, op.path))
            assert path == str(self.root) or path.startswith(f"{self.root}{os.sep}"), f"{what}: {op}"

    def check_untouched(self) -> None:
        assert tree(self.top, self.root) == self._before


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    # The race of ten writers before the first commit of each table is tried elsewhere, and hundreds are made here.
    monkeypatch.setattr("tidelake.ops.hooks.committers.require_exclusive_create", lambda *_, **__: None)
    made = World(tmp_path)
    yield made
    made.check_untouched()


def refusal(call: Callable[[], object]) -> TidelakeError | None:
    """The typed refusal of a call, or None when it was done. Anything untyped passes through."""
    try:
        call()
    except TidelakeError as error:
        return error
    return None


def row(*values: object) -> bytes:
    return encode_row(list(values), [STRING] * len(values))


def message(name: str = "data-1.parquet", partition: bytes | None = None, **fields: Any) -> CommitMessage:
    file = DataFile(**{"file_name": name, "file_size": 6, "row_count": 1, **fields})
    return CommitMessage(
        partition=row("d1") if partition is None else partition,
        bucket=0,
        total_buckets=-1,
        data=DataIncrement(new_files=(file,)),
    )


# ------------------------------------------------------------------------------------------------ names people give


def test_there_are_enough_hostile_texts():
    assert len(set(HOSTILE)) >= 80


def name_entries() -> dict[str, Callable[[World, str], object]]:
    return {
        "create a database": lambda w, text: w.lake.create_database(text),
        "list the tables of a database": lambda w, text: w.lake.tables(text),
        "drop a database": lambda w, text: w.lake.drop_database(text, cascade=True),
        "create a table": lambda w, text: w.lake.create_table(f"db.{text}", {"id": "INT"}),
        "create a table in a database": lambda w, text: w.lake.create_table(f"{text}.t", {"id": "INT"}),
        "open a table": lambda w, text: w.lake.table(f"db.{text}"),
        "look for a table": lambda w, text: f"db.{text}" in w.lake,
        "drop a table": lambda w, text: w.lake.drop_table(f"db.{text}"),
        "open a branch": lambda w, text: load_table(w.lake.env, "t", branch=text),
        "path of a tag": lambda w, text: w.io.exists(w.table_one.store.layout.tag_path(text)),
        "path of a consumer": lambda w, text: w.io.exists(w.table_one.store.layout.consumer_path(text)),
        "set the data directory": lambda w, text: w.table(options={"data-file.path-directory": text or "../"}),
        "set the branch": lambda w, text: w.table(options={"branch": text}),
    }


MUST_REFUSE = {
    name: set(REFUSED)
    for name in name_entries()
    if name not in ("set the data directory", "list the tables of a database", "drop a database")
}
# A relative folder may have several components, and slashes at its end are dropped.
MUST_REFUSE["set the data directory"] = set(REFUSED) - {"a/b", "x/", "file:/etc/passwd"}


@pytest.mark.parametrize("entry", name_entries())
def test_a_hostile_name_is_refused_or_is_a_plain_name(world, entry):
    world.table_one = world.table()
    call = name_entries()[entry]
    for text in HOSTILE:
        with world.watching(f"{entry} {text[:40]!r}"):
            error = refusal(lambda text=text: call(world, text))
        if text in MUST_REFUSE.get(entry, ()):
            assert isinstance(error, InvalidInputError), text
            assert len(str(error)) < 2_000
            assert str(error).isprintable() or set(str(error)) <= {"\n", *filter(str.isprintable, str(error))}, text
    world.check_untouched()


def test_a_refused_table_leaves_nothing_behind(world):
    world.table()
    before = sorted(str(path) for path in world.root.rglob("*"))
    for text in REFUSED:
        assert refusal(lambda text=text: world.lake.create_table(f"db.{text}", {"id": "INT"})) is not None
        assert refusal(lambda text=text: world.lake.create_table(f"{text}.t", {"id": "INT"})) is not None
        assert refusal(lambda text=text: world.lake.create_database(text)) is not None
    assert sorted(str(path) for path in world.root.rglob("*")) == before


@given(text=st.text(max_size=30))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_refused_or_is_a_plain_name(world, text):
    for entry, call in name_entries().items():
        if entry in ("create a table", "open a branch", "look for a table", "list the tables of a database"):
            with world.watching(f"{entry} {text!r}"):
                refusal(lambda call=call: call(world, text))


# ------------------------------------------------------------------------------------------------ values of rows


def test_a_hostile_commit_user_gets_a_progress_file_inside_the_table(world):
    table = world.table()
    refused = []
    for number, text in enumerate(HOSTILE):
        with world.watching(f"commit user {text[:40]!r}"):
            sent = message(f"data-{number}")
            if refusal(lambda text=text, sent=sent: table.new_commit(text).commit([sent], identifier=1)):
                refused.append(text)
            elif text:  # without a name every job is its own user
                assert table.new_commit(text).commit([sent], identifier=1).repeated
    assert refused == ["\ud800", "a\udfff"]
    assert len(table.inspect.snapshots()) == len(HOSTILE) - len(refused)


@pytest.mark.parametrize("legacy", ["true", "false"])
def test_a_hostile_partition_value_names_a_folder_inside_the_table(world, legacy):
    options = {"partition.legacy-name": legacy, "partition.end-input-to-done": "true"}
    table = world.table(options=options)
    for number, text in enumerate(HOSTILE):
        try:
            partition = row(text)
        except TidelakeError:
            assert any(0xD800 <= ord(character) < 0xE000 for character in text)
            continue
        sent = message(f"data-{number}", partition)
        with world.watching(f"partition {text[:40]!r}"):
            refusal(lambda sent=sent: table.new_commit("u").commit([sent]))
            refusal(lambda sent=sent, number=number: table.new_commit(f"v{number}").abort([sent]))
    with world.watching("check"):
        refusal(table.check)
    for text in HOSTILE[::4]:
        with world.watching(f"overwrite {text[:40]!r}"):
            refusal(lambda text=text: table.new_commit("u").overwrite([], {"dt": text}, dynamic=False))
    folders = {path.name for path in Path(table.location).iterdir() if path.is_dir()}
    known = {"schema", "snapshot", "manifest", "progress"}
    assert all(name.startswith("dt=") for name in folders - known), folders - known


@pytest.mark.parametrize("entry", ["partition.default-name", "partition column"])
def test_a_hostile_default_name_or_column_name_stays_inside(world, entry):
    for text in HOSTILE:
        what = f"{entry} {text[:40]!r}"
        with world.watching(what):
            if entry == "partition column":
                made: list[Table] = []
                refusal(
                    lambda text=text, made=made: made.append(
                        world.lake.create_table(
                            world.fresh_name(),
                            {"id": "INT", text: "STRING"},
                            partition_by=[text],
                            options={"partition.end-input-to-done": "true"},
                        )
                    )
                )
            else:
                made = []
                options = {entry: text, "partition.end-input-to-done": "true"}
                refusal(lambda options=options, made=made: made.append(world.table(options=options)))
            for table in made:
                sent = message("data-1", row(None))
                refusal(lambda table=table, sent=sent: table.new_commit("u").commit([sent]))
                refusal(table.check)
                refusal(lambda table=table, sent=sent: table.new_commit("v").abort([sent]))


# ------------------------------------------------------------------------------------------------ messages of writers


@pytest.mark.parametrize("where", ["file name", "extra file"])
def test_a_hostile_name_in_a_message_is_refused_before_anything_is_written(world, where):
    table = world.table()
    table.new_commit("u").commit([message("data-0")])
    before = sorted(str(path) for path in world.root.rglob("*"))
    for text in REFUSED:
        sent = message(text) if where == "file name" else message("data-1", extra_files=(text,))
        with world.watching(f"{where} {text[:40]!r}"):
            for call in (table.new_commit("u").commit, table.new_commit("u").overwrite):
                error = refusal(lambda call=call, sent=sent: call([sent]))
                if text in (" ", "\x85"):  # odd, but they lead nowhere
                    continue
                assert isinstance(error, InvalidInputError), text
            error = refusal(lambda sent=sent: table.new_commit("v").abort([sent]))
            assert isinstance(error, FormatError | InvalidInputError), text
    assert {path for path in before if "/snapshot/" not in path} - set(map(str, world.root.rglob("*"))) == set()
    assert len(table.files()) >= 1


# ------------------------------------------------------------------------------------------------ metadata of others


def forge(table: Table, text: str, where: str) -> None:
    """Publish a second snapshot whose metadata holds a hostile text, as a hostile writer would."""
    store, io = table.store, table.store.env.io
    latest = table.latest_snapshot()
    assert latest is not None
    file = {"file_name": "data-9", "file_size": 6, "row_count": 1}
    file |= {"data file": {"file_name": text}, "extra file": {"extra_files": (text,)}}.get(where, {})
    file |= {"external path": {"external_path": text}}.get(where, {})
    entries = entries_table([(ADD, row("d1"), 0, -1, DataFile(**file))])
    data = encode_manifest(entries)
    name = "manifest-forged-0"
    io.write(f"manifest/{name}", data)
    meta: ManifestMeta = meta_of_entries(entries, name, len(data), store.schema.partition_types, schema_id=0)
    if where == "manifest":
        meta = replace(meta, file_name=text)
    io.write("manifest/manifest-list-forged-0", encode_manifest_list([meta]))
    index = None
    if where in ("index file", "index external path"):
        place = {"file_name": text} if where == "index file" else {"file_name": "index-1", "external_path": text}
        forged = IndexFile(**{"index_type": "HASH", "file_size": 1, "row_count": 1, **place})
        index = "index-manifest-forged-0"
        io.write(f"manifest/{index}", encode_index_manifest([IndexEntry(row("d1"), 0, forged)]))
    document = json.loads(snapshot_to_json(latest))
    document |= {"id": 2, "deltaManifestList": "manifest-list-forged-0", "indexManifest": index}
    document |= {"totalRecordCount": 2}
    document.pop("deltaManifestListSize", None)
    document |= {where: text} if where in SNAPSHOT_NAMES else {}
    io.write("snapshot/snapshot-2", json.dumps({k: v for k, v in document.items() if v is not None}).encode())


SNAPSHOT_NAMES = ("baseManifestList", "deltaManifestList", "changelogManifestList", "indexManifest", "statistics")
FORGED = (
    "data file",
    "extra file",
    "external path",
    "manifest",
    "index file",
    "index external path",
    *SNAPSHOT_NAMES,
)


def every_verb(table: Table, *, few: bool = False) -> list[TidelakeError | None]:
    """What each verb says; `few` tries only those that read and write everything."""
    sent = message("data-5")
    main: list[Callable[[], object]] = [table.files, table.check, lambda: table.new_commit("u").overwrite([sent])]
    others: list[Callable[[], object]] = [
        lambda: table.check(deep=True),
        table.inspect.snapshots,
        table.inspect.manifests,
        table.inspect.files,
        table.inspect.partitions,
        lambda: table.new_commit("u").commit([message("data-6")]),
        lambda: table.new_commit("u").compact_manifests(),
        lambda: table.new_commit("u").truncate(),
        lambda: table.new_commit("w").abort([message("data-7")]),
        table.reload,
    ]
    return [refusal(verb) for verb in (main if few else main + others)]


@pytest.mark.parametrize("where", FORGED)
def test_a_hostile_text_in_metadata_leads_nowhere(world, where):
    for number, text in enumerate(HOSTILE):
        table = world.table()
        table.new_commit("u").commit([message("data-0")])
        try:
            forge(table, text, where)
        except UnicodeEncodeError:
            continue  # the format has no bytes for this text
        with world.watching(f"{where} {text[:40]!r}"):
            errors = every_verb(table, few=number % 10 > 0)
        if (
            text in REFUSED
            and where in ("data file", "extra file", "manifest", *SNAPSHOT_NAMES)
            and text.strip(" \x85")
        ):
            assert any(isinstance(error, FormatError) for error in errors), text


@pytest.mark.parametrize("key", ["data-file.path-directory", "branch", "partition.default-name"])
def test_a_hostile_option_in_a_schema_of_another_writer_leads_nowhere(world, key):
    for text in HOSTILE:
        table = world.table()
        path = Path(table.location, "schema", "schema-0")
        document = json.loads(path.read_text())
        document["options"][key] = text
        path.write_text(json.dumps(document))
        with world.watching(f"{key} {text[:40]!r}"):
            opened: list[Table] = []
            refusal(lambda table=table, opened=opened: opened.append(world.lake.table(table.name)))
            for each in opened:
                every_verb(each, few=True)
                refusal(lambda each=each: each.new_commit("u").commit([message("data-2", row(None))]))


# ------------------------------------------------------------------------------------------------ links


def leading(place: Path, target: Path) -> None:
    """Replace a file or folder by a symbolic link."""
    if place.exists():
        place.rename(place.with_name(f"moved-{place.name}"))
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


LINKED = ("schema", "snapshot", "manifest", "dt=d1", "dt=d1/bucket-0", "schema/schema-0", "snapshot/snapshot-1")


@pytest.mark.parametrize("place", LINKED)
def test_a_link_out_of_the_table_is_not_followed(world, place):
    table = world.table(options={"partition.end-input-to-done": "true"})
    table.new_commit("u").commit([message("data-0")])
    outside = world.top / "outside"
    target = outside / "secret" if place.rpartition("/")[2].rpartition("-")[0] in ("schema", "snapshot") else outside
    leading(Path(table.location, place), target)
    world.io.inner._inside.clear()
    with world.watching(place):
        errors = [refusal(lambda: world.lake.table(table.name))]
        errors += (
            every_verb(
                Lake(FileSystemCatalog(Env(LocalFileIO(world.root), FakeClock(), SeededIds(2)))).table(table.name)
            )
            if (errors[0] is None)
            else []
        )
    assert any(errors), place
    assert all("canary" not in str(error) for error in errors if error)


@pytest.mark.parametrize("level", ["database", "table"])
def test_dropping_what_is_a_link_removes_the_link_and_nothing_behind_it(world, level):
    table = world.table()
    folder = Path(table.location) if level == "table" else Path(table.location).parent
    victim = world.top / "outside" / "victim.db"
    other = World(world.top / "outside")
    kept = other.table()
    (world.top / "outside" / "precious").write_text("canary")
    world._before = tree(world.top, world.root)
    leading(folder, Path(kept.location) if level == "table" else victim)
    with world.watching(f"drop {level}"):
        if level == "table":
            refusal(lambda: world.lake.drop_table(table.name))
        refusal(lambda: world.lake.drop_database("db", cascade=True))
    world.check_untouched()
    assert kept.reload().schema == kept.schema


def test_names_that_differ_only_in_case_or_form_are_two_tables(world):
    names = ["db.Table", "db.table", "db.e\u0301", "db.é"]
    for name in names:
        world.lake.create_table(name, {"id": "INT"})
    assert len(world.lake.tables("db")) == len(names)
    world.lake.drop_table(names[0])
    assert names[1] in world.lake
