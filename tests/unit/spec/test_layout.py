"""Where the files of a table lie, and the hint files that point at them."""

import pickle

import pytest

from tidelake.errors import FormatError, InvalidInputError
from tidelake.spec.documents.hint import hint_bytes, parse_hint
from tidelake.spec.layout import (
    EARLIEST,
    LATEST,
    POSTPONE_BUCKET,
    TableLayout,
    branch_dir,
    bucket_name,
    database_dir,
    parse_bucket_name,
    parse_database_dir,
    parse_named,
    parse_numbered,
    table_dir,
)

MAIN = TableLayout()
BRANCH = TableLayout("dev", "data/files/")


def test_the_main_branch_lies_at_the_root():
    assert MAIN.schema_path(0) == "schema/schema-0"
    assert MAIN.snapshot_path(12) == "snapshot/snapshot-12"
    assert MAIN.snapshot_hint_path(LATEST) == "snapshot/LATEST"
    assert MAIN.changelog_path(3) == "changelog/changelog-3"
    assert MAIN.changelog_hint_path(EARLIEST) == "changelog/EARLIEST"
    assert MAIN.tag_path("2026-11-15 10") == "tag/tag-2026-11-15 10"
    assert MAIN.tag_success_path("x") == "tag/tag-success-file/x_SUCCESS"
    assert MAIN.consumer_path("me") == "consumer/consumer-me"
    assert MAIN.bucket_dir("", 0) == "bucket-0"
    assert MAIN.bucket_dir("dt=1/hh=2", 3) == "dt=1/hh=2/bucket-3"
    assert MAIN.data_path("dt=1", POSTPONE_BUCKET, "data-x-0.parquet") == "dt=1/bucket-postpone/data-x-0.parquet"
    assert MAIN.success_path("dt=1") == "dt=1/_SUCCESS"
    assert MAIN.success_path("") == "_SUCCESS"


def test_a_branch_has_its_own_history_and_shares_everything_else():
    assert BRANCH.schema_path(1) == "branch/branch-dev/schema/schema-1"
    assert BRANCH.snapshot_path(1) == "branch/branch-dev/snapshot/snapshot-1"
    assert BRANCH.changelog_path(1) == "branch/branch-dev/changelog/changelog-1"
    assert BRANCH.tag_path("t") == "branch/branch-dev/tag/tag-t"
    assert BRANCH.consumer_path("c") == "branch/branch-dev/consumer/consumer-c"
    for layout in (MAIN, BRANCH):
        assert layout.manifest_path("manifest-list-u-0") == "manifest/manifest-list-u-0"
        assert layout.index_path("index-u-0") == "index/index-u-0"
        assert layout.statistics_path("stat-u-0") == "statistics/stat-u-0"


def test_the_data_directory_stands_in_front_of_data_only():
    assert BRANCH.data_directory == "data/files"
    assert BRANCH.bucket_dir("dt=1", 0) == "data/files/dt=1/bucket-0"
    assert BRANCH.bucket_dir("", 0) == "data/files/bucket-0"


def test_warehouse_folders():
    assert database_dir("shop") == "shop.db"
    assert table_dir("shop", "orders") == "shop.db/orders"
    assert branch_dir("b") == "branch/branch-b"
    assert parse_database_dir("shop.db") == "shop"
    assert parse_database_dir("a.db.db") == "a.db"
    for name in (".db", "shop", "shop.dbx", ""):
        assert parse_database_dir(name) is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: TableLayout("main2/x"),
        lambda: TableLayout("12"),
        lambda: TableLayout(data_directory="../x"),
        lambda: MAIN.schema_path(-1),
        lambda: MAIN.snapshot_path(0),
        lambda: MAIN.snapshot_path(2**63),
        lambda: MAIN.snapshot_hint_path("latest"),
        lambda: MAIN.tag_path("a/b"),
        lambda: MAIN.consumer_path(".."),
        lambda: MAIN.bucket_dir("", -1),
        lambda: MAIN.bucket_dir("../dt=1", 0),
        lambda: MAIN.bucket_dir("/dt=1", 0),
        lambda: MAIN.bucket_dir("dt=1//hh=2", 0),
        lambda: branch_dir("main"),
        lambda: database_dir("a/b"),
        lambda: table_dir("a", ""),
        lambda: bucket_name(-3),
    ],
)
def test_arguments_without_a_place_are_refused(make):
    with pytest.raises(InvalidInputError):
        make()


@pytest.mark.parametrize("make", [MAIN.manifest_path, MAIN.index_path, MAIN.statistics_path])
def test_file_names_from_metadata_cannot_climb(make):
    for name in ("../x", "/etc/passwd", "", ".x", "a\\b"):
        with pytest.raises(FormatError):
            make(name)


@pytest.mark.parametrize(
    ("name", "number"), [("snapshot-1", 1), ("snapshot-0", 0), (f"snapshot-{2**63 - 1}", 2**63 - 1)]
)
def test_a_numbered_name_gives_its_number(name, number):
    assert parse_numbered(name, "snapshot-") == number


@pytest.mark.parametrize(
    "name",
    [
        "snapshot-",
        "snapshot",
        "1",
        "snapshot-01",
        "snapshot--1",
        "snapshot-+1",
        "snapshot-1 ",
        "snapshot- 1",
        "snapshot-1_0",
        "snapshot-\u0661",
        "snapshot-²",
        "snapshot-1a2b.tmp",
        ".snapshot-1.uuid.tmp",
        f"snapshot-{2**63}",
        "snapshot-" + "9" * 5000,
        "changelog-1",
        "snapshot-snapshot-1",
    ],
)
def test_names_that_only_look_numbered_are_ignored(name):
    assert parse_numbered(name, "snapshot-") is None


def test_bucket_folders_are_recognised():
    for bucket in (POSTPONE_BUCKET, 0, 17):
        assert parse_bucket_name(bucket_name(bucket)) == bucket
    for name in ("bucket-", "bucket--2", "bucket-x", "bucket"):
        assert parse_bucket_name(name) is None


def test_named_files_are_recognised():
    assert parse_named("tag-a b", "tag-") == "a b"
    assert parse_named("tag-", "tag-") is None
    assert parse_named("a b", "tag-") is None


def test_layouts_are_values():
    assert pickle.loads(pickle.dumps(BRANCH)) == BRANCH == TableLayout("dev", "data/files")
    assert len({MAIN, TableLayout(), BRANCH}) == 2


@pytest.mark.parametrize(
    ("data", "number"), [(b"1", 1), (b"12\n", 12), (b" 7 ", 7), (str(2**63 - 1).encode(), 2**63 - 1)]
)
def test_a_hint_is_a_positive_number(data, number):
    assert parse_hint(data) == number


@pytest.mark.parametrize(
    "data",
    [b"", b"0", b"-1", b"+1", b"1.0", b"1e3", b"x", b"\xff", "١".encode(), str(2**63).encode(), b"9" * 10**6, b"1 2"],
)
def test_a_broken_hint_counts_as_absent(data):
    assert parse_hint(data) is None


def test_hints_are_written_without_a_newline():
    assert hint_bytes(42) == b"42"
    assert parse_hint(hint_bytes(2**63 - 1)) == 2**63 - 1
    for number in (0, -1, 2**63):
        with pytest.raises(InvalidInputError):
            hint_bytes(number)
