"""Hash codes of BinaryRows: Murmur3 (x86, 32 bit, seed 42) over the row bytes without the arity prefix.

The hash decides the bucket of a row, so it is computed for every row that is written. Keys of fixed width and single
string keys are therefore hashed directly from their columns; all others are encoded to rows first. The arithmetic uses
32-bit lanes over chunks that fit into the cache. NumPy releases the interpreter lock, so that callers gain from passing
an executor. Invariant: `hash_rows(columns, types)` equals `hash_bytes` of the encoded rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.spec.rows.binary_row_encode import Cells, canonical, encode_rows, inline_slots, octets, to_cells, validity
from tidelake.spec.rows.binary_row_layout import (
    INLINE_MAX,
    NULL_BITS_START,
    Family,
    element_width,
    family,
    null_bits_size,
)
from tidelake.spec.types.data_types import DataType

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["hash_bytes", "hash_rows"]

_Lane = npt.NDArray[np.uint32]
_Hashes = npt.NDArray[np.int32]
_Word = int | npt.NDArray[np.unsignedinteger[Any]]
_Sizes = npt.NDArray[np.int64]
_Bytes = npt.NDArray[np.uint8]

_SEED: Final = 42
_MASK: Final = 0xFFFFFFFF
_CHUNK_ROWS: Final = 1 << 16
"""Rows hashed at a time: a few 32-bit lanes of this length fit into the cache."""
_SHARED_CHUNK_ROWS: Final = 1 << 17
"""The same with an executor: threads compete for the interpreter lock at each step, so steps must be longer."""
_TASK_ROWS: Final = 1 << 18
"""Rows of one task of an executor."""
_FEW_ROWS: Final = 8
"""With fewer rows than this, a step on arrays costs more than steps on the Python integers of each row."""


def hash_rows(
    columns: Sequence[pa.Array | pa.ChunkedArray],
    types: Sequence[DataType],
    *,
    length: int | None = None,
    executor: Executor | None = None,
) -> _Hashes:
    """The hash code of the BinaryRow of every row of the columns.

    Args:
        columns: Arrow arrays of equal length.
        types: The type of each column.
        length: The number of rows; only needed without columns.
        executor: Runs parts of the work in parallel; None runs them in this thread.

    Raises:
        InvalidInputError: Columns and types do not agree, or a value does not fit its type.
    """
    if len(columns) != len(types):
        raise InvalidInputError("number of columns and number of types differ", columns=len(columns), types=len(types))
    if not columns:
        return hash_bytes(encode_rows([], [], arity_prefix=False, length=length))
    if len({len(column) for column in columns} | ({length} if length is not None else set())) != 1:
        raise InvalidInputError("columns differ in length", lengths=[len(column) for column in columns])
    families = [family(dtype) for dtype in types]
    hash_chunk: Callable[[Sequence[pa.Array], Sequence[DataType], _Hashes], None]
    if families == [Family.BYTES]:
        hash_chunk = _hash_strings
    elif all(item not in (Family.BYTES, Family.NESTED) for item in families):
        hash_chunk = _hash_fixed
    else:
        hash_chunk = _hash_encoded
    out = np.empty(len(columns[0]), np.int32)
    chunk_rows = _CHUNK_ROWS if executor is None else _SHARED_CHUNK_ROWS

    def work(task: tuple[int, Sequence[pa.Array]]) -> None:
        start, parts = task
        parts = [canonical(part, dtype) for part, dtype in zip(parts, types, strict=True)]
        for first in range(0, len(parts[0]), chunk_rows):
            chunk = [part.slice(first, chunk_rows) for part in parts]
            hash_chunk(chunk, types, out[start + first : start + first + len(chunk[0])])

    for _ in map(work, _tasks(columns)) if executor is None else executor.map(work, _tasks(columns)):
        pass
    return out


def hash_bytes(rows: pa.BinaryArray | pa.LargeBinaryArray) -> _Hashes:
    """The hash codes of encoded rows without arity prefix.

    Raises:
        InvalidInputError: A row is null, or its size is not a multiple of four.
    """
    if rows.null_count:
        raise InvalidInputError("row is null", row=rows.is_null().index(True).as_py())
    out = np.empty(len(rows), np.int32)
    for first in range(0, len(rows), _CHUNK_ROWS):
        chunk = rows.slice(first, _CHUNK_ROWS)
        data, offsets = octets(chunk)
        starts, sizes = offsets[:-1], np.diff(offsets)
        if (sizes % 4).any():
            row = first + int(np.argmax(sizes % 4 != 0))
            raise InvalidInputError("size of a row is not a multiple of four", row=row)
        states = np.full(len(chunk), _SEED, np.uint32)
        _fold_ragged(states, data, starts, sizes, sizes // 4)
        _finish(states, sizes.astype(np.uint32), out[first : first + len(chunk)])
    return out


def _tasks(columns: Sequence[pa.Array | pa.ChunkedArray]) -> Iterator[tuple[int, Sequence[pa.Array]]]:
    """Slices of all columns, each one chunk per column, with the number of their first row."""
    start = 0
    table = pa.Table.from_arrays(list(columns), [str(index) for index in range(len(columns))])
    for batch in table.to_batches(max_chunksize=_TASK_ROWS):
        yield start, batch.columns
        start += len(batch)


# ------------------------------------------------------------------------------------------------ murmur


def _mix_word(word: int) -> int:
    word = word * 0xCC9E2D51 & _MASK
    word = (word << 15 | word >> 17) & _MASK
    return word * 0x1B873593 & _MASK


def _step(state: int, mixed: int) -> int:
    state ^= mixed
    state = (state << 13 | state >> 19) & _MASK
    return (state * 5 + 0xE6546B64) & _MASK


def _mix_lane(word: npt.NDArray[Any], out: _Lane, spare: _Lane) -> None:
    np.multiply(word, np.uint32(0xCC9E2D51), out=out)
    np.left_shift(out, np.uint32(15), out=spare)
    np.right_shift(out, np.uint32(17), out=out)
    np.bitwise_or(out, spare, out=out)
    np.multiply(out, np.uint32(0x1B873593), out=out)


def _step_lane(state: _Lane, mixed: _Lane | np.uint32, spare: _Lane) -> None:
    np.bitwise_xor(state, mixed, out=state)
    np.left_shift(state, np.uint32(13), out=spare)
    np.right_shift(state, np.uint32(19), out=state)
    np.bitwise_or(state, spare, out=state)
    np.multiply(state, np.uint32(5), out=state)
    np.add(state, np.uint32(0xE6546B64), out=state)


def _fold(words: Sequence[_Word], count: int, state: int | _Lane = _SEED) -> _Lane:
    """Fold words into the state. A word is the same for all rows (an int) or one per row (a lane)."""
    mixed, spare = np.empty(count, np.uint32), np.empty(count, np.uint32)
    for word in words:
        if isinstance(word, int):
            if isinstance(state, int):
                state = _step(state, _mix_word(word))
            else:
                _step_lane(state, np.uint32(_mix_word(word)), spare)
            continue
        if isinstance(state, int):
            state = np.full(count, state, np.uint32)
        _mix_lane(word, mixed, spare)
        _step_lane(state, mixed, spare)
    return np.full(count, state, np.uint32) if isinstance(state, int) else state


def _finish(state: _Lane, size: np.uint32 | _Lane, out: _Hashes) -> None:
    """Write the hash codes of rows with these sizes in bytes to `out`; overwrites `state`."""
    spare = np.empty_like(state)
    np.bitwise_xor(state, size, out=state)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        np.right_shift(state, np.uint32(shift), out=spare)
        np.bitwise_xor(state, spare, out=state)
        np.multiply(state, np.uint32(factor), out=state)
    np.right_shift(state, np.uint32(16), out=spare)
    np.bitwise_xor(state, spare, out=out.view(np.uint32))


# ------------------------------------------------------------------------------------------------ paths


def _hash_encoded(columns: Sequence[pa.Array], types: Sequence[DataType], out: _Hashes) -> None:
    out[:] = hash_bytes(encode_rows(columns, types, arity_prefix=False))


def _hash_fixed(columns: Sequence[pa.Array], types: Sequence[DataType], out: _Hashes) -> None:
    """Rows with the same layout for all values: the words come directly from the cells."""
    cells = [to_cells(column, dtype) for column, dtype in zip(columns, types, strict=True)]
    words = _header_words(cells, len(out))
    payloads: list[_Word] = []
    cursor = null_bits_size(len(cells)) + 8 * len(cells)
    for cell, dtype in zip(cells, types, strict=True):
        halves = cell.slots.view(np.uint32)
        if cell.payload is None:
            words += [halves[::2], 0 if element_width(dtype) <= 4 else halves[1::2]]
        else:
            words += [halves[::2], cursor]
            lanes = cell.payload.view(np.uint32).reshape(len(out), -1)
            payloads += [lanes[:, index] for index in range(lanes.shape[1])]
            cursor += 4 * lanes.shape[1]
    _finish(_fold([*words, *payloads], len(out)), np.uint32(cursor), out)


def _header_words(cells: Sequence[Cells], count: int) -> list[_Word]:
    words: list[_Word] = [0] * (null_bits_size(len(cells)) // 4)
    for index, cell in enumerate(cells):
        if cell.nulls is not None:
            word, bit = divmod(index + NULL_BITS_START, 32)
            flags = cell.nulls.astype(np.uint32) << np.uint32(bit)
            before = words[word]
            words[word] = flags if isinstance(before, int) else np.bitwise_or(before, flags)
    assert all(isinstance(word, int) or len(word) == count for word in words)
    return words


def _hash_strings(columns: Sequence[pa.Array], _: Sequence[DataType], out: _Hashes) -> None:
    """Rows of one string or binary: header, slot, and the padded bytes if they do not fit into the slot."""
    (column,) = columns
    count = len(column)
    data, offsets = octets(column)
    starts, sizes = offsets[:-1], np.diff(offsets)
    nulls = validity(column)
    fixed_size = null_bits_size(1) + 8
    if nulls is None and count and sizes[0] > INLINE_MAX and (sizes == sizes[0]).all():
        size = int(sizes[0])
        state = _fold([0, 0, size, fixed_size, *_even_words(data, int(starts[0]), size, count)], count)
        _finish(state, np.uint32(fixed_size + (size + 7 & ~7)), out)
        return
    header: _Word = 0
    if nulls is not None:
        sizes = np.where(nulls, 0, sizes)
        header = nulls.astype(np.uint32) << np.uint32(NULL_BITS_START)
    long = sizes > INLINE_MAX
    slots = np.where(long, sizes.astype(np.uint64) | np.uint64(fixed_size << 32), inline_slots(data, starts, sizes))
    if nulls is not None:
        slots[nulls] = 0
    halves = slots.view(np.uint32)
    state = _fold([header, 0, halves[::2], halves[1::2]], count)
    words = np.where(long, (sizes + 7) // 8 * 2, 0)
    _fold_ragged(state, data, starts, sizes, words)
    _finish(state, (fixed_size + 4 * words).astype(np.uint32), out)


def _even_words(data: _Bytes, start: int, size: int, count: int) -> Iterator[_Word]:
    """The padded words of strings of equal size that are stored without gaps."""
    for offset in range(0, size - 3, 4):
        yield np.ndarray((count,), np.dtype("<u4"), data, start + offset, (size,))
    rest = size % 4
    if rest:
        last = np.zeros((count, 4), np.uint8)
        last[:, :rest] = data[start : start + size * count].reshape(count, size)[:, size - rest :]
        yield last.view("<u4")[:, 0]
    if (size + 3) // 4 % 2:
        yield 0


def _fold_ragged(state: _Lane, data: _Bytes, starts: _Sizes, sizes: _Sizes, words: _Sizes) -> None:
    """Fold `words[i]` words of string i, which are its `sizes[i]` bytes and then zeros, into `state[i]`.

    The strings are sorted from long to short, so that step j works on a prefix of them. The last few are finished one
    at a time, because a step on such short arrays costs more.
    """
    order = np.argsort(-words, kind="stable")
    starts, sizes, words = starts[order], sizes[order], words[order]
    longest = int(words[0]) if len(words) else 0
    # active[j]: how many strings have more than j words.
    active = len(words) - np.searchsorted(words[::-1], np.arange(longest + 3), side="right")
    sorted_state = state[order]
    mixed, spare = np.empty(len(state), np.uint32), np.empty(len(state), np.uint32)
    if starts.max(initial=0) + sizes.max(initial=0) + 4 > len(data) and longest:
        first = int(starts.min())
        data = np.concatenate([data[first : int((starts + sizes).max())], np.zeros(8, np.uint8)])
        starts = starts - first
    step = 0
    every = np.ndarray((max(len(data) - 3, 0),), np.dtype("<u4"), data, strides=(1,))
    while step < longest and active[step] > _FEW_ROWS:
        now, full = int(active[step]), int(active[step + 2])
        # Only the last two words of a string can extend beyond its end.
        position = starts[:now] + 4 * step
        left = sizes[full:now] - 4 * step
        position[full:] = np.where(left > 0, position[full:], 0)
        word = every[position]
        keep = np.clip(left, 0, 4).astype(np.uint64) << np.uint64(3)
        word[full:] &= ((np.uint64(1) << keep) - np.uint64(1)).astype(np.uint32)
        _mix_lane(word, mixed[:now], spare[:now])
        _step_lane(sorted_state[:now], mixed[:now], spare[:now])
        step += 1
    for index in range(int(active[step]) if step < longest else 0):
        begin, count = int(starts[index]) + 4 * step, int(words[index]) - step
        tail = np.zeros(4 * count, np.uint8)
        bytes_left = max(int(sizes[index]) - 4 * step, 0)
        tail[:bytes_left] = data[begin : begin + bytes_left]
        lane = np.empty(count, np.uint32)
        _mix_lane(tail.view("<u4"), lane, np.empty(count, np.uint32))
        value = int(sorted_state[index])
        for item in lane.tolist():
            value = _step(value, item)
        sorted_state[index] = value
    state[order] = sorted_state
