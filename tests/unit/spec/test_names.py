"""The name gate."""

import pytest

from tidelake.errors import FormatError, InvalidInputError
from tidelake.spec.names import check_file_name, check_name, check_relative_directory

KINDS = ("database", "table", "branch", "tag", "consumer")

BAD = [
    "",
    " ",
    "\t",
    "\u3000",
    ".",
    "..",
    ".hidden",
    "a/b",
    "/a",
    "a/",
    "..\\a",
    "a\\b",
    "a\x00b",
    "a\nb",
    "a\x7f",
    "a\x85b",
    "\ud800",
    "é" * 128,
    "a" * 256,
]
GOOD = ["a", "2026-11-15 10", "été", "表", "a.b", "a..b", "-", "a'b\"c", "x=y", "~", "%2F", "a" * 240, "😀" * 60, "1a"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", GOOD)
def test_any_plain_unicode_text_is_a_name(kind, name):
    assert check_name(kind, name) == name
    assert check_file_name(name, path="p") == name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BAD)
def test_what_could_leave_its_folder_is_no_name(kind, name):
    with pytest.raises(InvalidInputError, match=f"^{kind} name ") as error:
        check_name(kind, name)
    assert str(error.value).isprintable() or "\nhelp: " in str(error.value)
    assert error.value.hint


@pytest.mark.parametrize("name", BAD)
def test_the_same_names_inside_metadata_are_format_errors(name):
    with pytest.raises(FormatError) as error:
        check_file_name(name, path="t/snapshot/snapshot-7")
    assert error.value.facts["path"] == "t/snapshot/snapshot-7"
    assert "\x00" not in str(error.value)


@pytest.mark.parametrize(
    ("kind", "longest"), [("database", 252), ("table", 255), ("branch", 248), ("tag", 251), ("consumer", 246)]
)
def test_a_name_fits_with_what_the_layout_adds_to_it(kind, longest):
    assert check_name(kind, "a" * longest)
    with pytest.raises(InvalidInputError, match=f"longer than {longest} bytes"):
        check_name(kind, "a" * (longest + 1))


@pytest.mark.parametrize("name", ["main", "1", "007", "٣"])
def test_names_that_mean_something_else_are_no_branches(name):
    with pytest.raises(InvalidInputError):
        check_name("branch", name)
    assert check_name("tag", name) == name


@pytest.mark.parametrize(("given", "kept"), [("data", "data"), ("a/b c/d", "a/b c/d"), ("data/", "data"), ("a//", "a")])
def test_a_relative_directory_may_have_several_plain_components(given, kept):
    assert check_relative_directory(given) == kept


@pytest.mark.parametrize(
    "directory", ["", "/", "/data", "a//b", "../x", "a/../b", "a/./b", "a\\b", "s3://x", ".a", "a/\x00"]
)
def test_a_directory_that_is_absolute_or_climbs_is_refused(directory):
    with pytest.raises(InvalidInputError):
        check_relative_directory(directory)
