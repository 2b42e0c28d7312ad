"""What tidelake decodes, in the form in which `write_tables` notes what Java decodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from tidelake.io.env import Env
from tidelake.io.open import open_fileio
from tidelake.spec.data_file import SimpleStats
from tidelake.spec.manifests.index_manifest import IndexEntry
from tidelake.spec.manifests.manifest_list import ManifestMeta
from tidelake.table import Table, load_table

_BYTES = ("partition", "min_key", "max_key", "embedded_index")
_NEWER = ("write_cols_sequences",)
"""Columns that no release of the oracle knows."""


def open_branch(folder: Any, branch: str = "main") -> Table:
    """A handle on one branch of a table on disk."""
    return load_table(Env(open_fileio(folder)), "t", branch=branch)


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def entry_facts(entries: pa.Table) -> list[dict[str, Any]]:
    """The entries of a manifest or plan."""
    return [_entry(row) for row in entries.to_pylist()]


def _entry(row: dict[str, Any]) -> dict[str, Any]:
    facts = {name: value for name, value in row.items() if name not in _NEWER and "_stats_m" not in name}
    for side in ("key", "value"):
        facts[f"{side}_stats"] = {
            "min": _hex(row[f"{side}_stats_min"]),
            "max": _hex(row[f"{side}_stats_max"]),
            "nulls": facts.pop(f"{side}_stats_null_counts"),
        }
    for name in _BYTES:
        facts[name] = _hex(row[name])
    return facts


def stats_facts(stats: SimpleStats) -> dict[str, Any]:
    return {"min": stats.min_values.hex(), "max": stats.max_values.hex(), "nulls": list(stats.null_counts)}


def meta_facts(metas: Iterable[ManifestMeta]) -> list[dict[str, Any]]:
    """The manifests of a manifest list."""
    return [
        {
            name: stats_facts(meta.partition_stats) if name == "partition_stats" else getattr(meta, name)
            for name in ManifestMeta.__dataclass_fields__
        }
        for meta in metas
    ]


def index_facts(entries: Iterable[IndexEntry]) -> list[dict[str, Any]]:
    """The live files of an index manifest."""
    return [
        {
            "kind": 0,
            "partition": entry.partition.hex(),
            "bucket": entry.bucket,
            "index_type": entry.file.index_type,
            "file_name": entry.file.file_name,
            "file_size": entry.file.file_size,
            "row_count": entry.file.row_count,
        }
        for entry in entries
    ]


def by_name(facts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Files in an order that does not depend on who planned them."""
    return sorted(facts, key=lambda each: (each["partition"], each["bucket"], each["file_name"]))
