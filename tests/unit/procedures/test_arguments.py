"""Arguments come by position, by name or both, and what does not fit is refused by name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.procedures.arguments import (
    BOOLEAN,
    BUCKETS,
    INTEGER,
    MOMENT,
    NAMES,
    OPTIONS,
    PARTITIONS,
    PAST,
    SPAN,
    TEXT,
    Argument,
    Kind,
    bind,
    choice,
)
from tidelake.procedures.registry import find_procedure

DECLARED = (
    Argument("table", TEXT, "The table.", required=True),
    Argument("ignoreIfExists", BOOLEAN, "Do nothing.", default=False),
    Argument("snapshot", INTEGER, "The snapshot."),
)


def test_positions_and_names_mean_the_same() -> None:
    expected = {"table": "db.t", "ignoreIfExists": True, "snapshot": 7}
    assert bind("p", DECLARED, ["db.t", True, 7], {}) == expected
    assert bind("p", DECLARED, ["db.t"], {"snapshot": "7", "ignoreIfExists": "TRUE"}) == expected
    assert bind("p", DECLARED, [], {"TABLE": "db.t", "ignoreifexists": True, "Snapshot": 7}) == expected


def test_what_is_not_given_has_its_default() -> None:
    assert bind("p", DECLARED, ["db.t"], {"snapshot": None}) == {
        "table": "db.t",
        "ignoreIfExists": False,
        "snapshot": None,
    }


@pytest.mark.parametrize(
    ("positional", "named", "code", "text"),
    [
        ([], {}, "argument-missing", "p takes table, [ignoreIfExists], [snapshot]"),
        ([], {"table": None}, "argument-missing", "argument=`table`"),
        (["t"], {"snapshto": 1}, "argument-unknown", "did you mean snapshot?"),
        (["t"], {"zzz": 1}, "argument-unknown", "p takes table"),
        (["t", True, 1, 2], {}, "argument-unknown", "given=`4`"),
        (["t"], {"table": "u"}, "argument-twice", "argument=`table`"),
        ([], {"table": "t", "Table": "u"}, "argument-twice", "argument=`table`"),
        (["t"], {"snapshot": "seven"}, "argument-type", "argument is not a whole number"),
        (["t"], {"snapshot": True}, "argument-type", "value=`True`"),
        (["t"], {"ignoreIfExists": "yes"}, "argument-type", "argument is not true or false"),
        ([7], {}, "argument-type", "argument is not a text"),
        ([" "], {}, "argument-type", "argument is not a text"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(positional, named, code, text) -> None:
    with pytest.raises(InvalidInputError) as caught:
        bind("p", DECLARED, positional, named)
    assert caught.value.code == code
    assert caught.value.facts["procedure"] == "p"
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (NAMES, "a", ("a",)),
        (NAMES, " a , b", ("a", "b")),
        (NAMES, ["a", "b,c"], ("a", "b,c")),
        (PARTITIONS, "dt=1", ({"dt": "1"},)),
        (PARTITIONS, "dt=1, hh=2 ; dt=3;", ({"dt": "1", "hh": "2"}, {"dt": "3"})),
        (PARTITIONS, "dt=a=b", ({"dt": "a=b"},)),
        (PARTITIONS, {"dt": 1}, ({"dt": 1},)),
        (PARTITIONS, [{"dt": 1}, {"dt": None}], ({"dt": 1}, {"dt": None})),
        (OPTIONS, "a=1,b=x,", {"a": "1", "b": "x"}),
        (OPTIONS, {"write-only": True}, {"write-only": "true"}),
        (BUCKETS, "0,2-5", "0,2-5"),
        (BUCKETS, [0, 2], [0, 2]),
        (BUCKETS, 3, [3]),
        (SPAN, "1 d", 86_400_000),
        (SPAN, timedelta(hours=1), 3_600_000),
        (MOMENT, "1700000000000", 1_700_000_000_000),
        (MOMENT, 1_700_000_000_000, 1_700_000_000_000),
        (MOMENT, datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC), 1_700_000_000_000),
        (MOMENT, "2023-11-14 22:13:20Z", 1_700_000_000_000),
        (PAST, "7 d", "7 d"),
        (PAST, "2026-11-15 12:00:00", "2026-11-15 12:00:00"),
        (PAST, timedelta(days=2), timedelta(days=2)),
        (choice("full", "minor"), "FULL", "full"),
    ],
)
def test_a_value_is_read_as_its_kind(kind: Kind, value: object, expected: object) -> None:
    assert bind("p", [Argument("x", kind, "It.")], [value], {}) == {"x": expected}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (NAMES, "a,,b"),
        (NAMES, ""),
        (NAMES, 7),
        (NAMES, []),
        (NAMES, [1]),
        (PARTITIONS, "dt"),
        (PARTITIONS, ""),
        (PARTITIONS, "dt=1,dt=2"),
        (PARTITIONS, "=1"),
        (PARTITIONS, 7),
        (PARTITIONS, []),
        (PARTITIONS, [{}]),
        (PARTITIONS, ["dt=1"]),
        (OPTIONS, "a"),
        (OPTIONS, 7),
        (OPTIONS, {"a": [1]}),
        (BUCKETS, 1.5),
        (BUCKETS, ["0"]),
        (BUCKETS, True),
        (SPAN, "soon"),
        (SPAN, True),
        (SPAN, 1.5),
        (MOMENT, "soon"),
        (MOMENT, 1.5),
        (MOMENT, True),
        (PAST, "12"),
        (PAST, "soon"),
        (PAST, 1.5),
        (choice("full", "minor"), "most"),
        (choice("full", "minor"), 1),
        (TEXT, b"x"),
        (INTEGER, 1.0),
        (INTEGER, "9" * 30),
        (BOOLEAN, 1),
    ],
)
def test_a_value_of_another_kind_is_refused(kind: Kind, value: object) -> None:
    with pytest.raises(InvalidInputError) as caught:
        bind("p", [Argument("x", kind, "It.")], [value], {})
    assert (caught.value.facts["procedure"], caught.value.facts["argument"]) == ("p", "x")


@pytest.mark.parametrize("name", ["compact", "COMPACT", "sys.compact", "SYS.Compact"])
def test_a_procedure_is_found_in_any_case_and_with_its_schema(name: str) -> None:
    assert find_procedure(name).name == "compact"


@pytest.mark.parametrize(
    ("name", "help_text"),
    [
        ("compcat", "did you mean compact?"),
        ("sys.create_tags", "did you mean create_tag?"),
        ("x", "procedures are clear_consumers, compact"),
    ],
)
def test_an_unknown_procedure_names_the_nearest(name: str, help_text: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        find_procedure(name)
    assert caught.value.code == "procedure-not-found"
    assert help_text in (caught.value.hint or "")
