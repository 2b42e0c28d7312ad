"""Rows of a file on this machine, told by its ending."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelake.errors import InvalidInputError

if TYPE_CHECKING:
    import pyarrow as pa


def read_rows(path: str, schema: pa.Schema) -> Any:
    """The rows of a Parquet, CSV, JSON-lines or Arrow file; texts are read with the table's types.

    Raises:
        InvalidInputError: the ending is not known, or the content does not fit.
    """
    import pyarrow as pa

    ending = path.rpartition(".")[2].lower()
    try:
        match ending:
            case "parquet":
                import pyarrow.parquet

                return pyarrow.parquet.ParquetFile(path).iter_batches()
            case "csv":
                import pyarrow.csv

                types = {field.name: field.type for field in schema}
                return pyarrow.csv.read_csv(path, convert_options=pyarrow.csv.ConvertOptions(column_types=types))
            case "json" | "jsonl" | "ndjson":
                import pyarrow.json

                how = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
                return pyarrow.json.read_json(path, parse_options=how)
            case "arrow" | "feather" | "ipc":
                import pyarrow.feather

                return pyarrow.feather.read_table(path)
    except (pa.ArrowException, ValueError) as cause:
        raise InvalidInputError(
            "file cannot be read as rows of the table", path=path, cause=str(cause)[:200]
        ) from cause
    raise InvalidInputError("ending of the file is not known", path=path, hint="use .parquet, .csv, .jsonl or .arrow")
