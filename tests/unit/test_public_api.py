"""What a user sees of the package, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tidelake

HEAVY = ("pyarrow", "polars", "polars_avro", "numpy", "fastavro", "obstore", "msgspec", "rich", "click", "hypothesis")


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_package_imports_no_library():
    found = run(f"import sys, tidelake; print([name for name in {HEAVY!r} if name in sys.modules])")
    assert found == "[]"


def test_a_commit_of_a_few_files_does_not_import_polars():
    found = run(
        "import sys, tidelake as tl\n"
        "from tidelake.ops.commit.messages import CommitMessage, DataIncrement\n"
        "from tidelake.spec.data_file import DataFile\n"
        "t = tl.connect('memory://').create_table('db.t', {'a': 'INT'})\n"
        "f = DataFile(file_name='f', file_size=1, row_count=1)\n"
        "t.new_commit().commit([CommitMessage(partition=bytes(12), bucket=0, data=DataIncrement(new_files=(f,)))])\n"
        "print(t.files().num_rows, [n for n in ('polars', 'polars_avro') if n in sys.modules])"
    )
    assert found == "1 []"


def test_every_public_name_is_there():
    for name in tidelake.__all__:
        assert getattr(tidelake, name) is not None, name
    assert set(tidelake.__all__) <= set(dir(tidelake))
    assert sorted(tidelake.__all__) == list(tidelake.__all__)


def test_public_names_resolve_in_a_fresh_process():
    assert run("import tidelake as t; print(all(hasattr(t, n) for n in t.__all__))") == "True"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        tidelake.nonsense  # noqa: B018
    assert not hasattr(tidelake, "nonsense")


def test_the_version_is_that_of_the_distribution():
    from importlib.metadata import version

    assert tidelake.__version__ == version("tidelake")


def test_all_errors_are_public_and_of_one_family():
    from tidelake import errors

    for name in errors.__all__:
        assert getattr(tidelake, name) is getattr(errors, name)
        assert issubclass(getattr(errors, name), tidelake.TidelakeError)
