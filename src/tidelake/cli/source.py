"""Rows of a file on this machine or of standard input, a batch at a time.

The format follows from the file extension (`rows.csv.gz` is CSV) or from `--format`. CSV and JSON are read with the
table's types, so a number too large for its column is an error and not a guess. Invariant: memory is bounded by one
batch; Parquet from standard input is copied to a temporary file first, because its index is at the end.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any

from tidelake.errors import InvalidInputError, NotFoundError, UnsupportedError

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = ("parquet", "csv", "tsv", "jsonl", "arrow")
STDIN = "-"
BLOCK_BYTES = 8 << 20
_ENDINGS = {
    "parquet": "parquet",
    "csv": "csv",
    "tsv": "tsv",
    "json": "jsonl",
    "jsonl": "jsonl",
    "ndjson": "jsonl",
    "arrow": "arrow",
    "arrows": "arrow",
    "feather": "arrow",
    "ipc": "arrow",
}
_OTHER_FORMAT = "write the rows as Parquet or Arrow"
_PACKED = ("gz", "bz2", "zst", "lz4")


def format_of(path: str, given: str | None = None) -> str:
    """The format that is given, or else the one of the file extension.

    Raises:
        InvalidInputError: no format is given, and the extension is not known.
    """
    if given is not None:
        return given
    if path == STDIN:
        raise InvalidInputError(
            "format of standard input is not known", hint=f"use --format with one of {', '.join(FORMATS)}"
        )
    parts = path.lower().rpartition("/")[2].split(".")
    ending = parts[-2] if len(parts) > 2 and parts[-1] in _PACKED else parts[-1]
    if len(parts) < 2 or ending not in _ENDINGS:
        raise InvalidInputError(
            "format of the file is not known from its extension",
            path=path,
            hint=f"use .parquet, .csv, .tsv, .jsonl or .arrow, or --format with one of {', '.join(FORMATS)}",
        )
    return _ENDINGS[ending]


def read_rows(path: str, schema: pa.Schema | None, *, given: str | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of a file, or of standard input (`-`), in batches.

    Args:
        path: the file, or `-`.
        schema: the columns of the table; None to take the types that the rows seem to have.
        given: the format; None to take that of the extension.

    Raises:
        NotFoundError: the file does not exist.
        InvalidInputError: the format is not known, or the content does not fit.
        UnsupportedError: the format cannot hold a column of the table.
    """
    import pyarrow as pa

    kind = format_of(path, given)
    try:
        with _open(path, kind) as stream:
            yield from _READERS[kind](stream, schema)
    except FileNotFoundError as cause:
        raise NotFoundError("file does not exist", code="file-not-found", path=path, hint="check the path") from cause
    except (pa.ArrowException, OSError, UnicodeError) as cause:
        raise InvalidInputError(
            "file cannot be read as rows of the table",
            code="source-file",
            path="standard input" if path == STDIN else path,
            format=kind,
            cause=" ".join(str(cause).split())[:200],
            hint="fix the row that is named, or use --format if the file has another format",
        ) from cause


def _open(path: str, kind: str) -> Any:
    import pyarrow as pa

    if path == STDIN:
        # Arrow reads these formats on threads of its own, which could still hold a Python file when the process exits.
        read_aside = kind in ("parquet", "csv", "tsv")
        return _spool(sys.stdin.buffer) if read_aside else pa.PythonFile(sys.stdin.buffer, mode="r")
    if kind in ("parquet", "arrow"):
        return pa.OSFile(path, "rb")
    return pa.input_stream(path)  # decompresses by the file extension


def _spool(stream: IO[bytes]) -> Any:
    """Copy a stream to an unnamed file that Arrow itself opens."""
    import shutil
    import tempfile

    import pyarrow as pa

    with tempfile.NamedTemporaryFile() as file:
        shutil.copyfileobj(stream, file)
        file.flush()
        return pa.OSFile(file.name)  # stays readable after its name is removed


# ---------------------------------------------------------------------------------------------------------- formats


def _parquet(stream: Any, schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    del schema  # Parquet knows its types
    import pyarrow.parquet

    yield from pyarrow.parquet.ParquetFile(stream).iter_batches()


def _arrow(stream: Any, schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    del schema  # Arrow knows its types
    import pyarrow as pa

    if not stream.seekable():
        yield from pa.ipc.open_stream(stream)
        return
    seen = stream.read(6)
    stream.seek(0)
    if seen == b"ARROW1":
        file = pa.ipc.open_file(stream)
        yield from (file.get_batch(number) for number in range(file.num_record_batches))
    else:
        yield from pa.ipc.open_stream(stream)


def _csv(stream: Any, schema: pa.Schema | None, *, delimiter: str = ",") -> Iterator[pa.RecordBatch]:
    import pyarrow.csv

    check_holds("csv", schema, "read from", hint=_OTHER_FORMAT)
    read = pyarrow.csv.ReadOptions(use_threads=False)  # errors name the row only if one thread reads
    convert = pyarrow.csv.ConvertOptions(
        column_types=schema,
        # Nothing between two commas is null; "" in quotes is the empty text, and NA is a country.
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    parse = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    yield from pyarrow.csv.open_csv(stream, read, parse, convert)


def _tsv(stream: Any, schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    yield from _csv(stream, schema, delimiter="\t")


def _jsonl(stream: Any, schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.json

    check_holds("jsonl", schema, "read from", hint=_OTHER_FORMAT)
    wanted = None if schema is None else pa.schema([field.with_type(_json_type(field.type)) for field in schema])
    how = pyarrow.json.ParseOptions(explicit_schema=wanted)
    first = 1
    for block, lines in _line_blocks(stream):
        try:
            table = pyarrow.json.read_json(_copy_to_arrow(block), parse_options=how)
        except pa.ArrowException as cause:
            raise pa.ArrowInvalid(f"in the rows from line {first} on: {cause}") from cause
        if schema is not None:
            table = pa.table({name: _cast_json_column(table.column(name), schema, name) for name in table.column_names})
        first += lines
        yield from table.to_batches()


def _copy_to_arrow(block: bytes) -> Any:
    """Copy the bytes into memory of Arrow, whose threads can free it without the interpreter lock."""
    import pyarrow as pa

    buffer = pa.allocate_buffer(len(block))
    memoryview(buffer).cast("B")[:] = block
    return pa.BufferReader(buffer)


def _line_blocks(stream: Any) -> Iterator[tuple[bytes, int]]:
    """Blocks of whole lines, each with its number of lines."""
    rest = b""
    while block := stream.read(BLOCK_BYTES):
        head, newline, tail = (rest + block).rpartition(b"\n")
        if head.strip():
            yield head + newline, head.count(b"\n") + 1
            rest = tail
        else:
            rest = head + newline + tail
    if rest.strip():
        yield rest, rest.count(b"\n") + 1


_READERS = {"parquet": _parquet, "csv": _csv, "tsv": _tsv, "jsonl": _jsonl, "arrow": _arrow}


# ---------------------------------------------------------------------------------------------------------- types


def _json_type(dtype: pa.DataType) -> pa.DataType:
    """The type to read JSON with. Dates and times of day are texts in JSON, but Arrow would expect numbers."""
    import pyarrow as pa

    kinds = pa.types
    if kinds.is_date(dtype) or kinds.is_time(dtype):
        return pa.string()
    if kinds.is_struct(dtype):
        return pa.struct([field.with_type(_json_type(field.type)) for field in dtype])
    if kinds.is_list(dtype) or kinds.is_fixed_size_list(dtype):
        return pa.list_(_json_type(dtype.value_type))
    return dtype


def _cast_json_column(values: pa.ChunkedArray, schema: pa.Schema, name: str) -> pa.ChunkedArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    position = schema.get_field_index(name)
    if position < 0:
        return values
    wanted = schema.field(position).type
    if not pa.types.is_time(wanted):
        return values.cast(wanted)
    # Arrow cannot parse a time of day, but it can parse a timestamp.
    return pc.binary_join_element_wise("1970-01-01", values, " ").cast(pa.timestamp(wanted.unit)).cast(wanted)


def _holds(dtype: pa.DataType, wanted: Iterable[str]) -> bool:
    import pyarrow as pa

    if any(getattr(pa.types, f"is_{kind}")(dtype) for kind in wanted):
        return True
    return any(_holds(dtype.field(number).type, wanted) for number in range(dtype.num_fields))


def check_holds(kind: str, schema: pa.Schema | None, verb: str, *, hint: str, texts_only: bool = False) -> None:
    """Refuse columns that a format cannot hold: nested ones in CSV; in JSON what Arrow cannot read from it.

    These are maps, and times of day inside rows and arrays; with `texts_only` bytes too, which may not be a text.

    Raises:
        UnsupportedError: there is such a column.
    """
    bytes_like = ("binary", "large_binary", "fixed_size_binary") if texts_only else ()
    for field in schema or ():
        dtype = field.type
        if kind in ("csv", "tsv"):
            fits = not _holds(dtype, ("nested", *bytes_like))
        elif kind == "jsonl":
            in_rows = dtype.num_fields and _holds(dtype, ("time",))
            fits = not (_holds(dtype, ("map", *bytes_like)) or in_rows)
        else:
            return
        if not fits:
            name = "JSON" if kind == "jsonl" else "CSV"
            raise UnsupportedError(
                f"a column of the table cannot be {verb} {name}", column=field.name, type=dtype, hint=hint
            )
