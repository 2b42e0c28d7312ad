"""Golden tables: what old releases wrote stays readable, without Java at hand.

`make_golden.py` made the archives once; each holds tables of one release and what its Java saw in every snapshot.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from compat import checks
from compat.checks import Written
from compat.make_golden import unpack
from tidelake.spec.documents.tag import tag_from_json
from tidelake.spec.schemas.schema import schema_from_json

ARCHIVES = sorted(Path(__file__).with_name("data").glob("paimon-*.tar.xz"))


@pytest.fixture(scope="session", params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder = tmp_path_factory.mktemp("golden")
    unpack(request.param, folder)
    return Written(request.param.name.removeprefix("paimon-").removesuffix(".tar.xz"), folder)


def test_three_releases_are_kept() -> None:
    assert [path.name for path in ARCHIVES] == [f"paimon-{release}.tar.xz" for release in ("0.9.0", "1.2.0", "2.0.0")]


def test_archives_are_unpacked_by_a_python_whose_tarfile_takes_no_filter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before 3.11.4: Debian 12 has 3.11.2."""
    extract = tarfile.TarFile.extractall

    def extract_without_filter(self: tarfile.TarFile, path: Path) -> None:
        extract(self, path)

    monkeypatch.setattr(tarfile.TarFile, "extractall", extract_without_filter)
    unpack(ARCHIVES[0], tmp_path)
    assert (tmp_path / "d.db").is_dir()


def test_every_snapshot_is_planned_as_java_planned_it(golden: Written) -> None:
    assert checks.same_files(golden) > 100


def test_every_document_of_every_snapshot_is_read_as_java_read_it(golden: Written) -> None:
    assert checks.same_snapshots(golden) > 20
    assert checks.same_manifests(golden) > 20


def test_partition_folders_have_the_names_they_had(golden: Written) -> None:
    seen = checks.same_folders(golden)
    assert {"dt=a b%2Fc%3Dd/hr=-5/", "dt=__DEFAULT_PARTITION__/hr=1/"} <= seen


def test_every_table_is_sound(golden: Written) -> None:
    checks.sound(golden)


def test_schemas_and_tags_are_read(golden: Written) -> None:
    schemas = sorted(golden.folder.glob("d.db/evolution/schema/schema-*"))
    assert [schema_from_json(path.read_bytes(), path=path.name).id for path in schemas] == [0, 1, 2, 3]
    tags = sorted(golden.folder.glob("d.db/tags_branches_consumers/tag/tag-*"))
    found = [(path.name, tag_from_json(path.read_bytes(), path=path.name)) for path in tags]
    assert [(name, tag.snapshot.id) for name, tag in found] == [
        ("tag-kept", 2),
        ("tag-odd.name_3", 3),
        ("tag-plain", 1),
    ]
