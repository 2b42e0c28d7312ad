"""Texts by the numbers of a dictionary: what a key column is where a file stores few values many times."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tidelake.errors import InvalidInputError
from tidelake.lsm.coded import Coded
from tidelake.lsm.engines.deduplicate import Deduplicate
from tidelake.lsm.kernel import MergePlan, Piece, merge
from tidelake.lsm.keys import Columns, KeyCodec, concat, count_up_to, key_at, locate, window
from tidelake.lsm.packing import pack

CODEC = KeyCodec(("t", "n"), (pa.string(), pa.int32()))


def coded(texts: list[str], values: list[str]) -> pa.DictionaryArray:
    codes = pa.array([values.index(text) for text in texts], pa.int32())
    return pa.DictionaryArray.from_arrays(codes, pa.array(values, pa.string()))


def rows(texts: list[str], values: list[str] | None = None, **columns: pa.Array) -> pa.Table:
    column = pa.array(texts, pa.string()) if values is None else coded(texts, values)
    numbers = pa.array(range(len(texts)), pa.int32())
    return pa.table({"t": column, "n": numbers, **columns})


@pytest.mark.parametrize("values", [["a", "b", "c"], ["c", "a", "b"], ["x", "b", "", "a", "c"]])
def test_numbers_ascend_as_the_texts_do_whatever_the_order_of_the_dictionary(values):
    found = Coded.of(coded(["b", "a", "c", "a"], values))
    assert found.plain().to_pylist() == [b"b", b"a", b"c", b"a"]
    assert found.values.to_pylist() == sorted(value.encode() for value in values)


def test_a_value_that_is_twice_in_the_dictionary_has_one_number():
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.array(["b", "a", "b"]))
    found = Coded.of(array)
    assert found.codes.tolist() == [1, 0, 1]
    assert found.values.to_pylist() == [b"a", b"b"]


@pytest.mark.parametrize(("text", "expected"), [("", 0), ("a", 2), ("b", 2), ("c", 5), ("d", 6), ("e", 6)])
def test_rows_up_to_a_bound_are_counted_although_the_bound_is_not_in_the_dictionary(text, expected):
    texts = ["a", "a", "c", "c", "c", "d"]
    keys = CODEC.encode(rows(texts, ["a", "c", "d"]))
    assert count_up_to(keys, (text.encode(), (1 << 64) - 1)) == expected
    assert count_up_to(CODEC.encode(rows(texts)), (text.encode(), (1 << 64) - 1)) == expected


def test_a_dictionary_and_plain_texts_are_the_same_keys():
    texts = ["a", "a", "b", "d"]
    plain, numbered = CODEC.encode(rows(texts)), CODEC.encode(rows(texts, ["d", "b", "a", "unused"]))
    assert isinstance(numbered, Columns)
    assert isinstance(numbered.arrays[0], Coded)
    assert [key_at(plain, place) for place in range(4)] == [key_at(numbered, place) for place in range(4)]
    assert plain.join_columns().equals(numbered.join_columns())
    for sorted_parts in (True, False):
        one, other = window([plain, numbered], sorted_parts=sorted_parts)
        assert one.words.tolist() == other.words.tolist()


def test_a_dictionary_elsewhere_than_in_the_first_column_is_read_as_plain_texts():
    codec = KeyCodec(("n", "t"), (pa.int32(), pa.string()))
    table = rows(["b", "a"], ["a", "b"])
    assert [key_at(codec.encode(table), place)[1] for place in range(2)] == [b"b", b"a"]
    alone = KeyCodec(("t",), (pa.string(),))
    assert alone.encode(table).to_pylist() == [b"b", b"a"]


def test_a_null_in_a_dictionary_is_not_a_key():
    column = pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int32()), pa.array(["a"]))
    with pytest.raises(InvalidInputError, match="null"):
        CODEC.encode(pa.table({"t": column, "n": pa.array([1, 2], pa.int32())}))


def test_keys_with_equal_words_are_compared_as_whole_keys():
    codec = KeyCodec(("t", "s"), (pa.string(), pa.string()))
    tails = [f"{'p' if n < 4 else 'q'}{'x' * 20}{n:03d}" for n in range(6)]

    def table(texts, values=None):
        return pa.table({"t": rows(texts, values).column("t"), "s": tails[: len(texts)]})

    texts = ["a", "a", "a", "b", "b", "c"]
    held, one, other = window(
        [codec.encode(table(texts, ["c", "b", "a"])), codec.encode(table(texts)), codec.encode(table(["a"], ["a"]))]
    )
    assert held.words[0] == held.words[2]
    places, hits = locate(held, concat([one, other]))
    assert places.tolist() == [0, 1, 2, 3, 4, 5, 0]
    assert hits.all()


def test_a_word_has_room_for_all_columns_of_the_widest_range():
    numbers = [pa.array([-(2**31), 0, 2**31 - 1], pa.int32()), pa.array([5, -7], pa.int32())]
    texts = [Coded.of(coded(["a", "b", "c"], ["a", "b", "c"])), Coded.of(coded(["a", "c"], ["c", "a"]))]
    flags = [pa.array([True, False, True]), pa.array([False, True])]
    words, exact = pack([texts, numbers, flags], sorted_parts=True)
    assert exact
    every = sorted(np.concatenate(words).tolist())
    assert len(set(every)) == 5
    assert [*words[0].tolist(), *words[1].tolist()] == [every[place] for place in (0, 2, 4, 1, 3)]


def test_a_word_that_is_full_keeps_the_order_and_says_that_it_is_not_all():
    first = [pa.array([0, 2**62], pa.int64())]
    second = [pa.array([-(2**62), 2**62], pa.int64())]
    words, exact = pack([first, second], sorted_parts=True)
    assert not exact
    assert words[0][0] < words[0][1]


@pytest.mark.parametrize("output", [None, ("v",), ("t", "v"), ("n",)])
@pytest.mark.parametrize("ordered", [False, True])
def test_pieces_with_and_without_a_dictionary_are_merged_into_plain_rows(output, ordered):
    def piece(texts, values, number, age):
        return Piece(rows(texts, values, v=pa.array([number] * len(texts))), age)

    texts = ["a", "a", "b", "c"]
    runs = [
        [piece(texts, ["c", "a", "b"], 0, 0), Piece(pa.table({"t": ["d"], "n": pa.array([9], pa.int32()), "v": [0]}))],
        [piece(texts[:2], None, 1, 1)],
        [piece(texts[:1], ["z", "a"], 2, 2)],
    ]
    plan = MergePlan(CODEC, Deduplicate(), by_age=True, ordered=ordered, output=output)
    found = pa.concat_tables(list(merge([iter(run) for run in runs], plan)))
    expected = [("a", 0, 2), ("a", 1, 1), ("b", 2, 0), ("c", 3, 0), ("d", 9, 0)]
    names = ("t", "n", "v") if output is None else output
    wanted = [{name: row["tnv".index(name)] for name in names} for row in expected]
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, wanted))
    if ordered:
        assert found.to_pylist() == wanted
    if "t" in names:
        assert found.schema.field("t").type == pa.string()
