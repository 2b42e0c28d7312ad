#!/bin/sh
# Usage: make_venv.sh FOLDER LOCK [project]
# A virtual environment with exactly what a lock file names (every wheel checked by its hash), and with "project" also
# this package in editable mode. Needs Python 3.11 or newer and nothing else; never root.
set -eu
folder=$1 lock=$2 project=${3:-}
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "tidelake needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2
    exit 1
}
if [ ! -x "$folder/bin/python" ] || ! "$folder/bin/python" -m pip --version >/dev/null 2>&1; then
    rm -rf "$folder"
    # Debian splits venv into a package of its own; virtualenv does the same job where that is missing.
    "$python" -m venv "$folder" >/dev/null 2>&1 || "$python" -m virtualenv -q "$folder" >/dev/null 2>&1 || {
        tool=$(mktemp -d)
        "$python" -m pip install -q --target "$tool" virtualenv && PYTHONPATH=$tool "$python" -m virtualenv -q "$folder"
        rm -rf "$tool"
    } || {
        echo "cannot make a virtual environment: install python3-venv (or pip, or virtualenv)" >&2
        exit 1
    }
fi
echo "installing $lock into $folder"
pip() { "$folder/bin/python" -m pip -q --disable-pip-version-check "$@"; }
# uv is a matter of speed only: where it does not reach the index that pip is set up for, pip does the work.
{ pip install --no-deps --require-hashes -r requirements/bootstrap.txt &&
    "$folder/bin/uv" pip install -q --python "$folder/bin/python" --no-deps --require-hashes -r "$lock"; } ||
    pip install --no-deps --require-hashes -r "$lock"
if [ -n "$project" ]; then
    # The build backend is in the lock, so nothing unlocked is fetched here.
    pip install --no-deps --no-build-isolation -e .
fi
