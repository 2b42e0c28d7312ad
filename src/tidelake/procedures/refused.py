"""Procedures of Paimon that are refused, each with the reason and with what does the same here, if anything does.

They are in the registry with their arguments and result columns, so that a call of one is refused by its name.
"""

from __future__ import annotations

from typing import Final, NoReturn

import pyarrow as pa

from tidelake.errors import UnsupportedError
from tidelake.procedures.arguments import BOOLEAN, INTEGER, OPTIONS, TEXT, Argument, Values, choice
from tidelake.procedures.procedure import CHOSEN_PARTITIONS, RESULT, TABLE, USE_OPTIONS, WHERE, Procedure, Tables

_NO_CHAIN: Final = "chain tables are neither read nor written"
_NO_ROW_IDS: Final = "row IDs are not assigned"
_NO_GLOBAL_INDEX: Final = "indexes over the rows of a table are neither written nor used"
_NO_FILE_INDEX: Final = "file indexes are not written: readers give the same rows, from more bytes"
_NO_VIEWS: Final = "the catalogs here have no views"
_NO_FUNCTIONS: Final = "the catalogs here have no functions"
_NO_HIVE: Final = "tables of a Hive metastore cannot be opened; read the files and write their rows to a table"


def _make_refused(
    name: str, doc: str, reason: str, arguments: tuple[Argument, ...], columns: pa.Schema = RESULT
) -> Procedure:
    def refuse_call(tables: Tables, values: Values) -> NoReturn:
        del tables, values
        raise make_refusal(name, reason)

    return Procedure(name=name, doc=doc, arguments=arguments, columns=columns, run=refuse_call, refusal=reason)


def make_refusal(name: str, reason: str) -> UnsupportedError:
    """The error that a call of a refused procedure raises."""
    return UnsupportedError(
        "procedure is not supported",
        code="procedure-unsupported",
        procedure=name,
        reason=reason,
        hint="docs/procedures.md lists what can be called",
    )


_INDEX_ARGUMENTS: Final = (
    TABLE,
    Argument("index_column", TEXT, "The column of the index.", required=True),
    Argument("index_type", TEXT, "The type of the index.", required=True),
    CHOSEN_PARTITIONS,
)
_SOURCE_TYPE: Final = Argument("source_type", TEXT, "Where the tables are, such as hive.", required=True)
_NEW_OPTIONS: Final = Argument("options", OPTIONS, "Options of the new tables, as k1=v1,k2=v2.")
_OPTIONS_MAP: Final = Argument("options_map", OPTIONS, "Options of the new tables, as a map.")
_PARALLELISM: Final = Argument("parallelism", INTEGER, "How many partitions are moved at a time.")
_FUNCTION: Final = Argument("function", TEXT, "The function, as database.function.", required=True)

PROCEDURES: Final = (
    _make_refused(
        "compact_chain_table",
        "Merge a partition of a chain table into its snapshot branch.",
        _NO_CHAIN,
        (
            TABLE,
            Argument("partition", TEXT, "The partition, as k1=v1,k2=v2.", required=True),
            Argument("overwrite", BOOLEAN, "Replace the partition of the snapshot branch if it exists.", default=False),
        ),
    ),
    _make_refused(
        "reassign_row_id",
        "Give the rows of partitions consecutive row IDs.",
        _NO_ROW_IDS,
        (TABLE, CHOSEN_PARTITIONS),
    ),
    _make_refused(
        "rewrite_file_index",
        "Write the file indexes that the options of a table ask for to its existing files.",
        _NO_FILE_INDEX,
        (TABLE, WHERE),
        pa.schema([pa.field("written_partitions", pa.int32()), pa.field("written_indexes", pa.int32())]),
    ),
    _make_refused(
        "create_global_index",
        "Build an index over the rows of a table.",
        _NO_GLOBAL_INDEX,
        (*_INDEX_ARGUMENTS, USE_OPTIONS),
    ),
    _make_refused(
        "drop_global_index",
        "Drop an index over the rows of a table.",
        _NO_GLOBAL_INDEX,
        (*_INDEX_ARGUMENTS, Argument("dry_run", BOOLEAN, "Only count the files.", default=False)),
        pa.schema([pa.field("result", pa.bool_()), pa.field("dropped_file_count", pa.int32())]),
    ),
    _make_refused(
        "migrate_table",
        "Move the files of a Hive table into a new table.",
        _NO_HIVE,
        (
            _SOURCE_TYPE,
            Argument("table", TEXT, "The table to migrate, as database.table.", required=True),
            _NEW_OPTIONS,
            Argument("delete_origin", BOOLEAN, "Drop the migrated table afterwards.", default=True),
            Argument("target_table", TEXT, "The name of the new table; by default that of the old one."),
            _OPTIONS_MAP,
            _PARALLELISM,
        ),
    ),
    _make_refused(
        "migrate_database",
        "Move the files of all tables of a Hive database into new tables.",
        _NO_HIVE,
        (
            _SOURCE_TYPE,
            Argument("database", TEXT, "The database to migrate.", required=True),
            _NEW_OPTIONS,
            _OPTIONS_MAP,
            _PARALLELISM,
        ),
    ),
    _make_refused(
        "alter_view_dialect",
        "Change the query of a view for one engine.",
        _NO_VIEWS,
        (
            Argument("view", TEXT, "The view, as database.view.", required=True),
            Argument("action", choice("add", "update", "drop"), "What to do with the dialect.", required=True),
            Argument("engine", TEXT, "The engine that the query is for."),
            Argument("query", TEXT, "The query."),
        ),
    ),
    _make_refused(
        "create_function",
        "Create a function in the catalog.",
        _NO_FUNCTIONS,
        (
            _FUNCTION,
            Argument("inputParams", TEXT, "The parameters, as JSON.", required=True),
            Argument("returnParams", TEXT, "What it returns, as JSON.", required=True),
            Argument("deterministic", BOOLEAN, "Whether it always returns the same for the same values."),
            Argument("comment", TEXT, "A comment."),
            Argument("options", OPTIONS, "Options of the function, as k1=v1,k2=v2."),
        ),
    ),
    _make_refused(
        "alter_function",
        "Change a function of the catalog.",
        _NO_FUNCTIONS,
        (_FUNCTION, Argument("change", TEXT, "The change, as JSON.", required=True)),
    ),
    _make_refused("drop_function", "Drop a function of the catalog.", _NO_FUNCTIONS, (_FUNCTION,)),
)
