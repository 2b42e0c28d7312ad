"""Every document of tables that a release of Apache Paimon wrote: decoded, compared with Java's reading, encoded again.

Method: `write_tables.py` writes the tables and notes what the Java API says of them. Each test walks over all documents
of one kind, so a failure names the file.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import fastavro
import pytest

from compat import checks
from compat.checks import Written
from compat.facts import open_branch
from tidelake.spec.avro.container import parse_container, read_blocks
from tidelake.spec.documents.consumer import consumer_from_json, consumer_to_json
from tidelake.spec.documents.snapshot import snapshot_from_json, snapshot_to_json
from tidelake.spec.documents.statistics import statistics_from_json, statistics_to_json
from tidelake.spec.documents.tag import tag_from_json, tag_to_json
from tidelake.spec.manifests.index_manifest import decode_index_manifest, encode_index_manifest
from tidelake.spec.manifests.manifest import decode_manifest, encode_manifest
from tidelake.spec.manifests.manifest_list import decode_manifest_list, encode_manifest_list
from tidelake.spec.schemas.schema import schema_from_json, schema_to_json, schema_violations

pytestmark = pytest.mark.oracle


def documents(written: Written, pattern: str) -> Iterator[tuple[str, bytes]]:
    """Path and content of every file of all tables and branches that matches."""
    for place in ("d.db/*/", "d.db/*/branch/branch-*/"):
        for path in sorted(written.folder.glob(place + pattern)):
            yield str(path.relative_to(written.folder)), path.read_bytes()


def check_json(written: Written, path: str, data: bytes, encoded: bytes) -> None:
    """Newest release: the same bytes. Older ones spell a null where newer ones leave the key out."""
    if written.release == "2.0.0":
        assert encoded == data, path
    assert checks.without_nulls(json.loads(encoded)) == checks.without_nulls(json.loads(data)), path


# ------------------------------------------------------------------------------------------------ JSON


def test_schemas_are_read_and_written_alike(written: Written) -> None:
    count = 0
    for path, data in documents(written, "schema/schema-*"):
        schema = schema_from_json(data, path=path, expected_id=int(path.rpartition("-")[2]))
        check_json(written, path, data, schema_to_json(schema))
        assert not list(schema_violations(schema)), path
        count += 1
    assert count >= len(written.expected) + 3


def test_columns_have_the_types_that_java_shows(written: Written) -> None:
    for name, branch, facts in written.views():
        table = open_branch(written.table_folder(name), branch)
        ours = {field.name: str(field.type).replace("`", "") for field in table.schema.fields}
        assert ours == {column: text.replace("`", "") for column, text in facts["fields"].items()}, name


def test_snapshots_are_read_and_written_alike(written: Written) -> None:
    count = 0
    for path, data in documents(written, "snapshot/snapshot-*"):
        snapshot = snapshot_from_json(data, path=path, expected_id=int(path.rpartition("-")[2]))
        check_json(written, path, data, snapshot_to_json(snapshot))
        count += 1
    assert count > 100


def test_snapshots_are_what_java_reads(written: Written) -> None:
    assert checks.same_snapshots(written) > 100


def test_tags_are_read_and_written_alike(written: Written) -> None:
    found = {}
    for path, data in documents(written, "tag/tag-*"):
        tag = tag_from_json(data, path=path)
        check_json(written, path, data, tag_to_json(tag))
        found[path] = tag
    folder = "d.db/tags_branches_consumers/tag/tag-"
    assert found[folder + "plain"].create_time_ns is None
    assert found[folder + "plain"].snapshot.id == 1
    assert found[folder + "kept"].time_retained_ns == 36 * 3600 * 10**9
    assert found[folder + "odd.name_3"].time_retained_ns == 1500 * 10**6
    expected = written.expected["tags_branches_consumers"]["main"]["tags"]
    assert {p.removeprefix(folder): t.snapshot.id for p, t in found.items() if p.startswith(folder)} == expected


def test_consumers_are_read_and_written_alike(written: Written) -> None:
    found = {}
    for path, data in documents(written, "consumer/consumer-*"):
        consumer = consumer_from_json(data, path=path)
        assert consumer_to_json(consumer) == data, path
        found[Path(path).name.removeprefix("consumer-")] = consumer.next_snapshot
    assert found == written.expected["tags_branches_consumers"]["main"]["consumers"] == {"me": 2, "another-one": 4}


def test_statistics_are_read_and_written_alike(written: Written) -> None:
    count = 0
    for path, data in documents(written, "statistics/stat*"):
        encoded = statistics_to_json(statistics_from_json(data, path=path))
        assert encoded == data, path
        count += 1
    assert count == 2
    table = open_branch(written.table_folder("statistics"))
    latest = table.latest_snapshot()
    assert latest is not None
    assert latest.statistics is not None
    data = (written.table_folder("statistics") / "statistics" / latest.statistics).read_bytes()
    ours = json.loads(statistics_to_json(statistics_from_json(data, path="")))
    assert ours == written.expected["statistics"]["main"]["statistics"]


# ------------------------------------------------------------------------------------------------ Avro


def check_avro(written: Written, path: str, data: bytes, encoded: bytes) -> None:
    """Newest release: the same schema text and the same records in the same blocks; only the sync marker varies."""
    if written.release != "2.0.0" or not data.startswith(b"Obj\x01"):
        return
    theirs, ours = parse_container(data, path=path), parse_container(encoded, path=path)
    assert schema_text(encoded) == schema_text(data), path
    assert read_blocks(ours) == read_blocks(theirs), path


def schema_text(data: bytes) -> str:
    return str(fastavro.block_reader(io.BytesIO(data)).metadata["avro.schema"])


def codec_of(data: bytes, path: str) -> str:
    return parse_container(data, path=path).codec if data.startswith(b"Obj\x01") else "zstandard"


def test_manifest_lists_are_read_and_written_alike(written: Written) -> None:
    count = 0
    for path, data in documents(written, "manifest/manifest-list-*"):
        metas = decode_manifest_list(data, path=path)
        encoded = encode_manifest_list(metas, codec=codec_of(data, path))
        assert decode_manifest_list(encoded, path=path) == metas, path
        check_avro(written, path, data, encoded)
        count += 1
    assert count > 200


def test_manifests_are_read_and_written_alike(written: Written) -> None:
    count, blocks = 0, 0
    for path, data in documents(written, "manifest/manifest-*"):
        if "manifest-list" in path:
            continue
        entries = decode_manifest(data, path=path)
        encoded = encode_manifest(entries, codec=codec_of(data, path))
        assert decode_manifest(encoded, path=path).equals(entries), path
        check_avro(written, path, data, encoded)
        count += 1
        blocks = max(blocks, len(parse_container(encoded, path=path).blocks))
    assert count > 100
    assert blocks > 1, "no manifest was long enough for two blocks"


def test_index_manifests_are_read_and_written_alike(written: Written) -> None:
    types = set()
    for path, data in documents(written, "manifest/index-manifest-*"):
        entries = decode_index_manifest(data, path=path)
        encoded = encode_index_manifest(entries, codec=codec_of(data, path))
        assert decode_index_manifest(encoded, path=path) == entries, path
        check_avro(written, path, data, encoded)
        types |= {entry.file.index_type for entry in entries}
    assert types == {"HASH", "DELETION_VECTORS"}


# ------------------------------------------------------------------------------------------------ plans


def test_every_snapshot_has_the_files_that_java_plans(written: Written) -> None:
    assert checks.same_files(written) > 1000


def test_every_snapshot_has_the_manifests_that_java_lists(written: Written) -> None:
    assert checks.same_manifests(written) > 100


def test_partitions_lie_in_the_folders_that_java_names(written: Written) -> None:
    assert "dt=__DEFAULT_PARTITION__/hr=1/" in checks.same_folders(written)


def test_every_table_passes_the_check(written: Written) -> None:
    checks.sound(written)
