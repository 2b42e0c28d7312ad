"""The words of SQL with a fixed meaning: types, and functions that need more than a kernel or are refused."""

from __future__ import annotations

from typing import Final

from tidelake.spec.types.data_types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TINYINT,
    Root,
    TimeType,
)

TYPES: Final = {
    "BOOLEAN": BOOLEAN,
    "TINYINT": TINYINT,
    "SMALLINT": SMALLINT,
    "INT": INT,
    "BIGINT": BIGINT,
    "FLOAT": FLOAT,
    "DOUBLE": DOUBLE,
    "DATE": DATE,
    "TEXT": STRING,
    "VARCHAR": STRING,
    "CHAR": STRING,
    "BINARY": BYTES,
    "VARBINARY": BYTES,
}
TIMES: Final = {
    "TIMESTAMP": Root.TIMESTAMP,
    "TIMESTAMPTZ": Root.TIMESTAMP,  # what sqlglot calls the plain TIMESTAMP of Spark
    "TIMESTAMPNTZ": Root.TIMESTAMP,
    "TIMESTAMPLTZ": Root.TIMESTAMP_LTZ,
    "TIME": Root.TIME,
}
NAMED_CASTS: Final = {
    "boolean": BOOLEAN,
    "tinyint": TINYINT,
    "smallint": SMALLINT,
    "int": INT,
    "bigint": BIGINT,
    "float": FLOAT,
    "double": DOUBLE,
    "date": DATE,
    "to_date": DATE,
    "string": STRING,
    "binary": BYTES,
    "timestamp": TimeType(Root.TIMESTAMP, precision=6),
    "to_timestamp": TimeType(Root.TIMESTAMP, precision=6),
}
CONDITION_FUNCTIONS: Final = frozenset(
    {"startswith", "endswith", "contains", "isnull", "isnotnull", "regexp", "regexp_like", "rlike"}
)
BUILT: Final = frozenset({"coalesce", "ifnull", "nvl", "nullif", "nvl2", "mod"})
AGGREGATES: Final = frozenset(
    {
        "any", "any_value", "approx_count_distinct", "approx_percentile", "array_agg", "avg", "bool_and", "bool_or",
        "collect_list", "collect_set", "corr", "count", "count_if", "every", "first", "first_value", "grouping", "last",
        "last_value", "listagg", "max", "max_by", "mean", "median", "min", "min_by", "mode", "percentile", "some",
        "std", "stddev", "stddev_pop", "stddev_samp", "string_agg", "sum", "var_pop", "var_samp", "variance",
    }
)  # fmt: skip
"""Functions over many rows, which an expression on one row cannot use."""

UNSTEADY: Final = frozenset(
    {
        "curdate", "current_date", "current_time", "current_timestamp", "current_user", "localtimestamp", "now", "rand",
        "randn", "random", "session_user", "unix_timestamp", "user", "uuid",
    }
)  # fmt: skip
"""Functions whose result changes with each evaluation."""
