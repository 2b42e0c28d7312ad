"""The registry of procedures: find one by its name, call it, list them all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from tidelake.errors import NotFoundError, TidelakeError
from tidelake.options import nearest
from tidelake.procedures import compacting, expiring, files, partitions, references, refused
from tidelake.procedures.arguments import bind
from tidelake.procedures.procedure import Preview, Procedure, Tables
from tidelake.procedures.refused import make_refusal

_SYSTEM: Final = "sys."
_LISTED: Final = pa.schema(
    [
        pa.field("name", pa.string()),
        pa.field("arguments", pa.string()),
        pa.field("result_columns", pa.string()),
        pa.field("description", pa.string()),
    ]
)


def _by_name(listed: Iterable[Procedure]) -> Mapping[str, Procedure]:
    return {each.name: each for each in sorted(listed, key=lambda each: each.name)}


PROCEDURES: Final = _by_name(
    [
        *compacting.PROCEDURES,
        *expiring.PROCEDURES,
        *files.PROCEDURES,
        *partitions.PROCEDURES,
        *references.PROCEDURES,
        *refused.PROCEDURES,
    ]
)
"""Every procedure by its name, in order of the names, those included whose calls are refused."""


def find_procedure(name: str) -> Procedure:
    """The procedure of a name, in any case and with or without `sys.` in front.

    Raises:
        NotFoundError: the procedure does not exist; the hint names the nearest.
    """
    plain = name.lower().removeprefix(_SYSTEM)
    if plain in PROCEDURES:
        return PROCEDURES[plain]
    meant = nearest(plain, PROCEDURES)
    supported = (each.name for each in PROCEDURES.values() if not each.refusal)
    raise NotFoundError(
        "procedure does not exist",
        code="procedure-not-found",
        procedure=ascii(name[:80])[1:-1],
        hint=f"did you mean {meant}?" if meant else f"procedures are {', '.join(supported)}",
    )


def _find_supported(name: str) -> Procedure:
    """The procedure of a name. A refused one is refused before its arguments are read: no other value would help."""
    found = find_procedure(name)
    if found.refusal:
        raise make_refusal(found.name, found.refusal)
    return found


def call_procedure(
    tables: Tables, name: str, positional: Sequence[object] = (), named: Mapping[str, object] | None = None
) -> pa.Table:
    """Call a procedure with arguments by position, by name or both; returns its result.

    Raises:
        NotFoundError: the procedure, its table, or what it works on does not exist.
        InvalidInputError: an argument is not known, missing, given twice, or does not fit.
        UnsupportedError: the procedure is not supported, or an argument asks for something that is not done yet.
    """
    found = _find_supported(name)
    values = bind(found.name, found.arguments, positional, named or {})
    with _named_in_errors(found):
        return pa.Table.from_pylist(list(found.run(tables, values)), schema=found.columns)


def preview_call(
    tables: Tables, name: str, positional: Sequence[object] = (), named: Mapping[str, object] | None = None
) -> Preview | None:
    """What such a call would delete or rewrite; None for a procedure that does neither.

    Raises:
        NotFoundError: as `call_procedure`.
        InvalidInputError: as `call_procedure`.
        UnsupportedError: as `call_procedure`.
    """
    found = _find_supported(name)
    values = bind(found.name, found.arguments, positional, named or {})
    with _named_in_errors(found):
        return None if found.preview is None else found.preview(tables, values)


@contextmanager
def _named_in_errors(procedure: Procedure) -> Iterator[None]:
    """Add the procedure to errors of the verbs that it calls."""
    try:
        yield
    except TidelakeError as error:
        error.facts.setdefault("procedure", procedure.name)
        raise


def list_procedures() -> pa.Table:
    """Every procedure: its name, arguments (optional ones in brackets), result columns, and what it does."""
    rows = [
        {
            "name": each.name,
            "arguments": ", ".join(map(str, each.arguments)),
            "result_columns": ", ".join(each.columns.names),
            "description": f"Not supported: {each.refusal}." if each.refusal else each.doc,
        }
        for each in PROCEDURES.values()
    ]
    return pa.Table.from_pylist(rows, schema=_LISTED)
