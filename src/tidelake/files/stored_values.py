"""Cast stored values to the type of the schema. A value that does not fit means that the file is damaged or foreign."""

from __future__ import annotations

import pyarrow as pa

from tidelake.errors import FormatError
from tidelake.spec.types.data_types import DataType


def cast_stored(array: pa.Array, target: pa.DataType, dtype: DataType) -> pa.Array:
    """Cast values that a file stores.

    Raises:
        FormatError: a value does not fit the type of the schema.
    """
    try:
        return array.cast(target)
    except pa.ArrowException as error:
        raise FormatError(
            "column values do not have the type of the schema",
            expected=dtype,
            found=array.type,
            cause=str(error)[:200],
        ) from error
